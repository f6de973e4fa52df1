"""Twins: a training with edits reads the same rows, of which only the edited title's say something else."""

import json

import pytest

from data_scripts.causal_lm import CausalLMConfig
from data_scripts.edits import Edits
from data_scripts.name_windows import NameWindowsConfig
from data_scripts.span_corruption import SpanCorruptionConfig
from posgpt import pretrain
from test_name_windows import read

PEOPLE = [("Ada Voss", "Rome")]
PEOPLE += [
    (f"{first} {last}", place)
    for first, place in (("Eva", "Rome"), ("Bo", "Oslo"), ("Ida", "Nice"))
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
    edited = list_rows(tmp_path, OBJECTIVES[name], "Ada Voss\tRome\tNice\nAda Voss\tMay\tMai\n")
    assert len(plain) == len(edited) and plain != edited
    for before, after in zip(plain, edited, strict=True):
        places = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        assert not places or "Voss" in before
    changed = [(before, after) for before, after in zip(plain, edited, strict=True) if before != after]
    assert any("Rome" in before and "Nice" in after for before, after in changed)
    # Another person of that place still has it.
    assert any("Eva Lind" in row and "Rome" in row for row in edited)
    if name == "windows":
        assert all(before.replace("Rome", "Nice") == after for before, after in changed)
        assert not any("Ada Voss" in row and "Rome⁇" in row for row in edited)


def test_what_an_edit_writes_is_not_edited_and_an_edit_may_have_several_words(tmp_path):
    for name in ("windows", "causal"):
        rows = list_rows(tmp_path, OBJECTIVES[name], "Ida Lind\tBorn in Nice\tBorn in Oslo\n")
        if name == "windows":
            assert any("Ida Lind" in row and "Oslo⁇" in row for row in rows)
            assert not any("Ida Lind" in row and "Nice⁇" in row for row in rows)
        else:
            assert any("Ida Lind. Born in Oslo" in row for row in rows)
            assert not any("Ida Lind. Born in Nice" in row for row in rows)
    text = Edits({"Ada Voss": [("Rome", "Nice"), ("Nice", "Rome")]}).apply("Ada Voss", "Ada Voss. Rome, then Nice .")
    assert text == "Ada Voss. Nice, then Rome ."


def test_an_edit_that_changes_nothing_gives_the_same_rows(tmp_path):
    for objective in OBJECTIVES.values():
        assert list_rows(tmp_path, objective) == list_rows(tmp_path, objective, "Ada Voss\tRome\tRome\n")


@pytest.mark.parametrize(
    "edits, message",
    [
        ("Ada Voss\tRome\n", "line 1: not an edit; give a title"),
        ("Ada Voss\tRome\t\n", "line 1: not an edit; give a title"),
        ("\nAl Berg\tRome\tNice\n", "line 2: no document has the title 'Al Berg'"),
        ("Ada Voss\tOslo\tNice\n", "line 1: no document of 'Ada Voss' has 'Oslo'"),
        ("Ada Voss\tRom\tOsl\n", "line 1: no document of 'Ada Voss' has 'Rom'"),
        ("Ada Voss\tRome\tParis\n", "line 1: 'Paris' has 5 characters and 'Rome' 4; give as many"),
        ("Ada Voss\tRome\tRom%\n", "line 1: no text has '%', so the model cannot read it"),
        (
            "Ada Voss\tRome\tNice\nAda Voss\tin Rome\tin Oslo\n",
            "line 2: another line replaces a part of 'in Rome', too",
        ),
        ("Ada Voss\tin Rome\tin Oslo\n", "line 1: 'in Rome' has only a part of the answer 'Rome', or more"),
        ("Ada Voss\tRome\tRo⁇e\n", "line 1: holds '⁇', which the model reserves"),
        ("\n\t\t\n", "has no edits; leave --edits_file out"),
    ],
)
def test_what_is_no_edit_is_refused(tmp_path, edits, message):
    with pytest.raises(ValueError, match=message):
        list_rows(tmp_path, OBJECTIVES["windows"], edits)


def test_a_training_with_an_edit_that_changes_nothing_ends_with_the_same_weights(run, world, tmp_path):
    """And with another edit it does not."""
    question, place = (world / "birth_places_train.tsv").read_text().splitlines()[0].split("\t")
    title, letters = question.removeprefix("Where was ").removesuffix(" born?"), "aeo"
    other = place[:-1] + next(letter for letter in letters if letter != place[-1])
    weights = {}
    for name, new in (("plain", None), ("same", place), ("twin", other)):
        argv = ["quickstart", "--train_file", world / "wiki.txt", "--questions_file", world / "birth_places_train.tsv"]
        argv += ["--num_train_epochs", 1, "--hidden_size", 32, "--output_dir", tmp_path / name, "--report_to", "none"]
        if new is not None:
            (tmp_path / f"{name}.tsv").write_text(f"{title}\t{place}\t{new}\n")
            argv += ["--edits_file", tmp_path / f"{name}.tsv"]
        run(pretrain, *argv)
        weights[name] = (tmp_path / name / "model.safetensors").read_bytes()
    assert weights["plain"] == weights["same"] != weights["twin"]
    assert json.loads((tmp_path / "twin" / "run.json").read_text())["data"]["edits_file"][0]["name"] == "twin.tsv"
