"""Rotation of queries and keys whose products fade with the distance."""

from typing import Any

import torch
from torch import Tensor

from .position_encoding import Place, Setting, register
from .positions_rotary import PosGPTRotaryEmbedding


@register("xpos")
class PosGPTXPosEmbedding(PosGPTRotaryEmbedding):
    """Rotary positions; the i-th pair of a query at n is also multiplied by zeta_i ** (n / B), of a key by zeta_i ** (-n / B).

    (xPos, Sun et al. 2022, arXiv 2212.10554, sec. 3, algorithm 1.) So the product of query n and key m fades with
    zeta_i ** ((n - m) / B), where zeta_i = (2i / head_dim + 0.4) / 1.4 for i = 0, 1, ...; B is `xpos_scale_base`, 512 in the
    authors' code. The paper's blockwise attention for long texts is left out. Powers of far positions would overflow, so they
    are those of the distance to the middle of the new tokens, which are exact for up to 64 B of these at once (in float16, 17 B).
    Cached keys count as at most 32 B before it.
    """

    settings: Any = {
        "xpos_scale_base": Setting(512, "For xpos positions: the distance over which products fade by zeta.", 1)
    }

    relates_last = True

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        self.head_dim, self.scale_base = config.head_dim, config.xpos_scale_base

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when products would grow, or `rope_parameters` make no sense."""
        PosGPTRotaryEmbedding.check_config(config)
        if not config.is_causal:
            raise ValueError("with xpos positions, products grow towards later tokens: is_causal has to be True.")

    def prepare(self, hidden_states: Tensor, place: Place) -> tuple[Tensor, ...]:
        steps = torch.arange(0, self.head_dim, 2, device=place.queries.device) / self.head_dim
        zeta = ((steps + 0.4) / 1.4).repeat_interleave(2)
        last = place.queries.amax(-1, keepdim=True)
        middle = (place.queries.amin(-1, keepdim=True) + last) / 2
        # Keys after the last query are masked, or empty places of a cache. No product may be infinite, not even a masked one.
        distances = place.queries - middle, middle - place.keys.clamp(max=last)
        scales = (zeta ** (each[:, None, :, None] / self.scale_base).clamp(-32, 32) for each in distances)
        return *self(hidden_states, place.queries), *scales

    def encode(self, query: Tensor, key: Tensor, hidden_states: Tensor, place: Place) -> tuple[Tensor, Tensor, None]:
        return super().encode(query, key, hidden_states, place._replace(shared=place.shared[:2]))

    def relate(self, query: Tensor, key: Tensor, memo: Tensor | None, place: Place) -> tuple[Tensor, Tensor, None]:
        query_scale, key_scale = place.shared[2:]
        return query * query_scale.to(query.dtype), key * key_scale.to(key.dtype), None
