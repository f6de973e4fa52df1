"""A corpus as a text file, as a table, and from the hub: read as the same documents."""

import json
from types import SimpleNamespace
from unittest import mock

import pandas
import pytest
from datasets import Dataset
from huggingface_hub.errors import HfHubHTTPError, HTTPError, RepositoryNotFoundError

import train_pretrain
from conftest import TINY, TINY_SIZE
from data_scripts import documents
from data_scripts.documents import TITLE_AND_TEXT, describe_documents, detect_format, load_corpus, read_rows
from data_scripts.errors import BadInput
from data_scripts.salient_spans import add_titles_and_spans
from data_scripts.titles import iterate_titles
from posgpt import preview
from posgpt.evaluation.evidence import Document, find_documents

ROWS = [
    {"title": "Ada Berg", "text": "Ada Berg was born in Rome ."},
    {"title": "Dr. St. Ek", "text": "Ek, born in Oslo, lived in Paris ."},
    {"title": None, "text": "No title here ."},
    {"title": "Ada Berg", "text": "Another Ada, a painter from Bern ."},
]
TEXTS = [f"{row['title']}. {row['text']}" if row["title"] else row["text"] for row in ROWS]


def test_a_corpus_is_read_as_what_its_name_says():
    texts = ["wiki.txt", "wiki.text", "nobody/wiki.txt", "wiki.Txt.GZ"]
    tables = {"nobody/wiki": "hub", "nobody/wiki.csv": "csv", "wiki.jsonl.zst": "json", "wiki.ndjson": "json"}
    tables |= {"WIKI.CSV": "csv", "wiki.Parquet.GZ": "parquet"}
    for name, kind in (dict.fromkeys(texts) | tables).items():
        assert detect_format(name) == kind, name


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
    # A CSV has a head, and a cell may have several lines.
    where = {"csv": ["line 2", "line 3", "line 5"], "jsonl": ["line 1", "line 2", "line 4"]}
    first, second, fourth = where.get(kind, ["row 1", "row 2", "row 4"])
    assert found["Dr. St. Ek"] == [Document(second, "Dr. St. Ek", TEXTS[1])]
    assert [document.where for document in found["Ada Berg"]] == [first, fourth]
    # Of several files, it is named.
    pattern = str(tmp_path / f"peopl?.{kind}")
    assert [each.where for each in find_documents(pattern, ["Ada Berg"])["Ada Berg"]] == [
        f"{file}, {first}", f"{file}, {fourth}",
    ]  # fmt: skip


def test_a_tables_document_is_about_its_title_alone_however_long_or_full_of_stops(tmp_path):
    titles = ["Alien", "Alien. Resurrection", "A" * 201]
    file = write_table(tmp_path, "jsonl", [{"title": title, "text": "Bo shot it. It ends ."} for title in titles])
    found = find_documents(file, titles)
    assert {title: [document.where for document in of_title] for title, of_title in found.items()} == {
        title: [f"line {line}"] for line, title in enumerate(titles, start=1)
    }
    assert {document.body for [document] in found.values()} == {"Bo shot it. It ends ."}


LONG = "long " * 40_000
NO_TEXTS = ["NA", "None", "nan", "null", "00501", "1984", "1e5", "True", "2001-09-11"]


@pytest.mark.parametrize(
    "name, content, texts",
    [
        ("a.csv", "title,text\n" + "".join(f"{cell},{cell}\n" for cell in NO_TEXTS), [f"{cell}. {cell}" for cell in NO_TEXTS]),
        ("a.CSV", f'title,text\nBo,"Rome, Italy"\n\n,"""Bo"" it\nis"\nBo,{LONG}', ["Bo. Rome, Italy", '"Bo" it\nis', f"Bo. {LONG}"]),
        ("a.json", json.dumps(ROWS), TEXTS),
        ("a.json", json.dumps(ROWS, indent=1), TEXTS),
        ("a.json", "\n".join(map(json.dumps, ROWS)), TEXTS),
        # Numbers may be titles, and later lines may leave out what is empty.
        ("a.jsonl", '{"title": 0, "text": "A"}\n{"title": NaN, "text": "B"}\n{"title": "2001-09-11", "text": null, "n": 1}\n{"text": "D"}',
         ["0. A", "B", "2001-09-11. ", "D"]),
        ("a[1].csv", "title,text\nBo,Born .\n", ["Bo. Born ."]),
    ],
)  # fmt: skip
def test_what_a_table_is_read_as(tmp_path, name, content, texts):
    (tmp_path / name).write_text(content)
    assert list(load_corpus(tmp_path / name)["text"]) == texts


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "hub"])
@pytest.mark.parametrize("title, text", [({"en": "Bo"}, "Born in Rome ."), ("Bo", 1.5), (True, "Born in Rome .")])
def test_what_is_no_text_where_text_belongs_is_refused(tmp_path, monkeypatch, kind, title, text):
    rows = [{"title": title, "text": text}] * 2
    if kind == "hub":
        file, streamed = "someone/people", Dataset.from_list(rows).to_iterable_dataset()
        monkeypatch.setattr(documents, "load_dataset", lambda *_, **__: streamed)
    else:
        file = write_table(tmp_path, kind, rows)
    with pytest.raises(
        BadInput, match=f"{file}, (line|row) 1: holds .* .(dict|float|bool). where text belongs; write"
    ):
        list(read_rows(file, TITLE_AND_TEXT))


