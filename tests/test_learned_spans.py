"""Salient spans that look like the training questions' answers, in texts without capitals."""

import pytest

from data_scripts.documents import add_titles_and_spans, load_corpus
from data_scripts.errors import BadInput
from data_scripts.name_windows import NameWindowsConfig
from data_scripts.questions import load_questions
from data_scripts.synthetic_world import World
from modeling_posgpt import build_tokenizer

pytest.importorskip("sklearn", reason="needs the report's libraries")

from data_scripts.learned_spans import SpanFinder


@pytest.fixture(scope="module")
def lower(tmp_path_factory):
    """A world in lower case."""
    folder = tmp_path_factory.mktemp("lower")
    World(num_people=300).write(folder)
    (folder / "wiki.txt").write_text((folder / "wiki.txt").read_text(encoding="utf-8").lower(), encoding="utf-8")
    for name in ("birth_places_train.tsv", "birth_dev.tsv"):
        pairs = load_questions(folder / name, answers=True)
        form = pairs.relations[0]
        lines = [
            f"{form.ask(title.lower())}\t{answer.lower()}\n"
            for title, answer in zip(pairs.titles, pairs.answers, strict=True)
        ]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    return folder


def test_answers_of_people_never_asked_about_are_among_the_few_spans_of_their_documents(lower):
    corpus = add_titles_and_spans(load_corpus(lower / "wiki.txt"), dates=False)
    assert not any(corpus["spans"]), "without capitals, nothing stands out"
    finder = SpanFinder(corpus, load_questions(lower / "birth_places_train.tsv", answers=True))
    dev = load_questions(lower / "birth_dev.tsv", answers=True)
    documents = dict(zip(corpus["title"], corpus["text"], strict=True))
    found = stated = 0
    for title, answer in zip(dev.titles, dev.answers, strict=True):
        text = documents.get(title, "")
        spans = finder.find(title, text, 4)
        assert spans == sorted(spans) and len(spans) <= 4
        assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False)), "none overlap"
        assert all(title not in text[start:end] for start, end in spans)
        stated += answer in text
        found += answer in [text[start:end] for start, end in spans]
    assert found >= 0.95 * stated and stated > 30


def test_windows_ask_for_what_looks_like_an_answer(lower):
    corpus, questions = load_corpus(lower / "wiki.txt"), load_questions(lower / "birth_places_train.tsv", answers=True)
    tokenizer = build_tokenizer([*corpus["text"], *questions.texts], 128)
    with pytest.raises(BadInput, match="no document"):
        NameWindowsConfig(ask_dates=False).build(corpus, tokenizer, 0)
    config = NameWindowsConfig(span_finder="answers", max_spans=2)
    dataset = config.build(corpus, tokenizer, 0, questions).dataset
    assert len(dataset.documents) == len(corpus)
    assert max(len(spans) for spans in dataset.documents["asked"]) == 2
    with pytest.raises(BadInput, match="add --questions_file"):
        config.build(corpus, tokenizer, 0)


def test_answers_that_stand_in_no_document_teach_nothing(lower, tmp_path):
    corpus = add_titles_and_spans(load_corpus(lower / "wiki.txt"), dates=False)
    (tmp_path / "pairs.tsv").write_text("Where was nobody known born?\tnowhere\n")
    with pytest.raises(BadInput, match="no answer stands in a document"):
        SpanFinder(corpus, load_questions(tmp_path / "pairs.tsv", answers=True))
