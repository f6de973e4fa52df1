"""Grade what students hand in for an assignment that `posgpt assignment` wrote.

    posgpt grade --assignment_dir runs/assignment --submissions submissions/*

A submission is a folder with `solution.py` and, if the student trained it, `predictions.txt`. The hidden tests run in a process
of their own; if code ends it or runs too long, the other parts get another one. Each submission's table is printed and written to
`grades/NAME.md` in the assignment's folder, and all of them to `grades/grades.csv`.

Code that is graded can do whatever you can: a submission that you do not trust belongs in a container.
"""

import csv
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

from tqdm import tqdm

from data_scripts.errors import BadInput, check_installed, reraise_as_bad_input
from data_scripts.files import write_atomically, write_file
from data_scripts.options import Range, option, parse_options
from data_scripts.questions import load_questions
from data_scripts.relations import BIRTHPLACE
from posgpt.evaluation.scoring import match_exactly
from posgpt.extras.assignment.parts import PARTS, Part
from posgpt.extras.assignment.write import ANSWERS_FILE, PREDICTIONS_FILE, SOLUTION_FILE, TESTS_FOLDER
from posgpt.tables import format_table

# How long torch and the tests may take to load.
_START_SECONDS = 300
TABLE_HEADER = ["submission", *(part.name for part in PARTS), "together", "test questions answered"]


@dataclass
class GradingArguments:
    """What to grade, and by what."""

    assignment_dir: str = option("The assignment's folder.")
    submissions: list[str] = option("Folders, one for each student, named after them.")
    time_limit: Annotated[float, Range(1, 86_400)] = option("Seconds for each part of a submission.", default=60.0)


def find_failures(tests: Path, solution: Path, time_limit: float, parts: Sequence[Part] = PARTS) -> dict[str, str]:
    """Run the hidden tests of some parts in one process; return why each failed, empty if it passed."""
    # On Windows, a process that the submission started may still have a file open.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        report = Path(folder) / "report.xml"
        # Without the settings of a project that the folder lies in, the environment's plugins, and caches in the folder.
        settings = ["-c", os.devnull, "--rootdir", tests, "-p", "no:cacheprovider", "--junitxml", report]
        environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "SOLUTION": str(solution)}
        # The clock starts with each test: how long torch takes to load is nobody's fault.
        settings += ["-o", f"faulthandler_timeout={time_limit}", "-o", "faulthandler_exit_on_timeout=true"]
        chosen = [f"{tests / 'test_parts.py'}::test_part[{part.name}]" for part in parts]
        command = [sys.executable, "-B", "-m", "pytest", "-v", *map(str, settings), *chosen]
        # The process may stay after its tests, for a thread of the submission; the report is written by then.
        longest, nowhere = _START_SECONDS + len(parts) * time_limit, subprocess.DEVNULL
        printed = report.with_suffix(".txt")
        with suppress(subprocess.TimeoutExpired), printed.open("wb") as file:
            subprocess.run(command, env=os.environ | environment, stdout=file, stderr=nowhere, timeout=longest)
        cases = list(ElementTree.parse(report).iter("testcase")) if report.is_file() else []
        text = printed.read_text(encoding="utf-8", errors="replace")
        ended = dict(re.findall(r"test_part\[(\w+)\] (PASSED|FAILED)", text))
    failures = {}
    # A file of tests that cannot be imported is a case without a part, and an interrupted session one without a name.
    for case in (each for each in cases if "[" in each.get("name", "")):
        why = [child.attrib.get("message") or child.tag for child in case]
        failures[case.attrib["name"].split("[")[1][:-1]] = " ".join(" ".join(why).split())[:300]
    if len(parts) == 1:
        return {parts[0].name: f"it ended the process, or took more than {time_limit:g} seconds"} | failures
    # The first part whose test did not end has ended the process, so it is run alone, and the others without it: again those that
    # failed, since the report that says why is missing.
    failures = {name: "" for name, how in ended.items() if how == "PASSED"} | failures
    left = sorted((part for part in parts if part.name not in failures), key=lambda part: part.name in ended)
    for some in filter(None, (left[:1], left[1:])):
        failures |= find_failures(tests, solution, time_limit, some)
    return failures


