"""What the rows of name-keyed windows ask for, and what questions are generated for: a rule for each relation.

A relation's training answers decide it: numbers if they are numbers, names that stand out by their capitals
if the answers are among the first of these, and otherwise what looks like its answers (`data_scripts/learned_spans.py`).
"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Literal

import numpy as np
from datasets import Dataset

from data_scripts.cues import take_words_before
from data_scripts.errors import BadInput
from data_scripts.learned_spans import NothingToLearn, Span, SpanFinder
from data_scripts.options import Range, option
from data_scripts.questions import Questions
from data_scripts.relations import BIRTHPLACE, Relation, Wording
from data_scripts.salient_spans import MONTH_NAMES, add_titles_and_spans
from data_scripts.titles import find_text_start

# Titles, texts and salient spans of the documents that questions ask about.
AskedDocuments = tuple[list[str], list[str], list[list[Span]]]
FinderChoice = Literal["auto", "capitals", "answers"]
# Capitals find a relation's answers if at least this share of those in the documents are among the first spans; if fewer of
# all answers than the other share are in the documents, there is nothing to find.
_MOSTLY, _HARDLY = 0.93, 0.1
# Spans that would find no more than this share of the answers are not worth reading; with fewer questions to count on, all are.
_NEGLIGIBLE, _FEWEST_HELD_OUT = 0.02, 10
# Nor are spans that look less like answers than all but this share of the answers that were found.
_UNLIKELY = 0.01
# So many questions show what a relation's answers look like.
_MOST_JUDGED = 10_000


@dataclass(kw_only=True)
class AskedSpans:
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
    span_finder: FinderChoice = option(
        "How spans are found: by capital letters and digits, by what the training questions' answers look like, or"
        " (auto), for each relation, by capitals if these find its answers and otherwise by the answers.",
        default="auto",
    )


@dataclass(frozen=True)
class AskingRule:
    """Which spans of a document the rows of a relation ask for.

    Args:
        relation: The relation.
        shapes: The shapes (see `find_shape`) of the numbers that are asked for in place of names; None: names.
        ask_dates: Whether names, numbers and months are all asked for.
        finder: What finds the spans; None: capital letters and digits.
        most: How many spans of a document are asked for.
    """

    relation: Relation
    shapes: tuple[str, ...] | None = None
    ask_dates: bool = False
    finder: SpanFinder | None = None
    most: int = 4

    @property
    def kind(self) -> str:
        """What rows ask for, in a few words."""
        if not self.most:
            kind = "the training questions alone"
        elif self.finder:
            kind = f"at most {self.most} that look like its answers"
        elif self.ask_dates:
            kind = "names, numbers and months"
        else:
            kind = "numbers like its answers" if self.shapes else "names"
        return f"{self.relation.name}: {kind}"

    def needs_words(self, wording: Wording) -> bool:
        """Whether a cue has to keep a word: without any, `Who employed NAME?⁇China⁇` would be a wrong answer.

        Where rows ask for a single span, the one that looks most like the answer, it is the answer.
        """
        is_answer = self.finder is not None and self.most == 1
        return not (wording.has_words_after or is_answer)

    def choose_spans(
        self, titles: Sequence[str], texts: Sequence[str], salient: Sequence[Sequence[Span]]
    ) -> list[list[Span]]:
        """Choose what rows about each document ask for.

        Args:
            salient: For each document, start and end of the spans that stand out by a capital letter or a digit.
        """
        if self.finder:
            return self.finder.find(titles, texts, self.most)
        needs_words = any(map(self.needs_words, self.relation.split_wordings()))
        return [
            [
                (start, end)
                for start, end in spans
                if self._asks_for(text[start:end])
                and (not needs_words or take_words_before(title, text, start, plain=True, most=1))
            ][: self.most]
            for title, text, spans in zip(titles, texts, salient, strict=True)
        ]

    def _asks_for(self, span: str) -> bool:
        if self.ask_dates:
            return True
        if span[0].isdigit():
            return self.shapes is not None and find_shape(span) in self.shapes
        return self.shapes is None and span.split()[0] not in MONTH_NAMES


def find_shape(number: str) -> str:
    """Return a number with each digit as 0: `1931` and `1948` are alike, `12` is not."""
    return "".join("0" if character.isdigit() else character for character in number)


def list_asking_rules(
    questions: Questions | None, ask_dates: bool, max_spans: int, relations: Sequence[Relation] = (BIRTHPLACE,)
) -> list[AskingRule]:
    """Return a rule for each relation of `questions`, in their order.

    A relation asks for numbers if most of its answers begin with a digit; without questions, if its baseline does.

    Args:
        ask_dates: Whether names, numbers and months are all asked for in all rows.
        max_spans: How many spans of a document a relation's rows ask for.
        relations: What rows ask for without questions.
    """
    if not questions:
        return [
            AskingRule(relation, _find_number_shapes([relation.baseline]), ask_dates, most=max_spans)
            for relation in relations
        ]
    rules = []
    for relation, rows in questions.rows_of.items():
        shapes = _find_number_shapes([questions.answers[row] for row in rows])
        rules.append(AskingRule(relation, shapes, ask_dates, most=max_spans))
    return rules


def _find_number_shapes(answers: Sequence[str]) -> tuple[str, ...] | None:
    """Return the shapes of the answers that begin with a digit if most of them do, otherwise None."""
    numbers = [answer for answer in answers if answer[:1].isdigit()]
    return tuple(sorted(set(map(find_shape, numbers)))) if 2 * len(numbers) > len(answers) else None


def find_spans(
    corpus: Dataset,
    questions: Questions | None,
    ask_dates: bool,
    span_finder: FinderChoice,
    max_spans: int,
    relations: Sequence[Relation] = (BIRTHPLACE,),
) -> tuple[Dataset, list[AskingRule]]:
    """Find what stands out in documents, and choose what the rows of each relation ask for.

    Args:
        corpus: From `load_corpus`.
        questions: Training questions with answers, or None.
        ask_dates: Whether names, numbers and months are all asked for in all rows.
        span_finder: How spans are found; auto: by capitals where these find the answers, and no other relation asks for the same
            kind of spans; else by what the answers look like.
        max_spans: How many spans of a document a relation's rows ask for, at most.
        relations: What rows ask for without questions.

    Returns:
        The documents (see `add_titles_and_spans`) and the rules.

    Raises:
        BadInput: spans like the answers are wanted without questions, or see `SpanFinder`.
    """
    if span_finder == "answers" and not questions:
        raise BadInput("span_finder answers learns from training questions; add --questions_file.")
    rules = list_asking_rules(questions, ask_dates, max_spans, relations)
    documents = add_titles_and_spans(corpus, ask_dates or any(rule.shapes for rule in rules))
    if not questions:
        return documents, rules
    own = {rule.relation: _sample_questions(questions, rule.relation) for rule in rules}

    @cache
    def read_own(relation: Relation) -> AskedDocuments:
        """Read the documents of a relation's questions, once for all that is judged on them."""
        return read_asked(documents, own[relation])

    if span_finder == "answers":
        rules = [learn_spans(each, documents, own[each.relation], max_lost=1) for each in rules]
    elif span_finder == "auto":
        rules = [
            each
            if _finds_answers(each, read_own(each.relation), own[each.relation])
            else _try_to_learn_spans(each, documents, read_own(each.relation), own[each.relation], max_lost=0)
            for each in rules
        ]
        # Relations without a finder ask for every name, or for every number. If several ask for the same kind, most of what
        # they ask for is the answer to another's question, so each learns what its own answers look like, even if that finds
        # slightly fewer. With few pairs there is no telling whether something looks like its answers or another's.
        kinds = Counter(each.shapes is None for each in rules if not each.finder)
        rules = [
            _try_to_learn_spans(each, documents, read_own(each.relation), own[each.relation], max_lost=_NEGLIGIBLE)
            if not (each.finder or ask_dates)
            and kinds[each.shapes is None] > 1
            and len(own[each.relation]) >= 5 * _FEWEST_HELD_OUT
            else each
            for each in rules
        ]
    if len(rules) > 1:
        # Spans that never contain a relation's answers would teach wrong ones, so its rows ask its training questions alone;
        # unless that would leave no relation any spans. A finder was fitted on answers, so it finds some.
        vain = {
            each.relation
            for each in rules
            if not each.finder and _finds_nothing(each, read_own(each.relation), own[each.relation])
        }
        if len(vain) < len(rules):
            rules = [replace(each, most=0) if each.relation in vain else each for each in rules]
    return documents, rules


