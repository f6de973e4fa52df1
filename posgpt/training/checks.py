"""What is checked of a model before it is trained and before it is saved."""

from torch import nn
from transformers import TrainingArguments

from data_scripts.errors import BadInput
from modeling_posgpt import PosGPTConfig
from posgpt.training.checkpoints import describe_last


def check_flex_attention(config: PosGPTConfig) -> bool:
    """Return whether flex_attention is to train a model, and check that it can.

    Raises:
        BadInput: the model has dropout, which flex_attention has not, or heads that are smaller than its kernels allow.
    """
    if config._attn_implementation != "flex_attention":
        return False
    if config.attention_dropout:
        raise BadInput("flex_attention has no dropout; add --dropout 0, or choose another --attn_implementation.")
    if config.head_dim < 16:
        raise BadInput(
            f"flex_attention needs at least 16 dimensions per attention head, and these have {config.head_dim}; choose fewer"
            " num_attention_heads, or another --attn_implementation."
        )
    return True


def check_rows(rows: int, batch_size: int, args: TrainingArguments) -> None:
    """Check that `dataloader_drop_last` leaves something to train on.

    Raises:
        BadInput: it leaves nothing.
    """
    batch_size *= args.world_size
    if args.dataloader_drop_last and rows < batch_size:
        raise BadInput(
            f"dataloader_drop_last leaves out all {rows} rows, since a batch on all processes has {batch_size}; leave it out,"
            " or choose smaller batches."
        )


def check_weights(model: nn.Module, step: int, output_dir: str) -> None:
    """Check that the weights are finite: a step that went wrong would show in the next one's loss alone.

    Raises:
        BadInput: they are not.
    """
    if not all(parameter.isfinite().all() for parameter in model.parameters()):
        raise BadInput(
            f"step {step}: the weights are not finite after it; {describe_last(output_dir)}. Most often a lower"
            " --learning_rate helps."
        )
