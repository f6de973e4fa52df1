"""What a run tells trackers and keeps with the model: samples of answers, options, hashes of its data, versions."""

import json
import re
import shutil
import sys
from hashlib import sha256
from importlib.metadata import version
from unittest import mock

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import posgpt
import train_finetune
import train_pretrain
from conftest import ON_CPU, TINY, history_of
from posgpt import compare
from posgpt.training.run_record import copy_record

TRACKED = [*TINY, *"--max_steps 4 --eval_strategy steps --eval_steps 2 --save_strategy no --logging_steps 2".split()]


def pretrain(run, world, folder, *options):
    return run(
        train_pretrain, "windows", "--train_file", world / "wiki.txt", "--questions_file", world / "birth_places_train.tsv",
        "--validation_file", world / "birth_dev.tsv", "--output_dir", folder, *TRACKED, *options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tracked(world, tmp_path_factory):
    """A run that reports to TensorBoard."""
    folder = tmp_path_factory.mktemp("tracked") / "model"

    def run_main(module, *arguments):
        with mock.patch.object(sys, "argv", ["", *map(str, arguments)]):
            module.main()

    pretrain(run_main, world, folder, "--report_to", "tensorboard", "--sample_answers", 3)
    return folder


def read_texts(folder) -> dict[str, list[str]]:
    """The texts that TensorBoard shows, by their tags."""
    (log,) = (folder / "runs").iterdir()
    events = EventAccumulator(str(log), size_guidance={"tensors": 0}).Reload()
    return {
        tag.removesuffix("/text_summary"): [event.tensor_proto.string_val[0].decode() for event in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
    }


def test_each_evaluation_logs_held_out_questions_with_the_models_answers_and_the_right_ones(world, tracked):
    logged = read_texts(tracked)["eval/answers"]
    assert len(logged) == 2 and logged == history_of(tracked, "eval_answers")
    lines = (world / "birth_dev.tsv").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in logged[-1].splitlines()]
    assert rows[0] == ["question", "the model's answer", "correct answer"]
    # 17 questions: the first, and one after each third.
    assert [[row[0], row[2]] for row in rows[2:]] == [lines[number].split("\t") for number in (0, 5, 11)]
    assert len(history_of(tracked, "eval_accuracy")) == 2


def test_a_resumed_run_logs_evaluates_and_saves_when_its_own_options_say(run, world, tmp_path):
    saved, checkpoint = ["--save_strategy", "steps", "--metric_for_best_model"], tmp_path / "first" / "checkpoint-2"
    pretrain(run, world, tmp_path / "first", *saved, "loss", "--save_steps", 2, "--max_steps", 2)
    often = "--save_total_limit 9 --save_steps 1 --eval_steps 1 --logging_steps 1 --resume_from_checkpoint".split()
    often = [*often, checkpoint]
    pretrain(run, world, tmp_path / "second", *saved, "loss", *often)
    assert {each.name for each in (tmp_path / "second").glob("checkpoint-*")} == {"checkpoint-3", "checkpoint-4"}
    assert [len(history_of(tmp_path / "second", name)) for name in ("loss", "eval_loss")] == [3, 3]
    # The lowest loss so far is no accuracy.
    with pytest.raises(SystemExit, match="metric_for_best_model was loss"):
        pretrain(run, world, tmp_path / "third", *saved, "accuracy", *often)
    # Nor is it that of other questions.
    others = [*saved, "loss", *often, "--validation_file", world / "birth_places_train.tsv"]
    with pytest.raises(SystemExit, match=r"validation_file was birth_dev.tsv \(sha256 \w+\)"):
        pretrain(run, world, tmp_path / "third", *others, "--load_best_model_at_end", "true")
    pretrain(run, world, tmp_path / "third", *others)


def test_a_run_keeps_its_options_the_hashes_of_its_data_and_versions_beside_the_model(world, tracked):
    record = json.loads((tracked / "run.json").read_text())
    files = {"train_file": "wiki.txt", "questions_file": "birth_places_train.tsv", "validation_file": "birth_dev.tsv"}
    assert record["data"] == {
        option: [{"name": name, "sha256": sha256((world / name).read_bytes()).hexdigest()}]
        for option, name in files.items()
    }
    assert (
        record["versions"]["posgpt"] == posgpt.__version__ and {"torch", "transformers"} <= record["versions"].keys()
    )
    # The recipe's, the command line's and a default.
    options = record["options"]
    assert (options["question_share"], options["max_steps"], options["adam_epsilon"]) == (0.75, 4, 1e-8)
    assert record["model"]["hidden_size"] == 32 and record["model"]["use_cache"] is True
    card = (tracked / "README.md").read_text()
    for name in files.values():
        assert f"{name} (sha256 {sha256((world / name).read_bytes()).hexdigest()[:12]})" in card
    assert f"posgpt {posgpt.__version__}" in card
    # TensorBoard shows the same.
    (shown,) = read_texts(tracked)["args"]
    assert json.loads(shown) == options | {part: record[part] for part in ("versions", "data")}


def test_a_finetuned_models_record_has_the_hash_of_the_pretrained_weights_and_none_is_asked_for(
    run, world, tracked, tmp_path
):
    run(
        train_finetune, "--model_name_or_path", tracked, "--train_file", world / "birth_places_train.tsv", "--validation_file",
        world / "birth_dev.tsv", "--output_dir", tmp_path, *ON_CPU, "--max_steps", 1, "--sample_answers", 0,
    )  # fmt: skip
    weights = sha256((tracked / "model.safetensors").read_bytes()).hexdigest()
    data = json.loads((tmp_path / "run.json").read_text())["data"]
    assert data["model_name_or_path"] == [{"name": tracked.name, "sha256": weights}]
    assert history_of(tmp_path, "eval_accuracy") and not history_of(tmp_path, "eval_answers")


def test_a_tracker_that_is_not_there_is_refused_in_a_line(run, world, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.integrations.integration_utils.is_trackio_available", lambda: False)
    with pytest.raises(SystemExit, match="requires trackio .*pip install trackio"):
        pretrain(run, world, tmp_path / "model", "--report_to", "trackio")
    assert not (tmp_path / "model").exists()


def test_trackio_gets_figures_answers_and_the_record_without_a_network(run, world, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio", reason="needs trackio")
    from trackio.sqlite_storage import SQLiteStorage

    pretrain(run, world, tmp_path / "model", "--report_to", "trackio", "--project", "places", "--run_name", "first")
    logs = SQLiteStorage.get_logs("places", "first")
    for name in ("accuracy", "answers"):
        logged = [log[f"eval/{name}"] for log in logs if f"eval/{name}" in log]
        assert logged == history_of(tmp_path / "model", f"eval_{name}")
    config = SQLiteStorage.get_run_config("places", "first")
    assert config["data"] == json.loads((tmp_path / "model" / "run.json").read_text())["data"]
    assert config["question_share"] == 0.75


def copy_run(tracked, folder, **changes):
    """Copy what a comparison reads of a training, with other parts of its record."""
    folder.mkdir()
    record = json.loads((tracked / "run.json").read_text())
    for part, changed in changes.items():
        record[part] |= changed
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "trainer_state.json").write_bytes((tracked / "trainer_state.json").read_bytes())
    return folder


def print_comparison(run, *folders) -> str:
    # The columns of a table are padded.
    return re.sub(" +", " ", run(compare, *folders))


def test_trainings_are_compared_by_their_figures_and_by_what_differs(run, tracked, tmp_path):
    changes = {
        "options": {"seed": 7, "output_dir": "other"},
        "versions": {"torch": "3.0"},
        "model": {"hidden_size": 64},
    }
    corpus = {"train_file": [{"name": "wiki.txt", "sha256": "0" * 64}]}
    other = copy_run(tracked, tmp_path / "other", data=corpus, **changes)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "trainer_state.json").write_bytes((tracked / "trainer_state.json").read_bytes())
    printed = print_comparison(run, tracked, other, tmp_path / "old")
    assert f"{tmp_path / 'old'}: options, data and versions: not recorded." in printed
    accuracy = history_of(tracked, "eval_accuracy")[-1]
    assert "| model | validation accuracy | training loss | steps | characters read |" in printed
    assert f"| {other} | {accuracy:.1%} |" in printed
    data, *differences = printed.split("| part | what differs |")[1].split("\n\n")[0].splitlines()[2:]
    assert re.fullmatch(r"\| data \| train_file \| wiki.txt \(sha256 \w{12}\) \| wiki.txt \(sha256 0{12}\) \|", data)
    assert differences == [
        "| model | hidden_size | 32 | 64 |",
        "| options | seed | 42 | 7 |",
        f"| versions | torch | {version('torch')} | 3.0 |",
    ]
    # Files are told by their content.
    read = json.loads((tracked / "run.json").read_text())["data"]["train_file"]
    same = copy_run(tracked, tmp_path / "same", data={"train_file": [{**read[0], "name": "people.txt"}]})
    assert "Options, data and versions are the same." in print_comparison(run, tracked, same)


def test_the_best_models_figures_are_those_of_its_step(run, tracked, tmp_path):
    best, last = (copy_run(tracked, tmp_path / name, options={"load_best_model_at_end": name == "best"})
                  for name in ("best", "last"))  # fmt: skip
    state = {"global_step": 3, "num_input_tokens_seen": 99, "best_global_step": 3, "best_model_checkpoint": "out/checkpoint-2", "log_history": [
        {"step": step, "loss": loss, "eval_accuracy": accuracy}
        for step, loss, accuracy in ((1, 3.0, 0.1), (2, 2.0, 0.3), (3, 1.0, 0.4))
    ]}  # fmt: skip
    for folder in (best, last):
        (folder / "trainer_state.json").write_text(json.dumps(state))
    printed = print_comparison(run, best, last)
    # The best evaluation, after step 3, was between two checkpoints, so that the weights of step 2 were kept.
    assert f"| {best} | 30.0% | 2.0000 | 3 | 99 |" in printed and f"| {last} | 40.0% | 1.0000 | 3 | 99 |" in printed
    # As on an accelerator, where characters are not counted.
    (last / "trainer_state.json").write_text(json.dumps(state | {"num_input_tokens_seen": 0}))
    assert f"| {last} | 40.0% | 1.0000 | 3 | - |" in print_comparison(run, best, last)
    # Where no evaluation was at a checkpoint, the last weights stay.
    (best / "trainer_state.json").write_text(json.dumps(state | {"best_model_checkpoint": None}))
    assert f"| {best} | 40.0% | 1.0000 | 3 | 99 |" in print_comparison(run, best, last)


def test_a_report_keeps_no_record_of_an_earlier_model(tracked, tmp_path):
    # Models that were trained before there was a record have none.
    shutil.copytree(tracked, tmp_path / "old", ignore=shutil.ignore_patterns("run.json"))
    (tmp_path / "run.json").write_text("earlier")
    copy_record(str(tmp_path / "old"), tmp_path)
    assert not (tmp_path / "run.json").exists()
    # A report in the model's own folder leaves its record there.
    before = (tracked / "run.json").read_bytes()
    copy_record(str(tracked), tracked)
    assert (tracked / "run.json").read_bytes() == before


def test_the_record_beside_predictions_is_of_the_model_that_gave_them(tracked, world, tmp_path, monkeypatch):
    other, record = tmp_path / "other", (tracked / "run.json").read_bytes()
    shutil.copytree(tracked, other)
    (other / "run.json").write_text("{}")
    files = {"model_name_or_path": str(tracked), "test_file": [str(world / "birth_dev.tsv")]}
    for model in (other, tracked):
        posgpt.evaluate(**files | {"model_name_or_path": str(model)}, output_dir=str(tmp_path / "dev"))
    assert (tmp_path / "dev" / "run.json").read_bytes() == record
    # The folder of a model keeps its own, also if it is the current one.
    monkeypatch.chdir(other)
    posgpt.evaluate(**files, output_dir=".")
    assert (other / "run.json").read_text() == "{}" and (other / "metrics.json").exists()
