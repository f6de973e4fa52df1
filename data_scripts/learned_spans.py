"""Salient spans of texts without capitals to find them by: what looks like the answers of the training questions.

Every run of a few words may be a span. A logistic regression tells the answers of training questions, where they stand in
their titles' documents, from all other runs there, by the words beside them, their own first and last word, their length, how
many documents have them, and whether most of these have them before or after the same word. It then ranks the runs of every
document. The idea that a corpus itself shows which spans are worth masking is PMI-masking's (Levine et al. 2021, arXiv
2010.01825); what an answer looks like is learned here instead.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from datasets import Dataset

from data_scripts.errors import BadInput, check_installed
from data_scripts.questions import Questions
from data_scripts.titles import find_text_start
from data_scripts.words import WORD, find_words, is_unspaced

Span = tuple[int, int]
# Words in a span: as many as in nearly all training answers, in these bounds. Four characters of a script without spaces count
# as one.
_FEWEST_WORDS, _MOST_WORDS, _MOST_CHARACTERS = 4, 8, 16
_NEARLY_ALL = 0.98
# What so few answers have is not looked for: marks at an end, or words of the title.
_HARDLY_ANY = 0.02
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
        answers = [_list_tokens(answer) for answer in questions.answers]
        # In `Tiger & Crane`, `Springfield, Illinois` and `St. Louis`, marks stand between words.
        self.marks = {token[0] for tokens in answers for token in tokens[1:-1] if not token[0][0].isalnum()}
        # In `$12` and `C++`, they stand at an end.
        self.first_marks = _find_frequent(_take_marks(tokens) for tokens in answers)
        self.last_marks = _find_frequent(_take_marks(tokens[::-1])[::-1] for tokens in answers)
        # Who won `Arsenal v Chelsea` is a word of the title; a person's own name is not a place.
        alike = [
            any(find_words(_list_parts(title), answer))
            for title, answer in zip(questions.titles, questions.answers, strict=True)
        ]
        self.takes_title_words = bool(alike) and np.mean(alike) > _HARDLY_ANY
        lengths = [math.ceil(sum(_weigh_words(tokens))) for tokens in answers if tokens]
        usual = int(np.quantile(lengths, _NEARLY_ALL, method="lower")) if lengths else 0
        self.most_words = min(max(usual, _FEWEST_WORDS), _MOST_WORDS)
        self.hasher = FeatureHasher(2**18, input_type="string", alternate_sign=False)
        self.documents_with: Counter[str] = Counter()
        for title, text in zip(documents["title"], documents["text"], strict=True):
            words = _list_tokens(text, find_text_start(title))
            self.documents_with.update(
                {text[words[first].start() : words[last].end()] for first, last in self._list_runs(title, text, words)}
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
                f" of at most {self.most_words} words, so nothing shows what an answer looks like; give answers in the documents'"
                " own words."
            )
        self.classifier = None
        # Where every run is an answer, as in a glossary, none looks less like one than another.
        if not all(is_answer):
            self.classifier = LogisticRegression(max_iter=300).fit(self.hasher.transform(candidates), is_answer)

    def _list_runs(self, title: str, text: str, words: Sequence[re.Match]) -> Iterator[tuple[int, int]]:
        """Yield the first and the last word of each run that has none of the title's words; `words` are those after it."""
        parts = () if self.takes_title_words else _list_parts(title)
        known = {place for span in find_words(parts, text) for place in range(*span)}
        is_word = [word[0][0].isalnum() for word in words]
        shares = _weigh_words(words)
        for first, begin in enumerate(words):
            count = 0.0
            for last in range(first, len(words)):
                # What a run begins with is a word even where it goes on to the left without a space.
                count += shares[last] or float(last == first and is_word[last])
                if first < last < len(words) - 1 and self._is_inside(*words[last - 1 : last + 2]):
                    continue
                word = words[last]
                if not is_word[last] or word.start() in known:
                    break
                if count > self.most_words or word.end() - begin.start() > _MOST_CHARACTERS * self.most_words:
                    break
                yield first, last
                yield from self._add_marks(words, first, last)

    def _add_marks(self, words: Sequence[re.Match], first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield a run once more with the marks before it, and with those behind it, that answers begin and end with."""
        for marks in self.first_marks:
            before = words[max(first - len(marks), 0) : first]
            if tuple(word[0] for word in before) == marks:
                yield first - len(marks), last
        for marks in self.last_marks:
            after = words[last + 1 : last + 1 + len(marks)]
            if tuple(word[0] for word in after) == marks:
                yield first, last + len(marks)

    def _is_inside(self, before: re.Match, mark: re.Match, after: re.Match) -> bool:
        """Whether a mark between two words is inside a name or number: as in a training answer, or between no spaces."""
        if mark[0][0].isalnum() or not (before[0][0].isalnum() and after[0][0].isalnum()):
            return False
        if before[0][-1].isdigit() and after[0][0].isdigit():
            # `635,755` and `July 5, 1950`.
            return mark[0] in ",." or mark[0] in self.marks
        is_tight = before.end() == mark.start() and mark.end() == after.start()
        return mark[0] in self.marks or (is_tight and not is_unspaced(before[0]) and not is_unspaced(after[0]))

    def list_candidates(self, title: str, text: str) -> list[Candidate]:
        """List the runs of words in a document."""
        words = _list_tokens(text, find_text_start(title))
        tokens = [word[0] for word in words]
        frequencies = list(map(self._find_frequency, tokens))
        candidates = []
        for first, last in self._list_runs(title, text, words):
            start, end = words[first].start(), words[last].end()
            span = text[start:end]
            with_before = text[words[first - 1].start() : end] if first else ""
            with_after = text[start : words[last + 1].end()] if last + 1 < len(words) else ""
            features = {
                "before": tokens[first - 1] if first else "",
                "two before": " ".join(tokens[max(first - 2, 0) : first]),
                "after": tokens[last + 1] if last + 1 < len(tokens) else "",
                "first": tokens[first],
                "last": tokens[last],
                "words": last + 1 - first,
                "digit": any(map(str.isdigit, span)),
                "documents": self._find_frequency(span),
                "documents of the first": frequencies[first],
                "documents of the last": frequencies[last],
                # As the parts of a name are beside each other; of a run in a single document, nothing says otherwise.
                "mostly after that word": bool(with_before) and self._is_mostly_in(span, with_before),
                "mostly before that word": bool(with_after) and self._is_mostly_in(span, with_after),
            }
            candidates.append(Candidate(start, end, [f"{name}={value}" for name, value in features.items()]))
        return candidates

    def _find_frequency(self, run: str) -> int:
        return int(math.log2(self.documents_with[run] or 1))

    def _is_mostly_in(self, run: str, longer: str) -> bool:
        """Whether at least half of the documents that have a run have it as a part of a longer one."""
        return self.documents_with[run] <= 2 * self.documents_with[longer]

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


def _list_parts(title: str) -> list[str]:
    """Return a title's words; in a script without spaces, whole names: a place may have a character of one."""
    return re.findall(r"\w+", title)


def _take_marks(tokens: Sequence[re.Match]) -> tuple[str, ...]:
    """Return the marks that tokens begin with."""
    return tuple(token[0] for token in takewhile(lambda token: not token[0][0].isalnum(), tokens))


def _find_frequent(marks_of: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the marks that more than hardly any of the answers have, in a fixed order."""
    counts = Counter(marks_of)
    return sorted(marks for marks, count in counts.items() if marks and count > _HARDLY_ANY * counts.total())


def _list_tokens(text: str, start: int = 0) -> list[re.Match]:
    """List the words and the marks of a text from `start`."""
    return [token for token in WORD.finditer(text, start) if not token[0].isspace()]


def _weigh_words(tokens: Sequence[re.Match]) -> list[float]:
    """Return how many words between spaces each token adds: a character of a script without spaces a quarter, a mark none."""
    shares = []
    for place, token in enumerate(tokens):
        goes_on = place > 0 and tokens[place - 1].end() == token.start()
        shares.append(0.25 if is_unspaced(token[0]) else float(token[0][0].isalnum() and not goes_on))
    return shares


def choose_apart(ranked: Iterable[RankedSpan], most: int) -> list[RankedSpan]:
    """Return the first spans that do not overlap, at most `most` of them."""
    chosen: list[RankedSpan] = []
    for span in ranked:
        if len(chosen) == most:
            break
        if all(span.end <= other.start or span.start >= other.end for other in chosen):
            chosen.append(span)
    return chosen