def test_what_nobody_sees_is_dropped_where_a_line_begins_and_refused_in_titles(tmp_path):
    file = tmp_path / "wiki.txt"
    starts = ["", "\ufeff", "\ufeff\ufeff", "\u200b", "\u200e\u00ad", "\u2060", "\u200d", "\x0c", "\u2029"]
    file.write_text(
        "".join(f"{start}Bo Ek{number}. Born .\n" for number, start in enumerate(starts)), encoding="utf-8"
    )
    assert list(load_corpus(file)["text"]) == [f"Bo Ek{number}. Born ." for number in range(len(starts))]
    text = "علی\u200cرضا. Born in Ro\u00adme, \u200eItaly ."
    file.write_text(f"{text}\n", encoding="utf-8")
    assert list(load_corpus(file)["text"]) == [text]
    for character in "\ufeff\u200b\u00ad\u200e\u202a\u2060\u200d\x08\x9d\u2028":
        file.write_text(f"Ada. Born .\nBo{character} Ek. Born .\n", encoding="utf-8")
        with pytest.raises(BadInput, match=rf"line 2: 'Bo.* holds U\+{ord(character):04X} "):
            load_corpus(file)


def test_the_preview_counts_titles_that_are_missing_or_shared(run, tmp_path):
    wiki, more = tmp_path / "wiki.txt", tmp_path / "more.txt"
    cups = "Inv. 1. A red cup .\nInv. 2. A blue cup .\nInv. 3. A cup .\nA line without\n"
    own = "Bo Ek. Ek sang in Rome .\nAda. Ada sang .\n"
    wiki.write_text(f"{cups}Bo Ek. Born in Oslo .\n{own}")
    counted = "1 of 7 documents have no title; 5 of 7 documents share 2 titles, most often 'Inv' (3 documents)."
    assert counted in run(preview, "--train_file", wiki, *TINY_SIZE)
    wiki.write_text(own)
    # Weights repeat documents.
    more.write_text("".join(f"Bo{number}. Sang .\n" for number in range(9)))
    for given in ([wiki], [wiki, more, "--corpus_weights", 1, 1]):
        printed = run(preview, "--train_file", *given, *TINY_SIZE)
        assert "documents have no title" not in printed and "documents share" not in printed


def test_spaces_around_a_line_are_no_part_of_its_title(tmp_path):
    (tmp_path / "wiki.txt").write_text(" Ada Ek. Born in Rome . \n  \nBo Li. Born in Oslo .\n")
    assert list(load_corpus(tmp_path / "wiki.txt")["text"]) == ["Ada Ek. Born in Rome .", "Bo Li. Born in Oslo ."]


def test_the_preview_cuts_long_documents(run, tmp_path):
    (tmp_path / "wiki.txt").write_text(f"Ada. {'Ada sang . ' * 300}\nBo Ek. Ek sang in Rome .\n")
    printed = run(preview, "--train_file", tmp_path / "wiki.txt", *TINY_SIZE)
    assert max(map(len, printed.splitlines()[:3])) < 1_100 and "… (3,299 characters)" in printed


