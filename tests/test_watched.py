"""``LinUCBWatched``: the kernel against a literal loop, river's detectors through the adapter."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

import whim
from whim.detectors import Cusum, RiverDetector
from whim.errors import InvalidInputError, StateFileError, WhimError
from whim.policies.base import state_file
from whim.types import F64


def plays(n: int = 400, d: int = 3, seed: int = 0) -> tuple[F64, F64]:
    """Contexts and rewards of one arm whose coefficients change half-way."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 0.5
    theta = rng.normal(size=(2, d))
    rewards = np.einsum("nd,nd->n", X, theta[np.arange(n) * 2 // n]) + 0.1 * rng.normal(size=n)
    return X, rewards


def literal(
    X: F64, rewards: F64, *, warmup: int, squared: bool, drift: float, threshold: float
) -> list[tuple[int, float]]:
    """Step and statistic of each alarm, from the definition and plain ridge regression."""
    start, squares, up, down, found = 0, [], 0.0, 0.0, []
    for t, (x, r) in enumerate(zip(X, rewards, strict=True)):
        past, d = X[start:t], X.shape[1]
        theta = np.linalg.solve(np.eye(d) + past.T @ past, past.T @ rewards[start:t])
        residual = r - x @ theta
        count = t - start + 1
        if 2 * count <= warmup:
            continue
        if count > warmup:
            z = residual / np.sqrt(np.mean(squares))
            z = (z**2 - 1) / math.sqrt(2) if squared else z
            up = max(0.0, up + z - drift)
            down = 0.0 if squared else max(0.0, down - z - drift)
            if max(up, down) > threshold:
                found.append((t + 1, max(up, down)))
                start, squares, up, down = t + 1, [], 0.0, 0.0
                continue
        squares.append(residual**2)
    return found


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("threshold", [3.0, 12.0])
def test_cusum_is_the_literal_one(threshold: float, squared: bool) -> None:
    watch = "square" if squared else "residual"
    for seed in range(4):
        X, rewards = plays(seed=seed)
        policy = whim.LinUCBWatched(
            n_features=3, warmup=21, watch=watch, settings={"drift": 0.4, "threshold": threshold}
        )
        policy.add_arms(["a"])
        events = policy.update_many(["a"] * len(X), X, rewards)
        wanted = literal(X, rewards, warmup=21, squared=squared, drift=0.4, threshold=threshold)
        assert [e.step for e in events] == [step for step, _ in wanted]
        assert np.allclose([e.statistic for e in events], [value for _, value in wanted])
        if threshold > 10:  # else an alarm before may have left the arm warming up
            assert any(200 < e.step < 230 for e in events)
        assert all(e.threshold == threshold and e.window == 0 for e in events)


@pytest.mark.parametrize("kind", ["page-hinkley", "adwin"])
@pytest.mark.parametrize("watch", ["residual", "square"])
def test_river_s_detectors_get_the_residuals_and_restart_the_arm(kind: str, watch: str) -> None:
    settings = {"threshold": 6.0} if kind == "page-hinkley" else {"delta": 0.05, "clock": 1}
    policy = whim.LinUCBWatched(
        n_features=3, detector=kind, settings=settings, watch=watch, warmup=10
    )
    twin = whim.LinUCBDisjoint(n_features=3)
    policy.add_arms(["a", "b"])
    twin.add_arms(["a"])
    X, rewards = plays()
    detector, since, found = RiverDetector(kind, settings), 0, 0
    for x, r in zip(X, rewards.tolist(), strict=True):
        residual = r - float(x @ twin.coefficients("a"))
        twin.update("a", x, r)
        event = policy.update("a", x, r)
        since += 1
        value = residual**2 if watch == "square" else residual
        alarm = since > 10 and detector.update(value)
        assert (event is not None) == alarm
        if event is not None:
            found += 1
            assert event.theta_before == pytest.approx(tuple(twin.coefficients("a")))
            assert event.statistic > event.threshold
            assert (policy.coefficients("a") == 0).all()
            twin.reset_arms(["a"])
            detector, since = RiverDetector(kind, settings), 0
    assert found
    assert policy.plays("a") == len(X)


def test_a_change_that_only_squares_show() -> None:
    """Contexts ±x with the sign of the answer turned: residuals cancel, their squares do not."""
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], size=(400, 1))
    rewards = X[:, 0] * np.where(np.arange(400) < 200, 1.0, -1.0) + 0.1 * rng.normal(size=400)
    steps = {}
    for watch in ("residual", "square"):
        policy = whim.LinUCBWatched(n_features=1, watch=watch, settings={"drift": 1.0})
        policy.add_arms(["a"])
        events = policy.update_many(["a"] * 400, X, rewards)
        steps[watch] = [e.step for e in events]
    assert steps["square"] == [201]


