"""No lost work: what a kill, a full disk or damaged files leave behind, and that training goes on from it exactly."""

import math
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import psutil
import pytest
import torch
from transformers import TrainerState

import train_finetune
import train_pretrain
from conftest import ROOT, TINY, history_of, wait_until
from data_scripts.files import write_atomically
from hub import find_free_port
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.callbacks import LossCallback
from posgpt.training.checkpoints import (
    LOCK_FILE,
    choose_checkpoint,
    delete_old_checkpoints,
    find_damage,
    seal_checkpoint,
)
from posgpt.training.trainer import PosGPTTrainer
from test_scripts import assert_same_run

FILES = ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "config.json"]
FILES += ["checksums.json"]
DAMAGES = {
    "truncated": lambda file: os.truncate(file, file.stat().st_size // 2),
    "emptied": lambda file: os.truncate(file, 0),
    "removed": Path.unlink,
    "replaced": lambda file: file.write_bytes(b"[]"),
    "changed": lambda file: file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes())),
}
KINDS = ["span_corruption", "windows", "finetuning"]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """A forked process cannot use the threads of its parent, and how many there are changes the last bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def commands(world) -> dict[str, tuple]:
    """The script and the arguments of each kind of training, all with dropout; every second step is saved."""
    corpus, pairs, dev = world / "wiki.txt", world / "birth_places_train.tsv", world / "birth_dev.tsv"
    shared = ["--max_steps", 6, "--save_strategy", "steps", "--save_steps", 2, "--save_total_limit", 2, *TINY]
    shared += ["--logging_steps", 1, "--per_device_train_batch_size", 16, "--learning_rate", "1e-3", "--dropout", 0.1]
    evaluation = ["--validation_file", dev, "--eval_strategy", "steps", "--eval_steps", 2]
    return {
        "span_corruption": (train_pretrain, ["--train_file", corpus, *shared]),
        "windows": (
            train_pretrain,
            ["windows", "--train_file", corpus, "--questions_file", pairs, "--first_shares", 0.1, 0.3, *shared],
        ),
        "finetuning": (
            train_finetune,
            ["--vocabulary_file", corpus, "--train_file", pairs, *evaluation, *shared],
        ),
    }


@pytest.fixture(scope="module")
def uninterrupted(commands, tmp_path_factory):
    """Return the folder of a kind of training that nothing interrupted."""
    folders: dict[str, Path] = {}

    def find(kind: str) -> Path:
        if kind not in folders:
            folders[kind] = tmp_path_factory.mktemp(kind) / "whole"
            assert wait(fork(*commands[kind], folders[kind])) == 0
        return folders[kind]

    return find


def fork(script, arguments, folder: Path, where: str = "", number: int = 0, act=None, **environment: str) -> int:
    """Train in a forked process; `act` there at a training step or before the folder is written to; return its id.

    Args:
        where: A pattern of what comes after `act`: "training_step", or the event and the paths of a write to `folder`.
        number: Which of them, from 1.
        environment: Variables of the process.
    """
    if not hasattr(os, "fork"):
        pytest.skip("needs a system that forks processes")
    if pid := os.fork():
        return pid
    status = 1
    try:
        os.environ.update(environment)
        seen = 0

        def count(event: str, given: tuple) -> None:
            nonlocal seen
            if event in ("training_step", "open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
                seen += str(folder) in str(given) and re.search(where, f"{event} {given}") is not None
                if act and seen == number:
                    act()

        step = PosGPTTrainer.training_step
        PosGPTTrainer.training_step = lambda *args: (sys.audit("training_step", folder), step(*args))[1]
        sys.addaudithook(count)
        sys.stdout = sys.stderr = open(os.devnull, "w")
        sys.argv = [script.__name__, *map(str, arguments), "--output_dir", str(folder)]
        script.main()
        status = 0
    finally:
        os._exit(status)


def wait(pid: int, seconds: float = 300) -> int:
    """Wait for a process that `fork` started and return its exit status, negative for a signal."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    pytest.fail(f"the training is still running after {seconds} seconds")


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    "kind, where, most",
    # Each with its number of writes: all that is saved at steps 2 to 6, or the moves at the end.
    [("windows", "checkpoint-", 210), ("finetuning", "checkpoint-", 210), ("finetuning", "os.rename.*unfinished", 15)],
)
def test_a_killed_run_goes_on_by_itself_and_ends_bit_for_bit_as_the_uninterrupted_one(
    run, commands, uninterrupted, tmp_path, kind, where, most
):
    (script, arguments), folder = commands[kind], tmp_path / "out"
    number = random.Random(f"{kind} {where}").randint(1, most)
    auto = [*arguments, "--resume_from_checkpoint", "auto"]
    # Another model is to be replaced; no part of it may end up beside parts of the new one.
    folder.mkdir()
    (folder / "model.safetensors").touch()
    killed = fork(script, [*auto, "--overwrite_output_dir"], folder, where, number, kill_itself)
    assert wait(killed) == -signal.SIGKILL
    assert (folder / "model.safetensors").exists() != (folder / ".unfinished").exists()
    (folder / "model.safetensors").unlink(missing_ok=True)
    run(script, *auto, "--output_dir", folder)
    assert_same_run(uninterrupted(kind), folder)
    # Started once more by a launcher, it has nothing to do.
    assert "already holds a finished model; there is nothing to resume" in run(script, *auto, "--output_dir", folder)
    assert_same_run(uninterrupted(kind), folder)


