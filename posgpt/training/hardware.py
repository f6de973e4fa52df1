"""What the machine can do, and what a process has used of it."""

import atexit
import ctypes
import os
import platform
import re
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import torch
from accelerate import PartialState

from data_scripts.errors import BadInput
from modeling_posgpt import PosGPTConfig


def bf16_is_fast(device: torch.device | str | None = None) -> bool:
    """Whether hardware multiplies matrices in bfloat16 on `device` (default: CUDA where there is one, else the CPU).

    A CPU that torch was told to use as an older one (`ATEN_CPU_CAPABILITY`) counts as that.
    """
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    capabilities = torch.cpu.get_capabilities()
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "DEFAULT"):
        return False
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def count_cores() -> int:
    """Return how many CPU cores this process may use."""
    # A cluster may give a job fewer cores than the machine has.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(psutil.cpu_count(logical=False) or 1, allowed)


def avoid_cudnn_attention() -> None:
    """Have torch compute attention on a GPU with any of its kernels but cuDNN's, for the rest of this process.

    Since torch 2.11, cuDNN's is the default on an H100 or B200. In bfloat16 it is reported to return wrong gradients and NaN on
    an H100 (github.com/pytorch/pytorch/issues/150700 and 196678), where runs diverged with it (docs/results.md), and to
    corrupt what models with fewer than 8 heads write on a B200 (193893).
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


def check_flex_attention(config: PosGPTConfig) -> bool:
    """Return whether flex_attention is to train a model, which it cannot with dropout or small heads."""
    if config._attn_implementation != "flex_attention":
        return False
    if config.attention_dropout:
        raise BadInput("flex_attention has no dropout; add --dropout 0, or choose another --attn_implementation.")
    if config.head_dim < 16:
        # Torch's compiler would say so in pages.
        raise BadInput("flex_attention needs 16 dimensions per head; choose fewer num_attention_heads, or sdpa.")
    return True


def close_process_group_at_exit(state: PartialState) -> None:
    """Have the group of several processes on CPUs end before each of them does: its threads may abort a process that exits.

    On GPUs, closing it may wait for another process that has failed.
    """
    if state.use_distributed and state.device.type == "cpu":
        atexit.register(state.destroy_process_group)


def _has_glibc() -> bool:
    return sys.platform == "linux" and platform.libc_ver()[0] == "glibc"


def keep_freed_memory() -> bool:
    """Have this process keep the memory that it frees, for its next training step; return whether that could be set.

    A training step on a CPU frees nearly all of its activations at its end. glibc would return them to the system, and the
    next step would wait for every page of them again (docs/results.md has figures).
    """
    if not _has_glibc():
        return False
    libc = ctypes.CDLL(None)
    # malloc.h: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, in bytes; the latter is at most 32 MiB on 64-bit systems.
    return bool(libc.mallopt(-1, 2**31 - 1) and libc.mallopt(-3, 2**25))


def return_freed_memory() -> None:
    """Give all freed memory back to the system.

    glibc before 2.38 finds few of the aligned blocks again that torch has freed (its bug 14581), and takes new ones instead.
    """
    if _has_glibc():
        ctypes.CDLL(None).malloc_trim(0)


def reset_peak_memory(device: torch.device) -> None:
    """Forget the peak that an earlier training of this process had, on `device` and where the system allows it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with suppress(OSError):
        # Linux: VmHWM becomes what the process holds now.
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def measure_peak_memory() -> float:
    """Return the peak of the memory that this process has held, in MiB."""
    status = Path("/proc/self/status")
    # Linux's ru_maxrss starts from the parent process's peak; this does not.
    if status.exists() and (peak := re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.M)):
        return int(peak[1]) / 1024
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset / 2**20
    import resource

    # Bytes on macOS, KiB elsewhere.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
