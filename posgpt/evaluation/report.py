"""What a model knows and what it makes up: figures, a chart and a page that opens without a server."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from modeling_posgpt import Answer
from posgpt.evaluation.accuracy import Accuracies
from posgpt.evaluation.answerers import AskedModel, ask_groups
from posgpt.evaluation.arguments import DETAILS_FILE, PAGE_FILE, PICTURE_FILE, EvaluationArguments
from posgpt.evaluation.chart import draw_chart
from posgpt.evaluation.data import FICTIONAL, HELD_OUT, TAKEN_OUT, TEST, EvaluationData
from posgpt.evaluation.evidence import compile_mentions, mark_evidence
from posgpt.evaluation.figures import compute_figures, describe_worth
from posgpt.evaluation.predictions import Prediction, Utility, build_predictions, calibrate
from posgpt.plots import render_picture
from posgpt.templates import load_template

UNKNOWN_ANSWER = "I don't know"


@dataclass(frozen=True)
class Report:
    """A report before it is written.

    Args:
        facts: The model, its positions, and what it was asked.
        predictions: About the test questions.
        unseen: Predictions about names that the model cannot know, by what they are.
        figures: From `compute_figures`; empty when the test questions have no answers.
    """

    facts: dict[str, Any]
    predictions: list[Prediction]
    unseen: dict[str, list[Prediction]]
    figures: dict[str, Any]

    @property
    def answers(self) -> list[str]:
        """The answers to the test questions, `I don't know` where the model is not sure enough."""
        return [UNKNOWN_ANSWER if prediction.abstained else prediction.answer for prediction in self.predictions]


def choose_utility(arguments: EvaluationArguments, data: EvaluationData) -> Utility | None:
    """Return what answers are worth; None where that is not asked."""
    if arguments.wrong_costs is None:
        return None
    share = arguments.unseen_share
    if share is None:
        unseen = len(data.groups.get(FICTIONAL, data.groups[TAKEN_OUT]))
        share = unseen / (unseen + len(data.groups[TEST]))
    return Utility(arguments.wrong_costs, share)


def make_report(
    arguments: EvaluationArguments,
    model: AskedModel,
    data: EvaluationData,
    test_answers: list[Answer],
    accuracies: Accuracies | None,
) -> Report:
    """Ask the report's other groups of questions, and measure how good all answers are.

    Args:
        accuracies: On the test questions; None: they have no answers.
    """
    asked = ask_groups(model, data, test_answers)
    utility = choose_utility(arguments, data)
    calibration = calibrate(
        asked.pop(HELD_OUT, None),
        arguments.abstain_below,
        arguments.target_precision,
        utility,
        asked.get(TAKEN_OUT),
    )
    known = compile_mentions(data.candidates)
    unseen = {
        group: build_predictions(answered, calibration, data.documents, known) for group, answered in asked.items()
    }
    predictions, figures = unseen.pop(TEST), {}
    if accuracies:
        figures = compute_figures(asked[TEST], predictions, unseen, calibration, data, accuracies)
        if utility:
            # The threshold was chosen on those who were taken out.
            others = unseen.get(FICTIONAL) or unseen[TAKEN_OUT]
            figures["worth"] = describe_worth(predictions, others, calibration.abstain_below, utility)
    facts = {
        "model": str(arguments.model_name_or_path),
        "position_embedding_type": model.model.config.position_embedding_type,
        "test_file": ", ".join(Path(path).name for path in data.groups[TEST].paths),
        "candidates": len(data.candidates),
    }
    return Report(facts, predictions, unseen, figures)


def render_report(report: Report) -> dict[str, bytes]:
    """Return the contents of those of `REPORT_FILES` that the report has.

    If the questions have no answers, these are the predictions alone.
    """
    rows = [
        {key: value for key, value in asdict(prediction).items() if value is not None}
        for prediction in report.predictions
    ]
    predictions = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    if not report.figures:
        return {DETAILS_FILE: predictions}
    figure = draw_chart(report.figures, report.predictions, report.unseen)
    svg = render_picture(figure, format="svg").decode()
    page = load_template("posgpt.evaluation", "report.html.jinja").render(
        title=f"What {report.facts['model']} knows",
        facts=report.facts,
        figures=report.figures,
        predictions=report.predictions,
        mark_evidence=mark_evidence,
        # Written by matplotlib, not read from a data file; without the XML declaration, which HTML does not allow.
        chart=svg[svg.index("<svg") :],
    )
    return {DETAILS_FILE: predictions, PICTURE_FILE: render_picture(figure), PAGE_FILE: page.encode()}
