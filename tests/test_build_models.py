import hashlib
import sys
from importlib import import_module
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from posgpt import build_models, quickstart
from study_helpers import SMALL


@pytest.fixture
def commands(monkeypatch):
    """Run the commands without a process each, the page's not at all; return the modules that were run."""
    ran = []

    def run_in_process(command: list[str]) -> CompletedProcess:
        ran.append(command[2])
        monkeypatch.setattr("sys.argv", command[2:])
        if command[2] == "posgpt.page.write":
            folder = command[command.index("--output_dir") + 1]
            models = command[command.index("--model_name_or_path") + 1 : command.index("--corpus_file")]
            Path(folder).mkdir()
            Path(folder, "index.html").write_text(" ".join(models))
        else:
            import_module(command[2]).main()
        return CompletedProcess([sys.executable], 0)

    monkeypatch.setattr(quickstart.subprocess, "run", run_in_process)
    monkeypatch.setattr(build_models, "check_installed", lambda *_: None)
    return ran


def test_models_are_built_with_card_report_and_page_and_each_file_has_its_checksum(run, tmp_path, commands):
    recipe, folder = tmp_path / "tiny.yaml", tmp_path / "models"
    settings = SMALL | {"objective": "name_windows", "max_steps": 2, "logging_steps": 1, "save_steps": 1}
    recipe.write_text(yaml.safe_dump({"pretrain": settings}))
    arguments = ["--output_dir", folder, "--recipe", recipe, "--num_people", 100]
    assert str(folder / "SHA256SUMS") in run(build_models, *arguments)
    models = [folder / f"posgpt-world-{positions}" for positions in ("learned", "rotary")]
    assert (folder / "page" / "index.html").read_text() == " ".join(map(str, models))
    for model in models:
        assert "exact_match" in (model / "README.md").read_text() and not list(model.glob("checkpoint-*"))
    assert all((folder / "reports" / positions / "report.html").is_file() for positions in ("learned", "rotary"))
    sums = [line.split("  ") for line in (folder / "SHA256SUMS").read_text().splitlines()]
    assert all(hashlib.sha256((folder / name).read_bytes()).hexdigest() == expected for expected, name in sums)
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {name for _, name in sums} == files - {"SHA256SUMS"} and "world/wiki.txt" in files

    # What is finished is kept.
    del commands[:]
    run(build_models, *arguments)
    assert not commands
    (models[1] / "model.safetensors").unlink()
    run(build_models, *arguments)
    assert commands == ["posgpt.pretrain"]
