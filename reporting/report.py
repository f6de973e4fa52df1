"""What a model knows and what it makes up: figures, a chart and a page that opens without a server."""

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from pathlib import Path

import jinja2
import numpy as np
from scipy.special import softmax

from data_scripts.birthplaces import QUESTION_END, QUESTION_START, load_birthplaces, name_in
from data_scripts.synthetic_world import fictional_names
from data_scripts.text_files import BadInput, save_picture, written_whole
from modeling_posgpt import Answer
from reporting.confidence import (
    calibration,
    confidences,
    fit_temperature,
    risk_coverage,
    separation,
    threshold_for,
    wilson_interval,
)
from reporting.evidence import (
    GROUPS,
    Document,
    find_documents,
    folded,
    group_of,
    mentions,
    nearest_name_places,
    table_of_places,
)

UNKNOWN_ANSWER = "I don't know"
HELD_OUT, TAKEN_OUT, FICTIONAL = "held out", "people taken out of the corpus", "fictional people"
BEST = 5  # how many of the best places are shown for each question
COMMONEST = 5  # how many of the commonest training places a guess may fall on


@dataclass
class Asked:
    """Questions with a model's answers and how it scored every candidate.

    Args:
        places: The right answers, or None for people who do not exist.
        scores: (questions, candidates), log P of each candidate.
        chosen: (questions,) the index of the answer among the candidates.
    """

    questions: list[str]
    places: list[str] | None
    answers: list[str]
    scores: np.ndarray
    chosen: np.ndarray

    @property
    def right(self) -> np.ndarray:
        """(questions,) booleans."""
        return np.array([answer == place for answer, place in zip(self.answers, self.places, strict=True)])


def ask(
    model,
    tokenizer,
    groups: dict[str, tuple[list[str], list[str] | None]],
    answers: dict[str, list[Answer]],
    known_places: Sequence[str],
    batch_size: int,
    max_new_tokens: int,
) -> tuple[dict[str, Asked], list[str]]:
    """Ask several groups of questions, and score all known places and its own answer for each.

    Args:
        groups: Questions and right answers by the group's name.
        answers: The model's answers to the groups that have been asked already.

    Returns:
        The groups, asked, and the candidates: the known places, and what the model said besides.
    """
    answers = answers | {
        name: model.answer(questions, tokenizer, batch_size, max_new_tokens)
        for name, (questions, _) in groups.items()
        if name not in answers
    }
    invented = {answer.text for given in answers.values() for answer in given} - set(known_places)
    candidates = [*known_places, *sorted(invented)]
    number = {candidate: index for index, candidate in enumerate(candidates)}
    asked = {}
    for name, (questions, places) in groups.items():
        texts = [answer.text for answer in answers[name]]
        rows, chosen = np.arange(len(texts)), np.array([number[text] for text in texts])
        # What was said to others is no candidate; what was said is, known or not, cut off or next to impossible.
        scores = np.full((len(texts), len(candidates)), -np.inf)
        scores[:, : len(known_places)] = model.score_answers(questions, known_places, tokenizer)
        scores[rows, chosen] = np.log([max(answer.probability, 1e-30) for answer in answers[name]])
        asked[name] = Asked(questions, places, texts, scores, chosen)
    return asked, candidates


@dataclass
class Sureness:
    """How sure a model is of its answers, after temperature scaling, and below what it had better say nothing.

    Args:
        temperature: 1 when there was nothing to fit it on.
        abstain_below: The confidence below which the answer is `I don't know`; None: it always answers.
    """

    temperature: float = 1.0
    abstain_below: float | None = None


@dataclass
class Inquiry:
    """Whom a report asks about.

    Args:
        groups: Questions, and right answers or None, by the group's name.
        known: The place of each training name.
        documents: The people's documents by name; None: there is no corpus to look into.
    """

    groups: dict[str, tuple[list[str], list[str] | None]]
    known: dict[str, str]
    documents: dict[str, list[Document]] | None


