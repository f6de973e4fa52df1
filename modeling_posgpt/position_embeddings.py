"""Position embeddings, one class each, and the table that `position_embedding_type` looks them up in.

To add a member to the family, write a class that derives from `PositionEmbedding` and give it a line in the table.
"""

import torch
from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, dynamic_rope_update


class PositionEmbedding(nn.Module):
    """Where positions can enter a Transformer; a member overrides the places where its positions do."""

    uses_rope_parameters = False

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when the configuration's sizes do not suit these positions."""

    def embed(self, inputs_embeds: torch.Tensor, position_ids: torch.LongTensor) -> torch.Tensor:
        """Make layer 1's input of token vectors (batch, length, hidden_size) at `position_ids` (batch or 1, length)."""
        return inputs_embeds

    def rotation(
        self, hidden_states: torch.Tensor, position_ids: torch.LongTensor
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return cos and sin (batch or 1, length, head_dim) by which every layer turns queries and keys; None: not."""
        return None


class PosGPTLearnedEmbedding(PositionEmbedding):
    """A trained vector for each of the block's positions, added to the token's (Radford et al. 2018, sec. 3.1)."""

    def __init__(self, config):
        super().__init__()
        self.table = nn.Embedding(config.max_position_embeddings, config.hidden_size)

    def embed(self, inputs_embeds: torch.Tensor, position_ids: torch.LongTensor) -> torch.Tensor:
        """Add each position's vector.

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
        return inputs_embeds + self.table(position_ids)


class PosGPTRotaryEmbedding(PositionEmbedding):
    """Rotation of queries and keys by an angle that grows with the position (RoFormer, Su et al. 2021, eq. 14-16, 34).

    The pair (x1, x2), (x3, x4), ... number i turns by `position * rope_theta ** (-2 (i - 1) / head_dim)`. Other
    frequencies (linear, dynamic, yarn, llama3, ...) come from transformers through `config.rope_parameters`.
    """

    uses_rope_parameters = True

    def __init__(self, config):
        super().__init__()
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
        """Raise ValueError when a head cannot be split into pairs."""
        if config.head_dim % 2:
            raise ValueError(
                f"rotary positions turn pairs of dimensions, but a head has {config.head_dim} (hidden_size"
                f" {config.hidden_size} / num_attention_heads {config.num_attention_heads}); choose them so that the"
                " head size is even."
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


def apply_rotary_pos_emb(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn `query` and `key` (batch, heads, length, head_dim) by `cos` and `sin` (batch or 1, length, head_dim)."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)

    def rotate(x: torch.Tensor) -> torch.Tensor:
        quarter_turned = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
        return x * cos + quarter_turned * sin

    return rotate(query), rotate(key)


POSITION_EMBEDDINGS = {
    "learned": PosGPTLearnedEmbedding,
    "rotary": PosGPTRotaryEmbedding,
}
