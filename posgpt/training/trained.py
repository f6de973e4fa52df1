"""What a training command returns to Python, and how it keeps quiet there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from modeling_posgpt import PosGPTForCausalLM


class TrainedModel(NamedTuple):
    """A trained model, as it is saved in `output_dir`.

    Args:
        record: The options, versions and files of the run, as in `run.json`, and `log_history`, a dictionary per log entry.
    """

    model: PosGPTForCausalLM
    tokenizer: PreTrainedTokenizerBase
    record: dict[str, Any]


def return_trained(trainer: Any) -> TrainedModel:
    """Return what a `PosGPTTrainer` has trained."""
    record = trainer.args.to_dict() | {"log_history": trainer.state.log_history}
    return TrainedModel(trainer.accelerator.unwrap_model(trainer.model), trainer.processing_class, record)


@contextmanager
def keep_quiet(quiet: bool) -> Iterator[None]:
    """Have nothing printed, nor progress shown, if `quiet`; errors are raised all the same."""
    if not quiet:
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield
