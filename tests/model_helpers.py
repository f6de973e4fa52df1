"""Small models and inputs for them."""

import torch
from torch import nn

from modeling_posgpt import PosGPTConfig, PosGPTForCausalLM

SIZES = {
    "vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 32,
}  # fmt: skip

# One for each place where positions enter: what holds for every encoding is tested in tests/test_positions.py.
EACH_HOOK = ["learned", "rotary", "alibi", "fox", "canon", "pope"]


def tiny_model(positions: str, attention: str = "sdpa", **settings) -> PosGPTForCausalLM:
    """Build a model of `SIZES` and `settings`, the same one at every call, in evaluation mode."""
    torch.manual_seed(0)
    config = PosGPTConfig(position_embedding_type=positions, **SIZES | settings)
    model = PosGPTForCausalLM._from_config(config, attn_implementation=attention).eval()
    # Weights of the usual 0.02 would leave attention nearly uniform and hide differences.
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.25)
    return model


def tokens(*shape, seed=0) -> torch.Tensor:
    """Draw ids of real symbols, the same ones at every call."""
    return torch.randint(2, SIZES["vocab_size"], shape, generator=torch.Generator().manual_seed(seed))