def plan_inquiry(data, arguments) -> Inquiry:
    """Read all that a report needs before anybody is asked.

    Args:
        data: The test questions, with or without places.
        arguments: `EvaluationArguments`.

    Raises:
        BadInput: a file is not what it should be.
    """
    train = load_birthplaces(arguments.train_file, answers=True)
    known = {name_in(row["question"]): row["place"] for row in train}
    groups = {"test": (list(data["question"]), list(data["place"]) if "place" in data.column_names else None)}
    for kind, path in ((HELD_OUT, arguments.calibration_file), (TAKEN_OUT, arguments.unseen_file)):
        if path:
            pairs = load_birthplaces(path, answers=True)
            groups[kind] = (list(pairs["question"]), list(pairs["place"]))
    overlap = set(groups.get(HELD_OUT, ([],))[0]) & set(train["question"])
    if overlap:
        raise BadInput(
            f"{arguments.calibration_file}: {len(overlap)} of its questions are in {arguments.train_file} too, first"
            f" {sorted(overlap)[0]!r}; what was learnt by heart cannot calibrate. Hold pairs out with data_scripts/hold_out.py."
        )
    tested = {name_in(question) for question in data["question"]}
    names = {name_in(question) for questions, _ in groups.values() for question in questions} | set(known)
    documents = None
    if arguments.corpus_file:
        strangers = list(islice(fictional_names(), 2 * arguments.fictional_people))
        documents = find_documents(arguments.corpus_file, names | set(strangers))
        if tested.isdisjoint(documents):
            raise BadInput(
                f"{arguments.corpus_file}: has a document of nobody in {arguments.test_file}; give the corpus that the model"
                " has read, or leave --corpus_file out."
            )
        names |= set(documents)
    strangers = islice((name for name in fictional_names() if name not in names), arguments.fictional_people)
    questions = [f"{QUESTION_START}{name}{QUESTION_END}" for name in strangers]
    if questions:
        groups[FICTIONAL] = (questions, None)
    return Inquiry(groups, known, documents)


def make_report(model, tokenizer, inquiry: Inquiry, answers: list[Answer], arguments, metrics: dict) -> list[str]:
    """Ask, judge and write what `evaluate_birthplace.py --report` promises; complete `metrics`.

    Args:
        answers: The model's, to the test questions.
        arguments: `EvaluationArguments`.

    Returns:
        The answers, `I don't know` where the model is not sure enough.
    """
    known, documents = inquiry.known, inquiry.documents
    places = sorted(set(known.values()))
    batch_size, max_new_tokens = arguments.per_device_eval_batch_size, arguments.max_new_tokens
    asked, candidates = ask(model, tokenizer, inquiry.groups, {"test": answers}, places, batch_size, max_new_tokens)
    sureness = fit_sureness(asked.get(HELD_OUT), arguments.abstain_below, arguments.target_precision)
    rows = {kind: predictions_of(asked[kind], candidates, sureness, documents) for kind in asked if kind != HELD_OUT}
    test = rows.pop("test")
    facts = {
        "model": arguments.model_name_or_path,
        "position_embedding_type": model.config.position_embedding_type,
        "test_file": Path(arguments.test_file).name,
        "candidates": len(places),
    }
    metrics |= facts
    if asked["test"].places is not None:
        metrics |= figures_of(asked["test"], test, sureness, known, rows)
    write_report(Path(arguments.report), facts, metrics, test, rows)
    return [UNKNOWN_ANSWER if row["abstained"] else row["answer"] for row in test]


def fit_sureness(held_out: Asked | None, abstain_below: float | None, target_precision: float | None) -> Sureness:
    """Fit the temperature, and the threshold that gives a precision, on people held out from training."""
    if held_out is None:
        return Sureness(abstain_below=abstain_below)
    temperature = fit_temperature(held_out.scores, held_out.chosen, held_out.right)
    if target_precision is not None:
        confidence = confidences(held_out.scores, held_out.chosen, temperature)["probability"]
        threshold = threshold_for(target_precision, confidence, held_out.right)
        # Nothing is sure enough where even the surest answers fall short.
        abstain_below = 1.01 if threshold is None else threshold
    return Sureness(temperature, abstain_below)


