import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import load_dataset
from huggingface_hub import DatasetCard, ModelCard, create_repo, upload_folder
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer, pipeline

import evaluate_birthplace
import train_pretrain
from conftest import TINY
from data_scripts.files import hash_file
from data_scripts.synthetic_world import World
from model_helpers import EACH_HOOK
from modeling_posgpt import (
    BOTTLENECKS,
    PosGPTConfig,
    PosGPTForCausalLM,
    PosGPTModel,
    build_tokenizer,
)
from posgpt.training.architecture import describe_size
from posgpt.training.model_card import write_model_card
from posgpt.training.saved_models import load_model

# Where only transformers and torch are: the package cannot be imported, whatever is installed here.
ELSEWHERE = """
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("modeling_posgpt", "data_scripts", "posgpt"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())

try:
    import modeling_posgpt
    raise SystemExit("the package is there")
except ModuleNotFoundError:
    pass

import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

def load_and_copy(folder, copy):
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    # By this, Trainer shifts labels that are smoothed.
    assert type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    question = tokenizer("Where was Ada born?\u2047", return_tensors="pt")
    logits = model(**question).logits
    generated = model.generate(**question, max_new_tokens=4, eos_token_id=None)
    assert len(generated[0]) == question.input_ids.shape[1] + 4
    hidden = AutoModel.from_pretrained(folder, trust_remote_code=True)(**question).last_hidden_state
    torch.testing.assert_close(model.lm_head(hidden), logits)
    model.save_pretrained(copy)
    tokenizer.save_pretrained(copy)
    again = AutoModelForCausalLM.from_pretrained(copy, trust_remote_code=True)
    torch.testing.assert_close(again(**question).logits, logits)
    base = AutoModel.from_pretrained(copy, trust_remote_code=True)
    torch.testing.assert_close(base(**question).last_hidden_state, hidden)
    config = AutoConfig.from_pretrained(copy, trust_remote_code=True)
    for name in ("position_embedding_type", "bottleneck_type", "bottleneck_size"):
        assert getattr(config, name) == getattr(model.config, name), name
    return {"logits": logits, "answers": model.ask(["Ada", "Bo Li"], tokenizer), "relations": again.config.relations}

def load_from_hub():
    settings = {"trust_remote_code": True, "revision": "v1"}
    model = AutoModelForCausalLM.from_pretrained("you/posgpt", dtype="bfloat16", device_map="auto", **settings)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    tokenizer = AutoTokenizer.from_pretrained("you/posgpt", **settings)
    assert "birthplace" in model.config.relations
    return model(**tokenizer("Where was Ada born?\u2047", return_tensors="pt").to(model.device)).logits.cpu()

found, *folders = sys.argv[1:]
loaded = {folder: load_and_copy(folder, folder + "_copy") for folder in folders}
torch.save(loaded | {"from the hub": load_from_hub()}, found)
"""

RELATIONS = {"birthplace": {"wordings": ["Where was {title} born?", "{title} was born in"], "baseline": "Rome"}}
# An encoding for each hook, and every bottleneck.
MODELS = {name: {"position_embedding_type": name} for name in EACH_HOOK}
MODELS |= {
    f"{name}_bottleneck": {"position_embedding_type": "rotary", "bottleneck_type": name, "bottleneck_size": 8}
    for name in BOTTLENECKS
}


