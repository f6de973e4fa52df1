"""What a training command returns to Python, and how it keeps quiet there."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from modeling_posgpt import PosGPTForCausalLM
from posgpt.recipe_parser import parse_with_recipe
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.checkpoints import FinishedModel, claim_output_dir, read_state
from posgpt.training.data import LoadedData, raise_max_answer_length
from posgpt.training.run_record import describe_run, read_record
from posgpt.training.saved_models import load_model
from posgpt.training.trainer import PosGPTTrainer


class TrainedModel(NamedTuple):
    """A trained model, as it is saved in `output_dir`.

    `record` has the options, versions and files of the run, as in `run.json`, and `log_history`, a dictionary per log entry.
    """

    model: PosGPTForCausalLM
    tokenizer: PreTrainedTokenizerBase
    record: dict[str, Any]


def make_trainer(
    model: PosGPTForCausalLM, data: LoadedData, args: PosGPTTrainingArguments, objective: str, *options: Any
) -> PosGPTTrainer:
    """Return what trains a model; its card says the `objective`, and its record the `options` (see `describe_run`)."""
    model.config.relations = data.relations
    answers = data.questions.answers if data.questions else ()
    raise_max_answer_length(model, answers, data.training.longest_answer)
    return PosGPTTrainer(
        model,
        args,
        train_dataset=data.training.dataset,
        data_collator=data.training.collator,
        processing_class=data.tokenizer,
        validation=data.validation,
        record=describe_run(*options) if args.should_save else None,
        card_facts={"Objective": objective},
    )


def train(config: Sequence[Any], build_trainer: Callable[..., Any]) -> None:
    """Train from the beginning or from a checkpoint, unless `resume_from_checkpoint="auto"` finds a finished model.

    `config` is what `build_trainer` takes, last the training arguments.
    """
    with suppress(FinishedModel), claim_output_dir(config[-1]) as checkpoint:
        build_trainer(*config).train_or_resume(checkpoint)


def train_and_load(
    build_trainer: Callable[..., Any], types: Sequence[Any], section: str, recipe: str, options: Any, quiet: bool
) -> TrainedModel:
    """Train as `train` does with a recipe and what overrides it, and load what is then in the output folder.

    Errors are raised also where `quiet` has nothing printed.
    """
    with ExitStack() as context:
        if quiet:
            nowhere = context.enter_context(open(os.devnull, "w", encoding="utf-8", errors="replace"))
            context.enter_context(redirect_stdout(nowhere))
            context.enter_context(redirect_stderr(nowhere))
        config = parse_with_recipe(types, section, default=recipe, options=options)
        train(config, build_trainer)
        args = config[-1]
        # Models of early versions have no record.
        parts = read_record(args.output_dir)
        record = parts.pop("options", {}) | parts | {"log_history": read_state(args.output_dir)["log_history"]}
        model, tokenizer = load_model(args.output_dir, attn_implementation=args.attn_implementation)
    return TrainedModel(model.to(args.device), tokenizer, record)
