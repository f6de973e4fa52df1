import gzip
import json
import re
from collections import Counter
from copy import deepcopy
from dataclasses import FrozenInstanceError, replace
from html.parser import HTMLParser
from itertools import islice

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs the report's libraries")

import evaluate_birthplace
from data_scripts import documents, hold_out, questions
from data_scripts.errors import BadInput
from data_scripts.questions import load_questions
from data_scripts.synthetic_world import World, fictional_names
from modeling_posgpt import POSITION_EMBEDDINGS
from posgpt import compare
from posgpt.evaluation.accuracy import measure_accuracies
from posgpt.evaluation.answerers import AskedGroup
from posgpt.evaluation.arguments import EvaluationArguments
from posgpt.evaluation.data import FICTIONAL, TEST, EvaluationData, load_evaluation_data
from posgpt.evaluation.evidence import (
    Document,
    choose_group,
    compile_mentions,
    find_disagreement,
    find_documents,
    has_mention,
    normalize_answer,
)
from posgpt.evaluation.figures import compute_figures, predict_from_nearest_names
from posgpt.evaluation.predictions import Calibration, build_predictions


@pytest.fixture(scope="module")
def held_out(world, tmp_path_factory):
    """The small world with 20 pairs and 10 people held out."""
    from unittest import mock

    folder = tmp_path_factory.mktemp("held_out")
    arguments = [
        "hold_out.py",
        "--data_dir",
        str(world),
        "--output_dir",
        str(folder),
        "--pairs",
        "20",
        "--people",
        "10",
    ]
    with mock.patch("sys.argv", arguments):
        hold_out.main()
    return folder


def test_what_is_held_out_is_in_neither_training_nor_corpus(world, held_out):
    pairs = {name: load_questions(held_out / name).texts for name in ("calibration.tsv", "unseen.tsv")}
    train = load_questions(held_out / "birth_places_train.tsv").texts
    assert [len(pairs["calibration.tsv"]), len(pairs["unseen.tsv"])] == [20, 10]
    everybody = [*train, *pairs["calibration.tsv"], *pairs["unseen.tsv"]]
    assert sorted(everybody) == sorted(load_questions(world / "birth_places_train.tsv").texts)
    before, after = ((folder / "wiki.txt").read_text().splitlines() for folder in (world, held_out))
    gone = {line.split(". ")[0] for line in set(before) - set(after)}
    assert gone == set(load_questions(held_out / "unseen.tsv").titles) and len(after) == len(before) - 10
    for name in ("birth_dev.tsv", "birth_test_inputs.tsv"):
        assert (held_out / name).read_bytes() == (world / name).read_bytes()


def test_the_same_people_are_held_out_every_time_and_others_with_another_seed(world, tmp_path):
    files = []
    for number, seed in enumerate((0, 0, 1)):
        hold_out.hold_out(world / "birth_places_train.tsv", tmp_path / str(number), 15, seed=seed)
        files.append((tmp_path / str(number) / "calibration.tsv").read_bytes())
        assert {file.name for file in (tmp_path / str(number)).iterdir()} == {
            "birth_places_train.tsv",
            "calibration.tsv",
        }
    assert files[0] == files[1] != files[2]


def test_nobody_is_both_trained_on_and_held_out(tmp_path):
    lines = [f"Where was P{number % 40} born?\tRome{number // 40}\n" for number in range(80)]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    (tmp_path / "wiki.txt").write_text("".join(f"P{number}. Lived .\n" for number in range(40)))
    counts = hold_out.hold_out(
        tmp_path / "pairs.tsv", tmp_path / "out", 20, people=10, corpus_file=tmp_path / "wiki.txt"
    )
    names = {}
    for file in ("pairs.tsv", "calibration.tsv", "unseen.tsv"):
        pairs = load_questions(tmp_path / "out" / file)
        assert len(pairs) == counts[file]
        names[file] = set(pairs.titles)
    # Two questions about each of 40 people, of which none is lost.
    assert list(map(len, names.values())) == [20, 10, 10] and len(set().union(*names.values())) == 40
    assert sum(counts[file] for file in names) == 80 and counts["wiki.txt"] == 30
    # All files are written, or none.
    (tmp_path / "bad.txt").write_bytes(b"P1. Lived .\n\xff\n")
    with pytest.raises(BadInput, match="line 2"):
        hold_out.hold_out(tmp_path / "pairs.tsv", tmp_path / "none", 20, corpus_file=tmp_path / "bad.txt")
    # The questions' file has the name that the corpus's copy is given.
    questions = tmp_path / "questions" / "wiki.txt"
    questions.parent.mkdir()
    (tmp_path / "pairs.tsv").rename(questions)
    with pytest.raises(BadInput, match="wiki.txt: this command writes a file of this name"):
        hold_out.hold_out(questions, tmp_path / "none", 20, corpus_file=tmp_path / "wiki.txt")
    assert not (tmp_path / "none").exists()


