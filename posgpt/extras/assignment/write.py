"""Write a programming assignment on a fictional world of its own: what students get, and what grades them.

    posgpt assignment --seed 8472619350 --output_dir runs/assignment

`student/` has the handout, the starter and the data. `teacher/` has the solution, the answers to the test questions and the
hidden tests. `posgpt grade` grades what students hand in.
"""

import re
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Annotated

import jinja2

from data_scripts.files import (
    CARD_FILE,
    RELATIONS_FILE,
    TEST_FILE,
    WORDINGS_FILE,
    check_is_new,
    write_folder_atomically,
)
from data_scripts.options import Range, option, parse_options
from data_scripts.relations import BIRTHPLACE
from data_scripts.synthetic_world import MAX_PEOPLE, MIN_PEOPLE, World
from posgpt.extras.assignment.parts import PARTS
from posgpt.tables import format_table

# In `teacher/`.
ANSWERS_FILE, TESTS_FOLDER = "birth_test.tsv", "hidden_tests"
# What students hand in.
SOLUTION_FILE, PREDICTIONS_FILE = "solution.py", "predictions.txt"
_SOURCE = files("posgpt.extras") / "assignment"


@dataclass
class AssignmentArguments:
    """Which world, and where to write."""

    output_dir: str = option("Folder for the assignment; nothing may be there yet.")
    seed: Annotated[int, Range(0)] = option("Determines the world, and so the test answers: choose a long one.")
    num_people: Annotated[int, Range(MIN_PEOPLE, MAX_PEOPLE)] = option(
        "People in the world; by default as many as the course's data has.", default=World.num_people
    )


def cut_starter(solution: str) -> str:
    """Return the solution without what stands between its markers."""
    missing = r'\1raise NotImplementedError("part \2 is yours to write")'
    return re.sub(r"(?ms)^( *)# BEGIN (\w+)\n.*?^\1# END \2$", missing, solution)


def describe_parts() -> str:
    """Return the table of the parts and their points."""
    rows = [(f"`{part.function}`", part.name, part.points, part.task) for part in PARTS]
    total = ("", "together", sum(part.points for part in PARTS), "")
    return format_table(("function", "part", "points", "what it does"), [*rows, total])


def write_assignment(folder: Path, world: World) -> None:
    """Write `student/` and `teacher/` into a folder."""
    student, teacher = folder / "student", folder / "teacher"
    data_dir = student / "data"
    lines = world.write(data_dir)
    # The world's card names its seed, and so the test answers; the assignment asks in one wording.
    for name in (CARD_FILE, RELATIONS_FILE, WORDINGS_FILE):
        (data_dir / name).unlink()
    asked_last = islice(world.people(), world.num_people - lines[TEST_FILE], None)
    pairs = [f"{BIRTHPLACE.ask(person.name)}\t{person.birth_place}\n" for person in asked_last]
    names = (SOLUTION_FILE, f"{TESTS_FOLDER}/test_parts.py")
    texts = {teacher / name: (_SOURCE / name).read_text(encoding="utf-8") for name in names}
    template = jinja2.Template((_SOURCE / "handout.md.jinja").read_text(encoding="utf-8"), keep_trailing_newline=True)
    texts |= {
        teacher / ANSWERS_FILE: "".join(pairs),
        student / SOLUTION_FILE: cut_starter(texts[teacher / SOLUTION_FILE]),
        student / "handout.md": template.render(parts=describe_parts(), lines=lines, relation=BIRTHPLACE),
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(AssignmentArguments, argv)
    folder = check_is_new(arguments.output_dir)
    with write_folder_atomically(folder) as unfinished:
        write_assignment(unfinished, World(num_people=arguments.num_people, seed=arguments.seed))
    print(f"For students: {folder / 'student'}. For you: {folder / 'teacher'}.")
    print("The seed and the teacher's folder give the test answers away: keep both to yourself.")
