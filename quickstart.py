"""The whole task in minutes on a small fictional world: what pretraining is for.

    python quickstart.py --output_dir runs/quickstart

Runs the same commands a person would, prints them, and ends with a table and a chart.
"""

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from transformers import HfArgumentParser

from data_scripts.text_files import BadInput, bad_input_in_one_line, save_picture, written_whole

ROOT = Path(__file__).parent
RECIPE = "recipes/quickstart.yaml"


@dataclass
class QuickstartArguments:
    """Where to write, and how large a world."""

    output_dir: str = field(default="runs/quickstart", metadata={"help": "Folder for everything; replaced if there."})
    position_embedding_type: str = field(default="rotary", metadata={"help": "learned or rotary."})
    num_people: int = field(default=300, metadata={"help": "People in the fictional world."})
    num_places: int = field(default=60, metadata={"help": "Places they may be born in."})
    biographies_per_person: int = field(default=2, metadata={"help": "Documents the corpus has of each person."})


def run(title: str, *command: str) -> float:
    """Print and run a command of this project; return its seconds.

    Raises:
        BadInput: the command failed; it has said why.
    """
    print(f"\n== {title}\n$ python {' '.join(command)}", flush=True)
    start = time.perf_counter()
    if subprocess.run([sys.executable, *command], cwd=ROOT).returncode:
        raise BadInput(f"the step {title!r} failed; its own message stands above.")
    return time.perf_counter() - start


def draw_chart(path: Path, accuracies: dict[str, float], log_history: list[dict], num_questions: int) -> None:
    """Save a PNG: accuracy of each row of the table, and the loss of pretraining over its epochs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    bars, curve = figure.subplots(1, 2)
    names = list(accuracies)[::-1]
    colours = ["#b0b7c3" if "PosGPT" not in name else "#2f6fde" for name in names]
    drawn = bars.barh(names, [100 * accuracies[name] for name in names], color=colours)
    bars.bar_label(drawn, fmt="%.1f %%", padding=3)
    bars.set_xlim(0, 110)
    bars.set_xlabel(f"accuracy on {num_questions} people it was never asked about (%)")
    bars.spines[["top", "right"]].set_visible(False)
    steps = [(entry["epoch"], entry["loss"]) for entry in log_history if "loss" in entry]
    curve.plot(*zip(*steps, strict=True), color="#2f6fde")
    curve.set_xlabel("pretraining epoch")
    curve.set_ylabel("loss (nats a character)")
    curve.set_ylim(bottom=0)
    curve.spines[["top", "right"]].set_visible(False)
    figure.suptitle("PosGPT quickstart: a fictional world")
    save_picture(figure, path)


def main() -> None:
    (arguments,) = HfArgumentParser(QuickstartArguments).parse_args_into_dataclasses(look_for_args_file=False)
    folder = Path(arguments.output_dir).resolve()
    world, pretrained, scratch = folder / "world", folder / "pretrain", folder / "scratch"
    train_file, dev_file = str(world / "birth_places_train.tsv"), str(world / "birth_dev.tsv")
    positions = ("--position_embedding_type", arguments.position_embedding_type)
    start = time.perf_counter()

    # fmt: off
    run("A fictional world", "-m", "data_scripts.synthetic_world", "--output_dir", str(world), "--overwrite",
        "--num_people", str(arguments.num_people), "--num_places", str(arguments.num_places),
        "--biographies_per_person", str(arguments.biographies_per_person))
    run("Pretraining: read the biographies, and the questions about some of the people", "train_pretrain.py", RECIPE,
        *positions, "--train_file", str(world / "wiki.txt"), "--questions_file", train_file,
        "--output_dir", str(pretrained), "--overwrite_output_dir")
    run("For comparison: the questions alone", "train_finetune.py", RECIPE, *positions,
        "--vocabulary_file", str(world / "wiki.txt"), "--train_file", train_file, "--validation_file", dev_file,
        "--output_dir", str(scratch), "--overwrite_output_dir")
    accuracies, metrics = {}, {}
    for name, model in (("PosGPT, pretrained", pretrained), ("PosGPT, not pretrained", scratch)):
        run(f"Evaluation: ask about other people ({name})", "evaluate_birthplace.py",
            "--model_name_or_path", str(model), "--test_file", dev_file, "--train_file", train_file,
            "--output_dir", str(folder / f"eval_{model.name}"))
        metrics = json.loads((folder / f"eval_{model.name}" / "metrics.json").read_text(encoding="utf-8"))
        accuracies[name] = metrics["accuracy"]
    # fmt: on
    accuracies["the most frequent place"] = metrics["majority_accuracy"]
    accuracies['"London" for everyone'] = metrics["london_accuracy"]

    state = json.loads((pretrained / "trainer_state.json").read_text(encoding="utf-8"))
    draw_chart(folder / "chart.png", accuracies, state["log_history"], metrics["total"])
    table = "\n".join(
        [
            f"| {'answers by':24} | accuracy on {metrics['total']} held-out people |",
            f"| {'-' * 24} | {'-' * (28 + len(str(metrics['total'])))} |",
            *(f"| {name:24} | {accuracy:6.1%} |" for name, accuracy in accuracies.items()),
        ]
    )
    with written_whole(folder / "results.md") as file:
        file.write(table + "\n")
    minutes = (time.perf_counter() - start) / 60
    print(f"\n{table}\n\n{minutes:.1f} minutes. Table: {folder / 'results.md'}  Chart: {folder / 'chart.png'}")


if __name__ == "__main__":
    with bad_input_in_one_line():
        main()
