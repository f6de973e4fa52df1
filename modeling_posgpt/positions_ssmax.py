"""Attention that does not flatten with the number of tokens."""

import math

import torch
from torch import Tensor, nn
from transformers import initialization

from .position_encoding import Place, PositionEncoding, Setting, register


@register("ssmax")
class PosGPTScalableSoftmax(PositionEncoding):
    """A query that sees n tokens is multiplied by s log n (SSMax, Nakanishi 2025, arXiv 2501.19399).

    There are no positions besides; the paper has them with rotary ones, `rotary+ssmax`. Each head of each layer learns its s.
    It starts at the reciprocal of the mean of log n up to `max_position_embeddings`, 0.168 for 1024 tokens. With `ssmax_bias`
    the factor is s log n + b, and b starts at 0.
    """

    settings = {"ssmax_bias": Setting(False, "For ssmax positions: whether queries are multiplied by s log n + b.")}
    needs_visibility = True

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        longest = max(config.max_position_embeddings, 2)
        self.initial_scale = longest / math.lgamma(longest + 1)
        self.scale = nn.Parameter(torch.full((config.num_attention_heads, 1, 1), self.initial_scale))
        self.bias = nn.Parameter(torch.zeros(config.num_attention_heads, 1, 1)) if config.ssmax_bias else None

    def init_weights(self) -> None:
        initialization.constant_(self.scale, self.initial_scale)
        if self.bias is not None:
            initialization.zeros_(self.bias)

    def prepare(self, hidden_states: Tensor, place: Place) -> Tensor | None:
        # The place of a bottleneck's keys says nothing about queries.
        return None if place.visible is None else place.visible.sum(-1)[..., None].clamp(min=1).float().log()

    def encode(self, query: Tensor, key: Tensor, hidden_states: Tensor, place: Place) -> tuple[Tensor, Tensor, None]:
        if place.shared is None:
            return query, key, None
        factor = self.scale.float() * place.shared
        return query * (factor if self.bias is None else factor + self.bias.float()).to(query.dtype), key, None
