"""The pretraining corpus: documents `Title. text` of a text file, a table or a dataset on the hub."""

import csv
import json
import math
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from glob import glob, has_magic
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

from data_scripts.errors import BadInput, reraise_as_bad_input, shorten_error
from data_scripts.files import (
    INVISIBLE,
    check_is_file,
    check_text,
    drop_invisible_start,
    hash_file,
    name_uncompressed,
    read_lines,
    write_file,
)
from data_scripts.options import list_given, option
from data_scripts.titles import BATCH, drop_space_after_title, find_title, iterate_titles
from modeling_posgpt import MASK_TOKEN, PAD_TOKEN, build_tokenizer

# What each kind of table is read as. Not by `datasets`, which takes texts such as 2001-09-11 for dates, later lines with other
# keys for errors, and a comma too many in the first row for an index.
TABLES = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet"}
FEATURES = Features({"title": Value("string"), "text": Value("string")})
# Versions of what the cache keeps: another number when files are read differently, or when what is made of documents (titles,
# words, spans, ids) becomes another for the same documents, so that nothing older is used.
READING_VERSION, DERIVING_VERSION = 6, 11
# What a run's rows depend on besides its options and files.
ROWS_VERSION = f"{READING_VERSION}.{DERIVING_VERSION}"
# Nobody sees these, or tells them from a space.
_UNLIKE = re.compile(f"{INVISIBLE.pattern}|[\u00a0\u2009\u202f]")
# A cell of a CSV may be a whole article.
csv.field_size_limit(2**31 - 1)


@dataclass(kw_only=True)
class Columns:
    """Where a table has its documents."""

    title_column: str = option("Column of titles, if the corpus is a table.", default="title")
    text_column: str = option("Column of texts, if the corpus is a table.", default="text")
    dataset_config_name: str | None = option("Its configuration, if a dataset on the hub has several.", default=None)
    replace_reserved: str | None = option(
        f"What `{PAD_TOKEN}` and `{MASK_TOKEN}`, which the model reserves, become in documents (default: these are refused).",
        default=None,
    )


TITLE_AND_TEXT = Columns()


def check_columns(columns: Columns, corpus: Any, option: str = "--corpus_file") -> None:
    """Check that no column is named without a table: a corpus, or several, which `option` names."""
    given = list_given(columns, [each.name for each in fields(Columns)])
    if not corpus and given:
        raise BadInput(f"--{given[0]} says how to read a corpus; add {option}.")
    named = [name for name in given if name in ("title_column", "text_column")]
    paths = [corpus] if isinstance(corpus, str | os.PathLike) else corpus if isinstance(corpus, Sequence) else []
    files = [file for path in paths if named for file in find_files(path)]
    if files and all(os.path.isfile(file) and detect_format(file) is None for file in files):
        raise BadInput(f"--{named[0]} is of a table, and {files[0]} is a text file; leave it out.")


def load_corpus(
    paths: str | os.PathLike | Sequence[str | os.PathLike],
    columns: Columns = TITLE_AND_TEXT,
    weights: Sequence[float] | None = None,
) -> Dataset:
    """Return a dataset with the columns `text` and `title` (None in a text file): one row per document, without blank ones.

    Rows stay on disk (Arrow), in the cache of `datasets`, under a name that follows from what the files hold: a corpus is
    read and checked once, wherever it lies.

    Args:
        paths: One corpus or several: text files with one document per line, tables (`TABLES`), patterns of their names such
            as `part-*.txt`, or datasets on the hub, whose split `train` is read. Files may be compressed (`COMPRESSED`).
        columns: Of a table.
        weights: For each corpus how often its documents are read, in proportion to the other weights: documents are
            drawn from the corpora until each has been read, and the smaller ones are read again as often as it takes. By
            default, all are read once, one after the other.
    """
    paths = [paths] if isinstance(paths, str | os.PathLike) else paths
    if weights is not None and len(weights) != len(paths):
        raise BadInput(f"corpus_weights has {len(weights)} numbers for {len(paths)} corpora; give one for each.")
    if wrong := [weight for weight in weights or () if not 0 < weight < math.inf]:
        raise BadInput(f"corpus_weights has {wrong[0]}; give numbers above 0.")
    corpora = [_index_corpus(path, columns) for path in paths]
    if weights is None:
        return concatenate_datasets(corpora) if len(corpora) > 1 else corpora[0]
    shares = [weight / sum(weights) for weight in weights]
    return interleave_datasets(corpora, shares, seed=0, stopping_strategy="all_exhausted")


