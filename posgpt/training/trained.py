"""What a training command returns to Python, and how it keeps quiet there."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
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


def train(config: Sequence[Any], build_trainer: Callable[..., Any], quiet: bool = False) -> TrainedModel:
    """Train from the beginning or from a checkpoint, or load what `resume_from_checkpoint="auto"` finds finished.

    Errors are raised also where `quiet` has nothing printed.

    `config` is what `build_trainer` takes, last the training arguments.
    """
    with ExitStack() as context:
        if quiet:
            nowhere = context.enter_context(open(os.devnull, "w", encoding="utf-8", errors="replace"))
            context.enter_context(redirect_stdout(nowhere))
            context.enter_context(redirect_stderr(nowhere))
        try:
            checkpoint = context.enter_context(claim_output_dir(config[-1]))
        except FinishedModel:
            folder = Path(config[-1].output_dir)
            state = load_json(folder / TRAINER_STATE_NAME, "state of a training")
            # Those of early versions have none.
            parts = read_record(folder)
            record = parts.pop("options", {}) | parts | {"log_history": state["log_history"]}
            return TrainedModel(*load_model(str(folder)), record)
        trainer = build_trainer(*config)
        trainer.train_or_resume(checkpoint)
    record = trainer.options | {"log_history": trainer.state.log_history}
    model = trainer.accelerator.unwrap_model(trainer.model)
    # Accelerate has put autocast around this object's `forward`; the saved model has none.
    for name in ("forward", "_original_forward"):
        vars(model).pop(name, None)
    model.eval()
    # Trainer turned it off.
    model.config.use_cache = True
    return TrainedModel(model, trainer.processing_class, record)