def test_those_taken_out_of_the_corpus_were_in_it(tmp_path):
    (tmp_path / "pairs.tsv").write_text("".join(f"Where was P{number} born?\tRome\n" for number in range(20)))
    (tmp_path / "wiki.txt").write_text("".join(f"P{number}. Lived .\n" for number in range(8)))
    known = {f"P{number}" for number in range(8)}
    for seed in range(5):
        out = tmp_path / str(seed)
        counts = hold_out.hold_out(
            tmp_path / "pairs.tsv", out, 1, people=4, seed=seed, corpus_file=tmp_path / "wiki.txt"
        )
        assert set(load_questions(out / "unseen.tsv").titles) < known
        assert (counts["unseen.tsv"], counts["wiki.txt"]) == (4, 4)
    with pytest.raises(
        BadInput, match="about 20 titles, 8 of which have a document; --pairs 1 and --people 9 are too many"
    ):
        hold_out.hold_out(tmp_path / "pairs.tsv", tmp_path / "none", 1, people=9, corpus_file=tmp_path / "wiki.txt")
    assert not (tmp_path / "none").exists()


def test_a_form_that_would_not_be_recognized_any_more_is_not_held_out(tmp_path):
    pairs = [f"Who wrote Book{number}?\tAda\n" for number in range(20)]
    pairs += [f"Where was Book{number} printed?\tRome\n" for number in range(2)]
    (tmp_path / "pairs.tsv").write_text("".join(pairs))
    match = "pairs.tsv: [01] questions of the form 'Where was NAME printed.' would be left"
    with pytest.raises(BadInput, match=match):
        hold_out.hold_out(tmp_path / "pairs.tsv", tmp_path / "out", 19)
    # One question alone shows no form.
    (tmp_path / "few.tsv").write_text("".join(f"Where was Book{number} printed?\tRome\n" for number in range(3)))
    with pytest.raises(BadInput, match="few.tsv: 1 questions of the form 'Where was NAME printed.' would be left"):
        hold_out.hold_out(tmp_path / "few.tsv", tmp_path / "out", 2)
    assert not (tmp_path / "out").exists()


