"""PosGPT: a pre-LayerNorm GPT whose configuration chooses how it encodes positions."""

from collections.abc import Collection
from copy import copy
from functools import wraps
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from transformers import Cache, DynamicCache, GenerationMixin, PreTrainedModel, initialization
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import slice_logits_to_keep
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, auto_docstring, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .answering_posgpt import AnsweringMixin
from .bottleneck import PosGPTDownProjection, PosGPTLatentBasis, PosGPTUpProjection, check_inputs, read_through_latents
from .cache import CACHE, take_past_key_values
from .composition import Composition, list_parts, split_name
from .configuration_posgpt import PosGPTConfig, load_task
from .dropout import PosGPTDropout
from .layers import PosGPTAttention, PosGPTDecoderLayer, build_mask
from .position_embeddings import POSITION_EMBEDDINGS
from .position_encoding import Place, PositionEncoding, find_previous


@auto_docstring
class PosGPTPreTrainedModel(PreTrainedModel):
    config: PosGPTConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["PosGPTDecoderLayer", "PosGPTDownProjection", "PosGPTUpProjection"]
    _skip_keys_device_placement = ["cache", "position_encoding"]
    # Flash attention would silently ignore a bias, and takes queries and keys of the values' width alone.
    _supports_flash_attn = property(
        lambda self: not any(each.has_bias or each.is_wide for each in self.config.position_encodings)
    )
    _supports_sdpa = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True
    _supports_attention_backend = True
    _can_record_outputs = {"hidden_states": PosGPTDecoderLayer, "attentions": PosGPTAttention}

    def __init__(self, config: PosGPTConfig, *inputs: Any, **kwargs: Any):
        # It may have been changed since it was made.
        config.validate()
        super().__init__(config, *inputs, **kwargs)

    def _init_weights(self, module: Any) -> None:
        # That of a table of positions may have a deviation of its own.
        deviation: Any = getattr(module, "initializer_range", None) if isinstance(module, nn.Embedding) else None
        if deviation is not None:
            initialization.normal_(module.weight, std=deviation)
            return
        super()._init_weights(module)
        if isinstance(module, PosGPTLatentBasis):
            initialization.xavier_uniform_(module.weight)
        # transformers fills the buffers of rotary positions itself, but only if the class's name contains RotaryEmbedding.
        if isinstance(module, PositionEncoding):
            module.init_weights()


def number_positions(inputs_embeds: Tensor, attention_mask: Tensor | None, cache: Cache | None) -> Tensor:
    """Number the real tokens from 0, ignoring padding on either side; returns (batch or 1, length)."""
    length, past_length = inputs_embeds.shape[1], cache.get_seq_length() if cache is not None else 0
    new = torch.arange(length, device=inputs_embeds.device) + past_length
    if isinstance(attention_mask, Tensor) and attention_mask.dim() == 2 and attention_mask.shape[1] >= length:
        # The mask covers the cached tokens as well, and may cover the empty places of a static cache.
        numbers = (attention_mask.long().cumsum(-1) - 1).clamp(min=0).to(inputs_embeds.device)
        return numbers[:, new] if attention_mask.shape[1] > length else numbers
    return new.unsqueeze(0)


def find_visible(mask: Tensor) -> Tensor:
    """Return which query sees which key, as booleans, from a mask that is added to scores, or has zeros for what is hidden."""
    # A smaller number takes from a key, and does not hide it.
    return mask > -1e3 if mask.is_floating_point() else mask.bool()


def number_key_positions(position_ids: Tensor, attention_mask: Any, cache: Cache | None) -> Tensor:
    """Number all keys of the attention, cached ones first; returns (batch or 1, kv_length).

    Cached tokens are assumed to lead up to the first of `position_ids` (batch or 1, length) that is no padding; those that a mask of
    them and the new tokens (batch, kv_length or less) hides are left out. Keys that this numbers wrongly, padding and the empty places of a static cache,
    are masked.
    """
    if cache is None:
        return position_ids
    # A static cache counts in a tensor.
    past_length: Any = cache.get_seq_length()
    length = position_ids.shape[1]
    kv_length, _ = cache.get_mask_sizes(length, 0)
    keys = torch.arange(kv_length, device=position_ids.device)[None]
    seen = None
    if isinstance(attention_mask, Tensor) and attention_mask.dim() == 4:
        # As `generate` makes it for a static cache: what any of the new tokens sees.
        seen = find_visible(attention_mask).any(1).any(-2)
    elif isinstance(attention_mask, Tensor) and attention_mask.dim() == 2 and attention_mask.shape[1] > length:
        seen = attention_mask[:, :kv_length]
    new_places = torch.arange(length, device=position_ids.device) + past_length
    if seen is not None:
        seen = nn.functional.pad(seen.to(position_ids), (0, kv_length - seen.shape[1]))
        keys = seen.cumsum(-1)
    offset = position_ids - keys.index_select(1, new_places)
    if seen is not None and length > 1:
        # The position of padding on the left says nothing.
        first = seen.index_select(1, new_places).argmax(-1, keepdim=True)
        offset = offset.gather(1, first.expand(offset.shape[0], -1))
    keys = keys + offset[:, :1]
    if length == 1:
        return keys
    # The new tokens' positions may restart at 0 where documents are packed.
    new = position_ids.expand(keys.shape[0], -1)
    return torch.cat([keys[:, :past_length], new, keys[:, past_length + length :]], dim=1)


