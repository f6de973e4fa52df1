"""Reading a sequence through fewer latents than it has tokens (`bottleneck_size`): which latent sees what, and the layers.

To add an arrangement, write a class that derives from `Bottleneck` and add it to `BOTTLENECKS`.
"""

import torch
from torch import nn
from transformers import Cache, PreTrainedConfig
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .layers import PosGPTAttention, PosGPTDecoderLayer, build_mask
from .position_embeddings import PositionEmbedding, rotate


class Bottleneck:
    """An arrangement of m latents over positions 0, 1, 2, ...

    Latent i sees the tokens up to its limit, and the latents before it; a token sees the latents whose limits are not
    after it. So nothing looks ahead.
    """

    @staticmethod
    def compute_limits(
        bottleneck_size: int, max_position_embeddings: int, device: torch.device | None = None
    ) -> torch.Tensor:
        """Return the last position that each latent sees, (bottleneck_size,), rising from 0, on `device`."""
        raise NotImplementedError

    @staticmethod
    def find_visible_tokens(positions: torch.Tensor, limits: torch.Tensor) -> torch.Tensor | None:
        """Return which tokens a token sees beside the latents in the last layer, (batch, queries, keys); None: none.

        `positions` is (batch, length), `limits` (bottleneck_size,).
        """
        return None


class PerceiverBottleneck(Bottleneck):
    """The course's arrangement, after the Perceiver (Jaegle et al. 2021, arXiv 2103.03206): latent i sees tokens 0 to i.

    This is the causal mask of square attention, cut to m rows. Its flaw: no latent ever sees position m or anything after
    it, and with short sequences most latents repeat each other. Kept so that models published with it can be used.
    """

    @staticmethod
    def compute_limits(
        bottleneck_size: int, max_position_embeddings: int, device: torch.device | None = None
    ) -> torch.Tensor:
        return torch.arange(bottleneck_size, device=device)


