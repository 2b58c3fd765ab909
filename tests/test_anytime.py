"""Intervals and claims that are looked at again and again: as defined, and right at all looks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.claims import false_claims, spaces
from tests.oracles import anytime as oracle
from whim.evaluate.anytime import (
    ALPHA,
    ENOUGH,
    SCALE,
    Sums,
    alpha_from,
    anytime_rate,
    compare,
    studentised,
)


def sums(rewards: np.ndarray) -> Sums:
    return Sums(len(rewards), float(rewards.sum()), float((rewards**2).sum()))


@pytest.mark.parametrize(("n", "clicks"), [(1, 0), (1, 1), (7, 7), (20, 3), (400, 31), (400, 0)])
def test_clicks_equal_the_literal_mixture(n: int, clicks: int) -> None:
    rewards = np.arange(n) < clicks
    found = anytime_rate(*sums(rewards.astype(float)))
    assert found.value == clicks / n
    assert (found.low, found.high) == pytest.approx(oracle.click_rates(rewards), abs=5.1e-5)


@pytest.mark.parametrize("n", [40, 150])
def test_numbers_equal_the_literal_mixture(n: int) -> None:
    rewards = np.random.default_rng(n).normal(2.0, 0.5, n)
    found = anytime_rate(*sums(rewards))
    step = rewards.std() * 0.025
    assert (found.low, found.high) == pytest.approx(
        oracle.normal_means(rewards, SCALE), abs=1.01 * step
    )


def test_too_few_numbers_leave_everything_open() -> None:
    few = np.random.default_rng(0).normal(size=20)
    assert oracle.normal_means(few, SCALE) is None
    assert math.isnan(anytime_rate(*sums(few)).low)
    assert math.isnan(anytime_rate(*sums(np.full(500, 0.1))).low)  # no spread seen so far
    assert math.isnan(anytime_rate(0, 0.0, 0.0).value)


def test_comparisons_equal_the_literal_form() -> None:
    rng = np.random.default_rng(3)
    strata = [
        (rng.random(n) < 0.4, rng.random(m) < 0.3)
        for n, m in ((300, 40), (500, 0), (20, 400), (900, 90), (0, 3))
    ]
    pairs = [(sums(a.astype(float)), sums(b.astype(float))) for a, b in strata]
    found = compare(pairs)
    assert found is not None
    assert found.lift is not None
    weights = sum(a.n * b.n / (a.n + b.n) for a, b in pairs)
    lifts = np.linspace(-0.9, 2.0, 29_001)
    difference, kept = oracle.compared(strata, lifts, studentised(weights), SCALE)
    assert found.difference.value == pytest.approx(difference)
    assert found.lift.low == pytest.approx(lifts[kept][0], abs=1.01e-4)
    assert found.lift.high == pytest.approx(lifts[kept][-1], abs=1.01e-4)
    assert (found.claim != 0) == (not kept[np.argmin(abs(lifts))])


def test_a_claim_is_a_lift_that_leaves_0_out() -> None:
    rng = np.random.default_rng(5)
    claims = []
    for _ in range(300):
        a, b = (sums((rng.random(800) < rate).astype(float)) for rate in (0.25, 0.18))
        found = compare([(a, b)])
        assert found is not None
        assert found.lift is not None
        claims.append(found.claim)
        assert (found.claim > 0) == (found.lift.low > 0)
        assert (found.claim < 0) == (found.lift.high < 0)
    assert 0 < sum(claims) < 300


def test_all_starts_share_one_chance_of_being_wrong() -> None:
    shares = [alpha_from(start) for start in (*range(1000), 10**6, 10**9)]
    assert sum(shares) < ALPHA
    assert sorted(shares, reverse=True) == shares
    assert shares[-1] > 0
    rewards = np.arange(60) < 9
    found = anytime_rate(*sums(rewards.astype(float)), alpha_from(700))
    ends = oracle.click_rates(rewards, alpha_from(700))
    assert (found.low, found.high) == pytest.approx(ends, abs=5.1e-5)


def test_a_range_that_is_picked_claims_nothing_that_is_not_there() -> None:
    """A/A: of many ranges of 60 spaces, whichever looks best; intervals for one range do not."""
    picked = shared = 0
    for seed in range(60):
        clicks = np.random.default_rng(seed).binomial(400, 0.4, (25, 2)).cumsum(axis=0)
        clicks = np.vstack([[0, 0], clicks]).astype(float)
        wrong = [
            (start, pair)
            for start, end in itertools.combinations(range(26), 2)
            for pair in [[Sums(400.0 * (end - start), c, c) for c in clicks[end] - clicks[start]]]
            if claim(pair, ALPHA)
        ]
        picked += bool(wrong)
        shared += any(claim(pair, alpha_from(start)) for start, pair in wrong)
    assert shared <= 3  # 5 %
    assert picked > 3


def claim(pair: list[Sums], alpha: float) -> int:
    found = compare([(pair[0], pair[1])], alpha)
    assert found is not None
    return found.claim


def test_nothing_is_claimed_of_few_rewards() -> None:
    """However large the difference, and although a group without a click has no spread."""
    few = Sums(int(ENOUGH) - 1, ENOUGH - 1, ENOUGH - 1)
    assert compare([(Sums(10_000, 500.0, 500.0), Sums(200, 0.0, 0.0))]).claim == 0  # type: ignore[union-attr]
    assert compare([(Sums(10_000, 5.0, 5.0), few)]).claim == 0  # type: ignore[union-attr]
    assert compare([(Sums(100, 9.0, 9.0), Sums(0, 0.0, 0.0))]) is None
    losses = compare([(Sums(500, -100.0, 300.0), Sums(500, -300.0, 300.0))])
    assert losses is not None
    assert losses.lift is None  # nothing is relative to a loss
    assert losses.claim == 1


def test_times_and_shares_that_change_are_no_difference() -> None:
    """The same rate for both at any time; the holdback grew when rates did."""
    early = Sums(90_000, 9_000.0, 9_000.0), Sums(10_000, 1_000.0, 1_000.0)
    later = Sums(50_000, 15_000.0, 15_000.0), Sums(50_000, 15_000.0, 15_000.0)
    found = compare([early, later])
    assert found is not None
    assert found.claim == 0
    assert found.difference.value == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("kind", ["rare", "clicks", "numbers"])
def test_an_arms_interval_holds_at_all_looks_at_once(kind: str) -> None:
    rng = np.random.default_rng(11)
    truth = {"rare": 0.02, "clicks": 0.4, "numbers": 1.0}[kind]
    missed = 0
    for _ in range(400):
        rewards = rng.normal(1, 2, 2000) if kind == "numbers" else rng.random(2000) < truth
        counts = np.cumsum(rewards, dtype=float), np.cumsum(np.square(rewards), dtype=float)
        for n in np.unique(np.geomspace(1, 2000, 60).astype(int)):
            found = anytime_rate(n, counts[0][n - 1], counts[1][n - 1])
            if found.low > truth or found.high < truth:
                missed += 1
                break
    assert missed <= 20  # 5 %


def test_the_page_claims_no_difference_where_there_is_none(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """A/A: the policy and the holdback show the same. ``make slow`` has 1,000 spaces."""
    found = false_claims(tmp_path, spaces(40, decisions=3000), looks=25)
    assert found <= 2
