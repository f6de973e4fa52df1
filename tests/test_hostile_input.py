"""Files by somebody who means harm: no command runs code that a model's folder, a pickle or a recipe holds."""

import json
import os
import shutil

import pytest
import torch

import evaluate_birthplace
import train_pretrain
from posgpt import preview
from posgpt.extras import convert


class Malicious:
    """Run when it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("run",))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The working directory, where code that is run leaves a folder."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / "run").exists()


def test_a_model_folder_runs_no_code(run, world, folder, tiny_pretrained):
    model = shutil.copytree(tiny_pretrained["rotary"], folder / "model")
    (model / "custom_generate").mkdir()
    for name in ("harm.py", "custom_generate/generate.py", "modeling_posgpt.py", "configuration_posgpt.py"):
        (model / name).write_text("import os\nos.mkdir('run')\n")
    for name in ("config.json", "tokenizer_config.json"):
        classes = {"AutoConfig": "harm.A", "AutoModelForCausalLM": "harm.A", "AutoTokenizer": ["harm.A", "harm.A"]}
        (model / name).write_text(json.dumps(json.loads((model / name).read_text()) | {"auto_map": classes}))
    asked = [evaluate_birthplace, "--model_name_or_path", model, "--test_file", world / "birth_dev.tsv"]
    run(*asked, "--output_dir", folder / "out")
    torch.save({"model.norm.weight": Malicious()}, model / "pytorch_model.bin")
    (model / "model.safetensors").unlink()
    with pytest.raises(SystemExit, match=f"^error: {model}: no PosGPT could be loaded from there: .*"):
        run(*asked, "--output_dir", folder / "other")


def test_a_pickle_runs_no_code(run, world, folder):
    """Those of checkpoints: tests/test_reliability.py."""
    torch.save({"tok_emb.weight": Malicious()}, folder / "course.params")
    with pytest.raises(SystemExit, match="course.params: damaged, or no checkpoint of tensors"):
        run(convert, "course.params", "--vocabulary_file", world / "wiki.txt", "--num_attention_heads", 2, "out")


@pytest.mark.parametrize(
    "recipe",
    [
        "!!python/object/apply:os.mkdir [run]",
        "pretrain: {seed: 2001-99-99}",
        "pretrain: {learning_rate: null}",
    ],
)
def test_a_recipe_does_no_harm(run, world, folder, recipe):
    (folder / "recipe.yaml").write_text(recipe)
    for command in (train_pretrain, preview):
        with pytest.raises(SystemExit, match="^error: "):
            run(command, "recipe.yaml", "--train_file", world / "wiki.txt", "--output_dir", folder / "out")
    assert not (folder / "out").exists()
