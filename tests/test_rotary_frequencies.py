"""Every kind of frequencies that rotary positions take from `rope_parameters`."""

import pytest
import torch

import reference_positions
from model_helpers import tiny_model, tokens

KINDS = {
    "default": {"rope_theta": 100.0},
    "partial": {"partial_rotary_factor": 0.25},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "partial linear": {"rope_type": "linear", "factor": 4.0, "partial_rotary_factor": 0.5},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0},
    "longrope": {
        "rope_type": "longrope", "factor": 4.0, "short_factor": [1.0] * 7 + [1.5], "long_factor": [1.0, 1.5, 2, 2.5, 3, 3, 4, 4]
    },
    "llama3": {"rope_type": "llama3", "factor": 4.0, "rope_theta": 100.0, "low_freq_factor": 1.0, "high_freq_factor": 2.0},
    "proportional": {"rope_type": "proportional", "partial_rotary_factor": 0.75, "factor": 2.0},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_frequencies_are_the_papers_also_token_by_token(kind):
    settings = {"rope_parameters": KINDS[kind], "num_attention_heads": 2, "max_position_embeddings": 16}
    logits = {}
    # Dynamic and LongRoPE turn texts beyond the maximum by other frequencies.
    for length in (12, 24):
        model, ids = tiny_model("rotary", **settings), tokens(1, length)
        logits[length] = model(ids).logits
        expected = reference_positions.compute_logits(model, ids[0])
        torch.testing.assert_close(logits[length][0], expected, atol=1e-5, rtol=1e-5)
    plain = tiny_model("rotary", **settings | {"rope_parameters": None})(ids).logits
    assert (logits[24] - plain).norm() > 0.01
    cache, read = None, []
    for position in range(12):
        output = model(tokens(1, 12)[:, position : position + 1], past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        read.append(output.logits)
    torch.testing.assert_close(torch.cat(read, 1), model(tokens(1, 12)).logits, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_xpos_does_not_overflow_far_from_the_beginning():
    model, ids, order = tiny_model("xpos", xpos_scale_base=16), tokens(1, 6), torch.arange(6)[None]
    near, far = (model(ids, position_ids=order + shift).logits for shift in (0, 99_990))
    # float32 has a hundredth of a radian there.
    torch.testing.assert_close(far, near, atol=0.05, rtol=0.05)
    assert model(ids, position_ids=order * 20_000).logits.isfinite().all()
