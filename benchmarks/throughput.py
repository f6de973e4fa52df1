"""How fast PosGPT trains, beside a plain implementation, transformers' GPT-2 and the machine's own limit.

    python -m benchmarks.throughput
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 python -m benchmarks.throughput

Everything is measured in one run, in turns, so that other load on the machine affects all alike. Between machines, compare ratios. The second
command restricts torch, oneDNN and MKL to the instructions that most laptops have. On a GPU, models that
train on rows of full length are added: as they are, compiled, and with CUDA graphs. A character is a real one: padding does
not count. Writes `table.md`, and again with each model that is added.
"""

import platform
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import transformers
from accelerate.utils import find_executable_batch_size
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerBase, TrainerCallback
from transformers.utils import logging

from data_scripts.documents import build_corpus_tokenizer, load_corpus
from data_scripts.errors import exit_on_bad_input
from data_scripts.files import CORPUS_FILE, check_is_folder_or_new
from data_scripts.objective_config import TrainingData
from data_scripts.options import Range, option, parse_options
from data_scripts.span_corruption import SpanCorruptionConfig
from data_scripts.synthetic_world import World
from modeling_posgpt import PosGPTConfig, PosGPTForCausalLM
from posgpt.tables import write_table
from posgpt.training.architecture import ArchitectureArguments, PositionArguments, build_model
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.hardware import bf16_is_fast
from posgpt.training.trainer import PosGPTTrainer

BATCH_SIZE = 128
PLAIN, GPT2 = "(a) plain: fp32, padded to the maximum length", "(b) GPT2LMHeadModel through Trainer"
LEARNING_RATE = 3e-3
# Models that train on rows of full length on a GPU: options of the architecture by name.
FULL_ROWS: dict[str, dict[str, Any]] = {
    "the course's model": {},
    "GPT-2 small's layers": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "block_size": 1024,
    },
}
# How they run: `torch.compile`'s mode by name, None without it; reduce-overhead replays CUDA graphs.
COMPILE_MODES = {"as it is": None, "compiled": "default", "compiled, with CUDA graphs": "reduce-overhead"}
CHARACTERS_PER_STEP = 65_536
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# A GPU takes milliseconds for a step. All steps are of one epoch, nearly the whole of it: steps of documents of similar length
# differ much from each other.
WARMUP_STEPS, STEPS, PEOPLE = (2, 20, 2937) if DEVICE.type == "cpu" else (10, 140, 20_000)


@dataclass
class ThroughputArguments(PositionArguments):
    """What to measure and for how long."""

    output_dir: str = option("Folder for the table.", default="runs/throughput")
    num_people: int = option("Documents of the fictional corpus that is trained on.", default=PEOPLE)
    steps: Annotated[int, Range(1)] = option("Timed training steps per round of each contender.", default=STEPS)
    rounds: Annotated[int, Range(1)] = option("How often the contenders take turns; the best round counts.", default=2)


