"""A learned number for each distance, added to the attention scores."""

from torch import Tensor, nn

from .position_encoding import Place, PositionEncoding, register


@register("relative_bias")
class PosGPTRelativeBias(PositionEncoding):
    """A learned number for each distance i - j, head and layer, added to the attention score of query i and key j.

    (Shaw et al. 2018, arXiv 1803.02155, sec. 3.2, for the clipping; Raffel et al. 2020, arXiv 1910.10683, sec. 2.1, for
    the number in place of a vector.) Distances are clipped to k = `config.relative_attention_max_distance`, by default
    the largest in `max_position_embeddings` tokens. The table has (2k + 1) * heads numbers per layer: for both signs, as
    in the paper, although a causal model only uses those with i >= j.
    """

    settings = ("relative_attention_max_distance",)
    is_shared = True

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        self.num_heads = config.num_attention_heads
        longest = config.relative_attention_max_distance
        self.max_distance = config.max_position_embeddings - 1 if longest is None else longest
        self.table = nn.Embedding(2 * self.max_distance + 1, config.num_hidden_layers * self.num_heads)

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when all distances would be clipped to 0."""
        longest = config.relative_attention_max_distance
        if longest is not None and longest < 1:
            raise ValueError(f"relative_attention_max_distance is {longest}; choose at least 1, or leave it out.")

    def prepare(self, hidden_states: Tensor, place: Place) -> Tensor:
        return place.distances().clamp(-self.max_distance, self.max_distance) + self.max_distance

    def relate(self, query: Tensor, key: Tensor, memo: Tensor | None, place: Place) -> tuple[Tensor, Tensor, Tensor]:
        layer = slice(place.layer_idx * self.num_heads, (place.layer_idx + 1) * self.num_heads)
        table = self.table.weight[:, layer].to(query.device)
        return query, key, nn.functional.embedding(place.shared, table).permute(0, 3, 1, 2)
