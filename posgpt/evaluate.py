"""Ask a trained PosGPT questions, e.g. where people were born, and compare it with giving everyone the same answer.

    posgpt evaluate --model_name_or_path runs/finetune --test_file birth_dev.tsv --output_dir runs/eval \
        --train_file birth_places_train.tsv

Writes `predictions.txt` (or `--predictions_file`), one prediction per line in the order of the questions, and
`metrics.json`.

    posgpt evaluate --baseline London --test_file birth_dev.tsv

gives everyone that answer without any model; it writes the same files if it is told where.

    posgpt evaluate ... --report runs/report --corpus_file wiki.txt --calibration_file calibration.tsv

also measures how sure the model is of each answer, whether that can be trusted, and which answers are made up:
`report.html`, `report.png`, `metrics.json` and `predictions.jsonl` in `runs/report`, or with questions of several relations
in a folder there for each.

    posgpt evaluate ... --update_model_card

also writes the accuracy into the card in the model's folder, as the hub shows it.

`posgpt compare` compares reports. `evaluate_birthplace.py` is the same command.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from accelerate import PartialState
from accelerate.utils import gather_object

from data_scripts.errors import BadInput, check_installed, exit_on_bad_input
from data_scripts.files import make_file_name, write_atomically
from data_scripts.options import parse_options
from data_scripts.questions import Questions, load_questions
from data_scripts.relations import Relation, load_relations
from modeling_posgpt import Answer
from posgpt.evaluation.accuracy import Accuracies, format_accuracies, measure_accuracies
from posgpt.evaluation.answerers import Answerer, AskedModel, load_answerer
from posgpt.evaluation.arguments import (
    METRICS_FILE,
    PAGE_FILE,
    REPORT_FILES,
    EvaluationArguments,
    check_arguments,
)
from posgpt.evaluation.card import load_card, update_card
from posgpt.evaluation.data import TEST, EvaluationData, load_evaluation_data
from posgpt.evaluation.evidence import describe_near_misses
from posgpt.training.hardware import close_process_group_at_exit
from posgpt.training.run_record import copy_record


def print_accuracies(name: str, accuracies: dict[str, Accuracies], data: EvaluationData) -> None:
    """Print the table of an evaluation, and what would add to it.

    Args:
        name: What answered.
        accuracies: By relation, and of several all together.
    """
    print(format_accuracies(accuracies, name))
    if data.training is None:
        print("(--train_file adds the most frequent training answer to the comparison)")
        return
    for relation in data.groups[TEST].relations:
        if accuracies[relation.name].majority is None:
            print(f"({data.training.path}: has no question {relation.form!r}, so no most frequent answer to compare)")


def write_metrics(folder: Path, metrics: dict[str, Any]) -> None:
    """Write `metrics.json` into a folder."""
    with write_atomically(folder / METRICS_FILE) as file:
        json.dump(metrics, file, indent=2, ensure_ascii=False)
        file.write("\n")


def write_results(
    predictions_file: Path, folders: Sequence[Path], answers: Sequence[str], metrics: dict[str, Any]
) -> None:
    """Write the predictions, one per line, and `metrics.json` into each folder; earlier ones are replaced, which is said."""
    files = [predictions_file, *(folder / METRICS_FILE for folder in folders)]
    replaced = ", in place of earlier ones" if any(file.exists() for file in files) else ""
    with write_atomically(predictions_file) as file:
        # The model may write any character of its vocabulary, including line breaks.
        file.writelines(re.sub(r"[\r\n]", " ", line) + "\n" for line in answers)
    for folder in folders:
        write_metrics(folder, metrics)
    print(f"Written: {', '.join(map(str, files))}{replaced}")


def write_report(folder: Path, contents: Mapping[str, bytes], model_name_or_path: str) -> None:
    """Write a report's files and its model's record into a folder; an older report's that it does not have are removed."""
    for name in REPORT_FILES:
        if name in contents:
            with write_atomically(folder / name, "wb") as file:
                file.write(contents[name])
        else:
            (folder / name).unlink(missing_ok=True)
    copy_record(model_name_or_path, folder)


class Evaluation(NamedTuple):
    """The answers to one relation's questions, compared with the right ones.

    Args:
        texts: The answers; `I don't know` where a report finds the model not sure enough.
        accuracies: None if the questions have no answers.
        metrics: The entries of `metrics.json`.
        report: The contents of the report's files by their names; empty without one, and for several relations together.
    """

    texts: list[str]
    accuracies: Accuracies | None
    metrics: dict[str, Any]
    report: Mapping[str, bytes] = MappingProxyType({})


def choose_report_folders(arguments: EvaluationArguments, test: Questions) -> dict[Relation, Path]:
    """Return the folder of each relation's report: the one that is given, or for several relations folders in it.

    Raises:
        BadInput: two relations would have one folder.
    """
    if not arguments.report:
        return {}
    folder = Path(arguments.report)
    if len(test.relations) == 1:
        return {test.relations[0]: folder}
    folders = {relation: folder / make_file_name(relation.name) for relation in test.relations}
    if len({folder, *folders.values()}) <= len(folders):
        names = ", ".join(repr(relation.name) for relation in test.relations)
        raise BadInput(
            f"{test.path}: {names}: the reports of two of these relations would have one folder, since their names differ in"
            " punctuation only; give one of them another name, with --relations."
        )
    return folders


