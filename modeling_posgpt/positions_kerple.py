"""A penalty that grows with the logarithm of the distance, as fast as each head learns."""

import torch
from torch import Tensor, nn
from transformers import initialization

from .position_encoding import Place, PositionEncoding, register


@register("kerple")
class PosGPTKerple(PositionEncoding):
    """-r1 log(1 + r2 |i - j|) is added to the score of query i and key j (KERPLE, Chi et al. 2022, arXiv 2205.09921).

    This is the paper's logarithmic variant. Each head learns its r1 and r2, which all layers share, as in the paper's code.
    Both have to be positive: that code raises them to at least 0.01 before each pass, and here their logarithms are learned.
    """

    is_shared = True

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        self.log_r1 = nn.Parameter(torch.zeros(config.num_attention_heads))
        self.log_r2 = nn.Parameter(torch.zeros(config.num_attention_heads))

    def init_weights(self) -> None:
        # As in the paper's code: r1 is uniform in 0 ... 2, r2 in 0 ... 1.
        for parameter, largest in ((self.log_r1, 2), (self.log_r2, 1)):
            initialization.copy_(parameter, (largest * torch.rand_like(parameter)).clamp(min=0.01).log())

    def prepare(self, hidden_states: Tensor, place: Place) -> Tensor:
        return place.distances()[:, None].abs().float()

    def relate(self, query: Tensor, key: Tensor, memo: Tensor | None, place: Place) -> tuple[Tensor, Tensor, Tensor]:
        r1, r2 = (each.to(query.device).float().exp()[:, None, None] for each in (self.log_r1, self.log_r2))
        return query, key, -r1 * torch.log1p(r2 * place.shared)
