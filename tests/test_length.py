"""How long training is and takes, and what is said of it."""

import math
import re
from collections import Counter
from types import SimpleNamespace

import pytest

import train_pretrain
from conftest import TINY
from posgpt import preview
from posgpt.pretrain import TYPES, load_pretraining_data
from posgpt.recipe_parser import LENGTHS, parse_with_recipe, read_section
from posgpt.training import callbacks, estimate
from posgpt.training.checkpoints import WEIGHTS_FILE

TIMED = r"About 12 training steps, \d+ seconds \(\S+ s per step, measured\), \d+\.\d GB\."


@pytest.fixture
def options(world, monkeypatch) -> list:
    monkeypatch.setattr(callbacks, "TIMED_SECONDS", 0)
    files = ["--train_file", world / "wiki.txt", "--questions_file", world / "birth_places_train.tsv"]
    return ["windows", *files, "--logging_steps", 1, *TINY]


def load(options, folder, *more):
    config = parse_with_recipe(TYPES, "pretrain", [*map(str, options), "--output_dir", str(folder), *map(str, more)])
    return SimpleNamespace(args=config[-1], train_dataset=load_pretraining_data(*config).training.dataset)


def test_exposures_are_windows_and_set_the_epochs(options, tmp_path):
    planned = load(options, tmp_path, "--exposures", 2000)
    dataset = planned.train_dataset
    windows = [len(dataset[row]["windows"]) - 1 for row in range(dataset.rows_with_document)]
    assert dataset.exposures_per_epoch == pytest.approx(sum(windows) / len(windows))
    assert "read each span about 20" in estimate.plan_training(planned).description
    assert planned.args.num_train_epochs == math.ceil(2000 / dataset.exposures_per_epoch)
    assert "ends before" not in estimate.plan_training(planned).description
    many = load(options, tmp_path, "--num_train_epochs", 1000)
    assert ", 1,000 times all" in estimate.plan_training(many).description
    few = load(options, tmp_path, "--max_steps", 2)
    assert "This training ends before that, so it stores few facts" in estimate.plan_training(few).description
    planned.args.exposures = 5  # A small corpus is read until 600 training steps are made.
    assert estimate.plan_training(planned).steps == 600
    # Where few documents come first, facts are learned sooner.
    planned.args.first_shares = few.args.first_shares = [0.5]
    assert estimate.plan_training(planned).description.endswith(" times.")
    assert "steps: only 50% of the documents are read. Choose" in estimate.plan_training(few).description


def test_the_last_length_that_is_given_holds_and_the_recipes_keep_theirs():
    for recipe, name in ("quickstart", "num_train_epochs"), ("sprint", "minutes"), ("sprint", "num_train_epochs"):
        assert read_section(recipe, "pretrain", **{name: 5}).keys() & {*LENGTHS} == {name}


def test_lengths_that_contradict_each_other_or_the_machine_are_refused(run, options, tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "time_steps", lambda _: 60.0)
    (recipe := tmp_path / "both.yaml").write_text("pretrain: {exposures: 9, minutes: 5}")
    for arguments, problem in (
        ([*options, "--minutes", 5, "--max_steps", 9], "--max_steps and --minutes both say how long"),
        ([*options, "--total_train_batch_size", 8, "--per_device_train_batch_size", 4], "leave out one of them"),
        ([*options, "--minutes", 1], "minutes is 1, but a training step takes 60 s here"),
        ([recipe, *options[1:]], "both.yaml, section 'pretrain': --exposures and --minutes both"),
    ):
        with pytest.raises(SystemExit, match=problem):
            run(train_pretrain, *arguments, "--output_dir", tmp_path / "out")


def test_minutes_are_steps_which_a_resumed_training_keeps(run, options, tmp_path, monkeypatch):
    measure = estimate.time_steps
    monkeypatch.setattr(estimate, "time_steps", lambda trainer: measure(trainer) and 0.95 * 60 / 12)
    folder, reference = tmp_path / "minutes", tmp_path / "steps"
    minutes = [*options, "--minutes", 1, "--output_dir", folder, "--save_steps", 6, "--save_total_limit", 9]
    printed = run(train_pretrain, *minutes)
    assert "12 training steps, 3 times all" in printed and re.search(TIMED, printed)
    # So few steps would store none of four spans of each document.
    assert "fewer spans, as with --max_spans 1." in printed
    run(train_pretrain, *options, "--max_steps", 12, "--max_spans", 1, "--output_dir", reference)
    assert (folder / WEIGHTS_FILE).read_bytes() == (reference / WEIGHTS_FILE).read_bytes()
    monkeypatch.setattr(estimate, "time_steps", lambda _: pytest.fail("timed again"))
    run(train_pretrain, *minutes, "--resume_from_checkpoint", folder / "checkpoint-6", "--overwrite_output_dir")
    assert (folder / WEIGHTS_FILE).read_bytes() == (reference / WEIGHTS_FILE).read_bytes()


def test_minutes_that_are_too_short_for_all_spans_read_fewer(run, options, tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "time_steps", lambda _: 1.0)
    shown = re.findall("^asked    (.*)", run(preview, *options, "--minutes", 0.7), re.M)
    assert shown and not any("," in names for names in shown)
    for minutes, most in ((0.7, 1), (2, 2)):
        planned = load(options, tmp_path, "--minutes", minutes)
        plan = estimate.plan_training(planned)
        assert max(map(len, planned.train_dataset.documents["asked"])) == most
        assert ("it asks for fewer spans, as with" in plan.description) == (most == 1)
        assert plan.exposures > estimate.FEW


def test_it_is_said_how_long_training_takes_and_what_its_loss_means(run, options, tmp_path, monkeypatch):
    assert re.search(TIMED, run(preview, *options, "--max_steps", 12))
    args, dataset = vars(load(options, tmp_path)).values()
    assert "420 minutes" in (said := callbacks.describe_length(6006, 4.2, args.device)) and "--minutes 60" in said
    counts = Counter(span for spans in dataset.documents["asked"] for span in spans)
    entropy = sum(count * math.log(counts.total() / count) for count in counts.values())
    level = entropy / sum(count * (len(span) + 1) for span, count in counts.items())
    written, facts = [], callbacks.LossCallback()
    monkeypatch.setattr(callbacks.tqdm, "write", written.append)
    facts.on_train_begin(args, None, None, train_dataloader=SimpleNamespace(dataset=dataset))
    for step, share in enumerate((2, 0.86, 0.84, 0.7)):
        facts.on_log(
            args, SimpleNamespace(global_step=step, is_world_process_zero=True), None, {"loss": share * level}
        )
    assert [line.partition(":")[0] for line in written] == ["Step 2"]
