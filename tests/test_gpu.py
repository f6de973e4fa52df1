"""What has to hold on a GPU; skipped where there is none."""

import json
from itertools import product

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoTokenizer

import train_pretrain
from conftest import TINY_SIZE, history_of
from model_helpers import tiny_model
from modeling_posgpt import BOTTLENECKS, POSITION_EMBEDDINGS, PosGPTForCausalLM
from modeling_posgpt.dropout import round_rate
from modeling_posgpt.positions_rotary import rotate

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
# The options of a small model, without those that keep it on the CPU.
ARCHITECTURE = [*TINY_SIZE, "--report_to", "none"]
# What one device drops is not what another does.
NO_DROPOUT = {"embd_pdrop": 0, "resid_pdrop": 0, "attention_dropout": 0}
every_member = pytest.mark.parametrize("positions", POSITION_EMBEDDINGS)

Step = tuple[float, dict[str, torch.Tensor]]


def draw_tokens(*shape: int) -> torch.Tensor:
    return torch.randint(2, 40, shape, generator=torch.Generator().manual_seed(0))


def take_step(model: PosGPTForCausalLM, device: str, bf16: bool = False, compiled: bool = False, **inputs) -> Step:
    """Return the loss and each parameter's gradient of one forward and backward pass, on the CPU and in float32."""
    model = model.to(device).train()
    run = torch.compile(model) if compiled else model
    ids = draw_tokens(4, 24).to(device)
    inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
    with torch.autocast(device, torch.bfloat16, enabled=bf16):
        loss = run(input_ids=ids, labels=ids, **inputs).loss
    loss.backward()
    return loss.item(), {name: parameter.grad.float().cpu() for name, parameter in model.named_parameters()}


def assert_same_step(step: Step, expected: Step) -> None:
    assert step[0] == pytest.approx(expected[0], rel=1e-4)
    for name, gradient in step[1].items():
        torch.testing.assert_close(gradient, expected[1][name], atol=1e-3, rtol=1e-3)


def assert_similar_step(step: Step, expected: Step, loss: float = 0.03, gradient: float = 0.15) -> None:
    """Compare with tolerances relative to the loss and to each gradient as a whole; the defaults are bfloat16's."""
    assert step[0] == pytest.approx(expected[0], rel=loss)
    for name, tensor in step[1].items():
        assert (tensor - expected[1][name]).norm() < gradient * expected[1][name].norm() + 1e-3, name


@every_member
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_training_step_is_that_of_the_cpu(positions, attention):
    step = take_step(tiny_model(positions, attention, **NO_DROPOUT), DEVICE)
    assert_same_step(step, take_step(tiny_model(positions, attention, **NO_DROPOUT), "cpu"))


@every_member
@pytest.mark.parametrize("attention", ["eager", "sdpa", "flex_attention"])
def test_rows_of_windows_give_the_gradients_of_the_cpu(positions, attention):
    # Two heads of 16: flex_attention has no kernel for smaller ones.
    settings = NO_DROPOUT | {"num_attention_heads": 2}
    # Eight characters of a title, which all see, and two windows of eight, which do not see each other.
    window = torch.arange(24) // 8
    is_visible = (window[:, None] == window) | (window == 0)
    inputs = {
        "attention_mask": (is_visible & torch.ones(24, 24).tril().bool()).expand(4, 1, 24, 24),
        "position_ids": torch.cat([torch.arange(16), torch.arange(8, 16)]).expand(4, 24),
    }
    step = take_step(tiny_model(positions, attention, **settings), DEVICE, **inputs)
    assert_same_step(step, take_step(tiny_model(positions, "sdpa", **settings), "cpu", **inputs))


@every_member
@pytest.mark.parametrize("compiled", [False, True])
def test_in_bf16_and_compiled_it_is_close_to_that(positions, compiled):
    step = take_step(tiny_model(positions, "sdpa", **NO_DROPOUT), DEVICE, bf16=True, compiled=compiled)
    assert_similar_step(step, take_step(tiny_model(positions, "sdpa", **NO_DROPOUT), "cpu"))


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(("bf16", "tolerances"), [(False, {"loss": 2e-4, "gradient": 1e-3}), (True, {})])
def test_a_model_with_a_bottleneck_has_the_gradients_of_the_cpu(bottleneck, attention, bf16, tolerances):
    settings = NO_DROPOUT | {"num_hidden_layers": 3, "bottleneck_size": 8, "bottleneck_type": bottleneck}
    step = take_step(tiny_model("learned", attention, **settings), DEVICE, bf16=bf16)
    assert_similar_step(step, take_step(tiny_model("learned", attention, **settings), "cpu"), **tolerances)


