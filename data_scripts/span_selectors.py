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
import pyarrow as pa
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
# Features are hashed to so many columns; and the runs of documents with so many characters are scored together.
_NUM_COLUMNS, _READ_TOGETHER = 2**18, 2**16

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
        return self.select_and_guess(documents)[0]

    def select_and_guess(self, documents: Sequence[Document]) -> tuple[list[list[Span]], list[list[Span]]]:
        """Return what `select` does, and start and end of what is taken for each document's answer: one span, or none."""
        ranked = self.ranker.rank(documents, self.max_spans) if self.ranker else []
        # A ranker that is the guesser as well has read the documents already.
        likeliest = ranked if self.guesser is self.ranker else self.guesser.rank(documents, 1) if self.guesser else []
        guessed = [
            [span for span, score in spans[:1] if self.guesser and score >= self.min_guess]
            for spans in likeliest or [[]] * len(documents)
        ]
        if self.ranker:
            return [sorted(span for span, score in spans if score >= self.min_score) for spans in ranked], guessed
        selected = []
        for title, text, salient in documents:
            spans = [(start, end) for start, end in salient if self._takes(text[start:end])]
            if self.needs_words:
                spans = [span for span in spans if take_words_beside(title, text, span, plain=True, max_before=1)[0]]
            selected.append(spans[: self.max_spans])
        return selected, guessed

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
            if guesser.weights is not None:
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
        document: Document, selected: Sequence[list[Span]], guessed: Sequence[list[Span]]
    ) -> Iterator[tuple]:
        title, text, _ = document
        for start, end in sorted({span for spans in (*selected, *guessed) for span in spans}):
            before, after = take_words_beside(title, text, (start, end), *words_taken, readable)
            left = room - len(title) - (end - start)
            has_word = bool(before) and len(join_words(before[-1:])) <= left
            answering = [i for i, own in enumerate(guessed) if (start, end) in own]
            asking = [i for i, own in enumerate(selected) if (start, end) in own and (has_word or not needs_word[i])]
            if title and (asking or answering) and left >= 0:
                yield text[start:end], sorted({*asking, *answering}), answering, " ".join(before), " ".join(after)

    def select_batch(*batch: list) -> dict[str, list]:
        read, rows = [], []
        for title, text, salient in zip(*batch, strict=True):
            # A span too long to be asked for is none of the first ones.
            fitting = [(start, end) for start, end in salient if len(title) + end - start <= room]
            read.append(Document(title, text, fitting))
        of_selectors = zip(*(each.select_and_guess(read) for each in selectors), strict=True)
        selected, guessed = (zip(*each, strict=True) for each in of_selectors)
        for document, *spans_of in zip(read, selected, guessed, strict=True):
            if asked := list(list_asked(document, *spans_of)):
                spans, asked_by, answering, before, after = zip(*asked, strict=True)
                likeliest = [-1] * len(selectors)
                for place, numbers in enumerate(answering):
                    for i in numbers:
                        likeliest[i] = place
                rows.append((document.title, spans, asked_by, likeliest, before, after))
        return {column: [row[i] for row in rows] for i, column in enumerate(_SPANS)}

    return documents.map(
        select_batch,
        batched=True,
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
    if ranker.weights is None or num_held_out < _MIN_HELD_OUT:
        return replace(selector, ranker=ranker) if ranker.weights is not None else None
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
        from scipy.sparse import csr_array
        from sklearn.linear_model import LogisticRegression

        answers = [[token for token in WORD.findall(answer) if not token.isspace()] for _, answer in pairs]
        usual = int(np.quantile([*map(len, answers)], 1 - _NEGLIGIBLE, method="lower"))
        self.max_words = min(max(usual + 2, _MIN_WORDS), _MAX_WORDS)
        # As in `Tiger & Crane`, `Springfield, Illinois`, `$12` and `C++`; in a fixed order, as `datasets` hashes it.
        self.marks = sorted({token for tokens in answers for token in tokens if not token[0].isalnum()})
        # Who won `Arsenal v Chelsea` is a word of the title; a person's own name is not a place.
        words = [set(re.findall(r"\w+", title)) for title, _ in pairs]
        alike = [not own.isdisjoint(answer) for own, answer in zip(words, answers, strict=True)]
        self.takes_title_words = sum(alike) > _NEGLIGIBLE * len(alike)
        documents, wanted = list_about(pairs, documents_of), set(pairs)
        is_answer: list[bool] = []
        rows = []
        for (title, text, _), (spans, columns) in zip(documents, self._read_runs(documents), strict=True):
            is_answer += [(title, text[start:end]) in wanted for start, end in spans.tolist()]
            rows.append(columns)
        # None where no answer shows what they look like.
        self.weights: np.ndarray | None = None
        if any(is_answer):
            columns, used = _number(np.concatenate(rows, axis=None))
            # The row without features is no answer, for documents in which every run is one, as in a glossary.
            ends = [*range(0, len(columns) + 1, rows[0].shape[1]), len(columns)]
            features = csr_array((np.ones(len(columns)), columns, ends), (len(is_answer) + 1, len(used)))
            classifier = LogisticRegression(max_iter=300).fit(features, [*is_answer, False])
            self.weights, self.bias = np.zeros(_NUM_COLUMNS), classifier.intercept_[0]
            self.weights[used] = classifier.coef_[0]

    def rank(self, documents: Sequence[Document], max_spans: int) -> list[list[tuple[Span, float]]]:
        """Return the runs of each document that look most like answers, with their scores (log-odds), the highest first.

        None overlap. With a smaller `max_spans`, these are the first of them.
        """
        ranked: list[list[tuple[Span, float]]] = [[] for _ in documents]
        if self.weights is None:
            return ranked
        for chosen, (spans, columns) in zip(ranked, self._read_runs(documents), strict=True):
            scores = self.weights[columns].sum(1) + self.bias
            while len(chosen) < max_spans and len(scores):
                best = scores.argmax()
                start, end = spans[best].tolist()
                chosen.append(((start, end), float(scores[best])))
                apart = (spans[:, 1] <= start) | (spans[:, 0] >= end)
                spans, scores = spans[apart], scores[apart]
        return ranked

    def _read_runs(self, documents: Sequence[Document]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield start and end of each run of words in each document, none of them the title's: (runs, 2); and the columns in
        which a run's features are 1: (runs, 8).
        """
        # Together, documents take less time; the runs of too many would not fit into memory.
        sizes = np.cumsum([len(document.text) for document in documents])
        for batch in np.split(np.arange(len(documents)), np.flatnonzero(np.diff(sizes // _READ_TOGETHER)) + 1):
            yield from self._read_batch([documents[i] for i in batch])

    def _read_batch(self, documents: Sequence[Document]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        begins = [find_text_start(title) for title, _, _ in documents]
        bodies = [text[begin:] for begin, (_, text, _) in zip(begins, documents, strict=True)]
        offsets = np.cumsum([0, *map(len, bodies)])
        is_title = np.zeros(offsets[-1] + 1, bool)
        # Two empty words stand around each document.
        tokens = ["", ""]
        for (title, _, _), body, offset in zip(documents, bodies, offsets, strict=False):
            tokens += [*WORD.findall(body), "", ""]
            # In a script without spaces, whole names: a place may have a character of one.
            for start, end in find_words(() if self.takes_title_words else re.findall(r"\w+", title), body):
                is_title[offset + start : offset + end] = True
        ids, words = _number(tokens)
        kept = np.flatnonzero(~np.array([word.isspace() for word in words])[ids])
        ends, ids = np.cumsum([*map(len, tokens)])[kept], ids[kept]
        starts = ends - np.array([*map(len, words)])[ids]

        # May begin and end a run: a word, or a mark as in a training answer.
        is_part = np.array([word[:1].isalnum() or word in self.marks for word in words])[ids]
        # A run goes on over these, and over what stands between no spaces in a script with spaces.
        is_tight = (np.roll(ends, 1) == starts) & (ends == np.roll(starts, -1))
        is_spaced = ~np.array(list(map(is_unspaced, words)))[ids]
        is_inside = is_part | (is_tight & np.roll(is_spaced, 1) & np.roll(is_spaced, -1))
        # (words, max_words): whether a run that begins with a word reaches those behind it.
        behind = np.arange(self.max_words)
        lasts = np.minimum(np.arange(len(ids))[:, None] + behind, len(ids) - 1)
        goes_on = ((ends > starts) & ~is_title[starts])[lasts] & (is_inside[lasts - 1] | (behind < 2))
        is_run = np.logical_and.accumulate(goes_on, axis=1) & is_part[:, None] & is_part[lasts]
        first, length = np.nonzero(is_run)
        last = first + length

        two_ids, twos = _number(ids.astype(np.int64) * len(words) + np.roll(ids, -1))
        twos = [f"{words[two // len(words)]} {words[two % len(words)]}" for two in twos]
        # The shape of `Ann Ek` is `Aa Aa`, that of `1,950` is `0,0`: a part of that of all texts.
        looks, characters = _number(["", *"".join(bodies)])
        whole = np.array(list(map(_look, characters)))[looks]
        is_new = whole[1:] != whole[:-1]
        places, whole = np.cumsum(is_new), "".join(whole[1:][is_new])
        shape_ids, shapes = _number((places[starts[first]] - 1) << 32 | places[ends[last] - 1])
        # In `directed by Francis Ford Coppola`, a name goes on behind `Francis Ford`.
        joints = [re.sub(r"(.)\1+", r"\1", "".join(map(_look, two))) for two in twos]
        columns = (
            _hash("begin", joints)[two_ids[first - 1]],
            _hash("end", joints)[two_ids[last]],
            _hash("before", words)[ids[first - 1]],
            _hash("two before", twos)[two_ids[first - 2]],
            _hash("after", words)[ids[last + 1]],
            _hash("two after", twos)[two_ids[last + 1]],
            _hash("first", words)[ids[first]],
            _hash("last", words)[ids[last]],
            _hash("words", behind + 1)[length],
            _hash("shape", [whole[shape >> 32 : shape & 0xFFFFFFFF] for shape in shapes])[shape_ids],
        )
        spans, rows = np.stack([starts[first], ends[last]], axis=1), np.stack(columns, axis=1)
        bounds = np.searchsorted(spans[:, 0], offsets)
        for begin, offset, *own in zip(begins, offsets, bounds, bounds[1:], strict=False):
            yield spans[slice(*own)] + begin - offset, rows[slice(*own)]


def _look(character: str) -> str:
    return "A" if character.isupper() else "a" if character.isalpha() else find_shape(character)


def _number(values: Any) -> tuple[np.ndarray, list]:
    """Return the number of each value among the different ones, and these."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()


def _hash(name: str, values: Iterable) -> np.ndarray:
    """Return the column of each value of a feature."""
    from sklearn.utils import murmurhash3_32

    hashes = [murmurhash3_32(f"{name}={value}") for value in values]
    return (np.abs(np.array(hashes, np.int64)) % _NUM_COLUMNS).astype(np.int32)
