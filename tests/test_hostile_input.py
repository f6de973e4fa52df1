"""Hostile input: whatever a file or a command line holds, a command does what it says or ends in one line.

A file's bytes are changed, or what they mean: values of JSON and YAML, names and shapes of tensors, entries of pickles. Each
input has a number; `HOSTILE_INPUTS=1000 python -m pytest -m slow -s tests/test_hostile_input.py` runs so many of each kind.
"""

import contextlib
import io
import json
import os
import random
import re
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml
from datasets import Dataset

import evaluate_birthplace
import train_finetune
import train_pretrain
from conftest import ROOT
from data_scripts import hold_out, synthetic_world
from data_scripts.synthetic_world import World
from posgpt import ask, compare, preview
from posgpt.extras import convert
from posgpt.training.checkpoints import CHECKSUMS_FILE, seal_checkpoint
from posgpt.training.hardware import measure_peak_memory

resource = pytest.importorskip("resource", reason="limits memory as Unix does")
if not Path("/proc/self/clear_refs").exists():
    pytest.skip("measures memory as Linux does", allow_module_level=True)

# What one input may take, and how many inputs there are of each kind.
SECONDS, MEBIBYTES = 10, 2048
FEW, MANY = 2, int(os.environ.get("HOSTILE_INPUTS", 700))
# Part of the message that says what to do.
FIX = re.compile(
    r"\b(give|choose|change|a lower|fix|remove|replace|make|copy|leave|save|pass|add|write|wait|shorten|needs|a line is|a"
    r" wording is|at least|has to be|be written|compare|pretrain|create|it first)\b|--[a-z]\w+"
)
SIZES = ["--hidden_size", "8", "--num_hidden_layers", "1", "--num_attention_heads", "2", "--block_size", "96"]
ONE_STEP = ["--max_steps", "1", "--per_device_train_batch_size", "4", "--report_to", "none", "--bf16", "false"]
ONE_STEP += ["--use_cpu", "true", "--disable_tqdm", "true"]
OUT = ["--output_dir", "out"]
ASK = ["--model_name_or_path", "model", "--test_file", "dev.tsv", "--per_device_eval_batch_size", "4", *OUT]

# What each kind of input mutates, and the commands that read it; all in one folder.
BASELINE = (evaluate_birthplace, ["--baseline", "Rome", "--test_file", "dev.tsv", "--train_file", "train.tsv", *OUT])
ASKED = (evaluate_birthplace, ASK)
PREVIEWED = (preview, ["--train_file", "wiki.txt", *SIZES, *ONE_STEP])
PRETRAINED = (train_pretrain, ["--train_file", "wiki.txt", *SIZES, *ONE_STEP, *OUT])
FINETUNED = (train_finetune, ["--model_name_or_path", "model", "--train_file", "train.tsv", *ONE_STEP, *OUT])
WINDOWS = (
    preview, ["windows", "--train_file", "wiki.txt", "--questions_file", "train.tsv", *SIZES[:-2], *ONE_STEP],
)  # fmt: skip
HELD_OUT = (hold_out, ["--data_dir", ".", "--pairs", "2", "--people", "1", *OUT])
RESUMED = (
    train_pretrain,
    [*PRETRAINED[1][:-2], "--resume_from_checkpoint", "last", "--max_steps", "2", "--output_dir", "saved"],
)
CONVERTED = (convert, ["course.params", "--vocabulary_file", "wiki.txt", "--num_attention_heads", "2", "out"])
TURNED_BACK = (convert, ["model", "out"])
RECIPE = (preview, ["recipe.yaml", *PREVIEWED[1][:2]])
TRAINED_BY_RECIPE = (
    train_pretrain,
    ["recipe.yaml", "--train_file", "wiki.txt", "--max_steps", "1", "--disable_tqdm", "true", *OUT],
)
COMPARED = (compare, ["report", "report"])


def table(name: str) -> tuple:
    """Preview a pretraining on a table."""
    return preview, ["--train_file", name, *PREVIEWED[1][2:]]


