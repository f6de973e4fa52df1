"""A learned vector for each position, added to the token's or concatenated with it."""

import math

import torch
from torch import Tensor, nn

from .position_encoding import PositionEncoding, register


@register("learned")
class PosGPTLearnedEmbedding(PositionEncoding):
    """A learned vector for each position below `max_position_embeddings`, added to the token's.

    (Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", sec. 3.1.) The vectors begin as
    small as any other weights, or with the standard deviation `config.position_initializer_range`: at zero with 0.0.
    """

    settings = ("position_initializer_range",)
    is_bounded = True

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        width = self.width(config) or config.hidden_size
        self.table = nn.Embedding(config.max_position_embeddings, width)
        # `_init_weights` draws with this standard deviation; None: with the model's.
        self.table.initializer_range = config.position_initializer_range

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when `position_initializer_range` is negative or no number."""
        deviation = config.position_initializer_range
        if deviation is not None and not 0 <= deviation < math.inf:
            raise ValueError(f"position_initializer_range, a standard deviation, is {deviation}; choose at least 0.")

    def embed(self, inputs_embeds: Tensor, position_ids: Tensor) -> Tensor:
        return inputs_embeds + self.table(position_ids)


@register("concatenated")
class PosGPTConcatenatedEmbedding(PosGPTLearnedEmbedding):
    """A learned vector for each position below `max_position_embeddings`, concatenated with the token's.

    The first layer's score of two tokens, (Wq [w; p]) . (Wk [w'; p']), is then a sum of word and position terms, each
    with weights of its own (compare the untied terms of Ke et al. 2021, arXiv 2006.15595, eq. 7). The share
    `config.position_share` of the `hidden_size` dimensions holds the position.
    """

    settings = ("position_share",)

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when `position_share` leaves no dimension to tokens or positions, or the tokens' weights are tied."""
        PosGPTLearnedEmbedding.check_config(config)
        if config.tie_word_embeddings:
            raise ValueError("concatenated positions leave too few dimensions: tie_word_embeddings has to be False.")
        if not 0 < PosGPTConcatenatedEmbedding.width(config) < config.hidden_size:
            raise ValueError(
                f"position_share is {config.position_share}; of hidden_size {config.hidden_size} that leaves"
                " no dimension to the positions or none to the tokens: choose a share between 0 and 1."
            )

    @staticmethod
    def width(config) -> int:
        return round(config.position_share * config.hidden_size)

    def embed(self, inputs_embeds: Tensor, position_ids: Tensor) -> Tensor:
        vectors = self.table(position_ids).to(inputs_embeds.dtype)
        return torch.cat([inputs_embeds, vectors.expand(inputs_embeds.shape[0], -1, -1)], dim=-1)
