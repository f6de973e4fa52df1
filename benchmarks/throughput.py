"""How fast PosGPT trains and answers, beside a plain implementation, transformers' GPT-2 and the machine's own limit.

    python benchmarks/throughput.py
    python benchmarks/throughput.py --corpus_sizes 3000 30000 300000 1000000 --output_dir runs/throughput

Everything is measured in one run, in turns, so that what else the machine does falls on all alike; ratios are what to
compare between machines. A character is a real one: padding does not count. Writes `throughput.md` and, when
corpus sizes are given, `corpus_size.png`.
"""

import multiprocessing
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

import torch
import transformers
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.utils import logging

from data_scripts.birthplaces import load_birthplaces
from data_scripts.corpus import load_corpus, tokenize_corpus
from data_scripts.epochs import EpochSampler
from data_scripts.span_corruption import SpanCorruptionCollator, SpanCorruptionDataset
from data_scripts.synthetic_world import World
from data_scripts.text_files import (
    bad_input_in_one_line,
    check_at_least,
    check_is_folder_or_new,
    save_picture,
    written_whole,
)
from modeling_posgpt import MASK_TOKEN, PosGPTConfig, PosGPTForCausalLM, build_tokenizer
from training import OneLineArgumentParser, bf16_is_fast, parse_into, peak_memory_mib

BATCH_SIZE = 128
NEW_CHARACTERS = 32
PLAIN, GPT2, POSGPT = "(a) plain: fp32, padded to the block", "(b) GPT2LMHeadModel through Trainer", "PosGPT"
LEARNING_RATE = 3e-3


@dataclass
class ThroughputArguments:
    """What to measure and for how long."""

    output_dir: str = field(default="runs/throughput", metadata={"help": "Folder for the table and the figures."})
    num_people: int = field(default=2937, metadata={"help": "Documents of the fictional corpus that is trained on."})
    steps: int = field(default=6, metadata={"help": "Timed training steps a round of each contender."})
    rounds: int = field(default=2, metadata={"help": "How often the contenders take turns; the best round counts."})
    questions: int = field(default=500, metadata={"help": "Questions that PosGPT answers."})
    plain_questions: int = field(default=100, metadata={"help": "How many of them the plain baseline answers."})
    corpus_sizes: list[int] | None = field(
        default=None, metadata={"help": "Also measure memory and speed on corpora of these sizes."}
    )
    position_embedding_type: str = field(default="rotary", metadata={"help": "PosGPT's positions."})


class PlainAttention(nn.Module):
    """Causal attention as the course writes it: three projections, a stored mask, softmax, dropout on the weights."""

    def __init__(self, config: PosGPTConfig):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.attn_drop, self.resid_drop = nn.Dropout(0.1), nn.Dropout(0.1)
        block_size = config.max_position_embeddings
        self.register_buffer("mask", torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape

        def heads(projection: nn.Linear) -> torch.Tensor:
            return projection(x).view(batch, length, self.num_heads, width // self.num_heads).transpose(1, 2)

        query, key, value = heads(self.query), heads(self.key), heads(self.value)
        scores = query @ key.transpose(-2, -1) / (width // self.num_heads) ** 0.5
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, -1e10)
        weights = self.attn_drop(nn.functional.softmax(scores, dim=-1))
        return self.resid_drop(self.proj((weights @ value).transpose(1, 2).contiguous().view(batch, length, width)))


class PlainGPT(nn.Module):
    """The course's model, after its description: learned positions, dropout 0.1, an untied head, no cache."""

    def __init__(self, config: PosGPTConfig):
        super().__init__()
        width = config.hidden_size
        self.tok_emb = nn.Embedding(config.vocab_size, width)
        self.pos_emb = nn.Parameter(torch.zeros(1, config.max_position_embeddings, width))
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "ln1": nn.LayerNorm(width),
                    "attn": PlainAttention(config),
                    "ln2": nn.LayerNorm(width),
                    "mlp": nn.Sequential(
                        nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
                    ),
                }
            )
            for _ in range(config.num_hidden_layers)
        )
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, config.vocab_size, bias=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.tok_emb(input_ids) + self.pos_emb[:, : input_ids.shape[1]])
        for block in self.blocks:
            x = x + block["attn"](block["ln1"](x))
            x = x + block["mlp"](block["ln2"](x))
        return self.head(self.ln_f(x))


