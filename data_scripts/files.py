"""Read files so that an error says where and what is wrong; write files so that none is ever half-written."""

import hashlib
import json
import os
import re
import shutil
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import IO, Any
from unicodedata import name as name_character

import pyarrow
import yaml

from data_scripts.errors import BadInput, reraise_as_bad_input
from data_scripts.words import MARKS
from modeling_posgpt import MASK_TOKEN, PAD_TOKEN

# The files of a task.
FILE_NAMES = ("wiki.txt", "birth_places_train.tsv", "birth_dev.tsv", "birth_test_inputs.tsv")
CORPUS_FILE, TRAIN_FILE, DEV_FILE, TEST_FILE = FILE_NAMES
# What the hub shows of a model or a dataset.
CARD_FILE = "README.md"
# What a world asks, and the same in words that training has not read.
RELATIONS_FILE, WORDINGS_FILE = "relations.yml", "other_wordings.yml"
# How a file is compressed, by the end of its name.
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
# What a file is instead of text, by its first bytes, and what to do.
_PARQUET = rb"PAR1\x15"
_SIGNATURES = (
    (rb"version https://git-lfs", "a Git LFS pointer, not the file itself; fetch that with: git lfs pull"),
    (rb"\s*<(!doctype html|html|head|\?xml)\b", "a page of HTML or XML; save the text or the table that it shows"),
    (rb"\x1f\x8b", "compressed with gzip; make its name end in .gz, or unpack it"),
    (rb"\x28\xb5\x2f\xfd", "compressed with zstd; make its name end in .zst, or unpack it"),
    (rb"BZh\d1AY&SY|\xfd7zXZ|7z\xbc\xaf", "compressed (.bz2, .xz or .7z); unpack it and give the result"),
    (rb"PK\x03\x04|\xd0\xcf\x11\xe0|%PDF-", "a spreadsheet, a PDF or a ZIP archive; save it as CSV, or unpack it"),
    (_PARQUET, "a Parquet table; make its name end in .parquet"),
)
# Characters that nobody sees: controls but tabs and line ends, soft hyphens, spaces of no width, marks of direction, word joiners,
# byte-order marks. Joiners (U+200C, U+200D), which Persian, Hindi and emoji need, join nothing at the beginning of a text or after
# a space or a Latin letter.
_UNSEEN = "\x01-\x08\v\f\x0e-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
_INVISIBLE_START = re.compile(rf"\A[{_UNSEEN}\u200c\u200d]+")
INVISIBLE = re.compile(f"[{_UNSEEN}]|(?<=[ -\u024f])[\u200c\u200d]")
UNUSABLE = re.compile(f"[\0{MASK_TOKEN}{PAD_TOKEN}\ud800-\udfff]")


def split_people(people: int) -> dict[str, range]:
    """Return the numbers of the people whom each TSV of a task asks about: they are shared out as in the course's data."""
    train_end = round(people * 2000 / 2937)
    dev_end = train_end + round(people * 500 / 2937)
    return {TRAIN_FILE: range(train_end), DEV_FILE: range(train_end, dev_end), TEST_FILE: range(dev_end, people)}


def choose_file(number: int, people: int) -> str:
    """Return which TSV of a task asks about a person, whose number is from 0 and below `people`."""
    return next(file for file, numbers in split_people(people).items() if number in numbers)


def check_is_file(path: str | os.PathLike, what: str) -> Path:
    """Return `path` if it is a file of text or data as its name says; `what` names its role in the message."""
    path = Path(path)
    if path.is_dir():
        raise BadInput(f"{path}: this is a directory; give the {what} itself.")
    if not path.exists():
        raise BadInput(f"{path}: no such file; give the path of the {what}.")
    # A pipe, which could be read only once, has no size either.
    if not path.stat().st_size:
        raise BadInput(f"{path}: the file is empty; give a {what} that is not.")
    with open_uncompressed(path) as file:
        start = file.read(64)
    for signature, found in _SIGNATURES:
        is_expected = signature == _PARQUET and ".parquet" in path.name.lower()
        if not is_expected and re.match(signature, start.removeprefix(BOM_UTF8), re.IGNORECASE):
            raise BadInput(f"{path}: this is {found}.")
    return path