class PlainLayer(nn.Module):
    """A layer as the course writes it: attention by three projections, a stored mask and softmax; then a feed-forward
    network of four times the width. Each is after a LayerNorm and beside a residual, with dropout.
    """

    mask: torch.Tensor

    def __init__(self, config: PosGPTConfig):
        super().__init__()
        width, length = config.hidden_size, config.max_position_embeddings
        self.num_heads = config.num_attention_heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.proj = (nn.Linear(width, width) for _ in range(4))
        self.attn_drop, self.resid_drop = nn.Dropout(0.1), nn.Dropout(0.1)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))
        self.register_buffer("mask", torch.tril(torch.ones(length, length)))

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        """Return what causal attention makes of x, both (batch, length, hidden_size)."""
        batch, length, width = x.shape
        shape = (batch, length, self.num_heads, width // self.num_heads)
        query, key, value = (part(x).view(shape).transpose(1, 2) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(-2, -1) / (width // self.num_heads) ** 0.5
        scores = scores.masked_fill(self.mask[:length, :length] == 0, -1e10)
        weights = self.attn_drop(nn.functional.softmax(scores, dim=-1))
        return self.resid_drop(self.proj((weights @ value).transpose(1, 2).contiguous().view(batch, length, width)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class PlainGPT(nn.Module):
    """The course's model, after its description: learned positions, dropout 0.1, an untied head, no cache."""

    def __init__(self, config: PosGPTConfig):
        super().__init__()
        width = config.hidden_size
        self.tok_emb = nn.Embedding(config.vocab_size, width)
        self.pos_emb = nn.Parameter(torch.zeros(1, config.max_position_embeddings, width))
        self.drop = nn.Dropout(0.1)
        self.layers = nn.Sequential(*(PlainLayer(config) for _ in range(config.num_hidden_layers)))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, config.vocab_size, bias=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.tok_emb(input_ids) + self.pos_emb[:, : input_ids.shape[1]])
        return self.head(self.ln_f(self.layers(x)))


@dataclass(frozen=True)
class Workload:
    """What the contenders read, and PosGPT's positions."""

    data: TrainingData
    tokenizer: PreTrainedTokenizerBase
    position_embedding_type: str

    def build_posgpt(self, **architecture: Any) -> PosGPTForCausalLM:
        """Build a PosGPT as `posgpt pretrain` does with these options."""
        options = {"position_embedding_type": self.position_embedding_type, "dropout": 0.0} | architecture
        training_args = PosGPTTrainingArguments("unused", use_cpu=DEVICE.type == "cpu")
        return build_model(ArchitectureArguments(**options), self.tokenizer, training_args)


def make_workload(num_people: int, position_embedding_type: str) -> Workload:
    """Make a world and read its corpus."""
    with tempfile.TemporaryDirectory() as folder:
        World(num_people=num_people).write(Path(folder))
        corpus = load_corpus(Path(folder) / CORPUS_FILE)
        tokenizer = build_corpus_tokenizer(corpus, PosGPTConfig.max_position_embeddings)
        return Workload(SpanCorruptionConfig().build(corpus, tokenizer, seed=0), tokenizer, position_embedding_type)


def build_gpt2(config: PosGPTConfig) -> GPT2LMHeadModel:
    """Build transformers' GPT-2 of the same size, with its own defaults."""
    sizes = ("vocab_size", "max_position_embeddings", "hidden_size", "num_hidden_layers", "num_attention_heads")
    same = {name: getattr(config, name) for name in sizes}
    return GPT2LMHeadModel(GPT2Config(**same, bos_token_id=None, eos_token_id=None))


def read_clock() -> float:
    """Return the time in seconds once the device has done what it was given."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize(DEVICE)
    return time.perf_counter()


def measure_matmul() -> float:
    """Measure the machine's best rate at multiplying matrices of the model's shapes, in FLOP/s."""
    # Without instructions for it, bf16 would take minutes.
    best, dtype = 0.0, torch.bfloat16 if bf16_is_fast() else torch.float32
    shapes = [(8192, 256, 1024), (8192, 1024, 256), (2048, 2048, 2048)]
    # A GPU takes more to be busy.
    for rows, inner, columns in shapes if DEVICE.type == "cpu" else [*shapes, (8192, 8192, 8192)]:
        left, right = (torch.randn(*shape).to(DEVICE, dtype) for shape in ((rows, inner), (inner, columns)))
        left @ right
        for _ in range(3):
            start = read_clock()
            for _ in range(10):
                left @ right
            best = max(best, 20 * rows * inner * columns / (read_clock() - start))
    return best


def describe_machine() -> str:
    """Say what this runs on."""
    if DEVICE.type == "cuda":
        return torch.cuda.get_device_name(DEVICE)
    cpu = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)", cpu.read_text(), re.M) if cpu.exists() else None
    name = found[1].strip() if found else platform.processor() or platform.machine()
    found_bf16 = [name for name, there in torch.cpu.get_capabilities().items() if "bf16" in name and there is True]
    bf16 = ", ".join(found_bf16) if bf16_is_fast() else "no bf16 instructions"
    return f"{torch.get_num_threads()} cores of {name} ({torch.backends.cpu.get_cpu_capability()}, {bf16})"


def count_training_flops(config: PosGPTConfig, length: int) -> int:
    """Count forward and backward FLOPs per character: 6 per matrix weight, and attention's two products.

    As in PaLM (Chowdhery et al. 2022, arXiv 2204.02311, appendix B). Causal halves are counted whole, as the matrices are
    multiplied whole.
    """
    width, layers = config.hidden_size, config.num_hidden_layers
    intermediate = config.intermediate_size or 4 * width
    weights = layers * (4 * width * width + 2 * width * intermediate) + width * config.vocab_size
    return 6 * weights + 12 * layers * width * length


class StepClock(TrainerCallback):
    """Notes the time and the characters read after the steps for warming up and after the last step of a Trainer run."""

    def __init__(self) -> None:
        self.notes: list[tuple[float, int]] = []

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step in (WARMUP_STEPS, state.max_steps):
            self.notes.append((read_clock(), state.num_input_tokens_seen))


def measure_trainer(model: nn.Module, workload: Workload, steps: int, **arguments: Any) -> float:
    """Measure the characters per second of `steps` steps through Trainer, after those for warming up."""
    clock = StepClock()
    with tempfile.TemporaryDirectory() as folder:
        args = PosGPTTrainingArguments(
            folder,
            max_steps=WARMUP_STEPS + steps,
            per_device_train_batch_size=BATCH_SIZE,
            learning_rate=LEARNING_RATE,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            include_num_input_tokens_seen="non_padding",
            use_cpu=DEVICE.type == "cpu",
            **{"train_sampling_strategy": "group_by_length"} | arguments,
        )
        data: dict[str, Any] = {"train_dataset": workload.data.dataset, "data_collator": workload.data.collator}
        PosGPTTrainer(model, args, **data, processing_class=workload.tokenizer, callbacks=[clock]).train()
    (start, warmup), (end, characters) = clock.notes
    return (characters - warmup) / (end - start)


def measure_plain_training(config: PosGPTConfig, workload: Workload, steps: int) -> float:
    """Measure the characters per second of the plain loop: fp32, every row padded to the maximum length, random order."""
    model = PlainGPT(config).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1)
    characters, start = 0, 0.0
    order = np.random.default_rng(0).permutation(len(workload.data.dataset)).tolist()
    batches = DataLoader(workload.data.dataset, BATCH_SIZE, sampler=order, collate_fn=workload.data.collator)
    for step, batch in enumerate(islice(batches, steps + 1)):
        if step == 1:
            characters, start = 0, read_clock()
        characters += int((batch["labels"] != -100).sum())
        missing = (0, config.max_position_embeddings - batch["input_ids"].shape[1])
        logits = model(nn.functional.pad(batch["input_ids"], missing).to(DEVICE)[:, :-1])
        labels = nn.functional.pad(batch["labels"], missing, value=-100).to(DEVICE)[:, 1:]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return characters / (read_clock() - start)


def list_contenders(workload: Workload, config: PosGPTConfig, steps: int) -> dict[str, Callable[[], float]]:
    """Return what takes turns at training: a name and a function that measures characters per second."""
    posgpt = workload.build_posgpt
    measure = partial(measure_trainer, workload=workload, steps=steps)
    contenders = {
        PLAIN: lambda: measure_plain_training(config, workload, steps),
        GPT2: lambda: measure(build_gpt2(config), train_sampling_strategy="random"),
        "PosGPT": lambda: measure(posgpt()),
        "PosGPT without bf16": lambda: measure(posgpt(), bf16=False),
        "PosGPT without batches of similar length": lambda: measure(posgpt(), train_sampling_strategy="random"),
        "PosGPT with dropout 0.1": lambda: measure(posgpt(dropout=0.1)),
    }
    if not bf16_is_fast():
        del contenders["PosGPT without bf16"]
    return contenders


def describe_speed(name: str, rate: float, config: PosGPTConfig, length: int, limit: float) -> dict[str, str]:
    """Return a row's first cells; `limit` is the machine's at multiplying matrices, in FLOP/s."""
    share = rate * count_training_flops(config, length) / limit
    return {"pretraining": name, "characters/s": f"{rate:,.0f}", "share of (c)": f"{share:.0%}"}


def measure_full_rows(
    name: str, workload: Workload, architecture: dict[str, Any], compile_mode: str | None, steps: int, limit: float
) -> dict[str, str]:
    """Measure training steps on rows of the maximum sequence length, without padding or data to wait for; return the cells.

    A step has `CHARACTERS_PER_STEP` characters, or as many as there is memory for.
    """
    config = workload.build_posgpt(**architecture).config
    length = config.max_position_embeddings

    @find_executable_batch_size(starting_batch_size=max(1, CHARACTERS_PER_STEP // length))
    def measure(batch_size: int) -> dict[str, str]:
        model: nn.Module = workload.build_posgpt(**architecture)
        model.to(DEVICE).train()
        forward = torch.compile(model, mode=compile_mode) if compile_mode else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
        input_ids = torch.randint(2, config.vocab_size, (batch_size, length), device=DEVICE)
        if DEVICE.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        start = 0.0
        for step in range(WARMUP_STEPS + steps):
            if step == WARMUP_STEPS:
                start = read_clock()
            torch.compiler.cudagraph_mark_step_begin()
            with torch.autocast(DEVICE.type, torch.bfloat16, enabled=bf16_is_fast()):
                # As Trainer does: training needs no cache.
                loss = forward(input_ids=input_ids, labels=input_ids, use_cache=False).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        rate = batch_size * length * steps / (read_clock() - start)
        memory = torch.cuda.max_memory_allocated() if DEVICE.type == "cuda" else 0
        return describe_speed(name, rate, config, length, limit) | {
            "parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}",
            "rows per step": str(batch_size),
            "peak GPU memory": f"{memory / 2**20:,.0f} MiB",
        }

    return measure()


@exit_on_bad_input()
def main() -> None:
    arguments = parse_options(ThroughputArguments)
    output_dir = check_is_folder_or_new(arguments.output_dir)
    logging.set_verbosity_error()
    torch.manual_seed(0)
    workload = make_workload(arguments.num_people, arguments.position_embedding_type)
    config = workload.build_posgpt().config
    contenders = list_contenders(workload, config, arguments.steps)
    rates, limit = dict.fromkeys(contenders, 0.0), 0.0
    for _ in range(arguments.rounds):
        limit = max(limit, measure_matmul())
        for name, measure in tqdm(contenders.items(), desc="Training", unit="turn"):
            rates[name] = max(rates[name], measure())
    caption = (
        f"{describe_machine()}; torch {torch.__version__}, transformers {transformers.__version__};"
        f" {config.position_embedding_type}, batch {BATCH_SIZE}, best of {arguments.rounds} rounds of {arguments.steps} steps.\n\n"
        f"(c) The machine multiplies matrices at {limit / 1e9:,.0f} GFLOP/s. The shares are for the characters read: padding"
        " and dropout count as nothing."
    )
    length, rows = round(float(workload.data.dataset.lengths(0).mean())), []
    for name, rate in rates.items():
        beside = {"beside (a)": f"{rate / rates[PLAIN]:.1f}×", "beside (b)": f"{rate / rates[GPT2]:.1f}×"}
        rows.append(describe_speed(name, rate, config, length, limit) | beside)
    write_table(output_dir, rows, caption)
    cases = list(product(FULL_ROWS.items(), COMPILE_MODES.items())) if DEVICE.type == "cuda" else []
    for (name, architecture), (mode_name, mode) in tqdm(cases, desc="Rows of full length", unit="model", disable=None):
        torch.compiler.reset()
        title = f"full rows: {name}, {mode_name}"
        rows.append(measure_full_rows(title, workload, architecture, mode, arguments.steps, limit))
        # A later one may fail, or take longer than somebody has the machine for.
        write_table(output_dir, rows, caption)


if __name__ == "__main__":
    main()
