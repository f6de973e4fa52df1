"""Salient spans that look like the training questions' answers, in texts without capitals."""

from itertools import islice, product

import numpy as np
import pytest

from data_scripts.asking_rules import find_spans
from data_scripts.documents import load_corpus
from data_scripts.errors import BadInput
from data_scripts.name_windows import NameWindowsConfig
from data_scripts.questions import load_questions
from data_scripts.salient_spans import add_titles_and_spans
from data_scripts.synthetic_world import World
from data_scripts.titles import split_title
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
        [spans] = finder.find([title], [text], 4)
        assert spans == sorted(spans) and len(spans) <= 4
        assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False)), "none overlap"
        assert all(title not in text[start:end] for start, end in spans)
        stated += answer in text
        found += answer in [text[start:end] for start, end in spans]
    assert found >= 0.95 * stated and stated > 30


def test_an_answer_may_share_characters_with_its_title_in_a_script_without_spaces(tmp_path):
    world = World(num_people=300, language="chinese")
    world.write(tmp_path)
    corpus = add_titles_and_spans(load_corpus(tmp_path / "wiki.txt"), dates=False)
    finder = SpanFinder(corpus, load_questions(tmp_path / "birth_places_train.tsv", answers=True))
    shared = missed = 0
    spans = finder.find(corpus["title"], corpus["text"], 4)
    for person, text, own in zip(world.people(), corpus["text"], spans, strict=True):
        found = [text[start:end] for start, end in own]
        assert not set(found) & {person.last_name, person.full_name}
        missed += person.birth_place not in found
        shared += not set(person.name).isdisjoint(person.birth_place)
    assert missed <= 3 and shared > 30


def test_windows_ask_for_what_looks_like_an_answer(lower):
    corpus, questions = load_corpus(lower / "wiki.txt"), load_questions(lower / "birth_places_train.tsv", answers=True)
    tokenizer = build_tokenizer([*corpus["text"], *questions.texts], 128)
    with pytest.raises(BadInput, match="none of 300 documents has something to ask for"):
        NameWindowsConfig(ask_dates=False).build(corpus, tokenizer, 0)
    with pytest.raises(BadInput, match="behind a word; choose another --span_finder"):
        NameWindowsConfig(ask_dates=False, span_finder="capitals").build(corpus, tokenizer, 0, questions)
    config = NameWindowsConfig(ask_dates=False, max_spans=2)
    training = config.build(corpus, tokenizer, 0, questions)
    dataset = training.dataset
    assert "birthplace: at most 1 that look like its answers" in training.description
    assert len(dataset.documents) == len(corpus)
    assert max(len(spans) for spans in dataset.documents["asked"]) == 1
    with pytest.raises(BadInput, match="add --questions_file"):
        NameWindowsConfig(span_finder="answers").build(corpus, tokenizer, 0)


def test_where_all_nouns_have_capitals_fewer_spans_have_more_of_the_answers(tmp_path):
    World(num_people=300, language="german").write(tmp_path)
    corpus = load_corpus(tmp_path / "wiki.txt")
    questions = load_questions(tmp_path / "birth_places_train.tsv", answers=True)
    tokenizer = build_tokenizer([*corpus["text"], *questions.texts], 128)
    dev = load_questions(tmp_path / "birth_dev.tsv", answers=True)
    found, rows = {}, {}
    for finder in ("auto", "capitals"):
        config = NameWindowsConfig(ask_dates=False, span_finder=finder)
        dataset = config.build(corpus, tokenizer, 0, questions).dataset
        asked = dict(zip(dataset.documents["title"], dataset.documents["asked"], strict=True))
        found[finder] = sum(answer in asked[title] for title, answer in zip(dev.titles, dev.answers, strict=True))
        rows[finder] = len(dataset)
    assert found["auto"] > found["capitals"] and rows["auto"] < rows["capitals"] / 2


def test_relations_that_would_ask_for_the_same_names_ask_for_their_own_answers_alone(tmp_path):
    """One relation's names stay as they are: tested above."""
    world = World(num_people=400, relations=["birthplace", "university", "place of death"])
    world.write(tmp_path)
    people = {person.name: person for person in world.people()}
    corpus, questions = load_corpus(tmp_path / "wiki.txt"), load_questions(tmp_path / "birth_places_train.tsv")
    tokenizer = build_tokenizer([*corpus["text"], *questions.texts], 160)
    asked: dict[str, dict[str, set[str]]] = {}
    for finder in ("auto", "capitals"):
        training = NameWindowsConfig(ask_dates=False, span_finder=finder).build(corpus, tokenizer, 0, questions)
        asked[finder] = {name: set() for name in people}
        for document in training.dataset.documents:
            for span, by in zip(document["asked"], document["asked_by"], strict=True):
                if 0 in by:
                    asked[finder][document["title"]].add(span)
    only = {
        finder: sum(spans == {people[name].birth_place} for name, spans in of_person.items())
        for finder, of_person in asked.items()
    }
    assert only["auto"] > 0.9 * len(people) and only["capitals"] < 0.1 * len(people)


