"""The studies: one command each, cached, and resumed where they stopped."""

import json
import math
import shutil
import subprocess
import sys

import psutil
import pytest
import yaml

from benchmarks import speedrun
from conftest import ROOT, wait_until
from data_scripts.errors import BadInput
from posgpt.plots import make_figure, render_picture
from posgpt.recipe_parser import find_recipe, read_section
from posgpt.training.architecture import ArchitectureArguments
from studies import accept, attention_explained, attention_maps, cache, length, positions, training_runs
from studies.tables import format_known
from study_helpers import SMALL, read_rows, train_in_process


@pytest.fixture
def recipe(tmp_path):
    """The windows' recipe, with a model that trains in a second."""
    settings = read_section(find_recipe("windows"), "pretrain") | SMALL
    settings |= {"save_steps": 2, "logging_steps": 1, "per_device_train_batch_size": 4}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump({"pretrain": settings}))
    return tmp_path / "tiny.yaml"


@pytest.fixture
def in_process(monkeypatch):
    """Train without a process of its own, which takes most of the time of so small a training."""
    monkeypatch.setattr(training_runs, "launch", train_in_process)


def test_rows_of_a_training_step_are_those_that_the_command_reads(tmp_path):
    (tmp_path / "total.yaml").write_text("base: windows\npretrain: {total_train_batch_size: 24}\n")
    recipe = str(tmp_path / "total.yaml")
    assert training_runs.count_rows_per_step(recipe, "pretrain") == 24
    # On the command line, too, it takes the place of the recipe's total.
    assert training_runs.count_rows_per_step(recipe, "pretrain", per_device_train_batch_size=64) == 64


def test_options_of_a_row_become_a_command_line(tmp_path):
    options = {"first_shares": [0.1, 0.3], "rope_parameters": {"factor": 2}, "use_muon": True, "max_steps": None}
    assert training_runs.build_command("windows", **options) == [
        "windows", "--first_shares", "0.1", "0.3", "--rope_parameters", '{"factor": 2}', "--use_muon", "True",
    ]  # fmt: skip


def test_a_result_is_kept_and_so_is_what_it_can_resume_from(tmp_path):
    folder, seen = tmp_path / "run", []

    def compute() -> dict:
        seen.append((folder / "half.txt").exists())
        (folder / "half.txt").touch()
        if len(seen) == 1:
            raise KeyboardInterrupt
        return {"figure": len(seen)}

    def keep(key: int) -> dict:
        return cache.keep_result(folder / "result.json", {"key": key}, compute, folder)

    with pytest.raises(KeyboardInterrupt):
        keep(1)
    assert cache.read_result(folder / "result.json", {"key": 1}) == {}
    assert keep(1) == keep(1) == {"figure": 2} and seen == [False, True]
    assert cache.read_result(folder / "result.json", {"key": 2}) is None
    with pytest.raises(
        BadInput, match="run: was trained with other key than this; give another .*result.json has what"
    ):
        keep(2)
    assert keep(1) == {"figure": 2} and (folder / "half.txt").exists()


def test_a_training_is_known_by_what_is_in_its_files_wherever_they_lie(tmp_path):
    (tmp_path / "recipe.yaml").write_text("pretrain: {}")
    keys = []
    for folder, content in (("one", "Ada."), ("other", "Ada."), ("third", "Bo.")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "wiki.txt").write_text(content)
        command = [str(tmp_path / "recipe.yaml"), "--train_file", str(tmp_path / folder / "wiki.txt")]
        keys.append(training_runs.build_key(command))
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("path", ["mine.txt", "mine/model.safetensors", "result.json"])
def test_a_folder_that_no_study_has_made_is_left_as_it_is(tmp_path, path):
    file = tmp_path / "run" / path
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    with pytest.raises(
        BadInput, match="run: holds .*, and no result.json that says .*; give another --output_dir, or"
    ):
        cache.keep_result(tmp_path / "run" / "result.json", {}, lambda: pytest.fail("computed"), tmp_path / "run")
    assert file.read_text() == "{}"
    (tmp_path / "empty").mkdir()
    assert cache.keep_result(tmp_path / "empty" / "result.json", {}, lambda: {"figure": 1}, tmp_path / "empty")


