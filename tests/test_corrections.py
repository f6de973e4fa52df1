import shutil

import pandas as pd
import pytest

from studies import corrections


@pytest.fixture(scope="module")
def data(world, tmp_path_factory):
    """The world's training questions, and three questions of dev."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("birth_places_train.tsv", "other_wordings.yml"):
        shutil.copy(world / name, folder)
    lines = (world / "birth_dev.tsv").read_text().splitlines()[:3]
    (folder / "birth_dev.tsv").write_text("".join(f"{line}\n" for line in lines))
    return folder


def run_corrections(run, model, data, folder, **options):
    arguments = [each for name, value in options.items() for each in (f"--{name}", value)]
    printed = run(corrections, "--models", *model, "--data_dir", data, "--output_dir", folder, *arguments)
    return printed, pd.read_csv(folder / "corrections.csv")


def test_a_correction_is_taken_and_without_a_rate_nothing_changes(run, tiny_pretrained, data, tmp_path):
    models = [tiny_pretrained["rotary"], tiny_pretrained["learned"]]
    printed, lines = run_corrections(run, models[:1], data, tmp_path, learning_rate=3e-3, max_steps=60)
    assert lines["taken"].all() and (lines["new"] != lines["before"]).all() and (lines["others"] == 2).all()
    assert "| 100.0% of 3 |" in printed and "from model to model" not in printed
    # A model that is hardly trained gives the new answer to the others, too.
    assert lines["changed"].sum() > 0 == lines["spoiled"].sum()
    printed, lines = run_corrections(run, models, data, tmp_path, learning_rate=0, max_steps=1, kept_pairs=2)
    assert not lines["taken"].any() and not lines["changed"].any() and len(lines) == 6
    assert "| from model to model " in printed and (tmp_path / "chart.png").stat().st_size > 5_000
    # What both wordings are answered alike with is asked for in both.
    assert set(lines["reworded"].dropna()) <= {False}


def test_training_has_to_ask_the_same(run, tiny_pretrained, data, tmp_path):
    shutil.copytree(data, tmp_path / "data")
    (tmp_path / "data" / "birth_dev.tsv").write_text("When was Ada Ek born?\t1815\n")
    with pytest.raises(
        SystemExit, match="birth_places_train.tsv: asks for no 'birth year', which .*birth_dev.tsv begins with"
    ):
        run_corrections(run, [tiny_pretrained["rotary"]], tmp_path / "data", tmp_path / "out")
    (tmp_path / "data" / "birth_dev.tsv").write_text("Where was Ada Ek born?\tRome\n")
    (tmp_path / "data" / "birth_places_train.tsv").write_text("Where was Bo Ek born?\tRome\n")
    with pytest.raises(
        SystemExit, match="birth_places_train.tsv: has no other answer to 'Where was Ada Ek born\\?' to teach"
    ):
        run_corrections(run, [tiny_pretrained["rotary"]], tmp_path / "data", tmp_path / "out")
    assert not (tmp_path / "out").exists()
