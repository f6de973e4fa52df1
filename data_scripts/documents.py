"""The pretraining corpus: documents `Title. text` of a text file or a table; their titles, and what is worth asking for."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset, load_dataset
from datasets.exceptions import DatasetsError
from huggingface_hub.errors import HfHubHTTPError
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from data_scripts.errors import BadInput
from data_scripts.files import check_is_file, read_lines
from data_scripts.options import option, shorten_error
from modeling_posgpt import MASK_TOKEN, PAD_TOKEN, build_tokenizer

# What `datasets` reads each kind of table with.
TABLES = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}
_LONGEST_TITLE = 200
# Initials ("John F. ") belong to the title, which ends at the first other full stop.
_ENDS_IN_INITIAL = re.compile(r"(?:^|\. )[^.]*\b[^\W\d_]$")
_WORD = re.compile(r"(?<!\w)\w[^\s,.;:()/\"]*(?<!-)")
MONTHS = "January February March April May June July August September October November December".split()
MONTH_NAMES = frozenset([*MONTHS, *(month[:3] for month in MONTHS), "Sept"])
_SHORTEST_NAME = 3


@dataclass(frozen=True)
class Columns:
    """The columns of a table that hold each document's title and its text."""

    title: str = "title"
    text: str = "text"


TITLE_AND_TEXT = Columns()


@dataclass(kw_only=True)
class ColumnArguments:
    """Where a table has its documents."""

    title_column: str = option("Column of titles, if the corpus is a table.", default=Columns.title)
    text_column: str = option("Column of texts, if the corpus is a table.", default=Columns.text)

    @property
    def columns(self) -> Columns:
        """Both columns."""
        return Columns(self.title_column, self.text_column)


def read_documents(path: str | os.PathLike, columns: Columns = TITLE_AND_TEXT) -> Iterator[tuple[int, str]]:
    """Yield each document's line number (a table's: row number), from 1, and the document, including blank ones.

    Raises:
        BadInput: see `load_corpus`.
    """
    return read_lines(path, "corpus") if find_builder(path) is None else number_rows(load_table(path, columns))


def number_rows(table: Dataset) -> Iterator[tuple[int, str]]:
    """Yield the number, from 1, and the text of each row."""
    return enumerate((text for batch in table.iter(1000) for text in batch["text"]), start=1)


def find_builder(path: str | os.PathLike) -> str | None:
    """Return what `datasets` reads a table with, by its name: the file's kind, or the hub; None: it is a text file."""
    kind = TABLES.get(Path(path).suffix)
    is_on_hub = re.fullmatch(r"[\w-]+/[\w.-]+", str(path)) and not Path(path).parent.exists()
    return kind or ("hub" if is_on_hub and Path(path).suffix != ".txt" else None)


def load_table(path: str | os.PathLike, columns: Columns) -> Dataset:
    """Load a table's documents: the columns `title` and `text`, the latter as `Title. text`.

    Raises:
        BadInput: there is no such file or dataset, it cannot be read, or it does not have the columns.
    """
    builder = find_builder(path)
    try:
        if builder == "hub":
            table = load_dataset(str(path), split="train")
        else:
            table = load_dataset(builder, data_files=str(check_is_file(path, "corpus")), split="train")
    except (DatasetsError, HfHubHTTPError, OSError, ValueError) as error:
        raise BadInput(f"{path}: no table of documents: {shorten_error(error.__cause__ or error)}") from None
    for option_name, column in (("title_column", columns.title), ("text_column", columns.text)):
        if column not in table.column_names:
            raise BadInput(
                f"{path}: has no column {column!r}, but {', '.join(table.column_names)}; name one with --{option_name}."
            )

    def join(title: str | None, text: str | None) -> dict[str, str]:
        title, text = str(title or "").strip(), str(text or "")
        return {"title": title, "text": f"{title}. {text}" if title else text}

    return table.map(
        join, input_columns=[columns.title, columns.text], remove_columns=table.column_names, desc="Reading documents"
    )


