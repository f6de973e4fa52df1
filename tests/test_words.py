import pytest

from data_scripts.words import find_words, join_words, list_title_words, split_words


@pytest.mark.parametrize(
    "text, words, joined",
    [
        ("was born in  New York, USA", ["was", "born", "in", "New", "York,", "USA"], " was born in New York, USA"),
        ("出生于伦敦", list("出生于伦敦"), "出生于伦敦"),
        ("于1931年 in Paris", ["于", "1931", "年", "in", "Paris"], "于1931年in Paris"),
        ("दिल्ली में जन्म", ["दिल्ली", "में", "जन्म"], " दिल्ली में जन्म"),
        ("เกิดที่กรุง in Paris", ["เ", "กิ", "ด", "ที่", "ก", "รุ", "ง", "in", "Paris"], "เกิดที่กรุงin Paris"),
        ("", [], ""),
    ],
)
def test_words_are_split_and_joined_as_their_script_writes_them(text, words, joined):
    assert split_words(text) == words and join_words(words) == joined


@pytest.mark.parametrize(
    "text, words, found",
    [
        ("Romeville, Rome, New Rome", ["Rome"], [11, 21]),
        ("in New York (New York City)", ["New York", "City"], [3, 13, 22]),
        ("于京都出生", ["京", "都出"], [1, 2]),
        ("Lisbon", ["", "Lis", "b.n"], []),
        ("दिल्ली और दिल", ["दिल"], [10]),
        ("เกิดที่กรุงเทพ", ["กรุงเทพ", "กรุ"], [7, 7]),
    ],
)
def test_words_are_found_where_they_stand_whole(text, words, found):
    spans = list(find_words(words, text))
    assert [start for start, _ in spans] == found and all(text[start:end] in words for start, end in spans)


def test_a_titles_words_have_no_punctuation_around_them_but_initials_keep_theirs():
    assert list_title_words('Smith, John F. ("Jack")') == {"Smith", "John", "F.", "Jack"}
