"""Ask a trained PosGPT a few questions; prints its answers and how probable it finds them.

    posgpt ask --model_name_or_path runs/windows --questions "Where was Ada Example born?" "Where was Eyolf Kleven born?"

    posgpt ask ... --corpus_file wiki.txt

also says which lines of the corpus have each answer. An answer that the title's documents do not have is made up, or worded
differently there.
`posgpt evaluate` asks the questions of a file.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from data_scripts.documents import Columns
from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.options import option, parse_options, shorten_error
from data_scripts.questions import describe_unknown_characters
from data_scripts.relations import find_relation, read_relations
from posgpt.evaluation.evidence import Document, find_documents, has_mention
from posgpt.evaluation.predictions import ALL, Prediction
from posgpt.tables import format_table
from posgpt.training.saved_models import load_model


@dataclass
class AskingArguments(Columns):
    """The model, and what it is asked."""

    model_name_or_path: str = option("The PosGPT to ask: a folder or a name on the hub.")
    questions: list[str] = option("Whole questions, each in quotation marks.")
    corpus_file: str | None = option("The corpus that the model has read, to look the answers up in.", default=None)


@dataclass(frozen=True)
class Answers:
    """A model's answers to a few questions; as text, a table of them.

    Args:
        notes: What the model was not trained on, one line each.
        documents: Of the corpus, by title; None: no corpus was given.
    """

    predictions: list[Prediction]
    notes: list[str]
    documents: Mapping[str, list[Document]] | None = None

    def __str__(self) -> str:
        header = ["question", "answer", "probability"]
        rows = [[each.question, each.answer, f"{each.probability:.1%}"] for each in self.predictions]
        if self.documents is not None:
            header.append("corpus, line")
            rows = [
                [*row, describe_evidence(each.title, each.answer, self.documents)]
                for row, each in zip(rows, self.predictions, strict=True)
            ]
        return "\n".join([*self.notes, format_table(header, rows)])


def describe_evidence(title: str | None, answer: str, documents: Mapping[str, list[Document]]) -> str:
    """Return the lines of a title's documents that mention an answer, or say that there are none.

    Args:
        title: What the question asks about; None if that is not known.
        documents: By title.
    """
    if title is None:
        return ""
    if title not in documents:
        return "no document of this title"
    lines = [str(document.line) for document in documents[title] if has_mention(document.text, answer)]
    return ", ".join(lines) or "not in its document"


def ask(arguments: AskingArguments) -> Answers:
    """Ask a model, and look its answers up in the corpus if one is named.

    Raises:
        BadInput: there is no such model or corpus, or a question is empty, too long or has a `⁇`.
    """
    questions = arguments.questions
    model, tokenizer = load_model(arguments.model_name_or_path)
    relations = read_relations(model.config.relations)
    asked = {question: find_relation(question, relations) for question in questions}
    untrained = [question for question, relation in asked.items() if relation is None]
    if len(untrained) == len(asked) > 1 and find_relation(" ".join(questions), relations):
        raise BadInput(f"{questions[0]!r} is a word of a question; put each question in quotation marks.")
    try:
        answers = model.answer(questions, tokenizer)
    except ValueError as error:
        raise BadInput(shorten_error(error)) from None
    notes = []
    if unknown := describe_unknown_characters(questions, tokenizer, "questions"):
        notes.append(unknown)
    if untrained:
        forms = " or ".join(repr(relation.form) for relation in relations)
        notes.append(
            f"The model was trained to be asked {forms}, not {', '.join(map(repr, untrained))}; it answers as it can."
        )
    predictions = [
        Prediction(
            question,
            answer.text,
            relation=relation.name if (relation := asked[question]) else ALL,
            title=relation.read_title(question) if relation else None,
            probability=answer.probability,
        )
        for question, answer in zip(questions, answers, strict=True)
    ]
    if arguments.corpus_file is None:
        return Answers(predictions, notes)
    titles = {each.title for each in predictions if each.title}
    return Answers(predictions, notes, find_documents(arguments.corpus_file, titles, arguments))


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    print(ask(parse_options(AskingArguments, argv)))


if __name__ == "__main__":
    main()
