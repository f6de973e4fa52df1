import gzip
import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import islice
from unittest import mock

import pytest

pytest.importorskip("sklearn", reason="needs the report's libraries")

import evaluate_birthplace
from data_scripts import documents, hold_out
from data_scripts.errors import BadInput
from data_scripts.hold_out import HoldOutArguments
from data_scripts.questions import load_questions
from data_scripts.synthetic_world import World, fictional_names
from data_scripts.words import has_words
from modeling_posgpt import POSITION_EMBEDDINGS
from posgpt import compare, report
from posgpt.evaluation.arguments import EvaluationArguments
from posgpt.evaluation.data import FICTIONAL, list_warnings, load_evaluation_data
from posgpt.evaluation.evidence import Document, find_documents, find_evidence, normalize_answer
from posgpt.evaluation.predictions import Prediction, format_predictions, read_predictions
from posgpt.evaluation.report import score_predictions


def split(folder, questions_file, corpus_file=None, **options):
    """Hold questions out into a folder."""
    return hold_out.hold_out(
        HoldOutArguments(
            output_dir=str(folder),
            questions_file=str(questions_file),
            train_file=corpus_file and str(corpus_file),
            **options,
        )
    )


@pytest.fixture(scope="module")
def held_out(world, tmp_path_factory):
    """The small world with 20 pairs and 10 people held out."""
    folder = tmp_path_factory.mktemp("held_out")
    hold_out.main(["--data_dir", str(world), "--output_dir", str(folder), "--pairs", "20", "--people", "10"])
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


def test_nobody_whom_dev_asks_about_is_taken_out_of_the_corpus(tmp_path):
    (data := tmp_path / "data").mkdir()
    names = [f"P{number}" for number in range(12)]
    (data / "wiki.txt").write_text("".join(f"{name}. Lived in Rome .\n" for name in names))
    (data / "birth_places_train.tsv").write_text("".join(f"Where was {name} born?\tRome\n" for name in names))
    (data / "birth_dev.tsv").write_text("".join(f"When was {name} born?\t1900\n" for name in names[:8]))
    hold_out.main(["--data_dir", str(data), "--output_dir", str(tmp_path / "out"), "--pairs", "1", "--people", "3"])
    assert set(load_questions(tmp_path / "out" / "unseen.tsv").titles) < {*names[8:]}
    # Nor whom dev writes in another case.
    (data / "birth_dev.tsv").write_text("".join(f"When was {name.lower()} born?\t1900\n" for name in names[:8]))
    hold_out.main(["--data_dir", str(data), "--output_dir", str(tmp_path / "case"), "--pairs", "1", "--people", "3"])
    assert set(load_questions(tmp_path / "case" / "unseen.tsv").titles) < {*names[8:]}


def test_the_same_people_are_held_out_every_time_and_others_with_another_seed(world, tmp_path):
    files = []
    for number, seed in enumerate((0, 0, 1)):
        lines = split(tmp_path / str(number), world / "birth_places_train.tsv", pairs=15, people=0, seed=seed)
        files.append((tmp_path / str(number) / "calibration.tsv").read_bytes())
        assert list(lines) == ["birth_places_train.tsv", "calibration.tsv"]
    assert files[0] == files[1] != files[2]


def test_nobody_is_both_trained_on_and_held_out(tmp_path):
    lines = [f"Where was P{number % 40} born?\tRome{number // 40}\n" for number in range(80)]
    pairs, corpus = tmp_path / "pairs.tsv", tmp_path / "wiki.txt"
    pairs.write_text("".join(lines))
    corpus.write_text("".join(f"P{number}. Lived .\n" for number in range(40)))
    counts = split(tmp_path / "out", pairs, corpus, pairs=20, people=10)
    names = {}
    for file in ("pairs.tsv", "calibration.tsv", "unseen.tsv"):
        questions = load_questions(tmp_path / "out" / file)
        assert len(questions) == counts[file]
        names[file] = set(questions.titles)
    # Two questions about each of 40 people, of which none is lost.
    assert list(map(len, names.values())) == [20, 10, 10] and len(set().union(*names.values())) == 40
    assert sum(counts[file] for file in names) == 80 and counts["wiki.txt"] == 30
    # Those taken out of the corpus were in it.
    corpus.write_text("".join(f"P{number}. Lived .\n" for number in range(8)))
    counts = split(tmp_path / "few", pairs, corpus, pairs=1, people=4, seed=3)
    assert set(load_questions(tmp_path / "few" / "unseen.tsv").titles) < {f"P{number}" for number in range(8)}
    assert (counts["unseen.tsv"], counts["wiki.txt"]) == (8, 4)
    with pytest.raises(BadInput, match="40 titles, 8 of which have a document; --pairs 1 and --people 9 are too many"):
        split(tmp_path / "none", pairs, corpus, pairs=1, people=9)
    # The questions' file has the name that the corpus's copy is given.
    with pytest.raises(BadInput, match="wiki.txt: this command writes a file of this name"):
        split(tmp_path / "none", corpus, corpus, pairs=20, people=0)
    assert not (tmp_path / "none").exists()