def sum_gradient_of_scores(kernel: SDPBackend, rate: float, queries: int, keys: int) -> float:
    """Return the sum of the scores' gradient, relative to that of dO . O: 0 if each row sums to 0, as softmax's does."""
    generator, options = torch.Generator(DEVICE).manual_seed(0), {"device": DEVICE, "dtype": torch.bfloat16}
    rows, heads, head_dim = 128, 8, 32
    key, value = (torch.randn(rows, heads, keys, head_dim, generator=generator, **options) for _ in range(2))
    # With one query for all, the sum over keys of the keys' gradients is the sum of the scores' times this query.
    query = torch.randn(head_dim, generator=generator, **options)
    queries_of_all = query.expand(rows, heads, queries, -1).contiguous()
    is_visible = torch.ones(queries, keys, dtype=torch.bool, device=DEVICE).tril().repeat(rows, 1, 1, 1)
    mask = {"is_causal": True} if kernel is SDPBackend.FLASH_ATTENTION else {"attn_mask": is_visible}
    torch.manual_seed(1)
    key.requires_grad_()
    with sdpa_kernel(kernel):
        out = nn.functional.scaled_dot_product_attention(queries_of_all, key, value, dropout_p=rate, scale=1.0, **mask)
    upstream = out.detach()
    gradient = torch.autograd.grad(out, key, upstream)[0].float().sum((0, 1, 2))
    return (gradient @ query.float() / query.float().square().sum() / upstream.float().square().sum()).item()


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.3])
@pytest.mark.parametrize(
    ("kernel", "queries", "keys"),
    [
        # Flash attention takes no mask.
        (SDPBackend.FLASH_ATTENTION, 114, 114),
        *product([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], [64, 114], [114]),
    ],
)
def test_the_gradient_of_a_row_of_scores_sums_to_zero_at_a_rounded_rate(kernel, rate, queries, keys):
    assert abs(sum_gradient_of_scores(kernel, round_rate(rate, torch.bfloat16), queries, keys)) < 4e-4


def test_rounding_the_rate_is_needed():
    # When this fails, torch's kernel multiplies by one scale in both passes, and `round_rate` can go.
    assert sum_gradient_of_scores(SDPBackend.EFFICIENT_ATTENTION, 0.1, 64, 114) > 1e-3


def test_turns_are_exact_where_products_are_rounded_to_tf32(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    generator = torch.Generator().manual_seed(0)
    x, cos, sin = (torch.randn(shape, generator=generator) for shape in ((2, 4, 64, 32), (2, 64, 32), (2, 64, 32)))
    turned = rotate(x.to(DEVICE), cos.to(DEVICE), sin.to(DEVICE)).cpu()
    torch.testing.assert_close(turned, rotate(x, cos, sin), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_a_model_with_a_bottleneck_never_has_the_cpu_wait_for_the_gpu(bottleneck):
    model = tiny_model("learned", num_hidden_layers=3, bottleneck_size=8, bottleneck_type=bottleneck).to(DEVICE)
    inputs = {"input_ids": draw_tokens(4, 24).to(DEVICE), "attention_mask": torch.ones(4, 24, device=DEVICE).long()}
    torch.cuda.set_sync_debug_mode("error")
    try:
        model.train()(**inputs, labels=inputs["input_ids"]).loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@every_member
def test_a_static_cache_writes_what_a_dynamic_one_does(positions):
    model = tiny_model(positions, "sdpa").to(DEVICE).eval()
    prompt = {"input_ids": draw_tokens(2, 8).to(DEVICE), "attention_mask": torch.ones(2, 8, device=DEVICE).long()}
    settings = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None}
    dynamic = model.generate(**prompt, **settings)
    assert torch.equal(model.generate(**prompt, **settings, cache_implementation="static"), dynamic)


def pretrain(run, world, folder, *arguments) -> list[float]:
    """Pretrain as the command does; return the losses."""
    run(
        train_pretrain, "--train_file", world / "wiki.txt", "--output_dir", folder, "--per_device_train_batch_size", 16,
        "--logging_steps", 1, "--save_steps", 3, "--report_to", "none", *ARCHITECTURE, *arguments,
    )  # fmt: skip
    return history_of(folder)


@pytest.mark.parametrize("optimizer", ["false", "true"], ids=["adamw", "muon"])
def test_a_resumed_run_ends_as_the_uninterrupted_one_and_says_what_memory_it_took(run, world, tmp_path, optimizer):
    # Adam makes steps of the learning rate out of the rounding of gradients that are zero, such as those of the keys' biases.
    options = ["--max_steps", 6, "--learning_rate", 1e-4, "--use_muon", optimizer]
    losses = pretrain(run, world, tmp_path / "whole", *options)
    checkpoint = tmp_path / "whole" / "checkpoint-3"
    resumed = [*options, "--resume_from_checkpoint", checkpoint]
    assert pretrain(run, world, tmp_path / "resumed", *resumed) == pytest.approx(losses, rel=1e-3)
    whole, again = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "resumed"))
    for name, weight in whole.items():
        torch.testing.assert_close(again[name], weight, atol=1e-3, rtol=1e-2)
    results = json.loads((tmp_path / "whole" / "train_results.json").read_text())
    assert results["peak_gpu_memory_mib"] > 1


def test_questions_are_answered_as_on_the_cpu(tiny_pretrained):
    folder = tiny_pretrained["rotary"]
    model, tokenizer = PosGPTForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    names = ["Ada Example", "Bo Ek", "Corine Oakley"]
    on_cpu = [place for place, _ in model.ask(names, tokenizer)]
    assert [place for place, _ in model.to(DEVICE).ask(names, tokenizer)] == on_cpu
