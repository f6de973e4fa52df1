"""Positions that count gates between key and query, which the contents open."""

import torch
from torch import Tensor, nn
from transformers import initialization

from .position_encoding import Place, PositionEncoding, Setting, register


@register("cope")
class PosGPTContextualEncoding(PositionEncoding):
    """The position of key j is the sum of sigmoid(q_i . k_l / sqrt(head_dim)) over the tokens l = j, ..., i that query i sees.

    (CoPE, Golovneva et al. 2024, arXiv 2405.18719, eq. 3-5.) Scores gain q_i . e[position], interpolated between the two
    nearest whole positions. Positions are clamped to `cope_max_position`. As in the paper's listing, q . e is not divided by
    sqrt(head_dim); the authors' code (facebookresearch/RAM) divides it unless told otherwise. Parameters: (cope_max_position + 1)
    x head_dim in each layer, shared by its heads, and zero at first.
    """

    settings = {"cope_max_position": Setting(64, "For cope positions: larger positions count as this one.", 1)}
    needs_visibility = True
    is_narrow = True

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        self.scaling = config.head_dim**-0.5
        self.table = nn.Parameter(torch.zeros(config.cope_max_position + 1, config.head_dim))

    def init_weights(self) -> None:
        initialization.zeros_(self.table)

    def relate(self, query: Tensor, key: Tensor, memo: Tensor | None, place: Place) -> tuple[Tensor, Tensor, Tensor]:
        gates = ((query @ key.mT).float() * self.scaling).sigmoid() * place.visible
        positions = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=len(self.table) - 1)
        logits = query @ self.table.to(query).mT
        lower, upper = (logits.gather(-1, each.long()) for each in (positions.floor(), positions.ceil()))
        return query, key, torch.lerp(lower.float(), upper.float(), positions - positions.floor())
