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
from data_scripts.errors import BadInput, exit_on_bad_input, shorten_error
from data_scripts.options import option, parse_options
from data_scripts.questions import describe_unknown_characters
from data_scripts.relations import find_relation, read_relations
from data_scripts.titles import describe_cases
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
        header = ["question", "answer", "probability", *([] if self.documents is None else ["corpus, line"])]
        rows = [
            [each.question, each.answer, f"{each.probability:.1%}", self.describe_evidence(each)][: len(header)]
            for each in self.predictions
        ]
        return "\n".join([*self.notes, format_table(header, rows)])

    def describe_evidence(self, prediction: Prediction) -> str:
        """Return the lines of a title's documents that mention the answer, or say that there are none."""
        if self.documents is None or prediction.title is None:
            return ""
        if prediction.title not in self.documents:
            return "no document of this title"
        own = self.documents[prediction.title]
        lines = [str(each.line) for each in own if has_mention(each.text, prediction.answer)]
        return ", ".join(lines) or "not in its document"


def ask(arguments: AskingArguments) -> Answers:
    """Ask a model, and look its answers up in the corpus if one is named; raise BadInput for what cannot be asked."""
    questions = arguments.questions
    model, tokenizer = load_model(arguments.model_name_or_path)
    relations = read_relations(model.config.relations)
    asked = [find_relation(question, relations) for question in questions]
    if not any(asked) and len(asked) > 1 and find_relation(" ".join(questions), relations):
        raise BadInput(f"{questions[0]!r} is a word of a question; put each question in quotation marks.")
    documents, notes = None, list[str]()
    if arguments.corpus_file is not None:
        titles = {
            relation.read_title(question) for question, relation in zip(questions, asked, strict=True) if relation
        }
        documents = find_documents(arguments.corpus_file, titles, arguments)
        matched = {title: own[0].title for title, own in documents.items()}
        notes = [note] if (note := describe_cases("questions", matched)) else []
        documents |= {title: documents[name] for name, title in matched.items()}
        questions = [
            relation.replace_title(question, matched) if relation else question
            for question, relation in zip(questions, asked, strict=True)
        ]
    try:
        answers = model.answer(questions, tokenizer)
    except ValueError as error:
        raise BadInput(shorten_error(error)) from None
    predictions = [
        Prediction(
            question,
            answer.text,
            relation=relation.name if relation else ALL,
            title=relation.read_title(question) if relation else None,
            probability=answer.probability,
        )
        for question, answer, relation in zip(questions, answers, asked, strict=True)
    ]
    if unknown := describe_unknown_characters(questions, tokenizer, "questions"):
        notes.append(unknown)
    if untrained := [repr(each.question) for each in predictions if each.relation == ALL]:
        forms = " or ".join(repr(relation.form) for relation in relations)
        notes.append(f"The model was trained to be asked {forms}, not {', '.join(untrained)}; it answers as it can.")
    return Answers(predictions, notes, documents)


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    print(ask(parse_options(AskingArguments, argv)))


if __name__ == "__main__":
    main()
