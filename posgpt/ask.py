"""Ask a trained PosGPT a few questions; prints its answers, how probable it finds them, and other likely ones.

    posgpt ask --model_name_or_path runs/windows --questions "Where was Ada Example born?" "Where was Eyolf Kleven born?"

    posgpt ask --model_name_or_path runs/windows

opens a prompt for questions. With a corpus, such as `--corpus_file wiki.txt`, the sentence that holds each answer is shown, too.
An answer that the title's documents do not have is made up, or worded differently there.
`posgpt evaluate` asks the questions of a file.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import TextIOWrapper

from data_scripts.documents import Columns, read_rows
from data_scripts.errors import BadInput, exit_on_bad_input, shorten_error
from data_scripts.options import option, parse_options
from data_scripts.questions import describe_unknown_characters
from data_scripts.relations import Relation, Wording, find_relation, read_relations
from data_scripts.words import WORD, list_word_spans
from posgpt.evaluation.evidence import Document, find_alike, find_sentence
from posgpt.evaluation.predictions import ALL, Prediction, answer_questions
from posgpt.tables import format_table
from posgpt.training.saved_models import load_model

NUM_ALTERNATIVES = 3
HELP = """Type a question, or a title alone: then every relation is asked. After that, a relation's name asks it of the same title.
:cite on, :cite off  show the sentence that holds the answer, if a corpus is given
:why                 the last answers: probability, alternatives, and where the corpus has them
:quit                end, as the end of the input does"""


@dataclass
class AskingArguments(Columns):
    """The model, and what it is asked."""

    model_name_or_path: str = option("The PosGPT to ask: a folder or a name on the hub.")
    questions: list[str] | None = option(
        "Whole questions, each in quotation marks (default: a prompt opens).", default=None
    )
    corpus_file: str | None = option("The corpus that the model has read, to look the answers up in.", default=None)


@dataclass(frozen=True)
class Answers:
    """A model's answers to a few questions; as text, a table of them.

    Args:
        notes: What the model was not trained on, one line each.
        documents: Of the corpus, by title; None: no corpus was given.
        doubts: Which relations a question may ask for, one line for each question that is in no relation's words.
    """

    predictions: list[Prediction]
    notes: list[str]
    documents: Mapping[str, list[Document]] | None = None
    doubts: Sequence[str] = ()

    def __str__(self) -> str:
        header = ["question", "answer", "probability", "alternatives"]
        header += [] if self.documents is None else ["corpus"]
        rows = [
            [
                each.question,
                each.answer,
                f"{each.probability:.1%}",
                format_alternatives(each),
                self.find_evidence(each),
            ]
            for each in self.predictions
        ]
        return "\n".join([*self.notes, *self.doubts, format_table(header, [row[: len(header)] for row in rows])])

    def find_evidence(self, prediction: Prediction, all_documents: bool = False) -> str:
        """Return the first sentence of a title's documents that has the answer, or all, or say that there is none."""
        if self.documents is None:
            return ""
        if prediction.title is None:
            return "no title of the corpus in the question"
        if prediction.title not in self.documents:
            return "no document of this title"
        # The text before the title, which may hold the answer as well.
        found = [
            f"line {each.line}: {sentence}"
            for each in self.documents[prediction.title]
            if (sentence := find_sentence(each.body, prediction.answer) or find_sentence(each.text, prediction.answer))
        ]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return "\n  ".join(found) if all_documents and found else found[0] + more if found else "not in its document"


def format_alternatives(prediction: Prediction) -> str:
    """Return the other likely answers with their probabilities."""
    return ", ".join(f"{text} {probability:.1%}" for text, probability in (prediction.alternatives or {}).items())


def split_words(text: str) -> set[str]:
    """Return the words of a text without regard to case."""
    return {word.casefold() for word in WORD.findall(text) if any(map(str.isalnum, word))}


