"""The studies: one command each, kept, and resumed where they stopped."""

import json
import math
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial

import pandas as pd
import psutil
import pytest
import yaml

from conftest import ON_CPU, ROOT, wait_until
from data_scripts.errors import BadInput
from data_scripts.files import load_yaml
from data_scripts.objective_config import ObjectiveConfig
from data_scripts.relations import load_relations
from data_scripts.synthetic_world import World
from modeling_posgpt import POSITION_EMBEDDINGS, PosGPTForCausalLM
from modeling_posgpt.answering_posgpt import Answer
from posgpt.evaluation.scoring import Proportion
from posgpt.plots import make_figure, render_picture
from posgpt.pretrain import PretrainingArguments
from posgpt.recipe_parser import find_recipe, parse_with_recipe, read_recipe
from posgpt.training import estimate
from posgpt.training.architecture import ArchitectureArguments
from posgpt.training.arguments import PosGPTTrainingArguments
from studies import __main__ as studies
from studies import length, rows, sweep, training_runs
from studies.honesty import describe_honesty
from studies.recall import read_objective
from study_helpers import SMALL, read_rows, train_in_process


def write_recipe(path, name: str, **options) -> str:
    """Write a recipe like `name` with models that train in a second."""
    sizes = {"hidden_size", "num_hidden_layers", "num_attention_heads", "block_size"}
    small = SMALL | {"save_steps": 2, "logging_steps": 1} | options
    recipe = read_recipe(find_recipe(name))
    for section, values in recipe.items():
        recipe[section] = values | {key: small[key] for key in small if section != "finetune" or key not in sizes}
    path.write_text(yaml.safe_dump(recipe))
    return str(path)


@pytest.fixture
def recipe(tmp_path) -> str:
    return write_recipe(tmp_path / "tiny.yaml", "windows", per_device_train_batch_size=4)


@pytest.fixture
def in_process(monkeypatch):
    """Train without a process of its own, which takes most of the time of so small a training."""
    monkeypatch.setattr(training_runs, "launch", train_in_process)
    # It builds and tries a model; a test of its own looks at it.
    monkeypatch.setattr(sweep, "estimate_minutes", lambda *_: 1.0)


@pytest.fixture
def never_again(monkeypatch):
    """Call it, and whatever trains from then on fails."""
    return lambda: monkeypatch.setattr(training_runs, "launch", lambda *_: pytest.fail("trained again"))


def test_options_of_a_row_become_a_command_line_and_give_the_rows_of_a_step(tmp_path):
    options = {"first_shares": [0.1, 0.3], "rope_parameters": {"factor": 2}, "use_muon": True}
    assert training_runs.build_command("windows", **options) == [
        "windows", "--first_shares", "0.1", "0.3", "--rope_parameters", '{"factor": 2}', "--use_muon", "True",
    ]  # fmt: skip
    (tmp_path / "total.yaml").write_text("base: windows\npretrain: {total_train_batch_size: 24}\n")
    total = {"recipe": str(tmp_path / "total.yaml")}
    assert training_runs.count_rows_per_step("pretrain", total) == 24
    # On the command line, too, it takes the place of the recipe's total.
    assert training_runs.count_rows_per_step("pretrain", total | {"per_device_train_batch_size": 64}) == 64


# What is kept.


def test_a_result_is_kept_and_so_is_what_it_can_resume_from(tmp_path, monkeypatch):
    folder, seen = tmp_path / "run", []

    def compute() -> dict:
        seen.append((folder / "half.txt").exists())
        (folder / "half.txt").touch()
        if len(seen) == 1:
            raise KeyboardInterrupt
        return {"figure": len(seen)}

    def keep(**key) -> dict:
        return training_runs.keep_result(folder / "result.json", key, compute, folder)

    with pytest.raises(KeyboardInterrupt):
        keep(seed=1)
    assert keep(seed=1) == keep(seed=1) == {"figure": 2} and seen == [False, True]
    with pytest.raises(BadInput, match=r"run: holds a run with other options .*; give another --output_dir, or move"):
        keep(seed=2)
    with monkeypatch.context() as patch, pytest.raises(BadInput, match="run: holds a run with other"):
        patch.setattr(training_runs, "VERSION", training_runs.VERSION + 1)
        keep(seed=1)
    assert keep(seed=1) == {"figure": 2} and (folder / "half.txt").exists()
    # What a training that was refused has left is in nobody's way.
    (refused := tmp_path / "refused").mkdir()
    (refused / "result.json").write_text('{"key": {"seed": 9, "version": 1}}')
    (refused / "log.txt").write_text("error: no")
    training_runs.keep_result(refused / "result.json", {"seed": 1}, dict, refused)
    # A folder that no study has made is left as it is.
    for file in (tmp_path / "mine" / "result.json", tmp_path / "yours" / "deep" / "model.safetensors"):
        file.parent.mkdir(parents=True)
        file.write_text("{}")
        folder = tmp_path / file.relative_to(tmp_path).parts[0]
        with pytest.raises(BadInput, match=f"{folder.name}: holds .*, or one that no study wrote"):
            keep(seed=1)
        assert file.read_text() == "{}"
    (folder := tmp_path / "empty").mkdir()
    assert keep(seed=1) == {"figure": 3}


def test_a_training_is_known_by_what_is_in_its_files_wherever_they_lie(tmp_path):
    recipe, keys = tmp_path / "recipe.yaml", []
    recipe.write_text("finetune: {}")
    for folder, content in (("one", "Ada."), ("other", "Ada."), ("third", "Bo.")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "wiki.txt").write_text(content)
        keys.append(training_runs.build_key("finetune", {"recipe": recipe, "file": tmp_path / folder / "wiki.txt"}))
    assert keys[0] == keys[1] != keys[2]
    # A pattern is what is in all of its files.
    options, keys = {"recipe": recipe, "train_file": tmp_path / "*" / "wiki.txt"}, []
    for content in ("Bo.", "Cy.", "Bo."):
        (tmp_path / "third" / "wiki.txt").write_text(content)
        keys.append(training_runs.build_key("finetune", options))
    assert keys[0] == keys[2] != keys[1]
    # So is one that the recipe names.
    recipe.write_text(f"finetune: {{train_file: [{tmp_path / 'third' / 'wiki.txt'}]}}")
    keys.append(training_runs.build_key("finetune", {"recipe": recipe}))
    (tmp_path / "third" / "wiki.txt").write_text("Di.")
    assert training_runs.build_key("finetune", {"recipe": recipe}) != keys[-1]
    # A model is its weights; a recipe is what it says.
    options, keys = {"recipe": recipe, "model_name_or_path": tmp_path}, []
    for content, section in ((b"one", "{}"), (b"two", "{}"), (b"one", "{}"), (b"one", "{learning_rate: 1.0}")):
        (tmp_path / "model.safetensors").write_bytes(content)
        recipe.write_text(f"finetune: {section}")
        keys.append(training_runs.build_key("finetune", options))
    assert keys[0] == keys[2] and keys[0] not in (keys[1], keys[3])


