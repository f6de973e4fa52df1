"""An evaluation in the card of the model that was asked: `model-index`, which the hub shows, and a section with the table."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from yaml import YAMLError

from data_scripts.errors import BadInput
from data_scripts.files import CARD_FILE, hash_file, make_file_name, write_atomically
from data_scripts.options import shorten_error
from data_scripts.questions import Questions
from data_scripts.relations import Relation
from posgpt.evaluation.accuracy import Accuracies, format_accuracies
from posgpt.evaluation.arguments import PICTURE_FILE

_CHART = "Accuracy, reliability and confidence"


def load_card(folder: Path) -> ModelCard:
    """Load the card of a model's folder.

    Raises:
        BadInput: there is none, or its metadata cannot be read.
    """
    try:
        return ModelCard.load(folder / CARD_FILE)
    except (OSError, ValueError, YAMLError) as error:
        raise BadInput(
            f"{folder / CARD_FILE}: no model card that can be read: {shorten_error(error)}; --update_model_card needs a model's"
            " folder on this machine, as training writes it."
        ) from None


def replace_section(text: str, heading: str, section: str) -> str:
    """Return a card's text with a section in place of the one with this heading, or at the end if there is none.

    Only the heading and the table and charts below it are replaced: what follows them is the user's own.
    """
    earlier = rf"^{re.escape(heading)}\r?\n\r?\n(?:\|.*(?:\n|\Z))+(?:\r?\n!\[{_CHART}: .*(?:\n|\Z))*"
    replaced, number = re.subn(earlier, lambda _: section + "\n", text, count=1, flags=re.MULTILINE)
    return replaced if number else f"{text.rstrip()}\n\n{section}\n"


def update_card(
    folder: Path, test: Questions, accuracies: Mapping[str, Accuracies], reports: Mapping[Relation, Path]
) -> None:
    """Write the figures of an evaluation into a model's card, in place of earlier ones on files of the same names.

    Args:
        accuracies: By the name of their relation.
        reports: The folder of each relation's report, if any: its chart is copied beside the card.

    Raises:
        BadInput: see `load_card`.
    """
    card = load_card(folder)
    data = cast(ModelCardData, card.data)
    name = ", ".join(Path(path).name for path in test.paths)
    new = [
        EvalResult(
            task_type="text-generation",
            task_name="Closed-book question answering",
            dataset_type=name,
            dataset_name=name,
            dataset_config=relation,
            dataset_args={"sha256": {Path(path).name: hash_file(path) for path in test.paths}},
            metric_type="exact_match",
            metric_name="Exact match",
            metric_value=measured.given.accuracy,
        )
        for relation, measured in accuracies.items()
    ]
    earlier = [result for result in data.eval_results or () if result.dataset_name != name]
    data.eval_results = earlier + new
    data.model_name = data.model_name or folder.resolve().name

    heading = f"## Evaluation: {name}"
    parts = [heading, format_accuracies(accuracies, "PosGPT")]
    for relation_reported, report in reports.items():
        chart = make_file_name(f"{name} {relation_reported.name}") + ".png"
        with write_atomically(folder / chart, "wb") as file:
            file.write((report / PICTURE_FILE).read_bytes())
        parts.append(f"![{_CHART}: {relation_reported.name}]({chart})")
    card.text = replace_section(card.text, heading, "\n\n".join(parts))
    with write_atomically(folder / CARD_FILE) as file:
        file.write(str(card))
