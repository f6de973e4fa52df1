import math

import pytest
import torch

from modeling_posgpt import PosGPTConfig, PosGPTForCausalLM
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.hardware import bf16_is_fast
from posgpt.training.muon import Muon, MuonWithAdamW, orthogonalize
from posgpt.training.trainer import PosGPTTrainer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def iterate(matrices):
    """The iterations as they are defined, step by step."""
    a, b, c = COEFFICIENTS
    matrices = matrices / torch.linalg.matrix_norm(matrices, keepdim=True)
    for _ in range(5):
        gram = matrices @ matrices.mT
        matrices = a * matrices + (b * gram + c * gram @ gram) @ matrices
    return matrices


def make_matrices(*shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def take_steps(optimizer, matrices, steps=3):
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        for matrix in matrices:
            matrix.grad = torch.randn(matrix.shape, generator=generator)
        optimizer.step()
    return [matrix.detach() for matrix in matrices]


def test_in_bfloat16_it_is_torchs_own_muon_bit_for_bit():
    ours, theirs = make_matrices((8, 24), (32, 8), (8, 8)), make_matrices((8, 24), (32, 8), (8, 8))
    ours = take_steps(Muon(ours, 0.02, 0.1, torch.bfloat16), ours)
    theirs = take_steps(torch.optim.Muon(theirs, 0.02, 0.1, adjust_lr_fn="match_rms_adamw"), theirs)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_what_has_no_gradient_stays():
    read, unread = make_matrices((8, 24), (8, 24))
    optimizer, before = Muon([read, unread], 0.02, 0.1, torch.float32), unread.detach().clone()
    optimizer.step()
    read.grad = torch.ones(8, 24)
    optimizer.step()
    assert torch.equal(unread, before) and not torch.equal(read, before)


def test_stacked_matrices_are_updated_like_single_ones():
    (stacked,) = make_matrices((24, 8))
    single = [torch.nn.Parameter(part.clone()) for part in stacked.detach().split(8)]
    optimizers = [Muon([stacked], 0.02, 0.1, torch.bfloat16, stacked=[3]), Muon(single, 0.02, 0.1, torch.bfloat16)]
    for _ in range(3):
        stacked.grad = torch.randn(24, 8)
        for matrix, gradient in zip(single, stacked.grad.split(8), strict=True):
            matrix.grad = gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert torch.equal(stacked, torch.cat(single))


@pytest.mark.parametrize("shape", [(16, 48), (16, 16)])
@pytest.mark.parametrize("smallest, tolerance, bf16_tolerance", [(0.1, 1e-5, 0.05), (1e-6, 1e-3, 0.2)])
def test_in_float32_the_same_iterations_are_more_exact(shape, smallest, tolerance, bf16_tolerance):
    # Two matrices whose singular values go from 1 down to the smallest.
    left, _, right = torch.linalg.svd(torch.randn(2, *shape, generator=torch.Generator().manual_seed(0)), False)
    update = left * torch.linspace(0, 1, shape[0]).mul(math.log(smallest)).exp() @ right
    exact = iterate(update.double())
    before, fp32 = update.clone(), orthogonalize(update, COEFFICIENTS, 5, 1e-7, torch.float32)
    assert torch.equal(update, before), "the update is not to be changed"
    bf16 = orthogonalize(update, COEFFICIENTS, 5, 1e-7, torch.bfloat16)
    assert fp32.dtype == torch.float32 and fp32.shape == update.shape
    torch.testing.assert_close(fp32.double(), exact, atol=tolerance, rtol=0)
    torch.testing.assert_close(bf16.double(), exact, atol=bf16_tolerance, rtol=0)
    singular_values = torch.linalg.svdvals(fp32)
    assert singular_values.max() < 1.3 and (smallest < 0.1 or singular_values.min() > 0.5)


def test_a_saved_state_keeps_its_type_and_whole_matrices_from_before_they_could_be_stacked():
    (matrix,), bias = make_matrices((24, 8)), torch.nn.Parameter(torch.zeros(8))
    first, second = (
        MuonWithAdamW(Muon([matrix], 0.02, 0.1, dtype, [3]), torch.optim.AdamW([bias], 0.02))
        for dtype in (torch.bfloat16, torch.float32)
    )
    saved = first.state_dict()
    del saved["param_groups"][0]["stacked"]
    second.load_state_dict(saved)
    for group in (second.param_groups[0], *second.muon.param_groups):
        assert (group["stacked"], group["newton_schulz_dtype"]) == ([1], "bfloat16")


def test_bf16_is_fast_where_the_cpu_has_instructions_for_it_and_may_use_them(monkeypatch):
    # The last is told to be an older one (ATEN_CPU_CAPABILITY=avx2).
    for has_avx, has_amx, used_as, fast in (
        (False, False, "AVX512", False), (True, False, "AVX512", True), (False, True, "AVX512", True), (True, True, "AVX2", False),
    ):  # fmt: skip
        capabilities = {"avx512_bf16": has_avx, "amx_bf16": has_amx}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda capabilities=capabilities: capabilities)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda used_as=used_as: used_as)
        assert bf16_is_fast("cpu") is fast


def test_with_all_but_biases_decayed_adamw_decays_what_muon_does_not_take(tmp_path):
    model = PosGPTForCausalLM(PosGPTConfig(num_hidden_layers=1))
    decay = {"decayed_parameters": "all_but_biases", "weight_decay": 0.1}
    optimizer = PosGPTTrainer(
        model, PosGPTTrainingArguments(str(tmp_path), use_muon=True, use_cpu=True, **decay)
    ).create_optimizer()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = {
        group["weight_decay"]: {names[id(parameter)] for parameter in group["params"]}
        for group in optimizer.adamw.param_groups
    }
    assert set(groups) == {0.0, 0.1} and all(name.endswith("bias") for name in groups[0.0])
    assert {name for name in groups[0.1] if "norm" not in name} == {
        "model.embed_tokens.weight", "model.position_embedding.table.weight", "lm_head.weight"
    }  # fmt: skip
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(names)
