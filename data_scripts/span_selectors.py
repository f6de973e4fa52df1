"""Which spans of a document are asked for: a selector for each relation, chosen by the answers of its training questions.

Spans that stand out by a capital letter or a digit are asked for where the answers are among the first of these; otherwise, as in
texts without capitals, what looks like the answers. A logistic regression learns that from the documents of the questions' titles:
it tells the answers from all other runs of a few words by the words beside them, their own first and last word, their length, how
many documents have them, and whether most of these have them before or after the same word. (That a corpus itself shows which
spans are worth masking is the idea of PMI-masking: Levine et al. 2021, arXiv 2010.01825.)
"""

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from datasets import Dataset, Features, List, Value
from transformers import PreTrainedTokenizerBase

from data_scripts.cues import take_words_after, take_words_before
from data_scripts.errors import BadInput, check_installed
from data_scripts.options import Range, option
from data_scripts.questions import Questions
from data_scripts.relations import BIRTHPLACE, Relation, Wording
from data_scripts.salient_spans import MONTH_NAMES, Span
from data_scripts.titles import find_text_start
from data_scripts.words import WORD, find_words, is_unspaced, join_words

# Capitals find a relation's answers if they find at least this share of those that documents state; if documents state fewer of
# all answers than the other share, there is nothing to learn.
_MOSTLY, _HARDLY = 0.93, 0.1
# Spans that would find no more than this share of the answers are not worth reading; with fewer questions to count on, all are.
_NEGLIGIBLE, _MIN_HELD_OUT = 0.02, 10
# Nor are spans that look less like answers than all but this share of the answers that were found.
_UNLIKELY = 0.01
# So many questions show what a relation's answers look like.
_MAX_JUDGED = 10_000
# Words in a learned span: as many as in nearly all training answers, in these bounds. Four characters of a script without spaces
# count as one.
_MIN_WORDS, _MAX_WORDS, _MAX_CHARACTERS = 4, 8, 16
_NEARLY_ALL = 0.98
# What so few answers have is not looked for: marks at an end, or words of the title.
_HARDLY_ANY = 0.02
# So many documents are ranked at a time: the runs of 20 documents of 1,000 words take 57 MiB.
_BLOCK = 50

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
    salient: list[Span]


class NothingToLearn(BadInput):
    """No training answer is a run of a few words in a document of its title."""


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
    """Selects what is asked for of each document in the wording of a relation.

    Args:
        relation: The relation.
        max_spans: How many spans of a document, at most; 0: its documents' rows ask the training questions alone.
    """

    relation: Relation
    max_spans: int
    # Whether what is selected is taken for the answer itself.
    finds_answer: ClassVar[bool] = False

    @property
    def kind(self) -> str:
        """What is selected, in a few words."""
        raise NotImplementedError

    def needs_words(self, wording: Wording) -> bool:
        """Whether a cue has to keep a word: without any, `Who employed NAME?⁇China⁇` would be a wrong answer."""
        return not (wording.has_words_after or self.finds_answer and self.max_spans == 1)

    def select(self, documents: Sequence[Document]) -> list[list[Span]]:
        """Return start and end of each document's spans."""
        raise NotImplementedError


@dataclass(frozen=True)
class SalientSelector(SpanSelector):
    """Selects the first names or numbers, which stand out by capital letters and digits.

    Args:
        shapes: The shapes (see `find_shape`) of the numbers that are selected in place of names; None: names.
        ask_dates: Whether names, numbers and months are all selected.
    """

    shapes: tuple[str, ...] | None = None
    ask_dates: bool = False

    @property
    def kind(self) -> str:
        if self.ask_dates:
            return "names, numbers and months"
        return "numbers like its answers" if self.shapes else "names"

    def _takes(self, span: str) -> bool:
        if self.ask_dates:
            return True
        if span[0].isdigit():
            return self.shapes is not None and find_shape(span) in self.shapes
        return self.shapes is None and span.split()[0] not in MONTH_NAMES

    def select(self, documents) -> list[list[Span]]:
        needs_words = any(map(self.needs_words, self.relation.split_wordings()))
        return [
            [
                (start, end)
                for start, end in salient
                if self._takes(text[start:end])
                and (not needs_words or take_words_before(title, text, start, plain=True, most=1))
            ][: self.max_spans]
            for title, text, salient in documents
        ]


