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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from datasets import Dataset, Features, List, Value
from transformers import PreTrainedTokenizerBase

from data_scripts.errors import BadInput, check_installed
from data_scripts.options import Range, option
from data_scripts.questions import Questions
from data_scripts.relations import BIRTHPLACE, Relation
from data_scripts.salient_spans import MONTH_NAMES, Span, take_words_beside
from data_scripts.titles import find_text_start
from data_scripts.words import WORD, find_words, is_unspaced, join_words

# Capitals find a relation's answers if they find at least this share of those that documents state.
_MOSTLY = 0.93
# Too few answers to matter, as a share of them; and the fewest questions that are held out to count answers among.
_NEGLIGIBLE, _MIN_HELD_OUT = 0.02, 10
# So many questions show what a relation's answers look like.
_MAX_JUDGED = 10_000
# Questions are held out by turns, until so many show which guesses are answers.
_FOLDS, _ENOUGH_JUDGED = 5, 100
# Words and marks in a learned span: two more than in nearly all training answers, in these bounds.
_MIN_WORDS, _MAX_WORDS = 4, 16

_SPANS = Features(
    title=Value("string"),
    asked=List(Value("string")),
    asked_by=List(List(Value("uint16"))),
    likeliest=List(Value("int32")),
    before=List(Value("string")),
    after=List(Value("string")),
)
# A training question by its title, and its answer.
Pair = tuple[str, str]


class Document(NamedTuple):
    """A document, its title and its salient spans, which stand out by a capital letter or a digit."""

    title: str
    text: str
    salient: Sequence[Span] = ()


