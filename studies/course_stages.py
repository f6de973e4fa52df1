"""The stages of the course's protocol, as studies run them: pretraining on the documents alone, then finetuning on the pairs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_scripts.errors import BadInput
from data_scripts.files import CORPUS_FILE, DEV_FILE, TRAIN_FILE, hash_file
from data_scripts.hold_out import CALIBRATION_FILE, hold_out
from data_scripts.questions import load_questions
from studies import recall
from studies.cache import CODE, Record, hash_code, keep_result
from studies.training_runs import ask, build_command, count_rows_per_step, train


@dataclass(frozen=True)
class Task:
    """What all rows read, and whom they are asked about.

    Args:
        corpus_file: What they are pretrained on.
        people_file: All pairs, for what a pretrained model recalls.
        train_file: The pairs that they are finetuned on.
        asked_file: The pairs that finetuned models are asked about.
        micro_batch_size: The largest batch that a training step is split into; None: it is not split.
    """

    corpus_file: Path
    people_file: Path
    train_file: Path
    asked_file: Path
    micro_batch_size: int | None = None

    def split_batches(self, section: str, recipe: str, **options: Any) -> dict[str, int]:
        """Return the options that make each training step out of batches of at most `micro_batch_size`.

        Raises:
            BadInput: the recipe's batch is not a multiple of it.
        """
        if self.micro_batch_size is None:
            return {}
        size = count_rows_per_step(recipe, section, **options)
        if size <= self.micro_batch_size:
            return {}
        if size % self.micro_batch_size:
            raise BadInput(
                f"--micro_batch_size {self.micro_batch_size} does not divide {recipe}'s {size}; choose a divisor."
            )
        return {
            "per_device_train_batch_size": self.micro_batch_size,
            "gradient_accumulation_steps": size // self.micro_batch_size,
        }


def load_task(data_dir: Path, results: Path, held_out: int | None, micro_batch_size: int | None = None) -> Task:
    """Choose the files to train on and to ask; with `held_out`, that many pairs are held out, and both are in `results`."""
    corpus_file, people_file = data_dir / CORPUS_FILE, data_dir / TRAIN_FILE
    if held_out is None:
        return Task(corpus_file, people_file, people_file, data_dir / DEV_FILE, micro_batch_size)
    hold_out(people_file, results, held_out)
    return Task(corpus_file, people_file, results / TRAIN_FILE, results / CALIBRATION_FILE, micro_batch_size)


def pretrain(name: str, options: dict[str, Any], task: Task, seed: int, folder: Path) -> Record:
    """Pretrain on the documents alone, unless that is done; return the training's figures and what it recalls."""
    options = options | task.split_batches("pretrain", **options)
    figures = train(name, build_command(**options, train_file=task.corpus_file, seed=seed), folder)
    objective = recall.read_objective(**options)

    def measure() -> Record:
        # Everyone in the pairs: before finetuning, the model has seen none of the questions.
        people = load_questions(task.people_file, answers=True)
        counts = recall.measure_model(str(folder), task.corpus_file, people, objective)
        return {name: [int(right.sum()), len(right)] for name, right in counts.items()}

    key = {"people": hash_file(task.people_file), CODE: hash_code(Path(recall.__file__))}
    return figures | {"recall": keep_result(folder / "recall.json", key, measure)}


def finetune(name: str, options: dict[str, Any], start: Path | None, task: Task, seed: int, folder: Path) -> Record:
    """Finetune the model in `start`, or train one on the questions alone, unless that is done; ask it; return all figures."""
    section = "finetune" if start else "finetune_from_scratch"
    options = options | task.split_batches(section, **options)
    source: dict[str, Any] = {"model_name_or_path": start} if start else {"vocabulary_file": task.corpus_file}
    command = build_command(**options, **source, train_file=task.train_file, seed=seed, eval_strategy="no")
    return train(name, command, folder, section=section) | ask(folder, task.asked_file, folder / "asked.json")
