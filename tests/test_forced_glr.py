"""Forced exploration with GLR tests: the ratios by enumeration, the schedule, the restart."""

from __future__ import annotations

import math

import numpy as np
import pytest

import whim
from whim.errors import InvalidInputError
from whim.evaluate import simulate
from whim.experiments.forced_glr import ForcedGLR, ForcedGLRMaker, glr_clicks, glr_normal
from whim.worlds import PiecewiseLinear


def _log_likelihood(values: np.ndarray) -> float:
    rate = values.mean()
    return sum(math.log(rate if v else 1 - rate) for v in values)


@pytest.mark.parametrize("seed", range(4))
def test_ratios_equal_every_split_tried(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=23) + np.where(np.arange(23) < 9, 0.0, 1.5)
    whole = ((values - values.mean()) ** 2).sum()
    within = [
        sum(((part - part.mean()) ** 2).sum() for part in (values[:s], values[s:]))
        for s in range(4, 20)
    ]
    assert glr_normal(values) == pytest.approx(0.5 * 23 * math.log(whole / min(within)))
    clicks = (values > 0.5).astype(float)
    apart = max(_log_likelihood(clicks[:s]) + _log_likelihood(clicks[s:]) for s in range(1, 23))
    assert glr_clicks(clicks) == pytest.approx(apart - _log_likelihood(clicks), abs=1e-7)


def test_too_little_to_tell() -> None:
    assert glr_normal(np.ones(7)) == glr_normal(np.ones(40)) == 0.0
    assert glr_clicks(np.ones(1)) == glr_clicks(np.ones(0)) == 0.0
    assert glr_clicks(np.ones(30)) == pytest.approx(0.0, abs=1e-9)


def test_bursts_go_round_all_candidates() -> None:
    policy = ForcedGLR(n_features=1, explore=0.25)
    policy.add_arms(list("abc"))
    plain = whim.LinUCBDisjoint(n_features=1)
    plain.add_arms(list("abc"))
    chosen = []
    for _ in range(24):
        x = np.ones(1)
        arm = policy.select(x).arm
        if len(chosen) % 12 >= 3:  # between bursts it is LinUCB, whose models learn from all
            assert arm == plain.select(x).arm
        chosen.append(arm)
        for one in (policy, plain):
            one.update(arm, x, {"a": 0.1, "b": 0.9, "c": 0.2}[str(arm)])
    assert chosen[:3] == chosen[12:15] == ["a", "b", "c"]
    assert set(chosen[3:12]) == {"b"}


@pytest.mark.parametrize("watch", ["reward", "square"])
def test_a_change_restarts_every_arm(watch: str) -> None:
    rng = np.random.default_rng(0)
    policy = ForcedGLR(n_features=1, explore=0.5, delta=0.01, watch=watch)
    policy.add_arms(list("ab"))
    events = []
    for t in range(600):
        arm = policy.select(np.ones(1)).arm
        mean = {"a": 0.2, "b": 0.8 if t < 300 else -0.8}[str(arm)]
        event = policy.update(arm, np.ones(1), float(mean + 0.3 * rng.normal()))
        if event is not None:
            events.append((t, event))
            assert policy.coefficients("a").tolist() == [0.0]
            assert not policy._seen
    assert [event.arm for _, event in events] == ["b"]
    assert 300 <= events[0][0] < 420
    assert events[0][1].statistic >= events[0][1].threshold


def test_nothing_changes_and_nothing_is_reported() -> None:
    world = PiecewiseLinear(n_arms=3, n_features=2, period=None)
    maker = ForcedGLRMaker({"n_features": 2, "delta": 1e-3, "explore": 0.1})
    found = simulate(world, {"": maker}, horizon=1500, runs=2)
    assert sum(d.false_alarms for d in found.detections[""]) == 0


def test_parameters_are_checked() -> None:
    for params in ({"explore": 0.0}, {"delta": 1.0}, {"watch": "mean"}):
        with pytest.raises(InvalidInputError, match=f"{next(iter(params))} must be"):
            ForcedGLR(n_features=1, **params)  # type: ignore[arg-type]
