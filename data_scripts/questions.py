"""Questions, such as where people were born: a TSV with `question<TAB>answer` per line, or questions alone."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, repeat

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.errors import BadInput
from data_scripts.files import check_text, read_lines
from data_scripts.relations import BIRTHPLACE, RELATIONS, Relation, find_relation, match_relations
from data_scripts.titles import split_title
from modeling_posgpt import MASK_TOKEN, PAD_TOKEN

QUESTIONS_ROLE = "TSV of questions and answers"
_QUOTED = re.compile('"(?:[^"]|"")*"')
_LINE_FORM = "a line is a question, one tab and its answer"
# What questions end with.
_MARKS = "?？؟፧\u037e"
# In Greek, the mark is a semicolon.
_ENDS_QUESTION = re.compile(rf"[{_MARKS}]\s*$|[\u0370-\u03ff\u1f00-\u1fff][)»\"]*;\s*$|か。\s*$")
# What follows a question mark is an answer: the tab became spaces.
_LOST_TAB = re.compile(rf"[{_MARKS}]\s*\w[^{_MARKS}]*$")


@dataclass(frozen=True)
class Questions:
    """The questions of one or more TSVs, each with the relation that it asks for."""

    paths: tuple[str, ...]
    relation_per_question: tuple[Relation, ...]
    texts: Sequence[str]
    # The correct answers; none if the file has none.
    answers: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def path(self) -> str:
        """The TSVs, for messages."""
        return ", ".join(self.paths)

    @cached_property
    def titles(self) -> list[str]:
        """Whom or what each question asks about."""
        return list(map(Relation.read_title, self.relation_per_question, self.texts))

    @cached_property
    def rows_of(self) -> dict[Relation, list[int]]:
        """The numbers of the questions that ask for each relation, from 0, in the order in which relations are first asked."""
        rows: dict[Relation, list[int]] = {}
        for i, relation in enumerate(self.relation_per_question):
            rows.setdefault(relation, []).append(i)
        return rows

    @property
    def relations(self) -> tuple[Relation, ...]:
        """What the questions ask for."""
        return tuple(self.rows_of)

    def to_config(self) -> dict[str, dict]:
        """Return the entries of `PosGPTConfig.relations`; what has no baseline gets its most frequent answer."""
        entries: dict[str, dict] = {}
        for relation, rows in self.rows_of.items():
            baseline = relation.baseline or Counter(self.answers[row] for row in rows).most_common(1)[0][0]
            entries |= replace(relation, baseline=baseline).to_config()
        return entries

    @cached_property
    def answers_by_text(self) -> dict[str, list[str]]:
        """The correct answers to each question, which may be there with several; nothing if the file has none."""
        collected: dict[str, dict[str, None]] = {}
        for text, answer in zip(self.texts, self.answers, strict=False):
            collected.setdefault(text, {})[answer] = None
        return {text: list(given) for text, given in collected.items()}

    @property
    def contradictions(self) -> dict[str, set[str]]:
        """The answers to each question that is there with different ones."""
        return {text: set(given) for text, given in self.answers_by_text.items() if len(given) > 1}

    def select(self, relation: Relation) -> "Questions":
        """Return the questions that ask for one relation."""
        return self.take(self.rows_of.get(relation, []))

    def take(self, rows: Sequence[int]) -> "Questions":
        """Return the questions with these numbers, from 0."""
        relations = tuple(self.relation_per_question[row] for row in rows)
        texts, answers = ([column[row] for row in rows if column] for column in (self.texts, self.answers))
        return Questions(self.paths, relations, texts, answers)

    def format_lines(self) -> list[str]:
        """Return lines of a TSV that `load_questions` reads as these questions with their answers."""
        lines = [("", f"{text}\t{answer}") for text, answer in zip(self.texts, self.answers, strict=True)]
        if _unquote(lines) != lines:
            # Marks that belong to a cell would be taken for a program's, which doubles them.
            lines = [(where, re.sub(r'[^\t]*"[^\t]*', _quote, line)) for where, line in lines]
        return [line for _, line in lines]

    def rename(self, titles: Mapping[str, str]) -> "Questions":
        """Return the questions with the titles that `titles` has for theirs."""
        if all(titles.get(title, title) == title for title in self.titles):
            return self
        texts = map(Relation.replace_title, self.relation_per_question, self.texts, repeat(titles))
        return replace(self, texts=list(texts))


def load_questions(
    *paths: str | os.PathLike, answers: bool = False, known: Sequence[Relation] = (), corpus: Dataset | None = None
) -> Questions:
    """Load TSVs of questions as one; blank lines are skipped. What they ask for is recognized (see `recognize_relations`).
    BadInput says which line is not what it should be, or which relations have one name.

    Args:
        answers: Whether every line has to have one; otherwise all lines have one, or none.
        known: Relations that are known besides `RELATIONS`.
        corpus: From `load_corpus`: its titles show where titles are in questions of other relations.
    """
    lines: list[tuple[str, str]] = []
    for path in paths:
        filled = list(_read_questions(path))
        if not filled:
            raise BadInput(f"{path}: every line is blank; give lines of the form {BIRTHPLACE.form}<TAB>ANSWER.")
        # As the course's loader does with answers: nothing begins or ends with a space, of any kind.
        own = _unquote([(where, "\t".join(cell.strip() for cell in line.split("\t"))) for where, line in filled])
        # Sheets are saved with their empty columns; questions to be answered often have one.
        while all(line.endswith("\t") for _, line in own):
            own = [(where, line[:-1].rstrip(" ")) for where, line in own]
        lines += own
    for where, line in lines:
        if (tabs := line.count("\t")) > 1:
            raise BadInput(f"{where}: {tabs} tabs; {_LINE_FORM}.")
        if tabs and not line.split("\t")[1].strip():
            raise BadInput(f"{where}: no answer after the tab; {_LINE_FORM}.")
    first = lines[0][0]
    if all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in (line.split("\t")[0] for _, line in lines)):
        raise BadInput(f"{first}: all questions are in quotation marks; save the file without them.")
    if without := [(where, line) for where, line in lines if "\t" not in line]:
        has_lost_it = any(_LOST_TAB.search(line) for _, line in without)
        are_questions = all(is_question(line) for _, line in lines)
        if len(without) < len(lines) or has_lost_it or (answers and not are_questions):
            raise BadInput(
                f"{without[0][0]}: no tab between question and answer ({len(without)} of {len(lines)} lines have none);"
                f" {_LINE_FORM}. In some copies the tab became spaces: put it back."
            )
        if answers:
            raise BadInput(f"{first}: has questions without answers; give a TSV with answers.")
        # A line of a table, or of a text file.
        likely = [line.startswith("{") or bool(split_title(line)[0]) for _, line in lines]
        if not are_questions and sum(likely) > len(lines) / 2:
            raise BadInput(f"{first}: looks like a corpus (JSON, or `TITLE. text`); give a TSV of questions.")
    asked, answered = ([line.split("\t")[part] for _, line in lines if not without] for part in (0, 1))
    if sum(map(is_question, answered)) > len(lines) / 2 and not any(map(is_question, asked)):
        # Questions in a form that is known need no mark.
        if not any(find_relation(text, [*known, *RELATIONS.values()]) for text in asked):
            raise BadInput(
                f"{first}: answers stand before questions; {_LINE_FORM}: swap them, or name the form with --relations."
            )
    # Not before a corpus that was given by mistake is called one: its letters are as they should be.
    for where, line in lines:
        check_text(where, line, name=line)
    texts = [line.split("\t")[0] for _, line in lines]
    relations = match_relations([where for where, _ in lines], texts, [*known, *RELATIONS.values()], corpus)
    given = [] if without else [line.split("\t")[1].strip() for _, line in lines]
    return Questions(tuple(map(str, paths)), relations, texts, given)


def is_question(text: str) -> bool:
    """Return whether a text ends as questions do."""
    return _ENDS_QUESTION.search(text) is not None


def _quote(cell: re.Match) -> str:
    return '"{}"'.format(cell[0].replace('"', '""'))


def _unquote(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return lines without the quotation marks that a program has put around every cell, or every one with a quotation mark (Python's `csv`)
    or also every one with a comma (a spreadsheet).
    """
    cells = {cell for _, line in lines for cell in line.split("\t")} - {""}
    quoted = {cell for cell in cells if _QUOTED.fullmatch(cell)}
    doubled = {cell for cell in cells if '""' in cell[1:-1]}
    needed = doubled | {cell for cell in cells if "," in cell}
    # A title such as `"Heroes"` has marks of its own: a program would have doubled them.
    are_where_needed = any(
        own and own <= quoted and all(cell in own for cell in cells if '"' in cell) for own in (doubled, needed)
    )
    if not needed or not (are_where_needed or quoted == cells):
        return lines

    def unquote(cell: str) -> str:
        return cell[1:-1].replace('""', '"').strip() if _QUOTED.fullmatch(cell) else cell

    return [(where, "\t".join(map(unquote, line.split("\t")))) for where, line in lines]


