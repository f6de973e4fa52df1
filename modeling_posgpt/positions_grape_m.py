"""Rotation of queries and keys with learned frequencies."""

import math

import torch
from torch import Tensor, nn
from transformers import initialization

from .position_encoding import Place, PositionEncoding, register
from .positions_rotary import check_head_size, rotate

# By how much logarithms are multiplied, so that they move less in a training step.
SLOWNESS = 16


@register("grape_m")
class PosGPTMultiplicativeGrape(PositionEncoding):
    """The rotation of rotary positions, with frequencies that each layer learns for all its heads.

    (Multiplicative GRAPE, Zhang et al. 2025, arXiv 2512.07805, sec. 3.1: the commuting kind, in the planes of the pairs.) A
    frequency is exp(w / 16), at first rotary's, as in the authors' code. Parameters: head_dim / 2 in each
    layer. That code also normalizes queries and keys, which is left out here. It turns the other way, which swaps the two
    dimensions of a pair and changes nothing else.
    """

    is_narrow = True
    precise = ("weight",)

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        self.head_dim = config.head_dim
        self.weight = nn.Parameter(self.list_weights())

    def list_weights(self) -> Tensor:
        """Return w of rotary's frequencies, (head_dim / 2,)."""
        # Also where a model is built in half precision.
        return torch.arange(0, self.head_dim, 2, dtype=torch.float) / self.head_dim * -math.log(10000.0) * SLOWNESS

    def init_weights(self) -> None:
        initialization.copy_(self.weight, self.list_weights())

    check_config = staticmethod(check_head_size)

    def encode(self, query: Tensor, key: Tensor, hidden_states: Tensor, place: Place) -> tuple[Tensor, Tensor, None]:
        # (batch or 1, length, head_dim / 2)
        angles = place.queries[..., None].float() * (self.weight.float() / SLOWNESS).exp()
        angles = angles.repeat_interleave(2, dim=-1)
        query, key = rotate(torch.stack((query, key)), angles.cos(), angles.sin()).unbind(0)
        return query, key, None