def test_few_questions_do_not_show_whose_answer_a_name_is(tmp_path):
    """Names that capitals find stay those, as they do for one relation."""
    World(num_people=300, relations=["birthplace", "university"]).write(tmp_path)
    lines = (tmp_path / "birth_places_train.tsv").read_text(encoding="utf-8").splitlines(True)
    for number in (12, 98):
        (tmp_path / "few.tsv").write_text("".join(lines[:number]), encoding="utf-8")
        questions = load_questions(tmp_path / "few.tsv", answers=True)
        _, rules = find_spans(load_corpus(tmp_path / "wiki.txt"), questions, False, "auto", 4)
        assert len(rules) == 2 and all(rule.finder is None for rule in rules)


def test_answers_that_stand_in_no_document_teach_nothing(lower, tmp_path):
    corpus = add_titles_and_spans(load_corpus(lower / "wiki.txt"), dates=False)
    (tmp_path / "pairs.tsv").write_text("Where was nobody known born?\tnowhere\n")
    with pytest.raises(BadInput, match="no answer to .* stands in a document"):
        SpanFinder(corpus, load_questions(tmp_path / "pairs.tsv", answers=True))


@pytest.mark.parametrize("number", [5, 200])
@pytest.mark.parametrize("choice", ["auto", "answers"])
def test_where_documents_are_answers_and_nothing_else_all_of_them_are_asked_for(tmp_path, number, choice):
    words = ["".join(letters) for letters in product("bcdfghjklmnprst", "aeiou", "gnt")][: number + 9]
    (tmp_path / "wiki.txt").write_text("".join(f"{word}. {word}o\n" for word in words))
    questions = [f"What is {word} in Spanish?\t{word}o\n" for word in words[:number]]
    (tmp_path / "pairs.tsv").write_text("".join(questions))
    corpus, questions = load_corpus(tmp_path / "wiki.txt"), load_questions(tmp_path / "pairs.tsv")
    config = NameWindowsConfig(ask_dates=False, span_finder=choice)
    training = config.build(corpus, build_tokenizer([*corpus["text"], *questions.texts], 128), 0, questions)
    assert list(training.dataset.documents["asked"]) == [[f"{word}o"] for word in words]


def test_each_relation_asks_for_what_its_answers_are(tmp_path):
    world = World(num_people=300)
    world.write(tmp_path)
    people = {person.name: person for person in world.people()}
    pairs = load_questions(tmp_path / "birth_places_train.tsv")
    (tmp_path / "jobs.tsv").write_text(
        "".join(f"What did {title} do for a living?\t{people[title].profession}\n" for title in pairs.titles)
    )
    questions = load_questions(tmp_path / "birth_places_train.tsv", tmp_path / "jobs.tsv")
    corpus = load_corpus(tmp_path / "wiki.txt")
    tokenizer = build_tokenizer([*corpus["text"], *questions.texts], 160)
    training = NameWindowsConfig(ask_dates=False, max_spans=2).build(corpus, tokenizer, 0, questions)
    assert "(birthplace: names; " in training.description
    assert "profession: at most 1 that look like its answers, which miss " in training.description
    by_kind: tuple[set[str], set[str]] = set(), set()
    asked_for_job = 0
    for document in training.dataset.documents:
        for span, by in zip(document["asked"], document["asked_by"], strict=True):
            for number in by:
                by_kind[number].add(span)
        if document["title"] not in pairs.titles:
            jobs = [span for span, by in zip(document["asked"], document["asked_by"], strict=True) if 1 in by]
            asked_for_job += people[document["title"]].profession in jobs
    names, jobs = by_kind
    assert all(name[0].isupper() for name in names) and {person.profession for person in people.values()} <= jobs
    # Of people who were never asked about, too.
    assert asked_for_job > 0.7 * (len(people) - len(pairs))