def real_characters(batch: dict[str, torch.Tensor]) -> int:
    """How many of a span-corruption batch's characters are not padding."""
    return int((batch["labels"] != -100).sum())


def padded(batches: Iterator[dict], block_size: int) -> Iterator[dict]:
    """The same batches, each row filled up to the block."""
    for batch in batches:
        missing = block_size - batch["input_ids"].shape[1]
        yield {
            "input_ids": nn.functional.pad(batch["input_ids"], (0, missing)),
            "labels": nn.functional.pad(batch["labels"], (0, missing), value=-100),
        }


def matmul_limit(device: torch.device, dtype: torch.dtype) -> float:
    """The machine's best rate at multiplying matrices of the model's shapes, in FLOP/s."""
    best = 0.0
    for rows, inner, columns in ((8192, 256, 1024), (8192, 1024, 256), (2048, 2048, 2048)):
        left, right = (torch.randn(*shape).to(device, dtype) for shape in ((rows, inner), (inner, columns)))
        left @ right
        for _ in range(3):
            start = time.perf_counter()
            for _ in range(10):
                left @ right
            synchronize(device)
            best = max(best, 20 * rows * inner * columns / (time.perf_counter() - start))
    return best


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def machine() -> str:
    """What this runs on, for the table's caption."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    cpu = Path("/proc/cpuinfo")
    names = [line for line in cpu.read_text().splitlines() if line.startswith("model name")] if cpu.exists() else []
    name = names[0].split(":")[1].strip() if names else platform.processor() or platform.machine()
    fast = [feature for feature, there in torch.cpu.get_capabilities().items() if "bf16" in feature and there is True]
    return f"{torch.get_num_threads()} cores of {name} ({', '.join(fast) or 'no bf16 instructions'})"


def training_flops(config: PosGPTConfig, length: int) -> int:
    """Forward and backward FLOPs a character: 6 a matrix weight, and attention's two products (PaLM, appendix B).

    Chowdhery et al. 2022, arXiv 2204.02311. Causal halves are counted whole, as the matrices are multiplied whole.
    """
    width, layers = config.hidden_size, config.num_hidden_layers
    weights = layers * (4 * width * width + 2 * width * config.intermediate_size) + width * config.vocab_size
    return 6 * weights + 12 * layers * width * length


class StepClock(TrainerCallback):
    """Times the steps of a Trainer run after `warmup`, and the characters they read."""

    def __init__(self, device: torch.device, warmup: int):
        self.device, self.warmup = device, warmup
        self.rate = 0.0

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.warmup:
            synchronize(self.device)
            self.start, self.read = time.perf_counter(), state.num_input_tokens_seen
        if state.global_step == state.max_steps:
            synchronize(self.device)
            self.rate = (state.num_input_tokens_seen - self.read) / (time.perf_counter() - self.start)


class OrderedTrainer(Trainer):
    """Trainer that reads the span corruption dataset through its own sampler and knows what padding is."""

    def _get_train_sampler(self, train_dataset=None):
        grouped = self.args.train_sampling_strategy == "group_by_length"
        return EpochSampler(self.train_dataset, self._train_batch_size, grouped)


def trainer_rate(model, dataset, tokenizer, steps: int, use_cpu: bool, **arguments) -> float:
    """Characters a second of `steps` steps through Trainer, after two for warming up."""
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            max_steps=steps + 2,
            per_device_train_batch_size=BATCH_SIZE,
            learning_rate=LEARNING_RATE,
            remove_unused_columns=False,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            include_num_input_tokens_seen="non_padding",
            use_cpu=use_cpu,
            **{"bf16": bf16_is_fast()} | arguments,
        )
        clock = StepClock(args.device, warmup=2)
        OrderedTrainer(
            model,
            args,
            train_dataset=dataset,
            data_collator=SpanCorruptionCollator(tokenizer),
            processing_class=tokenizer,
            callbacks=[clock],
        ).train()
    return clock.rate


def plain_rate(config: PosGPTConfig, dataset, collator, steps: int, device: torch.device) -> float:
    """Characters a second of the plain loop: fp32, every row padded to the block, random order."""
    model = PlainGPT(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1)
    sampler = EpochSampler(dataset, BATCH_SIZE, group_by_length=False)
    loader = DataLoader(dataset, BATCH_SIZE, sampler=sampler, collate_fn=collator)
    characters, start = 0, 0.0
    for step, batch in enumerate(padded(islice(loader, steps + 1), config.max_position_embeddings)):
        if step == 1:
            synchronize(device)
            characters, start = 0, time.perf_counter()
        characters += real_characters(batch)
        logits = model(batch["input_ids"].to(device)[:, :-1])
        labels = batch["labels"].to(device)[:, 1:]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    synchronize(device)
    return characters / (time.perf_counter() - start)


@torch.no_grad()
def plain_answers(
    questions: list[str], model: PlainGPT, tokenizer: PreTrainedTokenizerBase, block_size: int, new_tokens: int
) -> None:
    """One question at a time, everything read anew for each character."""
    model.eval()
    device = next(model.parameters()).device
    for question in tqdm(questions, desc="Answering one by one", unit="question", leave=False):
        ids = tokenizer(question + MASK_TOKEN, return_tensors="pt")["input_ids"].to(device)
        for _ in range(min(new_tokens, block_size - ids.shape[1])):
            ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], dim=1)


def posgpt(config: PosGPTConfig, use_cpu: bool, dropout: float = 0.0, attention: str | None = None):
    """A PosGPT as train_pretrain.py makes it."""
    changes = {"embd_pdrop": dropout, "resid_pdrop": dropout, "attention_dropout": dropout}
    attention = attention or ("eager" if use_cpu else "sdpa")
    return PosGPTForCausalLM._from_config(PosGPTConfig(**config.to_dict() | changes), attn_implementation=attention)


def gpt2(config: PosGPTConfig) -> GPT2LMHeadModel:
    """transformers' GPT-2 of the same size, with its own defaults."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=config.vocab_size,
            n_positions=config.max_position_embeddings,
            n_embd=config.hidden_size,
            n_layer=config.num_hidden_layers,
            n_head=config.num_attention_heads,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