def test_titles_of_a_table_are_held_out_in_any_relation(run, tmp_path):
    things = "Harbour Winter Train Garden Letter Mirror".split()
    films = [f"The {kind} {thing}, Part 2. Ende" for kind in ("Last", "Quiet", "Red") for thing in things]
    rows = [{"film": film, "about": f"Ada directed it\nin 19{10 + number}."} for number, film in enumerate(films)]
    (tmp_path / "films.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = [f"Who directed {film}?\tAda\nWhen was {film} released?\t1950\n" for film in films]
    (tmp_path / "train.tsv").write_text("".join(pairs))
    given = ["--train_file", tmp_path / "films.jsonl", "--title_column", "film", "--text_column", "about"]
    given += ["--questions_file", tmp_path / "train.tsv", "--output_dir", tmp_path / "out"]
    printed = run(hold_out, *given, "--pairs", 5, "--people", 4)
    assert (
        "train.tsv has 22 lines, calibration.tsv has 6 lines, unseen.tsv has 8 lines, documents.jsonl has 14"
        in printed
    )
    kept = [json.loads(line) for line in (tmp_path / "out" / "documents.jsonl").read_text().splitlines()]
    corpus = documents.load_corpus(tmp_path / "films.jsonl", documents.Columns("film", "about"))
    unseen = load_questions(tmp_path / "out" / "unseen.tsv", corpus=corpus)
    assert len(set(unseen.titles)) == 4 and [row for row in rows if row["film"] not in unseen.titles] == kept
    # Another split in the same folder leaves nothing of the first one; a compressed file is written as text.
    with pytest.raises(SystemExit, match="already there; give another --output_dir, or --overwrite"):
        run(hold_out, *given, "--pairs", 5, "--people", 0)
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress((tmp_path / "train.tsv").read_bytes()))
    given[-3] = tmp_path / "train.tsv.gz"
    run(hold_out, *given, "--pairs", 5, "--people", 0, "--overwrite")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"train.tsv", "calibration.tsv", "documents.jsonl"}
    assert len(load_questions(tmp_path / "out" / "train.tsv", corpus=corpus)) == 30
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "train.tsv").write_text("mine")
    with pytest.raises(SystemExit, match="train.tsv: already there"):
        run(hold_out, *given[:-1], tmp_path / "other", "--pairs", 5, "--people", 0)
    assert (tmp_path / "other" / "train.tsv").read_text() == "mine"
    # Of another corpus, nothing would be taken out.
    (tmp_path / "others.jsonl").write_text(json.dumps({"film": "Heat", "about": "Bo directed it."}) + "\n")
    given[1] = tmp_path / "others.jsonl"
    with pytest.raises(SystemExit, match="others.jsonl: has no document of '.*give the corpus"):
        run(hold_out, *given, "--people", 4, "--pairs", 5, "--output_dir", tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(SystemExit, match="give either --data_dir, or --train_file and --questions_file"):
        run(hold_out, "--train_file", tmp_path / "films.jsonl", "--output_dir", tmp_path / "none")


def test_holding_out_everybody_or_onto_the_data_itself_is_refused(run, world, tmp_path):
    for arguments, match in (
        (
            ["--output_dir", tmp_path / "out", "--pairs", 60, "--people", 8],
            "68 titles, 68 of which have a document; --pairs 60 and --people 8 are too many",
        ),
        (["--output_dir", world], "the data's own folder"),
        (["--output_dir", world, "--overwrite"], "the data's own folder"),
        (["--output_dir", tmp_path / "out", "--pairs", 0], "pairs is 0"),
    ):
        with pytest.raises(SystemExit, match=match):
            run(hold_out, "--data_dir", world, *arguments)
    assert not (tmp_path / "out" / "wiki.txt").exists()
    # Nor into the folder of the questions alone: their file would be replaced by what is left of it.
    pairs = tmp_path / "train.tsv"
    pairs.write_bytes((world / "birth_places_train.tsv").read_bytes())
    given = ["--train_file", world / "wiki.txt", "--questions_file", pairs, "--output_dir", tmp_path, "--overwrite"]
    with pytest.raises(SystemExit, match="the data's own folder"):
        run(hold_out, *given, "--pairs", 5, "--people", 0)
    assert pairs.read_bytes() == (world / "birth_places_train.tsv").read_bytes()


@pytest.mark.parametrize(
    "name", ["wiki.txt", "birth_dev.tsv", "birth_test_inputs.tsv", "documents.jsonl", "unseen.tsv"]
)
def test_holding_out_replaces_no_file_unless_it_is_told_to(run, world, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(SystemExit, match=f"{name}: already there"):
        run(hold_out, "--data_dir", world, "--output_dir", tmp_path, "--pairs", 5, "--people", 0)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]


def test_evidence_names_the_line_and_tells_retrieved_from_made_up(tmp_path):
    corpus = tmp_path / "wiki.txt"
    corpus.write_text("Bo Ek. Born in Oslo .\n\nJ. R. Ek. Ek was born in New York City .\nBo Ek. Ek sang .\n")
    found = find_documents(corpus, ["Bo Ek", "J. R. Ek", "Al Ek"])
    assert [document.line for document in found["Bo Ek"]] == [1, 4] and "Al Ek" not in found
    assert found["J. R. Ek"] == [Document(3, "J. R. Ek", "J. R. Ek. Ek was born in New York City .")]
    assert has_mention("born in New York City .", "New York") and not has_mention("Yorkshire", "York")
    assert has_mention("王小明，1931年出生于伦敦。", "伦敦") and not has_mention("1931年", "31")
    assert choose_group([True, False], True) == "known and right"
    assert choose_group([True, False], False) == "known and wrong"
    assert choose_group([False, False], False) == "unseen answer"
    assert choose_group([], True) == "unseen name"


def test_documents_disagree_if_one_has_the_answer_and_another_only_other_ones(tmp_path):
    places = compile_mentions(["Oslo", "Rome", "Ek"])
    oslo, rome, sang, both = (
        Document(1, "Bo Ek", f"Bo Ek. {text} .")
        for text in ("Born in Oslo", "Born in Rome", "He sang", "From Rome to Oslo")
    )
    assert find_disagreement([oslo, rome], [True, False], places)
    assert not find_disagreement([oslo, sang], [True, False], places), "his own name is no other answer"
    assert not find_disagreement([oslo, both], [True, True], places)
    assert not find_disagreement([rome, sang], [False, False], places)


@pytest.mark.parametrize(
    "one, other, same",
    [
        ("Montréal", "montreal", True),
        ("Montr%C3%A9al", "Montréal", True),
        ("St. Louis", "St Louis", True),
        ("Aix-en-Provence", "Aix en Provence", True),
        ("York", "New York", False),
        ("Ōsaka", "Osaka", True),
        ("दिल्ली", "दिल्ला", False),
        ("がき", "かき", False),
        ("Đà Nẵng", "Đa Nang", True),
        ("?!", "…", False),
        ("", "…", False),
    ],
)
def test_places_are_compared_leniently_as_people_mean_them(one, other, same):
    assert (normalize_answer(one) == normalize_answer(other)) == same


def test_the_nearest_name_lends_its_place():
    known = {"Anna Berg": "Oslo", "Bo Ek": "Rome", "Anna Borg": "Bern"}
    assert predict_from_nearest_names(["Hanna Berg", "Bo Eks", "Anna Burg"], known) == ["Oslo", "Rome", "Oslo"]


def test_fictional_names_are_not_the_people_of_a_world():
    names = {name for name, _ in zip(fictional_names(), range(500), strict=False)}
    assert len(names) == 500
    assert len(names & {person.name for person in World(3000).people()}) < 25


def test_nobody_who_is_in_the_corpus_is_taken_for_fictional(tmp_path):
    (tmp_path / "dev.tsv").write_text("Where was Bo Ek born?\tOslo\n")
    # Of the first names, all but every tenth have a document.
    names = list(islice(fictional_names(), 200))
    real = [name for number, name in enumerate(names) if number % 10]
    (tmp_path / "wiki.txt").write_text("".join(f"{name}. Born .\n" for name in ["Bo Ek", *real]))
    # Nor somebody whom training asks about, with a document or without.
    (tmp_path / "train.tsv").write_text(f"Where was {names[0]} born?\tRome\n")
    arguments = EvaluationArguments(
        test_file=[str(tmp_path / "dev.tsv")],
        train_file=[str(tmp_path / "train.tsv")],
        corpus_file=str(tmp_path / "wiki.txt"),
        report="out",
        fictional_people=15,
    )
    fictional = load_evaluation_data(load_questions(tmp_path / "dev.tsv"), arguments, ()).groups[FICTIONAL].titles
    assert fictional == names[10::10][:15]
    assert replace(arguments, fictional_people=None).num_fictional_people == 200


def test_titles_that_the_corpus_has_no_document_of_are_said_to_have_none(tmp_path):
    (tmp_path / "test.tsv").write_text("Where was Bo Ek born?\tOslo\nWhere was Nobody Known born?\tRome\n")
    test = load_questions(tmp_path / "test.tsv")
    (warning,) = EvaluationData(
        {TEST: test}, documents={"Bo Ek": [Document(1, "Bo Ek", "Bo Ek. Born .")]}
    ).list_warnings()
    expected = "1 of 2 questions are about titles that the corpus has no document of, first 'Nobody Known'."
    assert warning == f"{test.path}: {expected}"


def test_fictional_names_are_spelled_as_the_titles_are():
    english = next(fictional_names())
    assert next(fictional_names(["J. R. Ek", "Bo Ek"])) == english
    chinese = next(fictional_names(person.name for person in islice(World(language="chinese").people(), 20)))
    assert chinese == next(World(1_000_000, seed=20_000_003, language="chinese").people()).name != english


class TextOf(HTMLParser):
    """What a reader sees, and the tags."""

    def __init__(self, page):
        super().__init__()
        self.text, self.tags = "", []
        self.feed(page)

    def handle_data(self, data):
        self.text += data

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)


