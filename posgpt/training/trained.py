"""What a training command returns to Python, and how it keeps quiet there."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase
from transformers.trainer import TRAINER_STATE_NAME

from data_scripts.files import load_json
from modeling_posgpt import PosGPTForCausalLM
from posgpt.training.checkpoints import FinishedModel, claim_output_dir
from posgpt.training.run_record import read_record
from posgpt.training.saved_models import load_model


class TrainedModel(NamedTuple):
    """A trained model, as it is saved in `output_dir`.

    `record` has the options, versions and files of the run, as in `run.json`, and `log_history`, a dictionary per log entry.
    """

    model: PosGPTForCausalLM
    tokenizer: PreTrainedTokenizerBase
    record: dict[str, Any]


def train(config: Sequence[Any], build_trainer: Callable[..., Any]) -> None:
    """Train from the beginning or from a checkpoint, unless `resume_from_checkpoint="auto"` finds a finished model.

    `config` is what `build_trainer` takes, last the training arguments.
    """
    with suppress(FinishedModel), claim_output_dir(config[-1]) as checkpoint:
        build_trainer(*config).train_or_resume(checkpoint)


def train_and_load(
    parse: Callable[[], Sequence[Any]], build_trainer: Callable[..., Any], quiet: bool = False
) -> TrainedModel:
    """Train as `train` does with what `parse` returns, and load what is then in the output folder.

    Errors are raised also where `quiet` has nothing printed.
    """
    with ExitStack() as context:
        if quiet:
            nowhere = context.enter_context(open(os.devnull, "w", encoding="utf-8", errors="replace"))
            context.enter_context(redirect_stdout(nowhere))
            context.enter_context(redirect_stderr(nowhere))
        config = parse()
        train(config, build_trainer)
        args = config[-1]
        state = load_json(Path(args.output_dir, TRAINER_STATE_NAME), "state of a training")
        # Models of early versions have no record.
        parts = read_record(args.output_dir)
        record = parts.pop("options", {}) | parts | {"log_history": state["log_history"]}
        model, tokenizer = load_model(args.output_dir, attn_implementation=args.attn_implementation)
    return TrainedModel(model.to(args.device), tokenizer, record)
