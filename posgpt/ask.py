"""Ask a trained PosGPT a few questions; prints its answers and how probable it finds them.

    posgpt ask --model_name_or_path runs/windows --questions "Where was Ada Example born?" "Where was Eyolf Kleven born?"

    posgpt ask ... --corpus_file wiki.txt

also says which lines of the corpus have each answer. An answer that the title's documents do not have is made up, or worded
differently there.
`posgpt evaluate` asks the questions of a file.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from data_scripts.documents import ColumnArguments
from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.options import option, parse_options, shorten_error
from data_scripts.questions import describe_unknown_characters
from data_scripts.relations import find_relation, read_relations
from posgpt.evaluation.evidence import Document, find_documents, has_mention
from posgpt.tables import format_table
from posgpt.training.saved_models import load_model


@dataclass
class AskingArguments(ColumnArguments):
    """The model, and what it is asked."""

    model_name_or_path: str = option("The PosGPT to ask: a folder or a name on the hub.")
    questions: list[str] = option("Whole questions, each in quotation marks.")
    corpus_file: str | None = option("The corpus that the model has read, to look the answers up in.", default=None)


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


def ask(arguments: AskingArguments) -> str:
    """Return a table of questions, answers and their probabilities; before it a line on what the model was not trained on.

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
    lines = []
    if unknown := describe_unknown_characters(questions, tokenizer, "questions"):
        lines.append(unknown)
    if untrained:
        forms = " or ".join(repr(relation.form) for relation in relations)
        lines.append(
            f"The model was trained to be asked {forms}, not {', '.join(map(repr, untrained))}; it answers as it can."
        )
    columns = {
        "question": questions,
        "answer": [answer.text for answer in answers],
        "probability": [f"{answer.probability:.1%}" for answer in answers],
    }
    if arguments.corpus_file:
        titles = [relation.read_title(question) if (relation := asked[question]) else None for question in questions]
        documents = find_documents(arguments.corpus_file, set(filter(None, titles)), arguments.columns)
        columns["corpus, line"] = [
            describe_evidence(title, answer, documents)
            for title, answer in zip(titles, columns["answer"], strict=True)
        ]
    return "\n".join([*lines, format_table(list(columns), zip(*columns.values(), strict=True))])


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    print(ask(parse_options(AskingArguments, argv)))


if __name__ == "__main__":
    main()
