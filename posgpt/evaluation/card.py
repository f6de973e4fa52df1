"""An evaluation in the card of the model that was asked: `model-index`, which the hub shows, and a section with the table."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from yaml import YAMLError

from data_scripts.errors import reraise_as_bad_input
from data_scripts.files import CARD_FILE, hash_file, make_file_name, write_file
from posgpt.evaluation.scoring import format_accuracies

_CHART = "Accuracy, reliability and confidence"


def load_card(folder: Path) -> ModelCard:
    """Load the card of a model's folder."""
    problem = f"{folder / CARD_FILE}: no model card that can be read"
    fix = "--update_model_card needs a model's folder on this machine, as training writes it."
    with reraise_as_bad_input(problem, fix, OSError, ValueError, YAMLError):
        return ModelCard.load(folder / CARD_FILE)


def update_card(
    folder: Path, paths: Sequence[str], relations: Mapping[str, Mapping[str, Any]], picture: bytes | None
) -> None:
    """Write the figures of an evaluation into a model's card, in place of earlier ones on files of the same names.

    `relations` are an `Evaluation`'s; `picture`, the chart of a report, is written beside the card.
    """
    card = load_card(folder)
    data, name = cast(ModelCardData, card.data), ", ".join(Path(path).name for path in paths)
    data.eval_results = [result for result in data.eval_results or () if result.dataset_name != name]
    data.eval_results += [
        EvalResult(
            task_type="text-generation",
            task_name="Closed-book question answering",
            dataset_type=name,
            dataset_name=name,
            dataset_config=relation,
            dataset_args={"sha256": {Path(path).name: hash_file(path) for path in paths}},
            metric_type="exact_match",
            metric_name="Exact match",
            metric_value=metrics["accuracy"],
        )
        for relation, metrics in relations.items()
        if relation != "together"
    ]
    data.model_name = data.model_name or folder.resolve().name
    heading = f"## Evaluation: {name}"
    section = f"{heading}\n\n{format_accuracies(relations, 'PosGPT')}\n"
    if picture:
        chart = make_file_name(name) + ".png"
        write_file(folder / chart, picture)
        section += f"\n![{_CHART}]({chart})\n"
    # Only the heading and the table and charts below it are replaced: what follows them is the user's own.
    earlier = rf"^{re.escape(heading)}\r?\n\r?\n(?:\|.*(?:\n|\Z))+(?:\r?\n!\[{_CHART}.*(?:\n|\Z))*"
    text, number = re.subn(earlier, lambda _: section, card.text, count=1, flags=re.MULTILINE)
    card.text = text if number else f"{text.rstrip()}\n\n{section}"
    write_file(folder / CARD_FILE, str(card))