# A report does not know of positions; two members show that it takes any model.
@pytest.fixture(scope="module", params=["rotary", "alibi"])
def report(request, held_out, tiny_pretrained, tmp_path_factory):
    from unittest import mock

    folder = tmp_path_factory.mktemp("report")
    corpus = (held_out / "wiki.txt").read_text().splitlines()
    # What a corpus holds is shown, never run.
    corpus[0] += " <script>alert(1)</script>"
    (folder / "wiki.txt").write_text("\n".join(corpus) + "\n")
    arguments = ["--model_name_or_path", tiny_pretrained[request.param], "--test_file", held_out / "birth_dev.tsv"]
    arguments += ["--train_file", held_out / "birth_places_train.tsv", "--corpus_file", folder / "wiki.txt"]
    arguments += ["--calibration_file", held_out / "calibration.tsv", "--unseen_file", held_out / "unseen.tsv"]
    arguments += ["--fictional_people", "8", "--max_new_tokens", "8", "--report", folder]
    with mock.patch("sys.argv", ["evaluate_birthplace.py", *map(str, arguments), "--abstain-below", "0.5"]):
        evaluate_birthplace.main()
    return folder


def test_a_report_has_page_picture_figures_and_an_answer_for_each_question(report, held_out):
    dev = load_questions(held_out / "birth_dev.tsv")
    rows = [json.loads(line) for line in (report / "predictions.jsonl").read_text().splitlines()]
    assert [row["question"] for row in rows] == dev.texts
    assert [row["right_answer"] for row in rows] == dev.answers
    figures = json.loads((report / "metrics.json").read_text())
    assert figures["correct"] == sum(row["right"] for row in rows)
    assert sum(group["count"] for group in figures["groups"].values()) == len(rows)
    assert {kind: of_kind["count"] for kind, of_kind in figures["unseen"].items()} == {
        "people taken out of the corpus": 10,
        "fictional people": 8,
    }
    for row in rows:
        assert 0 <= row["confidence"] <= 1 and row["abstained"] == (row["confidence"] < 0.5)
        assert len(row["best"]) == 5 and row["best"][0][1] >= row["best"][-1][1]
        assert row["documents"][0]["text"].startswith(row["name"])
    assert figures["model"] and figures["position_embedding_type"] in POSITION_EMBEDDINGS
    # A model that has learnt next to nothing is sure of nothing, however improbable all it could say is.
    assert max(row["confidence"] for row in rows) < 0.5
    known = set(load_questions(held_out / "birth_places_train.tsv").answers)
    assert all({place for place, chance in row["best"] if chance} <= known | {row["answer"]} for row in rows)
    predicted = (report / "predictions.txt").read_text().splitlines()
    said = [row["answer"].replace("\n", " ") for row in rows]
    assert predicted == ["I don't know" if row["abstained"] else text for row, text in zip(rows, said, strict=True)]
    assert (report / "report.png").read_bytes().startswith(b"\x89PNG")
    page = TextOf((report / "report.html").read_text())
    assert page.tags.count("script") == 1 and "svg" in page.tags
    assert all(row["name"] in page.text for row in rows)
    # The line of facts has those alone, no figures as Python writes them.
    assert f"model: {figures['model']}" in page.text and "{'" not in page.text
    assert not re.search(
        r"(src|href)=", re.sub(r"<svg.*?</svg>", "", (report / "report.html").read_text(), flags=re.S)
    )