def predictions_of(
    asked: Asked, candidates: Sequence[str], sureness: Sureness, documents: dict[str, list[Document]] | None
) -> list[dict]:
    """A dictionary for each question, as `predictions.jsonl` holds it: answer, confidence, best places, evidence."""
    sure = confidences(asked.scores, asked.chosen, sureness.temperature)
    every = softmax(asked.scores / sureness.temperature, axis=1)
    rows = []
    for index, question in enumerate(asked.questions):
        name, answer = name_in(question), asked.answers[index]
        best = np.argsort(-asked.scores[index], kind="stable")[:BEST]
        row = {
            "name": name,
            "question": question,
            "answer": answer,
            "confidence": float(sure["probability"][index]),
            "margin": float(sure["margin"][index]),
            "entropy": float(sure["entropy"][index]),
            "best": [[candidates[number], float(every[index, number])] for number in best],
        }
        row["abstained"] = sureness.abstain_below is not None and row["confidence"] < sureness.abstain_below
        if asked.places is not None:
            place = asked.places[index]
            row |= {"place": place, "right": answer == place, "right_leniently": folded(answer) == folded(place)}
        if documents is not None:
            own = documents.get(name, [])
            row["documents"] = [{"line": document.line, "text": document.text} for document in own]
            row["answer_in_document"] = any(mentions(document.text, answer) for document in own)
            if asked.places is not None:
                row["group"] = group_of(own, row["place"], row["right"])
        rows.append(row)
    return rows


def figures_of(
    test: Asked,
    rows: list[dict],
    sureness: Sureness,
    known: dict[str, str],
    unseen: dict[str, list[dict]],
) -> dict:
    """All figures of a report, as `metrics.json` holds them.

    Args:
        rows: From `predictions_of(test, …)`.
        known: The place of each training name.
        unseen: `predictions_of` people the model cannot know, by what they are.
    """
    right, total = test.right, len(rows)
    names = [row["name"] for row in rows]
    commonest = [place for place, _ in Counter(known.values()).most_common(COMMONEST)]
    baselines = {
        "London": ["London"] * total,
        f"{commonest[0]}, the most frequent training place": [commonest[0]] * total,
        "the place of the nearest training name": nearest_name_places(names, known),
    }
    raw = confidences(test.scores, test.chosen)["probability"]
    confidence, margin, entropy = (np.array([row[key] for row in rows]) for key in ("confidence", "margin", "entropy"))
    answered = np.array([not row["abstained"] for row in rows])
    figures = {
        "accuracy": float(right.mean()),
        "correct": int(right.sum()),
        "total": total,
        "accuracy_interval": wilson_interval(int(right.sum()), total),
        "lenient_accuracy": float(np.mean([row["right_leniently"] for row in rows])),
        "baselines": {
            name: float(np.mean([answer == place for answer, place in zip(answers, test.places, strict=True)]))
            for name, answers in baselines.items()
        },
        "places": table_of_places(test.places, test.answers),
        "temperature": sureness.temperature,
        "calibration": {
            "before": calibration(raw, right),
            "after": calibration(confidence, right),
        },
        "auroc": {
            "probability": separation(confidence, right),
            "margin": separation(margin, right),
            "entropy": separation(-entropy, right),
        },
        "selective": {
            **risk_coverage(confidence, right),
            "abstain_below": sureness.abstain_below,
            "answered": float(answered.mean()),
            "precision": float(right[answered].mean()) if answered.any() else None,
        },
        "groups": {},
        "unseen": {},
    }
    for group in GROUPS:
        of_group = [row for row in rows if row.get("group") == group]
        if of_group:
            figures["groups"][group] = {
                "count": len(of_group),
                "confidence": float(np.mean([row["confidence"] for row in of_group])),
                "answer_in_document": float(np.mean([row["answer_in_document"] for row in of_group])),
                "abstained": float(np.mean([row["abstained"] for row in of_group])),
            }
    seen = [row["confidence"] for row in rows if row.get("group") != "unseen name"]
    for kind, strangers in unseen.items():
        of_strangers = [row["confidence"] for row in strangers]
        figures["unseen"][kind] = {
            "count": len(strangers),
            "confidence": float(np.mean(of_strangers)),
            "share_on_commonest": float(np.mean([row["answer"] in commonest for row in strangers])),
            "commonest": commonest,
            "said_most": Counter(row["answer"] for row in strangers).most_common(COMMONEST),
            "abstained": float(np.mean([row["abstained"] for row in strangers])),
            "auroc": separation(
                np.array(seen + of_strangers), np.array([True] * len(seen) + [False] * len(strangers))
            ),
        }
        if "right" in strangers[0]:
            figures["unseen"][kind]["accuracy"] = float(np.mean([row["right"] for row in strangers]))
    return figures