@pytest.mark.parametrize("result", [{}, {"figure": 1}])
def test_what_other_code_has_trained_is_neither_kept_as_this_codes_nor_removed(tmp_path, result):
    folder = tmp_path / "run"
    (folder / "checkpoint-2").mkdir(parents=True)

    def keep(key: dict) -> dict:
        return cache.keep_result(folder / "result.json", key, lambda: {"figure": 2}, folder)

    # Records of earlier versions do not say which code it was.
    for before in ({"seed": 1, cache.CODE: "other"}, {"seed": 1}):
        cache.write_result(folder / "result.json", before, result)
        with pytest.raises(BadInput, match="run: was trained with other code than this; remove the folder to train"):
            keep({"seed": 1, cache.CODE: "this"})
        assert (folder / "checkpoint-2").exists() and cache.read_result(folder / "result.json", before) == result
    with pytest.raises(BadInput, match="run: was trained with other seed and code than this"):
        keep({"seed": 2, cache.CODE: "this"})
    assert (folder / "checkpoint-2").exists()


@pytest.mark.parametrize("result", [{}, {"figure": 1}])
def test_what_other_code_has_trained_can_be_accepted(run, tmp_path, result):
    folder, computed = tmp_path / "run", []
    (folder / "checkpoint-2").mkdir(parents=True)
    cache.write_result(folder / "result.json", {"seed": 1, cache.CODE: "first"}, result)

    def compute() -> dict:
        computed.append((folder / "checkpoint-2").exists())
        return {"figure": 1}

    def keep(**key) -> dict:
        return cache.keep_result(folder / "result.json", key, compute, folder)

    with pytest.raises(BadInput, match=f"python -m studies.accept {folder}"):
        keep(seed=1, code="second")
    # Twice, the first code is still on record.
    for _ in range(2):
        assert f"{folder / 'result.json'}: kept" in run(accept, folder)
    assert json.loads((folder / "result.json").read_text())["key"][cache.CODE].endswith(" first")
    assert keep(seed=1, code="second") == keep(seed=1, code="second") == {"figure": 1}
    assert json.loads((folder / "result.json").read_text())["key"][cache.CODE].endswith(" first")
    # An unfinished one has been resumed from what was there.
    assert computed == ([] if result else [True]) and (folder / "checkpoint-2").exists()
    # Only the code was accepted.
    with pytest.raises(BadInput, match="run: was trained with other seed than this"):
        keep(seed=2, code="second")
    with pytest.raises(SystemExit, match="elsewhere: no file says which code trained it; give the folder"):
        run(accept, tmp_path / "elsewhere")


def test_a_key_has_the_sources_that_train_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(cache.posgpt, "__file__", str(tmp_path / "posgpt" / "__init__.py"))

    def hash_after(path: str) -> str:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
        return cache.hash_code.__wrapped__()

    first = hash_after("data_scripts/__init__.py")
    assert first == hash_after("posgpt/extras/demo.py") == hash_after("data_scripts/README.md")
    training = [
        "modeling_posgpt/model.py",
        "data_scripts/world/cues.py",
        "posgpt/training/muon.py",
        "posgpt/pretrain.py",
    ]
    assert len({first, *map(hash_after, training)}) == 5
    assert cache.hash_code.__wrapped__(tmp_path / training[0]) != cache.hash_code.__wrapped__()


def test_positions_are_compared_over_seeds_and_finished_trainings_are_kept(
    run, world, recipe, in_process, tmp_path, monkeypatch
):
    data = shutil.copytree(world, tmp_path / "data")
    arguments = ["--data_dir", data, "--output_dir", tmp_path / "out", "--recipe", recipe, "--max_steps", 3]
    arguments += ["--members", "none", "alibi", "--seeds", 1]
    printed = run(positions, *arguments)
    table = (tmp_path / "out" / "table.md").read_text()
    assert table in printed and {"none", "alibi"} <= set(read_rows(table))
    assert (tmp_path / "out" / "chart.png").stat().st_size > 1000
    record = json.loads((tmp_path / "out" / "alibi_1" / "study.json").read_text())
    assert [step for step, _ in record["figures"]["losses"]] == [1, 2, 3] and record["figures"]["memory"] > 100

    monkeypatch.setattr(training_runs, "launch", lambda *_: pytest.fail("trained again"))
    assert table in run(positions, *arguments)
    with pytest.raises(SystemExit, match="'other' is not a position_embedding_type; there are: learned, rotary"):
        run(positions, "--data_dir", world, "--members", "other")
    # Other dev questions are asked of the same models.
    dev_file = data / "birth_dev.tsv"
    dev_file.write_text("".join(dev_file.read_text().splitlines(keepends=True)[:5]))
    run(positions, *arguments)
    assert len(json.loads((tmp_path / "out" / "alibi_1" / "asked.json").read_text())["right"]) == 5


