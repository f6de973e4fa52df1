"""Forget gates, whose logarithms are summed up between key and query."""

from torch import Tensor, nn

from .position_encoding import Place, PositionEncoding, register


@register("fox")
class PosGPTForgettingAttention(PositionEncoding):
    """The score of query i and key j loses what the tokens after j up to i forget (FoX, Lin et al. 2025, arXiv 2503.02130).

    f_t = sigmoid(w . x_t + b) for each head, and the sum of log f_l over l = j + 1, ..., i is added (eq. 7 and 8). Of the
    tokens between, those that the query does not see forget nothing. It is the paper's FoX (LLaMA): Pro's
    normalized queries and keys, output gates and shifted tokens are left out. Parameters: heads x (hidden_size + 1) in each layer.
    """

    has_memo = True
    needs_visibility = True

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        self.gate = nn.Linear(config.hidden_size, config.num_attention_heads)

    def encode(self, query: Tensor, key: Tensor, hidden_states: Tensor, place: Place) -> tuple[Tensor, Tensor, Tensor]:
        return query, key, nn.functional.logsigmoid(self.gate(hidden_states).float()).mT[..., None]

    def relate(self, query: Tensor, key: Tensor, memo: Tensor | None, place: Place) -> tuple[Tensor, Tensor, Tensor]:
        assert memo is not None and place.visible is not None
        forgotten = memo.float().mT * place.visible
        # From key j on, less that of j itself.
        return query, key, forgotten.flip(-1).cumsum(-1).flip(-1) - forgotten
