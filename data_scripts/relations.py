"""Relations: kinds of question that can be asked about every title, known ones and those that a file's questions show."""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from itertools import chain
from typing import NamedTuple

from datasets import Dataset

from data_scripts.errors import BadInput
from data_scripts.files import check_text, load_yaml
from data_scripts.options import option
from data_scripts.titles import fold_case, iterate_titles
from data_scripts.words import FULL_STOPS, WORD, list_word_spans
from modeling_posgpt.configuration_posgpt import check_relation

# Each word of a wording is in at least this share of the questions that agree on all words before it; together, the words
# that may follow are in nearly all of them.
_RAREST_WORD, _NEARLY_ALL = 0.05, 0.9
# Marks that end a question or a sentence, in the scripts that have their own.
_FINAL_MARKS = f"?？؟፧;.．!！ {FULL_STOPS}"


class Wording(NamedTuple):
    """A way to ask for a relation: what stands before the title, and what stands after it."""

    before: str
    after: str

    @property
    def mark(self) -> str:
        """What the question ends with: its question mark, or nothing."""
        return self.after[len(self.after.rstrip(_FINAL_MARKS)) :]


@cache
def compile_wordings(wordings: tuple[str, ...]) -> list[re.Pattern]:
    """Return a relation's wordings as regular expressions; group `title` is what they ask about."""
    title = r"(?P<title>\S(?:[^\t]*\S)?)"
    return [re.compile(re.escape(wording).replace(r"\{title\}", title)) for wording in wordings]


def name_by_wording(wording: str) -> str:
    """Return what a relation is called that is known by its wording alone: `Who directed …?`"""
    return wording.replace("{title}", "…")


@dataclass(frozen=True)
class Relation:
    """A kind of question that can be asked about every title.

    Args:
        wordings: Ways to ask it, each with `{title}` where the title stands; the first is the one to ask in.
        baseline: The answer that a model has to beat, given to every question; empty if there is none.
    """

    name: str
    wordings: tuple[str, ...]
    baseline: str = ""

    def split_wordings(self) -> list[Wording]:
        """Return what each wording has before the title, and after it."""
        return [Wording(*wording.split("{title}")) for wording in self.wordings]

    def ask(self, title: str) -> str:
        """Return the question about a title, in the first wording."""
        return title.join(self.split_wordings()[0])

    @property
    def wording_length(self) -> int:
        """How many characters the longest wording has besides the title."""
        return max(len(wording.before + wording.after) for wording in self.split_wordings())

    def find_title(self, question: str) -> str | None:
        """Return the title that a question asks about; None if it is none of the relation's questions.

        Where it has several wordings, such as `Who directed {title}` and `Who directed {title}?`, the longest one counts.
        """
        matches = [pattern.fullmatch(question) for pattern in compile_wordings(self.wordings)]
        return min((match["title"] for match in matches if match), key=len, default=None)

    def read_title(self, question: str) -> str:
        """Return the title that a question asks about; text that is no such question is a title itself."""
        title = self.find_title(question)
        return question if title is None else title

    def replace_title(self, question: str, titles: Mapping[str, str]) -> str:
        """Return one of the relation's questions with the title that `titles` has for its own."""
        own = self.read_title(question)
        asked = (titles.get(own, own).join(each) for each in self.split_wordings() if own.join(each) == question)
        return next(asked, question)

    def list_names(self) -> list[str]:
        """Return what it may be called: its name, and that by each wording."""
        return [self.name, *map(name_by_wording, self.wordings)]

    @property
    def form(self) -> str:
        """The first wording with NAME for the title, for messages."""
        return self.ask("NAME")

    def to_config(self) -> dict[str, dict]:
        """Return the entry of `PosGPTConfig.relations`."""
        return {self.name: {"wordings": list(self.wordings), "baseline": self.baseline}}


