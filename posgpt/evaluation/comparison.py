"""Several runs beside each other: figures, paired significance, and what differs in how they were trained."""

import json
from collections.abc import Sequence
from itertools import combinations
from os.path import commonprefix
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from transformers.trainer import TRAINER_STATE_NAME

from data_scripts.errors import BadInput
from data_scripts.files import load_json
from posgpt.evaluation.arguments import DETAILS_FILE, ReportArguments
from posgpt.evaluation.predictions import check_references, read_predictions
from posgpt.evaluation.report import score_predictions
from posgpt.evaluation.scoring import Proportion, compare_paired, format_metrics
from posgpt.tables import format_table
from posgpt.training.run_record import RUN_FILE, find_best_step, find_last_figure, format_files

# What two runs never share, or what says nothing of the result.
_OWN_OPTIONS = {"output_dir", "logging_dir", "run_name", "overwrite_output_dir", "resume_from_checkpoint"}
# The part of `run.json` with what a model has seen, and the files in it that it is only measured on.
_DATA, _MEASURED_ON = "data", {"validation_file"}
_MISSING, _LONGEST_CELL = "-", 60
# What the record of a run has for what only others have.
_ABSENT = (None, _MISSING)

# By part and name: what is compared, and how it is shown.
Record = dict[tuple[str, str], tuple[Any, str]]


class SavedRun(NamedTuple):
    """A run that was read from its folder.

    Args:
        figures: By name, as they are shown.
        record: What the model was made of; None: not recorded.
        questions: The questions that were asked; None: the folder is a training's, without a report.
        correct: (questions,) booleans.
    """

    folder: str
    figures: dict[str, str]
    record: Record | None
    questions: list[str] | None = None
    correct: np.ndarray = np.empty(0, bool)


def load_runs(folders: Sequence[str]) -> list[SavedRun]:
    """Load reports on the same questions, or trainings.

    Raises:
        BadInput: a folder has neither, or the reports are about different questions.
    """
    runs = []
    for folder in folders:
        is_report = Path(folder, DETAILS_FILE).exists() or not Path(folder, TRAINER_STATE_NAME).is_file()
        runs.append(load_report(folder) if is_report else load_training(folder))
    reports = [run for run in runs if run.questions is not None]
    for report in reports:
        if report.questions != reports[0].questions:
            raise BadInput(
                f"{Path(report.folder) / DETAILS_FILE}: other questions than {reports[0].folder}; compare reports on"
                " one --test_file."
            )
    return runs


def load_training(folder: str) -> SavedRun:
    """Load what a finished training logged.

    Raises:
        BadInput: a file is not as training wrote it.
    """
    file = Path(folder) / TRAINER_STATE_NAME
    state, record = load_json(file, "state of a training"), load_record(folder)
    figures = {}
    try:
        keeps_best = (record or {}).get(("options", "load_best_model_at_end"), _ABSENT)[0] == "true"
        best = find_best_step(state, keeps_best)
        for key, name, form in (("eval_accuracy", "validation accuracy", ".1%"), ("loss", "training loss", ".4f")):
            if (figure := find_last_figure(state["log_history"], key, best)) is not None:
                figures[name] = format(figure, form)
        figures["steps"] = format(state["global_step"], ",")
        # They are not counted on an accelerator, unless it is asked for.
        if state["num_input_tokens_seen"]:
            figures["characters read"] = format(state["num_input_tokens_seen"], ",")
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{file}: not the state of a training; give the folder as training wrote it.") from None
    return SavedRun(folder, figures, record)


def load_report(folder: str) -> SavedRun:
    """Load the predictions of a report, and measure them.

    Raises:
        BadInput: they are missing, or one has no reference to compare with.
    """
    file = Path(folder) / DETAILS_FILE
    predictions = read_predictions(file)
    check_references(file, predictions)
    scored = score_predictions(predictions, ReportArguments()).test
    share = Proportion(int(scored.correct.sum()), len(scored))
    figures = {"accuracy": f"{share.accuracy:.1%}", "95 % interval": share.format_interval()} | format_metrics(scored)
    questions = [each.question for each in scored.predictions]
    return SavedRun(folder, figures, load_record(folder), questions, scored.correct)


def load_record(folder: str) -> Record | None:
    """Load `run.json`; None where there is none, as in the folders of earlier versions.

    Raises:
        BadInput: it is not as training wrote it.
    """
    file = Path(folder) / RUN_FILE
    if not file.exists():
        return None
    content = load_json(file, "record of a run")
    record: Record = {}
    try:
        for part, values in content.items():
            for name in values.keys() - _OWN_OPTIONS:
                value = values[name]
                if part == _DATA:
                    # Names may differ where the content is the same.
                    record[part, name] = [each.get("sha256") or each["commit"] for each in value], format_files(value)
                else:
                    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                    record[part, name] = shown, shown
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise BadInput(
            f"{file}: not the record of a run; give the folder as training or evaluation wrote it."
        ) from None
    return record


def list_differences(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """Return part, name and each run's value of what is not the same in all runs."""
    rows = []
    for name in dict.fromkeys(name for record in records for name in sorted(record)):
        values, cells = zip(*(record.get(name, _ABSENT) for record in records), strict=True)
        if any(value != values[0] for value in values):
            # Of long values, what begins shortly before the first difference.
            start = max(len(commonprefix([cell for cell in cells if cell != _MISSING])) - 10, 0)
            if name[0] != _DATA and max(map(len, cells)) > _LONGEST_CELL and _MISSING not in cells:
                cells = tuple("…" * (start > 0) + cell[start : start + _LONGEST_CELL] for cell in cells)
            rows.append((*name, *cells))
    return rows


def format_comparison(runs: Sequence[SavedRun]) -> str:
    """Return Markdown: the runs' figures, each pair's questions that only one answers (McNemar), and what differs."""
    names = dict.fromkeys(name for run in runs for name in run.figures)
    rows = [(run.folder, *(run.figures.get(name, _MISSING) for name in names)) for run in runs]
    parts = [format_table(("model", *names), rows)]
    pairs = [
        (f"{a.folder}, {b.folder}", (a.correct & ~b.correct).sum(), (b.correct & ~a.correct).sum(),
         f"{compare_paired(a.correct, b.correct):.3g}")
        for a, b in combinations([run for run in runs if run.questions is not None], 2)
    ]  # fmt: skip
    if pairs:
        parts.append(
            format_table(("pair", "only the first is correct", "only the second", "p (McNemar, exact)"), pairs)
        )
    recorded = {run.folder: run.record for run in runs if run.record is not None}
    if len(recorded) > 1:
        differences = list_differences(list(recorded.values()))
        data = [name for part, name, *_ in differences if part == _DATA and name not in _MEASURED_ON]
        if all(any(part == _DATA for part, _ in record) for record in recorded.values()):
            parts.append(f"Trained on {'other data: ' + ', '.join(data) if data else 'the same data'}.")
        header = ("part", "what differs", *recorded)
        parts.append(format_table(header, differences) if differences else "Options and versions are the same.")
    missing = [f"{run.folder}: options, data and versions: not recorded." for run in runs if run.record is None]
    return "\n\n".join([*parts, *missing])
