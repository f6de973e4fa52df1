"""Write a programming assignment on a fictional world of its own: what students get, and what grades them.

    posgpt assignment --seed 8472619350 --output_dir runs/assignment

`student/` has the handout, the starter and the data. `teacher/` has the solution, the answers to the test questions, the hidden
tests and reference figures. `posgpt grade` grades what students hand in.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import jinja2
import numpy as np
import torch

from data_scripts.errors import exit_on_bad_input
from data_scripts.files import (
    CARD_FILE,
    CORPUS_FILE,
    DEV_FILE,
    TEST_FILE,
    TRAIN_FILE,
    check_is_new,
    write_atomically,
    write_folder_atomically,
)
from data_scripts.options import Range, option, parse_options
from data_scripts.questions import load_questions
from data_scripts.relations import BIRTHPLACE
from data_scripts.synthetic_world import MAX_PEOPLE, MIN_PEOPLE, World
from posgpt.assignment.cases import BUILDERS
from posgpt.assignment.parts import PARTS
from posgpt.evaluation.accuracy import describe_constant, describe_majority
from posgpt.evaluation.evidence import compile_mentions, find_documents, find_first_mention, has_mention
from posgpt.evaluation.exact_match import match_exactly
from posgpt.tables import format_table

# In `teacher/`.
ANSWERS_FILE, TESTS_FOLDER = "birth_test.tsv", "hidden_tests"
SOLUTION_FILE = "solution.py"
_SOURCE = files("posgpt") / "assignment"


@dataclass
class AssignmentArguments:
    """Which world, and where to write."""

    output_dir: str = option("Folder for the assignment; nothing may be there yet.")
    seed: Annotated[int, Range(0)] = option(
        "Determines the world. Whoever knows it has the answers to the test questions: choose a long one."
    )
    num_people: Annotated[int, Range(MIN_PEOPLE, MAX_PEOPLE)] = option(
        "People in the world; by default as many as the course's data has.", default=World.num_people
    )


def cut_starter(solution: str) -> str:
    """Return the solution without what stands between its markers."""
    return re.sub(
        r"^( *)# BEGIN (\w+)\n.*?^\1# END \2$",
        r'\1raise NotImplementedError("part \2 is yours to write")',
        solution,
        flags=re.MULTILINE | re.DOTALL,
    )


def render(template: str, **values: Any) -> str:
    """Return one of the folder's templates, filled in."""
    source = (_SOURCE / template).read_text(encoding="utf-8")
    return jinja2.Template(source, keep_trailing_newline=True).render(values)


def describe_parts() -> str:
    """Return the table of the parts and their points."""
    rows = [(f"`{part.function}`", part.name, part.points, part.task) for part in PARTS]
    total = ("", "together", sum(part.points for part in PARTS), "")
    return format_table(("function", "part", "points", "what it does"), [*rows, total])


def measure_baselines(data_dir: Path, test_file: Path) -> str:
    """Return the table of what simple rules reach on dev and test; two of them read the person's own biography."""
    train, dev, test = (load_questions(path) for path in (data_dir / TRAIN_FILE, data_dir / DEV_FILE, test_file))
    counts = Counter(train.answers)
    places, [(majority, _)] = compile_mentions(counts), counts.most_common(1)
    documents = find_documents(data_dir / CORPUS_FILE, [*dev.titles, *test.titles])
    columns: list[dict[str, Sequence[bool] | np.ndarray]] = []
    for questions in (dev, test):
        answers, total = questions.answers, len(questions)
        documents_of = [documents.get(title, []) for title in questions.titles]
        firsts = [find_first_mention(own, places) or "" for own in documents_of]
        columns.append(
            {
                describe_constant(BIRTHPLACE.baseline): match_exactly([BIRTHPLACE.baseline] * total, answers),
                describe_majority(majority): match_exactly([majority] * total, answers),
                "open book: the first training place in the person's biography": match_exactly(firsts, answers),
                "open book, ceiling: the place is in the person's biography": [
                    any(has_mention(document.text, answer) for document in own)
                    for own, answer in zip(documents_of, answers, strict=True)
                ],
            }
        )
    rows = [(name, *(f"{np.mean(column[name]):.1%}" for column in columns)) for name in columns[0]]
    return format_table(("answers by", f"dev, {len(dev)} people", f"test, {len(test)} people"), rows)


def write_text(path: Path, text: str) -> None:
    """Write a file, and the folders it is in."""
    with write_atomically(path) as file:
        file.write(text)


def write_hidden_tests(folder: Path, world: World) -> None:
    """Write the tests and the cases they check."""
    rng = np.random.default_rng(world.seed)
    cases = {part.name: {"function": part.function, "cases": BUILDERS[part.name](rng, world)} for part in PARTS}
    with write_atomically(folder / "cases.pt", "wb") as file:
        torch.save(cases, file)
    for source in (_SOURCE / TESTS_FOLDER).iterdir():
        if source.name.endswith(".py"):
            write_text(folder / source.name, source.read_text(encoding="utf-8"))


def write_assignment(folder: Path, world: World) -> None:
    """Write `student/` and `teacher/` into a folder."""
    student, teacher = folder / "student", folder / "teacher"
    data_dir = student / "data"
    lines = world.write(data_dir)
    # The world's card names its seed, and so the test answers.
    (data_dir / CARD_FILE).unlink()
    asked_last = islice(world.people(), world.num_people - lines[TEST_FILE], None)
    pairs = [f"{BIRTHPLACE.ask(person.name)}\t{person.birth_place}\n" for person in asked_last]
    write_text(teacher / ANSWERS_FILE, "".join(pairs))

    solution = (_SOURCE / SOLUTION_FILE).read_text(encoding="utf-8")
    write_text(teacher / SOLUTION_FILE, solution)
    write_text(student / SOLUTION_FILE, cut_starter(solution))
    write_hidden_tests(teacher / TESTS_FOLDER, world)
    values = {
        "parts": describe_parts(),
        "lines": lines,
        "question": BIRTHPLACE.ask("Ada Example"),
        "baseline": BIRTHPLACE.baseline,
    }
    write_text(student / "handout.md", render("handout.md.jinja", **values))
    baselines = measure_baselines(data_dir, teacher / ANSWERS_FILE)
    write_text(teacher / "reference.md", render("reference.md.jinja", baselines=baselines, world=world))


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(AssignmentArguments, argv)
    folder = check_is_new(arguments.output_dir)
    with write_folder_atomically(folder) as unfinished:
        write_assignment(unfinished, World(num_people=arguments.num_people, seed=arguments.seed))
    print(f"For students: {folder / 'student'}. For you: {folder / 'teacher'}.")
    print("The seed and the teacher's folder give the test answers away: keep both to yourself.")


if __name__ == "__main__":
    main()
