"""What the data gives away: rules that read the person's own line while they answer, without any model.

    python -m studies.open_book --data_dir data --output_dir runs/open_book
    python -m studies.open_book --data_dir data --predictions runs/*/predictions.txt

A model answers from memory, so these rules do not compete with it: they count how far simple reading would get, and the
ceilings count for how many people the line has the answer at all. One of the rows is a reader that is trained on the pairs
(`studies/trained_reader.py`). docs/open_book.md defines each row. With the predictions of models, `unanswered.tsv` lists the
questions of dev that none of them answers.
"""

import operator
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.files import CORPUS_FILE, DEV_FILE, TRAIN_FILE, check_is_folder_or_new, read_lines, write_atomically
from data_scripts.options import option, parse_options
from data_scripts.questions import Questions, load_questions
from posgpt.evaluation.accuracy import describe_constant, describe_majority
from posgpt.evaluation.evidence import Document, compile_mentions, find_documents, find_first_mention, has_mention
from posgpt.recipe_parser import read_settings
from studies import trained_reader
from studies.tables import write_table

UNANSWERED_FILE = "unanswered.tsv"


@dataclass
class OpenBookArguments:
    """The data, and where to write."""

    data_dir: str = option(f"Folder with {CORPUS_FILE}, {TRAIN_FILE} and {DEV_FILE}.")
    output_dir: str = option("Folder for the table.", default="runs/open_book")
    predictions: list[str] = option(
        "Files with a line for each question of dev, as posgpt evaluate writes them.", default_factory=list
    )


@dataclass(frozen=True)
class Person:
    """Someone who is asked about, and what the corpus has on them.

    Args:
        place: The right answer.
        documents: Those of this name, in the order of the corpus.
        names: For each document, the names in its text that `windows` could ask for, in their order.
    """

    place: str
    documents: list[Document]
    names: list[list[str]]

    def list_names(self, most: int | None = None) -> list[str]:
        """Return the names of all documents, at most the first `most` of each."""
        return [name for names in self.names for name in names[:most]]

    def is_mentioned(self) -> bool:
        """Whether a document contains the place as whole words."""
        return any(has_mention(document.text, self.place) for document in self.documents)


class Unanswered(NamedTuple):
    """A question of dev: its line, from 1, and the lowest ceiling that its answer is within."""

    line: int
    within: str


Rule = Callable[[Person], str | None]
Ceiling = Callable[[Person], bool]


def list_names(document: Document) -> list[str]:
    """Return the names in a document's body (see `find_names`)."""
    body = document.body
    return [body[start:end] for start, end in trained_reader.find_names(document)]


def describe_people(questions: Questions, documents: dict[str, list[Document]]) -> list[Person]:
    """Return all people who are asked about; `questions` have answers, `documents` are by title."""
    return [
        Person(place, own, list(map(list_names, own)))
        for place, own in zip(questions.answers, (documents.get(title, []) for title in questions.titles), strict=True)
    ]


def find_first(names: Sequence[str], known: Collection[str]) -> str | None:
    """Return the first of `names` that is known, None if none is."""
    return next((name for name in names if name in known), None)


def build_rules(usual: str, training_answers: Sequence[str]) -> dict[str, Rule]:
    """Return what each rule answers about a person, by its name; `usual` is the relation's baseline."""
    counts = Counter(training_answers)
    places = compile_mentions(counts)
    [(majority, _)] = counts.most_common(1)
    return {
        describe_constant(usual): lambda person: usual,
        describe_majority(majority): lambda person: majority,
        "the first name of the line": lambda person: next(iter(person.list_names()), None),
        "the first training place of the line": lambda person: find_first_mention(person.documents, places),
        "the first name of the line that is a training place": lambda person: find_first(person.list_names(), counts),
    }


def build_ceilings(max_spans: int) -> dict[str, Ceiling]:
    """Return when the line has a person's place, by the name of the ceiling.

    Args:
        max_spans: How many names of a document `windows` asks for.
    """
    return {
        f"among the first {max_spans} names of the line": lambda person: person.place in person.list_names(max_spans),
        "among the names of the line": lambda person: person.place in person.list_names(),
        "in the line, as whole words": Person.is_mentioned,
        "in the line": lambda person: any(person.place in document.text for document in person.documents),
    }


