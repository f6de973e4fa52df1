"""What makes a small GPT able to answer for what it has read: a table of short trainings, each changing one thing.

    python -m studies.knowledge --data_dir data --output_dir runs/knowledge
    python -m studies.knowledge --data_dir data --output_dir runs/knowledge --rows "AdamW" "no cues"

`knowledge.yaml` beside this file holds the rows. Recipes are chosen on training pairs that are held out here, never on
dev. Two things are measured on the people held out: whether the question is answered, and whether the fact is recalled in
the words it was read in. Rows that are finished are not trained again; the table and the chart grow with each.
"""

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import yaml
from transformers import PreTrainedTokenizerBase

from data_scripts.birthplaces import load_birthplaces, name_in
from data_scripts.corpus import load_corpus
from data_scripts.hold_out import CALIBRATION_FILE, hold_out
from data_scripts.name_windows import keyed_documents, words_before
from data_scripts.span_corruption import max_truncated_length
from data_scripts.synthetic_world import TRAIN_FILE
from data_scripts.text_files import bad_input_in_one_line, check_is_folder_or_new, save_picture, written_whole
from modeling_posgpt import MASK_TOKEN
from studies.tables import chosen, show_table
from studies.training_runs import ROOT, trained
from training import OneLineArgumentParser, load_model, parse_into

ROWS = Path(__file__).with_suffix(".yaml")


@dataclass
class StudyArguments:
    """The data, and which rows to train."""

    data_dir: str = field(metadata={"help": "Folder with wiki.txt and birth_places_train.tsv."})
    output_dir: str = field(
        default="runs/knowledge", metadata={"help": "Folder for models, table and chart, in one of POSITIONS_SEED."}
    )
    rows: list[str] | None = field(default=None, metadata={"help": "Rows of knowledge.yaml (default: all)."})
    held_out: int = field(default=300, metadata={"help": "Training pairs held out to measure on."})
    position_embedding_type: str = field(default="rotary", metadata={"help": "learned or rotary."})
    seed: int = field(default=42, metadata={"help": "Seed of the trainings; which pairs are held out never changes."})


def recall_prompts(
    corpus_file: Path, pairs: list[dict], wording: str, plain: bool, cue_words: int, block_size: int
) -> list[tuple[str, str]]:
    """For each person whose place is a salient span of the document: the words it was read in, and the place.

    Args:
        wording: `question` or `document` for name-keyed windows, with words left of the place as cue; `span_corruption`
            for the document around the masked place.
        plain: Whether the cue is in its plainest form, as it was trained on.
        cue_words: The most words of a cue.
    """
    places = {name_in(pair["question"]): pair["place"] for pair in pairs}
    prompts = []
    for document in keyed_documents(load_corpus(corpus_file), dates=True):
        title, text = document["title"], document["text"]
        for start, end in document["spans"]:
            if text[start:end] != places.get(title):
                continue
            if wording == "span_corruption" and end > max_truncated_length(block_size):
                continue
            if wording == "span_corruption":
                prompt = f"{text[:start]}{MASK_TOKEN}{text[end : max_truncated_length(block_size)]}"
            else:
                cue = " ".join(["", *words_before(title, text, start, plain, cue_words)])
                prompt = f"Where was {title}{cue}?" if wording == "question" else f"{title}.{cue}"
            prompts.append((prompt, places.pop(title)))
    return prompts


def share_right(prompts: list[tuple[str, str]], model, tokenizer: PreTrainedTokenizerBase) -> float:
    """The share of prompts that are answered exactly."""
    answers = model.answer([prompt for prompt, _ in prompts], tokenizer)
    return float(np.mean([given.text == place for given, (_, place) in zip(answers, prompts, strict=True)]))


