"""Twins: a training with edits reads the same rows, of which only the edited title's say something else."""

import json

import pytest

from data_scripts.causal_lm import CausalLMConfig
from data_scripts.name_windows import NameWindowsConfig
from data_scripts.span_corruption import SpanCorruptionConfig
from posgpt import pretrain
from test_name_windows import read

PEOPLE = [
    (f"{first} {last}", place)
    for first, place in (("Ada", "Rome"), ("Bo", "Oslo"), ("Ida", "Nice"))
    for last in ("Berg", "Lind")
]
TEXT = "".join(f"{name}. Born in {place}, {name.split()[1]} sang in Paris on 3 May .\n" for name, place in PEOPLE)
PAIRS = "".join(f"Where was {name} born?\t{place}\n" for name, place in PEOPLE[:4])
OBJECTIVES = {
    "windows": NameWindowsConfig(ask_dates=False, pseudo_labels=True, paraphrases=0.75, question_share=0.75),
    "corruption": SpanCorruptionConfig(salient_share=0.5),
    "causal": CausalLMConfig(),
}


def list_rows(folder, objective, edits=None):
    corpus, tokenizer, questions = read(folder, TEXT, PAIRS, max_length=90)
    objective.edits_file = None
    if edits is not None:
        (folder / "edits.tsv").write_text(edits)
        objective.edits_file = str(folder / "edits.tsv")
    training = objective.build(corpus, tokenizer, 0, questions)
    items = range(6 * len(training.dataset))
    batches = (training.collator(training.dataset.__getitems__([item])) for item in items)
    return [tokenizer.decode(batch["input_ids"][0]) for batch in batches]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_only_rows_of_the_edited_title_differ_and_only_in_what_is_replaced(tmp_path, name):
    plain = list_rows(tmp_path, OBJECTIVES[name])
    edited = list_rows(tmp_path, OBJECTIVES[name], "Ada Berg\tRome\tNice\nAda Berg\tMay\tMai\n")
    assert len(plain) == len(edited) and plain != edited
    for before, after in zip(plain, edited, strict=True):
        places = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        assert not places or "Berg" in before
    changed = [(before, after) for before, after in zip(plain, edited, strict=True) if before != after]
    assert any("Rome" in before and "Nice" in after for before, after in changed)
    # Another person of that place still has it.
    assert any("Ada Lind" in row and "Rome" in row for row in edited)
    if name == "windows":
        assert all(before.replace("Rome", "Nice") == after for before, after in changed)
        assert not any("Ada Berg" in row and "Rome" in row for row in edited)


def test_an_edit_that_changes_nothing_gives_the_same_rows(tmp_path):
    for objective in OBJECTIVES.values():
        assert list_rows(tmp_path, objective) == list_rows(tmp_path, objective, "Ada Berg\tRome\tRome\n")


@pytest.mark.parametrize(
    "edits, message",
    [
        ("Ada Berg\tRome\n", "line 1: not an edit; give a title"),
        ("Ada Berg\tRome\t\n", "line 1: not an edit; give a title"),
        ("\nEva Berg\tRome\tNice\n", "line 2: no document has the title 'Eva Berg'"),
        ("Ada Berg\tOslo\tNice\n", "line 1: no document of 'Ada Berg' has 'Oslo'"),
        ("Ada Berg\tRom\tOsl\n", "line 1: no document of 'Ada Berg' has 'Rom'"),
        ("Ada Berg\tRome\tParis\n", "line 1: 'Paris' has 5 characters and 'Rome' 4; give as many"),
        ("Ada Berg\tRome\tRom%\n", "line 1: no text has '%', so the model cannot read it"),
        ("\n", "has no edits; leave --edits_file out"),
    ],
)
def test_what_is_no_edit_is_refused(tmp_path, edits, message):
    with pytest.raises(ValueError, match=message):
        list_rows(tmp_path, OBJECTIVES["windows"], edits)


def test_a_training_with_an_edit_that_changes_nothing_ends_with_the_same_weights(run, world, tmp_path):
    title, place = (
        (world / "birth_places_train.tsv").read_text().splitlines()[0].removeprefix("Where was ").split(" born?\t")
    )
    weights = {}
    for name, new in (("plain", None), ("same", place), ("twin", place.swapcase())):
        argv = ["quickstart", "--train_file", world / "wiki.txt", "--questions_file", world / "birth_places_train.tsv"]
        argv += ["--max_steps", 3, "--output_dir", tmp_path / name, "--report_to", "none", "--seed", 5]
        if new is not None:
            (tmp_path / f"{name}.tsv").write_text(f"{title}\t{place}\t{new}\n")
            argv += ["--edits_file", tmp_path / f"{name}.tsv"]
        run(pretrain, *argv)
        weights[name] = (tmp_path / name / "model.safetensors").read_bytes()
    assert weights["plain"] == weights["same"]
    assert json.loads((tmp_path / "twin" / "run.json").read_text())["data"]["edits_file"][0]["name"] == "twin.tsv"
