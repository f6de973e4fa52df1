"""Draw the documentation's pictures from its figures: `python docs/draw.py`, or the names of some, such as `hero windows`.

The figures stand here as they do in docs/results.md and docs/scaling.md; each is named with its section.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.patches import Rectangle

from posgpt.evaluation.scoring import Proportion
from posgpt.plots import BLUE, GREY, LIGHT_BLUE, ORANGE, draw_seeds, make_figure, save_picture

FOLDER = Path(__file__).parent
DPI = 140
QUESTIONS = 500
# "The course's dev set, all rows": shares of 500 questions, %.
HERO = {
    "London for everyone": (5.0, GREY),
    "the course's recipe, learned positions": (21.3, ORANGE),
    "the course's recipe, rotary positions": (34.2, ORANGE),
    "the recipe windows, learned positions": (90.3, BLUE),
    "the recipe windows, rotary positions": (90.2, BLUE),
}
# The rest of a row of `posgpt preview windows --epoch 1` on the world of `posgpt world --num_people 100`.
DOCUMENT = "Trained in {Athens}, the watchmaker Malholm was born in {San Francisco} in 1900 ."
NAME = "Verette Malholm"
WINDOWS = (
    (" the watchmaker was born in?⁇", "San Francisco⁇"),
    (" in?⁇", "Athens⁇"),
    (" trained in?⁇", "Athens⁇"),
    (" was born?⁇", "San Francisco⁇"),
)
# Picture: its message, and how many of the 500 questions each seed answers.
POSITIONS = {
    # "every position embedding, the whole recipe"
    "positions_whole": (
        "After the whole recipe, every position embedding answers about 90 %",
        {
            "alibi": (454, 451), "concatenated": (453, 450), "learned": (451, 451), "rotary": (450, 452),
            "none": (453, 449), "sinusoidal": (449, 452), "relative_bias": (450, 447),
        },
    ),
    # "every position embedding with `sprint`"
    "positions_sprint": (
        "With the recipe sprint, too, every position embedding answers about 90 %",
        {
            "learned": (455, 453, 452), "sinusoidal": (452,), "relative_bias": (452,), "alibi": (450, 452),
            "rotary": (450, 454, 452, 444), "concatenated": (449,), "none": (448, 448),
        },
    ),
    # "every position embedding, the same data and budget"
    "positions": (
        "After a third of the training steps, ALiBi is five points ahead of no positions",
        {
            "alibi": (435, 434), "relative_bias": (433, 432), "rotary": (428, 422), "concatenated": (428, 417),
            "learned": (416, 420), "sinusoidal": (412, 422), "none": (414, 406),
        },
    ),
}  # fmt: skip
# "objective, optimizer and dropout": the best learning rate, the mean of its seeds, and the share of each training, %.
FACTORIAL = {
    "windows, Muon, no dropout": ("2e-3", 84.0, (83.7, 83.7, 84.3, 79.7)),
    "windows, Muon, dropout 0.1": ("2e-3", 27.5, (28.0, 27.0)),
    "windows, AdamW, no dropout": ("1e-3", 8.8, (6.7, 7.7, 10.0, 7.0)),
    "windows, AdamW, dropout 0.1": ("1e-3", 7.5, (8.0, 7.0)),
    "span corruption, Muon, no dropout": ("2e-3", 6.5, (4.0, 8.0, 5.0, 5.0)),
    "span corruption, Muon, dropout 0.1": ("2e-3", 7.3, (8.0, 6.7)),
    "span corruption, AdamW, no dropout": ("1e-3", 4.7, (4.0, 5.7, 3.7, 2.7)),
    "span corruption, AdamW, dropout 0.1": ("1e-3", 3.2, (3.7, 2.7)),
}
# "the knowledge study": answered, recalled, %.
KNOWLEDGE = {
    "questions in 10 % of the rows": (84.0, 96.5),
    "the recipe windows": (83.7, 95.4),
    "questions in all rows": (83.3, 97.5),
    "the first two names of a document": (83.3, 94.7),
    "all names of a document": (82.7, 95.1),
    "half the learning rate": (82.7, 97.5),
    "batches of 16": (82.3, 97.2),
    "twice the learning rate": (82.0, 94.7),
    "constant rate, then linear decay": (81.0, 94.4),
    "cues as the document says them": (80.3, 96.5),
    "cues may drop the name before a span": (79.7, 95.4),
    "cues keep all their words": (62.3, 98.2),
    "cues of at most one word": (60.3, 95.4),
    "the document's wording": (59.7, 98.9),
    "dates asked for, too": (37.7, 74.6),
    "dropout 0.1": (28.0, 34.2),
    "no cues": (18.3, 43.7),
    "span corruption, Muon": (9.0, 0.0),
    "span corruption, Muon, salient spans": (6.3, 13.0),
    "the same, loss on the spans alone": (5.7, 14.1),
    "AdamW": (4.3, 6.7),
    "span corruption, AdamW": (2.0, 0.0),
}
# "the course's recipe to the letter", "the recipe of 2023", "the course's objective with Muon": continued, recalled, dev, %.
RECALL = {
    "rotary, seed 42": (98.1, 79.7, 36.2),
    "rotary, seed 43": (98.7, 68.9, 32.2),
    "learned, seed 42": (96.8, 83.1, 20.6),
    "learned, seed 43": (96.3, 76.0, 22.0),
    "rotary, 120 epochs, Muon": (96.6, 19.5, 20.6),
    "strided, 64 latents": (74.4, 9.8, 12.6),
    "perceiver, 64 latents": (67.9, 1.5, 6.4),
    "perceiver, course_2023": (54.4, 1.2, 8.0),
}
# "trained at 128 characters, read at 1,024": nats per character within each pair of BOUNDS.
BOUNDS = ((1, 64), (65, 128), (129, 256), (257, 512), (513, 1023))
LENGTH = {
    "rotary": (0.519, 0.344, 2.633, 6.018, 7.272),
    "sinusoidal": (0.524, 0.313, 6.227, 6.131, 5.897),
    "none": (0.556, 0.362, 0.933, 3.267, 4.462),
    "relative_bias": (0.535, 0.318, 0.680, 2.523, 3.687),
    "alibi": (0.519, 0.307, 0.319, 0.346, 0.353),
    "learned": (0.526, 0.321),
    "concatenated": (0.520, 0.298),
}
SCALED = {
    "rotary": LENGTH["rotary"],
    "linear": (4.910, 5.873, 5.917, 5.954, 5.969),
    "dynamic": (1.156, 1.638, 1.868, 2.096, 3.504),
    "llama3": (0.791, 1.589, 2.583, 2.883, 3.083),
    "yarn": (0.904, 1.335, 1.664, 1.824, 1.883),
    "alibi": LENGTH["alibi"],
}
# "Memory and speed by corpus size": characters per second of reading and of training, MiB.
CORPUS_SIZE = {
    3_000: (3_107_070, 9_617, 1_797),
    30_000: (3_916_247, 7_677, 1_671),
    300_000: (3_472_300, 10_097, 1_999),
    1_000_000: (3_179_622, 9_270, 2_394),
}
# docs/scaling.md, "What a step costs": µs per character, and the fits' factor and exponent.
SCALING = {
    "parameters": ({858_880: 308, 3_290_624: 589, 25_482_240: 2_279, 125_190_208: 10_287}, 0.0182, 0.70),
    "length of the rows": ({128: 590, 256: 643, 512: 814, 1_024: 1_840}, 39.1, 0.53),
}


def draw_hero() -> Any:
    figure, axes = make_figure(9, 3.4)
    shares, colors = zip(*HERO.values(), strict=True)
    bars = axes.barh(list(HERO), shares, 0.72, color=colors)
    axes.bar_label(bars, [f"{share:.1f} %" for share in shares], padding=5, fontsize=13, fontweight="bold")
    axes.invert_yaxis()
    axes.tick_params("y", length=0, labelsize=12)
    axes.set(xlim=(0, 104), xlabel=f"share of {QUESTIONS} questions answered to the letter, %")
    figure.suptitle("The recipe windows answers 90 %, the course's recipe 21 to 34 %", fontsize=15, fontweight="bold")
    return figure


def draw_windows() -> Any:
    figure, axes = make_figure(9, 4.9)
    figure.set_layout_engine("none")
    axes.set(position=(0, 0, 1, 1), xlim=(0, 1), ylim=(0, 1))
    axes.axis("off")
    # A character of the monospaced font is then 12 pixels wide.
    size, width, grey = 10.25, 12 / (9 * DPI), "#444444"

    def write(x: float, y: float, text: str, color: str = "black", mark: str | None = None) -> float:
        """Write a text, and return where it ends."""
        # matplotlib leaves out the spaces before a text.
        spaces = len(text) - len(text.lstrip())
        axes.text(x + spaces * width, y - 0.012, text.lstrip(), color=color, fontsize=size, family="monospace")
        if mark:
            axes.barh(y, len(text) * width, 0.055, x, color=mark)
        return x + len(text) * width

    def explain(y: float, title: str, text: str) -> None:
        axes.text(0.02, y, title, fontsize=13, fontweight="bold", va="center")
        axes.text(0.02, y - 0.057, text, fontsize=10.5, color=grey, va="center")

    marks = {"Athens": "#f6d4bd", "San Francisco": "#bcd3f8"}
    explain(0.94, "1. A biography", "Names are found in it, the first four at most; each of them is asked for.")
    x = write(0.04, 0.8, f"{NAME}. ")
    for part in DOCUMENT.replace("}", "{").split("{"):
        x = write(x, 0.8, part, mark=marks.get(part))

    text = "The person, then windows: some words before a name (its cue, drawn anew in each epoch) and the name."
    explain(0.69, "2. What the model reads: a row of windows", text)
    start = write(0.04, 0.55, f"Where was {NAME}")
    for i, (cue, answer) in enumerate(WINDOWS):
        x = write(start, 0.55 - 0.075 * i, cue, color=grey)
        write(x, 0.55 - 0.075 * i, answer, mark=marks[answer.strip("⁇")])
    axes.plot([start, start], [0.3, 0.515], color=GREY, lw=1)
    text = "One row of text, broken\nhere into lines. ⁇ opens\nand closes a name. Loss\non what is marked alone."
    axes.text(0.04, 0.405, text, fontsize=10.5, color=grey, va="center")

    text = "The model has read no question about this person. The question is one more cue; the place is to follow."
    explain(0.205, "3. The question, later", text)
    x = write(0.04, 0.065, f"Where was {NAME}")
    x = write(x, 0.065, " born?⁇", color=grey)
    write(x, 0.065, "San Francisco⁇", mark=marks["San Francisco"])
    return figure


def draw_positions(name: str) -> Any:
    message, rows = POSITIONS[name]
    figure, axes = make_figure(9, 3.8)
    shares = {row: [number / QUESTIONS for number in correct] for row, correct in rows.items()}
    means = {row: Proportion(round(sum(correct) / len(correct)), QUESTIONS) for row, correct in rows.items()}
    draw_seeds(axes, {row: (shares[row], means[row].interval) for row in rows})
    axes.set(xlim=(78, 95), xlabel="dev answered, %; dots: seeds, line: mean, band: 95 % interval over people")
    figure.suptitle(message, fontweight="bold")
    return figure


def draw_factorial() -> Any:
    figure, axes = make_figure(9, 3.9)
    for i, (name, (rate, mean, shares)) in enumerate(FACTORIAL.items()):
        color = BLUE if "Muon" in name else GREY
        axes.plot(shares, [i] * len(shares), "o", color=color, markersize=7, alpha=0.8)
        label = f"{mean:.1f} with the rate {rate}"
        axes.annotate(label, (max(shares), i), (9, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(FACTORIAL)), list(FACTORIAL))
    axes.invert_yaxis()
    axes.set(xlim=(0, 112), xlabel="of 300 people whose questions were held out, answered, %; dots: trainings")
    axes.grid(axis="x", alpha=0.3)
    figure.suptitle("Windows, Muon and no dropout: at this length, each is needed", fontweight="bold")
    return figure


def draw_knowledge() -> Any:
    figure, axes = make_figure(9, 7.4)
    near = sum(answered > 79 for answered, _ in KNOWLEDGE.values())
    axes.axhspan(-0.5, near - 0.5, color=LIGHT_BLUE, alpha=0.4, lw=0)
    axes.text(1, near - 0.62, "one seed each: these can hardly be told apart", va="bottom", color="#444444")
    for i, (name, (answered, recalled)) in enumerate(KNOWLEDGE.items()):
        axes.plot([answered, recalled], [i, i], color=GREY, lw=1.5, zorder=1)
        axes.plot(recalled, i, "o", color=GREY, markersize=7)
        axes.plot(answered, i, "o", color=BLUE, markersize=8)
        # On the side where the other dot is not.
        side = -1 if recalled >= answered and answered > 10 else 1
        x = answered if side < 0 else max(answered, recalled)
        axes.annotate(
            f"{answered:.1f}", (x, i), (9 * side, 0), textcoords="offset points", va="center",
            ha="left" if side > 0 else "right", color=BLUE, fontweight="bold" if name == "the recipe windows" else None,
        )  # fmt: skip
    axes.set_yticks(range(len(KNOWLEDGE)), list(KNOWLEDGE))
    axes.set(xlim=(-2, 102), ylim=(len(KNOWLEDGE) - 0.5, -0.5), xlabel="% of the held-out people")
    axes.grid(axis="x", alpha=0.3)
    for color, label in ((BLUE, "answered when asked"), (GREY, "recalled in the words that were read")):
        axes.plot([], [], "o", color=color, label=label)
    axes.legend(loc="lower right", frameon=True)
    title = "The recipe windows with one change: wording, cues, dropout,\nobjective and optimizer matter; the rest hardly does"
    figure.suptitle(title, fontweight="bold")
    return figure


def draw_course_recall() -> Any:
    figure, axes = make_figure(9, 4)
    for i, (continued, recalled, dev) in enumerate(RECALL.values()):
        axes.plot([min(recalled, dev), continued], [i, i], color=GREY, lw=1.5, zorder=1)
        axes.plot(continued, i, "s", color=GREY, markersize=8)
        axes.plot(recalled, i, "o", color=ORANGE, markersize=8)
        axes.plot(dev, i, "o", color=BLUE, markersize=8)
        axes.annotate(f"{dev:.1f}", (dev, i), (0, 8), textcoords="offset points", ha="center", color=BLUE)
    axes.set_yticks(range(len(RECALL)), list(RECALL))
    axes.set(xlim=(-2, 102), ylim=(len(RECALL) - 0.5, -0.7), xlabel="%")
    axes.grid(axis="x", alpha=0.3)
    labels = (
        "the document's beginning continued with the place",
        "the place recalled where it is masked",
        "dev answered",
    )
    for shape, color, label in zip("soo", (GREY, ORANGE, BLUE), labels, strict=True):
        axes.plot([], [], shape, color=color, label=label)
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    title = "With the course's objective, a model memorizes far more places than it answers"
    figure.suptitle(title, fontweight="bold")
    return figure


def draw_length() -> Any:
    figure, panels = make_figure(9, 4.3, columns=2)
    titles = ("Beyond the training length, only ALiBi holds", "Rotary scalings help beyond it and cost within it")
    for axes, title, curves in zip(panels, titles, (LENGTH, SCALED), strict=True):
        for number, (name, losses) in enumerate(curves.items()):
            color = {"rotary": ORANGE, "alibi": BLUE}.get(name, f"C{number + 2}")
            # Each loss is the mean of a range: a step, up to where the next one begins.
            edges = [low for low, _ in BOUNDS[: len(losses)]] + [BOUNDS[len(losses) - 1][1]]
            axes.stairs(losses, edges, baseline=None, color=color, lw=2)
            if len(losses) == len(BOUNDS):
                offset = {"rotary": 5, "linear": -4, "sinusoidal": -4, "dynamic": 4, "llama3": -3}.get(name, 0)
                axes.annotate(
                    name, (1023, losses[-1]), (4, offset), textcoords="offset points", va="center", color=color
                )
        axes.axvline(128, color="black", lw=0.8, ls=":")
        axes.set(xlabel="position", xscale="log", yscale="log", xlim=(16, 1023), ylim=(0.25, 9))
        axes.set(xticks=[16, 32, 64, 128, 256, 512, 1023], yticks=[0.25, 0.5, 1, 2, 4, 8])
        axes.minorticks_off()
        axes.set_title(title, fontsize=10.5, fontweight="bold")
    panels[0].annotate(
        "learned and concatenated end here", (128, 0.27), (4, 0), textcoords="offset points", fontsize=9
    )
    panels[0].set_ylabel("loss (nats per character)")
    return figure


def draw_corpus_size() -> Any:
    figure, (speed, memory) = make_figure(9, 3.4, columns=2)
    reading, training, mebibytes = zip(*CORPUS_SIZE.values(), strict=True)
    for name, values, color in (("reading alone", reading, GREY), ("training", training, BLUE)):
        speed.plot(list(CORPUS_SIZE), values, "o-", color=color)
        speed.annotate(name, (30_000, values[1]), (0, -16), textcoords="offset points", color=color)
    speed.set(yscale="log", ylabel="characters per second", ylim=(2e3, 1e7))
    speed.set_yticks([1e4, 1e5, 1e6], ["10,000", "100,000", "1,000,000"])
    speed.set_title("Training is as fast on a million documents", fontsize=11, fontweight="bold")
    memory.plot(list(CORPUS_SIZE), [value / 1024 for value in mebibytes], "o-", color=BLUE)
    memory.set(ylabel="peak memory (GiB)", ylim=(0, 2.6))
    memory.set_title("333 times the documents: 0.6 GiB more", fontsize=11, fontweight="bold")
    for axes in (speed, memory):
        axes.set(xscale="log", xlabel="documents")
        axes.set_xticks(list(CORPUS_SIZE), ["3,000", "30,000", "300,000", "1 M"])
        axes.minorticks_off()
    return figure


def draw_scaling() -> Any:
    figure, panels = make_figure(9, 3.6, columns=2)
    titles = ("146 times the parameters: 33 times the time", "8 times the length: 3.1 times the time")
    for axes, title, (name, (measured, factor, exponent)) in zip(panels, titles, SCALING.items(), strict=True):
        sizes = list(measured)
        label = f"fitted, exponent {exponent:.2f}"
        axes.plot(sizes, [factor * size**exponent for size in sizes], color=GREY, label=label)
        axes.plot(sizes, list(measured.values()), "o", color=BLUE, label="measured")
        axes.set(xscale="log", yscale="log", xlabel=name, ylabel="µs of CPU time per character")
        axes.set_xticks(sizes, [f"{size / 1e6:.1f} M" if size > 10_000 else f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.legend(loc="upper left")
        axes.set_title(title, fontsize=11, fontweight="bold")
    panels[1].set_yticks([500, 1000, 2000])
    return figure


def draw_attention_maps() -> Any:
    """Draw two heads of the model that `posgpt quickstart` has left in runs/quickstart."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = FOLDER.parent / "runs" / "quickstart"
    model = AutoModelForCausalLM.from_pretrained(folder / "pretrain", attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder / "pretrain")
    question = (folder / "world" / "birth_dev.tsv").read_text(encoding="utf-8").split("\t")[0]
    name = question.removeprefix("Where was ").removesuffix(" born?")
    text, start = f"{question}⁇", question.index(name)
    with torch.inference_mode():
        attentions = model(**tokenizer(text, return_tensors="pt"), output_attentions=True).attentions
    # (layers, heads, characters, characters)
    weights = torch.stack(attentions)[:, 0].numpy()
    on_name = weights[:, :, -1, start : start + len(name)].sum(-1)
    figure, panels = make_figure(9, 5, columns=2)
    for axes, place in zip(panels, (on_name[0].argmin(), on_name.argmax()), strict=True):
        layer, head = divmod(int(place), weights.shape[1])
        axes.imshow(weights[layer, head], cmap="Blues", vmin=0, vmax=0.5)
        axes.add_patch(Rectangle((start - 0.5, len(text) - 1.5), len(name), 1, fill=False, color=ORANGE, lw=1.5))
        for ticks in (axes.set_xticks, axes.set_yticks):
            ticks(range(len(text)), text, family="monospace", fontsize=8)
        share = f"{100 * on_name[layer, head]:.0f} % of ⁇’s attention is on the name"
        axes.set_title(f"Layer {layer + 1}, head {head + 1}: {share}", fontsize=10.5)
    figure.suptitle("Asked, some heads look everywhere and others at the name", fontweight="bold")
    return figure


PICTURES: dict[str, Callable[[], Any]] = {
    "hero": draw_hero,
    "windows": draw_windows,
    **{name: (lambda name=name: draw_positions(name)) for name in POSITIONS},
    "factorial": draw_factorial,
    "knowledge": draw_knowledge,
    "course_recall": draw_course_recall,
    "length": draw_length,
    "corpus_size": draw_corpus_size,
    "scaling": draw_scaling,
    "attention_maps": draw_attention_maps,
}


if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        if name not in PICTURES:
            raise SystemExit(f"error: unknown picture {name!r}; choose from {', '.join(PICTURES)}.")
        figure = PICTURES[name]()
        if name != "windows":
            # On a dark page, a picture is a white card.
            figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
        save_picture(figure, FOLDER / f"{name}.png", dpi=DPI)
