"""A reader that is trained on the pairs: logistic regression that chooses one of the first names of a person's line.

Like the hand-written rules of the study `open_book`, it has the line in front of it. What it learns from the training pairs
is which of the names to give, so its mistakes are not failures of memory: they show how well the line and the pairs determine
the answer. A person who is trained on is asked by a reader that was trained on others (five folds).
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline

from data_scripts.cues import take_words_before
from data_scripts.errors import BadInput
from data_scripts.salient_spans import find_salient_spans
from data_scripts.titles import find_text_start
from posgpt.evaluation.evidence import Document

# As many words to the left of a name as `windows` draws cues from.
_WORDS = 5
_FOLDS = 5

# The right answer about a person, and the documents of that name.
Person = tuple[str, Sequence[Document]]


class Candidate(NamedTuple):
    """A name that may be the answer about a person, by their number, and what a reader sees of it."""

    person: int
    name: str
    features: dict[str, Any]


def find_names(document: Document) -> list[tuple[int, int]]:
    """Return where the names in a document's body begin and end, without dates, as `windows` finds them."""
    return find_salient_spans(document.title, document.body, dates=False)


def list_candidates(
    people: Sequence[Person], training_answers: Counter[str], are_trained: bool, max_spans: int, words_only: bool
) -> list[Candidate]:
    """List the first names in each person's documents.

    A reader sees the five words before a name, each by its place, and the last two together; the name's rank; and whether it
    is a training answer and how often (the logarithm of 1 + count), as it does of a name that a comma alone keeps apart.

    Args:
        training_answers: How often the training pairs give each answer.
        are_trained: Whether `people` are those of the training pairs; their own answer is then not counted.
        max_spans, words_only: See `choose_answers`.
    """
    candidates = []
    for person, (answer, documents) in enumerate(people):
        for document in documents:
            spans = find_names(document)[:max_spans]
            names = [document.body[start:end] for start, end in spans]
            counts = [training_answers[name] - (are_trained and name == answer) for name in names]
            # `Paris, France` is two names, and the answer may be either.
            joined = [document.body[one[1] : other[0]].strip() == "," for one, other in pairwise(spans)]
            for rank, name in enumerate(names):
                start = spans[rank][0] + find_text_start(document.title)
                words = take_words_before(document.title, document.text, start, plain=True, most=_WORDS)
                features: dict[str, Any] = {"last two words": " ".join(words[-2:])}
                features |= {f"word -{place}": word for place, word in enumerate(reversed(words), start=1)}
                seen = {"own": counts[rank]}
                if rank and joined[rank - 1]:
                    seen["left"] = counts[rank - 1]
                if rank < len(joined) and joined[rank]:
                    seen["right"] = counts[rank + 1]
                if not words_only:
                    features["rank"] = str(rank)
                    for side, count in seen.items():
                        features |= {f"{side} is answer": count > 0, f"{side} count": np.log1p(count)}
                candidates.append(Candidate(person, name, features))
    return candidates


def choose_answers(
    train: Sequence[Person], dev: Sequence[Person], max_spans: int, words_only: bool = False
) -> tuple[list[str | None], list[str | None]]:
    """Train readers and return what they answer about the people of `train` and of `dev`; None if their line has no name.

    Args:
        max_spans: How many names of a document a reader chooses from.
        words_only: Whether it sees nothing of a name but the words before it.

    Raises:
        BadInput: there are too few names to learn from.
    """
    counts = Counter(answer for answer, _ in train)
    trained = list_candidates(train, counts, True, max_spans, words_only)
    asked = list_candidates(dev, counts, False, max_spans, words_only)
    is_answer = [train[each.person][0] == each.name for each in trained]
    right = sum(is_answer)
    if min(right, len(trained) - right) < _FOLDS:
        raise BadInput(
            f"the lines about the training pairs have {right} names that are the answer and {len(trained) - right} others; a"
            f" reader that is trained on them needs {_FOLDS} of each."
        )
    reader = make_pipeline(DictVectorizer(), LogisticRegression(max_iter=1000))
    features = [each.features for each in trained]
    # Names of one person are in the same fold.
    people, folds = [each.person for each in trained], StratifiedGroupKFold(_FOLDS)
    of_train = cross_val_predict(reader, features, is_answer, groups=people, cv=folds, method="predict_proba")
    reader.fit(features, is_answer)
    of_dev = reader.predict_proba([each.features for each in asked]) if asked else np.empty((0, 2))
    return choose_likeliest(trained, of_train, len(train)), choose_likeliest(asked, of_dev, len(dev))


def choose_likeliest(candidates: Sequence[Candidate], probabilities: np.ndarray, people: int) -> list[str | None]:
    """Return each person's likeliest name, the first of several, None without any.

    Args:
        probabilities: Of each candidate, that it is not the answer and that it is.
    """
    answers: list[str | None] = [None] * people
    best = np.zeros(people)
    for (person, name, _), probability in zip(candidates, probabilities[:, 1], strict=True):
        if probability > best[person]:
            answers[person], best[person] = name, probability
    return answers
