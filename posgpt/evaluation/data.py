"""What an evaluation asks, and all else that it reads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

from datasets import Dataset

from data_scripts.errors import BadInput
from data_scripts.questions import Questions, describe_overlap, load_questions
from data_scripts.relations import Relation
from data_scripts.synthetic_world import fictional_names
from posgpt.evaluation.arguments import EvaluationArguments
from posgpt.evaluation.evidence import Document, find_documents

TEST, TRAINING, HELD_OUT = "test", "training", "held out"
TAKEN_OUT, FICTIONAL = "people taken out of the corpus", "fictional people"


@dataclass(frozen=True)
class EvaluationData:
    """All that an evaluation reads.

    Args:
        groups: Questions by the name of their group; `TEST` is always there.
        training: The questions of training with their answers, if their file was given.
        documents: The documents of the names that are asked about, by name; None: no corpus was given.
    """

    groups: dict[str, Questions]
    training: Questions | None = None
    documents: dict[str, list[Document]] | None = None

    def select(self, relation: Relation) -> "EvaluationData":
        """Return what asks for one relation; a group without any such question is left out."""
        groups = {name: questions.select(relation) for name, questions in self.groups.items()}
        groups = {name: questions for name, questions in groups.items() if len(questions)}
        return replace(self, groups=groups, training=self.training and self.training.select(relation))

    def list_warnings(self) -> list[str]:
        """Return what makes a figure mean something else than it seems to, one line each."""
        test, held_out, taken_out = self.groups[TEST], self.groups.get(HELD_OUT), self.groups.get(TAKEN_OUT)
        warnings = []
        if self.training and (overlap := describe_overlap(test, self.training)):
            warnings.append(f"{overlap}; the accuracy includes them.")
        if held_out and (overlap := describe_overlap(test, held_out)):
            warnings.append(
                f"{overlap}; the confidences and the threshold that are fitted on them are measured on them."
            )
        if self.documents is not None:
            if without := [title for title in test.titles if title not in self.documents]:
                warnings.append(
                    f"{test.path}: {len(without):,} of {len(test):,} questions are about titles that the corpus has no document"
                    f" of, first {without[0]!r}."
                )
            if taken_out and (there := [title for title in taken_out.titles if title in self.documents]):
                warnings.append(
                    f"{taken_out.path}: {len(there):,} of {len(taken_out):,} questions are about titles that the corpus has a"
                    f" document of, first {there[0]!r}; if the model has read it, it knows them."
                )
        if several := test.contradictions:
            warnings.append(
                f"{test.path}: {len(several):,} questions have different answers, of which a model gives one, first"
                f" {next(iter(several))!r}."
            )
        return warnings

    @property
    def training_answers(self) -> list[str]:
        """The answers of training; none without its file."""
        return self.training.answers if self.training is not None else []

    @property
    def known(self) -> dict[str, str]:
        """The answer of training by the name that was asked about, the last one if there are several."""
        return dict(zip(self.training.titles, self.training_answers, strict=True)) if self.training is not None else {}

    @property
    def candidates(self) -> list[str]:
        """The answers that are known from training, each once."""
        return sorted(set(self.training_answers))


def load_evaluation_data(test: Questions, arguments: EvaluationArguments, known: Sequence[Relation]) -> EvaluationData:
    """Read all files besides the test questions', each once, before anything is asked.

    Args:
        known: Relations that are known besides `RELATIONS`.

    Raises:
        BadInput: a file is not what it should be, calibration questions were trained on, or the corpus is another one.
    """
    paths = {TRAINING: arguments.train_file, HELD_OUT: arguments.calibration_file, TAKEN_OUT: arguments.unseen_file}
    known = [*known, *test.relations]
    files = {group: load_questions(*given, answers=True, known=known) for group, given in paths.items() if given}
    groups = {TEST: test} | files
    names = {name for questions in groups.values() for name in questions.titles}
    check_groups(groups, test, arguments)
    training = groups.pop(TRAINING, None)
    if training is not None and HELD_OUT in groups:
        check_held_out(groups[HELD_OUT], training)
    people, documents = arguments.num_fictional_people, None
    # Many more than are asked about: of a large fictional world's people, most are among them.
    made_up = list(islice(fictional_names(test.titles), 20 * people))
    if arguments.corpus_file:
        documents = find_documents(arguments.corpus_file, names | set(made_up), arguments.columns)
        # The test may be about unseen names alone, training is not.
        if documents.keys().isdisjoint(names):
            read = ", ".join(questions.path for questions in (test, *files.values()))
            raise BadInput(
                f"{arguments.corpus_file}: has no document about anyone in {read}; give the corpus that the model has"
                " read, or leave --corpus_file out."
            )
    if people:
        taken = names | set(documents or ())
        fictional = islice((name for name in made_up if name not in taken), people)
        asked = list(zip(cycle(test.relations), fictional))
        texts = Dataset.from_dict({"question": [relation.ask(name) for relation, name in asked]})
        groups[FICTIONAL] = Questions((FICTIONAL,), tuple(relation for relation, _ in asked), texts)
    return EvaluationData(groups, training, documents)


def check_groups(groups: dict[str, Questions], test: Questions, arguments: EvaluationArguments) -> None:
    """Check that each relation of the test questions has what its report compares and chooses a threshold on.

    Raises:
        BadInput: one does not.
    """
    threshold = "to choose when to answer it"
    reasons = {TRAINING: "for its report, which compares their answers"} if arguments.report else {}
    if arguments.target_precision is not None or arguments.wrong_costs is not None:
        reasons[HELD_OUT] = threshold
    if arguments.wrong_costs is not None:
        reasons[TAKEN_OUT] = threshold
    for group, reason in reasons.items():
        for relation in test.relations:
            if relation not in groups[group].relations:
                raise BadInput(
                    f"{groups[group].path}: has no question {relation.form!r}, which {test.path} asks; add some"
                    f" {reason}."
                )


def check_held_out(held_out: Questions, training: Questions) -> None:
    """Check that no question for calibration was trained on.

    Raises:
        BadInput: one was.
    """
    if overlap := describe_overlap(held_out, training):
        raise BadInput(
            f"{overlap}; a model is sure of what it was trained on, so these cannot calibrate it. Hold pairs out with posgpt"
            " hold-out."
        )
