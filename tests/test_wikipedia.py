import json
import re

import pytest

from data_scripts.questions import load_questions
from data_scripts.relations import BIRTH_YEAR, BIRTHPLACE
from data_scripts.titles import split_title
from posgpt.extras import wikipedia
from posgpt.extras.wikipedia import Person, find_birth, read_person, split_sentences


@pytest.mark.parametrize(
    "sentence, birth",
    [
        ("Ann Berg (born 4 May 1931 in Derby, England) is a British author.", ("Derby", "1931")),
        ("Ann Berg (born October 1, 1953, Bucharest) is a politician.", ("Bucharest", "1953")),
        ("Ann Berg (Leeds, 4 May 1831 – York, 1 June 1899) was a painter.", ("Leeds", "1831")),
        ("Ann Berg (4 May 1831 Chicago, Illinois -- 1 May 1877 Wilmette) was a racer.", ("Chicago", "1831")),
        ("Born in St. Louis, Berg left for Rome.", ("St. Louis", None)),
        ("Ann Berg (1831–1899) was a poet born near New York City.", ("New York City", "1831")),
        ("Lady Berg was born Georgina Wernher in Edinburgh on 17 October 1919.", ("Edinburgh", "1919")),
        ("Berg was born in the village of Elm, Kent.", ("Elm", None)),
        ("Born in Boston, Berg became a privateer of the Crown who sailed for Brazil during 1704.", ("Boston", None)),
        ("Ann Berg (born 1931; died in Rome) was a singer.", None),
        ("Ann Berg (1831 – 1899 in Rome) was a singer.", None),
        ("Ann Berg was an English-born physicist in Chicago.", None),
        ("Ann Berg sang in Rome.", None),
    ],
)
def test_place_and_year_of_a_birth_are_found(sentence, birth):
    assert find_birth("Ann Berg", sentence) == birth


def test_sentences_do_not_end_at_initials_and_abbreviations():
    text = 'J. R. Ek met Dr. Li in St. Ives. He sang! "Why?" she said.\nA new paragraph'
    assert split_sentences(text) == [
        "J. R. Ek met Dr. Li in St. Ives.",
        "He sang!",
        '"Why?" she said.',
        "A new paragraph",
    ]


def test_the_document_is_the_first_sentence_about_the_person_that_has_the_place():
    text = (
        "Ann Berg (4 May 1831 – 1 June 1899) was a painter.\n\nHer teacher Bo Ek was born in Oslo. Berg was born in Rome"
        " to a  baker. She was born in 1831 at Milan, others say."
    )
    sentence = "Berg was born in Rome to a baker."
    assert read_person("Ann Berg (painter)", text, 100) == Person("Ann Berg", sentence, "Rome", None)
    assert read_person("Ann Berg", text, len(f"Ann Berg. {sentence}")) == Person("Ann Berg", sentence, "Rome", None)
    unseen = ("Ann\u200b\tBerg\n", text.replace("Rome", "Ro\u00adme"), 100)
    assert read_person(*unseen) == Person("Ann Berg", sentence, "Rome", None)
    for title, article, longest in (
        ("Ann Berg", text, len(f"Ann Berg. {sentence}") - 1),
        ("Ann Berg", text.replace("baker", "⁇"), 100),
        ("Dr. Berg", text, 400),
        ("Elm", "Elm is a village in Kent. Ann Berg was born in Elm.", 100),
        ("Ann Berg", "Ann Berg (1831–1899) was a painter.", 100),
        ("Ann Berg", "Ann Berg (1831–1899) was a painter. In 1831 Berg was born in Rome.", 100),
    ):
        assert read_person(title, article, longest) is None, title


def write_articles(path, people):
    articles = [
        {"id": str(number), "title": title, "text": text}
        for number, (title, text) in enumerate(
            [
                *((f"Ann B{'a' * number}rg", f"Ann B{'a' * number}rg (born {1900 + number} in Rome) is a singer.")
                  for number in range(people)),
                ("Ann Brg (poet)", "Ann Brg (born 1950 in Oslo) is a poet."),
                ("Elm", "Elm is a village."),
            ]
        )
    ]  # fmt: skip
    path.write_text("".join(json.dumps(article) + "\n" for article in articles))


