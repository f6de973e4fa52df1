"""The options of an evaluation, and whether they are compatible."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from data_scripts.documents import ColumnArguments, find_files
from data_scripts.errors import BadInput
from data_scripts.files import check_is_folder_or_new
from data_scripts.options import Range, option
from data_scripts.relations import RelationArguments
from posgpt.training.run_record import RUN_FILE

METRICS_FILE, PREDICTIONS_FILE = "metrics.json", "predictions.txt"
PAGE_FILE, PICTURE_FILE, DETAILS_FILE = "report.html", "report.png", "predictions.jsonl"
# What a report adds to the metrics and the record of the model that was asked.
REPORT_FILES = (PAGE_FILE, PICTURE_FILE, DETAILS_FILE)


@dataclass(kw_only=True)
class EvaluationArguments(RelationArguments, ColumnArguments):
    """What to ask, the model or the constant that answers, and where to write the answers."""

    model_name_or_path: str | None = option("The PosGPT to ask: a folder or a name on the hub.", default=None)
    baseline: str | None = option("Give everyone this answer instead of asking a model.", default=None)
    test_file: list[str] = option("TSVs of questions, with or without answers.")
    output_dir: str | None = option("Folder for predictions.txt and metrics.json.", default=None)
    predictions_file: str | None = option(
        "File for the predictions, in an existing folder (default: predictions.txt in output_dir).", default=None
    )
    train_file: list[str] | None = option("TSVs whose most frequent answer is a second baseline.", default=None)
    report: str | None = option("Folder for a report on confidence and evidence; needs train_file.", default=None)
    corpus_file: str | None = option(
        "report: the corpus that the model has read, for the evidence of each answer.", default=None
    )
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
    abstain_below: Annotated[float | None, Range(0, 1)] = option(
        "report: the confidence below which the answer is: I don't know.", default=None
    )
    target_precision: Annotated[float | None, Range(0, 1)] = option(
        "report: choose abstain_below so that, of calibration_file's answers at or above it, this share is right.",
        default=None,
    )
    wrong_costs: Annotated[float | None, Range(0)] = option(
        "report: the cost of a wrong answer, where a right one earns 1; abstain_below is chosen to maximize the total on"
        " calibration_file and unseen_file, mixed as unseen_share says.",
        default=None,
    )
    unseen_share: Annotated[float | None, Range(0, 1)] = option(
        "report: the share of people that the model cannot know about among those asked about (default: the"
        " fictional people's share in the report).",
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
        """The folders that metrics.json is written to."""
        return [Path(folder) for folder in (self.output_dir, self.report) if folder]

    @property
    def predictions_path(self) -> Path | None:
        """The file that the predictions are written to, if any."""
        default = next((folder / PREDICTIONS_FILE for folder in self.folders), None)
        return Path(self.predictions_file) if self.predictions_file else default

    @property
    def num_fictional_people(self) -> int:
        """How many people who do not exist are asked about; none without a report."""
        if not self.report:
            return 0
        return 200 if self.fictional_people is None else self.fictional_people

    @property
    def input_files(self) -> list[Path]:
        """The files that are read, those of a model excepted."""
        given = (self.test_file, self.train_file, self.calibration_file, self.unseen_file)
        files = [file for files in given for file in files or ()]
        corpora = find_files(self.corpus_file) if self.corpus_file else []
        return [Path(file) for file in (*files, *corpora, self.relations) if file]


def check_arguments(arguments: EvaluationArguments) -> None:
    """Check that no option is missing, that all are compatible, and that the results can be written.

    Raises:
        BadInput: one is missing, two are not compatible, or a path is not what it should be.
    """
    if arguments.baseline is None:
        if arguments.model_name_or_path is None:
            raise BadInput("--model_name_or_path is missing; name a model, or give a --baseline.")
        if arguments.predictions_path is None:
            raise BadInput("--output_dir is missing; name the folder for predictions.txt and metrics.json.")
    elif arguments.model_name_or_path or arguments.report or arguments.update_model_card:
        raise BadInput(
            "--baseline gives everyone one answer and asks no model; leave out --model_name_or_path, --report and"
            " --update_model_card, or --baseline."
        )
    check_report_arguments(arguments)
    for folder in arguments.folders:
        check_is_folder_or_new(folder)
    if arguments.predictions_file:
        check_can_be_written(Path(arguments.predictions_file), arguments)


def check_report_arguments(arguments: EvaluationArguments) -> None:
    """Check the options of a report.

    Raises:
        BadInput: one is given without --report, one is missing, or two are not compatible.
    """
    chosen_by = ("abstain_below", "target_precision", "wrong_costs")
    groups = ("calibration_file", "unseen_file", "fictional_people")
    for name in ("corpus_file", *groups, *chosen_by, "unseen_share"):
        if getattr(arguments, name) is not None and not arguments.report:
            raise BadInput(f"--{name} is for a report; add --report with a folder.")
    if arguments.report and not arguments.train_file:
        raise BadInput("--report compares each answer with those of the training questions; add --train_file.")
    if arguments.target_precision is not None and not arguments.calibration_file:
        raise BadInput("--target_precision is found on people held out from training; add --calibration_file.")
    if arguments.wrong_costs is not None and not (arguments.calibration_file and arguments.unseen_file):
        raise BadInput(
            "--wrong_costs weighs people held out from training against people taken out of the corpus; add"
            " --calibration_file and --unseen_file."
        )
    if arguments.unseen_share is not None and arguments.wrong_costs is None:
        raise BadInput("--unseen_share is for --wrong_costs; add it.")
    given = [f"--{name}" for name in chosen_by if getattr(arguments, name) is not None]
    if len(given) > 1:
        raise BadInput(f"{' and '.join(given)} choose the same threshold; give one of them.")


def check_can_be_written(file: Path, arguments: EvaluationArguments) -> None:
    """Check that the predictions can be written where they are wanted.

    Raises:
        BadInput: it is a directory, a file that is read or where other results go, or its folder does not exist.
    """
    created = [folder.resolve() for folder in arguments.folders]
    if file.is_dir():
        raise BadInput(f"{file}: this is a directory; give the file to write the predictions to.")
    if file.exists() and not file.is_file():
        # It would be replaced by one.
        raise BadInput(f"{file}: this is a pipe or a device; give a file to write the predictions to.")
    if not file.parent.is_dir() and file.parent.resolve() not in created:
        raise BadInput(f"{file}: there is no folder {file.parent}; create it first (mkdir -p {file.parent}).")
    if file.resolve() in [path.resolve() for path in arguments.input_files]:
        raise BadInput(f"{file}: this file is read; give another file to write the predictions to.")
    # Several relations have a folder each in the report's.
    in_report = arguments.report and file.resolve().is_relative_to(Path(arguments.report).resolve())
    if file.resolve() in [folder / METRICS_FILE for folder in created] or (
        in_report and file.name in (METRICS_FILE, RUN_FILE, *REPORT_FILES)
    ):
        raise BadInput(f"{file}: other results are written there; give another file to write the predictions to.")
