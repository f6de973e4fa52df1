"""What one attention head can and cannot do, in numbers: writes docs/attention.md and its pictures.

    python -m studies.attention_explained --output_dir docs

The questions are those of Stanford CS224n's assignment on attention; the experiments are small, drawn from fixed seeds, and
take seconds.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from data_scripts.text_files import bad_input_in_one_line, check_is_folder_or_new, save_picture, written_whole
from training import OneLineArgumentParser, parse_into

SIZE, KEYS = 64, 10
FIRST, SECOND = 2, 7  # the two values that are to be averaged


@dataclass
class ExplainedArguments:
    """Where to write."""

    output_dir: str = field(default="docs", metadata={"help": "Folder for attention.md and its pictures."})


def attend(query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights (keys,) and output (size,) of one head for one query, softmax(K q) V, as in the assignment: unscaled."""
    scores = keys @ query
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    return weights, weights @ values


def orthonormal_keys(rng: np.random.Generator) -> np.ndarray:
    """(KEYS, SIZE) rows of length 1, at right angles to each other."""
    return np.linalg.qr(rng.normal(size=(SIZE, KEYS)))[0].T


def copying(rng: np.random.Generator, strengths: list[float]) -> list[float]:
    """The weight of key FIRST when the query is it times each strength."""
    keys, values = orthonormal_keys(rng), rng.normal(size=(KEYS, SIZE))
    return [float(attend(strength * keys[FIRST], keys, values)[0][FIRST]) for strength in strengths]


def averaging(rng: np.random.Generator, strengths: list[float]) -> list[float]:
    """How far the output is from the mean of two values, relative to that mean's length, for each strength."""
    keys, values = orthonormal_keys(rng), rng.normal(size=(KEYS, SIZE))
    wanted = (values[FIRST] + values[SECOND]) / 2
    return [
        float(
            np.linalg.norm(attend(strength * (keys[FIRST] + keys[SECOND]), keys, values)[1] - wanted)
            / np.linalg.norm(wanted)
        )
        for strength in strengths
    ]


def varying_key(rng: np.random.Generator, strength: float, draws: int) -> dict[str, np.ndarray]:
    """Draw the length of key FIRST anew each time: N(1, 1/2) along itself, as the assignment's covariance
    alpha I + (1/2) mu mu^T has it with vanishing alpha.

    Returns:
        `lengths`; the share of value FIRST in the output, (draws,), of `one` head that asks for both keys, and of `two`
        heads that ask for one each and are averaged.
    """
    means = orthonormal_keys(rng)
    values = np.eye(KEYS)  # so that the output shows the weights
    lengths = rng.normal(1, np.sqrt(0.5), draws)
    one, two = [], []
    for length in lengths:
        keys = means.copy()
        keys[FIRST] *= length
        one.append(attend(strength * (means[FIRST] + means[SECOND]), keys, values)[1][FIRST])
        heads = [attend(strength * means[number], keys, values)[1] for number in (FIRST, SECOND)]
        two.append(np.mean(heads, axis=0)[FIRST])
    return {"lengths": lengths, "one": np.array(one), "two": np.array(two)}


def receptive_fields(rng: np.random.Generator, heads: int, layers: int, length: int = 4096) -> int:
    """The most inputs that one position depends on when each head of each layer copies from one place, drawn at random."""
    fields = [{position} for position in range(length)]
    for _ in range(layers):
        looked_at = rng.integers(0, length, size=(length, heads))
        fields = [fields[p].union(*(fields[other] for other in looked_at[p])) for p in range(length)]
    return max(map(len, fields))


