"""The oldest and the newest transformers that the metadata allows, each in an environment of its own."""

import tomllib

import pytest
from packaging.requirements import Requirement

from conftest import ROOT
from environments import Environment

# The libraries of Hugging Face that a model is trained, saved, pushed and loaded with.
STATED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
REQUIREMENTS = {
    requirement.name: requirement for requirement in map(Requirement, STATED)
    if requirement.name in ("transformers", "huggingface_hub")
}  # fmt: skip


def find_oldest(requirement: Requirement) -> str:
    (version,) = (each.version for each in requirement.specifier if each.operator == ">=")
    return f"{requirement.name}=={version}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "versions",
    [[*map(find_oldest, REQUIREMENTS.values())], [*map(str, REQUIREMENTS.values())]],
    ids=["oldest", "newest"],
)
def test_models_train_and_load_with_the_ends_of_the_stated_range(versions, tmp_path):
    environment = Environment(tmp_path / "env")
    environment.install(*versions)
    # The other libraries are this environment's; what was just installed is found before them.
    environment.borrow_libraries()
    environment.run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_publishing.py"), cwd=ROOT, PYTHONPATH=str(ROOT)
    )
