import json
import os
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import hub
import offline  # noqa: F401

# Hugging Face libraries come after it.
# isort: split
import pytest
import torch

from data_scripts.synthetic_world import World

ROOT = Path(__file__).parent.parent
REAL_DATA = Path(os.environ.get("POSGPT_DATA") or ROOT.parent / "shared" / "data" / "birthplaces")

needs_make = pytest.mark.skipif(not shutil.which("make"), reason="needs make")

# A model that trains in a second.
TINY = ["--hidden_size", "32", "--num_hidden_layers", "2", "--num_attention_heads", "2", "--block_size", "128"]
TINY += ["--report_to", "none", "--bf16", "false", "--use_cpu", "true"]


def pytest_configure(config):
    # The other tests are of a CPU, and fork, which a process that has looked for GPUs cannot.
    if "gpu" not in config.option.markexpr:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


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
        module.main()
        return capsys.readouterr().out

    return run_main


def history_of(folder: Path, name: str = "loss") -> list[float]:
    """Return what a finished training logged under a name, in its order."""
    logs = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [log[name] for log in logs if name in log]


@pytest.fixture(scope="session")
def tiny_pretrained(world, tmp_path_factory) -> dict[str, Path]:
    """A briefly pretrained model folder for each position embedding."""
    import sys
    from unittest import mock

    import train_pretrain
    from modeling_posgpt import POSITION_EMBEDDINGS

    folders = {}
    for name in POSITION_EMBEDDINGS:
        folders[name] = tmp_path_factory.mktemp("pretrained") / name
        arguments = ["--train_file", str(world / "wiki.txt"), "--output_dir", str(folders[name]), "--max_steps", "4"]
        arguments += ["--position_embedding_type", name, "--per_device_train_batch_size", "16", "--save_steps", "2"]
        with mock.patch.object(sys, "argv", ["train_pretrain.py", *arguments, "--logging_steps", "1", *TINY]):
            train_pretrain.main()
    return folders
