"""A learning rate that follows the tokens read instead of training steps: minGPT's cosine, which the course uses."""

import math

import torch
from torch.optim.lr_scheduler import LambdaLR

from posgpt.training.arguments import PosGPTTrainingArguments


def compute_rate_factor(tokens: int, warmup_tokens: int, final_tokens: int) -> float:
    """Return what the peak learning rate is multiplied by after a number of tokens (Karpathy 2020, minGPT's trainer).

    The rate is set after each training step, so the first one runs at the full rate. Then it grows linearly until
    `warmup_tokens`, and afterwards follows one cosine with a floor,

        max(0.1, (1 + cos(pi p)) / 2)  with  p = (tokens - warmup_tokens) / (final_tokens - warmup_tokens),

    which is not cut at p = 1: beyond `final_tokens` the rate rises again.
    """
    if tokens == 0:
        return 1.0
    if tokens < warmup_tokens:
        return tokens / warmup_tokens
    progress = (tokens - warmup_tokens) / max(final_tokens - warmup_tokens, 1)
    return max(0.1, 0.5 * (1 + math.cos(math.pi * progress)))


def count_examples(step: int, batch_size: int, epoch_size: int) -> int:
    """Return how many examples have been read after `step` training steps; an epoch's last batch may be smaller."""
    epochs, rest = divmod(step, math.ceil(epoch_size / batch_size))
    return epochs * epoch_size + min(rest * batch_size, epoch_size)


def build_token_schedule(
    optimizer: torch.optim.Optimizer, args: PosGPTTrainingArguments, steps: int, epoch_size: int, length: int
) -> LambdaLR:
    """Build a schedule over the tokens read: in so many steps, with epochs of so many rows of `length` tokens and padding."""
    batch_size = args.rows_per_step
    final_tokens = args.final_tokens or count_examples(steps, batch_size, epoch_size) * length

    def compute_factor(step: int) -> float:
        # As the starter code counts: a row padded to `length` symbols has one target less, and targets are what has been
        # read, but the end is given in symbols.
        tokens = count_examples(step, batch_size, epoch_size) * (length - 1)
        return compute_rate_factor(tokens, args.warmup_tokens, final_tokens)

    return LambdaLR(optimizer, compute_factor)