# Kind: (file that is mutated, commands that read it).
KINDS: dict[str, list[tuple[str, list[tuple]]]] = {
    "TSV": [
        ("dev.tsv", [BASELINE] * 4 + [ASKED]),
        ("train.tsv", [BASELINE] * 3 + [HELD_OUT] * 2 + [WINDOWS, FINETUNED]),
    ],
    "corpus": [
        ("wiki.txt", [PREVIEWED] * 6 + [HELD_OUT] * 6 + [WINDOWS] * 2 + [PRETRAINED, CONVERTED]),
        ("wiki.csv", [table("wiki.csv")]),
        ("wiki.jsonl", [table("wiki.jsonl")]),
        ("wiki.parquet", [table("wiki.parquet")]),
    ],
    "recipe": [("recipe.yaml", [RECIPE] * 3 + [TRAINED_BY_RECIPE])],
    "relations.yaml": [("relations.yaml", [(BASELINE[0], [*BASELINE[1], "--relations", "relations.yaml"])])],
    "config.json": [("model/config.json", [ASKED] * 3 + [FINETUNED, TURNED_BACK])],
    "generation_config.json": [("model/generation_config.json", [ASKED])],
    "tokenizer.json": [("model/tokenizer.json", [ASKED] * 3 + [FINETUNED, TURNED_BACK])],
    "tokenizer_config.json": [("model/tokenizer_config.json", [ASKED])],
    "model.safetensors": [("model/model.safetensors", [ASKED] * 3 + [FINETUNED, TURNED_BACK])],
    "trainer_state.json": [("saved/checkpoint-1/trainer_state.json", [RESUMED])],
    "optimizer state": [
        (f"saved/checkpoint-1/{name}", [RESUMED])
        for name in ("optimizer.pt", "optimizer.pt", "scheduler.pt", "rng_state.pth", "checksums.json",
                     "model.safetensors", "config.json")
    ],
    ".params": [("course.params", [CONVERTED])],
    "report": [("report/predictions.jsonl", [COMPARED])],
}  # fmt: skip
COMMANDS = [
    BASELINE, ASKED, PREVIEWED, PRETRAINED, FINETUNED, WINDOWS, HELD_OUT, CONVERTED, TURNED_BACK, COMPARED,
]  # fmt: skip
COMMANDS += [(ask, ["--model_name_or_path", "model", "--questions", "Where was Bo Ek born?"])]
COMMANDS += [(synthetic_world, ["--num_people", "20", "--num_places", "5", *OUT])]

BYTES = [
    b"", b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b"\t", b'"', b"'", b"{", b"}", b"[", b"]", b":", b"&a [*a, *a]",
    b"*a", b"!!python/object/apply:os.mkdir [run]", b"<<: ", b"null", b"true", b"-1", b"0", b"1e999", b".nan", b"NaN", b"Infinity",
    b"9" * 30, b"9" * 5000, b"[" * 20_000, b"\xe2\x81\x87", b"\xe2\x96\xa1", b"\xe2\x80\xa8", b"\x0c", b"\x85", b"\xed\xa0\x80",
    b"../" * 40 + b"etc/passwd", b"%s%n{0}{title}", b"A" * 100_000, b"PK\x03\x04", b"<script>", b"\x1f\x8b", b"---\n", b"2001-99-99",
]  # fmt: skip
VALUES = [
    None, True, False, 0, -1, 1, 2, 7, 0.5, -0.5, 1e-300, 1e300, float("nan"), float("inf"), 10**6, 10**9, 2**31, 2**63, 10**30,
    "", " ", "\0", "x", "⁇", "{title}", "a" * 10_000, "nan", "-1", "1", "no", "auto", "../..", [], {}, [None], [[]], [1, "a"],
    {"a": 1}, {"": None}, {"rope_type": "yarn", "factor": 1e300},
]  # fmt: skip


