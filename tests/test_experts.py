"""DenBand and dLinUCB: the fast policies against the literal pseudo-code, and what must hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import erfinv  # type: ignore[import-untyped]

from tests.oracles import DenBandOracle, DynamicLinUCBOracle
from tests.oracles.experts import Expert
from whim import LinUCBUniform
from whim.errors import InvalidInputError
from whim.kernels.linalg import udu
from whim.kernels.models import experts
from whim.policies.base import Policy
from whim.policies.denband import DenBand
from whim.policies.dynamic_linucb import DynamicLinUCB

F64 = npt.NDArray[np.float64]
ARMS = 5

# payoff -> parameters of a policy, and the length p of its features
SHAPES: list[tuple[dict[str, Any], int]] = [
    ({"n_item_features": 1}, 1),
    ({"n_item_features": 3}, 3),
    ({"n_item_features": 10}, 10),
    ({"payoff": "cross", "n_item_features": 3, "n_features": 2}, 6),
    ({"payoff": "cross", "n_cross_features": 4}, 4),
]
IDS = ["p1", "p3", "p10", "cross6", "given4"]

WINDOWED: dict[str, Any] = {
    "ridge": 1.0, "tau": 30, "delta1": 0.1, "delta_l": 0.1, "sigma": 0.1, "gate": "window",
    "max_experts": 20, "alpha": 0.2, "age_limit": None, "gate_window": 12,
    "gate_threshold": 0.15, "kappa": 1.0,
}  # fmt: skip
SINGLE: dict[str, Any] = {
    "ridge": 0.1, "tau": 20, "delta1": 0.1, "delta_l": 0.1, "sigma": 0.1, "gate": "single",
    "max_experts": 20, "alpha": None, "age_limit": None, "gate_window": 500,
    "gate_threshold": 0.06, "kappa": None,
}  # fmt: skip
DENBANDS: dict[str, dict[str, Any]] = {
    "window": WINDOWED,
    "window, old": WINDOWED | {"age_limit": 40},
    "window, cap": WINDOWED | {"max_experts": 3, "delta_l": 0.02, "kappa": 0.1, "alpha": 0.05},
    "window, theory": WINDOWED | {"alpha": None, "kappa": None, "sigma": 0.02, "ridge": 0.05},
    "single": SINGLE,
    "single, old": SINGLE | {"age_limit": 25},
    "single, cap": SINGLE | {"max_experts": 2, "sigma": 0.02, "ridge": 0.01, "delta_l": 0.05},
    "short": SINGLE | {"tau": 2, "ridge": 0.05},
    "one": WINDOWED | {"tau": 1, "max_experts": 1, "gate_window": 1, "kappa": 0.0},
}
DYNAMICS: dict[str, dict[str, Any]] = {
    "plain": {"tau": 20, "sigma": 0.05},
    "tight": {"tau": 7, "sigma": 0.01, "delta1": 0.3, "tdelta1": 0.0, "delta2": 0.4},
    "cap": {"tau": 2, "sigma": 0.01, "delta1": 0.9, "delta2": 0.99, "max_models": 3},
    "one": {"tau": 1, "sigma": 0.02, "delta2": 0.5, "max_models": 1, "ridge": 0.01},
}


class MemoOracle(DenBandOracle):
    """The oracle, with an auditor fitted once for each of its expert's observations."""

    def auditor(self, e: Expert) -> tuple[F64, F64]:
        known = getattr(e, "known", None)
        if known is None or known[0] != (e.age, e.n):
            known = ((e.age, e.n), super().auditor(e))
            e.known = known  # type: ignore[attr-defined]
        return known[1]


