"""Write text files in Unicode's normal form C (NFC), in which é is one character, never an e and an accent.

    posgpt normalize --files wiki.txt birth_places_train.tsv birth_dev.tsv --output_dir normalized

A model reads characters, so one that has read an accent as a character of its own does not know the letter with the accent.
Nothing is normalized without being asked for: training says when a corpus is not in NFC. A file that is compressed is written
compressed, and in JSON an accent may also be written as its number (`\\u0301`).
"""

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow
from datasets import Dataset

from data_scripts.documents import Columns, detect_format, read_rows, summarize_texts
from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.files import (
    INVISIBLE,
    check_is_new,
    describe_character,
    find_compression,
    read_lines,
    write_atomically,
)
from data_scripts.options import option, parse_options, shorten_error
from data_scripts.titles import iterate_titles

FORM: Literal["NFC"] = "NFC"


@dataclass
class NormalizeArguments:
    """What to normalize, and where to write it."""

    files: list[str] = option("UTF-8 files: a corpus, questions; tables as CSV or JSON Lines.")
    output_dir: str = option("Folder for the files, under their names.")


def count_decomposed(texts: Iterable[str]) -> int:
    """Return how many texts are not in NFC."""
    return sum(not unicodedata.is_normalized(FORM, text) for text in texts)


def describe_decomposed(path: str, decomposed: int, what: str) -> str:
    """Return one line on texts that are not in NFC; empty if all are. `what` says of how many texts, of which kind."""
    if not decomposed:
        return ""
    return f"{path}: {decomposed:,} of {what} are not in Unicode's normal form C; posgpt normalize writes files in that form."


def describe_documents(corpus: Dataset, paths: Sequence[str], columns: Columns) -> Iterator[str]:
    """Yield a line for each thing about a corpus that a reader should know before training on it.

    Args:
        corpus: From `load_corpus`, of all `paths`.
        columns: Of tables.
    """

    # Which characters a corpus has does not show it: no letter takes the stress mark of a Russian а, but an a beside it does.
    def count(texts: list[str]) -> dict[str, list[int]]:
        return {
            "decomposed": [count_decomposed(texts)],
            "invisible": [sum(not text.isprintable() and INVISIBLE.search(text) is not None for text in texts)],
        }

    name, size = ", ".join(paths), f"{len(corpus):,} documents"
    counts = summarize_texts(corpus, count, "Looking for accents apart from their letters")
    if note := describe_decomposed(name, sum(counts["decomposed"]), size):
        yield note
    if invisible := sum(counts["invisible"]):
        rows = ((where, text) for path in paths for where, _, text in read_rows(path, columns))
        where, character = next((where, found[0]) for where, text in rows if (found := INVISIBLE.search(text)))
        yield (
            f"{name}: {invisible:,} of {size} hold characters that nobody sees, first {describe_character(character)} in {where}."
        )
    if not any(iterate_titles(corpus)):
        yield f"{name}: no document has a title; each should begin with one, as in `TITLE. text`."


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
    with ExitStack() as stack:
        for file in files:
            if (kind := detect_format(file)) == "parquet":
                raise BadInput(f"{file}: a Parquet table is not text; write it as JSON Lines or CSV first.")
            written = stack.enter_context(write_atomically(check_is_new(output_dir / file.name), "wb"))
            if compression := find_compression(file):
                written = stack.enter_context(pyarrow.CompressedOutputStream(written, compression))
            for number, line in read_lines(file, "text file"):
                try:
                    # JSON's characters may be written as numbers.
                    is_escaped = kind == "json" and "\\u" in line
                    text = json.dumps(json.loads(line), ensure_ascii=False) if is_escaped else line
                    normalized = unicodedata.normalize(FORM, text)
                    # What already is in NFC stays as it is written.
                    normalized = line if normalized == text else normalized
                    written.write(f"{normalized}\n".encode())
                except ValueError as error:
                    raise BadInput(
                        f"{file}, line {number}: not a row of JSON: {shorten_error(error)}; write one row per line."
                    ) from None
                changed[file.name] += normalized != line
    return changed


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(NormalizeArguments, argv)
    output_dir = Path(arguments.output_dir)
    for name, lines in normalize_files(list(map(Path, arguments.files)), output_dir).items():
        print(f"{output_dir / name}: {lines:,} lines are written differently.")


if __name__ == "__main__":
    main()
