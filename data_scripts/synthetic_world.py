"""A fictional world: people, their one-sentence biographies and the questions about them, in the form of the real data.

    python -m data_scripts.synthetic_world --output_dir world --num_people 2937 --seed 0

writes `wiki.txt`, `birth_places_train.tsv`, `birth_dev.tsv` and `birth_test_inputs.tsv`: the same bytes for the same
arguments on every machine, at any size, without ever holding more than one person in memory. Places are real cities with
the real data's skew (London is the commonest), so that the baselines mean the same; the people are made up.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, product
from pathlib import Path

from tqdm import tqdm
from transformers import HfArgumentParser

from data_scripts.text_files import BadInput, bad_input_in_one_line, check_is_folder_or_new, written_whole

CORPUS_FILE, TRAIN_FILE, DEV_FILE, TEST_FILE = FILE_NAMES = (
    "wiki.txt",
    "birth_places_train.tsv",
    "birth_dev.tsv",
    "birth_test_inputs.tsv",
)
MIN_PEOPLE, MAX_PEOPLE = 100, 1_000_000
_STRANGERS = 20_000_003  # a seed that nobody gives a world of their own

# fmt: off
PLACES = """London|Paris|Chicago|Vienna|Berlin|Rome|Dublin|Toronto|Boston|Moscow|Budapest|Prague|Glasgow|Sydney|Madrid|
Philadelphia|Edinburgh|Melbourne|Hamburg|Copenhagen|Stockholm|Amsterdam|Milan|Warsaw|Tokyo|Mumbai|Detroit|Montreal|
Los Angeles|Brooklyn|Manchester|Liverpool|Birmingham|Baltimore|Cleveland|Pittsburgh|San Francisco|Buenos Aires|Athens|
Istanbul|Lisbon|Barcelona|Naples|Florence|Venice|Turin|Genoa|Munich|Dresden|Leipzig|Cologne|Frankfurt|Stuttgart|Zurich|
Geneva|Basel|Bern|Brussels|Antwerp|Ghent|Rotterdam|Utrecht|Oslo|Bergen|Helsinki|Riga|Tallinn|Vilnius|Minsk|Kiev|Odessa|
Bucharest|Sofia|Belgrade|Zagreb|Ljubljana|Sarajevo|Bratislava|Krakow|Lviv|Gdansk|Salzburg|Graz|Innsbruck|Lyon|Marseille|
Toulouse|Bordeaux|Nantes|Lille|Strasbourg|Nice|Bristol|Leeds|Sheffield|Newcastle|Cardiff|Swansea|Belfast|Cork|Galway|
Aberdeen|Dundee|Norwich|Oxford|Cambridge|Brighton|Southampton|Portsmouth|Plymouth|Nottingham|Leicester|Coventry|Hull|York|
Bath|Exeter|Seville|Valencia|Granada|Bilbao|Porto|Coimbra|Palermo|Bologna|Verona|Padua|Trieste|Siena|Pisa|Havana|Lima|
Bogota|Caracas|Quito|Santiago|Montevideo|Rosario|Sao Paulo|Rio de Janeiro|Recife|Mexico City|Guadalajara|Monterrey|Houston|
Dallas|Austin|Atlanta|New Orleans|Memphis|Nashville|St. Louis|Kansas City|Denver|Seattle|Portland|Minneapolis|Milwaukee|
Cincinnati|Columbus|Indianapolis|Louisville|Richmond|Charleston|Savannah|Miami|Buffalo|Rochester|Albany|Newark|Hartford|
Vancouver|Winnipeg|Ottawa|Quebec City|Halifax|Calgary|Edmonton|Auckland|Wellington|Christchurch|Dunedin|Brisbane|Perth|
Adelaide|Hobart|Cape Town|Johannesburg|Durban|Pretoria|Nairobi|Lagos|Accra|Cairo|Alexandria|Tunis|Algiers|Casablanca|
Jerusalem|Haifa|Beirut|Damascus|Baghdad|Tehran|Tbilisi|Yerevan|Baku|Tashkent|Kabul|Lahore|Karachi|Delhi|Calcutta|Madras|
Bangalore|Dhaka|Colombo|Rangoon|Bangkok|Hanoi|Manila|Jakarta|Singapore|Hong Kong|Shanghai|Beijing|Taipei|Seoul|Osaka|
Kyoto|Nagoya|Kobe""".replace("\n", "").split("|")

PROFESSIONS = """painter|poet|singer|judge|actor|botanist|chemist|composer|sculptor|pianist|soldier|lawyer|farmer|banker|
physicist|novelist|journalist|architect|engineer|surgeon|historian|linguist|philosopher|mathematician|astronomer|explorer|
photographer|playwright|dancer|violinist|conductor|organist|bishop|rabbi|diplomat|senator|mayor|publisher|printer|
watchmaker|footballer|cricketer|boxer|cyclist|rower|fencer|swimmer|chess player|film director|schoolteacher"""
PROFESSIONS = PROFESSIONS.replace("\n", "").split("|")

MONTHS = ("January February March April May June July August September October November December").split()

# Every first part with every last part; no two pairs spell the same name (a test counts).
_FIRST_NAMES = [start + end for start, end in product(
    "Al Ber Cor Dan El Fen Gar Hal Ir Jor Kel Lor Mar Nor Ol Per Quin Ros Sal Tor Ul Ver Wil Xan Yor Zel".split(),
    "an en ia in is ona or us wen ette ard ina eth olf isa ric une ald ima yne ovan esta".split(),
)]
_LAST_NAMES = [start + end for start, end in product(
    "Ash Black Carl Drum Elling Fair Grey Hart Ings Kings Lang Mor North Oak Pem Rad Stan Thorn Under Wex Brei Chal Dor "
    "Esk Ferr Gol Hux Isen Jar Kov Lind Mal Nor Ott Pall Quill Rosen Sil Tar Ulv Vas Wolf Yar Zim Böck Müll Séra Søren".split(),
    "berg by croft dale ford ham ley man more son ton wood ski ova ini eau sen quist stein ard ell ero ides ko ner "
    "ossi ulin wick yan zak mann feld burg holm strom worth gate bridge field stone".split(),
)]
# fmt: on

# {name} may hold a middle initial. The birthplace stands early, as in
# the real data; other places stand before or after it, so that copying any place is no answer.
_TEMPLATES = (
    "{name} (born {born} in {place}) is {a_profession} .",
    "{name} ({born}, {place} - {died}) was {a_profession} who worked in {other} .",
    "Born in {place}, {last} became {a_profession} and moved to {other} in {year} .",
    "{last} was born in {place} on {born} and studied in {other} .",
    "{name} is {a_profession} from {place} who lives in {other} .",
    "{last} was born on {born} in {place}, the child of {a_profession2} .",
    "A native of {place}, {last} was {a_profession} best known for work done in {year} .",
    "{name} was {a_profession} born in {place} and educated in {other} .",
    "{last} came to {other} as a child, having been born in {place} on {born} .",
    "{name} (b. {place}, {birth_year}) is {a_profession} and {profession2} .",
    "Although born in {place}, {last} spent most of a long life in {other} as {a_profession} .",
    "{name} was {a_profession} . {last} was born in {place} and retired to {other} in {year} .",
    "Trained in {other}, the {profession} {last} was born in {place} in {birth_year} .",
    "Originally from {place}, {last} has been {a_profession} in {other} since {year} .",
    # The vocabulary is the corpus's characters, and every question ends with this sign.
    "{name} ({birth_year}?, {place} - {died}) was {a_profession} .",
)


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

    Args:
        num_people: 100 to 1,000,000. No two people have the same name.
        num_places: How many cities people are born in, 2 to `len(PLACES)`; city number r has weight 1 / (r + 5).
        biographies_per_person: Documents a person, each in other words, 1 to the number of templates.
        seed: What everything follows from.

    Raises:
        BadInput: a number is out of range.
    """

    num_people: int = 2937
    num_places: int = 100
    biographies_per_person: int = 1
    seed: int = 0

    def __post_init__(self):
        for name, low, high in (
            ("num_people", MIN_PEOPLE, MAX_PEOPLE),
            ("num_places", 2, len(PLACES)),
            ("biographies_per_person", 1, len(_TEMPLATES)),
        ):
            if not low <= getattr(self, name) <= high:
                raise BadInput(f"{name} is {getattr(self, name):,}; choose a number from {low:,} to {high:,}.")

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
            corpus, train, dev, test = (stack.enter_context(written_whole(output_dir / name)) for name in FILE_NAMES)
            for index in tqdm(range(self.num_people), desc="Writing people", unit="person", disable=None):
                for document in self.biographies(index):
                    characters += corpus.write(document + "\n")
                person = self.person(index)
                question = f"Where was {person.name} born?"
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
    """How large a world, and where to write it."""

    output_dir: str = field(metadata={"help": "Folder for wiki.txt and the three TSVs."})
    num_people: int = field(default=2937, metadata={"help": f"{MIN_PEOPLE:,} to {MAX_PEOPLE:,} people."})
    num_places: int = field(default=100, metadata={"help": f"How many birthplaces there are, 2 to {len(PLACES)}."})
    biographies_per_person: int = field(default=1, metadata={"help": "Documents a person, each in other words."})
    seed: int = field(default=0, metadata={"help": "Another seed, another world."})
    overwrite: bool = field(default=False, metadata={"help": "Replace files that are already there."})


def main() -> None:
    (arguments,) = HfArgumentParser(WorldArguments).parse_args_into_dataclasses(look_for_args_file=False)
    with bad_input_in_one_line():
        world = World(
            arguments.num_people, arguments.num_places, arguments.biographies_per_person, seed=arguments.seed
        )
        characters = world.write(Path(arguments.output_dir), arguments.overwrite)
    print(f"{world.num_people:,} people, {characters:,} characters of biographies: {arguments.output_dir}")


if __name__ == "__main__":
    main()