def test_a_task_is_written_whose_people_are_in_one_split_each(run, tmp_path):
    write_articles(tmp_path / "dump.jsonl", 60)
    options = ["--articles", tmp_path / "dump.jsonl", "--output_dir", tmp_path / "out", "--relations", "birthplace", "birth year"]  # fmt: skip
    run(wikipedia, *options)
    folder = tmp_path / "out"
    train, dev = (load_questions(folder / name, answers=True) for name in ("birth_places_train.tsv", "birth_dev.tsv"))
    test = load_questions(folder / "birth_test_inputs.tsv")
    assert train.relations == dev.relations == (BIRTHPLACE, BIRTH_YEAR)
    people = [set(questions.titles) for questions in (train, dev, test)]
    assert [len(names) for names in people] == [41, 10, 9] and len(set.union(*people)) == 60
    documents = dict(map(split_title, (folder / "wiki.txt").read_text().splitlines()))
    assert documents.keys() == set.union(*people)
    for questions in (train, dev):
        for title, answer in zip(questions.titles, questions.answers, strict=True):
            assert answer in documents[title]
    datasheet = (folder / "README.md").read_text()
    assert "60 people, 1 different places, 60 of the" in datasheet and "$" not in datasheet
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(SystemExit, match=r"wiki.txt: already there"):
        run(wikipedia, *options)
    run(wikipedia, *options, "--overwrite")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    # Reading stops when there are enough people.
    assert "wiki.txt has 20 lines" in run(wikipedia, *options, "--overwrite", "--num_people", 20)


def test_whom_nothing_is_asked_about_and_half_characters_are_left_out(run, tmp_path):
    write_articles(tmp_path / "dump.jsonl", 20)
    lines = (tmp_path / "dump.jsonl").read_text().splitlines()
    lines += [json.dumps({"title": f"Bo B{'a' * number}rg", "text": f"Bo B{'a' * number}rg, born in Oslo, is a poet."}) for number in range(20)]  # fmt: skip
    lines += [json.dumps({"title": "Cy Berg", "text": "Cy Berg (born 1950 in Oslo) is a \ud83d poet."})]
    (tmp_path / "dump.jsonl").write_text("\n".join(lines))
    run(
        wikipedia, "--articles", tmp_path / "dump.jsonl", "--output_dir", tmp_path / "out", "--relations", "birth year"
    )
    documents = (tmp_path / "out" / "wiki.txt").read_text().splitlines()
    assert len(documents) == 20 and all(line.startswith("Ann ") for line in documents)


@pytest.mark.parametrize(
    "content, match",
    [
        # A number may be a title.
        ('{"title": 1917, "text": "1917 is a film."}\n{"title": null}\n', "has 0 people .* too few to split"),
        ('{"title": "Elm", "body": "Elm is a village."}\n', "articles need `title` and `text`"),
        ("not json\n", "dump.jsonl, line 1: not a row of JSON"),
        ('{"title": "Elm", "text": "Elm is a village."}\n{"title": "Oak"}\nnot json\n', "line 3: not a row of JSON"),
        ("", "the file is empty"),
    ],
)
def test_bad_articles_are_refused_in_one_line(run, tmp_path, content, match):
    (tmp_path / "dump.jsonl").write_text(content)
    with pytest.raises(SystemExit, match=match) as stop:
        run(wikipedia, "--articles", tmp_path / "dump.jsonl", "--output_dir", tmp_path / "out")
    assert "\n" not in stop.value.code and not (tmp_path / "out").exists()


def test_a_dataset_that_cannot_be_reached_is_one_line(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SystemExit, match="nobody/nothing: no table of articles") as stop:
        run(wikipedia, "--articles", "nobody/nothing", "--output_dir", tmp_path / "out")
    assert "\n" not in stop.value.code
    # What is there is not looked for on the hub.
    (tmp_path / "articles.txt").write_text("Ada Ek. Born in Rome .\n")
    with pytest.raises(SystemExit, match="articles.txt: is no table of articles; give JSON Lines, CSV or Parquet"):
        run(wikipedia, "--articles", tmp_path / "articles.txt", "--output_dir", tmp_path / "out")


def test_nine_in_ten_places_of_the_real_corpus_are_found(real_data):
    documents = dict(map(split_title, (real_data / "wiki.txt").read_text(encoding="utf-8").splitlines()))
    questions = load_questions(real_data / "birth_places_train.tsv", answers=True)
    stated = [
        (title, answer)
        for title, answer in zip(questions.titles, questions.answers, strict=True)
        if re.search(rf"\b{re.escape(answer)}\b", documents.get(title, ""))
    ]
    found = [find_birth(title, documents[title]) for title, _ in stated]
    right = sum(birth is not None and birth[0] == answer for birth, (_, answer) in zip(found, stated, strict=True))
    assert right >= 0.9 * len(stated) > 1700
