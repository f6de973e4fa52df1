"""Questions of one relation, such as birthplaces: a TSV with `question<TAB>answer` per line, or questions alone."""

import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from datasets import Dataset, Features, Value, load_dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.errors import BadInput
from data_scripts.files import find_line_number, read_lines
from modeling_posgpt import MASK_TOKEN, PAD_TOKEN


@dataclass(frozen=True)
class Relation:
    """A kind of question that can be asked about every title.

    Args:
        name: What is asked for.
        wordings: Ways to ask it, each with `{title}` where the title stands; the first is the one to ask in.
        baseline: The answer that a model has to beat, given to every question.
    """

    name: str
    wordings: tuple[str, ...]
    baseline: str

    def split_wording(self) -> tuple[str, str]:
        """Return what the first wording has before the title, and after it."""
        before, _, after = self.wordings[0].partition("{title}")
        return before, after

    def ask(self, title: str) -> str:
        """Return the question about a title, in the first wording."""
        return title.join(self.split_wording())

    def find_title(self, line: str) -> re.Match | None:
        """Match a question at the beginning of a line; group `title` is what it asks about."""
        patterns = (
            re.escape(wording).replace(r"\{title\}", r"(?P<title>\S(?:[^\t]*\S)?)") for wording in self.wordings
        )
        return next(filter(None, (re.match(pattern, line) for pattern in patterns)), None)

    def read_title(self, question: str) -> str:
        """Return the title that a question asks about; text that is no such question is a title itself."""
        match = self.find_title(question)
        return match["title"] if match and match.end() == len(question) else question

    @property
    def form(self) -> str:
        """The first wording with NAME for the title, for messages."""
        return self.ask("NAME")

    @property
    def line_form(self) -> str:
        """A line of a TSV, for messages."""
        return f"{self.form}<TAB>{self.name.upper()}"

    def to_config(self) -> dict[str, dict]:
        """Return the entry of `PosGPTConfig.relations`."""
        return {self.name: {"wordings": list(self.wordings), "baseline": self.baseline}}


BIRTHPLACE = Relation("birthplace", wordings=("Where was {title} born?",), baseline="London")

# To add a relation, give it a line here; a TSV's relation is the first one whose wording its first line begins with.
RELATIONS = {relation.name: relation for relation in (BIRTHPLACE,)}


def read_relation(relations: dict[str, dict] | None) -> Relation:
    """Return the first of `PosGPTConfig.relations`; birthplaces for models saved before they had any."""
    for name, settings in (relations or {}).items():
        return Relation(name, tuple(settings["wordings"]), settings.get("baseline", ""))
    return BIRTHPLACE


@dataclass(frozen=True)
class Questions:
    """The questions of a TSV.

    Args:
        path: The TSV.
        relation: What they ask for.
        rows: The columns `question` and, if the file has answers, `answer`.
    """

    path: str
    relation: Relation
    rows: Dataset

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def texts(self) -> list[str]:
        """The questions."""
        return list(self.rows["question"])

    @property
    def titles(self) -> list[str]:
        """Whom or what each question asks about."""
        return [self.relation.read_title(question) for question in self.rows["question"]]

    @property
    def answers(self) -> list[str] | None:
        """The right answers; None if the file has none."""
        return list(self.rows["answer"]) if "answer" in self.rows.column_names else None


