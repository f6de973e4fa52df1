"""Draw the documentation's pictures from its figures: `python docs/draw.py`, or the names of some, such as `hero windows`."""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from make_tables import average, read

from posgpt.evaluation.scoring import Proportion
from posgpt.plots import BLUE, GREY, LIGHT_BLUE, ORANGE, draw_seeds, make_figure, save_picture
from posgpt.positions.report import draw_heat_maps, group_runs
from posgpt.positions.tasks import TASKS

FOLDER = Path(__file__).parent
DPI = 140
# The rest of a row of `posgpt preview windows --epoch 1` on the world of `posgpt world --num_people 100`.
DOCUMENT = "Trained in {Athens}, the watchmaker Malholm was born in {San Francisco} in 1900 ."
NAME = "Verette Malholm"
WINDOWS = (
    (" the watchmaker was born in?", "San Francisco"),
    (" in?", "Athens"),
    (" trained in?", "Athens"),
    (" was born?", "San Francisco"),
)
# Labels of the knowledge study, and how its rows begin.
KNOWLEDGE = {
    "the recipe windows": "the recipe `windows`, 1,650",
    "span corruption, AdamW": "span corruption as in the course",
    "span corruption, Muon": "the same with Muon",
    "span corruption, Muon, salient spans": "also 70 %",
    "the same, loss on the spans alone": "also loss",
    "the document's wording": "windows in the document's wording",
    "cues as the document says them": "cues as the document",
    "cues may drop the name before a span": "cues may drop",
    "all names of a document": "all names",
    "the first two names of a document": "its first two",
    "cues keep all their words": "cues keep all",
    "cues of at most one word": "cues of at most",
    "no cues": "no cues",
    "dates asked for, too": "dates asked",
    "questions in 10 % of the rows": "questions in 10 %",
    "questions in all rows": "questions in all",
    "AdamW": "AdamW",
    "half the learning rate": "learning rate 1e-3",
    "twice the learning rate": "learning rate 4e-3",
    "constant rate, then linear decay": "constant rate",
    "batches of 16": "batch size 16, 3,300",
    "dropout 0.1": "dropout 0.1",
}


# What a scale and the marks on it are.
DOTS = "dev answered, %; dots: seeds, line: mean, band: 95 % interval over people"
# What makes each picture, by its name.
PICTURES: dict[str, Callable[[], Any]] = {}


def picture(message: str, width: float, height: float, columns: int = 1, **style: Any) -> Callable[[Any], Any]:
    """Add a picture, by the name of the function that draws it on axes, below its message, which may be empty."""

    def add(draw: Callable[[Any], None]) -> Callable[[Any], None]:
        def make() -> Any:
            figure, axes = make_figure(width, height, columns=columns)
            if message:
                figure.suptitle(message, fontweight="bold", **style)
            draw(axes)
            return figure

        PICTURES[draw.__name__.removeprefix("draw_")] = make
        return draw

    return add


def read_rows(pattern: str) -> list[dict[str, Any]]:
    """Return the rows of the measurements in docs/results whose names match."""
    names = sorted(path.stem for path in (FOLDER / "results").glob(f"{pattern}.yaml"))
    if not names:
        raise SystemExit(f"error: there is no docs/results/{pattern}.yaml to draw from.")
    return [row for name in names for row in read(name)["rows"]]


