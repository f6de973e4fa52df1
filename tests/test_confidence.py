"""Metrics: what makes an answer correct, and how far a confidence can be trusted."""

import math

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs the report's libraries")

from posgpt.evaluation.predictions import Prediction
from posgpt.evaluation.scoring import (
    METRICS,
    Proportion,
    ScoredQuestions,
    compare_paired,
    compute_bins,
    count_correct,
    find_baselines,
    fit_temperature,
    list_accuracies,
    match_exactly,
    measure,
    measure_accuracy,
    rescale,
)


def score(rows, **settings) -> ScoredQuestions:
    """Answers to one question each: their probability, and whether they are correct."""
    predictions = [
        Prediction(f"{number}?", "Rome" if correct else "Oslo", probability=each, reference="Rome")
        for number, (each, correct) in enumerate(rows)
    ]
    return ScoredQuestions(predictions, **settings)


def test_an_answer_is_correct_symbol_for_symbol():
    predictions, references = ["Rome", "rome", "Oslo", ""], ["Rome", "Rome", ["Bern", "Oslo"], "Bern"]
    assert match_exactly(predictions, references).tolist() == [True, False, True, False]
    assert match_exactly([(1, 2), (1,)], [(1, 2), (1, 2)]).tolist() == [True, False]
    assert match_exactly([], []).dtype == bool
    with pytest.raises(ValueError):
        match_exactly(["Rome"], [])
    titles = ["Ada", "Bo", "Bo", None]
    lines = [
        Prediction("?", answer, title=title, reference=reference)
        for answer, title, reference in zip(predictions, titles, references, strict=True)
    ]
    assert count_correct(lines) == Proportion(2, 4, titles=3) and Proportion(2, 4, 3).accuracy == 0.5


def test_the_baselines_are_the_relations_answer_and_the_most_frequent_of_training():
    predictions = [Prediction("1?", "Rome", reference="Rome"), Prediction("2?", "Oslo", reference=["Bern", "Paris"])]
    metrics = measure_accuracy(predictions, find_baselines("Bern", ["Oslo", "Rome", "Rome"]))
    low, high = metrics.pop("accuracy_interval")
    assert 0 < low < 0.5 < high < 1
    assert metrics == {
        "accuracy": 0.5, "correct": 1, "total": 2, "titles": 2, "baseline": "Bern", "baseline_accuracy": 0.5,
        "majority_accuracy": 0.5, "majority_answer": "Rome",
        "recall": None, "wordings": {},
        "baselines": {'"Bern" for everyone': 0.5, '"Rome", the most frequent training answer': 0.5},
    }  # fmt: skip
    assert list(list_accuracies(metrics, "PosGPT")) == ["PosGPT", *metrics["baselines"]]
    # The constant answer that was given has one row, also where it is the relation's baseline.
    assert list(list_accuracies(metrics, '"Bern" for everyone')) == list(metrics["baselines"])
    assert (
        measure_accuracy(predictions)["majority_accuracy"] is None and not measure_accuracy(predictions)["baselines"]
    )


def test_stored_bits_are_what_a_model_knows_beyond_how_often_each_answer_is_correct():
    def store(*surprisals: float | None) -> float | None:
        answers = ["Rome", "Rome", "Bern", "Oslo"]
        return measure(
            ScoredQuestions([
                Prediction("?", "", reference=answer, surprisal=each) for answer, each in zip(answers, surprisals, strict=True)
            ])
        )["stored_bits"]  # fmt: skip

    # 1.5 bits tell which answer it is; who knows the frequencies alone needs as many.
    assert store(0, 0, 0, 0) == pytest.approx(1.5) and store(1, 1, 2, 2) == pytest.approx(0)
    assert store(3, 3, 3, 3) == pytest.approx(-1.5) and store(0, 0, 0, None) is None

    # Which relation is asked is no knowledge, nor is an answer that is always right.
    kinds = [
        Prediction("?", "", kind, reference=answer, surprisal=0)
        for kind, answer in (("place", "Rome"), ("year", "1890"))
    ]
    # A correct answer that is listed twice counts once.
    both = [Prediction("?", "", reference=["Rome", other, "Rome"], surprisal=0) for other in ("Bern", "Oslo")]
    assert measure(ScoredQuestions(kinds))["stored_bits"] == 0
    assert measure(ScoredQuestions(both))["stored_bits"] == pytest.approx(math.log2(4 / 3))


