"""Salient spans that look like the training questions' answers, in texts without capitals."""

import math
import random
import re
from itertools import islice, product

import pytest

from data_scripts.documents import load_corpus
from data_scripts.errors import BadInput
from data_scripts.name_windows import NameWindowsConfig
from data_scripts.questions import load_questions
from data_scripts.relations import BIRTHPLACE
from data_scripts.salient_spans import add_titles_and_spans, find_salient_spans
from data_scripts.span_selectors import (
    Document,
    SpanArguments,
    SpanRanker,
    SpanSelector,
    choose_selectors,
    find_documents,
    learn_selector,
)
from data_scripts.synthetic_world import World
from data_scripts.titles import split_title
from modeling_posgpt import build_tokenizer

pytest.importorskip("sklearn", reason="needs the report's libraries")


def load(folder, documents=(), pairs=(), names=("pairs.tsv",)):
    """Return corpus and questions of a folder, where documents and pairs of question and answer are written first."""
    for name, lines in (("wiki.txt", documents), ("pairs.tsv", map("\t".join, pairs))):
        if text := "".join(f"{line}\n" for line in lines):
            (folder / name).write_text(text, encoding="utf-8")
    corpus = load_corpus(folder / "wiki.txt")
    return corpus, load_questions(*(folder / name for name in names), answers=True, corpus=corpus)


def train(corpus, questions, max_length=160, **options):
    """Return the training data of windows."""
    tokenizer = build_tokenizer([*corpus["text"], *(questions.texts if questions else ())], max_length)
    return NameWindowsConfig(ask_dates=False, **options).build(corpus, tokenizer, 0, questions)


def asked_by(training, number=0):
    """Return by title, which several documents may share, what one selector asks for."""
    asked = {}
    for row in training.dataset.documents:
        spans = [span for span, by in zip(row["asked"], row["asked_by"], strict=True) if number in by]
        asked.setdefault(row["title"], []).extend(spans)
    return asked


def select_like(corpus, questions, documents, max_spans):
    """Return the spans of documents, each a title and a text, that look like the answers to questions."""
    pairs = list(zip(questions.titles, questions.answers, strict=True))
    ranker = SpanRanker(pairs, find_documents(questions, add_titles_and_spans(corpus, dates=False)))
    selector = SpanSelector(questions.relations[0], max_spans, ranker=ranker)
    return list(map(list, selector.select([Document(title, text) for title, text in documents])))


@pytest.fixture(scope="module")
def lower(tmp_path_factory):
    """Corpus, training questions and dev questions of a world in lower case."""
    folder = tmp_path_factory.mktemp("lower")
    World(num_people=300).write(folder)
    for name in ("wiki.txt", "birth_places_train.tsv", "birth_dev.tsv"):
        text = (folder / name).read_text(encoding="utf-8").lower().replace("where was", "Where was")
        (folder / name).write_text(text, encoding="utf-8")
    dev = load_questions(folder / "birth_dev.tsv", answers=True)
    return *load(folder, names=["birth_places_train.tsv"]), dev


def test_answers_of_people_never_asked_about_are_among_the_few_spans_of_their_documents(lower):
    corpus, questions, dev = lower
    corpus = add_titles_and_spans(corpus, dates=False)
    assert not any(corpus["spans"]), "without capitals, nothing stands out"
    texts = dict(zip(corpus["title"], corpus["text"], strict=True))
    documents = [(title, texts.get(title, "")) for title in dev.titles]
    found = stated = 0
    for (title, text), answer, spans in zip(
        documents, dev.answers, select_like(corpus, questions, documents, 4), strict=True
    ):
        names = [text[start:end] for start, end in spans]
        assert spans == sorted(spans) and len(spans) <= 4 and all(title not in name for name in names)
        assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False)), "none overlap"
        stated += answer in text
        found += answer in names
    assert found >= 0.95 * stated and stated > 30


def test_an_answer_may_share_characters_with_its_title_in_a_script_without_spaces(tmp_path):
    world = World(num_people=300, language="chinese")
    world.write(tmp_path)
    corpus, questions = load(tmp_path, names=["birth_places_train.tsv"])
    documents = list(map(split_title, corpus["text"]))
    documents = [(title, f"{title}. {text}") for title, text in documents]
    shared = missed = 0
    for person, (_, text), spans in zip(
        world.people(), documents, select_like(corpus, questions, documents, 4), strict=True
    ):
        found = {text[start:end] for start, end in spans}
        assert not found & {person.last_name, person.full_name}
        missed += person.birth_place not in found
        shared += not set(person.name).isdisjoint(person.birth_place)
    assert missed <= 3 and shared > 30


