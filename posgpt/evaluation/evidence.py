"""What the corpus says about each answer: whether it was retrieved, or made up."""

import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from data_scripts.documents import TITLE_AND_TEXT, Columns, read_rows
from data_scripts.titles import find_text_start, match_cases, match_titles
from data_scripts.words import FULL_STOPS, INITIAL, MARKS, find_words, has_words
from posgpt.evaluation.predictions import Prediction

GROUPS = ("known and correct", "known and wrong", "unseen answer", "unseen name")
# `C++` and `C#` are no `C`, -40 is not 40, and 3.4.2-1 is not 3.4-2.1.
_SEPARATORS = re.compile(rf"(?:(?![{MARKS}+#]|(?<!\w)[-−](?=\d)|(?<=\d)\.(?=\d))[\W_])+")
# A sentence ends after no initial, and before a space where its script has spaces.
_BEFORE = r"[\s(.\-–—\"“„«]"
_SENTENCE_END = re.compile(
    rf"(?<!{_BEFORE}{INITIAL})(?<!{_BEFORE}{INITIAL}[{MARKS}])(?<!^{INITIAL})(?<!^{INITIAL}[{MARKS}])"
    # Initials have a full stop, and so have ordinals, as in `5. Mai`.
    rf"(?<![\s.]\d)(?<!^\d)\.(?:\s+|$)|[?!؟](?:\s+|$)|(?:[{FULL_STOPS}！？]|．(?!\d))[」』”’）]*(?:\s+|$)?"
)
# Vowel signs and the like make another word, accents over Latin, Greek and Cyrillic letters do not.
_ACCENTS = re.compile("[\u0300-\u036f]")


@dataclass(frozen=True)
class Document:
    """A document, and where it stands: its line or row, from 1, after the file's name if the corpus has several. `text` begins with the title."""

    where: str
    title: str
    text: str

    @property
    def body(self) -> str:
        """What follows the title."""
        return self.text[find_text_start(self.title) :]


class Evidence(NamedTuple):
    """The documents of a question's title, its group (one of `GROUPS`), and whether one of them mentions the given answer."""

    documents: list[Document]
    group: str
    has_answer: bool


def find_documents(
    corpus_file: str | os.PathLike, names: Collection[str], columns: Columns = TITLE_AND_TEXT
) -> dict[str, list[Document]]:
    """Return the documents of `names`, by title and by name (see `match_cases`); the corpus is read once, line by line."""
    found: dict[str, list[Document]] = {}
    for where, title, text in match_titles(names, read_rows(corpus_file, columns)):
        found.setdefault(title, []).append(Document(where.removeprefix(f"{corpus_file}, "), title, text))
    return found | {name: found[title] for name, title in match_cases(names, found).items()}


def find_sentences(text: str, answer: str) -> list[str]:
    """Return the sentences that contain the answer as whole words, each once."""
    ends = [0, *(match.end() for match in _SENTENCE_END.finditer(text)), len(text)] if answer in text else []
    return list(
        dict.fromkeys(
            text[max(each for each in ends if each <= start) : min(each for each in ends if each >= end)].strip()
            for start, end in find_words([answer], text)
        )
    )


def mark_evidence(text: str, name: str, answers: Iterable[str]) -> list[tuple[str, str]]:
    """Split a document where it has the name or one of the answers as whole words.

    Returns:
        Each part of the text, with `name`, `said` or an empty string for what is neither.
    """
    parts, done = [], 0
    # Of answers that overlap, the first one is marked; of those that begin alike, the longest.
    for start, end in sorted(find_words([name, *answers], text), key=lambda span: (span[0], -span[1])):
        if start >= done:
            said = text[start:end]
            parts += [(text[done:start], ""), (said, "name" if said == name else "said")]
            done = end
    return [*parts, (text[done:], "")]


def find_evidence(prediction: Prediction, documents: Mapping[str, list[Document]]) -> Evidence:
    """Look a prediction and its references up in the documents of its title, and choose its group.

    A name is unseen if it has no document, an answer if none of these documents mentions it.
    """
    own = documents.get(prediction.title or prediction.question, [])
    if not own:
        group = "unseen name"
    elif not any(has_words(document.text, right) for document in own for right in prediction.references):
        group = "unseen answer"
    else:
        group = "known and correct" if prediction.answer in prediction.references else "known and wrong"
    return Evidence(own, group, any(has_words(document.text, prediction.answer) for document in own))


def normalize_answer(answer: str) -> str:
    """Reduce the spellings of an answer to one: `Montr%C3%A9al`, `montreal` and `Montréal`; `St. Louis` and `St Louis`.

    An answer without a letter or digit stays as it is.
    """
    letters = _ACCENTS.sub("", unicodedata.normalize("NFKD", unquote(answer).casefold()))
    return _SEPARATORS.sub(" ", unicodedata.normalize("NFKC", letters)).strip() or answer
