"""The pretraining corpus: documents `Title. text` of a text file, a table or a dataset on the hub."""

import json
import math
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import numpy as np
from datasets import (
    Dataset,
    Features,
    IterableDataset,
    List,
    Value,
    concatenate_datasets,
    config,
    interleave_datasets,
    load_dataset,
)
from datasets.exceptions import DatasetGenerationError, DatasetsError
from datasets.fingerprint import Hasher
from huggingface_hub import HfApi
from huggingface_hub.errors import HTTPError, RepositoryNotFoundError
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from data_scripts.errors import BadInput
from data_scripts.files import (
    COMPRESSED,
    check_is_file,
    escape_name,
    hash_file,
    hash_files,
    name_uncompressed,
    read_lines,
    write_atomically,
)
from data_scripts.options import option, shorten_error
from modeling_posgpt import MASK_TOKEN, PAD_TOKEN, build_tokenizer

# JSON Lines, which are read here: `datasets` takes texts such as 2001-09-11 for dates, and a later line with another key for
# an error.
JSON_LINES = "json lines"
# What each kind of table is read with: by `datasets`, except for JSON Lines.
TABLES = {".json": "json", ".jsonl": JSON_LINES, ".ndjson": JSON_LINES, ".csv": "csv", ".parquet": "parquet"}
FEATURES = Features({"title": Value("string"), "text": Value("string")})
# Documents that are written, or whose characters are collected, at a time.
BATCH = 10_000
# The version of the index: another number when files are read differently, so that older indexes are not used.
_READER = 2


@dataclass(frozen=True)
class Columns:
    """The columns of a table that hold each document's title and its text.

    Args:
        config_name: Of a dataset on the hub, the configuration that has them; None: the only one, or its default.
    """

    title: str = "title"
    text: str = "text"
    config_name: str | None = None


TITLE_AND_TEXT = Columns()


@dataclass(kw_only=True)
class ColumnArguments:
    """Where a table has its documents."""

    title_column: str = option("Column of titles, if the corpus is a table.", default=Columns.title)
    text_column: str = option("Column of texts, if the corpus is a table.", default=Columns.text)
    dataset_config_name: str | None = option(
        "Its configuration, if the corpus is a dataset on the hub that has several.", default=None
    )

    @property
    def columns(self) -> Columns:
        """Where the documents are."""
        return Columns(self.title_column, self.text_column, self.dataset_config_name)


@dataclass(kw_only=True)
class CorpusArguments(ColumnArguments):
    """What is trained on."""

    train_file: list[str] = option(
        "The corpus, or several: UTF-8 text, one document `Title. text` per line; a table (.csv, .jsonl, .parquet) of"
        ' titles and texts; a pattern of such files\' names ("part-*.txt"), which may end in .gz or .zst; or a dataset on'
        " the hub."
    )


def read_rows(path: str | os.PathLike, columns: Columns) -> Iterator[tuple[str, str | None, str]]:
    """Yield where each document stands (file and line or row), its title if a table says it, and the document.

    Documents are streamed: files are read once from beginning to end, and data sets of the hub are not kept.

    Raises:
        BadInput: see `load_corpus`.
    """
    for file in find_files(path):
        if find_builder(file) is None:
            if name_uncompressed(Path(file)).lower().endswith(".tsv"):
                raise BadInput(
                    f"{file}: a TSV is read as questions and answers (--questions_file, or --train_file of posgpt finetune), not as"
                    " a corpus; save a table of documents as CSV, with commas."
                )
            yield from ((f"{file}, line {number}", None, line) for number, line in read_lines(file, "corpus"))
        else:
            for number, (title, text) in enumerate(read_table(file, columns), start=1):
                yield f"{file}, row {number}", title, f"{title}. {text}" if title else text


def find_files(path: str | os.PathLike) -> list[str]:
    """Return the files that a corpus's name stands for, in the order of their names; a data set of the hub is one.

    Raises:
        BadInput: no file matches this pattern.
    """
    name = os.fspath(path)
    if not has_magic(name) or os.path.exists(name):
        return [name]
    files = sorted(filter(os.path.isfile, glob(name, recursive=True)))
    if not files:
        raise BadInput(f"{name}: no file matches this pattern; give the path of the corpus.")
    return files


def find_builder(path: str | os.PathLike) -> str | None:
    """Return what a table is read with, by its name: the file's kind, or the hub; None: it is a text file."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    *_, suffix = [".", *(suffix for suffix in suffixes if suffix not in COMPRESSED)]
    is_on_hub = re.fullmatch(r"[\w-]+/[\w.-]+", str(path)) and not Path(path).parent.exists()
    return TABLES.get(suffix) or ("hub" if is_on_hub and suffix != ".txt" else None)


def read_table(path: str, columns: Columns) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each row of a table.

    Raises:
        BadInput: there is no such file or dataset, it cannot be read, or it does not have the columns.
    """
    with name_unreadable(path, "documents"):
        for number, row in enumerate(open_table(path, "corpus", columns.config_name)):
            # Later lines of JSON may leave out what is empty.
            if number == 0:
                for option_name, column in (("title_column", columns.title), ("text_column", columns.text)):
                    if column not in row:
                        raise BadInput(
                            f"{path}: has no column {column!r}, but {', '.join(row)}; name one with --{option_name}."
                        )
            yield read_cell(row.get(columns.title)).strip(), read_cell(row.get(columns.text))


