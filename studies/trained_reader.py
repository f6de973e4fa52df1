"""A reader that is trained on the pairs: logistic regression that chooses one of the first names of a person's line.

Like the hand-written rules of the study `open_book`, it has the line in front of it. What it learns from the training pairs
is which of the names to give, so its mistakes are not failures of memory: they show how well the line and the pairs determine
the answer. A person who is trained on is asked by a reader that was trained on others (five folds).
"""

from collections import Counter
from collections.abc import Sequence
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
    """A name that may be the answer.

    Args:
        person: Whom it may be the answer about, by their number.
        words: The words before it, as features.
        context: What else a reader may see of it: its rank, and which names are training answers.
    """

    person: int
    name: str
    is_answer: bool
    words: dict[str, Any]
    context: dict[str, Any]


def find_names(document: Document) -> list[tuple[int, int]]:
    """Return where the names in a document's body begin and end, without dates, as `windows` finds them."""
    return find_salient_spans(document.title, document.body, dates=False)


def list_candidates(
    people: Sequence[Person], training_answers: Counter[str], are_trained: bool, max_spans: int
) -> list[Candidate]:
    """List the first names in each person's documents.

    Args:
        training_answers: How often the training pairs give each answer.
        are_trained: Whether `people` are those of the training pairs; their own answer is then not counted.
        max_spans: How many names of a document are listed.
    """
    candidates = []
    for person, (answer, documents) in enumerate(people):
        for document in documents:
            spans = find_names(document)[:max_spans]
            names = [document.body[start:end] for start, end in spans]
            counts = [training_answers[name] - (are_trained and name == answer) for name in names]
            for rank, name in enumerate(names):
                words = describe_words(document, spans[rank][0])
                context = {"rank": str(rank)} | describe_count("own", counts[rank])
                # `Paris, France` is two names, and the answer may be either.
                for side, other in (("left", rank - 1), ("right", rank + 1)):
                    if 0 <= other < len(names) and are_joined(document.body, spans, min(rank, other)):
                        context |= describe_count(side, counts[other])
                candidates.append(Candidate(person, name, name == answer, words, context))
    return candidates


def describe_words(document: Document, start: int) -> dict[str, Any]:
    """Return the words to the left of a place in a document's body: the last five, each by its place, and the last two together."""
    start += find_text_start(document.title)
    words = take_words_before(document.title, document.text, start, plain=True, most=_WORDS)
    places = {f"word -{place}": word for place, word in enumerate(reversed(words), start=1)}
    return {"last two words": " ".join(words[-2:])} | places


def describe_count(side: str, count: int) -> dict[str, Any]:
    """Return whether a name is a training answer, and how often (the logarithm of 1 + count)."""
    return {f"{side} is answer": count > 0, f"{side} count": np.log1p(count)}


def are_joined(text: str, spans: Sequence[tuple[int, int]], rank: int) -> bool:
    """Whether nothing but a comma stands between a name and the next one."""
    return text[spans[rank][1] : spans[rank + 1][0]].strip() == ","


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
    trained = list_candidates(train, counts, are_trained=True, max_spans=max_spans)
    asked = list_candidates(dev, counts, are_trained=False, max_spans=max_spans)
    features, asked_features = (
        [name.words if words_only else name.words | name.context for name in names] for names in (trained, asked)
    )
    is_answer = [name.is_answer for name in trained]
    if min(is_answer.count(True), is_answer.count(False)) < _FOLDS:
        raise BadInput(
            f"the lines about the training pairs have {is_answer.count(True)} names that are the answer and"
            f" {is_answer.count(False)} others; a reader that is trained on them needs {_FOLDS} of each."
        )
    reader = make_pipeline(DictVectorizer(), LogisticRegression(max_iter=1000))
    # Names of one person are in the same fold.
    people = [name.person for name in trained]
    folds = StratifiedGroupKFold(_FOLDS)
    of_train = cross_val_predict(reader, features, is_answer, groups=people, cv=folds, method="predict_proba")
    answers_of_train = choose_likeliest(trained, of_train, len(train))
    if not asked:
        return answers_of_train, [None] * len(dev)
    of_dev = reader.fit(features, is_answer).predict_proba(asked_features)
    return answers_of_train, choose_likeliest(asked, of_dev, len(dev))


def choose_likeliest(candidates: Sequence[Candidate], probabilities: np.ndarray, people: int) -> list[str | None]:
    """Return each person's likeliest name, the first of several, None without any.

    Args:
        probabilities: Of each candidate, that it is not the answer and that it is.
    """
    answers: list[str | None] = [None] * people
    # Backwards, so that of equals the first stays; the sort is stable.
    for at in reversed(np.argsort(-probabilities[:, 1], kind="stable")):
        answers[candidates[at].person] = candidates[at].name
    return answers
