"""The oldest and the newest transformers that the metadata allows, each in an environment of its own."""

import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from conftest import ROOT

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
    venv.create(tmp_path / "env", symlinks=os.name != "nt")
    paths = sysconfig.get_paths(vars={"base": tmp_path / "env", "platbase": tmp_path / "env"})
    python = Path(paths["scripts"]) / "python"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "HF_"))}
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", python, "install", *versions]
    installed = subprocess.run(pip, env=environment, capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"pip cannot install them: {installed.stderr[-500:]}")
    # The other libraries are this environment's; what was just installed is found before them.
    (Path(paths["purelib"]) / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    tested = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_publishing.py"],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert tested.returncode == 0, tested.stdout[-4000:]
