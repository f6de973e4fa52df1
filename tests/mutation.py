"""Mutation testing: break one line at a time, and see which breaks no test notices (docs/reliability.md has the score).

python tests/mutation.py cover                             # which lines each test runs: the default suite once
python tests/mutation.py sample runs/mutants.sqlite        # draw 100 mutants
python tests/mutation.py run runs/mutants.sqlite           # test each
python tests/mutation.py run runs/mutants.sqlite --seconds 300   # test those that survived again, with more tests

To be started in the repository's folder, in a clone that nothing else uses: while `run` runs, a file there is broken.
"""

import argparse
import ast
import difflib
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import offline  # noqa: F401

# Hugging Face libraries come after it.
# isort: split
import coverage
import pytest
from cosmic_ray.commands import init
from cosmic_ray.modules import find_modules
from cosmic_ray.mutating import mutate_code, use_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkResult
from tqdm import tqdm

PACKAGES = ["modeling_posgpt", "data_scripts", "posgpt"]
MUTATED = ["modeling_posgpt", "data_scripts", "posgpt/training", "posgpt/pretrain.py", "posgpt/finetune.py"]
# What nearly all tests import, and no mutant changes.
LIBRARIES = [
    "datasets",
    "evaluate",
    "hypothesis",
    "torch.utils.tensorboard",
    "transformers.trainer",
    "transformers.models.auto.modeling_auto",
]
LINES, TESTS = Path("runs/tested_lines"), Path("runs/tests.json")
# A test that takes longer is left out where there are others; a mutant that takes more memory ends itself.
LONG_SECONDS, MOST_MEMORY = 20, 8 * 2**30
Scope = ast.FunctionDef | ast.ClassDef


class Cover:
    """Notes which lines each test and each shared fixture runs (as coverage's contexts), and how long each takes.

    A shared fixture runs in the first test that needs it, but its lines are tested by all that do.
    """

    def __init__(self, measured: coverage.Coverage):
        self.measured = measured
        self.test = ""
        self.failed: set[str] = set()
        self.names: dict[str, list[str]] = {}
        self.seconds: dict[str, float] = {}
        self.fixtures: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.test, self.names[item.nodeid] = item.nodeid, item.fixturenames
        self.measured.switch_context(item.nodeid)
        shared, start = sum(self.fixtures.values()), time.monotonic()
        result = yield
        self.seconds[item.nodeid] = time.monotonic() - start - (sum(self.fixtures.values()) - shared)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        if fixturedef.scope == "function":
            return (yield)
        fixture, start = f"{fixturedef.baseid}::{fixturedef.argname}", time.monotonic()
        self.measured.switch_context(fixture)
        try:
            return (yield)
        finally:
            self.measured.switch_context(self.test)
            self.fixtures[fixture] = self.fixtures.get(fixture, 0) + time.monotonic() - start

    def pytest_runtest_logreport(self, report):
        if not report.passed:
            self.failed.add(report.nodeid)

    def write(self) -> None:
        tests = {
            test: {"seconds": seconds, "fixtures": [name for name in self.fixtures if self._uses(test, name)]}
            for test, seconds in self.seconds.items()
            if test not in self.failed
        }
        TESTS.write_text(json.dumps({"tests": tests, "fixtures": self.fixtures}, indent=1), encoding="utf-8")

    def _uses(self, test: str, fixture: str) -> bool:
        folder, name = fixture.rsplit("::", 1)
        return name in self.names[test] and test.startswith(folder)


def cover(args: argparse.Namespace) -> None:
    measured = coverage.Coverage(data_file=LINES, source=PACKAGES, config_file=False)
    plugin = Cover(measured)
    LINES.parent.mkdir(exist_ok=True)
    measured.erase()
    measured.start()
    pytest.main(["-q", "-p", "no:cacheprovider", *args.tests], plugins=[plugin])
    measured.stop()
    measured.save()
    plugin.write()


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def find_untested(path: Path) -> list[ast.AST]:
    """Return what no test is to notice: messages, and types in annotations."""
    found: list[ast.AST] = []
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Raise | ast.JoinedStr):
            found.append(node)
        elif isinstance(node, ast.arg | ast.AnnAssign | ast.FunctionDef):
            annotation = node.returns if isinstance(node, ast.FunctionDef) else node.annotation
            # The ranges of options are in annotations, too.
            found += [each for each in ast.walk(annotation) if isinstance(each, ast.BinOp)] if annotation else []
    return found