@picture("The recipe windows answers 90 % correctly, the course's recipe 21 to 34 %", 9, 3.4, fontsize=15)
def draw_hero(axes: Any) -> None:
    measured = read_rows("2*")
    shares = {"London for everyone": (average([row for row in measured if row.get("pool") == "london"]), GREY)}
    for pool, recipe, color in (("course", "the course's recipe", ORANGE), ("windows", "the recipe windows", BLUE)):
        for positions in ("learned", "rotary"):
            rows = [row for row in measured if (row.get("pool"), row.get("positions")) == (pool, positions)]
            shares[f"{recipe}, {positions} positions"] = average(rows), color
    lengths, colors = zip(*shares.values(), strict=True)
    bars = axes.barh(list(shares), lengths, 0.72, color=colors)
    axes.bar_label(bars, [f"{length:.1f} %" for length in lengths], padding=5, fontsize=13, fontweight="bold")
    axes.invert_yaxis()
    axes.tick_params("y", length=0, labelsize=12)
    axes.set(xlim=(0, 112), xlabel="exact match on 500 questions, %; windows: short fill-in questions")
    axes.set_xticks(range(0, 101, 20))


@picture("", 9, 4.9)
def draw_windows(axes: Any) -> None:
    axes.figure.set_layout_engine("none")
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

    def ask(x: float, y: float, cue: str, answer: str) -> None:
        x = write(write(x, y, cue, color=grey), y, "⁇", color="#c02020")
        write(x, y, f"{answer}⁇", mark=marks[answer])

    marks = {"Athens": "#f6d4bd", "San Francisco": "#bcd3f8"}
    explain(0.94, "1. A biography", "Names are found in it, the first four at most; each of them is asked for.")
    x = write(0.04, 0.8, f"{NAME}. ")
    for part in DOCUMENT.replace("}", "{").split("{"):
        x = write(x, 0.8, part, mark=marks.get(part))

    text = "The person, then windows: some words before a name (its cue, drawn anew in each epoch) and the name."
    explain(0.69, "2. What the model reads: a row of windows", text)
    start = write(0.04, 0.55, f"Where was {NAME}")
    for i, (cue, answer) in enumerate(WINDOWS):
        ask(start, 0.55 - 0.075 * i, cue, answer)
    axes.plot([start, start], [0.3, 0.515], color=GREY, lw=1)
    text = "One row of text, broken\nhere into lines. ⁇ opens\nand closes a name. Loss\non what is marked alone."
    axes.text(0.04, 0.405, text, fontsize=10.5, color=grey, va="center")

    text = "The model has read no question about this person. The question is one more cue; the place is to follow."
    explain(0.205, "3. The question, later", text)
    ask(write(0.04, 0.065, f"Where was {NAME}"), 0.065, " born?", "San Francisco")


def draw_rows(axes: Any, file: str, column: str, ends: tuple[int, int], label: str = DOTS) -> None:
    """Draw the seeds of each of a file's rows, which a column names, between the ends of a scale in percent."""
    rows = {}
    for row in (row for row in read_rows(file) if not row.get("detail")):
        of, correct = row["of"], row["correct"]
        mean = Proportion(sum(correct), of * len(correct), of)
        # People of whom several facts are asked have counted once in the file.
        interval = [end / 100 for end in row["interval"]] if "interval" in row else mean.interval
        rows[row[column]] = [count / of for count in correct], interval
    draw_seeds(axes, rows)
    axes.set(xlim=ends, xlabel=label)


@picture("After the whole recipe, every position embedding answers about 90 %", 9, 3.8)
def draw_positions_whole(axes: Any) -> None:
    draw_rows(axes, "2026-11-26-positions-whole", "positions", (78, 95))


@picture("After a third of the training steps, ALiBi is five points ahead of no positions", 9, 3.8)
def draw_positions(axes: Any) -> None:
    draw_rows(axes, "2026-11-21-positions-third", "positions", (78, 95))


@picture("Next character: with KERPLE and ALiBi, questions reach three quarters of the facts", 9, 3.8)
def draw_next_character(axes: Any) -> None:
    draw_rows(axes, "2026-11-29-next-character", "positions", (0, 100))


@picture("Next character: questions with the name first, as in documents, are answered more often", 9, 3.8)
def draw_name_first(axes: Any) -> None:
    draw_rows(axes, "2026-11-30-name-first", "what", (0, 102))


