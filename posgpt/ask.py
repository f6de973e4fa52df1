"""Ask a trained PosGPT a few questions; prints its answers, how probable it finds them, and other likely ones.

    posgpt ask --model_name_or_path runs/windows --questions "Where was Ada Example born?" "Where was Eyolf Kleven born?"

    posgpt ask --model_name_or_path runs/windows

opens a prompt for questions. With a corpus, such as `--corpus_file wiki.txt`, the sentence that holds each answer is shown, too.
An answer that the title's documents do not have is made up, or worded differently there.
`posgpt evaluate` asks the questions of a file.
"""

import os
import re
import sys
import unicodedata
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from data_scripts.documents import Columns, check_columns, read_rows
from data_scripts.errors import BadInput, shorten_error
from data_scripts.options import option, parse_options
from data_scripts.questions import describe_unknown_characters, is_question
from data_scripts.relations import Relation, find_relation, read_relations, respell_question
from data_scripts.words import find_words, is_unspaced, list_title_words, list_word_spans
from posgpt.evaluation.evidence import Document, find_documents, find_sentences
from posgpt.evaluation.predictions import ALL, Prediction, answer_questions
from posgpt.training.saved_models import load_model

NUM_ALTERNATIVES = 3
HELP = """Type a question, or a title alone: then every relation is asked. After that, a relation's name asks it of the same title.
:cite on, :cite off  show the sentence that holds the answer, if a corpus is given
:why                 the last answers, with every sentence that holds them
:quit                end, as the end of the input does"""


@dataclass
class AskingArguments(Columns):
    """The model, and what it is asked."""

    model_name_or_path: str = option("The PosGPT to ask: a folder or a name on the hub.")
    questions: list[str] | None = option("Questions, each in quotation marks (default: a prompt opens).", default=None)
    corpus_file: str | None = option("The corpus that the model has read, to look the answers up in.", default=None)


@dataclass(frozen=True)
class Answers:
    """A model's answers to a few questions, with the probability of each, and other likely answers with theirs.

    Args:
        notes: What was asked in other words than typed, and what the model was not trained on, one line each.
        documents: Of the corpus, by title and by name in the questions; None: no corpus was given.
    """

    predictions: list[Prediction]
    notes: list[str]
    documents: Mapping[str, list[Document]] | None = None

    def __str__(self) -> str:
        return "\n".join([*self.notes, *self.list_lines(1)])

    def list_lines(self, sentences: int | None) -> Iterator[str]:
        """Yield a line for each answer, and for each of this many sentences that have it, the first ones; None: for all."""
        for each in self.predictions:
            given = {each.answer: each.probability} | (each.alternatives or {})
            best, *others = (
                f"{text.strip() or '(no answer)'} {probability:.1%}" for text, probability in given.items()
            )
            # An answer may have line breaks.
            yield " ".join(f"{each.question} {best} ({', '.join(others)})".split())
            evidence = self.find_evidence(each)
            yield from (f"  {line}" for line in evidence[:sentences])
            if sentences and len(evidence) > sentences:
                yield f"  (and {len(evidence) - sentences} more)"

    def find_evidence(self, prediction: Prediction) -> list[str]:
        """Return the sentences of a title's documents that have the answer, or say that there is none."""
        if self.documents is None:
            return []
        if prediction.title is None or prediction.title not in self.documents:
            return ["no title of the corpus in the question"]
        # The text before the title, which may hold the answer as well.
        own, answer = self.documents[prediction.title], prediction.answer
        found = ((each.where, find_sentences(each.body, answer) or find_sentences(each.text, answer)) for each in own)
        return [f"{where}: {said}" for where, sentences in found for said in sentences] or ["not in its document"]


