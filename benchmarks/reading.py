"""How long a training on a big corpus takes to begin, how fast it goes, and what it holds in memory.

    posgpt world --num_people 100000 --biographies_per_person 10 --output_dir runs/big
    python -m benchmarks.reading windows --train_file runs/big/wiki.txt --position_embedding_type rotary

Takes the options of `posgpt pretrain`. Two trainings begin, each in a process of its own that ends after STEPS training steps, and
leave nothing behind: the first one with an empty cache of `datasets`, the second one with what the first has written there.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import psutil
from transformers import TrainerCallback, trainer

from benchmarks.throughput import describe_machine
from data_scripts.errors import BadInput, exit_on_bad_input
from posgpt import pretrain
from posgpt.tables import format_table
from posgpt.training.hardware import measure_peak_memory, read_process_memory

STEPS = 20
STARTS = ("the first one", "the second one")


class MeasureCallback(TrainerCallback):
    """Measures a training: seconds since its process began, and memory."""

    def __init__(self):
        self.figures: dict[str, float] = {}

    def _read_clock(self) -> float:
        return time.time() - psutil.Process().create_time()

    def on_init_end(self, args, state, control, **kwargs):
        self.peak = measure_peak_memory()

    def on_train_begin(self, args, state, control, **kwargs):
        self.figures["CPU seconds until training begins"] = time.process_time()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 1:
            self.figures["seconds until the first step is done"] = self._read_clock()
            self.read = state.num_input_tokens_seen
        elif state.global_step == state.max_steps:
            seconds = self._read_clock() - self.figures["seconds until the first step is done"]
            self.figures["characters per second of the next ones"] = (
                state.num_input_tokens_seen - self.read
            ) / seconds
            # What is not mapped from a file; only Linux says it.
            self.figures["anonymous memory, MiB"] = read_process_memory("RssAnon") or float("nan")
            # A training forgets the peak that its process had before.
            self.figures["peak with mapped files, MiB"] = max(self.peak, measure_peak_memory())


def train_and_measure(result: str) -> None:
    """Run `posgpt pretrain` with this process's options; write what it measured to a JSON file."""
    measured = MeasureCallback()
    cast(list[Any], trainer.DEFAULT_CALLBACKS).append(measured)
    pretrain.main()
    Path(result).write_text(json.dumps(measured.figures), encoding="utf-8")


def measure_start(options: list[str], folder: Path) -> dict[str, Any]:
    """Train for a few steps in a process of its own, with the cache in `folder`; return its figures.

    Raises:
        BadInput: it ended with an error.
    """
    result = folder / "figures.json"
    code = f"from benchmarks.reading import train_and_measure; train_and_measure({str(result)!r})"
    command = [sys.executable, "-c", code, *options, "--max_steps", str(STEPS), "--save_strategy", "no"]
    command += ["--include_num_input_tokens_seen", "true", "--report_to", "none"]
    command += ["--output_dir", str(folder / "out"), "--overwrite_output_dir"]
    done = subprocess.run(
        command, env=os.environ | {"HF_DATASETS_CACHE": str(folder / "cache")}, stdout=subprocess.DEVNULL
    )
    if done.returncode:
        raise BadInput("posgpt pretrain ended with the error above; give options that it takes.")
    return json.loads(result.read_text(encoding="utf-8"))


@exit_on_bad_input()
def main() -> None:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return
    with tempfile.TemporaryDirectory() as name:
        figures = {start: measure_start(sys.argv[1:], Path(name)) for start in STARTS}
        cache = sum(file.stat().st_size for file in Path(name, "cache").rglob("*") if file.is_file())
    first, *_ = figures.values()
    rows = [(name, *(f"{of_start[name]:,.1f}" for of_start in figures.values())) for name in first]
    rows.append(("cache on disk, MB", f"{cache / 1e6:,.2f}", ""))
    print(f"{describe_machine()}; {' '.join(sys.argv[1:])}\n\n{format_table(('start', *figures), rows)}")


if __name__ == "__main__":
    main()
