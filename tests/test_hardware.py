import platform
import subprocess
import sys

import pytest

from conftest import ROOT


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_freed_memory_is_kept_for_the_next_training_step():
    code = (
        "import psutil, torch\n"
        "from posgpt.training.hardware import keep_freed_memory\n"
        "assert keep_freed_memory()\n"
        "before = psutil.Process().memory_info().rss\n"
        "tensors = [torch.ones(2**21) for _ in range(40)]\n"
        "del tensors\n"
        "print((psutil.Process().memory_info().rss - before) // 2**20)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(result.stdout) > 300