def test_a_report_says_that_it_replaces_another(run, tmp_path):
    line = json.dumps({"question": "Where was Ada Ek born?", "answer": "Rome", "reference": "Rome"})
    (tmp_path / "mine.jsonl").write_text(line)
    first, second = (run(report, tmp_path / "mine.jsonl") for _ in range(2))
    assert "in place of an earlier one" in second and "in place of" not in first


def test_whom_a_question_of_dev_names_beside_others_is_not_taken_out(run, tmp_path):
    names = [f"{first} {last}" for first in ("Ada", "Bo", "Cy") for last in ("Ek", "Lind", "Moe", "Poe")]
    (tmp_path / "wiki.txt").write_text("".join(f"{name}. Born in Rome .\n" for name in names))
    (tmp_path / "birth_places_train.tsv").write_text("".join(f"Where was {name} born?\tRome\n" for name in names))
    (tmp_path / "birth_dev.tsv").write_text("Who was born first, ada ek or Bo Lind?\tAda Ek\n")
    (tmp_path / "relations.yml").write_text("birthplace: {wordings: ['Where was {title} born?']}")
    given = ["--data_dir", tmp_path, "--output_dir", tmp_path / "out", "--pairs", 1, "--overwrite"]
    run(hold_out, *given, "--people", 9)
    assert {"Ada Ek", "Bo Lind"}.isdisjoint(load_questions(tmp_path / "out" / "unseen.tsv").titles)
    with pytest.raises(
        SystemExit, match="12 of which have a document, and 2 stay, since dev or test ask about them; --pairs 1 and"
    ):
        run(hold_out, *given, "--people", 11)
    (tmp_path / "relations.yml").write_text("born: {wordings: ['Where was {title} born?']}")
    assert "relations.yml: stays as it is, and differs from " in run(hold_out, *given, "--people", 2)


def test_titles_that_are_words_of_the_wording_are_held_out_alone(tmp_path):
    titles = [*"ABCDEFGH", "In", "which"]
    (tmp_path / "wiki.txt").write_text("".join(f"{title}. Of section {title}1 .\n" for title in titles))
    (tmp_path / "q.tsv").write_text("".join(f"In which section is {title}?\t{title}1\n" for title in titles))
    for seed in range(5):
        counts = split(tmp_path / str(seed), tmp_path / "q.tsv", tmp_path / "wiki.txt", pairs=2, people=4, seed=seed)
        assert [*counts.values()] == [4, 2, 4, 6]
    # Where everybody is asked together with those who are taken out, nothing would be left.
    (tmp_path / "q.tsv").write_text(
        "".join(f"In which section is {title}?\tWith {' '.join(titles)}\n" for title in titles)
    )
    with pytest.raises(
        BadInput, match="nearly all questions name who is taken out of the corpus; choose fewer --people"
    ):
        split(tmp_path / "none", tmp_path / "q.tsv", tmp_path / "wiki.txt", pairs=2, people=4)
    assert not list((tmp_path / "none").glob("*"))


def test_questions_about_others_do_not_tell_of_whom_is_held_out(run, tmp_path):
    World(200, relations=["birth year", "born first", "person born", "teacher"], num_places=10).write(
        tmp_path / "world"
    )
    out = tmp_path / "out"
    printed = run(hold_out, "--data_dir", tmp_path / "world", "--output_dir", out, "--pairs", 5, "--people", 10)
    people = set(load_questions(out / "unseen.tsv").titles)
    rest = (out / "birth_places_train.tsv").read_text() + (out / "calibration.tsv").read_text()
    assert len(people) == 10 and not any(person in rest for person in people)
    lines = (tmp_path / "world" / "birth_places_train.tsv").read_text().splitlines()
    lost = len(lines) - len((rest + (out / "unseen.tsv").read_text()).splitlines())
    assert lost and f"{lost:,} questions about others are left out" in printed
    assert (out / "other_wordings.yml").read_bytes() == (tmp_path / "world" / "other_wordings.yml").read_bytes()
    # Those of a folder that has nothing but these are the user's own, and those of another split go with it.
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "other_wordings.yml").write_text("mine")
    given = ["--data_dir", tmp_path / "world", "--pairs", 5, "--people", 10]
    with pytest.raises(SystemExit, match="other_wordings.yml.*already there"):
        run(hold_out, *given, "--output_dir", tmp_path / "own")
    alone = ["--questions_file", tmp_path / "world" / "birth_places_train.tsv", "--pairs", 5, "--people", 0]
    removed = run(hold_out, *alone, "--output_dir", out, "--overwrite")
    assert "unseen.tsv, other_wordings.yml, wiki.txt, birth_dev.tsv, birth_test_inputs.tsv do not go with" in removed
    # Relations go with every split; those that are there may be the user's own.
    assert {file.name for file in out.iterdir()} == {"birth_places_train.tsv", "calibration.tsv", "relations.yml"}
    assert (out / "relations.yml").read_bytes() == (tmp_path / "world" / "relations.yml").read_bytes()
    (out / "relations.yml").write_text("mine")
    run(hold_out, *given, "--output_dir", out, "--overwrite")
    assert (out / "relations.yml").read_text() == "mine" and (out / "wiki.txt").exists()


