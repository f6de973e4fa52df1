import hashlib
import math
import re
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from data_scripts import synthetic_world
from data_scripts.documents import load_corpus
from data_scripts.errors import BadInput
from data_scripts.files import DEV_FILE, FILE_NAMES, TRAIN_FILE, choose_file
from data_scripts.questions import load_questions
from data_scripts.relations import RELATIONS, find_relation, load_relations, recognize_relations
from data_scripts.salient_spans import find_salient_spans
from data_scripts.synthetic_world import LANGUAGES, PLACES, World
from data_scripts.titles import split_title
from data_scripts.world_questions import QUESTIONS

# All that is known of a person and told in every language; and all that a language asks.
ATTRIBUTE_OF = {name: kind.told[0] for name, kind in QUESTIONS.items() if kind.entropy and name != "teacher"}
ALL = list(ATTRIBUTE_OF)
ASKED = {language: [name for name in QUESTIONS if name in LANGUAGES[language].relations] for language in LANGUAGES}


def contents(folder):
    return {name: (folder / name).read_bytes() for name in FILE_NAMES}


def test_a_person_stays_the_same_in_a_larger_world_and_is_another_with_another_seed():
    assert list(World(num_people=100).people()) == list(World(num_people=5000).people())[:100]
    assert World(num_people=100).person(0) != World(num_people=100, seed=1).person(0)
    largest = World(num_people=1_000_000)
    assert len({largest.person(index).name for index in (0, 1, 999_998, 999_999)}) == 4


def test_worlds_with_disjoint_names_share_none():
    worlds = [World(num_people=1000, seed=seed, disjoint_names=True) for seed in range(3)]
    assert len({world.name_person(index) for world in worlds for index in range(1000)}) == 3000
    # The others do, and so do worlds of another size.
    shared = {World(seed=0).name_person(i) for i in range(2937)} & {World(seed=1).name_person(i) for i in range(2937)}
    assert shared and {worlds[1].name_person(i) for i in range(1000)} & {
        World(num_people=1500, seed=1, disjoint_names=True).name_person(i) for i in range(1500)
    }


def test_how_often_people_are_told_of_follows_zipfs_law(tmp_path):
    world = World(num_people=1000, biographies_per_person=3, frequency=0.8)
    told = [world.count_biographies(index) for index in range(1000)]
    # By the harmonic numbers: 3,000 / sum(r ** -0.8) is 185 for the first, and a tenth of it comes after the rank of 10 ** (1 / 0.8).
    ordered = sorted(told, reverse=True)
    assert ordered[0] == round(3000 / sum(r**-0.8 for r in range(1, 1001))) and ordered[-1] == 1
    assert ordered[17] == pytest.approx(ordered[0] / 10, abs=1) and 2900 < sum(told) < 3300
    # The files ask about frequent and rare people alike.
    assert 2 < sum(told[680:850]) / 170 < 5 and told.index(ordered[0]) != 0
    world = World(num_people=100, frequency=1, relations=["birthplace", "birth year"])
    world.write(tmp_path)
    titles = Counter(line.split(". ")[0] for line in (tmp_path / "wiki.txt").read_text().splitlines())
    assert [titles[world.name_person(i)] for i in range(100)] == [world.count_biographies(i) for i in range(100)]


def test_documents_tell_several_facts_in_an_order_of_each_persons_own():
    options = {"num_people": 100, "biographies_per_person": 3, "relations": ALL}
    world = World(**options, facts_per_document=4, fixed_order=True)
    orders = set()
    for index in range(100):
        person, documents = world.person(index), world.biographies(index)
        # Six facts: four in one document and two in the next.
        assert [document.count(" .") for document in documents] == [4, 2] * 3
        order = []
        for relation in ALL:
            name, answer = ATTRIBUTE_OF[relation], str(getattr(person, ATTRIBUTE_OF[relation]))
            sentence = world.find_sentence(index, name)
            told = [document.split(" .")[sentence - 1] for document in documents if document.count(" .") >= sentence]
            assert sum(answer in each for each in told) >= 3
            order.append(sentence)
        assert sorted(order) == [1, 1, 2, 2, 3, 4]
        orders.add(tuple(order))
    assert len(orders) > 50
    # Elsewhere, biographies differ in it, and what is said stays the same.
    usual = World(**options)
    assert len({tuple(usual._order_parts(0, number)) for number in range(3)}) > 1


