"""The pretraining corpus: documents `Title. text` of a text file, a table or a dataset on the hub."""

import csv
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from glob import glob, has_magic
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, List, Value, concatenate_datasets, config, interleave_datasets, load_dataset
from datasets.exceptions import DatasetGenerationError, DatasetsError
from datasets.fingerprint import Hasher
from huggingface_hub import HfApi
from huggingface_hub.errors import HTTPError, RepositoryNotFoundError
from pyarrow import ArrowException
from pyarrow.parquet import ParquetFile
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from data_scripts.errors import BadInput
from data_scripts.files import (
    COMPRESSED,
    check_is_file,
    check_text,
    drop_invisible_start,
    find_compression,
    hash_file,
    hash_files,
    name_uncompressed,
    open_uncompressed,
    read_lines,
    write_atomically,
)
from data_scripts.options import option, shorten_error
from data_scripts.titles import BATCH, find_title
from modeling_posgpt import MASK_TOKEN, PAD_TOKEN, build_tokenizer

# What each kind of table is read as. Not by `datasets`, which takes texts such as 2001-09-11 for dates, later lines with other
# keys for errors, and a comma too many in the first row for an index.
TABLES = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet"}
FEATURES = Features({"title": Value("string"), "text": Value("string")})
# The version of the index: another number when files are read differently, so that older indexes are not used.
_READER = 3
_JSON_FORM = 'write one object per line, such as {"title": "Ada Ek", "text": "Born in Rome."}'
# What a stream of Arrow ends with.
_ARROW_END = b"\xff\xff\xff\xff\0\0\0\0"
# A cell of a CSV may be a whole article.
csv.field_size_limit(2**31 - 1)


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

    Documents are streamed: files are read once from beginning to end, and data sets of the hub are not kept. Each is checked
    here, and nowhere else.

    Raises:
        BadInput: see `load_corpus`.
    """
    for file in find_files(path):
        is_text = find_builder(file) is None
        if is_text and name_uncompressed(Path(file)).lower().endswith(".tsv"):
            raise BadInput(
                f"{file}: a TSV is read as questions and answers (--questions_file, or --train_file of posgpt finetune), not as"
                " a corpus; save a table of documents as CSV, with commas."
            )
        for where, title, text in read_text_file(file) if is_text else read_table(file, columns):
            # No invisible character, null or half of one is printable.
            if not text.isprintable() or MASK_TOKEN in text or PAD_TOKEN in text:
                check_text(where, text, name=find_title(title, text))
            yield where, title, text


def read_text_file(path: str) -> Iterator[tuple[str, None, str]]:
    """Yield the documents of a text file, one per line, as `read_rows` does."""
    return ((f"{path}, line {number}", None, line) for number, line in read_lines(path, "corpus"))


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


def read_table(path: str, columns: Columns) -> Iterator[tuple[str, str, str]]:
    """Yield where each row of a table stands, its title, and its document.

    Raises:
        BadInput: see `open_table`; or it does not have the columns, or they hold something else than text.
    """
    for number, (where, row) in enumerate(open_table(path, "documents", columns.config_name)):
        # Later lines of JSON may leave out what is empty.
        if number == 0:
            for option_name, column in (("title_column", columns.title), ("text_column", columns.text)):
                if column not in row:
                    raise BadInput(
                        f"{path}: has no column {column!r}, but {', '.join(row)}; name one with --{option_name}."
                    )
        title, text = read_title(row.get(columns.title), where), read_cell(row.get(columns.text), where)
        yield where, title, f"{title}. {text}" if title else text


def read_cell(value: Any, where: str) -> str:
    """Return the text of a table's cell, empty where nothing stands (null, or NaN).

    Raises:
        BadInput: the cell holds something else.
    """
    # NaN alone is not itself.
    if value is None or value != value:
        return ""
    if not isinstance(value, str):
        raise BadInput(
            f"{where}: holds {str(value)[:60]} ({type(value).__name__}) where text belongs; write it as text."
        )
    return value


def read_title(value: Any, where: str) -> str:
    """Return a title in a table, which may be a whole number; see `read_cell`."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return drop_invisible_start(read_cell(str(value) if is_number else value, where)).strip()