# The documents of each title that is asked about.
DocumentsOf = Mapping[str, list[Document]]


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
    pseudo_labels: bool = option(
        "Whether documents without a training question are asked for what looks most like its answer, in the question's own"
        " words. Without it, some wordings are answered far worse than others.",
        default=False,
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
    # If given, the run of words that it ranks first is taken for a document's answer if it scores `min_guess`.
    guesser: "SpanRanker | None" = None
    min_guess: float = -math.inf

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
        # A single span that looks like the answers is taken for the answer.
        if self.ranker and self.max_spans == 1:
            return False
        # With pseudo-labels, a cue without words asks for these alone.
        return self.guesser is not None or not all(each.has_words_after for each in self.relation.split_wordings())

    def select(self, documents: Sequence[Document]) -> list[list[Span]]:
        """Return start and end of each document's spans, in the order of its text."""
        if self.ranker:
            ranked = self.ranker.rank(documents, self.max_spans)
            return [sorted(span for span, score in spans if score >= self.min_score) for spans in ranked]
        selected = []
        for title, text, salient in documents:
            spans = [(start, end) for start, end in salient if self._takes(text[start:end])]
            if self.needs_words:
                spans = [span for span in spans if take_words_beside(title, text, span, plain=True, max_before=1)[0]]
            selected.append(spans[: self.max_spans])
        return selected

    def guess(self, documents: Sequence[Document]) -> list[Span | None]:
        """Return start and end of what is taken for each document's answer, None where nothing is."""
        if self.guesser is None:
            return [None] * len(documents)
        ranked = self.guesser.rank(documents, 1)
        return [next((span for span, score in spans if score >= self.min_guess), None) for spans in ranked]

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


def choose_selectors(
    documents: Dataset,
    questions: Questions | None,
    options: SpanArguments,
    ask_dates: bool = False,
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
    pairs_of: dict[Relation, list[Pair]] = {}
    by_capitals = []
    for relation, rows in questions.rows_of.items():
        thinned = rows[:: -(-len(rows) // _MAX_JUDGED)]
        pairs_of[relation] = [(questions.titles[row], questions.answers[row]) for row in thinned]
        shapes = find_number_shapes([answer for _, answer in pairs_of[relation]])
        by_capitals.append(SpanSelector(relation, max_spans, shapes, ask_dates))
    documents_of = find_documents(questions, documents)

    def finds_answers(selector: SpanSelector) -> bool:
        # Rows that ask for everything need not have the answers among the first spans.
        judged = replace(selector, max_spans=sys.maxsize) if ask_dates else selector
        pairs = set(pairs_of[selector.relation])
        texts = [(title, answer, document.text) for title, answer in pairs for document in documents_of[title]]
        stated = {(title, answer) for title, answer, text in texts if answer in text[find_text_start(title) :]}
        return len(find_selected(judged, pairs, documents_of)) >= _MOSTLY * len(stated)

    # If several relations ask for every name, or for every number, most of what they ask for is the answer to another's question,
    # so each learns what its own answers look like. With few pairs, there is no telling these apart.
    finding = [each for each in by_capitals if finder == "auto" and finds_answers(each)]
    kinds = Counter(each.kind for each in finding)

    chosen = []
    for selector in by_capitals:
        pairs, better = pairs_of[selector.relation], None
        is_alone = ask_dates or len(pairs) < 5 * _MIN_HELD_OUT or kinds[selector.kind] == 1
        if finder == "answers" or (finder == "auto" and not (selector in finding and is_alone)):
            better = learn_selector(selector, pairs, documents_of, is_rival=finder == "auto")
            if better is None and finder == "answers":
                raise BadInput(
                    f"{questions.path}: no answer to {selector.relation.form!r} stands in a document of its title as a run of at"
                    f" most {_MAX_WORDS} words and marks; give answers in the documents' own words."
                )
        if better is None and len(pairs) >= _MIN_HELD_OUT and not find_selected(selector, pairs, documents_of):
            # Spans that never contain an answer would teach wrong ones, so the relation's rows ask its training questions alone.
            better = replace(selector, max_spans=0)
        better = better or selector
        if options.pseudo_labels:
            guesser = better.ranker or SpanRanker(pairs, documents_of)
            if guesser.classifier is not None:
                better = replace(better, guesser=guesser, min_guess=find_min_guess(pairs, documents_of))
        chosen.append(better)
    return chosen if any(each.max_spans or each.guesser for each in chosen) else by_capitals


def select_spans(
    documents: Dataset,
    selectors: Sequence[SpanSelector],
    options: SpanArguments,
    tokenizer: PreTrainedTokenizerBase,
    room: int,
) -> Dataset:
    """Select what is asked for of each document; documents without a title, or without anything, are left out.

    Args:
        documents: From `add_titles_and_spans`, with dates.
        selectors: From `choose_selectors`.
        tokenizer: What the spans are read with; words beside them have no characters that it lacks.
        room: How many characters title and span may have together, with a word where a cue has to keep one.

    Returns:
        A dataset of `title`, `asked` (the spans), `asked_by` (the numbers of the selectors of each), `likeliest` (for each
        selector the number of the span that is taken for the answer, -1 where none is), `before` and `after` (the words beside
        each span, with spaces between them).
    """
    # Strings and tuples alone: `datasets` finds its cache by a hash, and a set has another order in each process.
    readable = "".join(sorted(tokenizer.get_vocab()))
    words_taken = (options.plain_cues, options.max_cue_words, options.max_words_after)
    needs_word = [selector.needs_words for selector in selectors]

    def list_asked(
        document: Document, selected: Sequence[list[Span]], guesses: Sequence[Span | None]
    ) -> Iterator[tuple]:
        title, text, _ = document
        for span in sorted({*guesses, *(span for spans in selected for span in spans)} - {None}):
            start, end = span
            before, after = take_words_beside(title, text, span, *words_taken, readable)
            left = room - len(title) - (end - start)
            has_word = bool(before) and len(join_words(before[-1:])) <= left
            guessed = [i for i, guess in enumerate(guesses) if guess == span]
            asking = [i for i, own in enumerate(selected) if span in own and (has_word or not needs_word[i])]
            if title and (asking or guessed) and left >= 0:
                yield text[start:end], sorted({*asking, *guessed}), guessed, " ".join(before), " ".join(after)

    def select_batch(*batch: list) -> dict[str, list]:
        read, rows = [], []
        for title, text, salient in zip(*batch, strict=True):
            # A span too long to be asked for is none of the first ones.
            fitting = [(start, end) for start, end in salient if len(title) + end - start <= room]
            read.append(Document(title, text, fitting))
        selected_of = zip(*(each.select(read) for each in selectors), strict=True)
        guesses_of = zip(*(each.guess(read) for each in selectors), strict=True)
        for document, selected, guesses in zip(read, selected_of, guesses_of, strict=True):
            if asked := list(list_asked(document, selected, guesses)):
                spans, asked_by, guessed, before, after = zip(*asked, strict=True)
                likeliest = [next((n for n, own in enumerate(guessed) if i in own), -1) for i in range(len(selectors))]
                rows.append((document.title, spans, asked_by, likeliest, before, after))
        return {column: [row[i] for row in rows] for i, column in enumerate(_SPANS)}

    return documents.map(
        select_batch,
        batched=True,
        # Long documents have many runs of words, which are scored together.
        batch_size=100,
        input_columns=["title", "text", "spans"],
        remove_columns=documents.column_names,
        features=_SPANS,
        desc="Selecting spans",
    )


def find_documents(questions: Questions, documents: Dataset) -> DocumentsOf:
    """Return the documents, from `add_titles_and_spans`, of each title that questions ask about."""
    # A dictionary has the same order, and so the same hash, in each process.
    found: dict[str, list[Document]] = {title: [] for title in questions.titles}
    asked_about = documents.filter(found.__contains__, input_columns="title", desc="Finding documents")
    for document in map(Document, asked_about["title"], asked_about["text"], asked_about["spans"]):
        found[document.title].append(document)
    return found


def find_selected(selector: SpanSelector, pairs: Collection[Pair], documents_of: DocumentsOf) -> set[Pair]:
    """Return the pairs whose answer is selected in a document of the title."""
    about = list_about(pairs, documents_of)
    selected = zip(about, selector.select(about), strict=True)
    return {(title, text[start:end]) for (title, text, _), spans in selected for start, end in spans}.intersection(
        pairs
    )


def list_about(pairs: Iterable[Pair], documents_of: DocumentsOf) -> list[Document]:
    """Return the documents of the titles of pairs."""
    return [document for title in dict.fromkeys(title for title, _ in pairs) for document in documents_of[title]]


def find_min_guess(pairs: Sequence[Pair], documents_of: DocumentsOf) -> float:
    """Return the score from which on what looks most like an answer is one more often than not, in documents that are held out."""
    if len(pairs) < _FOLDS:
        return -math.inf
    shuffled = [pairs[i] for i in np.random.default_rng(0).permutation(len(pairs))]
    judged: list[tuple[float, int]] = []
    for fold in range(_FOLDS):
        judge = SpanRanker([pair for i, pair in enumerate(shuffled) if i % _FOLDS != fold], documents_of)
        held_out = set(shuffled[fold::_FOLDS])
        about = list_about(shuffled[fold::_FOLDS], documents_of)
        for (title, text, _), ranked in zip(about, judge.rank(about, 1), strict=True):
            judged += [(score, 1 if (title, text[start:end]) in held_out else -1) for (start, end), score in ranked]
        if len(judged) >= _ENOUGH_JUDGED:
            break
    judged.sort(reverse=True)
    gains = np.cumsum([gain for _, gain in judged])
    return judged[int(gains.argmax())][0] if judged and gains.max() > 0 else math.inf


def learn_selector(
    selector: SpanSelector, pairs: Sequence[Pair], documents_of: DocumentsOf, is_rival: bool
) -> SpanSelector | None:
    """Return a selector of the spans that look most like the answers, as many per document as are worth reading; None if no
    answer is a run of a few words or, with `is_rival`, it finds fewer of a fifth that is held out than `selector`.
    """
    num_held_out, ranker = len(pairs) // 5, SpanRanker(pairs, documents_of)
    if ranker.classifier is None or num_held_out < _MIN_HELD_OUT:
        return replace(selector, ranker=ranker) if ranker.classifier else None
    shuffled = [pairs[i] for i in np.random.default_rng(0).permutation(len(pairs))]
    held_out, judge = set(shuffled[:num_held_out]), SpanRanker(shuffled[num_held_out:], documents_of)
    # Of each answer that is found: its place among the spans of its document, and how much it looks like an answer.
    found: dict[Pair, tuple[int, float]] = {}
    about = list_about(shuffled[:num_held_out], documents_of)
    for (title, text, _), ranked in zip(about, judge.rank(about, selector.max_spans), strict=True):
        for place, ((start, end), score) in enumerate(ranked, 1):
            if (pair := (title, text[start:end])) in held_out:
                found.setdefault(pair, (place, score))
    lost = _NEGLIGIBLE * num_held_out
    if is_rival and len(find_selected(selector, held_out, documents_of)) > len(found) + lost:
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
        pairs: The questions, of one relation, by their titles, with their answers.
        documents_of: From `find_documents`.
    """

    def __init__(self, pairs: Sequence[Pair], documents_of: DocumentsOf):
        check_installed("report", "sklearn")
        from sklearn.feature_extraction import FeatureHasher
        from sklearn.linear_model import LogisticRegression

        answers = [[token[0] for token in _list_tokens(answer)] for _, answer in pairs]
        usual = int(np.quantile([*map(len, answers)], 1 - _NEGLIGIBLE, method="lower"))
        self.max_words = min(max(usual + 2, _MIN_WORDS), _MAX_WORDS)
        # As in `Tiger & Crane`, `Springfield, Illinois`, `$12` and `C++`; in a fixed order, as `datasets` hashes it.
        self.marks = sorted({token for tokens in answers for token in tokens if not token[0].isalnum()})
        # Who won `Arsenal v Chelsea` is a word of the title; a person's own name is not a place.
        words = [set(re.findall(r"\w+", title)) for title, _ in pairs]
        alike = [not own.isdisjoint(answer) for own, answer in zip(words, answers, strict=True)]
        self.takes_title_words = sum(alike) > _NEGLIGIBLE * len(alike)
        self.hasher = FeatureHasher(2**18, alternate_sign=False)
        documents, wanted = list_about(pairs, documents_of), set(pairs)
        features, runs = self._read_runs(documents)
        is_answer = [(documents[i].title, documents[i].text[start:end]) in wanted for i, (start, end) in runs]
        # None where no answer shows what they look like.
        self.classifier = None
        if any(is_answer):
            # The row without features is no answer, for documents in which every run is one, as in a glossary.
            self.classifier = LogisticRegression(max_iter=300).fit(features, [*is_answer, False])

    def rank(self, documents: Sequence[Document], max_spans: int) -> list[list[tuple[Span, float]]]:
        """Return the runs of each document that look most like answers, with their scores (log-odds), the highest first.

        None overlap. With a smaller `max_spans`, these are the first of them.
        """
        chosen: list[list[tuple[Span, float]]] = [[] for _ in documents]
        if self.classifier is None:
            return chosen
        features, runs = self._read_runs(documents)
        scores = self.classifier.decision_function(features)
        for row in (-scores[:-1]).argsort(kind="stable"):
            i, (start, end) = runs[row]
            if len(chosen[i]) < max_spans and all(end <= other[0] or start >= other[1] for other, _ in chosen[i]):
                chosen[i].append(((start, end), scores[row]))
        return chosen

    def _read_runs(self, documents: Sequence[Document]) -> tuple[Any, list[tuple[int, Span]]]:
        """Return the features of all runs, a sparse row for each and an empty one; and each run's document, from 0, and span."""
        runs: list[tuple[int, Span]] = []

        def describe() -> Iterator[dict[str, str]]:
            # One by one, as they are hashed: those of many documents would not fit into memory.
            for i, document in enumerate(documents):
                for span, features in self.describe_runs(document):
                    runs.append((i, span))
                    yield features
            yield {}

        return self.hasher.transform(describe()), runs

    def describe_runs(self, document: Document) -> Iterator[tuple[Span, dict[str, str]]]:
        """Yield start and end of each run of words in a document, none of them the title's, with its features."""
        title, text, _ = document
        words = _list_tokens(text, find_text_start(title))
        tokens = ["", "", *(word[0] for word in words), "", ""]
        # In a script without spaces, whole names: a place may have a character of one.
        names = () if self.takes_title_words else re.findall(r"\w+", title)
        known = {place for span in find_words(names, text) for place in range(*span)}
        for first, begin in enumerate(words):
            if not (begin[0][0].isalnum() or begin[0] in self.marks):
                continue
            for last in range(first, min(first + self.max_words, len(words))):
                word = words[last]
                if word.start() in known or (last > first + 1 and not self._is_inside(*words[last - 2 : last + 1])):
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
