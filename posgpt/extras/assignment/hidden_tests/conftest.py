"""Load the submission that is tested, and write down how each test ended."""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

# A submission that imports the solution's own library gets an ImportError.
for _package in ("posgpt", "data_scripts", "modeling_posgpt", "transformers"):
    sys.modules[_package] = None  # type: ignore[assignment]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--solution", type=Path, required=True, help="the solution.py to test")
    parser.addoption("--outcomes", type=Path, help="file to which each test's name and message go, as JSON lines")


def load(name: str, file: Path) -> ModuleType:
    """Return a file as a module."""
    spec = spec_from_file_location(name, file)
    assert spec and spec.loader
    module = module_from_spec(spec)
    # As an import does: dataclasses look for their module there.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """The teacher's solution."""
    return load("reference", Path(__file__).resolve().parent.parent / "solution.py")


@pytest.fixture(scope="session")
def solution(pytestconfig: pytest.Config) -> ModuleType:
    """The submission."""
    return load("solution", pytestconfig.getoption("solution"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Show that the tests begin: whatever happens from now on is the submission's doing."""
    path = session.config.getoption("outcomes")
    if path:
        path.touch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function, call: pytest.CallInfo):
    """Append a line once a test has ended; its message is empty if it passed."""
    report = yield
    path = item.config.getoption("outcomes")
    if path and (call.when == "call" or call.excinfo):
        message = " ".join(call.excinfo.exconly().split()) if call.excinfo else ""
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"part": item.callspec.params["part"], "message": message}) + "\n")
    return report