def test_processes_share_the_recipes_batch_or_the_training_refuses(recipe, tmp_path):
    settings = yaml.safe_load(recipe.read_text())["pretrain"] | {"gradient_accumulation_steps": 2}
    recipe.write_text(yaml.safe_dump({"pretrain": settings}))
    arguments = positions.PositionsArguments(str(tmp_path), recipe=str(recipe))
    assert not any("batch_size" in part for part in positions.build_member_command("none", 1, arguments))
    for processes in (2, 3):
        arguments.processes = processes
        command = positions.build_member_command("none", 1, arguments)
        assert command[command.index("--total_train_batch_size") + 1] == "8"
        assert "--per_device_train_batch_size" not in command


def test_a_race_prints_what_a_record_needs_and_asks_what_it_is_told_to(
    run, world, recipe, in_process, tmp_path, monkeypatch
):
    monkeypatch.setattr(speedrun, "measure_matmul", lambda dtype: 1e9)
    settings = yaml.safe_load(recipe.read_text())["pretrain"] | {"max_steps": 2}
    recipe.write_text(yaml.safe_dump({"pretrain": settings}))
    train_file = world / "birth_places_train.tsv"
    arguments = ["--data_dir", world, "--recipe", recipe, "--output_dir", tmp_path / "out", "--seeds", 1, 2]
    printed = run(speedrun, *arguments, "--position_embedding_type", "alibi", "--test_file", train_file)
    assert (tmp_path / "out" / "table.md").read_text() in printed
    _, row = read_rows((tmp_path / "out" / "table.md").read_text()).values()
    assert row[0] == "alibi" and "of 1 GFLOP/s" in " ".join(row) and len(row[3].split(", ")) == 2
    asked = json.loads((tmp_path / "out" / "alibi_2" / "model" / "asked.json").read_text())["right"]
    assert len(asked) == len(train_file.read_text().splitlines())


@pytest.mark.parametrize("start, before", [("from_scratch", []), ("pretrained", ["pretrained"])])
def test_in_a_race_what_is_read_to_generate_questions_counts(
    start, before, run, world, recipe, in_process, tmp_path, monkeypatch
):
    monkeypatch.setattr(speedrun, "measure_matmul", lambda dtype: 1e9)
    settings = yaml.safe_load(recipe.read_text())["pretrain"] | {"max_steps": 2}
    generating = read_section(find_recipe("windows"), "generate_questions")
    generating |= {
        name: value for name, value in SMALL.items() if not before or not hasattr(ArchitectureArguments, name)
    }
    generating |= {"max_steps": 2, "least_probability": 0.0}
    recipe.write_text(yaml.safe_dump({"pretrain": settings, "generate_questions": generating}))
    folder = tmp_path / "out"
    arguments = ["--data_dir", world, "--recipe", recipe, "--output_dir", folder, "--seeds", 1]
    run(speedrun, *arguments, "--generate_questions", start)
    models = [folder / "rotary_1" / name for name in (*before, "questions", "model")]
    characters = [json.loads((model / "study.json").read_text())["figures"]["characters"] for model in models]
    _, row = read_rows((folder / "table.md").read_text()).values()
    assert row[4:6] == [start, f"{sum(characters) / 1e6:.1f} M"] and min(characters) > 0
    records = [json.loads((model / "run.json").read_text())["data"] for model in models]
    assert [[file["name"] for file in record["questions_file"]] for record in records] == [
        *[["birth_places_train.tsv"]] * (1 + len(before)),
        ["birth_places_train.tsv", "generated_questions.tsv"],
    ]
    assert [file["name"] for file in records[-2].get("model_name_or_path", [])] == before


