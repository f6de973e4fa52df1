import re
import shlex
import subprocess
import tomllib

import yaml

import posgpt
from conftest import ON_CPU, ROOT, TINY_SIZE, needs_make
from posgpt import cli

README = (ROOT / "README.md").read_text(encoding="utf-8")
# What makes each command quick; the options of a document come first, so that these override them.
TRAININGS = ["pretrain", "finetune"]
QUICK = dict.fromkeys(TRAININGS, [*ON_CPU, "--max_steps", 2]) | {"hold-out": ["--pairs", 20, "--people", 10]}
QUICK["preview"] = TINY_SIZE
QUICK["positions"] = ["--tasks", "count", "--encodings", "rotary", "--steps", 2, "--seeds", 1, "--processes", 1]


def list_blocks(name: str) -> list[str]:
    """The code blocks of a document, each command on one line."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return [body.replace("\\\n", " ") for body in re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)]


def list_commands(name: str) -> list[list[str]]:
    """The arguments of each `posgpt …` in a document's code blocks, but for studies, which tests/test_studies.py runs."""
    lines = "".join(list_blocks(name)).splitlines()
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("posgpt ")]
    return [command for command in commands if command[0] != "study"]


def make_quick(command: str, *arguments: str) -> list[object]:
    """Return a documented command line with what makes it quick."""
    options = QUICK.get(command, [])
    if command == "pretrain" and "--model_name_or_path" not in arguments:
        options = [*TINY_SIZE, *options]
    return [command, *arguments, *options]


def test_the_commands_run_as_written(run, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in world.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    readme = list_commands("README.md")
    course, at_once = ["pretrain", "finetune", "evaluate", "evaluate"], ["preview", "pretrain", "evaluate", "ask"]
    assert [command for command, *_ in readme] == at_once + course
    for command, *arguments in readme:
        run(cli, *make_quick(command, *arguments))
    for folder in ("vanilla_dev", "sprint_dev"):
        assert (tmp_path / "runs" / folder / "metrics.json").is_file()
    predictions = (tmp_path / "vanilla.pretrain.test.predictions").read_text(encoding="utf-8").splitlines()
    assert len(predictions) == len((tmp_path / "birth_test_inputs.tsv").read_text(encoding="utf-8").splitlines())


def test_the_two_commands_are_the_makefiles():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"make quickstart", "make test"} <= set(README.splitlines())
    assert re.search(r"^quickstart:", makefile, re.M) and re.search(r"^test:", makefile, re.M)
    checks = (ROOT / ".ci" / "run").read_text(encoding="utf-8").strip()
    assert checks.endswith("make test")
    for target in re.findall(r"^make (\w+)$", checks, re.M):
        assert f"make {target}" in README and re.search(rf"^{target}:", makefile, re.M)


def test_all_files_name_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(.+?)\]", changelog, re.M)[1]
    assert citation["version"] == newest == project["version"] == posgpt.__version__
    assert citation["license"] == project["license"]


def plan(folder, target, *options) -> list[list[str]]:
    """Return the commands that `make` would run, beside what it would install."""
    (folder / ".installed").touch()
    make = ["make", "--no-print-directory", "-n", f"VENV={folder}", target, *options]
    planned = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [shlex.split(line) for line in planned.replace("\\\n", " ").splitlines()]


@needs_make
def test_make_page_takes_the_quickstarts_corpus_for_its_model_alone(tmp_path):
    for given, folder, corpus in (
        ([], "runs/quickstart/pretrain", ["--corpus_file", "runs/quickstart/world/wiki.txt"]),
        (["MODEL=mine"], "mine", []),
        (["MODEL=mine", "CORPUS=my wiki.txt"], "mine", ["--corpus_file", "my wiki.txt"]),
    ):
        (command,) = plan(tmp_path, "page", *given)
        assert command[2:-2] == ["--model_name_or_path", folder, *corpus]


@needs_make
def test_make_reproduce_asks_for_the_data_and_runs_the_readmes_commands(tmp_path):
    (tmp_path / ".installed").touch()
    make = ["make", "--no-print-directory", f"VENV={tmp_path}", "reproduce"]
    refused = subprocess.run(make, cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode
    assert refused.stdout == "error: name the folder with wiki.txt and the TSVs: make reproduce DATA=folder\n"
    commands = plan(tmp_path, "reproduce", "DATA=folder", "SEED=7")
    train, evaluate = (command for command in commands if any(".py" in part for part in command))
    assert train[1:3] == ["train_pretrain.py", "windows"] and train[train.index("--seed") + 1] == "7"
    assert evaluate[1] == "evaluate_birthplace.py" and "folder/birth_dev.tsv" in evaluate
    assert evaluate[evaluate.index("--model_name_or_path") + 1] == train[train.index("--output_dir") + 1]


@needs_make
def test_make_assignment_wants_a_seed_and_make_demo_passes_its_model_on(tmp_path):
    (tmp_path / ".installed").touch()
    make = ["make", "--no-print-directory", f"VENV={tmp_path}", "assignment"]
    refused = subprocess.run(make, cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode and refused.stdout.startswith("error: choose a long seed that nobody guesses")
    *_, command = plan(tmp_path, "assignment", "SEED=8472619350")
    assert command[1:] == ["assignment", "--seed", "8472619350", "--output_dir", "runs/assignment"]
    named = ["--model_name_or_path", "mine", "--corpus_file", "my wiki.txt"]
    for given, options in (([], []), (["MODEL=mine", "CORPUS=my wiki.txt"], named)):
        (command,) = plan(tmp_path, "demo", *given)
        assert command[1:] == ["demo", *options]
