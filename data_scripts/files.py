"""Read files so that an error says where and what is wrong; write files so that none is ever half-written."""

import hashlib
import json
import os
import re
import shutil
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, Any
from unicodedata import name as name_character

import pyarrow
import yaml

from data_scripts.errors import BadInput
from data_scripts.options import shorten_error
from modeling_posgpt import MASK_TOKEN, PAD_TOKEN

# The files of a task.
CORPUS_FILE, TRAIN_FILE, DEV_FILE, TEST_FILE = FILE_NAMES = (
    "wiki.txt",
    "birth_places_train.tsv",
    "birth_dev.tsv",
    "birth_test_inputs.tsv",
)
# What the hub shows of a model or a dataset.
CARD_FILE = "README.md"
# How a file is compressed, by the end of its name.
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
# What a file is instead of text, by its first bytes, and what to do.
_PARQUET = rb"PAR1\x15"
_SIGNATURES = (
    (rb"version https://git-lfs", "a Git LFS pointer, not the file itself; fetch that with: git lfs pull"),
    (rb"/annex/objects/", "a git-annex pointer, not the file itself; fetch that with: git annex get"),
    (rb"\s*<(!doctype html|html|head|\?xml)\b", "a page of HTML or XML; save the text or the table that it shows"),
    (rb"\x1f\x8b", "compressed with gzip; make its name end in .gz, or unpack it"),
    (rb"\x28\xb5\x2f\xfd", "compressed with zstd; make its name end in .zst, or unpack it"),
    (rb"BZh\d1AY&SY", "compressed with bzip2; unpack it (bunzip2) and give the result"),
    (rb"\xfd7zXZ|7z\xbc\xaf|Rar!\x1a", "compressed (.xz, .7z or .rar); unpack it and give the result"),
    (rb"PK\x03\x04", "a spreadsheet (.xlsx, .ods) or a ZIP archive; save it as CSV, or unpack it"),
    (rb"\xd0\xcf\x11\xe0|\{\\rtf|%PDF-", "a file of an office program; save it as CSV or as plain text"),
    (_PARQUET, "a Parquet table; make its name end in .parquet"),
)
# Characters that nobody sees: controls but tabs and line ends, soft hyphens, spaces of no width, marks of direction, word joiners,
# byte-order marks. Joiners (U+200C, U+200D), which Persian, Hindi and emoji need, join nothing at the beginning of a text or after
# a space or a Latin letter.
_UNSEEN = (
    "\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
)
_INVISIBLE_START = re.compile(rf"\A[{_UNSEEN}\u200c\u200d]+")
INVISIBLE = re.compile(f"[{_UNSEEN}]|(?<=[ -\u024f])[\u200c\u200d]")
_UNUSABLE = re.compile(f"[\0{MASK_TOKEN}{PAD_TOKEN}\ud800-\udfff]")


def choose_file(number: int, people: int) -> str:
    """Return which TSV of a task asks about a person, whose number is from 0: they are shared out as in the course's data."""
    train_end = round(people * 2000 / 2937)
    dev_end = train_end + round(people * 500 / 2937)
    return TRAIN_FILE if number < train_end else DEV_FILE if number < dev_end else TEST_FILE


def check_is_file(path: str | os.PathLike, what: str) -> Path:
    """Return `path` if it is a file that is not empty; `what` names its role in the message.

    Raises:
        BadInput: the path does not exist, is a directory, or is empty; or its first bytes show that it is something else.
    """
    path = Path(path)
    if path.is_dir():
        raise BadInput(f"{path}: this is a directory; give the {what} itself.")
    if not path.exists():
        raise BadInput(f"{path}: no such file; give the path of the {what}.")
    if not path.is_file():
        raise BadInput(f"{path}: a pipe or a device can be read only once; give the {what} as a file.")
    if path.stat().st_size == 0:
        raise BadInput(f"{path}: the file is empty; give a {what} that is not.")
    with open_uncompressed(path) as file:
        start = file.read(64)
    for signature, found in _SIGNATURES:
        is_right = signature == _PARQUET and ".parquet" in path.name.lower()
        if not is_right and re.match(signature, start.removeprefix(BOM_UTF8), re.IGNORECASE):
            raise BadInput(f"{path}: this is {found}.")
    return path