@picture("Comparing two people needs positions, and many comparisons of each person in training", 9, 3.8)
def draw_comparison(axes: Any) -> None:
    draw_rows(axes, "2026-11-30-comparison", "what", (0, 100))


@picture("When was the teacher of X born? Naming the teacher first finds the year", 11, 2.8, columns=2)
def draw_steps(panels: Any) -> None:
    titles = {"-steps": "400 people may teach", "-80-teachers": "80 people teach, all in training"}
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        draw_rows(axes, f"2026-11-28-two-hop{name}", "what", (-4, 112), "answered, %")
        axes.set_title(title, fontsize=11, fontweight="bold")
    panels[1].set_yticklabels([])


@picture("Thirteen encodings learn facts about equally fast; FoX takes half as long again", 8, 5.6)
def draw_learning(axes: Any) -> None:
    rows = read_rows("2026-11-29-learning")
    for i, row in enumerate(rows):
        steps = row["figures"]["steps until half is answered"]
        ends = [each for each in steps if isinstance(each, str)]
        reached = [each for each in steps if each not in ends]
        color = ORANGE if row["what"] == "none" else BLUE
        axes.plot(reached, [i] * len(reached), "o", color=color, markersize=7, alpha=0.7)
        # Of these, only a lower bound is known.
        axes.plot([int(each.split()[-1]) for each in ends], [i] * len(ends), ">", color=color, markersize=8)
        if reached and not ends:
            axes.vlines(sum(reached) / len(reached), i - 0.3, i + 0.3, color="black", lw=2)
    axes.set_yticks(range(len(rows)), [row["what"] for row in rows])
    axes.invert_yaxis()
    axes.set(
        xlabel="training steps until half of the facts are answered; dots: seeds, line: mean, triangle: not reached"
    )
    axes.grid(axis="x", alpha=0.3)


@picture("Next character: the later a document tells a fact, the fewer questions reach it", 8, 4)
def draw_late(axes: Any) -> None:
    rows = read_rows("2026-11-30-late")
    by_positions = defaultdict(list)
    for row in rows:
        if row["what"].startswith("sentence"):
            by_positions[row["positions"]].append(row)
    for number, (positions, own) in enumerate(by_positions.items()):
        color, sentences = f"C{number}", [int(row["what"].split()[-1]) for row in own]
        means = [average([row]) for row in own]
        axes.plot(sentences, means, "-", color=color, lw=2)
        for sentence, row in zip(sentences, own, strict=True):
            # Beside each other, so that encodings can be told apart.
            x = sentence + 0.04 * (number - (len(by_positions) - 1) / 2)
            shares = [100 * correct / row["of"] for correct in row["correct"]]
            axes.plot([x] * len(shares), shares, "o", color=color, alpha=0.5)
        axes.annotate(positions, (4.1, means[-1]), va="center", color=color)
    axes.set_xticks(range(1, 5), ["first", "second", "third", "fourth"])
    axes.set(xlim=(0.8, 4.7), xlabel="sentence of the documents that tells the fact")
    axes.set(ylim=(0, 102), ylabel="answered, %; dots: worlds")
    axes.grid(axis="y", alpha=0.3)


@picture("Small models that read questions 100 times: rotary positions lead, not ALiBi", 9, 2.6)
def draw_capacity(axes: Any) -> None:
    draw_rows(axes, "2026-11-30-capacity-positions", "positions", (0, 100), "training questions answered, %")


