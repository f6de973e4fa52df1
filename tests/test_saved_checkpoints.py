"""Models saved by earlier versions load and answer as they did."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import modeling_posgpt  # noqa: F401  (registers the model)
from posgpt.training.saved_models import load_model

# Each folder was written by `save_pretrained` of version 0.1, with random weights; `expected.json` is what that version
# computed. Nothing writes them again: they are what users may have.
CHECKPOINTS = sorted((Path(__file__).parent / "data" / "checkpoint_0_1").iterdir())


@pytest.mark.parametrize("folder", CHECKPOINTS, ids=lambda folder: folder.name)
@torch.no_grad()
def test_a_checkpoint_of_version_0_1_loads_and_answers_the_same(folder):
    expected = json.loads((folder / "expected.json").read_text())
    model, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(loading.values()), loading
    tokenizer, questions = AutoTokenizer.from_pretrained(folder), expected["questions"]
    for answer, saved in zip(model.answer(questions, tokenizer, max_new_tokens=6), expected["answers"], strict=True):
        assert answer.text == saved["text"]
        assert answer.probability == pytest.approx(saved["probability"], abs=1e-5)
    scores = model.score_answers(questions, expected["candidates"], tokenizer, min_probability=0)
    torch.testing.assert_close(scores, torch.tensor(expected["log_probabilities"]), atol=1e-4, rtol=0)
    logits = model(**tokenizer(questions[-1] + "⁇", return_tensors="pt")).logits[0, -1]
    torch.testing.assert_close(logits, torch.tensor(expected["last_question_logits"]), atol=1e-4, rtol=0)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux to say which files are open")
def test_a_loaded_model_leaves_its_file_closed(tmp_path):
    weights = shutil.copytree(CHECKPOINTS[0], tmp_path / "model") / "model.safetensors"
    model, _ = load_model(str(tmp_path / "model"))
    # Windows does not replace or remove an open file, which a training with --overwrite_output_dir does.
    assert str(weights) not in Path("/proc/self/maps").read_text()
    assert model.config.model_type == "posgpt"
