"""A learned vector for each distance, added to the keys."""

import torch
from torch import Tensor, nn
from transformers import initialization

from .position_encoding import Place, PositionEncoding, Setting, register


@register("shaw")
class PosGPTShawVectors(PositionEncoding):
    """The score is q_i . (k_j + a) / sqrt(head_dim), with a learned vector a for each distance i - j.

    (Shaw et al. 2018, arXiv 1803.02155, eq. 4.) Distances are clipped to `shaw_max_distance`, for both signs. Each
    head of each layer has its own vectors, as in the paper's base model. The vectors that the paper adds to values are
    left out, because a hook would need the attention weights; for translation, those for keys are enough (sec. 4.3).
    Parameters: (2 `shaw_max_distance` + 1) x hidden_size in each layer.
    """

    settings = {"shaw_max_distance": Setting(16, "For shaw positions: longer distances count as this one.", 1)}
    is_narrow = True

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        self.max_distance, self.scaling = config.shaw_max_distance, config.head_dim**-0.5
        self.initializer_range = config.initializer_range
        self.table = nn.Parameter(torch.empty(config.num_attention_heads, 2 * self.max_distance + 1, config.head_dim))

    def init_weights(self) -> None:
        initialization.normal_(self.table, std=self.initializer_range)

    def prepare(self, hidden_states: Tensor, place: Place) -> Tensor:
        return place.distances()[:, None].clamp(-self.max_distance, self.max_distance) + self.max_distance

    def relate(self, query: Tensor, key: Tensor, memo: Tensor | None, place: Place) -> tuple[Tensor, Tensor, Tensor]:
        # Of each vector, one product with each query: as many as there are distances, not as there are keys.
        products = (query * self.scaling) @ self.table.to(query.dtype).mT
        return query, key, products.gather(-1, place.shared.expand(*query.shape[:2], -1, -1))
