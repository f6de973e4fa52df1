"""A fictional world: people, their biographies and the questions about them, in the form of the real data.

    posgpt world --output_dir world --num_people 2937 --seed 0
    posgpt world --output_dir welt --language german --relations birthplace "birth year" profession

writes `wiki.txt`, `birth_places_train.tsv`, `birth_dev.tsv`, `birth_test_inputs.tsv`, the card `README.md`, with which
`load_dataset` reads the folder, `relations.yml` with what is asked, and `other_wordings.yml` with more ways to ask. These are the same
bytes for the same arguments on every machine, without ever holding more than one person in memory, unless questions are about several.
Places are real cities with the real data's skew (London is the commonest), so that the baselines mean the same; the people are made
up, and so are universities, employers and what is told of places.
"""

import csv
import math
import shlex
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, chain, count, cycle, islice, pairwise, product
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import yaml
from huggingface_hub import DatasetCard, DatasetCardData
from tqdm import tqdm

from data_scripts.errors import BadInput
from data_scripts.files import (
    CARD_FILE,
    CORPUS_FILE,
    DEV_FILE,
    FILE_NAMES,
    RELATIONS_FILE,
    TEST_FILE,
    TRAIN_FILE,
    WORDINGS_FILE,
    check_none_is_there,
    choose_file,
    describe_lines,
    load_yaml,
    split_people,
    write_atomically,
    write_file,
    write_lines,
)
from data_scripts.options import OptionParser, Range, check_options, option
from data_scripts.relations import BIRTHPLACE, RELATIONS, Relation, list_entries, load_relations, name_by_wording
from data_scripts.salient_spans import MONTHS
from data_scripts.world_questions import QUESTIONS, Question

MIN_PEOPLE, MAX_PEOPLE = 100, 1_000_000
# The seed of people who do not exist. All seeds share a language's names, which a world of a million people nearly uses up.
_STRANGERS = 20_000_003
# What `sentences/ATTRIBUTE.txt` tells; their order decides what is drawn.
ATTRIBUTES = tuple(dict.fromkeys(chain(*(kind.told for kind in QUESTIONS.values()))))
_CARD = """
# A fictional world

{world.num_people:,} people who do not exist, in {language}: documents `Name. text`, and questions in three splits that
are about different people. The test has no answers. PosGPT writes the same bytes again with:

```
posgpt world {options} --output_dir world
```

```python
from datasets import load_dataset

folder = "."  # this folder, or its name on the hub
documents = load_dataset(folder, "documents", split="train")
questions = load_dataset(folder, "questions")
```
"""
# With fewer places, a file may have none to ask about.
_MIN_PLACES = 20


