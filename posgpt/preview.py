"""Show exactly what a recipe trains on, with the positions that it is graded on.

    posgpt preview windows --train_file wiki.txt --questions_file birth_places_train.tsv
    posgpt preview course --train_file birth_places_train.tsv --section finetune

Before pretraining examples, documents from all parts of the corpus are shown: title, `|` and text, before any edits. Name-keyed
windows also show what is asked for, and how many answers to held-out questions are. The character that a position is graded on
stands in the second line of each example; a dot where there is no loss.
"""

from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal
from unicodedata import category, east_asian_width

import numpy as np
from datasets import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers import PreTrainedTokenizerBase
from transformers.trainer_utils import IntervalStrategy

from data_scripts.documents import describe_documents
from data_scripts.options import Range, option
from data_scripts.titles import describe_titles, find_text_start, iterate_titles
from posgpt import finetune, pretrain
from posgpt.finetune import load_finetuning_data
from posgpt.pretrain import PretrainingArguments, load_pretraining_data
from posgpt.recipe_parser import DEFAULT_RECIPE, parse_with_recipe
from posgpt.training.architecture import build_model
from posgpt.training.callbacks import describe_length
from posgpt.training.data import LoadedData, build_epoch_sampler
from posgpt.training.estimate import plan_training
from posgpt.training.trained import make_trainer

# Characters of a document.
_SHOWN = 1000


@dataclass
class PreviewArguments:
    """What to show."""

    _argument_group_name = "preview"

    section: Literal["pretrain", "finetune", "finetune_from_scratch"] = option(
        "The section of the recipe whose training is shown.", default="pretrain"
    )
    documents: Annotated[int, Range(0)] = option("Of pretraining: how many documents to show as read.", default=10)
    examples: Annotated[int, Range(1)] = option("How many examples to show.", default=4)
    epoch: Annotated[int, Range(0)] = option("The epoch whose examples are drawn.", default=0)


def _draw_dot(character: str) -> str:
    """Return a dot that is as wide as a character is in a terminal."""
    if category(character) in ("Mn", "Me", "Cf"):
        return ""
    return "··" if east_asian_width(character) in "WF" else "·"


def render_batch(batch: dict, tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """Yield two lines per row: its `input_ids` as text, and below each character the label, a dot where there is no loss."""
    for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        graded = (
            _draw_dot(str(tokenizer.decode([id]))) if label == -100 else str(tokenizer.decode([label]))
            for id, label in zip(ids, labels, strict=True)
        )
        # A line break would move what is below each other.
        yield f"input  {tokenizer.decode(ids)}".replace("\n", "↵")
        yield f"labels {''.join(graded)}".replace("\n", "↵")


def describe_corpus(data: LoadedData, dataset: Any, data_args: PretrainingArguments, count: int) -> Iterator[str]:
    """Yield some documents as they are read, and what is said of all; weights repeat documents on purpose."""
    # From the whole corpus: its first ones may be of one kind.
    documents = data.corpus.select(np.linspace(0, len(data.corpus) - 1, min(count, len(data.corpus)), dtype=int))
    titles = list(iterate_titles(documents))
    asked = dataset.list_asked(titles)
    for title, text in zip(titles, documents["text"], strict=True):
        shown = text[find_text_start(title) :]
        shown = f"{shown[:_SHOWN]}… ({len(shown):,} characters)" if len(shown) > _SHOWN else shown
        yield f"document {title} | {shown}" if title else f"document {shown}"
        if title in asked:
            yield f"asked    {', '.join(asked[title])}"
    yield data.training.description
    # Its folds would show bars of their own.
    is_shown = not are_progress_bars_disabled()
    disable_progress_bars()
    yield from data.training.describe_held_out()
    if is_shown:
        enable_progress_bars()
    if not data_args.corpus_weights and (described := describe_titles(data.corpus)):
        yield described
    yield from describe_documents(data.corpus, data_args.train_file)


def preview_training(preview: PreviewArguments, *config: Any) -> Iterator[str]:
    """Yield what is known of the data, the examples that training reads first, in its order, and how long it would take here."""
    data_args, *_, architecture, args = config
    load = load_pretraining_data if preview.section == "pretrain" else load_finetuning_data
    data = load(*config)
    model = data.model or build_model(architecture, data.tokenizer, args)
    with TemporaryDirectory() as folder:
        vars(args).update(output_dir=folder, eval_strategy=IntervalStrategy.NO, push_to_hub=False)
        trainer = make_trainer(model, replace(data, validation=None), args, "")
        plan = plan_training(trainer, is_timed=True)
    # With `minutes`, it may have fewer spans.
    dataset = trainer.train_dataset
    if preview.section == "pretrain":
        yield from describe_corpus(data, dataset, data_args, preview.documents)
    dataset.set_epoch(preview.epoch)
    items = islice(build_epoch_sampler(dataset, args), preview.examples)
    batch = data.training.collator([dataset[item] for item in items])
    yield from render_batch(batch, data.tokenizer)
    yield plan.description
    yield describe_length(plan.steps, plan.seconds, args.device)


def main(argv: list[str] | None = None) -> None:
    # Which options there are follows from it.
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--section", nargs="?", default="pretrain")
    section = parser.parse_known_args(argv)[0].section
    command = pretrain if section == "pretrain" else finetune
    print(
        *preview_training(*parse_with_recipe([PreviewArguments, *command.TYPES], section, argv, DEFAULT_RECIPE)),
        sep="\n",
    )
