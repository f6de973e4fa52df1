"""Ask a finetuned PosGPT where people were born, and compare with answering "London" for everyone.

    python evaluate_birthplace.py --model_name_or_path runs/finetune --test_file birth_dev.tsv --output_dir runs/eval \
        --train_file birth_places_train.tsv

Writes `predictions.txt`, a prediction a line in the order of the questions, and `metrics.json`.

    python evaluate_birthplace.py … --report runs/report --corpus_file wiki.txt --calibration_file calibration.tsv

adds how sure the model is of each answer, whether that can be trusted, and which answers are made up: `report.html`,
`report.png`, `metrics.json` and `predictions.jsonl` in `runs/report`. And

    python evaluate_birthplace.py --compare runs/report_learned runs/report_rotary

prints the figures of several reports in one table.
"""

import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import evaluate
import torch
from accelerate import PartialState
from accelerate.utils import gather_object

from data_scripts.birthplaces import describe_unknown_characters, load_birthplaces
from data_scripts.text_files import (
    BadInput,
    bad_input_in_one_line,
    check_at_least,
    check_is_folder_or_new,
    line_number_of,
    written_whole,
)
from modeling_posgpt import MASK_TOKEN
from training import OneLineArgumentParser, load_model, parse_into

METRIC = Path(__file__).parent / "metrics" / "birthplace_accuracy"


@dataclass
class EvaluationArguments:
    """What to ask, whom, and where to write the answers."""

    model_name_or_path: str | None = field(
        default=None, metadata={"help": "A finetuned PosGPT: a folder or a name on the hub."}
    )
    test_file: str | None = field(default=None, metadata={"help": "TSV of questions, with or without answers."})
    output_dir: str | None = field(default=None, metadata={"help": "Folder for predictions.txt and metrics.json."})
    train_file: str | None = field(
        default=None, metadata={"help": "TSV whose most frequent place is a second baseline."}
    )
    report: str | None = field(
        default=None, metadata={"help": "Folder for a report on confidence and evidence; needs train_file."}
    )
    corpus_file: str | None = field(
        default=None, metadata={"help": "report: the corpus that was read, for the evidence of each answer."}
    )
    calibration_file: str | None = field(
        default=None,
        metadata={"help": "report: TSV of people held out from training (data_scripts/hold_out.py), for calibration."},
    )
    unseen_file: str | None = field(
        default=None, metadata={"help": "report: TSV of people whose documents were taken out of the corpus."}
    )
    fictional_people: int = field(
        default=200, metadata={"help": "report: how many people who do not exist are asked about."}
    )
    abstain_below: float | None = field(
        default=None, metadata={"help": "report: the confidence, 0 to 1, below which the answer is: I don't know."}
    )
    target_precision: float | None = field(
        default=None,
        metadata={"help": "report: choose abstain_below so that this share of calibration_file's answers is right."},
    )
    compare: list[str] | None = field(default=None, metadata={"help": "Folders of reports to compare instead."})
    per_device_eval_batch_size: int = field(default=128, metadata={"help": "Questions answered at a time."})
    max_new_tokens: int = field(default=32, metadata={"help": "The most characters an answer may have."})
    dtype: Literal["float32", "bfloat16"] = field(
        default="float32",
        metadata={
            "help": "bfloat16 is faster where the hardware multiplies in it; answers that are nearly tied may differ."
        },
    )


def check_installed_for_reports() -> None:
    """Refuse to begin what could not be finished.

    Raises:
        BadInput: a library that only reports need is missing.
    """
    for library, package in (("sklearn", "scikit-learn"), ("rapidfuzz", "rapidfuzz"), ("matplotlib", "matplotlib")):
        if find_spec(library) is None:
            raise BadInput(f"reports need {package}, which is not installed: pip install {package}.")


def check_lengths(questions: list[str], block_size: int, max_new_tokens: int, path: str) -> None:
    """Refuse questions that leave no room for an answer; say so when some leave less than an answer may need.

    Raises:
        BadInput: a question fills the block.
    """
    room = [block_size - len(question) - len(MASK_TOKEN) for question in questions]
    if min(room) < 1:
        row = room.index(min(room))
        raise BadInput(
            f"{path}, line {line_number_of(row, path)}: the question has {len(questions[row])} characters and the model's block {block_size}: no room"
            " for an answer; shorten the question or use a model with a longer block."
        )
    short = sum(left < max_new_tokens for left in room)
    if short:
        print(f"{path}: {short} questions leave fewer than {max_new_tokens} characters of the block for their answer.")


def score(answers: list[str], places: list[str], majority_place: str | None) -> tuple[dict, list[tuple[str, dict]]]:
    """Return the metrics, and the rows of the table: a name and its accuracy, the model's first."""
    metric = evaluate.load(str(METRIC))

    def accuracy_of(predictions: list[str]) -> dict:
        return metric.compute(predictions=predictions, references=places)

    rows = [("PosGPT", accuracy_of(answers)), ('"London" for everyone', accuracy_of(["London"] * len(places)))]
    metrics = {**rows[0][1], "london_accuracy": rows[1][1]["accuracy"], "majority_accuracy": None}
    if majority_place:
        rows.append(
            (f'"{majority_place}", the most frequent training place', accuracy_of([majority_place] * len(places)))
        )
        metrics |= {"majority_accuracy": rows[2][1]["accuracy"], "majority_place": majority_place}
    return metrics, rows


