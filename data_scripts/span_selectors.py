"""Which spans of a document are asked for: a selector for each relation, chosen by the answers of its training questions.

Spans that stand out by a capital letter or a digit are asked for where the answers are among the first of these; otherwise, as in
texts without capitals, what looks like the answers. A logistic regression learns that from the documents of the questions' titles:
it tells the answers from all other runs of a few words by the words beside them, their own first and last word, their length, and
their capitals and digits.
"""

import math
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple

import numpy as np
from datasets import Dataset, Features, List, Value
from transformers import PreTrainedTokenizerBase

from data_scripts.cues import take_words_after, take_words_before
from data_scripts.errors import BadInput, check_installed
from data_scripts.options import Range, option
from data_scripts.questions import Questions
from data_scripts.relations import BIRTHPLACE, Relation
from data_scripts.salient_spans import MONTH_NAMES, Span
from data_scripts.titles import find_text_start
from data_scripts.words import WORD, is_unspaced, join_words

# Capitals find a relation's answers if they find at least this share of those that documents state.
_MOSTLY = 0.93
# Too few answers to matter, as a share of them; and the fewest questions that are held out to count answers among.
_NEGLIGIBLE, _MIN_HELD_OUT = 0.02, 10
# So many questions show what a relation's answers look like.
_MAX_JUDGED = 10_000
# Words and marks in a learned span: two more than in nearly all training answers, in these bounds.
_MIN_WORDS, _MAX_WORDS = 4, 16

_SPANS = Features(
    {
        "title": Value("string"),
        "asked": List(Value("string")),
        "asked_by": List(List(Value("uint16"))),
        "before": List(Value("string")),
        "after": List(Value("string")),
    }
)


class Document(NamedTuple):
    """A document, its title and its salient spans, which stand out by a capital letter or a digit."""

    title: str
    text: str
    salient: Sequence[Span] = ()


@dataclass(kw_only=True)
class SpanArguments:
    """Which spans of a document are asked for, and which words beside them tell them apart."""

    max_cue_words: Annotated[int, Range(0)] = option(
        "The maximum number of words that a cue is drawn from.", default=5
    )
    max_words_after: Annotated[int, Range(0)] = option(
        "The maximum number of words after a span that its cue ends with, for languages in which an answer stands before"
        " the word that asks for it.",
        default=0,
    )
    plain_cues: bool = option(
        "Whether cues are in their plainest form: dates as 0, without punctuation and the title's words.", default=True
    )
    max_spans: Annotated[int, Range(1)] = option(
        "How many spans of a document are asked for: the first ones, or the ones most like the answers.", default=4
    )
    span_finder: Literal["auto", "capitals", "answers"] = option(
        "How spans are found: by capital letters and digits, by what the training questions' answers look like, or"
        " (auto), for each relation, by capitals if these find its answers and otherwise by the answers.",
        default="auto",
    )


@dataclass(frozen=True)
class SpanSelector:
    """Selects what is asked for of each document in the wording of a relation."""

    relation: Relation
    # At most; 0: its documents' rows ask the training questions alone.
    max_spans: int
    # Of the numbers that are selected in place of names (see `find_shape`); None: names.
    shapes: tuple[str, ...] | None = None
    # Whether names, numbers and months are all selected.
    ask_dates: bool = False
    # If given, the runs of words that it ranks first are selected instead, as far as they score `min_score`.
    ranker: "SpanRanker | None" = None
    min_score: float = -math.inf

    @property
    def kind(self) -> str:
        """What is selected, in a few words."""
        if not self.max_spans:
            return "the training questions alone"
        if self.ranker:
            return f"at most {self.max_spans} that look like its answers"
        if self.ask_dates:
            return "names, numbers and months"
        return "numbers like its answers" if self.shapes else "names"

    @property
    def needs_words(self) -> bool:
        """Whether a cue has to keep a word: without any, `Who employed NAME?⁇China⁇` would be a wrong answer."""
        wordings = self.relation.split_wordings()
        return not (all(wording.has_words_after for wording in wordings) or (self.ranker and self.max_spans == 1))

    def select(self, documents: Sequence[Document]) -> list[list[Span]]:
        """Return start and end of each document's spans, in the order of its text."""
        if self.ranker:
            ranked = self.ranker.rank(documents, self.max_spans)
            return [sorted(span for span, score in spans if score >= self.min_score) for spans in ranked]
        selected = []
        for title, text, salient in documents:
            spans = [(start, end) for start, end in salient if self._takes(text[start:end])]
            if self.needs_words:
                spans = [span for span in spans if take_words_before(title, text, span[0], plain=True, max_=1)]
            selected.append(spans[: self.max_spans])
        return selected

    def _takes(self, span: str) -> bool:
        if self.ask_dates or span[0].isdigit():
            return self.ask_dates or find_shape(span) in (self.shapes or ())
        return not self.shapes and span.split()[0] not in MONTH_NAMES