def test_more_seeds_asking_the_same_people_do_not_narrow_the_interval():
    took = {"losses": [(1, 1.0)], "parameters": 1, "characters": 1, "minutes": 1.0, "memory": 1.0}
    runs = [took | {"right": [True] * right + [False] * (500 - right)} for right in (440, 460)]
    row = positions.summarize_member(runs)
    assert row["accuracy"] == 0.9 and row["seeds"] == [0.88, 0.92]
    assert row["share"] == (450, 500)


def test_the_difference_of_members_is_taken_person_by_person():
    hard_for_both = [True] * 60 + [False] * 40
    better = [{"right": hard_for_both}, {"right": [True] * 64 + [False] * 36}]
    less, error = positions.compare_members(better, [{"right": hard_for_both}])
    assert (
        less == pytest.approx(0.02) and 0.009 < error < 0.011 and positions.compare_members(better, better) == (0, 0)
    )


def test_an_interrupted_training_goes_on_and_one_with_other_arguments_is_refused(
    world, recipe, in_process, tmp_path, capfd, monkeypatch
):
    folder = tmp_path / "run"
    arguments = [str(recipe), "--train_file", str(world / "wiki.txt"), "--max_steps", "4"]
    whole = training_runs.train("whole", arguments, folder)
    weights, record = (folder / "model.safetensors").read_bytes(), json.loads((folder / "study.json").read_text())
    shutil.rmtree(folder)
    # Stopped after two of four steps: what is left is a checkpoint, and what was asked for.
    stopped = ["--save_strategy", "steps", "--save_steps", "2", "--save_total_limit", "5"]
    assert training_runs.launch("posgpt.pretrain", [*arguments, *stopped, "--output_dir", str(folder)]) == 0
    for name in ("model.safetensors", "checkpoint-4"):
        target = folder / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    (folder / "study.json").write_text(json.dumps({"key": record["key"]}))
    # Broken off while being written.
    (folder / "checkpoint-3").mkdir()
    resumed = training_runs.train("resumed", arguments, folder)
    assert "--resume_from_checkpoint last" in capfd.readouterr().out
    assert (folder / "model.safetensors").read_bytes() == weights
    assert resumed["losses"] == whole["losses"] and not list(folder.glob("checkpoint-*"))
    monkeypatch.setattr(training_runs, "hash_code", lambda: "other")
    with pytest.raises(BadInput, match="run: was trained with other code"):
        training_runs.train("by other code", arguments, folder)
    monkeypatch.undo()
    with pytest.raises(BadInput, match="run: was trained with other options than this"):
        training_runs.train("other", [*arguments, "--seed", "7"], folder)
    recipe.write_text(recipe.read_text().replace("learning_rate: 0.002", "learning_rate: 0.001"))
    with pytest.raises(BadInput, match="run: was trained with other recipe than this"):
        training_runs.train("other recipe", arguments, folder)
    assert (folder / "model.safetensors").read_bytes() == weights


def test_a_finished_training_whose_figures_were_lost_is_not_trained_again(world, recipe, tmp_path, monkeypatch):
    arguments = [str(recipe), "--train_file", str(world / "wiki.txt"), "--max_steps", "2"]
    figures = training_runs.train("whole", arguments, tmp_path / "run")
    record = tmp_path / "run" / "study.json"
    record.write_text(json.dumps({"key": json.loads(record.read_text())["key"]}))
    monkeypatch.setattr(training_runs, "launch", lambda *_: pytest.fail("trained again"))
    assert training_runs.train("whole", arguments, tmp_path / "run") == figures


@pytest.mark.parametrize("first_step, minutes", [(0, 2), (1, 4), (2, math.nan)])
def test_minutes_are_of_the_whole_training_whichever_step_it_was_resumed_from(
    world, recipe, in_process, tmp_path, monkeypatch, first_step, minutes
):
    folder = tmp_path / "run"
    arguments = [str(recipe), "--train_file", str(world / "wiki.txt"), "--max_steps", "2", "--save_steps", "1"]
    arguments += ["--save_total_limit", "5"]

    def read_figures(folder) -> dict:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training_runs, "_read_figures", read_figures)
        training_runs.train("first", arguments, folder)
    (folder / "model.safetensors").unlink()
    for step in range(first_step + 1, 3):
        shutil.rmtree(folder / f"checkpoint-{step}")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training_runs, "_read_figures", read_figures)
        training_runs.train("resumed", arguments, folder)
    results = json.loads((folder / "train_results.json").read_text())
    (folder / "train_results.json").write_text(json.dumps(results | {"train_runtime": 120}))
    monkeypatch.setattr(training_runs, "launch", lambda *_: pytest.fail("trained again"))
    figures = training_runs.train("read", arguments, folder)
    assert figures["minutes"] == pytest.approx(minutes, nan_ok=True)
    kept = training_runs.train("kept", arguments, folder)
    assert kept["minutes"] == pytest.approx(minutes, nan_ok=True)
    row = positions.summarize_member([kept | {"right": [True], "parameters": 1}])
    assert format_known(row["minutes"], ".0f") == ("unknown" if math.isnan(minutes) else str(minutes))


