"""The trainings of a study: each one command, kept as long as its arguments and files stay the same, resumed where it stopped."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from data_scripts.text_files import BadInput, written_whole
from training import WEIGHTS_FILE, last_checkpoint

ROOT = Path(__file__).parent.parent
RECORD = "study.json"


def key_of(arguments: list[str]) -> dict[str, str]:
    """What a training depends on: its arguments, and the contents of the recipe and files among them."""
    files = {name: ROOT / name for name in arguments if (ROOT / name).is_file()}
    return {
        "arguments": " ".join(arguments),
        **{name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()},
    }


def trained(name: str, arguments: list[str], folder: Path, processes: int = 1) -> dict:
    """Train with `train_pretrain.py` into `folder`, unless a finished training of the same arguments and files is there.

    An interrupted one goes on from its last checkpoint; one of other arguments or files is replaced.

    Args:
        name: What the study calls it.
        arguments: For `train_pretrain.py`; what they name has to be absolute, or below the project's root.
        processes: With more than one, `accelerate` launches them.

    Returns:
        `minutes` of training (of the whole, reckoned from the steps of the last start), `memory` in MiB, the most that the
        first process held, the accelerator's where there is one, `characters` read, and `losses`, pairs of step and loss.

    Raises:
        BadInput: the training failed; it has said why.
    """
    arguments = [*arguments, "--include_num_input_tokens_seen", "true"]
    record, key = folder / RECORD, key_of(arguments)
    before = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    if before.get("key") != key:
        if folder.exists():
            shutil.rmtree(folder)
        before = {"key": key}
        with written_whole(record) as file:
            json.dump(before, file)
    if "figures" in before:
        return before["figures"]
    done_before = 0
    # A folder that has weights is finished: only its figures were not kept.
    if not (folder / WEIGHTS_FILE).is_file():
        launcher = [sys.executable]
        if processes > 1:
            launcher += ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(processes)]
        command = [*arguments, "--output_dir", str(folder)]
        if checkpoint := last_checkpoint(folder):
            done_before = int(checkpoint.name.split("-")[1])
        command += ["--resume_from_checkpoint", "last"] if checkpoint else ["--overwrite_output_dir"]
        print(f"\n== {name}\n$ python train_pretrain.py {' '.join(command)}", flush=True)
        # A training that outlives its study would have the next start train beside it.
        before_term = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        with subprocess.Popen([*launcher, "train_pretrain.py", *command], cwd=ROOT) as process:
            try:
                process.wait()
            finally:
                process.terminate()
                signal.signal(signal.SIGTERM, before_term)
        if process.returncode or not (folder / WEIGHTS_FILE).is_file():
            raise BadInput(f"{name!r} failed; its own message stands above.")
    state, results = (
        json.loads((folder / file).read_text(encoding="utf-8"))
        for file in ("trainer_state.json", "train_results.json")
    )
    losses = [(entry["step"], entry["loss"]) for entry in state["log_history"] if "loss" in entry]
    figures = {
        "minutes": results["train_runtime"] / 60 * state["global_step"] / max(state["global_step"] - done_before, 1),
        "memory": results.get("peak_gpu_memory_mib", results["peak_memory_mib"]),
        "characters": state["num_input_tokens_seen"],
        # Too short a training logs none.
        "losses": losses or [(state["global_step"], results["train_loss"])],
    }
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    with written_whole(record) as file:
        json.dump(before | {"figures": figures}, file)
    return figures