def test_an_interrupted_training_goes_on_and_one_with_other_options_is_refused(world, recipe, in_process, tmp_path):
    folder = tmp_path / "run"
    options = {"recipe": recipe, "train_file": world / "wiki.txt", "max_steps": 4}

    def read_minutes() -> float:
        return json.loads((folder / "train_results.json").read_text())["train_runtime"] / 60

    whole = training_runs.train("whole", "pretrain", options, folder)
    weights, record = (folder / "model.safetensors").read_bytes(), json.loads((folder / "study.json").read_text())
    assert whole["minutes"] == read_minutes() and not list(folder.glob("checkpoint-*"))
    # Its figures were lost: nobody knows what its running time is of.
    (folder / "study.json").write_text(json.dumps({"key": record["key"]}))
    again = training_runs.train("again", "pretrain", options, folder)
    assert again == whole | {"minutes": pytest.approx(math.nan, nan_ok=True)}
    shutil.rmtree(folder)
    # Stopped after two of four steps: what is left is a checkpoint, and what was asked for.
    stopped = training_runs.build_command(**options, save_strategy="steps", save_steps=2, save_total_limit=5)
    assert training_runs.launch(["pretrain", *stopped, "--output_dir", str(folder)]) == 0
    (folder / "model.safetensors").unlink()
    shutil.rmtree(folder / "checkpoint-4")
    (folder / "study.json").write_text(json.dumps({"key": record["key"]}))
    # Broken off while being written.
    (folder / "checkpoint-3").mkdir()
    resumed = training_runs.train("resumed", "pretrain", options, folder)
    assert (folder / "model.safetensors").read_bytes() == weights
    assert resumed["losses"] == whole["losses"] and not list(folder.glob("checkpoint-*"))
    # Two of four steps took the running time.
    assert resumed["minutes"] == pytest.approx(2 * read_minutes())
    with pytest.raises(BadInput, match="run: holds a run with other options or files"):
        training_runs.train("other", "pretrain", options | {"seed": 7}, folder)
    assert (folder / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize("processes", [1, 2])
def test_a_study_that_is_ended_ends_its_trainings(world, recipe, tmp_path, processes):
    options = {"recipe": recipe, "train_file": str(world / "wiki.txt"), "max_steps": 100_000}
    code = "from functools import partial; from pathlib import Path; from studies.training_runs import *\n"
    code += f"options, folder = {options!r}, Path({str(tmp_path)!r})\n"
    if processes == 1:
        code += "train('long', 'pretrain', options, folder / 'run')"
    else:
        code += (
            "trainings = [partial(train, name, 'pretrain', options, folder / name, 1) for name in ('a', 'b', 'c')]\n"
        )
        code += "with train_ahead(2, trainings) as trained: next(trained)"
    study = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    process = psutil.Process(study.pid)

    def find_trainings() -> list[psutil.Process]:
        # Imports may start other processes for a moment.
        with suppress(psutil.NoSuchProcess):
            return [each for each in process.children() if "posgpt" in each.cmdline()]
        return []

    wait_until(lambda: len(find_trainings()) == processes, lambda: study.poll() is None)
    trainings = find_trainings()
    study.terminate()
    assert study.wait(60) == 143
    for training in trainings:
        assert not training.is_running() or training.status() == psutil.STATUS_ZOMBIE
    assert not (tmp_path / "c").exists()


def test_a_training_that_fails_stops_the_study_in_one_line(in_process, tmp_path):
    with pytest.raises(BadInput, match="'bad' failed"):
        training_runs.train("bad", "pretrain", {"recipe": "course", "train_file": "none.txt"}, tmp_path / "run")


# Sweeps.


def test_rows_are_compared_over_seeds_and_finished_trainings_are_kept(
    run, world, recipe, in_process, never_again, tmp_path
):
    data = shutil.copytree(world, tmp_path / "data")
    arguments = ["--data_dir", data, "--output_dir", tmp_path / "out", "--recipe", recipe, "--max_steps", 3]
    arguments += ["--rows", "none", "alibi", "--seeds", 1]
    printed, folder = run(sweep, "positions", *arguments), tmp_path / "out" / "dev"
    table = (folder / "table.md").read_text()
    assert table in printed and set(read_rows(table)) == {"row", "none", "alibi"}
    said = re.search(r"^2 runs to come, about (\d+) minutes\.$", printed, re.M)
    assert said and said.start() < printed.index("\n== none, seed 1\n")
    assert (folder / "chart.png").stat().st_size > 1000
    record = json.loads((folder / "alibi_1" / "pretrain" / "study.json").read_text())
    assert [step for step, _ in record["figures"]["losses"]] == [1, 2, 3] and record["figures"]["memory"] > 100
    assert "birth_places_train.tsv" in record["key"]["options"]

    never_again()
    printed = run(studies, "positions", *arguments)
    assert table in printed and "to come" not in printed
    # Other dev questions are asked of the same models.
    dev_file = data / "birth_dev.tsv"
    dev_file.write_text("".join(dev_file.read_text().splitlines(keepends=True)[:5]))
    assert "5 questions of birth_dev.tsv" in run(sweep, "positions", *arguments)


def test_a_training_that_fails_ends_those_beside_it_and_those_about_to_start():
    ended = []

    def sleep(before: float) -> None:
        time.sleep(before)
        ended.append(subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"]).returncode)

    def fail() -> None:
        time.sleep(0.3)
        raise BadInput("the second failed")

    with pytest.raises(BadInput, match="the second failed"):
        with training_runs.train_ahead(
            2, [partial(sleep, 0), fail, partial(sleep, 0.2), partial(sleep, 0)]
        ) as trained:
            next(trained)
    # The third was about to start its process, and the fourth never does.
    assert len(ended) == 2 and all(ended)


def test_a_study_knows_the_relations_of_both_stages(world, tmp_path):
    (tmp_path / "own.yml").write_text("origin: {wordings: ['Origin of {title}?']}")
    options = {"recipe": "quick", "relations": str(tmp_path / "own.yml")}
    content = {"pretrain": {"recipe": "quick"}, "finetune": options, "rows": {"one": {}}}
    arguments = sweep.SweepArguments("mine", data_dir=str(world), output_dir=str(tmp_path / "out"))
    study, wanted = sweep.load_study(arguments, content)
    known = sweep.prepare_sweep(arguments, study, wanted).load_known_relations(wanted["one"])
    assert [relation.name for relation in known] == ["origin"]


def test_forms_that_titles_alone_show_are_refused_before_finetuning_reads_them(tmp_path):
    names = [f"{first} {last}" for first in ("Ada", "Bo", "Cy", "Gus", "Ida") for last in ("Ek", "Lind", "Moe", "Toe")]
    verbs = [
        f"{start}{end}"
        for start in ("sing", "walk", "row", "act", "farm")
        for end in ("", "er", "le", "ish", "o", "ate")
    ]
    forms = [
        f"{verb.title()}ing place of {{}} is what?" if i % 2 else f"Where did {{}} {verb}?"
        for i, verb in enumerate(verbs)
    ]
    asked = [(form, names[(7 * i + 3 * j) % 20]) for i, form in enumerate(forms) for j in range(2)]
    pairs = "".join(f"{form.format(name)}\tRome\n" for form, name in asked)
    (tmp_path / "wiki.txt").write_text("".join(f"{name}. Born in Rome .\n" for name in names))
    for file in ("birth_places_train.tsv", "birth_dev.tsv"):
        (tmp_path / file).write_text(pairs)

    def check(**content) -> None:
        arguments = sweep.SweepArguments("mine", data_dir=str(tmp_path), output_dir=str(tmp_path / "out"))
        study, wanted = sweep.load_study(arguments, {"pretrain": {"recipe": "quick"}, "rows": {"one": {}}} | content)
        sweep.prepare_sweep(arguments, study, wanted).check_questions([*wanted.values()])

    check(reads_questions=True)
    check(reads_questions=True, finetune={"recipe": "quick"})
    with pytest.raises(BadInput, match="is not of the form"):
        check(finetune={"recipe": "quick"})


def test_a_study_leaves_the_world_of_another_language_as_it_is(tmp_path):
    def prepare(**world) -> tuple[sweep.Sweep, rows.Row]:
        content = {
            "world": {"num_people": 100} | world,
            "reads_questions": True,
            "rows": {"one": {"pretrain": {"recipe": "quick"}}},
        }
        arguments = sweep.SweepArguments("mine", output_dir=str(tmp_path))
        study, wanted = sweep.load_study(arguments, content)
        return sweep.prepare_sweep(arguments, study, wanted), wanted["one"]

    prepare()
    (folder,) = tmp_path.iterdir()
    before = (folder / "wiki.txt").read_text()
    with pytest.raises(BadInput, match="holds a world that is asked otherwise; give another --output_dir"):
        prepare(language="german")
    assert (folder / "wiki.txt").read_text() == before
    # Questions in another wording are called as usual.
    made, row = prepare(wording=2)
    ((*_, options),) = made.list_trainings(row, 1)
    assert load_relations(options["relations"])[0].name == "birthplace"


def test_a_training_beside_others_is_the_same(run, world, recipe, in_process, never_again, monkeypatch, tmp_path):
    arguments = ["--data_dir", world, "--recipe", recipe, "--max_steps", 3, "--rows", "alibi", "--seeds", 1]
    run(sweep, "positions", *arguments, "--output_dir", tmp_path / "one")
    never_again()
    printed = run(sweep, "positions", *arguments, "--output_dir", tmp_path / "two", "--processes", 2)
    assert "train_loss" not in printed
    folders = [tmp_path / count / "dev" for count in ("one", "two")]
    trained = [folder / "alibi_1" / "pretrain" for folder in folders]
    losses = [json.loads((folder / "study.json").read_text())["figures"]["losses"] for folder in trained]
    assert losses[0] == losses[1] and "train_loss" in (trained[1] / "log.txt").read_text()
    assert pd.read_csv(folders[0] / "answers.csv").equals(pd.read_csv(folders[1] / "answers.csv"))

    monkeypatch.setattr(training_runs, "launch_aside", lambda *_: 1)
    with pytest.raises(SystemExit, match=r"'alibi, seed 1' failed; see its message at the end of .*log\.txt"):
        run(sweep, "positions", *arguments, "--output_dir", tmp_path / "bad", "--processes", 2)


def test_a_training_takes_as_long_as_its_steps(world, recipe, monkeypatch):
    monkeypatch.setattr(estimate, "time_steps", lambda _: 120.0)
    options = {"recipe": recipe, "train_file": world / "birth_dev.tsv", "vocabulary_file": world / "wiki.txt"}
    # A tracker, and the hub, are not told of what is timed.
    options |= {"report_to": "tensorboard", "push_to_hub": True}
    for name, value, steps in ("max_steps", 50, 50), ("num_train_epochs", 2, 10), ("exposures", 1, 600):
        assert training_runs.estimate_minutes("finetune", options | {name: value}) == pytest.approx(2 * steps)


def test_what_a_row_says_of_its_length_takes_precedence():
    rows = {
        "steps": {},
        "epochs": {"pretrain": {"num_train_epochs": 2}},
        "longer": {"base": "epochs", "finetune": None},
        "few": {"pairs": 5, "finetune": {"recipe": "windows"}},
        # As YAML reads a name with nothing below it.
        "same": None,
        "fewer": {"base": "few", "finetune": {"seed": 3}},
    }
    study = sweep.Study(rows, {"recipe": "windows", "max_steps": 3}).build_rows()
    assert study["steps"].pretrain == study["same"].pretrain == {"recipe": "windows", "max_steps": 3}
    assert study["epochs"].pretrain == study["longer"].pretrain == {"recipe": "windows", "num_train_epochs": 2}
    assert study["fewer"].pairs == 5


def test_steps_on_the_command_line_take_the_place_of_a_studys_exposures():
    content = {"pretrain": {"recipe": "windows", "exposures": 9}, "world": {}, "rows": {"one": {}}}
    _, rows = sweep.load_study(sweep.SweepArguments("mine", max_steps=3), content)
    assert rows["one"].pretrain == {"recipe": "windows", "max_steps": 3}


def test_positions_on_the_command_line_are_those_of_rows_that_name_none(monkeypatch, tmp_path):
    own = {"pretrain": {"position_embedding_type": "alibi"}}
    content = {"pretrain": {"recipe": "windows"}, "world": {}, "rows": {"one": {}, "own": own}}
    _, rows = sweep.load_study(sweep.SweepArguments("mine", position_embedding_type="none"), content)
    assert [row.pretrain["position_embedding_type"] for row in rows.values()] == ["none", "alibi"]
    monkeypatch.setattr(sweep, "_run", lambda *given: given)
    # One seed may stand for a list of it, as on a command line.
    options = {"seeds": 43, "position_embedding_type": "none", "output_dir": str(tmp_path)}
    _, study, rows = sweep.run_study("inverse", **options)
    assert study.seeds == [43] and {row.pretrain["position_embedding_type"] for row in rows.values()} == {"none"}
    with pytest.raises(BadInput, match="^study: not a study: .*'rows'"):
        sweep.run_study({})


def test_both_stages_are_trained_measured_drawn_and_kept(run, world, in_process, tmp_path, monkeypatch):
    recipe = write_recipe(tmp_path / "tiny.yaml", "course", max_steps=3)
    rows = {
        "scratch": {"finetune": {"recipe": recipe, "position_embedding_type": "rotary"}},
        "whole": {"pretrain": {"recipe": recipe}, "finetune": {"recipe": recipe}},
    }
    study = tmp_path / "mine.yaml"
    study.write_text(yaml.safe_dump({"recall": True, "rows": rows}))
    arguments = [study, "--data_dir", world, "--output_dir", tmp_path / "out", "--micro_batch_size", 32]
    printed = run(studies, *arguments)
    table = (tmp_path / "out" / "dev" / "table.md").read_text()
    assert table in printed and "birth_dev.tsv" in table
    header, cells = read_rows(table)["row"], read_rows(table)
    assert {"pretrained: answered when asked", "pretrained: recalled as read"} < set(header)
    scratch = dict(zip(header, cells["scratch"], strict=True))
    assert scratch["last loss, pretraining"] == "" and float(scratch["last loss, finetuning"]) > 0
    assert (tmp_path / "out" / "dev" / "chart.png").stat().st_size > 1000
    # Each training step of the course's 128 documents is made of four batches.
    state = json.loads((tmp_path / "out" / "whole_42" / "pretrain" / "trainer_state.json").read_text())
    assert state["train_batch_size"] == 32 and "--gradient_accumulation_steps 4" in printed
    assert "questions_file" not in (tmp_path / "out" / "whole_42" / "pretrain" / "study.json").read_text()

    # Pretraining does not depend on who is held out.
    trained = []
    monkeypatch.setattr(training_runs, "launch", lambda call: (trained.append(call[0]), train_in_process(call))[1])
    held_out = [*arguments, "--rows", "whole", "--held_out", 10]
    assert "10 questions of calibration.tsv" in run(sweep, *held_out) and trained == ["finetune"]
    monkeypatch.setattr(training_runs, "launch", lambda *_: pytest.fail("trained again"))
    assert table in run(sweep, *arguments) and "whole" in run(sweep, *held_out)
    with pytest.raises(SystemExit, match="--micro_batch_size 48 does not divide .*'s 256; choose a divisor"):
        run(sweep, *arguments[:-1], 48)
    # Asked during pretraining, it does.
    study.write_text(yaml.safe_dump({"ask_every": 2, "rows": {"whole": rows["whole"]}}))
    monkeypatch.setattr(training_runs, "launch", train_in_process)
    run(sweep, study, *arguments[1:], "--held_out", 10)
    assert len(pd.read_csv(tmp_path / "out" / "held_out_10" / "curves.csv")) == 2


def test_what_reads_questions_is_measured_on_those_held_out(run, world, recipe, in_process, never_again, tmp_path):
    study = {"reads_questions": True, "held_out": 20, "recall": True, "pretrain": {"recipe": recipe, "max_steps": 2}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(study | {"rows": {"windows": {}, "never asked for": {}}}))
    arguments = [tmp_path / "mine.yaml", "--data_dir", world, "--output_dir", tmp_path / "out", "--rows", "windows"]
    printed, folder = run(sweep, *arguments), tmp_path / "out" / "held_out_20"
    assert "20 questions of calibration.tsv" in printed and "never" not in printed
    measures = json.loads((folder / "windows_42" / "pretrain" / "recall.json").read_text())["measures"]
    assert measures["answered when asked"][1] == 20 and 0 < measures["recalled as read"][1] <= 20
    never_again()
    assert (folder / "table.md").read_text() in run(sweep, *arguments)


def test_a_model_is_finetuned_on_few_pairs_of_several_draws(
    run, world, tiny_pretrained, in_process, tmp_path, monkeypatch
):
    recipe = write_recipe(tmp_path / "tiny.yaml", "windows", use_cpu=True, bf16=False, max_steps=2)
    rows = {"before": {"finetune": None}, "two": {"pairs": 2}, "four": {"pairs": 4}}
    study = tmp_path / "few.yaml"
    study.write_text(yaml.safe_dump({"finetune": {"recipe": recipe, "seed": 42}, "rows": rows}))
    arguments = [study, "--data_dir", world, "--output_dir", tmp_path / "few", "--seeds", 0, 1, "--held_out", 10]
    model = ["--model_name_or_path", tiny_pretrained["rotary"]]
    printed, folder = run(sweep, *arguments, *model), tmp_path / "few" / "held_out_10"
    assert (folder / "table.md").read_text() in printed and "10 questions of calibration.tsv" in printed
    assert [read_rows(printed)[name][4].count("%") for name in rows] == [2, 2, 2]
    drawn = {
        path.name: set((path / "birth_places_train.tsv").read_text().splitlines()) for path in folder.glob("[ft]*_*")
    }
    assert drawn["two_0"] < drawn["four_0"] and drawn["two_0"] != drawn["two_1"]
    held_out = (folder / "calibration.tsv").read_text().splitlines()
    assert all(pairs.isdisjoint(held_out) for pairs in drawn.values())
    with pytest.raises(SystemExit, match="before: begins with a pretrained model; give one with --model_name_or_path"):
        run(sweep, *arguments)
    # What could not be asked is refused before anything is trained.
    monkeypatch.setattr(sweep, "train", lambda *_: pytest.fail("trained"))
    study.write_text(study.read_text().replace("pairs: 4", "pairs: 9999"))
    with pytest.raises(SystemExit, match="four: there are .* pairs to draw from"):
        run(sweep, *arguments, *model)
    with (shutil.copytree(world, tmp_path / "one") / "birth_places_train.tsv").open("a") as file:
        file.write("When was Ada Ek shown?\t1967\n")
    # A question alone shows no form; the row's relations say it, when pairs are drawn, too.
    (relations := tmp_path / "shown.yml").write_text("shown: {wordings: ['When was {title} shown?']}")
    settings = {"recipe": recipe, "seed": 42, "relations": str(relations)}
    (own := tmp_path / "shown.yaml").write_text(yaml.safe_dump({"finetune": settings, "rows": {"all": {"pairs": 69}}}))
    with pytest.raises(pytest.fail.Exception, match="trained"):
        run(sweep, own, "--data_dir", tmp_path / "one", "--output_dir", tmp_path / "shown", "--seeds", 0, *model)
    other = shutil.copytree(world, tmp_path / "other")
    (other / "birth_dev.tsv").unlink()
    whole = [study, "--data_dir", other, "--output_dir", tmp_path / "whole", "--seeds", 0]
    with pytest.raises(SystemExit, match="birth_dev.tsv: no such file; give the path of the TSV"):
        run(sweep, *whole, "--rows", "two", *model)
    # The tiny model's folder, as if it had been pretrained with questions, or finetuned.
    (tmp_path / "asked").mkdir()
    for read in ("questions_file", "model_name_or_path"):
        record = json.loads((tiny_pretrained["rotary"] / "run.json").read_text())
        record["data"][read] = record["data"]["train_file"]
        (tmp_path / "asked" / "run.json").write_text(json.dumps(record))
        with pytest.raises(SystemExit, match="asked: was trained on questions; give a model that has read none"):
            run(sweep, *arguments, "--model_name_or_path", tmp_path / "asked")


def test_a_study_of_a_world_writes_it_and_counts_each_relation(run, recipe, in_process, tmp_path):
    relations = ["birthplace", "birth year", "person born"]
    rows = {
        "two documents": {"world": {"biographies_per_person": 2}},
        "more people": {"world": {"num_people": 150}},
        "one": {"published": "9.7 % (arXiv 2309.14316)"},
    }
    study = {"reads_questions": True, "pretrain": {"recipe": recipe, "max_steps": 2}, "rows": rows}
    study |= {"world": {"num_people": 100, "relations": relations}, "recall": True}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(study))
    printed = run(sweep, tmp_path / "mine.yaml", "--output_dir", tmp_path / "out")
    cells = read_rows(printed)
    assert [name for name in cells["row"] if name in relations] == relations
    assert cells["one"][cells["row"].index("published")] == "9.7 % (arXiv 2309.14316)"
    own = ("num_people_100", "num_people_100_biographies_per_person_2", "num_people_150")
    folders = [tmp_path / "out" / f"world_{each}" for each in own]
    assert [len((folder / "wiki.txt").read_text().splitlines()) for folder in folders] == [100, 200, 150]
    assert (tmp_path / "out" / "dev" / "chart.png").stat().st_size > 1000
    assert re.fullmatch(r"-?\d+\.\d+ ± \d+\.\d+ of 14\.72", cells["one"][cells["row"].index("bits per person")])
    # After two steps, what the model has read is as new to it as before.
    assert re.fullmatch(
        r"-\d+\.\d+ ± \d+\.\d+ of 14\.72", cells["one"][cells["row"].index("bits per person, as read")]
    )
    results = pd.read_csv(tmp_path / "out" / "dev" / "results.csv")
    assert [*results["relation"]] == 3 * relations
    assert set(results["questions"][results["row"] != "more people"]) == {17}
    # Models that are asked about other people are not compared.
    assert "51 to 78 questions of birth_dev.tsv" in printed
    compared = [cells[row][cells["row"].index("points behind the best")] for row in rows]
    assert sum(map(bool, compared)) < 2
    again = sweep.run_study(study, output_dir=tmp_path / "out", rows=["one"])
    assert again.equals(results[results["row"] == "one"].reset_index(drop=True))


def test_a_study_of_several_worlds_asks_the_people_of_all(run, recipe, in_process, never_again, tmp_path):
    study = {
        "reads_questions": True,
        "recall": True,
        "candidates": True,
        "ask_every": 1,
        "world": {"num_people": 100, "relations": ["birthplace", "birth year"]},
        "world_seeds": [3, 4],
        "pretrain": {"recipe": recipe, "max_steps": 1},
        "rows": {"short": {}, "long": {"pretrain": {"max_steps": 2}}},
    }
    results = sweep.run_study(study, output_dir=tmp_path / "out")
    assert [*results[["row", "world"]].drop_duplicates().itertuples(index=False, name=None)] == [
        (row, world) for row in ("short", "long") for world in (3, 4)
    ]
    table = (tmp_path / "out" / "dev" / "table.md").read_text()
    cells = read_rows(table)
    assert set(cells) == {"row", "short", "long"} and "34 questions of birth_dev.tsv in each of 2 worlds" in table
    assert len(cells["long"][cells["row"].index("each seed")].split(", ")) == 2
    assert len(pd.read_csv(tmp_path / "out" / "dev" / "curves.csv").groupby(["row", "world"])) == 4
    # One world goes on where several ended, as they were.
    never_again()
    assert len(sweep.run_study(study, output_dir=tmp_path / "out", world_seeds=[4])) == 4


def test_models_of_pairs_alone_are_asked_what_they_were_trained_on(run, in_process, tmp_path):
    study = {
        "ask_training": True,
        "world": {"num_people": 100, "relations": ["birthplace", "birth year"], "frequency": 1},
        "finetune": {"recipe": write_recipe(tmp_path / "tiny.yaml", "quickstart"), "max_steps": 2},
        "rows": {"pairs alone": {}},
    }
    results = sweep.run_study(study, output_dir=tmp_path / "out")
    assert [*results["questions"]] == [68, 68]
    table = (tmp_path / "out" / "training" / "table.md").read_text()
    assert "136 questions of birth_places_train.tsv" in table
    cells = read_rows(table)
    parameters, person, parameter = (
        float(cells["pairs alone"][cells["row"].index(name)].split()[0].replace(",", ""))
        for name in ("parameters", "bits per person", "bits per parameter")
    )
    # Nobody else has been read of.
    assert parameter == pytest.approx(68 * person / parameters, abs=2e-3)


def test_a_study_in_another_language_has_the_same_relations(run, recipe, in_process, tmp_path):
    study = {
        "reads_questions": True,
        "recall": True,
        "candidates": True,
        "ask_every": 1,
        "world": {
            "num_people": 100,
            "language": "german",
            "relations": ["birthplace", "birth year"],
            "fixed_order": True,
            "biographies_per_person": 2,
            "contradictions": 0.5,
        },
        "pretrain": {"recipe": recipe, "max_steps": 1},
        "rows": {"windows": {}},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(study))
    cells = read_rows(run(sweep, tmp_path / "mine.yaml", "--output_dir", tmp_path / "out"))
    assert re.fullmatch(
        r"-\d+\.\d+ ± \d+\.\d+ of 14\.72", cells["windows"][cells["row"].index("bits per person, as read")]
    )
    # A model that has learned nothing writes anything else; among all places and years, less is left to learn.
    bits = [cells["windows"][cells["row"].index(f"bits per person{which}")] for which in ("", ", among candidates")]
    assert float(bits[0].split()[0]) < float(bits[1].split()[0]) - 20 and bits[1].endswith(" of 14.72")
    assert "accuracy_birth_year" in pd.read_csv(tmp_path / "out" / "dev" / "curves.csv")
    # Of two facts, one is told first, for each person in all documents.
    assert [cells["windows"][cells["row"].index(f"told in sentence {number}")] for number in (1, 2)] == ["0.0%"] * 2
    answers = pd.read_csv(tmp_path / "out" / "dev" / "answers.csv")
    assert set(answers.groupby("title")["sentence"].agg(tuple)) == {(1, 2), (2, 1)}
    # Those with no correct document are a group, too.
    world = World(**study["world"])
    told = {world.name_person(i): world.count_told(i) for i in range(68, 85)}
    assert [*answers["true_documents"]] == [*map(told.get, answers["title"])] and set(told.values()) == {0, 1, 2}
    assert [name for name in cells["row"] if "correct documents" in name] == [
        f"correct documents: {i}" for i in (0, 1, 2)
    ]


def test_models_are_asked_on_the_way_and_curves_count_exposures(run, recipe, in_process, tmp_path):
    study = {
        "reads_questions": True,
        "ask_every": 2,
        "world": {"num_people": 100, "frequency": 1, "relations": ["birthplace", "birth year"]},
        "pretrain": {"recipe": recipe, "max_steps": 5},
        "rows": {"mine": {}},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(study))
    run(sweep, tmp_path / "mine.yaml", "--output_dir", tmp_path / "out", "--seeds", 1, 2)
    curves = pd.read_csv(tmp_path / "out" / "dev" / "curves.csv")
    assert [*curves["seed"]] == [1] * 3 + [2] * 3 and [*curves["step"]] == [2, 4, 5] * 2
    results = json.loads((tmp_path / "out" / "dev" / "mine_1" / "pretrain" / "train_results.json").read_text())
    assert results["exposures"] > 0
    assert [*curves["exposures"][:3]] == pytest.approx([results["exposures"] * step / 5 for step in (2, 4, 5)])
    answers = pd.read_csv(tmp_path / "out" / "dev" / "answers.csv")
    assert len(answers) == 2 * 34 and set(answers["told"]) == {1, 4}
    world = World(num_people=100, frequency=1)
    assert set(zip(answers["title"], answers["told"], strict=True)) == {
        (world.name_person(i), world.count_biographies(i)) for i in range(68, 85)
    }
    # Once, at least twice, and so on; of the last, no document tells.
    told = {"told": [1, 2, 3, 4, None], "right": [False, True, False, True, True]}
    assert rows.average_by("told", [told, told]) == {1: 0, 2: 0.5, 4: 1}
    # Documents that are all wrong tell it, too.
    for column in ("told", "true_documents"):
        wrong = {column: [0, 0, 1, None], "right": [True, False, True, True]}
        assert rows.average_by(column, [wrong]) == {0: 0.5, 1: 1}
    assert not rows.average_by("told", [{"right": [True]}])
    # In a straight line between the first time that half was answered and the one before, whatever came before or after.
    for shares, half in {
        (0.25, 0.75): 15,
        (0.25, 0.5, 0.4, 0.6): 20,
        (0.45, 0.4, 0.6): 25,
        (0.8,): 6.25,
        (0.5, 0.5): 10,
    }.items():
        asked = [{"step": 10 * i, "eval_accuracy": share} for i, share in enumerate(shares, 1)]
        assert rows.find_halves([{"pretrain": {"asked": asked}}]) == [pytest.approx(half)]
    assert math.isnan(*rows.find_halves([{"pretrain": {"asked": [{"step": 10, "eval_accuracy": 0.4}]}}]))
    # As many people are asked for each relation.
    means = (curves["accuracy_birthplace"] + curves["accuracy_birth_year"]) / 2
    assert [*curves["accuracy"]] == pytest.approx([*means])


def test_models_are_asked_about_strangers_and_what_answers_earn_is_counted(run, recipe, in_process, tmp_path):
    relations = ["birthplace", "birth year", "birth year's parity"]
    study = {
        "reads_questions": True,
        "strangers": 5,
        "pretrain": {"recipe": recipe, "max_steps": 2},
        "world": {"num_people": 100, "relations": relations},
        "rows": {"windows": {}, "asked in training": {"world": {"strangers": 20}}},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(study))
    cells = read_rows(run(sweep, tmp_path / "mine.yaml", "--output_dir", tmp_path / "out"))
    # After two steps, models are sure of nothing. Both rows are asked the same about people.
    column = cells["row"].index("people refused")
    assert [cells[row][column : column + 2] for row in study["rows"]] == 2 * [["100.0%", "100.0%"]]
    assert sum(bool(cells[row][cells["row"].index("points behind the best")]) for row in study["rows"]) == 1
    world = World(num_people=100, strangers=20, relations=relations)
    kept = [json.loads(file.read_text()) for file in (tmp_path / "out" / "dev").glob("*/strangers.json")]
    # What documents tell of people, about the same strangers for both rows.
    assert len(kept[0]["answers"]) == 10 and kept[0]["key"]["questions"] == kept[1]["key"]["questions"]
    # Training has not asked about these.
    told = {world.name_person(i) for i in range(120)}
    assert told.isdisjoint(map(world.name_person, range(-5, 0)))
    # Of four people, one is answered and is sure, one wrong and sure, one refused, and one unsure; of two strangers, one is named.
    run_of_four = {
        "answers": ["Rome", "Oslo", "unknown", "Bern"],
        "probabilities": [0.9, 0.8, 1.0, 0.79],
        "right": [True, False, False, True],
        "relations": 4 * ["birthplace"],
        "strangers": {"answers": ["Rome", "unknown"], "probabilities": [0.85, 0.99]},
    }
    assert describe_honesty(world, [run_of_four]) == {
        "people refused": "50.0%",
        "strangers refused": "50.0%",
        # Of eight pairs of a person and a stranger: 0.9 is above both, 0.8 and 0.79 are above one, and 0 equals one.
        "AUROC, people and strangers": "0.562",
        "earned, errors cost 4": f"{(1 - 4) / 4 - 4 / 2:.1%}",
    }


def test_a_row_with_edits_is_compared_with_its_base_seed_by_seed(run, recipe, in_process, tmp_path):
    world = World(num_people=100)
    person = world.person(0)
    other = next(
        each.birth_place
        for each in world.people()
        if len(each.birth_place) == len(person.birth_place) and each.birth_place != person.birth_place
    )
    entries = {"as it is": {}, "edited": {"base": "as it is", "edits": [[person.name, person.birth_place, other]]}}
    study = {"reads_questions": True, "seeds": [1, 2], "pretrain": {"recipe": recipe, "max_steps": 2}, "rows": entries}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(study | {"world": {"num_people": 100}}))
    cells = read_rows(run(sweep, tmp_path / "mine.yaml", "--output_dir", tmp_path / "out"))
    edited = dict(zip(cells["row"], cells["edited"], strict=True))
    assert edited.keys() > {"other answers than the base", "other answers from seed to seed"}
    assert (tmp_path / "out" / "edits_edited.tsv").read_text() == f"{person.name}\t{person.birth_place}\t{other}\n"
    # The edit reaches training, and only that of its row.
    kept = [tmp_path / "out" / "dev" / f"{name}_1" / "pretrain" / "study.json" for name in ("edited", "as_it_is")]
    with_edits, without = (json.loads(path.read_text())["key"]["options"] for path in kept)
    assert "edits_edited.tsv" in with_edits and "edits" not in without
    # 2 of 3 answers differ from the base's with one seed, none with the other; the edited title's own do not count.
    base, runs = ([{"answers": [*each], "titles": "ABC"} for each in own] for own in (("abc", "abd"), ("axy", "abd")))
    assert rows.count_different(zip(base, runs, strict=True)) == 1 == rows.count_different([tuple(base)])
    assert rows.count_different(zip(base, runs, strict=True), "B") == 0.5
    base, runs = ([{"answers": [*each], "titles": ["B", "C or B", "Bo"]}] for each in ("abc", "xyz"))
    assert rows.count_different(zip(base, runs, strict=True), "B") == 1, (
        "a comparison with the edited title is not about others"
    )
    entries["edited"]["world"] = {"seed": 1}
    with pytest.raises(BadInput, match="'edited' has edits, which pretraining alone reads, in its base's world"):
        sweep.run_study(study | {"world": {"num_people": 100}}, output_dir=tmp_path / "out")
    with pytest.raises(SystemExit, match="--rows: 'edited' is compared with 'as it is'; name both"):
        run(sweep, tmp_path / "mine.yaml", "--output_dir", tmp_path / "out", "--rows", "edited")
    # Before the first row is trained.
    entries["edited"] = {"base": "as it is", "edits": [["Nobody", "Rome", "Oslo"]]}
    with pytest.raises(BadInput, match="edits_edited.tsv, line 1: no document has the title 'Nobody'"):
        sweep.run_study(study | {"world": {"num_people": 100}}, output_dir=tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


def test_one_of_several_answers_is_enough(tiny_pretrained, monkeypatch, tmp_path):
    lines = ["Rome in 1800?\tAda Ek", "Rome in 1800?\tBo Li", "Oslo in 1800?\tAda Ek"]
    (tmp_path / "asked.tsv").write_text("".join(f"Who was born in {line}\n" for line in lines))
    monkeypatch.setattr(PosGPTForCausalLM, "answer", lambda self, asked, _: [Answer("Bo Li", 1.0) for _ in asked])
    asked = sweep.ask(tiny_pretrained["rotary"], tmp_path / "asked.tsv", tmp_path / "asked.json")
    assert asked["right"] == [True, False] and asked["relations"] == 2 * ["person born"]


def test_stored_bits_are_the_entropy_that_no_surprisal_is_left_of():
    world = World(num_people=100, num_places=2, relations=["birthplace", "birth year", "born first"])
    entropy, relations = world.entropy(), ["birthplace", "birthplace", "birth year", "birth year", "born first"]
    asked = {"relations": relations, "right": 5 * [True], "titles": [*"ABABA"]}
    runs = [asked | {"surprisals": each} for each in ([0, 1, 3, 5, 9], [2, 3, 1, 3, 9])]
    bits = entropy["birthplace"] + entropy["birth year"]
    # Over two seeds, 1 and 2 bits of two people's birthplaces are missing, and 2 and 4 of their birth years: of A 1.5 less than on average.
    assert rows.count_stored_bits(world, runs) == pytest.approx((bits - 1.5 - 3, (2 * (1.5 / 2) ** 2) ** 0.5, bits))
    # As read, seeds may recall different people, and of a relation nobody.
    recalled = {"A": [0, 2], "B": [1]}
    runs = [
        {
            "relations": ["birthplace"] * len(titles),
            "titles": titles,
            "surprisals": [recalled[each][i] for each in titles],
        }
        for i, titles in enumerate((["A", "B"], ["A"]))
    ]
    stored, _, asked = rows.count_stored_bits(world, runs)
    assert (stored, asked) == pytest.approx((entropy["birthplace"] - 1, entropy["birthplace"]))
    assert rows.count_stored_bits(world, [{"relations": [], "titles": [], "surprisals": []}]) == (0, 0, 0)
    # Somebody in another world is somebody else, also with the same name.
    runs = [
        {"world": number, "among": {"relations": ["birthplace"], "titles": ["A"], "surprisals": [missing]}}
        for number, missing in ((1, 0), (2, 1))
    ]
    bits = entropy["birthplace"]
    assert rows.count_stored_bits(world, runs, "among") == pytest.approx((bits - 0.5, 0.5**0.5 / 2, bits))
    assert rows.format_bits(5.432, 0.125, 6.154) == "5.43 ± 0.12 of 6.15" and not rows.format_bits(0, 0, 0)


@pytest.mark.parametrize(
    "study, options, match",
    [
        ("world: {peple: 3}\nrows: {one: {}}", [], "unknown option --peple"),
        ("world: {num_people: 3}\nrows: {one: {}}", [], "num_people is 3; choose"),
        ("rows: {200: {}}", [], "a row is named 200; give it words"),
        ("rows: {e+: {}, e-: {}}", [], "'e-' and 'e.' differ in nothing but marks"),
        ("rows: {one: {pairs: 5, pretrain: {recipe: quick}}}", [], "'one' has pairs, which finetuning alone reads"),
        ("held_out: -3\nrows: {one: {pretrain: {recipe: quick}}}", [], "held_out is -3; choose at least 0"),
        ("{held_out: 9, ask_training: true, rows: {one: {}}}", [], "mine.yaml: ask_training .*; leave held_out out"),
        (
            "{ask_training: true, world: {}, rows: {one: {pairs: 9, finetune: {recipe: course}}}}",
            [],
            "mine.yaml: ask_training .*; leave pairs out",
        ),
        ("strangers: 2.5\nrows: {one: {pretrain: {recipe: quick}}}", [], "strangers is 2.5; choose a whole number"),
        ("rows: {one: {pairs: 0}}", [], "pairs of 'one' is 0; give at least 1"),
        ("recall: true\nrows: {one: {finetune: {recipe: quick}}}", [], "recall is for rows that pretrain"),
        ("recall: 'no'\nrows: {one: {pretrain: {recipe: quick}}}", [], "recall is 'no'; choose true or false"),
        ("seeds: []\nrows: {one: {}}", [], "seeds is .., and has to have at least one"),
        ("seeds: [1, 1]\nrows: {one: {}}", [], "seeds is .1, 1., and has to have .* each once"),
        ("strangers: 5\nrows: {one: {pretrain: {recipe: quick}}}", [], "strangers are a world's; give the study one"),
        ("{world_seeds: [1], rows: {one: {pretrain: {recipe: quick}}}}", [], "world_seeds are a world's; give the"),
        (
            "{world_seeds: [1, 1], world: {}, rows: {one: {}}}",
            [],
            "world_seeds is .1, 1., and has to have .* each once",
        ),
        (
            "{world_seeds: [1], world: {}, pretrain: {recipe: quick}, rows: {one: {world: {seed: 2}}}}",
            [],
            "'one' has edits or a seed, which are of one world",
        ),
        (
            "world: {num_people: 300}\nrows: {one: {}}",
            [],
            "mine.yaml: writes a world and its dev of its own; leave --data_dir",
        ),
        ("rows: {one: {world: {}}, two: {}}", [], "mine.yaml: has no world for all rows"),
        ("rows: {one: {world: {seed: 1}}}", [], "mine.yaml: has no world for all rows"),
        (
            "rows: {one: {pretrain: {recipe: quick}}, two: {base: one, edits: [[Ann Ek, 1931, 1932]]}}",
            [],
            "the edits of 'two' are no lists",
        ),
        ("rows: {one: {pretrain: {recipe: quick}, edits: [[Ann Ek, Rome, Oslo]]}}", [], "'one' has edits and no base"),
        (
            "finetune: {recipe: quick}\nrows: {one: {}, two: {base: one, edits: [[Ann Ek, Rome, Oslo]]}}",
            [],
            "'two' has edits, which pretr",
        ),
        (
            "position",
            [],
            "there is no study 'position'; choose one of capacity, classification, comparison, contradictions, course, .*, factorial, .*, or give a YAML file",
        ),
        (
            "positions",
            ["--rows", "other"],
            "'other' is not a row of positions.yaml; there are: learned, concatenated, rotary",
        ),
        ("course", ["--max_steps", 2], "course.yaml: its rows share no options that --max_steps could change"),
        (
            "rows: {one: {pretrained: {}}}",
            [],
            "mine.yaml: not a study: the row 'one': 'pretrained' is none of pretrain, .*; did you mean 'pretrain'\\?;",
        ),
        (
            "reads_question: true\nrows: {one: {}}",
            [],
            "mine.yaml: not a study: .*; did you mean 'reads_questions'\\?;",
        ),
        (
            "{world: {num_peple: 300}, pretrain: {recipe: quick}, rows: {one: {}}}",
            [],
            "the world of 'one': unknown option --num_peple; did you mean --num_people\\?",
        ),
        ("row: {}", [], "mine.yaml: not a study: .*'row'"),
        ("rows: {one: {base: other}}", [], "mine.yaml: not a study: the base of 'one', 'other', is no row above it"),
        ("pretrain: {max_steps: 2}\nrows: {one: {}}", [], "mine.yaml: not a study: pretrain of 'one' names no recipe"),
        (
            "{strangers: 999999, world: {num_people: 100000}, pretrain: {recipe: quick}, rows: {one: {}}}",
            [],
            "strangers is 999999; english has 1,098,240 names; choose at most 998,240",
        ),
        ("rows: {}", [], "mine.yaml: not a study: rows has to give at least one"),
        ("seeds: 43\nrows: {one: {}}", [], "mine.yaml: not a study: seeds is 43, and has to be a list"),
        ("seeds: 1 2\nrows: {one: {}}", [], "mine.yaml: not a study: seeds is '1 2', and has to be a list"),
        ("seeds: [1, -2]\nrows: {one: {pretrain: {recipe: quick}}}", [], "seeds is -2; choose at least 0"),
        ("rows: position_embeding_type", [], "rows is 'position_embeding_type'; give rows below .* one of .*position"),
        ("rows: {one: rotary}", [], "the row 'one' is 'rotary', and has to be what it changes"),
        (
            "pretrain: quickstart\nrows: {one: {}}",
            [],
            "pretrain is 'quickstart', and has to be options by their names",
        ),
        ("rows: {one: {pretrain: quick}}", [], "pretrain of 'one' is 'quick', and has to be options by their names"),
        ("world: 100\nrows: {one: {}}", [], "world is 100, and has to be options by their names"),
        ("[]", [], "mine.yaml: not a study: it is .., and has to be rows"),
        ("world_seeds: []\nrows: {one: {}}", [], "world_seeds is .., and has to have at least one"),
        ("seeds: [true]\nrows: {one: {}}", [], "seeds is .True., and has to be a list of whole numbers"),
    ],
)
def test_a_study_that_is_none_is_refused_in_one_line(run, world, tmp_path, study, options, match):
    if not study.isalpha():
        (tmp_path / "mine.yaml").write_text(study)
        study = tmp_path / "mine.yaml"
    with pytest.raises(SystemExit, match=match) as stop:
        run(sweep, study, "--data_dir", world, "--output_dir", tmp_path / "out", *options)
    assert "\n" not in stop.value.code and not (tmp_path / "out").exists()


def test_an_option_that_changes_nothing_is_refused(run, tmp_path):
    for study, options, match in (
        ("dynamics", ["--max_steps", 2], "--max_steps changes no row of dynamics.yaml, for each says its own"),
        ("honesty", ["--model_name_or_path", "some"], "each row of honesty.yaml pretrains its own model"),
    ):
        with pytest.raises(SystemExit, match=match):
            run(sweep, study, "--output_dir", tmp_path / "out", *options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "study, match",
    [
        (
            "world: {}\nrows: {one: {}, two: {world: {language: german}}}",
            "mine.yaml: its worlds differ in what they are asked, or in language",
        ),
        (
            "world: {}\nheld_out: 9\nrows: {one: {}}",
            "mine.yaml: writes a world and its dev of its own; leave .*--held_out out",
        ),
        ("rows: {one: {}}", "mine.yaml: has no world for all rows; give one, or --data_dir"),
        (
            "{ask_training: true, world: {strangers: 9}, rows: {one: {}}}",
            "mine.yaml: ask_training also asks .*; leave strangers out",
        ),
    ],
)
def test_a_study_without_data_needs_one_world(run, tmp_path, study, match):
    (tmp_path / "mine.yaml").write_text(study)
    with pytest.raises(SystemExit, match=match):
        run(sweep, tmp_path / "mine.yaml", "--output_dir", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_wrong_option_of_a_later_row_is_refused_before_anything_is_trained(run, recipe, never_again, tmp_path):
    never_again()
    study = {
        "world": {"num_people": 100},
        "rows": {"a": {"pretrain": {"recipe": recipe}}, "b": {"base": "a"}},
    }
    for option, problem in (
        ("max_stepz", "unknown option --max_stepz; did you mean --max_steps"),
        ("output_dir", "output_dir is the study's; leave it out"),
    ):
        study["rows"]["b"]["pretrain"] = {option: 3}
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump(study))
        with pytest.raises(SystemExit, match=f"row 'b': {problem}"):
            run(sweep, tmp_path / "mine.yaml", "--output_dir", tmp_path / "out")
        assert not (tmp_path / "out").exists()
    # Sizes that do not fit show when a model is built.
    study["rows"]["b"]["pretrain"] = {"hidden_size": 7}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(study))
    with pytest.raises(SystemExit, match="hidden_size"):
        run(sweep, tmp_path / "mine.yaml", "--output_dir", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_usage_lists_every_study_and_each_lists_its_options(run, capsys):
    printed = run(studies)
    for name in [*(file.stem for file in (ROOT / "studies").glob("*.yaml")), *studies.ANALYSES]:
        assert f"  {name} " in printed
    for analysis in studies.ANALYSES:
        with pytest.raises(SystemExit) as stop:
            run(studies, analysis, "--help")
        assert stop.value.code == 0 and "--output_dir" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["knowledge", "positions", "factorial", "course"])