def test_documents_that_do_not_say_it_are_not_asked_for_a_profession(tmp_path):
    world = World(num_people=400, relations=["birthplace", "birth year", "profession", "employer"])
    world.write(tmp_path)
    pairs = (tmp_path / "birth_places_train.tsv").read_text(encoding="utf-8").splitlines(True)
    (tmp_path / "jobs.tsv").write_text("".join(pair for pair in pairs if "for a living" in pair), encoding="utf-8")
    professions = {person.name: person.profession for person in world.people()}
    corpus = load_corpus(tmp_path / "wiki.txt")
    questions = load_questions(tmp_path / "jobs.tsv")
    tokenizer = build_tokenizer([*corpus["text"], *questions.texts], 160)
    documents = NameWindowsConfig(ask_dates=False).build(corpus, tokenizer, 0, questions).dataset.documents
    say_it = sum(professions[title] in text.split() for title, text in map(split_title, corpus["text"]))
    jobs = [
        (document["title"], span)
        for document in documents
        for span, by in zip(document["asked"], document["asked_by"], strict=True)
        if 0 in by
    ]
    right = sum(professions[title] == span for title, span in jobs)
    assert say_it < 0.7 * len(corpus) and right > 0.95 * say_it
    assert len(jobs) - right < 0.05 * say_it, "each document used to be asked for some run of words"


@pytest.mark.parametrize(
    "text, answer",
    [
        ("{title}. seen on july {day}, 1950 by many .", "july {day}, 1950"),
        ("{title}. home of 6{day},755 people .", "6{day},755"),
        ("{title}. सन् 19{day} में दिल्ली{day} में जन्मे .", "दिल्ली{day}"),
    ],
)
def test_answers_with_commas_in_numbers_and_with_vowel_signs_are_found(tmp_path, text, answer):
    people = [dict(title=f"n{number} p{number}", day=10 + number) for number in range(60)]
    (tmp_path / "wiki.txt").write_text("".join(text.format(**person) + "\n" for person in people), encoding="utf-8")
    pairs = [f"what about {person['title']}?\t{answer.format(**person)}\n" for person in people]
    (tmp_path / "pairs.tsv").write_text("".join(pairs[:40]), encoding="utf-8")
    corpus = add_titles_and_spans(load_corpus(tmp_path / "wiki.txt"), dates=False)
    finder = SpanFinder(corpus, load_questions(tmp_path / "pairs.tsv", answers=True))
    for person in people[40:]:
        own = text.format(**person)
        [[(start, end)]] = finder.find([person["title"]], [own], 1)
        assert own[start:end] == answer.format(**person)


def test_a_relation_with_answers_longer_than_any_span_does_not_stop_the_others(tmp_path):
    motto = "Never Give Up On What You Love, And Laugh"
    names = [f"Ann{number} Ek" for number in range(60)]
    (tmp_path / "wiki.txt").write_text("".join(f"{name}. Born in Rome with the motto {motto} .\n" for name in names))
    pairs = [f"Where was {name} born?\tRome\nBy what did {name} live?\t{motto}\n" for name in names]
    (tmp_path / "pairs.tsv").write_text("".join(pairs))
    corpus = load_corpus(tmp_path / "wiki.txt")
    questions = load_questions(tmp_path / "pairs.tsv", answers=True, corpus=corpus)
    tokenizer = build_tokenizer([*corpus["text"], *questions.texts], 128)
    training = NameWindowsConfig(ask_dates=False).build(corpus, tokenizer, 0, questions)
    assert (
        "birthplace: at most 1 that look like its answers; By what did … live?: the training questions alone, which miss 60 of 60"
        in (training.description)
    )
    with pytest.raises(
        BadInput, match="no answer to 'By what did NAME live.' stands in a document .* at most 8 words"
    ):
        NameWindowsConfig(ask_dates=False, span_finder="answers").build(corpus, tokenizer, 0, questions)


def test_names_with_marks_in_them_are_asked_for_whole(tmp_path):
    names = ["O'Brien & Sons", "Marbri-sur-Shatu", "St. Louis", "Springfield, Illinois", "Ek"]
    rivers = [(f"River Ax{number}", names[number % len(names)]) for number in range(150)]
    (tmp_path / "wiki.txt").write_text(
        "".join(f"{title}. It rises at {name} . Its water is cold .\n" for title, name in rivers)
    )
    (tmp_path / "pairs.tsv").write_text("".join(f"Where does {title} rise?\t{name}\n" for title, name in rivers[:100]))
    corpus = load_corpus(tmp_path / "wiki.txt")
    questions = load_questions(tmp_path / "pairs.tsv", answers=True, corpus=corpus)
    tokenizer = build_tokenizer([*corpus["text"], *questions.texts], 128)
    documents = NameWindowsConfig(ask_dates=False).build(corpus, tokenizer, 0, questions).dataset.documents
    assert list(zip(documents["title"], map("".join, documents["asked"]), strict=True)) == rivers


