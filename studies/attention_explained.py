"""What one attention head can and cannot do: the numbers and the picture of docs/attention.md.

    python -m studies attention_explained

The questions are those of Stanford CS224n's assignment on attention; the experiments are small, drawn from fixed seeds, and
take seconds.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_scripts.errors import exit_on_bad_input
from data_scripts.files import check_is_folder_or_new
from data_scripts.options import option, parse_options
from posgpt.plots import BLUE, ORANGE, make_figure, save_picture
from studies.tables import write_table

SIZE, KEYS = 64, 10
# The two values that are to be averaged.
FIRST, SECOND = 2, 7
STRENGTHS = (0.0, 1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0)
# How long the queries are when a key's length varies, and how often it is drawn.
STRENGTH, DRAWS = 20, 2000
LAYERS = range(1, 5)


@dataclass
class ExplainedArguments:
    """Where to write."""

    output_dir: str = option("Folder for the table and the picture.", default="runs/attention_explained")


def attend(query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weights (keys,) and output (size,) of one head for one query: softmax(K q) V, unscaled as in the assignment."""
    scores = keys @ query
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    return weights, weights @ values


def draw_keys(rng: np.random.Generator) -> np.ndarray:
    """Draw (KEYS, SIZE) rows of length 1, at right angles to each other."""
    return np.linalg.qr(rng.normal(size=(SIZE, KEYS)))[0].T


def measure_copying(rng: np.random.Generator) -> dict[float, float]:
    """Measure the weight of key FIRST when the query is that key times each of STRENGTHS."""
    keys, values = draw_keys(rng), rng.normal(size=(KEYS, SIZE))
    return {strength: float(attend(strength * keys[FIRST], keys, values)[0][FIRST]) for strength in STRENGTHS}


def measure_averaging(rng: np.random.Generator) -> dict[float, float]:
    """Measure how far the output is from the mean of two values, relative to that mean's length, for each of STRENGTHS."""
    keys, values = draw_keys(rng), rng.normal(size=(KEYS, SIZE))
    wanted = (values[FIRST] + values[SECOND]) / 2
    outputs = {strength: attend(strength * (keys[FIRST] + keys[SECOND]), keys, values)[1] for strength in STRENGTHS}
    length = np.linalg.norm(wanted)
    return {strength: float(np.linalg.norm(output - wanted) / length) for strength, output in outputs.items()}