def test_what_is_held_out_of_dev_does_not_come_back(run, world, tmp_path):
    given = ["--data_dir", world, "--questions_file", world / "birth_dev.tsv", "--output_dir", tmp_path / "out"]
    run(hold_out, *given, "--pairs", 3, "--people", 2)
    own = {name: set((tmp_path / "out" / name).read_text().splitlines()) for name in ("calibration.tsv", "unseen.tsv")}
    kept = set((tmp_path / "out" / "birth_dev.tsv").read_text().splitlines())
    assert list(map(len, own.values())) == [3, 2] and kept.isdisjoint(set.union(*own.values()))
    assert len(kept) == len((world / "birth_dev.tsv").read_text().splitlines()) - 5


def test_people_are_held_out_by_titles_in_another_case(tmp_path):
    (tmp_path / "wiki.txt").write_text("".join(f"The Film {number}. Made in Rome .\n" for number in range(9)))
    (tmp_path / "pairs.tsv").write_text("".join(f"Where was the film {i} born?\tRome\n" for i in range(9)))
    counts = split(tmp_path / "out", tmp_path / "pairs.tsv", tmp_path / "wiki.txt", pairs=2, people=3)
    assert [*counts.values()] == [4, 2, 3, 6]
    assert "Where was The Film " in (tmp_path / "out" / "unseen.tsv").read_text()
    # Of a title that documents spell in two ways, all are taken out.
    films = [f"{title} {i}" for i in range(9) for title in ("The Film", "THE FILM")]
    rows = "".join(json.dumps({"title": film, "text": "Made in Rome ."}) + "\n" for film in films)
    (tmp_path / "wiki.jsonl").write_text(rows)
    split(tmp_path / "both", tmp_path / "pairs.tsv", tmp_path / "wiki.jsonl", pairs=2, people=3)
    unseen = re.findall(r"film (\d)", (tmp_path / "both" / "unseen.tsv").read_text().lower())
    left = (tmp_path / "both" / "documents.jsonl").read_text().lower()
    assert len(unseen) == 3 and [left.count(f'film {i}"') for i in unseen] == [0] * 3 and left.count("\n") == 12


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
    assert "train.tsv has 22 lines, calibration.tsv has 6 lines, unseen.tsv has 8 lines, documents" in printed
    kept = [json.loads(line) for line in (tmp_path / "out" / "documents.jsonl").read_text().splitlines()]
    corpus = documents.load_corpus(
        tmp_path / "films.jsonl", documents.Columns(title_column="film", text_column="about")
    )
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


def test_training_keeps_two_questions_of_each_form_that_shows_itself_by_these(tmp_path):
    pairs = [f"Who directed Film {letter}?\tAda" for letter in "CDEFGHIJ"]
    (tmp_path / "train.tsv").write_text("\n".join([*pairs, "How long is Film A?\t90", "How long is Film B?\t95"]))
    for seed in range(8):
        split(tmp_path / f"{seed}", tmp_path / "train.tsv", pairs=3, people=0, seed=seed)
        assert len(load_questions(tmp_path / f"{seed}" / "train.tsv").rows_of) == 2
    with pytest.raises(BadInput, match="--pairs 7 and --people 0 are too many"):
        split(tmp_path / "out", tmp_path / "train.tsv", pairs=7, people=0)