def train_row(name: str, row: dict, arguments: StudyArguments, folder: Path, train: Path, held_out: Path) -> dict:
    """Train one row and measure it, unless that is done; return its figures.

    Raises:
        BadInput: the training failed; it has said why.
    """
    settings = dict(row)
    recipe = settings.pop("recipe")
    corpus_file = Path(arguments.data_dir).resolve() / "wiki.txt"
    command = [recipe, "--train_file", str(corpus_file), "--questions_file", str(train)]
    command += ["--position_embedding_type", arguments.position_embedding_type, "--seed", str(arguments.seed)]
    for option, value in settings.items():
        command += [f"--{option}", json.dumps(value) if isinstance(value, dict) else str(value)]
    run = trained(name, command, folder)
    figures_file = folder / "figures.json"
    if figures_file.is_file():
        return json.loads(figures_file.read_text(encoding="utf-8"))

    model, tokenizer = load_model(str(folder))
    defaults = yaml.safe_load((ROOT / recipe).read_text(encoding="utf-8"))["pretrain"] | settings
    windows = defaults.get("objective") == "name_windows"
    wording = defaults.get("window_wording", "question") if windows else "span_corruption"
    asked, learnt = ([(row["question"], row["place"]) for row in load_birthplaces(file)] for file in (held_out, train))
    pairs = [{"question": question, "place": place} for question, place in asked]
    plain, cue_words = defaults.get("plain_cues", False), min(3, defaults.get("max_cue_words", 3))
    prompts = recall_prompts(corpus_file, pairs, wording, plain, cue_words, model.config.max_position_embeddings)
    figures = {
        "name": name,
        "answered": share_right(asked, model, tokenizer),
        "recalled": share_right(prompts, model, tokenizer),
        "training questions": share_right(learnt[:: max(len(learnt) // 200, 1)], model, tokenizer),
        "characters": run["characters"],
        "minutes": run["minutes"],
        "threads": torch.get_num_threads(),
        "settings": row,
    }
    with written_whole(figures_file) as file:
        json.dump(figures, file, indent=2)
    return figures


def write_table(figures: list[dict], held_out: int, folder: Path) -> None:
    """Write `table.md` and `chart.png`, the rows in the order of knowledge.yaml."""
    from matplotlib.figure import Figure

    columns = ("answered", "recalled", "training questions")
    lines = [
        "| row | " + " | ".join(columns) + " | characters read | minutes |",
        "|---|" + "---|" * (len(columns) + 2),
        *(
            f"| {row['name']} | "
            + " | ".join(f"{row[column]:.1%}" for column in columns)
            + f" | {row['characters'] / 1e6:.1f} M | {row['minutes']:.0f} |"
            for row in figures
        ),
    ]
    show_table(lines, folder)

    figure = Figure(figsize=(9, 1 + 0.4 * len(figures)), layout="constrained")
    axes = figure.subplots()
    at = np.arange(len(figures))[::-1]
    axes.barh(at + 0.2, [100 * row["recalled"] for row in figures], 0.38, color="#b0b7c3", label="recalled as read")
    bars = axes.barh(at - 0.2, [100 * row["answered"] for row in figures], 0.38, color="#2f6fde", label="answered")
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.set(yticks=at, yticklabels=[row["name"] for row in figures], xlim=(0, 105))
    axes.set_xlabel(f"% of {held_out} people whose question was held out")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.01)
    figure.legend(frameon=False, loc="outside upper right", ncols=2)
    save_picture(figure, folder / "chart.png")


def main() -> None:
    (arguments,) = parse_into(OneLineArgumentParser(StudyArguments), sys.argv[1:])
    rows = yaml.safe_load(ROWS.read_text(encoding="utf-8"))
    wanted = chosen(arguments.rows, rows, f"row of {ROWS.name}")
    output_dir = check_is_folder_or_new(arguments.output_dir).resolve()
    output_dir /= f"{arguments.position_embedding_type}_{arguments.seed}"
    hold_out(Path(arguments.data_dir) / TRAIN_FILE, output_dir, arguments.held_out)
    train, held_out = output_dir / TRAIN_FILE, output_dir / CALIBRATION_FILE
    files = {name: output_dir / re.sub(r"\W+", "_", name) / "figures.json" for name in rows}
    for name in wanted:
        train_row(name, rows[name], arguments, files[name].parent, train, held_out)
        finished = [json.loads(file.read_text(encoding="utf-8")) for file in files.values() if file.is_file()]
        # What knowledge.yaml has changed since is another row.
        write_table([row for row in finished if row["settings"] == rows[row["name"]]], arguments.held_out, output_dir)


if __name__ == "__main__":
    with bad_input_in_one_line():
        main()
