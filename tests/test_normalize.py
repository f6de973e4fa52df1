import json
import unicodedata

import pandas
import pyarrow
import pytest

import train_pretrain
from conftest import TINY
from data_scripts import normalize
from data_scripts.documents import TITLE_AND_TEXT, load_corpus, read_rows
from data_scripts.files import find_compression
from data_scripts.normalize import describe_documents

DECOMPOSED = "Ge\u0301za. Ge\u0301za was born in Go\u0308d"


def test_files_are_written_in_nfc_and_what_changed_is_said(run, tmp_path):
    (tmp_path / "wiki.txt").write_text(f"{DECOMPOSED}\nAnn. Born in Rome\n", encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text("Where was Ann born?\tRome\n")
    arguments = ["--files", tmp_path / "wiki.txt", tmp_path / "pairs.tsv", "--output_dir", tmp_path / "out"]
    printed = run(normalize, *arguments)
    text = (tmp_path / "out" / "wiki.txt").read_text(encoding="utf-8")
    assert text == "Géza. Géza was born in Göd\nAnn. Born in Rome\n" and unicodedata.is_normalized("NFC", text)
    assert (tmp_path / "out" / "pairs.tsv").read_bytes() == (tmp_path / "pairs.tsv").read_bytes()
    assert "wiki.txt: 1 lines" in printed and "pairs.tsv: 0 lines" in printed
    with pytest.raises(SystemExit, match="already there"):
        run(normalize, *arguments)


def test_all_files_are_written_or_none(run, tmp_path):
    (tmp_path / "wiki.txt").write_text("Ann. Born in Rome\n")
    (tmp_path / "bad.tsv").write_bytes(b"\xff\n")
    with pytest.raises(SystemExit, match="bad.tsv, line 1: .* not UTF-8"):
        run(normalize, "--files", tmp_path / "wiki.txt", tmp_path / "bad.tsv", "--output_dir", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "wiki.txt").write_text("Ann\n")
    with pytest.raises(SystemExit, match="the same name"):
        run(normalize, "--files", tmp_path / "wiki.txt", tmp_path / "a" / "wiki.txt", "--output_dir", tmp_path / "b")


@pytest.mark.parametrize("kind", ["txt.gz", "txt.zst", "jsonl", "jsonl.gz", "csv"])
def test_compressed_files_and_tables_stay_what_they_are(run, tmp_path, kind):
    file = tmp_path / f"wiki.{kind}"
    title, text = DECOMPOSED.split(". ")
    # As Python writes it by default, with characters as numbers.
    row = json.dumps({"title": title, "text": f"{text} \\u0301 😀"})
    content = {
        "txt": DECOMPOSED,
        "csv": f"title,text\n{title},{text}",
        "jsonl": f'{row}\n{{"title": "\\u00e9", "text": "", "n": 1.50}}',
    }
    with pyarrow.output_stream(file, compression=find_compression(file)) as stream:
        stream.write(content[kind.split(".")[0]].encode() + b"\n")
    printed = run(normalize, "--files", file, "--output_dir", tmp_path / "out")
    assert f"{file.name}: 1 lines" in printed
    before, after = (
        [document for *_, document in read_rows(folder / file.name, TITLE_AND_TEXT)]
        for folder in (tmp_path, tmp_path / "out")
    )
    assert after == [unicodedata.normalize("NFC", document) for document in before] != before
    compressed = (tmp_path / "out" / file.name).read_bytes()[:2] in (b"\x1f\x8b", b"\x28\xb5")
    assert compressed == (find_compression(file) is not None)


def test_what_is_no_text_is_refused(run, tmp_path):
    pandas.DataFrame([{"title": "Ann", "text": "Born in Rome"}]).to_parquet(tmp_path / "wiki.parquet")
    (tmp_path / "wiki.json").write_text(
        '[\n{"title": "Ge\\u0301za", "text": "Born in Rome"}\n,\n{"title": "\\u0301"\n}]'
    )
    (tmp_path / "half.jsonl").write_text('{"title": "Ge\\u0301za", "text": "\\ud800"}\n')
    for name, match in (
        ("wiki.parquet", "a Parquet table is not text; write it as JSON Lines or CSV"),
        ("wiki.json", "line 4: not a row of JSON: .* write one row per line"),
        ("half.jsonl", "line 1: not a row of JSON: .*surrogates"),
    ):
        with pytest.raises(SystemExit, match=f"{name}.* {match}") as stop:
            run(normalize, "--files", tmp_path / name, "--output_dir", tmp_path / "out")
        assert "\n" not in stop.value.code and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text, decomposed",
    [
        (DECOMPOSED, True),
        ("\u1100\u1161\u11a8", True),  # letters of Korean, which has none with a mark
        ("A\u212b", True),  # the sign for angstrom, which is the letter
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
    said = " ".join(describe_documents(load_corpus(file), [str(file)], TITLE_AND_TEXT))
    assert (f"{file}: 1 of 2 documents are not in" in said) == decomposed


def test_what_nobody_sees_and_documents_without_titles_are_said_before_training(run, tmp_path):
    (tmp_path / "one.txt").write_text("Ada. Born in Rome .\n", encoding="utf-8")
    (tmp_path / "two.txt").write_text(
        "\nBo. Born in Ber\u00adlin .\nLeïla. می\u200cخواهم 👩\u200d🚀 .\n", encoding="utf-8"
    )
    (tmp_path / "none.txt").write_text("Born in Rome\nBorn in Oslo\n")
    options = ["--output_dir", tmp_path / "out", "--max_steps", 1, *TINY]
    printed = run(train_pretrain, "--train_file", tmp_path / "one.txt", tmp_path / "two.txt", *options)
    assert "1 of 3 documents hold characters that nobody sees, first U+00AD SOFT HYPHEN in " in printed
    assert f"{tmp_path / 'two.txt'}, line 2." in printed and "title" not in printed
    none = tmp_path / "none.txt"
    said = list(describe_documents(load_corpus(none), [str(none)], TITLE_AND_TEXT))
    assert len(said) == 1 and f"{none}: no document has a title" in said[0]
