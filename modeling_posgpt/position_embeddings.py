"""Position embeddings, one class each, and the table that `position_embedding_type` looks them up in.

To add a member to the family, write a class that derives from `PositionEmbedding` and give it a line in the table.
"""

import math

import torch
from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, dynamic_rope_update


class PositionEmbedding(nn.Module):
    """Where positions can enter a Transformer; a member overrides the places where its positions do."""

    uses_rope_parameters = False
    # Attention implementations that know no bias are refused.
    has_bias = False

    def __init__(self, config):
        super().__init__()

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when the configuration's sizes do not suit these positions."""

    @staticmethod
    def width(config) -> int:
        """How many of the `hidden_size` dimensions `embed` fills itself; the token's vector has the others."""
        return 0

    def embed(self, inputs_embeds: torch.Tensor, position_ids: torch.LongTensor) -> torch.Tensor:
        """Make layer 1's input (batch, length, hidden_size) of token vectors at `position_ids` (batch or 1, length)."""
        return inputs_embeds

    def rotation(
        self, hidden_states: torch.Tensor, position_ids: torch.LongTensor
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return cos and sin (batch or 1, length, head_dim) by which every layer turns queries and keys; None: not."""
        return None

    def bias(
        self, layer_idx: int, query_positions: torch.LongTensor, key_positions: torch.LongTensor
    ) -> torch.Tensor | None:
        """Return what layer `layer_idx` adds to its attention scores, (batch or 1, heads, length, kv_length); None: nothing.

        Positions are (batch or 1, length) and (batch or 1, kv_length).
        """
        return None


class PosGPTLearnedEmbedding(PositionEmbedding):
    """A trained vector for each of the block's positions, added to the token's (Radford et al. 2018, sec. 3.1)."""

    def __init__(self, config):
        super().__init__(config)
        self.table = nn.Embedding(config.max_position_embeddings, self.width(config) or config.hidden_size)

    def vectors(self, position_ids: torch.LongTensor) -> torch.Tensor:
        """Look each position's vector up.

        Raises:
            ValueError: a position past the table's end. There is no vector to look up past the block.
        """
        # Looking at positions waits for a GPU: there only where they can run out, in long rows and one-token steps.
        length, block = position_ids.shape[-1], self.table.num_embeddings
        can_run_out = length > block or length == 1 or position_ids.device.type == "cpu"
        if can_run_out and not torch.compiler.is_compiling() and (last := int(position_ids.max())) >= block:
            raise ValueError(
                f"{last + 1} tokens, but learned positions end at max_position_embeddings = {block}: shorten the input"
                " or train a model with a longer block."
            )
        return self.table(position_ids)

    def embed(self, inputs_embeds: torch.Tensor, position_ids: torch.LongTensor) -> torch.Tensor:
        """Add each position's vector; raises as `vectors` does."""
        return inputs_embeds + self.vectors(position_ids)


class PosGPTConcatenatedEmbedding(PosGPTLearnedEmbedding):
    """A trained vector for each of the block's positions beside the token's, not added to it.

    The first layer's score of two tokens, (Wq [w; p]) . (Wk [w'; p']), is then a sum of word and position terms, each
    with weights of its own (compare the untied terms of Ke et al. 2021, arXiv 2006.15595, eq. 7). Of the `hidden_size`
    dimensions the share `config.position_share` is the position's.
    """

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when token or position would be left without a dimension."""
        if not 0 < PosGPTConcatenatedEmbedding.width(config) < config.hidden_size:
            raise ValueError(
                f"position_share is {config.position_share}; of hidden_size {config.hidden_size} that leaves"
                " no dimension to the positions or none to the tokens; choose a share between 0 and 1."
            )

    @staticmethod
    def width(config) -> int:
        return round(config.position_share * config.hidden_size)

    def embed(self, inputs_embeds: torch.Tensor, position_ids: torch.LongTensor) -> torch.Tensor:
        """Put each position's vector behind the token's; raises as `vectors` does."""
        vectors = self.vectors(position_ids).to(inputs_embeds.dtype)
        return torch.cat([inputs_embeds, vectors.expand(len(inputs_embeds), -1, -1)], dim=-1)


class PosGPTSinusoidalEmbedding(PositionEmbedding):
    """A fixed vector for any position, added to the token's (Vaswani et al. 2017, arXiv 1706.03762, sec. 3.5).

    Dimensions 2i and 2i + 1 are sin and cos of `position / 10000 ** (2i / hidden_size)`. Such a vector has the length
    `sqrt(hidden_size / 2)`, 35 times that of an untrained token's, which it would drown: so tokens are multiplied by
    `sqrt(hidden_size)` first, as in the paper (sec. 3.4).
    """

    def __init__(self, config):
        super().__init__(config)
        self.hidden_size = config.hidden_size

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when the dimensions cannot be paired."""
        if config.hidden_size % 2:
            raise ValueError(f"sinusoidal positions pair dimensions; hidden_size {config.hidden_size} has to be even.")

    def embed(self, inputs_embeds: torch.Tensor, position_ids: torch.LongTensor) -> torch.Tensor:
        exponents = torch.arange(0, self.hidden_size, 2, dtype=torch.float, device=position_ids.device)
        angles = position_ids[..., None].float() / 10000.0 ** (exponents / self.hidden_size)
        vectors = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
        return inputs_embeds * math.sqrt(self.hidden_size) + vectors.to(inputs_embeds.dtype)


_SCALED_BY_FACTOR = ("linear", "dynamic", "yarn", "llama3")


class PosGPTRotaryEmbedding(PositionEmbedding):
    """Rotation of queries and keys by an angle that grows with the position (RoFormer, Su et al. 2021, eq. 14-16, 34).

    The pair (x1, x2), (x3, x4), ... number i turns by `position * rope_theta ** (-2 (i - 1) / head_dim)`. Other
    frequencies (linear, dynamic, yarn, llama3, ...) come from transformers through `config.rope_parameters`.
    """

    uses_rope_parameters = True

    def __init__(self, config):
        super().__init__(config)
        self.config = config
        self.rope_type = config.rope_parameters["rope_type"]
        self.max_seq_len_cached = config.max_position_embeddings
        self.original_max_seq_len = config.max_position_embeddings
        rope_init = (
            self.compute_default_rope_parameters
            if self.rope_type == "default"
            else ROPE_INIT_FUNCTIONS[self.rope_type]
        )
        # The names `inv_freq`, `original_inv_freq` and `attention_scaling` are those `dynamic_rope_update` and
        # `PreTrainedModel._init_weights` (which fills the buffers again after loading) work with.
        inv_freq, self.attention_scaling = rope_init(config)
        self.inv_freq = nn.Buffer(inv_freq, persistent=False)
        self.original_inv_freq = nn.Buffer(inv_freq.clone(), persistent=False)

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when a head cannot be split into pairs, or `rope_parameters` cannot be meant."""
        if config.head_dim % 2:
            raise ValueError(
                f"rotary positions turn pairs of dimensions, but a head has {config.head_dim} (hidden_size"
                f" {config.hidden_size} / num_attention_heads {config.num_attention_heads}); choose them so that the"
                " head size is even."
            )
        parameters = config.rope_parameters or {}
        rope_type, factor = parameters.get("rope_type", "default"), parameters.get("factor")
        if rope_type not in ("default", *ROPE_INIT_FUNCTIONS):
            raise ValueError(
                f"rope_type is {rope_type!r}; choose one of {', '.join(['default', *ROPE_INIT_FUNCTIONS])}."
            )
        if rope_type == "default" and factor is not None:
            raise ValueError(
                'rope_parameters have a factor, which needs a rope_type: {"rope_type": "linear", "factor": 4.0}.'
            )
        if rope_type in _SCALED_BY_FACTOR and not (isinstance(factor, int | float) and factor >= 1):
            raise ValueError(
                f"rope_parameters of type {rope_type!r} have factor {factor!r}; choose a number of at least 1."
            )

    @staticmethod
    def compute_default_rope_parameters(config, device=None, **kwargs) -> tuple[torch.Tensor, float]:
        """Inverse frequencies, shape (head_dim / 2,), in radians a position; and the factor on cos and sin, 1."""
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float, device=device) / config.head_dim
        return 1.0 / (config.rope_parameters["rope_theta"] ** exponents), 1.0

    @torch.no_grad()
    @dynamic_rope_update
    def forward(self, x: torch.Tensor, position_ids: torch.LongTensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cos and sin, each (batch or 1, length, head_dim), in the type of `x`."""
        angles = position_ids[..., None].float() * self.inv_freq.to(device=x.device, dtype=torch.float)
        angles = angles.repeat_interleave(2, dim=-1)
        cos, sin = angles.cos() * self.attention_scaling, angles.sin() * self.attention_scaling
        return cos.to(x.dtype), sin.to(x.dtype)

    def rotation(
        self, hidden_states: torch.Tensor, position_ids: torch.LongTensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self(hidden_states, position_ids)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn queries or keys (batch, heads, length, head_dim) by `cos` and `sin` (batch or 1, length, head_dim).

    They keep their type; the sum is in that of `cos` where it is finer.
    """
    # (x1, x2) to (-x2, x1). As a product it is exact, too, and on CPUs twice as fast as picking every second number.
    identity = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    quarter_turn = torch.stack((identity[1::2], -identity[::2]), dim=1).flatten(0, 1)
    return (x * cos.unsqueeze(1) + x @ quarter_turn * sin.unsqueeze(1)).to(x.dtype)


def apply_rotary_pos_emb(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn `query` and `key`, which are at the same positions; see `rotate`."""
    return rotate(query, cos, sin), rotate(key, cos, sin)


class PosGPTRelativeBias(PositionEmbedding):
    """A trained number for each distance i - j, head and layer, added to the attention score of query i and key j.

    (Shaw et al. 2018, arXiv 1803.02155, sec. 3.2, for the clipping; Raffel et al. 2020, arXiv 1910.10683, sec. 2.1, for
    the number in place of a vector.) Distances beyond `config.relative_attention_max_distance` k, or the block less 1,
    count as that. A table has (2k + 1) * heads numbers a layer: both signs, as the formula has it, though a causal model
    asks for the half with i >= j alone.
    """

    has_bias = True

    def __init__(self, config):
        super().__init__(config)
        self.num_heads = config.num_attention_heads
        self.max_distance = self.max_distance_of(config)
        self.table = nn.Embedding(2 * self.max_distance + 1, config.num_hidden_layers * self.num_heads)

    @staticmethod
    def max_distance_of(config) -> int:
        """The largest distance with a number of its own."""
        if config.relative_attention_max_distance is None:
            return config.max_position_embeddings - 1
        return config.relative_attention_max_distance

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when no distance could be told from another."""
        if config.relative_attention_max_distance is not None and config.relative_attention_max_distance < 1:
            raise ValueError(
                f"relative_attention_max_distance is {config.relative_attention_max_distance}; choose at least 1, or"
                " leave it out for one less than the block."
            )

    def bias(self, layer_idx: int, query_positions: torch.LongTensor, key_positions: torch.LongTensor) -> torch.Tensor:
        distances = query_positions[:, :, None] - key_positions[:, None, :]
        rows = distances.clamp(-self.max_distance, self.max_distance) + self.max_distance
        of_layer = self.table.weight[:, layer_idx * self.num_heads : (layer_idx + 1) * self.num_heads]
        return nn.functional.embedding(rows, of_layer).permute(0, 3, 1, 2)


class PosGPTAlibi(PositionEmbedding):
    """Scores fall off with the distance, at a fixed slope for each head (ALiBi, Press et al. 2021, arXiv 2108.12409).

    What is added to the score of query i and key j is `-slope * |i - j|`, the same in every layer.
    """

    has_bias = True

    def __init__(self, config):
        super().__init__(config)
        self.slopes = self.slopes_of(config.num_attention_heads)

    @staticmethod
    def slopes_of(num_heads: int) -> list[float]:
        """2 ** (-8 / n), 2 ** (-16 / n), ... for n heads, a power of two (sec. 3).

        For other n, as the authors' code has it: those of the next smaller power of two, then every other one of the next
        larger.
        """
        power = 2 ** math.floor(math.log2(num_heads))
        slopes = [2.0 ** (-8 * head / power) for head in range(1, power + 1)]
        return slopes + [2.0 ** (-4 * head / power) for head in range(1, 2 * (num_heads - power), 2)]

    def bias(self, layer_idx: int, query_positions: torch.LongTensor, key_positions: torch.LongTensor) -> torch.Tensor:
        distances = (query_positions[:, None, :, None] - key_positions[:, None, None, :]).abs()
        slopes = torch.tensor(self.slopes, device=distances.device)
        return -slopes[:, None, None] * distances


class PosGPTNoEmbedding(PositionEmbedding):
    """No positions at all: order shows only in what the causal mask hides (Haviv et al. 2022, arXiv 2203.16634).

    With `is_causal=False` in the configuration not even there: the model is then permutation equivariant.
    """


POSITION_EMBEDDINGS = {
    "learned": PosGPTLearnedEmbedding,
    "rotary": PosGPTRotaryEmbedding,
    "sinusoidal": PosGPTSinusoidalEmbedding,
    "concatenated": PosGPTConcatenatedEmbedding,
    "relative_bias": PosGPTRelativeBias,
    "alibi": PosGPTAlibi,
    "none": PosGPTNoEmbedding,
}