class Interview:
    """Questions to one model, which is loaded once."""

    def __init__(self, arguments: AskingArguments):
        self.arguments = arguments
        self.model, self.tokenizer = load_model(arguments.model_name_or_path)
        self.relations = read_relations(self.model.config.relations)
        # Of each relation: those of its name and its wordings.
        self.words = [
            split_words(" ".join([each.name, *each.wordings]).replace("{title}", " ")) for each in self.relations
        ]
        if arguments.corpus_file is not None:
            # A corpus that cannot be read is an error here, before anything is asked.
            next(iter(read_rows(arguments.corpus_file, arguments)), None)

    def find_titled(self, texts: list[str]) -> dict[str, list[Document]] | None:
        """Return the documents of all titles that stand in texts, without regard to case; None without a corpus."""
        if self.arguments.corpus_file is None:
            return None
        names = {text[start:end] for text in texts for start, end in list_word_spans(text)}
        names |= {relation.read_title(text) for text in texts for relation in self.relations}
        return find_alike(self.arguments.corpus_file, names, self.arguments)

    def list_questions(self, text: str) -> list[str]:
        """Return a question as it is; of a title, the question of each relation.

        A text that the corpus does not know is a title if it has no question mark and no word of the relations.
        """
        if find_relation(text, self.relations) is None:
            is_title = not Wording("", text).mark and split_words(text).isdisjoint(set().union(*self.words))
            if is_title or spell(text, self.find_titled([text])):
                return [relation.ask(text) for relation in self.relations]
        return [text]

    def find_meant(self, words: set[str]) -> list[Relation]:
        """Return the relations whose names and wordings have most of a question's words; none if no relation has any."""
        counts = [len(words & own) for own in self.words]
        return [each for each, count in zip(self.relations, counts, strict=True) if count and count == max(counts)]

    def ask(self, questions: list[str]) -> Answers:
        """Ask questions, with titles as the corpus spells them; raise BadInput for what cannot be asked."""
        asked = [find_relation(question, self.relations) for question in questions]
        if not any(asked) and len(asked) > 1 and find_relation(" ".join(questions), self.relations):
            raise BadInput(f"{questions[0]!r} is a word of a question; put each question in quotation marks.")
        documents, predictions = self.find_titled(questions), []
        notes: list[str] = []
        doubts: list[str] = []
        for question, relation in zip(questions, asked, strict=True):
            # In other words than the model's, the longest title of the corpus.
            spans = [question[start:end] for start, end in list_word_spans(question)]
            spans = [relation.read_title(question)] if relation else [each for each in spans if spell(each, documents)]
            typed = max(spans, key=len, default="")
            title = spell(typed, documents)
            meant = (
                [] if relation else self.find_meant(split_words(question.replace(typed, " ") if typed else question))
            )
            if len(meant) > 1:
                names = " or ".join(each.name for each in meant)
                forms = " or ".join(repr(each.ask(title or "NAME")) for each in meant)
                doubts.append(f"{question!r}: do you mean {names}? Ask {forms}.")
            if title and title != typed:
                notes.append(f"{typed!r} is {title!r} in the corpus, and is asked so.")
                question = question.replace(typed, title)
            predictions.append(Prediction(question, "", relation.name if relation else ALL, title or typed or None))
        try:
            predictions = answer_questions(predictions, self.model, self.tokenizer, NUM_ALTERNATIVES)
        except ValueError as error:
            raise BadInput(shorten_error(error)) from None
        if unknown := describe_unknown_characters(questions, self.tokenizer, "questions"):
            notes.insert(0, unknown)
        if untrained := [repr(each.question) for each in predictions if each.relation == ALL]:
            forms = " or ".join(repr(relation.form) for relation in self.relations)
            notes.append(
                f"The model was trained to be asked {forms}, not {', '.join(untrained)}; it answers as it can."
            )
        return Answers(predictions, list(dict.fromkeys(notes)), documents, doubts)


def spell(title: str, documents: Mapping[str, list[Document]] | None) -> str | None:
    """Return a title as the corpus spells it; None if it has none, or several that differ in case."""
    alike = [each for each in documents or () if each.casefold() == title.casefold()]
    return title if title in alike else alike[0] if len(alike) == 1 else None


def ask(arguments: AskingArguments) -> Answers:
    """Ask a model, and look its answers up in the corpus if one is named; raise BadInput for what cannot be asked."""
    if not arguments.questions:
        raise BadInput("--questions is missing; give whole questions, each in quotation marks.")
    return Interview(arguments).ask(arguments.questions)


def read_typed() -> Iterator[str]:
    """Yield what is typed, line by line, until `:quit` or the end; what is piped in is read without a prompt."""
    with suppress(ImportError):
        # Gives `input` its history; Windows has none.
        import readline  # noqa: F401
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="backslashreplace")
    with suppress(EOFError, KeyboardInterrupt):
        while (line := input("> " if sys.stdin.isatty() else "").strip()) != ":quit":
            yield line


def converse(interview: Interview) -> Iterator[str]:
    """Yield what replies to each line that is typed; what is wrong with a line is said, and the next one is read."""
    last, cites = Answers([], []), True
    for line in read_typed():
        match line.split():
            case []:
                continue
            case [":help"]:
                yield HELP
            case [":cite", "on" | "off" as state]:
                cites = state == "on"
            case [":why"]:
                for each in last.predictions:
                    evidence = last.find_evidence(each, all_documents=True)
                    yield f"{each.question} {each.answer}: {each.probability:.1%}; others: {format_alternatives(each)}"
                    yield f"  {evidence}" if evidence else "  no corpus was given: --corpus_file"
            case [command, *_] if command.startswith(":"):
                yield f"error: unknown command {line!r}; :help lists the commands."
            case _:
                title = next((each.title for each in last.predictions), None)
                named = next((each for each in interview.relations if each.name.casefold() == line.casefold()), None)
                try:
                    last = interview.ask([named.ask(title)] if named and title else interview.list_questions(line))
                except BadInput as error:
                    yield f"error: {error}"
                    continue
                yield from last.doubts or last.notes
                for each in last.predictions if not last.doubts else ():
                    relation = f"{each.relation}: " if len(last.predictions) > 1 else ""
                    yield f"{relation}{each.answer} {each.probability:.1%} ({format_alternatives(each)})"
                    if cites and (evidence := last.find_evidence(each)):
                        yield f"  {evidence}"


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(AskingArguments, argv)
    if arguments.questions:
        print(ask(arguments))
        return
    interview = Interview(arguments)
    if sys.stdin.isatty():
        print(HELP)
    for reply in converse(interview):
        print(reply, flush=True)


if __name__ == "__main__":
    main()
