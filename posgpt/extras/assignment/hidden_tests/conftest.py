"""Load the submission that is tested."""

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
