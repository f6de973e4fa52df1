"""Finetune a pretrained PosGPT on questions and answers, or train one on them from scratch.

    posgpt finetune --model_name_or_path runs/pretrain --train_file birth_places_train.tsv \
        --validation_file birth_dev.tsv --output_dir runs/finetune
    posgpt finetune --vocabulary_file wiki.txt --train_file birth_places_train.tsv --output_dir runs/scratch

The recipe's section `finetune` holds the options, or `finetune_from_scratch` without `model_name_or_path`.
`train_finetune.py` is the same.
"""

from dataclasses import dataclass
from functools import partial
from operator import ne
from typing import Any, NamedTuple, cast

from transformers import PreTrainedTokenizerBase

from data_scripts.collators import RightPaddingCollator
from data_scripts.documents import Columns, build_corpus_tokenizer, check_columns, load_corpus
from data_scripts.epochs import FixedDataset
from data_scripts.errors import BadInput
from data_scripts.files import check_are_files
from data_scripts.options import option
from data_scripts.questions import QUESTIONS_ROLE, Questions, drop_non_ascii
from data_scripts.relations import RelationArguments, add_relations, load_relations, read_relations
from modeling_posgpt import PosGPTForCausalLM, build_tokenizer
from posgpt.recipe_parser import DEFAULT_RECIPE, parse_with_recipe
from posgpt.training.architecture import ArchitectureArguments, build_config, build_model, load_pretrained
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.data import choose_data_seed, encode_pairs, load_pairs, load_validation, raise_max_answer_length
from posgpt.training.run_record import describe_run
from posgpt.training.trained import TrainedModel, train, train_and_load
from posgpt.training.trainer import PosGPTTrainer


@dataclass
class ModelArguments(Columns):
    """Where the model comes from."""

    _argument_group_name = "model"

    model_name_or_path: str | None = option(
        "A pretrained PosGPT, a folder or a name on the hub; without it, training is from scratch.", default=None
    )
    vocabulary_file: str | None = option("From scratch: the corpus of the vocabulary (wiki.txt).", default=None)


@dataclass
class FinetuningArguments(RelationArguments):
    """What to read."""

    _argument_group_name = "questions"

    train_file: list[str] = option("TSVs with one pair per line: QUESTION<TAB>ANSWER")
    validation_file: list[str] | None = option("TSVs of the same form to measure accuracy on.", default=None)
    corpus_file: list[str] | None = option(
        "The corpus, whose titles show where titles are in questions of unknown relations.", default=None
    )
    ascii_only: bool = option("Whether training pairs lose what is not ASCII, as in the course.", default=False)
    loss_on_first_mask: bool = option("Whether a question's mask is graded, too, as in the course.", default=False)


TYPES = [FinetuningArguments, ModelArguments, ArchitectureArguments, PosGPTTrainingArguments]


class FinetuningData(NamedTuple):
    """What a finetuning begins with."""

    model: PosGPTForCausalLM | None
    tokenizer: PreTrainedTokenizerBase
    questions: Questions
    examples: list[dict]
    # The entries of `PosGPTConfig.relations`.
    relations: dict[str, dict]
    validation: Questions | None


def load_finetuning_data(
    data_args: FinetuningArguments,
    model_args: ModelArguments,
    architecture: Any,
    training_args: PosGPTTrainingArguments,
    needs_model: bool = True,
) -> FinetuningData:
    """Load the pretrained model, or build a new one with the vocabulary of a corpus, and read the training pairs.

    If that `needs_model` is false and neither a model nor a corpus is named, the vocabulary is that of the pairs.
    """
    read = data_args.corpus_file or model_args.vocabulary_file
    check_columns(model_args, read, "--corpus_file or --vocabulary_file")
    check_are_files(QUESTIONS_ROLE, data_args.train_file, data_args.validation_file)
    # What the model was asked before may be asked once only in a file, which shows no form then.
    model, known = None, load_relations(data_args.relations)
    if model_args.model_name_or_path:
        if model_args.vocabulary_file:
            raise BadInput("--vocabulary_file is for training from scratch; a model brings its own vocabulary.")
        model, tokenizer = load_pretrained(model_args.model_name_or_path, architecture, training_args)
        known += read_relations(model.config.relations)
    elif needs_model and not model_args.vocabulary_file:
        raise BadInput(
            "no model to start from: give --model_name_or_path with a pretrained folder; or, to train from scratch,"
            " --vocabulary_file with the corpus (wiki.txt) that the vocabulary is built from."
        )
    max_length = (model.config if model else build_config(architecture)).max_position_embeddings
    # A corpus shows where titles are in the questions.
    with training_args.main_process_first():
        vocabulary = load_corpus(model_args.vocabulary_file, model_args) if model_args.vocabulary_file else None
        corpus = load_corpus(data_args.corpus_file, model_args) if data_args.corpus_file else vocabulary
    questions = load_pairs(data_args.train_file, training_args, known, corpus)
    if data_args.ascii_only:
        whole, questions = questions, drop_non_ascii(questions)
        pairs = (zip(each.texts, each.answers, strict=True) for each in (whole, questions))
        if training_args.should_log and (lost := sum(map(ne, *pairs))):
            kept = "--ascii_only false keeps them"
            print(f"{questions.path}: {lost:,} of {len(whole):,} pairs lose characters that are not ASCII; {kept}.")
    if vocabulary is not None:
        tokenizer = build_corpus_tokenizer(vocabulary, max_length)
        model = build_model(architecture, tokenizer, training_args)
    elif model is None:
        tokenizer = build_tokenizer([*questions.texts, *questions.answers], max_length)
    examples = encode_pairs(questions, tokenizer, training_args, data_args.loss_on_first_mask)
    relations = add_relations((model.config.relations if model else None) or {}, questions.to_config())
    known += questions.relations
    validation = load_validation(data_args.validation_file, training_args, known, relations, questions, corpus)
    return FinetuningData(model, tokenizer, questions, examples, relations, validation)


def finetune(recipe: str = DEFAULT_RECIPE, quiet: bool = False, **options: Any) -> TrainedModel:
    """Train from the beginning or from a checkpoint, and save the model into the output folder.

        posgpt.finetune(model_name_or_path="runs/pretrain", train_file="train.tsv", output_dir="runs/finetune")

    Arguments and errors are those of `posgpt.pretrain`.
    """
    parse = partial(parse_with_recipe, TYPES, "finetune", default=recipe, options=options)
    return train_and_load(parse, build_trainer, quiet)


def build_trainer(
    data_args: FinetuningArguments,
    model_args: ModelArguments,
    architecture: Any,
    training_args: PosGPTTrainingArguments,
) -> PosGPTTrainer:
    """Read the data, load or build the model, and return what trains it."""
    data = load_finetuning_data(data_args, model_args, architecture, training_args)
    model, questions = cast(PosGPTForCausalLM, data.model), data.questions
    model.config.relations = data.relations
    raise_max_answer_length(model, questions.answers)
    described = ", ".join(relation.name for relation in questions.relations)
    start = "after pretraining" if model_args.model_name_or_path else "without pretraining"
    return PosGPTTrainer(
        model,
        training_args,
        train_dataset=FixedDataset(data.examples, choose_data_seed(training_args)),
        data_collator=RightPaddingCollator(data.tokenizer),
        processing_class=data.tokenizer,
        validation=data.validation,
        record=describe_run(model_args, data_args) if training_args.should_save else None,
        card_facts={"Objective": f"{len(data.examples):,} questions ({described}), {start}"},
    )


def main(argv: list[str] | None = None) -> None:
    train(parse_with_recipe(TYPES, "finetune", argv), build_trainer)
