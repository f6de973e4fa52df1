"""Whether spans hold the answers to questions that they were not chosen by, which is what held-out questions can be answered by."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.errors import BadInput
from data_scripts.questions import Questions
from data_scripts.relations import Relation
from data_scripts.span_selectors import SpanArguments, SpanSelector, choose_selectors, select_spans
from data_scripts.titles import find_text_start
from data_scripts.words import find_words, split_words

# A fifth of the titles is held out, and another one until so many are; of very many titles, the first ones drawn say enough.
_FOLDS, _FEWEST, _MAX_TITLES = 5, 100, 2000
# A title and a relation.
Key = tuple[str, Relation]


def iterate_asked(documents: Dataset, selectors: Sequence[SpanSelector]) -> Iterator[tuple[Key, str, bool]]:
    """Yield each span of documents, from `select_spans`, by title and relation, and whether it is taken for the answer."""
    for batch in documents.select_columns(["title", "asked", "asked_by", "likeliest"]).iter(1000):
        for title, spans, asked_by, likeliest in zip(*batch.values(), strict=True):
            for place, (span, numbers) in enumerate(zip(spans, asked_by, strict=True)):
                for i in numbers:
                    yield (title, selectors[i].relation), span, likeliest[i] == place


def describe_held_out(
    documents: Dataset,
    questions: Questions,
    options: SpanArguments,
    ask_dates: bool,
    tokenizer: PreTrainedTokenizerBase,
    room: int,
) -> Iterator[str]:
    """Yield for each relation how many of the answers to held-out questions stand in the text, are asked for, and are in the title.

    The arguments are those of `choose_selectors` and `select_spans`.
    """
    titles = [*dict.fromkeys(questions.titles)]
    titles = [titles[i] for i in np.random.default_rng(0).permutation(len(titles))[:_MAX_TITLES]]
    # A dictionary has the same order, and so the same hash, in each process.
    fold_of = {title: i % _FOLDS for i, title in enumerate(titles)}
    about = documents.filter(fold_of.__contains__, input_columns="title", desc="Finding documents")
    bodies: dict[str, list[str]] = {}
    for title, text in zip(about["title"], about["text"], strict=True):
        bodies.setdefault(title, []).append(text[find_text_start(title) :])
    counts: dict[Relation, Counter] = {}
    missed: dict[Relation, str] = {}
    for fold in range(min(_FOLDS, -(-_FOLDS * _FEWEST // len(titles)))):
        rows = [row for row, title in enumerate(questions.titles) if fold_of.get(title) == fold]
        others = [row for row, title in enumerate(questions.titles) if fold_of.get(title, fold) != fold]
        if not rows or not others:
            continue
        held_out, asked, guesses = questions.take(rows), dict[Key, list[str]](), dict[Key, list[str]]()
        own = about.select([i for i, title in enumerate(about["title"]) if fold_of[title] == fold])
        try:
            chosen = choose_selectors(about, questions.take(others), options, ask_dates, questions.relations)
            for key, span, is_guess in iterate_asked(select_spans(own, chosen, options, tokenizer, room), chosen):
                asked.setdefault(key, []).append(span)
                if is_guess:
                    guesses.setdefault(key, []).append(span)
        except BadInput:
            # None of the other questions shows what answers look like.
            pass
        for title, relation, answer in zip(
            held_out.titles, held_out.relation_per_question, held_out.answers, strict=True
        ):
            found = {
                "all": True,
                "text": any(any(find_words([answer], body)) for body in bodies.get(title, ())),
                "asked": answer in (spans := asked.get((title, relation), [])),
                "guessed": (title, relation) in guesses,
                "correct": answer in guesses.get((title, relation), []),
                "title": any(find_words([answer], title)),
                "last": split_words(title)[-1:] == [answer],
            }
            counts.setdefault(relation, Counter()).update(found)
            if found["text"] and not found["asked"]:
                missed.setdefault(relation, f"{answer!r} ({title}, asked for: {', '.join(spans) or 'nothing'})")
    for relation, count in counts.items():
        share = {name: f"{number / count['all']:.1%}" for name, number in count.items()}
        last = f" (its last word: {share['last']})" if count["last"] else ""
        labels = (
            f"; of {count['guessed']:,} pseudo-labels, {count['correct']:,} are correct" if count["guessed"] else ""
        )
        example = f"; in the text, but not asked for: {missed[relation]}" if relation in missed else ""
        yield (
            f"Of {count['all']:,} answers to {relation.form!r}, held out by turns: in the text {share['text']}, asked for {share['asked']},"
            f" in the title {share['title']}{last}{labels}{example}."
        )
