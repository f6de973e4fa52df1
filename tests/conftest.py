import gc
import io
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import hub
import offline  # noqa: F401

# Hugging Face libraries come after it.
# isort: split
import pytest
import torch

from data_scripts.errors import exit_on_bad_input
from data_scripts.synthetic_world import World

ROOT = Path(__file__).parent.parent
REAL_DATA = Path(os.environ.get("POSGPT_DATA") or ROOT.parent / "shared" / "data" / "birthplaces")

needs_make = pytest.mark.skipif(not shutil.which("make"), reason="needs make")

# A model that trains in a second.
TINY_SIZE = ["--hidden_size", "32", "--num_hidden_layers", "2", "--num_attention_heads", "2", "--block_size", "128"]
ON_CPU = ["--report_to", "none", "--bf16", "false", "--use_cpu", "true"]
TINY = [*TINY_SIZE, *ON_CPU]


def pytest_configure(config):
    # The other tests are of a CPU, and fork, which a process that has looked for GPUs cannot.
    if "gpu" not in config.option.markexpr.replace("not gpu", ""):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


# Collecting garbage among the objects of imported libraries takes a third of the time of importing them.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config, items):
    if "slow" not in config.option.markexpr:
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="takes minutes; run with -m slow"))
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device; run with -m gpu"))


@pytest.fixture(autouse=True)
def forget_compiled_code():
    """After code for another length, flex_attention compiles for any length, which torch 2.13 cannot on CPUs."""
    torch.compiler.reset()


@pytest.fixture(autouse=True)
def time_few_steps(monkeypatch):
    """How long a training takes is computed after its first steps, whatever they took."""
    monkeypatch.setattr("posgpt.training.callbacks.TIMED_SECONDS", 0)


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> Path:
    """A folder with the four files of a world of 100 people."""
    folder = tmp_path_factory.mktemp("world")
    World(num_people=100, num_places=10).write(folder)
    return folder


@pytest.fixture(scope="session")
def real_data() -> Path:
    if not REAL_DATA.is_dir():
        pytest.skip(f"the course's data is not in {REAL_DATA}; POSGPT_DATA=folder names a copy")
    return REAL_DATA


@pytest.fixture
def online(monkeypatch):
    """Let the clients of the hub connect, and not wait between their attempts."""
    for module in ("huggingface_hub.constants", "datasets.config"):
        monkeypatch.setattr(f"{module}.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    clock = SimpleNamespace(sleep=lambda seconds: None)
    monkeypatch.setattr("huggingface_hub.utils._http.time", clock)


@pytest.fixture
def local_hub(online):
    """The hub on this machine, with nothing on it."""
    with hub.Hub() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield server
        server.shutdown()


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command's `main` in this process, as its `__main__` does; return what it printed."""

    def run_main(module, *arguments) -> str:
        monkeypatch.setattr("sys.argv", [f"{module.__name__}.py", *map(str, arguments)])
        with exit_on_bad_input():
            module.main()
        return capsys.readouterr().out

    return run_main


def history_of(folder: Path, name: str = "loss") -> list[float]:
    """Return what a finished training logged under a name, in its order."""
    logs = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [log[name] for log in logs if name in log]


def wait_until(condition: Callable[[], object], is_alive: Callable[[], bool], seconds: float = 300) -> None:
    """Wait for what another process does; fail when that has ended without it, or after so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        # It may have ended between the two questions, having done it.
        assert is_alive() or condition(), "the process that was waited for has ended"
        assert time.monotonic() < end, f"waited for {seconds} seconds"
        time.sleep(0.05)


@pytest.fixture
def steps(monkeypatch) -> list[int]:
    """The numbers of the training steps that are made, from 0; several batches of one step are as many numbers.

    Training is deterministic: a run that is not resumed but started over ends with the same weights.
    """
    from posgpt.training.trainer import PosGPTTrainer

    made: list[int] = []
    step = PosGPTTrainer.training_step
    monkeypatch.setattr(
        PosGPTTrainer, "training_step", lambda self, *args: (made.append(self.state.global_step), step(self, *args))[1]
    )
    return made


class Pretrained(dict):
    """Folders of briefly pretrained models by their position embedding, each trained when the first test asks for it.

    A test that replaces parts of training asks before it does so.
    """

    def __init__(self, corpus: Path, find_folder: Callable[[str], Path]):
        super().__init__()
        self.corpus, self.find_folder = corpus, find_folder

    def __missing__(self, name: str) -> Path:
        import train_pretrain

        folder = self.find_folder("pretrained") / name
        arguments = ["--train_file", str(self.corpus), "--output_dir", str(folder), "--max_steps", "4"]
        arguments += ["--position_embedding_type", name, "--per_device_train_batch_size", "16", "--save_steps", "2"]
        arguments += ["--logging_steps", "1", *TINY]
        # The test reads what its own commands print.
        with mock.patch("sys.argv", ["train_pretrain.py", *arguments]), redirect_stdout(io.StringIO()):
            train_pretrain.main()
        assert (folder / "model.safetensors").is_file(), (
            "the test has replaced training before it asked for this model"
        )
        self[name] = folder
        return folder


@pytest.fixture(scope="session")
def tiny_pretrained(world, tmp_path_factory) -> dict[str, Path]:
    """A briefly pretrained model folder for each position embedding."""
    return Pretrained(world / "wiki.txt", tmp_path_factory.mktemp)