def check_are_files(what: str, *groups: Iterable[str] | None) -> None:
    """Refuse files that are missing or no text, before something else is read that may take long."""
    for path in chain(*filter(None, groups)):
        check_is_file(path, what)


def check_is_folder_or_new(path: str | os.PathLike) -> Path:
    """Return `path` if it is a folder or can become one."""
    path = Path(path)
    for part in (path, *path.parents):
        if part.is_file():
            raise BadInput(f"{part}: this is a file; give a folder instead.")
    return path


def check_is_new(path: str | os.PathLike) -> Path:
    """Return `path` if nothing is there and a file or a folder can be made there."""
    path = Path(path)
    if os.path.lexists(path):
        raise BadInput(f"{path}: is already there and is not overwritten; give another name, or remove it first.")
    return check_is_folder_or_new(path)


def name_uncompressed(path: str | os.PathLike) -> str:
    """Return a file's name without the ending that says how it is compressed."""
    path = Path(path)
    return path.stem if path.suffix.lower() in COMPRESSED else path.name


@contextmanager
def open_uncompressed(path: Path) -> Iterator[BufferedReader]:
    """Open a file, which may be compressed (`COMPRESSED`), to read its bytes."""
    try:
        with BufferedReader(pyarrow.input_stream(path, compression=COMPRESSED.get(path.suffix.lower()))) as file:
            yield file
    except OSError as error:
        # What the system refuses has a number.
        if error.errno is not None:
            raise
        raise BadInput(f"{path}: cannot be read to its end: {error}; compress or copy it again.") from None


def check_text(where: str, text: str, name: str = "") -> None:
    """Check that a text that was read at `where` holds nothing that the model reserves, or that no text has.

    `name` is a title, a question or an answer in it, which has to be equal somewhere else: it holds nothing that nobody sees.
    """
    if found := UNUSABLE.search(text):
        reasons = dict.fromkeys((MASK_TOKEN, PAD_TOKEN), "which the model reserves")
        reasons["\0"] = "a null character, which no text has"
        reason = reasons.get(found[0], "half a character, which no encoding holds")
        raise BadInput(f"{where}: holds {found[0]!r}, {reason}; replace or remove it.")
    if found := INVISIBLE.search(name):
        character = f"U+{ord(found[0]):04X} {name_character(found[0], 'a control character')}"
        raise BadInput(f"{where}: {name[:60]!r} holds {character}, which nobody sees; remove it.")


def drop_invisible_start(text: str) -> str:
    """Return a text without what nobody sees at its beginning, such as byte-order marks."""
    return text if text[:1].isprintable() else _INVISIBLE_START.sub("", text)


def check_none_is_there(folder: Path, names: Iterable[str], overwrite: bool) -> None:
    """Check that a folder is one or can become one, and has no file of these names unless it may be overwritten."""
    check_is_folder_or_new(folder)
    there = [name for name in names if (folder / name).exists()]
    if there and not overwrite:
        raise BadInput(f"{folder / there[0]}: already there; give another --output_dir, or --overwrite.")


def make_file_name(text: str) -> str:
    """Return a text's words, joined by underscores."""
    return re.sub(rf"[^\w{MARKS}]+", "_", text).strip("_")


def read_lines(path: str | os.PathLike, what: str) -> Iterator[tuple[str, str]]:
    """Yield where each line of a UTF-8 file stands, for messages, and the line without its end.

    It may be compressed (`COMPRESSED`). What nobody sees at a line's beginning, such as byte-order marks, is dropped.
    """
    with open_uncompressed(check_is_file(path, what)) as file:
        for number, raw in enumerate(file, start=1):
            where = f"{path}, line {number}"
            try:
                line = drop_invisible_start(raw.decode("utf-8").rstrip("\r\n"))
            except UnicodeDecodeError as error:
                is_utf16 = raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
                # Another encoding than the file's would make other letters of it.
                which = "" if is_utf16 else ", with its encoding, such as latin1, cp1251, gb18030, cp932 or cp949"
                raise BadInput(
                    f"{where}: byte {error.start + 1} of the line is not UTF-8; save the file as UTF-8 (iconv -f"
                    f" {'utf-16' if is_utf16 else 'ENCODING'} -t utf-8{which})."
                ) from None
            if "\r" in line:
                raise BadInput(f"{where}: a carriage return in the line; remove it or break the line.")
            yield where, line