def mutate_bytes(rng: random.Random, content: bytes) -> bytes:
    """Change a file's bytes in one to four places."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        start = rng.randint(0, len(content))
        # Where headers are, too.
        start = min(start, rng.choice((start, 200)))
        end = min(len(content), start + rng.choice((1, 1, 8, 100, 10_000)))
        middle = content[start:end]
        middle = rng.choice((
            lambda part: rng.choice(BYTES),
            lambda part: rng.choice(BYTES) + part,
            lambda part: rng.randbytes(len(part)),
            lambda part: bytes(byte ^ 1 << rng.randrange(8) for byte in part),
            lambda part: part * rng.choice((2, 50)),
            lambda part: b"",
            lambda part: part[::-1],
        ))(middle)  # fmt: skip
        content = content[:start] + middle + content[end:]
        if rng.random() < 0.1:
            content = content[: rng.randint(0, len(content))]
    return content


def mutate_value(rng: random.Random, value: object, values: Sequence[object] = VALUES) -> object:
    """Change one place in a tree of lists and dictionaries."""
    if isinstance(value, dict | list) and value and rng.random() < 0.8:
        copied = value.copy()
        keys = list(copied) if isinstance(copied, dict) else range(len(copied))
        key = rng.choice(list(keys))
        act = rng.random()
        if act < 0.1:
            del copied[key]
        elif act < 0.2 and isinstance(copied, dict):
            other = (str(key) + "x", "", "base", "auto_map", "quantization_config", "num_labels")
            copied[rng.choice(other)] = copied.pop(key)
        else:
            copied[key] = mutate_value(rng, copied[key], values)
        return copied
    if isinstance(value, torch.Tensor):
        return rng.choice((
            lambda: value.flatten(), lambda: value[None], lambda: value.to(torch.int8), lambda: torch.empty(0),
            lambda: value.to(torch.complex64), lambda: value.to_sparse(), lambda: torch.zeros(3, 5), lambda: value * float("nan"),
            lambda: value.to("meta"), lambda: torch.zeros(1).expand(10**6, 10**6), lambda: None,
        ))()  # fmt: skip
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.3:
        return rng.choice((value + 1, value * 2, -value, value * 1000, value / 3, str(value)))
    return rng.choice(values)


def mutate_tree(rng: random.Random, value: object) -> object:
    for _ in range(rng.choice((1, 1, 2, 4))):
        value = mutate_value(rng, value)
    return value


def mutate_json(rng: random.Random, content: bytes) -> bytes:
    value = mutate_tree(rng, json.loads(content))
    return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


class Malicious:
    """Run when it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("run",))


def mutate_file(rng: random.Random, name: str, content: bytes) -> bytes:
    """Change a file's content, as bytes or as what it means."""
    kind = Path(name).suffix
    if rng.random() < 0.5:
        return mutate_bytes(rng, content)
    if kind == ".json":
        return mutate_json(rng, content)
    if kind == ".yaml":
        return yaml.safe_dump(mutate_tree(rng, yaml.safe_load(content)), allow_unicode=True).encode()
    if kind == ".jsonl":
        lines = content.splitlines()
        number = rng.randrange(len(lines))
        return b"\n".join([*lines[:number], mutate_json(rng, lines[number]), *lines[number + 1 :]])
    if kind == ".safetensors":
        # The length of the header comes first.
        length = int.from_bytes(content[:8], "little")
        header = mutate_json(rng, content[8 : 8 + length])
        return len(header).to_bytes(8, "little") + header + content[8 + length :]
    if kind in (".params", ".pt", ".pth"):
        value = torch.load(io.BytesIO(content), weights_only=False)
        torch.save(mutate_value(rng, value, [*VALUES, torch.zeros(2), Malicious()]), written := io.BytesIO())
        return written.getvalue()
    return mutate_bytes(rng, content)


def mutate_command(rng: random.Random, arguments: list[str], options: list[str]) -> list[str]:
    """Change a command line in one to three places; `options` are those that the command has."""
    arguments = list(arguments)
    # No system passes a null character on.
    words = [str(value) for value in VALUES if value != "\0"]
    words += ["--", "-", "--help", "--x", "=", "--seed=", "\ud800", "a\nb", "1,000", "0x10", "٣", "１", "dev.tsv", "."]
    for _ in range(rng.choice((1, 1, 2, 3))):
        position = rng.randint(0, len(arguments))
        act = rng.random()
        if act < 0.6:
            option = rng.choice(options)
            value = rng.choice(words)
            arguments += rng.choice(
                ([option, value], [f"{option}={value}"], [option], [option, value, rng.choice(words)])
            )
        elif act < 0.75 and position < len(arguments):
            arguments[position] = rng.choice(words)
        elif act < 0.85:
            arguments[position : position + 1] = []
        elif act < 0.95:
            arguments[position:position] = [rng.choice(words)]
        else:
            arguments[position:position] = arguments[position : position + 2]
    return arguments


class Hang(BaseException):
    """A command took too long."""


def stop(*_) -> None:
    """Handle the signal that the time is over."""
    raise Hang