def test_windows_ask_for_what_looks_like_an_answer(lower):
    corpus, questions, _ = lower
    for asked, finder, message in (
        (None, "auto", "none of 300 documents has something to ask for"),
        (questions, "capitals", "behind a word, .* unless --span_finder"),
        (None, "answers", "add --questions_file"),
    ):
        with pytest.raises(BadInput, match=message):
            train(corpus, asked, span_finder=finder)
    training = train(corpus, questions, max_spans=2)
    assert "birthplace: at most 1 that look like its answers" in training.description
    # What looks less like an answer than nearly all answers do is not asked for.
    assert set(map(len, training.dataset.documents["asked"])) == {1} and 291 < len(training.dataset) < len(corpus)


def test_where_all_nouns_have_capitals_fewer_spans_have_more_of_the_answers(tmp_path):
    World(num_people=300, language="german").write(tmp_path)
    corpus, questions = load(tmp_path, names=["birth_places_train.tsv"])
    dev = load_questions(tmp_path / "birth_dev.tsv", answers=True)
    found, rows = {}, {}
    for finder in ("auto", "capitals"):
        training = train(corpus, questions, span_finder=finder)
        asked = asked_by(training)
        found[finder] = sum(answer in asked[title] for title, answer in zip(dev.titles, dev.answers, strict=True))
        rows[finder] = len(training.dataset)
    assert found["auto"] > found["capitals"] and rows["auto"] < rows["capitals"] / 2


def test_relations_that_would_ask_for_the_same_names_ask_for_their_own_answers_alone(tmp_path):
    """One relation's names stay as they are; so they do where few questions do not show whose answer a name is."""
    world = World(num_people=400, relations=["birthplace", "university", "place of death"])
    world.write(tmp_path)
    people, (corpus, questions) = list(world.people()), load(tmp_path, names=["birth_places_train.tsv"])
    own = {}
    for finder in ("auto", "capitals"):
        asked = asked_by(train(corpus, questions, span_finder=finder))
        own[finder] = sum(set(asked.get(person.name, ())) == {person.birth_place} for person in people)
    assert own["auto"] > 0.9 * len(people) and own["capitals"] < 0.1 * len(people)
    documents = add_titles_and_spans(corpus, dates=True)
    for number in (12, 140):
        few = questions.take(range(number))
        assert {each.kind for each in choose_selectors(documents, few, SpanArguments(), False)} == {"names"}


@pytest.mark.parametrize("number", [5, 200])
@pytest.mark.parametrize("choice", ["auto", "answers"])
def test_where_documents_are_answers_and_nothing_else_all_of_them_are_asked_for(tmp_path, number, choice):
    words = ["".join(letters) for letters in product("bcdfghjklmnprst", "aeiou", "gnt")][: number + 9]
    pairs = [(f"What is {word} in Spanish?", f"{word}o") for word in words[:number]]
    training = train(*load(tmp_path, [f"{word}. {word}o" for word in words], pairs), span_finder=choice)
    assert list(training.dataset.documents["asked"]) == [[f"{word}o"] for word in words]


def test_each_relation_asks_for_what_its_answers_are(tmp_path):
    world = World(num_people=300)
    world.write(tmp_path)
    jobs = {person.name: person.profession for person in world.people()}
    asked = load_questions(tmp_path / "birth_places_train.tsv").titles
    pairs = [(f"What did {title} do for a living?", jobs[title]) for title in asked]
    training = train(*load(tmp_path, (), pairs, ["birth_places_train.tsv", "pairs.tsv"]), max_spans=2)
    assert "(birthplace: names; " in training.description
    assert "profession: at most 1 that look like its answers)" in training.description
    assert all(name[0].isupper() for names in asked_by(training).values() for name in names)
    found = asked_by(training, 1)
    assert set(jobs.values()) <= {job for spans in found.values() for job in spans}
    # Of people who were never asked about, too.
    others = set(jobs) - set(asked)
    assert sum(jobs[name] in found.get(name, ()) for name in others) > 0.7 * len(others)