@picture("What documents say most often is answered, and confidence is near its share", 8, 4)
def draw_contradictions(axes: Any) -> None:
    rows = [row for row in read_rows("2026-11-30-contradictions") if row["what"][0].isdigit()]
    numbers = [int(row["what"][0]) for row in rows]
    confidence = [row["figures"]["mean confidence of correct answers (%)"] for row in rows]
    answered, ends = [average([row]) for row in rows], [row["interval"] for row in rows]
    axes.fill_between(numbers, *zip(*ends, strict=True), color=BLUE, alpha=0.15, lw=0)
    axes.plot(numbers, answered, "o-", color=BLUE, lw=2)
    axes.plot(numbers, confidence, "o-", color=ORANGE, lw=2)
    axes.plot(numbers, [20 * number for number in numbers], "--", color=GREY)
    axes.annotate("answered, band: 95 % interval", (2.6, 92), ha="right", color=BLUE)
    axes.annotate("confidence of correct answers", (3.2, 52), color=ORANGE)
    axes.annotate("share of the documents", (1.6, 27), color=GREY)
    axes.set_xticks(numbers)
    axes.set(xlabel="of five documents, those that tell the correct answer", ylim=(0, 104), ylabel="%")
    axes.grid(axis="y", alpha=0.3)


@picture("One fact corrected: a low rate changes fewer other answers than a seed does", 9, 2.9)
def draw_corrections(axes: Any) -> None:
    changed = {row["what"]: row["figures"]["others changed"] for row in read_rows("2026-11-30-corrections")}
    names = [name.partition(" (")[0].replace(": ", "\n") for name in changed]
    means = [sum(values) / len(values) for values in changed.values()]
    bars = axes.barh(names, means, 0.6, color=[GREY if "seed" in name else LIGHT_BLUE for name in names])
    for name, values in zip(names, changed.values(), strict=True):
        axes.plot(values, [name] * len(values), "o", color=BLUE, markersize=5)
    axes.bar_label(bars, [f"{mean:.1f}" for mean in means], padding=24)
    axes.invert_yaxis()
    axes.set(
        xlim=(0, 134), xlabel="answers that change, of 134 about others or, between seeds, of all 136 (dots: seeds)"
    )


@picture("More questions are answered where names are represented as in documents", 7.5, 4.8)
def draw_titles(axes: Any) -> None:
    rows = read_rows("2026-11-30-titles")
    colors = {row["positions"]: f"C{number}" for number, row in enumerate(rows)}
    named_first = [row for row in read_rows("2026-11-30-name-first") if row["what"].endswith("the name first")]
    for row in [*rows, *named_first]:
        matched = row["figures"]["names that match after the last layer (%)"]
        answered = [100 * correct / row["of"] for correct in row["correct"]]
        color, is_first = colors[row["positions"]], row in named_first
        marks: dict[str, Any] = {"marker": "^" if is_first else "o", "label": "" if is_first else row["positions"]}
        axes.plot(matched, answered, ls="", color=color, markersize=8, alpha=0.8, **marks)
    axes.plot([], [], "^", color=GREY, label="the name first")
    axes.set(xlim=(0, 102), xlabel="names whose state in the question is closest to that in their own document, %")
    axes.set(ylim=(0, 102), ylabel="questions answered, %")
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))


@picture("Windows, Muon and no dropout: at this length, each is needed", 9, 3.9)
def draw_factorial(axes: Any) -> None:
    groups = defaultdict(list)
    for row in read_rows("2026-11-26-factorial"):
        settings = row["settings"]
        dropout = f"dropout {settings['dropout']}" if settings["dropout"] else "no dropout"
        groups[f"{row['what'].strip('`')}, {settings['optimizer']}, {dropout}"].append(row)
    for i, (name, rows) in enumerate(groups.items()):
        shares = [100 * correct / row["of"] for row in rows for correct in row["correct"]]
        # Two seeds have been trained with the best learning rate alone.
        (best,) = (row for row in rows if len(row["correct"]) > 1)
        label = f"{average([best]):.1f} (rate {best['settings']['learning rate']})"
        axes.plot(shares, [i] * len(shares), "o", color=BLUE if "Muon" in name else GREY, markersize=7, alpha=0.8)
        axes.annotate(label, (max(shares), i), (9, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(groups)), list(groups))
    axes.invert_yaxis()
    axes.set(xlim=(0, 112), xlabel="answered, % of 300 held-out people; dots: all runs; number: the best rate's mean")
    axes.set_xticks(range(0, 101, 20))
    axes.grid(axis="x", alpha=0.3)