def _index_corpus(path: str | os.PathLike, columns: Columns) -> Dataset:
    """Return one corpus out of the cache, where it is written first if need be."""
    contents = [identify_content(file) for file in find_files(path)]
    named = [columns.title_column, columns.text_column, columns.dataset_config_name, columns.replace_reserved]
    fingerprint = Hasher.hash([READING_VERSION, contents, named])
    arguments = {"gen_kwargs": {"path": path, "columns": columns}, "features": FEATURES, "fingerprint": fingerprint}
    folder = Path(config.HF_DATASETS_CACHE, "generator", f"default-fingerprint={fingerprint}")
    try:
        try:
            for file in folder.rglob("*.arrow"):
                if file.parent.suffix != ".incomplete":  # which another process is writing
                    Dataset.from_file(str(file))
        except FileNotFoundError:
            pass  # Another process has just finished it.
        except (OSError, ValueError):
            # What a full disk or a power cut left empty or cut off is made again, with all that was derived from it.
            shutil.rmtree(folder, ignore_errors=True)
        corpus = Dataset.from_generator(_read_rows_with_text, **arguments)
    except DatasetGenerationError as error:
        raise (error.__cause__ or error) from None
    # The fingerprint of all that is made of a corpus, to which `datasets` adds the functions that make it.
    return Dataset(corpus.data, fingerprint=Hasher.hash([fingerprint, DERIVING_VERSION]))


def _read_rows_with_text(path: str | os.PathLike, columns: Columns) -> Iterator[dict[str, str | None]]:
    is_blank = True
    for _, title, text in read_rows(path, columns):
        if text.strip():
            is_blank = False
            yield {"title": title, "text": text}
    if is_blank:
        reason = "no row has text" if detect_format(path) else "every line is blank"
        raise BadInput(f"{path}: {reason}; give a corpus with one document per line.")


def identify_content(file: str) -> tuple[str | None, str]:
    """Return what a file is read as and the SHA-256 of what it holds; for a dataset of the hub its commit."""
    kind = detect_format(file)
    if kind != "hub":
        return kind, hash_file(check_is_file(file, "corpus"))
    read_last = Path(config.HF_DATASETS_CACHE, "posgpt", f"{file.replace('/', '--')}.commit")
    try:
        commit = str(HfApi().dataset_info(file).sha)
    except (HTTPError, OSError, ValueError) as error:
        # Without a network, or while the hub is down, what was read before is read again.
        if isinstance(error, RepositoryNotFoundError) or not read_last.exists():
            raise _refuse_table(file, "documents", error) from None
        return kind, read_last.read_text(encoding="utf-8")
    write_file(read_last, commit)
    return kind, commit


def find_files(path: str | os.PathLike) -> list[str]:
    """Return the files that a corpus's name stands for, in the order of their names; a dataset of the hub is one."""
    name = os.fspath(path)
    if not has_magic(name) or os.path.exists(name):
        return [name]
    files = sorted(filter(os.path.isfile, glob(name, recursive=True)))
    if not files:
        raise BadInput(f"{name}: no file matches this pattern; give the path of the corpus.")
    return files


def detect_format(path: str | os.PathLike) -> str | None:
    """Return what a table is read as, by its name: `csv`, `json`, `parquet` or `hub`; None: it is a text file."""
    suffix = Path(name_uncompressed(path)).suffix.lower()
    is_on_hub = re.fullmatch(r"[\w-]+/[\w.-]+", str(path)) and not Path(path).parent.exists()
    return TABLES.get(suffix) or ("hub" if is_on_hub and suffix != ".txt" else None)


def read_rows(path: str | os.PathLike, columns: Columns) -> Iterator[tuple[str, str | None, str]]:
    """Yield where each document stands (file and line or row), its title if a table says it, and the document.

    Documents are streamed, and each is checked here, and nowhere else.
    """
    rows: Iterable[tuple[str, str | None, str]]
    reserved, first, number = 0, "", 0
    replaced = str.maketrans(dict.fromkeys((PAD_TOKEN, MASK_TOKEN), columns.replace_reserved))
    for file in find_files(path):
        if detect_format(file) is not None:
            rows = _read_table(file, columns)
        elif name_uncompressed(file).lower().endswith(".tsv"):
            raise BadInput(
                f"{file}: a TSV is read as questions and answers (--questions_file, or --train_file of posgpt finetune), not as"
                " a corpus; save a table of documents as CSV, with commas."
            )
        else:
            # A space before or after a title would be a part of it.
            lines = read_lines(file, "corpus")
            rows = ((where, None, drop_space_after_title(line.strip())) for where, line in lines)
        for where, title, text in rows:
            number += text.strip() != ""
            if columns.replace_reserved is not None:
                title, text = title and title.translate(replaced), text.translate(replaced)
            if MASK_TOKEN in text or PAD_TOKEN in text:
                found = PAD_TOKEN if PAD_TOKEN in text else MASK_TOKEN
                reserved, first = reserved + 1, first or f"{where}: holds {found!r}"
                continue
            # No invisible character, null or half of one is printable.
            if not text.isprintable():
                check_text(where, text, name=find_title(title, text))
            yield where, title, text
    if reserved:
        raise BadInput(
            f"{first}, which the model reserves ({reserved:,} of {number:,} documents hold {PAD_TOKEN} or {MASK_TOKEN});"
            " --replace_reserved '?' replaces it."
        )


