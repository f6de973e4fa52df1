"""The options of an evaluation, and whether they are compatible."""

from dataclasses import dataclass
from typing import Annotated, Literal

from data_scripts.errors import BadInput
from data_scripts.options import Range, option


@dataclass
class EvaluationArguments:
    """What to ask, which model, and where to write the answers."""

    model_name_or_path: str | None = option("The PosGPT to ask: a folder or a name on the hub.", default=None)
    test_file: str | None = option("TSV of questions, with or without answers.", default=None)
    output_dir: str | None = option("Folder for predictions.txt and metrics.json.", default=None)
    train_file: str | None = option("TSV whose most frequent answer is a second baseline.", default=None)
    report: str | None = option("Folder for a report on confidence and evidence; needs train_file.", default=None)
    corpus_file: str | None = option(
        "report: the corpus that the model has read, for the evidence of each answer.", default=None
    )
    calibration_file: str | None = option(
        "report: TSV of people held out from training (posgpt hold-out), for calibration.", default=None
    )
    unseen_file: str | None = option(
        "report: TSV of people whose documents were taken out of the corpus.", default=None
    )
    fictional_people: Annotated[int, Range(0)] = option(
        "report: how many people who do not exist are asked about.", default=200
    )
    abstain_below: Annotated[float | None, Range(0, 1)] = option(
        "report: the confidence below which the answer is: I don't know.", default=None
    )
    target_precision: Annotated[float | None, Range(0, 1)] = option(
        "report: choose abstain_below so that this share of calibration_file's answers is right.", default=None
    )
    compare: list[str] | None = option("Folders of reports to compare instead.", default=None)
    per_device_eval_batch_size: Annotated[int, Range(1)] = option("Questions per batch.", default=128)
    max_new_tokens: Annotated[int, Range(1)] = option("Maximum number of characters in an answer.", default=32)
    dtype: Literal["float32", "bfloat16"] = option(
        "bfloat16 is faster on hardware that multiplies in it; answers that are nearly tied may differ.",
        default="float32",
    )


def check_arguments(arguments: EvaluationArguments) -> None:
    """Check that no option is missing and that all are compatible.

    Raises:
        BadInput: one is missing, or two are not.
    """
    for name in ("model_name_or_path", "test_file"):
        if getattr(arguments, name) is None:
            raise BadInput(f"--{name} is missing; --help lists the options.")
    if not (arguments.output_dir or arguments.report):
        raise BadInput("--output_dir is missing; name the folder for predictions.txt and metrics.json.")
    for name in ("corpus_file", "calibration_file", "unseen_file", "abstain_below", "target_precision"):
        if getattr(arguments, name) is not None and not arguments.report:
            raise BadInput(f"--{name} is for a report; add --report with a folder.")
    if arguments.report and not arguments.train_file:
        raise BadInput("--report compares every place known from training; add --train_file.")
    if arguments.target_precision is not None and not arguments.calibration_file:
        raise BadInput("--target_precision is found on people held out from training; add --calibration_file.")
    if arguments.target_precision is not None and arguments.abstain_below is not None:
        raise BadInput("--target_precision chooses --abstain_below; give one of them.")
