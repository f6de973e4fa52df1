"""What questions ask for: known relations, relations that a file shows, and relations that a file names."""

import json
import random
from itertools import cycle, permutations, product

import pytest
import yaml

import evaluate_birthplace
import train_finetune
import train_pretrain
from conftest import ON_CPU, TINY, TINY_SIZE
from data_scripts.documents import load_corpus
from data_scripts.errors import BadInput
from data_scripts.questions import load_questions
from data_scripts.relations import (
    BIRTH_YEAR,
    BIRTHPLACE,
    RELATIONS,
    Relation,
    load_relations,
    read_relations,
    recognize_relations,
)
from data_scripts.synthetic_world import fictional_names
from modeling_posgpt import PosGPTConfig
from posgpt import preview
from study_helpers import read_rows

NAMES = [name for name, _ in zip(fictional_names(), range(400), strict=False)]


def test_a_title_may_hold_the_words_of_the_question_and_braces():
    for wordings in permutations(["Who directed {title}", "Who directed {title}?"]):
        asked = ("Who directed Heat", "Who directed Heat?", "Who painted Heat?")
        assert list(map(Relation("director", wordings).find_title, asked)) == ["Heat", "Heat", None]
    for title in ("Ada Example", "Newly born?", "born? born", "{title}", "A"):
        assert BIRTHPLACE.read_title(BIRTHPLACE.ask(title)) == title
    assert BIRTHPLACE.read_title("Ada Example") == "Ada Example"


def test_a_relation_with_several_wordings_is_one_line_of_the_table(tmp_path, monkeypatch):
    end = Relation("end", wordings=("When did {title} die?", "In which year did {title} die?"), baseline="1950")
    monkeypatch.setitem(RELATIONS, "end", end)
    file = tmp_path / "years.tsv"
    file.write_text("When did Ada Example die?\t1815\nIn which year did Bo Ek die?\t1990\n")
    questions = load_questions(file, answers=True)
    assert questions.relations == (end,) and questions.titles == ["Ada Example", "Bo Ek"]
    assert read_relations(end.to_config()) == [end] and read_relations(None) == [BIRTHPLACE]
    assert read_relations({"end": {"wordings": list(end.wordings)}})[0].wordings == end.wordings


def test_titles_are_recognized_where_all_questions_are_in_lower_case(tmp_path):
    (tmp_path / "wiki.txt").write_text("".join(f"{name}. It grows .\n" for name in ("Ash Tree", "Fig Tree", "Oak")))
    asked = ["ash tree", "fig tree", "oak", "elm"]
    (tmp_path / "pairs.tsv").write_text("".join(f"where does {title} grow?\there\n" for title in asked))
    assert load_questions(tmp_path / "pairs.tsv", corpus=load_corpus(tmp_path / "wiki.txt")).titles == asked


def test_titles_that_no_document_has_do_not_hide_longer_titles(tmp_path):
    titles = ["Oak", "Elm", "Ash", "Ash Tree", "Fig Tree", "Rose"]
    (tmp_path / "wiki.txt").write_text("".join(f"{title}. It grows .\n" for title in titles))
    asked = ["Oak Tree", "Elm Tree", "Ash Tree", "Fig Tree", "Rose"]
    (tmp_path / "pairs.tsv").write_text("".join(f"Where does {title} grow?\tHere\n" for title in asked))
    assert load_questions(tmp_path / "pairs.tsv", corpus=load_corpus(tmp_path / "wiki.txt")).titles == asked


def test_sequels_that_no_document_has_make_no_relation(tmp_path):
    titles = ["Rocky", "Alien", "Jaws", "Heat", "Ran", "Babe"]
    (tmp_path / "wiki.txt").write_text("".join(f"{title}. By Ek .\n" for title in titles))
    # Two sequels; and one with two right answers, in two lines.
    for sequels in (["Alien II", "Jaws II"], ["Alien: The Return", "Alien: The Return"]):
        asked = titles + sequels
        (tmp_path / "pairs.tsv").write_text(
            "".join(f"Who directed {title}?\tEk {number}\n" for number, title in enumerate(asked))
        )
        questions = load_questions(tmp_path / "pairs.tsv", corpus=load_corpus(tmp_path / "wiki.txt"))
        assert [each.wordings for each in questions.relations] == [("Who directed {title}?",)]
        assert questions.titles == asked


