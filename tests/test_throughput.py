import os
import re
import subprocess
import sys

import pytest
import torch

from benchmarks import encodings, throughput
from conftest import ROOT
from modeling_posgpt import PosGPTConfig
from study_helpers import read_rows


def test_the_benchmark_prints_ratios_and_writes_them(run, tmp_path, monkeypatch):
    monkeypatch.setattr(throughput, "BATCH_SIZE", 2)
    monkeypatch.setattr(throughput, "measure_matmul", lambda: 1e12)
    arguments = ["--num_people", 100, "--steps", 1, "--rounds", 1]
    printed = run(throughput, "--output_dir", tmp_path / "new", *arguments)
    assert (tmp_path / "new" / "table.md").read_text(encoding="utf-8") in printed
    assert "multiplies matrices at 1,000 GFLOP/s" in printed
    rows = read_rows(printed)
    assert rows.pop("pretraining") == ["characters/s", "share of (c)", "beside (a)", "beside (b)"]
    assert rows[throughput.PLAIN][2] == rows[throughput.GPT2][3] == "1.0×" and "PosGPT" in rows
    assert len(rows) >= 5 and all(int(row[0].replace(",", "")) > 0 for row in rows.values())


def test_what_encodings_cost_is_measured_in_one_table(run, tmp_path, monkeypatch):
    monkeypatch.setattr(encodings, "ROWS", 4)
    sizes = ["--block_size", 64, "--new_tokens", 2, "--rounds", 1]
    run(encodings, "--output_dir", tmp_path, "--position_embedding_types", "none", "learned", "cope", *sizes)
    rows = read_rows((tmp_path / "table.md").read_text())
    header = rows.pop("encoding")
    cells = {name: dict(zip(header, row, strict=True)) for name, row in rows.items()}
    # A vector of 256 numbers for each of 66 positions; `none` has no parameters.
    parameters = {name: int(own["parameters"].replace(",", "")) for name, own in cells.items()}
    assert parameters["learned"] - parameters["none"] == 66 * 256 and parameters["cope"] > parameters["none"]
    # Gates are kept for the backward pass.
    assert all(float(own["training step (ms)"]) > 0 for own in cells.values())
    kept = {name: float(own["kept for the backward pass (MiB)"]) for name, own in cells.items()}
    assert kept["cope"] > kept["none"] > 0
    with pytest.raises(
        SystemExit, match="--position_embedding_types: rope: position_embedding_type is 'rope'; choose"
    ):
        run(encodings, "--output_dir", tmp_path / "other", "--position_embedding_types", "rope")


@pytest.fixture
def workload(monkeypatch):
    monkeypatch.setattr(throughput, "CHARACTERS_PER_STEP", 64)
    return throughput.make_workload(100, "rotary")


def test_rows_of_full_length_are_measured_in_as_many_rows_as_there_is_memory_for(workload, monkeypatch):
    tried = []
    build = throughput.Workload.build_posgpt

    def build_posgpt(self, **architecture):
        tried.append(architecture)
        if len(tried) == 2:
            raise RuntimeError("CUDA out of memory.")
        return build(self, **architecture)

    monkeypatch.setattr(throughput.Workload, "build_posgpt", build_posgpt)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "block_size": 16}
    row = throughput.measure_full_rows("small", workload, sizes, None, 2, 1e6)
    assert len(tried) == 3 and row["rows per step"] == "3", "a tenth fewer than 64 / 16 = 4"
    flops = throughput.count_training_flops(build(workload, **sizes).config, 16)
    rate = int(row["characters/s"].replace(",", ""))
    assert float(row["share of (c)"].rstrip("%")) == pytest.approx(rate * flops / 1e4, rel=0.01)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", throughput.COMPILE_MODES.values())
def test_a_gpu_trains_on_full_rows_in_every_mode(workload, mode):
    torch.compiler.reset()
    row = throughput.measure_full_rows("small", workload, {"num_hidden_layers": 1}, mode, 2, 1e12)
    assert row["characters/s"] != "0" and row["peak GPU memory"] != "0 MiB"


@pytest.mark.slow
def test_the_machine_is_described_with_the_instructions_that_it_may_use():
    code = "from benchmarks.throughput import describe_machine; print(describe_machine())"
    (line,) = re.findall(r"^    (ATEN.+) python ", throughput.__doc__, re.M)
    environment = os.environ | dict(setting.split("=") for setting in line.split())
    options = {"capture_output": True, "text": True, "check": True, "cwd": ROOT}
    shown = subprocess.run([sys.executable, "-c", code], env=environment, **options).stdout
    assert "(AVX2, no bf16 instructions)" in shown


def test_flops_are_those_of_the_plain_baseline_which_is_causal():
    config = PosGPTConfig()
    model = throughput.PlainGPT(config).eval()
    weights = sum(module.weight.numel() for module in model.modules() if isinstance(module, torch.nn.Linear))
    attention = 2 * 2 * config.num_hidden_layers * config.hidden_size * 10  # two products of 10 keys, 2 FLOPs each
    assert throughput.count_training_flops(config, 10) == 6 * weights + 3 * attention
    # The baseline has the course's size, and is causal.
    assert sum(parameter.numel() for parameter in model.parameters()) == 3_323_392
    ids = torch.randint(2, 256, (1, 12))
    changed = ids.clone()
    changed[0, 8:] = 2
    assert torch.equal(model(ids)[:, :8], model(changed)[:, :8])
    assert not torch.equal(model(ids)[:, 8:], model(changed)[:, 8:])