def test_every_row_is_made_of_options_of_its_command(world, tmp_path, name):
    arguments = sweep.SweepArguments(name, str(world))
    study, rows = sweep.load_study(arguments)
    all_positions = [f"{each}+rotary" if each == "randomized" else each for each in POSITION_EMBEDDINGS]
    assert name != "positions" or list(rows) == all_positions
    files = sweep.RowFiles(tmp_path, tmp_path / "train.tsv", tmp_path / "held_out.tsv")
    trainings = sweep.Sweep(arguments, study, tmp_path, tmp_path, dict.fromkeys(rows, files))
    dataclasses = [ArchitectureArguments, PretrainingArguments, ObjectiveConfig, PosGPTTrainingArguments]
    for row in rows.values():
        for stage, section, options in trainings.list_trainings(row, 42):
            if stage == "pretrain":
                argv = [*training_runs.build_command(**options), "--output_dir", str(tmp_path), *ON_CPU]
                parsed = parse_with_recipe(dataclasses, section, argv)
                for option, value in row.pretrain.items():
                    if option != "recipe" and value is not None:
                        assert value in [getattr(part, option) for part in parsed if hasattr(part, option)]
                # How it is measured follows from the same options as how it is trained.
                assert read_objective(**options) == parsed[2]


# The rows of these two pretrain alone, and are parsed above.
@pytest.mark.parametrize(
    "name", sorted({file.stem for file in (ROOT / "studies").glob("*.yaml")} - {"knowledge", "positions"})
)
def test_no_row_of_a_study_would_be_refused(name, world, tmp_path, monkeypatch):
    # The files are not written here, neither are those of edits.
    monkeypatch.setattr(sweep, "load_pretraining_data", lambda *_: None)
    content = load_yaml(ROOT / "studies" / f"{name}.yaml", "study")
    own_world = "world" in content
    pretrained = None if own_world or content.get("pretrain") else str(tmp_path)
    arguments = sweep.SweepArguments(name, None if own_world else str(world), model_name_or_path=pretrained)
    study, rows = sweep.load_study(arguments)
    files = sweep.RowFiles(tmp_path, tmp_path / "train.tsv", tmp_path / "asked.tsv")
    sweep.Sweep(arguments, study, tmp_path, tmp_path, dict.fromkeys(rows, files)).check_rows([*rows.values()])


