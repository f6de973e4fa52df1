"""Transformations that contents choose, multiplied up between key and query."""

import torch
from torch import Tensor, nn

from .position_encoding import Place, PositionEncoding, convolve, register

# Of the low-rank map to w, as in the authors' code.
RANK = 32


@register("path")
class PosGPTHouseholderEncoding(PositionEncoding):
    """Key j meets query i as H_i ... H_(j+1) k_j with H_t = I - beta_t w_t w_t' (PaTH, Yang et al. 2025, arXiv 2505.16381).

    For each head, w has length 1: a low-rank map of x_t, a causal convolution over three tokens and SiLU come before. beta is
    2 sigmoid(u . x_t + b). Tokens between that the query does not see transform nothing. All products come from one triangular
    system (the paper's UT transform). Parameters in each layer: 67 x hidden_size for w, heads x (hidden_size + 1) for beta. Keys
    are as many as the system's equations: the cost of a new token is quadratic.
    """

    history = 2
    has_memo = True
    needs_visibility = True
    is_narrow = True
    matrices = ("w.0", "w.1")

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        self.scaling = config.head_dim**-0.5
        size = config.hidden_size
        self.w = nn.Sequential(nn.Linear(size, RANK, bias=False), nn.Linear(RANK, size, bias=False))
        self.conv = nn.Conv1d(size, size, self.history + 1, groups=size, bias=False)
        self.beta = nn.Linear(size, config.num_attention_heads)

    def prepare(self, hidden_states: Tensor, place: Place) -> Tensor:
        # Which tokens are of the same text: those that some query sees together, though cached ones are no queries.
        assert place.visible is not None
        visible = place.visible.float()
        return (visible.mT @ visible > 0).tril(-1)

    def encode(self, query: Tensor, key: Tensor, hidden_states: Tensor, place: Place) -> tuple[Tensor, Tensor, Tensor]:
        assert place.earlier is not None
        # (batch, 3, length, hidden_size), the token itself first.
        mapped = self.w(torch.cat([hidden_states[:, None], place.earlier], dim=1))
        w = nn.functional.silu(convolve(mapped, self.conv))
        w = w.unflatten(-1, (-1, query.shape[-1])).transpose(1, 2)
        return query, key, torch.cat([w.float(), 2 * self.beta(hidden_states).float().sigmoid().mT[..., None]], dim=-1)

    def relate(self, query: Tensor, key: Tensor, memo: Tensor | None, place: Place) -> tuple[Tensor, Tensor, Tensor]:
        assert memo is not None and place.visible is not None
        # H loses its meaning in half precision, and triangular systems are not solved in it.
        with torch.autocast(query.device.type, enabled=False):
            w, beta = nn.functional.normalize(memo[..., :-1].float(), dim=-1), memo[..., -1:].float()
            # What token t subtracts of key j is u_tj w_t, where u_tj + beta_t w_t . (sum of u_sj w_s) = beta_t w_t . k_j, the
            # sum over s from j + 1 to t - 1. Solved for the queries, which may be few.
            system, subtracted = ((beta * w @ each.mT) * place.shared for each in (w, key.float()))
            read = (query.float() @ w.mT) * place.visible
            solved = torch.linalg.solve_triangular(system, read, upper=False, left=False, unitriangular=True)
            return query, key, -self.scaling * (solved @ subtracted)