@dataclass(frozen=True)
class Language:
    """A language that a world is told in: its word lists, sentences and questions, and the forms of its names and dates.

    Line by line, the lists and the sentences of all languages say the same, so the same draws tell of the same people. They
    are in `data_scripts/world/FOLDER`; a list that a language lacks is the English one. `code` is the hub's name for it.
    """

    folder: str
    code: str
    name_form: str = "{first} {last}"
    full_name_form: str = "{first} {initial}. {last}"
    date_form: str = "{day} {month} {year}"
    months: Sequence[str] = tuple(MONTHS)
    space: str = " "
    # What questions are about that are not about one person; and the answers to those about a year.
    birth_form: str = "{birth_place} in {birth_year}"
    parities: tuple[str, str] = ("even", "odd")
    # What is answered about strangers.
    unknown: str = "unknown"
    # Which of `other_wordings` questions are asked in, from 1; 0: as usual.
    wording: int = 0

    def _find_file(self, name: str) -> Path:
        own, english = (Path(__file__).parent / "world" / folder / name for folder in (self.folder, "english"))
        return own if own.is_file() else english

    def read_words(self, name: str) -> list[str]:
        """Read a list, one entry per line."""
        return self._find_file(f"{name}.txt").read_text(encoding="utf-8").splitlines()

    @cached_property
    def names(self) -> tuple[list[str], ...]:
        """First names and last names: every beginning with every end; no two spell the same name (a test counts)."""
        parts = ([f"{kind}_name_starts", f"{kind}_name_ends"] for kind in ("first", "last"))
        return tuple(list(map("".join, product(*map(self.read_words, each)))) for each in parts)

    def fill_in_names(self, kind: str) -> list[str]:
        """Return every kind of institution with every name."""
        return [form.format(name) for form, name in product(*map(self.read_words, (f"{kind}_kinds", f"{kind}_names")))]

    @property
    def relations_file(self) -> Path | None:
        """What may be asked, as `--relations` takes it; None: PosGPT knows the English questions without a file."""
        return None if self.folder == "english" else self._find_file("relations.yaml")

    @cached_property
    def _usual_relations(self) -> dict[str, Relation]:
        file = self.relations_file
        return {relation.name: relation for relation in load_relations(file)} if file else RELATIONS

    @cached_property
    def _all_wordings(self) -> dict[str, list[str]]:
        """All ways to ask for what documents tell, by relation; those that questions are asked in first."""
        others = load_yaml(self._find_file("other_wordings.yaml"), "YAML file of relations")
        usual = self._usual_relations
        wordings = {name: [usual[name].wordings[0], *each["wordings"]] for name, each in others.items()}
        return {name: [own.pop(self.wording), *own] for name, own in wordings.items()}

    @property
    def other_wordings(self) -> dict[str, dict]:
        """More ways to ask for what documents tell, by relation, as `posgpt evaluate --other_wordings` takes them."""
        return {name: {"wordings": own[1:]} for name, own in self._all_wordings.items()}

    @cached_property
    def relations(self) -> dict[str, Relation]:
        """What may be asked, by name, as the language asks it."""
        usual = self._usual_relations
        if not self.wording:
            return usual
        return {name: replace(usual[name], wordings=(own[0],)) for name, own in self._all_wordings.items()}


_GERMAN_MONTHS = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()
LANGUAGES = {
    "english": Language("english", "en"),
    "german": Language(
        "german",
        "de",
        date_form="{day}. {month} {year}",
        months=_GERMAN_MONTHS,
        birth_form="{birth_year} in {birth_place}",
        parities=("gerade", "ungerade"),
        unknown="unbekannt",
    ),
    "chinese": Language(
        "chinese",
        "zh",
        name_form="{first}·{last}",
        full_name_form="{first}·{initial}·{last}",
        date_form="{year}年{month}{day}日",
        months=[f"{month}月" for month in range(1, 13)],
        space="",
        unknown="未知",
    ),
}
PLACES = LANGUAGES["english"].read_words("places")
# The wordings of `sentences/biography.txt` are for worlds that ask for the birthplace alone. It stands early, as in the real
# data; other places stand before or after it, so that copying any place is no answer. In all other sentences the answer
# stands beside another of its kind, as often before as after it. Some contain the question mark: the vocabulary is the
# corpus's characters. {name} may contain a middle initial; from a document's second sentence on, it is the last name.
_NUM_BIOGRAPHIES = len(LANGUAGES["english"].read_words("sentences/biography"))


class _Draws:
    """Random whole numbers that follow from a key alone, on any platform: the digits of a 512-bit digest."""

    def __init__(self, *key: int | str):
        self._digest = int.from_bytes(blake2b("/".join(map(str, key)).encode()).digest(), "big")

    def below(self, limit: int) -> int:
        self._digest, draw = divmod(self._digest, limit)
        return draw

    def shuffle(self, items: Sequence) -> list:
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in items]


