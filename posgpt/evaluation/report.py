"""An evaluation: predictions, whoever made them, with their metrics, a chart and a page that opens without a server."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from types import MappingProxyType
from typing import Any

import numpy as np

from posgpt.evaluation import scoring
from posgpt.evaluation.arguments import PAGE_FILE, PICTURE_FILE
from posgpt.evaluation.chart import draw_chart
from posgpt.evaluation.evidence import GROUPS, Document, Evidence, find_evidence, mark_evidence
from posgpt.evaluation.predictions import CALIBRATION, TEST, Prediction, is_wording
from posgpt.evaluation.scoring import ScoredQuestions, list_accuracies
from posgpt.plots import render_picture
from posgpt.templates import load_template


@dataclass(frozen=True)
class Evaluation:
    """Scored predictions.

    Args:
        test: Those of the test.
        others: Those about names that the model cannot know, by their group.
        evidence: Of each prediction of the test; None: no corpus was given.
        relations: From `measure_accuracy` by relation, and of several all `together`; empty if a reference is missing.
    """

    test: ScoredQuestions
    others: dict[str, ScoredQuestions]
    evidence: list[Evidence] | None
    relations: dict[str, dict[str, Any]]

    @property
    def groups(self) -> dict[str, np.ndarray]:
        """Which predictions of the test, (predictions,) booleans, are of each of `GROUPS` that has any; without a corpus, all."""
        if self.evidence is None:
            return {"all": np.ones(len(self.test), dtype=bool)}
        of_each = np.array([each.group for each in self.evidence])
        return {group: of_each == group for group in GROUPS if group in of_each}

    def list_metrics(self) -> dict[str, Any]:
        """Return the accuracies, as entries of `metrics.json`."""
        if not self.relations:
            return {"accuracy": None, "correct": None, "total": len(self.test)}
        *relations, whole = self.relations
        by_relation = {"relations": {name: self.relations[name] for name in relations}} if relations else {}
        return self.relations[whole] | by_relation

    def list_figures(self) -> dict[str, Any]:
        """Return `metrics.json` with what a report adds. Shares, confidences and AUROCs are from 0 to 1."""
        test = self.test
        figures = self.list_metrics() | scoring.measure(test)
        for name, metrics in figures.get("relations", {}).items():
            of_relation = [each for each in test.predictions if each.relation == name]
            figures["relations"][name] = metrics | scoring.measure(replace(test, predictions=of_relation))
        figures |= {"temperature": test.temperature, "abstain_below": test.abstain_below}
        if self.evidence is not None:
            figures["groups"] = {
                group: {
                    "count": int(members.sum()),
                    "confidence": float(test.confidence[members].mean()) if test.has_confidence else None,
                    "answer_in_document": float(
                        np.mean([each.has_answer for each in compress(self.evidence, members)])
                    ),
                    "abstained": float(1 - test.is_sure[members].mean()),
                }
                for group, members in self.groups.items()
            }
        known = test.confidence[~self.groups.get("unseen name", np.zeros(len(test), bool))]
        figures["unseen"] = {
            group: {
                "count": len(scored),
                "confidence": float(scored.confidence.mean()),
                "abstained": float(1 - scored.is_sure.mean()),
                "auroc": scoring.compute_auroc(
                    np.append(known, scored.confidence), np.arange(len(known) + len(scored)) < len(known)
                ),
                "said_most": Counter(each.answer for each in scored.predictions).most_common(5),
            }
            for group, scored in self.others.items()
        }
        return figures

    def render(self, metrics: Mapping[str, Any]) -> dict[str, bytes]:
        """Return a report's page and picture by the names of their files; `metrics` are the entries of `metrics.json`."""
        test = self.test
        confidences = {group: test.confidence[members] for group, members in self.groups.items()}
        confidences |= {group: scored.confidence for group, scored in self.others.items()}
        figure = draw_chart(test, confidences, self.relations)
        chart = render_picture(figure, format="svg").decode()
        evidence: Sequence[Evidence | None] = self.evidence or [None] * len(test)
        page = load_template("posgpt.evaluation", "report.html.jinja").render(
            title=f"What {metrics['model']} knows" if "model" in metrics else "How good answers are",
            metrics=metrics,
            relations=self.relations,
            labels=scoring.METRICS,
            answers=zip(test.predictions, test.correct, test.confidence, test.is_sure, evidence, strict=True),
            list_accuracies=list_accuracies,
            mark_evidence=mark_evidence,
            # Written by matplotlib, not read from a data file; without the XML declaration, which HTML does not allow.
            chart=chart[chart.index("<svg") :],
        )
        return {PICTURE_FILE: render_picture(figure), PAGE_FILE: page.encode(errors="backslashreplace")}


def score_predictions(
    predictions: Sequence[Prediction],
    abstain_below: float | None = None,
    documents: Mapping[str, list[Document]] | None = None,
    baselines: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> Evaluation:
    """Score predictions; the temperature is fitted on those for calibration.

    Args:
        predictions: With references for calibration.
        documents: By title; None: there is no corpus to look into.
        baselines: By relation.
    """
    groups: dict[str, list[Prediction]] = {}
    for each in predictions:
        groups.setdefault(each.group, []).append(each)
    test = ScoredQuestions(groups.pop(TEST), abstain_below=abstain_below)
    if held_out := groups.pop(CALIBRATION, None):
        calibration = ScoredQuestions(held_out)
        test = replace(test, temperature=scoring.fit_temperature(calibration.confidence, calibration.correct))
    by_relation: dict[str, list[Prediction]] = {}
    for each in test.predictions if all(each.reference is not None for each in test.predictions) else ():
        by_relation.setdefault(each.relation, []).append(each)
    relations = {name: scoring.measure_accuracy(each, baselines.get(name, {})) for name, each in by_relation.items()}
    for wording in list(filter(is_wording, groups)):
        reworded = groups.pop(wording)
        if measured := relations.get(reworded[0].relation):
            share = scoring.count_correct(reworded)
            measured["wordings"][wording] = share._asdict() | {"accuracy": share.accuracy}
    return Evaluation(
        test,
        {group: replace(test, predictions=each) for group, each in groups.items()},
        None if documents is None else [find_evidence(each, documents) for each in test.predictions],
        relations | {"together": scoring.measure_accuracy(test.predictions)} if len(relations) > 1 else relations,
    )
