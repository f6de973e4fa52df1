"""What the corpus says about each answer: whether it was retrieved, or made up."""

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import unquote

from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import extractOne

from data_scripts.corpus import read_documents, titles_of

GROUPS = ("known and right", "known and wrong", "unseen place", "unseen name")
_SEPARATORS = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Document:
    """A person's document and its line number, from 1."""

    line: int
    text: str


def find_documents(corpus_file: str | os.PathLike, names: Collection[str]) -> dict[str, list[Document]]:
    """Return the documents `NAME. text` of each of `names` that has one; the corpus is read once, line by line.

    Raises:
        BadInput: see `read_documents`.
    """
    wanted, found = set(names), {}
    for number, line in read_documents(corpus_file):
        for title in titles_of(line):
            if title in wanted:
                found.setdefault(title, []).append(Document(number, line))
    return found


def mentions(document: str, place: str) -> bool:
    """Whether the document says the place, as words of their own; nothing is never said."""
    return bool(place) and re.search(rf"(?<!\w){re.escape(place)}(?!\w)", document) is not None


def group_of(documents: list[Document], place: str, right: bool) -> str:
    """One of `GROUPS`: a name is unseen when it has no document, a place when no document of the person says it."""
    if not documents:
        return "unseen name"
    if not any(mentions(document.text, place) for document in documents):
        return "unseen place"
    return "known and right" if right else "known and wrong"


def folded(place: str) -> str:
    """A place as people mean it: `Montr%C3%A9al`, `montreal` and `Montréal` are one, `St. Louis` and `St Louis` too."""
    letters = unicodedata.normalize("NFKD", unquote(place).casefold())
    return _SEPARATORS.sub(" ", "".join(letter for letter in letters if not unicodedata.combining(letter))).strip()


def nearest_name_places(names: list[str], known: dict[str, str]) -> list[str]:
    """For each name, the place of the known name with the least edit distance (Levenshtein 1966), the first of equals."""
    known_names = list(known)
    return [known[extractOne(name, known_names, scorer=Levenshtein.distance)[0]] for name in names]


def table_of_places(places: list[str], answers: list[str], most: int = 50) -> list[dict]:
    """For the `most` commonest places: how often it is the truth, how often it is said, and how often rightly."""
    truth, said = Counter(places), Counter(answers)
    rightly = Counter(place for place, answer in zip(places, answers, strict=True) if place == answer)
    return [
        {"place": place, "true": count, "said": said[place], "right": rightly[place]}
        for place, count in truth.most_common(most)
    ]
