"""The pages' code blocks run as they are written, with a smaller model."""

import os
import re
import subprocess
import sys

import pytest

from conftest import ROOT
from data_scripts.questions import load_questions
from posgpt import cli
from studies import sweep
from test_readme import list_blocks, list_commands, make_quick


def run_commands(run, document, number=None) -> list[str]:
    """Run a document's commands, or the first of them, quickly; return what each printed."""
    return [run(cli, *make_quick(*command)) for command in list_commands(document)[:number]]


@pytest.fixture
def in_world(world, tmp_path, monkeypatch):
    """The current folder, with a fictional world's files under the names of the course's."""
    monkeypatch.chdir(tmp_path)
    for file in world.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_the_page_on_the_assignment_ends_with_the_test_predictions(run, in_world):
    *_, baseline = run_commands(run, "docs/assignment.md", 11)
    asked = (in_world / "birth_test_inputs.tsv").read_text().splitlines()
    for variant in ("vanilla", "rope"):
        predictions = (in_world / f"{variant}.pretrain.test.predictions").read_text().splitlines()
        assert len(predictions) == len(asked)
    assert (in_world / "runs" / "scratch" / "config.json").is_file() and "London" in baseline


def test_the_pages_on_pretraining_and_knowledge(run, in_world):
    for printed in run_commands(run, "docs/pretraining.md", 3):
        assert printed.count("\ninput  ") == 4
    run_commands(run, "docs/knowledge.md", 3)
    assert (in_world / "runs" / "report" / "metrics.json").is_file()


def test_the_page_on_a_text_of_your_own(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write, ask = [block for block in list_blocks("docs/own_text.md") if "import " in block]
    exec(write, {})
    preview, _, evaluated, asked, held_out, _, report = run_commands(run, "docs/own_text.md", 7)
    assert "document The Last Harbour | Directed by " in preview
    assert re.search(r"^asked    \w+ \w+ \(director\), 19\d\d \(release year\)$", preview, re.M)
    assert "| director " in evaluated and "| release year " in evaluated
    assert "Who directed The Golden Bridge? " in asked and "do you mean" not in asked
    assert len(load_questions("dev.tsv")) == 20
    assert "documents.jsonl has 30 lines" in held_out
    assert "Report: runs/films_report/report.html" in report
    exec(ask, {})
    assert capsys.readouterr().out.count("('") == 2


def test_the_page_on_experiments_has_a_study_of_a_world(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (printed,) = run_commands(run, "docs/gym.md")
    assert "teacher's birthplace" in printed and (tmp_path / "hops" / "birth_dev.tsv").is_file()
    (study,) = [block for block in list_blocks("docs/gym.md") if "rows:" in block]
    (tmp_path / "mine.yaml").write_text(study)
    _, rows = sweep.load_study(sweep.SweepArguments("mine.yaml"))
    assert [row.world.biographies_per_person for row in rows.values()] == [1, 3]


def test_the_page_on_positions_adds_one(run, in_world):
    code, check = [block for block in list_blocks("docs/positions.md") if "import torch" in block]
    (in_world / "runs").mkdir()
    (in_world / "runs" / "mine.py").write_text(code)
    (task,) = [block for block in list_blocks("docs/positions.md") if "TASKS[" in block]
    (in_world / "runs" / "my_tasks.py").write_text(task)
    first, *commands = ([*map(str, make_quick(*command))] for command in list_commands("docs/positions.md"))
    run(cli, *first)
    # In another process: commands know a file's settings if it is imported before they are.
    commands.append("pretrain sprint --import runs/mine.py --help all".split())
    start = f"from posgpt.cli import main\nfor command in {commands[:-1]}:\n    main(command)\n"
    end = f"\nmain({commands[-1]})"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", start + check + end]
    shown = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert shown.returncode == 0, shown.stderr
    assert all((in_world / "runs" / name / "heat_map.png").is_file() for name in ("mine_tasks", "rotate"))
    assert "of 17" in shown.stdout and (in_world / "runs" / "logarithmic" / "mine.py").is_file()
    # Help lists the class and its settings.
    assert "'logarithmic'" in shown.stdout and "--logarithmic_start" in shown.stdout
