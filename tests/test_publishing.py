import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer, pipeline

import train_pretrain
from conftest import TINY
from modeling_posgpt import POSITION_EMBEDDINGS, PosGPTConfig, PosGPTForCausalLM, PosGPTModel, build_tokenizer

# Where only transformers and torch are: the package cannot be imported, whatever is installed here.
ELSEWHERE = """
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("modeling_posgpt", "data_scripts"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())

import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, pipeline

folder, copy = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
question = tokenizer("Where was Ada born?\u2047", return_tensors="pt")
torch.save(model(**question).logits, copy + ".pt")
assert len(model.generate(**question, max_new_tokens=4, eos_token_id=None)[0]) == question.input_ids.shape[1] + 4
hidden = AutoModel.from_pretrained(folder, trust_remote_code=True)(**question).last_hidden_state
torch.testing.assert_close(model.lm_head(hidden), model(**question).logits)
model.save_pretrained(copy)
tokenizer.save_pretrained(copy)
again = AutoModelForCausalLM.from_pretrained(copy, trust_remote_code=True)
torch.testing.assert_close(again(**question).logits, model(**question).logits)
"""


@pytest.fixture(params=POSITION_EMBEDDINGS)
def saved(request, tmp_path):
    tokenizer = build_tokenizer(["Where was Ada born? Rome"], 64)
    config = PosGPTConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, position_embedding_type=request.param,
    )  # fmt: skip
    model = PosGPTForCausalLM(config).eval()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return model, tokenizer, tmp_path / "model"


def test_auto_classes_load_a_folder_once_the_package_is_imported(saved):
    model, tokenizer, folder = saved
    question = tokenizer("Where was Ada born?⁇", return_tensors="pt")
    assert type(AutoConfig.from_pretrained(folder)) is PosGPTConfig
    assert type(AutoModel.from_pretrained(folder)) is PosGPTModel
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert type(loaded) is PosGPTForCausalLM
    assert torch.equal(loaded(**question).logits, model(**question).logits)
    assert AutoTokenizer.from_pretrained(folder).get_vocab() == tokenizer.get_vocab()
    assert (folder / "model.safetensors").is_file()


def test_a_folder_loads_where_the_package_is_not_installed(saved, tmp_path):
    model, tokenizer, folder = saved
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home")}
    environment.pop("PYTHONPATH", None)
    copy = tmp_path / "copy"
    result = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(folder), str(copy)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    question = tokenizer("Where was Ada born?⁇", return_tensors="pt")
    torch.testing.assert_close(torch.load(f"{copy}.pt"), model(**question).logits)


def test_transformers_text_generation_pipeline_works(saved):
    _, _, folder = saved
    generate = pipeline("text-generation", model=str(folder), trust_remote_code=True)
    answer = generate("Where was Ada born?⁇", max_new_tokens=5, do_sample=False)[0]["generated_text"]
    assert answer.startswith("Where was Ada born?")


def test_what_is_pushed_to_the_hub_is_a_model_that_loads(run, world, tmp_path, monkeypatch):
    class LocalHub:
        """The two calls of the hub's client that Trainer makes, on a folder."""

        def create_repo(self, repo_id, **options):
            (tmp_path / "hub" / repo_id).mkdir(parents=True)
            return SimpleNamespace(repo_id=repo_id)

        def upload_folder(self, repo_id, folder_path, ignore_patterns, **options):
            ignored = shutil.ignore_patterns(*ignore_patterns)
            shutil.copytree(folder_path, tmp_path / "hub" / repo_id, ignore=ignored, dirs_exist_ok=True)

    monkeypatch.setattr("transformers.trainer.hf_api", LocalHub)
    run(
        train_pretrain, "--train_file", world / "wiki.txt", "--output_dir", tmp_path / "model", "--max_steps", 2,
        "--save_steps", 1, "--push_to_hub", "--hub_model_id", "you/posgpt", *TINY,
    )  # fmt: skip
    pushed = tmp_path / "hub" / "you" / "posgpt"
    local, there = (AutoModelForCausalLM.from_pretrained(folder) for folder in (tmp_path / "model", pushed))
    assert all(torch.equal(a, b) for a, b in zip(local.parameters(), there.parameters(), strict=True))
    assert len(AutoTokenizer.from_pretrained(pushed)) == local.config.vocab_size
    card = (pushed / "README.md").read_text()
    assert "fine-tuned version" not in card and "library_name: transformers" in card
    assert not list(pushed.glob("checkpoint-*"))


def test_a_configuration_from_before_the_choice_is_learned(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "posgpt", "hidden_size": 64}')
    assert AutoConfig.from_pretrained(tmp_path).position_embedding_type == "learned"
