"""Random positions while training, for another encoding: `randomized+rotary`."""

import torch
from torch import Tensor

from .position_encoding import PositionEncoding, Setting, register


@register("randomized")
class PosGPTRandomizedPositions(PositionEncoding):
    """Training draws positions from 0 to L - 1 without replacement and sorts them (Ruoss et al. 2023, arXiv 2305.16843).

    Each row of a batch has its own, unless the batch has neither a mask nor positions: all rows are then numbered as one.
    So positions beyond a trained text's length are trained, too. Other encodings read these positions: `randomized+rotary`;
    alone, nothing does. Documents packed into a row begin with the same ones. The authors draw when testing, too; here, token t
    is then at t * (L // max_position_embeddings), so that cached tokens keep their positions.
    """

    settings = {"randomized_num_positions": Setting(2048, "For randomized positions: how many training draws from.")}
    is_shared = True

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        self.num_positions = config.randomized_num_positions
        self.step = self.num_positions // config.max_position_embeddings

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when there are too few positions, or more than an encoding has."""
        number, length = config.randomized_num_positions, config.max_position_embeddings
        if number < length or number > length and any(each.is_bounded for each in config.position_encodings):
            wanted = "choose at least that many" if number < length else "positions end there, so choose as many"
            raise ValueError(f"randomized_num_positions is {number} and max_position_embeddings {length}; {wanted}.")

    def number(self, positions: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        if not self.training:
            return positions * self.step, keys * self.step
        if positions.shape[-1] > self.num_positions:
            raise ValueError(
                f"{positions.shape[-1]} tokens, but randomized_num_positions is {self.num_positions}: shorten the input or draw from more."
            )
        drawn = torch.rand(len(positions), self.num_positions, device=positions.device).argsort(-1).argsort(-1)
        # As many as the row's longest text has tokens, in order; after them the others, which are not used.
        is_drawn = drawn <= positions.amax(-1, keepdim=True)
        ordered = (~is_drawn).to(torch.uint8).argsort(dim=-1, stable=True)
        # A mask may number the keys of each row, though positions are the same for all.
        of_keys = ordered.expand(len(keys), -1).gather(1, keys.clamp(0, self.num_positions - 1))
        return ordered.gather(1, positions), of_keys