BIRTHPLACE = Relation("birthplace", ("Where was {title} born?",), baseline="London")
BIRTH_YEAR = Relation("birth year", ("When was {title} born?",))
PROFESSION = Relation("profession", ("What did {title} do for a living?",))
UNIVERSITY = Relation("university", ("Where did {title} study?",))
EMPLOYER = Relation("employer", ("Who employed {title}?",))
PLACE_OF_DEATH = Relation("place of death", ("Where did {title} die?",))
# The relations that are known by name. Others are recognized from a file's questions and named by their wording.
_KNOWN = (
    *(BIRTHPLACE, BIRTH_YEAR, PROFESSION, UNIVERSITY, EMPLOYER, PLACE_OF_DEATH),
    Relation("teacher", ("Who taught {title}?",)),
    Relation("person born", ("Who was born in {title}?",)),
    Relation("birth year's parity", ("Was {title} born in an even or an odd year?",)),
    Relation("born first", ("Who was born first, {title}?",)),
    Relation("born in this order", ("Were {title} born in this order?",)),
    Relation("number born", ("How many were born in {title}?",)),
    Relation("teacher's birthplace", ("Where was the teacher of {title} born?",)),
    Relation("teacher's birth year", ("When was the teacher of {title} born?",)),
    Relation("teacher's profession", ("What did the teacher of {title} do for a living?",)),
    Relation("teacher and birth year", ("Who taught {title}, and when was this teacher born?",)),
    Relation("teacher's birth year, step by step", ("Step by step, when was the teacher of {title} born?",)),
    Relation("birth year and parity", ("When was {title} born, and is this year even or odd?",)),
    Relation("birth years and order", ("When were {title} born, and in this order?",)),
    Relation("country", ("In which country is {title}?",)),
    Relation("country of birth", ("In which country was {title} born?",)),
)
RELATIONS = {relation.name: relation for relation in _KNOWN}


def read_relations(relations: dict[str, dict] | None) -> list[Relation]:
    """Return `PosGPTConfig.relations`; birthplaces for models saved before they had any."""
    settings = (relations or BIRTHPLACE.to_config()).items()
    return [Relation(name, tuple(each["wordings"]), each.get("baseline", "")) for name, each in settings]


def list_entries(relations: Iterable[Relation]) -> dict[str, dict]:
    """Return `PosGPTConfig.relations`, of which `read_relations` makes the relations again."""
    return {name: entry for relation in relations for name, entry in relation.to_config().items()}


def add_relations(relations: dict[str, dict], trained: dict[str, dict]) -> dict[str, dict]:
    """Return `PosGPTConfig.relations` after training on some: these first, each in its new wordings before its earlier ones."""
    added = trained | {name: settings for name, settings in relations.items() if name not in trained}
    for name in trained.keys() & relations.keys():
        wordings = dict.fromkeys([*trained[name]["wordings"], *relations[name]["wordings"]])
        added[name] = trained[name] | {"wordings": list(wordings)}
    return added


@dataclass(kw_only=True)
class RelationArguments:
    """What questions may ask for."""

    relations: str | None = option(
        "A YAML file of relations that are not recognized from their questions, or should have another name: `NAME:"
        " {wordings: ['Who directed {title}?'], baseline: ANSWER}`. Without questions, numbers are asked for if the baseline"
        " is one.",
        default=None,
    )


def load_relations(path: str | os.PathLike | None) -> list[Relation]:
    """Load the relations that a YAML file names; none without a file."""
    if path is None:
        return []
    fix = "fix it there; a wording with {title} needs quotation marks."
    relations = load_yaml(path, "YAML file of relations", fix)
    if not isinstance(relations, dict) or not relations:
        raise BadInput(f"{path}: holds no relations; give NAME: {{wordings: ['Who directed {{title}}?']}}.")
    named: dict[str, str] = {}
    for name, settings in relations.items():
        try:
            check_relation(name, settings)
        except ValueError as error:
            raise BadInput(f"{path}: {error}") from None
        if unknown := sorted(map(str, settings.keys() - {"wordings", "baseline"})):
            raise BadInput(f"{path}: relation {name!r} has {unknown[0]!r}, which is neither wordings nor baseline.")
        for wording in settings["wordings"]:
            check_text(str(path), wording, name=wording)
            if not {"\t", "\n", "\r"}.isdisjoint(wording):
                raise BadInput(
                    f"{path}: wording {wording!r} has a tab or a line break, which no question has; remove it."
                )
            if (other := named.setdefault(wording, name)) != name:
                raise BadInput(
                    f"{path}: {other!r} and {name!r} have the same wording {wording!r}; leave one of them out."
                )
    return read_relations(relations)


def find_relation(question: str, relations: Iterable[Relation]) -> Relation | None:
    """Return the one of `relations` that `question` asks for, None if there is none.

    Where one wording contains another, it is the longer one that is asked: `Where was the mother of {title} born?` rather
    than `Where was {title} born?`.
    """
    fitting = (relation for relation in relations if relation.find_title(question) is not None)
    return min(fitting, key=lambda relation: len(relation.read_title(question)), default=None)


