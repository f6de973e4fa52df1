"""A bias that the attention scores adapt."""

import torch
from torch import Tensor, nn

from .position_encoding import Place, init_linears, register
from .positions_kerple import PosGPTKerple


@register("dape")
class PosGPTDape(PosGPTKerple):
    """B + MLP(scores, B) is added to the scores q k / sqrt(head_dim) (DAPE, Zheng et al. 2024, arXiv 2405.14722).

    For each pair of tokens, the MLP reads the scores and biases of all heads together. B is the bias of `kerple`, as
    in the paper's DAPE-Kerple. Parameters in each layer: KERPLE's and a 2 heads -> 32 -> heads MLP with LeakyReLU.
    """

    is_shared = False

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        num_heads, self.scaling = config.num_attention_heads, config.head_dim**-0.5
        self.mlp = nn.Sequential(nn.Linear(2 * num_heads, 32), nn.LeakyReLU(), nn.Linear(32, num_heads))

    def init_weights(self) -> None:
        super().init_weights()
        init_linears(self.mlp)

    def relate(self, query: Tensor, key: Tensor, memo: Tensor | None, place: Place) -> tuple[Tensor, Tensor, Tensor]:
        query, key, bias = super().relate(query, key, memo, place)
        scores = (query * self.scaling) @ key.mT
        bias = bias.to(query.dtype).expand_as(scores)
        adapted = self.mlp(torch.cat([scores, bias], dim=1).permute(0, 2, 3, 1))
        return query, key, bias + adapted.permute(0, 3, 1, 2)
