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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, List, Value
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from data_scripts.edits import Edits
from data_scripts.errors import BadInput
from data_scripts.options import Range, option
from data_scripts.questions import Questions
from data_scripts.relations import BIRTHPLACE, Relation, Wording
from data_scripts.salient_spans import Span, is_month, take_words_beside
from data_scripts.titles import find_text_start
from data_scripts.words import JOINERS, MARKS, WORD, find_words, has_words, is_unspaced, join_words, split_words

# Capitals find a relation's answers if they find at least this share of those that documents state.
_MOSTLY = 0.93
# Of answers that have to be worked out, documents say about so many by chance, at most.
_BY_CHANCE = 0.2
# Too few answers to matter, as a share of them; and too few questions to show that capitals never find an answer, or how many
# spans are worth reading.
_NEGLIGIBLE, _FEWEST, _FEW = 0.02, 10, 50
# So many questions show what a relation's answers look like.
_MAX_JUDGED = 10_000
# So many characters of documents show what answers look like; all their words are kept meanwhile, in some hundred bytes each.
_MAX_READ = 5_000_000
# A fifth of the titles is held out, then another, until so many questions have been.
_FOLDS, _ENOUGH_HELD_OUT = 5, 500
# Words and marks in a learned span: two more than in nearly all training answers, in these bounds.
_MIN_WORDS, _MAX_WORDS = 4, 16
# Features are hashed to so many columns; and the runs of documents with so many characters are scored together.
_NUM_COLUMNS, _READ_TOGETHER = 2**18, 2**16

# In a script without spaces, whole names: a place may have a character of one.
_TITLE_WORD = re.compile(rf"[\w{MARKS}{JOINERS}]+")
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
    spans: Sequence[Span] = ()


# The documents of each title that is asked about.
DocumentsOf = Mapping[str, list[Document]]
# Start and end of each run of words, and its features, by what is read as a run and by a document's title and text.
Read = dict[tuple, dict[tuple, tuple[np.ndarray, np.ndarray]]]


