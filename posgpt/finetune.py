"""Finetune a pretrained PosGPT on questions and answers, or train one on them from scratch.

    posgpt finetune --model_name_or_path runs/pretrain --train_file birth_places_train.tsv \
        --validation_file birth_dev.tsv --output_dir runs/finetune
    posgpt finetune --vocabulary_file wiki.txt --train_file birth_places_train.tsv --output_dir runs/scratch

The recipe's section `finetune` holds the options, or `finetune_from_scratch` without `model_name_or_path`.
`train_finetune.py` is the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from data_scripts.collators import RightPaddingCollator
from data_scripts.documents import Columns, build_corpus_tokenizer, load_corpus
from data_scripts.epochs import FixedDataset
from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.options import option
from data_scripts.questions import Questions
from data_scripts.relations import (
    BIRTHPLACE,
    Relation,
    RelationArguments,
    add_relations,
    load_relations,
    read_relations,
)
from modeling_posgpt import PosGPTForCausalLM
from posgpt.recipe_parser import DEFAULT_RECIPE, parse_with_recipe, read_recipe
from posgpt.training.architecture import (
    ArchitectureArguments,
    PretrainedArguments,
    add_characters,
    build_model,
    choose_max_length,
    load_pretrained,
)
from posgpt.training.arguments import PosGPTTrainingArguments, check_before_reading
from posgpt.training.data import choose_data_seed, encode_pairs, leave_room_for_answers, load_pairs, load_validation
from posgpt.training.run_record import describe_run
from posgpt.training.trained import TrainedModel, train
from posgpt.training.trainer import PosGPTTrainer


@dataclass
class ModelArguments(PretrainedArguments, Columns):
    """Where the model comes from."""

    _argument_group_name = "model"

    vocabulary_file: str | None = option(
        "From scratch: the corpus whose characters become the vocabulary (wiki.txt).", default=None
    )


@dataclass
class FinetuningArguments(RelationArguments):
    """What to read, and whether an earlier result may be replaced."""

    _argument_group_name = "questions"

    train_file: list[str] = option(f"TSVs with one pair per line: {BIRTHPLACE.form}<TAB>ANSWER")
    validation_file: list[str] | None = option("TSVs of the same form to measure accuracy on.", default=None)
    corpus_file: list[str] | None = option(
        "The corpus: its titles show where titles are in questions, for relations that neither the model nor --relations has.",
        default=None,
    )
    overwrite_output_dir: bool = option("Replace a model that is already there.", default=False)
    add_characters: bool = option(
        "Whether the characters of the training pairs, and of --corpus_file, that the model does not know are added to its"
        " vocabulary.",
        default=False,
    )
    ascii_only: bool = option(
        "Whether characters outside ASCII are left out of the training pairs, as the course's loader does.",
        default=False,
    )
    loss_on_first_mask: bool = option(
        "Whether there is loss on the mask that ends a question, too, as in the course.", default=False
    )


def load_or_build_model(
    model_args: ModelArguments, architecture: Any, training_args: PosGPTTrainingArguments
) -> tuple[PosGPTForCausalLM, PreTrainedTokenizerBase]:
    """Load the pretrained model, or build a new one, with its tokenizer.

    Raises:
        BadInput: there is neither a model nor a vocabulary, there are both, or a loaded model's size would change.
    """
    if model_args.model_name_or_path:
        if model_args.vocabulary_file:
            raise BadInput("--vocabulary_file is for training from scratch; a model brings its own vocabulary.")
        return load_pretrained(model_args.model_name_or_path, architecture, training_args)
    if not model_args.vocabulary_file:
        raise BadInput(
            "no model to start from: give --model_name_or_path with a pretrained folder; or, to train from scratch,"
            " --vocabulary_file with the corpus (wiki.txt) that the vocabulary is built from."
        )
    with training_args.main_process_first():
        corpus = load_corpus(model_args.vocabulary_file, model_args)
    tokenizer = build_corpus_tokenizer(corpus, choose_max_length(architecture))
    return build_model(architecture, tokenizer, training_args), tokenizer


def load_training_pairs(
    model_args: ModelArguments,
    data_args: FinetuningArguments,
    training_args: PosGPTTrainingArguments,
    known: Sequence[Relation],
) -> Questions:
    """Load what is trained on; see `load_pairs`. A corpus shows where titles are in the questions."""
    corpus, file = None, data_args.corpus_file or model_args.vocabulary_file
    if file:
        with training_args.main_process_first():
            corpus = load_corpus(file, model_args)
    return load_pairs(data_args.train_file, training_args, known, corpus, data_args.ascii_only)


def add_unknown_characters(
    model: PosGPTForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    questions: Questions,
    corpus_file: list[str] | None,
    columns: Columns,
    training_args: PosGPTTrainingArguments,
) -> PreTrainedTokenizerBase:
    """Add the characters of questions, answers and a corpus that a model does not know to it, and print them."""
    texts = [*questions.texts, *questions.answers]
    if corpus_file:
        with training_args.main_process_first():
            corpus = load_corpus(corpus_file, columns)
        texts += build_corpus_tokenizer(corpus, tokenizer.model_max_length).get_vocab()
    extended = add_characters(model, tokenizer, texts, training_args.seed)
    if training_args.should_log and (
        added := extended.convert_ids_to_tokens(list(range(len(tokenizer), len(extended))))
    ):
        print(f"{questions.path}: {len(added):,} characters are added to the vocabulary: {''.join(added[:40])}")
    return extended


class FinetuningConfig(NamedTuple):
    """All options of a finetuning."""

    model: ModelArguments
    data: FinetuningArguments
    architecture: Any
    training: PosGPTTrainingArguments


def choose_section(recipe: Path, given: Mapping[str, Any]) -> str:
    """Return the recipe's section: that for a pretrained model if one is named, there or among what is given.

    Raises:
        BadInput: none is named, and the recipe does not train from scratch.
    """
    sections = read_recipe(recipe)
    if given.get("model_name_or_path") or sections.get("finetune", {}).get("model_name_or_path"):
        return "finetune"
    if "finetune" in sections and "finetune_from_scratch" not in sections:
        if given.get("help"):
            return "finetune"
        raise BadInput(
            f"no model to start from: give --model_name_or_path with a pretrained folder; {recipe} does not train from scratch."
        )
    return "finetune_from_scratch"


def read_config(
    argv: Sequence[str] | None = None, recipe: str = DEFAULT_RECIPE, options: Mapping[str, Any] | None = None
) -> FinetuningConfig:
    """Read the options of a finetuning from a command line or from Python; see `parse_with_recipe`."""
    types = [ModelArguments, FinetuningArguments, ArchitectureArguments, PosGPTTrainingArguments]
    return FinetuningConfig(*parse_with_recipe(types, choose_section, argv, recipe, options))


def finetune(config: FinetuningConfig | str = DEFAULT_RECIPE, quiet: bool = False, **options: Any) -> TrainedModel:
    """Train from the beginning or from a checkpoint, and save the model into the output folder; see `posgpt.pretrain`.

    posgpt.finetune(model_name_or_path="runs/pretrain", train_file="train.tsv", output_dir="runs/finetune")
    """
    if isinstance(config, str):
        config = read_config(recipe=config, options=options)
    return train(config, build_trainer, quiet)


def build_trainer(
    model_args: ModelArguments,
    data_args: FinetuningArguments,
    architecture: Any,
    training_args: PosGPTTrainingArguments,
) -> PosGPTTrainer:
    """Read the data, load or build the model, and return what trains it."""
    check_before_reading(training_args, data_args.validation_file, data_args.train_file)
    model, tokenizer = load_or_build_model(model_args, architecture, training_args)

    # What the model was asked before may be asked once only in a file, which shows no form then.
    known = [*load_relations(data_args.relations), *read_relations(model.config.relations)]
    questions = load_training_pairs(model_args, data_args, training_args, known)
    if data_args.add_characters:
        tokenizer = add_unknown_characters(
            model, tokenizer, questions, data_args.corpus_file, model_args, training_args
        )
    train_examples = encode_pairs(questions, tokenizer, training_args, data_args.loss_on_first_mask)
    model.config.relations = add_relations(model.config.relations or {}, questions.to_config())
    leave_room_for_answers(model, questions)
    known += questions.relations
    validation = load_validation(data_args.validation_file, training_args, known, model.config.relations, questions)

    described = ", ".join(relation.name for relation in questions.relations)
    start = "after pretraining" if model_args.model_name_or_path else "without pretraining"
    return PosGPTTrainer(
        model,
        training_args,
        train_dataset=FixedDataset(train_examples, choose_data_seed(training_args)),
        data_collator=RightPaddingCollator(tokenizer),
        processing_class=tokenizer,
        validation=validation,
        record=describe_run(model_args, data_args) if training_args.should_save else None,
        card_facts={"Objective": f"{len(train_examples):,} questions ({described}), {start}"},
    )


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    finetune(read_config(argv))


if __name__ == "__main__":
    main()
