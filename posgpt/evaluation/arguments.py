"""Ask a trained PosGPT the questions of a file, and compare its answers with baselines.

The options of an evaluation and of a report, and whether they are compatible.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from data_scripts.documents import Columns, check_columns
from data_scripts.errors import BadInput
from data_scripts.files import check_is_folder_or_new
from data_scripts.options import Range, list_given, option
from data_scripts.relations import RelationArguments

METRICS_FILE, PREDICTIONS_FILE, DETAILS_FILE = "metrics.json", "predictions.txt", "predictions.jsonl"
PAGE_FILE, PICTURE_FILE = "report.html", "report.png"


@dataclass(kw_only=True)
class ReportArguments(Columns):
    """What a report looks up, and when it answers."""

    corpus_file: str | None = option(
        "The corpus that the model has read: titles are asked in its spelling, and a report has the evidence of each answer.",
        default=None,
    )
    abstain_below: Annotated[float | None, Range(0, 1)] = option(
        "report: the confidence below which the answer is: I don't know.", default=None
    )


@dataclass(kw_only=True)
class EvaluationArguments(RelationArguments, ReportArguments):
    """What to ask, the model or the constant that answers, and where to write the answers."""

    model_name_or_path: str | None = option("The PosGPT to ask: a folder or a name on the hub.", default=None)
    baseline: str | None = option("Give everyone this answer instead of asking a model.", default=None)
    test_file: list[str] = option("TSVs of questions, with or without answers.")
    output_dir: str | None = option("Folder for predictions.txt, predictions.jsonl and metrics.json.", default=None)
    predictions_file: str | None = option(
        "File for the predictions, in an existing folder (default: predictions.txt in output_dir).", default=None
    )
    other_wordings: str | None = option(
        "A YAML file of relations, as for --relations: each question of the test is also asked in all of their wordings.",
        default=None,
    )
    train_file: list[str] | None = option("TSVs whose most frequent answer is a second baseline.", default=None)
    report: str | None = option("Folder for a report on confidence and evidence.", default=None)
    calibration_file: list[str] | None = option(
        "report: TSVs of people held out from training (posgpt hold-out), for calibration.", default=None
    )
    unseen_file: list[str] | None = option(
        "report: TSVs of people whose documents were taken out of the corpus.", default=None
    )
    fictional_people: Annotated[int | None, Range(0)] = option(
        "report: how many people who do not exist are asked about (default: 200); 0 if titles are not people.",
        default=None,
    )
    update_model_card: bool = option(
        "Write the accuracy, and the chart of a report, into the card (README.md) in the model's folder.",
        default=False,
    )
    per_device_eval_batch_size: Annotated[int, Range(1)] = option("Questions per batch.", default=128)
    max_new_tokens: Annotated[int | None, Range(1)] = option(
        "Maximum number of characters in an answer (default: 32, or as many as the answers that the model was trained on"
        " take).",
        default=None,
    )
    dtype: Literal["float32", "bfloat16"] = option(
        "bfloat16 is faster on hardware that multiplies in it; answers that are nearly tied may differ.",
        default="float32",
    )

    @property
    def folders(self) -> list[Path]:
        """The folders that predictions.jsonl and metrics.json are written to."""
        return [Path(folder) for folder in (self.output_dir, self.report) if folder]

    @property
    def predictions_path(self) -> Path | None:
        """The file that the predictions are written to, one per line, if any."""
        default = next((folder / PREDICTIONS_FILE for folder in self.folders), None)
        return Path(self.predictions_file) if self.predictions_file else default

    @property
    def num_fictional_people(self) -> int:
        """How many people who do not exist are asked about; none without a report."""
        return (200 if self.fictional_people is None else self.fictional_people) if self.report else 0

    def check(self) -> None:
        """Check that no option is missing, that all are compatible, and that the results can be written."""
        if self.baseline is None and self.model_name_or_path is None:
            raise BadInput("--model_name_or_path is missing; name a model, or give a --baseline.")
        if self.baseline is None and self.predictions_path is None:
            raise BadInput("--output_dir is missing; name the folder for predictions.txt and metrics.json.")
        of_a_model = ["model_name_or_path", "report", "update_model_card", "other_wordings"]
        of_a_model += ["max_new_tokens", "dtype", "per_device_eval_batch_size"]
        if self.baseline is not None and (given := list_given(self, of_a_model)):
            raise BadInput(
                f"--baseline gives everyone one answer and asks no model; leave out --{given[0]}, or --baseline."
            )
        of_a_report = ["calibration_file", "unseen_file", "fictional_people", "abstain_below"]
        if not self.report and (given := list_given(self, of_a_report)):
            raise BadInput(f"--{given[0]} is for a report; add --report with a folder.")
        check_columns(self, self.corpus_file)
        for folder in self.folders:
            check_is_folder_or_new(folder)
            # An evaluation writes both.
            if (folder / METRICS_FILE).exists() and not (folder / DETAILS_FILE).exists():
                raise BadInput(f"{folder / METRICS_FILE}: no evaluation wrote it; give another folder, or remove it.")
        if self.predictions_file:
            file = Path(self.predictions_file)
            if file.exists() and not file.is_file():
                kind = "directory" if file.is_dir() else "device or a pipe, and would be replaced"
                raise BadInput(f"{file}: this is a {kind}; give the file to write the predictions to.")
            if not file.parent.is_dir() and file.parent not in self.folders:
                raise BadInput(
                    f"{file}: there is no folder {file.parent}; create it first (mkdir -p {shlex.quote(str(file.parent))})."
                )
            others = [self.corpus_file, self.relations, self.other_wordings]
            read = (self.test_file, self.train_file, self.calibration_file, self.unseen_file, others)
            names = (DETAILS_FILE, METRICS_FILE, PAGE_FILE, PICTURE_FILE)
            results = [folder / name for folder in self.folders for name in names]
            if file.resolve() in {Path(path).resolve() for paths in (*read, results) for path in paths or () if path}:
                raise BadInput(
                    f"{file}: this file is read, or has other results; give another file to write the predictions to."
                )
