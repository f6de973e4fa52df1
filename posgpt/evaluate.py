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

from data_scripts.errors import BadInput
from data_scripts.files import write_file
from data_scripts.options import parse_options
from data_scripts.relations import read_relations
from posgpt.evaluation.arguments import (
    DETAILS_FILE,
    METRICS_FILE,
    PAGE_FILE,
    PICTURE_FILE,
    PREDICTIONS_FILE,
    EvaluationArguments,
)
from posgpt.evaluation.card import load_card, update_card
from posgpt.evaluation.data import check_questions, list_warnings, load_evaluation_data
from posgpt.evaluation.evidence import normalize_answer
from posgpt.evaluation.predictions import TEST, Prediction, answer_questions, format_predictions
from posgpt.evaluation.report import Evaluation, score_predictions
from posgpt.evaluation.scoring import BASELINES, compute_recall, format_accuracies
from posgpt.training.hardware import close_process_group_at_exit
from posgpt.training.run_record import copy_record, list_training_files
from posgpt.training.saved_models import check_is_causal, load_model


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


def describe_accuracies(evaluation: Evaluation, name: str, path: str) -> list[str]:
    """Return the table of accuracies, and how many wrong answers are the correct ones in another spelling."""
    predictions = evaluation.test.predictions
    if not evaluation.relations:
        return [f"{path}: no answers to compare with the {len(predictions)} predictions."]
    near = []
    for each in (each for each in predictions if each.answer not in each.references):
        answer = normalize_answer(each.answer)
        near += [(each.answer, right) for right in each.references if normalize_answer(right) == answer][:1]
    spelled = [
        f"{path}: {len(near):,} answers that count as wrong differ from the correct ones only in case, accents, punctuation or"
        f" Unicode form, first {given!r} instead of {right!r}."
        for given, right in near[:1]
    ]
    if (recall := compute_recall(predictions)) is not None:
        spelled.append(f"{path}: recall of all correct answers, where a question has several: {recall:.1%}.")
    return [format_accuracies(evaluation.relations, name), *spelled]


def write_results(
    result: EvaluationResult, evaluation: Evaluation, texts: Sequence[str], arguments: EvaluationArguments
) -> list[str]:
    """Write all that is asked for, in `predictions.txt` the answer to each of `texts`, the questions of the test's lines; return
    lines on which files these are, and whether earlier ones were replaced.
    """
    files: dict[Path, Any] = {}
    model, report = arguments.model_name_or_path, Path(arguments.report or "")
    if arguments.predictions_path:
        test = evaluation.test
        answers = {
            each.question: each.answer if sure else "I don't know"
            for each, sure in zip(test.predictions, test.is_sure, strict=True)
        }
        # A model may write any character of its vocabulary, including line breaks.
        files[arguments.predictions_path] = "".join(re.sub(r"[\r\n]", " ", answers[text]) + "\n" for text in texts)
    for folder in arguments.folders:
        files[folder / DETAILS_FILE] = format_predictions(result.predictions)
        files[folder / METRICS_FILE] = json.dumps(result.metrics, indent=2, ensure_ascii=False) + "\n"
    rendered = evaluation.render(result.metrics) if arguments.report and evaluation.relations else {}
    files |= {report / name: content for name, content in rendered.items()}
    replaced = ", in place of earlier ones" if any(path.exists() for path in files) else ""
    # What was answered earlier does not stay beside these.
    stale = [each for each in arguments.folders if (each / PAGE_FILE).exists() or (each / METRICS_FILE).exists()]
    for path in {each / name for each in stale for name in (PREDICTIONS_FILE, PAGE_FILE, PICTURE_FILE)} - files.keys():
        path.unlink(missing_ok=True)
    for path, content in files.items():
        write_file(path, content)
    for folder in arguments.folders:
        copy_record(model, folder)
    if arguments.update_model_card:
        update_card(Path(str(model)), arguments.test_file, evaluation.relations, rendered.get(PICTURE_FILE))
    page = [f"Report: {report / PAGE_FILE}"] if rendered else []
    return [f"Written: {', '.join(map(str, files))}{replaced}", *page] if files else []


def evaluate(arguments: EvaluationArguments) -> EvaluationResult:
    """Ask the questions of a test and compare the answers; write what the arguments name a folder or a file for.

    Several processes share the questions out; each returns the whole result, and the main one writes it.

    Raises:
        BadInput: an argument or a file is not what it should be.
    """
    arguments.check()
    path, model, tokenizer, relations = str(arguments.model_name_or_path), None, None, []
    if arguments.update_model_card:
        load_card(Path(path))
    # Without the argument, processes on a CPU would not find each other: each would answer everything.
    state = PartialState(cpu=not torch.accelerator.is_available())
    close_process_group_at_exit(state)
    if arguments.baseline is None:
        model, tokenizer = load_model(path, dtype=arguments.dtype)
        check_is_causal(path, model)
        model, relations = model.to(state.device), read_relations(model.config.relations)
    with state.main_process_first():
        data = load_evaluation_data(arguments, relations)
    test, lines, name = data.groups[TEST], [], BASELINES["baseline"].format(arguments.baseline)
    if arguments.update_model_card and not test.answers:
        raise BadInput(f"{test.path}: has no answers, so no accuracy for a card; leave --update_model_card out.")
    predictions = [replace(each, answer=arguments.baseline or "", probability=1.0) for each in data.questions]
    if model and tokenizer:
        name, longest = "PosGPT", arguments.max_new_tokens or model.config.max_answer_length
        lines += check_questions(data, model, tokenizer, longest, list_training_files(path))
        with state.split_between_processes(data.questions) as own:
            answered = answer_questions(own, model, tokenizer, 0, arguments.per_device_eval_batch_size, longest)
            predictions = gather_object(answered)
    evaluation = score_predictions(predictions, arguments.abstain_below, data.documents, data.baselines)
    lines += [*list_warnings(data), *describe_accuracies(evaluation, name, test.path)]
    metrics = evaluation.list_metrics()
    if model and arguments.report:
        metrics |= evaluation.list_figures() if evaluation.relations else {}
        files = ", ".join(Path(file).name for file in test.paths)
        positions = model.config.position_embedding_type
        metrics |= {"model": path, "position_embedding_type": positions, "test_file": files}
    result = EvaluationResult(predictions, metrics, lines)
    if state.is_main_process:
        lines += write_results(result, evaluation, test.texts, arguments)
    return result


def main(argv: list[str] | None = None) -> None:
    result = evaluate(parse_options(EvaluationArguments, argv))
    if PartialState().is_main_process:
        print(result)
