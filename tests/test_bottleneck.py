"""Models that read a sequence through fewer latents than tokens."""

from itertools import product

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from model_helpers import tiny_model, tokens
from modeling_posgpt import PosGPTConfig, PosGPTForCausalLM
from modeling_posgpt.bottleneck import BOTTLENECKS, compute_limits, find_tokens_after_limits

MEMBERS = ["learned", "rotary", "concatenated", "alibi", "none", "pope", "ssmax"]
every_member = pytest.mark.parametrize("positions", MEMBERS)
every_arrangement = pytest.mark.parametrize("arrangement", BOTTLENECKS)
SIZE, MAXIMUM_LENGTH = 6, 32


def build_model(positions="learned", arrangement="perceiver", attention="sdpa", **settings):
    settings = {"bottleneck_size": SIZE, "max_position_embeddings": MAXIMUM_LENGTH, "num_hidden_layers": 3} | settings
    return tiny_model(positions, attention, bottleneck_type=arrangement, **settings)


def measure_changes(model, length, changed):
    """For each position, by how much its logits change when the token at `changed` does."""
    before = tokens(1, length)
    after = before.clone()
    after[0, changed] = (before[0, changed] + 5) % 38 + 2
    with torch.no_grad():
        return (model(after).logits - model(before).logits)[0].abs().amax(-1)


def test_the_basis_starts_from_xaviers_uniform_distribution_beside_the_known_number_of_parameters():
    model = PosGPTForCausalLM(PosGPTConfig(bottleneck_size=64))
    basis, limit = model.model.layers[0].basis.weight, (6 / (64 + 256)) ** 0.5
    assert basis.abs().max() <= limit and basis.std().item() == pytest.approx(limit / 3**0.5, rel=0.05)
    assert model.num_parameters() == 3_339_776


@every_member
@every_arrangement
def test_nothing_looks_ahead(positions, arrangement):
    model = build_model(positions, arrangement)
    for changed in (1, 7, 19):
        changes = measure_changes(model, 20, changed)
        assert (changes[:changed] == 0).all()
        assert changes[changed] > 1e-3


@every_member
def test_the_published_arrangements_flaw_what_comes_after_the_mth_token_is_seen_by_itself_alone(positions):
    model = build_model(positions, "perceiver")
    assert (measure_changes(model, 20, SIZE - 1)[SIZE:] > 1e-5).all()
    assert measure_changes(model, 20, SIZE)[SIZE + 1 :].max() == 0
    assert measure_changes(model, 20, 15)[16:].max() == 0


@every_member
@pytest.mark.parametrize("size", [1, 5, 6, 31, 32])
def test_the_strided_arrangement_sees_all_of_its_past(positions, size):
    model = build_model(positions, "strided", bottleneck_size=size)
    for changed in (0, 7, 15, 18):
        assert (measure_changes(model, 20, changed)[changed:] > 1e-6).all()


@pytest.mark.parametrize(
    "size, length, expected", [(64, 128, list(range(0, 128, 2))), (6, 32, [0, 6, 12, 18, 24, 30])]
)
def test_strided_latents_are_spread_over_the_maximum_length(size, length, expected):
    config = PosGPTConfig(bottleneck_size=size, max_position_embeddings=length, bottleneck_type="strided")
    limits = compute_limits(config)
    assert limits.tolist() == expected
    visible = find_tokens_after_limits(torch.arange(length)[None], limits)[0]
    for query in range(length):
        through_latents = max(limit for limit in expected if limit <= query)
        assert visible[query].nonzero().flatten().tolist() == list(range(through_latents + 1, query + 1))


@pytest.mark.parametrize(
    "positions, arrangement, implementations",
    [
        *product(MEMBERS, BOTTLENECKS, [("eager", "sdpa")]),
        # Compiled for up to a minute, and the same for all without a bias. With a bias and changing lengths torch 2.13 writes
        # C++ for CPUs that does not compile.
        *[pytest.param("rotary", name, ("flex_attention",), marks=pytest.mark.slow) for name in BOTTLENECKS],
    ],
)
@torch.no_grad()
def test_attention_implementations_agree_and_padding_changes_nothing(positions, arrangement, implementations):
    model = build_model(positions, arrangement, "eager")
    rows = [tokens(length, seed=length) for length in (9, 20)]
    padded = pad_sequence(rows, batch_first=True, padding_side="left")
    alone = [model(row[None]).logits[0] for row in rows]
    for attention in implementations:
        model.set_attn_implementation(attention)
        logits = model(padded, attention_mask=(padded > 0).long()).logits
        torch.testing.assert_close(logits[0, 11:], alone[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(logits[1], alone[1], atol=1e-5, rtol=1e-5)


@every_arrangement
def test_it_generates_without_a_cache_and_is_the_same_after_loading(arrangement, tmp_path):
    model = build_model("rotary", arrangement)
    generated = model.generate(tokens(1, 6), max_new_tokens=5, do_sample=False, eos_token_id=None)
    row = tokens(1, 6)
    for _ in range(5):
        row = torch.cat([row, model(row).logits[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(generated, row)
    with pytest.raises(ValueError, match="use_cache=False"):
        model.generate(tokens(1, 6), max_new_tokens=2, use_cache=True)
    model.save_pretrained(tmp_path)
    loaded = PosGPTForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(loaded.generate(tokens(1, 6), max_new_tokens=5, do_sample=False, eos_token_id=None), row)


@every_arrangement
@torch.no_grad()
def test_hidden_states_and_attentions_come_out(arrangement):
    model = build_model("rotary", arrangement, "eager")
    # accelerate splits none of its layers between devices.
    assert {type(layer).__name__ for layer in model.model.layers} <= set(model._no_split_modules)
    outputs = model(tokens(2, 7), output_hidden_states=True, output_attentions=True)
    assert [state.shape for state in outputs.hidden_states] == [(2, 7, 32), (2, SIZE, 32), (2, SIZE, 32), (2, 7, 32)]
    queries_and_keys = [(SIZE, 7), (SIZE, SIZE), (7, SIZE if arrangement == "perceiver" else SIZE + 7)]
    assert [weights.shape for weights in outputs.attentions] == [(2, 4, *sizes) for sizes in queries_and_keys]
    for weights in outputs.attentions:
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-5, rtol=1e-5)


def test_packed_rows_are_refused():
    with pytest.raises(ValueError, match="one text per row"):
        build_model()(tokens(1, 6), attention_mask=torch.ones(1, 1, 6, 6, dtype=torch.bool))