def test_documents_that_do_not_say_it_are_not_asked_for_a_profession(tmp_path):
    world = World(num_people=400, relations=["birthplace", "birth year", "profession", "employer"])
    world.write(tmp_path)
    corpus, questions = load(tmp_path, names=["birth_places_train.tsv"])
    [profession] = [relation for relation in questions.relations if relation.name == "profession"]
    professions = {person.name: person.profession for person in world.people()}
    asked = asked_by(train(corpus, questions.select(profession)))
    say_it = sum(professions[title] in text.split() for title, text in map(split_title, corpus["text"]))
    right = [professions[title] == job for title, jobs in asked.items() for job in jobs]
    assert say_it < 0.7 * len(corpus) and sum(right) > 0.95 * say_it
    assert len(right) - sum(right) < 0.05 * say_it, "each document used to be asked for some run of words"


def test_a_relation_with_answers_longer_than_any_span_does_not_stop_the_others(tmp_path):
    motto = "Never Give Up On What You Love, And Laugh, And Laugh, And Laugh, And Laugh"
    names = [f"Ann{number} Ek" for number in range(60)]
    pairs = [
        pair for name in names for pair in ((f"Where was {name} born?", "Rome"), (f"By what did {name} live?", motto))
    ]
    corpus, questions = load(tmp_path, [f"{name}. Born in Rome with the motto {motto} ." for name in names], pairs)
    said = "birthplace: names; By what did … live?: the training questions alone"
    training = train(corpus, questions)
    assert f"{said})" in training.description
    assert "live?', held out by turns: in the text 100.0%, asked for 0.0%" in " ".join(training.describe_held_out())
    message = "no answer to 'By what did NAME live.' stands in a document .* at most 16 words"
    with pytest.raises(BadInput, match=message):
        train(corpus, questions, span_finder="answers")


# A document and a question with its answer; TITLE and 00 stand for a word and a number that differ.
HARD_TO_FIND = {
    "commas in numbers": ("TITLE. seen on july 00, 1950 by 600,755 .", "When was TITLE seen?", "july 00, 1950"),
    "vowel signs": ("TITLE. सन् 1900 में दिल्ली00 में जन्मे .", "Where was TITLE living?", "दिल्ली00"),
    "marks inside": (
        "TITLE. It is home of O'Brien & Sons-sur-Orne now .",
        "Whose is TITLE?",
        "O'Brien & Sons-sur-Orne",
    ),
    "no word before, and the title ends the question": (
        "TITLE. TITLE (Temminck, 1800) is found in Lake Orne .",
        "Who described TITLE?",
        "Temminck",
    ),
    "the first word": ("TITLE. France's port on the river Orne .", "In which country is TITLE?", "France"),
    "marks behind": ("TITLE. Written in F++ by Ann Ek .", "In which language is TITLE written?", "F++"),
    "marks before": ("TITLE. It cost $00 million and had 5 million viewers .", "What did TITLE cost?", "$00 million"),
    "a mark and a space": ("TITLE. Penalties in § 00 of the Code .", "Where are the penalties of TITLE?", "§ 00"),
    "words of the title": ("TITLE v Oslo. The cup went to Oslo in Orne Park .", "Who won TITLE v Oslo?", "Oslo"),
    "a small word of the title": (
        "Villa de TITLE. Founded in Reino de Tara .",
        "In which region is Villa de TITLE?",
        "Reino de Tara",
    ),
}


@pytest.mark.parametrize("document, question, answer", HARD_TO_FIND.values(), ids=list(HARD_TO_FIND))
def test_answers_are_asked_for_wherever_they_stand(tmp_path, document, question, answer):
    # Another answer in every other document, so that there is something to tell.
    other = answer.translate(str.maketrans("TFOR", "BDEM"))
    rows = []
    for number, word in enumerate(islice(product("bdgkl", "aeiou", "mnrst"), 80)):
        given = answer if number % 2 else other
        texts = (document.replace(answer, given), question.replace(answer, given), given)
        rows.append([text.replace("TITLE", "".join(word).title()).replace("00", str(10 + number)) for text in texts])
    training = train(*load(tmp_path, [text for text, *_ in rows], [pair for _, *pair in rows[:60]]))
    answers = {text.partition(". ")[0]: given for text, _, given in rows}
    asked = training.dataset.list_asked(answers)
    assert all(given in asked[title] for title, given in answers.items())


