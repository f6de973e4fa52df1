"""What the data gives away: rules that read the person's own line while they answer, without any model.

    python -m studies open_book --data_dir data --output_dir runs/open_book
    python -m studies open_book --data_dir data --predictions runs/*/predictions.txt

A model answers from memory, so these rules do not compete with it: they count how far simple reading would get, and the
ceilings count for how many people the line has the answer at all. One of the rows is a reader that is trained on the pairs
(`studies/trained_reader.py`). docs/open_book.md defines each row. With the predictions of models, `unanswered.tsv` lists the
questions of dev that none of them answers.
"""

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.files import CORPUS_FILE, DEV_FILE, TRAIN_FILE, check_is_folder_or_new, read_lines, write_atomically
from data_scripts.options import option, parse_options
from data_scripts.questions import Questions, load_questions
from posgpt.evaluation.evidence import Document, compile_mentions, find_documents, has_mention
from posgpt.evaluation.scoring import BASELINES
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


def describe_people(questions: Questions, documents: dict[str, list[Document]]) -> list[Person]:
    """Return all people who are asked about; `questions` have answers, `documents` are by title."""
    people = []
    for title, place in zip(questions.titles, questions.answers, strict=True):
        own = documents.get(title, [])
        names = [[each.body[start:end] for start, end in trained_reader.find_names(each)] for each in own]
        people.append(Person(place, own, names))
    return people


def build_rules(usual: str, training_answers: Sequence[str]) -> dict[str, Callable[[Person], str | None]]:
    """Return what each rule answers about a person, by its name; `usual` is the relation's baseline."""
    counts = Counter(training_answers)
    places = compile_mentions(counts)
    [(majority, _)] = counts.most_common(1)
    return {
        BASELINES["baseline"].format(usual): lambda person: usual,
        BASELINES["majority_answer"].format(majority): lambda person: majority,
        "the first name of the line": lambda person: next(iter(person.list_names()), None),
        "the first training place of the line": lambda person: next(
            (match[0] for each in person.documents if (match := places.search(each.body))), None
        ),
        "the first name of the line that is a training place": lambda person: next(
            (name for name in person.list_names() if name in counts), None
        ),
    }


def build_ceilings(max_spans: int) -> dict[str, Callable[[Person], bool]]:
    """Return when the line has a person's place, by the name of the ceiling, the lowest first.

    Args:
        max_spans: How many names of a document `windows` asks for.
    """
    return {
        f"among the first {max_spans} names of the line": lambda person: person.place in person.list_names(max_spans),
        "among the names of the line": lambda person: person.place in person.list_names(),
        "in the line, as whole words": lambda person: any(
            has_mention(document.text, person.place) for document in person.documents
        ),
        "in the line": lambda person: any(person.place in document.text for document in person.documents),
    }


def read_predictions(path: str, people: int) -> list[str]:
    """Return the lines of a file of predictions.

    Raises:
        BadInput: there is no such file, or it does not have a line for each person.
    """
    lines = [line for _, line in read_lines(path, "predictions")]
    if len(lines) != people:
        raise BadInput(f"{path}: has {len(lines)} lines for {people} questions; give predictions about {DEV_FILE}.")
    return lines


def measure_data(
    data_dir: Path, predictions_files: Sequence[str]
) -> tuple[dict[str, dict[str, int]], list[tuple[int, str]]]:
    """Count all rows on dev and on the training pairs; each result also has `people`, their number.

    Returns:
        The counts, and the questions of dev that none of the files of predictions answers: line, from 1, and the lowest
        ceiling that the answer is within.

    Raises:
        BadInput: a file is not what it should be, or has too few pairs to train a reader.
    """
    train, dev = (load_questions(data_dir / name, answers=True) for name in (TRAIN_FILE, DEV_FILE))
    max_spans = read_settings("windows", "pretrain")["max_spans"]
    rules, ceilings = build_rules(train.relations[0].baseline, train.answers), build_ceilings(max_spans)
    predictions = [read_predictions(file, len(dev)) for file in predictions_files]
    documents = find_documents(data_dir / CORPUS_FILE, [*train.titles, *dev.titles])
    groups = {"dev": describe_people(dev, documents), "training pairs": describe_people(train, documents)}
    given = {
        name: {rule: list(map(answer, people)) for rule, answer in rules.items()} for name, people in groups.items()
    }
    asked = {name: [(person.place, person.documents) for person in people] for name, people in groups.items()}
    for reader, words_only in {
        f"a trained reader's choice among the first {max_spans} names of the line": False,
        "the same reader, seeing only the words before each name": True,
    }.items():
        answers = trained_reader.choose_answers(asked["training pairs"], asked["dev"], max_spans, words_only)
        given["training pairs"][reader], given["dev"][reader] = answers
    counts = {}
    for name, people in groups.items():
        places = [person.place for person in people]
        right = {rule: sum(map(operator.eq, answers, places)) for rule, answers in given[name].items()}
        within = {f"ceiling: {name}": sum(map(ceiling, people)) for name, ceiling in ceilings.items()}
        counts[name] = {"people": len(people)} | right | within
        counts[name]["no line"] = sum(not person.documents for person in people)
    unanswered = [
        (line, next((name for name, ceiling in ceilings.items() if ceiling(person)), "not in the line"))
        for line, (person, *answers) in enumerate(zip(groups["dev"], *predictions, strict=True), start=1)
        if predictions and person.place not in answers
    ]
    return counts, unanswered


def write_counts(counts: dict[str, dict[str, int]], folder: Path) -> None:
    """Write `table.md`."""
    rows = [
        {"answer": measure}
        | {
            f"{name}, of {of['people']:,}": f"{of[measure]:,} ({of[measure] / of['people']:.1%})"
            for name, of in counts.items()
        }
        for measure in counts["dev"]
        if measure != "people"
    ]
    write_table(folder, rows)


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(OpenBookArguments, argv)
    output_dir = check_is_folder_or_new(arguments.output_dir)
    counts, unanswered = measure_data(Path(arguments.data_dir), arguments.predictions)
    write_counts(counts, output_dir)
    if unanswered:
        with write_atomically(output_dir / UNANSWERED_FILE) as file:
            file.writelines(f"{line}\t{within}\n" for line, within in unanswered)
        print(f"{len(unanswered)} questions of {DEV_FILE} are answered by none: {output_dir / UNANSWERED_FILE}")


if __name__ == "__main__":
    main()
