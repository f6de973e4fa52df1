import pytest
import yaml

from conftest import ROOT
from data_scripts.relations import BIRTHPLACE
from posgpt.evaluation.evidence import Document
from studies import open_book
from study_helpers import read_rows

TRAINED = {
    "Ann Berg": ("Rome", "Berg (b. 3 May 1951 in Rome) met Bo in Nice ."),
    "Bo Ek": ("Oslo", "Ek sang in Oslo ."),
    "Carl Ott": ("Rome", "Ott came from Rome, Italy ."),
    # The second name, which a reader has to learn.
    "Kai Pohl": ("Oslo", "Pohl left Turin for Oslo ."),
    "Lea Quist": ("Rome", "Quist left Turin for Rome ."),
    "Mia Ross": ("Oslo", "Ross came from Oslo, Norway ."),
    "Nan Stein": ("Rome", "Stein came from Rome, Italy ."),
}
ASKED = {
    # Nice is the first name, but no place of the training pairs.
    "Cleo Dahl": ("Oslo", "Dahl left Nice for Oslo ."),
    # Oslo is mentioned, but is not a name by itself.
    "Dora Falk": ("Rome", "Falk went to Oslo University, then to Rome ."),
    # The fifth name.
    "Egon Holm": ("Lima", "Holm met Al Bo, Cy Do, Ed Fo and Gy Ho in Lima ."),
    # No whole word.
    "Finn Ibsen": ("Rome", "Ibsen lived in Romeville ."),
    "Gus Jahn": ("London", None),
    "Hans Kern": ("Nice", "Kern went to Oslo ."),
    # Two names, neither of which is the place.
    "Ivo Lund": ("Frankfurt am Main", "Lund came to old Frankfurt am Main ."),
    "Jon Moe": ("Rome", "Born in Rome, Moe went to Nice in May ."),
}
# On the eight people of ASKED and the seven of TRAINED; the last line of the corpus is another Hans Kern.
EXPECTED = {
    '"London" for everyone': (1, 0),
    '"Rome", the most frequent training answer': (3, 4),
    "the first name of the line": (1, 5),
    "the first training place of the line": (2, 7),
    "the first name of the line that is a training place": (3, 7),
    "a trained reader's choice among the first 4 names of the line": (3, 7),
    "ceiling: among the first 4 names of the line": (4, 7),
    "ceiling: among the names of the line": (5, 7),
    "ceiling: in the line, as whole words": (6, 7),
    "ceiling: in the line": (7, 7),
    "no line": (1, 0),
}


@pytest.fixture
def folder(tmp_path):
    lines = [f"{name}. {text}\n" for name, (_, text) in (TRAINED | ASKED).items() if text]
    (tmp_path / "wiki.txt").write_text("".join([*lines, "Hans Kern. Kern died in Nice .\n"]))
    for file, people in (("birth_places_train.tsv", TRAINED), ("birth_dev.tsv", ASKED)):
        pairs = [f"{BIRTHPLACE.ask(name)}\t{place}\n" for name, (place, _) in people.items()]
        (tmp_path / file).write_text("".join(pairs))
    return tmp_path


def test_every_rule_and_ceiling_counts_whom_it_should(run, folder):
    printed = run(open_book, "--data_dir", folder, "--output_dir", folder / "out")
    table = (folder / "out" / "table.md").read_text()
    assert table in printed
    header, *rows = read_rows(table).items()
    assert header == ("answer", ["dev, of 8", "training pairs, of 7"])
    assert dict(rows) == {
        name: [f"{dev} ({dev / 8:.1%})", f"{train} ({train / 7:.1%})"] for name, (dev, train) in EXPECTED.items()
    }


