import json

import pytest
import yaml

from conftest import ROOT, TINY
from studies import knowledge, training_runs

SMALL = {name.removeprefix("--"): value for name, value in zip(TINY[::2], TINY[1::2], strict=True)}


def test_a_study_trains_its_rows_once_and_measures_them_on_people_held_out(run, world, tmp_path, monkeypatch):
    rows = tmp_path / "rows.yaml"
    windows = {"recipe": "recipes/windows.yaml", "max_steps": 2, **SMALL}
    rows.write_text(yaml.safe_dump({"windows": windows, "never asked for": windows}))
    monkeypatch.setattr(knowledge, "ROWS", rows)
    arguments = ["--data_dir", world, "--output_dir", tmp_path / "out", "--held_out", 20, "--rows", "windows"]
    printed = run(knowledge, *arguments)
    folder = tmp_path / "out" / "rotary_42"
    table = (folder / "table.md").read_text()
    assert table in printed and "| windows | " in table and "never" not in table
    assert (folder / "chart.png").stat().st_size > 1000
    figures = json.loads((folder / "windows" / "figures.json").read_text())
    assert figures["characters"] > 0 and 0 <= figures["answered"] <= 1

    monkeypatch.setattr(training_runs.subprocess, "Popen", lambda *_, **__: pytest.fail("trained again"))
    monkeypatch.setattr(knowledge, "load_model", lambda *_: pytest.fail("measured again"))
    assert table in run(knowledge, *arguments)
    with pytest.raises(SystemExit, match="'other' is no row of rows.yaml; there are: never asked for, windows"):
        run(knowledge, *arguments[:-1], "other")


@pytest.mark.parametrize(
    "wording, plain", [("question", False), ("question", True), ("document", False), ("span_corruption", False)]
)
def test_recall_is_asked_for_in_the_words_that_were_read(tmp_path, wording, plain):
    (tmp_path / "wiki.txt").write_text("Ann Berg. Berg (b. 3 May 1951 in Rome) met Bo in Nice .\nNo Place. Lost .\n")
    pairs = [{"question": f"Where was {name} born?", "place": "Rome"} for name in ("Ann Berg", "No Place")]
    expected = {
        "question": "Where was Ann Berg b 0 in?" if plain else "Where was Ann Berg May 1951 in?",
        "document": "Ann Berg. May 1951 in",
        "span_corruption": "Ann Berg. Berg (b. 3 May 1951 in ⁇) met Bo in Nice .",
    }
    file = tmp_path / "wiki.txt"
    assert knowledge.recall_prompts(file, pairs, wording, plain, 3, 128) == [(expected[wording], "Rome")]
    if wording == "question":
        for words, prompt in enumerate(("Where was Ann Berg?", "Where was Ann Berg in?")):
            assert knowledge.recall_prompts(file, pairs, wording, plain, words, 128) == [(prompt, "Rome")]


def test_every_row_of_the_study_is_made_of_arguments_of_its_step(tmp_path):
    import train_pretrain
    from training import ArchitectureArguments, PosGPTTrainingArguments, parse_arguments

    steps = [ArchitectureArguments, train_pretrain.DataTrainingArguments, PosGPTTrainingArguments]
    for row in yaml.safe_load(knowledge.ROWS.read_text(encoding="utf-8")).values():
        settings = dict(row)
        argv = [str(ROOT / settings.pop("recipe")), "--train_file", "x", "--output_dir", str(tmp_path), *TINY[-6:]]
        for option, value in settings.items():
            argv += [f"--{option}", json.dumps(value) if isinstance(value, dict) else str(value)]
        parsed = parse_arguments(steps, "pretrain", argv)
        for option, value in settings.items():
            assert value in [getattr(part, option) for part in parsed if hasattr(part, option)]
