"""Hold questions and documents out of a task's data, for judging a model's confidence.

    posgpt hold-out --data_dir data --output_dir data_held_out --pairs 300 --people 100
    posgpt hold-out --train_file films.jsonl --title_column film --text_column about --questions_file train.tsv \
        --output_dir films_held_out

writes the corpus and the training questions without what is held out: `pairs` questions or a few more, about whole titles,
go to `calibration.tsv`, while their documents stay in the corpus. The questions about `people` more titles go to `unseen.tsv`. The
documents of these titles are left out, and so are all questions about others that name them.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from datasets import Dataset

from data_scripts.documents import Columns, check_columns, load_corpus
from data_scripts.errors import BadInput, prefix_bad_input
from data_scripts.files import (
    CORPUS_FILE,
    DEV_FILE,
    FILE_NAMES,
    RELATIONS_FILE,
    TEST_FILE,
    TRAIN_FILE,
    WORDINGS_FILE,
    check_none_is_there,
    describe_lines,
    name_uncompressed,
    write_file,
    write_lines,
)
from data_scripts.options import Range, option, parse_options
from data_scripts.questions import Questions, load_questions
from data_scripts.relations import RELATIONS, Relation, RelationArguments, load_relations
from data_scripts.titles import find_text_start, fold_case, iterate_titles, match_cases, match_titles
from data_scripts.words import find_words, has_words

CALIBRATION_FILE, UNSEEN_FILE = "calibration.tsv", "unseen.tsv"
# A corpus that was a table.
TABLE_FILE = "documents.jsonl"


@dataclass
class HoldOutArguments(RelationArguments, Columns):
    """What to hold out, and where to write what is left."""

    output_dir: str = option("Folder for the remaining files and the held-out questions.")
    data_dir: str | None = option(
        f"Folder with {CORPUS_FILE} and {TRAIN_FILE}; {DEV_FILE}, {TEST_FILE}, {RELATIONS_FILE} and {WORDINGS_FILE} are copied if they are there.",
        default=None,
    )
    train_file: str | None = option(
        "The corpus instead of data_dir's, a text file or a table; not needed if people is 0.", default=None
    )
    questions_file: str | None = option("The training questions instead of data_dir's, a TSV.", default=None)
    pairs: Annotated[int, Range(1)] = option(
        "Training questions for calibration, at least; those that name somebody who is taken out are then left out.",
        default=300,
    )
    people: Annotated[int, Range(0)] = option("Titles, such as people, to take out of the corpus.", default=100)
    seed: Annotated[int, Range(0)] = option("Determines which ones are drawn.", default=0)
    overwrite: bool = option(
        "Replace files that are already there, and remove others that this command may write.", default=False
    )


def find_sources(arguments: HoldOutArguments) -> tuple[str | None, str]:
    """Return the files of the corpus, if there is one, and of the training questions.

    Raises:
        BadInput: they are not all given, or lie where the split is to be written.
    """
    corpus_file, questions_file = arguments.train_file, arguments.questions_file
    if data_dir := arguments.data_dir:
        corpus_file = corpus_file or str(Path(data_dir, CORPUS_FILE))
        questions_file = questions_file or str(Path(data_dir, TRAIN_FILE))
    if not questions_file or (arguments.people and not corpus_file):
        raise BadInput("give either --data_dir, or --train_file and --questions_file.")
    check_columns(arguments, corpus_file, "--data_dir or --train_file")
    folder = Path(arguments.output_dir)
    if folder.resolve() in {Path(file).parent.resolve() for file in (corpus_file, questions_file) if file}:
        raise BadInput(f"{folder}: this is the data's own folder; give another --output_dir.")
    return corpus_file, questions_file


def draw_titles(
    arguments: HoldOutArguments, keys: list[str], unnamed: list[Relation | None], may_leave: dict[str, bool]
) -> dict[str, str]:
    """Return the file that the questions about each drawn title go to.

    Args:
        keys: The title of each question.
        unnamed: What each question asks for if nobody has named that. Such a form is recognized by two questions, which stay in training.
        may_leave: For each title that a document is about: whether that document may be left out.

    Raises:
        BadInput: too many are to be drawn.
    """
    asked, forms_of, file_of = Counter(keys), defaultdict[str, Counter](Counter), dict[str, str]()
    for title, form in zip(keys, unnamed, strict=True):
        if form:
            forms_of[title][form] += 1
    trained = sum(forms_of.values(), Counter[Relation]())
    calibration = taken_out = 0
    drawn = np.random.default_rng(arguments.seed).permutation(len(keys))
    for title in dict.fromkeys(keys[row] for row in drawn):
        if any(trained[form] - count < 2 for form, count in forms_of[title].items()):
            continue
        if calibration < arguments.pairs:
            file_of[title] = CALIBRATION_FILE
            calibration += asked[title]
        elif taken_out < arguments.people and may_leave.get(title):
            file_of[title] = UNSEEN_FILE
            taken_out += 1
        if title in file_of:
            trained -= forms_of[title]
    if len(file_of) == len(asked) or calibration < arguments.pairs or taken_out < arguments.people:
        having = f", {len(may_leave)} of which have a document" if arguments.people else ""
        if stay := list(may_leave.values()).count(False):
            having += f", and {stay} stay, since dev or test ask about them"
        raise BadInput(
            f"there are {len(keys)} pairs about {len(asked)} titles{having}; --pairs {arguments.pairs} and --people"
            f" {arguments.people} are too many."
        )
    return file_of


def number_documents(titles: Iterable[str], corpus: Dataset) -> dict[str, list[int]]:
    """Return the numbers of each title's documents, from 0, by titles in lower case, in their order; those without one are left out."""
    found: dict[str, list[int]] = {title: [] for title in titles}
    documents = ((i, row["title"], row["text"]) for i, row in enumerate(corpus))
    for i, title, _ in match_titles(found, documents):
        found[fold_case(title)].append(i)
    return {title: numbers for title, numbers in found.items() if numbers}