def load_questions(path: str | os.PathLike, answers: bool | None = None, ascii_only: bool = False) -> Questions:
    """Load a TSV of questions; blank lines are skipped.

    Args:
        path: The TSV.
        answers: True: every line has to have one. None: all lines or none.
        ascii_only: Whether to drop the characters that are not ASCII, as the course's loader does with training pairs.

    Raises:
        BadInput: the file is missing, a directory, empty or not UTF-8; a line has no tab where it needs one, two tabs,
            no answer after its tab, or a question of another form; with `ascii_only`, nothing is left of an answer.
    """
    relation, answers = _check_lines(path, answers)
    columns = ["question", "answer"] if answers else ["question"]
    rows = load_dataset(
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
    # The reader skips empty lines only, not lines of spaces and tabs.
    questions = Questions(str(path), relation, rows.filter(lambda text: bool(text.strip()), input_columns="question"))
    return _drop_non_ascii(questions) if ascii_only else questions


def _check_lines(path: str | os.PathLike, answers: bool | None) -> tuple[Relation, bool]:
    """Check every line of a TSV; return its relation and whether its lines have answers (`answers` None: all or none)."""
    relation: Relation | None = None
    lines, without_tab = 0, []
    for number, line in read_lines(path, "TSV of questions and answers"):
        if not line.strip():
            continue
        lines += 1
        relation = relation or next((known for known in RELATIONS.values() if known.find_title(line)), BIRTHPLACE)
        if _check_line(f"{path}, line {number}", line, relation):
            continue
        without_tab.append(number)
        # An answer joined to its question by spaces: this line lost its tab, whatever the other lines are.
        match = relation.find_title(line)
        if match and match.end() < len(line.rstrip()):
            answers = True
    if relation is None:
        raise BadInput(f"{path}: every line is blank; give lines of the form {BIRTHPLACE.line_form}.")
    if answers is None:
        answers = len(without_tab) < lines
    if answers and without_tab:
        raise BadInput(
            f"{path}, line {without_tab[0]}: no tab between question and answer ({len(without_tab)} of {lines} lines"
            f" have none); a line is {relation.line_form}. In some copies the tab became spaces: put it back."
        )
    return relation, answers


def _check_line(where: str, line: str, relation: Relation) -> bool:
    """Check one line of a TSV; return whether it has an answer."""
    question, *answers = line.split("\t")
    if len(answers) > 1:
        raise BadInput(f"{where}: {len(answers)} tabs; a line is {relation.line_form}, with one tab.")
    if answers and not answers[0].strip():
        raise BadInput(f"{where}: no answer after the tab; a line is {relation.line_form}.")
    for symbol in (MASK_TOKEN, PAD_TOKEN):
        if symbol in line:
            raise BadInput(f"{where}: holds {symbol!r}, which the model reserves; replace or remove it.")
    match = relation.find_title(question)
    rest = question[match.end() :] if match else ""
    if match is None or (rest and (answers or not rest.strip())):
        raise BadInput(f"{where}: {line[:60]!r} is not of the form {relation.form!r}; fix the question.")
    return bool(answers)


def count_unknown_characters(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> Counter:
    """Count the characters of `texts` that the tokenizer does not know and reads as `□`."""
    known = tokenizer.get_vocab()
    return Counter(character for text in texts for character in text if character not in known)


def describe_unknown_characters(
    texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, what: str | os.PathLike
) -> str | None:
    """Say in one line which characters of `texts` are unknown and how often they occur; None when all are known."""
    unknown = count_unknown_characters(texts, tokenizer)
    if not unknown:
        return None
    shown = ", ".join(f"{character!r} × {count}" for character, count in unknown.most_common(8))
    more = f" and {len(unknown) - 8} more" if len(unknown) > 8 else ""
    return (
        f"{what}: {unknown.total()} occurrences of {len(unknown)} characters the tokenizer does not know are read as"
        f" {PAD_TOKEN!r}: {shown}{more}."
    )


def _drop_non_ascii(questions: Questions) -> Questions:
    def drop(texts: dict[str, str]) -> dict[str, str]:
        return {column: text.encode("ascii", "ignore").decode() for column, text in texts.items()}

    rows = questions.rows.map(drop, desc="Dropping characters")
    for row, answer in enumerate(rows["answer"] if questions.answers else ()):
        if not answer.strip():
            raise BadInput(
                f"{questions.path}, line {find_line_number(row, questions.path)}: nothing of the answer is ASCII; choose"
                " --ascii_only false."
            )
    return replace(questions, rows=rows)


def encode_questions(
    questions: Questions, tokenizer: PreTrainedTokenizerBase, loss_on_first_mask: bool = False
) -> Dataset:
    """Turn questions with answers into `input_ids` of `question⁇answer⁇` and `labels` that are -100 up to the first `⁇`.

    Args:
        loss_on_first_mask: Whether the first `⁇` is graded as well, as in the course.

    Raises:
        BadInput: a question and its answer are longer than the maximum sequence length; they are never cut.
    """

    def encode(question: str, answer: str) -> dict:
        prompt = tokenizer(question + MASK_TOKEN, verbose=False)["input_ids"]
        input_ids = prompt + tokenizer(answer + MASK_TOKEN, verbose=False)["input_ids"]
        ungraded = len(prompt) - loss_on_first_mask
        return {"input_ids": input_ids, "labels": [-100] * ungraded + input_ids[ungraded:]}

    encoded = questions.rows.map(
        encode,
        input_columns=["question", "answer"],
        remove_columns=questions.rows.column_names,
        desc="Tokenizing",
    )
    for row, input_ids in enumerate(encoded["input_ids"]):
        if len(input_ids) > tokenizer.model_max_length:
            raise BadInput(
                f"{questions.path}, line {find_line_number(row, questions.path)}: question and answer take"
                f" {len(input_ids)} characters with their two {MASK_TOKEN}, but the maximum sequence length is"
                f" {tokenizer.model_max_length}; shorten the question or pretrain with a larger --block_size."
            )
    return encoded