def test_what_cannot_be_held_out_is_refused(run, world, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "unseen.tsv").write_text("mine")
    pairs = tmp_path / "train.tsv"
    pairs.write_bytes((world / "birth_places_train.tsv").read_bytes())
    whole, out = ["--data_dir", world], ["--output_dir", tmp_path / "out"]
    apart = ["--train_file", world / "wiki.txt", "--questions_file", pairs]
    for arguments, match in (
        ([*whole, *out, "--pairs", 60, "--people", 8], "68 of which have a document; --pairs 60 and --people 8"),
        ([*whole, "--output_dir", world, "--overwrite"], "the data's own folder"),
        # Their file would be replaced by what is left of it.
        ([*apart, "--output_dir", tmp_path, "--overwrite"], "the data's own folder"),
        ([*whole, *out, "--pairs", 0], "pairs is 0"),
        ([*whole, "--output_dir", tmp_path / "there", "--pairs", 5, "--people", 0], "unseen.tsv: already there"),
        ([*apart[:2], *out], "give either --data_dir, or --train_file and --questions_file"),
        ([*apart[2:], *out], "give either --data_dir, or --train_file and --questions_file"),
    ):
        with pytest.raises(SystemExit, match=match):
            run(hold_out, *arguments)
    assert {file.name for file in tmp_path.iterdir()} == {"there", "train.tsv"}
    assert pairs.read_bytes() == (world / "birth_places_train.tsv").read_bytes()


def test_evidence_names_the_line_and_tells_retrieved_from_made_up(tmp_path):
    corpus = tmp_path / "wiki.txt"
    corpus.write_text("Bo Ek. Born in Oslo .\n\nJ. R. Ek. Ek was born in New York City .\nBo Ek. Ek sang .\n")
    found = find_documents(corpus, ["Bo Ek", "J. R. Ek", "Al Ek"])
    assert [document.where for document in found["Bo Ek"]] == ["line 1", "line 4"] and "Al Ek" not in found
    assert found["J. R. Ek"] == [Document("line 3", "J. R. Ek", "J. R. Ek. Ek was born in New York City .")]
    assert has_words("born in New York City .", "New York") and not has_words("Yorkshire", "York")
    assert has_words("王小明，1931年出生于伦敦。", "伦敦") and not has_words("1931年", "31")
    for title, answer, right, group in (
        ("Bo Ek", "Oslo", "Oslo", "known and correct"), ("Bo Ek", "Rome", "Oslo", "known and wrong"),
        ("Bo Ek", "Rome", "Rome", "unseen answer"), ("Al Ek", "Rome", "Rome", "unseen name"),
    ):  # fmt: skip
        prediction = Prediction("?", answer, title=title, reference=right)
        assert find_evidence(prediction, found)[1:] == (group, answer == "Oslo")


def test_places_are_compared_leniently_as_people_mean_them():
    for one, other, same in (
        ("Montréal", "montreal", True), ("Montr%C3%A9al", "Montréal", True), ("St. Louis", "St Louis", True),
        ("Aix-en-Provence", "Aix en Provence", True), ("1914-18", "1914–18", True), ("Ōsaka", "Osaka", True), ("Đà Nẵng", "Đa Nang", True),
        ("York", "New York", False), ("C", "C++", False), ("C", "C#", False), ("3.4.2-1", "3.4-2.1", False), ("-40 °C", "40 °C", False), ("दिल्ली", "दिल्ला", False), ("がき", "かき", False), ("?!", "…", False), ("", "…", False),
    ):  # fmt: skip
        assert (normalize_answer(one) == normalize_answer(other)) == same, one


def test_nobody_who_is_in_the_corpus_is_taken_for_fictional_and_titles_that_it_lacks_are_named(tmp_path):
    (tmp_path / "dev.tsv").write_text("Where was Bo Ek born?\tOslo\nWhere was Nobody Known born?\tRome\n")
    # Of the first names, all but every tenth have a document.
    names = list(islice(fictional_names(), 200))
    real = [name for number, name in enumerate(names) if number % 10]
    (tmp_path / "wiki.txt").write_text("".join(f"{name}. Born .\n" for name in ["Bo Ek", *real]))
    # Nor somebody whom training asks about, with a document or without.
    (tmp_path / "train.tsv").write_text(f"Where was {names[0]} born?\tRome\n")
    files = {"test_file": [str(tmp_path / "dev.tsv")], "train_file": [str(tmp_path / "train.tsv")]}
    files |= {"corpus_file": str(tmp_path / "wiki.txt"), "report": "out"}
    data = load_evaluation_data(EvaluationArguments(**files, fictional_people=15), ())
    assert data.groups[FICTIONAL].titles == names[10::10][:15]
    expected = "1 of 2 questions are about titles that the corpus has no document of, first 'Nobody Known'."
    assert list_warnings(data) == [f"{tmp_path / 'dev.tsv'}: {expected}"]
    assert EvaluationArguments(**files).num_fictional_people == 200


def test_fictional_names_are_spelled_as_the_titles_are_and_not_the_people_of_a_world():
    names = set(islice(fictional_names(), 500))
    assert len(names) == 500 and len(names & {person.name for person in World(3000).people()}) < 25
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


