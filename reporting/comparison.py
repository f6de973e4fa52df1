"""Several models' reports in one table, with paired significance."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np

from data_scripts.text_files import BadInput, check_is_file
from reporting.confidence import mcnemar, wilson_interval


def load_reports(folders: list[str]) -> dict[str, dict]:
    """Return `metrics` and `right`, a boolean for each question, of each report folder.

    Raises:
        BadInput: a folder has no report, or they are about different questions.
    """
    reports, questions = {}, None
    for folder in folders:
        predictions = check_is_file(Path(folder) / "predictions.jsonl", "report of evaluate_birthplace.py --report")
        metrics = check_is_file(Path(folder) / "metrics.json", "report of evaluate_birthplace.py --report")
        rows = []
        for number, line in enumerate(predictions.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                rows.append(json.loads(line))
                rows[-1]["right"]
            except (ValueError, KeyError, TypeError):
                raise BadInput(
                    f"{predictions}, line {number}: no answer that was judged; make the report anew, on questions with"
                    " answers."
                ) from None
        asked = [row["question"] for row in rows]
        if questions is not None and asked != questions:
            raise BadInput(f"{predictions}: other questions than {folders[0]}; compare reports on one --test_file.")
        questions = asked
        right = np.array([row["right"] for row in rows])
        reports[folder] = {"metrics": json.loads(metrics.read_text(encoding="utf-8")), "right": right}
    return reports


def comparison_table(reports: dict[str, dict]) -> str:
    """Two Markdown tables: each report's figures, and each pair's questions that only one answers (McNemar's test)."""
    lines = [
        "| model | accuracy | 95 % interval | AUROC | ECE | surest half right |",
        "|---|---|---|---|---|---|",
    ]
    for folder, report in reports.items():
        right, metrics = report["right"], report["metrics"]
        low, high = wilson_interval(int(right.sum()), len(right))
        auroc = metrics["auroc"]["probability"]
        lines.append(
            f"| {folder} | {right.mean():.1%} | {low:.1%} to {high:.1%} | {'-' if auroc is None else f'{auroc:.3f}'}"
            f" | {metrics['calibration']['after']['ece']:.3f} | {metrics['selective']['accuracy_at_half']:.1%} |"
        )
    lines += ["", "| pair | only the first is right | only the second | p (McNemar, exact) |", "|---|---|---|---|"]
    for (first, a), (second, b) in combinations(reports.items(), 2):
        only = [int((x["right"] & ~y["right"]).sum()) for x, y in ((a, b), (b, a))]
        p = mcnemar(a["right"], b["right"])
        lines.append(f"| {first}, {second} | {only[0]} | {only[1]} | {p:.3g} |")
    return "\n".join(lines)
