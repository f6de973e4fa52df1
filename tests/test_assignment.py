import csv
import doctest
import re
import runpy
import shutil
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch

from conftest import ROOT
from data_scripts.files import FILE_NAMES
from data_scripts.questions import Questions, encode_questions
from data_scripts.relations import BIRTHPLACE
from data_scripts.span_corruption import SpanCorruptionCollator, draw_cuts
from data_scripts.synthetic_world import World
from modeling_posgpt import PosGPTConfig, build_tokenizer, positions_rotary
from modeling_posgpt.layers import eager_attention_forward
from posgpt.evaluation.scoring import match_exactly
from posgpt.extras.assignment import grade, write
from posgpt.extras.assignment.parts import PARTS
from study_helpers import read_rows

SOURCE = ROOT / "posgpt" / "extras" / "assignment"
SOLUTION = (SOURCE / "solution.py").read_text(encoding="utf-8")
HIDDEN = runpy.run_path(str(SOURCE / "hidden_tests" / "test_parts.py"))
NAMES = [part.name for part in PARTS]
POINTS = {part.name: part.points for part in PARTS}
# What is replaced in the solution, by what, and the parts that this loses.
SUBMISSIONS = {
    "solution": ("", "", []),
    "starter": (SOLUTION, write.cut_starter(SOLUTION), NAMES),
    "softmax_scale": ("/ math.sqrt(head_dim)", "/ math.sqrt(query.shape[1] * head_dim)", ["attention"]),
    "sign_of_theta": ("angles = torch.arange(", "angles = -torch.arange(", ["rotary"]),
    "wrong_mask": ("text.split(MASK)[1]", "text.split(MASK)[-1]", ["answer"]),
}
ENDS_THE_PROCESS = ("    length, head_dim = x.shape[-2:]\n", "    __import__('os')._exit(0)\n")
RAISES_HALF_A_CHARACTER = ("text.split(MASK)[1]", "exec('raise ValueError(chr(0xD800))')")
NEVER_ENDS = ("    longest = max_length * 7 // 8\n", "    while True:\n        pass\n")
WORLD = World(num_people=100, seed=7)


def hand_in(folder, *replacements) -> Path:
    """Write a submission: the solution, in which something is replaced."""
    code = SOLUTION
    for old, new in replacements:
        if old:
            assert code.count(old) == 1
            code = code.replace(old, new)
    folder.mkdir(parents=True)
    (folder / "solution.py").write_text(code, encoding="utf-8")
    return folder