class Hostile:
    """A folder with everything that commands read, all tiny; it runs commands on mutated copies of its files.

    Args:
        folder: Where they run.
        pristine: A copy of it.
    """

    def __init__(self, folder: Path, pristine: Path, patch: pytest.MonkeyPatch):
        self.folder, self.pristine, self.patch = folder, pristine, patch
        self.options: dict[ModuleType, list[str]] = {}
        # How many inputs were read as if nothing was wrong, and refused in a line.
        self.counts: Counter[str] = Counter()

    def choose(self, kind: str, number: int) -> tuple[ModuleType, list[str], str | None]:
        """Mutate a file or a command line; return the command, and the file that its message has to name."""
        rng = random.Random(f"{kind} {number}")
        if kind == "command line":
            module, arguments = rng.choice(COMMANDS)
            return module, mutate_command(rng, arguments, self.list_options(module)), None
        name, commands = rng.choice(KINDS[kind])
        file = self.folder / name
        file.write_bytes(mutate_file(rng, name, file.read_bytes()))
        # With other checksums, damage is not all that is found.
        if file.parent.name == "checkpoint-1" and file.name != CHECKSUMS_FILE and rng.random() < 0.8:
            seal_checkpoint(file.parent)
        return *rng.choice(commands), name

    def list_options(self, module: ModuleType) -> list[str]:
        """Return the options of a command."""
        if module not in self.options:
            self.patch.setattr("sys.argv", ["posgpt", "--help"])
            with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
                module.main()
            # Compiling takes longer than a command may, if it is asked for.
            named = set(re.findall(r"--[a-z]\w+", printed.getvalue()))
            self.options[module] = sorted(name for name in named if not name.startswith("--torch_compile"))
        return self.options[module]

    def run(self, module: ModuleType, arguments: list[str], name: str | None) -> str | None:
        """Run a command in this process, and put everything back; return what it did that it should not, None: nothing."""
        before, environment = list_files(self.folder), dict(os.environ)
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # Forget the peak of memory so far.
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
        status: object = 0
        try:
            self.patch.setattr("sys.argv", ["posgpt", *arguments])
            # Of this process's own time, on a machine that others use; and of the clock's, where it waits.
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.alarm(10 * SECONDS)
            with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
                module.main()
        except SystemExit as stop:
            status = stop.code
        except BaseException:
            return traceback.format_exc()
        finally:
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            os.environ.clear()
            os.environ.update(environment)
            changed = [file for file, time in list_files(self.folder).items() if before.get(file) != time]
            shutil.rmtree(self.folder)
            shutil.copytree(self.pristine, self.folder)
            os.chdir(self.folder)
        self.counts["refused" if status else "read"] += 1
        if measure_peak_memory() > MEBIBYTES:
            return f"took {measure_peak_memory():.0f} MiB"
        if "run" in changed or any(
            part in file for file in changed for part in (".tmp", "unfinished", "_training.lock")
        ):
            return f"left {changed}"
        if not status:
            return None
        # A checkpoint is removed where training goes on from an earlier one or from the start.
        if [file for file in changed if not file.startswith("saved")]:
            return f"left {changed} and ended with {status}"
        is_line = isinstance(status, str) and status.startswith("error: ") and "\n" not in status
        # Weights that are finite but far too large are noticed in training, which may have made them so itself.
        is_named = name is None or name.split("/")[0] in str(status) or "gradient is" in str(status)
        return None if is_line and is_named and FIX.search(str(status)) else f"ended with {status!r}"


