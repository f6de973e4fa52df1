"""Tools that users of Hugging Face models expect to work; docs/publishing.md has what was tried and what came out."""

import shutil
import tarfile
from pathlib import Path

import pytest
import torch
import transformers
from torch.export import Dim

import evaluate_birthplace
import train_finetune
from conftest import ROOT, TINY
from environments import Environment, run_pip
from model_helpers import EACH_HOOK, tiny_model, tokens
from modeling_posgpt import BOTTLENECKS

EXAMPLES = ROOT / "tests" / "compatibility"
MODELS = {name: {"positions": name} for name in [*EACH_HOOK, "relative_bias"]}
MODELS |= {name: {"positions": "rotary", "bottleneck_type": name, "bottleneck_size": 8} for name in BOTTLENECKS}
# Exporting takes seconds; with a bias, both the batch size and the length have a part in it.
ALL = [pytest.param(name, marks=() if name == "relative_bias" else pytest.mark.slow) for name in MODELS]


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_an_exported_model_reads_batches_of_any_size_and_length(name, tmp_path):
    model = tiny_model(**MODELS[name])
    model.config.use_cache = False
    shape = {0: Dim("batch"), 1: Dim("length", max=32)}
    inputs = {"input_ids": tokens(2, 12), "attention_mask": torch.ones(2, 12, dtype=torch.long)}
    program = torch.export.export(model, (), inputs, dynamic_shapes=dict.fromkeys(inputs, shape))
    torch.export.save(program, tmp_path / "model.pt2")
    exported = torch.export.load(tmp_path / "model.pt2").module()
    for batch, length in ((1, 1), (3, 5), (2, 32)):
        mask = torch.ones(batch, length, dtype=torch.long)
        mask[-1, : length // 2] = 0
        inputs = {"input_ids": tokens(batch, length), "attention_mask": mask}
        logits, expected = (read(**inputs)["logits"][mask.bool()] for read in (exported, model))
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_adapters_and_quantization_reach_every_linear_layer(name):
    """They put another layer in the place of a linear one: one that is not called would be left out silently."""
    model, called = tiny_model(**MODELS[name]), set()
    linear = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    for name, module in linear.items():
        module.register_forward_hook(lambda *_, name=name: called.add(name))
    model(tokens(1, 8))
    assert called == set(linear)


@pytest.fixture(scope="module")
def asked(world, tmp_path_factory) -> tuple[Path, Path]:
    """A model, and questions of which it has seen some: it answers a part of them."""
    folder = tmp_path_factory.mktemp("asked")
    train, dev = ((world / name).read_text(encoding="utf-8") for name in ("birth_places_train.tsv", "birth_dev.tsv"))
    (folder / "birth_dev.tsv").write_text("".join(train.splitlines(keepends=True)[:16]) + dev, encoding="utf-8")
    arguments = ["--vocabulary_file", str(world / "wiki.txt"), "--train_file", str(world / "birth_places_train.tsv")]
    arguments += ["--output_dir", str(folder / "model"), "--max_steps", "150", "--learning_rate", "5e-3"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["train_finetune.py", *arguments, "--position_embedding_type", "rotary", *TINY])
        train_finetune.main()
    return folder / "model", folder / "birth_dev.tsv"


@pytest.fixture
def run_example(tmp_path):
    def run(name: str, *arguments: Path | str, cwd: Path = tmp_path) -> str:
        environment = Environment(tmp_path / "env")
        environment.borrow_libraries()
        environment.install("--requirement", EXAMPLES / f"{name}.txt")
        home = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
        printed = environment.run(EXAMPLES / f"{name}.py", *arguments, cwd=cwd, **home)
        print(printed)
        return printed

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", ["peft_lora", "trl_sft", "torchao_int8", "onnx_export"])
def test_an_example_finds_what_it_claims(name, run_example, asked, tmp_path):
    run_example(name, *asked, tmp_path / "output")


@pytest.mark.slow
def test_the_evaluation_harness_counts_the_same_answers(run_example, run, asked, tmp_path):
    model, questions = asked
    options = ["--model_name_or_path", model, "--test_file", questions, "--output_dir", tmp_path / "ours"]
    run(evaluate_birthplace, *options)
    printed = run_example("lm_eval_birthplaces", model, tmp_path / "answers.txt", cwd=questions.parent)
    files = (tmp_path / "answers.txt", tmp_path / "ours" / "predictions.txt")
    given, expected = (file.read_text(encoding="utf-8").splitlines() for file in files)
    assert given == expected
    answers = [line.split("\t")[1] for line in questions.read_text(encoding="utf-8").splitlines()]
    right = sum(text == answer for text, answer in zip(given, answers, strict=True))
    assert 0 < right < len(answers)
    assert f"exact match {right / len(answers):.1%} of {len(answers)}" in printed


@pytest.mark.slow
def test_transformers_own_tests_of_models_pass(tmp_path):
    source = f"transformers=={transformers.__version__}"
    run_pip("download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", tmp_path, source)
    (archive,) = tmp_path.glob("transformers-*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(tmp_path, [each for each in files if "/tests/" in each.name], filter="data")
    (folder,) = (each for each in tmp_path.glob("transformers-*") if each.is_dir())
    # The common tests are there without two of the files that they import: those of export and of generation.
    missing = {"exporters/test_export.py": "ExportTesterMixin", "generation/test_utils.py": "GenerationTesterMixin"}
    for path, mixin in missing.items():
        file = folder / "tests" / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"class {mixin}:\n    pass\n")
    shutil.copy(EXAMPLES / "model_tester.py", folder)
    environment = Environment(tmp_path / "env")
    environment.borrow_libraries()
    environment.install("--requirement", EXAMPLES / "model_tester.txt")
    home = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    print(
        environment.run("-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", "model_tester.py", cwd=folder, **home)
    )