@picture(
    "The recipe windows with one change: wording, cues, dropout,\n"
    "objective and optimizer matter; the rest hardly does",
    9,
    7.4,
)
def draw_knowledge(axes: Any) -> None:
    measured, points = read_rows("2026-11-21-knowledge-study"), {}
    for label, beginning in KNOWLEDGE.items():
        row = next(row for row in measured if row["what"].startswith(beginning))
        points[label] = average([row]), row["figures"]["recalled (%)"]
    points = dict(sorted(points.items(), key=lambda item: -item[1][0]))
    near = sum(answered > 79 for answered, _ in points.values())
    axes.axhspan(-0.5, near - 0.5, color=LIGHT_BLUE, alpha=0.4, lw=0)
    axes.text(1, near - 0.62, "one seed each: these can hardly be told apart", va="bottom", color="#444444")
    for i, (name, (answered, recalled)) in enumerate(points.items()):
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
    axes.set_yticks(range(len(points)), list(points))
    axes.set(xlim=(-2, 102), ylim=(len(points) - 0.5, -0.5), xlabel="% of the held-out people")
    axes.grid(axis="x", alpha=0.3)
    for color, label in ((BLUE, "answered when asked"), (GREY, "recalled in the words that were read")):
        axes.plot([], [], "o", color=color, label=label)
    axes.legend(loc="lower right", frameon=True)


@picture("With the course's objective, a model memorizes far more places than it answers", 9, 4)
def draw_course_recall(axes: Any) -> None:
    # Without those that failed on a GPU.
    rows = [row for row in read_rows("*-course-*") if "beginning continued (%)" in row.get("figures", {})]
    rows = sorted((row for row in rows if any(row["correct"])), key=lambda row: -average([row]))
    shapes = {
        "beginning continued (%)": ("s", GREY, "the document's beginning continued with the place"),
        "recalled where masked (%)": ("o", ORANGE, "the place recalled where it is masked"),
    }
    labels = []
    for i, row in enumerate(rows):
        what = row["what"].replace("`", "").removeprefix("recipe ").removesuffix(", without cuDNN's attention")
        labels.append(f"{what}, {row['positions']}, seed {row['seeds'][0]}")
        points = [row["figures"][name] for name in shapes]
        ends = [min(average([row]), *points), max(points)]
        axes.plot(ends, [i, i], color=GREY, lw=1.5, zorder=1)
        for share, (shape, color, label) in zip(points, shapes.values(), strict=True):
            axes.plot(share, i, shape, color=color, markersize=8, label=label if i == 0 else None)
        axes.plot(average([row]), i, "o", color=BLUE, markersize=8, label="dev answered" if i == 0 else None)
        axes.annotate(
            f"{average([row]):.1f}", (average([row]), i), (0, 8), textcoords="offset points", ha="center", color=BLUE
        )
    axes.set_yticks(range(len(rows)), labels)
    axes.set(xlim=(-2, 102), ylim=(len(rows) - 0.5, -0.7), xlabel="%")
    axes.grid(axis="x", alpha=0.3)
    axes.figure.legend(loc="outside lower center", ncols=3, fontsize="small")


