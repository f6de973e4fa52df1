"""What a training step costs as models and rows grow.

    python -m benchmarks.scaling --output_dir runs/scaling

Times are of one thread's own work (CPU time), so that what else the machine does counts little; the best step of several
counts. Writes `scaling.json`, `scaling.md` and `scaling.png`; docs/scaling.md explains them.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.throughput import count_training_flops, describe_machine
from data_scripts.errors import exit_on_bad_input
from data_scripts.files import check_is_folder_or_new, write_atomically
from data_scripts.options import Range, option, parse_options
from modeling_posgpt import PosGPTConfig, PosGPTForCausalLM
from posgpt.plots import BLUE, GREY, make_figure, save_picture
from posgpt.tables import format_table
from posgpt.training.hardware import bf16_is_fast

# Hidden size, layers and heads of 0.8, 3.3, 25 and 125 million parameters.
MODELS = ((128, 4, 4), (256, 4, 8), (512, 8, 8), (832, 15, 13))
LENGTHS = (128, 256, 512, 1024)


@dataclass
class ScalingArguments:
    """What to measure and for how long."""

    output_dir: str = option("Folder for the figures, the table and the picture.", default="runs/scaling")
    characters: Annotated[int, Range(1)] = option("Characters in a training step, at least a row.", default=1024)
    steps: Annotated[int, Range(1)] = option("Timed steps of each model; the best one counts.", default=3)


def time_best(step: Callable[[], None], steps: int) -> float:
    """Return the CPU seconds of the best of `steps` calls, after one to warm up."""
    times = []
    for _ in range(steps + 1):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    return min(times[1:])


def measure_model(size: tuple[int, int, int], length: int, characters: int, steps: int) -> dict[str, float]:
    """Measure a training step with AdamW of a rotary model of one of `MODELS` on rows of `length` characters."""
    hidden_size, layers, heads = size
    config = PosGPTConfig(
        vocab_size=256,
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=length,
        position_embedding_type="rotary",
    )
    model = PosGPTForCausalLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    input_ids = torch.randint(2, 256, (max(1, characters // length), length))

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16_is_fast("cpu")):
            loss = model(input_ids=input_ids, labels=input_ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    seconds = time_best(step, steps) / input_ids.numel()
    flops = count_training_flops(config, length)
    return {"parameters": model.num_parameters(), "length": length, "seconds": seconds, "flops": flops / seconds}


def fit_line(rows: list[dict[str, float]], name: str) -> tuple[float, float]:
    """Fit log seconds = a + b log x by least squares; return the factor e^a and the exponent b."""
    x, seconds = (np.log([row[key] for row in rows]) for key in (name, "seconds"))
    exponent, start = np.polyfit(x, seconds, 1)
    return float(np.exp(start)), float(exponent)


def describe(figures: dict[str, Any]) -> str:
    """Return the tables and the fitted lines in Markdown."""
    parts = [f"{figures['machine']}."]
    for name in ("parameters", "length"):
        rows = figures[name]
        cells = [(f"{row[name]:,}", f"{row['seconds'] * 1e6:,.0f}", f"{row['flops'] / 1e9:,.0f}") for row in rows]
        factor, exponent = fit_line(rows, name)
        parts.append(format_table((name, "µs per character", "GFLOP/s"), cells))
        parts.append(f"Fitted: {factor * 1e6:.3g} µs × {name}^{exponent:.2f}.")
    return "\n\n".join(parts)


def draw(figures: dict[str, Any], path: Path) -> None:
    """Save a PNG: time per character over parameters and over the length of rows, with the fitted lines."""
    from matplotlib.ticker import NullLocator

    figure, both = make_figure(9, 3.4, columns=2)
    for axes, name in zip(both, ("parameters", "length"), strict=True):
        x = np.array([row[name] for row in figures[name]])
        factor, exponent = fit_line(figures[name], name)
        axes.plot(x, factor * x**exponent * 1e6, color=GREY, label=f"fitted, exponent {exponent:.2f}")
        axes.plot(x, [row["seconds"] * 1e6 for row in figures[name]], "o", color=BLUE, label="measured")
        axes.set(xlabel=name, ylabel="µs of CPU time per character", xscale="log", yscale="log")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(x, [f"{number / 1e6:.1f} M" if number >= 1e5 else f"{number:,}" for number in x.tolist()])
        axes.legend()
    save_picture(figure, path)


@exit_on_bad_input()
def main() -> None:
    arguments = parse_options(ScalingArguments)
    folder = check_is_folder_or_new(arguments.output_dir)
    torch.set_num_threads(1)
    cases = [("parameters", size, LENGTHS[0]) for size in MODELS]
    cases += [("length", MODELS[1], length) for length in LENGTHS]
    figures: dict[str, Any] = {"machine": describe_machine(torch.device("cpu")), "parameters": [], "length": []}
    for name, size, length in tqdm(cases, desc="Measuring models", unit="model", disable=None):
        figures[name].append(measure_model(size, length, arguments.characters, arguments.steps))
    with write_atomically(folder / "scaling.json") as file:
        json.dump(figures, file, indent=2)
    with write_atomically(folder / "scaling.md") as file:
        file.write(describe(figures) + "\n")
    draw(figures, folder / "scaling.png")
    print(describe(figures))


if __name__ == "__main__":
    main()
