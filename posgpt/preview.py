"""Show exactly what a recipe trains on, with the positions that it is graded on.

    posgpt preview windows --train_file wiki.txt --questions_file birth_places_train.tsv
    posgpt preview course --train_file birth_places_train.tsv --section finetune
    posgpt preview windows --train_file wiki.txt --questions_file birth_places_train.tsv --section generate_questions

Before pretraining examples, the corpus's first documents are shown as they are read: title, `|` and text, and with name-keyed
windows what is asked for. The character that a position is graded on stands in the second line of each example; a dot where
there is no loss.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Literal

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.collators import RightPaddingCollator
from data_scripts.errors import exit_on_bad_input
from data_scripts.objective_config import ObjectiveConfig
from data_scripts.options import OptionParser, Range, option
from data_scripts.relations import load_relations, read_relations
from data_scripts.titles import describe_titles, find_text_start, iterate_titles
from modeling_posgpt import build_tokenizer
from posgpt.finetune import (
    FinetuningArguments,
    ModelArguments,
    add_unknown_characters,
    load_or_build_model,
    load_training_pairs,
)
from posgpt.generate_questions import GenerationArguments, load_generation_data
from posgpt.pretrain import PretrainingArguments, load_pretraining_data
from posgpt.recipe_parser import parse_with_recipe
from posgpt.training.architecture import ArchitectureArguments, build_config, choose_max_length
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.data import build_epoch_sampler, encode_pairs


@dataclass
class PreviewArguments:
    """What to show."""

    _argument_group_name = "preview"

    section: Literal["pretrain", "generate_questions", "finetune", "finetune_from_scratch"] = option(
        "The section of the recipe whose training is shown.", default="pretrain"
    )
    examples: Annotated[int, Range(1)] = option("How many examples to show.", default=4)


@dataclass
class PretrainingPreviewArguments(PreviewArguments):
    """What to show of pretraining."""

    documents: Annotated[int, Range(0)] = option("How many documents to show as read.", default=10)
    epoch: Annotated[int, Range(0)] = option("The epoch whose examples are drawn.", default=0)


def render_documents(documents: Dataset, asked: dict[str, list[str]]) -> Iterator[str]:
    """Yield a line per document of a corpus: its title, if it has one, `|` and its text; and a line of what is asked for.

    Args:
        asked: From `EpochDataset.list_asked`.
    """
    for title, text in zip(iterate_titles(documents), documents["text"], strict=True):
        yield f"document {title} | {text[find_text_start(title) :]}" if title else f"document {text}"
        if title in asked:
            yield f"asked    {', '.join(asked[title])}"


def render_batch(batch: dict, tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """Yield two lines per row: its `input_ids` as text, and below each character the label, a dot where there is no loss."""
    for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        graded = ("·" if label == -100 else str(tokenizer.decode([label])) for label in labels)
        yield f"input  {tokenizer.decode(ids)}"
        yield f"labels {''.join(graded)}"


def render_first(encoded: Dataset, tokenizer: PreTrainedTokenizerBase, most: int) -> Iterator[str]:
    """Return the lines of `render_batch` for the first examples, at most `most`."""
    batch = RightPaddingCollator(tokenizer)(list(encoded.take(min(most, len(encoded)))))
    return render_batch(batch, tokenizer)


def preview_pretraining(argv: Sequence[str]) -> None:
    """Print the examples that training reads first, in its order."""
    preview, data_args, objective, architecture, training_args = parse_with_recipe(
        [
            PretrainingPreviewArguments,
            PretrainingArguments,
            ObjectiveConfig,
            ArchitectureArguments,
            PosGPTTrainingArguments,
        ],
        "pretrain",
        argv,
    )
    data = load_pretraining_data(architecture, data_args, objective, training_args)
    dataset = data.training.dataset
    dataset.set_epoch(preview.epoch)
    sampler = build_epoch_sampler(dataset, training_args)
    batch = data.training.collator([dataset[item] for item in islice(sampler, preview.examples)])
    documents = data.corpus.take(min(preview.documents, len(data.corpus)))
    asked = dataset.list_asked(len(documents))
    # With weights, documents are repeated on purpose.
    titles = None if data_args.corpus_weights else describe_titles(data.corpus)
    described = filter(None, (data.training.description, titles))
    print(*render_documents(documents, asked), *described, *render_batch(batch, data.tokenizer), sep="\n")


def preview_generation(argv: Sequence[str]) -> None:
    """Print the first names, in the order of the corpus, that a model learns to write questions from."""
    preview, data_args, architecture, training_args = parse_with_recipe(
        [PreviewArguments, GenerationArguments, ArchitectureArguments, PosGPTTrainingArguments],
        "generate_questions",
        argv,
        default="windows",
    )
    data = load_generation_data(architecture, data_args, training_args)
    print(data.description, *render_first(data.examples, data.tokenizer, preview.examples), sep="\n")


def preview_finetuning(section: str, argv: Sequence[str]) -> None:
    """Print the first questions of the file as finetuning reads them; most recipes shuffle their order.

    The vocabulary is the model's or the given corpus's, otherwise that of the questions themselves.
    """
    preview, model_args, data_args, architecture, training_args = parse_with_recipe(
        [PreviewArguments, ModelArguments, FinetuningArguments, ArchitectureArguments, PosGPTTrainingArguments],
        section,
        argv,
    )
    known, tokenizer = load_relations(data_args.relations), None
    if model_args.model_name_or_path or model_args.vocabulary_file:
        model, tokenizer = load_or_build_model(model_args, architecture, training_args)
        known += read_relations(model.config.relations)
    else:
        build_config(architecture)
    questions = load_training_pairs(model_args, data_args, training_args, known)
    if tokenizer and data_args.add_characters:
        tokenizer = add_unknown_characters(
            model, tokenizer, questions, data_args.corpus_file, model_args, training_args
        )
    elif tokenizer is None:
        tokenizer = build_tokenizer([*questions.texts, *questions.answers], choose_max_length(architecture))
    encoded = encode_pairs(questions, tokenizer, training_args, data_args.loss_on_first_mask)
    print(*render_first(encoded, tokenizer, preview.examples), sep="\n")


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    # Which options there are follows from it.
    parser = OptionParser([])
    parser.add_argument("--section", nargs="?", default="pretrain")
    section = parser.parse_known_args(argv)[0].section
    if section == "pretrain":
        preview_pretraining(argv)
    elif section == "generate_questions":
        preview_generation(argv)
    else:
        preview_finetuning(section, argv)


if __name__ == "__main__":
    main()