def _finds_nothing(rule: AskingRule, asked: AskedDocuments, questions: Questions) -> bool:
    """Whether none of a relation's answers is among what its rows ask for, and there are enough of them to tell."""
    return len(questions) >= _FEWEST_HELD_OUT and not find_asked_answers(rule, asked, questions)


def _sample_questions(questions: Questions, relation: Relation) -> Questions:
    """Return a relation's questions, thinned evenly to at most `_MOST_JUDGED`."""
    own = questions.select(relation)
    return own if len(own) <= _MOST_JUDGED else own.take(range(0, len(own), -(-len(own) // _MOST_JUDGED)))


def _finds_answers(rule: AskingRule, asked: AskedDocuments, questions: Questions) -> bool:
    """Whether a rule asks for most of a relation's answers that are in the documents."""
    # Rows that ask for everything need not have the answers among the first spans.
    judged = replace(rule, most=sys.maxsize) if rule.ask_dates else rule
    return len(find_asked_answers(judged, asked, questions)) >= _MOSTLY * len(find_stated_answers(asked, questions))


def _try_to_learn_spans(
    rule: AskingRule, documents: Dataset, asked: AskedDocuments, questions: Questions, max_lost: float
) -> AskingRule:
    """Do as `learn_spans` does, but return `rule` where there is nothing to learn; `asked` are the questions' documents."""
    if len(find_stated_answers(asked, questions)) < _HARDLY * len(questions):
        return rule
    try:
        return learn_spans(rule, documents, questions, max_lost)
    except NothingToLearn:
        # Longer answers, for instance: capitals find parts of them.
        return rule


def learn_spans(rule: AskingRule, documents: Dataset, questions: Questions, max_lost: float) -> AskingRule:
    """Return a rule that asks for the spans that look most like the answers, as many per document as are worth reading.

    Args:
        rule: How they are found otherwise.
        max_lost: The answers that `rule` finds and the new one does not, as a share of the questions held out (a fifth): if
            there are more, `rule` is returned. With too few questions to hold out any, they are not compared.

    Raises:
        NothingToLearn: see `SpanFinder`.
    """
    most, num_held_out = rule.most, len(questions) // 5
    if num_held_out < _FEWEST_HELD_OUT:
        return replace(rule, finder=SpanFinder(documents, questions))
    # Spans that never contain the answer are read in vain.
    order = np.random.default_rng(0).permutation(len(questions)).tolist()
    held_out, rest = questions.take(order[:num_held_out]), questions.take(order[num_held_out:])
    finder = SpanFinder(documents, rest)
    titles, texts, _ = asked = read_asked(documents, held_out)
    # Of each answer, wherever it is one of a document's spans: its place among them, and how much it looks like an answer.
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for title, text, spans in zip(titles, texts, finder.rank(titles, texts, most), strict=True):
        for place, span in enumerate(spans, 1):
            if (run := text[span.start : span.end]) in held_out.answers_of[title]:
                found.setdefault((title, run), []).append((place, span.score))
    counts = [sum(min(of_answer)[0] <= number for of_answer in found.values()) for number in range(1, most + 1)]
    if len(find_asked_answers(rule, asked, held_out)) > counts[-1] + max_lost * num_held_out:
        return rule
    most = next(number for number, count in enumerate(counts, 1) if count >= counts[-1] - _NEGLIGIBLE * num_held_out)
    # Where a document says it most clearly: another may happen to have the same place in it.
    best = [max((score for place, score in of_answer if place <= most), default=None) for of_answer in found.values()]
    scores = [score for score in best if score is not None]
    # With fewer, more than a negligible share of all answers may look less like one than any of these.
    if len(scores) >= 1 / _NEGLIGIBLE:
        finder.least_score = float(np.quantile(scores, _UNLIKELY))
    finder.fit(documents, questions)
    return replace(rule, finder=finder, most=most)


def read_asked(documents: Dataset, questions: Questions) -> AskedDocuments:
    """Return titles, texts and salient spans of the documents that questions ask about."""
    asked = documents.filter(questions.answers_of.__contains__, input_columns="title", desc="Finding documents")
    return list(asked["title"]), list(asked["text"]), list(asked["spans"])


def find_stated_answers(asked: AskedDocuments, questions: Questions) -> set[tuple[str, str]]:
    """Return those of the questions' titles and answers where a document of the title has the answer in its text."""
    titles, texts, _ = asked
    return {
        (title, answer)
        for title, text in zip(titles, texts, strict=True)
        for answer in questions.answers_of[title]
        if answer in text[find_text_start(title) :]
    }


def find_asked_answers(rule: AskingRule, asked: AskedDocuments, questions: Questions) -> set[tuple[str, str]]:
    """Return those of the questions' titles and answers where rows by this rule ask for the answer."""
    titles, texts, salient = asked
    return {
        (title, answer)
        for title, text, spans in zip(titles, texts, rule.choose_spans(titles, texts, salient), strict=True)
        for answer in questions.answers_of[title].intersection(text[start:end] for start, end in spans)
    }
