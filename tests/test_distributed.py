import itertools
import json
import os
import re
import subprocess
import sys
import time
from functools import partial
from unittest import mock

import accelerate.accelerator
import pytest
import torch
import transformers.training_args
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.state import DistributedType, PartialState
from accelerate.utils.launch import prepare_multi_gpu_env

import evaluate_birthplace
import train_finetune
import train_pretrain
from conftest import ROOT, TINY, history_of
from hub import find_free_port
from modeling_posgpt import PosGPTForCausalLM
from modeling_posgpt.layers import PosGPTDecoderLayer
from posgpt.training import muon
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.checkpoints import find_last_checkpoint

if not hasattr(os, "fork"):
    pytest.skip("needs a system that forks processes", allow_module_level=True)

CONFIGS = ROOT / "posgpt" / "recipes" / "accelerate"


def start(launcher, *command):
    """Start a script in two processes on the CPU, as the README says."""
    launchers = {
        "accelerate": ["accelerate.commands.launch", "--config_file", CONFIGS / "ddp.yaml", "--main_process_port", find_free_port()],
        "torchrun": ["torch.distributed.run", "--nproc_per_node", 2, "--master_port", find_free_port()],
        "machines": ["accelerate.commands.launch", "--config_file", CONFIGS / "multi_node.yaml", "--num_processes", 2],
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, launchers[launcher]), *map(str, command)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def launch(launcher, *command):
    """Run a script in two processes on the CPU and return what it printed."""
    process = start(launcher, *command)
    printed, errors = process.communicate()
    assert process.returncode == 0, printed + errors
    return printed


@pytest.fixture(scope="module")
def alone(world, tmp_path_factory):
    """The folder of the run of one process that the runs of two have to equal, and its arguments."""
    folder = tmp_path_factory.mktemp("alone")
    arguments = ["--train_file", world / "wiki.txt", "--num_train_epochs", 1, "--logging_steps", 2, "--dropout", 0]
    arguments = [*map(str, arguments), "--learning_rate", "1e-3", *TINY]
    whole_batch = ["--per_device_train_batch_size", "20", "--output_dir", str(folder)]
    with mock.patch.object(sys, "argv", ["train_pretrain.py", *arguments, *whole_batch]):
        train_pretrain.main()
    return folder, arguments


