"""What a fictional world can be asked: each kind of question is an entry of `QUESTIONS`, and a wording in `data_scripts/relations.py`.

Most ask for what a document of the person says. Others have to be worked out from several facts, or from the answer: inverse search,
classification and comparison (Allen-Zhu and Li 2023, arXiv 2309.14402), two hops and counting.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

from data_scripts.files import choose_file

if TYPE_CHECKING:
    from data_scripts.synthetic_world import World


class Question(NamedTuple):
    """What a question is about, in its relation's wording, the answers, each of which is correct, and the facts that lead to them."""

    title: str
    answers: list[str]
    steps: tuple = ()


class Kind(NamedTuple):
    """A kind of question.

    Args:
        told: The attributes of a person that documents have to tell.
        ask: Returns the questions that come with a person, which are in the file that asks about the person.
        is_told: Whether a document says the answer.
        entropy: Returns how many bits the answer has in a world, where a person's document says it; None: it has none of its own.
        candidates: Returns what an answer that has bits is drawn from.
    """

    told: tuple[str, ...]
    ask: "Callable[[World, int, SimpleNamespace], Iterable[Question]]"
    is_told: bool = False
    entropy: "Callable[[World], float] | None" = None
    candidates: "Callable[[World], Iterable]" = lambda world: ()

    def say_steps(self) -> "Kind":
        """Return the same kind of question, whose answers begin with the facts that lead to them (chain of thought)."""

        def ask(world: "World", index: int, person: SimpleNamespace) -> Iterator[Question]:
            for title, answers, steps in self.ask(world, index, person):
                yield Question(title, [", ".join(map(str, [*steps, answer])) for answer in answers])

        return self._replace(ask=ask)


def for_attribute(name: str, drawn_from: str) -> Kind:
    """Return the kind of question that an attribute of the person answers; `drawn_from` is one of `World.choices`."""
    return Kind(
        (name,),
        lambda world, index, person: [Question(person.name, [str(getattr(person, name))])],
        True,
        lambda world: world.choices[drawn_from].entropy,
        lambda world: world.choices[drawn_from].words,
    )


def for_teachers_attribute(name: str) -> Kind:
    """Return the kind of question that an attribute of the person's teacher answers: two hops, from document to document."""

    def ask(world: "World", index: int, person: SimpleNamespace) -> Iterator[Question]:
        teacher = world.person(world.find_teacher(index))
        yield Question(person.name, [str(getattr(teacher, name))], (teacher.name,))

    return Kind((name, "teacher"), ask)


def ask_for_person(world: "World", index: int, person: SimpleNamespace) -> Iterator[Question]:
    """Inverse search: who was born there and then. It comes with the first of several people, all of whom one file asks about."""
    born = world.people_born[person.birth_place, person.birth_year]
    if born[0] == index and len({choose_file(i, world.num_people) for i in born}) == 1:
        yield Question(world.language_of.birth_form.format_map(vars(person)), [*map(world.name_person, born)])


def ask_for_parity(world: "World", index: int, person: SimpleNamespace) -> Iterator[Question]:
    """Classification, by what no document says of the year."""
    yield Question(person.name, [world.language_of.parities[person.birth_year % 2]], (person.birth_year,))


def list_compared(world: "World", index: int, person: SimpleNamespace) -> Iterator[SimpleNamespace]:
    """Yield those of the person's companions who were born in other years."""
    for other in map(world.person, world.list_companions(index)):
        if other.birth_year != person.birth_year:
            yield other


def ask_for_older(world: "World", index: int, person: SimpleNamespace) -> Iterator[Question]:
    """Comparison, answered by a name."""
    for other in list_compared(world, index, person):
        older = min(person, other, key=lambda each: each.birth_year)
        yield Question(f"{person.name} or {other.name}", [older.name])


def ask_for_order(world: "World", index: int, person: SimpleNamespace) -> Iterator[Question]:
    """Comparison, answered by yes or no."""
    for other in list_compared(world, index, person):
        years = (person.birth_year, other.birth_year)
        yield Question(f"{person.name} and {other.name}", ["yes" if years[0] < years[1] else "no"], years)


def ask_for_teacher(world: "World", index: int, person: SimpleNamespace) -> Iterator[Question]:
    """A link to another person."""
    yield Question(person.name, [world.name_person(world.find_teacher(index))])


def measure_teachers(world: "World") -> float:
    """Return how many bits a teacher has: any of those who teach, but for the person."""
    share = world.teachers / world.num_people
    return share * math.log2(world.teachers - 1) + (1 - share) * math.log2(world.teachers)


def ask_step_by_step(world: "World", index: int, person: SimpleNamespace) -> Iterator[Question]:
    """Two hops, with an answer that asks for the second in the words in which it is asked for alone (self-ask, arXiv 2210.03350)."""
    teacher = world.person(world.find_teacher(index))
    second = world.language_of.relations["birth year"].ask(teacher.name)
    yield Question(person.name, [f"{teacher.name}: {second} {teacher.birth_year}"])


def ask_for_number(world: "World", index: int, person: SimpleNamespace) -> Iterator[Question]:
    """Counting: how many were born in a place. Each file asks about its share of the places."""
    for place in world.share_out(index, world.number_born):
        yield Question(place, [str(world.number_born[place])])


def ask_for_country(world: "World", index: int, person: SimpleNamespace) -> Iterator[Question]:
    """Where a place lies, which documents of the places tell. Each file asks about its share of the places."""
    for place in world.share_out(index, world.countries):
        yield Question(place, [world.countries[place]])


def ask_for_country_of_birth(world: "World", index: int, person: SimpleNamespace) -> Iterator[Question]:
    """Two hops, from the person's document to that of the place."""
    if person.birth_place in world.countries:
        yield Question(person.name, [world.countries[person.birth_place]])


#: By the names of their relations. A new kind that is worked out needs an entry here, and a wording in `data_scripts/relations.py`. One
#: that documents tell also needs sentences, and a draw in `World`.
QUESTIONS = {
    "birthplace": for_attribute("birth_place", "place"),
    "birth year": for_attribute("birth_year", "year"),
    "profession": for_attribute("profession", "profession"),
    "university": for_attribute("university", "university"),
    "employer": for_attribute("employer", "employer"),
    "place of death": for_attribute("death_place", "place"),
    "teacher": Kind(
        ("teacher",),
        ask_for_teacher,
        True,
        measure_teachers,
        lambda world: (world.name_person(world.number_teacher(i)) for i in range(world.teachers)),
    ),
    "person born": Kind(("birth_place", "birth_year"), ask_for_person),
    "birth year's parity": Kind(("birth_year",), ask_for_parity),
    "born first": Kind(("birth_year",), ask_for_older),
    "born in this order": Kind(("birth_year",), ask_for_order),
    "number born": Kind(("birth_place",), ask_for_number),
    "teacher's birthplace": for_teachers_attribute("birth_place"),
    "teacher's birth year": for_teachers_attribute("birth_year"),
    "teacher's profession": for_teachers_attribute("profession"),
    "teacher and birth year": for_teachers_attribute("birth_year").say_steps(),
    "teacher's birth year, step by step": Kind(("birth_year", "teacher"), ask_step_by_step),
    "birth year and parity": Kind(("birth_year",), ask_for_parity).say_steps(),
    "birth years and order": Kind(("birth_year",), ask_for_order).say_steps(),
    "country": Kind(("birth_place",), ask_for_country, True),
    "country of birth": Kind(("birth_place",), ask_for_country_of_birth),
}
