from types import SimpleNamespace

import pytest
import yaml

from posgpt import cli
from posgpt.extras import build_models
from study_helpers import SMALL


@pytest.fixture
def commands(monkeypatch, run):
    """Run the commands in this process and list their names; in place of the page, write the names of its models."""
    ran = []

    def run_here(command):
        ran.append(command[3])
        if command[3] == "page":
            page = build_models.Path(command[-1])
            page.mkdir()
            (page / "index.html").write_text(" ".join(command[5:7]))
        else:
            run(cli, *command[3:])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(build_models.subprocess, "run", run_here)
    monkeypatch.setattr(build_models, "check_installed", lambda *_: None)
    monkeypatch.setattr(build_models, "find_npm", lambda: None)
    return ran


def test_models_are_built_with_card_report_and_page(run, tmp_path, commands, monkeypatch):
    recipe, folder = tmp_path / "tiny.yaml", tmp_path / "models"
    settings = SMALL | {"objective": "name_windows", "max_steps": 2, "logging_steps": 1, "save_steps": 1}
    recipe.write_text(yaml.safe_dump({"pretrain": settings}))
    arguments = ["--output_dir", folder, "--recipe", recipe, "--num_people", 100]
    run(build_models, *arguments)
    models = [folder / f"posgpt-world-{positions}" for positions in ("learned", "rotary")]
    assert (folder / "page" / "index.html").read_text() == " ".join(map(str, models))
    for model in models:
        assert "exact_match" in (model / "README.md").read_text() and not list(model.glob("checkpoint-*"))
    assert all((folder / "reports" / positions / "report.html").is_file() for positions in ("learned", "rotary"))

    # What is finished is kept.
    del commands[:]
    run(build_models, *arguments)
    assert not commands
    (models[1] / "model.safetensors").unlink()
    run(build_models, *arguments)
    assert commands == ["pretrain", "evaluate", "page"]
    assert "exact_match" in (models[1] / "README.md").read_text()
    with pytest.raises(
        SystemExit, match="made with another --position_embedding_types, --seed; give another --output_dir"
    ):
        run(build_models, *arguments, "--seed", 7, "--position_embedding_types", "alibi")
    # Where a command fails, so does this one.
    monkeypatch.setattr(build_models.subprocess, "run", lambda command: SimpleNamespace(returncode=3))
    with pytest.raises(SystemExit, match="3"):
        run(build_models, "--output_dir", tmp_path / "others")
