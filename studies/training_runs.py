"""The trainings of a study: each one command, kept as long as its arguments stay the same, resumed where it stopped."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from data_scripts.text_files import BadInput, written_whole
from training import WEIGHTS_FILE

ROOT = Path(__file__).parent.parent
RECORD = "study.json"


def trained(name: str, arguments: list[str], folder: Path, processes: int = 1) -> dict:
    """Train with `train_pretrain.py` into `folder`, unless a finished training of the same arguments is there.

    An interrupted one goes on from its last checkpoint; one with other arguments is replaced.

    Args:
        name: What the study calls it.
        arguments: For `train_pretrain.py`; what they name has to be absolute, or below the project's root.
        processes: With more than one, `accelerate` launches them.

    Returns:
        `minutes` of training (of the whole, reckoned from the steps of the last start), `memory` in MiB, the largest of any
        process of it, `characters` read, and `losses`, pairs of step and loss.

    Raises:
        BadInput: the training failed; it has said why.
    """
    record = folder / RECORD
    before = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    if before.get("arguments") == arguments and "figures" in before:
        return before["figures"]
    checkpoints = list(folder.glob("checkpoint-*")) if before.get("arguments") == arguments else []
    if not checkpoints and folder.exists():
        shutil.rmtree(folder)
    with written_whole(record) as file:
        json.dump({"arguments": arguments}, file)
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(processes)]
    command = [*arguments, "--output_dir", str(folder)]
    command += ["--resume_from_checkpoint", "last"] if checkpoints else []
    print(f"\n== {name}\n$ python train_pretrain.py {' '.join(command)}", flush=True)
    process = subprocess.Popen([*launcher, "train_pretrain.py", *command], cwd=ROOT)
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except KeyboardInterrupt:
        process.wait()
        raise
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or not (folder / WEIGHTS_FILE).is_file():
        raise BadInput(f"{name!r} failed; its own message stands above.")
    state = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
    seconds = json.loads((folder / "train_results.json").read_text(encoding="utf-8"))["train_runtime"]
    done_before = max((int(checkpoint.name.split("-")[1]) for checkpoint in checkpoints), default=0)
    figures = {
        "minutes": seconds / 60 * state["global_step"] / max(state["global_step"] - done_before, 1),
        # Linux says KiB, macOS bytes.
        "memory": usage.ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2),
        "characters": state["num_input_tokens_seen"],
        "losses": [(entry["step"], entry["loss"]) for entry in state["log_history"] if "loss" in entry],
    }
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    with written_whole(record) as file:
        json.dump({"arguments": arguments, "figures": figures}, file)
    return figures
