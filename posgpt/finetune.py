"""Finetune a pretrained PosGPT on questions and answers, or train one on them from scratch.

    posgpt finetune --model_name_or_path runs/pretrain --train_file birth_places_train.tsv \
        --validation_file birth_dev.tsv --output_dir runs/finetune
    posgpt finetune --vocabulary_file wiki.txt --train_file birth_places_train.tsv --output_dir runs/scratch

The recipe's section `finetune` holds the options, or `finetune_from_scratch` without `model_name_or_path`.
`train_finetune.py` is the same.
"""

from dataclasses import dataclass
from operator import ne
from typing import Any

from data_scripts.collators import RightPaddingCollator
from data_scripts.documents import Columns, build_corpus_tokenizer, check_columns, load_corpus
from data_scripts.epochs import FixedDataset
from data_scripts.errors import BadInput
from data_scripts.files import check_are_files
from data_scripts.objective_config import TrainingData
from data_scripts.options import option
from data_scripts.questions import QUESTIONS_ROLE, drop_non_ascii
from data_scripts.relations import RelationArguments, add_relations, load_relations, read_relations
from modeling_posgpt import build_tokenizer
from posgpt.recipe_parser import DEFAULT_RECIPE, parse_with_recipe
from posgpt.training.architecture import ArchitectureArguments, build_config, build_model, load_pretrained
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.data import LoadedData, choose_data_seed, encode_pairs, load_pairs, load_validation
from posgpt.training.trained import TrainedModel, make_trainer, train, train_and_load
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


def load_finetuning_data(
    data_args: FinetuningArguments,
    model_args: ModelArguments,
    architecture: Any,
    training_args: PosGPTTrainingArguments,
) -> LoadedData:
    """Load the pretrained model, if one is named, or else the vocabulary of a corpus, and read the training pairs.

    If neither a model nor a corpus is named, the vocabulary is that of the pairs.
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
    elif model is None:
        tokenizer = build_tokenizer([*questions.texts, *questions.answers], max_length)
    examples = encode_pairs(questions, tokenizer, training_args, data_args.loss_on_first_mask)
    relations = add_relations((model.config.relations if model else None) or {}, questions.to_config())
    known += questions.relations
    validation = load_validation(data_args.validation_file, training_args, known, relations, questions, corpus)
    named = ", ".join(relation.name for relation in questions.relations)
    training = TrainingData(
        FixedDataset(examples, choose_data_seed(training_args)),
        RightPaddingCollator(tokenizer),
        f"{len(examples):,} questions ({named})",
    )
    return LoadedData(tokenizer, training, relations, questions, validation, model=model)


def finetune(recipe: str = DEFAULT_RECIPE, quiet: bool = False, **options: Any) -> TrainedModel:
    """Train from the beginning or from a checkpoint, and save the model into the output folder.

        posgpt.finetune(model_name_or_path="runs/pretrain", train_file="train.tsv", output_dir="runs/finetune")

    Arguments and errors are those of `posgpt.pretrain`.
    """
    return train_and_load(build_trainer, TYPES, "finetune", recipe, options, quiet)


def build_trainer(
    data_args: FinetuningArguments,
    model_args: ModelArguments,
    architecture: Any,
    training_args: PosGPTTrainingArguments,
) -> PosGPTTrainer:
    """Read the data, load or build the model, and return what trains it."""
    if not model_args.model_name_or_path and not model_args.vocabulary_file:
        raise BadInput(
            "no model to start from: give --model_name_or_path with a pretrained folder; or, to train from scratch,"
            " --vocabulary_file with the corpus (wiki.txt) that the vocabulary is built from."
        )
    data = load_finetuning_data(data_args, model_args, architecture, training_args)
    model = data.model or build_model(architecture, data.tokenizer, training_args)
    start = "after pretraining" if data.model else "without pretraining"
    return make_trainer(model, data, training_args, f"{data.training.description}, {start}", model_args, data_args)


def main(argv: list[str] | None = None) -> None:
    train(parse_with_recipe(TYPES, "finetune", argv), build_trainer)
