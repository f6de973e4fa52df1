"""A learned number for each bucket of distances, added to the attention scores."""

import math

import torch
from torch import Tensor, nn

from .position_encoding import Place, PositionEncoding, Setting, register


@register("t5")
class PosGPTT5Bias(PositionEncoding):
    """A learned number for each bucket of distances i - j and head, added to the score of query i and key j.

    (Raffel et al. 2020, arXiv 1910.10683, sec. 2.1; the buckets are those of transformers' T5 decoder.) The first half of the
    buckets holds one distance each. The others grow logarithmically up to `t5_max_distance`, and longer distances share the
    last. All layers share the numbers, as in T5. Parameters: buckets x heads. Keys after the query share bucket 0.
    """

    settings = {
        "t5_num_buckets": Setting(32, "For t5 positions: the number of buckets of distances."),
        "t5_max_distance": Setting(128, "For t5 positions: longer distances share the last bucket."),
    }

    is_shared = True

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        self.num_buckets, self.max_distance = config.t5_num_buckets, config.t5_max_distance
        self.table = nn.Embedding(self.num_buckets, config.num_attention_heads)

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when there are too few buckets, or too short distances for them."""
        if config.t5_num_buckets < 2 or config.t5_max_distance <= config.t5_num_buckets // 2:
            raise ValueError(
                f"t5_num_buckets is {config.t5_num_buckets} and t5_max_distance {config.t5_max_distance}; choose at least 2"
                " buckets, and a distance above half of them."
            )

    def prepare(self, hidden_states: Tensor, place: Place) -> Tensor:
        distances, exact = place.distances().clamp(min=0), self.num_buckets // 2
        # In the order of T5's code, which decides how the ends of buckets are rounded.
        share = torch.log(distances.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        far = exact + (share * (self.num_buckets - exact)).long()
        return torch.where(distances < exact, distances, far.clamp(max=self.num_buckets - 1))

    def relate(self, query: Tensor, key: Tensor, memo: Tensor | None, place: Place) -> tuple[Tensor, Tensor, Tensor]:
        table = self.table.weight.to(query.device)
        return query, key, nn.functional.embedding(place.shared, table).permute(0, 3, 1, 2)