def save_model(folder, **settings):
    torch.manual_seed(0)
    tokenizer = build_tokenizer(["Where was Ada born? Rome"], 64)
    config = PosGPTConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, initializer_range=0.2, relations=RELATIONS, **settings,
    )  # fmt: skip
    model = PosGPTForCausalLM(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer, folder


@pytest.fixture(params=MODELS)
def saved(request, tmp_path):
    return save_model(tmp_path / "model", **MODELS[request.param])


def test_auto_classes_load_a_folder_once_the_package_is_imported(saved):
    model, tokenizer, folder = saved
    question = tokenizer("Where was Ada born?⁇", return_tensors="pt")
    config = AutoConfig.from_pretrained(folder)
    assert type(config) is PosGPTConfig
    # Saved again, it keeps the task that is beside it.
    config.save_pretrained(folder)
    assert type(AutoModel.from_pretrained(folder)) is PosGPTModel
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert type(loaded) is PosGPTForCausalLM
    assert torch.equal(loaded(**question).logits, model(**question).logits)
    assert AutoTokenizer.from_pretrained(folder).get_vocab() == tokenizer.get_vocab()
    files = {file.name for file in folder.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "task.json", "tokenizer.json"} <= files
    assert {"configuration_posgpt.py", "modeling_posgpt.py", "position_embeddings.py"} <= files
    assert type(loaded.config) is PosGPTConfig and loaded.config.relations == RELATIONS
    from_folder = pipeline("text-generation", model=str(folder), trust_remote_code=True)
    from_objects = pipeline("text-generation", model=model, tokenizer=tokenizer)
    # Four characters of the vocabulary, so that the answer shows in the text whatever it is.
    settings = {"max_new_tokens": 4, "eos_token_id": None, "suppress_tokens": [0, 1]}
    asked = "Where was Ada born?"
    answer, other = (generate(asked, **settings)[0]["generated_text"] for generate in (from_folder, from_objects))
    assert answer == other and answer.startswith(asked) and len(answer) == len(asked) + 4


@torch.no_grad()
def test_folders_load_and_answer_where_the_package_is_not_installed(tmp_path, local_hub):
    saved = {str(tmp_path / name): save_model(tmp_path / name, **settings) for name, settings in MODELS.items()}
    model, tokenizer, _ = saved[str(tmp_path / "rotary")]
    for pushed in (model, tokenizer):
        pushed.push_to_hub("you/posgpt", private=True, revision="v1", max_shard_size="50KB")
    files = local_hub.repositories["models/you/posgpt"].read("v1")
    assert "model.safetensors" not in files and "model.safetensors.index.json" in files
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home")}
    for kind in ("HUB", "MODULES"):
        environment[f"HF_{kind}_CACHE"] = str(tmp_path / "home" / kind)
    environment.pop("PYTHONPATH", None)
    # One process for all: most of its time goes into importing transformers.
    result = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path / "found.pt"), *saved], cwd=tmp_path, env=environment, capture_output=True, text=True
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    # transformers prints what it finds undocumented in a model.
    assert not result.stdout
    found = torch.load(tmp_path / "found.pt")
    question = tokenizer("Where was Ada born?⁇", return_tensors="pt")
    local = AutoModelForCausalLM.from_pretrained(tmp_path / "rotary", dtype="bfloat16")
    torch.testing.assert_close(found["from the hub"], local(**question).logits)
    for folder, (model, tokenizer, _) in saved.items():
        question = tokenizer("Where was Ada born?⁇", return_tensors="pt")
        torch.testing.assert_close(found[folder]["logits"], model(**question).logits)
        for given, expected in zip(found[folder]["answers"], model.ask(["Ada", "Bo Li"], tokenizer), strict=True):
            assert given[0] == expected[0] and given[1] == pytest.approx(expected[1], rel=1e-4)
        assert found[folder]["relations"] == RELATIONS
        copied = {file.name for file in Path(f"{folder}_copy").iterdir()}
        assert {file.name for file in Path(folder).iterdir()} <= copied


def push(run, world, folder, *options):
    """Train two steps and push."""
    return run(
        train_pretrain, "--train_file", world / "wiki.txt", "--output_dir", folder, "--max_steps", 2, "--save_steps", 2,
        "--push_to_hub", "--hub_model_id", "you/posgpt", *options, *TINY,
    )  # fmt: skip


def test_what_is_pushed_to_the_hub_is_a_private_model_that_loads(run, world, tmp_path, local_hub):
    push(run, world, tmp_path / "model", "--hub_license", "cc-by-sa-4.0")
    repository = local_hub.repositories["models/you/posgpt"]
    assert repository.is_private
    # Created empty, then one upload.
    assert len(repository.commits) == 2
    files = repository.read()
    there = {file.name for file in (tmp_path / "model").iterdir() if not file.name.startswith("checkpoint-")}
    assert there == {path.split("/")[0] for path in files}
    # No pickles: the weights are the only binary file.
    assert list(local_hub.lfs.values()) == [files["model.safetensors"]]
    card = ModelCard(files["README.md"].decode())
    assert (card.data.license, card.data.library_name) == ("cc-by-sa-4.0", "transformers")
    assert "fine-tuned version" not in card.text
    model = AutoModelForCausalLM.from_pretrained("you/posgpt")
    local = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert all(torch.equal(a, b) for a, b in zip(local.parameters(), model.parameters(), strict=True))
    assert f"{describe_size(local)}\n" in card.text
    assert len(AutoTokenizer.from_pretrained("you/posgpt")) == model.config.vocab_size
    # Commands take the name, too.
    (there, words), (here, own) = (load_model(name) for name in ("you/posgpt", str(tmp_path / "model")))
    assert all(torch.equal(a, b) for a, b in zip(there.parameters(), here.parameters(), strict=True))
    assert there.config.relations == here.config.relations and words.get_vocab() == own.get_vocab()