def find_shape(number: str) -> str:
    """Return a number with each digit as 0: `1931` and `1948` are alike, `12` is not."""
    return "".join("0" if character.isdigit() else character for character in number)


def find_number_shapes(answers: Sequence[str]) -> tuple[str, ...] | None:
    """Return the shapes of the answers that begin with a digit if most of them do, otherwise None."""
    numbers = [answer for answer in answers if answer[:1].isdigit()]
    return tuple(sorted(set(map(find_shape, numbers)))) if 2 * len(numbers) > len(answers) else None


def select_spans(
    documents: Dataset,
    questions: Questions | None,
    options: SpanArguments,
    tokenizer: PreTrainedTokenizerBase,
    room: int,
    ask_dates: bool = False,
    relations: Sequence[Relation] = (BIRTHPLACE,),
) -> tuple[Dataset, list[SpanSelector]]:
    """Select what is asked for of each document; documents without a title, or without anything, are left out.

    Args:
        documents: From `add_titles_and_spans`, with dates. For the other arguments see `choose_selectors`.
        tokenizer: What the spans are read with; words beside them have no characters that it lacks.
        room: How many characters title and span may have together, with a word where a cue has to keep one.

    Returns:
        A dataset of `title`, `asked` (the spans), `asked_by` (the numbers of the selectors of each), `before` and `after` (the
        words beside each, with spaces between them); and the selectors.
    """
    selectors = choose_selectors(documents, questions, options, ask_dates, relations)
    # Strings and tuples alone: `datasets` finds its cache by a hash, and a set has another order in each process.
    readable = "".join(sorted(tokenizer.get_vocab()))
    plain, needs_word = options.plain_cues, [selector.needs_words for selector in selectors]

    def list_asked(document: Document, spans_of_selectors: Sequence[list[Span]]) -> Iterator[tuple]:
        title, text, _ = document
        asked_by: dict[Span, list[int]] = {}
        for i, spans in enumerate(spans_of_selectors):
            for span in spans:
                asked_by.setdefault(span, []).append(i)
        for (start, end), selecting in sorted(asked_by.items()):
            before = take_words_before(title, text, start, plain, options.max_cue_words, readable)
            after = take_words_after(title, text, end, plain, options.max_words_after, readable)
            left = room - len(title) - (end - start)
            if not before or len(join_words(before[-1:])) > left:
                selecting = [i for i in selecting if not needs_word[i]]
            if selecting and left >= 0:
                yield text[start:end], selecting, " ".join(before), " ".join(after)

    def select_batch(*batch: list) -> dict[str, list]:
        # Spans too long to be asked for do not count among the first.
        titled = [
            Document(title, text, [(start, end) for start, end in salient if len(title) + end - start <= room])
            for title, text, salient in zip(*batch, strict=True)
            if title
        ]
        selected = zip(*(selector.select(titled) for selector in selectors), strict=True)
        asked = [
            (document.title, list(list_asked(document, spans)))
            for document, spans in zip(titled, selected, strict=True)
        ]
        rows = [(title, *zip(*spans, strict=True)) for title, spans in asked if spans]
        return {column: [row[i] for row in rows] for i, column in enumerate(_SPANS)}

    selected = documents.map(
        select_batch,
        batched=True,
        # Long documents have many runs of words, which are scored together.
        batch_size=100,
        input_columns=["title", "text", "spans"],
        remove_columns=documents.column_names,
        features=_SPANS,
        desc="Selecting spans",
    )
    return selected, selectors