def grade_predictions(predictions_file: Path, answers: Sequence[str]) -> str:
    """Say how many of the test questions a submission's predictions answer."""
    if not predictions_file.is_file():
        return "not handed in"
    try:
        text = predictions_file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return "not in UTF-8"
    # Not splitlines: an answer may have one of the rarer line breaks. The last one may be empty, or an empty line follow it.
    predictions = text.removesuffix("\n").split("\n") if text else []
    if len(predictions) == len(answers) + 1 and not predictions[-1]:
        predictions.pop()
    if len(predictions) != len(answers):
        return f"{len(predictions)} lines for {len(answers)} questions"
    return f"{match_exactly(predictions, answers).mean():.1%}"


def read_points(table_file: Path) -> list[list[str]]:
    """Return the rows of a table of points; none if there is no such file. Raise BadInput if it has other columns."""
    if not table_file.is_file():
        return []
    fix = "save it as CSV in UTF-8, or move it away."
    with (
        reraise_as_bad_input(f"{table_file}: cannot be read", fix, ValueError, csv.Error),
        table_file.open(encoding="utf-8-sig", newline="") as file,
    ):
        header, *rows = [*csv.reader(file)] or [[]]
    if header != TABLE_HEADER:
        raise BadInput(f"{table_file}: its columns are not {', '.join(TABLE_HEADER)}; move it away.")
    return list(filter(None, rows))


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(GradingArguments, argv)
    check_installed("test", "pytest")
    folder = Path(arguments.assignment_dir)
    tests = folder / "teacher" / TESTS_FOLDER
    if not (tests / "test_parts.py").is_file():
        raise BadInput(f"{folder}: holds no assignment; give the folder that posgpt assignment wrote.")
    answers = load_questions(folder / "teacher" / ANSWERS_FILE, answers=True).answers
    # Not every shell replaces a pattern by the names that it matches.
    given = list[str]()
    for each in arguments.submissions:
        given += [each] if Path(each).exists() else sorted(glob(each)) or [each]
    submissions = {path.name: path for path in (Path(path).absolute() for path in given)}
    if len(submissions) < len(given):
        raise BadInput("two submissions have the same name; name each student's folder after the student.")
    if missing := [path for path in given if not Path(path).is_dir()]:
        raise BadInput(f"{missing[0]}: not a folder; give one for each student.")
    if not any((path / SOLUTION_FILE).is_file() for path in submissions.values()):
        raise BadInput(f"{given[0]}: neither it nor another has a {SOLUTION_FILE}; give folders, e.g. submissions/*.")

    table_file = folder / "grades" / "grades.csv"
    # A table that cannot be read is refused before anything is graded.
    read_points(table_file)
    # Else an environment without something that the tests need would be the students' fault.
    failures = find_failures(tests, folder / "teacher" / SOLUTION_FILE, arguments.time_limit)
    if failed := [f"{part}: {why}" for part, why in failures.items() if why]:
        fix = "run them with pytest, or raise --time_limit."
        raise BadInput(f"{tests}: teacher/{SOLUTION_FILE} fails the hidden tests here ({failed[0]}); {fix}")
    baseline = f'"{BIRTHPLACE.baseline}" for everyone: {answers.count(BIRTHPLACE.baseline) / len(answers):.1%}'
    for name, path in tqdm(submissions.items(), desc="Grading", unit="submission", disable=len(given) < 2 or None):
        if (path / SOLUTION_FILE).is_file():
            failures = find_failures(tests, path / SOLUTION_FILE, arguments.time_limit)
        else:
            failures = {part.name: f"{SOLUTION_FILE} was not handed in" for part in PARTS}
        points = [0 if failures[part.name] else part.points for part in PARTS]
        rows = [(part.name, got, part.points, failures[part.name]) for part, got in zip(PARTS, points, strict=True)]
        rows += [("together", sum(points), sum(part.points for part in PARTS), "")]
        accuracy = grade_predictions(path / PREDICTIONS_FILE, answers)
        table = format_table(("part", "points", "of", "what went wrong"), rows)
        page = f"# {name}\n\n{table}\n\nTest questions answered: {accuracy}; {baseline}.\n"
        print(page)
        write_file(folder / "grades" / f"{name}.md", page)
        # After each submission, so that a run that is stopped loses none of what it graded. Others keep their points, also those whom
        # somebody else has graded meanwhile.
        points_by_name = {row[0]: row for row in read_points(table_file)}
        points_by_name[name] = [name, *map(str, points), str(sum(points)), accuracy]
        with write_atomically(table_file) as file:
            csv.writer(file, lineterminator="\n").writerows([TABLE_HEADER, *points_by_name.values()])
    print(f"Written: {folder / 'grades'}")