def test_the_columns_are_named_on_the_command_line(run, world, tmp_path):
    lines = (world / "wiki.txt").read_text(encoding="utf-8").splitlines()
    rows = [dict(zip(("who", "what"), line.split(". ", 1), strict=True)) for line in lines]
    file = write_table(tmp_path, "csv", rows)
    columns = ["--title_column", "who", "--text_column", "what"]
    shown = run(preview, "windows", "--train_file", file, *columns, *TINY_SIZE).splitlines()
    read = [line.removeprefix("document ").split(" | ") for line in shown if line.startswith("document ")]
    # From the first to the last.
    assert len(read) == 10 and read[0] == [*rows[0].values()] and read[-1] == [*rows[-1].values()]
    assert all(each in [[*row.values()] for row in rows] for each in read)
    # All but the command and how long training would take.
    assert shown[1:-1] == run(preview, "windows", "--train_file", world / "wiki.txt", *TINY_SIZE).splitlines()[1:-1]
    options = [*columns, "--output_dir", tmp_path / "out", "--max_steps", 1, *TINY]
    run(train_pretrain, "windows", "--train_file", file, *options)
    assert (tmp_path / "out" / "model.safetensors").exists()
    with pytest.raises(SystemExit, match="has no column 'title', but who, what; name one with --title_column"):
        run(train_pretrain, "windows", "--train_file", file, "--output_dir", tmp_path / "bad", *TINY)
    assert not (tmp_path / "bad").exists()


def test_the_first_line_of_json_lines_may_leave_out_a_column(tmp_path):
    (file := tmp_path / "wiki.jsonl").write_text('{"title": "Ada Ek"}\n{"title": "Bo Li", "text": "Born in Oslo ."}\n')
    assert list(load_corpus(file)["text"]) == ["Ada Ek. ", "Bo Li. Born in Oslo ."]
    with pytest.raises(BadInput, match="has no column 'texts', but title, text; name one with --text_column"):
        load_corpus(file, documents.Columns(text_column="texts"))


def test_a_dataset_of_the_hub_is_read_by_its_name(monkeypatch):
    asked = []

    def load(path, name, split, streaming):
        asked.append((path, name, split, streaming))
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
    assert asked == [("someone/people", None, "train", True)] * 2, "read again for another commit only"
    # Another configuration of a dataset is another corpus.
    commits = iter(["two", "two"])
    for name in ("en", "de"):
        load_corpus("someone/people", documents.Columns(dataset_config_name=name))
    assert [each[1] for each in asked[2:]] == ["en", "de"]