def is_tested(mutation: MutationSpec) -> bool:
    row, column = mutation.start_pos
    return not any(
        (node.lineno, node.col_offset) <= (row, column) < (node.end_lineno, node.end_col_offset)
        for node in find_untested(mutation.module_path)
    )


def mutate(mutation: MutationSpec) -> str | None:
    """Return the mutant's code, or None if it does not compile or says the same."""
    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    code = mutate_code(mutation.module_path.read_text(encoding="utf-8"), operator, mutation.occurrence)
    try:
        tree = ast.parse(code)
        compile(tree, mutation.module_path, "exec")
    except SyntaxError:
        return None
    return code if ast.dump(tree) != ast.dump(parse(mutation.module_path)) else None


def sample(args: argparse.Namespace) -> None:
    """Draw places, and one mutant of each: an arithmetic operator has eleven mutants and `not` one."""
    rng = random.Random(args.seed)
    with use_db(args.session) as db:
        init(find_modules(map(Path, MUTATED)), db, {})
        places: dict[tuple, list] = {}
        for item in db.work_items:
            (mutation,) = item.mutations
            places.setdefault((str(mutation.module_path), mutation.start_pos), []).append(item)
        chosen = []
        for place in rng.sample(sorted(places), len(places)):
            items = sorted(
                places[place], key=lambda item: (item.mutations[0].operator_name, item.mutations[0].occurrence)
            )
            item = rng.choice(items)
            if is_tested(item.mutations[0]) and mutate(item.mutations[0]):
                chosen.append(item)
            if len(chosen) == args.number:
                break
        db.clear()
        db.add_work_items(chosen)
    print(f"{len(chosen)} mutants of {len(places)} places")


class Covered:
    """Which tests run a line."""

    def __init__(self) -> None:
        noted = json.loads(TESTS.read_text(encoding="utf-8"))
        self.tests, self.fixtures = noted["tests"], noted["fixtures"]
        self.lines = coverage.CoverageData(LINES)
        self.lines.read()

    def find_tests(self, mutation: MutationSpec) -> set[str]:
        """Return the tests that run a mutated line.

        What runs when a module is imported is tested by what uses it: a definition by what runs its body, a constant or a
        field by what runs a line with its name, and anything else by what runs a line of the module.
        """
        path, row = mutation.module_path, mutation.start_pos[0]
        scopes, statement = find_statement(parse(path), row)
        first, last = statement.lineno, statement.end_lineno or row
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        names = [node.id for target in targets if target for node in ast.walk(target) if isinstance(node, ast.Name)]
        found: set[str] = set()
        if isinstance(statement, Scope):
            found = self._run(path, range(first, last + 1))
        elif any(isinstance(scope, ast.FunctionDef) for scope in scopes):
            if body := getattr(statement, "body", None):
                last = max(first, body[0].lineno - 1)
            # Beyond these lines are those of `except` and `case`.
            found = self._run(path, range(first, last + 1) if row <= last else [row])
        elif names:
            mentioned = re.compile(rf"\b({'|'.join(names)})\b")
            for file in find_modules(map(Path, PACKAGES)):
                lines = enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
                found |= self._run(file, [number for number, line in lines if mentioned.search(line)])
        return found or self._run(path, None)

    def choose(self, mutation: MutationSpec, most_seconds: float) -> tuple[list[str], float]:
        """Return the tests to run, the fastest first, and how many seconds they take; all together at most about that many."""

        def measure(test: str) -> float:
            return self.tests[test]["seconds"] + sum(self.fixtures[name] for name in self.tests[test]["fixtures"])

        found = sorted(self.find_tests(mutation), key=measure)
        chosen, total, ready = [], 0.0, set()
        for test in found:
            needed = set(self.tests[test]["fixtures"]) - ready
            seconds = self.tests[test]["seconds"] + sum(self.fixtures[name] for name in needed)
            if chosen and (total + seconds > most_seconds or seconds > LONG_SECONDS):
                continue
            chosen.append(test)
            total, ready = total + seconds, ready | needed
        return chosen, total

    @cache  # noqa: B019 - there is one object
    def _read_contexts(self, path: Path) -> dict[int, list[str]]:
        return self.lines.contexts_by_lineno(str(path.absolute()))

    def _run(self, path: Path, numbers: Iterable[int] | None) -> set[str]:
        contexts_of = self._read_contexts(path)
        contexts = {
            each for number in (contexts_of if numbers is None else numbers) for each in contexts_of.get(number, ())
        }
        return {test for test, noted in self.tests.items() if test in contexts or contexts & {*noted["fixtures"]}}