def test_what_answering_is_worth_is_reported_for_the_mix_of_people(run, held_out, tiny_pretrained, tmp_path):
    arguments = ["--model_name_or_path", tiny_pretrained["rotary"], "--test_file", held_out / "birth_dev.tsv"]
    arguments += ["--train_file", held_out / "birth_places_train.tsv", "--max_new_tokens", 8, "--fictional_people", 8]
    arguments += ["--calibration_file", held_out / "calibration.tsv", "--unseen_file", held_out / "unseen.tsv"]
    run(evaluate_birthplace, *arguments, "--report", tmp_path, "--wrong_costs", 4)
    figures = json.loads((tmp_path / "metrics.json").read_text())
    worth, total, right = figures["worth"], figures["total"], figures["correct"]
    assert worth["unseen_share"] == pytest.approx(8 / (8 + total)), "the proportion of the report itself"
    everyone = total + 8
    assert worth["always"] == pytest.approx((right - 4 * (everyone - right)) / everyone)
    assert worth["attainable"] == pytest.approx(right / everyone) and worth["at_threshold"] <= worth["attainable"]
    assert worth["coverage"][-1] == pytest.approx(1) and worth["risk"][-1] == pytest.approx(1 - right / everyone)
    assert "What answering is worth" in TextOf((tmp_path / "report.html").read_text()).text


def test_groups_that_are_not_what_they_seem_are_said_to_be(run, world, held_out, tiny_pretrained, tmp_path):
    arguments = ["--model_name_or_path", tiny_pretrained["rotary"], "--test_file", held_out / "calibration.tsv"]
    arguments += ["--train_file", held_out / "birth_places_train.tsv", "--max_new_tokens", 8, "--fictional_people", 0]
    arguments += ["--calibration_file", held_out / "calibration.tsv", "--unseen_file", held_out / "unseen.tsv"]
    printed = run(evaluate_birthplace, *arguments, "--corpus_file", world / "wiki.txt", "--report", tmp_path / "whole")
    assert f"20 of 20 questions are also in {held_out / 'calibration.tsv'}, first" in printed
    assert "unseen.tsv: 10 of 10 questions are about titles that the corpus has a document of, first" in printed
    arguments[3] = held_out / "birth_dev.tsv"
    printed = run(
        evaluate_birthplace, *arguments, "--corpus_file", held_out / "wiki.txt", "--report", tmp_path / "rest"
    )
    assert "are also in" not in printed and "a document of" not in printed