class _Choices:
    """Different words to draw from, each with a weight: 1, or for number r, from 1, 1 / (r + 5)."""

    def __init__(self, words: Sequence, skewed: bool = True):
        self.words = words
        weights = (10**9 // (rank + 5) if skewed else 1 for rank in range(1, len(words) + 1))
        bounds = list(accumulate(weights, initial=0))
        # The last stands there twice: without `but`, the gap to jump over is an empty one at the end.
        self._bounds = [*bounds, bounds[-1]]

    @property
    def entropy(self) -> float:
        """In bits."""
        shares = [(end - start) / self._bounds[-1] for start, end in pairwise(self._bounds[:-1])]
        return -math.fsum(share * math.log2(share) for share in shares)

    def draw(self, draws: _Draws, but: str | None = None) -> Any:
        """Draw a word, another one than `but`."""
        i = self.words.index(but) if but else len(self.words)
        start, end = self._bounds[i : i + 2]
        draw = draws.below(self._bounds[-1] - (end - start))
        return self.words[bisect_right(self._bounds, draw if draw < start else draw + end - start) - 1]


@dataclass(frozen=True)
class World:
    """A world; person number i is a function of (seed, i) and these settings."""

    num_people: Annotated[int, Range(MIN_PEOPLE, MAX_PEOPLE)] = option(
        "How many people there are; no two have the same name.", default=2937
    )
    num_places: Annotated[int, Range(2, len(PLACES))] = option(
        "How many cities people are born in; city number r, from 1, has weight 1 / (r + 5).", default=100
    )
    biographies_per_person: Annotated[int, Range(1, _NUM_BIOGRAPHIES)] = option(
        "How many biographies each person has, on average, with frequency up to one more; wordings repeat only when none is left.",
        default=1,
    )
    facts_per_document: Annotated[int, Range(1, len(ATTRIBUTES))] = option(
        "How many facts a document tells; more than two are longer than the 128 characters that most recipes read at once.",
        default=2,
    )
    fixed_order: bool = option(
        "Tell a person's facts in the same order in each biography; people's orders differ.", default=False
    )
    frequency: Annotated[float, Range(0, 2)] = option(
        "How unevenly people are told of (Zipf's law): the share of the r-th most often told person is proportional to 1 / r ** frequency,"
        " in an order drawn by the seed. Everybody is told of once or more, so choose several biographies_per_person.",
        default=0,
    )
    contradictions: Annotated[float, Range(0, 1)] = option(
        "The share of biographies that tell another person's facts as this person's. Answers stay the true ones.",
        default=0,
    )
    num_teachers: Annotated[int, Range(0, MAX_PEOPLE)] = option(
        "How many of the people are teachers; 0: anybody may be.", default=0
    )
    num_compared: Annotated[int, Range(1, 49)] = option(
        "How many others each person is compared with, except those born in the same year; fewer if a file asks about few people.",
        default=3,
    )
    strangers: Annotated[int, Range(0, MAX_PEOPLE)] = option(
        "How many people that no document mentions are asked about in training; the answer is that it is unknown.",
        default=0,
    )
    seed: int = option("Determines everything: another seed, another world.", default=0)
    disjoint_names: bool = option(
        "Share no names with worlds of other seeds that have the same number of people and this option. There are names for a limited number of seeds.",
        default=False,
    )
    relations: list[str] = option(
        "What is asked. Unless it is the birthplace alone, documents tell each fact beside another of its kind. Some"
        " answers have to be worked out from several facts.",
        default_factory=lambda: [BIRTHPLACE.name],
        choices=list(QUESTIONS),
    )
    language: str = option(
        "What the world is told in; all languages tell of the same people.", default="english", choices=list(LANGUAGES)
    )
    wording: Annotated[int, Range(0, 3)] = option(
        f"The wording of the questions: the usual one, or one of the three of {WORDINGS_FILE}. In English, those of 2 begin with the name.",
        default=0,
    )

    def __post_init__(self):
        check_options(self)
        if isinstance(self.relations, str) or not self.relations:
            raise BadInput(f"relations is {self.relations!r}; give a list of at least one.")
        if lacking := [name for name in self.relations if name not in self.language_of.relations]:
            known = ", ".join(map(repr, self.language_of.relations))
            in_wording = f" in wording {self.wording}" if self.wording else ""
            raise BadInput(
                f"relations is {self.relations}: {self.language} has no {lacking[0]!r}{in_wording}; choose from {known}."
            )
        named, names = self.num_people + self.strangers, self._count_names()
        if named > names:
            raise BadInput(
                f"strangers is {self.strangers}; {self.language} has {names:,} names; choose at most {names - self.num_people:,}."
            )
        num_worlds = names // named
        if self.disjoint_names and not 0 <= self.seed < num_worlds:
            raise BadInput(
                f"seed is {self.seed}; there are names for {num_worlds:,} worlds of {named:,} people with"
                f" disjoint_names; choose 0 to {num_worlds - 1:,}."
            )
        if self.strangers and not self.entropy():
            raise BadInput(
                f"strangers is {self.strangers}; they are asked what documents tell of people, so add such a relation: {BIRTHPLACE.name}."
            )
        if self.fixed_order and min(len(self._sentences), self.facts_per_document) == 1:
            raise BadInput(
                "fixed_order is True; documents tell one fact each; choose more relations or facts_per_document, or leave it out."
            )
        if self.num_teachers and not 3 <= self.num_teachers <= self.num_people:
            raise BadInput(f"num_teachers is {self.num_teachers}; choose 0, or 3 to {self.num_people:,}, the people.")
        if {"number born", "country"}.intersection(self.relations) and self.num_places < _MIN_PLACES:
            raise BadInput(
                f"num_places is {self.num_places}; choose at least {_MIN_PLACES}, so that each file asks about some."
            )

    @cached_property
    def language_of(self) -> Language:
        """What the world is told in."""
        language = LANGUAGES[self.language]
        # Worlds share the lists that a language has read.
        return replace(language, wording=self.wording) if self.wording else language

    @cached_property
    def asked(self) -> dict[str, Relation]:
        """What is asked, by name, as it is asked in the world's language."""
        return {name: self.language_of.relations[name] for name in QUESTIONS if name in self.relations}

    @cached_property
    def _sentences(self) -> dict[str, list[str]]:
        """The wordings of each part of a biography, in a file of that name."""
        told = set(chain(*(QUESTIONS[name].told for name in self.asked)))
        # A world of birthplaces stays as it was before there were other relations.
        parts = ["biography"] if [*self.asked] == [BIRTHPLACE.name] else sorted(told, key=ATTRIBUTES.index)
        return {part: self.language_of.read_words(f"sentences/{part}") for part in parts}

    @cached_property
    def choices(self) -> dict[str, _Choices]:
        """What each kind of fact is drawn from."""
        return {
            "place": _Choices(self.language_of.read_words("places")[: self.num_places]),
            "year": _Choices(range(1600, 1980), skewed=False),
            "profession": _Choices(self.language_of.read_words("professions"), skewed=False),
            "university": _Choices(self.language_of.fill_in_names("university")),
            "employer": _Choices(self.language_of.fill_in_names("employer")),
        }

    def entropy(self) -> dict[str, float]:
        """Return how many bits the answer to each question has, by relation: exactly, for a person drawn at random.

        What documents tell of a person is independent, so that these add up; what has to be worked out from them has no bits of its
        own.
        """
        kinds = ((name, QUESTIONS[name]) for name in self.asked)
        return {name: kind.entropy(self) for name, kind in kinds if kind.entropy is not None}

    def _count_names(self) -> int:
        return math.prod(map(len, self.language_of.names))

    @cached_property
    def _name_order(self) -> tuple[int, int]:
        """Multiplier and shift of an affine permutation of all names, so that none repeats and none must be kept."""
        names, draws = self._count_names(), _Draws("names", 0 if self.disjoint_names else self.seed)
        multiplier = names // 3 + draws.below(names // 3)
        while math.gcd(multiplier, names) > 1:
            multiplier += 1
        return multiplier, draws.below(names)

    def _draw_date(self, draws: _Draws, year: int) -> str:
        day, month = 1 + draws.below(28), self.language_of.months[draws.below(12)]
        return self.language_of.date_form.format(day=day, month=month, year=year)

    def _draw_name(self, index: int) -> dict[str, str]:
        """Return the first and the last name of person number `index`, counted from 0; strangers come after the people."""
        multiplier, shift = self._name_order
        if self.disjoint_names:
            index += self.seed * (self.num_people + self.strangers)
        first_names, last_names = self.language_of.names
        first, last = divmod((multiplier * index + shift) % (len(first_names) * len(last_names)), len(last_names))
        return {"first": first_names[first], "last": last_names[last]}

    def name_person(self, index: int) -> str:
        """Return what questions call person number `index`."""
        return self.language_of.name_form.format(**self._draw_name(index))

    def find_teacher(self, index: int) -> int:
        """Return the number of the teacher of person number `index`, another of those who teach."""
        draws, own = _Draws("teacher", self.seed, index), -(-index * self.teachers // self.num_people)
        if self.number_teacher(own) == index:
            return self.number_teacher((own + 1 + draws.below(self.teachers - 1)) % self.teachers)
        return self.number_teacher(draws.below(self.teachers))

    @property
    def teachers(self) -> int:
        """How many people may be somebody's teacher."""
        return self.num_teachers or self.num_people

    def number_teacher(self, teacher: int) -> int:
        """Return the number of a person who teaches, from 0 to `teachers` - 1: they are spread evenly over the people."""
        return teacher * self.num_people // self.teachers

    def list_companions(self, index: int) -> list[int]:
        """Return the numbers of `num_compared` others whom the same file asks about. No two people are each other's companions."""
        file = choose_file(index, self.num_people)
        people = split_people(self.num_people)[file]
        # As many places further on in the file, for all of its people.
        steps = _Draws("companions", self.seed, file).shuffle(range(1, min((len(people) + 1) // 2, 50)))
        return [people[(index - people[0] + step) % len(people)] for step in steps[: self.num_compared]]

    @cached_property
    def people_born(self) -> dict[tuple[str, int], list[int]]:
        """The numbers of the people who were born in each place and year."""
        born: dict[tuple[str, int], list[int]] = {}
        for index, person in enumerate(self.people()):
            born.setdefault((person.birth_place, person.birth_year), []).append(index)
        return born

    @cached_property
    def number_born(self) -> dict[str, int]:
        """How many were born in each place with any."""
        counts = Counter(place for (place, _), people in self.people_born.items() for _ in people)
        return {place: counts[place] for place in self._places if counts[place]}

    @cached_property
    def _places(self) -> list[str]:
        """All places, in an order that tells nothing."""
        return sorted(self.choices["place"].words, key=lambda place: _Draws("place", self.seed, place).below(10**9))

    @cached_property
    def countries(self) -> dict[str, str]:
        """In which country each place lies. Left out are places whose name says it, and `St. Louis`, whose documents' title would be `St`."""
        found = dict(zip(*map(self.language_of.read_words, ("places", "countries")), strict=True))
        return {place: found[place] for place in self._places if ". " not in place and found[place] not in place}

    def share_out(self, index: int, items: Collection[str]) -> Iterable[str]:
        """Return which items come with person number `index`: one after the other, each comes with one person."""
        first, end = (-(-i * len(items) // self.num_people) for i in (index, index + 1))
        return islice(items, first, end)

    def describe_places(self) -> Iterator[str]:
        """Yield `biographies_per_person` documents of each place, `Place. text`; none if nothing asked needs them."""
        if not {"country", "country of birth"}.intersection(self.asked):
            return
        wordings = self.language_of.read_words("sentences/country")
        countries = dict.fromkeys(self.countries.values())
        for place, country in self.countries.items():
            others = [each for each in countries if each != country]
            told = cycle(_Draws("country", self.seed, place).shuffle(wordings))
            for i, wording in enumerate(islice(told, self.biographies_per_person)):
                other = others[_Draws("other country", self.seed, place, i).below(len(others))]
                yield f"{place}. {wording.format(name=place, country=country, other_country=other)}"

    def person(self, index: int) -> SimpleNamespace:
        """Return what the world knows of person number `index`, counted from 0; `name` is what questions ask for."""
        draws, more = _Draws("person", self.seed, index), _Draws("more", self.seed, index)
        names = self._draw_name(index)
        name = self.language_of.name_form.format(**names)
        initial = "ABCDEFGHJKLMPRSTW"[draws.below(17)] if draws.below(20) == 0 else ""
        birth_year = self.choices["year"].draw(draws)
        # Each takes its draws in turn; a new fact takes them from `more`, at the end.
        return SimpleNamespace(
            name=name,
            full_name=self.language_of.full_name_form.format(initial=initial, **names) if initial else name,
            last_name=names["last"],
            birth_year=birth_year,
            birth_place=self.choices["place"].draw(draws),
            birth_date=self._draw_date(draws, birth_year),
            death_year=(death_year := birth_year + 25 + draws.below(20)),
            death_date=self._draw_date(draws, death_year),
            profession=self.choices["profession"].draw(draws),
            death_place=self.choices["place"].draw(more),
            university=self.choices["university"].draw(more),
            employer=self.choices["employer"].draw(more),
        )

    @cached_property
    def _shares_told(self) -> dict[int, float]:
        """The share of all biographies that each person has, the largest first."""
        order = sorted(range(self.num_people), key=lambda index: _Draws("rank", self.seed, index).below(10**18))
        weights = {index: rank**-self.frequency for rank, index in enumerate(order, 1)}
        total = math.fsum(weights.values())
        return {index: weight / total for index, weight in weights.items()}

    def count_biographies(self, index: int) -> int:
        """Return how often the facts of person number `index` are told."""
        if not self.frequency:
            return self.biographies_per_person
        return max(round(self._shares_told[index] * self.num_people * self.biographies_per_person), 1)

    def count_told(self, index: int) -> int:
        """Return how many biographies of person number `index` tell what is true of this person."""
        return sum(self._find_told(index, number) == index for number in range(self.count_biographies(index)))

    def _find_told(self, index: int, number: int) -> int:
        """Return the number of the person whose facts a biography of person number `index` tells."""
        draws = _Draws("contradiction", self.seed, index, number)
        if draws.below(10**9) >= self.contradictions * 10**9:
            return index
        others = ((index + 1 + draws.below(self.num_people - 1)) % self.num_people for _ in count())
        # Nobody is said to have taught themselves.
        return next(other for other in others if self.find_teacher(other) != index)

    def _order_parts(self, index: int, number: int) -> list[str]:
        """Return the parts of a biography of person number `index` in the order in which it tells them."""
        return _Draws("order", self.seed, index, 0 if self.fixed_order else number).shuffle(list(self._sentences))

    def find_sentence(self, index: int, attribute: str) -> int:
        """Return which sentence, from 1, of documents about person number `index` tells an attribute, in a world with `fixed_order`."""
        return self._order_parts(index, 0).index(attribute) % self.facts_per_document + 1

    def biographies(self, index: int) -> list[str]:
        """Person number `index`'s documents, `Name. text`; nothing is worded twice as long as there are wordings."""
        own, documents = self.person(index), []
        left: dict[str, list[str]] = {}
        for i in range(self.count_biographies(index)):
            person, told = own, self._find_told(index, i)
            if told != index:
                names = {key: value for key, value in vars(own).items() if key.endswith("name")}
                person = SimpleNamespace(**vars(self.person(told)) | names)
            parts = self._order_parts(index, i)
            for begin in range(0, len(parts), self.facts_per_document):
                sentences: list[str] = []
                for part in parts[begin : begin + self.facts_per_document]:
                    left[part] = left.get(part) or list(self._sentences[part])
                    name = person.last_name if sentences else person.full_name
                    sentences.append(self._tell(told, person, name, left[part], _Draws(part, self.seed, index, i)))
                documents.append(f"{person.name}. {self.language_of.space.join(sentences)}")
        return documents

    def _tell(self, index: int, person: SimpleNamespace, name: str, wordings: list[str], draws: _Draws) -> str:
        """Return a sentence in one of the wordings, which is taken out, of what is true of person number `index`; `name` is what it calls
        the person.
        """
        facts = vars(person) | {"name": name}
        facts["profession2"] = self.choices["profession"].draw(draws)
        wording = wordings.pop(draws.below(len(wordings)))
        # The order of the draws stays: more follow after them.
        facts["other"] = self.choices["place"].draw(draws, but=person.birth_place)
        facts["year"] = person.birth_year + 20 + draws.below(25)
        facts["other_profession"] = self.choices["profession"].draw(draws, but=person.profession)
        facts["elsewhere"] = self.choices["place"].draw(draws, but=person.death_place)
        facts["other_university"] = self.choices["university"].draw(draws, but=person.university)
        facts["other_employer"] = self.choices["employer"].draw(draws, but=person.employer)
        if "{teacher}" in wording:
            teacher = self.find_teacher(index)
            others = (self.number_teacher(draws.below(self.teachers)) for _ in count())
            facts["teacher"] = self.name_person(teacher)
            facts["other_teacher"] = self.name_person(next(i for i in others if i not in (index, teacher)))
        # The English wordings alone use these.
        for noun in ("profession", "profession2", "other_profession"):
            facts[f"a_{noun}"] = f"{'an' if facts[noun][0] in 'aeiou' else 'a'} {facts[noun]}"
        return wording.format(**facts)

    def questions(self, index: int) -> Iterator[tuple[str, list[str]]]:
        """Yield each question that comes with person number `index`, and its answers, each of which is correct."""
        for relation, question in self._ask(index):
            yield relation.ask(question.title), question.answers

    def _ask(self, index: int) -> Iterator[tuple[Relation, Question]]:
        person = self.person(index)
        for name, relation in self.asked.items():
            for question in QUESTIONS[name].ask(self, index, person):
                yield relation, question

    def number_titles(self, file: str) -> dict[str, int]:
        """Return what the questions of a file are about, each with the number of the person whom it comes with."""
        people = split_people(self.num_people)[file]
        return {question.title: index for index in people for _, question in self._ask(index)}

    def ask_strangers(self) -> Iterator[tuple[str, str]]:
        """Yield each training question about a stranger, and that the answer is unknown."""
        for index, name in product(range(self.num_people, self.num_people + self.strangers), self.entropy()):
            yield self.asked[name].ask(self.name_person(index)), self.language_of.unknown

    def write(self, output_dir: str | Path, overwrite: bool = False) -> dict[str, int]:
        """Write the four files, their card, relations and, if there are some, other wordings; return the number of lines of each of the four.

        The first 2000/2937 of the people are asked about in training, the next 500/2937 in dev, the others in the test.
        """
        output_dir = Path(output_dir)
        check_none_is_there(output_dir, (*FILE_NAMES, CARD_FILE, RELATIONS_FILE, WORDINGS_FILE), overwrite)
        with (
            write_lines(output_dir, FILE_NAMES) as (write_line, lines),
            write_atomically(output_dir / CARD_FILE) as card,
        ):
            for index in tqdm(range(self.num_people), desc="Writing people", unit="person", disable=None):
                for document in self.biographies(index):
                    write_line(CORPUS_FILE, document)
                file = choose_file(index, self.num_people)
                for question, answers in self.questions(index):
                    for line in [question] if file == TEST_FILE else (f"{question}\t{answer}" for answer in answers):
                        write_line(file, line)
            for question, answer in self.ask_strangers():
                write_line(TRAIN_FILE, f"{question}\t{answer}")
            for document in self.describe_places():
                write_line(CORPUS_FILE, document)
            if empty := [file for file, count in lines.items() if not count]:
                raise BadInput(
                    f"{output_dir / empty[0]}: would ask nothing; choose more --relations or --num_places, or fewer --num_people."
                )
            card.write(str(self._format_card()))
        write_file(output_dir / RELATIONS_FILE, self.format_relations())
        known = self.language_of.other_wordings
        # As models call them that were trained without --relations.
        asked = {
            name if relation in RELATIONS.values() else name_by_wording(relation.wordings[0]): known[name]
            for name, relation in self.asked.items()
            if name in known
        }
        wordings_file = output_dir / WORDINGS_FILE
        if asked:
            write_file(wordings_file, yaml.safe_dump(asked, allow_unicode=True, sort_keys=False, width=200))
        else:
            wordings_file.unlink(missing_ok=True)
        return lines

    def format_relations(self) -> str:
        """Return what is asked as a YAML file of relations."""
        return yaml.safe_dump(list_entries(self.asked.values()), allow_unicode=True, sort_keys=False)

    def _format_card(self) -> DatasetCard:
        """Return the card of the four files as a dataset: `load_dataset` reads them by what it says."""
        configs, features = [], []
        questions = {"train": TRAIN_FILE, "validation": DEV_FILE, "test": TEST_FILE}
        for name, columns, files in (
            ("questions", ["question", "answer"], questions),
            ("documents", ["text"], {"train": CORPUS_FILE}),
        ):
            data_files = [{"split": split, "path": path} for split, path in files.items()]
            settings = {"config_name": name, "default": name == "documents", "names": columns}
            # One builder reads all files: that of the first. A document has no tab.
            configs.append(settings | {"sep": "\t", "quoting": csv.QUOTE_NONE, "data_files": data_files})
            # Without it, answers that are years would be numbers.
            texts = [{"name": column, "dtype": "string"} for column in columns]
            features.append({"config_name": name, "features": texts})
        data = DatasetCardData(
            license="apache-2.0",
            language=self.language_of.code,
            task_categories=["question-answering", "text-generation"],
            tags=["posgpt", "synthetic"],
            configs=configs,
            dataset_info=features,
        )
        given = {name: value if isinstance(value, list) else [value] for name, value in asdict(self).items()}
        options = " ".join(f"--{name} {shlex.join(map(str, values))}" for name, values in given.items())
        text = _CARD.format(world=self, language=self.language.title(), options=options)
        return DatasetCard(f"---\n{data.to_yaml()}\n---\n{text}")

    def people(self) -> Iterator[SimpleNamespace]:
        """All people in order."""
        return map(self.person, range(self.num_people))


def fictional_names(titles: Iterable[str] = ()) -> Iterator[str]:
    """Names of people who do not exist, each once, always in the same order.

    They are of the language whose names are spelled most like `titles`, so that no strange letter tells a model that it
    cannot know them.
    """
    letters = set().union(*titles)
    worlds = [World(MAX_PEOPLE, seed=_STRANGERS, language=language) for language in LANGUAGES]

    def compute_known_share(world: World) -> float:
        spelled = "".join(map(world.name_person, range(100)))
        return sum(map(letters.__contains__, spelled)) / len(spelled)

    # English, the first, if no other is nearer.
    yield from map(max(worlds, key=compute_known_share).name_person, range(MAX_PEOPLE))


@dataclass
class WorldArguments:
    """Where to write a world."""

    output_dir: str = option(
        f"Folder for {', '.join(FILE_NAMES)}, their card {CARD_FILE}, {RELATIONS_FILE} and {WORDINGS_FILE}."
    )
    overwrite: bool = option("Replace files that are already there.", default=False)


def main(argv: list[str] | None = None) -> None:
    parser = OptionParser([WorldArguments, World])
    arguments, world = parser.build(parser.read(argv))
    lines = world.write(Path(arguments.output_dir), arguments.overwrite)
    bits = world.entropy()
    asked = ", ".join(f"{name} ({bits[name]:.3f} bits)" if name in bits else name for name in world.asked)
    print(f"{world.num_people:,} people in {world.language}, asked for {asked}.")
    print(describe_lines(arguments.output_dir, lines))