def test_the_rate_of_false_alarms_is_siegmund_s() -> None:
    rng = np.random.default_rng(1)
    policy = whim.LinUCBWatched(n_features=1, alpha=0.0, warmup=300, settings={"threshold": 4.0})
    policy.add_arms(["a"])
    n = 100_000
    events = policy.update_many(["a"] * n, np.ones((n, 1)), rng.normal(size=n))
    tested = n - 300 * (len(events) + 1)
    assert len(events) / tested == pytest.approx(Cusum(threshold=4.0).false_alarm(), rel=0.15)
    assert Cusum(drift=0.0).false_alarm() == pytest.approx(2 / 11.166**2)
    assert Cusum(threshold=math.inf).false_alarm() == 0.0


def test_saved_values_must_fit_their_counts() -> None:
    policy = whim.LinUCBWatched(n_features=3, detector="adwin", warmup=2)
    policy.add_arms(["a"])
    X, rewards = plays(30)
    policy.update_many(["a"] * 30, X, rewards)
    header, arrays = state_file.unpack(policy.to_bytes(), "here")
    assert len(arrays["fed"]) == 28
    arrays["fed"] = arrays["fed"][:-1]
    with pytest.raises(StateFileError, match="how many values"):
        whim.from_bytes(state_file.pack(header, arrays))


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, bad in (("adwin", {"threshold": 1.0}), ("page-hinkley", {"mode": "sideways"})):
        with pytest.raises(InvalidInputError, match="settings must be parameters of river's"):
            whim.LinUCBWatched(n_features=1, detector=kind, settings=bad)
    with pytest.raises(InvalidInputError, match="drift must be a finite number >= 0"):
        whim.LinUCBWatched(n_features=1, settings={"drift": -1.0})
    monkeypatch.setitem(sys.modules, "river", None)
    with pytest.raises(WhimError, match=r"pip install 'whim-bandits\[detectors\]'"):
        whim.LinUCBWatched(n_features=1, detector="adwin")
    whim.LinUCBWatched(n_features=1)  # CUSUM needs no river


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        ("page-hinkley", {"threshold": "abc"}),
        ("page-hinkley", {"threshold": None}),
        ("page-hinkley", {"min_instances": "x"}),
        ("adwin", {"clock": 0}),
        ("adwin", {"max_buckets": 0}),
        ("adwin", {"delta": 2.0}),
    ],
)
def test_settings_that_river_would_choke_on_later(kind: str, bad: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match="settings"):
        whim.LinUCBWatched(n_features=1, detector=kind, settings=bad)


def test_the_statistic_is_of_the_side_that_is_tested() -> None:
    detector = RiverDetector("page-hinkley", {"threshold": 5.0, "mode": "up"})
    for _ in range(200):
        detector.update(-1.0)
    while not detector.update(1.0):
        pass
    assert 5.0 < detector.statistic < 10.0


def test_a_rate_for_any_drift() -> None:
    assert Cusum(drift=50.0).false_alarm() == 0.0
    assert Cusum(drift=1e-17).false_alarm() == pytest.approx(Cusum(drift=0.0).false_alarm())
