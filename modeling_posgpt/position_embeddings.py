"""Position embeddings, one class each, and the table that `position_embedding_type` looks them up in.

To add one, write a class that derives from `PositionEmbedding` and add it to `POSITION_EMBEDDINGS`. Settings of its own
are fields of the configuration, named in the class's `settings`.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn
from transformers import initialization
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, dynamic_rope_update


class PositionEmbedding(nn.Module):
    """Where positions can enter a Transformer; a subclass overrides the methods of the places where its positions do.

    Attributes:
        settings: Names of the configuration's fields that not all position embeddings read, but this one does. A subclass
            names its own; those of the classes that it derives from are added.
        is_bounded: Whether positions end at `max_position_embeddings`: longer inputs are then refused.
        has_bias: Whether the class has a `bias` of its own. Attention implementations that ignore biases are then refused.
    """

    settings: tuple[str, ...] = ()
    is_bounded = False
    has_bias = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.has_bias = cls.bias is not PositionEmbedding.bias
        # Its name until 0.6.
        cls.is_bounded = vars(cls).get("ends_at_block", cls.is_bounded)
        cls.settings = tuple(dict.fromkeys(name for base in cls.__mro__ for name in vars(base).get("settings", ())))

    def __init__(self, config):
        super().__init__()

    def fill_buffers(self) -> None:
        """Compute the buffers with `persistent=False`, with `initialization.copy_`; they are not in a saved model."""

    def _apply(self, fn, recurse=True):
        # Torch has no public way to move constants and not convert them, and angles of positions need float32's digits.
        constants = {name: buffer for name, buffer in self.named_buffers(recurse=False) if buffer.is_floating_point()}
        super()._apply(fn, recurse)
        for name, constant in constants.items():
            self._buffers[name] = constant.to(cast(Tensor, self._buffers[name]).device)
        return self

    def check_positions(self, position_ids: Tensor, maximum: int) -> None:
        """Raise ValueError when one of the positions (batch or 1, length) is not below `maximum`, if they end there."""
        if not self.is_bounded or torch.compiler.is_compiling():
            return
        # Reading a value makes the CPU wait for the GPU: there, only rows that are too long and single new tokens, which
        # may have reached the end, are checked.
        length = position_ids.shape[-1]
        is_checked = length > maximum or length == 1 or position_ids.device.type == "cpu"
        if is_checked and (last := int(position_ids.max())) >= maximum:
            raise ValueError(
                f"{last + 1} tokens, but positions end at max_position_embeddings = {maximum}: shorten the input or train a"
                " model with a larger max_position_embeddings."
            )

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when these positions do not work with the configuration."""

    @staticmethod
    def width(config) -> int:
        """Return how many of the `hidden_size` dimensions `embed` adds; the token's vector has the others."""
        return 0

    def embed(self, inputs_embeds: Tensor, position_ids: Tensor) -> Tensor:
        """Return the first layer's input, (batch, length, hidden_size).

        `inputs_embeds` are the tokens' vectors, (batch, length, hidden_size - width), at `position_ids` (batch or 1,
        length).
        """
        return inputs_embeds

    def rotation(self, hidden_states: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return cos and sin of the angles by which every layer rotates queries and keys; None: it does not.

        Both are (batch or 1, length, head_dim) in the dtype of `hidden_states`, at `position_ids` (batch or 1, length).
        """
        return None

    def bias(self, layer_idx: int, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """Return what layer `layer_idx` adds to its attention scores; None: nothing.

        The result is (batch or 1, heads, length, kv_length); `query_positions` are (batch or 1, length), `key_positions`
        (batch or 1, kv_length).
        """
        return None


class PosGPTPositionTable(nn.Embedding):
    """A vector per position; `initializer_range` is the standard deviation that it begins with, None the model's."""

    def __init__(self, num_positions: int, width: int, initializer_range: float | None):
        super().__init__(num_positions, width)
        self.initializer_range = initializer_range


class PosGPTLearnedEmbedding(PositionEmbedding):
    """A learned vector for each position below `max_position_embeddings`, added to the token's.

    (Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", sec. 3.1.) The vectors begin as
    small as any other weights, or with the standard deviation `config.position_initializer_range`: at zero with 0.0.
    """

    settings = ("position_initializer_range",)
    is_bounded = True

    def __init__(self, config):
        super().__init__(config)
        width = self.width(config) or config.hidden_size
        self.table = PosGPTPositionTable(config.max_position_embeddings, width, config.position_initializer_range)

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when `position_initializer_range` is negative."""
        deviation = config.position_initializer_range
        if deviation is not None and deviation < 0:
            raise ValueError(f"position_initializer_range, a standard deviation, is {deviation}; choose at least 0.")

    def embed(self, inputs_embeds: Tensor, position_ids: Tensor) -> Tensor:
        return inputs_embeds + self.table(position_ids)


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


class PosGPTSinusoidalEmbedding(PositionEmbedding):
    """A fixed vector for any position, added to the token's (Vaswani et al. 2017, arXiv 1706.03762, sec. 3.5).

    Dimensions 2i and 2i + 1 are sin and cos of `position / 10000 ** (2i / hidden_size)`. The norm of such a vector is
    `sqrt(hidden_size / 2)`, 35 times that of an untrained token's vector, which would be lost in the sum: so with
    `config.scale_embedding` tokens are multiplied by `sqrt(hidden_size)` first, as in the paper (sec. 3.4).
    """

    settings = ("scale_embedding",)

    def __init__(self, config):
        super().__init__(config)
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


_SCALED_BY_FACTOR = ("linear", "dynamic", "yarn", "llama3")


class PosGPTRotaryEmbedding(PositionEmbedding):
    """Rotation of queries and keys by an angle that grows with the position (RoFormer, Su et al. 2021, eq. 14-16, 34).

    Of the pairs (x1, x2), (x3, x4), ... the i-th rotates by `position * rope_theta ** (-2 (i - 1) / head_dim)` radians.
    Other frequencies (linear, dynamic, yarn, llama3, ...) come from transformers through `config.rope_parameters`.
    """

    settings = ("rope_parameters",)

    def __init__(self, config):
        super().__init__(config)
        self.config = config
        self.rope_type = config.rope_parameters["rope_type"]
        self.max_seq_len_cached = config.max_position_embeddings
        self.original_max_seq_len = config.max_position_embeddings
        # `dynamic_rope_update` expects the names `inv_freq`, `original_inv_freq` and `attention_scaling`.
        inv_freq, self.attention_scaling = self.compute_frequencies()
        self.inv_freq = nn.Buffer(inv_freq, persistent=False)
        self.original_inv_freq = nn.Buffer(inv_freq.clone(), persistent=False)

    def compute_frequencies(self) -> tuple[Tensor, float]:
        """Return the frequencies (head_dim / 2,) in radians per position, and the factor on cos and sin."""
        if self.rope_type == "default":
            return self.compute_default_rope_parameters(self.config)
        return ROPE_INIT_FUNCTIONS[self.rope_type](self.config)

    def fill_buffers(self) -> None:
        frequencies, _ = self.compute_frequencies()
        for buffer in (self.inv_freq, self.original_inv_freq):
            initialization.copy_(buffer, frequencies)

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when a head has an odd number of dimensions or `rope_parameters` make no sense."""
        if config.head_dim % 2:
            raise ValueError(
                f"rotary positions need an even head size, but hidden_size {config.hidden_size} / num_attention_heads"
                f" {config.num_attention_heads} is {config.head_dim}."
            )
        parameters = config.rope_parameters or {}
        rope_type, factor = parameters.get("rope_type", "default"), parameters.get("factor")
        theta, types = parameters.get("rope_theta", 1), ["default", *ROPE_INIT_FUNCTIONS]
        if rope_type not in types:
            raise ValueError(f"rope_type is {rope_type!r}; choose one of {', '.join(types)}.")
        if rope_type == "default" and factor is not None:
            raise ValueError('a factor in rope_parameters needs a rope_type: {"rope_type": "linear", "factor": 4.0}.')
        if not (isinstance(theta, int | float) and theta > 0):
            raise ValueError(f"rope_parameters have rope_theta {theta!r}; choose a number above 0.")
        if parameters.get("partial_rotary_factor", 1) != 1:
            raise ValueError("rope_parameters have a partial_rotary_factor; PosGPT rotates whole heads: leave it out.")
        # transformers would only warn.
        if rope_type in _SCALED_BY_FACTOR and not (isinstance(factor, int | float) and factor >= 1):
            raise ValueError(f"rope_parameters of type {rope_type!r} have factor {factor!r}; choose at least 1.")

    @staticmethod
    def compute_default_rope_parameters(config, device=None, **kwargs) -> tuple[Tensor, float]:
        """Return the frequencies (head_dim / 2,) in radians per position, and the factor on cos and sin, which is 1."""
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float, device=device) / config.head_dim
        return 1.0 / (config.rope_parameters["rope_theta"] ** exponents), 1.0

    @torch.no_grad()
    @dynamic_rope_update
    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin, each (batch or 1, length, head_dim), in the dtype of `x`."""
        angles = position_ids[..., None].float() * self.inv_freq.to(x.device)
        angles = angles.repeat_interleave(2, dim=-1)
        cos, sin = angles.cos() * self.attention_scaling, angles.sin() * self.attention_scaling
        return cos.to(x.dtype), sin.to(x.dtype)

    def rotation(self, hidden_states: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        return self(hidden_states, position_ids)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate queries or keys (batch, heads, length, head_dim), or both stacked, by `cos` and `sin` (batch or 1, length,
    head_dim).

    Everything is computed in the dtype of `x`, as in transformers' models.
    """
    # (x1, x2) -> (-x2, x1).
    if x.device.type == "cpu":
        # A matrix product is exact as well, and a fifth faster there; of one matrix of rows, because torch would multiply
        # each head of each example by a copy of the other factor.
        identity = torch.eye(x.shape[-1], dtype=x.dtype)
        quarter_turn = torch.stack((identity[1::2], -identity[::2]), dim=1).flatten(0, 1)
        turned = (x.reshape(-1, x.shape[-1]) @ quarter_turn).view(x.shape)
    else:
        # A GPU that multiplies in TF32 would round x.
        first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack((-second, first), dim=-1).flatten(-2)
    cos, sin = (factor.unsqueeze(1).to(x.dtype) for factor in (cos, sin))
    return torch.addcmul(x * cos, turned, sin)