def training_contenders(dataset, tokenizer, config: PosGPTConfig, device: torch.device, steps: int) -> dict:
    """What takes turns at training: a name and a function that gives characters a second."""
    use_cpu = device.type == "cpu"
    collator = SpanCorruptionCollator(tokenizer)

    def trained(model: nn.Module, grouped: bool = True, **given) -> float:
        strategy = "group_by_length" if grouped else "random"
        return trainer_rate(model, dataset, tokenizer, steps, use_cpu, train_sampling_strategy=strategy, **given)

    contenders = {
        PLAIN: lambda: plain_rate(config, dataset, collator, steps, device),
        GPT2: lambda: trained(gpt2(config), grouped=False),
        POSGPT: lambda: trained(posgpt(config, use_cpu)),
        "PosGPT without bf16": lambda: trained(posgpt(config, use_cpu), bf16=False),
        "PosGPT without batches of like length": lambda: trained(posgpt(config, use_cpu), grouped=False),
        "PosGPT with dropout 0.1": lambda: trained(posgpt(config, use_cpu, dropout=0.1)),
        "PosGPT with the other attention": lambda: trained(
            posgpt(config, use_cpu, attention="sdpa" if use_cpu else "eager")
        ),
        "PosGPT with 2 data workers": lambda: trained(posgpt(config, use_cpu), dataloader_num_workers=2),
    }
    if not bf16_is_fast():
        del contenders["PosGPT without bf16"]
    return contenders