def test_a_branch_is_created_and_pushed_to(run, world, tmp_path, local_hub):
    push(run, world, tmp_path / "model", "--hub_revision", "v1", "--no_hub_private_repo")
    repository = local_hub.repositories["models/you/posgpt"]
    assert not repository.is_private and not repository.read() and "model.safetensors" in repository.read("v1")


@pytest.mark.parametrize(
    "pattern, status",
    [("repos/create", 401), ("auth-check/write", 403), ("repos/create", None)],
)
def test_a_hub_that_refuses_is_named_before_training(run, world, tmp_path, local_hub, pattern, status):
    local_hub.refusals[pattern] = status
    with pytest.raises(SystemExit, match=rf"^error: you/posgpt: cannot be written to on the hub: .*{status or ''}.*"):
        push(run, world, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_model_or_a_corpus_that_the_hub_does_not_give_is_named_in_one_line(run, world, tmp_path, local_hub):
    local_hub.refusals["you/down"] = 500
    for name in ("you/down", "you/missing"):
        with pytest.raises(SystemExit, match=f"^error: {name}: no PosGPT could be loaded from there: ") as refused:
            run(evaluate_birthplace, "--model_name_or_path", name, "--test_file", world / "birth_dev.tsv",
                "--output_dir", tmp_path / "eval")  # fmt: skip
        assert "\n" not in str(refused.value.code)
        with pytest.raises(SystemExit, match=f"^error: {name}: no table of documents: ") as refused:
            run(train_pretrain, "--train_file", name, "--output_dir", tmp_path / "model", *TINY)
        assert "\n" not in str(refused.value.code)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("pattern, status", [("PUT /lfs", None), ("POST .*/commit/", 403)])
def test_a_hub_that_breaks_off_leaves_a_whole_model_and_one_line(run, world, tmp_path, local_hub, pattern, status):
    local_hub.refusals[pattern] = status
    folder = tmp_path / "model"
    with pytest.raises(SystemExit) as stopped:
        push(run, world, folder)
    message = str(stopped.value.code)
    assert message.startswith(f"error: {folder}: the model is saved, but could not be uploaded to you/posgpt: ")
    assert message.endswith(f"upload it with: hf upload you/posgpt {folder} . --exclude 'checkpoint-*'")
    assert "\n" not in message and (status is None or str(status) in message)
    assert not local_hub.repositories["models/you/posgpt"].read()
    assert not list(folder.glob("*.lock")) and not (folder / ".unfinished").exists()
    loaded, tokenizer = load_model(str(folder))
    assert len(tokenizer) == loaded.config.vocab_size
    # The line's command.
    local_hub.refusals.clear()
    upload_folder(repo_id="you/posgpt", folder_path=folder, ignore_patterns="checkpoint-*")
    assert (
        local_hub.repositories["models/you/posgpt"].read()["model.safetensors"]
        == (folder / "model.safetensors").read_bytes()
    )


def test_a_token_on_the_command_line_is_refused_since_it_would_be_saved_with_the_model(run, world, tmp_path):
    with pytest.raises(SystemExit, match="hub_token cannot be used: .* set HF_TOKEN") as stopped:
        push(run, world, tmp_path / "model", "--hub_token", "hf_secret")
    assert "hf_secret" not in str(stopped.value.code)


def test_a_world_is_a_data_set_for_load_dataset_here_and_on_the_hub(tmp_path, local_hub):
    world = World(num_people=100, relations=["birth year"], language="german")
    folder = tmp_path / "welt"
    world.write(folder)
    create_repo("you/welt", repo_type="dataset", private=True)
    upload_folder(repo_id="you/welt", folder_path=folder, repo_type="dataset")
    assert local_hub.repositories["datasets/you/welt"].is_private
    card = DatasetCard.load(folder / "README.md")
    assert (card.data.license, card.data.language) == ("apache-2.0", "de") and "--language german" in card.text
    for name in (str(folder), "you/welt"):
        assert load_dataset(name)["train"]["text"] == (folder / "wiki.txt").read_text().splitlines()
        questions = load_dataset(name, "questions")
        for split, file in (("train", "birth_places_train.tsv"), ("validation", "birth_dev.tsv")):
            rows = [f"{row['question']}\t{row['answer']}" for row in questions[split]]
            assert rows == (folder / file).read_text().splitlines()
        assert questions["test"]["question"] == (folder / "birth_test_inputs.tsv").read_text().splitlines()
        assert set(questions["test"]["answer"]) == {None}


def test_the_example_of_a_card_is_python_whatever_the_wording(tmp_path):
    wording = """What is "{title}'s" capital?"""
    config = PosGPTConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    config.relations = {"capital": {"wordings": [wording], "baseline": ""}}
    write_model_card(tmp_path, PosGPTForCausalLM(config), {})
    (example,) = re.findall("```python\n(.*?)```", (tmp_path / "README.md").read_text(), flags=re.DOTALL)
    strings = [node.value for node in ast.walk(ast.parse(example)) if isinstance(node, ast.Constant)]
    assert wording.replace("{title}", "Ada Example") + "⁇" in strings


def test_an_evaluation_is_written_into_the_models_card(run, world, tmp_path):
    pytest.importorskip("sklearn", reason="needs the report's libraries")
    model, _, folder = save_model(tmp_path / "model")
    evaluated = ["--model_name_or_path", folder, "--train_file", world / "birth_places_train.tsv"]
    evaluated += ["--max_new_tokens", 4]
    with pytest.raises(SystemExit, match=r"README.md: no model card that can be read: .*--update_model_card needs"):
        run(evaluate_birthplace, *evaluated, "--test_file", world / "birth_dev.tsv", "--output_dir", tmp_path / "none",
            "--update_model_card")  # fmt: skip
    assert not (tmp_path / "none").exists()

    write_model_card(folder, model, {}, "apache-2.0")
    card = ModelCard.load(folder / "README.md")
    card.text += "\n## My own words\n\nThese stay.\n"
    card.save(folder / "README.md")
    own = "\nMeasured on my laptop.\n\n# More of my own\n\n```\n## no heading\n```\n"
    World(num_people=100, relations=["birthplace", "birth year"]).write(tmp_path / "facts")
    shutil.copy(tmp_path / "facts" / "birth_dev.tsv", tmp_path / "facts.tsv")
    dev, plain = world / "birth_dev.tsv", ["--output_dir", tmp_path / "eval"]
    report = ["--report", tmp_path / "report", "--fictional_people", 3]
    for file, options, below in ((dev, plain, own), (tmp_path / "facts.tsv", plain, ""), (dev, report, "")):
        run(evaluate_birthplace, *evaluated, "--test_file", file, *options, "--update_model_card")
        with (folder / "README.md").open("a") as readme:
            readme.write(below)
    card = ModelCard.load(folder / "README.md")
    metrics = json.loads((tmp_path / "report" / "metrics.json").read_text())
    shown = [(result.dataset_name, result.dataset_config, result.metric_type) for result in card.data.eval_results]
    assert shown == [
        ("facts.tsv", "birthplace", "exact_match"),
        ("facts.tsv", "birth year", "exact_match"),
        ("birth_dev.tsv", "birthplace", "exact_match"),
    ]
    last = card.data.eval_results[-1]
    assert last.metric_value == metrics["accuracy"]
    assert last.dataset_args == {"sha256": {"birth_dev.tsv": hash_file(world / "birth_dev.tsv")}}
    assert card.data.license == "apache-2.0" and card.data.model_name == "model"
    assert card.text.count("## Evaluation: ") == 2 and card.text.count("# PosGPT") == 1
    assert "\n## My own words\n\nThese stay.\n" in card.text
    assert card.text.count(own) == 1 and card.text.split(own)[0].endswith(".png)\n")
    assert f"{metrics['correct']} of {metrics['total']}" in card.text.split("## Evaluation: birth_dev.tsv")[1]
    (chart,) = re.findall(r"\]\((.*\.png)\)", card.text)
    assert (folder / chart).read_bytes() == (tmp_path / "report" / "report.png").read_bytes()