@pytest.mark.parametrize("number", [2, 5, 20, 300])
@pytest.mark.parametrize(
    "wording",
    ["Where was {title} born?", "Who directed {title}?", "In which country is {title}?", "Capital of {title}"],
)
def test_the_form_of_questions_is_what_they_share_around_their_titles(wording, number):
    titles = random.Random(number).sample(NAMES, number)
    (relation,) = recognize_relations([wording.replace("{title}", title) for title in titles])
    assert relation.wordings == (wording,) and relation.name == wording.replace("{title}", "…")
    assert [relation.read_title(relation.ask(title)) for title in titles] == titles


def test_several_forms_are_told_apart_also_where_one_is_rare():
    wordings = ["Where was {title} born?", "Where did {title} die?", "When was {title} born?", "Who employed {title}?"]
    numbers = [200, 100, 60, 4]
    draw = random.Random(0)
    questions = [
        wording.replace("{title}", name)
        for wording, number in zip(wordings, numbers, strict=True)
        for name in draw.sample(NAMES, number)
    ]
    draw.shuffle(questions)
    assert {relation.wordings[0] for relation in recognize_relations(questions)} == set(wordings)


def test_marks_at_the_end_of_titles_are_no_part_of_the_wording():
    titles = [f"{name}{mark}" for name, mark in zip(NAMES[:60], cycle(["", "", "", "!", "?", "...", ".A."]))]
    wordings = ["Who directed {title}?", "Who stars in {title}?"]
    questions = [wording.replace("{title}", title) for wording in wordings for title in titles]
    assert [relation.wordings for relation in recognize_relations(questions)] == [(each,) for each in wordings]


KINDS = "Carved Blue Small Danish Old Red".split()
THINGS = "Teapot Vase Mirror Goblet Bowl Chair".split()


@pytest.mark.parametrize(
    "wordings, form",
    [
        (["Who made {title}?", "When was {title} made?"], "{} {}"),
        (["Who directed {title}?", "When was {title} released?"], "The {} {}"),
        (["Wer hat {title} hergestellt?", "Wann wurde {title} hergestellt?"], "{} {}"),
    ],
)
def test_titles_that_begin_and_end_with_few_words_are_no_forms_of_their_own(wordings, form):
    titles = [form.format(*pair) for pair in product(KINDS, THINGS)]
    questions = [wording.replace("{title}", title) for wording in wordings for title in titles]
    assert [relation.wordings[0] for relation in recognize_relations(questions)] == wordings


@pytest.mark.parametrize(
    "wordings, titles",
    [
        (["Who directed {title}?"], [f"The {word} {name}" for word in ("Quiet", "Last") for name in "ABCDE"]),
        (["When was {title} launched?"], ["Apollo", *(f"Apollo {number}" for number in range(11, 18))]),
        ([f"What is the {what} of {{title}}?" for what in ("area", "capital", "coast")], ["Aalen", "Bonn", "Chur"]),
    ],
)
def test_titles_of_the_corpus_show_where_titles_are_in_questions(tmp_path, wordings, titles):
    questions = [wording.replace("{title}", title) for wording in wordings for title in titles]
    (tmp_path / "wiki.txt").write_text("".join(f"{title}. Something .\n" for title in titles[1:]))
    (tmp_path / "pairs.tsv").write_text("".join(f"{question}\tsomething\n" for question in questions))
    corpus = load_corpus(tmp_path / "wiki.txt")
    loaded = load_questions(tmp_path / "pairs.tsv", answers=True, corpus=corpus)
    assert [relation.wordings[0] for relation in loaded.relations] == wordings
    # One of them has no document.
    assert loaded.titles == titles * len(wordings)


@pytest.mark.parametrize(
    "questions, wordings",
    [
        # A script without spaces; with and without a question mark.
        (["李白出生于哪里？", "杜甫出生于哪里？", "孟浩然出生于哪里？"], {"{title}出生于哪里？"}),
        (
            ["Who directed Alien?", "Who directed Brazil?", "Who directed Cube", "Who directed Dune"],
            {"Who directed {title}?", "Who directed {title}"},
        ),
    ],
)
def test_forms_of_other_scripts_and_marks(questions, wordings):
    assert {relation.wordings[0] for relation in recognize_relations(questions)} == wordings