def _read_table(path: str, columns: Columns) -> Iterator[tuple[str, str, str]]:
    absent, there = ["title_column", "text_column"], dict[str, Any]()
    for where, row in open_table(path, "documents", columns.dataset_config_name):
        if absent:
            absent, there = [name for name in absent if getattr(columns, name) not in row], there | row
            # Lines of JSON may leave out what is empty.
            if absent and detect_format(path) != "json":
                break
        title, text = read_title(row.get(columns.title_column), where), read_cell(row.get(columns.text_column), where)
        yield where, title, f"{title}. {text}" if title else text
    if absent and there:
        column = getattr(columns, absent[0])
        raise BadInput(f"{path}: has no column {column!r}, but {', '.join(there)}; name one with --{absent[0]}.")


def read_cell(value: Any, where: str) -> str:
    """Return the text of a table's cell, empty where nothing stands (null, or NaN)."""
    # NaN alone is not itself.
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        return value
    raise BadInput(f"{where}: holds {str(value)[:60]} ({type(value).__name__}) where text belongs; write it as text.")


def read_title(value: Any, where: str) -> str:
    """Return a title in a table, which may be a whole number; see `read_cell`."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return drop_invisible_start(read_cell(str(value) if is_number else value, where)).strip()


def open_table(path: str, what: str, config_name: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield where each row stands, and the row, of a table of `what`, or of a dataset on the hub; rows are read as they are used."""
    kind, role = detect_format(path), f"table of {what}"
    if kind in ("csv", "json"):
        yield from _read_csv(path, role) if kind == "csv" else _read_json(path, role)
        return
    file = None if kind == "hub" else check_is_file(path, role)
    if kind is None:
        raise BadInput(f"{path}: is no {role}; give JSON Lines, CSV or Parquet, with a name that ends so.")
    try:
        # Much faster than row by row.
        if file:
            batches = ParquetFile(file).iter_batches(1000)
        else:
            batches = load_dataset(path, config_name, split="train", streaming=True).with_format("arrow").iter(1000)
        for i, row in enumerate(chain.from_iterable(batch.to_pylist() for batch in batches), start=1):
            yield f"{path}, row {i}", row
    except (DatasetsError, HTTPError, OSError, ValueError, ImportError, ArrowException) as error:
        raise _refuse_table(path, what, error) from None


def _refuse_table(path: str, what: str, error: Exception) -> BadInput:
    reason = shorten_error(error.__cause__ or error).rstrip(".")
    return BadInput(f"{path}: no table of {what}: {reason}; give one that can be read.")