def corpus_size_figures(size: int, config: dict, steps: int) -> dict:
    """Speed and memory of reading and training on a world of `size` people; run in a process of its own."""
    logging.set_verbosity_error()
    device = TrainingArguments("unused", use_cpu=not torch.cuda.is_available()).device
    with tempfile.TemporaryDirectory() as folder:
        World(num_people=size).write(Path(folder))
        corpus = load_corpus(Path(folder) / "wiki.txt")
        tokenizer = build_tokenizer(
            (text for batch in corpus.iter(1000) for text in batch["text"]), config["max_position_embeddings"]
        )
        config = PosGPTConfig(**config | {"vocab_size": len(tokenizer)})
        documents = tokenize_corpus(corpus, tokenizer)
        dataset = SpanCorruptionDataset(documents, config.max_position_embeddings, seed=0)
        collator = SpanCorruptionCollator(tokenizer)
        loader = DataLoader(
            dataset, BATCH_SIZE, sampler=EpochSampler(dataset, BATCH_SIZE, group_by_length=True), collate_fn=collator
        )
        batches = iter(loader)
        next(batches)  # the epoch's order and cuts are drawn
        start = time.perf_counter()
        characters = sum(real_characters(batch) for batch in islice(batches, 20))
        reading = characters / (time.perf_counter() - start)
        del batches
        model = posgpt(config, device.type == "cpu")
        training = trainer_rate(
            model, dataset, tokenizer, steps, device.type == "cpu", train_sampling_strategy="group_by_length"
        )
    return {"documents": size, "reading": reading, "training": training, "peak_memory_mib": peak_memory_mib()}