def test_a_span_begins_and_ends_with_a_mark_where_an_answer_does():
    text = "Heat. By Samuel L. Jackson. Ray Li starred in C++ ."
    documents, answers = [Document("Heat", text)], {"Samuel L. Jackson", "C++"}
    ranker = SpanRanker([("Heat", answer) for answer in sorted(answers)], {"Heat": documents})
    spans = {text[slice(*span)] for span, _ in ranker.rank(documents, 100)[0]}
    assert answers < spans and all(span[0].isalnum() and span[-1] != "." for span in spans)


def test_a_name_may_begin_with_an_underscore():
    text = "The method __call__ is called by __init__ at last."
    ranker = SpanRanker(
        [("Heat", "__enter__")], {"Heat": (documents := [Document("Heat", f"Heat. In __enter__. {text}")])}
    )
    spans = {documents[0].text[slice(*span)] for span, _ in ranker.rank(documents, 100)[0]}
    assert {"__call__", "__init__", "__enter__"} < spans


def test_a_name_may_begin_with_a_month():
    text = "A film by Jan Novak and June Carter Cash , with Ana Berg , made in June 1931 in Prague ."
    spans = find_salient_spans("Red Train", text, dates=True)
    [selected] = SpanSelector(BIRTHPLACE, 9).select([Document("", text, spans)])
    assert [text[slice(*span)] for span in selected] == ["Jan Novak", "June Carter Cash", "Ana Berg", "Prague"]


def test_a_single_title_shows_neither_how_many_spans_are_enough_nor_which_are_wrong():
    pairs = [("Sea", f"Isle {chr(65 + i)}") for i in range(50)]
    documents = {"Sea": [Document("Sea", "Sea. In it are " + " , ".join(answer for _, answer in pairs) + " .")]}
    selector = learn_selector(SpanSelector(BIRTHPLACE, 4), pairs, documents, "answers", True)
    assert selector.max_spans == 4 and selector.min_guess == -math.inf


def test_a_title_with_vowel_signs_is_no_span_of_its_document():
    text = "अमर सिंह. अमर सिंह का जन्म दिल्ली में हुआ"
    documents = {f"{name} सिंह": [Document(f"{name} सिंह", text.replace("अमर", name))] for name in ("अमर", "गीता")}
    ranker = SpanRanker([(title, "दिल्ली") for title in documents], documents)
    assert not ranker.takes_title_words
    for (document,) in documents.values():
        found = {document.text[slice(*span)] for span, _ in ranker.rank([document], 100)[0]}
        assert "दिल्ली" in found and not any("सिंह" in each for each in found)


def test_a_span_never_ends_inside_a_number():
    documents = [Document("Ada", "Ada. New in version 3.19.2, born 13.3.1967 in 1,950 days.")]
    ranker = SpanRanker([("Ada", "1967")], {"Ada": documents})
    spans = {documents[0].text[slice(*span)] for span, _ in ranker.rank(documents, 100)[0]}
    assert "1967" in spans and spans.isdisjoint(["3", "3.19", "13", "13.3", "1"])


def test_where_an_answer_stands_in_its_document_tells_it_from_others(tmp_path):
    """The first of five names is the answer; the words beside it are any."""
    rng = random.Random(0)
    words = ["".join(letters) for letters in product("bdgkl", "aeiou", "mnrst", "aeiou")]
    names = ["".join(name) for name in islice(product("BDGKL", "aeiou", "mnrst"), 80)]
    told = {name: [rng.choice(words).title() for _ in range(5)] for name in names}
    documents = [
        f"{name}. " + " ".join(f"{rng.choice(words)} {each}" for each in own) + " ." for name, own in told.items()
    ]
    pairs = [(f"What is {name}?", own[0]) for name, own in told.items()]
    [said] = train(*load(tmp_path, documents, pairs), pseudo_labels=True, span_finder="answers").describe_held_out()
    labels, correct = map(int, re.findall(r"(\d+)(?: pseudo-labels| are correct)", said))
    assert correct > 0.9 * labels > 60 and (", not '" in said) == (correct < labels), said


