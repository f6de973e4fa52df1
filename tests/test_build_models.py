import hashlib

import pytest
import yaml

from posgpt.extras import build_models
from posgpt.extras.page import write
from posgpt.quickstart import run_module
from study_helpers import SMALL


@pytest.fixture
def commands(monkeypatch):
    """Keep the modules of the commands that are run, in a list; in place of the page, write the names of its models."""
    ran = []

    def run(title: str, module: str, *positional: str, **options) -> None:
        ran.append(module)
        if module != write.__name__:
            return run_module(title, module, *positional, **options)
        options["output_dir"].mkdir()
        (options["output_dir"] / "index.html").write_text(" ".join(map(str, options["model_name_or_path"])))

    monkeypatch.setattr(build_models, "run_module", run)
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
    assert commands == ["posgpt.pretrain", "posgpt.evaluate", write.__name__]
    assert "exact_match" in (models[1] / "README.md").read_text()
    with pytest.raises(
        SystemExit, match="made with another --position_embedding_types, --seed; give another --output_dir"
    ):
        run(build_models, *arguments, "--seed", 7, "--position_embedding_types", "alibi")
    # A recipe that has changed since is another one.
    recipe.write_text(yaml.safe_dump({"pretrain": settings | {"max_steps": 3}}))
    with pytest.raises(SystemExit, match="made with another --recipe; give another --output_dir"):
        run(build_models, *arguments)
