"""The layers of a PosGPT: attention, the MLP and the pre-LayerNorm layer of both."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from transformers import Cache, PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .composition import split_name
from .dropout import PosGPTDropout, drop, round_rate
from .position_embeddings import POSITION_EMBEDDINGS
from .position_encoding import Place, gather_previous


def build_mask(implementation: str, is_visible: Tensor) -> Tensor | BlockMask:
    """Return `is_visible` (batch, 1, queries, keys), true where a query sees a key, as an attention implementation takes it.

    Raise ValueError when it takes no such mask.
    """
    # Also as `kernels-community/flash-attn2`.
    if "flash" in implementation:
        raise ValueError(f"{implementation} takes no mask for each query; choose sdpa, eager or flex_attention.")
    if implementation != "flex_attention":
        return is_visible
    # flex_attention would add a plain tensor to the scores, which hides nothing.
    batch_size, _, queries, keys = is_visible.shape
    return create_block_mask(
        lambda b, h, q, k: is_visible[b, 0, q, k], batch_size, None, queries, keys, is_visible.device
    )


def keep_states(states: Tensor, states_to_keep: Tensor | None) -> Tensor:
    """Return those of `states` (batch, length, hidden_size) that are kept, (number of true, hidden_size), or all of them."""
    return states if states_to_keep is None else states[states_to_keep]


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[Tensor, Tensor]:
    """softmax(q kᵀ · scaling + bias + mask) v (Vaswani et al. 2017, arXiv 1706.03762, eq. 1), written out.

    `query` is (batch, heads, length, head_dim), `key` and `value` (batch, heads, kv_length, head_dim); the
    `attention_mask` (batch or 1, 1, length, kv_length) is added to the scores or, if boolean, true where a key is seen; the
    `position_bias` is (batch or 1, heads, length, kv_length). Returns the output (batch, length, heads, head_dim) and the
    weights (batch, heads, length, kv_length).
    """
    scores = torch.matmul(query * scaling, key.transpose(-1, -2))
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        # Adding costs nothing in the backward pass. A mask of another dtype would first convert the scores, a large
        # tensor, to it.
        lowest = torch.finfo(scores.dtype).min
        if attention_mask.dtype == torch.bool:
            attention_mask = torch.zeros_like(attention_mask, dtype=scores.dtype).masked_fill(~attention_mask, lowest)
        scores = scores + attention_mask.clamp(min=lowest).to(scores.dtype)
    # Softmax accumulates in float32 whatever the dtype of the scores, so they need not be converted to it and back.
    weights = nn.functional.softmax(scores, dim=-1).to(query.dtype)
    weights = drop(weights, dropout, module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


class PosGPTAttention(nn.Module):
    """Multi-head attention to its own input, causal unless the configuration says otherwise, or to other vectors."""

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.scaling = self.head_dim**-0.5
        self.attention_dropout = config.attention_dropout
        self.is_causal = config.is_causal
        # One matrix product for queries, keys and values: as many parameters as three, a third of the calls.
        self.qkv_proj = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size)
        names = split_name(config.layer_position_embeddings[layer_idx])
        classes = {name: POSITION_EMBEDDINGS[name] for name in names if not POSITION_EMBEDDINGS[name].is_shared}
        own = {name: encoding(config, layer_idx) for name, encoding in classes.items()}
        self.position_encoding: Any = nn.ModuleDict(own) if names[1:] else own.get(names[0])

    def forward(
        self,
        hidden_states: Tensor,
        place: Place,
        position_encoding: Any,
        attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        key_value_states: Tensor | None = None,
        key_place: Place | None = None,
        states_to_keep: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[Tensor, Tensor | None]:
        """Attend with the implementation that the configuration names, and project the heads' outputs.

        (batch, length, hidden_size) -> the same shape, and the weights of `eager_attention_forward`, which only some
        implementations return. Keys and values are those of `hidden_states` and of the cache, or of `key_value_states`
        (batch, kv_length, hidden_size), at `key_place`. The `position_encoding` has the hooks of the layer's encodings. With
        `states_to_keep` (batch, length), the output is (number of true, hidden_size).
        """
        if key_value_states is None or key_place is None:
            remembered = []
            if position_encoding.history:
                # Another layer's encoding may read more of them.
                states, index = self.find_states(hidden_states, place, cache)
                previous = gather_previous(states, index[:, : position_encoding.history])
                # As many heads' parts as there are of the key, beside which they are cached.
                remembered.append(hidden_states.unflatten(-1, (-1, self.head_dim)).transpose(1, 2))
                hidden_states = position_encoding.mix(hidden_states, previous, place)
                place = place._replace(earlier=previous)
            # (batch, length, 3, heads, head_dim) -> (3, batch, heads, length, head_dim)
            qkv = self.qkv_proj(hidden_states).unflatten(-1, (3, -1, self.head_dim)).permute(2, 0, 3, 1, 4)
            query, key, value = qkv.unbind(0)
            query, key, memo = position_encoding.encode(query, key, hidden_states, place)
            if cache is not None:
                key, value, memo = self.update(cache, key, value, memo, remembered)
        else:
            # The layer is called rather than parts of its weights used: adapters and quantization put another in its place.
            qkv, size = self.qkv_proj(hidden_states), hidden_states.shape[-1]
            query = qkv[..., :size].unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            key_value = self.qkv_proj(key_value_states)[..., size:]
            key, value = key_value.unflatten(-1, (2, -1, self.head_dim)).permute(2, 0, 3, 1, 4).unbind(0)
            query, _, memo = position_encoding.encode(query, query, hidden_states, place)
            _, key, _ = position_encoding.encode(key, key, key_value_states, key_place)
        query, key, position_bias = position_encoding.relate(query, key, memo, place)

        dropout = self.attention_dropout if self.training else 0.0
        if query.device.type != "cpu":
            dropout = round_rate(dropout, query.dtype)
        biases = {}
        if position_bias is not None:
            # flex_attention indexes every row of the batch and every head; the other implementations would broadcast. `len`
            # would fix the batch size in an exported model.
            biases["position_bias"] = position_bias.to(query.dtype).expand(*query.shape[:2], -1, -1)
        implementation = self.config._attn_implementation
        attend: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        options = {"dropout": dropout, "scaling": self.scaling, **biases, **kwargs}
        attn_output, attn_weights = attend(self, query, key, value, attention_mask, **options)
        return self.o_proj(keep_states(attn_output.flatten(2), states_to_keep)), attn_weights

    def update(
        self, cache: Cache, key: Tensor, value: Tensor, memo: Any, remembered: list[Tensor]
    ) -> tuple[Tensor, Tensor, Any]:
        """Cache keys, with what else is remembered beside them, and values; return those of all tokens and the memo."""
        memos = memo if isinstance(memo, list) else [memo]
        parts = [key, *(each for each in memos if each is not None), *remembered]
        # Whatever moves, repeats or cuts a cache then does so with all of them.
        joined = torch.cat([part.to(key.dtype) for part in parts], dim=-1) if parts[1:] else key
        layer: Any = cache.layers[self.layer_idx] if len(cache.layers) > self.layer_idx else None
        # A quantized layer has its states elsewhere.
        is_made = layer is not None and layer.is_initialized and layer.keys.dim() == 4
        if is_made and layer.keys.shape[-1] != joined.shape[-1]:
            raise ValueError("these positions cache more than keys: let the first call make the cache's tensors.")
        joined, value = cache.update(joined, value, self.layer_idx)
        key, *others = joined.split([part.shape[-1] for part in parts], dim=-1) if parts[1:] else (joined,)
        memos = [None if each is None else others.pop(0) for each in memos]
        return key, value, memos if isinstance(memo, list) else memos[0]

    def find_states(self, hidden_states: Tensor, place: Place, cache: Cache | None) -> tuple[Tensor, Tensor]:
        """Return the hidden states of cached and new tokens, and where `place.previous` is among them."""
        index = place.previous
        assert index is not None
        layer: Any = cache.layers[self.layer_idx] if cache is not None and len(cache.layers) > self.layer_idx else None
        if layer is None or not layer.is_initialized:
            return hidden_states, index
        if layer.keys.dim() != 4:
            raise ValueError(
                "these positions read earlier states, which a quantized cache does not keep: take another."
            )
        cached = layer.keys[..., -self.head_dim :].transpose(1, 2).flatten(2)
        # A static cache has empty places before the new tokens.
        index = torch.where(index < place.first, index, index - place.first + cached.shape[1])
        return torch.cat([cached.to(hidden_states.dtype), hidden_states], dim=1), index


class PosGPTMLP(nn.Module):
    """Two linear layers with an activation function between them, applied to each position separately."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size)
        self.act_fn = ACT2FN[config.hidden_act]
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.up_proj(hidden_states)))