def load_corpus(path: str | os.PathLike, columns: Columns = TITLE_AND_TEXT) -> Dataset:
    """Return a dataset with the column `text`, for tables also `title`: one row per document, without blank ones.

    Rows stay on disk (Arrow).

    Args:
        path: A text file with one document per line; a table (`TABLES`); or the name of a dataset on the hub, whose split
            `train` is read.
        columns: Of a table.

    Raises:
        BadInput: the file is missing, a directory, empty, not UTF-8, all blank, or contains one of the two symbols that
            the model reserves; a table cannot be read or does not have the columns.
    """
    table = load_table(path, columns) if find_builder(path) else None
    documents = 0
    for number, document in read_lines(path, "corpus") if table is None else number_rows(table):
        for symbol, use in ((MASK_TOKEN, "marks the masked span"), (PAD_TOKEN, "is padding")):
            if symbol in document:
                where = f"{path}, {'line' if table is None else 'row'} {number}"
                raise BadInput(f"{where}: holds {symbol!r}, which {use}; replace or remove it.")
        documents += bool(document.strip())
    if not documents:
        raise BadInput(f"{path}: every line is blank; give a corpus with one document per line.")
    corpus = table
    if corpus is None:
        corpus = load_dataset("text", data_files=str(path), split="train", encoding="utf-8-sig")
    return corpus.filter(lambda batch: [bool(text.strip()) for text in batch["text"]], batched=True)


def build_corpus_tokenizer(corpus: Dataset, max_length: int) -> PreTrainedTokenizerFast:
    """Build the tokenizer of a corpus's characters; `max_length` is the maximum sequence length."""
    return build_tokenizer((text for batch in corpus.iter(1000) for text in batch["text"]), max_length)


def tokenize_corpus(corpus: Dataset, tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """Replace the column `text` by `input_ids`, the ids of the whole document, and `length`, their number."""

    def encode(batch: dict) -> dict:
        input_ids = tokenizer(batch["text"], add_special_tokens=False, verbose=False)["input_ids"]
        return {"input_ids": input_ids, "length": [len(ids) for ids in input_ids]}

    return corpus.map(encode, batched=True, remove_columns="text", desc="Tokenizing")


def list_titles(document: str) -> Iterator[str]:
    """Yield all that may be the title of a document `TITLE. text`: what stands before one of its first full stops.

    A title may contain full stops itself; code that looks for a known title compares it with each.
    """
    end = document.find(". ")
    while end != -1:
        yield document[:end]
        end = document.find(". ", end + 1, _LONGEST_TITLE)


def split_title(document: str) -> tuple[str, str]:
    """Split `Title. text` into its two parts; the title is empty when there is none."""
    title = ""
    for title in list_titles(document):
        if not _ENDS_IN_INITIAL.search(title):
            break
    return title, document[find_text_start(title) :]


def find_text_start(title: str) -> int:
    """Return where the text begins in a document with this title, which may be empty."""
    return len(f"{title}. ") if title else 0


def find_salient_spans(title: str, text: str, dates: bool) -> list[tuple[int, int]]:
    """Return start and end of the names and numbers in `text`.

    A name is a run of capitalized words. Runs that share a word with the title are the person's own name; runs of fewer
    than three characters are initials or degrees. Both are left out.

    Args:
        dates: Whether numbers and months count.
    """
    known = set(title.split())
    runs: list[tuple[int, int]] = []
    for match in _WORD.finditer(text):
        start, end = match.span()
        if match[0][0].isupper():
            # A run goes on over single spaces; a word that begins with a digit is never part of one.
            if runs and runs[-1][1] + 1 == start and text[start - 1] == " " and text[runs[-1][0]].isupper():
                start, _ = runs.pop()
            runs.append((start, end))
        elif match[0][0].isdigit():
            runs.append((start, end))

    def is_wanted(words: list[str]) -> bool:
        is_date = words[0][0].isdigit() or words[0] in MONTH_NAMES
        return known.isdisjoint(words) and (dates if is_date else len(" ".join(words)) >= _SHORTEST_NAME)

    # The first word of the text has a capital for that reason, and no words to its left to ask with.
    return [(start, end) for start, end in runs if start > 0 and is_wanted(text[start:end].split())]


def add_titles_and_spans(corpus: Dataset, dates: bool) -> Dataset:
    """Add the columns `title` and `spans`, the salient spans' starts and ends in `text`, to a corpus."""

    def split(document: str, title: str | None = None) -> dict:
        if title is None:
            title, _ = split_title(document)
        # A table's title is known and may hold full stops.
        begin = find_text_start(title)
        return {
            "title": title,
            "spans": [
                (begin + start, begin + end) for start, end in find_salient_spans(title, document[begin:], dates)
            ],
        }

    known = [column for column in ("text", "title") if column in corpus.column_names]
    return corpus.map(split, input_columns=known, desc="Looking for names")