def plays(
    shape: dict[str, Any], p: int, *, steps: int, seed: int, scale: float = 1.0, noise: float = 0.05
) -> Iterator[tuple[F64 | None, list[int], F64, F64, F64 | None]]:
    """Context, candidates, φ of every arm, rewards of every arm, and cross rows if given."""
    rng = np.random.default_rng([seed, p])
    Y = item_features(shape, scale)
    theta = rng.normal(size=p) / np.sqrt(p)
    d = shape.get("n_features")
    for t in range(steps):
        if t % 45 == 44:
            theta = rng.normal(size=p) / np.sqrt(p)
        x = None if d is None else rng.normal(size=d)
        cross = None
        if Y is None:
            cross = phi = scale * rng.normal(size=(ARMS, p))
        else:
            phi = Y if x is None else np.array([np.kron(y, x) for y in Y])
        rewards = phi @ theta / scale + noise * rng.normal(size=ARMS)
        candidates = rng.permutation(ARMS)[: int(rng.integers(1, ARMS + 1))].tolist()
        yield x, candidates, phi, rewards, cross


def item_features(shape: dict[str, Any], scale: float = 1.0) -> F64 | None:
    m = shape.get("n_item_features")
    return None if m is None else scale * np.random.default_rng(m).normal(size=(ARMS, m))


def feed(fast: Policy, shape: dict[str, Any], p: int, **options: Any) -> list[Any]:
    """Let the policy choose and learn; its decisions and events."""
    seen: list[Any] = []
    for x, candidates, _, rewards, cross in plays(shape, p, **options):
        rows = None if cross is None else cross[candidates]
        decision = fast.select(x, candidates, cross=rows)
        arm = decision.arm
        assert isinstance(arm, int)
        row = None if cross is None else cross[arm]
        seen += [decision, fast.update(arm, x, float(rewards[arm]), cross=row)]
    return seen


def follow(fast: Policy, slow: Any, shape: dict[str, Any], p: int, steps: int, seed: int) -> int:
    """Every decision, score and event of the two must agree; the number of events."""
    fast.add_arms(range(ARMS), features=item_features(shape))
    for a in range(ARMS):
        slow.add(a)
    events = 0
    for x, candidates, phi, rewards, cross in plays(shape, p, steps=steps, seed=seed):
        rows = None if cross is None else cross[candidates]
        expected = slow.scores(phi[candidates], candidates)
        found = fast.scores(x, candidates, cross=rows)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        decision = fast.select(x, candidates, cross=rows)
        arm = decision.arm
        assert isinstance(arm, int)
        played = phi[arm]
        assert arm == candidates[int(np.argmax(expected))]
        assert decision.score == pytest.approx(decision.mean + decision.width)
        if isinstance(slow, DenBandOracle):
            acting = min(slow.experts, key=lambda e: slow.badness(e, played)[0]).theta()
        else:
            acting = slow.chosen().theta()
        born = slow.update(arm, played, float(rewards[arm]))
        row = None if cross is None else cross[arm]
        event = fast.update(arm, x, float(rewards[arm]), cross=row)
        assert (event is not None) == born
        if event is not None:
            events += 1
            assert event.arm is None
            assert (event.step, event.plays) == (slow.t, fast.plays(arm))
            assert event.statistic == pytest.approx(slow.last_statistic, abs=1e-9)
            assert event.statistic >= event.threshold
            assert event.theta_before == pytest.approx(acting.tolist(), abs=1e-9)
            assert event.theta_after == (0.0,) * p
            assert event.window == 0
    return events


@pytest.mark.parametrize(("shape", "p"), SHAPES, ids=IDS)
@pytest.mark.parametrize("config", DENBANDS)
def test_denband_equals_the_pseudo_code(config: str, shape: dict[str, Any], p: int) -> None:
    params = DENBANDS[config]
    fast = DenBand(**shape, **params)
    slow = MemoOracle(p=p, **params)
    steps = 160 if params["max_experts"] == 20 else 240
    events = follow(fast, slow, shape, p, steps=steps, seed=len(config))
    assert events >= 2
    if params["max_experts"] < 20:
        assert events >= params["max_experts"] == fast.n_experts
    assert fast.n_experts == len(slow.experts)
    thetas = [e.theta() for e in slow.experts]
    np.testing.assert_allclose(fast.coefficients(), thetas, atol=1e-9)


