"""Reading a sequence through fewer latents than it has tokens (`bottleneck_size`): which latent sees what, and the layers.

Latent i sees the tokens up to its limit, and the latents before it; a token sees the latents whose limits are not after it.
So nothing looks ahead.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedConfig
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .layers import PosGPTDecoderLayer, build_mask, keep_states
from .position_encoding import Place

#: Where the limits of m latents are. `perceiver` is the course's arrangement, after the Perceiver (Jaegle et al. 2021, arXiv
#: 2103.03206): latent i sees tokens 0 to i, the causal mask of square attention cut to m rows. Its flaw: no latent ever sees
#: position m or anything after it, and with short sequences most latents repeat each other. Kept so that models published
#: with it can be used. `strided` spreads the latents evenly: latent i sees tokens 0 to i * s, with
#: s = max_position_embeddings / m, rounded up. In its last layer a token also sees those tokens up to itself that come after
#: the limit of the last latent it sees: its whole past, whatever m is.
BOTTLENECKS = ("perceiver", "strided")


def compute_limits(config: PreTrainedConfig, device: torch.device | None = None) -> Tensor:
    """Return the last position that each latent sees, (bottleneck_size,), rising from 0, on `device`."""
    stride = -(-config.max_position_embeddings // config.bottleneck_size) if config.bottleneck_type == "strided" else 1
    return torch.arange(config.bottleneck_size, device=device) * stride


def find_tokens_after_limits(positions: Tensor, limits: Tensor) -> Tensor:
    """Return which tokens at `positions` (batch, length) see which directly, (batch, queries, keys), `limits` being latents'."""
    last_latents = torch.searchsorted(limits, positions.contiguous(), right=True) - 1
    queries, keys = positions[:, :, None], positions[:, None, :]
    return (keys > limits[last_latents][:, :, None]) & (keys <= queries)


class PosGPTLatentBasis(nn.Embedding):
    """What the latents start from, (bottleneck_size, hidden_size); Xavier uniform (Glorot and Bengio 2010, eq. 16)."""


class PosGPTDownProjection(PosGPTDecoderLayer):
    """The first layer of a model with a bottleneck: latents, which start from a learned basis, read the tokens."""

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.basis = PosGPTLatentBasis(config.bottleneck_size, config.hidden_size)

    def forward(self, hidden_states: Tensor, **kwargs: Unpack[TransformersKwargs]) -> Tensor:  # type: ignore[override]
        """(batch, length, hidden_size) -> (batch, bottleneck_size, hidden_size)"""
        latents = self.basis.weight.expand(hidden_states.shape[0], -1, -1)
        queries = self.input_layernorm(latents)
        attn_output, _ = self.self_attn(queries, key_value_states=hidden_states, **kwargs)
        return self.add_residuals(latents, attn_output)


class PosGPTUpProjection(PosGPTDecoderLayer):
    """The last layer of a model with a bottleneck: the tokens, as they were before the first layer, read the latents."""

    def forward(  # type: ignore[override]
        self,
        hidden_states: Tensor,
        inputs: Tensor,
        states_to_keep: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Tensor:
        """(batch, keys, hidden_size) and `inputs` (batch, length, hidden_size) -> the inputs' shape, or what is kept of it"""
        latents = self.input_layernorm(hidden_states)
        attn_output, _ = self.self_attn(inputs, key_value_states=latents, states_to_keep=states_to_keep, **kwargs)
        return self.add_residuals(keep_states(inputs, states_to_keep), attn_output)


def check_inputs(attention_mask: Tensor | None, cache: Cache | None) -> None:
    """Raise ValueError for a cache, or a mask other than (batch, length): each document of a row would need its own latents."""
    if cache is not None:
        raise ValueError("a model with a bottleneck reads the whole text for every new token: pass use_cache=False.")
    if attention_mask is not None and (not isinstance(attention_mask, Tensor) or attention_mask.dim() != 2):
        raise ValueError(
            "a model with a bottleneck reads one text per row: its attention_mask has to be (batch, length), so packed"
            " documents and windows are not supported."
        )


def read_through_latents(
    layers: nn.ModuleList,
    encodings: list[Any],
    inputs: Tensor,
    positions: Tensor,
    attention_mask: Tensor | None,
    config: PreTrainedConfig,
    states_to_keep: Tensor | None = None,
    **kwargs: Unpack[TransformersKwargs],
) -> Tensor:
    """Read the embedded tokens `inputs` (batch, length, hidden_size) through the latents; returns the same shape, or what is kept.

    `positions` are (batch or 1, length), the `attention_mask` (batch, length). A latent is at the last position it sees.
    """
    limits = compute_limits(config, inputs.device)
    positions, latent_positions = (each.expand(inputs.shape[0], -1) for each in (positions, limits))
    is_real = (torch.ones_like(positions) if attention_mask is None else attention_mask).bool()[:, None, :]

    def prepare(layer_idx: int, query_positions: Tensor, key_positions: Tensor, is_visible: Tensor) -> dict:
        """Return what a layer whose queries at some positions see keys at others is told, besides the states."""
        encoding, visible = encodings[layer_idx], is_visible[:, None]
        place = Place(query_positions, key_positions, visible=visible, layer_idx=layer_idx)
        key_place = Place(key_positions, key_positions, layer_idx=layer_idx)
        place, key_place = (each._replace(shared=encoding.prepare(inputs, each)) for each in (place, key_place))
        mask = build_mask(config._attn_implementation, visible)
        told = {"place": place, "key_place": key_place, "attention_mask": mask, "position_encoding": encoding}
        return told | kwargs

    # First layer: the latents read the tokens.
    is_visible = (positions[:, None, :] <= latent_positions[:, :, None]) & is_real
    latents = layers[0](inputs, **prepare(0, latent_positions, positions, is_visible))

    # Layers between: the latents read each other, in ordinary self-attention.
    is_visible = latent_positions[:, None, :] <= latent_positions[:, :, None]
    for layer_idx, layer in enumerate(layers[1:-1], start=1):
        latents = layer(latents, **prepare(layer_idx, latent_positions, latent_positions, is_visible))

    # Last layer: the tokens read the latents and, in the strided arrangement, tokens.
    is_visible, key_positions = latent_positions[:, None, :] <= positions[:, :, None], latent_positions
    if config.bottleneck_type == "strided":
        latents = torch.cat([latents, inputs], dim=1)
        key_positions = torch.cat([latent_positions, positions], dim=1)
        is_visible = torch.cat([is_visible, find_tokens_after_limits(positions, limits) & is_real], dim=2)
    told = prepare(len(layers) - 1, positions, key_positions, is_visible)
    return layers[-1](latents, inputs, states_to_keep=states_to_keep, **told)
