"""What a model knows and what it makes up: figures, a chart and a page that opens without a server."""

import json
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from modeling_posgpt import Answer
from posgpt.evaluation.accuracy import Accuracies
from posgpt.evaluation.answerers import AskedModel, ask_groups
from posgpt.evaluation.arguments import JUDGED_FILE, PAGE_FILE, PICTURE_FILE, EvaluationArguments
from posgpt.evaluation.chart import draw_chart
from posgpt.evaluation.evidence import compile_mentions, mark_evidence
from posgpt.evaluation.figures import compute_figures, describe_worth
from posgpt.evaluation.inquiry import FICTIONAL, HELD_OUT, TAKEN_OUT, TEST, Inquiry
from posgpt.evaluation.judge import Prediction, Wager, fit_sureness, judge_group
from posgpt.plots import render_picture
from posgpt.templates import load_template

UNKNOWN_ANSWER = "I don't know"


@dataclass(frozen=True)
class Report:
    """A report before it is written.

    Args:
        facts: The model, its positions, and what it was asked.
        predictions: About the test questions.
        strangers: Predictions about names the model cannot know, by what they are.
        figures: From `compute_figures`; empty when the test questions have no answers.
    """

    facts: dict[str, Any]
    predictions: list[Prediction]
    strangers: dict[str, list[Prediction]]
    figures: dict[str, Any]

    @property
    def answers(self) -> list[str]:
        """The answers to the test questions, `I don't know` where the model is not sure enough."""
        return [UNKNOWN_ANSWER if prediction.abstained else prediction.answer for prediction in self.predictions]


def choose_wager(arguments: EvaluationArguments, inquiry: Inquiry) -> Wager | None:
    """Return what answers are worth; None where that is not asked."""
    if arguments.wrong_costs is None:
        return None
    share = arguments.stranger_share
    if share is None:
        strangers = len(inquiry.groups.get(FICTIONAL, inquiry.groups[TAKEN_OUT]))
        share = strangers / (strangers + len(inquiry.groups[TEST]))
    return Wager(arguments.wrong_costs, share)


def make_report(
    arguments: EvaluationArguments,
    model: AskedModel,
    inquiry: Inquiry,
    test_answers: list[Answer],
    accuracies: Accuracies | None,
) -> Report:
    """Ask the report's other groups of questions, and judge all answers.

    Args:
        accuracies: On the test questions; None: they have no answers.
    """
    asked = ask_groups(model, inquiry, test_answers)
    wager = choose_wager(arguments, inquiry)
    sureness = fit_sureness(
        asked.pop(HELD_OUT, None),
        arguments.abstain_below,
        arguments.target_precision,
        wager,
        asked.get(TAKEN_OUT),
    )
    known = compile_mentions(inquiry.candidates)
    strangers = {group: judge_group(answered, sureness, inquiry.documents, known) for group, answered in asked.items()}
    predictions, figures = strangers.pop(TEST), {}
    if accuracies:
        figures = compute_figures(asked[TEST], predictions, strangers, sureness, inquiry, accuracies)
        if wager:
            # The threshold was chosen on those who were taken out.
            others = strangers.get(FICTIONAL) or strangers[TAKEN_OUT]
            figures["worth"] = describe_worth(predictions, others, sureness.abstain_below, wager)
    facts = {
        "model": str(arguments.model_name_or_path),
        "position_embedding_type": model.model.config.position_embedding_type,
        "test_file": ", ".join(Path(path).name for path in inquiry.groups[TEST].paths),
        "candidates": len(inquiry.candidates),
    }
    return Report(facts, predictions, strangers, figures)


def render_report(report: Report) -> dict[str, bytes]:
    """Return the contents of those of `REPORT_FILES` that the report has.

    Questions without answers leave nothing to judge: then these are the predictions alone.
    """
    rows = [
        {key: value for key, value in asdict(prediction).items() if value is not None}
        for prediction in report.predictions
    ]
    predictions = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    if not report.figures:
        return {JUDGED_FILE: predictions}
    figure = draw_chart(report.figures, report.predictions, report.strangers)
    svg = StringIO()
    figure.savefig(svg, format="svg")
    page = load_template("posgpt.evaluation", "report.html.jinja").render(
        title=f"What {report.facts['model']} knows",
        facts=report.facts,
        figures=report.figures,
        predictions=report.predictions,
        mark_evidence=mark_evidence,
        # Written by matplotlib, not read from a data file; without the XML declaration, which HTML does not allow.
        chart=svg.getvalue()[svg.getvalue().index("<svg") :],
    )
    return {JUDGED_FILE: predictions, PICTURE_FILE: render_picture(figure), PAGE_FILE: page.encode()}