@dataclass(frozen=True)
class LearnedSelector(SpanSelector):
    """Selects what looks most like the relation's answers.

    Args:
        ranker: Ranks the runs of words in documents.
        min_score: What a run has to score.
    """

    ranker: "SpanRanker"
    min_score: float = -math.inf
    finds_answer = True

    @property
    def kind(self) -> str:
        return f"at most {self.max_spans} that look like its answers"

    def select(self, documents) -> list[list[Span]]:
        ranked = self.ranker.rank(documents, self.max_spans)
        return [sorted(span for span, score in own if score >= self.min_score) for own in ranked]


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
        documents: From `add_titles_and_spans`, with dates.
        tokenizer: What the spans are read with; words beside them have no characters that it lacks.
        room: How many characters title and span may have together, with a word where a cue has to keep one.

    Returns:
        A dataset and the selectors, for whose other arguments see `choose_selectors`. Its columns are `title`, `asked` (the
        spans), `asked_by` (the numbers of the selectors of each), `before` and `after` (the words beside each, with spaces
        between them).
    """
    selectors = choose_selectors(documents, questions, options, ask_dates, relations)
    # Strings and tuples alone: `datasets` finds its cache by a hash, and a set has another order in each process.
    readable = "".join(sorted(tokenizer.get_vocab()))
    needs_word = [any(map(selector.needs_words, selector.relation.split_wordings())) for selector in selectors]

    def fits(title: str, span: Span, cue: str = "") -> bool:
        return bool(title) and len(title) + span[1] - span[0] + len(cue) <= room

    def select(titles: list[str], texts: list[str], spans: list[list[Span]]) -> dict[str, list]:
        fitting = [[span for span in own if fits(title, span)] for title, own in zip(titles, spans, strict=True)]
        batch = list(map(Document, titles, texts, fitting))
        rows: dict[str, list] = {column: [] for column in _SPANS}
        for (title, text, _), *spans_of in zip(batch, *(each.select(batch) for each in selectors), strict=True):
            asked_by: dict[Span, list[int]] = {}
            for number, own in enumerate(spans_of):
                for start, end in own:
                    asked_by.setdefault((start, end), []).append(number)
            found = []
            for (start, end), numbers in sorted(asked_by.items()):
                before = take_words_before(title, text, start, options.plain_cues, options.max_cue_words, readable)
                after = take_words_after(title, text, end, options.plain_cues, options.max_words_after, readable)
                if not (before and fits(title, (start, end), join_words(before[-1:]))):
                    numbers = [number for number in numbers if not needs_word[number]]
                if numbers and fits(title, (start, end)):
                    found.append((text[start:end], numbers, " ".join(before), " ".join(after)))
            if found:
                for column, values in zip(_SPANS, (title, *map(list, zip(*found, strict=True))), strict=True):
                    rows[column].append(values)
        return rows

    selected = documents.map(
        select,
        batched=True,
        input_columns=["title", "text", "spans"],
        remove_columns=documents.column_names,
        features=_SPANS,
        desc="Selecting spans",
    )
    return selected, selectors


@dataclass(frozen=True)
class Examples:
    """Training questions of a relation, and the documents of their titles.

    Args:
        relation: The relation.
        path: The file of the questions, for messages.
        pairs: The title and the answer of each question.
        documents: Those of these titles.
    """

    relation: Relation
    path: str
    pairs: list[tuple[str, str]]
    documents: list[Document]

    @cached_property
    def answers_of(self) -> dict[str, set[str]]:
        """The answers of each title."""
        answers: dict[str, set[str]] = {}
        for title, answer in self.pairs:
            answers.setdefault(title, set()).add(answer)
        return answers

    def take(self, numbers: Sequence[int]) -> "Examples":
        """Return the questions with these numbers, from 0, and their documents."""
        pairs = [self.pairs[number] for number in numbers]
        titles = {title for title, _ in pairs}
        return replace(self, pairs=pairs, documents=[each for each in self.documents if each.title in titles])

    @cached_property
    def stated(self) -> set[tuple[str, str]]:
        """The titles and answers where a document of the title has the answer in its text."""
        return {
            (title, answer)
            for title, text, _ in self.documents
            for answer in self.answers_of[title]
            if answer in text[find_text_start(title) :]
        }

    def find_selected(self, selector: SpanSelector) -> set[tuple[str, str]]:
        """Return the titles and answers where the answer is selected in a document of the title."""
        return {
            (title, answer)
            for (title, text, _), spans in zip(self.documents, selector.select(self.documents), strict=True)
            for answer in self.answers_of[title].intersection(text[start:end] for start, end in spans)
        }


def list_examples(questions: Questions, documents: Dataset) -> list[Examples]:
    """Return the examples of each relation that questions ask for, thinned evenly to at most `_MAX_JUDGED`.

    Args:
        documents: From `add_titles_and_spans`.
    """
    asked = documents.filter(
        dict.fromkeys(questions.titles).__contains__, input_columns="title", desc="Finding documents"
    )
    rows = list(map(Document, asked["title"], asked["text"], asked["spans"]))
    pairs = list(zip(questions.titles, questions.answers, strict=True))
    return [
        Examples(relation, questions.path, pairs, rows).take(numbers[:: -(-len(numbers) // _MAX_JUDGED)])
        for relation, numbers in questions.rows_of.items()
    ]


def find_shape(number: str) -> str:
    """Return a number with each digit as 0: `1931` and `1948` are alike, `12` is not."""
    return "".join("0" if character.isdigit() else character for character in number)


def find_number_shapes(answers: Sequence[str]) -> tuple[str, ...] | None:
    """Return the shapes of the answers that begin with a digit if most of them do, otherwise None."""
    numbers = [answer for answer in answers if answer[:1].isdigit()]
    return tuple(sorted(set(map(find_shape, numbers)))) if 2 * len(numbers) > len(answers) else None


def choose_selectors(
    documents: Dataset,
    questions: Questions | None,
    options: SpanArguments,
    ask_dates: bool,
    relations: Sequence[Relation] = (BIRTHPLACE,),
) -> list[SpanSelector]:
    """Choose what selects the spans of each relation of the questions, in their order.

    Args:
        documents: From `add_titles_and_spans`.
        questions: Training questions with answers, or None.
        options: With `span_finder` auto, spans are found by capitals where these find the answers, and no other relation asks
            for the same kind of spans; otherwise by what the answers look like.
        ask_dates: Whether names, numbers and months are all asked for.
        relations: What is asked for without questions: numbers, if a relation's baseline is one.

    Raises:
        BadInput: spans like the answers are wanted without questions.
        NothingToLearn: or no answer shows what they look like.
    """
    if not questions:
        if options.span_finder == "answers":
            raise BadInput("span_finder answers learns from training questions; add --questions_file.")
        return [
            SalientSelector(relation, options.max_spans, find_number_shapes([relation.baseline]), ask_dates)
            for relation in relations
        ]
    examples_of = {examples.relation: examples for examples in list_examples(questions, documents)}
    selectors: list[SpanSelector] = []
    for relation, rows in questions.rows_of.items():
        shapes = find_number_shapes([questions.answers[row] for row in rows])
        selectors.append(SalientSelector(relation, options.max_spans, shapes, ask_dates))
    if options.span_finder == "answers":
        return [learn_selector(each, documents, examples_of[each.relation], max_lost=1) for each in selectors]

    def finds_answers(selector: SpanSelector) -> bool:
        # Rows that ask for everything need not have the answers among the first spans.
        judged = replace(selector, max_spans=sys.maxsize) if ask_dates else selector
        examples = examples_of[selector.relation]
        return len(examples.find_selected(judged)) >= _MOSTLY * len(examples.stated)

    def try_to_learn(selector: SpanSelector, max_lost: float) -> SpanSelector:
        examples = examples_of[selector.relation]
        if len(examples.stated) < _HARDLY * len(examples.pairs):
            return selector
        try:
            return learn_selector(selector, documents, examples, max_lost)
        except NothingToLearn:
            # Longer answers, for instance: capitals find parts of them.
            return selector

    if options.span_finder == "auto":
        selectors = [each if finds_answers(each) else try_to_learn(each, max_lost=0) for each in selectors]
        # If several relations still ask for every name, or for every number, most of what they ask for is the answer to another's
        # question, so each learns what its own answers look like, even if that finds slightly fewer. With few pairs there is no
        # telling whether something looks like its answers or another's.
        kinds = Counter(each.kind for each in selectors)
        for i, each in enumerate(selectors):
            is_alone = ask_dates or each.finds_answer or kinds[each.kind] == 1
            if not is_alone and len(examples_of[each.relation].pairs) >= 5 * _MIN_HELD_OUT:
                selectors[i] = try_to_learn(each, max_lost=_NEGLIGIBLE)
    # Spans that never contain a relation's answers would teach wrong ones, so its rows ask its training questions alone; unless
    # that would leave no relation any spans, or there are too few answers to tell.
    unproductive = [
        each
        for each in selectors
        if not each.finds_answer
        and len(examples_of[each.relation].pairs) >= _MIN_HELD_OUT
        and not examples_of[each.relation].find_selected(each)
    ]
    if len(unproductive) == len(selectors):
        return selectors
    return [replace(each, max_spans=0) if each in unproductive else each for each in selectors]


def learn_selector(selector: SpanSelector, documents: Dataset, examples: Examples, max_lost: float) -> SpanSelector:
    """Return a selector of the spans that look most like the answers, as many per document as are worth reading.

    Args:
        selector: How they are selected otherwise.
        max_lost: The answers that `selector` finds and the new one does not, as a share of the questions held out (a fifth): if
            there are more, `selector` is returned. With too few questions to hold out any, they are not compared.

    Raises:
        NothingToLearn: see `SpanRanker`.
    """
    max_spans, num_held_out = selector.max_spans, len(examples.pairs) // 5
    if num_held_out < _MIN_HELD_OUT:
        return LearnedSelector(selector.relation, max_spans, SpanRanker(documents, examples))
    # Spans that never contain the answer are read in vain.
    order = np.random.default_rng(0).permutation(len(examples.pairs)).tolist()
    held_out, rest = examples.take(order[:num_held_out]), examples.take(order[num_held_out:])
    ranker = SpanRanker(documents, rest)
    # Of each answer, wherever it is one of a document's spans: its place among them, and how much it looks like an answer.
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for (title, text, _), ranked in zip(held_out.documents, ranker.rank(held_out.documents, max_spans), strict=True):
        for place, ((start, end), score) in enumerate(ranked, 1):
            if (run := text[start:end]) in held_out.answers_of[title]:
                found.setdefault((title, run), []).append((place, score))
    counts = [sum(min(of_answer)[0] <= most for of_answer in found.values()) for most in range(1, max_spans + 1)]
    if len(held_out.find_selected(selector)) > counts[-1] + max_lost * num_held_out:
        return selector
    enough = counts[-1] - _NEGLIGIBLE * num_held_out
    max_spans = next(most for most, count in enumerate(counts, 1) if count >= enough)
    # Where a document says it most clearly: another may happen to have the same place in it.
    best = [max((score for place, score in each if place <= max_spans), default=None) for each in found.values()]
    scores = [score for score in best if score is not None]
    # With fewer, more than a negligible share of all answers may look less like one than any of these.
    min_score = float(np.quantile(scores, _UNLIKELY)) if len(scores) >= 1 / _NEGLIGIBLE else -math.inf
    ranker.fit(examples)
    return LearnedSelector(selector.relation, max_spans, ranker, min_score)


class SpanRanker:
    """Ranks the runs of words in documents by how much they look like answers.

    Args:
        documents: With the columns `title` and `text`: how many of them have a run is one of its features.
        examples: What is learned from.

    Raises:
        NothingToLearn: no answer stands in a document of its title as a run of a few words.
        BadInput: scikit-learn is not installed.
    """

    def __init__(self, documents: Dataset, examples: Examples):
        check_installed("report", "sklearn")
        answers = [_list_tokens(answer) for _, answer in examples.pairs]
        # In `Tiger & Crane`, `Springfield, Illinois` and `St. Louis`, marks stand between words.
        inside = {token[0] for tokens in answers for token in tokens[1:-1] if not token[0][0].isalnum()}
        # In an order that is the same in each process, as `datasets` hashes it.
        self.marks = sorted(inside)
        # In `$12` and `C++`, they stand at an end.
        self.first_marks = _find_frequent(_take_marks(tokens) for tokens in answers)
        self.last_marks = _find_frequent(_take_marks(tokens[::-1])[::-1] for tokens in answers)
        # Who won `Arsenal v Chelsea` is a word of the title; a person's own name is not a place.
        alike = [any(find_words(re.findall(r"\w+", title), answer)) for title, answer in examples.pairs]
        self.takes_title_words = bool(alike) and np.mean(alike) > _HARDLY_ANY
        lengths = [math.ceil(sum(_weigh_words(tokens))) for tokens in answers if tokens]
        usual = int(np.quantile(lengths, _NEARLY_ALL, method="lower")) if lengths else 0
        self.max_words = min(max(usual, _MIN_WORDS), _MAX_WORDS)
        self.documents_with: Counter[str] = Counter()
        for title, text in zip(documents["title"], documents["text"], strict=True):
            words = _list_tokens(text, find_text_start(title))
            runs = self._list_runs(title, text, words)
            self.documents_with.update({text[words[first].start() : words[last].end()] for first, last in runs})
        self.fit(examples)

    def fit(self, examples: Examples) -> None:
        """Learn from these examples instead of any earlier ones."""
        from sklearn.feature_extraction import FeatureHasher
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        runs = [(title, text, run) for title, text, _ in examples.documents for run in self.describe_runs(title, text)]
        is_answer = [text[start:end] in examples.answers_of[title] for title, text, ((start, end), _) in runs]
        if not any(is_answer):
            raise NothingToLearn(
                f"{examples.path}: no answer to {examples.relation.form!r} stands in a document of its title as a run of at"
                f" most {self.max_words} words, so nothing shows what an answer looks like; give answers in the documents'"
                " own words."
            )
        self.classifier = None
        # Where every run is an answer, as in a glossary, none looks less like one than another.
        if not all(is_answer):
            hasher = FeatureHasher(2**18, input_type="string", alternate_sign=False)
            self.classifier = make_pipeline(hasher, LogisticRegression(max_iter=300))
            self.classifier.fit([features for *_, (_, features) in runs], is_answer)

    def rank(self, documents: Sequence[Document], max_spans: int) -> list[list[tuple[Span, float]]]:
        """Return the runs of each document that look most like answers, with their scores (log-odds), the highest first.

        None overlap. With a smaller `max_spans`, these are the first of them.
        """
        ranked = []
        for block in (documents[start : start + _BLOCK] for start in range(0, len(documents), _BLOCK)):
            runs_of = [list(self.describe_runs(title, text)) for title, text, _ in block]
            features = [features for runs in runs_of for _, features in runs]
            scores = np.zeros(len(features))
            if self.classifier is not None and features:
                scores = self.classifier.decision_function(features)
            for runs, own in zip(runs_of, np.split(scores, np.cumsum(list(map(len, runs_of)))[:-1]), strict=True):
                chosen: list[tuple[Span, float]] = []
                for i in (-own).argsort(kind="stable"):
                    if len(chosen) == max_spans:
                        break
                    start, end = runs[i][0]
                    if all(end <= other[0] or start >= other[1] for other, _ in chosen):
                        chosen.append(((start, end), own[i]))
                ranked.append(chosen)
        return ranked

    def _list_runs(self, title: str, text: str, words: Sequence[re.Match]) -> Iterator[tuple[int, int]]:
        """Yield the first and the last word of each run that has none of the title's words; `words` are those after it."""
        # In a script without spaces, whole names: a place may have a character of one.
        parts = () if self.takes_title_words else re.findall(r"\w+", title)
        known = {place for span in find_words(parts, text) for place in range(*span)}
        tokens, weights = [word[0] for word in words], _weigh_words(words)
        for first, begin in enumerate(words):
            count = 0.0
            for last in range(first, len(words)):
                word, is_word = words[last], tokens[last][0].isalnum()
                # What a run begins with is a word even where it goes on to the left without a space.
                count += weights[last] or float(last == first and is_word)
                if first < last < len(words) - 1 and self._is_inside(*words[last - 1 : last + 2]):
                    continue
                if not is_word or word.start() in known:
                    break
                if count > self.max_words or word.end() - begin.start() > _MAX_CHARACTERS * self.max_words:
                    break
                yield first, last
                # Once more with the marks before it, and with those behind it, that answers begin and end with.
                for marks in self.first_marks:
                    if tokens[max(first - len(marks), 0) : first] == marks:
                        yield first - len(marks), last
                for marks in self.last_marks:
                    if tokens[last + 1 : last + 1 + len(marks)] == marks:
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

    def describe_runs(self, title: str, text: str) -> Iterator[tuple[Span, list[str]]]:
        """Yield the runs of words in a document, each with its features."""
        words = _list_tokens(text, find_text_start(title))
        tokens = [word[0] for word in words]
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
                "documents of the first": self._find_frequency(tokens[first]),
                "documents of the last": self._find_frequency(tokens[last]),
                # As the parts of a name are beside each other; of a run in a single document, nothing says otherwise.
                "mostly after that word": bool(with_before) and self._is_mostly_in(span, with_before),
                "mostly before that word": bool(with_after) and self._is_mostly_in(span, with_after),
            }
            yield (start, end), [f"{name}={value}" for name, value in features.items()]

    def _find_frequency(self, run: str) -> int:
        return int(math.log2(self.documents_with[run] or 1))

    def _is_mostly_in(self, run: str, longer: str) -> bool:
        """Whether at least half of the documents that have a run have it as a part of a longer one."""
        return self.documents_with[run] <= 2 * self.documents_with[longer]


def _take_marks(tokens: Sequence[re.Match]) -> tuple[str, ...]:
    """Return the marks that tokens begin with."""
    return tuple(token[0] for token in takewhile(lambda token: not token[0][0].isalnum(), tokens))


def _find_frequent(marks_of: Iterable[tuple[str, ...]]) -> list[list[str]]:
    """Return the marks that more than hardly any of the answers have, in a fixed order."""
    counts = Counter(marks_of)
    return sorted(list(marks) for marks, count in counts.items() if marks and count > _HARDLY_ANY * counts.total())


def _list_tokens(text: str, start: int = 0) -> list[re.Match]:
    """List the words and the marks of a text from `start`."""
    return [token for token in WORD.finditer(text, start) if not token[0].isspace()]


def _weigh_words(tokens: Sequence[re.Match]) -> list[float]:
    """Return how many words between spaces each token adds: a character of a script without spaces a quarter, a mark none."""
    weights = []
    for place, token in enumerate(tokens):
        goes_on = place > 0 and tokens[place - 1].end() == token.start()
        weights.append(0.25 if is_unspaced(token[0]) else float(token[0][0].isalnum() and not goes_on))
    return weights