class Interview:
    """Questions to one model, which is loaded once."""

    def __init__(self, arguments: AskingArguments):
        check_columns(arguments, arguments.corpus_file)
        self.arguments = arguments
        self.model, self.tokenizer = load_model(arguments.model_name_or_path)
        self.relations = read_relations(self.model.config.relations)

    def find_meant(self, question: str, title: str) -> list[Relation]:
        """Return the relations whose names, and then wordings, have most of a question's words; none if no relation has any."""
        words = list_title_words(question.casefold().rstrip(".")) - list_title_words(title.casefold())
        counts = []
        for each in self.relations:
            name = list_title_words(each.name.casefold())
            named = words & name
            asked = [list_title_words(" ".join(wording).casefold()) for wording in each.split_wordings()]
            # As in training, words beside a relation's name ask nothing.
            shared = named.union(*(words & own for own in asked if not name <= own))
            # In a script without spaces, a single character in common says nothing.
            is_chance = len(shared) == 1 and all(map(is_unspaced, shared))
            counts.append((0, 0) if is_chance else (len(named), len(shared)))
        return [each for each, count in zip(self.relations, counts, strict=True) if count[1] and count == max(counts)]

    def ask(self, texts: Sequence[str]) -> Answers:
        """Ask questions, of a title alone those of all relations; raise BadInput for what cannot be asked.

        Titles are asked as the corpus spells them. A text that it does not know is a title if it has no question mark and no
        word of the relations.
        """
        # Some keyboards and file names write accents as characters of their own.
        known = self.tokenizer.get_vocab().keys()
        # With single spaces, as titles are written.
        texts = [re.sub(" +", " ", text.strip()) for text in texts]
        spellings = ([text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD"))] for text in texts)
        texts = [min(each, key=lambda spelling: len({*spelling} - known)) for each in spellings]
        asked = [find_relation(text, self.relations) for text in texts]
        notes = list[str]()
        for number, text in enumerate(texts):
            if asked[number] is None and (question := respell_question(text, self.relations)):
                notes.append(f"{text!r} is asked as {question!r}.")
                texts[number], asked[number] = question, find_relation(question, self.relations)
        if not any(asked) and len(asked) > 1 and respell_question(" ".join(texts), self.relations):
            raise BadInput(f"{texts[0]!r} is a word of a question; put each question in quotation marks.")
        # In other words than the model's, any of a question's words may be the title; a text that is too long is refused below.
        names = [[relation.read_title(text)] if relation else [] for text, relation in zip(texts, asked, strict=True)]
        corpus_file, questions = self.arguments.corpus_file, list[Prediction]()
        for text, own in zip(texts, names, strict=True):
            if (corpus_file or not own) and self.model.count_free_positions(text) > 0:
                own += [text[start:end] for start, end in list_word_spans(text)]
        documents = find_documents(corpus_file, set(chain(*names)), self.arguments) if corpus_file else {}
        hints = list[str]()
        for text, relation, own in zip(texts, asked, names, strict=True):
            found = [name for name in own if name in documents]
            typed = max(found, key=len, default="")
            if relation and found and own[0] not in found and all(name in typed for name in found):
                # `the film Alien` fits a wording, and is more than a title. `Ada Ek or Bo Lind`, with two, is what is asked about.
                relation = None
            elif relation:
                typed = own[0]
            title = documents[typed][0].title if typed in documents else typed
            if title != typed:
                hints.append(f"{typed!r} is {title!r} in the corpus, and is asked so.")
            meant = [relation] if relation else self.find_meant(text, typed)
            if text and relation is None and (typed == text or not (meant or is_question(text))):
                title = title or text
                questions += [Prediction(each.ask(title), "", each.name, title) for each in self.relations]
                continue
            # As a word of its own: `ed` is a part of `employed`, too.
            begin, end = next(find_words([typed], text), (0, 0))
            spelled = text[:begin] + title + text[end:] if end else text
            question = relation.replace_title(text, {typed: title}) if relation else spelled
            questions.append(Prediction(question, "", relation.name if relation else ALL, title or None))
            if relation is None:
                forms = " or ".join(f"{each.ask(title or 'NAME')!r} ({each.name})" for each in meant or self.relations)
                hints.append(f"{question!r}: do you mean {forms}?")
                if title and len(meant) == 1:
                    questions.append(Prediction(meant[0].ask(title), "", meant[0].name, title))
        unknown = describe_unknown_characters([each.question for each in questions], self.tokenizer, "questions")
        notes += [*filter(None, [unknown]), *hints]
        try:
            predictions = answer_questions(questions, self.model, self.tokenizer, NUM_ALTERNATIVES)
        except ValueError as error:
            raise BadInput(shorten_error(error)) from None
        return Answers(predictions, list(dict.fromkeys(notes)), documents if corpus_file else None)


def ask(arguments: AskingArguments) -> Answers:
    """Ask a model, and look its answers up in the corpus if one is named; raise BadInput for what cannot be asked."""
    if not arguments.questions:
        raise BadInput("--questions is missing; give whole questions, each in quotation marks.")
    # A file without an ending may have a title's name by chance.
    if file := next((text for text in arguments.questions if Path(text).suffix and os.path.isfile(text)), None):
        raise BadInput(f"{file}: is a file; posgpt evaluate --test_file asks its questions.")
    return Interview(arguments).ask(arguments.questions)


def converse(interview: Interview) -> None:
    """Reply to what is typed, line by line, until `:quit` or the end; what is piped in is read without a prompt."""
    if interview.arguments.corpus_file:
        # A corpus that cannot be read is an error here, before anything is asked.
        deque(read_rows(interview.arguments.corpus_file, interview.arguments), maxlen=0)
    with suppress(ImportError):
        # Gives `input` its history; Windows has none.
        import readline  # noqa: F401
    if sys.stdin.isatty():
        print(HELP)
    last, sentences, named = Answers([], []), 1, {each.name.casefold(): each for each in interview.relations}
    title = None
    with suppress(EOFError, KeyboardInterrupt):
        while (line := input("> " if sys.stdin.isatty() else "").strip()) != ":quit":
            if line in (":cite on", ":cite off"):
                sentences = int(line == ":cite on")
            elif line == ":why":
                print("\n".join(last.list_lines(None)))
            elif line.startswith(":"):
                print(HELP if line == ":help" else f"error: unknown command {line!r}; :help lists the commands.")
            elif line:
                relation = named.get(line.casefold())
                if relation and not title:
                    print("error: no title was recognized yet; type one, or a whole question.")
                    continue
                try:
                    last = interview.ask([relation.ask(str(title)) if relation else line])
                    title = last.predictions[0].title or title
                    print("\n".join([*last.notes, *last.list_lines(sentences)]))
                except BadInput as error:
                    print(f"error: {error}")


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(AskingArguments, argv)
    if arguments.questions:
        print(ask(arguments))
    else:
        converse(Interview(arguments))