@pytest.mark.parametrize(
    "arguments, match",
    [
        (["--wrong_costs", 4], "--wrong_costs is for a report"),
        (["--report", "report", "--wrong_costs", 4], "add --calibration_file and --unseen_file"),
        (["--report", "report", "--unseen_share", 0.5], "--unseen_share is for --wrong_costs"),
        (["--report", "report", "--wrong_costs", 4, "--abstain_below", 0.5], "choose the same threshold"),
    ],
)
def test_a_price_of_wrong_answers_needs_what_it_is_weighed_on(
    run, held_out, tiny_pretrained, tmp_path, arguments, match
):
    given = [tmp_path / value if value == "report" else value for value in arguments]
    if "--abstain_below" in given:
        given += ["--calibration_file", held_out / "calibration.tsv", "--unseen_file", held_out / "unseen.tsv"]
    with pytest.raises(SystemExit, match=match):
        run(
            evaluate_birthplace, "--model_name_or_path", tiny_pretrained["rotary"], "--output_dir", tmp_path / "out",
            "--test_file", held_out / "birth_dev.tsv", "--train_file", held_out / "birth_places_train.tsv", *given,
        )  # fmt: skip
    assert not (tmp_path / "report").exists() and not (tmp_path / "out").exists()


def test_the_baselines_are_the_same_in_table_metrics_and_report(report):
    figures = json.loads((report / "metrics.json").read_text())
    place = figures["majority_answer"]
    assert figures["baselines"]['"London" for everyone'] == figures["baseline_accuracy"]
    assert figures["baselines"][f'"{place}", the most frequent training answer'] == figures["majority_accuracy"]


def test_every_file_is_read_once_in_an_evaluation_with_a_report(run, held_out, tiny_pretrained, tmp_path, monkeypatch):
    read, read_lines = Counter(), questions.read_lines

    def count_and_read(path, what):
        read[str(path)] += 1
        return read_lines(path, what)

    for module in (questions, documents):
        monkeypatch.setattr(module, "read_lines", count_and_read)
    files = {
        "--test_file": held_out / "birth_dev.tsv", "--train_file": held_out / "birth_places_train.tsv",
        "--calibration_file": held_out / "calibration.tsv", "--unseen_file": held_out / "unseen.tsv",
        "--corpus_file": held_out / "wiki.txt",
    }  # fmt: skip
    run(
        evaluate_birthplace, "--model_name_or_path", tiny_pretrained["rotary"], "--report", tmp_path / "report",
        "--fictional_people", 3, "--max_new_tokens", 4, *(part for option in files.items() for part in option),
    )  # fmt: skip
    assert read == {str(file): 1 for file in files.values()}


def test_predictions_and_figures_change_none_of_their_inputs(tmp_path):
    (tmp_path / "test.tsv").write_text("Where was Bo Ek born?\tOslo\nWhere was Al Ek born?\tRome\n")
    scores = np.log([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1]])
    answers, candidates = ["Oslo", "Oslo"], ["Oslo", "Rome", "Bern"]
    asked = AskedGroup(load_questions(tmp_path / "test.tsv"), answers, candidates, scores, np.array([0, 0]))
    found = {"Bo Ek": [Document(1, "Bo Ek", "Bo Ek. Born in Oslo .")]}
    accuracies = measure_accuracies(asked.answers, asked.questions.answers, "London", ["Bern"])
    (tmp_path / "train.tsv").write_text("Where was Bo Eks born?\tBern\n")
    data = EvaluationData({TEST: asked.questions}, load_questions(tmp_path / "train.tsv", answers=True), found)
    known, calibration = compile_mentions(candidates), Calibration(temperature=2.0, abstain_below=0.5)

    before = deepcopy([asked.answers, asked.candidates, asked.scores.tolist(), asked.chosen.tolist(), found])
    predictions = build_predictions(asked, calibration, found, known)
    copies = deepcopy(predictions)
    unseen = {"nobody": build_predictions(asked, calibration, None, known)}
    figures = compute_figures(asked, predictions, unseen, calibration, data, accuracies)
    assert predictions == copies == build_predictions(asked, calibration, found, known)
    assert figures == compute_figures(asked, predictions, unseen, calibration, data, accuracies)
    after = [asked.answers, asked.candidates, asked.scores.tolist(), asked.chosen.tolist(), found]
    assert after == before
    with pytest.raises(FrozenInstanceError):
        predictions[0].answer = "Bern"

    assert [person.right for person in predictions] == [True, False]
    # A name with two answers has both.
    (tmp_path / "train.tsv").write_text("Where was Bo Eks born?\tBern\nWhere was Bo Eks born?\tRome\n")
    twice = replace(data, training=load_questions(tmp_path / "train.tsv", answers=True))
    assert twice.candidates == ["Bern", "Rome"] and twice.known == {"Bo Eks": "Rome"}
    assert [person.group for person in predictions] == ["known and right", "unseen name"]
    assert [person.answer_in_document for person in predictions] == [True, False]
    assert [person.abstained for person in predictions] == [True, True]
    assert figures["baselines"]['"London" for everyone'] == 0 and figures["right_answers"][0] == {
        "answer": "Oslo",
        "true": 1,
        "said": 2,
        "right": 1,
    }


