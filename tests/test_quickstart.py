import re
import shlex
import sys
from importlib import import_module
from subprocess import CompletedProcess

import pytest
import yaml

from posgpt import quickstart
from study_helpers import SMALL, read_rows


def test_the_quickstart_runs_its_printed_commands_and_ends_with_table_and_chart(run, tmp_path, monkeypatch):
    """With tiny models, and without a process per command."""
    settings = SMALL | {"max_steps": 2, "logging_steps": 1}
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(
        yaml.safe_dump({"pretrain": settings | {"objective": "name_windows"}, "finetune_from_scratch": settings})
    )
    monkeypatch.setattr(quickstart, "RECIPE", str(recipe))
    commands = []

    def run_in_process(command: list[str]) -> CompletedProcess:
        assert command[:2] == [sys.executable, "-m"]
        commands.append(shlex.join(command[1:]))
        monkeypatch.setattr("sys.argv", command[2:])
        import_module(command[2]).main()
        return CompletedProcess(command, 0)

    monkeypatch.setattr(quickstart.subprocess, "run", run_in_process)
    folder = tmp_path / "out"
    printed = run(quickstart, "--output_dir", folder, "--num_people", 100)
    modules = ["data_scripts.synthetic_world", "posgpt.pretrain", "posgpt.finetune", *["posgpt.evaluate"] * 2]
    assert [command.split()[1] for command in commands] == modules
    assert re.findall(r"^\$ python (.+)$", printed, re.M) == commands
    table = (folder / "results.md").read_text()
    assert table in printed and f"Chart: {folder / 'chart.png'}" in printed
    rows = read_rows(table)
    assert {"PosGPT, pretrained", "PosGPT, not pretrained", '"London" for everyone'} <= set(rows)
    assert rows.pop("17 held-out people, answers by") == ["Where was NAME born?", "When was NAME born?"]
    assert rows.pop('"London" for everyone')[1] == "", "no answer to the second question"
    assert all(re.fullmatch(r"[\d.]+%", cell) for cells in rows.values() for cell in cells)
    assert (folder / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_a_command_of_the_quickstart_that_fails_stops_it_in_one_line(run, tmp_path, monkeypatch):
    monkeypatch.setattr(quickstart.subprocess, "run", lambda command: CompletedProcess(command, 1))
    with pytest.raises(SystemExit, match="error: 'A fictional world' failed; see its message above."):
        run(quickstart, "--output_dir", tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="this is a file"):
        run(quickstart, "--output_dir", tmp_path / "file")