def evaluate_relation(
    arguments: EvaluationArguments, answerer: Answerer, data: EvaluationData, answers: list[Answer]
) -> Evaluation:
    """Compare the answers to the test questions of one relation with the right ones; make its report, if one is wanted."""
    test = data.groups[TEST]
    texts, accuracies = [answer.text for answer in answers], None
    metrics: dict[str, Any] = {"accuracy": None, "correct": None, "total": len(test)}
    if test.answers:
        (relation,) = test.relations
        accuracies = measure_accuracies(texts, test.answers, relation.baseline, data.training_answers)
        metrics = accuracies.to_metrics()
    if not (arguments.report and isinstance(answerer, AskedModel)):
        return Evaluation(texts, accuracies, metrics)
    # Its libraries, scikit-learn, rapidfuzz and matplotlib, are needed for reports only.
    from posgpt.evaluation.report import make_report, render_report

    report = make_report(arguments, answerer, data, answers, accuracies)
    return Evaluation(report.answers, accuracies, metrics | report.facts | report.figures, render_report(report))


def evaluate_together(test: Questions, answers: list[Answer], evaluations: dict[str, Evaluation]) -> Evaluation:
    """Evaluate the answers to the questions of several relations together; `evaluations` has each relation's."""
    texts = [answer.text for answer in answers]
    accuracies = measure_accuracies(texts, test.answers, "", ()) if test.answers else None
    for each, rows in zip(evaluations.values(), test.rows_of.values(), strict=True):
        for row, text in zip(rows, each.texts, strict=True):
            texts[row] = text
    metrics = accuracies.given.to_metrics() if accuracies else {"accuracy": None, "correct": None, "total": len(test)}
    return Evaluation(
        texts, accuracies, metrics | {"relations": {name: each.metrics for name, each in evaluations.items()}}
    )


def compare_and_write(
    arguments: EvaluationArguments, answerer: Answerer, data: EvaluationData, test_answers: list[Answer]
) -> None:
    """Compare the answers to the test questions with the right ones; print and write the results, and any reports."""
    test = data.groups[TEST]
    folders = choose_report_folders(arguments, test)
    # All reports are made before any is written.
    evaluations = {
        relation.name: evaluate_relation(
            arguments, answerer, data.select(relation), [test_answers[row] for row in rows]
        )
        for relation, rows in test.rows_of.items()
    }
    whole = (
        next(iter(evaluations.values()))
        if len(evaluations) == 1
        else evaluate_together(test, test_answers, evaluations)
    )
    of_relation = {name: each.accuracies for name, each in evaluations.items() if each.accuracies}
    if whole.accuracies is None:
        print(f"{test.path}: no answers to compare with the {len(test)} predictions.")
    else:
        print_accuracies(
            answerer.name, of_relation if len(evaluations) == 1 else of_relation | {"together": whole.accuracies}, data
        )
    if test.answers and (
        near := describe_near_misses([answer.text for answer in test_answers], test.answers, test.path)
    ):
        print(near)
    if arguments.report:
        # Of several relations together, there is none: what an earlier evaluation left there would be another's.
        reports = {Path(arguments.report): whole} | {
            folder: evaluations[each.name] for each, folder in folders.items()
        }
        for folder, each in reports.items():
            write_report(folder, each.report, str(arguments.model_name_or_path))
    if arguments.predictions_path:
        write_results(arguments.predictions_path, arguments.folders, whole.texts, whole.metrics)
    if arguments.update_model_card and of_relation:
        update_card(Path(str(arguments.model_name_or_path)), test, of_relation, folders)
    for relation, folder in folders.items():
        if len(folders) > 1:
            write_metrics(folder, evaluations[relation.name].metrics)
        if whole.accuracies:
            print(f"Report: {folder / PAGE_FILE}")


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(EvaluationArguments, argv)
    if arguments.report:
        check_installed("report", "sklearn", "rapidfuzz", "matplotlib")
    check_arguments(arguments)
    if arguments.update_model_card:
        load_card(Path(arguments.model_name_or_path))
    # Without the argument, processes on a CPU would not find each other: each would answer everything.
    state = PartialState(cpu=not torch.accelerator.is_available())
    close_process_group_at_exit(state)
    answerer = load_answerer(arguments, state.device)
    known = [*load_relations(arguments.relations), *answerer.relations]
    # Every process asks its share of the test questions; the rest is for the main process.
    with state.main_process_first():
        test = load_questions(*arguments.test_file, known=known)
    if arguments.update_model_card and not test.answers:
        raise BadInput(f"{test.path}: has no answers, so no accuracy for a card; leave --update_model_card out.")
    if state.is_main_process:
        data = load_evaluation_data(test, arguments, known)
        for warning in [*data.list_warnings(), *answerer.check_questions(data)]:
            print(warning)
    with state.split_between_processes(test.texts) as own:
        answers = answerer.answer(own)
    answers = gather_object(answers)
    if state.is_main_process:
        compare_and_write(arguments, answerer, data, answers)


if __name__ == "__main__":
    main()
