"""What the corpus says about each answer: whether it was retrieved, or made up."""

import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from data_scripts.documents import TITLE_AND_TEXT, Columns, read_rows
from data_scripts.titles import find_text_start, match_titles
from data_scripts.words import MARKS, WORD_END, WORD_START, find_words

GROUPS = ("known and correct", "known and wrong", "unseen answer", "unseen name")
_SEPARATORS = re.compile(rf"(?:(?![{MARKS}])[\W_])+")
# Vowel signs and the like make another word, accents over Latin, Greek and Cyrillic letters do not.
_ACCENTS = re.compile("[\u0300-\u036f]")


@dataclass(frozen=True)
class Document:
    """A document and its line number in the corpus (a table's: row number), from 1; `text` begins with the title."""

    line: int
    title: str
    text: str

    @property
    def body(self) -> str:
        """What follows the title."""
        return self.text[find_text_start(self.title) :]


def find_documents(
    corpus_file: str | os.PathLike, names: Collection[str], columns: Columns = TITLE_AND_TEXT
) -> dict[str, list[Document]]:
    """Return the documents `NAME. text` of each of `names` that has one; the corpus is read once, line by line.

    Raises:
        BadInput: see `load_corpus`.
    """
    found: dict[str, list[Document]] = {}
    documents = ((given, text) for _, given, text in read_rows(corpus_file, columns))
    for number, title, text in match_titles(names, documents):
        found.setdefault(title, []).append(Document(number + 1, title, text))
    return found


def compile_mentions(answers: Iterable[str]) -> re.Pattern:
    """Return what matches any of the answers as whole words, the longest of those that begin at the same character.

    The empty answer matches nothing.
    """
    longest_first = sorted(filter(None, answers), key=len, reverse=True)
    # An empty choice would match everywhere, this nowhere.
    choices = "|".join(map(re.escape, longest_first))
    return re.compile(f"{WORD_START}(?:{choices}){WORD_END}" if choices else r"(?!)")


def find_first_mention(documents: Iterable[Document], answers: re.Pattern) -> str | None:
    """Return the first match of `answers` in what follows a document's title, of the first document that has one."""
    matches = (answers.search(document.body) for document in documents)
    return next((match[0] for match in matches if match), None)


def has_mention(document: str, answer: str) -> bool:
    """Whether the document contains the answer as whole words; no document contains the empty answer."""
    return any(find_words([answer], document))


def mark_evidence(text: str, name: str, answers: Iterable[str | None]) -> list[tuple[str, str]]:
    """Split a document where it has the name or one of the answers as whole words; what is None or empty is nowhere.

    Returns:
        Each part of the text, with `name`, `said` or an empty string for what is neither.
    """
    parts = re.split(f"({compile_mentions([name, *filter(None, answers)]).pattern})", text)
    kinds = ("" if number % 2 == 0 else "name" if part == name else "said" for number, part in enumerate(parts))
    return list(zip(parts, kinds, strict=True))


def choose_group(mentions: Sequence[bool], correct: bool) -> str:
    """Return one of `GROUPS`: a name is unseen if it has no document, an answer if none of these documents mentions it.

    Args:
        mentions: Which of the name's documents mention the right answer.
        correct: Whether the answer given is correct.
    """
    if not mentions:
        return "unseen name"
    if not any(mentions):
        return "unseen answer"
    return "known and correct" if correct else "known and wrong"


def describe_near_misses(answers: Sequence[str], references: Sequence[str], path: str) -> str | None:
    """Say how many wrong answers are the right ones in another spelling, and which is the first; None: none is."""
    pairs = zip(answers, references, strict=True)
    near = [
        (given, right)
        for given, right in pairs
        if given != right and normalize_answer(given) == normalize_answer(right)
    ]
    if not near:
        return None
    return (
        f"{path}: {len(near):,} answers that count as wrong differ from the right ones only in case, accents, punctuation or"
        f" Unicode form, first {near[0][0]!r} instead of {near[0][1]!r}."
    )


def normalize_answer(answer: str) -> str:
    """Reduce the spellings of an answer to one: `Montr%C3%A9al`, `montreal` and `Montréal`; `St. Louis` and `St Louis`.

    An answer without a letter or digit stays as it is.
    """
    letters = _ACCENTS.sub("", unicodedata.normalize("NFKD", unquote(answer).casefold()))
    return _SEPARATORS.sub(" ", unicodedata.normalize("NFKC", letters)).strip() or answer
