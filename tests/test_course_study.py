"""The course's experiment as a study: both stages, measured, kept and drawn; and the factorial on top of it."""

import json
import re

import pytest
import yaml

from conftest import ROOT
from posgpt.recipe_parser import find_recipe, read_recipe
from studies import course, course_stages, factorial, few_questions, training_runs
from study_helpers import SMALL, read_rows, train_in_process


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    """Train without a process of its own, which takes most of the time of so small a training."""
    monkeypatch.setattr(training_runs, "launch", train_in_process)


def write_recipe(path, name: str, **options) -> str:
    """Write a recipe like `name` with models that train in a second."""
    sizes = {"hidden_size", "num_hidden_layers", "num_attention_heads", "block_size"}
    small = SMALL | {"max_steps": 3, "save_steps": 2, "logging_steps": 1} | options
    recipe = read_recipe(find_recipe(name))
    for section, values in recipe.items():
        recipe[section] = values | {key: small[key] for key in small if section != "finetune" or key not in sizes}
    path.write_text(yaml.safe_dump(recipe))
    return str(path)


def test_both_stages_are_trained_measured_drawn_and_kept(run, world, tmp_path, monkeypatch):
    recipe = write_recipe(tmp_path / "tiny.yaml", "course")
    public = {"n": 110, "median": 23.0, "quartiles": [20.5, 25.1], "best": 31.8}
    rows = {
        "scratch": {"finetune": {"recipe": recipe, "position_embedding_type": "rotary"}},
        "whole": {"pretrain": {"recipe": recipe}, "finetune": {"recipe": recipe}, "public": public},
    }
    monkeypatch.setattr(course, "ROWS", tmp_path / "rows.yaml")
    course.ROWS.write_text(yaml.safe_dump(rows))
    arguments = ["--data_dir", world, "--output_dir", tmp_path / "out", "--micro_batch_size", 32]
    printed = run(course, *arguments)
    table = (tmp_path / "out" / "table.md").read_text()
    assert table in printed and "birth_dev.tsv" in table
    header, cells = read_rows(table)["row"], read_rows(table)
    whole = dict(zip(header, cells["whole"], strict=True))
    assert whole["public: median (quartiles), best, n"] == "23.0 (20.5-25.1), 31.8, 110"
    assert {"pretrained: answered when asked", "pretrained: recalled as read"} < set(header)
    scratch = dict(zip(header, cells["scratch"], strict=True))
    assert scratch["last loss, pretraining"] == "" and float(scratch["last loss, finetuning"]) > 0
    assert (tmp_path / "out" / "losses.png").stat().st_size > 1000
    # Each training step of the course's 128 documents is made of four batches.
    state = json.loads((tmp_path / "out" / "whole_42" / "pretrain" / "trainer_state.json").read_text())
    assert state["train_batch_size"] == 32 and "--gradient_accumulation_steps 4" in printed

    # Pretraining does not depend on who is held out.
    trained = []
    monkeypatch.setattr(training_runs, "launch", lambda *call: (trained.append(call[0]), train_in_process(*call))[1])
    held_out = [*arguments, "--rows", "whole", "--held_out", 10]
    assert "10 questions of calibration.tsv" in run(course, *held_out) and trained == ["posgpt.finetune"]
    monkeypatch.setattr(training_runs, "launch", lambda *_: pytest.fail("trained again"))
    assert table in run(course, *arguments) and "whole" in run(course, *held_out)
    with pytest.raises(SystemExit, match="--micro_batch_size 48 does not divide .*'s 256; choose a divisor"):
        run(course, *arguments[:-1], 48)
    with pytest.raises(SystemExit, match="'other' is not a row of rows.yaml; there are: scratch, whole"):
        run(course, *arguments, "--rows", "other")


def test_finetuning_is_done_again_after_another_pretraining(tmp_path):
    (tmp_path / "recipe.yaml").write_text("finetune: {}")
    command = [str(tmp_path / "recipe.yaml"), "--model_name_or_path", str(tmp_path)]
    weights = tmp_path / "model.safetensors"
    keys = []
    for content in (b"one", b"two", b"one"):
        weights.write_bytes(content)
        keys.append(training_runs.build_key(command, "finetune"))
    assert keys[0] == keys[2] != keys[1]


def test_the_factorial_takes_each_optimizer_at_its_best_rate(run, world, tmp_path, monkeypatch):
    ran = []

    def run_cell(cell, seed, task, arguments, output_dir) -> dict:
        ran.append((*cell, seed))
        # The smaller rate is the better one for AdamW on windows, the larger one elsewhere.
        prefers_small = (cell.objective, cell.optimizer) == ("name_windows", "AdamW")
        right = 0.5 if (cell.learning_rate < 2e-3) == prefers_small else 0.4
        return {"right": right, "recalled": [1, 2], "loss": 1.0, "characters": 10, "minutes": 1.0}

    monkeypatch.setattr(factorial, "run_cell", run_cell)
    rates = ["--muon_rates", "1e-3", "4e-3", "--adamw_rates", "1e-3", "2e-3"]
    arguments = ["--data_dir", world, "--output_dir", tmp_path, "--held_out", 10, *rates, "--seeds", 1, 2]
    printed, folder = run(factorial, *arguments), tmp_path / "rotary_1650_held_out_10"
    assert {cell for cell in ran if cell[3] == 0.1} == {
        (objective, optimizer, rate, 0.1, seed)
        for objective, optimizer, rate in (
            ("name_windows", "Muon", 4e-3),
            ("name_windows", "AdamW", 1e-3),
            ("span_corruption", "Muon", 4e-3),
            ("span_corruption", "AdamW", 2e-3),
        )
        for seed in (1, 2)
    }
    table = (folder / "table.md").read_text()
    assert table in printed and "10 training pairs that were held out" in table
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:] if "name_win" in line]
    # Rates that are not the best have one seed.
    assert {tuple(row[1:4]): row[5].count("%") for row in cells} == {
        ("Muon", "0.001", "0"): 1, ("Muon", "0.004", "0"): 2, ("Muon", "0.004", "0.1"): 2,
        ("AdamW", "0.001", "0"): 2, ("AdamW", "0.002", "0"): 1, ("AdamW", "0.001", "0.1"): 2,
    }  # fmt: skip
    assert (folder / "chart.png").stat().st_size > 1000