class StridedBottleneck(Bottleneck):
    """Latents spread evenly: latent i sees tokens 0 to i * s, with s = max_position_embeddings / m, rounded up.

    In the last layer a token sees the latents whose limits are not after it and, of the tokens after the last such limit,
    those up to itself: its whole past, whatever m is.
    """

    @staticmethod
    def compute_limits(
        bottleneck_size: int, max_position_embeddings: int, device: torch.device | None = None
    ) -> torch.Tensor:
        return torch.arange(bottleneck_size, device=device) * -(-max_position_embeddings // bottleneck_size)

    @staticmethod
    def find_visible_tokens(positions: torch.Tensor, limits: torch.Tensor) -> torch.Tensor:
        last_latents = torch.searchsorted(limits, positions.contiguous(), right=True) - 1
        queries, keys = positions[:, :, None], positions[:, None, :]
        return (keys > limits[last_latents][:, :, None]) & (keys <= queries)


BOTTLENECKS: dict[str, type[Bottleneck]] = {"perceiver": PerceiverBottleneck, "strided": StridedBottleneck}


class PosGPTLatentBasis(nn.Embedding):
    """What the latents start from, (bottleneck_size, hidden_size); Xavier uniform (Glorot and Bengio 2010, eq. 16)."""


class PosGPTCrossAttention(PosGPTAttention):
    """Multi-head attention to other vectors than the queries', at positions of their own."""

    def forward(  # type: ignore[override]
        self,
        hidden_states: torch.Tensor,
        key_value_states: torch.Tensor,
        position_bias: torch.Tensor | None = None,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        key_position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        attention_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(batch, length, hidden_size) and (batch, kv_length, hidden_size) -> (batch, length, hidden_size)"""
        size = hidden_states.shape[-1]
        # The layer is called rather than parts of its weights used: adapters and quantization put another in its place.
        query = self.qkv_proj(hidden_states)[..., :size].unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        key_value = self.qkv_proj(key_value_states)[..., size:]
        key, value = key_value.unflatten(-1, (2, -1, self.head_dim)).permute(2, 0, 3, 1, 4).unbind(0)
        if position_embeddings is not None and key_position_embeddings is not None:
            query, key = rotate(query, *position_embeddings), rotate(key, *key_position_embeddings)
        return self.attend(query, key, value, position_bias, attention_mask, **kwargs)


class PosGPTDownProjection(PosGPTDecoderLayer):
    """The first layer of a model with a bottleneck: latents, which start from a learned basis, read the tokens."""

    attention_class = PosGPTCrossAttention

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.basis = PosGPTLatentBasis(config.bottleneck_size, config.hidden_size)

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_bias: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """(batch, length, hidden_size) -> (batch, bottleneck_size, hidden_size)"""
        latents = self.basis.weight.expand(hidden_states.shape[0], -1, -1)
        attn_output, _ = self.self_attn(self.input_layernorm(latents), hidden_states, position_bias, **kwargs)
        return self.add_residuals(latents, attn_output)


class PosGPTUpProjection(PosGPTDecoderLayer):
    """The last layer of a model with a bottleneck: the tokens, as they were before the first layer, read the latents."""

    attention_class = PosGPTCrossAttention

    def forward(  # type: ignore[override]
        self,
        hidden_states: torch.Tensor,
        position_bias: torch.Tensor | None,
        inputs: torch.Tensor,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """(batch, keys, hidden_size) and `inputs` (batch, length, hidden_size) -> (batch, length, hidden_size)"""
        attn_output, _ = self.self_attn(inputs, self.input_layernorm(hidden_states), position_bias, **kwargs)
        return self.add_residuals(inputs, attn_output)


def check_inputs(attention_mask: torch.Tensor | None, cache: Cache | None) -> None:
    """Refuse what a model with a bottleneck cannot read.

    Raises:
        ValueError: there is a cache, or a mask other than (batch, length); several documents in one row would each need
            latents of their own.
    """
    if cache is not None:
        raise ValueError("a model with a bottleneck reads the whole text for every new token: pass use_cache=False.")
    if attention_mask is not None and (not isinstance(attention_mask, torch.Tensor) or attention_mask.dim() != 2):
        raise ValueError(
            "a model with a bottleneck reads one text per row: its attention_mask has to be (batch, length), so packed"
            " documents and windows are not supported."
        )


def read_through_latents(
    layers: nn.ModuleList,
    position_embedding: PositionEmbedding,
    inputs: torch.Tensor,
    positions: torch.Tensor,
    attention_mask: torch.Tensor | None,
    config: PreTrainedConfig,
    **kwargs: Unpack[TransformersKwargs],
) -> torch.Tensor:
    """Read the embedded tokens `inputs` (batch, length, hidden_size) through the latents; returns the same shape.

    `positions` are (batch or 1, length), the `attention_mask` (batch, length). A latent is at the last position it sees.
    """
    bottleneck = BOTTLENECKS[config.bottleneck_type]
    limits = bottleneck.compute_limits(config.bottleneck_size, config.max_position_embeddings, inputs.device)
    positions, latent_positions = (each.expand(inputs.shape[0], -1) for each in (positions, limits))
    is_real = (torch.ones_like(positions) if attention_mask is None else attention_mask).bool()[:, None, :]

    def prepare(query_positions: torch.Tensor, key_positions: torch.Tensor, is_visible: torch.Tensor) -> dict:
        return {
            "attention_mask": build_mask(config._attn_implementation, is_visible[:, None]),
            "position_embeddings": position_embedding.rotation(inputs, query_positions),
            "key_position_embeddings": position_embedding.rotation(inputs, key_positions),
        }

    # First layer: the latents read the tokens.
    is_visible = (positions[:, None, :] <= latent_positions[:, :, None]) & is_real
    bias = position_embedding.bias(0, latent_positions, positions)
    latents = layers[0](inputs, bias, **prepare(latent_positions, positions, is_visible), **kwargs)

    # Layers between: the latents read each other, in ordinary self-attention.
    is_visible = latent_positions[:, None, :] <= latent_positions[:, :, None]
    mask = build_mask(config._attn_implementation, is_visible[:, None])
    rotation = position_embedding.rotation(inputs, latent_positions)
    for layer_idx, layer in enumerate(layers[1:-1], start=1):
        bias = position_embedding.bias(layer_idx, latent_positions, latent_positions)
        latents = layer(latents, bias, attention_mask=mask, position_embeddings=rotation, **kwargs)

    # Last layer: the tokens read the latents and, in some arrangements, tokens.
    is_visible, key_positions = latent_positions[:, None, :] <= positions[:, :, None], latent_positions
    visible_tokens = bottleneck.find_visible_tokens(positions, limits)
    if visible_tokens is not None:
        latents = torch.cat([latents, inputs], dim=1)
        key_positions = torch.cat([latent_positions, positions], dim=1)
        is_visible = torch.cat([is_visible, visible_tokens & is_real], dim=2)
    bias = position_embedding.bias(len(layers) - 1, positions, key_positions)
    return layers[-1](latents, bias, inputs, **prepare(positions, key_positions, is_visible), **kwargs)
