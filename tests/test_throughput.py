import os
import re
import subprocess
import sys

import pytest
import torch

from benchmarks import throughput
from conftest import ROOT
from data_scripts.synthetic_world import World
from modeling_posgpt import PosGPTConfig


def test_the_benchmark_prints_ratios_and_writes_them(run, tmp_path, monkeypatch):
    monkeypatch.setattr(throughput, "BATCH_SIZE", 2)
    monkeypatch.setattr(throughput, "measure_matmul", lambda dtype: 1e12)
    arguments = ["--num_people", 100, "--steps", 1, "--rounds", 1]
    printed = run(throughput, "--output_dir", tmp_path / "new", *arguments)
    assert (tmp_path / "new" / "throughput.md").read_text(encoding="utf-8") in printed
    rows = re.findall(r"^\| (.+?) +\| ([\d,]+) +\| ([\d.]+)× +\| ([\d.]+)× +\| \d+% +\|$", printed, re.M)
    assert [float(row[2]) for row in rows if row[0] == throughput.PLAIN] == [1.0]
    assert [float(row[3]) for row in rows if row[0] == throughput.GPT2] == [1.0]
    assert throughput.POSGPT in [row[0] for row in rows] and len(rows) >= 5
    assert all(int(row[1].replace(",", "")) > 0 for row in rows)


@pytest.mark.parametrize(
    "is_fast, shown",
    [(False, "at 1 GFLOP/s in fp32. The"), (True, "1 GFLOP/s in fp32 and 1 GFLOP/s in bf16. The")],
)
def test_the_machines_limit_in_bf16_is_measured_only_where_the_hardware_has_instructions_for_it(
    monkeypatch, is_fast, shown
):
    monkeypatch.setattr(throughput, "bf16_is_fast", lambda: is_fast)
    measured = []
    monkeypatch.setattr(throughput, "measure_matmul", lambda dtype: measured.append(dtype) or 1e9)
    contenders = dict.fromkeys((throughput.PLAIN, throughput.GPT2, throughput.POSGPT), lambda: 1.0)
    rates, limits = throughput.measure_training(contenders, 1)
    assert (torch.bfloat16 in measured) is is_fast
    assert shown in throughput.describe_training(rates, limits, PosGPTConfig(), 64)


def load_small_workload(tmp_path, monkeypatch):
    monkeypatch.setattr(throughput, "CHARACTERS_PER_STEP", 64)
    World(num_people=100).write(tmp_path)
    return throughput.load_workload(tmp_path, "rotary")


def test_rows_of_full_length_are_measured_in_as_many_rows_as_there_is_memory_for(tmp_path, monkeypatch):
    workload = load_small_workload(tmp_path, monkeypatch)
    tried = []
    build = throughput.Workload.build_posgpt

    def build_posgpt(self, **architecture):
        tried.append(architecture)
        if len(tried) == 2:
            raise RuntimeError("CUDA out of memory.")
        return build(self, **architecture)

    monkeypatch.setattr(throughput.Workload, "build_posgpt", build_posgpt)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "block_size": 16}
    row = throughput.measure_full_rows(workload, sizes, None, 2)
    assert len(tried) == 3 and row["rows"] == 3, "a tenth fewer than 64 / 16 = 4"
    config = build(workload, **sizes).config
    assert row["flops"] == row["characters"] * throughput.count_training_flops(config, 16) > 0
    table = throughput.describe_full_rows({"small": row}, limit=2 * row["flops"])
    assert re.search(r"^\| small +\| [\d,]+ +\| 3 +\| [\d,]+ +\| 50% +\| 0 MiB +\|$", table, re.M)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", throughput.COMPILE_MODES.values())
def test_a_gpu_trains_on_full_rows_in_every_mode(tmp_path, monkeypatch, mode):
    torch.compiler.reset()
    row = throughput.measure_full_rows(load_small_workload(tmp_path, monkeypatch), {"num_hidden_layers": 1}, mode, 2)
    assert row["characters"] > 0 and row["memory"] > 2**20


def test_the_machine_is_described_with_the_instructions_that_it_may_use():
    code = "from benchmarks.throughput import describe_machine, list_fast_dtypes\n"
    code += "print(describe_machine(), list(list_fast_dtypes()))"
    (line,) = re.findall(r"^    (ATEN.+) python ", throughput.__doc__, re.M)
    environment = os.environ | dict(setting.split("=") for setting in line.split())
    options = {"capture_output": True, "text": True, "check": True, "cwd": ROOT}
    shown = subprocess.run([sys.executable, "-c", code], env=environment, **options).stdout
    assert "(AVX2, no bf16 instructions) ['fp32']" in shown


def test_flops_are_counted_as_six_per_weight_and_attention():
    config = PosGPTConfig()
    model = throughput.PlainGPT(config)
    weights = sum(module.weight.numel() for module in model.modules() if isinstance(module, torch.nn.Linear))
    attention = 2 * 2 * config.num_hidden_layers * config.hidden_size * 10  # two products of 10 keys, 2 FLOPs each
    assert throughput.count_training_flops(config, 10) == 6 * weights + 3 * attention


def test_the_plain_baseline_is_causal_and_has_the_courses_size():
    model = throughput.PlainGPT(PosGPTConfig()).eval()
    assert sum(parameter.numel() for parameter in model.parameters()) == 3_323_392
    ids = torch.randint(2, 256, (1, 12))
    changed = ids.clone()
    changed[0, 8:] = 2
    assert torch.equal(model(ids)[:, :8], model(changed)[:, :8])
    assert not torch.equal(model(ids)[:, 8:], model(changed)[:, 8:])
