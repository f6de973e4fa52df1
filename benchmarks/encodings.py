"""What each position encoding costs on one core, or on a GPU: time and memory of a training step, time of a new token, parameters.

    python -m benchmarks.encodings --position_embedding_types none rotary alibi

All take turns in one run; the fastest round of each counts. A training step is forward and backward, in bfloat16 where that is
fast; what it keeps is the memory of all tensors that the backward pass needs. Writes `table.md`.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Annotated, Any

import torch
from huggingface_hub.errors import StrictDataclassError
from tqdm import tqdm

from data_scripts.errors import exit_on_bad_input, reraise_as_bad_input
from data_scripts.files import check_is_folder_or_new
from data_scripts.options import Range, option, parse_options
from modeling_posgpt import PosGPTConfig, PosGPTForCausalLM
from posgpt.positions.train import choose_device, prepare_process, read_clock, start_model
from posgpt.tables import write_table
from posgpt.training.architecture import CHOICES
from posgpt.training.hardware import bf16_is_fast

DEVICE = choose_device()
ALL = list(CHOICES["position_embedding_type"])
ROWS = 32


@dataclass
class EncodingsArguments:
    """What to measure and for how long."""

    output_dir: str = option("Folder for the table.", default="runs/encodings")
    position_embedding_types: list[str] = option("Position encodings.", default_factory=ALL.copy)
    block_size: Annotated[int, Range(2)] = option(f"How many tokens each of the {ROWS} rows has.", default=128)
    new_tokens: Annotated[int, Range(2)] = option("How many tokens each row is continued with.", default=16)
    rounds: Annotated[int, Range(1)] = option(
        "How often the encodings take turns; the fastest round counts.", default=5
    )


def compute_loss(model: PosGPTForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    """Return the loss of a training step's forward pass."""
    with torch.autocast(DEVICE.type, torch.bfloat16, enabled=bf16_is_fast(DEVICE)):
        return model(ids, labels=ids).loss


def train(model: PosGPTForCausalLM, ids: torch.Tensor) -> None:
    """Compute a step's gradients."""
    compute_loss(model, ids).backward()
    model.zero_grad()


def measure_kept_bytes(model: PosGPTForCausalLM, ids: torch.Tensor) -> int:
    """Return how much memory a training step's forward pass leaves for its backward pass, besides weights and buffers.

    Copies of weights in bfloat16 count.
    """
    kept = {each.untyped_storage().data_ptr(): 0 for each in chain(model.parameters(), model.buffers())}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept.setdefault(storage.data_ptr(), storage.nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        compute_loss(model, ids)
    return sum(kept.values())


def time_call(call: Callable[[], Any]) -> float:
    """Return how many milliseconds a call takes: of one core, which other programs do not slow down, or of a GPU."""
    wait = torch.cuda.synchronize if DEVICE.type == "cuda" else lambda: None
    wait()
    start = read_clock()
    call()
    wait()
    return 1000 * (read_clock() - start)


def measure(arguments: EncodingsArguments) -> list[dict[str, str]]:
    """Return the table's rows; each encoding's first call does not count."""
    length, models = arguments.block_size, {}
    for name in arguments.position_embedding_types:
        with reraise_as_bad_input(
            f"--position_embedding_types: {name}", "choose others.", StrictDataclassError, ValueError, KeyError
        ):
            longest = length + arguments.new_tokens
            models[name] = start_model(0, position_embedding_type=name, max_position_embeddings=longest)
    ids = torch.randint(2, 256, (ROWS, length), device=DEVICE)
    kept = {name: measure_kept_bytes(model.train(), ids) for name, model in models.items()}
    times, most = defaultdict[tuple[str, int], list[float]](list), arguments.new_tokens
    for _ in tqdm(range(arguments.rounds + 1), desc="Rounds", unit="round", disable=None):
        for name, model in models.items():
            # With 0 new tokens: a training step.
            times[name, 0].append(time_call(partial(train, model.train(), ids)))
            for count in (1, most):
                write = partial(model.eval().generate, ids, max_new_tokens=count, min_new_tokens=count)
                times[name, count].append(time_call(write))
    best = {key: min(taken[1:]) for key, taken in times.items()}
    return [
        {
            "encoding": name,
            "parameters": f"{models[name].num_parameters():,}",
            "training step (ms)": f"{best[name, 0]:.0f}",
            "kept for the backward pass (MiB)": f"{kept[name] / 2**20:.0f}",
            # Without the first, which the whole text is read for.
            f"new token of {ROWS} rows, float32 (ms)": f"{(best[name, most] - best[name, 1]) / (most - 1):.1f}",
        }
        for name in sorted(models, key=lambda name: best[name, 0])
    ]


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(EncodingsArguments, argv)
    output_dir = check_is_folder_or_new(arguments.output_dir)
    prepare_process()
    caption = f"{ROWS} rows of {arguments.block_size} tokens, a model of {PosGPTConfig().num_hidden_layers} layers, {DEVICE.type}:"
    write_table(output_dir, measure(arguments), caption)


if __name__ == "__main__":
    main()