def _read_questions(path: str | os.PathLike) -> Iterator[tuple[str, str]]:
    """Yield where each line of a TSV stands that is not blank, and the line."""
    return ((where, line) for where, line in read_lines(path, QUESTIONS_ROLE) if line.strip())


def locate_question(row: int, paths: Iterable[str]) -> str:
    """Return the file and the line that a question, counted from 0, was read from, for messages."""
    return next(islice((where for path in paths for where, _ in _read_questions(path)), row, None))


def count_unknown_characters(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> Counter:
    """Count the characters of `texts` that the tokenizer does not know and reads as `□`."""
    known = tokenizer.get_vocab()
    return Counter(character for text in texts for character in text if character not in known)


def describe_unknown_characters(
    texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, what: str | os.PathLike
) -> str | None:
    """Say in one line which characters of `texts` are unknown and how often they occur; None when all are known."""
    if not (unknown := count_unknown_characters(texts, tokenizer)):
        return None
    shown = ", ".join(f"{character!r} × {count}" for character, count in unknown.most_common(8))
    more = f" and {len(unknown) - 8} more" if len(unknown) > 8 else ""
    return f"{what}: characters that the tokenizer does not know are read as {PAD_TOKEN!r}, {unknown.total()} in all: {shown}{more}."


def describe_overlap(questions: Questions, others: Questions) -> str | None:
    """Say how many questions are in other files, too, and which is the first; None when none is."""
    known = set(others.texts)
    both = [text for text in questions.texts if text in known]
    counted = f"{questions.path}: {len(both):,} of {len(questions):,} questions are also in {others.path}"
    return f"{counted}, first {both[0]!r}" if both else None


def drop_non_ascii(questions: Questions) -> Questions:
    """Drop the characters that are not ASCII, as the course's loader does with training pairs; refuse what then is broken."""
    columns = questions.texts, questions.answers
    texts, answers = ([text.encode("ascii", "ignore").decode() for text in column] for column in columns)
    for i, (text, answer, relation) in enumerate(zip(texts, answers, questions.relation_per_question, strict=True)):
        if not answer.strip() or relation.find_title(text) is None:
            raise BadInput(
                f"{locate_question(i, questions.paths)}: ascii_only leaves too little of {questions.texts[i][:60]!r} or its"
                " answer; choose --ascii_only false."
            )
    return replace(questions, texts=texts, answers=answers)


def encode_questions(
    questions: Questions, tokenizer: PreTrainedTokenizerBase, loss_on_first_mask: bool = False
) -> list[dict]:
    """Turn questions with answers into `input_ids` of `question⁇answer⁇` and `labels` that are -100 up to the first `⁇`.

    In the course, the first `⁇` is graded as well (`loss_on_first_mask`). Questions that are too long are refused, never cut.
    """
    pairs = zip(questions.texts, questions.answers, strict=True)
    texts = [f"{question}{MASK_TOKEN}{answer}{MASK_TOKEN}" for question, answer in pairs]
    encoded = []
    # A tokenizer takes no empty list.
    for row, input_ids in enumerate(tokenizer(texts, verbose=False)["input_ids"] if texts else ()):
        if (length := len(input_ids)) > tokenizer.model_max_length:
            raise BadInput(
                f"{locate_question(row, questions.paths)}: question and answer take"
                f" {length} characters with their two {MASK_TOKEN}, but the maximum sequence length is"
                f" {tokenizer.model_max_length}; shorten the question or pretrain with a larger --block_size."
            )
        # A token for each character.
        ungraded = len(questions.texts[row] + MASK_TOKEN) - loss_on_first_mask
        encoded.append({"input_ids": input_ids, "labels": [-100] * ungraded + input_ids[ungraded:]})
    return encoded


def encode_by_title(questions: Questions, tokenizer: PreTrainedTokenizerBase) -> dict[str, list[dict]]:
    """Return the encoded questions about each title."""
    about: dict[str, list[dict]] = {}
    for title, question in zip(questions.titles, encode_questions(questions, tokenizer), strict=True):
        about.setdefault(title, []).append(question)
    return about
