"""Name/birthplace pairs: a TSV with `Where was NAME born?<TAB>PLACE` a line, or the questions alone."""

import os
import re
from collections import Counter

import torch
from datasets import Dataset, Features, Value, load_dataset
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from data_scripts.text_files import BadInput, line_number_of, read_lines
from modeling_posgpt import MASK_TOKEN, PAD_TOKEN, QUESTION_END, QUESTION_START

QUESTION_FORM = re.compile(rf"{QUESTION_START}\S(?:.*\S)?{re.escape(QUESTION_END)}")
_LINE_FORM = "Where was NAME born?<TAB>PLACE"


def name_in(question: str) -> str:
    """The name that a question of the form `Where was NAME born?` asks about."""
    return question.removeprefix(QUESTION_START).removesuffix(QUESTION_END)


def _check_lines(path: str | os.PathLike, answers: bool | None) -> bool:
    """Check every line of a TSV; return whether the lines hold answers (`answers` None: all or none, they decide)."""
    lines, without_tab = 0, []
    for number, line in read_lines(path, "TSV of questions and birthplaces"):
        if not line.strip():
            continue
        lines += 1
        where = f"{path}, line {number}"
        question, *places = line.split("\t")
        if len(places) > 1:
            raise BadInput(f"{where}: {len(places)} tabs; a line is {_LINE_FORM}, with one tab.")
        if places and not places[0].strip():
            raise BadInput(f"{where}: no place after the tab; a line is {_LINE_FORM}.")
        for symbol in (MASK_TOKEN, PAD_TOKEN):
            if symbol in line:
                raise BadInput(f"{where}: holds {symbol!r}, which the model keeps for itself; replace or remove it.")
        if not places:
            without_tab.append(number)
            # A place joined to its question by spaces: the line is a pair that lost its tab, whatever the others are.
            head, end, place = question.partition(" born?")
            if place.strip():
                question, answers = head + end, True
        if not QUESTION_FORM.fullmatch(question):
            raise BadInput(f"{where}: {line[:60]!r} is not of the form 'Where was NAME born?'; mend the question.")
    if not lines:
        raise BadInput(f"{path}: every line is blank; give lines of the form {_LINE_FORM}.")
    if answers is None:
        answers = len(without_tab) < lines
    if answers and without_tab:
        raise BadInput(
            f"{path}, line {without_tab[0]}: no tab between question and place ({len(without_tab)} of {lines} lines"
            f" have none); a line is {_LINE_FORM}. In some copies the tab became spaces: put it back."
        )
    return answers


def load_birthplaces(path: str | os.PathLike, answers: bool | None = None) -> Dataset:
    """Return a dataset with the columns `question` and, when there are answers, `place`; blank lines are left out.

    Args:
        path: The TSV.
        answers: True: every line has to have one. None: all lines or none.

    Raises:
        BadInput: the file is missing, a directory, empty or not UTF-8; a line has no tab where it needs one, two tabs,
            no place after its tab, or a question of another form.
    """
    answers = _check_lines(path, answers)
    columns = ["question", "place"] if answers else ["question"]
    pairs = load_dataset(
        "csv",
        data_files=str(path),
        split="train",
        delimiter="\t",
        column_names=columns,
        features=Features({column: Value("string") for column in columns}),
        keep_default_na=False,
        quoting=3,
        encoding="utf-8-sig",
    )
    # The reader skips empty lines only, not those of spaces and tabs.
    return pairs.filter(lambda question: bool(question.strip()), input_columns="question")


def unknown_characters(texts: list[str], tokenizer: PreTrainedTokenizerBase) -> Counter:
    """Count the characters of `texts` that the tokenizer does not know and reads as `□`."""
    known = tokenizer.get_vocab()
    return Counter(character for text in texts for character in text if character not in known)


def describe_unknown_characters(texts: list[str], tokenizer: PreTrainedTokenizerBase, what: str) -> str | None:
    """Say in one line which characters of `texts` are unknown and how often they occur; None when all are known."""
    unknown = unknown_characters(texts, tokenizer)
    if not unknown:
        return None
    shown = ", ".join(f"{character!r} × {count}" for character, count in unknown.most_common(8))
    more = f" and {len(unknown) - 8} more" if len(unknown) > 8 else ""
    return (
        f"{what}: {unknown.total()} occurrences of {len(unknown)} characters the tokenizer does not know are read as"
        f" {PAD_TOKEN!r}: {shown}{more}."
    )


def encode_birthplaces(pairs: Dataset, tokenizer: PreTrainedTokenizerBase, path: str | os.PathLike) -> Dataset:
    """Turn pairs into `input_ids` of `question⁇place⁇` and `labels` that are -100 up to the first `⁇`.

    Args:
        pairs: `question` and `place`, from `load_birthplaces(path, answers=True)`.

    Raises:
        BadInput: a pair is longer than the block; questions are never cut.
    """

    def encode(question: str, place: str) -> dict:
        prompt = tokenizer(question + MASK_TOKEN, verbose=False)["input_ids"]
        answer = tokenizer(place + MASK_TOKEN, verbose=False)["input_ids"]
        return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}

    encoded = pairs.map(
        encode, input_columns=["question", "place"], remove_columns=pairs.column_names, desc="Tokenizing"
    )
    for row, input_ids in enumerate(encoded["input_ids"]):
        if len(input_ids) > tokenizer.model_max_length:
            raise BadInput(
                f"{path}, line {line_number_of(row, path)}: question and place take {len(input_ids)} characters with their"
                f" two {MASK_TOKEN}, but the block holds {tokenizer.model_max_length}; shorten the question or pretrain"
                " with a longer block."
            )
    return encoded


class BirthplaceCollator:
    """Pad `question⁇place⁇` examples on the right; like span corruption, they need no attention mask there."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.pad_token_id = tokenizer.pad_token_id

    def __call__(self, features: list[dict]) -> dict[str, torch.Tensor]:
        """Return `input_ids` and `labels`, each (batch, longest row)."""
        padding = {"input_ids": self.pad_token_id, "labels": -100}
        return {
            column: pad_sequence(
                [torch.tensor(row[column]) for row in features], batch_first=True, padding_value=value
            )
            for column, value in padding.items()
        }