def sort_questions(
    questions: Questions, keys: list[str], file_of: dict[str, str], documented: Container[str]
) -> dict[str, list[int]]:
    """Return the numbers of the questions of each file, without those about others that name who is taken out of the corpus."""
    rows_of = defaultdict[str, list[int]](list)
    unseen = {title for title, key in zip(questions.titles, keys, strict=True) if file_of[key] == UNSEEN_FILE}
    for number, (title, key, answer) in enumerate(zip(questions.titles, keys, questions.answers, strict=True)):
        # What others are asked may name somebody of whom nothing may be told: in a title such as `A or B`, of no document.
        said = f"{'' if key in documented else title}\t{answer}"
        if file_of[key] == UNSEEN_FILE or not any(find_words(unseen, said)):
            rows_of[file_of[key]].append(number)
    return rows_of


def copy_files(data_dir: Path, output_dir: Path, names: Iterable[str]) -> set[str]:
    """Copy those files that are there; return their names. Relations go with any split, and may be the user's own: they stay."""
    copied = set[str]()
    for source in filter(Path.is_file, (data_dir / name for name in names)):
        target = output_dir / source.name
        if source.name != RELATIONS_FILE or not target.exists():
            write_file(target, source.read_bytes())
            copied.add(source.name)
        elif source.read_bytes() != target.read_bytes():
            print(f"{target}: stays as it is, and differs from {source}.")
    return copied