def draw_corpus_sizes(figures: list[dict], path: Path) -> None:
    """Save a PNG: characters a second and peak memory over the number of documents."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    speed, memory = figure.subplots(1, 2)
    sizes = [row["documents"] for row in figures]
    speed.plot(sizes, [row["reading"] for row in figures], "o-", color="#b0b7c3", label="reading alone")
    speed.plot(sizes, [row["training"] for row in figures], "o-", color="#2f6fde", label="training")
    speed.set(ylabel="characters a second", yscale="log")
    speed.legend(frameon=False)
    memory.plot(sizes, [row["peak_memory_mib"] / 1024 for row in figures], "o-", color="#2f6fde")
    memory.set(ylabel="peak memory of the process (GiB)", ylim=(0, None))
    for axes in (speed, memory):
        axes.set(xlabel="documents in the corpus", xscale="log")
        axes.spines[["top", "right"]].set_visible(False)
    save_picture(figure, path)


def table(header: tuple[str, ...], rows: list[tuple]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def main() -> None:
    (arguments,) = parse_into(OneLineArgumentParser(ThroughputArguments), sys.argv[1:])
    check_at_least(
        1,
        steps=arguments.steps,
        rounds=arguments.rounds,
        questions=arguments.questions,
        plain_questions=arguments.plain_questions,
    )
    output_dir = check_is_folder_or_new(arguments.output_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    logging.set_verbosity_error()
    torch.manual_seed(0)
    device = TrainingArguments("unused", use_cpu=not torch.cuda.is_available()).device
    with tempfile.TemporaryDirectory() as folder:
        World(num_people=arguments.num_people).write(Path(folder))
        corpus = load_corpus(Path(folder) / "wiki.txt")
        tokenizer = build_tokenizer(corpus["text"], PosGPTConfig.max_position_embeddings)
        documents = tokenize_corpus(corpus, tokenizer)
        pairs = load_birthplaces(Path(folder) / "birth_dev.tsv")
    config = PosGPTConfig(vocab_size=len(tokenizer), position_embedding_type=arguments.position_embedding_type)
    dataset = SpanCorruptionDataset(documents, config.max_position_embeddings, seed=0)

    contenders = training_contenders(dataset, tokenizer, config, device, arguments.steps)
    rates: dict[str, float] = dict.fromkeys(contenders, 0.0)
    limit = {dtype: 0.0 for dtype in (torch.float32, torch.bfloat16)}
    with tqdm(total=len(contenders) * arguments.rounds, desc="Training", unit="turn") as bar:
        for _ in range(arguments.rounds):
            for dtype in limit:
                limit[dtype] = max(limit[dtype], matmul_limit(device, dtype))
            for name, measure in contenders.items():
                bar.set_postfix_str(name)
                rates[name] = max(rates[name], measure())
                bar.update()

    questions = list(islice(cycle(pairs["question"]), arguments.questions))
    plain_model, model = PlainGPT(config).to(device), posgpt(config, device.type == "cpu").to(device)
    # Untrained models seldom end an answer: both write all the characters they may, so the work is the same.
    seconds = {}
    start = time.perf_counter()
    plain_answers(
        questions[: arguments.plain_questions], plain_model, tokenizer, config.max_position_embeddings, NEW_CHARACTERS
    )
    seconds[PLAIN] = (time.perf_counter() - start) * arguments.questions / arguments.plain_questions
    model.generation_config.eos_token_id = None
    for dtype in (torch.float32, torch.bfloat16) if bf16_is_fast() else (torch.float32,):
        model.to(dtype)
        start = time.perf_counter()
        model.answer(questions, tokenizer, BATCH_SIZE, NEW_CHARACTERS)
        seconds[f"{POSGPT} in {str(dtype).removeprefix('torch.')}"] = time.perf_counter() - start

    figures = []
    for size in arguments.corpus_sizes or ():
        # A fresh process each: peak memory is a process's, and never goes down.
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
            figures.append(executor.submit(corpus_size_figures, size, config.to_dict(), arguments.steps).result())

    dtype = torch.bfloat16 if bf16_is_fast() else torch.float32
    used = rates[POSGPT] * training_flops(config, 64)
    text = [
        f"{machine()}; torch {torch.__version__}, transformers {transformers.__version__}; {config.position_embedding_type},"
        f" batch {BATCH_SIZE}, best of {arguments.rounds} rounds of {arguments.steps} steps.",
        "",
        table(
            ("pretraining", "characters/s", "beside (a)", "beside (b)"),
            [
                (name, f"{rate:,.0f}", f"{rate / rates[PLAIN]:.1f}×", f"{rate / rates[GPT2]:.1f}×")
                for name, rate in rates.items()
            ],
        ),
        "",
        f"(c) The machine multiplies matrices at {limit[torch.float32] / 1e9:,.0f} GFLOP/s in fp32 and"
        f" {limit[torch.bfloat16] / 1e9:,.0f} in bf16; PosGPT's training uses {used / 1e9:,.0f} GFLOP/s,"
        f" {used / limit[dtype]:.0%} of it.",
        "",
        table(
            (f"{arguments.questions} questions, {NEW_CHARACTERS} characters each", "seconds", "beside (a)"),
            [(name, f"{value:.1f}", f"{seconds[PLAIN] / value:.1f}×") for name, value in seconds.items()],
        ),
        f"(a) answered {arguments.plain_questions}; its time is scaled up.",
    ]
    if figures:
        draw_corpus_sizes(figures, output_dir / "corpus_size.png")
        text += [
            "",
            table(
                ("documents", "reading alone, characters/s", "training, characters/s", "peak memory"),
                [
                    (
                        f"{row['documents']:,}",
                        f"{row['reading']:,.0f}",
                        f"{row['training']:,.0f}",
                        f"{row['peak_memory_mib']:,.0f} MiB",
                    )
                    for row in figures
                ],
            ),
        ]
    with written_whole(output_dir / "throughput.md") as file:
        file.write("\n".join(text) + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    with bad_input_in_one_line():
        main()
