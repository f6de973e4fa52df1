"""Compare runs: the figures of reports side by side, and what differs in how their models were trained.

    posgpt compare runs/report_learned runs/report_rotary

The folders are of reports on the same questions (`posgpt evaluate --report`), or of training runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from transformers.trainer import TRAINER_STATE_NAME

from data_scripts.errors import BadInput
from data_scripts.options import option, parse_options
from posgpt.evaluation.arguments import DETAILS_FILE
from posgpt.evaluation.predictions import check_references, read_predictions
from posgpt.evaluation.report import score_predictions
from posgpt.evaluation.scoring import ScoredQuestions, compare_paired, count_correct, format_metrics
from posgpt.tables import format_table
from posgpt.training.checkpoints import read_state
from posgpt.training.run_record import find_best_step, find_last_figure, format_files, list_contents, read_record

# What two runs never share, or what says nothing of the result.
_OWN_OPTIONS = {"output_dir", "logging_dir", "run_name", "overwrite_output_dir", "resume_from_checkpoint"}
# A run's `run.json`: values by part and name.
Record = dict[tuple[str, str], Any]


@dataclass
class ComparisonArguments:
    """What to compare."""

    folders: list[str] = option("Folders of reports, or of training runs.", positional=True)


def load_training(folder: str, record: Record) -> dict[str, str]:
    """Return the figures that a finished training logged, as they are shown."""
    state, figures = read_state(folder), {}
    best = find_best_step(state, record.get(("options", "load_best_model_at_end"), False))
    for key, name, form in (("eval_accuracy", "validation accuracy", ".1%"), ("loss", "training loss", ".4f")):
        if (figure := find_last_figure(state["log_history"], key, best)) is not None:
            figures[name] = format(figure, form)
    figures["steps"] = format(state["global_step"], ",")
    # They are not counted on an accelerator, unless it is asked for.
    if state["num_input_tokens_seen"]:
        figures["characters read"] = format(state["num_input_tokens_seen"], ",")
    return figures


def format_pairs(reports: Mapping[str, ScoredQuestions]) -> str:
    """Return the table of each pair's questions that they answer differently, or only one correctly, with a sign test over titles."""
    rows = []
    for (a, one), (b, other) in combinations(reports.items(), 2):
        first, second = ([(each.question, each.references) for each in own.predictions] for own in (one, other))
        if first != second:
            raise BadInput(
                f"{Path(b) / DETAILS_FILE}: other questions or correct answers than {a}; compare reports on one --test_file."
            )
        only = (one.correct & ~other.correct).sum(), (other.correct & ~one.correct).sum()
        answers = zip(one.predictions, other.predictions, strict=True)
        different = sum(own.answer != theirs.answer for own, theirs in answers)
        rows.append((f"{a}, {b}", different, *only, f"{compare_paired(one, other):.3g}"))
    header = ("pair", "different answers", "only the first is correct", "only the second", "p (sign test, exact)")
    return format_table(header, rows)


def format_differences(records: Mapping[str, Record]) -> str:
    """Return the table of what is not the same in the records of all runs. Files differ if their content does."""
    rows = []
    for part, name in sorted({key for record in records.values() for key in record}):
        values = [record.get((part, name), [] if part == "data" else "-") for record in records.values()]
        compared = list(map(list_contents, values)) if part == "data" else values
        if name not in _OWN_OPTIONS and any(value != compared[0] for value in compared):
            rows.append((part, name, *map(format_files if part == "data" else str, values)))
    header = ("part", "what differs", *records)
    return format_table(header, rows) if rows else "Options, data and versions are the same."


def main(argv: list[str] | None = None) -> None:
    records: dict[str, Record] = {}
    reports: dict[str, ScoredQuestions] = {}
    figures: dict[str, dict[str, str]] = {}
    for folder in parse_options(ComparisonArguments, argv).folders:
        parts_of, file = read_record(folder), Path(folder) / DETAILS_FILE
        records[folder] = {(part, name): value for part, own in parts_of.items() for name, value in own.items()}
        if Path(folder, TRAINER_STATE_NAME).is_file() and not file.exists():
            figures[folder] = load_training(folder, records[folder])
            continue
        if not file.exists():
            raise BadInput(f"{file}: no such file; give folders of posgpt evaluate, or of runs that have ended.")
        predictions = read_predictions(file)
        check_references(file, predictions)
        scored = reports[folder] = score_predictions(predictions).test
        share = count_correct(scored.predictions)
        figures[folder] = {"accuracy": f"{share.accuracy:.1%}", "95 % interval": share.format_interval()}
        figures[folder] |= format_metrics(scored)
    names = dict.fromkeys(name for each in figures.values() for name in each)
    rows = [(folder, *(each.get(name, "-") for name in names)) for folder, each in figures.items()]
    parts = [format_table(("model", *names), rows)]
    if len(reports) > 1:
        parts.append(format_pairs(reports))
    if len(recorded := {folder: record for folder, record in records.items() if record}) > 1:
        parts.append(format_differences(recorded))
    parts += [f"{folder}: options, data and versions: not recorded." for folder in records if not records[folder]]
    print("\n\n".join(parts))
