"""Every kind of frequencies that rotary positions take from `rope_parameters`."""

import pytest
import torch

import reference_positions
from model_helpers import tiny_model, tokens
from modeling_posgpt import PosGPTForCausalLM

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


def close(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_frequencies_are_the_papers_also_token_by_token_and_after_loading(kind, tmp_path):
    settings = {"rope_parameters": KINDS[kind], "num_attention_heads": 2, "max_position_embeddings": 16}
    model, plain = tiny_model("rotary", **settings), tiny_model("rotary", **settings | {"rope_parameters": None})
    # Beyond the maximum, dynamic and LongRoPE have other frequencies, whatever was read before.
    for length in (40, 24, 12):
        ids = tokens(1, length)
        logits = model(ids).logits
        close(logits[0], reference_positions.compute_logits(model, ids[0]))
        assert length == 12 or (logits - plain(ids).logits).norm() > 0.01
    cache, read = None, []
    for token in ids.split(1, dim=1):
        output = model(token, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        read.append(output.logits)
    close(torch.cat(read, 1), logits)
    model.save_pretrained(tmp_path)
    loaded = PosGPTForCausalLM.from_pretrained(tmp_path)
    assert loaded.config.rope_parameters.items() >= KINDS[kind].items()
    for length in (24, 12):
        assert torch.equal(loaded(tokens(1, length)).logits, model(tokens(1, length)).logits)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_text_is_read_alike_beside_a_longer_one(kind):
    model = tiny_model("rotary", rope_parameters=KINDS[kind], num_attention_heads=2, max_position_embeddings=16)
    batch, mask = torch.cat([tokens(1, 40), tokens(1, 40, seed=1)]), torch.ones(2, 40, dtype=torch.long)
    mask[1, :28] = 0
    logits = model(batch, attention_mask=mask).logits
    close(logits[1, 28:], model(batch[1:, 28:]).logits[0])


@torch.no_grad()
def test_xpos_does_not_overflow_far_from_the_beginning():
    model, ids, order = tiny_model("xpos", xpos_scale_base=16), tokens(1, 6), torch.arange(6)[None]
    near, far = (model(ids, position_ids=order + shift).logits for shift in (0, 99_990))
    # float32 has a hundredth of a radian there.
    torch.testing.assert_close(far, near, atol=0.05, rtol=0.05)
    assert model(ids, position_ids=order * 20_000).logits.isfinite().all()
