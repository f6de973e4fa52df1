"""Ask a trained PosGPT questions, e.g. where people were born, and compare it with giving everyone the same answer.

    posgpt evaluate --model_name_or_path runs/finetune --test_file birth_dev.tsv --output_dir runs/eval \
        --train_file birth_places_train.tsv

Writes `predictions.txt`, one prediction per line in the order of the questions, and `metrics.json`.

    posgpt evaluate ... --report runs/report --corpus_file wiki.txt --calibration_file calibration.tsv

also measures how sure the model is of each answer, whether that can be trusted, and which answers are made up:
`report.html`, `report.png`, `metrics.json` and `predictions.jsonl` in `runs/report`.

    posgpt evaluate --compare runs/report_learned runs/report_rotary

prints the figures of several reports in one table. `evaluate_birthplace.py` is the same command.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object

from data_scripts.errors import check_installed, exit_on_bad_input
from data_scripts.files import check_is_folder_or_new, write_atomically
from data_scripts.options import parse_options
from data_scripts.questions import load_questions
from modeling_posgpt import Answer
from posgpt.evaluation.accuracy import Accuracies, measure_accuracies
from posgpt.evaluation.arguments import EvaluationArguments, check_arguments
from posgpt.evaluation.inquiry import TEST, AskedModel, Inquiry, check_questions, load_inquiry
from posgpt.training.checkpoints import load_model


def print_accuracies(accuracies: Accuracies) -> None:
    """Print the table of an evaluation."""
    for name, row in accuracies.list_rows().items():
        print(f"{name:45} {row['accuracy']:7.1%}   {row['correct']} of {row['total']}")
    if accuracies.majority is None:
        print("(--train_file adds the most frequent training place to the comparison)")


def write_results(folders: Sequence[Path], answers: Sequence[str], metrics: dict[str, Any]) -> None:
    """Write `predictions.txt` into the first folder and `metrics.json` into each."""
    with write_atomically(folders[0] / "predictions.txt") as file:
        # The model may write any character of its vocabulary, including the line break.
        file.writelines(line.replace("\n", " ") + "\n" for line in answers)
    for folder in folders:
        with write_atomically(folder / "metrics.json") as file:
            json.dump(metrics, file, indent=2, ensure_ascii=False)
            file.write("\n")
    print(f"Written: {folders[0] / 'predictions.txt'}, {folders[0] / 'metrics.json'}")


def judge_and_write(
    arguments: EvaluationArguments, model: AskedModel, inquiry: Inquiry, test_answers: list[Answer]
) -> None:
    """Compare the answers to the test questions with the right ones, print and write the results, and make the report, if any."""
    test, answers = inquiry.groups[TEST], [answer.text for answer in test_answers]
    accuracies: Accuracies | None = None
    metrics: dict[str, Any] = {"accuracy": None, "correct": None, "total": len(test)}
    if test.answers is None:
        print(f"{test.path}: no answers to compare with; the {len(test)} predictions are written.")
    else:
        accuracies = measure_accuracies(answers, test.answers, test.relation.baseline, inquiry.training_answers)
        metrics = accuracies.to_metrics()
        print_accuracies(accuracies)
    if arguments.report:
        # Its libraries, scikit-learn, rapidfuzz and matplotlib, are needed for reports only.
        from posgpt.evaluation.report import make_report, write_report

        report = make_report(arguments, model, inquiry, test_answers, accuracies)
        write_report(Path(arguments.report), report)
        answers, metrics = report.answers, metrics | report.facts | report.figures
    write_results([Path(folder) for folder in (arguments.output_dir, arguments.report) if folder], answers, metrics)
    if arguments.report and accuracies:
        print(f"Report: {Path(arguments.report) / 'report.html'}")


@exit_on_bad_input()
def main() -> None:
    arguments = parse_options(EvaluationArguments)
    if arguments.report or arguments.compare:
        check_installed("report", "sklearn", "rapidfuzz", "matplotlib")
    if arguments.compare:
        from posgpt.evaluation.comparison import format_comparison, load_reports

        print(format_comparison(load_reports(arguments.compare)))
        return
    check_arguments(arguments)
    for folder in filter(None, (arguments.output_dir, arguments.report)):
        check_is_folder_or_new(folder)
    # Without the argument, processes on a CPU would not find each other: each would answer everything.
    state = PartialState(cpu=not torch.accelerator.is_available())
    # Every process asks its share of the test questions; the rest is for the main process.
    with state.main_process_first():
        test = load_questions(arguments.test_file)
    inquiry = Inquiry({TEST: test})
    if state.is_main_process:
        inquiry = load_inquiry(test, arguments)
    model, tokenizer = load_model(arguments.model_name_or_path, dtype=arguments.dtype)
    model.to(state.device)
    asked = AskedModel(model, tokenizer, arguments.per_device_eval_batch_size, arguments.max_new_tokens)
    if state.is_main_process:
        for warning in check_questions(inquiry, asked):
            print(warning)
    with state.split_between_processes(test.texts) as own:
        answers = asked.answer(own)
    answers = gather_object(answers)
    if state.is_main_process:
        judge_and_write(arguments, asked, inquiry, answers)


if __name__ == "__main__":
    main()
