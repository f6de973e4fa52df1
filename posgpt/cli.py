"""The command `posgpt`: a table of its subcommands. Each is a module with a `main`:

posgpt pretrain windows --train_file wiki.txt …
python -m posgpt pretrain windows --train_file wiki.txt …
accelerate launch -m posgpt pretrain windows --train_file wiki.txt …
"""

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import posgpt
from data_scripts.errors import BadInput, exit_on_bad_input

COMMANDS = {
    "pretrain": ("posgpt.pretrain", "train a model on a corpus"),
    "finetune": ("posgpt.finetune", "finetune a model on questions, or train one on them from scratch"),
    "ask": ("posgpt.ask", "ask a model a few questions"),
    "evaluate": ("posgpt.evaluate", "ask a model and compare its answers with baselines"),
    "report": ("posgpt.report", "report on a JSON Lines file of predictions, whoever made them"),
    "compare": ("posgpt.compare", "compare reports or runs: figures, and what differs"),
    "preview": ("posgpt.preview", "show what a recipe trains on"),
    "quickstart": ("posgpt.quickstart", "the whole task on a small fictional world, in minutes"),
    "positions": ("posgpt.positions.study", "compare position encodings on tasks in which positions matter"),
    "study": ("studies.__main__", "train the models of a study, such as your own, and compare what they answer"),
    "convert": ("posgpt.extras.convert", "convert a checkpoint of the course's code to a PosGPT, or back"),
    "demo": ("posgpt.extras.page.demo", "ask a model in the browser"),
    "page": ("posgpt.extras.page.write", "write a page that asks models in the visitor's browser, without a server"),
    "world": ("data_scripts.synthetic_world", "write a fictional world: a corpus and questions"),
    "build-wikipedia": ("posgpt.extras.wikipedia", "build a task like the course's from Wikipedia"),
    "assignment": ("posgpt.extras.assignment.write", "write a programming assignment on a fictional world"),
    "grade": ("posgpt.extras.assignment.grade", "grade what students hand in for an assignment"),
    "hold-out": ("data_scripts.hold_out", "hold people out of a task's data"),
}


@exit_on_bad_input()
def main(argv: Sequence[str] | None = None, prefix: Sequence[str] = ()) -> None:
    command, *arguments = [*prefix, *(sys.argv[1:] if argv is None else argv)] or ["--help"]
    if command in ("-h", "--help"):
        print("usage: posgpt COMMAND [OPTION ...]\n")
        for name, (_, description) in COMMANDS.items():
            print(f"  {name:16}  {description}")
        print("\nposgpt COMMAND --help lists its options, posgpt --version says which version this is.")
        print("posgpt COMMAND --import FILE.py adds the position encodings and tasks that the file registers.")
        return
    if command == "--version":
        print(f"posgpt {posgpt.__version__}")
        return
    if command not in COMMANDS:
        raise BadInput(f"posgpt has no command {command!r}; choose one of {', '.join(COMMANDS)}.")
    name = COMMANDS[command][0]
    is_first = name not in sys.modules
    # Libraries make many objects while they are imported, and hardly any garbage. Looking for it took a third of a command's start.
    gc.disable()
    try:
        if "POSGPT_IMPORT" in os.environ or any(each.partition("=")[0] == "--import" for each in arguments):
            from posgpt.imports import take_imports

            arguments = take_imports(arguments)
        module = import_module(name)
        if is_first:
            gc.freeze()
    finally:
        gc.enable()
    module.main(arguments)