def test_metrics_of_a_case_worked_out_by_hand():
    scored = score([(0.95, True), (0.95, False), (0.15, False), (0.15, False)], abstain_below=0.9)
    assert compute_bins(scored).tolist() == [pytest.approx([0.15, 0.95]), [0, 0.5], [2, 2]]
    assert measure(scored) == {
        "accuracy": 0.25,
        "lenient_accuracy": 0.25,
        "recall": None,
        "stored_bits": None,
        "auroc": pytest.approx((1 + 1 + 0.5) / 3),
        "ece": pytest.approx(0.5 * 0.15 + 0.5 * 0.45),
        "brier": pytest.approx((0.05**2 + 0.95**2 + 2 * 0.15**2) / 4),
        "accuracy_at_50_coverage": 0.5,
        "answered": 0.5,
        "precision": 0.5,
    }
    # Equals are answered together; without a threshold, everything is.
    curve = measure(score([(0.9, True), (0.5, True), (0.5, False), (0.1, False)]))
    assert curve["accuracy_at_50_coverage"] == pytest.approx(2 / 3) and curve["auroc"] == pytest.approx(0.875)
    assert curve["answered"] is None and curve["precision"] is None
    certain = measure(score([(1.0, True)] * 2, abstain_below=1.0))
    assert certain["auroc"] is None and certain["ece"] == 0 and certain["precision"] == 1
    assert measure(score([(0.5, True)], abstain_below=0.6))["precision"] is None
    unknown = measure(score([(None, True), (0.3, False)]))
    assert {name for name, value in unknown.items() if value is not None} == {"accuracy", "lenient_accuracy"}
    lenient = ScoredQuestions([Prediction("?", "orleans", reference=["Orléans", "Rome"])])
    assert measure(lenient)["lenient_accuracy"] == 1 > measure(lenient)["accuracy"]
    assert all(metric.label and format(0.5, metric.form) for metric in METRICS.values())


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_that_spoilt_the_confidences_is_found_and_mends_them(temperature):
    rng = np.random.default_rng(0)
    probability = rng.beta(2, 2, 4000)
    correct = rng.random(4000) < probability
    spoilt = rescale(probability, 1 / temperature)
    fitted = fit_temperature(spoilt, correct)
    assert fitted == pytest.approx(temperature, rel=0.1)
    assert rescale(spoilt, temperature) == pytest.approx(probability)
    before, after = (
        measure(score(zip(spoilt.tolist(), correct, strict=True), temperature=value))["ece"] for value in (1.0, fitted)
    )
    assert after < 0.02 and (temperature == 1 or before > 3 * after)
    # What is certain stays finite.
    assert np.isfinite(fit_temperature(np.array([0.0, 1.0]), np.array([True, False])))


def test_intervals_and_significance_are_the_textbooks():
    assert Proportion(437, 500, 500).interval == pytest.approx((0.842, 0.900), abs=5e-4)
    for total in range(1, 200):
        assert Proportion(0, total, total).interval[0] == 0 and Proportion(total, total, total).interval[1] == 1

    # Of a share that no whole number of titles gives, the interval is that of the share.
    assert Proportion(170, 340, 17).interval == pytest.approx((0.285, 0.715), abs=5e-4)
    for correct, total, titles in ((29, 60, 20), (883, 1632, 34), (1, 7, 3)):
        low, high = Proportion(correct, total, titles).interval
        share = correct / total
        for end in (low, high):
            # Where a score test is just significant (Wilson 1927).
            assert abs(share - end) / math.sqrt(end * (1 - end) / titles) == pytest.approx(1.96, abs=1e-3)

    a, b = (score((0.5, each < correct) for each in range(14)) for correct in (9, 4))
    assert compare_paired(a, b) == compare_paired(b, a) == pytest.approx(2 * 0.5**5)
    assert compare_paired(a, a) == 1.0


def test_questions_about_one_title_count_once_for_chance():
    """A model that knows a person answers all about them: ten questions about each do not make ten times as many people."""

    def answer(known: int) -> ScoredQuestions:
        lines = [
            Prediction(f"{each}: {title}?", "yes" if title < known else "no", title=str(title), reference="yes")
            for title in range(10)
            for each in range(10)
        ]
        return ScoredQuestions(lines)

    many, few = count_correct(answer(8).predictions), Proportion(8, 10, 10)
    assert (many.correct, many.total) == (80, 100) and many.interval == few.interval
    assert compare_paired(answer(8), answer(5)) == pytest.approx(2 * 0.5**3)
