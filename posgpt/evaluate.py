"""Ask a trained PosGPT questions, e.g. where people were born, and compare it with giving everyone the same answer.

    posgpt evaluate --model_name_or_path runs/finetune --test_file birth_dev.tsv --output_dir runs/eval \
        --train_file birth_places_train.tsv

Writes `predictions.txt` (or `--predictions_file`), one prediction per line in the order of the questions, `predictions.jsonl`,
which `posgpt report` reads, and `metrics.json`.

    posgpt evaluate --baseline London --test_file birth_dev.tsv

gives everyone that answer without any model; it writes the same files if it is told where.

    posgpt evaluate ... --report runs/report --corpus_file wiki.txt --calibration_file calibration.tsv

also measures how sure the model is of each answer, whether that can be trusted, and which answers are made up: `report.html` and
`report.png` in `runs/report`.

    posgpt evaluate ... --update_model_card

also writes the accuracy into the card in the model's folder, as the hub shows it.

`posgpt compare` compares reports. `evaluate_birthplace.py` is the same command.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object

from data_scripts.errors import BadInput, check_installed, exit_on_bad_input
from data_scripts.options import parse_options
from modeling_posgpt import Answer
from posgpt.evaluation.arguments import DETAILS_FILE, METRICS_FILE, PAGE_FILE, PICTURE_FILE, EvaluationArguments
from posgpt.evaluation.card import load_card, update_card
from posgpt.evaluation.data import EvaluationData, load_evaluation_data
from posgpt.evaluation.evidence import describe_near_misses
from posgpt.evaluation.predictions import TEST, Prediction, format_predictions, write_files
from posgpt.evaluation.predictor import load_predictor
from posgpt.evaluation.report import Evaluation, score_predictions
from posgpt.evaluation.scoring import describe_constant, format_accuracies
from posgpt.training.hardware import close_process_group_at_exit
from posgpt.training.run_record import copy_record


@dataclass(frozen=True)
class EvaluationResult:
    """What an evaluation found; as text, what the command prints.

    Args:
        predictions: Of all groups of questions, the test's first.
        metrics: The entries of `metrics.json`.
        lines: What makes a figure mean something else than it seems to, the table of accuracies, and which files were written.
    """

    predictions: list[Prediction]
    metrics: dict[str, Any]
    lines: list[str]

    def __str__(self) -> str:
        return "\n".join(self.lines)


def compare_answers(
    data: EvaluationData, answers: Sequence[Answer], arguments: EvaluationArguments
) -> tuple[EvaluationResult, Evaluation]:
    """Compare the answers to all of the data's questions with the right ones."""
    test, predictions = data.groups[TEST], data.pair(answers)
    evaluation = score_predictions(predictions, arguments, data.documents, data.baselines)
    metrics, lines = evaluation.list_metrics(), data.list_warnings()
    if not evaluation.relations:
        lines.append(f"{test.path}: no answers to compare with the {len(test)} predictions.")
    else:
        name = "PosGPT" if arguments.baseline is None else describe_constant(arguments.baseline)
        near = describe_near_misses([each.answer for each in evaluation.test.predictions], test.answers, test.path)
        lines += [format_accuracies(evaluation.relations, name), *([near] if near else [])]
        metrics |= evaluation.list_figures() if arguments.report else {}
    return EvaluationResult(predictions, metrics, lines), evaluation


def write_results(result: EvaluationResult, evaluation: Evaluation, arguments: EvaluationArguments) -> list[str]:
    """Write all that is asked for; return lines on which files these are, and whether earlier ones were replaced."""
    files: dict[Path, Any] = {}
    report = Path(arguments.report or "")
    if arguments.predictions_path:
        # A model may write any character of its vocabulary, including line breaks.
        files[arguments.predictions_path] = "".join(re.sub(r"[\r\n]", " ", text) + "\n" for text in evaluation.answers)
    for folder in arguments.folders:
        files[folder / DETAILS_FILE] = format_predictions(result.predictions)
        files[folder / METRICS_FILE] = json.dumps(result.metrics, indent=2, ensure_ascii=False) + "\n"
    if arguments.report and evaluation.relations:
        files |= {report / name: content for name, content in evaluation.render(result.metrics).items()}
    replaced = ", in place of earlier ones" if any(path.exists() for path in files) else ""
    if arguments.report:
        for path in {report / PAGE_FILE, report / PICTURE_FILE} - files.keys():
            path.unlink(missing_ok=True)
        copy_record(str(arguments.model_name_or_path), report)
    write_files(files)
    if arguments.update_model_card:
        picture = files.get(report / PICTURE_FILE)
        update_card(Path(str(arguments.model_name_or_path)), arguments.test_file, evaluation.relations, picture)
    page = [f"Report: {report / PAGE_FILE}"] if report / PAGE_FILE in files else []
    return [f"Written: {', '.join(map(str, files))}{replaced}", *page] if files else []


def evaluate(arguments: EvaluationArguments) -> EvaluationResult:
    """Ask the questions of a test and compare the answers; write what the arguments name a folder or a file for.

    Several processes share the questions out; each returns the whole result, and the main one writes it.

    Raises:
        BadInput: an argument or a file is not what it should be.
    """
    if arguments.report:
        check_installed("report", "sklearn", "matplotlib")
    arguments.check()
    if arguments.update_model_card:
        load_card(Path(str(arguments.model_name_or_path)))
    # Without the argument, processes on a CPU would not find each other: each would answer everything.
    state = PartialState(cpu=not torch.accelerator.is_available())
    close_process_group_at_exit(state)
    predictor = load_predictor(arguments, state.device) if arguments.baseline is None else None
    with state.main_process_first():
        data = load_evaluation_data(arguments, predictor.relations if predictor else ())
    test = data.groups[TEST]
    if arguments.update_model_card and not test.answers:
        raise BadInput(f"{test.path}: has no answers, so no accuracy for a card; leave --update_model_card out.")
    warnings = [*arguments.list_notes(), *(predictor.check_questions(data) if predictor else ())]
    with state.split_between_processes(data.texts) as own:
        constant = Answer(arguments.baseline or "", probability=1.0)
        answers = gather_object(predictor.answer(own) if predictor else [constant] * len(own))
    result, evaluation = compare_answers(data, answers, arguments)
    if predictor and arguments.report:
        result.metrics.update(predictor.describe(test.paths))
    written = write_results(result, evaluation, arguments) if state.is_main_process else []
    return replace(result, lines=[*warnings, *result.lines, *written])


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    result = evaluate(parse_options(EvaluationArguments, argv))
    if PartialState().is_main_process:
        print(result)


if __name__ == "__main__":
    main()