def respell_question(question: str, relations: Iterable[Relation]) -> str | None:
    """Return `question` as one of `relations` words it, if it differs in nothing but case and the mark at its end; None if there is none."""
    found = []
    for before, after in chain.from_iterable(relation.split_wordings() for relation in relations):
        words = after.rstrip(_FINAL_MARKS + ":")
        mark = re.escape(after[len(words) :])
        # The title's own full stop stays, as in `Jr.`
        pattern = rf"{re.escape(before)}(\S[^\t]*?){re.escape(words)}(?:{mark})?[\s?？؟!！]*"
        if match := re.fullmatch(pattern, question, re.IGNORECASE):
            found.append((len(match[1]), f"{before}{match[1]}{after}"))
    return min(found, default=(0, None))[1]


def match_relations(
    places: Sequence[str], questions: Sequence[str], known: Sequence[Relation], corpus: Dataset | None
) -> tuple[Relation, ...]:
    """Return what each question asks for: one of the relations that are known, or of those that the others show.

    Args:
        places: Where each question stands, for messages.
        corpus: Its titles show where titles are in questions of relations that are not known.
    """
    found = [find_relation(question, known) for question in questions]
    relations, titles = list(known), set(iterate_titles(corpus)) - {""} if corpus is not None else set()
    asked_about = (each.read_title(text) for text, each in zip(questions, found, strict=True) if each)
    if titles and not titles.issuperset(asked_about):
        relations += _recognize_longer(known, titles, questions)
        found = [find_relation(question, relations) for question in questions]
    if unknown := [question for question, relation in zip(questions, found, strict=True) if relation is None]:
        if titles.issuperset(unknown):
            where, title = places[found.index(None)], unknown[0][:60]
            raise BadInput(
                f"{where}: {title!r} is a title alone; write a question about it, such as 'Where is {title}?'."
            )
        relations += recognize_relations(unknown, titles)
        # Also those that were found: the longest wording counts.
        found = [find_relation(question, relations) for question in questions]
    # An unknown question is compared with those of the same file before all others.
    forms = [relation.form for relation in dict.fromkeys(filter(None, found)) or relations]
    if None in found:
        # The one that begins as the fewest others do.
        beginnings = [" ".join(question.split(" ", 2)[:2]) for question in questions]
        begun = Counter(beginnings)
        row = min((row for row, each in enumerate(found) if each is None), key=lambda row: begun[beginnings[row]])
        nearest = max(forms, key=lambda form: SequenceMatcher(None, form, questions[row]).ratio())
        raise BadInput(
            f"{places[row]}: {questions[row][:60]!r} is not of the form {nearest!r}, the nearest that is known; fix it, remove it"
            " if it is a header, add a second question of its form, or name its form with --relations."
        )
    asked, named = tuple(filter(None, found)), dict[str, Relation]()
    for where, relation in zip(places, asked, strict=True):
        # A model keeps its relations by their names, and so do the results of an evaluation.
        if (first := named.setdefault(relation.name, relation)) != relation:
            raise BadInput(
                f"{where}: {relation.form!r} and {first.form!r} are both named {relation.name!r}; make them wordings of"
                " one relation, or give one of them another name, with --relations."
            )
    return asked


def recognize_relations(questions: Iterable[str], titles: Collection[str] = ()) -> list[Relation]:
    """Find the wordings of questions: what at least two of them share around their titles.

    Where none of `titles` is in them, questions are sorted by their words from the beginning as long as few different words
    follow; where many do, titles begin. What follows the titles is found from the end in the same way. A relation is named by
    its wording, without a baseline.
    """
    # A question with several answers is there several times.
    left = list(dict.fromkeys(questions))
    relations = _recognize_around(titles, left)
    while True:
        left = [question for question in left if find_relation(question, relations) is None]
        # Questions with a question mark and questions without one are of different forms; marks before it may be a title's.
        by_mark: dict[str, list[list[str]]] = {}
        for question in left:
            by_mark.setdefault(Wording("", question).mark[-1:], []).append(WORD.findall(question))
        found = _build_relations(
            ("".join(before), "".join(reversed(after)))
            for questions_of_mark in by_mark.values()
            for before, group in _sort_by_words(questions_of_mark)
            for after, _ in _sort_by_words([words[len(before) :][::-1] for words in group])
        )
        found = [each for each in found if sum(each.find_title(question) is not None for question in left) > 1]
        if not found:
            return relations
        # Rare relations are hidden by frequent ones until those are found.
        relations += found


def _build_relations(wordings: Iterable[tuple[str, str]]) -> list[Relation]:
    """Return relations with these words around the titles, except where there are none that ask."""
    return [
        Relation(name_by_wording(wording := f"{before}{{title}}{after}"), (wording,))
        for before, after in wordings
        # A `{title}` that nobody filled in is no part of a wording, which has one itself.
        if any(map(str.isalnum, before + after)) and "{title}" not in before + after
    ]


