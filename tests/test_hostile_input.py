"""Files that are mangled, or by somebody who means harm: a command does its work or ends in one line, and runs no code of theirs."""

import json
import os
import random
import shutil

import pytest
import torch

import evaluate_birthplace
import train_pretrain
from conftest import TINY
from data_scripts import hold_out
from posgpt import ask, preview, report
from posgpt.extras import convert

BYTES = [
    b"", b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\t", b'"', b"{", b"]", b":", b"null", b"-1", b"1e999", b"NaN",
    b"9" * 5000, b"[" * 20_000, b"\xe2\x81\x87", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"../" * 40, b"%s{0}{title}", b"A" * 100_000,
]  # fmt: skip
VALUES = [
    None,
    True,
    0,
    -1,
    0.5,
    1e300,
    float("nan"),
    10**9,
    10**30,
    "",
    "\0",
    "⁇",
    "{title}",
    [],
    {},
    [None],
    {"a": 1},
]
PREVIEWED = ["--train_file", "wiki.txt", *TINY]
ASKED = [evaluate_birthplace, "--model_name_or_path", "model", "--test_file", "dev.tsv", "--output_dir", "out"]
# The files that are mangled, and what reads each.
READERS = {
    "dev.tsv": [evaluate_birthplace, "--baseline", "Rome", "--test_file", "dev.tsv"],
    "train.tsv": [preview, "windows", *PREVIEWED, "--questions_file", "train.tsv"],
    "wiki.txt": [hold_out, "--data_dir", ".", "--pairs", 2, "--people", 1, "--output_dir", "out"],
    "wiki.csv": [preview, "--train_file", "wiki.csv", *TINY],
    "wiki.jsonl": [preview, "--train_file", "wiki.jsonl", *TINY],
    "recipe.yaml": [preview, "recipe.yaml", "--train_file", "wiki.txt"],
    "relations.yaml": [evaluate_birthplace, "--baseline", "Rome", "--test_file", "dev.tsv", "--relations", "relations.yaml"],
    "predictions.json": [report, "predictions.json", "--output_dir", "out"],
    "model/config.json": ASKED,
    "model/task.json": [ask, "--model_name_or_path", "model", "--questions", "Where was Bo Ek born?"],
    "model/tokenizer.json": ASKED,
    "model/model.safetensors": ASKED,
}  # fmt: skip


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
    ],
)
def test_a_recipe_does_no_harm(run, world, folder, recipe):
    (folder / "recipe.yaml").write_text(recipe)
    for command in (train_pretrain, preview):
        with pytest.raises(SystemExit, match="^error: "):
            run(command, "recipe.yaml", "--train_file", world / "wiki.txt", "--output_dir", folder / "out")
    assert not (folder / "out").exists()


def mangle(rng, name: str, content: bytes) -> bytes:
    """Change a few bytes or, of JSON, half of the time a value."""
    if name.endswith(".json") and rng.random() < 0.5:
        tree = place = json.loads(content)
        while isinstance(place[key := rng.choice(list(place))], dict) and place[key] and rng.random() < 0.8:
            place = place[key]
        place[key] = rng.choice(VALUES)
        return json.dumps(tree).encode()
    start = min(rng.randint(0, len(content)), rng.choice((len(content), 200)))
    end = start + rng.choice((0, 1, 8, 100, 10_000))
    return content[:start] + rng.choice([*BYTES, rng.randbytes(8), content[start:end][::-1]]) + content[end:]


@pytest.mark.parametrize("count", [2, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", READERS)
def test_mangled_files_are_read_or_refused_in_one_line(run, world, folder, tiny_pretrained, name, count):
    for file, source in (("dev.tsv", "birth_dev.tsv"), ("train.tsv", "birth_places_train.tsv")):
        lines = (world / source).read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / file).write_text("".join(lines[:8]), encoding="utf-8")
    shutil.copy(folder / "train.tsv", folder / "birth_places_train.tsv")
    texts = (world / "wiki.txt").read_text(encoding="utf-8").splitlines()[:40]
    (folder / "wiki.txt").write_text("\n".join(texts), encoding="utf-8")
    (folder / "wiki.csv").write_text("\n".join(["title,text", *(f'"{text[:9]}","{text}"' for text in texts)]), "utf-8")
    rows = [json.dumps({"title": text[:9], "text": text}) for text in texts]
    (folder / "wiki.jsonl").write_text("\n".join(rows), "utf-8")
    sizes = ", ".join(f"{name[2:]}: {value}" for name, value in zip(TINY[::2], TINY[1::2], strict=True))
    (folder / "recipe.yaml").write_text(f"base: course\npretrain: {{{sizes}}}\n")
    (folder / "relations.yaml").write_text("birthplace: {wordings: ['Where was {title} born?'], baseline: Rome}\n")
    prediction = {
        "question": "Where was Bo Ek born?",
        "answer": "Rome",
        "reference": ["Rome"],
        "title": "Bo Ek",
        "probability": 0.5,
    }
    (folder / "predictions.json").write_text(json.dumps(prediction))
    shutil.copytree(tiny_pretrained["rotary"], folder / "model")
    command, content = READERS[name], (folder / name).read_bytes()
    for seed in range(count):
        (folder / name).write_bytes(mangle(random.Random(seed), name, content))
        try:
            run(*command)
        except SystemExit as end:
            assert str(end).startswith("error: ") and "\n" not in str(end), seed
        except BaseException as error:
            raise AssertionError(f"{name}, seed {seed}") from error
        assert not list(folder.rglob("*.tmp"))
        shutil.rmtree(folder / "out", ignore_errors=True)
