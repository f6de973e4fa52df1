"""Several models' reports in one table, with paired significance."""

import json
from collections.abc import Sequence
from itertools import combinations, starmap
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_scripts.errors import BadInput
from data_scripts.files import check_is_file, read_lines
from posgpt.evaluation.accuracy import compute_wilson_interval
from posgpt.evaluation.confidence import compare_paired
from posgpt.tables import format_table

_ROLE = "report (posgpt evaluate --report)"


class SavedReport(NamedTuple):
    """A report that was read from its folder.

    Args:
        metrics: What `metrics.json` holds.
        questions: The questions that were asked.
        right: (questions,) booleans.
    """

    folder: str
    metrics: dict
    questions: list[str]
    right: np.ndarray


def load_reports(folders: Sequence[str]) -> list[SavedReport]:
    """Load reports on the same questions.

    Raises:
        BadInput: a folder has no report, or they are about different questions.
    """
    reports = [load_report(folder) for folder in folders]
    for report in reports:
        if report.questions != reports[0].questions:
            raise BadInput(
                f"{Path(report.folder) / 'predictions.jsonl'}: other questions than {folders[0]}; compare reports on one"
                " --test_file."
            )
    return reports


def load_report(folder: str) -> SavedReport:
    """Load a report.

    Raises:
        BadInput: a file is missing, or a prediction was not judged because its question had no answer.
    """
    predictions = Path(folder) / "predictions.jsonl"
    questions, right = [], []
    for number, line in read_lines(predictions, _ROLE):
        try:
            row = json.loads(line)
            questions.append(row["question"])
            right.append({True: True, False: False}[row["right"]])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BadInput(
                f"{predictions}, line {number}: no judged answer; make the report again, with questions that have"
                " answers."
            ) from None
    file = check_is_file(Path(folder) / "metrics.json", _ROLE)
    try:
        metrics = json.loads(file.read_text(encoding="utf-8"))
        metrics["auroc"], metrics["calibration"], metrics["selective"]
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{file}: not the metrics of a report; make it again with posgpt evaluate --report.") from None
    return SavedReport(folder, metrics, questions, np.array(right))


def describe_report(report: SavedReport) -> tuple[str, ...]:
    """Return a report's row in the table of figures."""
    low, high = compute_wilson_interval(int(report.right.sum()), len(report.right))
    auroc, ece = report.metrics["auroc"]["probability"], report.metrics["calibration"]["after"]["ece"]
    surest = report.metrics["selective"]["accuracy_at_half"]
    shown_auroc = "-" if auroc is None else f"{auroc:.3f}"
    interval = f"{low:.1%} to {high:.1%}"
    return report.folder, f"{report.right.mean():.1%}", interval, shown_auroc, f"{ece:.3f}", f"{surest:.1%}"


def describe_pair(a: SavedReport, b: SavedReport) -> tuple[str, int, int, str]:
    """Return the row of two reports in the table of pairs."""
    only_a, only_b = int((a.right & ~b.right).sum()), int((b.right & ~a.right).sum())
    return f"{a.folder}, {b.folder}", only_a, only_b, f"{compare_paired(a.right, b.right):.3g}"


def format_comparison(reports: Sequence[SavedReport]) -> str:
    """Return two Markdown tables: each report's figures, and each pair's questions that only one answers (McNemar)."""
    header = ("model", "accuracy", "95 % interval", "AUROC", "ECE", "surest half right")
    figures = format_table(header, map(describe_report, reports))
    header_of_pairs = ("pair", "only the first is right", "only the second", "p (McNemar, exact)")
    return f"{figures}\n\n{format_table(header_of_pairs, starmap(describe_pair, combinations(reports, 2)))}"