def test_a_cell_of_the_factorial_is_pretrained_recalled_finetuned_and_asked(world, tmp_path, monkeypatch):
    monkeypatch.setattr(factorial, "RECIPE", write_recipe(tmp_path / "tiny.yaml", "windows"))
    monkeypatch.setitem(factorial.FINETUNING, "span_corruption", write_recipe(tmp_path / "quick.yaml", "quick"))
    arguments = factorial.FactorialArguments(str(world), max_steps=2)
    task = course_stages.load_task(world, tmp_path, 10)
    cell = factorial.Cell("span_corruption", "AdamW", 1e-3, 0.1)
    record = factorial.run_cell(cell, 1, task, arguments, tmp_path)
    assert 0 <= record["right"] <= 1 and record["recalled"][1] > 10 and record["loss"] > 0
    folder = tmp_path / "span_corruption_AdamW_0.001_0.1_1"
    config = json.loads((folder / "finetune" / "config.json").read_text())
    assert config["resid_pdrop"] == 0.1 and "questions_file" not in (folder / "pretrain" / "study.json").read_text()


def test_the_best_rate_has_the_most_right_answers_and_then_the_lowest_loss():
    def choose(*records: tuple[float, float]) -> float:
        runs = {
            factorial.Cell("name_windows", "Muon", rate, 0.0): {42: {"right": right, "loss": loss}}
            for rate, (right, loss) in enumerate(records)
        }
        return factorial.choose_rate(runs, "name_windows", "Muon")

    assert choose((0.1, 1.0), (0.3, 2.0), (0.2, 0.1)) == 1
    assert choose((0.0, 1.5), (0.0, 1.2), (0.0, 1.3)) == 1


def test_the_public_figures_are_those_of_the_page():
    page = (ROOT / "docs" / "course.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = [row["public"] for row in yaml.safe_load(course.ROWS.read_text()).values() if "public" in row]
    assert len(rows) >= 4
    for public in rows:
        quartiles = "-".join(f"{quartile:.1f}" for quartile in public["quartiles"])
        assert re.search(rf"\| {public['n']}\b.*\| {public['median']} \({quartiles}\) \| {public['best']}\b", page)
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for name in ("learned", "rotary", "learned, from scratch"):
        public = yaml.safe_load(course.ROWS.read_text())[name]["public"]
        assert re.search(rf"median {public['median']} %, best {public['best']} % \([^)]*\b{public['n']}\b", results)
        assert name == "learned, from scratch" or f"{public['median']} %, {public['best']} %" in readme


def test_a_model_is_finetuned_on_few_pairs_of_several_draws(run, world, tiny_pretrained, tmp_path, monkeypatch):
    recipe = write_recipe(tmp_path / "tiny.yaml", "windows", use_cpu=True, bf16=False)
    arguments = [
        "--model_name_or_path",
        tiny_pretrained["rotary"],
        "--data_dir",
        world,
        "--output_dir",
        tmp_path / "few",
    ]
    arguments += ["--recipe", recipe, "--sizes", 2, 4, "--seeds", 0, 1]
    printed = run(few_questions, *arguments, "--held_out", 10)
    folder = tmp_path / "few" / "held_out_10"
    table = (folder / "table.md").read_text()
    assert table in printed and "the 10 questions of calibration.tsv" in table
    rows = read_rows(table)
    assert [rows[size][1].count("%") for size in ("0", "2", "4")] == [1, 2, 2]
    drawn = {
        path.name: set((path / "birth_places_train.tsv").read_text().splitlines()) for path in folder.glob("[24]_*")
    }
    assert drawn["2_0"] < drawn["4_0"] and drawn["2_0"] != drawn["2_1"]
    held_out = (folder / "calibration.tsv").read_text().splitlines()
    assert all(pairs.isdisjoint(held_out) for pairs in drawn.values())
    assert (folder / "chart.png").stat().st_size > 1000
    with pytest.raises(SystemExit, match="--sizes 9999: there are .* pairs to draw from"):
        run(few_questions, *arguments, "--sizes", 9999)
    # The tiny model's folder, as if it had been pretrained with questions, or finetuned.
    (tmp_path / "asked").mkdir()
    for read in ("questions_file", "model_name_or_path"):
        record = json.loads((tiny_pretrained["rotary"] / "run.json").read_text())
        record["data"][read] = record["data"]["train_file"]
        (tmp_path / "asked" / "run.json").write_text(json.dumps(record))
        with pytest.raises(
            SystemExit, match="asked: was trained on questions, .*; give a model that was pretrained without"
        ):
            run(few_questions, "--model_name_or_path", tmp_path / "asked", *arguments[2:])
