"""A fictional world: people, their one-sentence biographies and the questions about them, in the form of the real data.

    posgpt world --output_dir world --num_people 2937 --seed 0

writes `wiki.txt`, `birth_places_train.tsv`, `birth_dev.tsv` and `birth_test_inputs.tsv`: the same bytes for the same
arguments on every machine, at any size, without ever holding more than one person in memory. Places are real cities with
the real data's skew (London is the commonest), so that the baselines mean the same; the people are made up.
"""

import math
import sys
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from importlib.resources import files
from itertools import accumulate, product
from pathlib import Path
from typing import Annotated

from tqdm import tqdm

from data_scripts.documents import MONTHS
from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.files import check_is_folder_or_new, write_atomically
from data_scripts.options import OptionParser, Range, check_options, option
from data_scripts.relations import BIRTHPLACE

CORPUS_FILE, TRAIN_FILE, DEV_FILE, TEST_FILE = FILE_NAMES = (
    "wiki.txt",
    "birth_places_train.tsv",
    "birth_dev.tsv",
    "birth_test_inputs.tsv",
)
MIN_PEOPLE, MAX_PEOPLE = 100, 1_000_000
_STRANGERS = 20_000_003  # a seed unlikely to be given to a world


def _read_words(name: str) -> list[str]:
    """Read one of the word lists beside this file, one entry per line."""
    return (files("data_scripts") / "world" / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def _combine(kind: str) -> list[str]:
    """Return every first part of a name with every last part; no two pairs spell the same name (a test counts)."""
    return ["".join(parts) for parts in product(_read_words(f"{kind}_name_starts"), _read_words(f"{kind}_name_ends"))]


PLACES, PROFESSIONS = _read_words("places"), _read_words("professions")
_FIRST_NAMES, _LAST_NAMES = _combine("first"), _combine("last")
# {name} may contain a middle initial. The birthplace stands early, as in the real data; other places stand before or after
# it, so that copying any place is no answer. One contains the question mark: the vocabulary is the corpus's characters.
_TEMPLATES = _read_words("biographies")


class _Draws:
    """Random whole numbers that follow from a key alone, on any platform: the digits of a 512-bit digest."""

    def __init__(self, *key: int | str):
        self._digest = int.from_bytes(blake2b("/".join(map(str, key)).encode()).digest(), "big")

    def below(self, limit: int) -> int:
        self._digest, draw = divmod(self._digest, limit)
        return draw

    def date(self, year: int) -> str:
        return f"{1 + self.below(28)} {MONTHS[self.below(12)]} {year}"


@dataclass(frozen=True)
class Person:
    """What the world knows of one person; `name` is what questions ask for."""

    name: str
    full_name: str
    birth_place: str
    birth_date: str
    death_date: str
    profession: str


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


@dataclass(frozen=True)
class World:
    """A world; person number i is a function of (seed, i) and these settings.

    Raises:
        BadInput: a number is out of range.
    """

    num_people: Annotated[int, Range(MIN_PEOPLE, MAX_PEOPLE)] = option(
        "How many people there are; no two have the same name.", default=2937
    )
    num_places: Annotated[int, Range(2, len(PLACES))] = option(
        "How many cities people are born in; city number r, from 1, has weight 1 / (r + 5).", default=100
    )
    biographies_per_person: Annotated[int, Range(1, len(_TEMPLATES))] = option(
        "Documents per person, each worded differently.", default=1
    )
    seed: int = option("Determines everything: another seed, another world.", default=0)

    def __post_init__(self):
        check_options(self)

    @cached_property
    def _place_bounds(self) -> list[int]:
        return list(accumulate(10**9 // (rank + 5) for rank in range(1, self.num_places + 1)))

    @cached_property
    def _name_order(self) -> tuple[int, int]:
        """Multiplier and shift of an affine permutation of all names, so that none repeats and none must be kept."""
        names, draws = len(_FIRST_NAMES) * len(_LAST_NAMES), _Draws("names", self.seed)
        multiplier = names // 3 + draws.below(names // 3)
        while math.gcd(multiplier, names) > 1:
            multiplier += 1
        return multiplier, draws.below(names)

    def _birth_place(self, draws: _Draws) -> str:
        return PLACES[bisect_right(self._place_bounds, draws.below(self._place_bounds[-1]))]

    def _other_place(self, draws: _Draws, place: str) -> str:
        bounds, number = [0, *self._place_bounds], PLACES.index(place)
        weight = bounds[number + 1] - bounds[number]
        draw = draws.below(bounds[-1] - weight)
        return PLACES[bisect_right(self._place_bounds, draw if draw < bounds[number] else draw + weight)]

    def person(self, index: int) -> Person:
        """Person number `index`, counted from 0."""
        draws = _Draws("person", self.seed, index)
        multiplier, shift = self._name_order
        number = (multiplier * index + shift) % (len(_FIRST_NAMES) * len(_LAST_NAMES))
        first, last = _FIRST_NAMES[number // len(_LAST_NAMES)], _LAST_NAMES[number % len(_LAST_NAMES)]
        name = f"{first} {last}"
        initial = f" {'ABCDEFGHJKLMPRSTW'[draws.below(17)]}." if draws.below(20) == 0 else ""
        birth_year = 1600 + draws.below(380)
        return Person(
            name=name,
            full_name=f"{first}{initial} {last}",
            birth_place=self._birth_place(draws),
            birth_date=draws.date(birth_year),
            death_date=draws.date(birth_year + 25 + draws.below(20)),
            profession=PROFESSIONS[draws.below(len(PROFESSIONS))],
        )

    def biographies(self, index: int) -> list[str]:
        """Person number `index`'s documents, `Name. text`, each from another template."""
        person = self.person(index)
        birth_year = int(person.birth_date.split()[-1])
        templates, documents = list(_TEMPLATES), []
        for number in range(self.biographies_per_person):
            draws = _Draws("biography", self.seed, index, number)
            profession2 = PROFESSIONS[draws.below(len(PROFESSIONS))]
            text = templates.pop(draws.below(len(templates))).format(
                name=person.full_name,
                last=person.name.split()[-1],
                place=person.birth_place,
                other=self._other_place(draws, person.birth_place),
                born=person.birth_date,
                died=person.death_date,
                birth_year=birth_year,
                year=birth_year + 20 + draws.below(25),
                profession=person.profession,
                profession2=profession2,
                a_profession=_with_article(person.profession),
                a_profession2=_with_article(profession2),
            )
            documents.append(f"{person.name}. {text}")
        return documents

    def write(self, output_dir: Path, overwrite: bool = False) -> int:
        """Write the four files into `output_dir`; return the number of characters in the corpus.

        The first 2000/2937 of the people are asked about in training, the next 500/2937 in dev, the others in the test.

        Raises:
            BadInput: one of the files is already there and `overwrite` is False, or `output_dir` is a file.
        """
        check_is_folder_or_new(output_dir)
        there = [name for name in FILE_NAMES if (output_dir / name).exists()]
        if there and not overwrite:
            raise BadInput(f"{output_dir / there[0]}: already there; give another --output_dir, or --overwrite.")
        train_end = round(self.num_people * 2000 / 2937)
        dev_end = train_end + round(self.num_people * 500 / 2937)
        characters = 0
        with ExitStack() as stack:
            corpus, train, dev, test = (
                stack.enter_context(write_atomically(output_dir / name)) for name in FILE_NAMES
            )
            for index in tqdm(range(self.num_people), desc="Writing people", unit="person", disable=None):
                for document in self.biographies(index):
                    characters += corpus.write(document + "\n")
                person = self.person(index)
                question = BIRTHPLACE.ask(person.name)
                if index < dev_end:
                    (train if index < train_end else dev).write(f"{question}\t{person.birth_place}\n")
                else:
                    test.write(question + "\n")
        return characters

    def people(self) -> Iterator[Person]:
        """All people in order."""
        return map(self.person, range(self.num_people))


def fictional_names() -> Iterator[str]:
    """Names of people who do not exist, each once, always in the same order."""
    return (person.name for person in World(MAX_PEOPLE, seed=_STRANGERS).people())


@dataclass
class WorldArguments:
    """Where to write a world."""

    output_dir: str = option("Folder for wiki.txt and the three TSVs.")
    overwrite: bool = option("Replace files that are already there.", default=False)


@exit_on_bad_input()
def main() -> None:
    arguments, world = OptionParser([WorldArguments, World]).parse(sys.argv[1:])
    characters = world.write(Path(arguments.output_dir), arguments.overwrite)
    print(f"{world.num_people:,} people, {characters:,} characters of biographies: {arguments.output_dir}")


if __name__ == "__main__":
    main()