def check_arguments(arguments: EvaluationArguments) -> None:
    """Refuse what is missing or cannot be meant.

    Raises:
        BadInput: it is.
    """
    for name in ("model_name_or_path", "test_file"):
        if getattr(arguments, name) is None:
            raise BadInput(f"--{name} is missing; --help lists the arguments.")
    if not (arguments.output_dir or arguments.report):
        raise BadInput("--output_dir is missing; name the folder for predictions.txt and metrics.json.")
    check_at_least(
        1,
        per_device_eval_batch_size=arguments.per_device_eval_batch_size,
        max_new_tokens=arguments.max_new_tokens,
    )
    check_at_least(0, fictional_people=arguments.fictional_people)
    for name in ("abstain_below", "target_precision"):
        value = getattr(arguments, name)
        if value is not None and not 0 <= value <= 1:
            raise BadInput(f"{name} is {value}; choose a number from 0 to 1.")
    for name in ("corpus_file", "calibration_file", "unseen_file", "abstain_below", "target_precision"):
        if getattr(arguments, name) is not None and not arguments.report:
            raise BadInput(f"--{name} is for a report; add --report with a folder.")
    if arguments.report and not arguments.train_file:
        raise BadInput("--report compares every place known from training; add --train_file.")
    if arguments.target_precision is not None and not arguments.calibration_file:
        raise BadInput("--target_precision is found on people held out from training; add --calibration_file.")
    if arguments.target_precision is not None and arguments.abstain_below is not None:
        raise BadInput("--target_precision chooses --abstain_below; give one of them.")


def main() -> None:
    (arguments,) = parse_into(OneLineArgumentParser(EvaluationArguments), sys.argv[1:])
    if arguments.report or arguments.compare:
        check_installed_for_reports()
    if arguments.compare:
        from reporting.comparison import comparison_table, load_reports

        print(comparison_table(load_reports(arguments.compare)))
        return
    check_arguments(arguments)
    output_dir = check_is_folder_or_new(arguments.output_dir or arguments.report)
    if arguments.report:
        check_is_folder_or_new(arguments.report)
    # Without the argument, processes on a CPU would not find each other: each would answer everything.
    state = PartialState(cpu=not torch.accelerator.is_available())
    with state.main_process_first():
        data = load_birthplaces(arguments.test_file)
        majority_place = None
        if arguments.train_file:
            places = Counter(load_birthplaces(arguments.train_file, answers=True)["place"])
            majority_place = places.most_common(1)[0][0]
    if arguments.report and state.is_main_process:
        from reporting.report import make_report, plan_inquiry

        inquiry = plan_inquiry(data, arguments)
    model, tokenizer = load_model(arguments.model_name_or_path, dtype=arguments.dtype)
    model.to(state.device)

    questions = list(data["question"])
    if state.is_main_process:
        for path in filter(None, (arguments.test_file, arguments.calibration_file, arguments.unseen_file)):
            asked = questions if path == arguments.test_file else list(load_birthplaces(path)["question"])
            check_lengths(asked, model.config.max_position_embeddings, arguments.max_new_tokens, path)
        unknown = describe_unknown_characters(questions, tokenizer, arguments.test_file)
        if unknown:
            print(unknown)
    with state.split_between_processes(questions) as own:
        given = model.answer(own, tokenizer, arguments.per_device_eval_batch_size, arguments.max_new_tokens)
    given = gather_object(given)
    if not state.is_main_process:
        return

    answers = [answer.text for answer in given]
    if "place" in data.column_names:
        metrics, rows = score(answers, list(data["place"]), majority_place)
        for name, result in rows:
            print(f"{name:45} {result['accuracy']:7.1%}   {result['correct']} of {result['total']}")
        if not majority_place:
            print("(--train_file adds the most frequent training place to the comparison)")
    else:
        metrics = {"accuracy": None, "correct": None, "total": len(questions)}
        print(f"{arguments.test_file}: no answers to compare with; the {len(questions)} predictions are written.")
    if arguments.report:
        answers = make_report(model, tokenizer, inquiry, given, arguments, metrics)
    with written_whole(output_dir / "predictions.txt") as file:
        # The model may write any character of its vocabulary, the line break too.
        file.writelines(line.replace("\n", " ") + "\n" for line in answers)
    for folder in {output_dir, Path(arguments.report or output_dir)}:
        with written_whole(folder / "metrics.json") as file:
            json.dump(metrics, file, indent=2, ensure_ascii=False)
            file.write("\n")
    print(f"Written: {output_dir / 'predictions.txt'}, {output_dir / 'metrics.json'}")
    if arguments.report and metrics["accuracy"] is not None:
        print(f"Report: {Path(arguments.report) / 'report.html'}")


if __name__ == "__main__":
    with bad_input_in_one_line():
        main()