def test_what_shares_no_words_around_a_title_has_no_form():
    for questions in ([], ["Where was Ada born?"], ["Ada", "Bo"], ["Ada?", "Bo?"], ["Ada", "Ada"]):
        assert recognize_relations(questions) == []


def test_relations_of_a_file_are_known_recognized_or_named(tmp_path):
    file = tmp_path / "pairs.tsv"
    lines = [f"When was {name} born?\t19{number}" for number, name in enumerate(NAMES[:30], 10)]
    lines += [f"Who directed {name}?\tAda" for name in NAMES[30:50]] + ["Where was Bo Ek born?\tOslo"]
    file.write_text("\n".join(lines))
    questions = load_questions(file)
    assert [relation.name for relation in questions.relations] == ["birth year", "Who directed …?", "birthplace"]
    assert questions.titles == [*NAMES[:50], "Bo Ek"]
    assert [len(rows) for rows in questions.rows_of.values()] == [30, 20, 1]
    assert questions.to_config()["Who directed …?"] == {"wordings": ["Who directed {title}?"], "baseline": "Ada"}
    assert questions.to_config()["birthplace"]["baseline"] == "London"
    names = tmp_path / "relations.yaml"
    names.write_text("director:\n  wordings: ['Who directed {title}?']\n  baseline: Bo\n")
    named = load_questions(file, known=load_relations(names))
    assert named.relations == (BIRTH_YEAR, Relation("director", ("Who directed {title}?",), "Bo"), BIRTHPLACE)
    assert named.titles == questions.titles


def test_a_known_wording_does_not_hide_a_longer_one_around_titles_of_the_corpus(tmp_path):
    names = ["Ada Ek", "Bo Lind", "Cy Dahl", "Di Holm"]
    (tmp_path / "wiki.txt").write_text("".join(f"{name}. {name} sang in Rome .\n" for name in names))
    lines = [f"Where was {name} born?\tRome\nWhere was {name}'s wife born?\tOslo\n" for name in names]
    # Neither a title that no document has nor names beside one are another relation.
    others = ["Where was Zoe Rye born?\tRome\n", *(f"Where was Mr. {name} born?\tRome\n" for name in names[:2])]
    (tmp_path / "pairs.tsv").write_text("".join(lines + others))
    questions = load_questions(tmp_path / "pairs.tsv", corpus=load_corpus(tmp_path / "wiki.txt"))
    assert [len(rows) for rows in questions.rows_of.values()] == [7, 4]
    assert {title for title, answer in zip(questions.titles, questions.answers, strict=True) if answer == "Oslo"} == {
        *names
    }


def test_a_longer_wording_may_add_words_of_other_relations(tmp_path):
    names = ["Eiffel Tower", "Louvre", "Big Ben"]
    (tmp_path / "wiki.txt").write_text("".join(f"{name}. Built of iron .\n" for name in names))
    questions = tmp_path / "pairs.tsv"
    for form in "In which country is the {}?", "Where did {} first study?", "Who employed the {}?":
        questions.write_text("".join(f"{form.format(name)}\tRome\n" for name in names))
        assert load_questions(questions, corpus=load_corpus(tmp_path / "wiki.txt")).titles == names


def test_the_longer_of_two_wordings_is_asked_whatever_is_known_or_comes_first(tmp_path):
    mother = Relation("mother's birthplace", ("Where was the mother of {title} born?",))
    lines = ["Where was Ada Example born?\tRome\n", "Where was the mother of Ada Example born?\tOslo\n"]
    for number, (known, order) in enumerate(product(([mother], [BIRTHPLACE, mother]), (lines, lines[::-1]))):
        file = tmp_path / f"{number}.tsv"
        file.write_text("".join(order))
        questions = load_questions(file, known=known)
        first, second = questions.relations
        assert {first, second} == {mother, BIRTHPLACE} and first.find_title(order[0].split("\t")[0]) == "Ada Example"
        assert questions.rows_of == {first: [0], second: [1]} and questions.titles == ["Ada Example"] * 2
        assert questions.select(mother).answers == ["Oslo"]