@pytest.mark.parametrize(("shape", "p"), SHAPES, ids=IDS)
@pytest.mark.parametrize("config", DYNAMICS)
def test_dynamic_linucb_equals_the_pseudo_code(config: str, shape: dict[str, Any], p: int) -> None:
    params = DYNAMICS[config]
    fast = DynamicLinUCB(**shape, **params)
    given = {"alpha": 0.6, "ridge": 0.1, "delta1": 0.01, "delta2": 0.1, "max_models": 20} | params
    given.setdefault("tdelta1", given["delta1"] / 5)
    given["eta"] = math.sqrt(2) * given["sigma"] * float(erfinv(1 - given["delta1"]))
    slow = DynamicLinUCBOracle(p=p, **given)
    assert follow(fast, slow, shape, p, steps=200, seed=len(config)) >= 3
    assert fast.n_models == len(slow.slaves)
    np.testing.assert_allclose(fast.coefficients(), slow.chosen().theta(), atol=1e-9)


def test_many_slaves_keep_their_order() -> None:
    """Slaves that are neither good nor dropped gather until the oldest must give way."""
    params: dict[str, Any] = {
        "alpha": 0.6, "ridge": 0.1, "tau": 40, "delta1": 0.6, "delta2": 0.5, "tdelta1": 0.0,
        "sigma": 0.001, "eta": 0.2, "max_models": 4,
    }  # fmt: skip
    fast = DynamicLinUCB(n_item_features=3, **params)
    slow = DynamicLinUCBOracle(p=3, **params)
    most, rng = 0, np.random.default_rng(5)
    Y = rng.normal(size=(ARMS, 3))
    fast.add_arms(range(ARMS), features=Y)
    theta = np.array([0.5, -0.2, 0.3])
    for t in range(600):
        if t % 40 == 0:
            theta = rng.normal(size=3)
        arm = fast.select().arm
        assert isinstance(arm, int)
        assert arm == int(np.argmax(slow.scores(Y, range(ARMS))))
        r = float(Y[arm] @ theta + 0.3 * rng.normal())
        assert (fast.update(arm, None, r) is not None) == slow.update(arm, Y[arm], r)
        assert fast.n_models == len(slow.slaves)
        np.testing.assert_allclose(fast.coefficients(), slow.chosen().theta(), atol=1e-9)
        most = max(most, fast.n_models)
    assert most == 4


def test_denband_on_stationary_clicks_is_one_ridge_model() -> None:
    rng = np.random.default_rng(1)
    Y = np.c_[rng.random((10, 5)), np.ones(10)]
    rates = 0.1 * Y @ rng.random(6) / 3.0
    policy = DenBand(n_item_features=6)
    policy.add_arms(range(10), features=Y)
    slots = rng.integers(10, size=20_000)
    clicks = (rng.random(20_000) < rates[slots]).astype(float)
    assert policy.update_many(slots.tolist(), None, clicks) == []
    assert policy.n_experts == 1
    X = Y[slots]
    batch = np.linalg.solve(np.eye(6) + X.T @ X, X.T @ clicks)
    np.testing.assert_allclose(policy.coefficients(), [batch], atol=1e-9)


@pytest.mark.parametrize(("shape", "p"), SHAPES, ids=IDS)
def test_dynamic_linucb_that_never_fails_is_linucb(shape: dict[str, Any], p: int) -> None:
    both: list[Policy] = [
        DynamicLinUCB(**shape, eta=math.inf),
        LinUCBUniform(**shape, alpha=0.6, ridge=0.1),
    ]
    for policy in both:
        policy.add_arms(range(ARMS), features=item_features(shape))
    ours, theirs = (feed(policy, shape, p, steps=500, seed=2) for policy in both)
    assert ours == theirs
    assert isinstance(both[0], DynamicLinUCB)
    assert both[0].n_models == 1


def policies(shape: dict[str, Any]) -> list[Policy]:
    found: list[Policy] = [
        DenBand(**shape, **WINDOWED),
        DenBand(**shape, **DENBANDS["single, cap"]),
        DynamicLinUCB(**shape, **DYNAMICS["tight"]),
    ]
    for policy in found:
        policy.add_arms(range(ARMS), features=item_features(shape))
    return found