def test_the_figures_of_a_report_worked_out_by_hand(tmp_path):
    (tmp_path / "test.tsv").write_text(
        "Where was Bo Ek born?\tOslo\nWhere was Al Ek born?\tROME\nWhere was Cy Ek born?\tBern\n"
    )
    (tmp_path / "train.tsv").write_text("Where was Bo Eks born?\tOslo\n")
    scores = np.log([[0.8, 0.1, 0.1], [0.3, 0.6, 0.1], [0.5, 0.3, 0.2]])
    answers, candidates, chosen = ["Oslo", "Rome", "Oslo"], ["Oslo", "Rome", "Bern"], np.array([0, 1, 0])
    asked = AskedGroup(load_questions(tmp_path / "test.tsv"), answers, candidates, scores, chosen)
    found = {
        "Bo Ek": [Document(1, "Bo Ek", "Bo Ek. Born in Oslo ."), Document(2, "Bo Ek", "Bo Ek. Born in Rome .")],
        "Al Ek": [Document(3, "Al Ek", "Al Ek. Sang .")],
    }
    data = EvaluationData({TEST: asked.questions}, load_questions(tmp_path / "train.tsv", answers=True), found)
    calibration, known = Calibration(temperature=2.0, abstain_below=0.45), compile_mentions(candidates)
    predictions = build_predictions(asked, calibration, found, known)
    unseen = {"nobody": build_predictions(asked, calibration, {}, known)}
    accuracies = measure_accuracies(answers, asked.questions.answers, "", [])
    figures = compute_figures(asked, predictions, unseen, calibration, data, accuracies)
    # At temperature 2, probabilities are in the proportion of their square roots.
    roots = np.sqrt(np.exp(scores))
    sure = (roots / roots.sum(1, keepdims=True))[[0, 1, 2], chosen]
    assert [row.confidence for row in predictions] == pytest.approx(sure.tolist())
    assert predictions[0].best[0] == ("Oslo", pytest.approx(sure[0]))
    # Rome instead of ROME is wrong, and right leniently.
    assert figures["lenient_accuracy"] == pytest.approx(2 / 3) and figures["documents_disagree"] == 1
    before, after = figures["calibration"]["before"], figures["calibration"]["after"]
    assert before["brier"] == pytest.approx((0.2**2 + 0.6**2 + 0.5**2) / 3)
    assert after["brier"] == pytest.approx(((1 - sure[0]) ** 2 + sure[1] ** 2 + sure[2] ** 2) / 3)
    assert figures["selective"]["answered"] == pytest.approx((sure >= 0.45).mean())
    assert figures["selective"]["precision"] == pytest.approx(1 / (sure >= 0.45).sum())
    assert figures["auroc"] == {"probability": 1.0, "margin": 1.0, "entropy": 1.0}
    nobody = figures["unseen"]["nobody"]
    assert nobody["share_on_commonest"] == pytest.approx(2 / 3)
    # Cy Ek has no document, and is no one that the model can know.
    assert [row.group for row in predictions] == ["known and right", "unseen answer", "unseen name"]
    above = [(first > second) + (first == second) / 2 for first in sure[:2] for second in sure]
    assert nobody["auroc"] == pytest.approx(np.mean(above))