def load_json(path: str | os.PathLike, what: str) -> dict[str, Any]:
    """Return the JSON object that a file holds; `what` names its role in the message."""
    path = check_is_file(path, what)
    # The second is what JSON nested thousands of levels deep raises.
    kinds = ValueError, RecursionError
    with reraise_as_bad_input(f"{path}: not JSON that can be read", f"restore the {what}.", *kinds):
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
        return content


class _Loader(yaml.SafeLoader):
    """PyYAML's loader, which reads YAML 1.1, with YAML 1.2's numbers, such as `1e-5`, and no name twice in one place."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        names = [name.value for name, _ in node.value]
        for i, (name, _) in enumerate(node.value):
            if name.value in names[:i]:
                raise ValueError(f"line {name.start_mark.line + 1} has {name.value!r}, which is there twice")
        return super().construct_mapping(node, deep)


_FLOAT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+$", re.ASCII)
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def load_yaml(path: str | os.PathLike, what: str, fix: str = "fix it there.") -> Any:
    """Return what a YAML file holds; `what` names its role in the message."""
    lines = [line for _, line in read_lines(path, what)]
    # PyYAML's constructors raise exceptions of many types, for a date such as 2024-13-40.
    with reraise_as_bad_input(f"{path}: not YAML that can be read", fix, Exception):
        return yaml.load("\n".join(lines), _Loader)


def hash_file(path: str | os.PathLike) -> str:
    """Return the SHA-256 of a file's contents, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_file(path: str | os.PathLike) -> None:
    """Wait until a file's contents are on the disk, where a power cut leaves them as they are."""
    # Windows wants the file to be open for writing.
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


@contextmanager
def write_atomically(path: str | os.PathLike, mode: str = "w") -> Iterator[IO]:
    """Open a temporary file beside `path`; rename it to `path` if the `with` block succeeds, else remove it."""
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    temporary = _name_temporary(path)
    temporary.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary.open(mode, **text) as file:
            yield file
        sync_file(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_file(path: str | os.PathLike, content: str | bytes) -> None:
    """Write a whole file; what no encoding has becomes an escape such as `\\udcfc`."""
    with write_atomically(path, "wb") as file:
        file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)


@contextmanager
def write_lines(folder: Path, names: Iterable[str]) -> Iterator[tuple[Callable[[str, str], None], dict[str, int]]]:
    """Write files line by line, all or none; yield what writes a line into the file of a name, and the lines by name so far."""
    lines = dict.fromkeys(names, 0)
    with ExitStack() as stack:
        files = {name: stack.enter_context(write_atomically(folder / name)) for name in lines}

        def write_line(name: str, line: str) -> None:
            files[name].write(line + "\n")
            lines[name] += 1

        yield write_line, lines


def describe_lines(folder: str | os.PathLike, lines: dict[str, int]) -> str:
    """Return one line on how many lines the files in a folder have, from `write_lines`."""
    return f"{folder}: {', '.join(f'{name} has {count:,} lines' for name, count in lines.items())}."


@contextmanager
def write_folder_atomically(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a new folder beside `path`, where nothing is yet; rename it to `path` if the `with` block succeeds, else remove it."""
    temporary = _name_temporary(path)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        os.rename(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def remove_if_refused(folder: Path) -> Iterator[None]:
    """Remove a folder that was not there before if the `with` block, which writes files into it, then refuses the input."""
    is_new = not folder.exists()
    try:
        yield
    except BadInput:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _name_temporary(path: str | os.PathLike) -> Path:
    return Path(path).with_name(f".{Path(path).name}.{os.getpid()}.tmp")
