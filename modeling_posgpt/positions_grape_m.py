"""Rotation of queries and keys with learned frequencies."""

import math

import torch
from torch import Tensor, nn
from transformers import initialization

from .position_encoding import Place, PositionEncoding, register
from .positions_rotary import check_head_size, rotate


@register("grape_m")
class PosGPTMultiplicativeGrape(PositionEncoding):
    """The rotation of rotary positions, with frequencies that each head of each layer learns.

    (Multiplicative GRAPE, Zhang et al. 2025, arXiv 2512.07805, sec. 3.1: the commuting kind, in the planes of the pairs.) A
    frequency is exp(w), where w begins at the logarithm of rotary's. Parameters: hidden_size / 2 in each layer. The authors'
    code shares frequencies among heads unless told otherwise, and learns 16 w, which moves more slowly. It turns the other
    way, which swaps the two dimensions of a pair and changes nothing else.
    """

    is_narrow = True

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        self.head_dim = config.head_dim
        self.log_frequency = nn.Parameter(self.list_log_frequencies().repeat(config.num_attention_heads, 1))

    def list_log_frequencies(self) -> Tensor:
        """Return those of rotary positions, (head_dim / 2,)."""
        return torch.arange(0, self.head_dim, 2) / self.head_dim * -math.log(10000.0)

    def init_weights(self) -> None:
        initialization.copy_(self.log_frequency, self.list_log_frequencies().expand_as(self.log_frequency))

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when a head has an odd number of dimensions."""
        check_head_size(config)

    def encode(self, query: Tensor, key: Tensor, hidden_states: Tensor, place: Place) -> tuple[Tensor, Tensor, None]:
        # (batch or 1, heads, length, head_dim / 2)
        angles = place.queries[:, None, :, None].float() * self.log_frequency.float().exp()[:, None]
        angles = angles.repeat_interleave(2, dim=-1)
        query, key = rotate(torch.stack((query, key)), angles.cos(), angles.sin()).unbind(0)
        return query, key, None
