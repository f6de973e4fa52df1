"""What an evaluation asks, and all else that it reads."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle, islice

from transformers import PreTrainedTokenizerBase

from data_scripts.errors import BadInput
from data_scripts.files import hash_file
from data_scripts.questions import (
    Questions,
    describe_overlap,
    describe_unknown_characters,
    load_questions,
    locate_question,
)
from data_scripts.relations import Relation, load_relations, read_relations
from data_scripts.synthetic_world import fictional_names
from data_scripts.titles import describe_cases
from modeling_posgpt import PosGPTForCausalLM
from posgpt.evaluation.arguments import EvaluationArguments
from posgpt.evaluation.evidence import Document, find_documents
from posgpt.evaluation.predictions import CALIBRATION, FICTIONAL, TEST, UNSEEN, Prediction, is_wording
from posgpt.evaluation.scoring import find_baselines

NO_CALIBRATION = (
    "; a model is sure of what it was trained on, so these cannot calibrate it. Hold pairs out with posgpt hold-out."
)


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

    @cached_property
    def questions(self) -> list[Prediction]:
        """The questions of all groups, each once, with an empty answer; all answers that its lines give are references."""
        questions = []
        for group, asked in self.groups.items():
            rows = zip(asked.texts, asked.relation_per_question, asked.titles, strict=True)
            for text, relation, title in dict.fromkeys(rows):
                correct = asked.answers_by_text.get(text, [])
                reference = correct[0] if len(correct) == 1 else correct or None
                questions.append(Prediction(text, "", relation.name, title, reference=reference, group=group))
        return questions

    @property
    def baselines(self) -> dict[str, dict[str, str]]:
        """What each relation of the test is compared with, by its name."""
        relations = self.groups[TEST].relations
        answers = {each: self.training.select(each).answers if self.training else () for each in relations}
        return {each.name: find_baselines(each.baseline, answers[each]) for each in relations}


def reword(test: Questions, path: str) -> dict[str, Questions]:
    """Return the questions of a test in all wordings that a file has for their relations, by these wordings."""
    if not test.answers:
        raise BadInput(f"{test.path}: has no answers to compare with in other wordings; leave --other_wordings out.")
    asked = {name: relation for relation in test.relations for name in relation.list_names()}
    groups = dict[str, Questions]()
    for relation in load_relations(path):
        if relation.name not in asked:
            raise BadInput(
                f"{path}: {test.path} asks for no {relation.name!r}; remove it, or choose from"
                f" {', '.join(repr(each.name) for each in test.relations)}."
            )
        own = test.select(asked[relation.name])
        for wording in relation.wordings:
            if wording in groups:
                raise BadInput(f"{path}: {wording!r} is there twice; remove one.")
            reworded = replace(asked[relation.name], wordings=(wording,))
            groups[wording] = replace(
                own, relation_per_question=(reworded,) * len(own), texts=list(map(reworded.ask, own.titles))
            )
    return groups


def load_evaluation_data(arguments: EvaluationArguments, known: Sequence[Relation]) -> EvaluationData:
    """Read all files, each once, before anything is asked; `known` are the relations of the model, if one is asked."""
    baselines = {relation.name: relation.baseline for relation in known}
    given = load_relations(arguments.relations)
    known = [*(replace(each, baseline=each.baseline or baselines.get(each.name, "")) for each in given), *known]
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
        raise BadInput(f"{overlap}{NO_CALIBRATION}")
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
        titles = {name: own[0].title for name, own in documents.items()}
        groups = {group: questions.rename(titles) for group, questions in groups.items()}
        training = training and training.rename(titles)
    fictional = islice((name for name in made_up if name not in names and name not in (documents or ())), people)
    if asked := list(zip(cycle(test.relations), fictional)):
        texts = [relation.ask(name) for relation, name in asked]
        groups[FICTIONAL] = Questions((FICTIONAL,), tuple(relation for relation, _ in asked), texts)
    if arguments.other_wordings:
        groups |= reword(groups[TEST], arguments.other_wordings)
    return EvaluationData(groups, training, documents)


def list_warnings(data: EvaluationData) -> list[str]:
    """Return what makes a figure mean something else than it seems to, one line each, whoever is asked."""
    test, titles = data.groups[TEST], {name: own[0].title for name, own in (data.documents or {}).items()}
    warnings = [f"{note}." for note in describe_cases(titles)]
    for others, meaning in (
        (data.training, "the accuracy includes them."),
        (data.groups.get(CALIBRATION), "confidence is then fitted and measured on the same questions."),
    ):
        if others and (overlap := describe_overlap(test, others)):
            warnings.append(f"{overlap}; {meaning}")
    for group, has, meaning in ((TEST, False, "."), (UNSEEN, True, "; if the model has read it, it knows them.")):
        questions = data.groups.get(group)
        if questions is None or data.documents is None:
            continue
        if asked := [title for title in questions.titles if (title in data.documents) == has]:
            warnings.append(
                f"{questions.path}: {len(asked):,} of {len(questions):,} questions are about titles that the corpus has"
                f" {'a' if has else 'no'} document of, first {asked[0]!r}{meaning}"
            )
    return warnings


def check_questions(
    data: EvaluationData,
    model: PosGPTForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    max_new_tokens: int,
    training_files: Collection[str],
) -> list[str]:
    """Check that a model can read every question; return warnings about the test, one line each.

    `training_files` are the SHA-256 of the files that it was last trained on, as far as known.
    """
    for group, questions in data.groups.items():
        rooms = list(map(model.count_free_positions, questions.texts))
        if min(rooms) < 1:
            row = rooms.index(min(rooms))
            of_file = group in (TEST, CALIBRATION, UNSEEN)
            where = locate_question(row, questions.paths) if of_file else f"{group} ({questions.titles[row]})"
            raise BadInput(
                f"{where}: the question has {len(questions.texts[row])} characters, but the model's maximum sequence length is"
                f" {model.config.max_position_embeddings}: no room for an answer; shorten the"
                f" {'wording' if is_wording(group) else 'question'} or pretrain with a larger --block_size."
            )
    test, calibration = data.groups[TEST], data.groups.get(CALIBRATION)
    for path in calibration.paths if calibration else ():
        if hash_file(path) in training_files:
            raise BadInput(f"{path}: the model was trained on this file{NO_CALIBRATION}")
    warnings = [
        f"{path}: the model was trained on this file; its accuracy here says what it has memorized of it."
        for path in test.paths
        if hash_file(path) in training_files
    ]
    pairs = zip(test.texts, test.answers, strict=False)
    if full := sum(len(answer) > model.count_free_positions(text) for text, answer in pairs):
        warnings.append(
            f"{test.path}: {full} of {len(test)} answers do not fit behind their questions into the model's maximum sequence length"
            f" of {model.config.max_position_embeddings} characters, and count as wrong; shorten the questions."
        )
    if cut := sum(len(answer) > max_new_tokens for answer in test.answers):
        warnings.append(
            f"{test.path}: {cut} of {len(test)} answers are longer than {max_new_tokens} characters, which is where the"
            " model's are cut; choose a larger --max_new_tokens."
        )
    wordings = {wording for relation in read_relations(model.config.relations) for wording in relation.wordings}
    warnings += [
        f"{test.path}: the model was not trained on the wording {relation.form!r}."
        for relation in test.relations
        if wordings.isdisjoint(relation.wordings)
    ]
    reworded = ((repr(group), questions) for group, questions in data.groups.items() if is_wording(group))
    for name, questions in ((test.path, test), *reworded):
        if unknown := describe_unknown_characters(questions.texts, tokenizer, name):
            warnings.append(unknown)
    return warnings
