"""Dropout whose random numbers cost little on a CPU, and whose scale a GPU's attention does not round."""

import math

import numpy as np
import torch
from torch import Tensor, nn


def dropout_mask(shape: torch.Size, rate: float, dtype: torch.dtype) -> Tensor:
    """Draw what dropout multiplies by: 0 with probability `rate`, rounded to 1 / 65,536, and 1 / (1 - rate) otherwise.

    The draw is a function of the state of torch's generator, so a resumed or recomputed forward pass draws the same. `rate` is
    from 0 to below 1, and `dtype` is float32 or bfloat16.
    """
    # torch draws each element by itself, from a sequential generator; sixteen random bits are enough.
    generator = np.random.Generator(np.random.SFC64(int(torch.randint(2**62, ()))))
    words = generator.integers(0, 2**64, -(-shape.numel() // 4), dtype=np.uint64)
    kept = words.view(np.uint16)[: shape.numel()] >= round(rate * 2**16)
    # numpy has no bfloat16: its bits are multiplied as an integer.
    scale = torch.tensor(1 / (1 - rate), dtype=dtype)
    bits = scale.view(torch.int16 if dtype == torch.bfloat16 else torch.int32).numpy()
    return torch.from_numpy(kept * bits).view(dtype).view(shape)


def drop(x: Tensor, rate: float, training: bool) -> Tensor:
    """Return `x` with elements set to 0 with probability `rate` and the others divided by 1 - rate, while training.

    (Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting".) On a CPU the random numbers
    come from `dropout_mask`, several times faster than torch's own (docs/results.md).
    """
    is_drawn_here = x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16)
    if not training or rate == 0 or not is_drawn_here or torch.compiler.is_compiling():
        return nn.functional.dropout(x, rate, training)
    return x * dropout_mask(x.shape, rate, x.dtype)


def round_rate(rate: float, dtype: torch.dtype) -> float:
    """Return the dropout rate nearest `rate` whose scale, 1 / (1 - rate), is a number of `dtype`.

    Torch's memory-efficient attention multiplies by the scale in `dtype` in its forward pass and in float32 in its backward
    pass. For a rate of 0.1 in bfloat16 these are 1.109375 and 1.111111. The gradient of each row of scores then sums to
    0.157 % of what it should cancel, and as softmax does not see such a shift, AdamW goes on in that direction (docs/running.md).
    0.0985915 has the scale 1.109375 in both. In bfloat16, a rate below 0.0039 becomes 0.
    """
    scale = 1 / (1 - rate)
    # Numbers of `dtype` from 2 ** n to 2 ** (n + 1) are this far apart.
    step = torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(scale))
    return 1 - 1 / (round(scale / step) * step)


class PosGPTDropout(nn.Dropout):
    """`torch.nn.Dropout` by way of `drop`."""

    def forward(self, input: Tensor) -> Tensor:
        return drop(input, self.p, self.training)