def test_older_checkpoints_are_deleted_only_when_the_new_one_is_whole(commands, tmp_path):
    (script, arguments), folder = commands["span_corruption"], tmp_path / "out"
    # Each step's checksums are three writes: opening, syncing and renaming them.
    killed = fork(script, [*arguments, "--save_total_limit", 1], folder, r"\.checksums\.json", 4, kill_itself)
    assert wait(killed) == -signal.SIGKILL
    damages = {checkpoint.name: find_damage(checkpoint) for checkpoint in folder.glob("checkpoint-*")}
    assert damages == {"checkpoint-2": None, "checkpoint-4": "was cut off while being saved"}


def test_of_the_checkpoints_that_are_kept_one_is_the_best(tmp_path):
    for limit, kept in ((0, {1, 2, 3, 4}), (None, {1, 2, 3, 4}), (3, {1, 3, 4}), (2, {1, 4}), (1, {1, 4})):
        for step in (1, 2, 3, 4):
            (tmp_path / f"checkpoint-{step}").mkdir(exist_ok=True)
        delete_old_checkpoints(tmp_path, limit, str(tmp_path / "checkpoint-1"))
        assert {folder.name for folder in tmp_path.iterdir()} == {f"checkpoint-{step}" for step in kept}


def test_a_second_run_is_refused_until_the_first_is_killed(run, commands, uninterrupted, tmp_path):
    (script, arguments), folder = commands["span_corruption"], tmp_path / "out"
    command = [*arguments, "--output_dir", folder, "--resume_from_checkpoint", "auto"]
    pid = fork(script, arguments, folder, "training_step", 5, lambda: signal.pause())
    try:
        # The pause follows; a training that has failed would never save it.
        wait_until(
            lambda: find_damage(folder / "checkpoint-4") is None,
            lambda: psutil.Process(pid).status() != psutil.STATUS_ZOMBIE,
        )
        line = f"^error: {re.escape(str(folder))}: another run is writing there; .*--output_dir.$"
        with pytest.raises(SystemExit, match=line):
            run(script, *command)
    finally:
        os.kill(pid, signal.SIGKILL)
    assert wait(pid) == -signal.SIGKILL and (folder / LOCK_FILE).exists()
    run(script, *command)
    assert_same_run(uninterrupted("span_corruption"), folder)
    assert not (folder / LOCK_FILE).exists()