def measure_varying_key(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Measure the share of value FIRST in the output when the length of its key is redrawn each time.

    The length is from N(1, 1/2) along the key itself: the assignment's covariance alpha I + (1/2) mu mu^T with vanishing
    alpha.

    Returns:
        (DRAWS,) shares of one head that asks for both keys, and of two heads that ask for one key each and are averaged.
    """
    means = draw_keys(rng)
    # So that the output shows the weights.
    values = np.eye(KEYS)
    one, two = [], []
    for length in rng.normal(1, np.sqrt(0.5), DRAWS):
        keys = means.copy()
        keys[FIRST] *= length
        one.append(attend(STRENGTH * (means[FIRST] + means[SECOND]), keys, values)[1][FIRST])
        heads = [attend(STRENGTH * means[number], keys, values)[1] for number in (FIRST, SECOND)]
        two.append(np.mean(heads, axis=0)[FIRST])
    return np.array(one), np.array(two)


def measure_receptive_fields(rng: np.random.Generator, heads: int, length: int = 4096) -> list[int]:
    """Measure how many inputs a position depends on at most after each of LAYERS, when each head of each layer copies from
    one place, drawn at random.
    """
    # (length, length): which inputs a position depends on.
    seen, largest = np.eye(length, dtype=bool), []
    for _ in LAYERS:
        places = rng.integers(0, length, size=(length, heads))
        before = seen.copy()
        for head in range(heads):
            seen |= before[places[:, head]]
        largest.append(int(seen.sum(axis=1).max()))
    return largest


def measure_all() -> dict[str, Any]:
    """Run all experiments, each from its own seed.

    Returns:
        `copied` and `error`, a number for each of STRENGTHS; `one_head` and `two_heads`, (DRAWS,) shares of the first value
        when its key's length varies; `fields`, for each number of heads the largest receptive field after each of LAYERS.
    """
    one_head, two_heads = measure_varying_key(np.random.default_rng(2))
    return {
        "copied": measure_copying(np.random.default_rng(0)),
        "error": measure_averaging(np.random.default_rng(1)),
        "one_head": one_head,
        "two_heads": two_heads,
        "fields": {heads: measure_receptive_fields(np.random.default_rng(3), heads) for heads in (1, 2, 4, 8)},
    }


def draw_measurements(measured: dict[str, Any], path: Path) -> None:
    """Save a PNG with a panel for each experiment."""
    figure, ((copying, averaging), (varying, fields)) = make_figure(11, 7.5, 2, 2)
    copying.plot(STRENGTHS, measured["copied"].values(), "o-", color=BLUE)
    copying.set(xlabel="length of the query", ylabel="weight of its key", ylim=(0, 1.02))
    copying.set_title("Copying: one key wins")
    averaging.plot(STRENGTHS, measured["error"].values(), "o-", color=BLUE)
    averaging.set(xlabel="length of the query's two parts", ylabel="relative error", ylim=(0, None))
    averaging.set_title("The average of two values")
    bins = np.linspace(0, 1, 41)
    varying.hist(measured["one_head"], bins, alpha=0.75, color=ORANGE, label="one head")
    varying.hist(measured["two_heads"], bins, alpha=0.75, color=BLUE, label="two heads, averaged")
    varying.set(xlabel="share of the first value (wanted: 0.5)", ylabel="draws", title="When a key's length varies")
    varying.margins(y=0.2)
    varying.legend(loc="upper center", ncols=2)
    for heads, sizes in measured["fields"].items():
        (line,) = fields.plot(LAYERS, sizes, "o", label=f"{heads} heads")
        fields.plot(LAYERS, [(heads + 1) ** layer for layer in LAYERS], "--", color=line.get_color(), lw=1)
    fields.set(yscale="log", xlabel="layers", ylabel="inputs seen", xticks=LAYERS)
    fields.set_title("Receptive field (dashed: (heads + 1)^layers)")
    fields.legend()
    save_picture(figure, path, dpi=110)


def describe_measurements(measured: dict[str, Any]) -> list[dict[str, str]]:
    """Return the rows of the table; the page has their numbers."""
    one_head, two_heads = measured["one_head"], measured["two_heads"]
    extremes = ((one_head < 0.1) | (one_head > 0.9)).mean()
    near = (np.abs(two_heads - 0.5) < 0.05).mean()
    copied, error = (
        [f"{measured[name][2]:.2f}", f"{measured[name][6]:.3f}", f"{measured[name][12]:.5f}"]
        for name in ("copied", "error")
    )
    shown = {
        "weight of the key, for queries of length 2, 6 and 12": ", ".join(copied),
        "error of the average, for the same lengths": ", ".join(error),
        "a key's length varies: one head gives more than 90 % to one value": f"{extremes:.0%}",
        "standard deviation of the first value's share": f"{one_head.std():.2f}",
        "with two heads, the share is within 0.05 of one half": f"{near:.0%}",
        "its standard deviation": f"{two_heads.std():.2f}",
    }
    for heads, sizes in measured["fields"].items():
        shown[f"inputs seen after 1 to 4 layers of {heads} heads"] = "; ".join(f"{size:,}" for size in sizes)
    return [{"measured": name, "": value} for name, value in shown.items()]


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    output_dir = check_is_folder_or_new(parse_options(ExplainedArguments, argv).output_dir)
    measured = measure_all()
    write_table(output_dir, describe_measurements(measured))
    draw_measurements(measured, output_dir / "attention.png")


if __name__ == "__main__":
    main()
