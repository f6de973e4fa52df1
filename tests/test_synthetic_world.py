import subprocess
import sys
import tracemalloc
from collections import Counter

import pytest

from data_scripts.errors import BadInput
from data_scripts.synthetic_world import FILE_NAMES, PLACES, World, main


def contents(folder):
    return {name: (folder / name).read_bytes() for name in FILE_NAMES}


def test_same_seed_same_bytes_and_another_seed_another_world(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        World(num_people=200, biographies_per_person=2, seed=seed).write(tmp_path / name)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert all(contents(tmp_path / "a")[name] != contents(tmp_path / "c")[name] for name in FILE_NAMES)


def test_a_person_stays_the_same_in_a_larger_world():
    assert list(World(num_people=100).people()) == list(World(num_people=5000).people())[:100]


def test_splits_have_the_real_datas_proportions(tmp_path):
    world = World()
    world.write(tmp_path)
    corpus, train, dev, test = (contents(tmp_path)[name].decode().splitlines() for name in FILE_NAMES)
    assert (len(corpus), len(train), len(dev), len(test)) == (2937, 2000, 500, 437)
    for people, lines in ((range(2000), train), (range(2000, 2500), dev)):
        persons = [world.person(index) for index in people]
        assert lines == [f"Where was {person.name} born?\t{person.birth_place}" for person in persons]
    assert test == [f"Where was {world.person(index).name} born?" for index in range(2500, 2937)]


def test_no_name_repeats_in_a_large_world():
    names = Counter(person.name for person in World(num_people=100_000).people())
    assert len(names) == 100_000


def test_the_last_person_of_the_largest_world_has_a_name():
    world = World(num_people=1_000_000)
    assert len({world.person(index).name for index in (0, 1, 999_998, 999_999)}) == 4


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


def test_other_places_stand_before_and_after_the_birthplace():
    world = World(num_people=500)
    before = after = 0
    for index in range(500):
        place, text = world.person(index).birth_place, world.biographies(index)[0]
        head, _, tail = text.partition(place)
        before += any(other in head for other in PLACES)
        after += any(other in tail for other in PLACES)
    assert before > 20 and after > 100


def test_the_corpus_has_every_character_of_the_questions(tmp_path):
    World(num_people=100).write(tmp_path)
    corpus, *questions = (contents(tmp_path)[name].decode() for name in FILE_NAMES)
    assert set("".join(questions)) - {"\t"} <= set(corpus)


def test_london_is_about_as_common_as_in_the_real_data():
    places = Counter(person.birth_place for person in World(num_people=5000).people())
    assert places.most_common(1)[0][0] == "London"
    assert 0.04 < places["London"] / 5000 < 0.07


def test_memory_does_not_grow_with_the_number_of_people(tmp_path):
    World(num_people=100).write(tmp_path / "warm")
    peaks = []
    for people in (500, 5000):
        tracemalloc.start()
        World(num_people=people).write(tmp_path / str(people))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


@pytest.mark.parametrize(
    "setting", [{"num_people": 99}, {"num_people": 1_000_001}, {"num_places": 1}, {"biographies_per_person": 16}]
)
def test_a_number_out_of_range_is_refused_with_the_range(setting):
    with pytest.raises(BadInput, match=f"{next(iter(setting))} is .* choose a number from"):
        World(**setting)


def test_files_that_are_there_stay_as_they_are_unless_told_to_overwrite(tmp_path, monkeypatch):
    (tmp_path / "birth_dev.tsv").write_text("mine\n")
    arguments = ["synthetic_world", "--output_dir", str(tmp_path), "--num_people", "100"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit, match="birth_dev.tsv: already there"):
        main()
    assert [file.name for file in tmp_path.iterdir()] == ["birth_dev.tsv"]
    assert (tmp_path / "birth_dev.tsv").read_text() == "mine\n"
    monkeypatch.setattr(sys, "argv", [*arguments, "--overwrite"])
    main()
    assert (tmp_path / "birth_dev.tsv").read_text() != "mine\n"


def test_the_command_ends_with_one_line_and_a_non_zero_status_on_bad_input(tmp_path):
    command = [sys.executable, "-m", "data_scripts.synthetic_world", "--output_dir", str(tmp_path / "world")]
    result = subprocess.run([*command, "--num_people", "7"], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.strip().splitlines()[-1] == "error: num_people is 7; choose a number from 100 to 1,000,000."
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "world").exists()