def test_two_relations_of_one_name_are_refused(tmp_path):
    test = tmp_path / "test.tsv"
    test.write_text("Where was Ada born?\tRome\nWhat is the birthplace of Bo?\tOslo\n")
    other = Relation("birthplace", ("What is the birthplace of {title}?",))
    with pytest.raises(BadInput, match="test.tsv, line 2: .*'What is the birth.* and 'Where was.*named 'birthplace'"):
        load_questions(test, known=[other])
    two = Relation("birthplace", (*BIRTHPLACE.wordings, *other.wordings))
    assert load_questions(test, known=[two]).relations == (two,)


@pytest.mark.parametrize(
    "text, match",
    [
        ("director: Who?\n", "relations.yaml: .*director.*needs wordings"),
        ("director:\n  wordings: ['Who directed?']\n", "relations.yaml: .*wording.*title"),
        (
            "a:\n  wordings: ['Who led {title}?']\n  basline: Bo\n",
            "relations.yaml: relation 'a' has 'basline', which is neither",
        ),
        (
            "a:\n  wordings: ['Who led {title}?']\nb:\n  wordings: ['Who left {title}?']\na:\n  baseline: Bo\n",
            "relations.yaml: .*line 5 has 'a', which is there twice",
        ),
        (
            "a:\n  wordings: ['Who led {title}?']\nb:\n  wordings: ['Who left {title}?', 'Who led {title}?']\n",
            "relations.yaml: 'a' and 'b' have the same wording 'Who led {title}.'; leave one of them out",
        ),
        ("a: {wordings: ['Born⁇ {title}?']}", "relations.yaml: holds '⁇', which the model reserves"),
        ('a: {wordings: ["Born\\t{title}?"]}', "relations.yaml: wording .* has a tab or a line break"),
        ("a: {wordings: [Who led {title}?]}", r"relations.yaml: .* a wording with \{title\} needs quotation marks"),
        ("{}\n", "relations.yaml: holds no relations"),
        ("- a\n", "relations.yaml: "),
        ("a: [\n", "relations.yaml: "),
        ("", "file is empty"),
    ],
)
def test_a_file_of_relations_that_is_none_is_refused(tmp_path, text, match):
    file = tmp_path / "relations.yaml"
    file.write_text(text)
    with pytest.raises(BadInput, match=match):
        load_relations(file)


@pytest.fixture(scope="module")
def two_relations(world, tmp_path_factory):
    """A folder with TSVs of birthplaces and, for each person, the length of the name."""
    folder = tmp_path_factory.mktemp("relations")
    for name in ("birth_places_train.tsv", "birth_dev.tsv"):
        pairs = load_questions(world / name, answers=True)
        lines = [f"{text}\t{answer}\n" for text, answer in zip(pairs.texts, pairs.answers, strict=True)]
        lines += [f"How long is {title}?\t{len(title)}\n" for title in pairs.titles]
        (folder / name).write_text("".join(lines), encoding="utf-8")
        (folder / f"lengths_{name}").write_text("".join(lines[len(pairs) :]), encoding="utf-8")
    return folder


def test_several_relations_are_trained_and_reported_each_by_itself(run, world, two_relations, tmp_path):
    # In several files or in one.
    train_files = [world / "birth_places_train.tsv", two_relations / "lengths_birth_places_train.tsv"]
    dev_files = [two_relations / "birth_dev.tsv"]
    arguments = ["--max_steps", 2, *TINY]
    questions = ["--questions_file", *train_files]
    pretrained, finetuned, evaluated = tmp_path / "pretrained", tmp_path / "finetuned", tmp_path / "evaluated"
    corpus = ["--train_file", world / "wiki.txt", *questions]
    run(train_pretrain, "windows", *corpus, "--output_dir", pretrained, *arguments)
    printed = run(
        train_finetune, "--model_name_or_path", pretrained, "--train_file", *train_files, "--output_dir", finetuned,
        "--max_steps", 2, *ON_CPU,
    )  # fmt: skip
    assert "birthplace questions" in printed and "How long is …? questions" in printed
    relations = json.loads((finetuned / "task.json").read_text())["relations"]
    assert set(relations) == {"birthplace", "How long is …?"} and relations["How long is …?"]["baseline"]
    printed = run(
        evaluate_birthplace, "--model_name_or_path", finetuned, "--test_file", *dev_files, "--train_file", *train_files,
        "--output_dir", evaluated,
    )  # fmt: skip
    rows, metrics = read_rows(printed), json.loads((evaluated / "metrics.json").read_text())
    assert {"birthplace", "How long is …?", "together"} <= rows.keys()
    by_relation = metrics["relations"]
    assert (
        metrics["total"]
        == sum(each["total"] for each in by_relation.values())
        == 2 * by_relation["birthplace"]["total"]
    )
    assert metrics["correct"] == sum(each["correct"] for each in by_relation.values())
    assert by_relation["birthplace"]["baseline"] == "London" != by_relation["How long is …?"]["baseline"]


