"""The pretraining corpus: a UTF-8 text file, a document a line."""

import os
from collections.abc import Iterator

from datasets import Dataset, load_dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.text_files import BadInput, read_lines
from modeling_posgpt import MASK_TOKEN, PAD_TOKEN

_LONGEST_TITLE = 200


def read_documents(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
    """Yield each document's line number, from 1, and the line; blank ones, too.

    Raises:
        BadInput: see `read_lines`.
    """
    return read_lines(path, "corpus, a text file with a document a line")


def load_corpus(path: str | os.PathLike) -> Dataset:
    """Return a dataset with one column, `text`: a document a row, blank lines left out. Rows stay on disk (Arrow).

    Raises:
        BadInput: the file is missing, a directory, empty, not UTF-8, all blank, or holds one of the two symbols that
            the objective keeps for itself.
    """
    documents = 0
    for number, line in read_documents(path):
        for symbol, use in ((MASK_TOKEN, "marks the masked span"), (PAD_TOKEN, "is padding")):
            if symbol in line:
                raise BadInput(f"{path}, line {number}: holds {symbol!r}, which {use}; replace or remove it.")
        documents += bool(line.strip())
    if not documents:
        raise BadInput(f"{path}: every line is blank; give a corpus with a document a line.")
    corpus = load_dataset("text", data_files=str(path), split="train", encoding="utf-8-sig")
    return corpus.filter(lambda batch: [bool(text.strip()) for text in batch["text"]], batched=True)


def titles_of(document: str) -> Iterator[str]:
    """What may be the title of a document `TITLE. text`: all that stands before one of its first full stops.

    A title may hold full stops itself; who looks for one title compares it with each.
    """
    end = document.find(". ")
    while end != -1:
        yield document[:end]
        end = document.find(". ", end + 1, _LONGEST_TITLE)


def tokenize_corpus(corpus: Dataset, tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """Replace the column `text` by `input_ids`, the ids of the whole document, and `length`, how many they are."""

    def encode(batch: dict) -> dict:
        input_ids = tokenizer(batch["text"], add_special_tokens=False, verbose=False)["input_ids"]
        return {"input_ids": input_ids, "length": [len(ids) for ids in input_ids]}

    return corpus.map(encode, batched=True, remove_columns="text", desc="Tokenizing")