@pytest.fixture(scope="module")
def reported(held_out, tiny_pretrained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    corpus = (held_out / "wiki.txt").read_text().splitlines()
    # What a corpus holds is shown, never run.
    corpus[0] += " <script>alert(1)</script>"
    (folder / "wiki.txt").write_text("\n".join(corpus) + "\n")
    arguments = ["--model_name_or_path", tiny_pretrained["rotary"], "--test_file", held_out / "birth_dev.tsv"]
    arguments += ["--train_file", held_out / "birth_places_train.tsv", "--corpus_file", folder / "wiki.txt"]
    arguments += ["--calibration_file", held_out / "calibration.tsv", "--unseen_file", held_out / "unseen.tsv"]
    arguments += ["--fictional_people", "8", "--max_new_tokens", "8", "--report", folder]
    with mock.patch("sys.argv", ["evaluate_birthplace.py", *map(str, arguments), "--abstain-below", "0.5"]):
        evaluate_birthplace.main()
    return folder


def test_a_report_has_page_picture_figures_and_an_answer_for_each_question(reported, held_out):
    dev = load_questions(held_out / "birth_dev.tsv")
    predictions = read_predictions(reported / "predictions.jsonl")
    assert Counter(each.group for each in predictions) == {"test": 17, "calibration": 20, "unseen": 10, "fictional": 8}
    rows = [each for each in predictions if each.group == "test"]
    assert [each.question for each in rows] == dev.texts and [each.reference for each in rows] == dev.answers
    assert {each.relation for each in predictions} == {"birthplace"} and [each.title for each in rows] == dev.titles
    metrics = json.loads((reported / "metrics.json").read_text())
    assert metrics["correct"] == sum(each.answer == each.reference for each in rows)
    assert sum(group["count"] for group in metrics["groups"].values()) == len(rows)
    assert {kind: of_kind["count"] for kind, of_kind in metrics["unseen"].items()} == {"unseen": 10, "fictional": 8}
    assert metrics["position_embedding_type"] in POSITION_EMBEDDINGS and metrics["abstain_below"] == 0.5
    place = metrics["majority_answer"]
    assert metrics["baselines"] == {
        '"London" for everyone': metrics["baseline_accuracy"],
        f'"{place}", the most frequent training answer': metrics["majority_accuracy"],
    }
    # A model that has learnt next to nothing is sure of nothing.
    assert max(each.probability for each in rows) < 0.5 and metrics["answered"] == 0
    assert (reported / "predictions.txt").read_text().splitlines() == ["I don't know"] * 17
    assert (reported / "report.png").read_bytes().startswith(b"\x89PNG")
    html = (reported / "report.html").read_text()
    page = TextOf(html)
    assert page.tags.count("script") == 1 and "svg" in page.tags
    assert all(each.question in page.text for each in rows) and page.text.count("Born in") + page.text.count("born in")
    # The line of facts has those alone, no figures as Python writes them.
    assert f"model: {metrics['model']}" in page.text and "{'" not in page.text
    assert not re.search(r"(src|href)=", re.sub(r"<svg.*?</svg>", "", html, flags=re.S))


def test_a_text_file_of_answers_has_a_report(run, world, tmp_path):
    dev = load_questions(world / "birth_dev.tsv")
    (tmp_path / "answers.txt").write_text("".join(f"{answer}\n" for answer in ["", *dev.answers[1:]]))
    arguments = [tmp_path / "answers.txt", "--test_file", world / "birth_dev.tsv"]
    assert "| the file" in run(report, *arguments)
    metrics = json.loads((tmp_path / "report" / "metrics.json").read_text())
    assert metrics["test_file"] == "birth_dev.tsv"
    assert (metrics["correct"], metrics["total"]) == (len(dev) - 1, len(dev))
    # As `posgpt evaluate` counts them, a question with two correct answers is one.
    (tmp_path / "two.tsv").write_text("Where was Bo born?\tRome\nWhere was Bo born?\tOslo\n")
    (tmp_path / "two.txt").write_text("Oslo\nOslo\n")
    two = [tmp_path / "two.txt", "--test_file", tmp_path / "two.tsv", "--output_dir", tmp_path / "two"]
    run(report, *two)
    metrics = json.loads((tmp_path / "two" / "metrics.json").read_text())
    assert (metrics["correct"], metrics["total"]) == (1, 1)
    (tmp_path / "two.txt").write_text("Oslo\nRome\n")
    with pytest.raises(
        SystemExit, match="two.txt: answers 'Where was Bo born\\?' with 'Oslo' and 'Rome'; give the same"
    ):
        run(report, *two)
    (tmp_path / "two.txt").write_text('{"question": "Where was Bo born?", "answer": "Oslo"}\n' * 2)
    with pytest.raises(SystemExit, match="holds JSON Lines, which have their own references; leave --test_file out"):
        run(report, *two)
    (tmp_path / "answers.txt").write_text("Rome\n")
    with pytest.raises(
        SystemExit, match=f"answers.txt: has 1 lines, and .*birth_dev.tsv {len(dev)} questions; give one"
    ):
        run(report, *arguments)


def test_anybodys_predictions_have_a_report(run, reported, tmp_path):
    # One that a model's own report was made from gives the same metrics, its baselines excepted.
    arguments = [reported / "predictions.jsonl", "--corpus_file", reported / "wiki.txt", "--abstain_below", 0.5]
    printed = run(report, *arguments, "--output_dir", tmp_path / "again")
    ours, again = (json.loads((folder / "metrics.json").read_text()) for folder in (reported, tmp_path / "again"))
    names = [name for name in ours if not re.search("baseline|majority|^model$|position_embedding|test_file", name)]
    assert [ours[name] for name in names] == [again[name] for name in names]
    assert f"Report: {tmp_path / 'again' / 'report.html'}" in printed and "| calibration error" in printed
    # Another program's: of a form that is known and of another, without probabilities, several answers right.
    rows = [
        {"question": "Where was Ada Example born?", "answer": "Rome", "reference": "Rome", "seconds": 3},
        {"question": "Where was Bo Sample born?", "answer": "rome", "reference": "Rome"},
        {"question": "2 + 2 =", "answer": "4", "reference": ["4", "four"], "relation": "sum"},
    ]
    (tmp_path / "theirs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    printed = re.sub(" +", " ", run(report, tmp_path / "theirs.jsonl"))
    assert "| birthplace | the file | 50.0% |" in printed and "| sum | the file | 100.0% |" in printed
    assert '| birthplace | "Rome" for everyone | 100.0% |' in printed and "| together | the file | 66.7% |" in printed
    assert "AUROC" not in printed and "| accuracy but for spelling | 100.0% |" in printed
    metrics = json.loads((tmp_path / "report" / "metrics.json").read_text())
    assert metrics["relations"]["birthplace"]["correct"] == 1 and metrics["correct"] == 2
    assert "2 + 2 =" in TextOf((tmp_path / "report" / "report.html").read_text()).text
    # Other wordings, and other answers in any order.
    rows = [
        rows[0],
        {"question": "2 + 2 =", "answer": "4", "reference": "4", "group": "{title} + 2 ="},
        {"question": "Where was Bo born?", "answer": "Rome", "probability": 0.2, "reference": ["Oslo", "Bern"],
         "alternatives": {"Lund": 0.1, "Oslo": 0.3, "Bern": 0.4}},
    ]  # fmt: skip
    (tmp_path / "theirs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    printed = re.sub(" +", " ", run(report, tmp_path / "theirs.jsonl"))
    assert "asked {title} + 2 = | 100.0% |" in printed and "| recall of all correct answers | 100.0% |" in printed


@pytest.mark.parametrize(
    "line, options, match",
    [
        ("no JSON", [], "line 2: no prediction: "),
        ("", [], "line 2: no prediction: "),
        ('{"question": "?"}', [], "line 2: no prediction: missing .*'answer'"),
        ('{"question": "?", "answer": 4, "reference": "4"}', [], "line 2: no prediction: .* are texts"),
        ('{"question": "?", "answer": null, "reference": "4"}', [], "line 2: no prediction: .* are texts"),
        (
            '{"question": "?", "answer": "4", "reference": "4", "probability": "0.9"}',
            [],
            "line 2: .*probability is '0.9', which is not a number",
        ),
        (
            '{"question": "?", "answer": "4", "reference": "4", "probability": ""}',
            [],
            "line 2: .*probability is '', which is not a number",
        ),
        (
            '{"question": "?", "answer": "4", "reference": "4", "surprisal": []}',
            [],
            r"line 2: .*surprisal is \[\], which is not a number",
        ),
        ('{"question": "?", "answer": "4", "reference": []}', [], "line 2: no prediction: .* are texts"),
        ('{"question": "?", "answer": "4", "reference": "4", "probability": 4}', [], "line 2: .*from 0 to 1"),
        ('{"question": "?", "answer": "4", "reference": "4", "relation": "together"}', [], "line 2: .*stands for all"),
        (
            '{"question": "?", "answer": "4", "reference": ["4", "5"], "alternatives": {"5": "0.3"}}',
            [],
            "line 2: no prediction: alternatives",
        ),
        (
            '{"question": "?", "answer": "4", "reference": ["4", "5"], "alternatives": []}',
            [],
            "line 2: no prediction: alternatives",
        ),
        ('{"question": "?", "answer": "4"}', [], "line 2: no reference"),
        ('{"question": "A?", "answer": "4", "group": "{title}?"}', [], "line 2: no reference"),
        (
            '{"question": "A?", "answer": "4", "reference": "4", "group": "{title}?", "relation": "sum"}',
            [],
            "line 2: no question of the test has its relation, 'sum'",
        ),
        ('{"question": "?", "answer": "4", "reference": "4"}', ["--abstain_below", 0.5], "line 2: no probability"),
        ('{"question": "?", "answer": "4", "group": "unseen"}', [], "line 2: no probability"),
        (
            '{"question": "?", "answer": "4", "reference": "4"}\n{"question": "?", "answer": "4", "group": "unseen", "probability": 0.1}',
            [],
            "line 2: no probability",
        ),
    ],
)
def test_predictions_that_no_report_can_be_made_from_are_refused(run, tmp_path, line, options, match):
    good = '{"question": "?", "answer": "4", "reference": "4", "probability": 0.5}'
    (tmp_path / "theirs.jsonl").write_text(f"{good}\n{line}\n")
    with pytest.raises(SystemExit, match=match):
        run(report, tmp_path / "theirs.jsonl", *options)
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.jsonl"]


def test_a_corpus_without_the_titles_is_refused_and_a_question_may_be_the_title(run, tmp_path):
    (tmp_path / "theirs.jsonl").write_text(
        '{"question": "Blue Film", "answer": "Ek", "reference": "Ek", "probability": 0.5}\n'
    )
    (tmp_path / "wiki.txt").write_text("Red Film. By Ek .\n")
    with pytest.raises(SystemExit, match="wiki.txt: has no document of a title in .*theirs.jsonl"):
        run(report, tmp_path / "theirs.jsonl", "--corpus_file", tmp_path / "wiki.txt")
    (tmp_path / "wiki.txt").write_text("Blue Film. By Ek .\n")
    run(report, tmp_path / "theirs.jsonl", "--corpus_file", tmp_path / "wiki.txt")
    assert "<b>Blue Film</b>" in (tmp_path / "report" / "report.html").read_text()


def test_a_title_that_is_given_stays_and_one_that_is_not_is_read_from_the_question():
    asked = Prediction("Where was Ada Ek born?", "Rome", title="Ada Ek (poet)")
    completed = report.complete(asked)
    assert (completed.relation, completed.title) == ("birthplace", "Ada Ek (poet)")
    assert report.complete(Prediction("Where was Ada Ek born?", "Rome", "birthplace")).title == "Ada Ek"


def test_predictions_may_say_what_names_of_groups_are(tmp_path):
    said = [Prediction("Which?", "all", reference="test", probability=0.5), Prediction("test", "none", "test", "all")]
    (tmp_path / "predictions.jsonl").write_text(format_predictions(said))
    assert read_predictions(tmp_path / "predictions.jsonl") == said


def test_the_figures_of_a_report_worked_out_by_hand():
    found = {"Bo": [Document("line 1", "Bo", "Bo. Born in Oslo .")], "Al": [Document("line 3", "Al", "Al. Sang .")]}
    rows = [("Bo", "Oslo", "Oslo", 0.8), ("Al", "Rome", "ROME", 0.6), ("Cy", "Oslo", "Bern", 0.5)]
    test = [Prediction("?", answer, "all", title, probability, right) for title, answer, right, probability in rows]
    unseen = [
        Prediction("?", answer, "all", "Di", probability, group="unseen")
        for answer, probability in (("Oslo", 0.6), ("Oslo", 0.1))
    ]
    evaluation = score_predictions([*test, *unseen], 0.6, found)
    figures = evaluation.list_figures()
    assert figures["abstain_below"] == 0.6 and evaluation.test.is_sure.tolist() == [True, True, False]
    assert (figures["answered"], figures["precision"]) == (pytest.approx(2 / 3), 0.5)
    assert {group: each["answer_in_document"] for group, each in figures["groups"].items()} == {
        "known and correct": 1, "unseen answer": 0, "unseen name": 0,
    }  # fmt: skip
    # Cy has no document, and is no one that the model can know.
    assert figures["unseen"]["unseen"] == {
        "count": 2, "confidence": pytest.approx(0.35), "abstained": 0.5, "auroc": pytest.approx(3.5 / 4),
        "said_most": [("Oslo", 2)],
    }  # fmt: skip
    assert evaluation.list_metrics()["correct"] == 1


def test_several_relations_have_one_report_and_each_its_figures(run, tiny_pretrained, tmp_path):
    World(num_people=100, relations=["birthplace", "birth year"]).write(tmp_path / "world")
    test, training = tmp_path / "world" / "birth_dev.tsv", tmp_path / "world" / "birth_places_train.tsv"
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "run.json").write_text("earlier")
    arguments = ["--model_name_or_path", tiny_pretrained["rotary"], "--test_file", test, "--train_file", training]
    arguments += ["--fictional_people", 4, "--max_new_tokens", 4]
    printed = run(evaluate_birthplace, *arguments, "--report", folder)
    assert {path.name for path in folder.iterdir()} == {
        "metrics.json", "predictions.txt", "predictions.jsonl", "report.html", "report.png", "run.json",
    }  # fmt: skip
    assert f"Report: {folder / 'report.html'}" in printed
    assert (folder / "run.json").read_bytes() == (tiny_pretrained["rotary"] / "run.json").read_bytes()
    metrics = json.loads((folder / "metrics.json").read_text())
    assert list(metrics["relations"]) == ["birthplace", "birth year"]
    assert sum(each["total"] for each in metrics["relations"].values()) == metrics["total"]
    assert all(each["ece"] is not None for each in metrics["relations"].values())
    # A report that fails leaves the earlier one.
    with (
        mock.patch("posgpt.evaluation.report.draw_chart", side_effect=BadInput("no chart")),
        pytest.raises(SystemExit, match="no chart"),
    ):
        run(evaluate_birthplace, *arguments, "--report", folder)
    assert json.loads((folder / "metrics.json").read_text()) == metrics and (folder / "report.html").is_file()


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


def test_reports_are_compared_in_one_table(run, reported, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    predictions = read_predictions(reported / "predictions.jsonl")
    right = [replace(each, answer=each.reference or "") for each in predictions]
    (other / "predictions.jsonl").write_text(format_predictions(right))
    # The columns of a table are padded.
    printed = re.sub(" +", " ", run(compare, reported, other))
    wrong = 17 - json.loads((reported / "metrics.json").read_text())["correct"]
    assert f"| {other} | 100.0% |" in printed and f"| {reported}, {other} | {wrong} | 0 | {wrong} |" in printed
    assert f"{other}: options, data and versions: not recorded." in printed
    # A report keeps what its model was made of.
    record = json.loads((reported / "run.json").read_text())
    record["data"]["train_file"][0]["sha256"] = "0" * 64
    record["options"]["learning_rate"] = 0.125
    (other / "run.json").write_text(json.dumps(record))
    printed = re.sub(" +", " ", run(compare, reported, other))
    assert re.search(r"\| data \| train_file \| wiki.txt \(sha256 \w{12}\) \| wiki.txt \(sha256 0{12}\) \|", printed)
    assert re.search(r"\| options \| learning_rate \| 0.\d+ \| 0.125 \|", printed)
    assert printed.count("| options |") == 1 and "| versions |" not in printed
    (other / "predictions.jsonl").write_text(format_predictions(right[:1]))
    with pytest.raises(SystemExit, match="other questions"):
        run(compare, reported, other)
    (other / "predictions.jsonl").write_text(format_predictions([replace(right[0], reference="Oz"), *right[1:]]))
    with pytest.raises(SystemExit, match="other questions or correct answers"):
        run(compare, reported, other)
    with pytest.raises(SystemExit, match="no such file"):
        run(compare, reported, tmp_path / "none")


def test_questions_without_answers_get_predictions_and_no_report(run, held_out, tiny_pretrained, tmp_path):
    (tmp_path / "report.html").write_text("of an earlier evaluation")
    run(
        evaluate_birthplace, "--model_name_or_path", tiny_pretrained["rotary"], "--report", tmp_path,
        "--test_file", held_out / "birth_test_inputs.tsv", "--max_new_tokens", 4, "--fictional_people", 0,
    )  # fmt: skip
    rows = (tmp_path / "predictions.jsonl").read_text().splitlines()
    assert len(rows) == len((tmp_path / "predictions.txt").read_text().splitlines()) == 15
    assert not (tmp_path / "report.html").exists()
    with pytest.raises(SystemExit, match="predictions.jsonl, line 1: no reference"):
        run(compare, tmp_path)


@pytest.mark.parametrize(
    "arguments, match",
    [
        (["--output_dir", "out", "--abstain_below", "0.5"], "add --report"),
        (["--output_dir", "out", "--fictional_people", "200"], "add --report"),
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
    (tmp_path / "FOREIGN").write_text("Somebody Else. Lived .\n")
    (tmp_path / "LONG").write_text(f"Where was A born?\tRome\nWhere was {'A' * 200} born?\tRome\n")
    model = ["--model_name_or_path", tiny_pretrained["rotary"], "--test_file", world / "birth_dev.tsv"]
    with pytest.raises(SystemExit, match=match):
        run(evaluate_birthplace, *model, *arguments)
    assert not (tmp_path / "out").exists()