def check_is_folder_or_new(path: str | os.PathLike) -> Path:
    """Return `path` if it is a folder or can become one.

    Raises:
        BadInput: it is a file, or lies below one.
    """
    path = Path(path)
    for part in (path, *path.parents):
        if part.is_file():
            raise BadInput(f"{part}: this is a file; give a folder instead.")
    return path


def check_is_new(path: str | os.PathLike) -> Path:
    """Return `path` if nothing is there and a file or a folder can be made there.

    Raises:
        BadInput: something is there, or it lies below a file.
    """
    path = Path(path)
    if os.path.lexists(path):
        raise BadInput(f"{path}: is already there and is not overwritten; give another name, or remove it first.")
    return check_is_folder_or_new(path)


def find_compression(path: str | os.PathLike) -> str | None:
    """Return how a file is compressed, by its name; None: it is not."""
    return COMPRESSED.get(Path(path).suffix.lower())


def name_uncompressed(path: Path) -> str:
    """Return a file's name without the ending that says how it is compressed."""
    return path.stem if find_compression(path) else path.name


@contextmanager
def open_uncompressed(path: Path) -> Iterator[BufferedReader]:
    """Open a file, which may be compressed (`COMPRESSED`), to read its bytes.

    Raises:
        BadInput: it is compressed, and not as it was written.
    """
    try:
        with BufferedReader(pyarrow.input_stream(path, compression=find_compression(path))) as file:
            yield file
    except OSError as error:
        # What the system refuses has a number.
        if error.errno is not None:
            raise
        raise BadInput(f"{path}: cannot be read to its end: {error}; compress or copy it again.") from None


def check_text(where: str, text: str, name: str = "") -> None:
    """Check a text that was read.

    Args:
        where: Its file and line, for the message.
        name: A title, a question or an answer in it: what has to be equal, character for character, somewhere else.

    Raises:
        BadInput: it holds what the model reserves or what no text has, or the name a character that nobody sees.
    """
    if found := _UNUSABLE.search(text):
        reasons = dict.fromkeys((MASK_TOKEN, PAD_TOKEN), "which the model reserves")
        reasons["\0"] = "a null character, which no text has"
        reason = reasons.get(found[0], "half a character, which no encoding holds")
        raise BadInput(f"{where}: holds {found[0]!r}, {reason}; replace or remove it.")
    if found := INVISIBLE.search(name):
        raise BadInput(f"{where}: {name[:60]!r} holds {describe_character(found[0])}, which nobody sees; remove it.")


def describe_character(character: str) -> str:
    """Return a character's number, and its name in Unicode if it has one."""
    return f"U+{ord(character):04X} {name_character(character, 'a control character')}"


def drop_invisible_start(text: str) -> str:
    """Return a text without what nobody sees at its beginning, such as byte-order marks."""
    return text if text[:1].isprintable() else _INVISIBLE_START.sub("", text)


def check_none_is_there(folder: Path, names: Iterable[str], overwrite: bool) -> None:
    """Check that a folder is one or can become one, and has no file of these names unless it may be overwritten.

    Raises:
        BadInput: it is not, or has.
    """
    check_is_folder_or_new(folder)
    there = [name for name in names if (folder / name).exists()]
    if there and not overwrite:
        raise BadInput(f"{folder / there[0]}: already there; give another --output_dir, or --overwrite.")


def make_file_name(text: str) -> str:
    """Return a text's words, joined by underscores."""
    return re.sub(r"\W+", "_", text).strip("_")