def fork_all(processes: int, script, arguments, folder: Path) -> list[int]:
    """Train in one forked process, or in several as a launcher would start them; return their ids."""
    if processes == 1:
        return [fork(script, arguments, folder)]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_free_port())}
    shared |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(processes))
    # One process reads 16 rows in a training step.
    arguments = [*arguments, "--per_device_train_batch_size", 16 // processes]
    return [fork(script, arguments, folder, RANK=str(i), LOCAL_RANK=str(i), **shared) for i in range(processes)]


@pytest.mark.slow
@pytest.mark.parametrize("processes, most", [(1, 34), (2, 17)])
@pytest.mark.parametrize("kind", KINDS)
def test_runs_that_are_killed_again_and_again_end_as_the_uninterrupted_one(commands, tmp_path, kind, processes, most):
    (script, arguments), rng = commands[kind], random.Random(f"{processes} {kind}")
    auto = [*arguments, "--resume_from_checkpoint", "auto"]
    start = time.monotonic()
    assert not any(wait(pid) for pid in fork_all(processes, script, arguments, tmp_path / "whole"))
    seconds = time.monotonic() - start
    assert len(list((tmp_path / "whole" / "checkpoint-6").glob("rng_state*.pth"))) == processes
    kills = finished = 0
    while kills < most:
        folder = tmp_path / str(finished)
        pids = fork_all(processes, script, auto, folder)
        # The first third is for reading the files.
        time.sleep(rng.uniform(seconds / 3, seconds * 1.2))
        rng.shuffle(pids)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            # A launcher ends the other one when it has seen that the first is gone.
            time.sleep(rng.uniform(0, 0.5) if processes > 1 else 0)
        kills += any([wait(pid) for pid in pids])
        if (folder / "model.safetensors").exists():
            assert_same_run(tmp_path / "whole", folder)
            finished += 1
    print(f"{kind}, {processes} processes: {kills} kills, {finished} runs to the end")
    assert finished


@pytest.fixture
def saved(uninterrupted, tmp_path) -> Path:
    """A folder with the checkpoints of steps 4 and 6, and without the finished model."""
    folder = shutil.copytree(uninterrupted("span_corruption"), tmp_path / "saved")
    (folder / "model.safetensors").unlink()
    assert [checkpoint.name for checkpoint in sorted(folder.glob("checkpoint-*"))] == ["checkpoint-4", "checkpoint-6"]
    return folder


def choose(folder: Path, resume: object) -> str | None:
    """Return the name of the checkpoint that is resumed from."""
    arguments = PosGPTTrainingArguments(str(folder), use_cpu=True, resume_from_checkpoint=str(resume))
    chosen = choose_checkpoint(arguments)
    return chosen and Path(chosen).name


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_checkpoint_with_a_damaged_file_is_skipped_in_one_line(saved, capsys, damage):
    kept = shutil.copytree(saved / "checkpoint-6", saved.parent / "kept")
    assert choose(saved, "last") == "checkpoint-6" and not capsys.readouterr().out
    for name in FILES:
        DAMAGES[damage](saved / "checkpoint-6" / name)
        if (damage, name) == ("removed", "checksums.json"):
            # As earlier versions saved them.
            assert choose(saved, "last") == "checkpoint-6"
            (saved / "checkpoint-6" / "trainer_state.json").unlink()
        for resume in ("last", "auto"):
            assert choose(saved, resume) == "checkpoint-4"
            (line,) = capsys.readouterr().out.splitlines()
            assert re.search(
                rf"checkpoint-6 (has (another|no) {name} |was cut off).*; training resumes from .*-4\.", line
            )
        with pytest.raises(ValueError, match="checkpoint-6: no whole checkpoint to resume from"):
            choose(saved, saved / "checkpoint-6")
        shutil.rmtree(saved / "checkpoint-6")
        shutil.copytree(kept, saved / "checkpoint-6")


def test_without_a_whole_checkpoint_last_is_refused_and_auto_begins(saved, capsys):
    for checkpoint in saved.glob("checkpoint-*"):
        (checkpoint / "optimizer.pt").unlink()
    missing = r"checkpoint-6 has no optimizer.pt that can be read \(No such file or directory\), checkpoint-4 has .*"
    with pytest.raises(ValueError, match=rf"no whole checkpoint to resume from \({missing}\); give") as error:
        choose(saved, "last")
    assert "\n" not in str(error.value)
    assert choose(saved, "auto") is None and "training resumes from the start" in capsys.readouterr().out
    assert choose(saved / "new", "auto") is None and not capsys.readouterr().out


def test_an_earlier_checkpoint_is_resumed_from_only_if_the_later_ones_may_go(run, commands, saved):
    script, arguments = commands["span_corruption"]
    command = [*arguments, "--output_dir", saved, "--resume_from_checkpoint", saved / "checkpoint-4", "--max_steps", 5]
    with pytest.raises(SystemExit, match=r"holds later checkpoints \(checkpoint-6\), which `last` would resume from"):
        run(script, *command)
    assert choose(saved, "last") == "checkpoint-6"
    run(script, *command, "--overwrite_output_dir", "--save_strategy", "no")
    assert [folder.name for folder in saved.glob("checkpoint-*")] == ["checkpoint-4"]


def test_a_resumed_run_takes_the_rates_that_it_is_given(run, commands, saved, tmp_path):
    (script, arguments), other = commands["span_corruption"], shutil.copytree(saved, tmp_path / "other")
    resume = [*arguments, "--resume_from_checkpoint", "last", "--max_steps", 8, "--output_dir"]
    run(script, *resume, saved)
    rates = "--learning_rate 5e-4 --weight_decay 0.03 --adam_beta2 0.5 --adam_epsilon 1e-7"
    run(script, *resume, other, *rates.split())
    same, halved = history_of(saved, "learning_rate"), history_of(other, "learning_rate")
    assert halved == pytest.approx([*same[:6], same[6] / 2, same[7] / 2])
    state = torch.load(other / "checkpoint-8" / "optimizer.pt", weights_only=True)
    assert {group["weight_decay"] for group in state["param_groups"]} == {0.0, 0.03}
    assert {(group["betas"], group["eps"]) for group in state["param_groups"]} == {((0.9, 0.5), 1e-7)}


def test_a_training_on_other_rows_is_not_resumed(run, commands, saved, world, tmp_path):
    script, arguments = commands["span_corruption"]
    resume = [*arguments, "--output_dir", saved, "--resume_from_checkpoint", "last", "--max_steps", 7]
    shorter = tmp_path / "shorter.txt"
    shorter.write_text(
        "".join((world / "wiki.txt").read_text(encoding="utf-8").splitlines(True)[:-1]), encoding="utf-8"
    )
    for change, match in (
        (["--seed", 7], "[^_]seed was 42"),
        (["--train_sampling_strategy", "random"], "train_sampling_strategy was sequential"),
        (["--first_shares", 0.5], r"first_shares was \[\]"),
        # With 64 rows a step, all of an epoch's steps would have been made.
        (["--per_device_train_batch_size", 64], "total_train_batch_size was 16"),
        (["--train_file", shorter], r"train_file was wiki.txt \(sha256 \w+\); give those that it was saved with"),
        (["--questions_file", world / "birth_places_train.tsv"], "questions_file was not given"),
        # The weights have the same shapes.
        (["--num_attention_heads", 4], "num_attention_heads was 2"),
        (["--block_size", 96], "max_position_embeddings was 128"),
    ):
        with pytest.raises(SystemExit, match=f"checkpoint-6: cannot be resumed from with these options: .*{match}"):
            run(script, *resume, *change)
    # What is refused has deleted nothing: going on from an earlier checkpoint ends the later ones.
    earlier = [*arguments, "--resume_from_checkpoint", saved / "checkpoint-4", "--overwrite_output_dir"]
    earlier += ["--output_dir", saved]
    for change, match in (
        (["--seed", 7], "seed was 42"),
        (["--use_muon", "true"], "cannot be resumed from with these options"),
        (["--max_steps", 3], "the checkpoint is of step 4"),
    ):
        with pytest.raises(SystemExit, match=match):
            run(script, *earlier, *change)
        assert (saved / "checkpoint-6").is_dir()
    same_rows = ["--per_device_train_batch_size", 8, "--gradient_accumulation_steps", 2]
    run(script, *resume, *same_rows, "--train_file", shutil.copy(world / "wiki.txt", tmp_path / "copy.txt"))
    assert len(history_of(saved)) == 7


@pytest.mark.parametrize("strategy", ["steps", "no"])
def test_weights_that_are_not_finite_after_the_last_step_are_not_saved(run, commands, tmp_path, monkeypatch, strategy):
    script, arguments = commands["span_corruption"]

    def break_rates(trainer, inputs, loss):
        for group in trainer.optimizer.param_groups:
            group["lr"] = math.inf
        return loss

    at_step(monkeypatch, 3, break_rates)
    command = [*arguments, "--output_dir", tmp_path, "--max_steps", 3, "--save_strategy", strategy]
    with pytest.raises(SystemExit, match="step 3: the weights are not finite after it"):
        run(script, *command)
    saved = ["checkpoint-2"] if strategy == "steps" else []
    assert [folder.name for folder in tmp_path.glob("checkpoint-*")] == saved
    assert not (tmp_path / "model.safetensors").exists()


def test_auto_begins_anew_where_a_finished_model_is_to_be_replaced(run, commands, uninterrupted, tmp_path):
    script, arguments = commands["span_corruption"]
    folder = shutil.copytree(uninterrupted("span_corruption"), tmp_path / "out")
    auto = [*arguments, "--output_dir", folder, "--resume_from_checkpoint", "auto"]
    run(script, *auto, "--overwrite_output_dir", "--max_steps", 3, "--seed", 7)
    losses = history_of(folder)
    assert len(losses) == 3 and losses != history_of(uninterrupted("span_corruption"))[:3]


def test_a_run_with_a_damaged_checkpoint_goes_on_from_the_one_before(run, commands, uninterrupted, saved, steps):
    DAMAGES["truncated"](saved / "checkpoint-6" / "optimizer.pt")
    script, arguments = commands["span_corruption"]
    printed = run(script, *arguments, "--output_dir", saved, "--resume_from_checkpoint", "last")
    assert "checkpoint-6 has another optimizer.pt than was saved; training resumes from checkpoint-4." in printed
    assert steps == [4, 5]
    assert_same_run(uninterrupted("span_corruption"), saved)
    assert not any(map(find_damage, saved.glob("checkpoint-*")))


class Malicious:
    def __reduce__(self):
        return (os.mkdir, ("executed",))


def test_a_checkpoint_that_does_not_fit_is_refused_in_one_line(run, commands, saved, monkeypatch):
    monkeypatch.chdir(saved)
    script, arguments = commands["span_corruption"]
    command = [*arguments, "--output_dir", saved, "--resume_from_checkpoint", "last"]
    refused = f"^error: {saved / 'checkpoint-6'}: cannot be resumed from with these options: .*$"
    with pytest.raises(SystemExit, match=refused):
        run(script, *command, "--hidden_size", 16)
    for name, content in (
        ("optimizer.pt", pickle.dumps(Malicious(), protocol=2)),
        ("rng_state.pth", b"no pickle"),
        # Weights alone, as with save_only_model.
        ("optimizer.pt", None),
    ):
        kept = (saved / "checkpoint-6" / name).read_bytes()
        (saved / "checkpoint-6" / name).unlink()
        if content is not None:
            (saved / "checkpoint-6" / name).write_bytes(content)
        seal_checkpoint(saved / "checkpoint-6")
        with pytest.raises(SystemExit, match=refused):
            run(script, *command, "--max_steps", 10)
        (saved / "checkpoint-6" / name).write_bytes(kept)
    # As earlier versions saved them.
    (saved / "checkpoint-6" / "run.json").unlink()
    seal_checkpoint(saved / "checkpoint-6")
    for other in (["--use_muon", "true"], ["--num_hidden_layers", 1]):
        with pytest.raises(SystemExit, match=refused):
            run(script, *command, "--max_steps", 10, *other)
    assert not (saved / "executed").exists()


def at_step(monkeypatch, number: int, act) -> None:
    """Have `act` called with the trainer, the batch and the loss after forward and backward pass `number`, from 1."""
    training_step, calls = PosGPTTrainer.training_step, iter(range(1, 1000))

    def step(self, model, inputs, *args):
        loss = training_step(self, model, inputs, *args)
        return act(self, inputs, loss) if next(calls) == number else loss

    monkeypatch.setattr(PosGPTTrainer, "training_step", step)


def test_an_accelerator_without_enough_memory_ends_training_with_what_would_fit(run, commands, tmp_path, monkeypatch):
    """An error of the program is not taken for the machine's."""
    fail = mock.Mock()
    (script, arguments), folder = commands["span_corruption"], tmp_path / "out"
    line = rf"^error: {folder}: training stopped at step 2: the accelerator is out of memory; double --gradient_acc.* the same, .*"
    line += rf"; the last whole checkpoint is {folder / 'checkpoint-2'}\.$"
    for error, kind, match in (
        (torch.OutOfMemoryError("CUDA out of memory."), SystemExit, line),
        (RuntimeError("shapes do not fit"), RuntimeError, "^shapes do not fit$"),
    ):
        with monkeypatch.context() as patch, pytest.raises(kind, match=match):
            fail.side_effect = error
            at_step(patch, 3, fail)
            run(script, *arguments, "--output_dir", folder, "--overwrite_output_dir")


@pytest.mark.parametrize("kilobytes, reason", [(64, ": .*File too large.*"), (200, r" \(is the disk full\?\): .*")])
def test_a_full_disk_leaves_the_last_checkpoint_and_one_line(run, commands, tmp_path, monkeypatch, kilobytes, reason):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(trainer, inputs, loss):
        # The weights take 110 kB, the optimizer's state twice that: a real write fails in safetensors or in torch.
        resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1000, before[1]))
        return loss

    at_step(monkeypatch, 3, fill)
    script, arguments = commands["span_corruption"]
    try:
        with pytest.raises(SystemExit) as stop:
            run(script, *arguments, "--output_dir", tmp_path, "--save_total_limit", 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    expected = f"error: {tmp_path}: training stopped at step 4: checkpoint-4 could not be saved{reason};"
    assert re.fullmatch(f"{expected} the last whole checkpoint is {tmp_path / 'checkpoint-2'}\\.", stop.value.code)
    assert [folder.name for folder in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]
    assert find_damage(tmp_path / "checkpoint-2") is None


def test_files_are_on_the_disk_before_they_take_their_names(run, commands, tmp_path, monkeypatch):
    synced, moved, fsync, replace = set(), [], os.fsync, os.replace

    def check_and_replace(source, target):
        if Path(source).is_relative_to(tmp_path):
            moved.append(Path(target).name)
            assert os.stat(source).st_ino in synced, f"a power cut could leave {source} under its name and empty"
        replace(source, target)

    monkeypatch.setattr(os, "fsync", lambda file: (synced.add(os.fstat(file).st_ino), fsync(file)))
    monkeypatch.setattr(os, "replace", check_and_replace)
    with write_atomically(tmp_path / "file") as file:
        file.write("text")
    script, arguments = commands["span_corruption"]
    run(script, *arguments, "--output_dir", tmp_path / "out", "--max_steps", 2)
    assert {"file", "checksums.json", "config.json", "model.safetensors"} <= set(moved)
    saved = [file for file in (tmp_path / "out" / "checkpoint-2").rglob("*") if file.is_file()]
    assert len(saved) >= len(FILES) and all(file.stat().st_ino in synced for file in saved)


def test_an_output_folder_that_cannot_be_written_to_or_goes_away(run, commands, tmp_path, monkeypatch):
    script, arguments = commands["span_corruption"]
    line = f"^error: {os.devnull}/out: cannot be written to: .*; give another --output_dir.$"
    with pytest.raises(SystemExit, match=line):
        run(script, *arguments, "--output_dir", f"{os.devnull}/out")
    folder = tmp_path / "out"
    at_step(monkeypatch, 3, lambda trainer, inputs, loss: (shutil.rmtree(folder), loss)[1])
    with pytest.raises(SystemExit) as stop:
        run(script, *arguments, "--output_dir", folder)
    expected = f"error: {folder}: training stopped at step 4: checkpoint-4 could not be saved: .*No such file.*;"
    assert re.fullmatch(f"{expected} no checkpoint was saved before.*\\.", stop.value.code) and not folder.exists()


def test_a_loss_that_is_nan_stops_before_a_weight_changes(run, commands, tmp_path, monkeypatch):
    at_step(monkeypatch, 8, lambda trainer, inputs, loss: loss * float("nan"))
    script, arguments = commands["span_corruption"]
    with pytest.raises(SystemExit) as stop:
        run(script, *arguments, "--output_dir", tmp_path, "--max_steps", 8)
    expected = "error: step 8: the loss is nan, at a learning rate of 0.000\\d+;"
    expected += f" the last whole checkpoint is {tmp_path / 'checkpoint-6'}. Most often a lower --learning_rate helps."
    assert re.fullmatch(expected, stop.value.code)


def test_a_gradient_that_is_infinite_stops(run, commands, tmp_path, monkeypatch):
    def overflow(trainer, inputs, loss):
        next(trainer.model.parameters()).grad.fill_(float("inf"))
        return loss

    # Two batches a step.
    at_step(monkeypatch, 18, overflow)
    script, arguments = commands["finetuning"]
    accumulation = ["--per_device_train_batch_size", 8, "--gradient_accumulation_steps", 2, "--save_strategy", "no"]
    accumulation += ["--train_sampling_strategy", "random", "--ascii_only", "false", "--max_steps", 11]
    with pytest.raises(SystemExit, match="step 10: the gradient is inf, .*; no checkpoint was saved before"):
        run(script, *arguments, "--output_dir", tmp_path, *accumulation)


def test_a_loss_that_ends_far_above_its_lowest_is_told(caplog):
    def end(*losses: float) -> str:
        caplog.clear()
        history = [{"loss": loss, "step": step} for step, loss in enumerate(losses, start=1)]
        state = TrainerState(log_history=history, is_world_process_zero=True)
        LossCallback().on_train_end(SimpleNamespace(output_dir="out"), state, None)
        return caplog.text

    assert not end() and not end(4.0, 2.0, 2.1, 2.2)
    # A step that graded nothing.
    assert not end(4.0, 0.0, 2.1, 2.2)
    assert "out: the loss is 2.50 at the end of training, and was 2.00 after step 2." in end(4.0, 2.0, 2.1, 2.5)


@pytest.mark.slow
def test_a_launcher_restarts_a_killed_process_and_training_goes_on_by_itself(commands, tmp_path):
    _, arguments = commands["span_corruption"]
    code = """
import os, runpy, signal, sys
from posgpt.training.trainer import PosGPTTrainer
step, restarts, folder = PosGPTTrainer.training_step, os.environ["TORCHELASTIC_RESTART_COUNT"], sys.argv[-1]
def train(self, *args):
    if (restarts, os.environ["RANK"], self.state.global_step) == ("0", "1", 5) and folder.endswith("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, *args)
PosGPTTrainer.training_step = train
runpy.run_path("train_pretrain.py", run_name="__main__")
"""
    (tmp_path / "train.py").write_text(code)
    for name in ("whole", "killed"):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", 2]
        command += ["--max_restarts", 1, tmp_path / "train.py", *arguments]
        command += ["--resume_from_checkpoint", "auto", "--output_dir", tmp_path / name]
        # As docs/running.md says: restarted processes would look for the addresses of the killed ones.
        environment = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        environment |= {"PYTHONPATH": str(ROOT)}
        result = subprocess.run(list(map(str, command)), cwd=ROOT, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
    assert_same_run(tmp_path / "whole", tmp_path / "killed")
