"""Polar coordinates: the content is a magnitude and the position an angle."""

import math

import torch
from torch import Tensor, nn
from transformers import initialization

from .position_encoding import Place, PositionEncoding, register


@register("pope")
class PosGPTPolarEncoding(PositionEncoding):
    """Each dimension is a complex number of magnitude softplus(x) and angle t theta (PoPE, Gopalakrishnan et al. 2025,
    arXiv 2509.10534).

    The score is the sum over dimensions c of softplus(q_c) softplus(k_c) cos((s - t) theta_c + delta_c) for query t and key s,
    with theta_c = 10000 ** (-c / head_dim), c = 0, 1, ... (eq. 6). The phases delta are learned and clamped to -2 pi to 0;
    they begin at 0. Parameters: hidden_size in each layer. Queries and keys are twice as wide as values.
    """

    is_wide = True

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        self.head_dim = config.head_dim
        self.phase = nn.Parameter(torch.zeros(config.num_attention_heads, 1, config.head_dim))

    def init_weights(self) -> None:
        initialization.zeros_(self.phase)

    def prepare(self, hidden_states: Tensor, place: Place) -> Tensor:
        exponents = torch.arange(self.head_dim, device=place.queries.device) / self.head_dim
        return place.queries[:, None, :, None].float() * 10000.0**-exponents

    def encode(self, query: Tensor, key: Tensor, hidden_states: Tensor, place: Place) -> tuple[Tensor, Tensor, None]:
        # A clamp alone would stop the gradient, and a phase outside could never come back.
        phase = self.phase.float()
        shifted = place.shared + phase + (phase.clamp(-2 * math.pi, 0.0) - phase).detach()
        return self.to_cartesian(query, place.shared), self.to_cartesian(key, shifted), None

    @staticmethod
    def to_cartesian(x: Tensor, angles: Tensor) -> Tensor:
        """Return real parts, then imaginary parts, (batch, heads, length, 2 * head_dim)."""
        magnitudes = nn.functional.softplus(x)
        return torch.cat([magnitudes * angles.cos().to(x.dtype), magnitudes * angles.sin().to(x.dtype)], dim=-1)