class PosGPTRelativeBias(PositionEmbedding):
    """A learned number for each distance i - j, head and layer, added to the attention score of query i and key j.

    (Shaw et al. 2018, arXiv 1803.02155, sec. 3.2, for the clipping; Raffel et al. 2020, arXiv 1910.10683, sec. 2.1, for
    the number in place of a vector.) Distances are clipped to k = `config.relative_attention_max_distance`, by default
    the largest in `max_position_embeddings` tokens. The table has (2k + 1) * heads numbers per layer: for both signs, as
    in the paper, although a causal model only uses those with i >= j.
    """

    settings = ("relative_attention_max_distance",)

    def __init__(self, config):
        super().__init__(config)
        self.num_heads = config.num_attention_heads
        self.max_distance = config.relative_attention_max_distance
        if self.max_distance is None:
            self.max_distance = config.max_position_embeddings - 1
        self.table = nn.Embedding(2 * self.max_distance + 1, config.num_hidden_layers * self.num_heads)

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when all distances would be clipped to 0."""
        longest = config.relative_attention_max_distance
        if longest is not None and longest < 1:
            raise ValueError(f"relative_attention_max_distance is {longest}; choose at least 1, or leave it out.")

    def bias(self, layer_idx: int, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        distances = query_positions[:, :, None] - key_positions[:, None, :]
        rows = distances.clamp(-self.max_distance, self.max_distance) + self.max_distance
        layer_table = self.table.weight[:, layer_idx * self.num_heads : (layer_idx + 1) * self.num_heads]
        return nn.functional.embedding(rows, layer_table).permute(0, 3, 1, 2)


class PosGPTAlibi(PositionEmbedding):
    """Scores decrease with the distance, at a fixed slope for each head (ALiBi, Press et al. 2021, arXiv 2108.12409).

    `-slope * |i - j|` is added to the score of query i and key j, in every layer.
    """

    def __init__(self, config):
        super().__init__(config)
        # A buffer, because copying numbers to a GPU in each layer would make the CPU wait for it.
        slopes = self.compute_slopes(config.num_attention_heads)
        self.slopes = nn.Buffer(torch.tensor(slopes, dtype=torch.float), persistent=False)

    def fill_buffers(self) -> None:
        initialization.copy_(self.slopes, torch.tensor(self.compute_slopes(len(self.slopes)), dtype=torch.float))

    @staticmethod
    def compute_slopes(num_heads: int) -> list[float]:
        """Return 2 ** (-8 / n), 2 ** (-16 / n), ... for n heads, if n is a power of two (sec. 3).

        For other n, as in the authors' code: the slopes of the next smaller power of two, then every other slope of the
        next larger.
        """
        power = 2 ** math.floor(math.log2(num_heads))
        slopes = [2.0 ** (-8 * head / power) for head in range(1, power + 1)]
        return slopes + [2.0 ** (-4 * head / power) for head in range(1, 2 * (num_heads - power), 2)]

    def bias(self, layer_idx: int, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        distances = (query_positions[:, None, :, None] - key_positions[:, None, None, :]).abs()
        return -self.slopes[:, None, None] * distances


class PosGPTNoEmbedding(PositionEmbedding):
    """No positions: only the causal mask tells the order of tokens (Haviv et al. 2022, arXiv 2203.16634).

    With `is_causal=False` in the configuration nothing does: the model is then permutation equivariant.
    """


POSITION_EMBEDDINGS: dict[str, type[PositionEmbedding]] = {
    "learned": PosGPTLearnedEmbedding,
    "rotary": PosGPTRotaryEmbedding,
    "sinusoidal": PosGPTSinusoidalEmbedding,
    "concatenated": PosGPTConcatenatedEmbedding,
    "relative_bias": PosGPTRelativeBias,
    "alibi": PosGPTAlibi,
    "none": PosGPTNoEmbedding,
}