@pytest.mark.parametrize(("shape", "p"), SHAPES[1:], ids=IDS[1:])
def test_update_many_is_the_loop(shape: dict[str, Any], p: int) -> None:
    for one, many in zip(policies(shape), policies(shape), strict=True):
        log: list[Any] = []
        events = []
        for x, candidates, _, rewards, cross in plays(shape, p, steps=300, seed=4):
            arm = candidates[0]
            row = None if cross is None else cross[arm]
            log.append((arm, x, float(rewards[arm]), row))
            event = one.update(arm, x, float(rewards[arm]), cross=row)
            events += [] if event is None else [event]
        arms, X, r, rows = (list(column) for column in zip(*log, strict=True))
        found = many.update_many(
            arms,
            None if X[0] is None else np.array(X),
            r,
            cross=None if rows[0] is None else np.array(rows),
        )
        assert found == events != []
        assert one.to_bytes() == many.to_bytes()


@pytest.mark.parametrize(("shape", "p"), SHAPES, ids=IDS)
def test_saved_policies_go_on_as_if_nothing_had_happened(shape: dict[str, Any], p: int) -> None:
    for policy in policies(shape):
        feed(policy, shape, p, steps=100, seed=6)
        again = type(policy).from_bytes(policy.to_bytes())
        assert again.params == policy.params
        assert feed(policy, shape, p, steps=200, seed=7) == feed(again, shape, p, steps=200, seed=7)
        assert again.to_bytes() == policy.to_bytes()


def test_deciding_changes_nothing_and_rows_agree() -> None:
    shape, p = SHAPES[3]
    X = np.random.default_rng(0).normal(size=(20, 2))
    for policy in policies(shape):
        feed(policy, shape, p, steps=150, seed=1)
        before = policy.to_bytes()
        table = policy.scores_many(X)
        for x, row in zip(X, table, strict=True):
            assert policy.scores(x).tolist() == row.tolist()
            assert policy.select(x).score == row.max()
        for bad in ([math.nan, 1.0], [1.0, math.inf]):
            with pytest.raises(InvalidInputError, match="x must be finite"):
                policy.update(0, np.array(bad), 1.0)
        assert policy.to_bytes() == before


def test_reset_starts_over_and_retiring_keeps_the_models() -> None:
    shape, p = SHAPES[1]
    for policy, new in zip(policies(shape), policies(shape), strict=True):
        feed(policy, shape, p, steps=150, seed=1)
        before = policy.scores(None, [0, 1])
        policy.retire_arms([4])
        assert policy.scores(None, [0, 1]).tolist() == before.tolist()
        policy.reset_arms([0])
        new.retire_arms([4])
        for name, array in {n: getattr(new, n) for n in new._kept}.items():
            assert array.tolist() == getattr(policy, name).tolist(), name


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("tau", [1, 2, 5])
@pytest.mark.parametrize(("shape", "p"), [SHAPES[0], SHAPES[2], SHAPES[4]])
def test_extreme_contexts_stay_finite(
    shape: dict[str, Any], p: int, tau: int, scale: float
) -> None:
    for policy in (
        DenBand(**shape, **(WINDOWED | {"tau": tau})),
        DenBand(**shape, **(SINGLE | {"tau": tau})),
        DynamicLinUCB(**shape, tau=tau),
    ):
        policy.add_arms(range(ARMS), features=item_features(shape, scale))
        feed(policy, shape, p, steps=200, seed=3, scale=scale)
        assert all(np.isfinite(array).all() for array in (getattr(policy, n) for n in policy._kept))


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0])
def test_constant_contexts(value: float) -> None:
    for policy in (DenBand(n_item_features=2, tau=2), DynamicLinUCB(n_item_features=2, tau=2)):
        policy.add_arms(["a", "b"], features=[[value, value]] * 2)
        policy.update_many(["a", "b"] * 100, None, [1.0, 1.0, 0.0, 0.0] * 50)
        assert all(np.isfinite(array).all() for array in (getattr(policy, n) for n in policy._kept))
        assert np.isfinite(policy.scores()).all()
        assert policy.select().arm == "a"


