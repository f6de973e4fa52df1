"""PosGPT: a pre-LayerNorm GPT whose configuration picks how it encodes positions."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from transformers import Cache, DynamicCache, GenerationMixin, PreTrainedModel, initialization
from transformers.activations import ACT2FN
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, slice_logits_to_keep
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, auto_docstring, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .answering_posgpt import AnsweringMixin
from .bottleneck import BOTTLENECKS
from .configuration_posgpt import PosGPTConfig
from .position_embeddings import POSITION_EMBEDDINGS, rotate


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    position_bias: torch.Tensor | None = None,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(q kᵀ · scaling + bias + mask) v (Vaswani et al. 2017, eq. 1), written out.

    `query` is (batch, heads, length, head_dim), `key` and `value` (batch, heads, kv_length, head_dim), the
    `attention_mask` (batch or 1, 1, length, kv_length): added, or true where a key is seen; the `position_bias` (batch or
    1, heads, length, kv_length). Returns the output (batch, length, heads, head_dim) and the
    weights (batch, heads, length, kv_length).
    """
    scores = torch.matmul(query * scaling, key.transpose(-1, -2))
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        # Added, the mask costs nothing on the way back; in another type it would take the scores, which are large, there.
        lowest = torch.finfo(scores.dtype).min
        if attention_mask.dtype == torch.bool:
            attention_mask = torch.zeros_like(attention_mask, dtype=scores.dtype).masked_fill(~attention_mask, lowest)
        scores = scores + attention_mask.clamp(min=lowest).to(scores.dtype)
    # Softmax adds up in float32 whatever the type of the scores, so that they need not be copied to it and back.
    weights = nn.functional.softmax(scores, dim=-1).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


