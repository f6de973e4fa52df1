"""Rotation of queries and keys (RoPE), with the frequencies that transformers has."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from .position_encoding import Place, PositionEncoding, register

_SCALED_BY_FACTOR = ("linear", "dynamic", "yarn", "llama3")
# Two settings of which the first has to be smaller: what a type takes unless it is given, None for what it needs.
_BOUNDS: dict[str, dict[str, float | None]] = {
    "llama3": {"low_freq_factor": None, "high_freq_factor": None},
    "yarn": {"beta_slow": 1, "beta_fast": 32},
}


def check_head_size(config) -> None:
    """Raise ValueError when a head has an odd number of dimensions."""
    if config.head_dim % 2:
        raise ValueError(
            f"positions that rotate pairs need an even head size, but hidden_size {config.hidden_size} /"
            f" num_attention_heads {config.num_attention_heads} is {config.head_dim}."
        )


@register("rotary")
class PosGPTRotaryEmbedding(PositionEncoding):
    """Rotation of queries and keys by an angle that grows with the position (RoFormer, Su et al. 2021, eq. 14-16, 34).

    Of the pairs (x1, x2), (x3, x4), ... the i-th rotates by `position * rope_theta ** (-2 (i - 1) / head_dim)` radians.
    Other frequencies (linear, dynamic, yarn, longrope, llama3, proportional) come from transformers through
    `config.rope_parameters`. With a `partial_rotary_factor` there, that share of a head turns: its first dimensions, as in
    GPT-NeoX (Black et al. 2022, arXiv 2204.06745, sec. 2.1.1). Of the type `proportional`, all of a head's frequencies are
    kept, and those after that share are 0 (p-RoPE: Barbero et al. 2024, arXiv 2410.06205, sec. 6).
    """

    settings = ("rope_parameters",)
    is_shared = True
    is_narrow = True

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        self.config = config
        self.rope_type = config.rope_parameters["rope_type"]
        inv_freq, self.attention_scaling = self.compute_frequencies()
        self.inv_freq = nn.Buffer(inv_freq, persistent=False)

    def compute_frequencies(self, device=None, length: int | Tensor | None = None) -> tuple[Tensor, float]:
        """Return the frequencies (pairs that rotate,) in radians per position for a length, and the factor on cos and sin."""
        if self.rope_type == "default":
            size = int(self.config.head_dim * self.config.rope_parameters.get("partial_rotary_factor", 1))
            exponents = torch.arange(0, size, 2, dtype=torch.float, device=device) / size
            return 1.0 / (self.config.rope_parameters["rope_theta"] ** exponents), 1.0
        return ROPE_INIT_FUNCTIONS[self.rope_type](self.config, device, seq_len=length)

    def init_weights(self) -> None:
        initialization.copy_(self.inv_freq, self.compute_frequencies()[0])

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when a head has an odd number of dimensions or `rope_parameters` make no sense."""
        check_head_size(config)
        parameters = config.rope_parameters or {}
        rope_type, factor = parameters.get("rope_type", "default"), parameters.get("factor")
        theta, types = parameters.get("rope_theta", 1), ["default", *ROPE_INIT_FUNCTIONS]
        if rope_type not in types:
            raise ValueError(f"rope_type is {rope_type!r}; choose one of {', '.join(types)}.")
        if rope_type == "default" and factor is not None:
            raise ValueError('a factor in rope_parameters needs a rope_type: {"rope_type": "linear", "factor": 4.0}.')
        if not (isinstance(theta, int | float) and theta > 0):
            raise ValueError(f"rope_parameters have rope_theta {theta!r}; choose a number above 0.")
        share, fewest = parameters.get("partial_rotary_factor", 1), 4 if rope_type == "dynamic" else 2
        size = int(config.head_dim * share) if isinstance(share, int | float) and 0 < share <= 1 else 0
        if size < fewest or size % 2:
            raise ValueError(
                f"rope_parameters have partial_rotary_factor {share!r}; choose a share of the {config.head_dim} dimensions"
                f" of a head that is an even number of them, at least {fewest}."
            )
        # At what follows, transformers would only warn, or fail without saying what to choose.
        is_scaled = rope_type in _SCALED_BY_FACTOR or factor is not None
        if is_scaled and not (isinstance(factor, int | float) and factor >= 1):
            raise ValueError(f"rope_parameters of type {rope_type!r} have factor {factor!r}; choose at least 1.")
        for name in ("short_factor", "long_factor") if rope_type == "longrope" else ():
            if not (isinstance(parameters.get(name), list) and len(parameters[name]) == size // 2):
                raise ValueError(
                    f"rope_parameters have {name} {parameters.get(name)!r}; give a list of {size // 2} numbers."
                )
            if not all(isinstance(each, int | float) and each > 0 for each in parameters[name]):
                raise ValueError(f"rope_parameters have {name} {parameters[name]!r}; choose numbers above 0.")
        bounds = _BOUNDS.get(rope_type, {})
        names = (*bounds, "attention_factor", "original_max_position_embeddings")
        given = {name: parameters[name] for name in names if parameters.get(name) is not None}
        numbers: dict[str, Any] = {**bounds, **given}
        for name, number in numbers.items():
            if not (isinstance(number, int | float) and 0 < number < math.inf):
                raise ValueError(
                    f"rope_parameters of type {rope_type!r} have {name} {number!r}; choose a number above 0."
                )
        if bounds:
            low, high = bounds
            if numbers[low] >= numbers[high]:
                raise ValueError(
                    f"rope_parameters have {low} {numbers[low]} and {high} {numbers[high]}; choose {low} < {high}."
                )

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin, each (batch or 1, length, dimensions that rotate), in the dtype of `x`."""
        inv_freq = self.inv_freq.to(x.device)
        # Not transformers' `dynamic_rope_update`, which takes the frequencies of the longest text, of the batch or before.
        if self.rope_type == "dynamic":
            inv_freq, _ = self.compute_frequencies(x.device, position_ids.amax(-1, keepdim=True) + 1)
        elif self.rope_type == "longrope":
            longest = self.config.rope_parameters["original_max_position_embeddings"]
            is_long = position_ids.amax(-1, keepdim=True) >= longest
            inv_freq = torch.where(is_long, self.compute_frequencies(x.device, longest + 1)[0], inv_freq)
        angles = position_ids[..., None].float() * inv_freq.unsqueeze(-2)
        angles = angles.repeat_interleave(2, dim=-1)
        cos, sin = angles.cos() * self.attention_scaling, angles.sin() * self.attention_scaling
        return cos.to(x.dtype), sin.to(x.dtype)

    def prepare(self, hidden_states: Tensor, place: Place) -> tuple[Tensor, ...]:
        return self(hidden_states, place.queries)

    def encode(self, query: Tensor, key: Tensor, hidden_states: Tensor, place: Place) -> tuple[Tensor, Tensor, None]:
        # One product for both costs less than two.
        query, key = rotate(torch.stack((query, key)), *place.shared).unbind(0)
        return query, key, None


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate queries or keys (batch, heads, length, head_dim), or both stacked, by `cos` and `sin` (batch or 1, length,
    head_dim), or (batch or 1, heads, length, head_dim) with angles of each head's own.

    Where these have fewer dimensions, the others of `x` are left alone. Everything is computed in the dtype of `x`, as in
    transformers' models.
    """
    if (size := cos.shape[-1]) < x.shape[-1]:
        return torch.cat([rotate(x[..., :size], cos, sin), x[..., size:]], dim=-1)
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
    cos, sin = ((each if each.dim() == 4 else each.unsqueeze(1)).to(x.dtype) for each in (cos, sin))
    return torch.addcmul(x * cos, turned, sin)
