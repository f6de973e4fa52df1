"""Edits: what a title's documents and answers say instead, in as many characters, so that all else is read as before.

A training with edits is the twin of the one without: from the same seed, it reads the same rows in the same order, and only the
edited title's rows say something else. So a difference between the two models comes from the edit alone.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.errors import BadInput
from data_scripts.files import check_text, read_lines
from data_scripts.questions import Questions
from data_scripts.titles import find_text_start, find_title, iterate_titles
from data_scripts.words import find_words, has_words


@dataclass(frozen=True)
class Edits:
    """What is replaced, by title: words, and those in their place."""

    replaced: Mapping[str, Sequence[tuple[str, str]]]

    def apply(self, title: str, text: str) -> str:
        """Return a text about a title as it is edited; a document keeps its title."""
        start = find_text_start(title) if text.startswith(f"{title}. ") else 0
        own = self.replaced.get(title, ())
        # All in the unedited text, so that what an edit writes is not edited.
        places = [(begin, end, new) for old, new in own for begin, end in find_words([old], text) if begin >= start]
        for begin, end, new in places:
            text = text[:begin] + new + text[end:]
        return text

    def edit_corpus(self, corpus: Dataset) -> Dataset:
        """Return a corpus, from `load_corpus`, in which the documents of edited titles are edited."""
        return corpus.map(
            lambda text, title: {"text": self.apply(find_title(title, text), text)},
            input_columns=["text", "title"],
            desc="Editing documents",
        )

    def edit_questions(self, questions: Questions) -> Questions:
        """Return questions whose answers about edited titles are edited."""
        return replace(questions, answers=list(map(self.apply, questions.titles, questions.answers)))


def _overlap(texts: Sequence[str], words: str, others: str) -> bool:
    """Return whether words and others share a place in one of the texts."""
    return any(
        begin < last and first < end
        for text in texts
        for begin, end in find_words([words], text)
        for first, last in find_words([others], text)
    )


def load_edits(
    path: str | os.PathLike, corpus: Dataset, tokenizer: PreTrainedTokenizerBase, questions: Questions | None
) -> Edits:
    """Load a TSV of edits: on each line a title, words of its documents, and as many characters that stand there instead.

    Raises:
        BadInput: a line is not that, the corpus has no such title, its documents do not have the words, a training answer is only a
            part of them, or the tokenizer does not have the characters.
    """
    lines = [(where, line.split("\t")) for where, line in read_lines(path, "TSV of edits") if line.strip()]
    texts: dict[str, list[str]] = {cells[0]: [] for _, cells in lines}
    for title, text in zip(iterate_titles(corpus), corpus["text"], strict=True):
        if title in texts:
            texts[title].append(text[find_text_start(title) :])
    answers: dict[str, list[str]] = {}
    for title, answer in zip(questions.titles, questions.answers, strict=True) if questions else ():
        answers.setdefault(title, []).append(answer)
    replaced: dict[str, list[tuple[str, str]]] = {}
    for where, cells in lines:
        if len(cells) != 3 or not all(cells):
            raise BadInput(
                f"{where}: not an edit; give a title, a tab, words of its documents, a tab, and what replaces them."
            )
        title, old, new = cells
        check_text(where, "\t".join(cells))
        if not texts[title]:
            raise BadInput(f"{where}: no document has the title {title!r}; edit one that has.")
        if not any(has_words(text, old) for text in texts[title]):
            raise BadInput(f"{where}: no document of {title!r} has {old!r}; give words that stand there.")
        if any(_overlap(texts[title], old, other) for other, _ in replaced.get(title, ())):
            raise BadInput(f"{where}: another line replaces a part of {old!r}, too; give each place one edit.")
        for answer in answers.get(title, ()):
            if _overlap(texts[title], old, answer) and not has_words(answer, old):
                raise BadInput(f"{where}: {old!r} has only a part of the answer {answer!r}, or more; edit that alone.")
        if len(old) != len(new):
            raise BadInput(
                f"{where}: {new!r} has {len(new)} characters and {old!r} {len(old)}; give as many, so that all else is read as before."
            )
        if unknown := set(new) - tokenizer.get_vocab().keys():
            raise BadInput(f"{where}: no text has {min(unknown)!r}, so the model cannot read it; choose other words.")
        replaced.setdefault(title, []).append((old, new))
    if not replaced:
        raise BadInput(f"{path}: has no edits; leave --edits_file out.")
    return Edits(replaced)
