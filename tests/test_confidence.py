from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

pytest.importorskip("sklearn", reason="needs the report's libraries")

from posgpt.evaluation.accuracy import Share
from posgpt.evaluation.confidence import (
    compare_paired,
    compute_auroc,
    compute_calibration,
    compute_risk_coverage,
    compute_worth,
    find_threshold,
    fit_temperature,
    measure_confidence,
)
from posgpt.evaluation.figures import describe_worth
from posgpt.evaluation.predictions import Utility, calibrate

SHARES = st.floats(0, 1, allow_subnormal=False)


def drawn(temperature, size=4000, candidates=8, seed=0):
    """Scores, answers and outcomes of a model that is calibrated exactly at this temperature."""
    rng = np.random.default_rng(seed)
    scores = np.log(rng.dirichlet(np.full(candidates, 0.3), size))
    probabilities = np.exp(scores)
    truth = np.array([rng.choice(candidates, p=row) for row in probabilities])
    chosen = scores.argmax(axis=1)
    return scores * temperature, chosen, truth == chosen


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_that_spoilt_the_confidences_is_found_and_mends_them(temperature):
    scores, chosen, right = drawn(temperature)
    fitted = fit_temperature(scores, chosen, right)
    assert fitted == pytest.approx(temperature, rel=0.1)
    before, after = (
        compute_calibration(measure_confidence(scores, chosen, value)["probability"], right)["ece"]
        for value in (1, fitted)
    )
    assert after < 0.02 and (temperature == 1 or before > 3 * after)


def test_confidences_of_a_case_worked_out_by_hand():
    scores = np.log([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]) - 3  # what all share does not matter
    sure = measure_confidence(scores, np.array([0, 0]))
    assert sure["probability"] == pytest.approx([0.5, 0.25]) and sure["margin"] == pytest.approx([0.25, -0.25])
    assert sure["entropy"] == pytest.approx([1.5 * np.log(2)] * 2)
    impossible = measure_confidence(np.array([[0.0, -np.inf]]), np.array([0]))
    assert impossible["probability"] == impossible["margin"] == 1 and impossible["entropy"] == 0
    hot = measure_confidence(scores, np.array([0, 0]), temperature=2.0)
    assert hot["probability"][0] == pytest.approx(1 / (1 + 2 * 0.5**0.5))


def test_calibration_of_a_case_worked_out_by_hand():
    result = compute_calibration(np.array([0.95, 0.95, 0.15, 0.15]), np.array([True, False, False, False]))
    assert result["bins"] == [
        {"confidence": pytest.approx(0.15), "accuracy": 0.0, "count": 2},
        {"confidence": pytest.approx(0.95), "accuracy": 0.5, "count": 2},
    ]
    assert result["ece"] == pytest.approx(0.5 * 0.15 + 0.5 * 0.45)
    assert result["brier"] == pytest.approx((0.05**2 + 0.95**2 + 2 * 0.15**2) / 4)
    assert compute_calibration(np.array([1.0]), np.array([True]))["ece"] == 0


def test_the_surest_are_answered_first_and_equals_together():
    confidence, right = np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False])
    curve = compute_risk_coverage(confidence, right)
    assert curve["coverage"] == [0.25, 0.75, 1.0]
    assert curve["risk"] == pytest.approx([0, 1 / 3, 1 / 2]) and curve["accuracy_at_half"] == pytest.approx(2 / 3)
    assert compute_auroc(confidence, right) == pytest.approx(0.875)
    assert compute_auroc(confidence, np.ones(4, dtype=bool)) is None


# How long an example takes depends on what else the machine does.
@settings(deadline=None)
@given(st.data())
def test_a_threshold_keeps_its_precision_and_no_lower_one_does(data):
    size = data.draw(st.integers(1, 30))
    confidence = data.draw(arrays(float, size, elements=st.sampled_from(np.linspace(0, 1, 6).tolist()) | SHARES))
    right, precision = data.draw(arrays(bool, size)), data.draw(SHARES)
    threshold = find_threshold(precision, confidence, right)
    enough = [value for value in set(confidence.tolist()) if right[confidence >= value].mean() >= precision]
    assert threshold == (min(enough) if enough else None)


def test_where_no_threshold_has_the_wanted_precision_nothing_is_answered():
    scores = np.log(np.array([[0.9, 0.1], [0.6, 0.4]]))
    held_out = mock.Mock(scores=scores, chosen=np.zeros(2, int), right=np.array([False, True]))
    assert calibrate(held_out, target_precision=0.9).abstain_below > 1


def test_intervals_and_significance_are_the_textbooks():
    assert Share(437, 500).interval == pytest.approx((0.842, 0.900), abs=5e-4)
    for total in range(1, 200):
        assert Share(0, total).interval[0] == 0 and Share(total, total).interval[1] == 1
    a, b = np.array([True] * 9 + [False] * 5), np.array([True] * 4 + [False] * 10)
    assert compare_paired(a, b) == compare_paired(b, a) == pytest.approx(2 * 0.5**5)
    assert compare_paired(a, a) == 1.0


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_worth_has_equals_together_and_no_point_without_people(share):
    sure = [mock.Mock(confidence=confidence, right=right) for confidence, right in ((0.8, True), (0.6, False))]
    unseen = [mock.Mock(confidence=confidence, right=None) for confidence in (0.9, 0.6)]
    worth = describe_worth(sure, unseen, 0.7, Utility(1.0, share))
    coverage, risk = {
        0.0: ([0.5, 1], [0, 0.5]),
        0.5: ([0.25, 0.5, 1], [1, 0.5, 0.75]),
        1.0: ([0.5, 0.5, 1], [1, 1, 1]),
    }[share]
    assert worth["coverage"] == pytest.approx(coverage) and worth["risk"] == pytest.approx(risk)


def test_the_threshold_that_is_worth_most_weighs_wrong_answers_and_unseen_names():
    confidence = np.array([0.9, 0.8, 0.8, 0.6, 0.5])
    thresholds, worth = compute_worth(confidence, np.array([1.0, 1.0, -4.0, 1.0, 1.0]))
    assert thresholds.tolist() == [np.inf, 0.9, 0.8, 0.6, 0.5] and worth.tolist() == [0, 1, -2, -1, 0]
    right = np.array([True, True, False, True, False])
    scores = np.log(np.stack([confidence, 1 - confidence], axis=1))
    known = mock.Mock(scores=scores, chosen=np.zeros(5, int), right=right)
    unseen = mock.Mock(scores=scores[:3], chosen=np.zeros(3, int), right=np.array([False, False, False]))
    chosen = {}
    for costs, share in ((0.0, 0.2), (0.1, 0.0), (1.0, 0.6), (100.0, 0.5)):
        calibration = calibrate(known, utility=Utility(costs, share), taken_out=unseen)
        chosen[costs, share] = calibration.abstain_below
    # Without a price, it answers as long as that can be right; unseen names that it is as sure of silence it.
    lowest = {name: min(value, 1) for name, value in chosen.items()}
    assert lowest[0.0, 0.2] <= lowest[0.1, 0.0] < lowest[1.0, 0.6] == lowest[100.0, 0.5] == 1
    assert Utility(4.0, 0.25).weigh(3, 2).tolist() == pytest.approx([0.25] * 3 + [0.125] * 2)
    assert Utility(4.0, 0.25).value(right).tolist() == [1, 1, -4, 1, -4]