def find_statement(tree: ast.Module, row: int) -> tuple[list[ast.AST], ast.stmt]:
    """Return the innermost statement that has a row, and what it is in."""
    scopes: list[ast.AST] = []
    node: ast.AST = tree
    while inner := [
        each
        for each in ast.walk(node)
        if each is not node and isinstance(each, ast.stmt) and find_start(each) <= row <= (each.end_lineno or row)
    ]:
        scopes.append(node)
        node = inner[0]
    return scopes, node


def find_start(statement: ast.stmt) -> int:
    return min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))])


class Choose:
    """Runs some tests, in their order."""

    def __init__(self, tests: list[str]):
        self.rank = {test: number for number, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = sorted(
            (item for item in items if item.nodeid in self.rank), key=lambda item: self.rank[item.nodeid]
        )


def run_tests(tests: list[str], output: Path, limit: int) -> None:
    """Run tests until one fails, and leave this process with pytest's exit status."""
    os.setsid()
    # Seconds of the processor: other work on the machine must not end a test.
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    status = 1
    try:
        files = dict.fromkeys(test.split("::")[0] for test in tests)
        options = ["-x", "-q", "--no-header", "--tb=short", "--assert=plain", "-p", "no:cacheprovider"]
        status = pytest.main([*options, *files], plugins=[Choose(tests)])
    finally:
        sys.stdout.flush()
        os._exit(status)


def try_mutant(tests: list[str], limit: int) -> tuple[TestOutcome, str]:
    """Run tests in a forked process; what is imported already need not be imported for every mutant."""
    if not tests:
        return TestOutcome.SURVIVED, "no test runs this line"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        output = Path(folder, "output")
        process = get_context("fork").Process(target=run_tests, args=(tests, output, limit))
        process.start()
        tempfile.tempdir = None
        del os.environ["TMPDIR"]
        process.join(10 * limit)
        status = process.exitcode
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.join()
        printed = output.read_text(encoding="utf-8", errors="replace")[-4000:]
    # What the libraries keep there was made by the mutant's code.
    shutil.rmtree(os.environ["HF_HOME"], ignore_errors=True)
    survived = status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return (TestOutcome.SURVIVED if survived else TestOutcome.KILLED), f"{printed}\nexit status: {status}"


def run(args: argparse.Namespace) -> None:
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    for library in LIBRARIES:
        importlib.import_module(library)
    covered = Covered()
    with use_db(args.session) as db:
        survived = [item for item, result in db.completed_work_items if result.test_outcome == TestOutcome.SURVIVED]
        items = sorted([*db.pending_work_items, *survived], key=lambda item: item.job_id)
        for item in tqdm(items, desc="Testing mutants", unit="mutant", disable=False):
            (mutation,) = item.mutations
            tests, seconds = covered.choose(mutation, args.seconds)
            operator = get_operator(mutation.operator_name)(**mutation.operator_args)
            with use_mutation(mutation.module_path, operator, mutation.occurrence) as (code, mutated):
                outcome, printed = try_mutant(tests, 30 + 3 * round(seconds))
            lines = difflib.unified_diff(code.splitlines(), mutated.splitlines(), str(mutation.module_path), "", n=1)
            db.set_result(item.job_id, WorkResult(WorkerOutcome.NORMAL, printed, outcome, "\n".join(lines)))
        results = [result for _, result in db.completed_work_items]
    survivors = [result.diff for result in results if result.test_outcome == TestOutcome.SURVIVED]
    killed = len(results) - len(survivors)
    print("\n\n".join([*survivors, f"killed {killed} of {len(results)}: {killed / len(results):.0%}"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("cover")
    command.add_argument("tests", nargs="*", help="files of tests; default: all")
    command.set_defaults(act=cover)
    command = commands.add_parser("sample")
    command.add_argument("session", help="a file for the mutants and what becomes of them")
    command.add_argument("--number", type=int, default=100, help="how many to draw")
    command.add_argument("--seed", type=int, default=0)
    command.set_defaults(act=sample)
    command = commands.add_parser("run")
    command.add_argument("session")
    command.add_argument("--seconds", type=float, default=30, help="how many seconds of tests a mutant gets at most")
    command.set_defaults(act=run)
    args = parser.parse_args()
    args.act(args)


if __name__ == "__main__":
    main()
