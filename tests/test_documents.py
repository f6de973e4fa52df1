"""A corpus as a text file, as a table, and from the hub: read as the same documents."""

import json
from types import SimpleNamespace
from unittest import mock

import pandas
import pytest
from datasets import Dataset
from huggingface_hub.errors import HfHubHTTPError, HTTPError, RepositoryNotFoundError

import train_pretrain
from conftest import TINY
from data_scripts import documents
from data_scripts.documents import TITLE_AND_TEXT, Columns, find_builder, load_corpus, read_rows
from data_scripts.errors import BadInput
from data_scripts.salient_spans import add_titles_and_spans
from posgpt import preview
from posgpt.evaluation.evidence import Document, find_documents

ROWS = [
    {"title": "Ada Berg", "text": "Ada Berg was born in Rome ."},
    {"title": "Dr. St. Ek", "text": "Ek, born in Oslo, lived in Paris ."},
    {"title": None, "text": "No title here ."},
    {"title": "Ada Berg", "text": "Another Ada, a painter from Bern ."},
]
TEXTS = [f"{row['title']}. {row['text']}" if row["title"] else row["text"] for row in ROWS]


@pytest.mark.parametrize(
    "name, builder",
    [
        ("wiki.txt", None),
        ("wiki.txt.gz", None),
        ("wiki.text", None),
        ("nobody/wiki.txt", None),
        ("nobody/wiki", "hub"),
        ("nobody/wiki.csv", "csv"),
        ("wiki.jsonl.zst", "json lines"),
        ("wiki.ndjson", "json lines"),
        ("WIKI.CSV", "csv"),
        ("wiki.Txt.GZ", None),
        ("wiki.Parquet.GZ", "parquet"),
    ],
)
def test_a_corpus_is_read_as_what_its_name_says(name, builder):
    assert find_builder(name) == builder


