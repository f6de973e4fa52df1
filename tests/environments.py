"""Virtual environments that borrow this one's libraries, for what is tried with other packages or other versions."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

# Whatever is run there finds no package of this folder by accident, and a hub's address only where a test names one.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "HF_"))}


class Environment:
    def __init__(self, folder: Path):
        venv.create(folder, symlinks=os.name != "nt")
        paths = sysconfig.get_paths(vars={"base": folder, "platbase": folder})
        self.scripts, self.packages = Path(paths["scripts"]), Path(paths["purelib"])
        # pip wants its whole name.
        self.python = self.scripts / ("python.exe" if os.name == "nt" else "python")

    def borrow_libraries(self) -> None:
        """Let it import this environment's libraries, after its own: what is installed later need not bring them.

        A folder named in a .pth file is searched, but its own .pth files, which point to the checkout, are not read.
        """
        (self.packages / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")

    def install(self, *requirements: str | Path) -> None:
        """Install with this environment's pip, or skip the test and say why."""
        run_pip("--python", self.python, "install", *requirements)

    def run(self, *arguments: object, cwd: Path, **variables: str) -> str:
        """Run its Python and return what it printed."""
        return execute(self.python, *arguments, cwd=cwd, env=ENVIRONMENT | variables)


def execute(*command: object, **options) -> str:
    """Run a program and return what it printed."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def run_pip(*arguments: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", *arguments], env=ENVIRONMENT, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"pip cannot get what is needed: {done.stderr[-500:]}")
