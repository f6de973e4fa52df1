"""A fictional world: people, their biographies and the questions about them, in the form of the real data.

    posgpt world --output_dir world --num_people 2937 --seed 0
    posgpt world --output_dir welt --language german --relations birthplace "birth year" profession

writes `wiki.txt`, `birth_places_train.tsv`, `birth_dev.tsv`, `birth_test_inputs.tsv` and the card `README.md`, with which
`load_dataset` reads the folder: the same bytes for the same arguments on every machine, without ever holding more than one
person in memory. Places are real cities with the real data's skew (London is the commonest), so that the baselines mean the
same; the people are made up, and so are universities and employers.
"""

import csv
import math
import shlex
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, pairwise, product
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

from huggingface_hub import DatasetCard, DatasetCardData
from tqdm import tqdm

from data_scripts.errors import exit_on_bad_input
from data_scripts.files import (
    CARD_FILE,
    CORPUS_FILE,
    DEV_FILE,
    FILE_NAMES,
    TEST_FILE,
    TRAIN_FILE,
    check_none_is_there,
    choose_file,
    describe_lines,
    write_atomically,
    write_lines,
)
from data_scripts.options import OptionParser, Range, check_options, option
from data_scripts.relations import BIRTHPLACE, RELATIONS, Relation, load_relations
from data_scripts.salient_spans import MONTHS

