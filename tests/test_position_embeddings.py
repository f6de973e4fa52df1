import math
import re

import pytest
import torch
from accelerate import cpu_offload
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama_apply_rotary_pos_emb

from conftest import ROOT
from data_scripts.epochs import FixedDataset
from model_helpers import tiny_model, tokens
from modeling_posgpt import POSITION_EMBEDDINGS, PosGPTConfig, PosGPTForCausalLM
from modeling_posgpt.position_encoding import PositionEncoding
from modeling_posgpt.positions_rotary import PosGPTRotaryEmbedding, rotate
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.trainer import PosGPTTrainer

HEAD_DIM = 8
OWN = "self_attn.position_encoding"


def rotary(**rope_parameters):
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "max_position_embeddings": 32}
    config = PosGPTConfig(position_embedding_type="rotary", rope_parameters=rope_parameters or None, **sizes)
    return PosGPTRotaryEmbedding(config, 0).double(), config


def rotate_at(vector, position):
    """RoPE of one vector (head_dim,) at one position, in double precision."""
    angles = position * rotary()[0].inv_freq.double().repeat_interleave(2)
    cos, sin = angles.cos()[None, None], angles.sin()[None, None]
    return rotate(vector[None, None, None], cos, sin).flatten()


def vector(seed):
    return torch.randn(HEAD_DIM, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("first, second, shift", [(0, 0, 7), (3, 1, 500), (1, 30, 2), (499, 500, 1), (17, 250, 333)])
def test_scores_depend_on_the_distance_alone(first, second, shift):
    here = rotate_at(vector(0), first) @ rotate_at(vector(1), second)
    there = rotate_at(vector(0), first + shift) @ rotate_at(vector(1), second + shift)
    assert here.item() == pytest.approx(there.item(), abs=1e-6)


@pytest.mark.parametrize("position", [0, 1, 2, 31, 500])
def test_a_turn_is_the_papers_rotation_matrix_and_keeps_norms(position):
    matrix = torch.zeros(HEAD_DIM, HEAD_DIM, dtype=torch.double)
    for i in range(1, HEAD_DIM // 2 + 1):
        angle = position * 10000.0 ** (-2 * (i - 1) / HEAD_DIM)
        block = slice(2 * (i - 1), 2 * i)
        matrix[block, block] = torch.tensor(
            [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.double
        )
    torch.testing.assert_close(rotate_at(vector(2), position), matrix @ vector(2), atol=1e-4, rtol=1e-4)
    assert rotate_at(vector(2), position).norm().item() == pytest.approx(vector(2).norm().item())


def test_it_is_llamas_rotation_with_the_dimensions_in_pairs():
    embedding, _ = rotary()
    x = torch.randn(2, 4, 10, HEAD_DIM, dtype=torch.double)
    cos, sin = embedding(x, torch.arange(10)[None])
    halves = torch.cat([torch.arange(0, HEAD_DIM, 2), torch.arange(1, HEAD_DIM, 2)])
    theirs, _ = llama_apply_rotary_pos_emb(x[..., halves], x[..., halves], cos[..., halves], sin[..., halves])
    ours = rotate(x, cos, sin)
    torch.testing.assert_close(ours[..., halves], theirs)


# FIRE divides by the query's position where that is above its threshold, which random weights make small.
@pytest.mark.parametrize("name", [name for name in POSITION_EMBEDDINGS if name != "fire"])
@torch.no_grad()
def test_where_a_text_starts_shows_with_absolute_positions_only(name):
    model, here = tiny_model(name, max_position_embeddings=64), torch.arange(12)[None]
    logits, shifted, stretched = (
        model(tokens(1, 12), position_ids=positions).logits for positions in (here, here + 17, 2 * here + 3)
    )
    difference = (shifted - logits).abs().max().item()
    is_absolute = POSITION_EMBEDDINGS[name].embeds()
    assert difference > 0.01 if is_absolute else difference < 1e-5
    assert ((stretched - logits).abs().max() > 0.01) == (
        name not in ("none", "fox", "canon", "cope", "ssmax", "selective_rope", "path", "randomized")
    )


@pytest.mark.parametrize(
    ("positions", "constant", "settings"),
    [
        ("rotary", "inv_freq", {}),
        ("rotary", "inv_freq", {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0}}),
        # Of six heads, bfloat16 holds some slopes; of twelve, not all.
        ("alibi", "slopes", {"hidden_size": 48, "num_attention_heads": 12}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_constants_stay_in_float32_whatever_the_weights_are_converted_to(
    positions, constant, settings, dtype, tmp_path
):
    model = tiny_model(positions, **settings)
    model.save_pretrained(tmp_path)
    expected = getattr(model.model.position_embedding, constant).clone()
    loaded = PosGPTForCausalLM.from_pretrained(tmp_path, dtype=dtype)
    for converted in (model.to(dtype), loaded):
        assert converted.lm_head.weight.dtype == dtype
        assert torch.equal(getattr(converted.model.position_embedding, constant), expected)
    assert model.to("meta").model.position_embedding.get_buffer(constant).device.type == "meta"


# What somebody may add to the table.
class Powers(PositionEncoding):
    """A bias with two trained numbers per head and a matrix, which are no layer's weights, and a matrix that Muon takes."""

    matrices = ("taken",)

    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        self.scales = torch.nn.Parameter(torch.zeros(config.num_attention_heads, 2))
        self.left, self.taken = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    def relate(self, query, key, memo, place):
        first, second = self.scales.T[..., None, None]
        distances = place.distances()[:, None]
        return query, key, first * distances + second * distances**2


@pytest.mark.parametrize("name", sorted(POSITION_EMBEDDINGS))
def test_weights_are_offloaded_with_the_encodings_that_the_page_names(name):
    page = (ROOT / "docs" / "positions.md").read_text(encoding="utf-8")
    named = re.search(r"Offloading weights .*? works with ([^.]+)\.", page, re.DOTALL)[1]
    model, input_ids = tiny_model(name), tokens(2, 9)
    expected = model(input_ids).logits
    cpu_offload(model, execution_device=torch.device("cpu"))
    if f"`{name}`" in named:
        assert model(input_ids).logits.equal(expected)
    else:
        with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
            model(input_ids)


def test_trained_numbers_of_a_position_embedding_are_neither_decayed_nor_orthogonalized(monkeypatch, tmp_path):
    monkeypatch.setitem(POSITION_EMBEDDINGS, "powers", Powers)
    model = tiny_model("powers")
    args = PosGPTTrainingArguments(str(tmp_path), use_cpu=True, use_muon=True, report_to="none")
    trainer = PosGPTTrainer(model, args, train_dataset=FixedDataset([], 0))
    parameters, matrices = dict(model.named_parameters()), [f"model.layers.{i}.{OWN}.taken.weight" for i in range(2)]
    assert [name for name in trainer.get_decay_parameter_names(model) if OWN in name] == matrices
    taken = {id(each) for group in trainer.create_optimizer().muon.param_groups for each in group["params"]}
    assert [name for name in parameters if OWN in name and id(parameters[name]) in taken] == matrices