@picture("", 9, 4.3, columns=2)
def draw_length(panels: Any) -> None:
    plain, scaled = {}, {}
    edges = [1, 65, 129, 257, 513, 1023]
    for row in [*read_rows("2026-11-21-length"), *read_rows("2026-11-30-length")]:
        losses = [loss for loss in row["figures"].values() if loss != "ends"]
        if "scaling `" in row["what"]:
            scaled[row["what"].split("`")[1]] = losses
        else:
            plain[row["positions"]] = losses
    scaled |= {name: plain[name] for name in ("rotary", "alibi")}
    # How far above a curve's end its name stands, so that none is on another.
    up = {"rotary": 5, "kerple": 3, "relative_bias": 5, "dynamic": 4}
    up |= {"t5": -4, "linear": -4, "sinusoidal": -4, "llama3": -3}
    titles = ("Beyond the training length, ALiBi and KERPLE hold", "Rotary scalings help beyond it and cost within it")
    for axes, title, curves in zip(panels, titles, (plain, scaled), strict=True):
        for number, (name, losses) in enumerate(curves.items()):
            color = {"rotary": ORANGE, "alibi": BLUE}.get(name, f"C{number + 2}")
            # Each loss is the mean of a range: a step, up to where the next one begins.
            axes.stairs(losses, edges[: len(losses) + 1], baseline=None, color=color, lw=2)
            if len(losses) == len(edges) - 1:
                above = 4, up.get(name, 0)
                axes.annotate(name, (1023, losses[-1]), above, textcoords="offset points", va="center", color=color)
        axes.axvline(128, color="black", lw=0.8, ls=":")
        axes.set(xlabel="position", xscale="log", yscale="log", xlim=(16, 1023), ylim=(0.25, 9))
        axes.set(xticks=[16, 32, 64, 128, 256, 512, 1023], yticks=[0.25, 0.5, 1, 2, 4, 8])
        axes.minorticks_off()
        axes.set_title(title, fontsize=10.5, fontweight="bold")
    panels[0].annotate(
        "learned and concatenated end here", (128, 0.27), (4, 0), textcoords="offset points", fontsize=9
    )
    panels[0].set_ylabel("loss (nats per character)")


@picture("", 9, 3.4, columns=2)
def draw_corpus_size(panels: Any) -> None:
    speed, memory = panels
    measured = {row["what"].removesuffix(" documents"): row["figures"] for row in read_rows("2026-11-21-corpus-size")}
    sizes = [int(size.replace(",", "")) for size in measured]
    for name, color in (("reading alone", GREY), ("training", BLUE)):
        values = [figures[f"{name} (characters per second)"] for figures in measured.values()]
        speed.plot(sizes, values, "o-", color=color)
        speed.annotate(name, (sizes[1], values[1]), (0, -16), textcoords="offset points", color=color)
    speed.set(yscale="log", ylabel="characters per second", ylim=(2e3, 1e7))
    speed.set_yticks([1e4, 1e5, 1e6], ["10,000", "100,000", "1,000,000"])
    speed.set_title("Training is as fast on a million documents", fontsize=11, fontweight="bold")
    memory.plot(sizes, [figures["peak memory (MiB)"] / 1024 for figures in measured.values()], "o-", color=BLUE)
    memory.set(ylabel="peak memory (GiB)", ylim=(0, 2.6))
    memory.set_title("333 times the documents: 0.6 GiB more", fontsize=11, fontweight="bold")
    for axes in (speed, memory):
        axes.set(xscale="log", xlabel="documents")
        axes.set_xticks(sizes, [size.replace("1,000,000", "1 M") for size in measured])
        axes.minorticks_off()


def draw_tasks() -> Any:
    """The tasks on which all encodings of the table have a run."""
    records = [json.loads(line) for line in (FOLDER / "positions_table" / "runs.jsonl").read_text().splitlines()]
    cells = group_runs(TASKS, records)
    counts, complete = Counter(cell.name for cell in cells), len({cell.encoding for cell in cells})
    return draw_heat_maps([cell for cell in cells if counts[cell.name] == complete])


PICTURES["tasks"] = draw_tasks


if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        if name not in PICTURES:
            raise SystemExit(f"error: unknown picture {name!r}; choose from {', '.join(PICTURES)}.")
        figure = PICTURES[name]()
        if name != "windows":
            # On a dark page, a picture is a white card.
            figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
        save_picture(figure, FOLDER / f"{name}.png", dpi=DPI)
