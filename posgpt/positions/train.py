"""Train a small model on a task with one position encoding, and test it within and beyond the lengths of training."""

import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from torch.nn.functional import cross_entropy
from transformers import get_linear_schedule_with_warmup

from data_scripts.errors import reraise_as_bad_input
from modeling_posgpt import POSITION_EMBEDDINGS, PosGPTConfig, PosGPTForCausalLM
from modeling_posgpt.composition import list_names
from posgpt.imports import describe_imports
from posgpt.positions.tasks import UNGRADED, Batch, Task
from posgpt.training.encodings import check_imported
from posgpt.training.hardware import avoid_cudnn_attention, bf16_is_fast, keep_freed_memory

WIDTH, HEADS = 64, 4
WARMUP, BETA2, MAX_NORM = 0.06, 0.95, 1.0
# To be raised when a change of the code changes what a run gives.
VERSION = 3
Record = dict[str, Any]


class Run(NamedTuple):
    """One model: a task with its recipe, an encoding with its fields of `PosGPTConfig`, and a seed."""

    name: str
    task: Task
    encoding: str
    positions: dict[str, Any]
    seed: int

    @property
    def key(self) -> Record:
        """What identifies the run among others."""
        return {"task": self.name, "encoding": self.encoding, "seed": self.seed}

    @property
    def recipe(self) -> Record:
        """What runs with its key have in common."""
        imports = describe_imports(list_names(self.positions["position_embedding_type"]))
        return self.task.describe_recipe() | {"version": VERSION} | self.positions | imports


def choose_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def prepare_process() -> None:
    """Have this process train on one core, or on the GPU, as fast as it can."""
    torch.set_num_threads(1)
    keep_freed_memory()
    avoid_cudnn_attention()


def start_model(seed: int, **settings: Any) -> PosGPTForCausalLM:
    """Return a model without dropout, with random weights on the device and the attention that is the fastest there."""
    # No token pads texts or ends an answer.
    fixed: dict[str, Any] = {"pad_token_id": None, "eos_token_id": None}
    fixed |= dict.fromkeys(("embd_pdrop", "resid_pdrop", "attention_dropout"), 0.0)
    config = PosGPTConfig(**fixed, **settings)
    check_imported(config)
    device = choose_device()
    torch.manual_seed(seed)
    # For so few tokens, plain matrix products are the fastest on a CPU.
    attention = "eager" if device.type == "cpu" else "sdpa"
    return PosGPTForCausalLM._from_config(config, attn_implementation=attention).to(device)


def build_model(run: Run) -> PosGPTForCausalLM:
    """Build a model with positions for the longest test: those beyond training are untrained."""
    problem, fix = f"{run.encoding} cannot do {run.name}", "choose another encoding, or shorter lengths."
    with reraise_as_bad_input(problem, fix, StrictDataclassError, ValueError, KeyError, TypeError):
        return start_model(
            run.seed,
            vocab_size=run.task.symbols,
            hidden_size=WIDTH,
            num_hidden_layers=run.task.layers,
            num_attention_heads=HEADS,
            max_position_embeddings=run.task.measure_width(max(run.task.tested)),
            use_cache=False,
            **run.positions,
        )


def predict(model: PosGPTForCausalLM, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits (rows, length, symbols) and labels (rows, length) on the model's device."""
    inputs, labels = (torch.from_numpy(np.ascontiguousarray(each)).to(model.device) for each in batch)
    with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16_is_fast(model.device)):
        return model(input_ids=inputs).logits.float(), labels


def fit(model: PosGPTForCausalLM, task: Task, seed: int) -> float:
    """Train a model on fresh batches; return the mean loss of the last tenth of the steps."""
    # All encodings see the same batches.
    rng = np.random.default_rng(seed)
    adamw: dict[str, Any] = {"betas": (0.9, BETA2), "weight_decay": 0.0, "fused": True}
    optimizer = torch.optim.AdamW(model.parameters(), task.learning_rate, **adamw)
    schedule = get_linear_schedule_with_warmup(optimizer, round(WARMUP * task.steps), task.steps)
    widths = {length: task.measure_width(length) for length in task.trained_lengths}
    losses = []
    model.train()
    for _ in range(task.steps):
        length = int(rng.integers(task.trained[0], task.trained[1], endpoint=True))
        logits, labels = predict(model, task.sample(rng, max(1, task.tokens // widths[length]), length))
        loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=UNGRADED)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses[-max(1, task.steps // 10) :]).mean().item()


@torch.inference_mode()
def test(model: PosGPTForCausalLM, task: Task) -> Record:
    """Return the shares of answers that are exact, and of tokens that are correct, for each tested length.

    The answer before each token is the correct one. Where all tokens are then correct, greedy generation gives the same.
    """
    model.eval()
    # As in Ruoss et al. 2023, random positions are drawn when testing, too: other tests have gaps that training hardly has.
    for module in model.modules():
        if isinstance(module, POSITION_EMBEDDINGS["randomized"]):
            module.train()
    torch.manual_seed(0)
    exact, tokens = [], []
    for length in task.tested:
        inputs, labels = task.draw_test(length)
        count = max(1, task.tokens // inputs.shape[1])
        parts = [slice(i, i + count) for i in range(0, len(inputs), count)]
        is_correct = np.concatenate(
            [(logits.argmax(-1) == to).cpu() for logits, to in (predict(model, (inputs[p], labels[p])) for p in parts)]
        )
        exact.append(float((is_correct | (labels == UNGRADED)).all(axis=1).mean()))
        tokens.append(float(is_correct[labels != UNGRADED].mean()))
    return {"exact": exact, "tokens": tokens}


def read_clock() -> float:
    """Return seconds: of this process's core, which other programs do not slow down, or of a GPU's wall clock."""
    return time.process_time() if choose_device().type == "cpu" else time.perf_counter()


def train(run: Run) -> Record:
    """Train and test a model; return the line that is kept of it."""
    start = read_clock()
    model = build_model(run)
    loss = fit(model, run.task, run.seed)
    figures = {"parameters": model.num_parameters(), "loss": loss, **test(model, run.task)}
    return run.key | {"recipe": run.recipe} | figures | {"seconds": round(read_clock() - start, 1)}


def estimate_seconds(run: Run) -> float:
    """Estimate how long a run takes, by a few of its steps; raise BadInput when its model cannot be built."""
    model = build_model(run)
    fit(model, replace(run.task, steps=1), run.seed)
    start = time.perf_counter()
    fit(model, replace(run.task, steps=3), run.seed)
    step = (time.perf_counter() - start) / 3
    tested = run.task.rows * sum(map(run.task.measure_width, run.task.tested)) / run.task.tokens
    # A test needs no backward pass.
    return step * (run.task.steps + tested / 3)