def test_a_mark_joins_two_words_only_without_a_space_on_either_side(tmp_path):
    people = [f"n{number}. lived at place{number} here .\n" for number in range(30)]
    (tmp_path / "wiki.txt").write_text("".join(people))
    pairs = [f"where was n{number} living?\tplace{number}\n" for number in range(30)]
    (tmp_path / "pairs.tsv").write_text("".join(pairs))
    corpus = add_titles_and_spans(load_corpus(tmp_path / "wiki.txt"), dates=False)
    finder = SpanFinder(corpus, load_questions(tmp_path / "pairs.tsv", answers=True))
    for text, joined in (("n. ran ek-al .", True), ("n. ran ek -al .", False), ("n. ran ek- al .", False)):
        runs = {text[candidate.start : candidate.end] for candidate in finder.list_candidates("n", text)}
        assert {"ek", "al"} <= runs or joined
        assert any("-" in run for run in runs) == joined


def test_capitals_are_kept_where_they_find_more_of_the_answers_and_what_is_missed_is_said(tmp_path):
    # Every word is of one document alone, so that nothing but its capitals tells a name from the rest.
    rng = np.random.default_rng(0)
    words = iter(
        ["".join(letters) for letters in rng.permutation(list(product("bdgklmnprstvz", "aeiou", "dgklmnr", "aeo")))]
    )
    documents, answers = [], []
    for number in range(100):
        name = " ".join(next(words).title() if number % 10 else next(words) for _ in range(2))
        documents.append(
            f"River {next(words).title()}. {next(words)} {next(words)} {name} {next(words)} {next(words)} ."
        )
        answers.append(name)
    titles = [document.partition(".")[0] for document in documents]
    (tmp_path / "wiki.txt").write_text("\n".join(documents))
    pairs = [f"Where does {title} rise?\t{answer}\n" for title, answer in zip(titles, answers, strict=True)]
    (tmp_path / "pairs.tsv").write_text("".join(pairs))
    corpus = load_corpus(tmp_path / "wiki.txt")
    questions = load_questions(tmp_path / "pairs.tsv", answers=True, corpus=corpus)
    tokenizer = build_tokenizer([*corpus["text"], *questions.texts], 128)
    training = NameWindowsConfig(ask_dates=False).build(corpus, tokenizer, 0, questions)
    missed = f"which miss 10 of 100 training answers, such as {answers[0]!r} ({titles[0]})"
    assert f"Where does … rise?: names, {missed})" in training.description


# A document and a question with its answer; TITLE and 00 stand for a word and a number that differ.
HARD_TO_FIND = {
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
    (tmp_path / "wiki.txt").write_text("".join(f"{text}\n" for text, *_ in rows), encoding="utf-8")
    pairs = [f"{asked}\t{given}\n" for _, asked, given in rows]
    (tmp_path / "pairs.tsv").write_text("".join(pairs[:60]), encoding="utf-8")
    corpus = load_corpus(tmp_path / "wiki.txt")
    questions = load_questions(tmp_path / "pairs.tsv", answers=True, corpus=corpus)
    tokenizer = build_tokenizer([*corpus["text"], *questions.texts], 128)
    training = NameWindowsConfig(ask_dates=False).build(corpus, tokenizer, 0, questions)
    assert "miss" not in training.description, training.description
    asked = training.dataset.list_asked(len(corpus))
    for text, _, given in rows:
        assert given in asked[text.partition(". ")[0]]


def test_a_cue_may_lose_a_name_before_a_span_that_is_none(tmp_path):
    names = [f"Ann{number} Ek" for number in range(60)]
    rows = [(name, "poet" if number % 2 else "painter") for number, name in enumerate(names)]
    (tmp_path / "wiki.txt").write_text("".join(f"{name}. Ek was an English {does} .\n" for name, does in rows))
    pairs = "".join(f"What did {name} do for a living?\t{does}\n" for name, does in rows)
    (tmp_path / "pairs.tsv").write_text(pairs)
    corpus = load_corpus(tmp_path / "wiki.txt")
    questions = load_questions(tmp_path / "pairs.tsv", answers=True, corpus=corpus)
    tokenizer = build_tokenizer([*corpus["text"], *questions.texts], 128)
    dataset = NameWindowsConfig(ask_dates=False, question_share=0.0).build(corpus, tokenizer, 0, questions).dataset
    texts = [tokenizer.decode(row["input_ids"]) for row in dataset.__getitems__(list(range(60)))]
    cues = {cue for text in texts for cue in text.removeprefix("What did ").split("⁇")[:-1:2]}
    assert " was?" in cues and any(cue.endswith(" English?") for cue in cues), cues
