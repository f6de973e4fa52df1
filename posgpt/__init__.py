"""PosGPT's commands, training, evaluation and page; `modeling_posgpt` holds the model, `data_scripts` the data.

`posgpt.pretrain`, `finetune`, `evaluate` and `ask` are functions, as are the commands of these names:

    posgpt.pretrain("windows", train_file="wiki.txt", questions_file="train.tsv", output_dir="runs/windows")
    print(posgpt.evaluate(model_name_or_path="runs/windows", test_file="birth_dev.tsv", output_dir="runs/eval"))
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.35.0"

# With the dataclass that a function takes its options in, if it takes no keywords.
_FUNCTIONS = {"pretrain": None, "finetune": None, "evaluate": "EvaluationArguments", "ask": "AskingArguments"}


class _Command(ModuleType):
    """The module of a command, which can be called: it calls the function of its own name, with options as keywords."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        name = self.__name__.rpartition(".")[2]
        if not args and (kind := _FUNCTIONS[name]):
            from data_scripts.options import parse_options

            args, options = (parse_options(getattr(self, kind), [], **options),), {}
        return getattr(self, name)(*args, **options)


class _Package(ModuleType):
    """The package, which imports a command's module when it is first asked for."""

    def __getattr__(self, name: str) -> Any:
        if name in _FUNCTIONS:
            return import_module(f"posgpt.{name}")
        raise AttributeError(f"module 'posgpt' has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing a module sets it here.
        if name in _FUNCTIONS:
            value.__class__ = _Command
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
