"""The wheel and the sdist, installed where the checkout cannot be seen."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from conftest import ROOT, TINY
from environments import find_python
from hub import find_free_port
from posgpt.recipe_parser import list_recipes

NOT_PACKAGED = shutil.ignore_patterns(
    ".git", ".venv", "runs", "build", "dist", "*.egg-info", "__pycache__", ".*_cache"
)


def execute(*command, **options) -> str:
    options = {"capture_output": True, "text": True, "check": False} | options
    result = subprocess.run([str(part) for part in command], **options)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> dict[str, Path]:
    """The wheel, built from the sdist, and the sdist."""
    folder = tmp_path_factory.mktemp("distributions")
    source = shutil.copytree(ROOT, folder / "source", ignore=NOT_PACKAGED)
    execute(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", source)
    return {file.suffix.lstrip("."): file for file in (folder / "dist").iterdir()}


@pytest.fixture(scope="module")
def installed(distributions, tmp_path_factory):
    """Run a program of an environment with the wheel, which sees the libraries but not the checkout, in an empty folder."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "env", symlinks=os.name != "nt")
    paths = sysconfig.get_paths(vars={"base": folder / "env", "platbase": folder / "env"})
    scripts, packages = Path(paths["scripts"]), Path(paths["purelib"])
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", find_python(scripts)]
    # On PYTHONPATH the checkout's own metadata would count as installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    execute(*pip, "install", "--no-deps", "--no-index", distributions["whl"], env=environment)
    # A folder named in a .pth file is searched, but its own .pth files, which point to the checkout, are not read.
    (packages / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    empty = folder / "empty"
    empty.mkdir()
    command = {"cwd": empty, "env": environment | {"OMP_NUM_THREADS": "2"}}

    def run(program, *arguments, runner=execute, **options):
        return runner(scripts / program, *arguments, **command, **options)

    run.folder = empty
    return run


PACKAGES = ("modeling_posgpt", "data_scripts", "posgpt", "studies")


def test_the_wheel_holds_its_packages_and_all_they_read(distributions):
    names = zipfile.ZipFile(distributions["whl"]).namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {*PACKAGES}
    assert {f"posgpt/recipes/{name}.yaml" for name in list_recipes()} <= set(names)
    for folder in PACKAGES:
        expected = {
            file.relative_to(ROOT).as_posix()
            for file in (ROOT / folder).rglob("*")
            if file.is_file() and "__pycache__" not in file.parts
        }
        assert expected <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def list_required(distribution: str, extras: frozenset[str], found: set[str]) -> set[str]:
    """Add to `found` the names of a distribution's requirements and of all that these require in turn."""
    try:
        requirements = list(map(Requirement, requires(distribution) or []))
    except PackageNotFoundError:
        return found
    for requirement in requirements:
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            continue
        name = requirement.name.lower().replace("_", "-")
        if name not in found or requirement.extras:
            found.add(name)
            list_required(requirement.name, frozenset(requirement.extras), found)
    return found


def list_imports(file: Path) -> Iterator[str]:
    """Yield the top-level packages that a module imports as soon as it is imported itself."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).split(".")[0]


@pytest.mark.parametrize(
    "folder, extras",
    [
        ("modeling_posgpt", ()),
        ("data_scripts", ()),
        ("posgpt", ()),
        ("posgpt/evaluation", ("report",)),
        ("posgpt/page", ("page",)),
        ("posgpt/demo", ("demo",)),
        ("studies", ("report",)),
    ],
)
def test_what_is_imported_is_installed_with_the_package_or_its_extra(folder, extras):
    apart = {"evaluation", "page", "demo", "assignment"} if folder == "posgpt" else set()
    files = [file for file in (ROOT / folder).rglob("*.py") if apart.isdisjoint(file.relative_to(ROOT / folder).parts)]
    required = list_required("posgpt", frozenset(extras), set())
    distributions, own = packages_distributions(), {*PACKAGES}
    for file in files:
        for package in set(list_imports(file)) - sys.stdlib_module_names - own:
            names = {name.lower().replace("_", "-") for name in distributions.get(package, [package])}
            assert names & required, f"{file}: {package} comes with none of the requirements"
    assert files


def test_the_sdist_holds_the_sources(distributions):
    with tarfile.open(distributions["gz"]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "setup.py", "LICENSE", "README.md", "posgpt/recipes/windows.yaml"} <= names


def test_installed_it_trains_and_evaluates_from_an_empty_folder(installed, world):
    shutil.copytree(world, installed.folder / "world")
    files = ["--train_file", "world/wiki.txt", "--questions_file", "world/birth_places_train.tsv"]
    options = [*TINY, "--max_steps", 2, "--output_dir", "runs/windows"]
    printed = installed("posgpt", "pretrain", "windows", *files, *options)
    (recipe,) = re.findall(r"^Recipe: (.*windows.yaml)", printed, re.M)
    assert Path(recipe).is_relative_to(installed.folder.parent / "env")
    evaluation = ["--model_name_or_path", "runs/windows", "--test_file", "world/birth_dev.tsv"]
    evaluation += ["--train_file", "world/birth_places_train.tsv", "--output_dir", "runs/eval"]
    assert "London" in installed("python", "-m", "posgpt", "evaluate", *evaluation)
    assert json.loads((installed.folder / "runs" / "eval" / "metrics.json").read_text())["total"] == 17


def test_installed_the_studies_train_from_an_empty_folder(installed):
    if not (installed.folder / "world").is_dir():
        pytest.skip("the test before copies the world")
    recipe = (
        "base: windows\npretrain: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, use_cpu: true}\n"
    )
    (installed.folder / "tiny.yaml").write_text(recipe)
    options = ["--data_dir", "world", "--recipe", "tiny.yaml", "--rows", "rotary", "--seeds", 1, "--max_steps", 2]
    # Under the name that it had until version 0.4, too.
    for command in (["studies.positions"], ["studies", "positions"]):
        assert "| rotary " in installed("python", "-m", *command, *options)
    assert "open_book" in installed("python", "-m", "studies")


def test_installed_the_demo_starts(installed):
    pytest.importorskip("gradio")
    if not (installed.folder / "runs" / "windows").is_dir():
        pytest.skip("the test before trains the model")
    port = find_free_port()
    demo = ["posgpt", "demo", "--model_name_or_path", "runs/windows", "--port", str(port)]
    with installed(*demo, runner=open_process) as process:
        try:
            assert f"http://127.0.0.1:{port}" in process.stdout.readline()
        finally:
            process.terminate()


def open_process(*command, **options):
    return subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True, **options)


@pytest.mark.slow
def test_a_full_installation_with_its_dependencies_runs_the_quickstart(distributions, tmp_path):
    """Needs a package registry and a few minutes."""
    venv.create(tmp_path / "env", with_pip=True)
    scripts = Path(sysconfig.get_path("scripts", vars={"base": tmp_path / "env"}))
    constraint = ["--constraint", ROOT / "constraints.txt"]
    execute(scripts / "python", "-m", "pip", "install", "--quiet", *constraint, f"{distributions['whl']}[report]")
    (tmp_path / "empty").mkdir()
    options = ["--num_people", 100, "--output_dir", "runs/quickstart"]
    assert "PosGPT, pretrained" in execute(scripts / "posgpt", "quickstart", *options, cwd=tmp_path / "empty")
