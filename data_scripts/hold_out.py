"""Hold questions and documents out of a task's data, for judging a model's confidence.

    posgpt hold-out --data_dir data --output_dir data_held_out --pairs 300 --people 100
    posgpt hold-out --train_file films.jsonl --title_column film --text_column about --questions_file train.tsv \
        --output_dir films_held_out

writes the corpus and the training questions without what is held out: questions about whole titles go to `calibration.tsv`,
`pairs` in all, while their documents stay in the corpus; the questions about `people` more titles go to `unseen.tsv`, and the
documents of these titles are left out.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from data_scripts.documents import TITLE_AND_TEXT, Columns, load_corpus
from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.files import (
    CORPUS_FILE,
    DEV_FILE,
    FILE_NAMES,
    TEST_FILE,
    TRAIN_FILE,
    check_none_is_there,
    describe_lines,
    name_uncompressed,
    write_atomically,
    write_lines,
)
from data_scripts.options import Range, option, parse_options
from data_scripts.questions import load_questions
from data_scripts.relations import Relation, RelationArguments, load_relations
from data_scripts.titles import find_text_start, match_titles

CALIBRATION_FILE, UNSEEN_FILE = "calibration.tsv", "unseen.tsv"
# A corpus that was a table.
TABLE_FILE = "documents.jsonl"


@dataclass
class HoldOutArguments(RelationArguments, Columns):
    """What to hold out, and where to write what is left."""

    output_dir: str = option("Folder for the remaining files and the held-out questions.")
    data_dir: str | None = option(
        f"Folder with {CORPUS_FILE} and {TRAIN_FILE}; {DEV_FILE} and {TEST_FILE} are copied if they are there.",
        default=None,
    )
    train_file: str | None = option("Without data_dir: the corpus, a text file or a table.", default=None)
    questions_file: str | None = option("Without data_dir: the TSV of training questions.", default=None)
    pairs: Annotated[int, Range(1)] = option("Training questions for calibration, at least.", default=300)
    people: Annotated[int, Range(0)] = option("Titles, such as people, to take out of the corpus.", default=100)
    seed: Annotated[int, Range(0)] = option("Determines which ones are drawn.", default=0)
    overwrite: bool = option("Replace files that are already there.", default=False)

    def find_inputs(self) -> tuple[Path, Path]:
        """Return the corpus and the training questions.

        Raises:
            BadInput: they are named in neither way, or in both.
        """
        if self.data_dir is not None and not (self.train_file or self.questions_file):
            return Path(self.data_dir) / CORPUS_FILE, Path(self.data_dir) / TRAIN_FILE
        if self.data_dir is None and self.train_file and self.questions_file:
            return Path(self.train_file), Path(self.questions_file)
        raise BadInput("give either --data_dir, or --train_file and --questions_file.")


def hold_out(
    train_file: Path,
    output_dir: Path,
    pairs: int,
    people: int = 0,
    seed: int = 0,
    corpus_file: Path | None = None,
    columns: Columns = TITLE_AND_TEXT,
    known: Sequence[Relation] = (),
) -> dict[str, int]:
    """Split a TSV of questions into one of its own name, `calibration.tsv` and, when `people` is not 0, `unseen.tsv`.

    All questions about a title are in one of them. A `corpus_file` is copied, without the documents of the titles in
    `unseen.tsv`: to `wiki.txt`, or to `documents.jsonl` if it is a table. All files are written, or none.

    Args:
        pairs: How many questions go to `calibration.tsv`; a few more where a title has several.
        people: How many titles go to `unseen.tsv`; with a corpus, of those that have a document.
        columns: Of a table.
        known: Relations that need not be recognized.

    Returns:
        The number of lines of each file.

    Raises:
        BadInput: nothing would be left to train on, too few titles have a document to take out, or a file is not what it
            should be.
    """
    # What is written is not compressed.
    train_name = name_uncompressed(train_file)
    corpus = load_corpus(corpus_file, columns) if corpus_file else None
    is_table = corpus is not None and corpus[0]["title"] is not None
    corpus_name = TABLE_FILE if is_table else CORPUS_FILE
    if train_name in (CALIBRATION_FILE, UNSEEN_FILE) or (corpus and train_name == corpus_name):
        raise BadInput(f"{train_file}: this command writes a file of this name; rename yours.")
    questions = load_questions(train_file, answers=True, known=known, corpus=corpus)
    asked, having, file_of = Counter(questions.titles), "", dict[str, str]()
    # Without a corpus, any title may be drawn, and there is nothing to take out.
    documents_of: dict[str, list[int]] = {title: [] for title in asked}
    if people and corpus:
        documents_of = {}
        for number, title, _ in match_titles(asked, ((row["title"], row["text"]) for row in corpus)):
            documents_of.setdefault(title, []).append(number)
        having = f", {len(documents_of)} of which have a document"
    calibration, taken_out = 0, list[str]()
    for title in dict.fromkeys(
        questions.titles[row] for row in np.random.default_rng(seed).permutation(len(questions))
    ):
        if calibration < pairs:
            file_of[title] = CALIBRATION_FILE
            calibration += asked[title]
        elif len(taken_out) < people and title in documents_of:
            file_of[title] = UNSEEN_FILE
            taken_out.append(title)
    if len(file_of) == len(asked) or len(taken_out) < people:
        raise BadInput(
            f"{train_file} has {len(questions)} pairs about {len(asked)} titles{having}; --pairs {pairs} and --people {people} are"
            " too many."
        )
    left_out = {number for title in taken_out for number in documents_of[title]}
    files = [train_name, CALIBRATION_FILE, *([UNSEEN_FILE] if people else []), *([corpus_name] if corpus else [])]
    with write_lines(output_dir, files) as (write_line, lines):
        for row, title in zip(questions.rows, questions.titles, strict=True):
            write_line(file_of.get(title, train_name), f"{row['question']}\t{row['answer']}")
        for number, document in enumerate(corpus or ()):
            if number not in left_out:
                title, text = document["title"], document["text"]
                row = {columns.title_column: title, columns.text_column: text[find_text_start(title) :]}
                write_line(corpus_name, json.dumps(row, ensure_ascii=False) if is_table else text)
    return lines


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(HoldOutArguments, argv)
    (corpus_file, train_file), output_dir = arguments.find_inputs(), Path(arguments.output_dir)
    for file in (corpus_file, train_file):
        if output_dir.resolve() == file.parent.resolve():
            raise BadInput(f"{output_dir}: this is the data's own folder; give another --output_dir.")
    names = (name_uncompressed(train_file), CALIBRATION_FILE, UNSEEN_FILE, TABLE_FILE, *FILE_NAMES)
    check_none_is_there(output_dir, names, arguments.overwrite)
    lines = hold_out(
        train_file,
        output_dir,
        arguments.pairs,
        arguments.people,
        arguments.seed,
        corpus_file,
        arguments,
        load_relations(arguments.relations),
    )
    # Files that an earlier split left would not go with this one.
    for name in {CALIBRATION_FILE, UNSEEN_FILE, TABLE_FILE, CORPUS_FILE} - lines.keys():
        (output_dir / name).unlink(missing_ok=True)
    for file in (train_file.parent / DEV_FILE, train_file.parent / TEST_FILE) if arguments.data_dir else ():
        if file.is_file():
            with write_atomically(output_dir / file.name, "wb") as copy:
                copy.write(file.read_bytes())
    print(describe_lines(output_dir, lines))


if __name__ == "__main__":
    main()
