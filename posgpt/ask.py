"""Ask a trained PosGPT a few questions; prints its answers and how probable it finds them.

    posgpt ask --model_name_or_path runs/windows --questions "Where was Ada Example born?" "Where was Eyolf Kleven born?"

`posgpt evaluate` asks the questions of a file.
"""

from dataclasses import dataclass

from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.options import option, parse_options, shorten_error
from data_scripts.questions import describe_unknown_characters
from data_scripts.relations import find_relation, read_relations
from posgpt.tables import format_table
from posgpt.training.saved_models import load_model


@dataclass
class AskingArguments:
    """The model, and what it is asked."""

    model_name_or_path: str = option("The PosGPT to ask: a folder or a name on the hub.")
    questions: list[str] = option("Whole questions, each in quotation marks.")


def ask(model_name_or_path: str, questions: list[str]) -> str:
    """Return a table of questions, answers and their probabilities; before it a line on what the model was not trained on.

    Raises:
        BadInput: there is no such model, or a question is empty, too long or has a `⁇`.
    """
    model, tokenizer = load_model(model_name_or_path)
    relations = read_relations(model.config.relations)
    untrained = [question for question in questions if find_relation(question, relations) is None]
    if untrained == questions and len(questions) > 1 and find_relation(" ".join(questions), relations):
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
    rows = [
        (question, answer.text, f"{answer.probability:.1%}")
        for question, answer in zip(questions, answers, strict=True)
    ]
    return "\n".join([*lines, format_table(("question", "answer", "probability"), rows)])


@exit_on_bad_input()
def main() -> None:
    arguments = parse_options(AskingArguments)
    print(ask(arguments.model_name_or_path, arguments.questions))


if __name__ == "__main__":
    main()
