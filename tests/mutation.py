"""What cosmic-ray's mutation testing needs here: a sample of mutants and, for each, the tests that run its line.

docs/contributing.md has the commands and the score. To be started in a clone without changes that nothing else uses.
"""

import argparse
import ast
import json
import random
import re
import resource
import subprocess
import sys
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

import coverage
import pytest
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import MutationSpec

PACKAGES = [Path("modeling_posgpt"), Path("data_scripts"), Path("posgpt")]
LINES, TESTS = Path("runs/tested_lines"), Path("runs/tests.json")
OPTIONS = ["-q", "--no-header", "-p", "no:cacheprovider"]


class Cover:
    """Notes which lines each test runs (as coverage's contexts), how long it takes, and the fixtures that it uses.

    A shared fixture runs in the first test that needs it and has a context of its own: all that use it test its lines.
    """

    def __init__(self, measured: coverage.Coverage):
        self.measured, self.item = measured, None
        self.tests: dict[str, dict] = {}

    def pytest_runtest_setup(self, item):
        self.item = item
        self.measured.switch_context(item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        self.measured.switch_context(self.item.nodeid if fixturedef.scope == "function" else fixturedef.argname)
        result = yield
        self.measured.switch_context(self.item.nodeid)
        return result

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.tests[report.nodeid] = {"seconds": report.duration, "fixtures": self.item.fixturenames}


def cover(args: argparse.Namespace) -> None:
    """Run the tests once, and write down what runs which line."""
    measured = coverage.Coverage(data_file=LINES, source=list(map(str, PACKAGES)), config_file=False)
    plugin = Cover(measured)
    LINES.parent.mkdir(exist_ok=True)
    measured.erase()
    with measured.collect():
        pytest.main([*OPTIONS, *args.names], plugins=[plugin])
    measured.save()
    TESTS.write_text(json.dumps(plugin.tests, indent=1), encoding="utf-8")


def is_to_be_noticed(mutation: MutationSpec) -> bool:
    """Whether a mutant compiles and says something else than the code, beyond its messages and the types in annotations."""
    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    code = mutation.module_path.read_text(encoding="utf-8")
    tree, left_out = ast.parse(code), []
    for node in ast.walk(tree):
        annotation = getattr(node, "returns" if isinstance(node, ast.FunctionDef) else "annotation", None)
        if isinstance(node, ast.Raise | ast.JoinedStr):
            left_out.append(node)
        elif isinstance(annotation, ast.AST):
            # The ranges of options are in annotations, too.
            left_out += [each for each in ast.walk(annotation) if isinstance(each, ast.BinOp)]
    start = mutation.start_pos
    if any((node.lineno, node.col_offset) <= start < (node.end_lineno, node.end_col_offset) for node in left_out):
        return False
    try:
        mutant = ast.parse(mutate_code(code, operator, mutation.occurrence))
        compile(mutant, mutation.module_path, "exec")
    except SyntaxError:
        return False
    return ast.dump(mutant) != ast.dump(tree)


def sample(args: argparse.Namespace) -> None:
    """Keep places drawn from those of a session, and one mutant of each: an arithmetic operator has eleven, `not` one."""
    rng, chosen = random.Random(args.seed), []
    with use_db(*args.names) as db:
        places: dict[tuple, list] = {}
        for item in db.work_items:
            (mutation,) = item.mutations
            order = (mutation.operator_name, mutation.occurrence)
            places.setdefault((str(mutation.module_path), mutation.start_pos), []).append((order, item))
        for place in rng.sample(sorted(places), len(places)):
            item = rng.choice(sorted(places[place], key=lambda each: each[0]))[1]
            if len(chosen) < args.number and is_to_be_noticed(item.mutations[0]):
                chosen.append(item)
        db.clear()
        db.add_work_items(chosen)
    print(f"{len(chosen)} mutants of {len(places)} places")


def find_lines(code: str, row: int) -> Iterable[int]:
    """Return the rows that show what a row does: its statement in a function; else, as it runs on import, the whole module."""
    for function in (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)):
        if function.body[0].lineno <= row <= (function.end_lineno or 0):
            for node in (each for each in ast.walk(function) if isinstance(each, ast.stmt) and each is not function):
                # The head alone of `if` and `for`; the rows of `except` and `case` are beyond it.
                end = node.body[0].lineno - 1 if hasattr(node, "body") else node.end_lineno or 0
                if node.lineno <= row <= end:
                    return range(node.lineno, end + 1)
            return [row]
    return range(1, len(code.splitlines()) + 1)


def choose_tests(max_seconds: float) -> list[str]:
    """Return the tests that run what differs from the last commit, the fastest first, and at most `max_seconds` of them."""
    diff = subprocess.run(["git", "diff", "-U0", "--no-ext-diff"], capture_output=True, text=True, check=True).stdout
    (path,), ((row, number),) = re.findall(r"^--- a/(.*)", diff, re.M), re.findall(r"^@@ -(\d+),?(\d*)", diff, re.M)
    code = subprocess.run(["git", "show", f"HEAD:{path}"], capture_output=True, text=True, check=True).stdout
    tests, lines = json.loads(TESTS.read_text(encoding="utf-8")), coverage.CoverageData(LINES)
    lines.read()
    contexts_of, rows = (
        lines.contexts_by_lineno(str(Path(path).absolute())),
        find_lines(code, int(row) + int(number or 1) - 1),
    )
    contexts = {context for each in rows for context in contexts_of.get(each, ())}
    found = [name for name, noted in tests.items() if contexts & {name, *noted["fixtures"]}]
    found.sort(key=lambda name: tests[name]["seconds"])
    totals = list(accumulate(tests[name]["seconds"] for name in found))
    return found[: max(1, sum(total <= max_seconds for total in totals))]


def test(args: argparse.Namespace) -> None:
    """Run the tests of the mutant that cosmic-ray has put in its place until one fails."""
    tests = choose_tests(args.seconds)
    # Seconds of the processor: other work on the machine must not end a test. A mutant may also want all memory.
    resource.setrlimit(resource.RLIMIT_CPU, (60 + 3 * args.seconds,) * 2)
    resource.setrlimit(resource.RLIMIT_DATA, (8 * 2**30,) * 2)
    status = pytest.main([*OPTIONS, "-x", "--assert=plain", *tests]) if tests else 0
    sys.exit(0 if status == pytest.ExitCode.NO_TESTS_COLLECTED else status)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("act", choices=["cover", "sample", "test"])
    parser.add_argument("names", nargs="*", help="cover: files of tests; sample: what `cosmic-ray init` wrote")
    parser.add_argument("--number", type=int, default=100, help="sample: how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="sample: of the random numbers")
    parser.add_argument("--seconds", type=int, default=300, help="test: of tests that a mutant gets at most")
    args = parser.parse_args()
    {"cover": cover, "sample": sample, "test": test}[args.act](args)


if __name__ == "__main__":
    main()
