"""No positions."""

from .position_encoding import PositionEncoding, register


@register("none")
class PosGPTNoEmbedding(PositionEncoding):
    """No positions: only the causal mask tells the order of tokens (Haviv et al. 2022, arXiv 2203.16634).

    With `is_causal=False` in the configuration nothing does: the model is then permutation equivariant.
    """

    is_shared = True
