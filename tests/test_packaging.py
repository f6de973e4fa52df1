"""The wheel and the sdist, installed where the checkout cannot be seen."""

import ast
import json
import re
import shutil
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import posgpt
from conftest import ROOT, TINY
from environments import ENVIRONMENT, Environment, execute
from posgpt.recipe_parser import list_recipes

NOT_PACKAGED = shutil.ignore_patterns(
    ".git", ".venv", "runs", "build", "dist", "*.egg-info", "__pycache__", ".*_cache"
)
PACKAGES = ("modeling_posgpt", "data_scripts", "posgpt", "studies")
# Folders whose code may need an extra.
EXTRAS = {"page": "page"}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> dict[str, Path]:
    """The wheel, built from the sdist, and the sdist."""
    folder = tmp_path_factory.mktemp("distributions")
    source = shutil.copytree(ROOT, folder / "source", ignore=NOT_PACKAGED)
    execute(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", source)
    return {file.suffix.lstrip("."): file for file in (folder / "dist").iterdir()}


@pytest.fixture(scope="module")
def installed(distributions, tmp_path_factory) -> SimpleNamespace:
    """An environment with the wheel, which sees the libraries but not the checkout, and an empty folder to run it in."""
    folder = tmp_path_factory.mktemp("installed")
    environment = Environment(folder / "env")
    environment.install("--no-deps", "--no-index", distributions["whl"])
    environment.borrow_libraries()
    empty = folder / "empty"
    empty.mkdir()
    options = {"cwd": empty, "env": ENVIRONMENT | {"OMP_NUM_THREADS": "2", "HF_HOME": str(folder / "home")}}
    return SimpleNamespace(scripts=environment.scripts, folder=empty, options=options)


def run_installed(installed: SimpleNamespace, program: str, *arguments: object) -> str:
    return execute(installed.scripts / program, *arguments, **installed.options)


def test_the_distributions_hold_the_packages_and_all_they_read(distributions):
    names = zipfile.ZipFile(distributions["whl"]).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {*PACKAGES}
    files = [file for folder in PACKAGES for file in (ROOT / folder).rglob("*") if file.is_file()]
    assert {file.relative_to(ROOT).as_posix() for file in files if "__pycache__" not in file.parts} <= set(names)
    assert {f"posgpt/recipes/{name}.yaml" for name in list_recipes()} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    with tarfile.open(distributions["gz"]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "setup.py", "LICENSE", "README.md", "posgpt/recipes/windows.yaml"} <= names


def test_what_is_imported_is_required_by_the_package_or_its_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras, installed = project["optional-dependencies"], packages_distributions()
    for file in (file for folder in PACKAGES for file in (ROOT / folder).rglob("*.py")):
        needed = [extra for part, extra in EXTRAS.items() if part in file.relative_to(ROOT).parts]
        needed += ["test"] if "hidden_tests" in file.parts else []
        lines = [*project["dependencies"], *(line for extra in needed for line in extras[extra])]
        required = {canonicalize_name(Requirement(line).name) for line in lines}
        # What is imported as soon as the module is.
        statements = ast.parse(file.read_text(encoding="utf-8")).body
        imports = [alias.name for node in statements if isinstance(node, ast.Import) for alias in node.names]
        imports += [str(node.module) for node in statements if isinstance(node, ast.ImportFrom) and not node.level]
        for package in {name.split(".")[0] for name in imports} - sys.stdlib_module_names - {*PACKAGES}:
            names = {canonicalize_name(name) for name in installed.get(package, [package])}
            assert names & required, f"{file}: {package} is none of the requirements"


def test_installed_it_trains_evaluates_and_studies_from_an_empty_folder(installed, world):
    shutil.copytree(world, installed.folder / "world")
    files = ["--train_file", "world/wiki.txt", "--questions_file", "world/birth_places_train.tsv"]
    options = [*TINY, "--max_steps", 2, "--output_dir", "runs/windows"]
    training = ["pretrain", "windows", *map(str, [*files, *options])]
    evaluation = ["--model_name_or_path", "runs/windows", "--test_file", "world/birth_dev.tsv"]
    evaluation += ["--train_file", "world/birth_places_train.tsv", "--output_dir", "runs/eval"]
    recipe = (
        "base: windows\npretrain: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, use_cpu: true}\n"
    )
    (installed.folder / "tiny.yaml").write_text(recipe)
    encoding = "from modeling_posgpt import PositionEncoding, register\n@register('mine')\nclass Mine(PositionEncoding): pass\n"
    (installed.folder / "mine.py").write_text(encoding)
    options = ["--data_dir", "world", "--recipe", "tiny.yaml", "--rows", "mine", "--seeds", 1, "--max_steps", 2]
    study = ["study", "positions", "--import", "mine.py", *map(str, options)]
    # In one process: most of its time goes into importing.
    commands = [training, ["evaluate", *evaluation], study, ["study"]]
    printed = run_installed(
        installed, "python", "-c", f"from posgpt.cli import main\nfor command in {commands}: main(command)"
    )
    recipe = re.findall(r"^Recipe: (.*windows.yaml)", printed, re.M)[0]
    assert Path(recipe).is_relative_to(installed.folder.parent / "env")
    assert run_installed(installed, "posgpt", "--version") == f"posgpt {posgpt.__version__}\n"
    assert "London" in printed and "| mine " in printed and "recall" in printed
    assert json.loads((installed.folder / "runs" / "eval" / "metrics.json").read_text())["total"] == 17


@pytest.mark.slow
def test_a_full_installation_with_its_dependencies_runs_the_quickstart(distributions, tmp_path):
    """Needs a package registry and a few minutes."""
    environment = Environment(tmp_path / "env")
    environment.install("--constraint", ROOT / "constraints.txt", distributions["whl"])
    (tmp_path / "empty").mkdir()
    options = ["--num_people", 100, "--output_dir", "runs/quickstart"]
    printed = execute(environment.scripts / "posgpt", "quickstart", *options, cwd=tmp_path / "empty", env=ENVIRONMENT)
    assert "PosGPT, pretrained" in printed
