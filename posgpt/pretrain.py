"""Pretrain a PosGPT on a corpus by span corruption, name-keyed windows or causal language modeling.

    posgpt pretrain --train_file wiki.txt --position_embedding_type rotary --output_dir runs/pretrain
    accelerate launch --config_file posgpt/recipes/accelerate/ddp.yaml -m posgpt pretrain windows --train_file wiki.txt \
        --questions_file birth_places_train.tsv --output_dir runs/windows

The recipe's section `pretrain` holds the options; any of them, and any of transformers' TrainingArguments, can be given on
the command line. `train_pretrain.py` is the same.
"""

from dataclasses import dataclass
from typing import Any

from data_scripts.documents import Columns, build_corpus_tokenizer, check_columns, describe_documents, load_corpus
from data_scripts.errors import BadInput
from data_scripts.files import check_are_files
from data_scripts.objective_config import ObjectiveConfig
from data_scripts.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from data_scripts.options import option
from data_scripts.questions import QUESTIONS_ROLE
from data_scripts.relations import BIRTHPLACE, RelationArguments, list_entries, load_relations
from posgpt.recipe_parser import DEFAULT_RECIPE, parse_with_recipe
from posgpt.training.architecture import ArchitectureArguments, build_config, build_model, describe_size
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.data import LoadedData, choose_data_seed, load_pairs, load_validation
from posgpt.training.trained import TrainedModel, make_trainer, train, train_and_load
from posgpt.training.trainer import PosGPTTrainer


@dataclass
class PretrainingArguments(RelationArguments, Columns):
    """What to read."""

    _argument_group_name = "data and objective"

    train_file: list[str] = option(
        "The corpus, or several: UTF-8 text, one document `Title. text` per line; a table (.csv, .jsonl, .parquet) of"
        ' titles and texts; a pattern of such files\' names ("part-*.txt"), which may end in .gz or .zst; or a dataset on'
        " the hub."
    )
    corpus_weights: list[float] | None = option(
        "How often documents of each corpus are read, relative to the others (default: each once).", default=None
    )
    objective: str = option(
        "The pretraining objective; each has options of its own.", default=DEFAULT_OBJECTIVE, choices=[*OBJECTIVES]
    )
    questions_file: list[str] | None = option("TSVs of training questions to mix in.", default=None)
    validation_file: list[str] | None = option("TSVs of questions to measure accuracy on.", default=None)


TYPES = [PretrainingArguments, ObjectiveConfig, ArchitectureArguments, PosGPTTrainingArguments]


def load_pretraining_data(
    data_args: PretrainingArguments,
    objective: ObjectiveConfig,
    architecture: Any,
    training_args: PosGPTTrainingArguments,
) -> LoadedData:
    """Read corpus and questions and build the objective's training data."""
    # Sizes that are not compatible and missing questions are refused before the corpus is read.
    max_length = build_config(architecture).max_position_embeddings
    if architecture.bottleneck_size is not None and objective.packs_texts:
        raise BadInput(
            f"--bottleneck_size: a model with latents reads one text per row, and {objective.name} gives several; leave it out, or take"
            " the recipe course."
        )
    check_are_files(QUESTIONS_ROLE, data_args.questions_file, data_args.validation_file)
    check_columns(data_args, data_args.train_file)
    questions, relations = None, load_relations(data_args.relations)
    # One process reads first; the others find the result in the cache.
    with training_args.main_process_first():
        corpus = load_corpus(data_args.train_file, data_args, data_args.corpus_weights)
    if data_args.questions_file:
        questions = load_pairs(data_args.questions_file, training_args, relations, corpus)
        unasked = [relation.name for relation in relations if relation not in questions.relations]
        if unasked and training_args.should_log:
            print(f"{data_args.relations}: no training question asks for {', '.join(unasked)}, so nothing does.")
    # What documents are asked for without questions.
    relations = relations or [BIRTHPLACE]
    texts = [*questions.texts, *questions.answers] if questions else []
    if not objective.reads_text:
        # Rows ask in all wordings, also in those that no question has.
        asked = questions.relations if questions else relations
        texts += [wording.replace("{title}", "") for relation in asked for wording in relation.wordings]
    with training_args.main_process_first():
        tokenizer = build_corpus_tokenizer(corpus, max_length, texts)
        training = objective.build(corpus, tokenizer, choose_data_seed(training_args), questions, relations)
    entries = questions.to_config() if questions else list_entries(relations)
    # One question alone shows no form; it may be of a form that is trained on.
    known = [*relations, *(questions.relations if questions else ())]
    validation = load_validation(data_args.validation_file, training_args, known, entries, questions, corpus)
    return LoadedData(tokenizer, training, entries, questions, validation, corpus)


def pretrain(recipe: str = DEFAULT_RECIPE, quiet: bool = False, **options: Any) -> TrainedModel:
    """Train from the beginning or from a checkpoint, and save the model into the output folder.

        posgpt.pretrain("windows", train_file="wiki.txt", questions_file="train.tsv", output_dir="runs/windows")

    Args:
        recipe: What the options are in, a name or a file.
        quiet: Whether nothing is printed.
        options: What overrides the recipe, named as on the command line.

    Raises:
        BadInput: an option or a file is not what it should be, or training could not go on.
    """
    return train_and_load(build_trainer, TYPES, "pretrain", recipe, options, quiet)


def build_trainer(
    data_args: PretrainingArguments,
    objective: ObjectiveConfig,
    architecture: Any,
    training_args: PosGPTTrainingArguments,
) -> PosGPTTrainer:
    """Read the data, build the model, and return what trains it."""
    data = load_pretraining_data(data_args, objective, architecture, training_args)
    model, questions = build_model(architecture, data.tokenizer, training_args), data.questions
    if training_args.should_log:
        print(f"{data.training.description} {describe_size(model)}.")
        for note in describe_documents(data.corpus, data_args.train_file):
            print(note)
    described = f"{objective.name.replace('_', ' ')} of {len(data.corpus):,} documents"
    described += f", {len(questions):,} questions mixed in" if questions else "; not finetuned"
    return make_trainer(model, data, training_args, described, data_args, objective)


def main(argv: list[str] | None = None) -> None:
    train(parse_with_recipe(TYPES, "pretrain", argv), build_trainer)
