import subprocess
import sys

import pytest
import torch

from conftest import ROOT
from modeling_posgpt import Answer
from posgpt.evaluation.accuracy import Share, count_right, measure_accuracies
from posgpt.evaluation.answerers import ConstantAnswer, load_answerer
from posgpt.evaluation.arguments import EvaluationArguments
from posgpt.evaluation.exact_match import match_exactly

OPTIONAL = ("sklearn", "rapidfuzz", "matplotlib", "scipy")


def test_an_answer_is_right_character_for_character():
    predictions, references = ["Rome", "rome", "Oslo", ""], ["Rome", "Rome", "Oslo", "Bern"]
    assert match_exactly(predictions, references).tolist() == [True, False, True, False]
    assert match_exactly([], []).dtype == bool
    with pytest.raises(ValueError):
        match_exactly(["Rome"], [])
    assert count_right(predictions, references) == Share(2, 4) and Share(2, 4).accuracy == 0.5


def test_a_model_computes_in_the_type_that_is_asked_for(tiny_pretrained):
    model = str(tiny_pretrained["rotary"])
    arguments = EvaluationArguments(test_file=["dev.tsv"], model_name_or_path=model, dtype="bfloat16")
    assert load_answerer(arguments, "cpu").model.dtype == torch.bfloat16


def test_the_baselines_are_the_relations_answer_and_the_most_frequent_of_training():
    accuracies = measure_accuracies(["Rome", "Oslo"], ["Rome", "Bern"], "Bern", ["Oslo", "Rome", "Rome"])
    metrics = accuracies.to_metrics()
    low, high = metrics.pop("accuracy_interval")
    assert 0 < low < 0.5 < high < 1
    assert metrics == {
        "accuracy": 0.5, "correct": 1, "total": 2, "baseline": "Bern", "baseline_accuracy": 0.5,
        "majority_accuracy": 0.5, "majority_answer": "Rome",
    }  # fmt: skip
    assert list(accuracies.list_rows("PosGPT")) == [
        "PosGPT", '"Bern" for everyone', '"Rome", the most frequent training answer',
    ]  # fmt: skip
    alone = measure_accuracies(["Rome"], ["Rome"], "London", [])
    assert alone.majority is None and alone.to_metrics()["majority_accuracy"] is None
    # Baselines that give the same answer remain two rows.
    assert len(measure_accuracies(["Rome"], ["Rome"], "Rome", ["Rome"]).list_rows("PosGPT")) == 3


def test_whoever_answers_has_the_first_row_and_the_relations_baseline_is_listed_once():
    london, rome = ConstantAnswer("London"), ConstantAnswer("Rome")
    assert london.answer(["?", "?"]) == [Answer("London", 1.0)] * 2 and rome.answer([]) == []
    accuracies = measure_accuracies(["London"] * 3, ["London", "Rome", "Rome"], "London", ["Rome"])
    rows = accuracies.list_rows(london.name)
    assert [(name, share.correct) for name, share in rows.items()] == [
        ('"London" for everyone', 1), ('"Rome", the most frequent training answer', 2),
    ]  # fmt: skip
    other = measure_accuracies(["Rome"] * 3, ["London", "Rome", "Rome"], "London", [])
    rows = other.list_rows(rome.name)
    assert [(name, share.correct) for name, share in rows.items()] == [
        ('"Rome" for everyone', 2), ('"London" for everyone', 1),
    ]  # fmt: skip


def test_the_libraries_of_reports_are_needed_for_reports_only(world, tiny_pretrained, tmp_path):
    start = f"import sys; sys.modules |= dict.fromkeys({OPTIONAL}); from posgpt.evaluate import main; main()"
    command = [sys.executable, "-c", start, "--model_name_or_path", tiny_pretrained["rotary"], "--max_new_tokens", "4"]
    command += ["--test_file", world / "birth_dev.tsv", "--train_file", world / "birth_places_train.tsv"]
    plain = subprocess.run([*command, "--output_dir", tmp_path / "plain"], cwd=ROOT, capture_output=True, text=True)
    assert plain.returncode == 0, plain.stderr
    assert (tmp_path / "plain" / "metrics.json").exists()
    report = subprocess.run([*command, "--report", tmp_path / "report"], cwd=ROOT, capture_output=True, text=True)
    assert report.returncode == 1 and report.stderr == (
        "error: this needs sklearn, which is not installed: pip install 'posgpt[report]'.\n"
    )
    assert not (tmp_path / "report").exists()