def hold_out(arguments: HoldOutArguments) -> dict[str, int]:
    """Split a TSV of questions into one of its own name, `calibration.tsv` and, when `people` is not 0, `unseen.tsv`.

    All questions about a title are in one of them. The corpus is copied, without the documents of the titles in
    `unseen.tsv`: to `wiki.txt`, or to `documents.jsonl` if it is a table. All files are written, or none. Return the number
    of lines of each file.
    """
    corpus_file, questions_file = find_sources(arguments)
    data_dir, people, output_dir = arguments.data_dir, arguments.people, Path(arguments.output_dir)
    # What is written is not compressed.
    train_name = name_uncompressed(Path(questions_file))
    names = (train_name, CALIBRATION_FILE, UNSEEN_FILE, TABLE_FILE, WORDINGS_FILE, *FILE_NAMES)
    check_none_is_there(output_dir, names, arguments.overwrite)
    corpus = load_corpus(corpus_file, arguments) if corpus_file else None
    is_table = corpus is not None and corpus[0]["title"] is not None
    corpus_name = TABLE_FILE if is_table else CORPUS_FILE
    if train_name in (CALIBRATION_FILE, UNSEEN_FILE) or (corpus and train_name == corpus_name):
        raise BadInput(f"{questions_file}: this command writes a file of this name; rename yours.")
    relations = load_relations(arguments.relations)
    questions = load_questions(questions_file, answers=True, known=relations, corpus=corpus)
    if corpus:
        questions = questions.rename(match_cases(questions.titles, iterate_titles(corpus)))
    # In any case: `ANA LIND` is Ana Lind.
    keys = [*map(fold_case, questions.titles)]
    documents_of = number_documents(keys, corpus) if people and corpus else {}
    # Without its document, what dev and test ask about a title could not be known.
    kept = [Path(data_dir, name) for name in {DEV_FILE, TEST_FILE} - {train_name} if data_dir and people]
    known = [*relations, *questions.relations]
    # Searched as one text, since a question may name several titles.
    titles = (title for file in kept if file.is_file() for title in load_questions(file, known=known).titles)
    asked_elsewhere = fold_case("\n".join(titles))
    may_leave = {title: not has_words(asked_elsewhere, title) for title in documents_of}
    named = {*RELATIONS.values(), *relations}
    unnamed = [None if relation in named else relation for relation in questions.relation_per_question]
    with prefix_bad_input(questions_file):
        file_of = draw_titles(arguments, keys, unnamed, may_leave)
    left_out = {i for title, file in file_of.items() if file == UNSEEN_FILE for i in documents_of[title]}
    files = [train_name, CALIBRATION_FILE, *([UNSEEN_FILE] if people else []), *([corpus_name] if corpus else [])]
    rows_of = sort_questions(questions, keys, {key: file_of.get(key, train_name) for key in keys}, documents_of)
    if not rows_of[train_name] or not rows_of[CALIBRATION_FILE]:
        raise BadInput(
            f"{questions_file}: nearly all questions name who is taken out of the corpus; choose fewer --people."
        )
    with write_lines(output_dir, files) as (write_line, lines):
        for file, rows in rows_of.items():
            for line in questions.take(rows).format_lines():
                write_line(file, line)
        for i, document in enumerate(corpus or ()):
            if i not in left_out:
                title, text = document["title"], document["text"]
                row = {arguments.title_column: title, arguments.text_column: text[find_text_start(title) :]}
                write_line(corpus_name, json.dumps(row, ensure_ascii=False) if is_table else text)
        others = {DEV_FILE, TEST_FILE, RELATIONS_FILE, WORDINGS_FILE} - lines.keys()
        copied = copy_files(Path(data_dir), output_dir, others) if data_dir else set()
    if naming := len(questions) - sum(map(len, rows_of.values())):
        print(
            f"{questions_file}: {naming:,} questions about others are left out, which name who is taken out of the corpus."
        )
    # Files that an earlier split left would not go with this one.
    if left := [
        name for name in dict.fromkeys(names) if name not in {*lines, *copied} and (output_dir / name).is_file()
    ]:
        print(f"{output_dir}: {', '.join(left)} do not go with this split, and are removed.")
        for name in left:
            (output_dir / name).unlink()
    return lines


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(HoldOutArguments, argv)
    print(describe_lines(arguments.output_dir, hold_out(arguments)))
