import re

import pytest
import yaml

from posgpt import quickstart
from study_helpers import SMALL, read_rows


def test_the_quickstart_runs_its_printed_commands_and_ends_with_table_and_chart(run, tmp_path, monkeypatch):
    """With tiny models."""
    settings = SMALL | {"num_train_epochs": 1, "logging_steps": 1}
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(
        yaml.safe_dump({"pretrain": settings | {"objective": "name_windows"}, "finetune_from_scratch": settings})
    )
    monkeypatch.setattr(quickstart, "RECIPE", str(recipe))
    # Its length takes the place of the recipe's.
    monkeypatch.setitem(quickstart.LENGTH, "num_train_epochs", 0.02)
    folder = tmp_path / "out"
    printed = run(quickstart, "--output_dir", folder, "--num_people", 100)
    commands = ["world", "pretrain", "finetune", "evaluate", "evaluate"]
    assert re.findall(r"^\$ posgpt (\S+)", printed, re.M) == commands
    # A second time, earlier results are overwritten.
    assert len(re.findall(r"^\$ .* --overwrite_output_dir", printed, re.M)) == 2
    assert re.search(r"^\$ posgpt world .*--overwrite ", printed, re.M)
    table = (folder / "results.md").read_text()
    assert table in printed and f"Chart: {folder / 'chart.png'}" in printed
    rows = read_rows(table)
    assert {"PosGPT, pretrained", "PosGPT, not pretrained", '"London" for everyone'} <= set(rows)
    assert rows.pop("17 held-out people, answers by") == ["Where was NAME born?", "When was NAME born?"]
    assert rows.pop('"London" for everyone')[1] == "", "no answer to the second question"
    assert all(re.fullmatch(r"[\d.]+%", cell) for cells in rows.values() for cell in cells)
    assert (folder / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_a_command_of_the_quickstart_that_fails_stops_it_in_one_line(run, tmp_path):
    with pytest.raises(SystemExit, match="error: .*num_people"):
        run(quickstart, "--output_dir", tmp_path / "out", "--num_people", 0)
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="this is a file"):
        run(quickstart, "--output_dir", tmp_path / "file")
