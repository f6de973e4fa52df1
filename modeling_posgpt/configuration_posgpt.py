"""The configuration of PosGPT models."""

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import RopeParameters

from .bottleneck import BOTTLENECKS
from .position_embeddings import POSITION_EMBEDDINGS


@strict
class PosGPTConfig(PreTrainedConfig):
    """Sizes and choices of a PosGPT. The defaults are the course's: 3,323,392 parameters (3,290,624 with `"rotary"`).

    Args:
        vocab_size: Number of symbols, PAD and MASK included.
        hidden_size: Width of the residual stream.
        intermediate_size: Width of the MLP's hidden layer; four times `hidden_size` when not given.
        num_hidden_layers: Number of blocks.
        num_attention_heads: Heads of each attention layer; has to divide `hidden_size`.
        hidden_act: The MLP's activation.
        max_position_embeddings: The block: the most tokens a sequence may have.
        position_embedding_type: A name in `position_embeddings.POSITION_EMBEDDINGS`: `"learned"`, `"rotary"`,
            `"sinusoidal"`, `"concatenated"`, `"relative_bias"`, `"alibi"` or `"none"`.
        rope_parameters: Only for `"rotary"`: transformers' dictionary (`rope_type`, `rope_theta`, ...).
        position_share: Only for `"concatenated"`: the share of `hidden_size`, 0 to 1, that holds the position.
        relative_attention_max_distance: Only for `"relative_bias"`: distances beyond it count as it; the block less 1 when
            not given.
        bottleneck_size: With m given, the first block projects the sequence down to m latents and the last one up again.
        bottleneck_type: How: a name in `bottleneck.BOTTLENECKS`, `"perceiver"` or `"strided"`.
        is_causal: Whether a token sees only itself and what is before it. Without, there is nothing to generate with.
        embd_pdrop: Dropout on the embeddings.
        resid_pdrop: Dropout on what each attention and MLP adds to the residual stream.
        attention_dropout: Dropout on attention weights.
        layer_norm_eps: Added to the variance in every LayerNorm.
        initializer_range: Standard deviation of the normal distribution that weights start from.
        use_cache: Whether the model returns keys and values for later steps when not asked either way.
        pad_token_id: Id of `□`, which also stands for unknown characters.
        eos_token_id: Id of `⁇`, which ends an answer.

    Raises:
        StrictDataclassClassValidationError: sizes or choices do not go together (its cause, a ValueError, says why).
    """

    model_type = "posgpt"
    keys_to_ignore_at_inference = ["past_key_values"]

    vocab_size: int = 256
    hidden_size: int = 256
    intermediate_size: int | None = None
    num_hidden_layers: int = 4
    num_attention_heads: int = 8
    hidden_act: str = "gelu"
    max_position_embeddings: int = 128
    position_embedding_type: str = "learned"
    rope_parameters: RopeParameters | dict | None = None
    position_share: float = 0.25
    relative_attention_max_distance: int | None = None
    bottleneck_size: int | None = None
    bottleneck_type: str = "perceiver"
    is_causal: bool = True
    embd_pdrop: float | int = 0.1
    resid_pdrop: float | int = 0.1
    attention_dropout: float | int = 0.1
    layer_norm_eps: float = 1e-5
    initializer_range: float = 0.02
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = 1
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs):
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        # A saved folder gets the code beside the weights; `save_pretrained` alone would name only the class it saves.
        kwargs.setdefault(
            "auto_map",
            {
                "AutoConfig": "configuration_posgpt.PosGPTConfig",
                "AutoModel": "modeling_posgpt.PosGPTModel",
                "AutoModelForCausalLM": "modeling_posgpt.PosGPTForCausalLM",
            },
        )
        super().__post_init__(**kwargs)

    @property
    def head_dim(self) -> int:
        """Dimensions of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def token_embedding_size(self) -> int:
        """Dimensions of a token's vector before positions enter."""
        return self.hidden_size - POSITION_EMBEDDINGS[self.position_embedding_type].width(self)

    def convert_rope_params_to_dict(self, **kwargs):
        """Standardise `rope_parameters` for the members that use them; leave the others without."""
        position_embedding = POSITION_EMBEDDINGS.get(self.position_embedding_type)
        if position_embedding is not None and position_embedding.uses_rope_parameters:
            kwargs = super().convert_rope_params_to_dict(**kwargs)
        return kwargs

    def validate_architecture(self):
        """Check that sizes and choices go together; called by `@strict`."""
        if self.position_embedding_type not in POSITION_EMBEDDINGS:
            raise ValueError(
                f"position_embedding_type is {self.position_embedding_type!r}; choose one of"
                f" {', '.join(POSITION_EMBEDDINGS)}."
            )
        if min(self.hidden_size, self.num_attention_heads, self.num_hidden_layers, self.max_position_embeddings) < 1:
            raise ValueError(
                "hidden_size, num_attention_heads, num_hidden_layers and max_position_embeddings must be at least 1."
            )
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size ({self.hidden_size}) is not a multiple of num_attention_heads"
                f" ({self.num_attention_heads}); choose a number of heads that divides it."
            )
        for name in ("embd_pdrop", "resid_pdrop", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}, a dropout rate, is {getattr(self, name)}; choose one from 0 to below 1.")
        if self.bottleneck_type not in BOTTLENECKS:
            raise ValueError(f"bottleneck_type is {self.bottleneck_type!r}; choose one of {', '.join(BOTTLENECKS)}.")
        if self.bottleneck_size is not None:
            if not 1 <= self.bottleneck_size <= self.max_position_embeddings:
                raise ValueError(
                    f"bottleneck_size is {self.bottleneck_size}; choose a number from 1 to max_position_embeddings"
                    f" ({self.max_position_embeddings})."
                )
            if self.num_hidden_layers < 2 or not self.is_causal:
                raise ValueError("a bottleneck needs num_hidden_layers of at least 2, down and up, and is_causal.")
        position_embedding = POSITION_EMBEDDINGS[self.position_embedding_type]
        position_embedding.check_config(self)
        if self.rope_parameters and not position_embedding.uses_rope_parameters:
            raise ValueError(
                f"rope_parameters are given, but position_embedding_type {self.position_embedding_type!r} does not use"
                " them; leave them out or choose 'rotary'."
            )


PosGPTConfig.register_for_auto_class()
