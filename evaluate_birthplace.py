"""Ask a finetuned PosGPT where people were born, and compare with answering "London" for everyone.

    python evaluate_birthplace.py --model_name_or_path runs/finetune --test_file birth_dev.tsv --output_dir runs/eval \
        --train_file birth_places_train.tsv

Writes `predictions.txt`, a prediction a line in the order of the questions, and `metrics.json`.
"""

import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import evaluate
import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from data_scripts.birthplaces import describe_unknown_characters, load_birthplaces
from data_scripts.text_files import (
    BadInput,
    bad_input_in_one_line,
    check_at_least,
    check_is_folder_or_new,
    line_number_of,
    written_whole,
)
from modeling_posgpt import MASK_TOKEN, PosGPTForCausalLM
from training import OneLineArgumentParser, load_model, parse_into

METRIC = Path(__file__).parent / "metrics" / "birthplace_accuracy"


@dataclass
class EvaluationArguments:
    """What to ask, whom, and where to write the answers."""

    model_name_or_path: str = field(metadata={"help": "A finetuned PosGPT: a folder or a name on the hub."})
    test_file: str = field(metadata={"help": "TSV of questions, with or without answers."})
    output_dir: str = field(metadata={"help": "Folder for predictions.txt and metrics.json."})
    train_file: str | None = field(
        default=None, metadata={"help": "TSV whose most frequent place is a second baseline."}
    )
    per_device_eval_batch_size: int = field(default=128, metadata={"help": "Questions answered at a time."})
    max_new_tokens: int = field(default=32, metadata={"help": "The most characters an answer may have."})
    dtype: Literal["float32", "bfloat16"] = field(
        default="float32",
        metadata={
            "help": "bfloat16 is faster where the hardware multiplies in it; answers that are nearly tied may differ."
        },
    )


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


@torch.inference_mode()
def answer(
    questions: list[str],
    model: PosGPTForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    batch_size: int,
    max_new_tokens: int,
) -> list[str]:
    """Answer each question greedily: what the model writes between the `⁇` after the question and the next.

    Questions of like length share a batch, padded on the left. Returns the answers in the order of the questions.
    """
    model.eval()
    order = sorted(range(len(questions)), key=lambda index: len(questions[index]))
    answers = [""] * len(questions)
    for start in tqdm(range(0, len(order), batch_size), desc="Answering", unit="batch"):
        indices = order[start : start + batch_size]
        prompts = [questions[index] + MASK_TOKEN for index in indices]
        inputs = tokenizer(prompts, padding=True, padding_side="left", return_tensors="pt").to(model.device)
        longest = inputs["input_ids"].shape[1]
        new_tokens = min(max_new_tokens, model.config.max_position_embeddings - longest)
        generated = model.generate(**inputs, max_new_tokens=new_tokens, do_sample=False)[:, longest:]
        for index, ids in zip(indices, generated.tolist(), strict=True):
            end = ids.index(tokenizer.mask_token_id) if tokenizer.mask_token_id in ids else len(ids)
            answers[index] = tokenizer.decode(ids[:end])
    return answers


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


def main() -> None:
    (arguments,) = parse_into(OneLineArgumentParser(EvaluationArguments), sys.argv[1:])
    check_at_least(
        1,
        per_device_eval_batch_size=arguments.per_device_eval_batch_size,
        max_new_tokens=arguments.max_new_tokens,
    )
    output_dir = check_is_folder_or_new(arguments.output_dir)
    # Without the argument, processes on a CPU would not find each other: each would answer everything.
    state = PartialState(cpu=not torch.accelerator.is_available())
    with state.main_process_first():
        data = load_birthplaces(arguments.test_file)
        majority_place = None
        if arguments.train_file:
            places = Counter(load_birthplaces(arguments.train_file, answers=True)["place"])
            majority_place = places.most_common(1)[0][0]
    model, tokenizer = load_model(arguments.model_name_or_path, dtype=arguments.dtype)
    model.to(state.device)

    questions = list(data["question"])
    if state.is_main_process:
        check_lengths(questions, model.config.max_position_embeddings, arguments.max_new_tokens, arguments.test_file)
        unknown = describe_unknown_characters(questions, tokenizer, arguments.test_file)
        if unknown:
            print(unknown)
    with state.split_between_processes(questions) as own:
        answers = answer(own, model, tokenizer, arguments.per_device_eval_batch_size, arguments.max_new_tokens)
    answers = gather_object(answers)
    if not state.is_main_process:
        return

    if "place" in data.column_names:
        metrics, rows = score(answers, list(data["place"]), majority_place)
        for name, result in rows:
            print(f"{name:45} {result['accuracy']:7.1%}   {result['correct']} of {result['total']}")
        if not majority_place:
            print("(--train_file adds the most frequent training place to the comparison)")
    else:
        metrics = {"accuracy": None, "correct": None, "total": len(questions)}
        print(f"{arguments.test_file}: no answers to compare with; the {len(questions)} predictions are written.")
    with written_whole(output_dir / "predictions.txt") as file:
        # The model may write any character of its vocabulary, the line break too.
        file.writelines(line.replace("\n", " ") + "\n" for line in answers)
    with written_whole(output_dir / "metrics.json") as file:
        json.dump(metrics, file, indent=2, ensure_ascii=False)
        file.write("\n")
    print(f"Written: {output_dir / 'predictions.txt'}, {output_dir / 'metrics.json'}")


if __name__ == "__main__":
    with bad_input_in_one_line():
        main()
