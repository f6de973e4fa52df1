"""A hundred command lines, each with the configuration that version 0.4.0 parses it to (its values that are not the defaults).

The recipes `windows` and `sprint` (0.19.0) and `quickstart` (0.17.0) are newer.
"""

import dataclasses
import json
import re
import shlex
from enum import Enum
from pathlib import Path

import pytest

from conftest import ROOT
from data_scripts.options import OptionParser
from posgpt import cli
from test_readme import list_blocks

DATA = Path(__file__).parent / "data"
LINES = (DATA / "command_lines.txt").read_text(encoding="utf-8").splitlines()
CONFIGS = (DATA / "command_lines.jsonl").read_text(encoding="utf-8").splitlines()
# What the machine or transformers decide, unless it is on the command line.
DECIDED = {"use_cpu", "bf16", "dataloader_num_workers", "dataloader_persistent_workers", "dataloader_pin_memory"}
DECIDED |= {
    "attn_implementation",
    "accelerator_config",
    "activation_checkpointing",
    "gradient_checkpointing",
    "debug",
    "disable_tqdm",
}


class Parsed(BaseException):
    """Ends a command that has parsed its command line."""


def to_json(value):
    if dataclasses.is_dataclass(value):
        return value.to_dict()
    if isinstance(value, Enum):
        return value.value
    return [to_json(each) for each in value] if isinstance(value, list | tuple) else value


def parse(line: str, monkeypatch: pytest.MonkeyPatch) -> dict:
    """Run a command until it has parsed its options; return those that are not the defaults."""
    build, argv = OptionParser.build, shlex.split(line)

    def stop(*args):
        raise Parsed(*build(*args))

    monkeypatch.setattr(OptionParser, "build", stop)
    monkeypatch.setattr("sys.argv", ["posgpt", *argv])
    with pytest.raises(Parsed) as stopped:
        cli.main()
    given = {word.removeprefix("--").partition("=")[0].replace("-", "_") for word in argv if word.startswith("--")}
    config = {}
    for options in stopped.value.args:
        for field in dataclasses.fields(options):
            if not field.init or field.name in DECIDED - given:
                continue
            made = field.default_factory is not dataclasses.MISSING
            default = field.default_factory() if made else field.default
            if (value := getattr(options, field.name)) != default or field.name in DECIDED & given:
                config[field.name] = to_json(value)
    return dict(sorted(config.items()))


@pytest.mark.parametrize(
    "document", ["README.md", *(f"docs/{file.name}" for file in sorted((ROOT / "docs").glob("*.md")))]
)
def test_the_options_of_documented_commands_are_known(document, monkeypatch):
    for line in "".join(list_blocks(document)).splitlines():
        found = re.fullmatch(r"(?:.* -m )?posgpt (.+)", line)
        if found and "--import" not in line and " COMMAND" not in line:
            parse(found[1], monkeypatch)


@pytest.mark.parametrize(("line", "config"), list(zip(LINES, CONFIGS, strict=True)), ids=LINES)
def test_a_command_line_means_what_it_meant(line, config, monkeypatch):
    monkeypatch.chdir(DATA)
    assert parse(line, monkeypatch) == json.loads(config)
