import pytest

from data_scripts.words import join_words, split_words


@pytest.mark.parametrize(
    "text, words, joined",
    [
        ("was born in  New York, USA", ["was", "born", "in", "New", "York,", "USA"], " was born in New York, USA"),
        ("出生于伦敦", list("出生于伦敦"), "出生于伦敦"),
        ("于1931年 in Paris", ["于", "1931", "年", "in", "Paris"], "于1931年in Paris"),
        ("", [], ""),
    ],
)
def test_words_are_split_and_joined_as_their_script_writes_them(text, words, joined):
    assert split_words(text) == words and join_words(words) == joined
