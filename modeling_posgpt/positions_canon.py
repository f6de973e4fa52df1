"""A short causal convolution over hidden states, with no positions besides."""

import torch
from torch import Tensor, nn
from transformers import initialization

from .position_encoding import Place, PositionEncoding, convolve, register


@register("canon")
class PosGPTCanon(PositionEncoding):
    """h_t + w_0 h_t + w_1 h_(t-1) + w_2 h_(t-2) + w_3 h_(t-3) before attention (Canon-A, Allen-Zhu 2025, arXiv 2512.17351).

    The weights w are learned for each dimension; nothing else tells the order but the causal mask. A token that does not exist
    or is not seen counts as zero. Parameters: 4 x hidden_size in each layer. Earlier states are cached beside the key.
    """

    history = 3

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        size = config.hidden_size
        self.conv = nn.Conv1d(size, size, self.history + 1, groups=size, bias=False)

    def init_weights(self) -> None:
        # As the authors' convolution begins, which is torch's.
        initialization.uniform_(self.conv.weight, -0.5, 0.5)

    def mix(self, hidden_states: Tensor, previous: Tensor, place: Place) -> Tensor:
        return hidden_states + convolve(torch.cat([hidden_states[:, None], previous], dim=1), self.conv)