def draw(folder: Path, strengths, copied, error, varied, fields) -> None:
    """Save `attention.png`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7.5), layout="constrained")
    (one, two), (three, four) = figure.subplots(2, 2)
    one.plot(strengths, copied, "o-", color="#2f6fde")
    one.set(xlabel="length of the query", ylabel="weight of its key", title="Copying: one key wins", ylim=(0, 1.02))
    two.plot(strengths, error, "o-", color="#2f6fde")
    two.set(
        xlabel="length of the query's two parts",
        ylabel="relative error",
        title="The average of two values",
        ylim=(0, None),
    )
    bins = np.linspace(0, 1, 41)
    three.hist(varied["one"], bins, alpha=0.75, color="#e07b39", label="one head")
    three.hist(varied["two"], bins, alpha=0.75, color="#2f6fde", label="two heads, averaged")
    three.set(xlabel="share of the first value (wanted: 0.5)", ylabel="draws", title="When a key's length varies")
    three.margins(y=0.2)
    three.legend(frameon=False, loc="upper center", ncols=2)
    for heads, of_heads in fields.items():
        layers = range(1, len(of_heads) + 1)
        (line,) = four.plot(layers, of_heads, "o", label=f"{heads} head{'s' if heads > 1 else ''}")
        four.plot(layers, [(heads + 1) ** layer for layer in layers], "--", color=line.get_color(), lw=1)
    four.set(yscale="log", xlabel="layers", ylabel="inputs seen", title="Receptive field (dashed: (heads + 1)^layers)")
    four.set_xticks(range(1, 5))
    four.legend(frameon=False)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    save_picture(figure, folder / "attention.png", dpi=110)


def main() -> None:
    (arguments,) = parse_into(OneLineArgumentParser(ExplainedArguments), sys.argv[1:])
    output_dir = check_is_folder_or_new(arguments.output_dir)
    strengths = [0.0, 1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0]
    copied = copying(np.random.default_rng(0), strengths)
    error = averaging(np.random.default_rng(1), strengths)
    varied = varying_key(np.random.default_rng(2), strength=20.0, draws=2000)
    fields = {
        heads: [receptive_fields(np.random.default_rng(3), heads, layers) for layers in range(1, 5)]
        for heads in (1, 2, 4, 8)
    }
    spread = {name: float(varied[name].std()) for name in ("one", "two")}
    extremes = float(((varied["one"] < 0.1) | (varied["one"] > 0.9)).mean())
    near = float((np.abs(varied["two"] - 0.5) < 0.05).mean())
    output_dir.mkdir(parents=True, exist_ok=True)
    draw(output_dir, strengths, copied, error, varied, fields)
    text = f"""# What attention can do

Written by `python -m studies.attention_explained --output_dir docs`, numbers and picture alike. A head gives the value
vectors v the weights softmax(k · q), for keys k and a query q; the questions are those of Stanford CS224n's assignment.
There are {KEYS} keys in {SIZE} dimensions, of length 1 and at right angles.

![Four panels: copying, averaging, a key of varying length, receptive fields.](attention.png)

**Copying.** A query that is one key, made long, leaves the weight to that key: the others' scores are 0, and the weight is
e^t / (e^t + {KEYS - 1}) for a query of length t. Measured: {copied[2]:.2f} at {strengths[2]:g}, {copied[4]:.3f} at
{strengths[4]:g}, {copied[6]:.5f} at {strengths[6]:g}. What comes out is the value, copied.

**The average of two values.** A query t (k_a + k_b) has the same score t with both keys and 0 with the others: the output
nears (v_a + v_b) / 2. Its error, relative to that mean's length, is {error[2]:.2f} at t = {strengths[2]:g},
{error[4]:.3f} at {strengths[4]:g} and {error[6]:.5f} at {strengths[6]:g}.

**When a key's length varies, one head fails.** Let k_a be drawn anew each time, its length from N(1, 1/2) along its own
direction. For q = {20} (k_a + k_b) the score of k_a is then now larger, now smaller than that of k_b, and softmax makes of it
one or the other: in {extremes:.0%} of {len(varied["one"]):,} draws more than 90 % of the output is one of the two values, and
the share of v_a has a standard deviation of {spread["one"]:.2f}.

**Two heads help.** One asks {20} k_a, the other {20} k_b, and their outputs are averaged. Each copies, whatever the length of
k_a, as long as it is not near zero or less: the share of v_a is within 0.05 of one half in {near:.0%} of the draws, with a
standard deviation of {spread["two"]:.2f}.

**Receptive field.** If every head looks at one place alone (argmax attention), a position knows after one layer of h heads
itself and h others, after two what those know, too: at most (h + 1)^l inputs after l layers. Places drawn at random among
4,096, the largest field of any position:

| heads | {" | ".join(f"{layer} layer{'s' if layer > 1 else ''}" for layer in range(1, 5))} | (heads + 1)^4 |
|---|---|---|---|---|---|
{chr(10).join(f"| {heads} | {' | '.join(f'{field:,}' for field in of_heads)} | {(heads + 1) ** 4:,} |" for heads, of_heads in fields.items())}

Four layers of eight heads, the task's model, could so gather {9**4:,} inputs: more than its block of 128 has. Reaching the
name is not what limits it.
"""
    with written_whole(output_dir / "attention.md") as file:
        file.write(text)
    print(f"Written: {output_dir / 'attention.md'}, {output_dir / 'attention.png'}")


if __name__ == "__main__":
    with bad_input_in_one_line():
        main()
