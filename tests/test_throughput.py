import re
from concurrent.futures import ThreadPoolExecutor

import torch

from benchmarks import throughput
from modeling_posgpt import PosGPTConfig


def test_the_benchmark_prints_ratios_and_writes_table_and_picture(run, tmp_path, monkeypatch):
    monkeypatch.setattr(throughput, "BATCH_SIZE", 2)
    monkeypatch.setattr(throughput, "matmul_limit", lambda device, dtype: 1e12)
    monkeypatch.setattr(throughput, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    arguments = [
        "--num_people",
        100,
        "--corpus_sizes",
        100,
        200,
        "--steps",
        1,
        "--rounds",
        1,
        "--questions",
        4,
        "--plain_questions",
        1,
    ]
    printed = run(throughput, "--output_dir", tmp_path / "new", *arguments)
    assert (tmp_path / "new" / "corpus_size.png").stat().st_size > 1000
    assert re.findall(r"^\| (\d+) \|.* MiB \|$", printed, re.M) == ["100", "200"]
    assert (tmp_path / "new" / "throughput.md").read_text(encoding="utf-8") in printed
    rows = re.findall(r"^\| (.+?) \| ([\d,]+) \| ([\d.]+)× \| ([\d.]+)× \|$", printed, re.M)
    assert [float(row[2]) for row in rows if row[0] == throughput.PLAIN] == [1.0]
    assert [float(row[3]) for row in rows if row[0] == throughput.GPT2] == [1.0]
    assert throughput.POSGPT in [row[0] for row in rows] and len(rows) >= 7
    assert all(int(row[1].replace(",", "")) > 0 for row in rows)


def test_flops_are_counted_as_six_a_weight_and_attention(tmp_path):
    config = PosGPTConfig()
    model = throughput.PlainGPT(config)
    weights = sum(module.weight.numel() for module in model.modules() if isinstance(module, torch.nn.Linear))
    attention = 2 * 2 * config.num_hidden_layers * config.hidden_size * 10  # two products of 10 keys, 2 FLOPs each
    assert throughput.training_flops(config, 10) == 6 * weights + 3 * attention


def test_the_plain_baseline_is_causal_and_has_the_courses_size():
    model = throughput.PlainGPT(PosGPTConfig()).eval()
    assert sum(parameter.numel() for parameter in model.parameters()) == 3_323_392
    ids = torch.randint(2, 256, (1, 12))
    changed = ids.clone()
    changed[0, 8:] = 2
    assert torch.equal(model(ids)[:, :8], model(changed)[:, :8])
    assert not torch.equal(model(ids)[:, 8:], model(changed)[:, 8:])
