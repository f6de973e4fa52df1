"""Attention scores that decrease with the distance at a fixed slope for each head."""

import math

import torch
from torch import Tensor, nn
from transformers import initialization

from .position_encoding import Place, PositionEncoding, register


@register("alibi")
class PosGPTAlibi(PositionEncoding):
    """Scores decrease with the distance, at a fixed slope for each head (ALiBi, Press et al. 2021, arXiv 2108.12409).

    `-slope * |i - j|` is added to the score of query i and key j.
    """

    is_shared = True

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        # A buffer, because copying numbers to a GPU in each layer would make the CPU wait for it.
        slopes = self.compute_slopes(config.num_attention_heads)
        self.slopes = nn.Buffer(torch.tensor(slopes, dtype=torch.float), persistent=False)

    def init_weights(self) -> None:
        initialization.copy_(self.slopes, torch.tensor(self.compute_slopes(len(self.slopes)), dtype=torch.float))

    @staticmethod
    def compute_slopes(num_heads: int) -> list[float]:
        """Return 2 ** (-8 / n), 2 ** (-16 / n), ... for n heads, if n is a power of two (sec. 3).

        For other n, as in the authors' code: the slopes of the next smaller power of two, then every other slope of the
        next larger.
        """
        power = 2 ** math.floor(math.log2(num_heads))
        slopes = [2.0 ** (-8 * head / power) for head in range(1, power + 1)]
        return slopes + [2.0 ** (-4 * head / power) for head in range(1, 2 * (num_heads - power), 2)]

    def prepare(self, hidden_states: Tensor, place: Place) -> Tensor:
        return -self.slopes[:, None, None] * place.distances().abs()[:, None]

    def relate(self, query: Tensor, key: Tensor, memo: Tensor | None, place: Place) -> tuple[Tensor, Tensor, Tensor]:
        return query, key, place.shared