def read_lines(path: str | os.PathLike, what: str) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without its end) of a UTF-8 file, which may be compressed (`COMPRESSED`).

    What nobody sees at a line's beginning, such as byte-order marks, is dropped.

    Raises:
        BadInput: see `check_is_file`; or a line is not UTF-8 or holds a null character or a carriage return (the line is
            named).
    """
    path = check_is_file(path, what)
    with open_uncompressed(path) as file:
        for number, raw in enumerate(file, start=1):
            try:
                line = raw.decode("utf-8")
                wrong = "holds '\\x00', a null character, which no text has; remove it or" if b"\0" in raw else None
            except UnicodeDecodeError as error:
                wrong = f"byte {error.start + 1} of the line is not UTF-8;"
            if wrong:
                encoding = guess_encoding(raw)
                raise BadInput(
                    f"{path}, line {number}: {wrong} save the file as UTF-8 (iconv -f {encoding} -t utf-8)."
                )
            line = drop_invisible_start(line.rstrip("\r\n"))
            if "\r" in line:
                raise BadInput(
                    f"{path}, line {number}: a carriage return within the line; remove it or end the line there."
                )
            yield number, line


def guess_encoding(raw: bytes) -> str:
    """Return how a line is encoded that is not UTF-8, or has null characters: in UTF-16, every other byte of most texts is null."""
    if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" not in raw:
        return "latin1"
    return "utf-16le" if raw[1::2].count(0) > raw[::2].count(0) else "utf-16be"


def load_json(path: str | os.PathLike, what: str) -> dict[str, Any]:
    """Return the JSON object that a file holds; `what` names its role in the message.

    Raises:
        BadInput: see `check_is_file`; or the file holds something else.
    """
    path = check_is_file(path, what)
    try:
        content = json.loads(path.read_bytes())
        # Numbers of characters may be halves of some, which no encoding holds.
        json.dumps(content, ensure_ascii=False).encode()
    # The second is what JSON nested thousands of levels deep raises.
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{path}: not JSON that can be read: {shorten_error(error)}; give the {what} as it was."
        ) from None
    if not isinstance(content, dict):
        raise BadInput(f"{path}: holds no JSON object; give the {what} as it was.")
    return content


class _Loader(yaml.SafeLoader):
    """PyYAML's loader, which reads YAML 1.1, with YAML 1.2's numbers: `1e-5` is one; no name twice, no aliases of aliases."""

    # How many nodes with an anchor are being read.
    open_anchors = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()
        # A few lines of aliases of aliases can stand for billions of values.
        if isinstance(event, yaml.AliasEvent) and self.open_anchors:
            raise ValueError(f"an alias stands within what another alias stands for {event.start_mark}")
        has_anchor = event.anchor is not None
        self.open_anchors += has_anchor
        node = super().compose_node(parent, index)
        self.open_anchors -= has_anchor
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        # YAML forbids names that are there twice, but PyYAML would take the last of them.
        names: set[str] = set()
        for name, _ in node.value:
            if str(name.value) in names:
                raise ValueError(f"line {name.start_mark.line + 1} has {name.value!r}, which is there twice")
            names.add(str(name.value))
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        # Numbers of characters may be halves of some, which no encoding holds.
        text = super().construct_scalar(node)
        if found := re.search("[\0\ud800-\udfff]", str(text)):
            what = "a null character" if found[0] == "\0" else "half a character"
            raise ValueError(f"line {node.start_mark.line + 1} has {str(text)[:60]!r}, with {what}")
        return text


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+$", re.ASCII), list("-+.0123456789")
)


def load_yaml(path: str | os.PathLike, what: str) -> Any:
    """Return what a YAML file holds; `what` names its role in the message.

    Raises:
        BadInput: see `check_is_file`; or the file is not YAML, has tags other than YAML's own, aliases of aliases, a name
            twice in one place, a null character, or half a character.
    """
    path = check_is_file(path, what)
    try:
        return yaml.load(path.read_bytes(), _Loader)
    # PyYAML's constructors raise exceptions of many types, for a date such as 2024-13-40.
    except Exception as error:
        raise BadInput(f"{path}: not YAML that can be read: {shorten_error(error)}; fix it there.") from None


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
    """Open a temporary file beside `path`; rename it to `path` if the `with` block succeeds, else remove it.

    Folders that do not exist are made, and removed with it.
    """
    path = Path(path)
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    with _name_temporary(path) as temporary:
        with temporary.open(mode, **text) as file:
            yield file
        sync_file(temporary)
        os.replace(temporary, path)


@contextmanager
def write_lines(folder: Path, names: Iterable[str]) -> Iterator[tuple[Callable[[str, str], None], dict[str, int]]]:
    """Write files line by line, all or none.

    Yields:
        What writes a line, given the name of its file and the line without its end; the number of lines by name, so far.
    """
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
    with _name_temporary(Path(path)) as temporary:
        temporary.mkdir()
        yield temporary
        os.rename(temporary, path)


@contextmanager
def _name_temporary(path: Path) -> Iterator[Path]:
    """Yield a name beside `path`; if the `with` block fails, remove what has this name, and the folders made for it."""
    new_folders = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
    except BaseException:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
        # Something else may be in them by now.
        with suppress(OSError):
            for folder in new_folders:
                folder.rmdir()
        raise