def find_beginnings(position_ids: Tensor) -> Tensor:
    """Return where positions do not rise, so that another document begins, (batch or 1, length)."""
    return position_ids.diff(dim=-1, prepend=position_ids[:, :1] - 1) <= 0


def check_is_one_text(position_ids: Tensor, attention_mask: Tensor | None) -> None:
    """Raise ValueError when documents are packed: positions, (batch or 1, length), do not rise among a row's real tokens."""
    begins = find_beginnings(position_ids)
    if attention_mask is not None and attention_mask.shape[-1] == begins.shape[-1]:
        begins = begins & attention_mask.bool() & attention_mask.bool().roll(1, -1)
    if not torch.compiler.is_compiling() and begins[:, 1:].any():
        raise ValueError(
            "positions restart within a row, as those of packed documents do, which would be mixed by a bottleneck, by"
            " is_causal=False, by flash attention in several rows, or beside an attention_mask of two dimensions: give each document"
            " a row of its own, or leave such a mask out."
        )


def shift_left(labels: Tensor) -> Tensor:
    """Return what each token is to be continued with, -100 after the last; (batch, length), as `labels` are."""
    return nn.functional.pad(labels[:, 1:], (0, 1), value=-100)


@auto_docstring
class PosGPTModel(PosGPTPreTrainedModel):
    def __init__(self, config: PosGPTConfig):
        super().__init__(config)
        # Without the dimensions that positions add.
        width = config.hidden_size - sum(each.width(config) for each in config.position_encodings)
        # No padding_idx: `□` also stands for unknown characters, and padding is masked out anyway.
        self.embed_tokens = nn.Embedding(config.vocab_size, width)
        classes = {name: POSITION_EMBEDDINGS[name] for name in config.position_names}
        objects = {name: encoding(config, 0) for name, encoding in classes.items() if encoding.is_shared}
        # Models of one encoding have saved it without its name since version 0.1.
        alone = objects.get(str(config.position_embedding_type))
        self.position_embedding: Any = nn.ModuleDict(objects) if alone is None else alone
        self.dropout = PosGPTDropout(config.embd_pdrop)
        layer_classes: list[type[PosGPTDecoderLayer]] = [PosGPTDecoderLayer] * config.num_hidden_layers
        if config.bottleneck_size is not None:
            layer_classes[0], layer_classes[-1] = PosGPTDownProjection, PosGPTUpProjection
        self.layers = nn.ModuleList([cls(config, layer_idx) for layer_idx, cls in enumerate(layer_classes)])
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.gradient_checkpointing = False
        precise = [(name, each.precise) for name, each in self.named_modules() if isinstance(each, PositionEncoding)]
        self._keep_in_fp32_modules_strict = {f"{name}.{parameter}" for name, own in precise for parameter in own}
        self.post_init()

    @take_past_key_values
    @merge_with_config_defaults
    @capture_outputs
    @auto_docstring
    def forward(  # type: ignore[misc]
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        use_cache: bool | None = None,
        states_to_keep: torch.BoolTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        r"""
        cache (`Cache`, *optional*):
            The keys and values of the tokens before these, from an output with `use_cache=True`. It may also be called
            `past_key_values`, its name before transformers 5.24.
        states_to_keep (`torch.BoolTensor` of shape `(batch_size, sequence_length)`, *optional*):
            True for the tokens that the last layer computes: its hidden states are then `(number of true, hidden_size)`.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("You must specify exactly one of input_ids or inputs_embeds")
        if cache is not None and self.training and self.gradient_checkpointing:
            raise ValueError("gradient checkpointing computes layers twice and would write a cache twice: pass none.")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        # In an empty cache of our own, transformers would not look for packed documents.
        given_cache = cache
        # A cache is of no use to latents, nor to a model that does not generate.
        has_bottleneck = self.config.bottleneck_size is not None
        is_row_mask = isinstance(attention_mask, Tensor) and attention_mask.dim() == 2
        # Flash attention finds packed documents in one row alone, and beside a row mask transformers does not look for any.
        mixes = is_row_mask or ("flash" in str(self.config._attn_implementation) and inputs_embeds.shape[0] > 1)
        takes_one = has_bottleneck or (mixes and cache is None) or not self.config.is_causal
        # A mask of four dimensions says itself what is seen.
        if position_ids is not None and takes_one and (attention_mask is None or is_row_mask):
            check_is_one_text(position_ids, attention_mask)
        if has_bottleneck:
            check_inputs(attention_mask, cache)
        elif use_cache and cache is None and self.config.is_causal:
            cache = DynamicCache(config=self.config)

        # Token vectors at their positions.
        positions = number_positions(inputs_embeds, attention_mask, cache) if position_ids is None else position_ids
        encodings = self.list_encodings()
        by_name = dict(zip(self.config.layer_position_embeddings, encodings, strict=True))
        parts = dict.fromkeys(part for each in by_name.values() for part in list_parts(each))
        has_bias = any(part.has_bias for part in parts)
        numbers = positions, number_key_positions(positions, attention_mask, cache) if has_bias else positions
        for encoding in parts:
            encoding.check_positions(positions, self.config.max_position_embeddings)
            numbers = encoding.number(*numbers)
        hidden_states = inputs_embeds
        for encoding in parts:
            hidden_states = encoding.embed(hidden_states, numbers[0])
        hidden_states = self.dropout(hidden_states)

        # Through the latents, or through each layer in full.
        if has_bottleneck:
            hidden_states = read_through_latents(
                self.layers, encodings, hidden_states, positions, attention_mask, self.config, states_to_keep, **kwargs
            )
        else:
            # The caller's positions may restart, which shows that documents are packed. Those numbered here never do:
            # given them, transformers would look for it nevertheless, and would build a mask that is not needed.
            mask_inputs = hidden_states, attention_mask, given_cache, position_ids
            mask, place = self.make_mask(*mask_inputs), self.make_place(*numbers, cache, parts, mask_inputs)
            prepared = {name: each.prepare(hidden_states, place) for name, each in by_name.items()}
            last = self.config.num_hidden_layers - 1
            for layer_idx, name in enumerate(self.config.layer_position_embeddings):
                hidden_states = self.layers[layer_idx](
                    hidden_states,
                    place=place._replace(shared=prepared[name], layer_idx=layer_idx),
                    position_encoding=encodings[layer_idx],
                    attention_mask=mask,
                    cache=cache,
                    position_ids=positions,
                    # Every token is read by others until there.
                    states_to_keep=states_to_keep if layer_idx == last else None,
                    **kwargs,
                )
        # By its place: transformers gave the cache another name (see cache.py).
        return BaseModelOutputWithPast(self.norm(hidden_states), cache)

    def list_encodings(self) -> list[Any]:
        """Return the encoding of each layer: one, its own or one that layers share, or several in the order of their names."""
        names, owner = self.config.layer_position_embeddings, self.position_embedding
        # One alone is kept without its name.
        shared: dict[str, Any] = dict(owner.items()) if isinstance(owner, nn.ModuleDict) else {names[0]: owner}
        own = [layer.self_attn.position_encoding for layer in cast(Any, self.layers)]
        return [
            Composition((shared | dict(parts.items()))[part] for part in split_name(name))
            if isinstance(parts, nn.ModuleDict)
            else shared.get(name) or parts
            # Without the layers that `assistant_early_exit` leaves out for a while.
            for name, parts in zip(names, own, strict=False)
        ]

    def make_place(
        self,
        positions: Tensor,
        keys: Tensor,
        cache: Cache | None,
        encodings: Collection[PositionEncoding],
        mask_inputs: tuple[Any, Any, Any, Any],
    ) -> Place:
        """Return where the tokens are, as far as the encodings need it."""
        first = cache.get_seq_length() if cache is not None else 0
        # A static cache would go on counting in the same tensor.
        first = first.clone() if isinstance(first, Tensor) else first
        place, history = Place(positions, keys, first), max(each.history for each in encodings)
        if history or any(each.needs_visibility for each in encodings):
            visible = self.make_mask(*mask_inputs, "eager")
            if not isinstance(visible, Tensor):
                raise ValueError("these positions need an attention_mask that is a tensor, not a BlockMask.")
            visible = find_visible(visible)
            place = place._replace(visible=visible)
            place = place._replace(previous=find_previous(visible, first, history) if history else None)
        return place

    def make_mask(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | BlockMask | None,
        cache: Cache | None,
        position_ids: Tensor | None,
        implementation: str | None = None,
    ) -> Tensor | BlockMask | None:
        """Return the mask of all layers as the attention implementation takes it; None: it masks the future itself."""
        config = self.config
        if implementation is not None:
            config = copy(config)
            config._attn_implementation = implementation
        if isinstance(attention_mask, Tensor) and attention_mask.dim() == 4 and not attention_mask.is_floating_point():
            attention_mask = build_mask(config._attn_implementation, attention_mask.bool())
        if position_ids is not None:
            # Transformers takes any gap for the beginning of another document; positions that skip some are of the same.
            order = torch.arange(position_ids.shape[1], device=position_ids.device)
            begins = find_beginnings(position_ids)
            # Not `.values`: in an export, this is a plain tuple.
            position_ids = order - torch.where(begins, order, 0).cummax(-1)[0]
        return create_causal_mask(config, hidden_states, attention_mask, cache, position_ids)  # type: ignore[arg-type]


@auto_docstring
class PosGPTForCausalLM(PosGPTPreTrainedModel, AnsweringMixin, GenerationMixin):
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: PosGPTConfig):
        super().__init__(config)
        self.model = PosGPTModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()
        # Pipelines would sample; what the model has learned is its likeliest answer.
        self.generation_config.do_sample = False
        if config.bottleneck_size is not None:
            self.generation_config.use_cache = False

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs):
        """Load the model and its task; see transformers."""
        loaded = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        # With `output_loading_info`, there is more.
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        # A configuration that is given may be AutoConfig's, which reads no task from the hub; otherwise the task is read with it.
        if pretrained_model_name_or_path and kwargs.get("config") is not None and model.config.relations is None:
            model.config.relations = load_task(pretrained_model_name_or_path, kwargs)
        return loaded

    # Transformers reads off the parameters what `generate` takes.
    @wraps(GenerationMixin.prepare_inputs_for_generation)
    def prepare_inputs_for_generation(self, *args: Any, **kwargs: Any) -> dict:  # type: ignore[override]
        """Prepare a step of `generate`; see transformers. Raise ValueError for a model that sees what it is to write."""
        if not self.config.is_causal:
            raise ValueError("a model with is_causal=False sees what follows, and cannot generate.")
        if "cache" in kwargs and CACHE != "cache":
            raise ValueError("generate takes a cache as past_key_values in this version of transformers.")
        return super().prepare_inputs_for_generation(*args, **kwargs)  # type: ignore[misc]

    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse continuous batching, which has a cache of its own kind, before it takes the memory for that."""
        raise ValueError("continuous batching (generate_batch) is not supported: call generate.")

    def _get_static_cache_init_shape(self) -> None:
        # Some positions cache more than keys: the first call makes the tensors of a static cache.
        return None

    @take_past_key_values
    @can_return_tuple
    @auto_docstring
    def forward(  # type: ignore[misc]
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Unpack[TransformersKwargs],
    ) -> CausalLMOutputWithPast:
        r"""
        cache (`Cache`, *optional*):
            The keys and values of the tokens before these, from an output with `use_cache=True`. It may also be called
            `past_key_values`, its name before transformers 5.24.
        logits_to_keep (`int` or `torch.Tensor`, *optional*):
            How many of the last logits, or which, to compute. With a boolean tensor of shape `(batch_size, sequence_length)`,
            the last layer computes only its true tokens; `logits` and its hidden states are then `(number of true, size)`.
        """
        is_mask = isinstance(logits_to_keep, Tensor) and (logits_to_keep.dtype, logits_to_keep.ndim) == (torch.bool, 2)
        outputs: BaseModelOutputWithPast = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=cache,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            states_to_keep=logits_to_keep if is_mask else None,
            **kwargs,
        )
        logits = self.lm_head(outputs[0] if is_mask else slice_logits_to_keep(outputs[0], logits_to_keep))
        loss = None
        if labels is not None:
            if is_mask:
                given = kwargs.get("shift_labels")
                kwargs["shift_labels"] = (shift_left(labels) if given is None else given)[logits_to_keep]
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(loss, logits, outputs.get(CACHE), outputs.hidden_states, outputs.attentions)


PosGPTModel.register_for_auto_class("AutoModel")
PosGPTForCausalLM.register_for_auto_class("AutoModelForCausalLM")
# Parts of transformers look models up by class name: with `label_smoothing_factor`, Trainer shifts the labels only for
# the causal language models listed here.
MODEL_MAPPING_NAMES[PosGPTConfig.model_type] = PosGPTModel.__name__
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[PosGPTConfig.model_type] = PosGPTForCausalLM.__name__
