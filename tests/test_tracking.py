"""What a run tells trackers and keeps with the model: samples of answers, options, hashes of its data, versions."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import train_pretrain
from conftest import TINY, history_of

TRACKED = [*TINY, "--max_steps", 4, "--eval_strategy", "steps", "--eval_steps", 2, "--save_strategy", "no"]


def pretrain(run, world, folder, *options):
    return run(
        train_pretrain, "windows", "--train_file", world / "wiki.txt", "--questions_file", world / "birth_places_train.tsv",
        "--validation_file", world / "birth_dev.tsv", "--output_dir", folder, *TRACKED, *options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tracked(world, tmp_path_factory):
    """A run that reports to TensorBoard."""
    import sys
    from unittest import mock

    folder = tmp_path_factory.mktemp("tracked") / "model"

    def run_main(module, *arguments):
        with mock.patch.object(sys, "argv", ["", *map(str, arguments)]):
            module.main()

    pretrain(run_main, world, folder, "--report_to", "tensorboard", "--eval_samples", 3)
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
    logged = read_texts(tracked)["eval/samples"]
    assert len(logged) == 2 and logged == history_of(tracked, "eval_samples")
    lines = (world / "birth_dev.tsv").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in logged[-1].splitlines()]
    assert rows[0] == ["question", "the model's answer", "right answer"]
    # 17 questions: the first, and one after each third.
    assert [[row[0], row[2]] for row in rows[2:]] == [lines[number].split("\t") for number in (0, 5, 11)]
    assert len(history_of(tracked, "eval_accuracy")) == 2