@pytest.mark.parametrize("launcher", ["accelerate", pytest.param("torchrun", marks=pytest.mark.slow)])
def test_two_processes_train_like_one_with_the_same_steps_and_save_one_model(alone, tmp_path, launcher):
    folder, arguments = alone
    output_dir = tmp_path / "model"
    command = ["-m", "posgpt", "pretrain", *arguments, "--total_train_batch_size", 20, "--output_dir", output_dir]
    printed = launch(launcher, *command)
    assert "Each training step reads 20 rows (processes × batches × rows per batch: 2 × 1 × 10)." in printed
    # 100 documents, 10 a process: ten steps for one process, five for two.
    assert json.loads((output_dir / "trainer_state.json").read_text())["global_step"] == 5
    assert history_of(output_dir) == pytest.approx(history_of(folder), rel=1e-4)
    # The fifth step's loss is in no log.
    losses = [json.loads((each / "train_results.json").read_text())["train_loss"] for each in (output_dir, folder)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    expected = PosGPTForCausalLM.from_pretrained(folder).state_dict()
    for name, weights in PosGPTForCausalLM.from_pretrained(output_dir).state_dict().items():
        torch.testing.assert_close(weights, expected[name], rtol=0, atol=1e-4)
    assert {file.name for file in output_dir.iterdir()} == {file.name for file in folder.iterdir()}


def test_two_processes_answer_like_one_even_a_single_question(world, tmp_path, tiny_pretrained, capfd):
    (tmp_path / "single.tsv").write_text((world / "birth_dev.tsv").read_text().splitlines()[0] + "\n")
    model = ["--model_name_or_path", tiny_pretrained["rotary"]]
    files = {"dev": world / "birth_dev.tsv", "single": tmp_path / "single.tsv"}
    for name, file in files.items():
        for count, folder in ((1, "one"), (2, "two")):
            fork(count, evaluate_birthplace, [*model, "--test_file", file, "--output_dir", tmp_path / folder / name])
    # Two processes that know nothing of each other would each answer everything and write every file.
    assert capfd.readouterr().out.count("Written: ") == 2 * len(files)
    for file in (f"{name}/{kind}" for name in files for kind in ("predictions.txt", "metrics.json")):
        assert (tmp_path / "one" / file).read_text() == (tmp_path / "two" / file).read_text()


# Processes, rows of each in a batch, batches in a training step: eight rows in all.
LAYOUTS = {"2x4": (2, 4, 1), "4x2": (4, 2, 1), "2x2x2": (2, 2, 2)}
OPTIMIZERS = {"adamw": [], "muon": ["--use_muon", "true", "--learning_rate", "2e-3"]}
FAST = [("windows", "muon", "2x2x2"), ("finetuning", "adamw", "2x4")]


def fork(count, script, arguments, **environment):
    """Run a script's `main` in `count` processes on the CPU, as a launcher would, and wait for them."""
    # In a forked process, nothing has to be imported again.
    common = {
        "WORLD_SIZE": count,
        "LOCAL_WORLD_SIZE": count,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": find_free_port(),
    }

    def work(rank, *_):
        torch.set_num_threads(1)
        own = common | {"RANK": rank, "LOCAL_RANK": rank, "OMP_NUM_THREADS": 1}
        os.environ |= {name: str(value) for name, value in own.items()} if count > 1 or environment else {}
        os.environ |= environment
        # What this process was before it was forked.
        PartialState._reset_state()
        if environment:
            # Accelerate has no FSDP2 on CPUs, unless it takes gloo for a backend of GPUs.
            PartialState._prepare_backend = lambda self, *_: ("gloo", DistributedType.MULTI_GPU)
        sys.argv = [script.__name__, *map(str, arguments)]
        script.main()

    torch.multiprocessing.start_processes(work, nprocs=count, start_method="fork")


@pytest.fixture(scope="module")
def train_eight_rows(world, tmp_path_factory):
    """Return the folder of a training of 24 steps of 8 rows, in float32 and without dropout."""
    folders = {}
    shared = ["--max_steps", 24, "--logging_steps", 1, "--dropout", 0, "--learning_rate", "1e-3", *TINY]
    shared += ["--save_strategy", "steps", "--save_steps", 15]
    corpus, pairs, dev = (world / name for name in ("wiki.txt", "birth_places_train.tsv", "birth_dev.tsv"))
    evaluation = ["--validation_file", dev, "--eval_strategy", "steps", "--eval_steps", 12]
    evaluation += ["--per_device_eval_batch_size", 3]
    kinds = {
        # The 13th step reads the last 4 of 100 documents, the 21st the last 7 of 167 windows, the 9th the last 4 of 68 pairs.
        "span_corruption": (train_pretrain, ["quick", "--train_file", corpus]),
        "windows": (train_pretrain, ["windows", "--train_file", corpus, "--questions_file", pairs]),
        "finetuning": (train_finetune, ["quick", "--vocabulary_file", corpus, "--train_file", pairs, *evaluation]),
    }

    def train(kind, optimizer, layout=(1, 8, 1), *arguments, **environment):
        key = (kind, optimizer, layout, *arguments, *environment)
        if key not in folders:
            folder = tmp_path_factory.mktemp(kind) / optimizer
            count, size, accumulated = layout
            divided = ["--per_device_train_batch_size", size, "--gradient_accumulation_steps", accumulated]
            script, own = kinds[kind]
            command = [*own, *shared, *OPTIMIZERS[optimizer], *divided, *arguments, "--output_dir", folder]
            # In bfloat16, Newton-Schulz iterations enlarge what differs in the last bits.
            with mock.patch.object(muon, "bf16_is_fast", lambda device=None: False):
                fork(count, script, command, **environment)
            folders[key] = folder
        return folders[key]

    return train


@pytest.mark.parametrize(
    "kind, optimizer, layout",
    [
        pytest.param(*case, marks=() if case in FAST else pytest.mark.slow)
        for case in itertools.product(("span_corruption", "windows", "finetuning"), OPTIMIZERS, LAYOUTS)
    ],
)
def test_losses_do_not_depend_on_how_many_processes_share_a_step(train_eight_rows, kind, optimizer, layout):
    whole, divided = train_eight_rows(kind, optimizer), train_eight_rows(kind, optimizer, LAYOUTS[layout])
    count = LAYOUTS[layout][0]
    assert len(list((divided / "checkpoint-24").glob("rng_state_*.pth"))) == count
    for name in ("loss", "grad_norm", "eval_loss", "eval_accuracy"):
        expected = history_of(whole, name)
        assert len(expected) == (2 * (kind == "finetuning") if name.startswith("eval") else 24)
        assert history_of(divided, name) == pytest.approx(expected, rel=1e-5, abs=1e-5), name
    states = [json.loads((folder / "trainer_state.json").read_text()) for folder in (whole, divided)]
    assert states[0]["num_input_tokens_seen"] == states[1]["num_input_tokens_seen"]


def test_a_checkpoint_of_two_processes_is_continued_by_one(train_eight_rows):
    divided = train_eight_rows("finetuning", "adamw", LAYOUTS["2x4"])
    resume = ["--resume_from_checkpoint", divided / "checkpoint-15"]
    assert history_of(train_eight_rows("finetuning", "adamw", (1, 8, 1), *resume)) == pytest.approx(
        history_of(divided), rel=1e-5
    )


@pytest.fixture
def sharding():
    """The variables with which `accelerate launch` starts FSDP2."""
    command = ["--config_file", str(CONFIGS / "fsdp2.yaml"), "--main_process_port", "0", "train_pretrain.py"]
    arguments, *_ = _validate_launch_command(launch_command_parser().parse_args(command))
    variables = prepare_multi_gpu_env(arguments)
    return {name: variables[name] for name in variables if name.startswith("FSDP")} | {
        "ACCELERATE_USE_FSDP": variables["ACCELERATE_USE_FSDP"],
        "ACCELERATE_TORCH_DEVICE": "cpu",
    }


def assert_same_training(folder, whole):
    for name in ("loss", "grad_norm"):
        assert history_of(folder, name) == pytest.approx(history_of(whole, name), rel=1e-5, abs=1e-5), name
    expected = PosGPTForCausalLM.from_pretrained(whole).state_dict()
    for name, weights in PosGPTForCausalLM.from_pretrained(folder).state_dict().items():
        torch.testing.assert_close(weights, expected[name], rtol=0, atol=1e-3)


def test_two_processes_with_half_of_each_weight_train_like_one_and_save_a_whole_model(
    world, train_eight_rows, sharding
):
    options = ["--use_cpu", "false", "--validation_file", world / "birth_dev.tsv", "--eval_strategy", "steps"]
    divided = train_eight_rows("windows", "muon", LAYOUTS["2x4"], *options, "--eval_steps", 12, **sharding)
    assert len(history_of(divided, "eval_answers")) == 2
    assert (divided / "checkpoint-24" / "optimizer_0" / "__1_0.distcp").is_file()
    whole = train_eight_rows("windows", "muon")
    assert_same_training(divided, whole)
    assert {file.name for file in divided.glob("*.*")} == {file.name for file in whole.glob("*.*")}
    configurations = [json.loads((folder / "config.json").read_text()) for folder in (divided, whole)]
    assert configurations[0] == configurations[1]


def test_sharded_training_in_bf16_keeps_residuals_logits_and_losses_in_float32(
    train_eight_rows, sharding, monkeypatch
):
    add_residuals = PosGPTDecoderLayer.add_residuals

    def check(self, hidden_states, attn_output):
        added = add_residuals(self, hidden_states, attn_output)
        assert (hidden_states.dtype, attn_output.dtype, added.dtype) == (torch.float32, torch.bfloat16, torch.float32)
        return added

    # The forked processes have it, too.
    monkeypatch.setattr(PosGPTDecoderLayer, "add_residuals", check)
    # Both ask for a GPU, or for a CPU that transformers is told of.
    monkeypatch.setattr(transformers.training_args, "is_torch_bf16_gpu_available", lambda: True)
    monkeypatch.setattr(accelerate.accelerator, "is_bf16_available", lambda *_: True)
    options = ["--bf16", "true", "--max_steps", 6]
    divided = train_eight_rows("windows", "adamw", LAYOUTS["2x4"], "--use_cpu", "false", *options, **sharding)
    whole = train_eight_rows("windows", "adamw", (1, 8, 1), *options)
    losses = history_of(divided)
    assert losses == pytest.approx(history_of(whole), rel=1e-2)
    # Above 2, bfloat16's numbers are 1/64 apart, and the mean of two processes' is a multiple of 1/128.
    assert min(losses) > 2 and any(loss * 128 % 1 for loss in losses)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_shards_of_four_processes_are_continued_by_fewer(train_eight_rows, sharding, optimizer, count):
    sharded = ["--use_cpu", "false", "--save_total_limit", 5]
    four = train_eight_rows("windows", optimizer, LAYOUTS["4x2"], *sharded, **sharding)
    resume = [*sharded, "--resume_from_checkpoint", four / "checkpoint-15"]
    fewer = train_eight_rows("windows", optimizer, (count, 8 // count, 1), *resume, **sharding)
    whole = train_eight_rows("windows", optimizer)
    assert_same_training(four, whole)
    assert_same_training(fewer, whole)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["accelerate", "machines"])
def test_a_killed_process_ends_the_run_and_leaves_the_last_checkpoint(alone, tmp_path, launcher):
    _, arguments = alone
    code = """
import os, runpy, signal
from posgpt.training.trainer import PosGPTTrainer
step = PosGPTTrainer.training_step
def train(self, *args):
    if (os.environ["RANK"], self.state.global_step) == ("1", 3):
        print("killed", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, *args)
PosGPTTrainer.training_step = train
runpy.run_path("train_pretrain.py", run_name="__main__")
"""
    (tmp_path / "train.py").write_text(code)
    folder = tmp_path / "model"
    command = [tmp_path / "train.py", *arguments, "--total_train_batch_size", 20, "--output_dir", folder]
    command += ["--save_strategy", "steps", "--save_steps", 2]
    address = ["--main_process_ip", "127.0.0.2", "--main_process_port", find_free_port()]
    machines = [[*address, "--machine_rank", rank] for rank in (0, 1)] if launcher == "machines" else [[]]
    processes = [start(launcher, *machine, *command) for machine in machines]
    # The last machine's is the one that is killed.
    while "killed" not in (line := processes[-1].stdout.readline()):
        assert line
    killed = time.monotonic()
    # Seconds, unless others keep the processors busy.
    errors = [process.communicate(timeout=300)[1] for process in processes]
    print(f"{launcher}: ended {time.monotonic() - killed:.0f} s after the kill")
    assert all(process.returncode for process in processes)
    root_cause = errors[-1].split("Root Cause")[1]
    assert re.search(r"rank +: 1 .*\n.*exitcode +: -9 .*\(SIGKILL\)", root_cause)
    assert find_last_checkpoint(folder) == folder / "checkpoint-2"
    if launcher == "machines":
        checkpoint = f"the last whole checkpoint is {folder / 'checkpoint-2'}."
        line = rf"error: {folder}: training stopped at step 3: another process cannot be reached: .*; {checkpoint}"
        assert re.search(line, errors[0]) and "Traceback" not in errors[0].split("error: ")[0]


@pytest.mark.slow
def test_the_line_for_slurm_starts_one_training_on_two_machines(alone, tmp_path):
    folder, arguments = alone
    comments = re.findall(r"^#(.*)$", (CONFIGS / "multi_node.yaml").read_text(), re.M)
    line = re.search(r"srun .*?…'", "\n".join(comments).replace("\\\n", " "), re.S)[0]
    # Both machines are this one, and each has one processor instead of 8 GPUs.
    stubs = {
        "srun": """
[ "$1 $2 $3 $4 $5 $6" = "--nodes 2 --ntasks-per-node 1 --gpus-per-node 8" ] || exit 2
export SLURM_NNODES=2 SLURM_JOB_NODELIST=node[2-3]
for node in 0 1; do SLURM_NODEID=$node "${@:7}" & processes="$processes $!"; done
for process in $processes; do wait $process || exit; done""",
        "scontrol": '[ "$*" = "show hostnames node[2-3]" ] && printf "127.0.0.%s\\n" 2 3',
        "accelerate": f'exec {sys.executable} -m accelerate.commands.accelerate_cli "$@"',
    }
    for name, code in stubs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{code}\n")
        (tmp_path / name).chmod(0o755)
    command = ["--total_train_batch_size", "20", "--output_dir", str(tmp_path / "model"), *arguments]
    line = line.replace("$((8 *", "$((1 *").replace("windows …", " ".join(command))
    line = line.replace("--machine_rank", f"--main_process_port {find_free_port()} --machine_rank")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = str(ROOT)
    result = subprocess.run(["bash", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Each training step reads 20 rows (processes × batches × rows per batch: 2 × 1 × 10)." in result.stdout
    assert history_of(tmp_path / "model") == pytest.approx(history_of(folder), rel=1e-4)


def test_the_rows_of_a_step_are_divided_among_processes_and_batches(tmp_path):
    build = partial(PosGPTTrainingArguments, str(tmp_path), gradient_accumulation_steps=2, use_cpu=True)
    with mock.patch.object(PosGPTTrainingArguments, "world_size", 2):
        assert build(total_train_batch_size=8).per_device_train_batch_size == 2
        with pytest.raises(ValueError, match="total_train_batch_size 9 is not a multiple of 4, the number of batches"):
            build(total_train_batch_size=9)