def test_more_seeds_do_not_narrow_the_interval_and_rows_are_compared_person_by_person():
    runs = [{"right": [True] * right + [False] * (500 - right), "titles": [*range(500)]} for right in (440, 460)]
    assert rows.count_right(runs) == (900, 1000, 500)
    assert rows.count_right(runs).interval == Proportion(450, 500, 500).interval
    # Neither do more questions about each person.
    assert rows.count_right([run | {"titles": [*range(100)] * 5} for run in runs]) == (900, 1000, 100)
    # What two relations ask is counted apart, and pairs by the person whom they come with.
    pairs = {"right": [True, False, True, True], "relations": [*"aabb"], "titles": ["A", "B", "A or B", "A or C"]}
    of_pairs = rows.take_relation([pairs | {"people": [0, 1, 0, 0]}], "b")
    assert rows.count_right(of_pairs) == (2, 2, 1)
    assert rows.count_right(rows.take_relation([pairs], "a")) == (1, 2, 2)
    hard_for_both = {"right": [True] * 60 + [False] * 40, "asked_file": "one", "titles": [*range(100)]}
    better = [hard_for_both, hard_for_both | {"right": [True] * 64 + [False] * 36}]
    less, error = rows.compare_rows(better, [hard_for_both])
    assert less == pytest.approx(0.02) and 0.009 < error < 0.011 and rows.compare_rows(better, better) == (0, 0)
    assert all(map(math.isnan, rows.compare_rows(better, [hard_for_both | {"asked_file": "another"}])))
    # Another world has other people, whatever their names are.
    worlds = [hard_for_both | {"asked_file": f"of {world}", "world": world} for world in (1, 2)]
    # They may have other numbers of questions.
    lone = {"right": [True, True], "relations": [*"ab"], "titles": ["A", "B"], "world": 3}
    assert rows.count_right([*worlds, lone]) == (122, 202, 202) and rows.list_relations([pairs, lone]) == [*"ab"]
    assert rows.count_right(worlds) == (120, 200, 200) and rows.compare_rows(worlds, worlds) == (0, 0)
    fewer = [worlds[0], worlds[1] | {"right": [True] * 56 + [False] * 44}]
    less, error = rows.compare_rows(worlds, fewer)
    assert less == pytest.approx(0.02) and 0.009 < error < 0.011
    assert all(map(math.isnan, rows.compare_rows(worlds, fewer[:1])))


