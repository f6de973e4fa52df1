"""What the data gives away: rules that read the person's own line while they answer, without any model.

    posgpt study open_book --data_dir data --output_dir runs/open_book
    posgpt study open_book --data_dir data --predictions runs/*/predictions.txt

A model answers from memory, so these rules do not compete with it: they count how far simple reading would get, and the
ceilings count for how many people the line has the answer at all. One of the rows is a reader that learns from the training
pairs which of the first names of a line to give. docs/findings.md says what a name, a line and a training place are.
With the predictions of models, `unanswered.tsv` lists the questions of dev that none of them answers.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline

from data_scripts.errors import BadInput
from data_scripts.files import CORPUS_FILE, DEV_FILE, TRAIN_FILE, check_is_folder_or_new, read_lines, write_file
from data_scripts.options import option, parse_options
from data_scripts.questions import Questions, load_questions
from data_scripts.salient_spans import find_salient_spans, take_words_beside
from data_scripts.titles import find_text_start
from posgpt.evaluation.evidence import Document, find_documents, has_mention, list_mentions
from posgpt.evaluation.scoring import BASELINES, find_baselines, match_exactly
from posgpt.recipe_parser import read_section
from posgpt.tables import write_table

UNANSWERED_FILE = "unanswered.tsv"
FOLDS = 5


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
    """Someone who is asked about: the right answer, and the documents of this name, in the order of the corpus."""

    place: str
    documents: list[Document]

    def list_names(self, most: int | None = None) -> list[str]:
        """Return the names of all documents, at most the first `most` of each."""
        return [document.body[start:end] for document in self.documents for start, end in find_names(document)[:most]]


def find_names(document: Document) -> list[tuple[int, int]]:
    """Return where the names in a document's body begin and end, without dates, as `windows` finds them."""
    return find_salient_spans(document.title, document.body, dates=False)


def list_candidates(
    people: Sequence[Person], answers: Counter[str], are_trained: bool, max_spans: int
) -> list[tuple[int, str, dict[str, Any]]]:
    """Return the first names in each person's documents: the person's number, the name, and what the reader sees of it.

    It sees the five words before a name, each by its place, and the last two together; the name's rank; and whether it is a
    training answer and how often (the logarithm of 1 + count in `answers`), as it does of a name that a comma alone keeps
    apart. With `are_trained`, `people` are those of the training pairs, and their own answer is not counted.
    """
    candidates = []
    for number, person in enumerate(people):
        counts = answers - Counter([person.place] * are_trained)
        for document in person.documents:
            spans = find_names(document)[:max_spans]
            names = [document.body[start:end] for start, end in spans]
            # `Paris, France` is two names, and the answer may be either.
            joined = [document.body[one[1] : other[0]].strip() == "," for one, other in pairwise(spans)]
            for rank, name in enumerate(names):
                start = spans[rank][0] + find_text_start(document.title)
                words, _ = take_words_beside(document.title, document.text, (start, start + len(name)), True, 5)
                features: dict[str, Any] = {"last two words": " ".join(words[-2:]), "rank": str(rank)}
                features |= {f"word -{place}": word for place, word in enumerate(reversed(words), start=1)}
                seen = {"own": name}
                if rank and joined[rank - 1]:
                    seen["left"] = names[rank - 1]
                if rank < len(joined) and joined[rank]:
                    seen["right"] = names[rank + 1]
                for side, each in seen.items():
                    features |= {f"{side} is answer": counts[each] > 0, f"{side} count": np.log1p(counts[each])}
                candidates.append((number, name, features))
    return candidates


def train_reader(train: Sequence[Person], dev: Sequence[Person], max_spans: int) -> list[list[str | None]]:
    """Train a logistic regression to choose among the first `max_spans` names of each document.

    Returns:
        What it answers about the people of `train` and of `dev`: the likeliest name, None without any. A person who is trained
        on is asked by one that was trained on others (five folds).

    Raises:
        BadInput: there are too few names to learn from.
    """
    counts = Counter(person.place for person in train)
    trained, asked = (list_candidates(each, counts, each is train, max_spans) for each in (train, dev))
    is_answer = [train[person].place == name for person, name, _ in trained]
    if min(sum(is_answer), len(trained) - sum(is_answer)) < FOLDS:
        raise BadInput(
            f"{TRAIN_FILE}: too few of its answers are names in the documents of their people to train a reader on; give more"
            " pairs."
        )
    reader = make_pipeline(DictVectorizer(), LogisticRegression(max_iter=1000))
    # Names of one person are in the same fold.
    groups, _, features = zip(*trained, strict=True)
    of_train = cross_val_predict(
        reader, features, is_answer, groups=groups, cv=StratifiedGroupKFold(FOLDS), method="predict_proba"
    )
    reader.fit(features, is_answer)
    of_dev = reader.predict_proba([features for _, _, features in asked]) if asked else np.empty((0, 2))
    answers = []
    for people, candidates, probabilities in ((train, trained, of_train), (dev, asked, of_dev)):
        # The likeliest comes last, and of equals the first one.
        order = np.argsort(-probabilities[:, 1], kind="stable")[::-1]
        best = {candidates[number][0]: candidates[number][1] for number in order}
        answers.append([best.get(person) for person in range(len(people))])
    return answers