def draw(figures: dict, rows: list[dict], unseen: dict[str, list[dict]]):
    """Return a figure: accuracies, reliability, risk and coverage, and confidence of what is known and what is not."""
    from matplotlib.figure import Figure

    blue, grey, orange = "#2f6fde", "#b0b7c3", "#e07b39"
    figure = Figure(figsize=(11, 7.6), layout="constrained")
    (bars, reliability), (selective, known) = figure.subplots(2, 2)

    accuracies = {"PosGPT": figures["accuracy"], **figures["baselines"]}
    names, values = list(accuracies)[::-1], [100 * accuracy for accuracy in accuracies.values()][::-1]
    labels = [textwrap.fill(name, 22) for name in names]
    drawn = bars.barh(labels, values, color=[blue if name == "PosGPT" else grey for name in names])
    low, high = (100 * value for value in figures["accuracy_interval"])
    bars.errorbar(
        [values[-1]], [len(names) - 1], xerr=[[values[-1] - low], [high - values[-1]]], color="black", capsize=3
    )
    bars.bar_label(drawn, fmt="%.1f %%", padding=16)
    bars.set(xlim=(0, 118), xlabel=f"accuracy on {figures['total']} people (%)", title="Right answers")

    reliability.plot([0, 1], [0, 1], color=grey, linestyle="--")
    scaled = [("as it is", "before", orange), (f"temperature {figures['temperature']:.2f}", "after", blue)]
    for label, key, colour in scaled if figures["temperature"] != 1 else scaled[:1]:
        bins = figures["calibration"][key]["bins"]
        label = f"{label}: ECE {figures['calibration'][key]['ece']:.3f}"
        points = [row["confidence"] for row in bins], [row["accuracy"] for row in bins]
        reliability.plot(*points, color=colour, label=label)
        sizes = [4 + 200 * row["count"] / figures["total"] for row in bins]
        reliability.scatter(*points, s=sizes, color=colour, clip_on=False)
    reliability.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="share right", title="Reliability")
    reliability.legend(frameon=False, loc="upper left", fontsize="small")

    coverage, risk = figures["selective"]["coverage"], figures["selective"]["risk"]
    selective.plot(coverage, [100 * value for value in risk], color=blue, drawstyle="steps-post")
    if figures["selective"]["abstain_below"] is not None:
        selective.axvline(figures["selective"]["answered"], color=orange, linestyle="--")
        selective.annotate(
            f"“I don't know” below {figures['selective']['abstain_below']:.2f}",
            (figures["selective"]["answered"], 0.97),
            xycoords=("data", "axes fraction"), ha="right", va="top", rotation=90, color=orange,
        )  # fmt: skip
    selective.set(xlim=(0, 1), ylim=(0, None), xlabel="share of the questions answered, the surest first")
    selective.set(ylabel="of which wrong (%)", title="Answering only when sure")

    kinds = {
        group: [row["confidence"] for row in rows if row.get("group") == group]
        for group in GROUPS
        if group in figures["groups"]
    }
    kinds = kinds or {"all": [row["confidence"] for row in rows]}
    kinds |= {kind: [row["confidence"] for row in strangers] for kind, strangers in unseen.items()}
    boxes = known.boxplot(
        list(kinds.values())[::-1],
        orientation="horizontal",
        patch_artist=True,
        widths=0.6,
        flierprops={"markersize": 2},
    )
    for patch in boxes["boxes"]:
        patch.set_facecolor("#cfe0fb")
    known.set_yticks(
        range(1, len(kinds) + 1),
        [textwrap.fill(f"{kind} ({len(values)})", 22) for kind, values in list(kinds.items())[::-1]],
    )
    known.set(xlim=(0, 1.02), xlabel="confidence", title="Known and not known")
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def write_report(folder: Path, facts: dict, figures: dict, rows: list[dict], unseen: dict[str, list[dict]]) -> None:
    """Write `report.html`, `report.png` and `predictions.jsonl` into `folder`.

    Without right answers there is nothing to judge: the predictions alone are written, and an older page goes.
    """
    with written_whole(folder / "predictions.jsonl") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    if figures["accuracy"] is None:
        for name in ("report.html", "report.png"):
            (folder / name).unlink(missing_ok=True)
        return
    figure = draw(figures, rows, unseen)
    svg = StringIO()
    figure.savefig(svg, format="svg")
    save_picture(figure, folder / "report.png")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    page = environment.get_template("report.html.jinja").render(
        title=f"What {facts['model']} knows",
        facts=facts,
        figures=figures,
        rows=rows,
        # From matplotlib, not from anybody's data files; without the XML head, which HTML has no place for.
        chart=svg.getvalue()[svg.getvalue().index("<svg") :],
    )
    with written_whole(folder / "report.html") as file:
        file.write(page)