@pytest.mark.parametrize("large", [1.0, 1e5])
def test_auditors_do_not_drift(large: float) -> None:
    """Through 200,000 steps the sliding auditors are those fitted afresh to their windows."""
    p, tau, n = 4, 64, 200_000
    rng = np.random.default_rng(9)
    Z = rng.normal(size=(n, p)) / 2.0
    # a direction that often one observation holds alone: its removal leaves almost nothing
    Z[:, 3] = np.where(rng.random(n) < 0.02, large, 0.0)
    theta = rng.normal(size=(20, p))[np.arange(n) // (n // 20)] / [1.0, 1.0, 1.0, large]
    rewards = np.einsum("ij,ij->i", Z, theta) + 0.1 * rng.normal(size=n)
    policy = DenBand(n_cross_features=p, payoff="cross", tau=tau, sigma=0.1, max_experts=6)
    policy.add_arms(["a"])
    births, at = 0, 0
    for end in (50_001, 100_013, 150_027, 199_990, 200_000):
        some = slice(at, end)
        births += len(policy.update_many(["a"] * (end - at), None, rewards[some], cross=Z[some]))
        at = end
        for row in policy._order[: policy.n_experts].tolist():
            window = slice(end - min(tau, int(policy._counts[row, experts.AGE])), end)
            A = np.eye(p) + Z[window].T @ Z[window]
            size = np.sqrt(np.diag(A))  # without which the reference is the worse of the two
            fresh = np.linalg.inv(A / np.outer(size, size)) / np.outer(size, size)
            inverse = np.empty((p, p))
            udu.dense(policy._audit[row], inverse)
            np.testing.assert_allclose(inverse, fresh, rtol=0, atol=1e-8)
            residuals = rewards[window] - Z[window] @ policy._model[row, -p:]
            beta = fresh @ (Z[window].T @ residuals)
            np.testing.assert_allclose(policy._audit[row, -p - 2 : -2], beta, rtol=0, atol=1e-8)
    assert births >= 6


@pytest.mark.parametrize(
    ("cls", "name", "values"),
    [
        (DenBand, "alpha", [-0.1, math.nan, "1"]),
        (DenBand, "ridge", [0.0, math.inf]),
        (DenBand, "tau", [0, 2.5, None]),
        (DenBand, "delta1", [0.0, 1.0]),
        (DenBand, "delta_l", [0.0, -1.0, math.inf]),
        (DenBand, "sigma", [-0.1, math.inf, None]),
        (DenBand, "gate", ["double", None]),
        (DenBand, "gate_window", [0, 1.5]),
        (DenBand, "gate_threshold", [0.0, math.nan]),
        (DenBand, "kappa", [-1.0, math.inf]),
        (DenBand, "age_limit", [0, 2.5]),
        (DenBand, "max_experts", [0, True]),
        (DynamicLinUCB, "alpha", [-0.1, None]),
        (DynamicLinUCB, "ridge", [0.0]),
        (DynamicLinUCB, "tau", [0]),
        (DynamicLinUCB, "delta1", [0.0, 1.0]),
        (DynamicLinUCB, "delta2", [0.0, 1.0]),
        (DynamicLinUCB, "tdelta1", [-0.1, 0.02]),
        (DynamicLinUCB, "sigma", [-0.1, math.inf]),
        (DynamicLinUCB, "eta", [-0.1, math.nan]),
        (DynamicLinUCB, "max_models", [0]),
    ],
)
def test_bad_parameters_are_named(cls: type[Policy], name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidInputError, match=rf"^{name} must be"):
            cls(n_item_features=2, **{name: value})


def test_authors_configuration() -> None:
    policy = DenBand.authors(n_item_features=3, age_limit=50)
    assert policy.params["gate"] == "single"
    assert (policy.params["alpha"], policy.params["kappa"]) == (None, None)
    assert policy.params["age_limit"] == 50
    with pytest.raises(TypeError):
        DenBand.authors(nonsense=1)