def test_questions_that_no_model_answers_are_listed_with_what_the_line_has(run, folder):
    # Cleo Dahl and Gus Jahn are answered by one model each, the others by none.
    for file, right in (("a.txt", {"Cleo Dahl"}), ("b.txt", {"Gus Jahn"})):
        answers = [place if name in right else "Paris" for name, (place, _) in ASKED.items()]
        (folder / file).write_text("".join(f"{answer}\n" for answer in answers))
    arguments = ["--data_dir", folder, "--output_dir", folder / "out", "--predictions", folder / "a.txt"]
    printed = run(open_book, *arguments, folder / "b.txt")
    assert "6 questions of birth_dev.tsv are answered by none" in printed
    assert (folder / "out" / "unanswered.tsv").read_text().splitlines() == [
        "2\tamong the first 4 names of the line",
        "3\tamong the names of the line",
        "4\tin the line",
        "6\tamong the first 4 names of the line",
        "7\tin the line, as whole words",
        "8\tamong the first 4 names of the line",
    ]
    # Files of another run do not stay beside this one's.
    run(open_book, *arguments[:4])
    assert not (folder / "out" / "unanswered.tsv").exists()
    (folder / "b.txt").write_text("Rome\n")
    with pytest.raises(SystemExit, match=r"b.txt: has 1 lines for 8 questions; give predictions about birth_dev.tsv"):
        run(open_book, *arguments, folder / "b.txt")


def test_a_reader_is_never_told_the_answer_of_the_person_it_is_asked_about():
    # Everyone's answer is a place that no other pair has, and stands where anything may stand: there is nothing to learn.
    letters = "ABCDEFGHIJKLMNOPQRST"
    people = [
        open_book.Person(f"{x}town", [Document("line 1", f"Al {x}ek", f"Al {x}ek. Saw {first} and {second} .")])
        for number, x in enumerate(letters)
        for first, second in [(f"{x}town", f"{x}ville")[:: 1 if number % 4 < 2 else -1]]
    ]
    answers, _ = open_book.train_reader(people, [], max_spans=4)
    assert 5 <= sum(answer == person.place for answer, person in zip(answers, people, strict=True)) <= 15


def test_the_longest_of_the_places_that_begin_at_one_character_is_mentioned_first():
    documents = [
        Document("line 1", "No Place", "No Place. None ."),
        Document("line 2", "York Ek", "York Ek. Ek left New York City ."),
    ]
    person = open_book.Person("", documents)
    for places, expected in ((["New York", "York", "New York City"], "New York City"), (["York", "Cit"], "York")):
        assert open_book.build_rules("", places)["the first training place of the line"](person) == expected


def test_bad_input_is_refused_in_one_line(run, folder):
    arguments = ["--data_dir", folder, "--output_dir", folder / "out"]
    train = folder / "birth_places_train.tsv"
    whole = train.read_text()
    train.write_text(f"{whole}When was Ann Berg born?\t1951\n")
    with pytest.raises(SystemExit, match="birth_places_train.tsv: asks for several things"):
        run(open_book, *arguments)
    train.write_text("".join(whole.splitlines(keepends=True)[:2]))
    with pytest.raises(SystemExit, match="birth_places_train.tsv: too few of its answers are names in the documents"):
        run(open_book, *arguments)
    (folder / "birth_dev.tsv").unlink()
    with pytest.raises(SystemExit, match="error: .*birth_dev.tsv: no such file"):
        run(open_book, *arguments)
    assert not (folder / "out").exists()


def test_the_measured_figures_are_those_of_the_data(run, real_data, tmp_path):
    run(open_book, "--data_dir", real_data, "--output_dir", tmp_path)
    measured = read_rows((tmp_path / "table.md").read_text())
    (file,) = (ROOT / "docs" / "results").glob("*-open-book.yaml")
    written = {}
    for row in yaml.safe_load(file.read_text(encoding="utf-8"))["rows"]:
        if "figures" in row:
            (dev,), train = row["correct"], row["figures"]["training pairs, of 2,000"]
            written[row["what"]] = [f"{dev:,} ({dev / row['of']:.1%})", f"{train:,} ({train / 2000:.1%})"]
    del measured["answer"]
    assert {name: written[name] for name in measured} == measured
