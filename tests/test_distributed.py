import json
import os
import socket
import subprocess
import sys
from unittest import mock

import pytest
import torch

import evaluate_birthplace
import train_pretrain
from conftest import ROOT, TINY, history_of
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
        cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def alone(world, tmp_path_factory):
    """The folder of the run of one process that the runs of two have to equal, and its arguments."""
    folder = tmp_path_factory.mktemp("alone")
    arguments = ["--train_file", world / "wiki.txt", "--num_train_epochs", 1, "--logging_steps", 1, "--dropout", 0]
    arguments = [*map(str, arguments), "--learning_rate", "1e-3", *TINY]
    whole_batch = ["--per_device_train_batch_size", "20", "--output_dir", str(folder)]
    with mock.patch.object(sys, "argv", ["train_pretrain.py", *arguments, *whole_batch]):
        train_pretrain.main()
    return folder, arguments


@pytest.mark.parametrize("launcher", ["accelerate", "torchrun"])
def test_two_processes_train_like_one_with_twice_the_batch_and_save_one_model(alone, tmp_path, launcher):
    folder, arguments = alone
    output_dir = tmp_path / "model"
    launch(launcher, "train_pretrain.py", *arguments, "--per_device_train_batch_size", 10, "--output_dir", output_dir)
    # 100 documents, 10 a process: ten steps for one process, five for two.
    assert json.loads((output_dir / "trainer_state.json").read_text())["global_step"] == 5
    assert history_of(output_dir) == pytest.approx(history_of(folder), rel=1e-4)
    expected = PosGPTForCausalLM.from_pretrained(folder).state_dict()
    for name, weights in PosGPTForCausalLM.from_pretrained(output_dir).state_dict().items():
        torch.testing.assert_close(weights, expected[name], rtol=0, atol=1e-4)
    assert {file.name for file in output_dir.iterdir()} == {file.name for file in folder.iterdir()}


def test_two_processes_answer_like_one_even_a_single_question(run, world, tmp_path, tiny_pretrained):
    (tmp_path / "single.tsv").write_text((world / "birth_dev.tsv").read_text().splitlines()[0] + "\n")
    # One launch for both files: a start costs more than the answers.
    both = "import runpy, sys\nname, *rest = sys.argv\nfor file, folder in zip(rest[2::2], rest[3::2]):\n"
    both += "    sys.argv = ['evaluate_birthplace.py', *rest[:2], '--test_file', file, '--output_dir', folder]\n"
    both += "    runpy.run_path('evaluate_birthplace.py', run_name='__main__')\n"
    (tmp_path / "both.py").write_text(both)
    model = ["--model_name_or_path", tiny_pretrained["rotary"]]
    files = {"dev": world / "birth_dev.tsv", "single": tmp_path / "single.tsv"}
    for name, file in files.items():
        run(evaluate_birthplace, *model, "--test_file", file, "--output_dir", tmp_path / "one" / name)
    pairs = [path for name, file in files.items() for path in (file, tmp_path / "two" / name)]
    printed = launch("torchrun", tmp_path / "both.py", *model, *pairs)
    # Two processes that know nothing of each other would each answer everything and write every file.
    assert printed.count("Written: ") == len(files)
    for file in (f"{name}/{kind}" for name in files for kind in ("predictions.txt", "metrics.json")):
        assert (tmp_path / "one" / file).read_text() == (tmp_path / "two" / file).read_text()
