"""Exact-match accuracy of predicted birthplaces, as an `evaluate` metric that loads from its folder, offline."""

import datasets
import evaluate

from posgpt.evaluation.scoring import count_correct


class BirthplaceAccuracy(evaluate.Metric):
    """`compute(predictions=[...], references=[...])` returns `accuracy` (0 to 1), `correct` and `total`."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="The share of predictions that are the reference, character for character.",
            citation="",
            inputs_description="predictions and references: lists of strings of the same length.",
            features=datasets.Features(
                {"predictions": datasets.Value("string"), "references": datasets.Value("string")}
            ),
        )

    def _compute(self, predictions: list[str], references: list[str]) -> dict[str, float | int]:
        share = count_correct(predictions, references)
        return {"accuracy": share.accuracy, "correct": share.correct, "total": share.total}