def read_cell(value: Any) -> str:
    """Return what stands in a table as text, numbers too; empty where nothing does."""
    return "" if value is None else str(value)


def open_table(path: str, role: str, config_name: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, or of a dataset on the hub (`config_name` is its configuration), read as they are used.

    Raises:
        BadInput: see `check_is_file`, for a table; a CSV has no commas between its columns; a line of JSON Lines is no object;
            what `datasets` raises is not caught here (see `name_unreadable`).
    """
    if find_builder(path) == JSON_LINES:
        yield from read_json_lines(path, role)
        return
    # Much faster than row by row.
    for batch in load_table(path, role, config_name).iter(1000):
        yield from (dict(zip(batch, cells, strict=True)) for cells in zip(*batch.values(), strict=True))


def read_json_lines(path: str, role: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file that has one per line; blank lines are skipped.

    Raises:
        BadInput: see `check_is_file`; or a line is no JSON object.
    """
    for number, line in read_lines(check_is_file(path, role), role):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("it is no object")
        except (ValueError, RecursionError) as error:
            raise BadInput(
                f"{path}, line {number}: not a row of JSON: {shorten_error(error)}; write one object per line, such as"
                ' {"title": "Ada Ek", "text": "Born in Rome."}.'
            ) from None
        yield row


def load_table(path: str, role: str, config_name: str | None) -> IterableDataset:
    """Return what `datasets` makes of a table that it reads; see `open_table`."""
    builder = find_builder(path)
    if builder in (None, "hub"):
        return load_dataset(path, config_name, split="train", streaming=True)
    load_rows = partial(
        load_dataset,
        builder,
        data_files=escape_name(check_is_file(path, role).resolve()),
        split="train",
        streaming=True,
    )
    if builder != "csv":
        return load_rows()
    # What stands in a CSV is text: `None` may be a name, and 00501 is not a number.
    first: dict[str, Any] = next(iter(load_rows(nrows=1)), {})
    if separators := {";", "\t"}.intersection(next(iter(first), "")):
        raise BadInput(f"{path}: its columns are separated by {separators.pop()!r}; save it with commas between them.")
    return load_rows(features=Features(dict.fromkeys(first, Value("string"))), keep_default_na=False)


@contextmanager
def name_unreadable(path: str, what: str) -> Iterator[None]:
    """Raise BadInput in place of what `datasets` raises where a table of `what` is not there or cannot be read."""
    try:
        yield
    except BadInput:
        raise
    except (DatasetsError, HTTPError, OSError, ValueError, ImportError) as error:
        if find_builder(path) in ("csv", "json"):
            # If it is not UTF-8, this says in which line.
            deque(read_lines(path, f"table of {what}"), maxlen=0)
        raise BadInput(
            f"{path}: no table of {what}: {shorten_error(error.__cause__ or error)}; give one that can be read."
        ) from None


def load_corpus(
    paths: str | os.PathLike | Sequence[str | os.PathLike],
    columns: Columns = TITLE_AND_TEXT,
    weights: Sequence[float] | None = None,
) -> Dataset:
    """Return a dataset with the columns `text` and `title` (None in a text file): one row per document, without blank ones.

    Rows stay on disk (Arrow), in the cache of `datasets`, under a name that follows from what the files hold: a corpus is
    read and checked once, wherever it lies.

    Args:
        paths: One corpus or several: a text file with one document per line; a table (`TABLES`); a pattern such as
            `part-*.txt` of the names of either; or the name of a dataset on the hub, whose split `train` is read. Files
            may be compressed (`COMPRESSED`).
        columns: Of a table.
        weights: For each corpus how often its documents are read, in proportion to the other weights: documents are
            drawn from the corpora until each has been read, and the smaller ones are read again as often as it takes. By
            default, all are read once, one after the other.

    Raises:
        BadInput: a file is missing, a directory, empty, not UTF-8, all blank, or contains one of the two symbols that
            the model reserves; a table cannot be read or does not have the columns; or there is not a weight above 0 for
            each corpus.
    """
    paths = [paths] if isinstance(paths, str | os.PathLike) else paths
    if weights is not None and len(weights) != len(paths):
        raise BadInput(f"corpus_weights has {len(weights)} numbers for {len(paths)} corpora; give one for each.")
    for weight in weights or ():
        if not 0 < weight < math.inf:
            raise BadInput(f"corpus_weights has {weight}; give numbers above 0.")
    corpora = [index_corpus(path, columns) for path in paths]
    if weights is None:
        return concatenate_datasets(corpora) if len(corpora) > 1 else corpora[0]
    shares = [weight / sum(weights) for weight in weights]
    return interleave_datasets(corpora, shares, seed=0, stopping_strategy="all_exhausted")


def index_corpus(path: str | os.PathLike, columns: Columns) -> Dataset:
    """Return one corpus out of the cache, where it is written first if need be; see `load_corpus`."""
    contents = [identify_content(file) for file in find_files(path)]
    fingerprint = Hasher.hash([_READER, contents, columns])
    try:
        corpus = Dataset.from_generator(
            read_checked, FEATURES, gen_kwargs={"path": path, "columns": columns}, fingerprint=fingerprint
        )
    except DatasetGenerationError as error:
        raise (error.__cause__ or error) from None
    # The fingerprint of all that is made of a corpus. `datasets` hashes the functions that it is given, but not those that they
    # call in turn, so a hash of our sources is part of it.
    return Dataset(corpus.data, fingerprint=Hasher.hash([fingerprint, hash_code()]))


@cache
def hash_code() -> str:
    """Return a hash of the sources that make training data of a corpus."""
    return hash_files(sorted(Path(__file__).parent.glob("*.py")))


def identify_content(file: str) -> tuple[str | None, str]:
    """Return what a file is read with and the SHA-256 of what it holds; for a dataset of the hub its commit.

    Raises:
        BadInput: there is no such file or dataset, or the hub does not answer and it was not read before.
    """
    builder = find_builder(file)
    if builder != "hub":
        return builder, hash_file(check_is_file(file, "corpus"))
    read_last = find_cache() / f"{file.replace('/', '--')}.commit"
    try:
        commit = str(HfApi().dataset_info(file).sha)
    except (HTTPError, OSError, ValueError) as error:
        # Without a network, or while the hub is down, what was read before is read again.
        if isinstance(error, RepositoryNotFoundError) or not read_last.exists():
            raise BadInput(
                f"{file}: no table of documents: {shorten_error(error)}; give one that can be read."
            ) from None
        return builder, read_last.read_text(encoding="utf-8")
    with write_atomically(read_last) as stream:
        stream.write(commit)
    return builder, commit


def find_cache() -> Path:
    """Return the folder of the corpora that were read before."""
    return Path(config.HF_DATASETS_CACHE) / "posgpt"


def read_checked(path: str | os.PathLike, columns: Columns) -> Iterator[dict[str, str | None]]:
    """Yield the documents of a corpus that are not blank, as rows.

    Raises:
        BadInput: see `load_corpus`.
    """
    is_blank = True
    for where, title, text in read_rows(path, columns):
        for symbol, use in ((MASK_TOKEN, "marks the masked span"), (PAD_TOKEN, "is padding")):
            if symbol in text:
                raise BadInput(f"{where}: holds {symbol!r}, which {use}; replace or remove it.")
        if text.strip():
            is_blank = False
            yield {"title": title, "text": text}
    if is_blank:
        raise BadInput(f"{path}: every line is blank; give a corpus with one document per line.")


def build_corpus_tokenizer(
    corpus: Dataset, max_length: int, more_texts: Iterable[str] = ()
) -> PreTrainedTokenizerFast:
    """Build the tokenizer of a corpus's characters, and of those of other texts.

    Args:
        max_length: The maximum sequence length.
        more_texts: E.g. training questions and their answers.
    """

    def collect(texts: list[str]) -> dict[str, list[str]]:
        return {"characters": ["".join(sorted(set().union(*texts)))]}

    characters = summarize_texts(corpus, collect, "Collecting characters")["characters"]
    return build_tokenizer([*characters, *more_texts], max_length)


def summarize_texts(corpus: Dataset, summarize: Callable[[list[str]], dict[str, list]], desc: str) -> Dataset:
    """Return what `summarize` makes of the texts of each batch of documents; `desc` is what the progress bar says."""
    return corpus.map(
        summarize,
        batched=True,
        batch_size=BATCH,
        input_columns="text",
        remove_columns=corpus.column_names,
        desc=desc,
    )


def tokenize_corpus(corpus: Dataset, tokenizer: PreTrainedTokenizerBase, longest: int | None = None) -> Dataset:
    """Replace the column `text` by `input_ids`, the ids of a document's first characters, and `length`, that of all of it.

    Args:
        corpus: From `load_corpus`.
        longest: How many characters of each document are kept (default: all).
        tokenizer: From `build_tokenizer`: each character is a symbol. Looking them up in a table takes a hundredth of its
            time.
    """
    # The smallest integers that hold every id: a byte for each character of most corpora.
    ids = np.full(sys.maxunicode + 1, tokenizer.unk_token_id, np.min_scalar_type(len(tokenizer) - 1))
    for symbol, number in tokenizer.get_vocab().items():
        ids[ord(symbol)] = number

    def encode(texts: list[str]) -> dict[str, list]:
        lengths = list(map(len, texts))
        kept = [text[:longest] for text in texts]
        points = np.frombuffer("".join(kept).encode("utf-32-le"), np.uint32)
        return {"input_ids": np.split(ids[points], np.cumsum(list(map(len, kept)))[:-1]), "length": lengths}

    kept = {name: feature for name, feature in corpus.features.items() if name != "text"}
    return corpus.map(
        encode,
        batched=True,
        input_columns="text",
        remove_columns="text",
        features=Features(kept | {"input_ids": List(Value(str(ids.dtype))), "length": Value("int32")}),
        desc="Tokenizing",
    )