def write_table(folder, kind, rows=ROWS):
    file = folder / f"people.{kind}"
    frame = pandas.DataFrame(rows)
    if kind == "csv":
        frame.to_csv(file, index=False)
    elif kind == "parquet":
        frame.to_parquet(file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_table_is_read_as_the_documents_of_a_text_file(tmp_path, kind):
    file = write_table(tmp_path, kind)
    corpus = load_corpus(file)
    assert list(corpus["text"]) == TEXTS and [text for *_, text in read_rows(file, TITLE_AND_TEXT)] == TEXTS
    spans = add_titles_and_spans(corpus, dates=False)
    assert list(spans["title"]) == ["Ada Berg", "Dr. St. Ek", "", "Ada Berg"]
    assert [[text[start:end] for start, end in row] for text, row in zip(TEXTS, spans["spans"], strict=True)] == [
        ["Rome"], ["Oslo", "Paris"], [], ["Bern"],
    ]  # fmt: skip
    found = find_documents(file, ["Ada Berg", "Dr. St. Ek"])
    assert found["Dr. St. Ek"] == [Document(2, "Dr. St. Ek", TEXTS[1])]
    assert [document.line for document in found["Ada Berg"]] == [1, 4]


def test_a_tables_document_is_about_its_title_alone_however_long_or_full_of_stops(tmp_path):
    titles = ["Alien", "Alien. Resurrection", "A" * 201]
    file = write_table(tmp_path, "jsonl", [{"title": title, "text": "Bo shot it. It ends ."} for title in titles])
    found = find_documents(file, titles)
    assert {title: [document.line for document in of_title] for title, of_title in found.items()} == {
        title: [line] for line, title in enumerate(titles, start=1)
    }
    assert {document.body for [document] in found.values()} == {"Bo shot it. It ends ."}


def test_the_cells_of_a_csv_are_the_texts_they_are(tmp_path):
    titles = ["NA", "None", "nan", "null", "N/A", "00501", "1984", "0", "1e5", "", "True"]
    file = tmp_path / "people.CSV"
    file.write_text("title,text,year\n" + "".join(f"{title},{title or 'NA'},{title}\n" for title in titles))
    corpus = load_corpus(file)
    assert list(corpus["title"]) == titles
    assert list(corpus["text"]) == [f"{title}. {title}" if title else "NA" for title in titles]


def test_numbers_are_titles_too(tmp_path):
    file = tmp_path / "people.jsonl"
    file.write_text("".join(json.dumps({"title": title, "text": 0}) + "\n" for title in (0, 1984, None)))
    assert list(load_corpus(file)["text"]) == ["0. 0", "1984. 0", "0"]


def test_dates_are_titles_and_later_lines_of_json_may_have_other_keys(tmp_path):
    file = tmp_path / "days.jsonl"
    days = [{"title": "1969-07-20", "text": "A landing ."}, {"title": "2001-09-11", "text": "A fall .", "note": 1}]
    file.write_text("\n".join(map(json.dumps, [*days, {"text": "A day ."}])))
    texts = ["1969-07-20. A landing .", "2001-09-11. A fall .", "A day ."]
    assert list(load_corpus(file)["text"]) == texts
    file.write_text('{"title": "Ada", "text": "Born in Rome ."}\n\n["Bo", "Born in Oslo ."]\n')
    with pytest.raises(BadInput, match="days.jsonl, line 3: not a row of JSON: it is no object; write one object per"):
        load_corpus(file)


def test_a_semicolon_may_be_in_the_name_of_a_column(tmp_path):
    (tmp_path / "people.csv").write_text('title,text,"tags; notes"\nAda,Born in Rome .,a\n')
    assert list(load_corpus(tmp_path / "people.csv")["text"]) == ["Ada. Born in Rome ."]


def test_a_name_that_is_a_pattern_is_that_of_its_own_file(tmp_path):
    (tmp_path / "people1.csv").write_text("title,text\nBo Ek,Born in Oslo .\n")
    for name in ("people[1].csv", "people?.csv", "people*.csv"):
        (tmp_path / name).write_text("title,text\nAda Berg,Born in Rome .\n")
        assert list(load_corpus(tmp_path / name)["text"]) == ["Ada Berg. Born in Rome ."]
    (tmp_path / "people[1].csv.gz").write_bytes(b"not read")
    with pytest.raises(BadInput, match=r"people\[1\].csv.gz: .* rename it"):
        load_corpus(tmp_path / "people[1].csv.gz")


def test_the_preview_counts_titles_that_are_missing_or_shared(run, tmp_path):
    lines = [
        "Inv. 1. A red cup .",
        "Inv. 2. A blue cup .",
        "Inv. 3. A cup .",
        "Bo Ek. Born in Oslo .",
        "A line without",
    ]
    (tmp_path / "wiki.txt").write_text(
        "".join(f"{line}\n" for line in [*lines, "Bo Ek. Ek sang in Rome .", "Ada. Ada sang ."])
    )
    printed = run(preview, "--train_file", tmp_path / "wiki.txt")
    assert (
        "1 of 7 documents have no title; 5 of 7 documents share 2 titles, most often 'Inv' (3 documents)." in printed
    )
    (tmp_path / "wiki.txt").write_text("Bo Ek. Ek sang in Rome .\nAda. Ada sang .\n")
    assert "documents have no title" not in (printed := run(preview, "--train_file", tmp_path / "wiki.txt"))
    assert "documents share" not in printed
    # Weights repeat documents.
    (tmp_path / "more.txt").write_text("".join(f"Bo{number}. Sang .\n" for number in range(9)))
    weighted = [tmp_path / "wiki.txt", tmp_path / "more.txt", "--corpus_weights", 1, 1]
    assert "documents share" not in run(preview, "--train_file", *weighted)


def test_the_columns_are_named_on_the_command_line(run, world, tmp_path):
    lines = (world / "wiki.txt").read_text(encoding="utf-8").splitlines()
    rows = [dict(zip(("who", "what"), line.split(". ", 1), strict=True)) for line in lines]
    file = write_table(tmp_path, "csv", rows)
    columns = ["--title_column", "who", "--text_column", "what"]
    shown = run(preview, "windows", "--train_file", file, *columns).splitlines()
    read = [line.removeprefix("document ").split(" | ") for line in shown if line.startswith("document ")]
    assert read == [[row["who"], row["what"]] for row in rows[:10]]
    assert len(shown) > 8 and shown[1:] == run(preview, "windows", "--train_file", world / "wiki.txt").splitlines()[1:]
    run(
        train_pretrain,
        "windows",
        "--train_file",
        file,
        *columns,
        "--output_dir",
        tmp_path / "out",
        "--max_steps",
        1,
        *TINY,
    )
    assert (tmp_path / "out" / "model.safetensors").exists()
    with pytest.raises(SystemExit, match="has no column 'title', but who, what; name one with --title_column"):
        run(train_pretrain, "windows", "--train_file", file, "--output_dir", tmp_path / "bad", *TINY)
    assert not (tmp_path / "bad").exists()


def test_a_dataset_of_the_hub_is_read_by_its_name(monkeypatch):
    asked = []

    def load(path, name, split, streaming):
        asked.append((path, split, streaming))
        return Dataset.from_list(ROWS).to_iterable_dataset()

    def find_info(self, name):
        if isinstance(commit := next(commits), Exception):
            raise commit
        return SimpleNamespace(sha=commit)

    # Which library sends requests is up to huggingface_hub.
    response = mock.Mock(headers={})
    no_network, out_of_order = HTTPError("no network"), HfHubHTTPError("out of order", response=response)
    commits = iter(["one", "one", "two", no_network, out_of_order])
    monkeypatch.setattr(documents, "load_dataset", load)
    monkeypatch.setattr(documents.HfApi, "dataset_info", find_info)
    for _ in range(5):
        assert list(load_corpus("someone/people")["text"]) == TEXTS
    with pytest.raises(BadInput, match="someone/else: no table of documents: no network"):
        commits = iter([no_network])
        load_corpus("someone/else")
    # One that was deleted, or is private now, is not read from the cache.
    with pytest.raises(BadInput, match="someone/people: no table of documents: it is gone; give one"):
        commits = iter([RepositoryNotFoundError("it is gone", response=response)])
        load_corpus("someone/people")
    assert asked == [("someone/people", "train", True)] * 2, "read again for another commit only"


def test_a_table_that_cannot_be_read_is_refused_in_one_line(tmp_path):
    for name, content, match in (
        (
            "broken.jsonl",
            '{"title": "Ada"\n',
            "broken.jsonl, line 1: not a row of JSON: .*; write one object per line",
        ),
        ("broken.parquet", "no parquet", "broken.parquet: no table of documents"),
        ("empty.csv", "", "file is empty"),
        (
            "semicolons.csv",
            "title;text\nAda;Born, it says, in Rome\n",
            "columns are separated by ';'; save it with commas",
        ),
        (
            "tabs.tsv",
            "title\ttext\nAda\tBorn in Rome\n",
            "read as questions and answers .*; save a table of documents as CSV",
        ),
        ("mask.csv", "title,text\nAda,What \u2047 .\n", "mask.csv, row 1: holds '\u2047'"),
    ):
        (tmp_path / name).write_text(content, encoding="utf-8")
        with pytest.raises(BadInput, match=match) as caught:
            load_corpus(tmp_path / name)
        assert "\n" not in str(caught.value)
    (tmp_path / "latin.csv").write_bytes("title,text\nAda,Rome\nZoë,Köln\n".encode("latin1"))
    with pytest.raises(BadInput, match="latin.csv, line 3: byte 3 of the line is not UTF-8"):
        load_corpus(tmp_path / "latin.csv")
    with pytest.raises(BadInput, match="missing.csv: no such file"):
        load_corpus(tmp_path / "missing.csv")
    with pytest.raises(BadInput, match="someone/nowhere: no table of documents"):
        load_corpus("someone/nowhere", Columns("a", "b"))
    with pytest.raises(BadInput, match="data/wiki.txt: no such file"):
        load_corpus("data/wiki.txt")