MIN_PEOPLE, MAX_PEOPLE = 100, 1_000_000
# The seed of people who do not exist. All seeds share a language's names, which a world of a million people nearly uses up.
_STRANGERS = 20_000_003
# What may be asked about a person: the attribute of a person that answers it, which `sentences/ATTRIBUTE.txt` tells.
ATTRIBUTES = {
    "birthplace": "birth_place",
    "birth year": "birth_year",
    "profession": "profession",
    "university": "university",
    "employer": "employer",
    "place of death": "death_place",
}
_CARD = """
# A fictional world

{world.num_people:,} people who do not exist, in {language}: documents `Name. text`, and questions about the people in
three splits of different people. The test has no answers. PosGPT writes the same bytes again with:

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
# More would make documents much longer than the 128 characters that most recipes read at once.
_FACTS_PER_DOCUMENT = 2


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

    @cached_property
    def relations(self) -> dict[str, Relation]:
        """What may be asked, by name, as the language asks it."""
        file = self._find_file("relations.yaml")
        return RELATIONS | {relation.name: relation for relation in load_relations(file if file.is_file() else None)}


_GERMAN_MONTHS = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()
LANGUAGES = {
    "english": Language("english", "en"),
    "german": Language("german", "de", date_form="{day}. {month} {year}", months=_GERMAN_MONTHS),
    "chinese": Language(
        "chinese",
        "zh",
        name_form="{first}·{last}",
        full_name_form="{first}·{initial}·{last}",
        date_form="{year}年{month}{day}日",
        months=[f"{month}月" for month in range(1, 13)],
        space="",
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

    def shuffle(self, items: Sequence[str]) -> list[str]:
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
        "How often each person's facts are told, each time in other words.", default=1
    )
    seed: int = option("Determines everything: another seed, another world.", default=0)
    relations: list[str] = option(
        "What is asked. Unless it is the birthplace alone, each answer stands beside another of its kind, and there is"
        " a document for every two facts.",
        default_factory=lambda: [BIRTHPLACE.name],
        choices=list(ATTRIBUTES),
    )
    language: str = option(
        "What the world is told in; all languages tell of the same people.", default="english", choices=list(LANGUAGES)
    )

    def __post_init__(self):
        check_options(self)

    @cached_property
    def _language(self) -> Language:
        return LANGUAGES[self.language]

    @cached_property
    def asked(self) -> dict[str, Relation]:
        """What is asked, by name, as it is asked in the world's language."""
        return {name: self._language.relations[name] for name in ATTRIBUTES if name in self.relations}

    @cached_property
    def _sentences(self) -> dict[str, list[str]]:
        """The wordings of each part of a biography, in a file of that name."""
        # A world of birthplaces stays as it was before there were other relations.
        parts = ["biography"] if list(self.asked) == [BIRTHPLACE.name] else [ATTRIBUTES[name] for name in self.asked]
        return {part: self._language.read_words(f"sentences/{part}") for part in parts}

    @cached_property
    def _choices(self) -> dict[str, _Choices]:
        """What each kind of fact is drawn from."""
        return {
            "place": _Choices(self._language.read_words("places")[: self.num_places]),
            "year": _Choices(range(1600, 1980), skewed=False),
            "profession": _Choices(self._language.read_words("professions"), skewed=False),
            "university": _Choices(self._language.fill_in_names("university")),
            "employer": _Choices(self._language.fill_in_names("employer")),
        }

    def entropy(self) -> dict[str, float]:
        """Return how many bits the answer to each question has, by relation: exactly, for a person drawn at random.

        What is asked of a person is independent, so that these add up.
        """
        kinds = {"birth_place": "place", "death_place": "place", "birth_year": "year"}
        return {name: self._choices[kinds.get(ATTRIBUTES[name], ATTRIBUTES[name])].entropy for name in self.asked}

    @cached_property
    def _name_order(self) -> tuple[int, int]:
        """Multiplier and shift of an affine permutation of all names, so that none repeats and none must be kept."""
        names, draws = math.prod(map(len, self._language.names)), _Draws("names", self.seed)
        multiplier = names // 3 + draws.below(names // 3)
        while math.gcd(multiplier, names) > 1:
            multiplier += 1
        return multiplier, draws.below(names)

    def _draw_date(self, draws: _Draws, year: int) -> str:
        day, month = 1 + draws.below(28), self._language.months[draws.below(12)]
        return self._language.date_form.format(day=day, month=month, year=year)

    def person(self, index: int) -> SimpleNamespace:
        """Return what the world knows of person number `index`, counted from 0; `name` is what questions ask for."""
        draws, more = _Draws("person", self.seed, index), _Draws("more", self.seed, index)
        multiplier, shift = self._name_order
        first_names, last_names = self._language.names
        first, last = divmod((multiplier * index + shift) % (len(first_names) * len(last_names)), len(last_names))
        names = {"first": first_names[first], "last": last_names[last]}
        name = self._language.name_form.format(**names)
        initial = "ABCDEFGHJKLMPRSTW"[draws.below(17)] if draws.below(20) == 0 else ""
        birth_year = self._choices["year"].draw(draws)
        # Each takes its draws in turn; a new fact takes them from `more`, at the end.
        return SimpleNamespace(
            name=name,
            full_name=self._language.full_name_form.format(initial=initial, **names) if initial else name,
            last_name=names["last"],
            birth_year=birth_year,
            birth_place=self._choices["place"].draw(draws),
            birth_date=self._draw_date(draws, birth_year),
            death_year=(death_year := birth_year + 25 + draws.below(20)),
            death_date=self._draw_date(draws, death_year),
            profession=self._choices["profession"].draw(draws),
            death_place=self._choices["place"].draw(more),
            university=self._choices["university"].draw(more),
            employer=self._choices["employer"].draw(more),
        )

    def biographies(self, index: int) -> list[str]:
        """Person number `index`'s documents, `Name. text`; nothing is worded twice as long as there are wordings."""
        person, documents = self.person(index), []
        left: dict[str, list[str]] = {}
        for i in range(self.biographies_per_person):
            parts = _Draws("order", self.seed, index, i).shuffle(list(self._sentences))
            for begin in range(0, len(parts), _FACTS_PER_DOCUMENT):
                sentences: list[str] = []
                for part in parts[begin : begin + _FACTS_PER_DOCUMENT]:
                    left[part] = left.get(part) or list(self._sentences[part])
                    name = person.last_name if sentences else person.full_name
                    sentences.append(self._tell(person, name, left[part], _Draws(part, self.seed, index, i)))
                documents.append(f"{person.name}. {self._language.space.join(sentences)}")
        return documents

    def _tell(self, person: SimpleNamespace, name: str, wordings: list[str], draws: _Draws) -> str:
        """Return a sentence in one of the wordings, which is taken out; `name` is what it calls the person."""
        facts = vars(person) | {"name": name}
        facts["profession2"] = self._choices["profession"].draw(draws)
        wording = wordings.pop(draws.below(len(wordings)))
        # The order of the draws stays: more follow after them.
        facts["other"] = self._choices["place"].draw(draws, but=person.birth_place)
        facts["year"] = person.birth_year + 20 + draws.below(25)
        facts["other_profession"] = self._choices["profession"].draw(draws, but=person.profession)
        facts["elsewhere"] = self._choices["place"].draw(draws, but=person.death_place)
        facts["other_university"] = self._choices["university"].draw(draws, but=person.university)
        facts["other_employer"] = self._choices["employer"].draw(draws, but=person.employer)
        # The English wordings alone use these.
        for noun in ("profession", "profession2", "other_profession"):
            facts[f"a_{noun}"] = f"{'an' if facts[noun][0] in 'aeiou' else 'a'} {facts[noun]}"
        return wording.format(**facts)

    def write(self, output_dir: Path, overwrite: bool = False) -> dict[str, int]:
        """Write the four files and their card into `output_dir`; return the number of lines of each of the four.

        The first 2000/2937 of the people are asked about in training, the next 500/2937 in dev, the others in the test.
        """
        check_none_is_there(output_dir, (*FILE_NAMES, CARD_FILE), overwrite)
        with (
            write_lines(output_dir, FILE_NAMES) as (write_line, lines),
            write_atomically(output_dir / CARD_FILE) as card,
        ):
            for index in tqdm(range(self.num_people), desc="Writing people", unit="person", disable=None):
                for document in self.biographies(index):
                    write_line(CORPUS_FILE, document)
                person = self.person(index)
                file = choose_file(index, self.num_people)
                for name, relation in self.asked.items():
                    answer = "" if file == TEST_FILE else f"\t{getattr(person, ATTRIBUTES[name])}"
                    write_line(file, relation.ask(person.name) + answer)
            card.write(str(self._format_card()))
        return lines

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
            language=self._language.code,
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
        spelled = "".join(world.person(i).name for i in range(100))
        return sum(map(letters.__contains__, spelled)) / len(spelled)

    # English, the first, if no other is nearer.
    return (person.name for person in max(worlds, key=compute_known_share).people())


@dataclass
class WorldArguments:
    """Where to write a world."""

    output_dir: str = option("Folder for wiki.txt, the three TSVs and their card README.md.")
    overwrite: bool = option("Replace files that are already there.", default=False)


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    parser = OptionParser([WorldArguments, World])
    arguments, world = parser.build(parser.read(argv))
    lines = world.write(Path(arguments.output_dir), arguments.overwrite)
    asked = ", ".join(f"{name} ({bits:.3f} bits)" for name, bits in world.entropy().items())
    print(f"{world.num_people:,} people in {world.language}, asked for {asked}.")
    print(describe_lines(arguments.output_dir, lines))


if __name__ == "__main__":
    main()