def open_table(path: str, what: str, config_name: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield where each row stands, and the row, of a table of `what`, or of a dataset on the hub; rows are read as they are used.

    Args:
        config_name: The configuration of a dataset on the hub.

    Raises:
        BadInput: there is no such file or dataset, or it cannot be read; the line is named.
    """
    builder = find_builder(path)
    try:
        if builder in ("csv", "json"):
            yield from (read_csv if builder == "csv" else read_json)(path, f"table of {what}")
            return
        # Much faster than row by row.
        batches = read_parquet(path, what) if builder == "parquet" else read_hub(path, config_name)
        for number, row in enumerate(chain.from_iterable(batches), start=1):
            yield f"{path}, row {number}", row
    except BadInput:
        raise
    except (DatasetsError, HTTPError, OSError, ValueError, ImportError, ArrowException) as error:
        raise BadInput(
            f"{path}: no table of {what}: {shorten_error(error.__cause__ or error)}; give one that can be read."
        ) from None


def read_hub(name: str, config_name: str | None) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a dataset on the hub, by batches."""
    for batch in load_dataset(name, config_name, split="train", streaming=True).iter(1000):
        yield [dict(zip(batch, cells, strict=True)) for cells in zip(*batch.values(), strict=True)]


def read_parquet(path: str, what: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a Parquet table, by batches."""
    file: Path | BytesIO = check_is_file(path, f"table of {what}")
    if find_compression(path):
        with open_uncompressed(Path(path)) as stream:
            # It is read from its end.
            file = BytesIO(stream.read())
    for batch in ParquetFile(file).iter_batches(1000):
        yield batch.to_pylist()


def read_csv(path: str, role: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield where each row of a CSV begins, and the row; what stands in it is text, also `None` and 00501.

    Raises:
        BadInput: see `read_lines`; its columns are not separated by commas, or a row has not as many as the first line.
    """
    rows, header, line = csv.reader((f"{line}\n" for _, line in read_lines(path, role)), strict=True), None, 1
    while True:
        where = f"{path}, line {line}"
        try:
            cells = next(rows, None)
        except csv.Error as error:
            raise BadInput(
                f"{where}: not a row of CSV: {error}; write a quotation mark within quotation marks twice."
            ) from None
        line = rows.line_num + 1
        if cells is None:
            return
        if not cells:
            continue
        if header is None:
            header = cells
            if separators := {";", "\t"}.intersection(header[0]):
                raise BadInput(
                    f"{path}: its columns are separated by {separators.pop()!r}; save it with commas between them."
                )
            if twice := [name for name in header if name and header.count(name) > 1]:
                raise BadInput(f"{where}: names the column {twice[0]!r} twice; give each another name.")
        elif len(cells) != len(header):
            raise BadInput(
                f"{where}: has {len(cells)} columns, but the first line names {len(header)}; put cells with commas in"
                " quotation marks."
            )
        else:
            yield where, dict(zip(header, cells, strict=True))


def read_json(path: str, role: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield where each object of a file stands, and the object: one per line or, in a `.json`, all in one list.

    Raises:
        BadInput: see `read_lines`; or something else than an object stands there. Blank lines may.
    """
    lines = ((f"{path}, line {number}", line) for number, line in read_lines(path, role) if line.strip())
    if (first := next(lines, None)) is None:
        return
    whole = chain([first], lines)
    if first[1].lstrip().startswith("[") and name_uncompressed(Path(path)).lower().endswith(".json"):
        listed = parse_json(path, "\n".join(line for _, line in whole))
        rows: Iterable[tuple[str, Any]] = (
            (f"{path}, row {number}", row) for number, row in enumerate(listed, start=1)
        )
    else:
        rows = ((where, parse_json(where, line)) for where, line in whole)
    for where, row in rows:
        if not isinstance(row, dict):
            raise BadInput(f"{where}: not a row of JSON: it is no object; {_JSON_FORM}.")
        yield where, row


def parse_json(where: str, text: str) -> Any:
    """Return what a text in JSON stands for.

    Raises:
        BadInput: it is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}: not a row of JSON: {shorten_error(error)}; {_JSON_FORM}.") from None


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
    folder = Path(config.HF_DATASETS_CACHE, "generator", f"default-fingerprint={fingerprint}")
    for file in folder.rglob("*.arrow"):
        # What a full disk or a power cut left empty or cut off is made again, with all that was derived from it.
        if not is_whole(file):
            shutil.rmtree(folder)
            break
    make = partial(Dataset.from_generator, read_documents, FEATURES, fingerprint=fingerprint)
    try:
        try:
            corpus = make(gen_kwargs={"path": path, "columns": columns})
        except (OSError, ValueError):
            if not folder.exists():
                raise
            shutil.rmtree(folder)
            corpus = make(gen_kwargs={"path": path, "columns": columns})
    except DatasetGenerationError as error:
        raise (error.__cause__ or error) from None
    # The fingerprint of all that is made of a corpus. `datasets` hashes the functions that it is given, but not those that they
    # call in turn, so a hash of our sources is part of it.
    return Dataset(corpus.data, fingerprint=Hasher.hash([fingerprint, hash_code()]))


def is_whole(file: Path) -> bool:
    """Return whether a file of Arrow has its end."""
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - len(_ARROW_END)))
        return stream.read() == _ARROW_END


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


def read_documents(path: str | os.PathLike, columns: Columns) -> Iterator[dict[str, str | None]]:
    """Yield the documents of a corpus that are not blank, as rows.

    Raises:
        BadInput: see `load_corpus`.
    """
    is_blank = True
    for _, title, text in read_rows(path, columns):
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
