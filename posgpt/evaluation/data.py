"""What an evaluation asks, and all else that it reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice, repeat

from datasets import Dataset

from data_scripts.errors import BadInput
from data_scripts.questions import Questions, describe_overlap, load_questions
from data_scripts.relations import Relation, load_relations
from data_scripts.synthetic_world import fictional_names
from modeling_posgpt import Answer
from posgpt.evaluation.arguments import EvaluationArguments
from posgpt.evaluation.evidence import Document, find_documents
from posgpt.evaluation.predictions import CALIBRATION, FICTIONAL, TEST, UNSEEN, Prediction
from posgpt.evaluation.scoring import ConstantBaseline, list_baselines


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

    @property
    def texts(self) -> list[str]:
        """The questions of all groups."""
        return [text for questions in self.groups.values() for text in questions.texts]

    @property
    def baselines(self) -> dict[str, list[ConstantBaseline]]:
        """What each relation of the test is compared with, by its name."""
        return {
            relation.name: list_baselines(
                relation.baseline, self.training.select(relation).answers if self.training else ()
            )
            for relation in self.groups[TEST].relations
        }

    def pair(self, answers: Sequence[Answer]) -> list[Prediction]:
        """Return the questions of all groups, in the order of `texts`, with these answers."""
        rows = [
            (group, relation.name, title, text, reference)
            for group, questions in self.groups.items()
            for relation, title, text, reference in zip(
                questions.relation_per_question,
                questions.titles,
                questions.texts,
                questions.answers or repeat(None),
                strict=False,
            )
        ]
        return [
            Prediction(text, answer.text, relation, title, answer.probability, reference, group)
            for (group, relation, title, text, reference), answer in zip(rows, answers, strict=True)
        ]

    def list_warnings(self) -> list[str]:
        """Return what makes a figure mean something else than it seems to, one line each."""
        test, warnings = self.groups[TEST], []
        if self.training and (overlap := describe_overlap(test, self.training)):
            warnings.append(f"{overlap}; the accuracy includes them.")
        if CALIBRATION in self.groups and (overlap := describe_overlap(test, self.groups[CALIBRATION])):
            warnings.append(
                f"{overlap}; the confidences and the threshold that are fitted on them are measured on them."
            )
        for group, has, meaning in ((TEST, False, "."), (UNSEEN, True, "; if the model has read it, it knows them.")):
            questions = self.groups.get(group)
            if questions is None or self.documents is None:
                continue
            if titles := [title for title in questions.titles if (title in self.documents) == has]:
                warnings.append(
                    f"{questions.path}: {len(titles):,} of {len(questions):,} questions are about titles that the corpus has"
                    f" {'a' if has else 'no'} document of, first {titles[0]!r}{meaning}"
                )
        if several := test.contradictions:
            warnings.append(
                f"{test.path}: {len(several):,} questions have different answers, of which a model gives one, first"
                f" {next(iter(several))!r}."
            )
        if self.training is None and test.answers:
            warnings.append("(--train_file adds the most frequent training answer to the comparison)")
        warnings += [
            f"({self.training.path}: has no question {relation.form!r}, so no most frequent answer to compare)"
            for relation in test.relations
            if self.training and test.answers and relation not in self.training.relations
        ]
        return warnings


def load_evaluation_data(arguments: EvaluationArguments, known: Sequence[Relation]) -> EvaluationData:
    """Read all files, each once, before anything is asked.

    Args:
        known: Relations that are known besides those that are given, and `RELATIONS`.

    Raises:
        BadInput: a file is not what it should be, calibration questions were trained on, or the corpus is another one.
    """
    known = [*load_relations(arguments.relations), *known]
    test = load_questions(*arguments.test_file, known=known)
    paths = {"training": arguments.train_file, CALIBRATION: arguments.calibration_file, UNSEEN: arguments.unseen_file}
    known += test.relations
    groups = {TEST: test} | {
        group: load_questions(*given, answers=True, known=known) for group, given in paths.items() if given
    }
    names = {name for questions in groups.values() for name in questions.titles}
    read = ", ".join(questions.path for questions in groups.values())
    training = groups.pop("training", None)
    if training and CALIBRATION in groups and (overlap := describe_overlap(groups[CALIBRATION], training)):
        raise BadInput(
            f"{overlap}; a model is sure of what it was trained on, so these cannot calibrate it. Hold pairs out with posgpt"
            " hold-out."
        )
    people, documents = arguments.num_fictional_people, None
    # Many more than are asked about: of a large fictional world's people, most are among them.
    made_up = list(islice(fictional_names(test.titles), 20 * people))
    if arguments.corpus_file:
        documents = find_documents(arguments.corpus_file, names | set(made_up), arguments)
        # The test may be about unseen names alone, training is not.
        if documents.keys().isdisjoint(names):
            raise BadInput(
                f"{arguments.corpus_file}: has no document about anyone in {read}; give the corpus that the model has"
                " read, or leave --corpus_file out."
            )
    fictional = islice((name for name in made_up if name not in names and name not in (documents or ())), people)
    if asked := list(zip(cycle(test.relations), fictional)):
        texts = Dataset.from_dict({"question": [relation.ask(name) for relation, name in asked]})
        groups[FICTIONAL] = Questions((FICTIONAL,), tuple(relation for relation, _ in asked), texts)
    return EvaluationData(groups, training, documents)