class PosGPTDecoderLayer(GradientCheckpointingLayer):
    """x + attention(norm(x)), then x + mlp(norm(x)) (pre-LayerNorm: Xiong et al. 2020, arXiv 2002.04745).

    Tensors that need a gradient are positional arguments: gradient checkpointing would lose the gradient of named ones.
    """

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.self_attn = PosGPTAttention(config, layer_idx)
        self.post_attention_layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp = PosGPTMLP(config)
        self.dropout = PosGPTDropout(config.resid_pdrop)

    def forward(
        self, hidden_states: Tensor, states_to_keep: Tensor | None = None, **kwargs: Unpack[TransformersKwargs]
    ) -> Tensor:
        """(batch, length, hidden_size) -> the same shape, or what is kept of it; `kwargs` are those of `PosGPTAttention`."""
        attn_output, _ = self.self_attn(self.input_layernorm(hidden_states), states_to_keep=states_to_keep, **kwargs)
        return self.add_residuals(keep_states(hidden_states, states_to_keep), attn_output)

    def add_residuals(self, hidden_states: Tensor, attn_output: Tensor) -> Tensor:
        """Add the attention's output to its input, then the MLP's output to the sum."""
        hidden_states = hidden_states + self.dropout(attn_output)
        return hidden_states + self.dropout(self.mlp(self.post_attention_layernorm(hidden_states)))