def test_reports_are_compared_in_one_table(run, report, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    rows = [json.loads(line) for line in (report / "predictions.jsonl").read_text().splitlines()]
    for row in rows:
        row["right"] = True
    (other / "predictions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (other / "metrics.json").write_bytes((report / "metrics.json").read_bytes())
    # The columns of a table are padded.
    printed = re.sub(" +", " ", run(compare, report, other))
    before = json.loads((report / "metrics.json").read_text())["correct"]
    assert f"| {other} | 100.0% |" in printed and f"| {report}, {other} | 0 | {17 - before} |" in printed
    assert f"{other}: options, data and versions: not recorded" in printed
    assert f"same data is not known: {other}: not recorded." in printed
    # A report keeps what its model was made of.
    record = json.loads((report / "run.json").read_text())
    record["data"]["train_file"][0]["sha256"] = "0" * 64
    record["options"]["learning_rate"] = 0.125
    (other / "run.json").write_text(json.dumps(record))
    printed = re.sub(" +", " ", run(compare, report, other))
    assert f"{other} was trained on other data than {report}: train_file." in printed
    assert re.search(r"\| data \| train_file \| wiki.txt \(sha256 \w{12}\) \| wiki.txt \(sha256 0{12}\) \|", printed)
    assert re.search(r"\| options \| learning_rate \| 0.\d+ \| 0.125 \|", printed)
    assert printed.count("| options |") == 1 and "| versions |" not in printed
    (other / "predictions.jsonl").write_text(json.dumps(rows[0]) + "\n")
    with pytest.raises(SystemExit, match="other questions"):
        run(compare, report, other)
    with pytest.raises(SystemExit, match="no such file"):
        run(compare, report, tmp_path / "none")


def test_questions_without_answers_get_predictions_and_no_report(run, held_out, tiny_pretrained, tmp_path):
    run(
        evaluate_birthplace, "--model_name_or_path", tiny_pretrained["rotary"], "--report", tmp_path,
        "--test_file", held_out / "birth_test_inputs.tsv", "--train_file", held_out / "birth_places_train.tsv",
        "--max_new_tokens", 4, "--fictional_people", 0,
    )  # fmt: skip
    rows = (tmp_path / "predictions.jsonl").read_text().splitlines()
    assert len(rows) == len((tmp_path / "predictions.txt").read_text().splitlines()) == 15
    assert not (tmp_path / "report.html").exists()
    with pytest.raises(SystemExit, match="predictions.jsonl, line 1: neither right nor wrong"):
        run(compare, tmp_path)


@pytest.mark.parametrize(
    "arguments, match",
    [
        (["--report", "out"], "add --train_file"),
        (["--output_dir", "out", "--abstain_below", "0.5"], "add --report"),
        (["--output_dir", "out", "--fictional_people", "200"], "add --report"),
        (["--report", "out", "--train_file", "TRAIN", "--predictions_file", "out/report.png"], "other results are"),
        (["--report", "out", "--train_file", "TRAIN", "--predictions_file", "out/run.json"], "other results are"),
        (
            ["--report", ".", "--train_file", "TRAIN", "--predictions_file", "in/predictions.jsonl"],
            "other results are",
        ),
        (["--report", "out", "--train_file", "TRAIN", "--target_precision", "0.9"], "add --calibration_file"),
        (["--report", "out", "--train_file", "TRAIN", "--abstain_below", "1.5"], "abstain_below is 1.5"),
        (["--report", "out", "--train_file", "TRAIN", "--calibration_file", "TRAIN"], "cannot calibrate"),
        (["--report", "out", "--train_file", "TRAIN", "--corpus_file", "FOREIGN"], "has no document about anyone"),
        (["--report", "out", "--train_file", "TRAIN", "--calibration_file", "LONG"], "LONG, line 2: .* no room"),
        ([], "--output_dir is missing"),
    ],
)
def test_a_report_that_cannot_be_made_is_refused_before_anything_is_written(
    run, world, tiny_pretrained, tmp_path, monkeypatch, arguments, match
):
    monkeypatch.chdir(tmp_path)
    arguments = [world / "birth_places_train.tsv" if argument == "TRAIN" else argument for argument in arguments]
    (tmp_path / "in").mkdir()
    (tmp_path / "FOREIGN").write_text("Somebody Else. Lived .\n")
    (tmp_path / "LONG").write_text(f"Where was A born?\tRome\nWhere was {'A' * 200} born?\tRome\n")
    model = ["--model_name_or_path", tiny_pretrained["rotary"], "--test_file", world / "birth_dev.tsv"]
    with pytest.raises(SystemExit, match=match):
        run(evaluate_birthplace, *model, *arguments)
    assert not (tmp_path / "out").exists()