def _read_csv(path: str, role: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield where each row of a CSV ends, and the row; what stands in it is text, also `None` and 00501."""
    lines = (f"{line}\n" for _, line in read_lines(path, role))
    header = next(lines, "")
    if "," not in header and (separator := re.search("[;\t]", header)):
        raise BadInput(f"{path}, line 1: columns are separated by {separator[0]!r}; save it with commas.")
    rows = csv.DictReader(chain([header], lines), strict=True)
    try:
        names = rows.fieldnames or ()
        if rows.fieldnames == []:
            raise BadInput(f"{path}, line 1: is blank; begin with the names of the columns.")
        if twice := [name for name in names if name and names.count(name) > 1]:
            raise BadInput(f"{path}, line 1: names two columns {twice[0]!r}; rename one of them.")
        for row in rows:
            # What there is too much has no name, and what there is too little no text.
            if None in row or None in row.values():
                raise BadInput(
                    f"{path}, line {rows.line_num}: has more or fewer columns than the first line, which names"
                    f" {', '.join(names)}; put cells with commas in quotation marks."
                )
            yield f"{path}, line {rows.line_num}", row
    except csv.Error as error:
        raise BadInput(
            f"{path}, line {rows.line_num + 1}: not a row of CSV: {error}; double a quotation mark within quotation marks."
        ) from None


def _read_json(path: str, role: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield where each object of a file stands, and the object: one per line, or all in one list."""
    form = 'write one object per line, such as {"title": "Ada", "text": "Born."}'
    lines = ((where, line) for where, line in read_lines(path, role) if line.strip())
    for where, line in lines:
        is_list = line.lstrip().startswith("[")
        with reraise_as_bad_input(f"{where}: not a row of JSON", f"{form}.", ValueError, RecursionError):
            content = json.loads("\n".join([line, *(more for _, more in lines)]) if is_list else line)
        for row_number, row in enumerate(content if is_list else [content], start=1):
            if not isinstance(row, dict):
                raise BadInput(f"{where}: not a row of JSON: {str(row)[:60]!r} is no object; {form}.")
            yield f"{path}, row {row_number}" if is_list else where, row


def build_corpus_tokenizer(
    corpus: Dataset, max_length: int, more_texts: Iterable[str] = ()
) -> PreTrainedTokenizerFast:
    """Build the tokenizer of a corpus's characters, and of those of other texts, such as training questions and answers."""
    return build_tokenizer([*summarize_texts(corpus)["characters"], *more_texts], max_length)


def summarize_texts(corpus: Dataset) -> Dataset:
    """Return the characters of each batch of documents, and how many are not in NFC and how many hold what nobody tells apart."""

    # Which characters a corpus has does not show it: no letter takes the stress mark of a Russian а, but an a beside it does.
    def summarize(texts: list[str]) -> dict[str, list]:
        invisible = sum(not text.isprintable() and _UNLIKE.search(text) is not None for text in texts)
        characters = "".join(sorted(set().union(*texts)))
        return {"characters": [characters], "decomposed": [count_decomposed(texts)], "invisible": [invisible]}

    settings = {"batched": True, "batch_size": BATCH, "input_columns": "text", "remove_columns": corpus.column_names}
    return corpus.map(summarize, **settings, desc="Collecting characters")


def count_decomposed(texts: Iterable[str]) -> int:
    """Return how many texts are not in Unicode's normal form C, in which é is one character, never an e and an accent."""
    return sum(not unicodedata.is_normalized("NFC", text) for text in texts)


def describe_decomposed(name: str, decomposed: int, what: str) -> str:
    """Return one line on texts that are not in NFC; empty if all are. `what` says of how many texts, of which kind."""
    fix = "merge them in Python: unicodedata.normalize('NFC', text)."
    return f"{name}: {decomposed:,} of {what} write accents apart from their letters; {fix}" if decomposed else ""


def describe_documents(corpus: Dataset, paths: Sequence[str]) -> Iterator[str]:
    """Yield a line for each thing about a corpus, loaded from `paths`, that a reader should know before training on it."""
    name, size, counts = ", ".join(paths), f"{len(corpus):,} documents", summarize_texts(corpus)
    if note := describe_decomposed(name, sum(counts["decomposed"]), size):
        yield note
    if invisible := sum(counts["invisible"]):
        yield (
            f"{name}: {invisible:,} of {size} hold characters that nobody tells apart, such as no-break spaces, soft hyphens or marks of"
            " direction; words with them differ from those of questions without."
        )
    if not any(iterate_titles(corpus)):
        yield f"{name}: no document has a title; each should begin with one, as in `TITLE. text`."


def tokenize_corpus(corpus: Dataset, tokenizer: PreTrainedTokenizerBase, longest: int | None = None) -> Dataset:
    """Replace the column `text` by `input_ids`, the ids of a document's first characters, and `length`, that of all of it.

    Each character is a symbol of the tokenizer; a table takes a hundredth of its time. `longest` is how many characters of
    each document are kept (default: all).
    """
    # The smallest integers that hold every id: a byte for each character of most corpora.
    ids = np.full(sys.maxunicode + 1, tokenizer.unk_token_id, np.min_scalar_type(len(tokenizer) - 1))
    for symbol, id in tokenizer.get_vocab().items():
        ids[ord(symbol)] = id

    def encode(texts: list[str]) -> dict[str, list]:
        kept = [text[:longest] for text in texts]
        points = np.frombuffer("".join(kept).encode("utf-32-le"), np.uint32)
        input_ids = np.split(ids[points], np.cumsum(list(map(len, kept)))[:-1])
        return {"input_ids": input_ids, "length": list(map(len, texts))}

    kept = {name: feature for name, feature in corpus.features.items() if name != "text"}
    return corpus.map(
        encode,
        batched=True,
        input_columns="text",
        remove_columns="text",
        features=Features(kept | {"input_ids": List(Value(str(ids.dtype))), "length": Value("int32")}),
        desc="Tokenizing",
    )