def list_unanswered(
    people: Sequence[Person], predictions: Sequence[Sequence[str]], max_spans: int
) -> list[Unanswered]:
    """Return the people whom no model answers rightly, in their order.

    Args:
        predictions: Of each model, one for each person.
        max_spans: How many names of a document `windows` asks for.
    """
    ceilings = build_ceilings(max_spans)
    return [
        Unanswered(line, next((name for name, ceiling in ceilings.items() if ceiling(person)), "not in the line"))
        for line, (person, *answers) in enumerate(zip(people, *predictions, strict=True), start=1)
        if person.place not in answers
    ]


def read_predictions(path: str, people: int) -> list[str]:
    """Return the lines of a file of predictions.

    Raises:
        BadInput: there is no such file, or it does not have a line for each person.
    """
    lines = [line for _, line in read_lines(path, "predictions")]
    if len(lines) != people:
        raise BadInput(f"{path}: has {len(lines)} lines for {people} questions; give predictions about {DEV_FILE}.")
    return lines


def count_people(
    people: Sequence[Person], answers: dict[str, Sequence[str | None]], ceilings: dict[str, Ceiling]
) -> dict[str, int]:
    """Count the people whom each rule answers rightly, who are within each ceiling, and who have no document.

    Args:
        answers: What each rule answers about each of the people.
    """
    places = [person.place for person in people]
    right = {name: sum(map(operator.eq, given, places)) for name, given in answers.items()}
    within = {f"ceiling: {name}": sum(map(ceiling, people)) for name, ceiling in ceilings.items()}
    return right | within | {"no line": sum(not person.documents for person in people)}


def measure_data(
    data_dir: Path, predictions_files: Sequence[str]
) -> tuple[dict[str, dict[str, int]], list[Unanswered]]:
    """Count all rows on dev and on the training pairs; each result also has `people`, their number.

    Returns:
        The counts, and what of dev is in none of the files of predictions.

    Raises:
        BadInput: a file is not what it should be, or has too few pairs to train a reader.
    """
    train, dev = (load_questions(data_dir / name, answers=True) for name in (TRAIN_FILE, DEV_FILE))
    rules = build_rules(train.relations[0].baseline, train.answers)
    max_spans = read_settings("windows", "pretrain")["max_spans"]
    predictions = [read_predictions(file, len(dev)) for file in predictions_files]
    documents = find_documents(data_dir / CORPUS_FILE, [*train.titles, *dev.titles])
    groups = {
        name: describe_people(questions, documents)
        for name, questions in {"dev": dev, "training pairs": train}.items()
    }
    ceilings = build_ceilings(max_spans)
    asked = {name: [(person.place, person.documents) for person in people] for name, people in groups.items()}
    readers: dict[str, dict[str, Sequence[str | None]]] = {name: {} for name in asked}
    for reader, words_only in {
        f"a trained reader's choice among the first {max_spans} names of the line": False,
        "the same reader, seeing only the words before each name": True,
    }.items():
        answers = trained_reader.choose_answers(asked["training pairs"], asked["dev"], max_spans, words_only)
        readers["training pairs"][reader], readers["dev"][reader] = answers
    counts = {}
    for name, people in groups.items():
        given = {rule: list(map(answer, people)) for rule, answer in rules.items()} | readers[name]
        counts[name] = {"people": len(people)} | count_people(people, given, ceilings)
    return counts, list_unanswered(groups["dev"], predictions, max_spans) if predictions else []


def write_counts(counts: dict[str, dict[str, int]], folder: Path) -> None:
    """Write `table.md`."""
    measures = [measure for measure in next(iter(counts.values())) if measure != "people"]
    rows = []
    for measure in measures:
        row = {"answer": measure}
        for name, of_group in counts.items():
            total = of_group["people"]
            row[f"{name}, of {total:,}"] = f"{of_group[measure]:,} ({of_group[measure] / total:.1%})"
        rows.append(row)
    write_table(folder, rows)


@exit_on_bad_input()
def main() -> None:
    arguments = parse_options(OpenBookArguments)
    output_dir = check_is_folder_or_new(arguments.output_dir)
    counts, unanswered = measure_data(Path(arguments.data_dir), arguments.predictions)
    write_counts(counts, output_dir)
    if unanswered:
        with write_atomically(output_dir / UNANSWERED_FILE) as file:
            file.writelines(f"{line}\t{within}\n" for line, within in unanswered)
        print(f"{len(unanswered)} questions of {DEV_FILE} are answered by none: {output_dir / UNANSWERED_FILE}")


if __name__ == "__main__":
    main()
