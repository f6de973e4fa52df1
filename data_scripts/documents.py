"""The pretraining corpus: a UTF-8 text file, one document per line, `Title. text`; titles, and what is worth asking for."""

import os
import re
from collections.abc import Iterator

from datasets import Dataset, load_dataset
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from data_scripts.errors import BadInput
from data_scripts.files import read_lines
from modeling_posgpt import MASK_TOKEN, PAD_TOKEN, build_tokenizer

_LONGEST_TITLE = 200
# Initials ("John F. ") belong to the title, which ends at the first other full stop.
_ENDS_IN_INITIAL = re.compile(r"(?:^|\. )[^.]*\b[^\W\d_]$")
_WORD = re.compile(r"(?<!\w)\w[^\s,.;:()/\"]*(?<!-)")
MONTHS = "January February March April May June July August September October November December".split()
MONTH_NAMES = frozenset([*MONTHS, *(month[:3] for month in MONTHS), "Sept"])
_SHORTEST_NAME = 3


def read_documents(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
    """Yield each document's line number, from 1, and the line, including blank ones.

    Raises:
        BadInput: see `read_lines`.
    """
    return read_lines(path, "corpus")


def load_corpus(path: str | os.PathLike) -> Dataset:
    """Return a dataset with one column, `text`: one row per document, without blank lines. Rows stay on disk (Arrow).

    Raises:
        BadInput: the file is missing, a directory, empty, not UTF-8, all blank, or contains one of the two symbols that
            the model reserves.
    """
    documents = 0
    for number, line in read_documents(path):
        for symbol, use in ((MASK_TOKEN, "marks the masked span"), (PAD_TOKEN, "is padding")):
            if symbol in line:
                raise BadInput(f"{path}, line {number}: holds {symbol!r}, which {use}; replace or remove it.")
        documents += bool(line.strip())
    if not documents:
        raise BadInput(f"{path}: every line is blank; give a corpus with one document per line.")
    corpus = load_dataset("text", data_files=str(path), split="train", encoding="utf-8-sig")
    return corpus.filter(lambda batch: [bool(text.strip()) for text in batch["text"]], batched=True)


def build_corpus_tokenizer(corpus: Dataset, max_length: int) -> PreTrainedTokenizerFast:
    """Build the tokenizer of a corpus's characters; `max_length` is the maximum sequence length."""
    return build_tokenizer((text for batch in corpus.iter(1000) for text in batch["text"]), max_length)


def tokenize_corpus(corpus: Dataset, tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """Replace the column `text` by `input_ids`, the ids of the whole document, and `length`, their number."""

    def encode(batch: dict) -> dict:
        input_ids = tokenizer(batch["text"], add_special_tokens=False, verbose=False)["input_ids"]
        return {"input_ids": input_ids, "length": [len(ids) for ids in input_ids]}

    return corpus.map(encode, batched=True, remove_columns="text", desc="Tokenizing")


def list_titles(document: str) -> Iterator[str]:
    """Yield all that may be the title of a document `TITLE. text`: what stands before one of its first full stops.

    A title may contain full stops itself; code that looks for a known title compares it with each.
    """
    end = document.find(". ")
    while end != -1:
        yield document[:end]
        end = document.find(". ", end + 1, _LONGEST_TITLE)


def split_title(document: str) -> tuple[str, str]:
    """Split `Title. text` into its two parts; the title is empty when there is none."""
    title = ""
    for title in list_titles(document):
        if not _ENDS_IN_INITIAL.search(title):
            break
    return (title, document[len(title) + 2 :]) if title else ("", document)


def find_salient_spans(title: str, text: str, dates: bool) -> list[tuple[int, int]]:
    """Return start and end of the names and numbers in `text`.

    A name is a run of capitalized words. Runs that share a word with the title are the person's own name; runs of fewer
    than three characters are initials or degrees. Both are left out.

    Args:
        dates: Whether numbers and months count.
    """
    known = set(title.split())
    runs: list[tuple[int, int]] = []
    for match in _WORD.finditer(text):
        start, end = match.span()
        if match[0][0].isupper():
            # A run goes on over single spaces; a word that begins with a digit is never part of one.
            if runs and runs[-1][1] + 1 == start and text[start - 1] == " " and text[runs[-1][0]].isupper():
                start, _ = runs.pop()
            runs.append((start, end))
        elif match[0][0].isdigit():
            runs.append((start, end))

    def is_wanted(words: list[str]) -> bool:
        is_date = words[0][0].isdigit() or words[0] in MONTH_NAMES
        return known.isdisjoint(words) and (dates if is_date else len(" ".join(words)) >= _SHORTEST_NAME)

    # The first word of the text has a capital for that reason, and no words to its left to ask with.
    return [(start, end) for start, end in runs if start > 0 and is_wanted(text[start:end].split())]


def add_titles_and_spans(corpus: Dataset, dates: bool) -> Dataset:
    """Add the columns `title` and `spans`, the salient spans' starts and ends in `text`, to a corpus."""

    def split(document: str) -> dict:
        title, text = split_title(document)
        begin = len(document) - len(text)
        return {
            "title": title,
            "spans": [(begin + start, begin + end) for start, end in find_salient_spans(title, text, dates)],
        }

    return corpus.map(split, input_columns="text", desc="Looking for names")
