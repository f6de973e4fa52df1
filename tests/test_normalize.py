import unicodedata

import pytest

import train_pretrain
from conftest import TINY
from data_scripts import normalize
from data_scripts.normalize import find_composable

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


def test_training_says_that_a_corpus_is_not_in_nfc(run, tmp_path):
    for name, text in (("decomposed.txt", DECOMPOSED), ("composed.txt", unicodedata.normalize("NFC", DECOMPOSED))):
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
        options = ["--train_file", tmp_path / name, "--output_dir", tmp_path / name[:-4], "--max_steps", 1, *TINY]
        said = (
            "decomposed.txt: not in Unicode's normal form C because of 2 of its characters, first COMBINING ACUTE"
            in run(train_pretrain, *options)
        )
        assert said == (name == "decomposed.txt")


def test_all_files_are_written_or_none(run, tmp_path):
    (tmp_path / "wiki.txt").write_text("Ann. Born in Rome\n")
    (tmp_path / "bad.tsv").write_bytes(b"\xff\n")
    with pytest.raises(SystemExit, match="bad.tsv, line 1: .* not UTF-8"):
        run(normalize, "--files", tmp_path / "wiki.txt", tmp_path / "bad.tsv", "--output_dir", tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "wiki.txt").write_text("Ann\n")
    with pytest.raises(SystemExit, match="the same name"):
        run(normalize, "--files", tmp_path / "wiki.txt", tmp_path / "a" / "wiki.txt", "--output_dir", tmp_path / "b")


def test_characters_that_nfc_would_replace_are_found():
    assert find_composable(set(DECOMPOSED)) == ["\u0301", "\u0308"]
    assert find_composable(set("Géza Göd")) == []
    assert find_composable(set("A\u212b")) == ["\u212b"], "the sign for angstrom is the letter"
    # A mark that no letter beside it takes is as it should be.
    assert find_composable(set("กิ नमस्ते")) == []
