"""Write text files in Unicode's normal form C (NFC), in which é is one character, never an e and an accent.

    posgpt normalize --files wiki.txt birth_places_train.tsv birth_dev.tsv --output_dir normalized

A model reads characters, so one that has read an accent as a character of its own does not know the letter with the accent.
Nothing is normalized without being asked for: training says when a corpus is not in NFC.
"""

import unicodedata
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.files import check_is_folder_or_new, check_is_new, read_lines, write_atomically
from data_scripts.options import option, parse_options

FORM: Literal["NFC"] = "NFC"


@dataclass
class NormalizeArguments:
    """What to normalize, and where to write it."""

    files: list[str] = option("UTF-8 files: a corpus, questions.")
    output_dir: str = option("Folder for the files, under their names.")


def find_composable(characters: Collection[str]) -> list[str]:
    """Return those of a corpus's characters that NFC replaces, alone or after another one of them, sorted."""
    marks = [character for character in characters if unicodedata.combining(character)]
    composable = {character for character in characters if not unicodedata.is_normalized(FORM, character)}
    composable |= {
        mark for mark in marks if any(len(unicodedata.normalize(FORM, base + mark)) == 1 for base in characters)
    }
    return sorted(composable)


def describe_composable(characters: Collection[str], path: str) -> str:
    """Return one line on a corpus's characters that NFC replaces; empty if there is none."""
    composable = find_composable(characters)
    if not composable:
        return ""
    name = unicodedata.name(composable[0], f"U+{ord(composable[0]):04X}")
    return (
        f"{path}: not in Unicode's normal form C because of {len(composable)} of its characters, first {name};"
        " posgpt normalize writes files in that form."
    )


def normalize_files(files: list[Path], output_dir: Path) -> dict[str, int]:
    """Write each file in NFC into `output_dir`, all or none; return how many lines of each have changed, by name.

    Raises:
        BadInput: a file is not what it should be, two have one name, or one is already there.
    """
    changed = {file.name: 0 for file in files}
    if len(changed) < len(files):
        raise BadInput(
            "two of the files have the same name; give them one after the other, with different --output_dir."
        )
    for name in changed:
        check_is_new(output_dir / name)
    with ExitStack() as stack:
        for file in files:
            written = stack.enter_context(write_atomically(output_dir / file.name))
            for _, line in read_lines(file, "text file"):
                normalized = unicodedata.normalize(FORM, line)
                written.write(normalized + "\n")
                changed[file.name] += normalized != line
    return changed


@exit_on_bad_input()
def main() -> None:
    arguments = parse_options(NormalizeArguments)
    output_dir = check_is_folder_or_new(arguments.output_dir)
    for name, lines in normalize_files(list(map(Path, arguments.files)), output_dir).items():
        print(f"{output_dir / name}: {lines:,} lines are written differently.")


if __name__ == "__main__":
    main()
