import json

import pytest
import yaml

from conftest import ON_CPU
from data_scripts.name_windows import NameWindowsConfig
from data_scripts.objective_config import ObjectiveConfig
from data_scripts.questions import load_questions
from data_scripts.relations import BIRTHPLACE
from data_scripts.span_corruption import SpanCorruptionConfig
from posgpt.pretrain import PretrainingArguments
from posgpt.recipe_parser import parse_with_recipe
from posgpt.training.architecture import ArchitectureArguments
from posgpt.training.arguments import PosGPTTrainingArguments
from studies import knowledge, training_runs
from study_helpers import SMALL, read_rows, train_in_process


def test_a_study_trains_its_rows_once_and_measures_them_on_people_held_out(run, world, tmp_path, monkeypatch):
    monkeypatch.setattr(training_runs, "launch", train_in_process)
    rows = tmp_path / "rows.yaml"
    windows = {"recipe": "windows", "max_steps": 2, **SMALL}
    rows.write_text(yaml.safe_dump({"windows": windows, "never asked for": windows}))
    monkeypatch.setattr(knowledge, "ROWS", rows)
    arguments = ["--data_dir", world, "--output_dir", tmp_path / "out", "--held_out", 20, "--rows", "windows"]
    printed = run(knowledge, *arguments)
    folder = tmp_path / "out" / "rotary_42"
    table = (folder / "table.md").read_text()
    assert table in printed and "windows" in read_rows(table) and "never" not in table
    assert (folder / "chart.png").stat().st_size > 1000
    figures = json.loads((folder / "windows" / "figures.json").read_text())
    assert figures["characters"] > 0 and 0 <= figures["answered"] <= 1

    monkeypatch.setattr(training_runs, "launch", lambda *_: pytest.fail("trained again"))
    monkeypatch.setattr(knowledge, "load_on_device", lambda *_: pytest.fail("measured again"))
    assert table in run(knowledge, *arguments)
    with pytest.raises(SystemExit, match="'other' is not a row of rows.yaml; there are: never asked for, windows"):
        run(knowledge, *arguments[:-1], "other")


@pytest.mark.parametrize(
    "wording, plain", [("question", False), ("question", True), ("document", False), ("span_corruption", False)]
)
def test_recall_is_asked_for_in_the_words_that_were_read(tmp_path, wording, plain):
    file = tmp_path / "wiki.txt"
    file.write_text("Ann Berg. Berg (b. 3 May 1951 in Rome) met Bo in Nice .\nNo Place. Lost .\n")
    (tmp_path / "pairs.tsv").write_text(
        "".join(f"{BIRTHPLACE.ask(name)}\tRome\n" for name in ("Ann Berg", "No Place"))
    )
    questions = load_questions(tmp_path / "pairs.tsv", answers=True)
    expected = {
        "question": "Where was Ann Berg b 0 in?" if plain else "Where was Ann Berg May 1951 in?",
        "document": "Ann Berg. May 1951 in",
        "span_corruption": "Ann Berg. Berg (b. 3 May 1951 in ⁇) met Bo in Nice .",
    }

    def build(max_cue_words: int) -> list[tuple[str, str]]:
        objective = SpanCorruptionConfig()
        if wording != "span_corruption":
            objective = NameWindowsConfig(window_wording=wording, plain_cues=plain, max_cue_words=max_cue_words)
        return list(zip(*knowledge.build_recall_prompts(file, questions, objective, 128), strict=True))

    assert build(5) == build(3) == [(expected[wording], "Rome")]
    if wording == "question":
        for words, prompt in enumerate(("Where was Ann Berg?", "Where was Ann Berg in?")):
            assert build(words) == [(prompt, "Rome")]


def test_every_row_of_the_study_is_made_of_arguments_of_its_command(tmp_path):
    dataclasses = [ArchitectureArguments, PretrainingArguments, ObjectiveConfig, PosGPTTrainingArguments]
    files = (tmp_path / "wiki.txt", tmp_path / "train.tsv", tmp_path / "held_out.tsv")
    shared = {"train_file": files[0], "questions_file": files[1], "position_embedding_type": "rotary", "seed": 42}
    for name, settings in yaml.safe_load(knowledge.ROWS.read_text(encoding="utf-8")).items():
        row = knowledge.Row(name, settings, shared, tmp_path, files[2])
        argv = [*row.command, "--output_dir", str(tmp_path), *ON_CPU]
        parsed = parse_with_recipe(dataclasses, "pretrain", argv)
        for option, value in settings.items():
            if option != "recipe":
                assert value in [getattr(part, option) for part in parsed if hasattr(part, option)]
        # How it is measured follows from the same options as how it is trained.
        assert row.objective == parsed[2]