@pytest.mark.parametrize(
    "name, content, match",
    [
        ("broken.jsonl", '{"title": "Ada"\n', "line 1: not a row of JSON: .*; write one object per line"),
        (
            "list.jsonl",
            '{"title": "Ada", "text": "Sang ."}\n\n["Bo", "Sang ."]',
            "line 3: not a row of JSON: 'Bo' is no object",
        ),
        (
            "half.jsonl",
            '{"title": "Ada", "text": "A \\ud83d ."}',
            r"line 1: holds '\\ud83d', half a character, which no",
        ),
        ("pad.jsonl", '{"title": "A□da", "text": "Born ."}', "line 1: holds '□', which the model reserves"),
        (
            "unseen.jsonl",
            '{"title": "Ada\u200b Berg", "text": "Born ."}',
            r"1: 'Ada.* holds U\+200B ZERO WIDTH SPACE, which nobody",
        ),
        ("open.json", '{"title": ["Ada"]', "line 1: not a row of JSON: Exp"),
        ("list.json", "[1,", "not a row of JSON: Exp"),
        ("number.json", '[{"title": "Ada", "text": ""}, 1]', "line 1: not a row of JSON: '1' is no object"),
        ("broken.parquet", "no parquet", "no table of documents: [^;]*[^.]; give one that can be read"),
        ("reserved.txt", "Ada. Born .\n\n\nBo. Has a ⁇ here .\n", "line 4: holds .*1 of 2 documents hold"),
        ("empty.csv", "", "the file is empty"),
        ("blank.csv", "\n\ntitle,text\nAda,Born .\n", "line 1: is blank; begin with the names of the columns"),
        ("twice.csv", "title,text,text\nAda,Born .,Died .\n", "line 1: names two columns 'text'; rename one"),
        ("semicolons.csv", "title;text\nAda;Born .\n", "line 1: columns are separated by ';'; save it with commas"),
        (
            "first.csv",
            "title,text\nAda,Born in Rome, Italy .\n",
            "line 2: has more or fewer .* title, text; put cells with",
        ),
        (
            "lines.csv",
            'title,text\n\nAda,Born .\n"B\no",Born in Oslo, Norway .\n',
            "line 5: has more or fewer columns",
        ),
        ("short.csv", "id,title,text\n1,Ada,Born .\n2,Bo\n", "line 3: has more or fewer columns than the first line"),
        (
            "quote.csv",
            'title,text\nAda,Born .\n"Bo,Born .\nCy,Born .\n',
            "line 3: not a row of CSV: unexpected end of data",
        ),
        (
            "quotes.csv",
            'title,text\nAda,"Born in "Rome" ."\n',
            "line 2: not a row of CSV: .*double a quotation mark within",
        ),
        (
            "sheet.csv",
            '"title";"text"\n"Ada";"Born, there"\n',
            "line 1: columns are separated by ';'; save it with commas",
        ),
        ("empty.csv", "title,text\n", "no row has text"),
        ("tabs.tsv", "title\ttext\nAda\tBorn\n", "read as questions and answers .*; save a table of documents as CSV"),
        ("mask.csv", "title,text\nAda,What \u2047 .\n", "line 2: holds '\u2047'"),
        ("latin.csv", "title,text\nAda,Rome\nZoë,Köln\n".encode("latin1"), "line 3: byte 3 of the line is not UTF-8"),
        ("missing.csv", None, "no such file"),
        ("someone/nowhere", None, "no table of documents"),
        ("data/wiki.txt", None, "no such file"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_in_one_line(tmp_path, monkeypatch, name, content, match):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadInput, match=f"^{name}.* ?{match}") as caught:
        load_corpus(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text, decomposed",
    [
        ("Ge\u0301za. Ge\u0301za was born in Go\u0308d", True),
        ("\u1100\u1161\u11a8", True),  # letters of Korean, which has none with a mark
        ("Géza Göd", False),
        # Marks that no letter beside them takes are as they should be, whatever other letters there are.
        ("กิ नमस्ते", False),
        ("Ада\u0301м e", False),
        ("ड\u093cी क", False),
    ],
)
def test_documents_that_nfc_would_change_are_counted(tmp_path, text, decomposed):
    file = tmp_path / "wiki.txt"
    file.write_text(f"Ann\n{text}\n", encoding="utf-8")
    said = " ".join(describe_documents(load_corpus(file), [str(file)]))
    assert (f"{file}: 1 of 2 documents write accents apart" in said) == decomposed


def test_what_nobody_sees_and_documents_without_titles_are_said_before_training(run, tmp_path):
    (tmp_path / "one.txt").write_text("Ada. Born in Rome .\n", encoding="utf-8")
    (tmp_path / "two.txt").write_text(
        "\nBo. Born in Ber\u00adlin .\nLeïla. می\u200cخواهم 👩\u200d🚀 .\n", encoding="utf-8"
    )
    (tmp_path / "none.txt").write_text("Born in Rome\nBorn in Oslo\n")
    options = ["--output_dir", tmp_path / "out", "--max_steps", 1, *TINY]
    printed = run(train_pretrain, "--train_file", tmp_path / "one.txt", tmp_path / "two.txt", *options)
    assert "1 of 3 documents hold characters that nobody tells apart" in printed
    assert "title" not in printed
    shown = run(preview, "--train_file", tmp_path / "one.txt", tmp_path / "two.txt", *TINY_SIZE)
    assert "1 of 3 documents hold characters that nobody tells apart" in shown
    none = tmp_path / "none.txt"
    said = list(describe_documents(load_corpus(none), [str(none)]))
    assert len(said) == 1 and f"{none}: no document has a title" in said[0]


def test_space_around_a_document_is_no_part_of_its_title(tmp_path):
    file = tmp_path / "wiki.txt"
    file.write_text(
        "\u3000新宿. 駅 .\n\xa0Oak. It grows .\n Elm. It grows . \nRed Fir . It grows .\n", encoding="utf-8"
    )
    corpus = load_corpus(file)
    assert list(iterate_titles(corpus)) == ["新宿", "Oak", "Elm", "Red Fir"]
    assert corpus[-1]["text"] == "Red Fir. It grows ."
    assert find_documents(file, ["新宿", "Oak", "Elm", "Red Fir"]).keys() == {"新宿", "Oak", "Elm", "Red Fir"}
