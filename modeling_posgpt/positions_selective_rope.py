"""Rotation of queries and keys by angles that the contents add up to."""

import torch
from torch import Tensor, nn

from .position_encoding import Place, PositionEncoding, convolve, register
from .positions_rotary import check_head_size, rotate


@register("selective_rope")
class PosGPTSelectiveRotation(PositionEncoding):
    """Between query i and key j, pair c turns by the sum of theta_c w_c(l) over the tokens l = j + 1, ..., i that i sees.

    (Selective RoPE, Movahedi et al. 2025, arXiv 2511.17388, as in the authors' code, without its optional gate and bias.)
    w(l) is a causal convolution over four tokens of A B x: x are the hidden states, normalized in each head's part, B has 16
    rows, and theta_c = 500000 ** (-2c / head_dim). Parameters: 26 x hidden_size in each layer. Earlier states and w are cached
    beside the key. The new tokens have to see the same cached ones, or none.
    """

    is_narrow = True
    history = 3
    has_memo = True
    needs_visibility = True
    matrices = ("project.0", "project.1")

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        size, self.head_dim = config.hidden_size // 2, config.head_dim
        self.project = nn.Sequential(nn.Linear(config.hidden_size, 16, bias=False), nn.Linear(16, size, bias=False))
        self.conv = nn.Conv1d(size, size, self.history + 1, groups=size, bias=False)

    check_config = staticmethod(check_head_size)

    def encode(self, query: Tensor, key: Tensor, hidden_states: Tensor, place: Place) -> tuple[Tensor, Tensor, Tensor]:
        assert place.earlier is not None
        # (batch, 4, length, hidden_size), the token itself first.
        states = torch.cat([hidden_states[:, None], place.earlier], dim=1).unflatten(-1, (-1, self.head_dim))
        # `normalize` divides missing tokens, which are 0, by a number so small that float16 has neither it nor its gradient.
        norm = states.float().norm(dim=-1, keepdim=True)
        normalized = (states / torch.where(norm > 0, norm, 1)).to(states.dtype)
        projected = self.project(normalized.flatten(-2))
        steps = convolve(projected, self.conv).unflatten(-1, (-1, self.head_dim // 2))
        theta = 500000.0 ** -(torch.arange(0, self.head_dim, 2, device=query.device) / self.head_dim)
        return query, key, (steps.float() * theta).transpose(1, 2)

    def relate(self, query: Tensor, key: Tensor, memo: Tensor | None, place: Place) -> tuple[Tensor, Tensor, None]:
        assert memo is not None and place.visible is not None
        # Sums need float32's digits.
        with torch.autocast(query.device.type, enabled=False):
            steps, visible = memo.float(), place.visible.float()
            angles = (steps * visible.amax(-2)[..., None]).cumsum(-2)
            # Each new token has the sum of what it sees itself; of two windows, one does not see the other.
            new = torch.arange(query.shape[2], device=query.device) + place.first
            angles = angles.index_copy(2, new, visible @ steps)
        cos, sin = (each.to(query.dtype).repeat_interleave(2, dim=-1) for each in (angles.cos(), angles.sin()))
        return rotate(query, cos.index_select(2, new), sin.index_select(2, new)), rotate(key, cos, sin), None
