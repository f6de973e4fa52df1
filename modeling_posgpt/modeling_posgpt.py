"""PosGPT: a pre-LayerNorm GPT whose configuration picks how it encodes positions."""

from collections.abc import Callable

import torch
from torch import nn
from transformers import Cache, DynamicCache, GenerationMixin, PreTrainedModel
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
from .configuration_posgpt import PosGPTConfig
from .position_embeddings import POSITION_EMBEDDINGS, apply_rotary_pos_emb


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(q kᵀ · scaling + mask) v (Vaswani et al. 2017, eq. 1), written out.

    `query` is (batch, heads, length, head_dim), `key` and `value` (batch, heads, kv_length, head_dim), the
    `attention_mask` (batch or 1, 1, length, kv_length): added, or true where a key is seen. Returns the output (batch, length, heads, head_dim) and the
    weights (batch, heads, length, kv_length).
    """
    scores = torch.matmul(query, key.transpose(-1, -2)) * scaling
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


class PosGPTAttention(nn.Module):
    """Causal multi-head self-attention; queries and keys are turned when the positions are rotary."""

    def __init__(self, config: PosGPTConfig, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.scaling = self.head_dim**-0.5
        self.attention_dropout = config.attention_dropout
        self.is_causal = True
        # One product for queries, keys and values: the same parameters as three, a third of the calls.
        self.qkv_proj = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        batch_size, length, hidden_size = hidden_states.shape
        # (batch, length, 3, heads, head_dim) -> three of (batch, heads, length, head_dim)
        qkv = self.qkv_proj(hidden_states).view(batch_size, length, 3, -1, self.head_dim)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        if position_embeddings is not None:
            query, key = apply_rotary_pos_emb(query, key, *position_embeddings)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)

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
        attention_mask: torch.Tensor | None = None,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        attn_output, _ = self.self_attn(
            self.input_layernorm(hidden_states),
            position_embeddings=position_embeddings,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            **kwargs,
        )
        hidden_states = hidden_states + self.dropout(attn_output)
        return hidden_states + self.dropout(self.mlp(self.post_attention_layernorm(hidden_states)))


@auto_docstring
class PosGPTPreTrainedModel(PreTrainedModel):
    config: PosGPTConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["PosGPTDecoderLayer"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True
    _supports_attention_backend = True
    _can_record_outputs = {"hidden_states": PosGPTDecoderLayer, "attentions": PosGPTAttention}


def positions_of(
    inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None, past_key_values: Cache | None
) -> torch.LongTensor:
    """Number the real tokens from 0 on, padding on either side left out; shape (batch or 1, length)."""
    length = inputs_embeds.shape[1]
    if attention_mask is not None and attention_mask.dim() == 2 and attention_mask.shape[1] >= length:
        # The mask covers the cached tokens too; this step's are the last.
        return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -length:].to(inputs_embeds.device)
    past_length = past_key_values.get_seq_length() if past_key_values is not None else 0
    return (torch.arange(length, device=inputs_embeds.device) + past_length).unsqueeze(0)


@auto_docstring
class PosGPTModel(PosGPTPreTrainedModel):
    def __init__(self, config: PosGPTConfig):
        super().__init__(config)
        # No padding_idx: `□` also stands for unknown characters, and padding is masked out anyway.
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embedding = POSITION_EMBEDDINGS[config.position_embedding_type](config)
        self.dropout = nn.Dropout(config.embd_pdrop)
        self.layers = nn.ModuleList([PosGPTDecoderLayer(config, idx) for idx in range(config.num_hidden_layers)])
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
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)

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
        position_embeddings = self.position_embedding.rotation(hidden_states, position_ids)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                attention_mask=causal_mask,
                position_embeddings=position_embeddings,
                past_key_values=past_key_values,
                position_ids=position_ids,
                **kwargs,
            )
        return BaseModelOutputWithPast(last_hidden_state=self.norm(hidden_states), past_key_values=past_key_values)


@auto_docstring
class PosGPTForCausalLM(PosGPTPreTrainedModel, AnsweringMixin, GenerationMixin):
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: PosGPTConfig):
        super().__init__(config)
        self.model = PosGPTModel(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

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
