"""Build a task like the course's from Wikipedia: one sentence about each person, and questions about their births.

    posgpt build-wikipedia --output_dir people --num_people 2937

reads `wikimedia/wikipedia` from the hub, article by article, until there are enough people, or with `--articles` a local table
with its columns `title` and `text`. It writes `wiki.txt`, `birth_places_train.tsv`, `birth_dev.tsv`, `birth_test_inputs.tsv`
and a datasheet, `README.md`. English only.

An article counts as a biography if its first sentence has years in parentheses or says *born*. The person's document is the
first sentence that says where the person was born; rules for words and punctuation find place and year in it, no model.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Annotated, NamedTuple

import numpy as np
from tqdm import tqdm

from data_scripts.documents import detect_format, open_table, read_cell, read_title
from data_scripts.errors import BadInput
from data_scripts.files import (
    CARD_FILE,
    CORPUS_FILE,
    FILE_NAMES,
    INVISIBLE,
    TEST_FILE,
    UNUSABLE,
    check_none_is_there,
    choose_file,
    describe_lines,
    write_file,
    write_lines,
)
from data_scripts.options import Range, option, parse_options
from data_scripts.relations import BIRTH_YEAR, BIRTHPLACE, RELATIONS, Relation
from data_scripts.salient_spans import find_salient_spans
from data_scripts.titles import split_title

_WIKIPEDIA, _ENGLISH = "wikimedia/wikipedia", "20231101.en"
_LEAD = 20_000  # characters of an article that are read: the birth is told early
_YEAR = re.compile(r"\b(?:1\d{3}|20[0-2]\d)\b")
# Characters after that beginning in which the year of birth stands.
_YEAR_WITHIN = 60
# What may begin the part of a sentence that tells of the birth: `born`, `b.`, a star, or the parenthesis of a life's dates.
_BIRTH = re.compile(r"(?<!-)\b[Bb]orn\b|\bb\. |\*|\((?=[^()]*\b(?:1\d{3}|20[0-2]\d)\b)")
# What ends it: the death, or the end of a parenthesis or clause.
_END = re.compile(r"[;)–—†]|--| - |\bdied\b|\bd\. ")
_PLACE_NOUNS = "village|town|city|suburb|parish|district|region|province|borough|county|community|island"
# What stands right before the place of a birth: a preposition, the date, or the beginning of the parenthesis.
_BEFORE_PLACE = re.compile(
    rf"(?:\b(?:in|at|near)|\b(?:{_PLACE_NOUNS}) of|[\d,])(?: the)? (?P<saint>(?:St|Ft|Mt)\. )?$|\((?:St\. )?$"
)
_LIFE = re.compile(r"\([^()]*\b(?:1\d{3}|20[0-2]\d)\b|\bborn\b", re.I)
_IS = re.compile(r"\b(?:is|was|were)\b")
_DISAMBIGUATION = re.compile(r" \([^()]*\)$")
# A sentence ends at a full stop after which a capital follows, but not at that of an initial or an abbreviation.
_SENTENCE_END = re.compile(
    r"(?<!\b[^\W\d_])(?<!\b(?:St|Dr|Mr|Jr|Sr|Ft|Mt|Lt|ca))(?<!\b(?:Mrs|Rev|Col|Gen|née))[.!?]\s+(?=[\"“(]?[^\W\d_a-z])"
)
# What answers each relation: the field of `Person`.
ANSWERS = {BIRTHPLACE.name: "place", BIRTH_YEAR.name: "year"}
_FEWEST = 10


class Person(NamedTuple):
    """A person of the corpus, whose sentence says where, and as far as `year` is known when, they were born."""

    name: str
    sentence: str
    place: str
    year: str | None


def find_birth(title: str, sentence: str) -> tuple[str, str | None] | None:
    """Find place and year of a birth in a sentence about the person `title`; None: it does not say where.

    The place is the first name, as `find_salient_spans` finds names, that follows `born` or begins or follows the dates of the
    life, and stands after a preposition, a date or a parenthesis; of `born in Derby, England` that is `Derby`.
    """
    names = find_salient_spans(title, sentence, dates=False)
    place = year = None
    for birth in _BIRTH.finditer(sentence):
        end = _END.search(sentence, birth.end())
        stop = end.start() if end else len(sentence)
        # Further on, it is the year of something else.
        year = year or _YEAR.search(sentence, birth.start(), min(stop, birth.end() + _YEAR_WITHIN))
        for start, name_end in names:
            before = _BEFORE_PLACE.search(sentence, 0, start)
            if not place and birth.end() <= start < stop and before and before.start() >= birth.start():
                place = sentence[start - len(before["saint"] or "") : name_end]
    return (place, year[0] if year else None) if place else None


def split_sentences(text: str) -> list[str]:
    """Split a text into its sentences, those of different paragraphs as well."""
    ended = _SENTENCE_END.sub(lambda end: f"{end[0].rstrip()}\n", text)
    return [sentence for sentence in ended.split("\n") if sentence.strip()]


def read_person(title: str, text: str, max_characters: int) -> Person | None:
    """Return the person that an article is about; None: it is no biography, says no birthplace, or not in a document that fits."""
    # The task's files are refused if they hold what nobody sees.
    title, text = (INVISIBLE.sub("", each) for each in (" ".join(title.split()), text[:_LEAD]))
    name, sentences = _DISAMBIGUATION.sub("", title), split_sentences(text)
    if not name or not sentences or not _LIFE.search(sentences[0]) or not _IS.search(sentences[0]):
        return None
    begins = {"He", "She", "Born", *re.findall(r"\w+", name)}
    for sentence in (" ".join(each.split()) for each in sentences):
        # It is about the person if one of its first two words says so.
        is_about = not begins.isdisjoint(re.findall(r"\w+", sentence)[:2])
        if is_about and (birth := find_birth(name, sentence)):
            document = f"{name}. {sentence}"
            # A text file has no other mark between name and sentence than the full stop; with a name like Dr. Dre it is not clear.
            fits = split_title(document)[0] == name and len(document) <= max_characters
            return Person(name, sentence, *birth) if fits and not UNUSABLE.search(document) else None
    return None


@dataclass
class WikipediaArguments:
    """Which articles to read, and what to write."""

    output_dir: str = option(f"Folder for {CORPUS_FILE}, the three TSVs and the datasheet, {CARD_FILE}.")
    articles: str = option(
        "A dataset on the hub, or a table (JSON Lines, CSV, Parquet), with the columns `title` and `text`.",
        default=_WIKIPEDIA,
    )
    dataset_config_name: str | None = option(
        f"The configuration of a dataset on the hub (default: {_ENGLISH} of {_WIKIPEDIA}).", default=None
    )
    num_people: Annotated[int, Range(_FEWEST)] = option(
        "How many people to find; all of them if there are fewer.", default=2937
    )
    max_characters: Annotated[int, Range(1)] = option(
        "The longest document, title included; longer ones are left out.", default=400
    )
    relations: list[str] = option(
        "What is asked, if the sentence says it.", default_factory=lambda: [BIRTHPLACE.name], choices=list(ANSWERS)
    )
    seed: Annotated[int, Range(0)] = option("Determines who is asked about in training, dev and test.", default=0)
    overwrite: bool = option("Replace files that are already there.", default=False)


def write_task(folder: Path, people: list[Person], relations: Sequence[Relation], seed: int) -> dict[str, int]:
    """Write the corpus and the three TSVs; return the number of lines of each.

    As in the course's data, 2000/2937 of the people are asked about in training, 500/2937 in dev, and the others in the test;
    nobody is in two of them. What a person's sentence does not say is not asked.
    """
    order = np.random.default_rng(seed).permutation(len(people)).tolist()
    file_of = {person: choose_file(rank, len(people)) for rank, person in enumerate(order)}
    with write_lines(folder, FILE_NAMES) as (write_line, lines):
        for i, person in enumerate(people):
            write_line(CORPUS_FILE, f"{person.name}. {person.sentence}")
            for relation in relations:
                answer = getattr(person, ANSWERS[relation.name])
                line = relation.ask(person.name) + ("" if file_of[i] == TEST_FILE else f"\t{answer}")
                if answer:
                    write_line(file_of[i], line)
    return lines


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(WikipediaArguments, argv)
    folder = Path(arguments.output_dir)
    check_none_is_there(folder, (*FILE_NAMES, CARD_FILE), arguments.overwrite)
    # As many as are wanted or there are; of several with the same name the first.
    people: dict[str, Person] = {}
    own = _ENGLISH if arguments.articles == _WIKIPEDIA else None
    configuration = arguments.dataset_config_name or own
    articles = open_table(arguments.articles, "articles", configuration)
    with tqdm(total=arguments.num_people, desc="Finding people", unit="person", disable=None) as progress:
        for i, (where, article) in enumerate(articles, start=1):
            if i == 1 and not {"title", "text"} <= article.keys():
                columns = ", ".join(sorted(article))
                raise BadInput(f"{arguments.articles}: has the columns {columns}; articles need `title` and `text`.")
            progress.set_postfix(articles=i, refresh=False)
            title, text = read_title(article.get("title"), where), read_cell(article.get("text"), where)
            person = read_person(title, text, arguments.max_characters)
            if (
                person
                and person.name not in people
                and any(getattr(person, ANSWERS[each]) for each in arguments.relations)
            ):
                people[person.name] = person
                progress.update()
            if len(people) == arguments.num_people:
                break
    if len(people) < _FEWEST:
        raise BadInput(
            f"{arguments.articles}: has {len(people)} people whose birthplace a sentence of at most --max_characters says, too"
            f" few to split; give more articles, at least {_FEWEST} of them about such people."
        )
    relations = [RELATIONS[name] for name in ANSWERS if name in arguments.relations]
    lines = write_task(folder, list(people.values()), relations, arguments.seed)
    # What the datasheet says comes from the options, or is counted.
    source = arguments.articles
    if configuration and detect_format(source) == "hub":
        source += f", {configuration}"
    counts = {
        "people": f"{len(people):,}",
        "places": f"{len({person.place for person in people.values()}):,}",
        "years": f"{sum(person.year is not None for person in people.values()):,}",
        "files": "\n".join(f"| `{name}` | {count:,} |" for name, count in lines.items()),
    }
    template = Template((Path(__file__).parent / "wikipedia_datasheet.md").read_text(encoding="utf-8"))
    asked = ", ".join(arguments.relations)
    write_file(folder / CARD_FILE, template.substitute(vars(arguments) | counts, source=source, relations=asked))
    print(describe_lines(folder, lines))