@dataclass(kw_only=True)
class SpanArguments:
    """Which spans of a document are asked for, and which words beside them tell them apart."""

    max_cue_words: Annotated[int, Range(0, 1_000)] = option(
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
    # Ranks runs of words by how much they look like the answers; the first ones that score `min_score` are selected instead.
    ranker: "SpanRanker | None" = None
    min_score: float = -math.inf
    # The very first one is taken for a document's answer if it scores so much.
    min_guess: float = math.inf

    @property
    def is_learned(self) -> bool:
        """Whether what looks like the answers is selected."""
        return self.ranker is not None and self.min_score < math.inf

    @property
    def kind(self) -> str:
        """What is selected, in a few words."""
        if not self.max_spans:
            return "the training questions alone"
        if self.is_learned:
            return f"at most {self.max_spans} that look like its answers"
        if self.ask_dates:
            return "names, numbers and months"
        return "numbers like its answers" if self.shapes else "names"

    @property
    def needs_words(self) -> bool:
        """Whether a cue has to keep a word: without any, `Who employed NAME?⁇China⁇` would be a wrong answer."""
        # With pseudo-labels, a cue without words asks for these alone.
        if self.min_guess < math.inf:
            return True
        # A single span that looks like the answers is taken for the answer, unless another one is known.
        return self.asks_without_words and not (self.is_learned and self.max_spans == 1)

    @property
    def asks_without_words(self) -> bool:
        """Whether a cue without words is the relation's question, as no words follow the title: *Who employed NAME?*"""
        return not all(any(map(str.isalnum, each.after)) for each in self.relation.split_wordings())

    def select(self, documents: Sequence[Document]) -> list[dict[Span, bool]]:
        """Return the spans of each document, in the order of its text, and whether each is taken for the answer."""
        selected = []
        number = self.max_spans if self.is_learned else 1
        ranked = self.ranker.rank(documents, number) if self.ranker else [[] for _ in documents]
        for (title, text, salient), likeliest in zip(documents, ranked, strict=True):
            spans = [span for span, score in likeliest if score >= self.min_score]
            if not self.is_learned:
                taken = ((start, end) for start, end in salient if self._takes(text[start:end]))
                if self.needs_words:
                    taken = (span for span in taken if take_words_beside(title, text, span, True, max_before=1)[0])
                # Of a long text, the first are found long before the last.
                spans = list(islice(taken, self.max_spans))
            answers = [span for span, score in likeliest[:1] if score >= self.min_guess]
            selected.append({span: span in answers for span in sorted({*spans, *answers})})
        return selected

    def _takes(self, span: str) -> bool:
        if self.ask_dates or span[0].isdigit():
            return self.ask_dates or find_shape(span) in (self.shapes or ())
        return not self.shapes and not is_month(span)


def find_shared_cues(relations: Iterable[Relation]) -> set[tuple[Relation, Wording]]:
    """Return the wordings, each with its relation, whose cue without words is another relation's question.

    That of `Who wrote NAME's music?` is `Who wrote NAME?`.
    """
    wordings = [(relation, wording) for relation in relations for wording in relation.split_wordings()]
    return {
        (relation, wording)
        for relation, wording in wordings
        if any(relation != other and Wording(wording.before, wording.mark) == said for other, said in wordings)
    }


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
    pairs_of = {relation: list_pairs(questions, relation) for relation in questions.relations}
    by_capitals = [
        SpanSelector(relation, max_spans, find_number_shapes([answer for _, answer in pairs]), ask_dates)
        for relation, pairs in pairs_of.items()
    ]
    documents_of = find_documents(questions, documents)
    stated_of = {relation: find_stated(pairs, documents_of) for relation, pairs in pairs_of.items()}

    def is_worked_out(relation: Relation) -> bool:
        documented = sum(bool(documents_of[title]) for title, _ in pairs_of[relation])
        return documented >= _FEWEST and len(stated_of[relation]) < _BY_CHANCE * documented

    def finds_answers(selector: SpanSelector) -> bool:
        # Rows that ask for everything need not have the answers among the first spans.
        judged = replace(selector, max_spans=sys.maxsize) if ask_dates else selector
        found = find_selected(judged, pairs_of[selector.relation], documents_of)
        stated = stated_of[selector.relation]
        return bool(stated) and len(found) >= _MOSTLY * len(stated)

    # If several relations ask for every name, or for every number, most of what they ask for is the answer to another's question,
    # so each learns what its own answers look like. With few pairs, there is no telling these apart.
    told = [each for each in by_capitals if finder == "auto" and not is_worked_out(each.relation)]
    finding = [each for each in told if finds_answers(each)]
    kinds = Counter(each.kind for each in finding)

    chosen = []
    for selector in by_capitals:
        pairs, better = pairs_of[selector.relation], selector
        if is_worked_out(selector.relation) and (finder != "answers" or len(pairs_of) > 1):
            # What looks like an answer is none: where somebody's teacher was born, the teacher's documents say.
            chosen.append(replace(selector, max_spans=0))
            continue
        is_alone = ask_dates or len(pairs) < _FEW or kinds[selector.kind] == 1
        own_finder = "capitals" if selector in finding and is_alone else finder
        if own_finder != "capitals" or options.pseudo_labels:
            better = learn_selector(selector, pairs, documents_of, own_finder, options.pseudo_labels)
        if finder == "answers" and not better.is_learned and (stated_of[selector.relation] or len(pairs_of) == 1):
            raise BadInput(
                f"{questions.path}: no answer to {selector.relation.form!r} stands in a document of its title as a run of at"
                f" most {_MAX_WORDS} words and marks; give answers in the documents' own words."
            )
        if not better.is_learned and len(pairs) >= _FEWEST and not find_selected(selector, pairs, documents_of):
            # Spans that never contain an answer would teach wrong ones, so the relation's rows ask its training questions alone.
            better = replace(better, max_spans=0)
        chosen.append(better)
    if any(each.max_spans or each.ranker for each in chosen):
        return chosen
    if finder == "answers":
        raise BadInput(
            f"{questions.path}: documents tell hardly any of the answers; give some that they tell, or leave out --span_finder."
        )
    told_of = [each for each in pairs_of if any(documents_of[title] for title, _ in pairs_of[each])]
    if told_of and all(map(is_worked_out, told_of)):
        # Whatever is asked for would be wrong.
        raise BadInput(
            f"{questions.path}: documents tell hardly any of the answers; add questions that they answer, or choose --objective causal_lm."
        )
    return by_capitals


def select_spans(
    documents: Dataset,
    selectors: Sequence[SpanSelector],
    options: SpanArguments,
    tokenizer: PreTrainedTokenizerBase,
    room: int,
    edits: Edits | None = None,
) -> Dataset:
    """Select what is asked for of each document, from `add_titles_and_spans` with dates; those with nothing to ask for are left out.

    Words beside spans have no characters that the tokenizer lacks. Title and span have together at most `room` characters, with a
    word where a cue has to keep one. With `edits`, the same spans are selected, of the edited text.

    Returns:
        A dataset of `title`, `asked` (the spans), `asked_by` (the numbers of the selectors of each), `likeliest` (each selector's
        span that is taken for the answer, by its number, or -1), `before` and `after` (the words beside each, in one text).
    """
    # Strings and tuples alone: `datasets` finds its cache by a hash, and a set has another order in each process.
    readable = "".join(sorted(tokenizer.get_vocab()))
    words_taken = (options.plain_cues, options.max_cue_words, options.max_words_after)
    shared = {relation for relation, _ in find_shared_cues([each.relation for each in selectors])}
    needs_words = [each.needs_words or each.relation in shared for each in selectors]

    def select_batch(*batch: list) -> dict[str, list]:
        rows = []
        # A span too long to be asked for is none of the first ones.
        read = [
            Document(title, text, [(start, end) for start, end in salient if len(title) + end - start <= room])
            for title, text, salient in zip(*batch, strict=True)
        ]
        for (title, text, _), *selected in zip(read, *(each.select(read) for each in selectors), strict=True):
            asked, told = [], edits.apply(title, text) if edits else text
            for span in sorted(set(chain(*selected))) if title else ():
                before, after = take_words_beside(title, text, span, *words_taken, readable)
                left = room - len(title) - (span[1] - span[0])
                has_word = bool(before) and len(join_words(before[-1:])) <= left
                asked_by = {
                    i: own[span]
                    for i, (needs, own) in enumerate(zip(needs_words, selected, strict=True))
                    if span in own and (has_word or own[span] or not needs)
                }
                if asked_by and left >= 0:
                    if told != text:
                        before, after = take_words_beside(title, told, span, *words_taken, readable)
                    asked.append((told[slice(*span)], asked_by, " ".join(before), " ".join(after)))
            if asked:
                spans, by, *beside = zip(*asked, strict=True)
                likeliest = [next((i for i, own in enumerate(by) if own.get(n)), -1) for n in range(len(selectors))]
                rows.append((title, spans, [list(own) for own in by], likeliest, *beside))
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


def list_pairs(questions: Questions, relation: Relation) -> list[Pair]:
    """Return what shows a relation's answers: the titles and answers of its questions, of very many every second, third or so."""
    rows = questions.rows_of[relation]
    return [(questions.titles[row], questions.answers[row]) for row in rows[:: -(-len(rows) // _MAX_JUDGED)]]


def find_stated(pairs: Collection[Pair], documents_of: DocumentsOf) -> set[Pair]:
    """Return the pairs whose answer stands in a document of the title."""
    about = ((pair, document.text) for pair in set(pairs) for document in documents_of[pair[0]])
    return {pair for pair, text in about if has_words(text[find_text_start(pair[0]) :], pair[1])}


def find_selected(selector: SpanSelector, pairs: Collection[Pair], documents_of: DocumentsOf) -> set[Pair]:
    """Return the pairs whose answer is selected in a document of the title."""
    about = list_about(pairs, documents_of)
    selected = zip(about, selector.select(about), strict=True)
    return {(title, text[slice(*each)]) for (title, text, _), spans in selected for each in spans} & set(pairs)


def list_about(pairs: Iterable[Pair], documents_of: DocumentsOf) -> list[Document]:
    """Return the documents of the titles of pairs."""
    return [document for title in dict.fromkeys(title for title, _ in pairs) for document in documents_of[title]]


def hold_out(pairs: Sequence[Pair]) -> Iterator[tuple[list[Pair], list[Pair]]]:
    """Yield the pairs of a fifth of the titles, and all others; then those of another fifth, until enough were held out."""
    titles = [*dict.fromkeys(title for title, _ in pairs)]
    shuffled = [titles[i] for i in np.random.default_rng(0).permutation(len(titles))]
    folds = range(min(_FOLDS, -(-_FOLDS * _ENOUGH_HELD_OUT // len(pairs))))
    # Long documents take a while.
    for fold in tqdm(folds, "Holding out questions", unit="part", leave=False, disable=None):
        own = set(shuffled[fold::_FOLDS])
        held_out, others = ([pair for pair in pairs if (pair[0] in own) == is_own] for is_own in (True, False))
        if held_out and others:
            yield held_out, others


def learn_selector(
    selector: SpanSelector, pairs: Sequence[Pair], documents_of: DocumentsOf, finder: str, guesses: bool
) -> SpanSelector:
    """Return a selector of the spans that look most like the answers, as many as are worth reading; with `guesses`, the likeliest is
    taken for the answer. It is `selector` itself if no answer is a run of a few words.

    Spans stay `selector`'s with `finder` capitals, or auto where it finds more of the answers that are held out.
    """
    characters = sum(len(document.text) for document in list_about(pairs, documents_of))
    pairs = pairs[:: max(-(-characters // _MAX_READ), 1)]
    read: Read = {}
    ranker = SpanRanker(pairs, documents_of, read)
    if ranker.weights is None:
        return selector
    wanted, held_out = set(pairs), list[Pair]()
    # Of each run, its place among those of its document that look most like answers, and how much it does.
    judged: list[tuple[int, float, Pair]] = []
    for own, others in hold_out(pairs):
        held_out += own
        about = list_about(own, documents_of)
        of_documents = SpanRanker(others, documents_of, read).rank(about, selector.max_spans, read)
        for (title, text, _), ranked in zip(about, of_documents, strict=True):
            judged += [(i, score, (title, text[slice(*span)])) for i, (span, score) in enumerate(ranked, 1)]
    # Of an answer that is there several times, the first place.
    found = {run: (place, score) for place, score, run in reversed(judged) if run in wanted}
    lost, is_better = _NEGLIGIBLE * len(held_out), finder != "capitals"
    if finder == "auto" and len(pairs) >= _FEW:
        is_better = len(find_selected(selector, held_out, documents_of)) <= len(found) + lost
    if guesses:
        # From this score on, what looks most like an answer is one more often than not.
        firsts = sorted(((score, run in wanted) for place, score, run in judged if place == 1), reverse=True)
        best = int(np.cumsum([0, *(2 * is_answer - 1 for _, is_answer in firsts)]).argmax())
        are_few = len({title for title, _ in pairs}) < _FOLDS
        min_guess = -math.inf if are_few else firsts[best - 1][0] if best else math.inf
        selector = replace(selector, ranker=ranker, min_score=math.inf, min_guess=min_guess)
    if is_better:
        selector = replace(selector, ranker=ranker, min_score=-math.inf)
    # Of a single title, none can be held out.
    if not is_better or len(pairs) < _FEW or not held_out:
        return selector
    # Spans that never contain the answer are read in vain: those behind the first few, and those that look less like answers than
    # nearly all that are some.
    places = [place for place, _ in found.values()] or [1]
    max_spans = int(np.quantile(places, max(1 - lost / len(places), 0), method="inverted_cdf"))
    scores = [score for place, score in found.values() if place <= max_spans]
    # With fewer, more than a negligible share of all answers may look less like one than any of these.
    min_score = float(np.quantile(scores, _NEGLIGIBLE / 2)) if len(scores) >= 1 / _NEGLIGIBLE else -math.inf
    return replace(selector, ranker=ranker, max_spans=max_spans, min_score=min_score)


def describe_held_out(
    documents: Dataset, questions: Questions, selectors: Sequence[SpanSelector], select: Callable[..., Dataset]
) -> Iterator[str]:
    """Yield for each relation how many of the answers to held-out questions stand in the text, are asked for, and are in the title.

    What a selector has learned, it learns again from the other questions; `select` is `select_spans` with its other arguments.
    """
    documents_of = find_documents(questions, documents)
    for selector in selectors:
        # All, in the text, asked for, in the title, and its last word; pseudo-labels, and those that are correct.
        counts, missed, wrong, read = np.zeros(7, int), "", "", Read()
        for held_out, others in hold_out(list_pairs(questions, selector.relation)):
            shapes = selector.shapes and find_number_shapes([answer for _, answer in others])
            judge = replace(selector, shapes=shapes)
            if selector.ranker:
                judge = replace(judge, ranker=SpanRanker(others, documents_of, read))
            asked: dict[str, list[str]] = {title: [] for title, _ in held_out}
            # A title has one, and may have several answers.
            labels: dict[str, str] = {}
            about = [document._asdict() for document in list_about(held_out, documents_of)]
            for row in select(Dataset.from_list(about), [judge]) if about else ():
                asked[row["title"]] += row["asked"]
                if row["likeliest"][0] >= 0:
                    labels[row["title"]] = row["asked"][row["likeliest"][0]]
            for title, answer in held_out:
                bodies = (text[find_text_start(title) :] for _, text, _ in documents_of[title])
                is_said, is_asked = any(has_words(body, answer) for body in bodies), answer in asked[title]
                is_in_title = has_words(title, answer)
                is_last = split_words(title)[-1:] == [answer]
                counts[:5] += [True, is_said, is_asked, is_in_title, is_last]
                if is_said and not is_asked and not missed:
                    spans = ", ".join(asked[title]) or "nothing"
                    missed = f"; in the text, but not asked for: {answer!r} ({title}, asked for: {spans})"
            mistakes = [f", not {span!r} ({title})" for title, span in labels.items() if (title, span) not in held_out]
            counts[5:] += [len(labels), len(labels) - len(mistakes)]
            wrong = wrong or next(iter(mistakes), "")
        if counts.any():
            stated, found, in_title, last = (f"{count / counts[0]:.1%}" for count in counts[1:5])
            last = f" (its last word: {last})" if counts[4] else ""
            labelled = f"; of {counts[5]:,} pseudo-labels, {counts[6]:,} are correct{wrong}" if counts[5] else ""
            yield (
                f"Of {counts[0]:,} answers to {selector.relation.form!r}, held out by turns: in the text {stated}, asked for {found},"
                f" in the title {in_title}{last}{labelled}{missed}."
            )


class SpanRanker:
    """Ranks the runs of words in documents by how much they look like the answers of training questions.

    Args:
        pairs: The questions, of one relation, by their titles, with their answers.
        documents_of: From `find_documents`.
        read: What was read of documents, which rankers of the same questions share; it grows.
    """

    def __init__(self, pairs: Sequence[Pair], documents_of: DocumentsOf, read: Read | None = None):
        from scipy.sparse import csr_array
        from sklearn.linear_model import LogisticRegression

        answers = [[token for token in WORD.findall(answer) if not token.isspace()] for _, answer in pairs]
        usual = int(np.quantile([*map(len, answers)], 1 - _NEGLIGIBLE, method="lower"))
        self.max_words = min(max(usual + 2, _MIN_WORDS), _MAX_WORDS)
        # As in `Samuel L. Jackson`, `$12` and `C++`; in a fixed order, as `datasets` hashes it. A run begins and ends with marks that
        # an answer begins and ends with.
        edges = slice(1), slice(-1, None), slice(None)
        self.marks = [sorted({each for own in answers for each in own[at] if not _is_word(each)}) for at in edges]
        # Who won `Arsenal v Chelsea` is a word of the title; a person's own name is not a place.
        words = [set(_TITLE_WORD.findall(title)) for title, _ in pairs]
        alike = [not own.isdisjoint(answer) for own, answer in zip(words, answers, strict=True)]
        self.takes_title_words = sum(alike) > _NEGLIGIBLE * len(alike)
        documents, wanted = list_about(pairs, documents_of), set(pairs)
        is_answer: list[bool] = []
        rows = []
        for (title, text, _), (spans, columns) in zip(documents, self._read_once(documents, read), strict=True):
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

    def rank(
        self, documents: Sequence[Document], max_spans: int, read: Read | None = None
    ) -> list[list[tuple[Span, float]]]:
        """Return the runs of each document that look most like answers, with their scores (log-odds), the highest first.

        None overlap. With a smaller `max_spans`, these are the first of them. `read` is that of the class.
        """
        ranked: list[list[tuple[Span, float]]] = [[] for _ in documents]
        if self.weights is None:
            return ranked
        for chosen, (spans, columns) in zip(ranked, self._read_once(documents, read), strict=True):
            scores = self.weights[columns].sum(1) + self.bias
            while len(chosen) < max_spans and len(scores):
                best = scores.argmax()
                start, end = spans[best].tolist()
                chosen.append(((start, end), float(scores[best])))
                apart = (spans[:, 1] <= start) | (spans[:, 0] >= end)
                spans, scores = spans[apart], scores[apart]
        return ranked

    def _read_once(self, documents: Sequence[Document], read: Read | None) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        """Return what `_read_runs` does, without reading again what is in `read`."""
        if read is None:
            return self._read_runs(documents)
        own = read.setdefault((self.max_words, self.takes_title_words, str(self.marks)), {})
        new = {document[:2]: document for document in documents if document[:2] not in own}
        own.update(zip(new, self._read_runs([*new.values()]), strict=True))
        return [own[document[:2]] for document in documents]

    def _read_runs(self, documents: Sequence[Document]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield start and end of each run of words in each document, none of them the title's: (runs, 2); and the columns in
        which a run's features are 1: (runs, 11).
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
            for start, end in find_words(() if self.takes_title_words else _TITLE_WORD.findall(title), body):
                is_title[offset + start : offset + end] = True
        ids, words = _number(tokens)
        kept = np.flatnonzero(~np.array([word.isspace() for word in words])[ids])
        ends, ids = np.cumsum([*map(len, tokens)])[kept], ids[kept]
        starts = ends - np.array([*map(len, words)])[ids]

        takes = [[_is_word(word) or word in marks for word in words] for marks in self.marks]
        is_first, is_last, is_part = np.array(takes)[:, ids]
        # A run goes on over these, and over what stands between no spaces in a script with spaces.
        is_tight = (np.roll(ends, 1) == starts) & (ends == np.roll(starts, -1))
        is_spaced = ~np.array(list(map(is_unspaced, words)))[ids]
        is_inside = is_part | (is_tight & np.roll(is_spaced, 1) & np.roll(is_spaced, -1))
        # (words, max_words): whether a run that begins with a word reaches those behind it.
        behind = np.arange(self.max_words)
        lasts = np.minimum(np.arange(len(ids))[:, None] + behind, len(ids) - 1)
        # `3.19` of `3.19.2` is another number; the year of `13.3.1967` ends with its date.
        is_point = np.array([word in (".", ",") for word in words])[ids] & is_tight
        is_number = np.array([word[:1].isdigit() for word in words])[ids]
        is_last &= ~(is_number & np.roll(is_point, -1) & np.roll(is_number, -2))
        goes_on = ((ends > starts) & ~is_title[starts])[lasts] & (is_inside[lasts - 1] | (behind < 2))
        is_run = np.logical_and.accumulate(goes_on, axis=1) & is_first[:, None] & is_last[lasts]
        first, length = np.nonzero(is_run)
        last = first + length
        # Among the first 8 characters of its document's text, the first 16, 32 and so on.
        place = starts[first] - offsets[np.searchsorted(offsets, starts[first], side="right") - 1]
        _, doublings = np.frexp(place / 8)

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
            _hash("place", range(32))[doublings.clip(0)],
            _hash("shape", [whole[shape >> 32 : shape & 0xFFFFFFFF] for shape in shapes])[shape_ids],
        )
        spans, rows = np.stack([starts[first], ends[last]], axis=1), np.stack(columns, axis=1)
        bounds = np.searchsorted(spans[:, 0], offsets)
        for begin, offset, *own in zip(begins, offsets, bounds, bounds[1:], strict=False):
            yield spans[slice(*own)] + begin - offset, rows[slice(*own)]


def _is_word(token: str) -> bool:
    """Return whether a token of `WORD` is a word, such as `__init__`, and no mark."""
    return token[:1].isalnum() or token[:1] == "_"


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