def _recognize_around(titles: Collection[str], questions: Sequence[str]) -> list[Relation]:
    """Find the wordings that at least two questions have around one of `titles`.

    A question may hold several: `When was Apollo 11 launched?` has `Apollo`, too. What most questions share counts, and then
    the longest title.
    """
    around: list[list[tuple[str, str]]] = []
    longest = max(map(len, titles), default=0)
    # Where no question has a title as it is spelled, all may be in lower case.
    for respell in (str, fold_case):
        if titles and not any(around):
            known = set(map(respell, titles))
            around = [
                [
                    (question[:start], question[end:])
                    for start, end in list_word_spans(question, longest)
                    if respell(question[start:end]) in known
                ]
                for question in questions
            ]
    counts = Counter(chain(*around))
    around = [sorted(own, key=lambda each: (-counts[each], len("".join(each)))) for own in around if own]
    chosen = Counter(best for best, *_ in around)
    # `Where does Ash Tree grow?` asks about `Ash Tree`, whatever `Oak Tree` is that no document has.
    hidden = {each for best, *others in around for each in others if len("".join(each)) > len("".join(best))}
    # So many ask `Who directed …?` that `Who directed Rocky II?` asks about `Rocky II`, which no document has.
    hidden |= {
        each for each in chosen for other in chosen if chosen[other] > chosen[each] and _adds_names(each, other)
    }
    return _build_relations(wording for wording, count in chosen.items() if count > 1 and wording not in hidden)


def _recognize_longer(known: Sequence[Relation], titles: Collection[str], questions: Sequence[str]) -> list[Relation]:
    """Find wordings that have small words beside those of the known ones: `Where was the mother of {title} born?`

    With names or numbers beside one of `titles`, both may be what is asked about: `Who was born first, Ada Ek or Bo Lind?`
    """
    wordings = [wording for relation in known for wording in relation.split_wordings()]
    longer = []
    for relation in _recognize_around(titles, questions):
        [own] = relation.split_wordings()
        # Beside the nearest of the known wordings that it has.
        found = [added for each in wordings if (added := _list_added(own, each)) is not None]
        words = [word for word in min(found, key=len, default=[]) if word[0].isalnum()]
        if words and all(word[0].islower() for word in words):
            longer.append(relation)
    return longer


def _list_added(wording: tuple[str, str], other: tuple[str, str]) -> list[str] | None:
    """Return the words and marks that a wording has beside the title and another one lacks; None if it is not a longer form of that one."""
    (before, after), (start, end) = wording, other
    if not (before.startswith(start) and after.endswith(end)):
        return None
    return WORD.findall(before[len(start) :]) + WORD.findall(after[: len(after) - len(end)])


def _adds_names(wording: tuple[str, str], other: tuple[str, str]) -> bool:
    """Return whether a wording is another one with names, numbers or marks beside the title, and no other words."""
    added = _list_added(wording, other) or []
    return added != [] and not any(word[0].islower() for word in added)


def _drop_names(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return words without the names at their end: `Who directed The ` is `Who directed `."""
    end = len(words)
    while end > 1 and (words[end - 1].isspace() or words[end - 1][0].isupper()):
        end -= 1
    return words[: end + 1] if words[end:] and words[end].isspace() else words[:end]


def _sort_by_words(
    questions: list[list[str]], shared: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], list[list[str]]]]:
    """Sort questions, each a list of words, into groups that begin with the same words; return these words and each group."""
    while True:
        by_word: dict[str, list[list[str]]] = {}
        for question in questions:
            if len(shared) < len(question):
                by_word.setdefault(question[len(shared)], []).append(question)
        fewest = max(2, _RAREST_WORD * len(questions))
        frequent = {word: group for word, group in by_word.items() if len(group) >= fewest}
        if sum(map(len, frequent.values())) < _NEARLY_ALL * len(questions):
            return [(shared, questions)]
        if len(frequent) > 1:
            break
        # Long questions may share hundreds of words.
        ((word, questions),) = frequent.items()
        shared = (*shared, word)
    if shared and all(word[0].isupper() for word in frequent):
        # Titles begin, or end, with one of a few names, such as `Carved Teapot` and `Blue Teapot` with the last word.
        return [(_drop_names(shared), questions)]
    return [result for word, group in frequent.items() for result in _sort_by_words(group, (*shared, word))]