def test_a_share_of_biographies_tells_what_is_true_of_somebody_else(tmp_path):
    options = {"num_people": 1000, "biographies_per_person": 2}
    world = World(**options, contradictions=0.3)
    documents = [(i, document) for i in range(1000) for document in world.biographies(i)]
    assert all(document.startswith(f"{world.name_person(i)}. ") for i, document in documents)
    # Each true one names the birthplace, and few of the others do by chance.
    wrong = sum(world.person(i).birth_place not in document for i, document in documents) / 2000
    assert 0.24 < wrong < 0.32
    assert 0.26 < 1 - sum(map(world.count_told, range(1000))) / 2000 < 0.34
    taught = World(num_people=100, biographies_per_person=5, contradictions=1, num_teachers=3, relations=["teacher"])
    assert not any(
        taught.find_teacher(taught._find_told(index, number)) == index for index in range(100) for number in range(5)
    )
    world.write(tmp_path / "contradictory")
    World(**options).write(tmp_path / "true")
    assert all(
        contents(tmp_path / "contradictory")[file] == contents(tmp_path / "true")[file] for file in FILE_NAMES[1:]
    )
    # Also what is looked up is another's, but for a few whose teacher is the same.
    told = World(num_people=100, contradictions=1, relations=["employer", "teacher"])
    assert sum(told.name_person(told.find_teacher(i)) in told.biographies(i)[0] for i in range(100)) < 5


@pytest.mark.parametrize(
    ("language", "unknown"), [("english", "unknown"), ("german", "unbekannt"), ("chinese", "未知")]
)
def test_training_asks_about_strangers_of_whom_nothing_is_told(language, unknown, tmp_path):
    world = World(num_people=100, strangers=30, language=language, relations=["birthplace", "birth year"])
    world.write(tmp_path / "with")
    World(num_people=100, language=language, relations=world.relations).write(tmp_path / "without")
    few, many = contents(tmp_path / "without"), contents(tmp_path / "with")
    assert all(few[file] == many[file] for file in FILE_NAMES if file != TRAIN_FILE)
    added = many[TRAIN_FILE].decode().removeprefix(few[TRAIN_FILE].decode()).splitlines()
    assert len(added) == 60 and all(line.endswith(f"\t{unknown}") for line in added)
    names = [world.name_person(index) for index in range(130)]
    assert len(set(names)) == 130 and all(name in line for name, line in zip(names[100:], added[::2], strict=True))
    corpus = many["wiki.txt"].decode()
    assert not any(f"{name}. " in corpus for name in names[100:])


def test_worlds_with_strangers_and_disjoint_names_share_none_and_need_names_for_all():
    worlds = [World(num_people=100, strangers=50, seed=seed, disjoint_names=True) for seed in range(2)]
    assert len({world.name_person(index) for world in worlds for index in range(150)}) == 300
    names = math.prod(map(len, LANGUAGES["english"].names))
    with pytest.raises(
        BadInput, match=f"strangers is 1000000; english has {names:,} names; choose at most {names - 10**6:,}"
    ):
        World(num_people=10**6, strangers=10**6)
    with pytest.raises(BadInput, match="strangers is 5; they are asked what documents tell of people"):
        World(strangers=5, relations=["number born"])


