"""Fixed vectors of sines and cosines, added to the tokens'."""

import math

import torch
from torch import Tensor

from .position_encoding import PositionEncoding, register


@register("sinusoidal")
class PosGPTSinusoidalEmbedding(PositionEncoding):
    """A fixed vector for any position, added to the token's (Vaswani et al. 2017, arXiv 1706.03762, sec. 3.5).

    Dimensions 2i and 2i + 1 are sin and cos of `position / 10000 ** (2i / hidden_size)`. The norm of such a vector is
    `sqrt(hidden_size / 2)`, 35 times that of an untrained token's vector, which would be lost in the sum: so with
    `config.scale_embedding` tokens are multiplied by `sqrt(hidden_size)` first, as in the paper (sec. 3.4).
    """

    settings = ("scale_embedding",)

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        self.hidden_size = config.hidden_size
        self.embed_scale = math.sqrt(config.hidden_size) if config.scale_embedding else 1.0

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when `hidden_size` is odd: dimensions come in pairs."""
        if config.hidden_size % 2:
            raise ValueError(f"sinusoidal positions use pairs: hidden_size {config.hidden_size} has to be even.")

    def embed(self, inputs_embeds: Tensor, position_ids: Tensor) -> Tensor:
        exponents = torch.arange(0, self.hidden_size, 2, dtype=torch.float, device=position_ids.device)
        angles = position_ids[..., None].float() / 10000.0 ** (exponents / self.hidden_size)
        vectors = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
        return inputs_embeds * self.embed_scale + vectors.to(inputs_embeds.dtype)
