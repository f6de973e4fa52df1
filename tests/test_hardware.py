import platform
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest
import torch

import train_pretrain
from conftest import ROOT, TINY
from posgpt.training import callbacks, hardware
from posgpt.training.saved_models import load_model


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_freed_memory_is_kept_for_the_next_training_step_until_it_is_returned():
    code = (
        "import psutil, torch\n"
        "from posgpt.training.hardware import keep_freed_memory, return_freed_memory\n"
        "assert keep_freed_memory()\n"
        "before = psutil.Process().memory_info().rss\n"
        "tensors = [torch.ones(2**21) for _ in range(40)]\n"
        "del tensors\n"
        "print((psutil.Process().memory_info().rss - before) // 2**20)\n"
        "return_freed_memory()\n"
        "print((psutil.Process().memory_info().rss - before) // 2**20)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    kept, returned = map(int, result.stdout.split())
    assert kept > 300 and returned < 50


def test_training_on_a_cpu_returns_memory_now_and_then(run, world, tmp_path, monkeypatch):
    returned = []
    monkeypatch.setattr(callbacks, "RETURN_EVERY", 2)
    monkeypatch.setattr(hardware, "return_freed_memory", lambda: returned.append(True))
    run(train_pretrain, "--train_file", world / "wiki.txt", "--output_dir", tmp_path, "--max_steps", 5, *TINY)
    assert len(returned) == 2


def test_neither_training_nor_answering_uses_cudnns_attention(run, world, tmp_path):
    torch.backends.cuda.enable_cudnn_sdp(True)
    run(train_pretrain, "--train_file", world / "wiki.txt", "--output_dir", tmp_path, "--max_steps", 1, *TINY)
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    load_model(str(tmp_path))
    assert not torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.skipif(sys.platform == "win32", reason="has no ru_maxrss")
def test_the_peak_of_memory_is_known_where_the_system_has_no_proc(monkeypatch):
    monkeypatch.setattr(hardware.Path, "exists", lambda path: False)
    assert 0.5 < hardware.measure_peak_memory() / (psutil.Process().memory_info().rss / 2**20) < 50
    used = SimpleNamespace(ru_maxrss=512 * 2**20)
    monkeypatch.setattr("resource.getrusage", lambda who: used)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert hardware.measure_peak_memory() == 512
