"""How many labelled questions a model needs: one that has only read the documents is finetuned on few pairs.

    posgpt pretrain windows --train_file data/wiki.txt --output_dir runs/read_only
    python -m studies.few_questions --model_name_or_path runs/read_only --data_dir data --held_out 500

For each number of pairs and each seed, that many training pairs are drawn at random; the model is finetuned on them with the
recipe as it stands and asked about dev, or with `--held_out` about training pairs that are held out. Finished runs are kept.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np

from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.files import CORPUS_FILE, DEV_FILE, TRAIN_FILE, check_is_folder_or_new, write_atomically
from data_scripts.options import Range, option, parse_options
from data_scripts.questions import Questions, load_questions
from posgpt.evaluation.comparison import load_record
from posgpt.plots import BLUE, GREY, ORANGE, make_figure, save_picture
from studies.course_stages import Task, finetune, load_task
from studies.tables import write_table
from studies.training_runs import ask


@dataclass
class FewQuestionsArguments:
    """The model, the data, and how many pairs to finetune on."""

    model_name_or_path: str = option("A model that was pretrained without questions.")
    data_dir: str = option(f"Folder with {CORPUS_FILE}, {TRAIN_FILE} and {DEV_FILE}.")
    output_dir: str = option("Folder for models, table and chart.", default="runs/few_questions")
    recipe: str = option("The recipe to finetune with.", default="windows")
    sizes: Annotated[list[int], Range(1)] = option(
        "Numbers of pairs.", default_factory=lambda: [5, 10, 20, 50, 100, 200, 500, 1000]
    )
    seeds: Annotated[list[int], Range(0)] = option(
        "One draw of each number per seed.", default_factory=lambda: [0, 1, 2]
    )
    held_out: Annotated[int | None, Range(1)] = option(
        "Ask about this many training pairs, held out, instead of about dev.", default=None
    )


def check_has_read_no_questions(model: str) -> None:
    """Check that a model was pretrained without questions and not finetuned, if its record of the training is there.

    Raises:
        BadInput: it was not, and would know the pairs that are drawn or held out.
    """
    # The last two are what finetuning alone reads: a pretrained model, or without one a vocabulary.
    read = {("data", name) for name in ("questions_file", "model_name_or_path", "vocabulary_file")}
    if not read.isdisjoint(load_record(model) or {}):
        raise BadInput(
            f"{model}: was trained on questions, so that there is nothing to learn from few of them; give a model that was"
            " pretrained without --questions_file and not finetuned."
        )


def finetune_on(
    rows: list[int], pairs: Questions, task: Task, arguments: FewQuestionsArguments, folder: Path
) -> float:
    """Finetune the model on some of the pairs, unless that is done; return its accuracy."""
    train_file = folder / TRAIN_FILE
    with write_atomically(train_file) as file:
        chosen = pairs.rows.select(sorted(rows))
        file.writelines(
            f"{question}\t{answer}\n" for question, answer in zip(chosen["question"], chosen["answer"], strict=True)
        )
    start = Path(arguments.model_name_or_path).resolve()
    options = {"recipe": arguments.recipe}
    record = finetune(folder.name, options, start, replace(task, train_file=train_file), 42, folder / "finetune")
    return float(np.mean(record["right"]))


def write_results(accuracies: dict[int, list[float]], asked: str, folder: Path) -> None:
    """Write `table.md` and `chart.png`.

    Args:
        accuracies: One per seed for each number of pairs; that of 0 pairs is the model's before finetuning.
        asked: Whom the models were asked about.
    """
    table = [
        {
            "pairs": f"{size:,}",
            "mean": f"{np.mean(draws):.1%}",
            "each draw": ", ".join(f"{accuracy:.1%}" for accuracy in draws),
        }
        for size, draws in sorted(accuracies.items())
    ]
    write_table(folder, table, f"Answered of {asked}")
    figure, axes = make_figure(7, 4)
    axes.axhline(100 * accuracies[0][0], color=GREY, ls="--", label="before finetuning")
    drawn = sorted(set(accuracies) - {0})
    axes.plot(drawn, [100 * np.mean(accuracies[size]) for size in drawn], color=BLUE, marker="o", label="mean")
    for size in drawn:
        axes.plot([size] * len(accuracies[size]), 100 * np.array(accuracies[size]), ".", color=ORANGE)
    axes.set(xscale="log", ylim=(0, 100), xlabel="pairs that it was finetuned on", ylabel=f"% of {asked}")
    axes.legend()
    save_picture(figure, folder / "chart.png")


@exit_on_bad_input()
def main() -> None:
    arguments = parse_options(FewQuestionsArguments)
    check_has_read_no_questions(arguments.model_name_or_path)
    output_dir = check_is_folder_or_new(arguments.output_dir).resolve()
    results = output_dir / (f"held_out_{arguments.held_out}" if arguments.held_out else "dev")
    task = load_task(Path(arguments.data_dir).resolve(), results, arguments.held_out)
    pairs = load_questions(task.train_file, answers=True)
    if max(arguments.sizes) > len(pairs):
        raise BadInput(
            f"--sizes {max(arguments.sizes)}: there are {len(pairs):,} pairs to draw from; give at most that many."
        )
    before = ask(Path(arguments.model_name_or_path), task.asked_file, results / "before.json")["right"]
    accuracies = {0: [float(np.mean(before))]}
    for size in arguments.sizes:
        for seed in arguments.seeds:
            # The draws of one seed contain each other.
            rows = np.random.default_rng(seed).permutation(len(pairs))[:size].tolist()
            accuracy = finetune_on(rows, pairs, task, arguments, results / f"{size}_{seed}")
            accuracies.setdefault(size, []).append(accuracy)
        write_results(accuracies, f"the {len(before)} questions of {task.asked_file.name}", results)


if __name__ == "__main__":
    main()