def build_rules(usual: str, training_answers: Sequence[str]) -> dict[str, Callable[[Person], str | None]]:
    """Return what each rule answers about a person, by its name; `usual` is the relation's baseline."""
    counts = Counter(training_answers)
    return {
        **{
            BASELINES[name].format(answer): partial(lambda answer, person: answer, answer)
            for name, answer in find_baselines(usual, training_answers).items()
        },
        "the first name of the line": lambda person: next(iter(person.list_names()), None),
        "the first training place of the line": lambda person: next(
            (each.body[slice(*found[0])] for each in person.documents if (found := list_mentions(counts, each.body))),
            None,
        ),
        "the first name of the line that is a training place": lambda person: next(
            (name for name in person.list_names() if name in counts), None
        ),
    }


def build_ceilings(max_spans: int) -> dict[str, Callable[[Person], bool]]:
    """Return when the line has a person's place, by the name of the ceiling, the lowest first; see `train_reader`."""
    return {
        f"among the first {max_spans} names of the line": lambda person: person.place in person.list_names(max_spans),
        "among the names of the line": lambda person: person.place in person.list_names(),
        "in the line, as whole words": lambda person: any(
            has_mention(document.text, person.place) for document in person.documents
        ),
        "in the line": lambda person: any(person.place in document.text for document in person.documents),
    }


def measure_data(
    data_dir: Path, predictions_files: Sequence[str]
) -> tuple[list[dict[str, str]], list[tuple[int, str]]]:
    """Count all rows on dev and on the training pairs.

    Returns:
        The table, and the questions of dev that none of the files of predictions answers: line, from 1, and the lowest
        ceiling that the answer is within.
    """
    train, dev = (load_questions(data_dir / name, answers=True) for name in (TRAIN_FILE, DEV_FILE))
    for questions in (train, dev):
        if len(questions.relations) > 1:
            raise BadInput(f"{questions.path}: asks for several things; give a folder whose files ask for one.")
    max_spans = read_section("windows", "pretrain")["max_spans"]
    rules, ceilings = build_rules(train.relations[0].baseline, train.answers), build_ceilings(max_spans)
    predictions = []
    for file in predictions_files:
        predictions.append([line for _, line in read_lines(file, "predictions")])
        if (count := len(predictions[-1])) != len(dev):
            raise BadInput(f"{file}: has {count} lines for {len(dev)} questions; give predictions about {DEV_FILE}.")
    documents = find_documents(data_dir / CORPUS_FILE, [*train.titles, *dev.titles])

    def list_people(questions: Questions) -> list[Person]:
        pairs = zip(questions.titles, questions.answers, strict=True)
        return [Person(place, documents.get(title, [])) for title, place in pairs]

    groups = {"dev": list_people(dev), "training pairs": list_people(train)}
    of_train, of_dev = train_reader(groups["training pairs"], groups["dev"], max_spans)
    rows: dict[str, dict[str, str]] = {}
    for name, people in groups.items():
        given = {rule: list(map(answer, people)) for rule, answer in rules.items()}
        reader = f"a trained reader's choice among the first {max_spans} names of the line"
        given[reader] = of_dev if name == "dev" else of_train
        places = [person.place for person in people]
        right = {rule: int(match_exactly(answers, places).sum()) for rule, answers in given.items()}
        within = {f"ceiling: {where}": sum(map(ceiling, people)) for where, ceiling in ceilings.items()}
        counts = right | within | {"no line": sum(not person.documents for person in people)}
        for answer, count in counts.items():
            cell = f"{count:,} ({count / len(people):.1%})"
            rows.setdefault(answer, {"answer": answer})[f"{name}, of {len(people):,}"] = cell
    unanswered = [
        (line, next((name for name, ceiling in ceilings.items() if ceiling(person)), "not in the line"))
        for line, (person, *answers) in enumerate(zip(groups["dev"], *predictions, strict=True), start=1)
        if predictions and person.place not in answers
    ]
    return list(rows.values()), unanswered


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(OpenBookArguments, argv)
    output_dir = check_is_folder_or_new(arguments.output_dir)
    rows, unanswered = measure_data(Path(arguments.data_dir), arguments.predictions)
    write_table(output_dir, rows)
    (output_dir / UNANSWERED_FILE).unlink(missing_ok=True)
    if unanswered:
        write_file(output_dir / UNANSWERED_FILE, "".join(f"{line}\t{within}\n" for line, within in unanswered))
        print(f"{len(unanswered)} questions of {DEV_FILE} are answered by none: {output_dir / UNANSWERED_FILE}")
