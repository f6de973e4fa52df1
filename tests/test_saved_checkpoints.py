"""Models and checkpoints saved by earlier versions load, answer and go on as they did."""

import json
import shutil
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import modeling_posgpt  # noqa: F401  (registers the model)
import train_pretrain
from conftest import ON_CPU
from posgpt.training.saved_models import load_model

# Each folder was written by an earlier version: by `save_pretrained` of 0.1 with random weights, and by the command
# `pretrain` of 0.4. `expected.json` is what that version computed. Nothing writes them again: they are what users may have.
DATA = Path(__file__).parent / "data"
CHECKPOINTS = sorted((DATA / "checkpoint_0_1").iterdir())
VERSION_0_4 = DATA / "version_0_4"


@pytest.mark.parametrize("folder", [*CHECKPOINTS, VERSION_0_4 / "windows"], ids=lambda folder: folder.name)
@torch.no_grad()
def test_a_model_of_an_earlier_version_loads_and_answers_the_same(folder):
    expected = json.loads((folder / "expected.json").read_text())
    model, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(loading.values()), loading
    tokenizer, questions = AutoTokenizer.from_pretrained(folder), expected["questions"]
    for answer, saved in zip(model.answer(questions, tokenizer, max_new_tokens=6), expected["answers"], strict=True):
        assert answer.text == saved["text"]
        assert answer.probability == pytest.approx(saved["probability"], abs=1e-5)
    scores = model.compute_log_probs(*zip(*product(questions, expected["candidates"]), strict=True), tokenizer)
    torch.testing.assert_close(scores, torch.tensor(expected["log_probabilities"]).flatten(), atol=1e-4, rtol=0)
    logits = model(**tokenizer(questions[-1] + "⁇", return_tensors="pt")).logits[0, -1]
    torch.testing.assert_close(logits, torch.tensor(expected["last_question_logits"]), atol=1e-4, rtol=0)


# What the recipe `windows` has had since 0.8.
ROWS_OF_0_4 = ["--pseudo_labels", "false", "--paraphrases", 0, "--question_share", 0.3]


@pytest.mark.parametrize(
    "recipe, positions, options",
    [
        ("windows", "rotary", ["--questions_file", VERSION_0_4 / "train.tsv", *ROWS_OF_0_4]),
        ("course", "learned", []),
    ],
)
def test_a_checkpoint_of_version_0_4_goes_on_to_the_same_weights(run, tmp_path, steps, recipe, positions, options):
    shutil.copytree(VERSION_0_4 / recipe / "checkpoint-3", tmp_path / "checkpoint-3")
    run(
        train_pretrain, recipe, "--train_file", VERSION_0_4 / "wiki.txt", *options, "--position_embedding_type", positions,
        "--hidden_size", 16, "--num_hidden_layers", 1, "--num_attention_heads", 2, "--block_size", 96, "--dropout", 0.1,
        "--max_steps", 6, "--per_device_train_batch_size", 4, "--learning_rate", "1e-3", "--save_strategy", "no",
        "--output_dir", tmp_path, "--resume_from_checkpoint", "last", *ON_CPU,
    )  # fmt: skip
    assert steps == [3, 4, 5]
    expected, weights = (load_file(each / "model.safetensors") for each in (VERSION_0_4 / recipe, tmp_path))
    assert weights.keys() == expected.keys()
    # Bit for bit with ATEN_CPU_CAPABILITY=avx2, as it was trained; other values dropped out would differ by more than 1e-4.
    for name, saved in expected.items():
        torch.testing.assert_close(weights[name], saved, rtol=0, atol=1e-5)


def test_whoever_may_read_a_models_configuration_may_read_its_weights(tiny_pretrained):
    modes = {(tiny_pretrained["rotary"] / name).stat().st_mode for name in ("config.json", "model.safetensors")}
    assert len(modes) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux to say which files are open")
def test_a_loaded_model_leaves_its_file_closed(tmp_path):
    weights = shutil.copytree(CHECKPOINTS[0], tmp_path / "model") / "model.safetensors"
    model, _ = load_model(str(tmp_path / "model"))
    # Windows does not replace or remove an open file, which a training with --overwrite_output_dir does.
    assert str(weights) not in Path("/proc/self/maps").read_text()
    assert model.config.model_type == "posgpt"