def find_documents(questions: Questions, documents: Dataset) -> list[Document]:
    """Return the documents, from `add_titles_and_spans`, whose titles questions ask about."""
    # A dictionary has the same order, and so the same hash, in each process.
    titles = dict.fromkeys(questions.titles)
    found = documents.filter(titles.__contains__, input_columns="title", desc="Finding documents")
    return list(map(Document, found["title"], found["text"], found["spans"]))


def choose_selectors(
    documents: Dataset,
    questions: Questions | None,
    options: SpanArguments,
    ask_dates: bool,
    relations: Sequence[Relation] = (BIRTHPLACE,),
) -> list[SpanSelector]:
    """Choose what selects the spans of each relation of the questions, in their order.

    With `span_finder` auto, spans are found by capitals where these find the answers, and no other relation asks for the same
    kind of spans; otherwise by what the answers look like. Without questions, `relations` are asked for: numbers, if the
    relation's baseline is one.
    """
    finder, max_spans = options.span_finder, options.max_spans
    if questions is None:
        if finder == "answers":
            raise BadInput("span_finder answers learns from training questions; add --questions_file.")
        return [SpanSelector(each, max_spans, find_number_shapes([each.baseline]), ask_dates) for each in relations]
    pairs_of, by_capitals = {}, []
    for relation, rows in questions.rows_of.items():
        # Thinned evenly to at most `_MAX_JUDGED`.
        pairs_of[relation] = questions.take(rows[:: -(-len(rows) // _MAX_JUDGED)])
        shapes = find_number_shapes(pairs_of[relation].answers)
        by_capitals.append(SpanSelector(relation, max_spans, shapes, ask_dates))
    asked_about = find_documents(questions, documents)

    def finds_answers(selector: SpanSelector) -> bool:
        # Rows that ask for everything need not have the answers among the first spans.
        judged = replace(selector, max_spans=sys.maxsize) if ask_dates else selector
        answers_of = pairs_of[selector.relation].answers_of
        stated = {
            (title, answer)
            for title, text, _ in asked_about
            for answer in answers_of.get(title, ())
            if answer in text[find_text_start(title) :]
        }
        return count_selected(judged, answers_of, asked_about) >= _MOSTLY * len(stated)

    # If several relations ask for every name, or for every number, most of what they ask for is the answer to another's question,
    # so each learns what its own answers look like. With few pairs, there is no telling these apart.
    finding = [each for each in by_capitals if finder == "auto" and finds_answers(each)]
    kinds = Counter(each.kind for each in finding)

    def choose(selector: SpanSelector) -> SpanSelector:
        pairs = pairs_of[selector.relation]
        is_alone = ask_dates or len(pairs) < 5 * _MIN_HELD_OUT or kinds[selector.kind] == 1
        if finder == "answers" or (finder == "auto" and not (selector in finding and is_alone)):
            if learned := learn_selector(selector, pairs, asked_about, is_rival=finder == "auto"):
                return learned
            if finder == "answers":
                raise BadInput(
                    f"{questions.path}: no answer to {selector.relation.form!r} stands in a document of its title as a run of at"
                    f" most {_MAX_WORDS} words and marks; give answers in the documents' own words."
                )
        # Spans that never contain a relation's answers would teach wrong ones, so its rows ask its training questions alone.
        is_useless = len(pairs) >= _MIN_HELD_OUT and not count_selected(selector, pairs.answers_of, asked_about)
        return replace(selector, max_spans=0) if is_useless else selector

    chosen = list(map(choose, by_capitals))
    return chosen if any(each.max_spans for each in chosen) else by_capitals


def count_selected(
    selector: SpanSelector, answers_of: Mapping[str, Collection[str]], documents: Sequence[Document]
) -> int:
    """Return how many answers, by title, are selected in a document of the title."""
    about = [document for document in documents if document.title in answers_of]
    selected = {
        (title, text[start:end])
        for (title, text, _), spans in zip(about, selector.select(about), strict=True)
        for start, end in spans
    }
    return sum(answer in answers_of[title] for title, answer in selected)


def learn_selector(
    selector: SpanSelector, pairs: Questions, documents: Sequence[Document], is_rival: bool
) -> SpanSelector | None:
    """Return a selector of the spans that look most like the answers, as many per document as are worth reading; None if no
    answer is a run of a few words or, with `is_rival`, it finds fewer of a fifth that is held out than `selector`.
    """
    num_held_out, ranker = len(pairs) // 5, SpanRanker(pairs, documents)
    if ranker.classifier is None or num_held_out < _MIN_HELD_OUT:
        return replace(selector, ranker=ranker) if ranker.classifier else None
    order = np.random.default_rng(0).permutation(len(pairs)).tolist()
    answers_of, judge = (
        pairs.take(order[:num_held_out]).answers_of,
        SpanRanker(pairs.take(order[num_held_out:]), documents),
    )
    about = [document for document in documents if document.title in answers_of]
    # Of each answer that is found: its place among the spans of its document, and how much it looks like an answer.
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for (title, text, _), ranked in zip(about, judge.rank(about, selector.max_spans), strict=True):
        for place, ((start, end), score) in enumerate(ranked, 1):
            if (answer := text[start:end]) in answers_of[title]:
                found[title, answer] = min(found.get((title, answer), (place, score)), (place, score))
    lost = _NEGLIGIBLE * num_held_out
    if is_rival and count_selected(selector, answers_of, documents) > len(found) + lost:
        return None
    # Spans that never contain the answer are read in vain: those behind the first few, and those that look less like answers than
    # nearly all that are some.
    places = sorted(place for place, _ in found.values())
    max_spans = places[max(math.ceil(len(found) - lost), 1) - 1] if found else 1
    scores = [score for place, score in found.values() if place <= max_spans]
    # With fewer, more than a negligible share of all answers may look less like one than any of these.
    min_score = float(np.quantile(scores, _NEGLIGIBLE / 2)) if len(scores) >= 1 / _NEGLIGIBLE else -math.inf
    return replace(selector, max_spans=max_spans, ranker=ranker, min_score=min_score)


class SpanRanker:
    """Ranks the runs of words in documents by how much they look like the answers of training questions.

    Args:
        pairs: The questions, of one relation, with their answers.
        documents: Those of the questions' titles are read.
    """

    def __init__(self, pairs: Questions, documents: Sequence[Document]):
        check_installed("report", "sklearn")
        from sklearn.feature_extraction import FeatureHasher
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        answers = [[token[0] for token in _list_tokens(answer)] for answer in pairs.answers]
        usual = int(np.quantile([*map(len, answers)], 1 - _NEGLIGIBLE, method="lower"))
        self.max_words = min(max(usual + 2, _MIN_WORDS), _MAX_WORDS)
        # As in `Tiger & Crane`, `Springfield, Illinois`, `$12` and `C++`; in a fixed order, as `datasets` hashes it.
        self.marks = sorted({token for tokens in answers for token in tokens if not token[0].isalnum()})
        # Who won `Arsenal v Chelsea` is a word of the title; a person's own name is not a place.
        alike = [
            not _list_own_words(title).isdisjoint(answer) for title, answer in zip(pairs.titles, answers, strict=True)
        ]
        self.takes_title_words = sum(alike) > _NEGLIGIBLE * len(alike)
        # The last, without features, is no answer, for documents in which every run is one, as in a glossary.
        described, is_answer = [{}], [False]
        for document in documents:
            own = pairs.answers_of.get(document.title, ())
            for (start, end), features in self.describe_runs(document) if own else ():
                described.append(features)
                is_answer.append(document.text[start:end] in own)
        # None where no answer shows what they look like.
        self.classifier = None
        if any(is_answer):
            hasher = FeatureHasher(2**18, alternate_sign=False)
            self.classifier = make_pipeline(hasher, LogisticRegression(max_iter=300)).fit(described, is_answer)

    def rank(self, documents: Sequence[Document], max_spans: int) -> list[list[tuple[Span, float]]]:
        """Return the runs of each document that look most like answers, with their scores (log-odds), the highest first.

        None overlap. With a smaller `max_spans`, these are the first of them.
        """
        runs: list[list[Span]] = [[] for _ in documents]

        def describe() -> Iterator[dict[str, str]]:
            for document, spans in zip(documents, runs, strict=True):
                for span, features in self.describe_runs(document):
                    spans.append(span)
                    yield features
            # `FeatureHasher` wants one at least.
            yield {}

        scores = iter(self.classifier.decision_function(describe()).tolist() if self.classifier else ())
        ranked = []
        for spans in runs:
            chosen: list[tuple[Span, float]] = []
            # As many scores as spans are taken.
            for (start, end), score in sorted(zip(spans, scores, strict=False), key=lambda run: -run[1]):
                if all(end <= other[0] or start >= other[1] for other, _ in chosen):
                    chosen.append(((start, end), score))
                if len(chosen) == max_spans:
                    break
            ranked.append(chosen)
        return ranked

    def describe_runs(self, document: Document) -> Iterator[tuple[Span, dict[str, str]]]:
        """Yield start and end of each run of words in a document, none of them the title's, with its features."""
        title, text, _ = document
        words = _list_tokens(text, find_text_start(title))
        tokens = ["", "", *(word[0] for word in words), "", ""]
        known = set() if self.takes_title_words else _list_own_words(title)
        for first, begin in enumerate(words):
            if not (begin[0][0].isalnum() or begin[0] in self.marks):
                continue
            for last in range(first, min(first + self.max_words, len(words))):
                word = words[last]
                if word[0] in known or (last > first + 1 and not self._is_inside(*words[last - 2 : last + 1])):
                    break
                if not (word[0][0].isalnum() or word[0] in self.marks):
                    continue
                span = text[begin.start() : word.end()]
                shape = ("A" if each.isupper() else "a" if each.isalpha() else each for each in find_shape(span))
                features = {
                    "before": tokens[first + 1],
                    "two before": " ".join(tokens[first : first + 2]),
                    "after": tokens[last + 3],
                    "two after": " ".join(tokens[last + 3 : last + 5]),
                    "first": begin[0],
                    "last": word[0],
                    "words": str(last + 1 - first),
                    # That of `Ann Ek` is `Aa Aa`, that of `1,950` is `0,0`.
                    "shape": re.sub(r"(.)\1+", r"\1", "".join(shape)),
                }
                yield (begin.start(), word.end()), features

    def _is_inside(self, before: re.Match, token: re.Match, after: re.Match) -> bool:
        """Whether a run goes on over a token: a word, a mark as in a training answer, or one between no spaces."""
        is_tight = before.end() == token.start() and token.end() == after.start()
        is_spaced = not is_unspaced(before[0]) and not is_unspaced(after[0])
        return token[0][0].isalnum() or token[0] in self.marks or (is_tight and is_spaced)


def _list_tokens(text: str, start: int = 0) -> list[re.Match]:
    """List the words and the marks of a text from `start`."""
    return [token for token in WORD.finditer(text, start) if not token[0].isspace()]


def _list_own_words(title: str) -> set[str]:
    """Return a title's words; in a script without spaces none, as a place may have a character of a name."""
    words = {token[0] for token in _list_tokens(title)}
    return {word for word in words if word[0].isalnum() and not is_unspaced(word)}
