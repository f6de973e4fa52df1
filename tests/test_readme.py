import re
import shlex
import subprocess

import pytest

import evaluate_birthplace
import train_finetune
import train_pretrain
from conftest import ROOT, TINY
from data_scripts import hold_out

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = [body.replace("\\\n", " ") for body in re.findall(r"^```\w*\n(.*?)^```", README, re.M | re.S)]
SCRIPTS = {script.__name__ + ".py": script for script in (train_pretrain, train_finetune, evaluate_birthplace)}


def test_the_steps_and_the_python_example_run_as_written(run, world, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for file in world.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    windows, course, trust = (block for block in BLOCKS if "\npython train_pretrain.py" in f"\n{block}")
    commands = [shlex.split(line) for line in (windows + course + trust).splitlines() if line.startswith("python")]
    hold_out_command = commands.pop(5)
    assert hold_out_command[1:3] == ["-m", "data_scripts.hold_out"]
    run(hold_out, *hold_out_command[3:], "--pairs", 20, "--people", 10)
    assert [command[1] for command in commands] == [list(SCRIPTS)[number] for number in (0, 2, 0, 1, 2, 0, 2)]
    for _, script, *arguments in commands:
        arguments = [str(ROOT / argument) if argument.startswith("recipes/") else argument for argument in arguments]
        quick = {"train_pretrain.py": [*TINY, "--max_steps", 2], "train_finetune.py": [*TINY[-6:], "--max_steps", 2]}
        run(SCRIPTS[script], *arguments, *quick.get(script, []))
    for folder in ("eval", "eval_windows", "report"):
        assert (tmp_path / "runs" / folder / "metrics.json").is_file()

    example = next(block for block in BLOCKS if "AutoModelForCausalLM.from_pretrained" in block)
    exec(example, {})
    assert "Where was Ada Example born?" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(set(re.findall(r"[\w./]+\.(?:py|yaml|md|png)\b", README))))
def test_every_file_the_readme_names_is_there(path):
    if "runs/" not in path and path != "X.yaml":
        assert any((folder / path).exists() for folder in (ROOT, ROOT / "recipes", ROOT / "data_scripts"))


def test_the_two_commands_are_the_makefiles():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"make quickstart", "make test"} <= set(README.splitlines())
    assert re.search(r"^quickstart:", makefile, re.M) and re.search(r"^test:", makefile, re.M)
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").strip().endswith("make test")


def test_make_reproduce_asks_for_the_data_and_runs_the_readmes_commands(tmp_path):
    (tmp_path / ".installed").touch()  # nothing is to be installed here
    make = ["make", "--no-print-directory", f"VENV={tmp_path}", "reproduce"]
    refused = subprocess.run(make, cwd=ROOT, capture_output=True, text=True)
    assert (
        refused.returncode
        and refused.stdout == "error: name the folder with wiki.txt and the TSVs: make reproduce DATA=folder\n"
    )
    planned = subprocess.run(
        [*make, "-n", "DATA=folder", "SEED=7"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    train, evaluate = (shlex.split(line) for line in planned.stdout.replace("\\\n", " ").splitlines() if ".py" in line)
    assert train[1:3] == ["train_pretrain.py", "recipes/windows.yaml"] and train[train.index("--seed") + 1] == "7"
    assert evaluate[1] == "evaluate_birthplace.py" and "folder/birth_dev.tsv" in evaluate
    assert evaluate[evaluate.index("--model_name_or_path") + 1] == train[train.index("--output_dir") + 1]
