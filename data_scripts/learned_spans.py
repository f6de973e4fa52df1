"""Salient spans of texts without capitals to find them by: what looks like the answers of the training questions.

Every run of a few words may be a span. A logistic regression tells the answers of training questions, where they stand in
their titles' documents, from all other runs there, by the words beside them, their own first and last word, their length, and
how many documents have them. It then ranks the runs of every document. The idea that a corpus itself shows which spans are
worth masking is PMI-masking's (Levine et al. 2021, arXiv 2010.01825); what an answer looks like is learned here instead.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from datasets import Dataset

from data_scripts.documents import find_text_start
from data_scripts.errors import BadInput, check_installed
from data_scripts.questions import Questions
from data_scripts.words import WORD, find_words

Span = tuple[int, int]
# Words in a span, at most; a character of a script without spaces is a word.
_MOST_WORDS, _MOST_CHARACTERS = 4, 16
# So many documents are ranked at a time: the runs of 20 documents of 1,000 words take 57 MiB.
_BLOCK = 50


class NothingToLearn(BadInput):
    """No training answer is a run of a few words in a document of its title."""


class Candidate(NamedTuple):
    """A run of words, from `start` to `end` in its text, and what its rank depends on."""

    start: int
    end: int
    features: list[str]


class RankedSpan(NamedTuple):
    """A run of words, from `start` to `end` in its text, and how much it looks like an answer (log-odds)."""

    start: int
    end: int
    score: float


class SpanFinder:
    """Ranks the runs of words in documents by how much they look like answers.

    `least_score` is what a run has to score for `find`; anything does unless it is set.

    Args:
        documents: With the columns `title` and `text`.
        questions: Training questions with answers; those whose answer stands in a document of their title are learned from.

    Raises:
        NothingToLearn: none does as a run of a few words.
        BadInput: scikit-learn is not installed.
    """

    def __init__(self, documents: Dataset, questions: Questions):
        check_installed("report", "sklearn")
        from sklearn.feature_extraction import FeatureHasher

        self.least_score = -math.inf
        self.hasher = FeatureHasher(2**18, input_type="string", alternate_sign=False)
        self.documents_with: Counter[str] = Counter()
        for title, text in zip(documents["title"], documents["text"], strict=True):
            self.documents_with.update(
                {text[words[first].start() : words[last].end()] for words, first, last in self._list_runs(title, text)}
            )
        self.fit(documents, questions)

    def fit(self, documents: Dataset, questions: Questions) -> None:
        """Learn from these questions instead of any earlier ones; `documents` are the same.

        Raises:
            NothingToLearn: no answer stands in a document as a run of a few words.
        """
        from sklearn.linear_model import LogisticRegression

        candidates, is_answer = [], []
        for title, text in zip(documents["title"], documents["text"], strict=True):
            for candidate in self.list_candidates(title, text) if title in questions.answers_of else ():
                candidates.append(candidate.features)
                is_answer.append(text[candidate.start : candidate.end] in questions.answers_of[title])
        if not any(is_answer):
            raise NothingToLearn(
                f"{questions.path}: no answer to {questions.relations[0].form!r} stands in a document of its title as a run"
                f" of at most {_MOST_WORDS} words, so nothing shows what an answer looks like; choose --span_finder capitals."
            )
        self.classifier = None
        # Where every run is an answer, as in a glossary, none looks less like one than another.
        if not all(is_answer):
            self.classifier = LogisticRegression(max_iter=300).fit(self.hasher.transform(candidates), is_answer)

    def _list_runs(self, title: str, text: str) -> Iterator[tuple[list[re.Match], int, int]]:
        """Yield the words after the title, and the first and the last of each run that has none of the title's words."""
        words = [word for word in WORD.finditer(text, find_text_start(title)) if not word[0].isspace()]
        # Whole names: in a script without spaces, a word is a character, which a place may share with the title.
        known = {place for span in find_words(re.findall(r"\w+", title), text) for place in range(*span)}
        for first, begin in enumerate(words):
            for last in range(first, len(words)):
                word = words[last][0]
                length = last - first + 1
                # `635,755` and `July 5, 1950` are answers, too.
                if word in ",." and _is_in_number(words[first : last + 2]):
                    continue
                if not word[0].isalnum() or words[last].start() in known:
                    break
                if length > _MOST_WORDS * (4 if len(word) == 1 else 1):
                    break
                if words[last].end() - begin.start() > _MOST_CHARACTERS * _MOST_WORDS:
                    break
                yield words, first, last

    def list_candidates(self, title: str, text: str) -> list[Candidate]:
        """List the runs of words in a document."""
        candidates = []
        for words, first, last in self._list_runs(title, text):
            start, end = words[first].start(), words[last].end()
            before, run, after = (
                [word[0] for word in part]
                for part in (words[max(first - 2, 0) : first], words[first : last + 1], words[last + 1 : last + 2])
            )
            features = {
                "before": before[-1] if before else "",
                "two before": " ".join(before),
                "after": after[0] if after else "",
                "first": run[0],
                "last": run[-1],
                "words": len(run),
                "digit": any(map(str.isdigit, text[start:end])),
                "documents": self._find_frequency(text[start:end]),
                "documents of the first": self._find_frequency(run[0]),
                "documents of the last": self._find_frequency(run[-1]),
            }
            candidates.append(Candidate(start, end, [f"{name}={value}" for name, value in features.items()]))
        return candidates

    def _find_frequency(self, run: str) -> int:
        return int(math.log2(self.documents_with[run] or 1))

    def find(self, titles: Sequence[str], texts: Sequence[str], most: int) -> list[list[Span]]:
        """Return start and end of the runs of each document that look most like answers, in the order of the text.

        None overlap.
        """
        return [
            sorted((start, end) for start, end, score in ranked if score >= self.least_score)
            for ranked in self.rank(titles, texts, most)
        ]

    def rank(self, titles: Sequence[str], texts: Sequence[str], most: int) -> list[list[RankedSpan]]:
        """Return the runs that look most like answers, whatever their score, the most like one first.

        With a smaller `most`, these are the first of them.
        """
        ranked: list[list[RankedSpan]] = []
        for start in range(0, len(titles), _BLOCK):
            block = slice(start, start + _BLOCK)
            ranked += self._rank_block(titles[block], texts[block], most)
        return ranked

    def _rank_block(self, titles: Sequence[str], texts: Sequence[str], most: int) -> list[list[RankedSpan]]:
        of_document = list(map(self.list_candidates, titles, texts))
        features = [candidate.features for candidates in of_document for candidate in candidates]
        if not features:
            return [[] for _ in titles]
        scores = np.zeros(len(features))
        if self.classifier is not None:
            scores = self.classifier.decision_function(self.hasher.transform(features))
        ends = np.cumsum(list(map(len, of_document)))
        return [
            choose_apart(
                (
                    RankedSpan(candidates[number].start, candidates[number].end, own[number])
                    for number in (-own).argsort(kind="stable")
                ),
                most,
            )
            for candidates, own in zip(of_document, np.split(scores, ends[:-1]), strict=True)
        ]


def _is_in_number(words: Sequence[re.Match]) -> bool:
    """Whether the last word but one, a comma or full stop, stands between digits."""
    return len(words) > 2 and words[-3][0][-1].isdigit() and words[-1][0][0].isdigit()


def choose_apart(ranked: Iterable[RankedSpan], most: int) -> list[RankedSpan]:
    """Return the first spans that do not overlap, at most so many."""
    chosen: list[RankedSpan] = []
    for span in ranked:
        if len(chosen) == most:
            break
        if all(span.end <= other.start or span.start >= other.end for other in chosen):
            chosen.append(span)
    return chosen