def load(file):
    spec = spec_from_file_location("solution", file)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def assignment(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("assignments") / "assignment"
    arguments = ["--seed", "7", "--num_people", "100", "--output_dir", str(folder)]
    with mock.patch("sys.argv", ["posgpt assignment", *arguments]):
        write.main()
    return folder


def test_students_get_the_questions_of_the_test_and_the_teacher_its_answers(assignment):
    student, teacher = assignment / "student", assignment / "teacher"
    files = {str(file.relative_to(student)) for file in student.rglob("*") if file.is_file()}
    assert files == {"handout.md", "solution.py", *(f"data/{name}" for name in FILE_NAMES)}, "nothing names the seed"
    pairs = [line.split("\t") for line in (teacher / "birth_test.tsv").read_text().splitlines()]
    assert [question for question, _ in pairs] == (student / "data" / FILE_NAMES[-1]).read_text().splitlines()
    assert [place for _, place in pairs] == [person.birth_place for person in list(WORLD.people())[-len(pairs) :]]
    assert (teacher / "solution.py").read_text(encoding="utf-8") == SOLUTION


def test_handout_starter_tests_and_grader_have_the_parts_of_one_table(assignment):
    functions = [(name, function) for name, (function, _) in HIDDEN["CASES"].items()]
    assert functions == [(part.name, part.function) for part in PARTS] and sum(POINTS.values()) == 100
    assert re.findall(r"# BEGIN (\w+)$", SOLUTION, re.M) == re.findall(r"# END (\w+)$", SOLUTION, re.M) == NAMES
    starter = (assignment / "student" / "solution.py").read_text(encoding="utf-8")
    assert re.findall(r"part (\w+) is yours", starter) == NAMES and not re.search("BEGIN|END", starter)
    table = write.describe_parts()
    for page in (assignment / "student" / "handout.md", ROOT / "docs" / "teaching.md"):
        assert table in page.read_text(encoding="utf-8"), table


def attend(query, key, value):
    length, head_dim = query.shape[-2:]
    is_visible = torch.ones(1, 1, length, length, dtype=torch.bool).tril()
    output, _ = eager_attention_forward(torch.nn.Module(), query, key, value, is_visible, scaling=head_dim**-0.5)
    return output.transpose(1, 2)


def rotate(x, base=10_000.0):
    sizes = {"hidden_size": x.shape[1] * x.shape[-1], "num_attention_heads": x.shape[1], "rope_theta": base}
    config = PosGPTConfig.from_dict({"position_embedding_type": "rotary", **sizes})
    return positions_rotary.rotate(
        x, *positions_rotary.PosGPTRotaryEmbedding(config, 0)(x, torch.arange(x.shape[-2])[None])
    )


def corrupt_span(document, draws, max_length):
    tokenizer = build_tokenizer([document], max_length)
    cuts = draw_cuts(np.array([draws]), np.array([len(document)]), max_length)[0]
    feature = {"input_ids": np.array(tokenizer(document, verbose=False)["input_ids"]), "cuts": cuts}
    return tokenizer.decode(SpanCorruptionCollator(tokenizer)([feature])["input_ids"][0])


def encode_pair(question, answer, ids):
    pairs = Questions(("",), (BIRTHPLACE,), [question], [answer])
    (row,) = encode_questions(pairs, build_tokenizer([*ids][2:], 128))
    return row["input_ids"], row["labels"]


def measure_accuracy(predictions, answers, baseline=BIRTHPLACE.baseline):
    return match_exactly(predictions, answers).mean(), match_exactly([baseline] * len(answers), answers).mean()


OWN = (attend, rotate, corrupt_span, encode_pair, measure_accuracy)


@pytest.mark.parametrize("function", OWN)
def test_the_solution_returns_what_the_projects_own_code_does(function):
    own = SimpleNamespace(**{function.__name__: function})
    (name,) = (part.name for part in PARTS if part.function == function.__name__)
    HIDDEN["test_part"](name, load(SOURCE / "solution.py"), own)


@pytest.mark.parametrize("kind", SUBMISSIONS)
def test_a_submission_loses_exactly_the_parts_that_are_wrong(assignment, tmp_path, kind):
    """The hidden tests in this process; the slow test runs them as the command does."""
    old, new, lost = SUBMISSIONS[kind]
    solution = load(hand_in(tmp_path / kind, (old, new)) / "solution.py")
    test_part, reference, failed = HIDDEN["test_part"], load(assignment / "teacher" / "solution.py"), {}
    for name in NAMES:
        try:
            test_part(name, solution, reference)
        except (AssertionError, NotImplementedError) as error:
            failed[name] = str(error)
    assert list(failed) == lost
    if kind == "wrong_mask":
        # What it was given, what it returned, and what is right.
        assert "returned '' where 'Rome' is correct: extract_answer(" in failed["answer"]


def read_points(page: Path) -> dict[str, int]:
    rows = read_rows(page.read_text(encoding="utf-8"))
    return {name: int(rows[name][0]) for name in [*NAMES, "together"]}


def expect_points(lost) -> dict[str, int]:
    points = {name: 0 if name in lost else POINTS[name] for name in NAMES}
    return points | {"together": sum(points.values())}


def test_a_part_that_interrupts_the_tests_gets_no_points(assignment, tmp_path):
    interrupts = (ENDS_THE_PROCESS[0], "    raise KeyboardInterrupt\n")
    solution = hand_in(tmp_path / "eve", interrupts) / "solution.py"
    rotary = [part for part in PARTS if part.name == "rotary"]
    failures = grade.find_failures(assignment / "teacher" / "hidden_tests", solution, 60, rotary)
    assert failures == {"rotary": "it ended the process, or took more than 60 seconds"}


@pytest.mark.parametrize("table", [b"submission;together\nada;7\n", b"submission,notes\n", b"Zo\xeb\n"])
def test_a_table_of_points_that_cannot_be_kept_is_refused_before_grading(run, assignment, tmp_path, table):
    folder = hand_in(tmp_path / "bo")
    copy = shutil.copytree(assignment, tmp_path / "assignment")
    (copy / "grades").mkdir(exist_ok=True)
    (copy / "grades" / "grades.csv").write_bytes(table)
    with pytest.raises(SystemExit, match=r"grades\.csv: .*move it away"):
        run(grade, "--assignment_dir", copy, "--submissions", folder)
    assert (copy / "grades" / "grades.csv").read_bytes() == table and not (copy / "grades" / "bo.md").exists()


def test_code_that_ends_the_process_loses_its_part_and_predictions_are_counted(run, assignment, tmp_path, monkeypatch):
    # The teacher's own settings are not the students' fault.
    monkeypatch.setenv("PYTEST_ADDOPTS", "-x")
    starts, start = [], grade.subprocess.run
    monkeypatch.setattr(grade.subprocess, "run", lambda *args, **options: starts.append(start(*args, **options)))
    wrong, right, _ = SUBMISSIONS["softmax_scale"]
    folder = hand_in(tmp_path / "bo", (wrong, right), ENDS_THE_PROCESS, RAISES_HALF_A_CHARACTER)
    answers = [line.split("\t")[1] for line in (assignment / "teacher" / "birth_test.tsv").read_text().splitlines()]
    (folder / "predictions.txt").write_text("".join(f"{place}\n" for place in ["Nowhere", *answers[1:]]))
    # Others keep their points.
    (assignment / "grades").mkdir(exist_ok=True)
    header = ["submission", *NAMES, "together", "test questions answered"]
    (assignment / "grades" / "grades.csv").write_text(",".join(header) + "\nada" + ",7" * (len(header) - 1) + "\n")
    printed = run(grade, "--assignment_dir", assignment, "--submissions", folder)
    page = assignment / "grades" / "bo.md"
    assert page.read_text(encoding="utf-8") in printed
    assert read_points(page) == expect_points(["attention", "rotary", "answer"])
    assert len(starts) == 4, "the teacher's solution, then all parts, the one that ends the process, and the others"
    share = (len(answers) - 1) / len(answers)
    assert f"Test questions answered: {share:.1%}; " in printed
    before, row = csv.DictReader((assignment / "grades" / "grades.csv").read_text().splitlines())
    assert before["submission"] == "ada" and before["together"] == "7"
    assert row["submission"] == "bo" and int(row["together"]) == 100 - sum(
        POINTS[name] for name in ("attention", "rotary", "answer")
    )


def test_a_submission_that_runs_when_it_is_imported_is_told_so_in_each_part(assignment, tmp_path):
    guard = 'if __name__ == "__main__":'
    folder = hand_in(tmp_path / "bo", (guard, f"raise SystemExit(2)\n{guard}"))
    failures = grade.find_failures(assignment / "teacher" / "hidden_tests", folder / "solution.py", 60)
    assert failures.keys() == {*NAMES}
    assert all(
        'SystemExit: 2; what it runs belongs below if __name__ == "__main__":' in why for why in failures.values()
    )


def test_what_was_graded_before_a_run_was_stopped_is_kept(run, assignment, tmp_path, monkeypatch):
    copy = shutil.copytree(assignment, tmp_path / "assignment")
    shutil.rmtree(copy / "grades", ignore_errors=True)
    folders = [hand_in(tmp_path / name) for name in ("ada", "bo")]

    def pass_all(tests, solution, *_):
        if solution.parent == folders[-1]:
            raise KeyboardInterrupt
        return dict.fromkeys(NAMES, "")

    monkeypatch.setattr(grade, "find_failures", pass_all)
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        run(grade, "--assignment_dir", copy, "--submissions", *folders)
    (row,) = csv.DictReader((copy / "grades" / "grades.csv").read_text().splitlines())
    assert row["submission"] == "ada" and row["together"] == "100"


def test_two_who_grade_at_a_time_keep_each_others_points(run, assignment, tmp_path, monkeypatch):
    copy = shutil.copytree(assignment, tmp_path / "assignment")
    shutil.rmtree(copy / "grades", ignore_errors=True)
    inner = [hand_in(tmp_path / "bo")]

    def pass_all(tests, solution, *_):
        # Bo is graded by somebody else while Ada is.
        if solution.parent.name == "ada" and inner:
            run(grade, "--assignment_dir", copy, "--submissions", inner.pop())
        return dict.fromkeys(NAMES, "")

    monkeypatch.setattr(grade, "find_failures", pass_all)
    run(grade, "--assignment_dir", copy, "--submissions", hand_in(tmp_path / "ada"))
    rows = csv.DictReader((copy / "grades" / "grades.csv").read_text().splitlines())
    assert {row["submission"] for row in rows} == {"ada", "bo"}


@pytest.mark.slow
def test_the_command_grades_all_submissions(run, assignment, tmp_path):
    lost_by = {kind: lost for kind, (_, _, lost) in SUBMISSIONS.items()}
    folders = [hand_in(tmp_path / kind, (old, new)) for kind, (old, new, _) in SUBMISSIONS.items()]
    lost_by |= {"never_ends": ["span_corruption"], "imports_posgpt": NAMES}
    folders.append(hand_in(tmp_path / "never_ends", NEVER_ENDS))
    folders.append(hand_in(tmp_path / "imports_posgpt", ("import argparse\n", "import posgpt\n")))
    run(grade, "--assignment_dir", assignment, "--submissions", *folders)
    for kind, lost in lost_by.items():
        assert read_points(assignment / "grades" / f"{kind}.md") == expect_points(lost)


@pytest.mark.parametrize(
    "report", [None, '<s><testcase name="test_parts"><error message="SyntaxError"/></testcase></s>']
)
def test_a_machine_on_which_the_tests_do_not_run_is_nobodys_fault(monkeypatch, assignment, tmp_path, run, report):
    def run_nothing(command, **_):
        if report:
            Path(command[command.index("--junitxml") + 1]).write_text(report)

    monkeypatch.setattr(grade.subprocess, "run", run_nothing)
    with pytest.raises(SystemExit, match=r"teacher/solution.py fails the hidden tests here \(attention: it ended"):
        run(grade, "--assignment_dir", assignment, "--submissions", hand_in(tmp_path / "ada"))


def test_bad_input_is_refused_in_one_line(run, assignment, tmp_path):
    ada, other = hand_in(tmp_path / "ada"), hand_in(tmp_path / "other" / "ada")
    (tmp_path / "empty").mkdir()
    hand_in(tmp_path / "adab")
    (brackets := tmp_path / "ada[b]").mkdir()
    refused = [
        (write, ["--seed", 1, "--output_dir", assignment], "already there and is not overwritten"),
        (write, ["--seed", -1, "--output_dir", tmp_path / "new"], "seed is -1; choose at least 0"),
        (grade, ["--assignment_dir", assignment, "--submissions", ada, "--time_limit", "inf"], "time_limit is inf"),
        (
            grade,
            ["--assignment_dir", tmp_path, "--submissions", ada],
            "holds no assignment; give the folder that posgpt",
        ),
        (grade, ["--assignment_dir", assignment, "--submissions", ada, other], "two submissions have the same name"),
        # A folder's name may look like a pattern that matches another folder.
        (grade, ["--assignment_dir", assignment, "--submissions", brackets], r"ada\[b\]: neither it"),
        (
            grade,
            ["--assignment_dir", assignment, "--submissions", tmp_path / "empty"],
            "empty: neither it nor another has a solution.py",
        ),
        (
            grade,
            ["--assignment_dir", assignment, "--submissions", ada, tmp_path / "adda"],
            "adda: not a folder; give one for",
        ),
    ]
    for module, arguments, message in refused:
        with pytest.raises(SystemExit, match=message) as stop:
            run(module, *arguments)
        assert "\n" not in stop.value.code and stop.value.code.startswith("error: ")
    assert not (tmp_path / "new").exists()


def test_examples_in_the_handed_out_code_are_right():
    tried = doctest.testmod(load(SOURCE / "solution.py"))
    assert tried.attempted and not tried.failed
    functions = doctest.DocTestFinder().find(load(SOURCE / "solution.py"))
    assert {test.name.removeprefix("solution.") for test in functions if test.examples} == {
        part.function for part in PARTS
    }


def test_a_submission_without_code_loses_its_parts_and_predictions_are_read_as_they_are(
    assignment, tmp_path, run, monkeypatch
):
    (tmp_path / "empty").mkdir()
    # A byte order mark is no part of the first.
    (tmp_path / "empty" / "predictions.txt").write_text("Rome\nOslo\n", encoding="utf-8-sig")
    assert grade.grade_predictions(tmp_path / "empty" / "predictions.txt", ["Rome", "Oslo"]) == "100.0%"
    (tmp_path / "empty" / "nothing.txt").touch()
    assert grade.grade_predictions(tmp_path / "empty" / "nothing.txt", ["Rome", "Oslo"]) == "0 lines for 2 questions"
    for text, encoding, said in (("Rome\nOslo\n\n", "utf-8", "100.0%"), ("Rome\nOslo\n", "utf-16", "not in UTF-8")):
        (tmp_path / "empty" / "other.txt").write_text(text, encoding=encoding)
        assert grade.grade_predictions(tmp_path / "empty" / "other.txt", ["Rome", "Oslo"]) == said
    monkeypatch.setattr(grade, "find_failures", lambda *_: dict.fromkeys(NAMES, ""))
    hand_in(tmp_path / "whole")
    # A pattern, as PowerShell passes it on.
    printed = run(grade, "--assignment_dir", assignment, "--submissions", tmp_path / "*")
    assert printed.count("solution.py was not handed in") == len(NAMES)
    assert "answered: 2 lines for " in printed and "answered: not handed in; " in printed
    assert read_points(assignment / "grades" / "whole.md") == expect_points([])


def test_the_solution_learns_and_writes_an_answer_to_each_test_question(assignment, tmp_path, monkeypatch, capsys):
    solution = load(SOURCE / "solution.py")
    solution.torch.manual_seed(0)
    pairs = [("Ada?", "Rome"), ("Bo?", "Oslo")]
    ids = {symbol: id for id, symbol in enumerate("□⁇" + "".join(sorted(set("Ada?RomeBo?Oslo"))))}
    model = solution.GPT(len(ids), hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    rows = [solution.encode_pair(*pair, ids) for pair in pairs]
    # However few training steps there are.
    for steps in (1, 20):
        assert solution.train(model, lambda: list(rows), steps, 1e-2, 2, "Test") < 10
    assert solution.train(model, lambda: list(rows), 60, 1e-2, 2, "Test") < 0.1
    assert solution.predict(model, [question for question, _ in pairs], ids) == ["Rome", "Oslo"]

    sizes = ["--hidden_size", 16, "--num_hidden_layers", 1, "--num_attention_heads", 2]
    epochs = ["--pretraining_epochs", 1, "--finetuning_epochs", 1]
    files = ["--data_dir", assignment / "student" / "data", "--predictions_file", tmp_path / "predictions.txt"]
    monkeypatch.setattr("sys.argv", ["solution.py", *map(str, [*files, *epochs, *sizes])])
    solution.main()
    assert "London for everyone:" in capsys.readouterr().out
    questions = (assignment / "student" / "data" / FILE_NAMES[-1]).read_text().splitlines()
    assert len((tmp_path / "predictions.txt").read_text(encoding="utf-8").split("\n")) == len(questions) + 1
