import json
import os
import socket
import subprocess
import sys

import pytest

from conftest import ROOT, TINY
from modeling_posgpt import PosGPTForCausalLM


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def launch(launcher, *command):
    """Run a script in two processes on the CPU, as the README says."""
    launchers = {
        "accelerate": ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
                       "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", str(free_port())],
        "torchrun": ["torch.distributed.run", "--nproc_per_node", "2", "--master_port", str(free_port())],
    }  # fmt: skip
    result = subprocess.run(
        [sys.executable, "-m", *launchers[launcher], *map(str, command)],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("launcher", ["accelerate", "torchrun"])
def test_two_processes_share_an_epoch_and_save_one_model(world, tmp_path, launcher):
    launch(
        launcher, "train_pretrain.py", "--train_file", world / "wiki.txt", "--output_dir", tmp_path / "model",
        "--num_train_epochs", 1, "--per_device_train_batch_size", 10, *TINY,
    )  # fmt: skip
    state = json.loads((tmp_path / "model" / "trainer_state.json").read_text())
    # 100 documents, 10 a process: ten steps for one process, five for two.
    assert state["global_step"] == 5
    model = PosGPTForCausalLM.from_pretrained(tmp_path / "model")
    assert model.config.vocab_size > 60


def test_two_processes_answer_like_one(run, world, tmp_path, tiny_pretrained):
    import evaluate_birthplace

    arguments = ["--model_name_or_path", tiny_pretrained["rotary"], "--test_file", world / "birth_dev.tsv"]
    run(evaluate_birthplace, *arguments, "--output_dir", tmp_path / "one")
    launch("torchrun", "evaluate_birthplace.py", *arguments, "--output_dir", tmp_path / "two")
    for name in ("predictions.txt", "metrics.json"):
        assert (tmp_path / "one" / name).read_text() == (tmp_path / "two" / name).read_text()