def test_one_question_of_a_form_that_was_trained_on_is_enough(run, world, two_relations, tmp_path):
    one, questions = tmp_path / "one.tsv", two_relations / "lengths_birth_places_train.tsv"
    one.write_text("How long is Ada Berg?\t8\n")
    train = ["--max_steps", 1, *ON_CPU]
    arguments = ["--train_file", world / "wiki.txt", "--questions_file", questions, "--validation_file", one]
    # No document tells how long a name is.
    with pytest.raises(SystemExit, match="documents tell hardly any of the answers; add questions that they answer"):
        run(train_pretrain, "windows", *arguments, "--output_dir", tmp_path / "pretrained", *train, *TINY_SIZE)
    run(train_pretrain, "course", *arguments, "--output_dir", tmp_path / "pretrained", *train, *TINY_SIZE)
    model = ["--model_name_or_path", tmp_path / "pretrained", "--train_file", one]
    printed = run(train_finetune, *model, "--validation_file", one, "--output_dir", tmp_path / "finetuned", *train)
    assert printed.count("one.tsv: 1 How long is …? questions") == 2
    assert "How long is Ada Berg?" in run(preview, "--section", "finetune", *model)


def test_a_model_that_is_finetuned_on_new_words_keeps_its_own_behind_them(run, tiny_pretrained, tmp_path):
    relation = {"birthplace": {"wordings": ["Wo kam {title} zur Welt?"], "baseline": "Bonn"}}
    (tmp_path / "relations.yaml").write_text(yaml.safe_dump(relation))
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text("".join(f"Wo kam {person} zur Welt?\tRome\n" for person in NAMES[:5]))
    (tmp_path / "english.tsv").write_text("".join(f"{BIRTHPLACE.ask(person)}\tRome\n" for person in NAMES[:5]))
    run(
        train_finetune, "--model_name_or_path", tiny_pretrained["rotary"], "--train_file", tmp_path / "train.tsv",
        "--relations", tmp_path / "relations.yaml", "--output_dir", tmp_path / "finetuned", "--max_steps", 1,
        *ON_CPU,
    )  # fmt: skip
    model = PosGPTConfig.from_pretrained(tmp_path / "finetuned")
    assert model.relations["birthplace"]["wordings"] == ["Wo kam {title} zur Welt?", BIRTHPLACE.wordings[0]]
    assert model.relations["birthplace"]["baseline"] == "Bonn"
    for asked in ("dev", "english"):
        printed = run(
            evaluate_birthplace, "--model_name_or_path", tmp_path / "finetuned", "--test_file", tmp_path / f"{asked}.tsv",
            "--output_dir", tmp_path / asked,
        )  # fmt: skip
        assert "not trained on" not in printed and " of 5" in printed


def test_a_relation_that_a_model_was_never_asked_is_answered_with_a_warning(run, tiny_pretrained, tmp_path):
    (tmp_path / "years.tsv").write_text("".join(f"When was {name} born?\t1900\n" for name in NAMES[:5]))
    arguments = ["--model_name_or_path", tiny_pretrained["rotary"], "--test_file", tmp_path / "years.tsv"]
    printed = run(evaluate_birthplace, *arguments, "--output_dir", tmp_path / "out")
    assert "not trained on the wording 'When was NAME born?'" in printed and " of 5" in printed
    assert len((tmp_path / "out" / "predictions.txt").read_text().splitlines()) == 5


def test_questions_that_share_hundreds_of_words_are_recognized():
    context = "Ada was born in Rome and went to sea . " * 50
    found = recognize_relations([f"{context}Who met {name}?" for name in ("Bo Ek", "Cy Ahl", "Di Berg", "Ed Dahl")])
    assert [relation.wordings for relation in found] == [(f"{context}Who met {{title}}?",)]