def list_files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of every file below a folder, and that there are folders."""
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        found[str(path.relative_to(folder))] = (status.st_size, status.st_mtime_ns) if path.is_file() else (0, 0)
    return found


def write_data(folder: Path) -> None:
    """Write what commands read, besides models."""
    World(num_people=100, num_places=10).write(folder)
    pairs = (folder / "birth_places_train.tsv").read_text().splitlines(keepends=True)[:8]
    dev = (folder / "birth_dev.tsv").read_text().splitlines(keepends=True)[:3]
    documents = (folder / "wiki.txt").read_text().splitlines(keepends=True)[:16]
    documents += [line.split("\t")[0][len("Where was ") : -len(" born?")] + ". Born in Rome .\n" for line in dev]
    for file in folder.iterdir():
        file.unlink()
    for name, lines in (
        ("train.tsv", pairs),
        ("birth_places_train.tsv", pairs),
        ("dev.tsv", dev),
        ("wiki.txt", documents),
    ):
        (folder / name).write_text("".join(lines))
    rows = [dict(zip(("title", "text"), line.rstrip("\n").split(". ", 1), strict=True)) for line in documents]
    table = Dataset.from_list(rows)
    table.to_csv(folder / "wiki.csv")
    table.to_json(folder / "wiki.jsonl")
    table.to_parquet(folder / "wiki.parquet")
    relations = {"birthplace": {"wordings": ["Where was {title} born?", "Born where, {title}?"], "baseline": "Rome"}}
    (folder / "relations.yaml").write_text(yaml.safe_dump(relations))
    recipe = yaml.safe_load((ROOT / "posgpt" / "recipes" / "course.yaml").read_text())["pretrain"]
    recipe |= {
        option.removeprefix("--"): value for option, value in zip(SIZES[::2], map(int, SIZES[1::2]), strict=True)
    }
    recipe |= {"report_to": "none", "per_device_train_batch_size": 4, "use_muon": True}
    (folder / "recipe.yaml").write_text(yaml.safe_dump({"base": "quick", "pretrain": recipe}, sort_keys=False))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    # Paths may lead up from it.
    folder, pristine = tmp_path_factory.mktemp("hostile") / "in" / "here", tmp_path_factory.mktemp("pristine") / "here"
    folder.mkdir(parents=True)
    write_data(folder)
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    patch.setattr("sys.stdin", open(os.devnull))
    threads, limits = torch.get_num_threads(), resource.getrlimit(resource.RLIMIT_DATA)
    torch.set_num_threads(1)
    # What asks for all of the machine's memory is told that there is none; it should not ask.
    resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, limits[1]))
    before = {number: signal.signal(number, stop) for number in (signal.SIGALRM, signal.SIGPROF)}
    report = ["--train_file", "train.tsv", "--report", "report", "--fictional_people", "4"]
    for module, arguments in (
        (train_pretrain, [*PRETRAINED[1][:-1], "model"]),
        (train_pretrain, [*PRETRAINED[1][:-1], "saved", "--save_strategy", "steps", "--save_steps", "1"]),
        (convert, ["model", "course.params", "--fused_qkv"]),
        (evaluate_birthplace, [*ASK[:-2], *report]),
    ):
        patch.setattr("sys.argv", ["posgpt", *arguments])
        module.main()
    (folder / "saved" / "model.safetensors").unlink()
    shutil.copytree(folder, pristine)
    yield Hostile(folder, pristine, patch)
    for number, handler in before.items():
        signal.signal(number, handler)
    resource.setrlimit(resource.RLIMIT_DATA, limits)
    torch.set_num_threads(threads)
    patch.undo()


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [*KINDS, "command line"])
def test_inputs_of_each_kind(hostile, kind, count):
    wrong = []
    hostile.counts.clear()
    for number in range(count):
        module, arguments, name = hostile.choose(kind, number)
        if said := hostile.run(module, arguments, name):
            wrong.append(f"{kind} {number}, {module.__name__} {' '.join(arguments)[:500]!r}: {said[-3000:]}")
    print(f"\n{kind}: {count} inputs, {hostile.counts['refused']} refused, {hostile.counts['read']} read")
    assert not wrong, "\n".join(wrong)


def test_a_model_folder_runs_no_code(hostile):
    model = hostile.folder / "model"
    (model / "custom_generate").mkdir()
    for name in ("harm.py", "custom_generate/generate.py", "modeling_posgpt.py", "configuration_posgpt.py"):
        (model / name).write_text("import os\nos.mkdir('run')\n")
    for name in ("config.json", "tokenizer_config.json"):
        classes = {"AutoConfig": "harm.A", "AutoModelForCausalLM": "harm.A", "AutoTokenizer": ["harm.A", "harm.A"]}
        (model / name).write_text(json.dumps(json.loads((model / name).read_text()) | {"auto_map": classes}))
    hostile.counts.clear()
    assert hostile.run(*ASKED, None) is None and hostile.counts == {"read": 1}
    torch.save({"model.norm.weight": Malicious()}, model / "pytorch_model.bin")
    (model / "model.safetensors").unlink()
    assert hostile.run(*ASKED, "model") is None and hostile.counts == {"read": 1, "refused": 1}


@pytest.mark.parametrize(
    "recipe",
    [
        "!!python/object/apply:os.mkdir [run]",
        "pretrain: {seed: 2001-99-99}",
        "pretrain: {seed: !!timestamp x}",
        "a0: &a0 {x: 1}\n"
        + "".join(f"a{n + 1}: &a{n + 1} {{<<: [{', '.join([f'*a{n}'] * 10)}]}}\n" for n in range(9)),
        "[" * 20_000,
        'pretrain: {run_name: "a\\0"}',
        "pretrain: {learning_rate: null}",
        "pretrain: {hidden_size: 1000000}",
        "pretrain: {num_hidden_layers: 1000000000}",
        "pretrain: {dataloader_num_workers: 1000000}",
    ],
)
def test_a_recipe_does_no_harm(hostile, recipe):
    (hostile.folder / "recipe.yaml").write_text(recipe)
    hostile.counts.clear()
    # Sizes are refused when the model is built, from the recipe and the command line together.
    assert hostile.run(*TRAINED_BY_RECIPE, None if "hidden" in recipe else "recipe.yaml") is None
    assert hostile.counts == {"refused": 1}
