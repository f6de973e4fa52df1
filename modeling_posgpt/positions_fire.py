"""A small network's function of the distance, relative to the query's position."""

import torch
from torch import Tensor, nn
from transformers import initialization

from .position_encoding import Place, PositionEncoding, Setting, init_linears, register


@register("fire")
class PosGPTFire(PositionEncoding):
    """MLP(psi(i - j) / psi(max(L, i))) with psi(x) = log(c x + 1) is added to the score of query i and key j.

    (FIRE, Li et al. 2023, arXiv 2310.04418, sec. 3.) Positions count from 0, as in the paper's code. Each layer learns
    c, L and a 1 -> 32 -> heads MLP with ReLU. Queries before L all divide by the same number: in texts shorter than L,
    the bias is a function of the distance alone. L starts at `fire_threshold`.
    """

    settings = {"fire_threshold": Setting(512, "For fire positions: the threshold L before training.", 1)}

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        self.threshold = config.fire_threshold
        self.c = nn.Parameter(torch.full((1,), 0.1))
        # Times `threshold`, it is L; by itself, L would hardly move at the learning rate of the other parameters.
        self.multiplier = nn.Parameter(torch.ones(1))
        self.mlp = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, config.num_attention_heads))

    def init_weights(self) -> None:
        initialization.constant_(self.c, 0.1)
        initialization.ones_(self.multiplier)
        # With biases of zero, all that ReLU makes of a positive number is linear in it.
        init_linears(self.mlp)

    def prepare(self, hidden_states: Tensor, place: Place) -> Tensor:
        return place.distances().abs().float()

    def relate(self, query: Tensor, key: Tensor, memo: Tensor | None, place: Place) -> tuple[Tensor, Tensor, Tensor]:
        c, threshold = self.c.float().abs(), (self.multiplier.float() * self.threshold).abs()
        longest = torch.maximum(place.queries[:, :, None].float(), threshold)
        share = torch.log1p(c * place.shared) / (torch.log1p(c * longest) + 1e-6)
        return query, key, self.mlp(share[..., None].to(self.c.dtype)).permute(0, 3, 1, 2)
