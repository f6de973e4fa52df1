"""What the corpus says about each answer: whether it was retrieved, or made up."""

import os
import re
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from data_scripts.documents import TITLE_AND_TEXT, Columns, list_titles, read_documents

GROUPS = ("known and right", "known and wrong", "unseen answer", "unseen name")
_SEPARATORS = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Document:
    """A person's document and its line number in the corpus (a table's: row number), from 1."""

    line: int
    text: str


def find_documents(
    corpus_file: str | os.PathLike, names: Collection[str], columns: Columns = TITLE_AND_TEXT
) -> dict[str, list[Document]]:
    """Return the documents `NAME. text` of each of `names` that has one; the corpus is read once, line by line.

    Raises:
        BadInput: see `read_documents`.
    """
    wanted = set(names)
    found: dict[str, list[Document]] = {}
    for number, line in read_documents(corpus_file, columns):
        for title in list_titles(line):
            if title in wanted:
                found.setdefault(title, []).append(Document(number, line))
    return found


def compile_mentions(places: Iterable[str]) -> re.Pattern:
    """Return what matches any of the places as whole words, the longest of those that begin at the same character.

    The empty place is nowhere.
    """
    longest_first = sorted(filter(None, places), key=len, reverse=True)
    # An empty choice would match everywhere, this nowhere.
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)" if longest_first else r"(?!)")


def has_mention(document: str, place: str) -> bool:
    """Whether the document contains the place as whole words; no document contains the empty place."""
    return compile_mentions([place]).search(document) is not None


def choose_group(documents: list[Document], place: str, right: bool) -> str:
    """Return one of `GROUPS`: a name is unseen if it has no document, a place if none of these documents mentions it."""
    if not documents:
        return "unseen name"
    if not any(has_mention(document.text, place) for document in documents):
        return "unseen answer"
    return "known and right" if right else "known and wrong"


def normalize_place(place: str) -> str:
    """Reduce the spellings of a place to one: `Montr%C3%A9al`, `montreal` and `Montréal`; `St. Louis` and `St Louis`."""
    letters = unicodedata.normalize("NFKD", unquote(place).casefold())
    return _SEPARATORS.sub(" ", "".join(letter for letter in letters if not unicodedata.combining(letter))).strip()