def test_a_study_that_is_ended_ends_its_training(world, recipe, tmp_path):
    code = (
        "import sys; from pathlib import Path; from studies.training_runs import train\n"
        f"train('long', [{str(recipe)!r}, '--train_file', {str(world / 'wiki.txt')!r}, '--max_steps', '100000'],"
        f" Path({str(tmp_path / 'run')!r}))"
    )
    study = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    process = psutil.Process(study.pid)
    wait_until(process.children, lambda: study.poll() is None)
    (training,) = process.children()
    study.terminate()
    assert study.wait(60) == 143
    assert not training.is_running() or training.status() == psutil.STATUS_ZOMBIE


def test_a_training_that_fails_stops_the_study_in_one_line(in_process, tmp_path):
    with pytest.raises(training_runs.BadInput, match="'bad' failed"):
        training_runs.train("bad", ["--train_file", str(tmp_path / "none.txt")], tmp_path / "run")


def test_losses_past_the_trained_length_are_read_for_every_member_that_goes_on(run, tmp_path, monkeypatch):
    arguments = ["--output_dir", tmp_path, "--num_people", 100, "--max_steps", 2, "--num_rows", 2, "--hidden_size", 32]
    printed = run(length, *arguments, "--members", "learned", "rotary")
    rows = read_rows(printed)
    assert {"learned", "rotary", "rotary, linear", "rotary, dynamic", "rotary, yarn", "rotary, llama3"} < set(rows)
    assert rows["learned"].count("ends") == 3 and "ends" not in rows["rotary"]
    curves = json.loads((tmp_path / "rotary" / "losses.json").read_text())["curves"]
    assert len(curves["rotary"]) == 1023 and all(0 < loss < 20 for loss in curves["rotary"])
    assert (tmp_path / "chart.png").stat().st_size > 1000
    monkeypatch.setattr(length, "train_member", lambda *_: pytest.fail("trained again"))
    assert (tmp_path / "table.md").read_text() in run(length, *arguments, "--members", "learned", "rotary")
    monkeypatch.setattr(length, "hash_code", lambda file: "other")
    with pytest.raises(SystemExit, match="rotary: was trained with other code"):
        run(length, *arguments, "--members", "rotary")


def test_attention_maps_show_every_head_and_how_much_falls_on_the_name(run, tiny_pretrained, tmp_path):
    models = [tiny_pretrained["rotary"], tiny_pretrained["none"]]
    printed = run(attention_maps, "--models", *models, "--name", "Ada Example", "--output_dir", tmp_path)
    assert (
        "2 layers of 2 heads" in printed
        and "(11 of 28 characters: 39%" in printed
        and (tmp_path / "table.md").read_text() in printed
    )
    for model in models:
        assert (tmp_path / f"{model.name}.png").read_bytes().startswith(b"\x89PNG")
        assert read_rows(printed)[str(model)][0] == model.name


def test_the_page_on_attention_holds_what_its_script_measures(run, tmp_path):
    run(attention_explained, "--output_dir", tmp_path)
    assert (tmp_path / "attention.md").read_text() == (ROOT / "docs" / "attention.md").read_text()
    assert (tmp_path / "attention.png").stat().st_size > 1000


def test_logarithmic_axes_are_labelled_with_numbers_not_with_the_source_of_formulas():
    figure, axes = make_figure(4, 4)
    axes.plot([0.6, 3], [200, 60_000])
    axes.set(xscale="log", yscale="log", title="$5 or $6")
    render_picture(figure)
    shown = [label.get_text() for axis in (axes.xaxis, axes.yaxis) for label in axis.get_ticklabels(which="both")]
    assert {"1", "2", "1000", "10000"} <= set(shown) and not any("$" in text for text in shown)