class PosGPTAttention(nn.Module):
    """Multi-head self-attention, causal unless the configuration says otherwise."""

    def __init__(self, config: PosGPTConfig, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.scaling = self.head_dim**-0.5
        self.attention_dropout = config.attention_dropout
        self.is_causal = config.is_causal
        # One product for queries, keys and values: the same parameters as three, a third of the calls.
        self.qkv_proj = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_bias: torch.Tensor | None = None,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        key_value_states: torch.Tensor | None = None,
        key_position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Self-attention; with `key_value_states` (batch, kv_length, hidden_size), which have positions of their own,
        attention across to those."""
        batch_size, length, hidden_size = hidden_states.shape
        if key_value_states is None:
            # (batch, length, 3, heads, head_dim) -> three of (batch, heads, length, head_dim)
            qkv = self.qkv_proj(hidden_states).view(batch_size, length, 3, -1, self.head_dim)
            query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            key_position_embeddings = position_embeddings
        else:
            weight, bias = self.qkv_proj.weight, self.qkv_proj.bias
            query = nn.functional.linear(hidden_states, weight[:hidden_size], bias[:hidden_size])
            query = query.view(batch_size, length, -1, self.head_dim).transpose(1, 2)
            kv = nn.functional.linear(key_value_states, weight[hidden_size:], bias[hidden_size:])
            key, value = kv.view(batch_size, -1, 2, query.shape[1], self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        if position_embeddings is not None:
            query, key = rotate(query, *position_embeddings), rotate(key, *key_position_embeddings)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        if position_bias is not None:
            # flex_attention looks the batch's rows up one by one; the others do not mind.
            kwargs["position_bias"] = position_bias.to(query.dtype).expand(batch_size, -1, -1, -1)

        attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        attn_output, attn_weights = attention_interface(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.attention_dropout if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        return self.o_proj(attn_output.reshape(batch_size, length, hidden_size)), attn_weights


class PosGPTMLP(nn.Module):
    """Two layers with a non-linearity between, at each position alone."""

    def __init__(self, config: PosGPTConfig):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size)
        self.act_fn = ACT2FN[config.hidden_act]
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.up_proj(hidden_states)))


class PosGPTDecoderLayer(GradientCheckpointingLayer):
    """One block: x + attention(norm(x)), then x + mlp(norm(x)) (pre-LN: Xiong et al. 2020, arXiv 2002.04745)."""

    def __init__(self, config: PosGPTConfig, layer_idx: int):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.self_attn = PosGPTAttention(config, layer_idx)
        self.post_attention_layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp = PosGPTMLP(config)
        self.dropout = nn.Dropout(config.resid_pdrop)

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_bias: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        attn_output, _ = self.self_attn(
            self.input_layernorm(hidden_states),
            position_bias=position_bias,
            position_embeddings=position_embeddings,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            **kwargs,
        )
        return self.add_up(hidden_states, attn_output)

    def add_up(self, hidden_states: torch.Tensor, attn_output: torch.Tensor) -> torch.Tensor:
        """Add what attention found, then what the MLP makes of the sum."""
        hidden_states = hidden_states + self.dropout(attn_output)
        return hidden_states + self.dropout(self.mlp(self.post_attention_layernorm(hidden_states)))


class PosGPTLatentBasis(nn.Embedding):
    """What latents start from, (bottleneck_size, hidden_size); Xavier's uniform distribution (Glorot and Bengio 2010)."""


class PosGPTDownProjection(PosGPTDecoderLayer):
    """The first block of a model with a bottleneck: latents, from a learned basis, read the sequence."""

    def __init__(self, config: PosGPTConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.basis = PosGPTLatentBasis(config.bottleneck_size, config.hidden_size)

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_bias: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """(batch, length, hidden_size) -> (batch, bottleneck_size, hidden_size)"""
        latents = self.basis.weight.expand(len(hidden_states), -1, -1)
        attn_output, _ = self.self_attn(
            self.input_layernorm(latents), position_bias=position_bias, key_value_states=hidden_states, **kwargs
        )
        return self.add_up(latents, attn_output)


class PosGPTUpProjection(PosGPTDecoderLayer):
    """The last block of a model with a bottleneck: the first block's input reads the latents, and itself where it may."""

    def forward(
        self,
        latents: torch.Tensor,
        position_bias: torch.Tensor | None,
        inputs: torch.Tensor,
        reads_inputs: bool,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """(batch, bottleneck_size, hidden_size) and (batch, length, hidden_size) -> (batch, length, hidden_size)"""
        key_value_states = self.input_layernorm(torch.cat([latents, inputs], dim=1) if reads_inputs else latents)
        attn_output, _ = self.self_attn(
            inputs, position_bias=position_bias, key_value_states=key_value_states, **kwargs
        )
        return self.add_up(inputs, attn_output)


@auto_docstring
class PosGPTPreTrainedModel(PreTrainedModel):
    config: PosGPTConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["PosGPTDecoderLayer"]
    _skip_keys_device_placement = ["past_key_values"]
    # A bias would be ignored there without a word.
    _supports_flash_attn = property(lambda self: not POSITION_EMBEDDINGS[self.config.position_embedding_type].has_bias)
    _supports_sdpa = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True
    _supports_attention_backend = True
    _can_record_outputs = {"hidden_states": PosGPTDecoderLayer, "attentions": PosGPTAttention}

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, PosGPTLatentBasis):
            initialization.xavier_uniform_(module.weight)


def positions_of(
    inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None, past_key_values: Cache | None
) -> torch.LongTensor:
    """Number the real tokens from 0 on, padding on either side left out; shape (batch or 1, length)."""
    length = inputs_embeds.shape[1]
    if isinstance(attention_mask, torch.Tensor) and attention_mask.dim() == 2 and attention_mask.shape[1] >= length:
        # The mask covers the cached tokens too; this step's are the last.
        return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -length:].to(inputs_embeds.device)
    past_length = past_key_values.get_seq_length() if past_key_values is not None else 0
    return (torch.arange(length, device=inputs_embeds.device) + past_length).unsqueeze(0)


def key_positions_of(position_ids: torch.LongTensor, past_key_values: Cache | None) -> torch.LongTensor:
    """Positions of all keys in this step's attention, cached ones first; shape (batch or 1, kv_length).

    Cached tokens are taken to lead up to the first of this step's positions. What that numbers wrongly, padding on the left
    and a static cache's empty places, is masked.
    """
    if past_key_values is None:
        return position_ids
    length, past_length = position_ids.shape[1], past_key_values.get_seq_length()
    kv_length, _ = past_key_values.get_mask_sizes(length, 0)
    keys = torch.arange(kv_length, device=position_ids.device) - past_length + position_ids[:, :1]
    if length == 1:
        return keys
    # This step's own positions may begin anew where documents are packed.
    return torch.cat([keys[:, :past_length], position_ids, keys[:, past_length + length :]], dim=1)


def mask_for(implementation: str, seen: torch.BoolTensor) -> torch.BoolTensor | BlockMask:
    """What an attention implementation takes for `seen` (batch, 1, queries, keys), true where a key is seen."""
    if implementation != "flex_attention":
        return seen
    # A plain tensor it would add to the scores, which hides nothing.
    batch_size, _, queries, keys = seen.shape
    return create_block_mask(lambda b, h, q, k: seen[b, 0, q, k], batch_size, None, queries, keys, seen.device)


@auto_docstring
class PosGPTModel(PosGPTPreTrainedModel):
    def __init__(self, config: PosGPTConfig):
        super().__init__(config)
        # No padding_idx: `□` also stands for unknown characters, and padding is masked out anyway.
        self.embed_tokens = nn.Embedding(config.vocab_size, config.token_embedding_size)
        self.position_embedding = POSITION_EMBEDDINGS[config.position_embedding_type](config)
        self.dropout = nn.Dropout(config.embd_pdrop)
        kinds = [PosGPTDecoderLayer] * config.num_hidden_layers
        if config.bottleneck_size is not None:
            kinds[0], kinds[-1] = PosGPTDownProjection, PosGPTUpProjection
        self.layers = nn.ModuleList([kind(config, idx) for idx, kind in enumerate(kinds)])
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    @auto_docstring
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        if (input_ids is None) ^ (inputs_embeds is not None):
            raise ValueError("You must specify exactly one of input_ids or inputs_embeds")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        has_bottleneck = self.config.bottleneck_size is not None
        if has_bottleneck and past_key_values is not None:
            raise ValueError("a model with a bottleneck reads everything anew at each step: give use_cache=False.")
        if use_cache and past_key_values is None and self.config.is_causal and not has_bottleneck:
            past_key_values = DynamicCache(config=self.config)

        is_whole = isinstance(attention_mask, torch.Tensor) and attention_mask.dim() == 4
        if is_whole and attention_mask.dtype == torch.bool:
            attention_mask = mask_for(self.config._attn_implementation, attention_mask)
        # Only positions the caller gave may say that documents are packed: those made here never do, and looking
        # for it would cost the mask-free causal path.
        causal_mask = create_causal_mask(
            config=self.config,
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            position_ids=position_ids,
        )
        if position_ids is None:
            position_ids = positions_of(inputs_embeds, attention_mask, past_key_values)

        hidden_states = self.dropout(self.position_embedding.embed(inputs_embeds, position_ids))
        if has_bottleneck:
            hidden_states = self.through_bottleneck(hidden_states, position_ids, attention_mask, **kwargs)
            return BaseModelOutputWithPast(last_hidden_state=self.norm(hidden_states))
        position_embeddings = self.position_embedding.rotation(hidden_states, position_ids)
        key_positions = (
            key_positions_of(position_ids, past_key_values) if self.position_embedding.has_bias else position_ids
        )
        for layer_idx, layer in enumerate(self.layers):
            hidden_states = layer(
                hidden_states,
                # Not by name: gradient checkpointing would lose its gradient.
                self.position_embedding.bias(layer_idx, position_ids, key_positions),
                attention_mask=causal_mask,
                position_embeddings=position_embeddings,
                past_key_values=past_key_values,
                position_ids=position_ids,
                **kwargs,
            )
        return BaseModelOutputWithPast(last_hidden_state=self.norm(hidden_states), past_key_values=past_key_values)

    def through_bottleneck(
        self,
        inputs: torch.Tensor,
        position_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """Read `inputs` (batch, length, hidden_size) through the latents; returns the same shape.

        A latent stands at the last position it sees.

        Raises:
            ValueError: rows of several documents. Each would need latents of its own.
        """
        if attention_mask is not None and (not isinstance(attention_mask, torch.Tensor) or attention_mask.dim() != 2):
            raise ValueError(
                "a model with a bottleneck reads one text a row: packed documents and windows do not suit it."
            )
        batch_size, implementation = len(inputs), self.config._attn_implementation
        bottleneck = BOTTLENECKS[self.config.bottleneck_type]
        limits = bottleneck.limits(self.config.bottleneck_size, self.config.max_position_embeddings).to(inputs.device)
        positions, latent_positions = position_ids.expand(batch_size, -1), limits.expand(batch_size, -1)
        real = torch.ones_like(positions, dtype=torch.bool) if attention_mask is None else attention_mask.bool()

        def at(query_positions: torch.LongTensor, key_positions: torch.LongTensor) -> dict:
            return {
                "position_embeddings": self.position_embedding.rotation(inputs, query_positions),
                "key_position_embeddings": self.position_embedding.rotation(inputs, key_positions),
            }

        seen = (positions[:, None, :] <= latent_positions[:, :, None]) & real[:, None, :]
        hidden_states = self.layers[0](
            inputs,
            self.position_embedding.bias(0, latent_positions, positions),
            attention_mask=mask_for(implementation, seen[:, None]),
            **at(latent_positions, positions),
            **kwargs,
        )
        mask = mask_for(implementation, latent_positions[:, None, None, :] <= latent_positions[:, None, :, None])
        for layer_idx, layer in enumerate(self.layers[1:-1], start=1):
            hidden_states = layer(
                hidden_states,
                self.position_embedding.bias(layer_idx, latent_positions, latent_positions),
                attention_mask=mask,
                position_embeddings=self.position_embedding.rotation(inputs, latent_positions),
                **kwargs,
            )
        seen, key_positions = latent_positions[:, None, :] <= positions[:, :, None], latent_positions
        rest = bottleneck.sees_rest(positions, limits)
        if rest is not None:
            seen = torch.cat([seen, rest & real[:, None, :]], dim=2)
            key_positions = torch.cat([latent_positions, positions], dim=1)
        return self.layers[-1](
            hidden_states,
            self.position_embedding.bias(len(self.layers) - 1, positions, key_positions),
            inputs,
            rest is not None,
            attention_mask=mask_for(implementation, seen[:, None]),
            **at(positions, key_positions),
            **kwargs,
        )


@auto_docstring
class PosGPTForCausalLM(PosGPTPreTrainedModel, AnsweringMixin, GenerationMixin):
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: PosGPTConfig):
        super().__init__(config)
        self.model = PosGPTModel(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()
        if config.bottleneck_size is not None:
            self.generation_config.use_cache = False

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **kwargs: Unpack[TransformersKwargs],
    ) -> CausalLMOutputWithPast:
        outputs: BaseModelOutputWithPast = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        logits = self.lm_head(slice_logits_to_keep(outputs.last_hidden_state, logits_to_keep))
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


PosGPTModel.register_for_auto_class("AutoModel")
PosGPTForCausalLM.register_for_auto_class("AutoModelForCausalLM")
