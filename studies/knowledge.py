"""What makes a small GPT able to answer questions about what it has read: short training runs, each changing one thing.

    python -m studies.knowledge --data_dir data --output_dir runs/knowledge
    python -m studies.knowledge --data_dir data --output_dir runs/knowledge --rows "AdamW" "no cues"

`knowledge.yaml` beside this file holds the rows of the table. Recipes are chosen on training pairs that are held out here,
never on dev. Two things are measured on the people held out: whether the question is answered, and whether the fact is
recalled in the words in which it was read. Finished rows are not trained again; the table and the chart grow with each.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from data_scripts.errors import exit_on_bad_input
from data_scripts.files import CORPUS_FILE, TRAIN_FILE, check_is_folder_or_new, hash_file, make_file_name
from data_scripts.hold_out import CALIBRATION_FILE, hold_out
from data_scripts.objective_config import ObjectiveConfig
from data_scripts.options import Range, option, parse_options
from data_scripts.questions import load_questions
from posgpt.plots import BLUE, GREY, make_figure, save_picture
from posgpt.training.architecture import PositionArguments
from studies import recall
from studies.cache import CODE, Record, hash_code, keep_result, read_result
from studies.grading import grade_answers, load_on_device
from studies.recall import build_recall_prompts, read_objective
from studies.tables import format_known, load_rows, write_table
from studies.training_runs import build_command, build_key, train

ROWS = Path(__file__).with_suffix(".yaml")
MEASURES = ("answered", "recalled", "training questions")


@dataclass
class KnowledgeArguments(PositionArguments):
    """The data, and which rows to train."""

    data_dir: str = option(f"Folder with {CORPUS_FILE} and {TRAIN_FILE}.")
    output_dir: str = option(
        "Folder for models, table and chart, in a subfolder named after positions and seed.", default="runs/knowledge"
    )
    rows: list[str] | None = option("Rows of knowledge.yaml (default: all).", default=None)
    held_out: Annotated[int, Range(1)] = option("How many training pairs are held out to measure on.", default=300)
    seed: Annotated[int, Range(0)] = option(
        "Seed of the training runs; which pairs are held out never changes.", default=42
    )


@dataclass(frozen=True)
class Row:
    """One row of the study.

    Args:
        name: What the table calls it.
        settings: Its entry in knowledge.yaml: the recipe, and the options that differ from it.
        shared: The options that all rows share, such as the files that they read.
        folder: For its model and figures.
        held_out_file: What it is asked.
    """

    name: str
    settings: dict[str, Any]
    shared: dict[str, Any]
    folder: Path
    held_out_file: Path

    @property
    def figures_file(self) -> Path:
        """Where its figures are kept."""
        return self.folder / "figures.json"

    @property
    def command(self) -> list[str]:
        """The command line of its training."""
        return build_command(**self.shared | self.settings)

    @property
    def key(self) -> Record:
        """What its figures depend on."""
        own = {"held_out": hash_file(self.held_out_file), CODE: hash_code(Path(recall.__file__))}
        return build_key(self.command) | own

    @property
    def objective(self) -> ObjectiveConfig:
        """What it trains on, with the options of recipe and row."""
        return read_objective(**self.settings)


def measure_row(row: Row) -> Record:
    """Train one row and measure it, unless that is done; return its figures.

    Raises:
        BadInput: the training failed; it has said why.
    """
    run = train(row.name, row.command, row.folder)

    def measure() -> Record:
        model, tokenizer = load_on_device(str(row.folder))
        files = (row.held_out_file, row.shared["questions_file"])
        held_out, trained = (load_questions(file, answers=True) for file in files)
        few = slice(None, None, max(len(trained) // 200, 1))
        max_length = model.config.max_position_embeddings
        asked = {
            "answered": (held_out.texts, held_out.answers),
            "recalled": build_recall_prompts(row.shared["train_file"], held_out, row.objective, max_length),
            "training questions": (trained.texts[few], trained.answers[few]),
        }
        accuracies = {name: float(grade_answers(model, tokenizer, *pairs).mean()) for name, pairs in asked.items()}
        facts = {"name": row.name, "characters": run["characters"], "minutes": run["minutes"]}
        return accuracies | facts | {"settings": row.settings}

    return keep_result(row.figures_file, row.key, measure)


def write_rows(figures: list[Record], held_out: int, folder: Path) -> None:
    """Write `table.md` and `chart.png`, the rows in the order of knowledge.yaml."""
    table = []
    for row in figures:
        measured = {measure: f"{row[measure]:.1%}" for measure in MEASURES}
        minutes = format_known(row["minutes"], ".0f")
        spent = {"characters read": f"{row['characters'] / 1e6:.1f} M", "minutes": minutes}
        table.append({"row": row["name"]} | measured | spent)
    write_table(folder, table)
    figure, axes = make_figure(9, 1 + 0.4 * len(figures))
    at = np.arange(len(figures))[::-1]
    axes.barh(at + 0.2, [100 * row["recalled"] for row in figures], 0.38, color=GREY, label="recalled as read")
    bars = axes.barh(at - 0.2, [100 * row["answered"] for row in figures], 0.38, color=BLUE, label="answered")
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.set(yticks=at, yticklabels=[row["name"] for row in figures], xlim=(0, 105))
    axes.set_xlabel(f"% of {held_out} people whose question was held out")
    axes.margins(y=0.01)
    figure.legend(loc="outside upper right", ncols=2)
    save_picture(figure, folder / "chart.png")


@exit_on_bad_input()
def main() -> None:
    arguments = parse_options(KnowledgeArguments)
    settings, wanted = load_rows(ROWS, arguments.rows)
    output_dir = check_is_folder_or_new(arguments.output_dir).resolve()
    output_dir /= f"{arguments.position_embedding_type}_{arguments.seed}"
    data = Path(arguments.data_dir).resolve()
    hold_out(data / TRAIN_FILE, output_dir, arguments.held_out)
    shared = {
        "train_file": data / CORPUS_FILE,
        "questions_file": output_dir / TRAIN_FILE,
        "position_embedding_type": arguments.position_embedding_type,
        "seed": arguments.seed,
    }
    rows = {
        name: Row(name, row, shared, output_dir / make_file_name(name), output_dir / CALIBRATION_FILE)
        for name, row in settings.items()
    }
    for name in wanted:
        measure_row(rows[name])
        # Also those of earlier starts, as long as nothing that they depend on has changed.
        kept = (read_result(row.figures_file, row.key) for row in rows.values())
        write_rows([figures for figures in kept if figures], arguments.held_out, output_dir)


if __name__ == "__main__":
    main()
