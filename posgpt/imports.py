"""Position encodings and tasks from a file of the user's: `--import mine.py`."""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib.util import decode_source, module_from_spec, spec_from_file_location
from pathlib import Path

from data_scripts.errors import BadInput, reraise_as_bad_input
from data_scripts.files import check_is_file, hash_file
from modeling_posgpt import POSITION_EMBEDDINGS
from posgpt.positions.tasks import TASKS, Task

#: Files that the processes which a study starts import, too.
VARIABLE = "POSGPT_IMPORT"


def import_file(file: Path) -> None:
    """Run a Python file that registers position encodings or tasks; raise BadInput when it fails or registers none."""
    check_is_file(file, "Python code")
    name, encodings, tasks = file.stem, dict(POSITION_EMBEDDINGS), dict(TASKS)
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(file.resolve()):
        return
    # A saved model contains the file beside PosGPT's own.
    if file.suffix != ".py" or not name.isidentifier() or loaded or f"modeling_posgpt.{name}" in sys.modules:
        raise BadInput(
            f"{file}: {name!r} is no name for a module, or another's; rename the file, e.g. my_positions.py."
        )
    spec = spec_from_file_location(name, file.resolve())
    assert spec is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        with reraise_as_bad_input(f"{file}: cannot be imported", "correct the file.", Exception):
            # A file from a saved model imports from the files beside it, which are PosGPT's.
            code = re.sub(
                r"(?m)^from \.(\w+) import", r"from modeling_posgpt.\1 import", decode_source(file.read_bytes())
            )
            exec(compile(code, str(file), "exec"), vars(module))
        if changed := [each for each, task in tasks.items() if TASKS.get(each) is not task]:
            raise BadInput(f"{file}: {changed[0]!r} is a task already; give yours another name.")
        if wrong := [each for each, task in TASKS.items() if not isinstance(task, Task)]:
            raise BadInput(f"{file}: {wrong[0]!r} in TASKS is no Task; write Task(...) around its function.")
        if encodings == POSITION_EMBEDDINGS and tasks == TASKS:
            raise BadInput(
                f'{file}: registers no position encoding and no task; put @register("NAME") above a class, or a Task into TASKS.'
            )
    except BadInput:
        del sys.modules[name]
        # What it has registered before it failed.
        POSITION_EMBEDDINGS.clear()
        POSITION_EMBEDDINGS.update(encodings)
        TASKS.clear()
        TASKS.update(tasks)
        raise


def list_imports() -> list[str]:
    """Return the files that were named to this process, and those that its encodings are from."""
    named = os.environ.get(VARIABLE, "").split(os.pathsep)
    # As Python imports them.
    modules = {each.__module__ for each in POSITION_EMBEDDINGS.values()}
    files = (getattr(sys.modules.get(name), "__file__", None) for name in sorted(modules) if "." not in name)
    return list(dict.fromkeys(filter(None, [*named, *files])))


def describe_imports(names: Iterable[str] = POSITION_EMBEDDINGS) -> dict[str, str]:
    """Return the hashes of the imported files that encodings of these names are from, for the key of what is kept of a run."""
    modules = {POSITION_EMBEDDINGS[name].__module__ for name in names if name in POSITION_EMBEDDINGS}
    files = [file for file in list_imports() if Path(file).stem in modules]
    return {"imports": " ".join(map(hash_file, files))} if files else {}


def take_imports(argv: Sequence[str]) -> list[str]:
    """Import the files that `--import FILE` names, and return the command line without them.

    It has to happen before a command is imported, whose options are those of all encodings and tasks.
    """
    rest, files, waiting = [], list_imports(), iter(argv)
    for word in waiting:
        option, is_joined, value = word.partition("=")
        if option != "--import":
            rest.append(word)
        elif file := value if is_joined else next(waiting, ""):
            files.append(os.path.abspath(file))
        else:
            raise BadInput("--import needs a value: a Python file that registers position encodings or tasks.")
    files = list(dict.fromkeys(files))
    for file in files:
        import_file(Path(file))
    if files:
        os.environ[VARIABLE] = os.pathsep.join(files)
    return rest