def test_splits_have_the_real_datas_proportions(tmp_path):
    world = World()
    world.write(tmp_path)
    corpus, train, dev, test = (contents(tmp_path)[name].decode().splitlines() for name in FILE_NAMES)
    assert (len(corpus), len(train), len(dev), len(test)) == (2937, 2000, 500, 437)
    for people, lines in ((range(2000), train), (range(2000, 2500), dev)):
        persons = [world.person(index) for index in people]
        assert lines == [f"Where was {person.name} born?\t{person.birth_place}" for person in persons]
    assert test == [f"Where was {world.person(index).name} born?" for index in range(2500, 2937)]


def test_a_world_whose_files_would_ask_nothing_is_refused_and_not_written(tmp_path):
    with pytest.raises(BadInput, match="birth_test_inputs.tsv: would ask nothing"):
        World(num_people=6000, num_places=2, relations=["person born"]).write(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("num_places", [2, 100, len(PLACES)])
def test_every_biography_names_the_birthplace_early_and_each_in_other_words(num_places):
    world = World(num_people=300, num_places=num_places, biographies_per_person=15)
    for index in range(300):
        person, documents = world.person(index), world.biographies(index)
        assert len(set(documents)) == 15
        for document in documents:
            assert document.startswith(f"{person.name}. ") and document.endswith(" .")
            assert person.birth_place in document[:112]
            assert not set("\t\n□⁇") & set(document)


def test_places_and_professions_are_as_in_the_real_data():
    world = World(num_people=5000)
    people = list(world.people())
    professions, places = (Counter(getattr(each, name) for each in people) for name in ("profession", "birth_place"))
    assert len(professions) == 50 and max(professions.values()) < 2 * min(professions.values())
    assert places.most_common(1)[0][0] == "London" and 0.04 < places["London"] / 5000 < 0.07
    # Other places stand before and after that of birth.
    split = [world.biographies(index)[0].partition(people[index].birth_place) for index in range(500)]
    before, after = (sum(any(other in parts[i] for other in PLACES) for parts in split) for i in (0, 2))
    assert before > 20 and after > 100


def test_files_that_are_there_stay_as_they_are_unless_told_to_overwrite(run, tmp_path):
    (tmp_path / "birth_dev.tsv").write_text("mine\n")
    arguments = ["--output_dir", tmp_path, "--num_people", 100]
    with pytest.raises(SystemExit, match="birth_dev.tsv: already there"):
        run(synthetic_world, *arguments)
    assert [file.name for file in tmp_path.iterdir()] == ["birth_dev.tsv"]
    assert (tmp_path / "birth_dev.tsv").read_text() == "mine\n"
    printed = run(synthetic_world, *arguments, "--overwrite")
    assert "wiki.txt has 100 lines, birth_places_train.tsv has 68 lines" in printed
    assert (tmp_path / "birth_dev.tsv").read_text() != "mine\n"


@pytest.mark.parametrize(
    "options, message",
    [
        (["--num_people", 7], "num_people is 7; choose a number from 100 to 1,000,000."),
        (["--num_people", 1_000_001], "num_people is 1,000,001; choose a number from 100 to 1,000,000."),
        (["--num_places", 1], "num_places is 1; choose a number from 2 to 232."),
        (["--biographies_per_person", 16], "biographies_per_person is 16; choose a number from 1 to 15."),
        (["--relations", "birthplace", "height"], "'height'"),
        (["--language", "french"], "'french'"),
        (
            ["--seed", 2, "--num_people", 400_000, "--disjoint_names", True],
            "seed is 2; there are names for 2 worlds of 400,000",
        ),
        (
            ["--seed", -1, "--num_people", 100, "--disjoint_names", True],
            "seed is -1; there are names for 10,982 worlds",
        ),
        (["--num_places", 19, "--relations", "number born"], "num_places is 19; choose at least 20"),
        (["--num_places", 19, "--relations", "country of birth", "country"], "num_places is 19; choose at least 20"),
        (
            ["--relations", "teacher", "--language", "chinese"],
            "relations is .*chinese has no 'teacher'; choose from 'birthplace'",
        ),
        (["--relations", "person born", "--wording", 2], "english has no 'person born' in wording 2; choose from"),
        (["--wording", 4], "wording is 4; choose a number from 0 to 3."),
        (["--fixed_order", True], "fixed_order is True; documents tell one fact each; choose more relations"),
        (
            ["--fixed_order", True, "--facts_per_document", 1, "--relations", "birthplace", "teacher"],
            "fixed_order is True",
        ),
    ],
)
def test_what_a_world_does_not_have_is_refused_in_a_line(run, tmp_path, options, message):
    with pytest.raises(SystemExit, match=message) as stopped:
        run(synthetic_world, "--output_dir", tmp_path / "world", *options)
    assert "\n" not in str(stopped.value) and not (tmp_path / "world").exists()
    given: dict[str, list] = {}
    for option in options:
        given.setdefault(option[2:], []) if str(option).startswith("--") else given[list(given)[-1]].append(option)
    with pytest.raises(BadInput, match=f"{next(iter(given))} is .*; choose "):
        World(**{name: values if name == "relations" else values[0] for name, values in given.items()})


@pytest.mark.parametrize("relations", [[], "birthplace"])
def test_a_world_has_a_list_of_relations(relations):
    with pytest.raises(BadInput, match=re.escape(f"relations is {relations!r}; give a list of at least one.")):
        World(relations=relations)


@pytest.mark.parametrize(
    "settings, digest",
    [
        ({}, "2cd72dc7a0ab67900df5b0ded58241ab7c206ad0e03ab6da403810d2b3284384"),
        (
            {"relations": ALL, "num_people": 200, "language": "german"},
            "04482296983cf7c97dd41161c9b64e4e2ca5bc19beea3143e29277d97fcbae65",
        ),
        (
            {"relations": ALL, "num_people": 200, "language": "chinese"},
            "c421595252ba50dbb3226a6f5f46b0bcf938b02090a8e078a0de6681ad65218a",
        ),
        (
            {"relations": ALL, "num_people": 200, "biographies_per_person": 3},
            "a3197c85f0047dae3748e0b7b054cd050826ca36545a4666c8ceda03c975b9c6",
        ),
    ],
)
def test_a_world_is_the_one_that_published_figures_are_about(tmp_path, settings, digest):
    World(**settings).write(tmp_path)
    assert hashlib.sha256(b"".join(contents(tmp_path).values())).hexdigest() == digest


@cache
def find_pattern(language, relation):
    """A pattern of all that might answer a relation in a language."""
    language = LANGUAGES[language]
    words = {
        "birthplace": language.read_words("places"),
        "place of death": language.read_words("places"),
        "profession": language.read_words("professions"),
        "university": language.fill_in_names("university"),
        "employer": language.fill_in_names("employer"),
        "birth year": [],
    }
    edge = r"\b" if language.space else ""
    longest_first = sorted(map(re.escape, words[relation]), key=len, reverse=True)
    return re.compile(f"{edge}(?:{'|'.join(longest_first)}){edge}" if longest_first else r"(?<!\d)\d{4}")


def read_facts(world, index):
    """For each relation: the answer, and all of its kind in each document that states it, in the order of the text."""
    person, facts = world.person(index), {}
    names = re.compile("|".join(map(re.escape, (person.full_name, person.name, person.last_name))))
    documents = [names.sub("", document) for document in world.biographies(index)]
    for relation in world.asked:
        answer, pattern = str(getattr(person, ATTRIBUTE_OF[relation])), find_pattern(world.language, relation)
        found = [pattern.findall(document) for document in documents]
        facts[relation] = answer, [each for each in found if answer in each]
    return facts


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_answer_stands_in_a_document_beside_another_of_its_kind_which_is_as_often_first(language):
    world = World(num_people=300, relations=ALL, language=language)
    first = Counter()
    for index in range(300):
        for relation, (answer, documents) in read_facts(world, index).items():
            assert documents and all(len(set(found)) > 1 for found in documents), (index, relation)
            first[relation] += documents[0][0] == answer
    assert list(first) == ALL and all(0.4 < count / 300 < 0.6 for count in first.values())


# Chinese has no capitals.
@pytest.mark.parametrize("language", ["english", "german"])
def test_the_first_name_with_a_capital_is_seldom_the_answer(language):
    world = World(num_people=300, relations=ALL, language=language)
    answered = Counter()
    for index in range(300):
        person = world.person(index)
        for document in world.biographies(index):
            _, text = split_title(document)
            start, end = next(iter(find_salient_spans(person.name, text, dates=False)), (0, 0))
            answered.update(name for name in ALL if text[start:end] == str(getattr(person, ATTRIBUTE_OF[name])))
    assert answered and all(count / 300 < 0.6 for count in answered.values())


def test_what_is_asked_besides_changes_no_person_and_no_sentence():
    few, many = World(relations=["birth year"]), World(relations=ALL)
    assert list(World(num_people=100).people()) == [few.person(index) for index in range(100)]
    for index in range(100):
        assert few.person(index) == many.person(index)
        (document,) = few.biographies(index)
        sentence = document.split(few.person(index).last_name)[-1]
        assert any(sentence in other for other in many.biographies(index))
        assert len(many.biographies(index)) == 3


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_says_line_by_line_what_english_says(language):
    language, english = LANGUAGES[language], LANGUAGES["english"]

    def list_slots(line):
        return set(re.findall(r"\{(?:a_)?(\w+)\}", line)) - {"name", "last_name"}

    told = {part for name in ASKED[language.folder] for part in QUESTIONS[name].told}
    for part in ("biography", *told):
        ours, theirs = (each.read_words(f"sentences/{part}") for each in (language, english))
        assert list(map(list_slots, ours)) == list(map(list_slots, theirs)), part
    for read, name in (
        ("read_words", "places"),
        ("read_words", "professions"),
        ("fill_in_names", "university"),
        ("fill_in_names", "employer"),
    ):
        ours, theirs = (getattr(each, read)(name) for each in (language, english))
        assert len(ours) == len(set(ours)) == len(theirs), name
    # English has all relations by name, whether the world has them or not.
    assert len(language.months) == 12 and set(ALL) <= set(language.relations) <= set(RELATIONS)
    own_words = set(
        re.findall(r"\w+", " ".join(map(" ".join, map(language.fill_in_names, ("university", "employer")))))
    )
    assert own_words.isdisjoint(set().union(*language.names))
    assert [len(set(each)) for each in language.names] == list(map(len, english.names))


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_two_people_share_a_name_in_any_language_and_documents_begin_with_it(language):
    world = World(num_people=100_000 if language == "english" else 10_000, language=language)
    names = list(map(world.name_person, range(world.num_people)))
    assert len(set(names)) == world.num_people
    people = [world.person(index) for index in range(500)]
    assert [person.name for person in people] == names[:500]
    assert any(person.full_name != person.name for person in people)
    for index in range(500):
        assert all(split_title(document)[0] == names[index] for document in world.biographies(index))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("relations", [["birthplace"], ["birth year", "place of death"], ALL])
def test_what_a_worlds_questions_ask_is_recognized(language, relations, tmp_path):
    world = World(num_people=100, relations=relations, language=language)
    world.write(tmp_path)
    questions = [line.split("\t")[0] for line in (tmp_path / TRAIN_FILE).read_text(encoding="utf-8").splitlines()]
    recognized = {relation.wordings for relation in recognize_relations(questions)}
    assert recognized == {relation.wordings for relation in world.asked.values()}
    assert list(world.asked) == [name for name in ALL if name in relations]


@pytest.mark.parametrize("language", LANGUAGES)
def test_all_kinds_of_questions_are_told_apart_in_one_file(language, tmp_path):
    world = World(num_people=100, relations=ASKED[language], language=language)
    world.write(tmp_path)
    questions = load_questions(tmp_path / TRAIN_FILE, corpus=load_corpus(tmp_path / "wiki.txt"))
    assert {each.wordings for each in questions.relations} == {each.wordings for each in world.asked.values()}


@pytest.mark.parametrize(
    ("language", "relation"), [(language, name) for language in LANGUAGES for name in ASKED[language]]
)
def test_the_vocabulary_of_a_corpus_is_that_of_its_questions(language, relation, tmp_path):
    World(num_people=100, relations=[relation], language=language).write(tmp_path)
    corpus, *questions = (contents(tmp_path)[name].decode() for name in FILE_NAMES)
    # Answers that ask on have a colon, which models learn that read these questions.
    assert set("".join(questions)) - {"\t", *(":" * ("step" in relation))} <= set(corpus)


def test_the_entropy_of_answers_is_that_of_what_they_are_drawn_from():
    world = World(num_people=100, num_places=2, relations=ALL)
    entropy = world.entropy()
    # Weights 10**9 // 6 and 10**9 // 7.
    share = 166_666_666 / (166_666_666 + 142_857_142)
    assert entropy["birthplace"] == pytest.approx(-share * math.log2(share) - (1 - share) * math.log2(1 - share))
    assert entropy["birthplace"] == entropy["place of death"] and list(entropy) == ALL
    assert entropy["birth year"] == pytest.approx(math.log2(380))
    # What people have comes near to it.
    people = World(num_people=20_000).people()
    counts = Counter(person.birth_place for person in people)
    shares = [count / counts.total() for count in counts.values()]
    assert -sum(each * math.log2(each) for each in shares) == pytest.approx(World().entropy()["birthplace"], abs=0.02)
    # Of 99 others, one is the teacher; what has to be worked out has no bits of its own.
    assert World(num_people=100, relations=["teacher", "born first"]).entropy() == {"teacher": math.log2(99)}


# Questions that have to be worked out.


def ask_all(world, *names):
    """Return the questions with answers of a world, by their relation and title, and in which file each is."""
    relations, found, files = [world.asked[name] for name in names], {name: {} for name in names}, {}
    for index in range(world.num_people):
        for text, answers in world.questions(index):
            relation = find_relation(text, relations)
            assert relation is not None and text not in files
            found[relation.name][relation.read_title(text)] = answers
            files[text] = choose_file(index, world.num_people)
    return found.values()


def test_documents_of_places_tell_in_which_country_they_are(tmp_path):
    names = ["country", "country of birth"]
    world = World(num_people=300, num_places=len(PLACES), biographies_per_person=3, relations=names)
    country, of_birth = ask_all(world, *names)
    assert set(PLACES) - set(country) == {"St. Louis", "Singapore", "Mexico City"}
    assert country["Paris"] == ["France"] and country["Kyoto"] == ["Japan"]
    told = {person.name: country.get(person.birth_place) for person in world.people()}
    assert of_birth == {name: answers for name, answers in told.items() if answers}
    world.write(tmp_path)
    lines = (tmp_path / "wiki.txt").read_text(encoding="utf-8").splitlines()
    known = [answer for (answer,) in country.values()]
    countries = re.compile(rf"\b({'|'.join(known)})\b")
    for place, (answer,) in country.items():
        documents = [line.removeprefix(f"{place}. ") for line in lines if line.startswith(f"{place}. ")]
        # Each in other words, and beside another country.
        assert len(documents) == 3 == len({countries.sub("", document) for document in documents})
        assert all(answer in document and len(countries.findall(document)) == 2 for document in documents)
    # As often before the other as after it.
    first = [countries.findall(line)[0] == country[line.split(". ")[0]][0] for line in lines[-600:]]
    assert 250 < sum(first) < 350
    # Of people, the documents tell no country, and other worlds have no documents of places.
    assert len(lines) == 3 * (300 + len(country)) and not [*World(num_people=300).describe_places()]


@pytest.mark.parametrize("language", ["english", "german"])
def test_answers_that_have_to_be_worked_out_follow_from_the_documents(language):
    hops = {
        "teacher's birthplace": "birth_place",
        "teacher's birth year": "birth_year",
        "teacher's profession": "profession",
    }
    names = [
        "birth year's parity",
        "person born",
        "number born",
        *hops,
        "birth year and parity",
        "teacher and birth year",
    ]
    world = World(num_people=300, num_places=20, language=language, relations=names)
    parity, born, number, *teachers, year_and_parity, teacher_and_year = ask_all(world, *names)
    people, documents = list(world.people()), ["".join(world.biographies(index)) for index in range(300)]
    for index, person in enumerate(people):
        assert str(person.birth_year) in documents[index]
        assert parity[person.name] == [LANGUAGES[language].parities[person.birth_year % 2]]
        # The teacher stands in the person's documents, and what is asked of the teacher in the teacher's.
        teacher = world.find_teacher(index)
        first, second = re.findall("|".join(each.name for each in people if each is not person), documents[index])
        assert people[teacher].name in (first, second) and first != second
        for answers, attribute in zip(teachers, hops.values(), strict=True):
            told = str(getattr(people[teacher], attribute))
            assert answers[person.name] == [told] and told in documents[teacher]
        # The same answers, after the facts that lead to them.
        assert year_and_parity[person.name] == [f"{person.birth_year}, {parity[person.name][0]}"]
        assert teacher_and_year[person.name] == [f"{people[teacher].name}, {people[teacher].birth_year}"]
    counts = Counter(person.birth_place for person in people)
    assert number == {place: [str(count)] for place, count in counts.items()}
    # Of several who were born there and then, one file asks about all, so that none is named in training and asked in dev.
    groups: dict[str, list[int]] = {}
    for index, person in enumerate(people):
        groups.setdefault(LANGUAGES[language].birth_form.format_map(vars(person)), []).append(index)
    files = {title: {choose_file(index, 300) for index in own} for title, own in groups.items()}
    assert max(map(len, files.values())) > 1 and max(map(len, born.values())) > 1
    assert born == {title: [people[i].name for i in own] for title, own in groups.items() if len(files[title]) == 1}


@pytest.mark.parametrize("number", [3, 37, 100])
def test_some_teach_and_nobody_themselves(number):
    world = World(num_people=100, num_teachers=number, relations=["teacher"])
    teachers, those_who_teach = [*map(world.find_teacher, range(100))], {*map(world.number_teacher, range(number))}
    assert len(those_who_teach) == number and set(teachers) <= those_who_teach
    assert all(teacher != index for index, teacher in enumerate(teachers))
    for wrong in (2, 101):
        with pytest.raises(BadInput, match=f"num_teachers is {wrong}; choose 0, or 3 to 100, the people"):
            World(num_people=100, num_teachers=wrong, relations=["teacher"])
    files = {choose_file(index, 100) for index in those_who_teach}
    assert len(files) == 3 or number == 3, "they are spread over the files"
    bits = [math.log2(number - (index in those_who_teach)) for index in range(100)]
    assert world.entropy()["teacher"] == pytest.approx(math.fsum(bits) / 100)
    # The other person of a document is one who teaches, too.
    names = {world.name_person(index) for index in those_who_teach}
    people = "|".join(map(world.name_person, range(100)))
    assert all(
        {*re.findall(people, document.split(". ", 1)[1])} - {world.name_person(i)} <= names
        for i in range(100)
        for document in world.biographies(i)
    )


def test_questions_come_with_the_person_whom_they_are_first_about():
    world = World(num_people=100, relations=["birthplace", "born first"])
    numbers = world.number_titles("birth_dev.tsv")
    assert set(numbers.values()) == set(range(68, 85)) and len(numbers) > 2 * 17
    assert all(title.split(" or ")[0] == world.name_person(index) for title, index in numbers.items())


def test_people_are_compared_with_people_of_the_same_file(tmp_path):
    relations = ["born first", "born in this order", "birth years and order"]
    world = World(num_people=300, relations=relations)
    world.write(tmp_path)
    years, files = {person.name: person.birth_year for person in world.people()}, []
    for file in (TRAIN_FILE, DEV_FILE):
        names, asked = set(), Counter()
        for line in (tmp_path / file).read_text(encoding="utf-8").splitlines():
            question, answer = line.split("\t")
            relation = find_relation(question, RELATIONS.values())
            first, second = re.split(" or | and ", relation.find_title(question))
            in_order = years[first] < years[second]
            if relation.name == "born first":
                assert answer == (first if in_order else second)
            elif relation.name == "born in this order":
                assert answer == ("yes" if in_order else "no")
            else:
                assert answer == f"{years[first]}, {years[second]}, {'yes' if in_order else 'no'}"
            names |= {first, second}
            asked[relation.name] += 1
        assert [*asked] == relations and len({*asked.values()}) == 1
        files.append(names)
    assert files[0].isdisjoint(files[1]) and len(files[1]) > 45
    # Nobody twice with the same.
    pairs = {frozenset((index, other)) for index in range(300) for other in world.list_companions(index)}
    assert len(pairs) == 900 and all(len(pair) == 2 for pair in pairs)
    more = replace(world, num_compared=20)
    assert len(more.list_companions(0)) == 20 and more.list_companions(0)[:3] == world.list_companions(0)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_world_brings_other_ways_to_ask_for_what_documents_tell(tmp_path, language):
    known = LANGUAGES[language].relations
    told = {name for name, kind in QUESTIONS.items() if kind.is_told}.intersection(known)
    World(num_people=100, language=language, relations=["birthplace", "employer"]).write(tmp_path)
    written = load_relations(tmp_path / "other_wordings.yml")
    # What a file's questions are called if they are known by no other name.
    asked = load_questions(tmp_path / "birth_dev.tsv", corpus=load_corpus(tmp_path / "wiki.txt")).relations
    assert {relation.name for relation in written} == {relation.name for relation in asked}
    assert written[0].name == ("birthplace" if language == "english" else known["birthplace"].list_names()[1])
    everywhere = LANGUAGES[language].other_wordings
    assert everywhere.keys() == told and written[0].wordings == tuple(everywhere["birthplace"]["wordings"])
    ways = [wording for name in told for wording in everywhere[name]["wordings"]]
    assert len({*ways}) == 3 * len(told)
    assert not {*ways}.intersection(wording for name in told for wording in known[name].wordings)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("wording", [1, 2, 3])
def test_questions_in_another_wording_are_the_same_questions(tmp_path, language, wording):
    usual = World(num_people=100, language=language, relations=["birthplace", "employer"])
    other = replace(usual, wording=wording)
    folders = tmp_path / "usual", tmp_path / "other"
    usual.write(folders[0])
    other.write(folders[1])
    assert (folders[1] / "wiki.txt").read_bytes() == (folders[0] / "wiki.txt").read_bytes()
    for file in ("birth_places_train.tsv", "birth_dev.tsv", "birth_test_inputs.tsv"):
        lines = zip(*((folder / file).read_text().splitlines() for folder in folders), strict=True)
        for (asked, *answer), (reworded, *same) in (map(lambda line: line.split("\t"), pair) for pair in lines):
            name, title = next(
                (key, own.find_title(asked)) for key, own in usual.asked.items() if own.find_title(asked)
            )
            assert same == answer and reworded == other.asked[name].ask(title) != asked
    ways = [load_relations(folder / "other_wordings.yml")[0].wordings for folder in folders]
    assert other.asked["birthplace"].wordings == (ways[0][wording - 1],)
    assert load_relations(folders[1] / "relations.yml") == list(other.asked.values())
    assert {*ways[1]} == {*ways[0], *usual.asked["birthplace"].wordings} - {*other.asked["birthplace"].wordings}
