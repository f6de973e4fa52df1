"""Show exactly what a recipe trains on, with the positions that it is graded on.

    posgpt preview windows --train_file wiki.txt --questions_file birth_places_train.tsv
    posgpt preview course --train_file birth_places_train.tsv --section finetune

Before pretraining examples, the corpus's first documents are shown as they are read: title, `|` and text, and with name-keyed
windows what is asked for, and how many answers to held-out questions are. The character that a position is graded on stands in
the second line of each example; a dot where there is no loss.
"""

from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Literal

from transformers import PreTrainedTokenizerBase

from data_scripts.collators import RightPaddingCollator
from data_scripts.epochs import FixedDataset
from data_scripts.errors import exit_on_bad_input
from data_scripts.objective_config import ObjectiveConfig
from data_scripts.options import Range, option
from data_scripts.titles import describe_titles, find_text_start, iterate_titles
from posgpt import finetune, pretrain
from posgpt.finetune import load_finetuning_data
from posgpt.pretrain import PretrainingArguments, load_pretraining_data
from posgpt.recipe_parser import DEFAULT_RECIPE, parse_with_recipe
from posgpt.training.architecture import build_model
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.data import build_epoch_sampler, choose_data_seed
from posgpt.training.estimate import describe_plan


@dataclass
class PreviewArguments:
    """What to show."""

    _argument_group_name = "preview"

    section: Literal["pretrain", "finetune", "finetune_from_scratch"] = option(
        "The section of the recipe whose training is shown.", default="pretrain"
    )
    examples: Annotated[int, Range(1)] = option("How many examples to show.", default=4)


@dataclass
class PretrainingPreviewArguments(PreviewArguments):
    """What to show of pretraining."""

    documents: Annotated[int, Range(0)] = option("How many documents to show as read.", default=10)
    epoch: Annotated[int, Range(0)] = option("The epoch whose examples are drawn.", default=0)


def render_batch(batch: dict, tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """Yield two lines per row: its `input_ids` as text, and below each character the label, a dot where there is no loss."""
    for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        graded = ("·" if label == -100 else str(tokenizer.decode([label])) for label in labels)
        yield f"input  {tokenizer.decode(ids)}"
        yield f"labels {''.join(graded)}"


def preview_pretraining(
    preview: PretrainingPreviewArguments,
    data_args: PretrainingArguments,
    objective: ObjectiveConfig,
    architecture: Any,
    training_args: PosGPTTrainingArguments,
) -> Iterator[str]:
    """Yield the documents as they are read, and the examples that training reads first, in its order."""
    data = load_pretraining_data(data_args, objective, architecture, training_args)
    dataset = data.training.dataset
    dataset.set_epoch(preview.epoch)
    sampler = build_epoch_sampler(dataset, training_args)
    batch = data.training.collator([dataset[item] for item in islice(sampler, preview.examples)])
    documents = data.corpus.take(min(preview.documents, len(data.corpus)))
    asked = dataset.list_asked(len(documents))
    for title, text in zip(iterate_titles(documents), documents["text"], strict=True):
        yield f"document {title} | {text[find_text_start(title) :]}" if title else f"document {text}"
        if title in asked:
            yield f"asked    {', '.join(asked[title])}"
    yield data.training.description
    yield from data.training.describe_held_out()
    # With weights, documents are repeated on purpose.
    if not data_args.corpus_weights and (titles := describe_titles(data.corpus)):
        yield titles
    yield from render_batch(batch, data.tokenizer)
    model = build_model(architecture, data.tokenizer, training_args)
    yield from describe_plan(model, data.tokenizer, training_args, dataset, data.training.collator)


def preview_finetuning(
    preview: PreviewArguments, data_args: Any, model_args: Any, architecture: Any, training_args: PosGPTTrainingArguments
) -> Iterator[str]:
    """Yield the first examples of the file; most recipes shuffle their order."""
    data = load_finetuning_data(data_args, model_args, architecture, training_args, needs_model=False)
    first = data.examples.take(min(preview.examples, len(data.examples)))
    collator = RightPaddingCollator(data.tokenizer)
    yield from render_batch(collator(list(first)), data.tokenizer)
    model = data.model or build_model(architecture, data.tokenizer, training_args)
    dataset = FixedDataset(data.examples, choose_data_seed(training_args))
    yield from describe_plan(model, data.tokenizer, training_args, dataset, collator)


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    # Which options there are follows from it.
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--section", nargs="?", default="pretrain")
    section = parser.parse_known_args(argv)[0].section
    render: Callable[..., Iterator[str]] = preview_finetuning
    types: list[type] = [PreviewArguments, *finetune.TYPES]
    if section == "pretrain":
        types, render = [PretrainingPreviewArguments, *pretrain.TYPES], preview_pretraining
    print(*render(*parse_with_recipe(types, section, argv, DEFAULT_RECIPE)), sep="\n")


if __name__ == "__main__":
    main()