# Analyses.


def test_losses_past_the_trained_length_are_read_for_every_member_that_goes_on(run, tmp_path, monkeypatch):
    arguments = ["--output_dir", tmp_path, "--num_people", 100, "--max_steps", 2, "--num_rows", 2, "--hidden_size", 32]
    arguments += ["--members", "learned", "rotary"]
    rows = read_rows(run(length, *arguments))
    assert {"learned", "rotary", "rotary, linear", "rotary, dynamic", "rotary, yarn", "rotary, llama3"} < set(rows)
    assert rows["learned"].count("ends") == 3 and "ends" not in rows["rotary"]
    curves = json.loads((tmp_path / "rotary" / "losses.json").read_text())["curves"]
    assert len(curves["rotary"]) == 1023 and all(0 < loss < 20 for loss in curves["rotary"])
    assert (tmp_path / "chart.png").stat().st_size > 1000
    monkeypatch.setattr(length, "train_member", lambda *_: pytest.fail("trained again"))
    assert (tmp_path / "table.md").read_text() in run(studies, "length", *arguments)


def test_logarithmic_axes_are_labelled_with_numbers_not_with_the_source_of_formulas():
    figure, axes = make_figure(4, 4)
    axes.plot([0.6, 3], [200, 60_000])
    axes.set(xscale="log", yscale="log", title="$5 or $6")
    render_picture(figure)
    shown = [label.get_text() for axis in (axes.xaxis, axes.yaxis) for label in axis.get_ticklabels(which="both")]
    assert {"1", "2", "1000", "10000"} <= set(shown) and not any("$" in text for text in shown)
    # Chosen ticks have all their labels, and labels that were written stay.
    axes.set_xticks([0.7, 1.5])
    axes.set_yticks([300, 5000], ["few", "many"])
    render_picture(figure)
    shown = [label.get_text() for axis in (axes.xaxis, axes.yaxis) for label in axis.get_ticklabels()]
    assert shown == ["0.7", "1.5", "few", "many"]