# Texts of documents about NAME with the ANSWER to *What is NAME?*, whose title ends the question.
PLACES_OF_ANSWERS = {
    "at the beginning": "ANSWER of the north, seen in 00 .",
    "after the title": "NAME is a ANSWER of the north .",
    "in lower case among names": "Seen by Ann Ek in Oslo, it is a ANSWER of Bo Dahl .",
    "at the end": "In the north it is called a ANSWER.",
}


@pytest.mark.parametrize("text", PLACES_OF_ANSWERS.values(), ids=list(PLACES_OF_ANSWERS))
def test_held_out_answers_are_counted_wherever_they_stand(tmp_path, text):
    answers, names = ["small bird", "st. john fish", "old tree"], islice(product("BDGKL", "aeiou", "mnrst"), 70)
    told = [(f"{''.join(name)} tree", answers[i % 3]) for i, name in enumerate(names)]
    documents = [f"{name}. {text.replace('NAME', name).replace('ANSWER', answer)}" for name, answer in told]
    pairs = [(f"What is {name}?", answer) for name, answer in told] + [("What is Gone tree?", "tree")]
    [said] = train(*load(tmp_path, documents, pairs)).describe_held_out()
    shares = "in the text 98.6%, asked for 98.6%, in the title 1.4% (its last word: 1.4%)"
    assert said == f"Of 71 answers to 'What is NAME?', held out by turns: {shares}."


def test_a_title_with_several_answers_has_one_pseudo_label(tmp_path):
    names = ["".join(name) for name in islice(product("BDGKL", "aeiou", "mnrst"), 60)]
    documents = [f"{name}. Made by Ann Ek and Bo Dahl ." for name in names]
    pairs = [(f"Who made {name}?", answer) for name in names for answer in ("Ann Ek", "Bo Dahl")]
    [said] = train(*load(tmp_path, documents, pairs), pseudo_labels=True).describe_held_out()
    assert said.startswith("Of 120 answers ") and "; of 60 pseudo-labels, 60 are correct." in said


def test_more_spans_never_ask_for_fewer_of_the_held_out_answers(tmp_path):
    World(num_people=150, relations=["employer"]).write(tmp_path)
    corpus, questions = load(tmp_path, names=["birth_places_train.tsv"])
    shares = []
    for max_spans in (1, 2, 4, 8):
        [said] = train(corpus, questions, max_spans=max_spans).describe_held_out()
        shares.append(float(re.search(r"asked for ([\d.]+)%", said)[1]))
    assert shares == sorted(shares), shares


def test_answers_that_have_to_be_worked_out_are_looked_for_in_no_document(tmp_path):
    world = World(num_people=300, relations=["birthplace", "teacher", "teacher's birthplace", "person born"])
    world.write(tmp_path)
    documents = add_titles_and_spans(load_corpus(tmp_path / "wiki.txt"), dates=True)
    questions = load_questions(tmp_path / "birth_places_train.tsv", answers=True)
    selectors = choose_selectors(documents, questions, NameWindowsConfig(pseudo_labels=True))
    kinds = {each.relation.name: each.kind for each in selectors}
    # Some teachers were born where their pupils were; that tells nothing.
    assert kinds["teacher's birthplace"] == kinds["person born"] == "the training questions alone"
    assert "look like its answers" in kinds["birthplace"] and "look like its answers" in kinds["teacher"]
    # With documents of few titles, too, what these say counts.
    few = choose_selectors(documents.select(range(60)), questions, NameWindowsConfig(pseudo_labels=True))
    assert "look like its answers" in next(each.kind for each in few if each.relation.name == "birthplace")
    learned = choose_selectors(documents, questions, NameWindowsConfig(span_finder="answers"))
    assert [each.relation.name for each in learned if not each.max_spans] == ["person born", "teacher's birthplace"]
    born = questions.take(questions.rows_of[learned[2].relation])
    with pytest.raises(BadInput, match="no answer to 'Who was born in NAME"):
        choose_selectors(documents, born, NameWindowsConfig(span_finder="answers"))
    teachers = questions.take([*questions.rows_of[learned[2].relation], *questions.rows_of[learned[3].relation]])
    for finder in ("answers", "auto"):
        with pytest.raises(BadInput, match="documents tell hardly any of the answers"):
            choose_selectors(documents, teachers, NameWindowsConfig(span_finder=finder))
