"""Arithmetic under strain: millions of plays, contexts of any scale, rank-one data.

References are rational numbers or, for millions of rows, sums in extended precision; never the
same recursion. Widths are right to 1e-9, far from the data too. Means are right to 1e-7 of the
reward's scale plus the width: theta is kept by a recursion, and in a direction never seen a
rounding of contexts that are 1e12 times larger counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import whim
from tests import exact, inside
from tests.ledger import Ledger
from whim.errors import InvalidInputError

F64 = npt.NDArray[np.float64]

BLOCK = 500_000


def uniform(d: int, ridge: float) -> whim.LinUCBUniform:
    return whim.LinUCBUniform(n_cross_features=d, payoff="cross", ridge=ridge)


# one model of x each (LinUCBUniform: of the rows passed as ``cross``), which never restarts
PLAIN: dict[str, Callable[[int, float], Any]] = {
    "linucb-disjoint": lambda d, ridge: whim.LinUCBDisjoint(n_features=d, ridge=ridge),
    "pslinucb-disjoint": lambda d, ridge: whim.PSLinUCBDisjoint(
        n_features=d, ridge=ridge, window=100, threshold=math.inf, first_window="literal"
    ),
    "linucb-uniform": uniform,
    "lints": lambda d, ridge: whim.LinTS(n_features=d, ridge=ridge),
}
every_plain = pytest.mark.parametrize("name", PLAIN)


def learn(policy: Any, X: F64, r: F64) -> None:
    """Let the arm "a" learn rows, as contexts or as cross features."""
    arms = ["a"] * len(r)
    if isinstance(policy, whim.LinUCBUniform):
        policy.update_many(arms, None, r, cross=X)
    else:
        policy.update_many(arms, X, r)


def look(policy: Any, x: F64) -> whim.Decision:
    """Mean and width of arm "a" at x."""
    if isinstance(policy, whim.LinUCBUniform):
        return policy.rank(None, ["a"], cross=x[None])[0]
    return policy.rank(x, ["a"])[0]  # type: ignore[no-any-return]


def agree(policy: Any, x: F64, expected: exact.Ridge, mean: float = 1e-7) -> None:
    """The width to 1e-9 of itself; the mean to a fraction of the reward's scale plus the width."""
    found = look(policy, x)
    assert found.width == pytest.approx(math.sqrt(expected.square), rel=1e-9, abs=0)
    assert abs(found.mean - expected.mean) <= mean * (1.0 + abs(expected.mean) + found.width)


def summed(
    policy: Any, n: int, d: int, ridge: float, seed: int
) -> tuple[npt.NDArray[np.longdouble], npt.NDArray[np.longdouble]]:
    """Feed n plays in blocks; A and b from their products, in extended precision."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=d)
    A = (ridge * np.eye(d)).astype(np.longdouble)
    b = np.zeros(d, np.longdouble)
    for at in range(0, n, BLOCK):
        X = rng.standard_normal((min(BLOCK, n - at), d))
        X[:, 0] = 1.0
        r = X @ theta + rng.standard_normal(len(X))
        learn(policy, X, r)
        A += X.T @ X
        b += X.T @ r
    return A, b


def near(found: F64, expected: F64, tolerance: float = 1e-8) -> None:
    """Within a tolerance of the largest entry."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * abs(expected).max())


@pytest.mark.parametrize("name", ["linucb-disjoint", "pslinucb-disjoint"])
def test_ten_million_updates_of_one_arm(name: str) -> None:
    """The kept inverse is within 1e-8 of one made afresh, and theta of the batch ridge."""
    d, n = 6, 10_000_000
    policy = PLAIN[name](d, 1.0)
    policy.add_arms(["a"])
    A, b = summed(policy, n, d, 1.0, seed=1)
    A_inv, theta = exact.invert(A, b)
    assert policy.plays("a") == n
    near(policy.inverse("a"), A_inv)
    near(policy.coefficients("a"), theta)
    near(inside.cum(policy, "a").A, A.astype(np.float64))


@pytest.mark.parametrize("name", ["linucb-uniform", "lints"])
def test_a_million_updates_of_other_models(name: str) -> None:
    d, n = 6, 1_000_000
    policy = PLAIN[name](d, 0.5)
    policy.add_arms(["a"])
    A, b = summed(policy, n, d, 0.5, seed=2)
    A_inv, theta = exact.invert(A, b)
    found = inside.ridge_model(policy, "a")
    near(found.A_inv, A_inv)
    near(found.t, theta)


@pytest.mark.parametrize("threshold", [None, math.inf])
def test_a_million_updates_of_the_hybrid(threshold: float | None) -> None:
    """A0, its inverse and β are within 1e-9 of those made afresh from each arm's own sums.

    With z = kron(y, x) an arm of matrix A = I + G adds yyᵀ ⊗ (I - A⁻¹) to A0 and y ⊗ A⁻¹b to b0.
    """
    d, m, arms, n = 3, 2, 4, 1_000_000
    sizes = {"n_features": d, "n_item_features": m}
    policy: Any = whim.LinUCBHybrid(**sizes)
    if threshold is not None:
        parts = {"window": 50, "threshold": threshold, "first_window": "literal"}
        policy = whim.PSLinUCBHybrid(**sizes, **parts)
    rng = np.random.default_rng(3)
    Y = rng.normal(size=(arms, m))
    policy.add_arms(range(arms), features=Y)
    A = np.zeros((arms, d, d), np.longdouble) + np.eye(d)
    b = np.zeros((arms, d), np.longdouble)
    for _ in range(0, n, BLOCK):
        X = rng.standard_normal((BLOCK, d))
        chosen = rng.integers(arms, size=BLOCK)
        r = X[:, 0] * Y[chosen, 0] + rng.standard_normal(BLOCK)
        assert policy.update_many(chosen, X, r) == []
        for arm in range(arms):
            rows = X[chosen == arm]
            A[arm] += rows.T @ rows
            b[arm] += rows.T @ r[chosen == arm]
    A0, b0 = np.eye(d * m), np.zeros(d * m)
    for arm, y in enumerate(Y):
        A_inv, t = exact.invert(A[arm], b[arm])
        near(inside.cum(policy, arm).A_inv, A_inv)
        A0 = A0 + np.kron(np.outer(y, y), np.eye(d) - A_inv)
        b0 = b0 + np.kron(y, t)
    A0_inv, beta = exact.invert(A0, b0)
    found = inside.shared(policy)
    near(found.A0, A0, 1e-9)
    near(found.A0_inv, A0_inv, 1e-9)
    near(found.beta, beta, 1e-9)


@pytest.mark.parametrize("threshold", [0.3, None])
def test_thousands_of_changes_of_the_hybrid(threshold: float | None) -> None:
    """A0 is refactored at each change: after thousands it is still that of all segments."""
    d, m, arms, n, window = 3, 2, 3, 300_000, 20
    sizes = {"n_features": d, "n_item_features": m, "window": window}
    policy = whim.PSLinUCBHybrid(**sizes, threshold=threshold)
    rng = np.random.default_rng(4)
    Y = rng.normal(size=(arms, m))
    policy.add_arms(range(arms), features=Y)
    X = rng.standard_normal((n, d))
    chosen = rng.integers(arms, size=n)
    level = rng.normal(size=(n // 200, arms)).repeat(200, axis=0)
    r = level[np.arange(n), chosen] + 0.1 * rng.standard_normal(n)
    if threshold is None:  # the contexts have no constant, so that a level is no interest
        r *= X[:, 0]
    events = policy.update_many(chosen, X, r)
    assert len(events) > 3000
    A0, b0 = np.eye(d * m), np.zeros(d * m)
    for arm, y in enumerate(Y):
        mine, rewards = X[chosen == arm], r[chosen == arm]
        # a segment starts with the plays that were kept when the change was found
        starts = [0] + [event.plays - event.window for event in events if event.arm == arm]
        for start, stop in zip(starts, [*starts[1:], len(rewards)], strict=True):
            rows = mine[start:stop]
            A = np.eye(d) + rows.T @ rows
            A0 = A0 + np.kron(np.outer(y, y), np.eye(d) - np.linalg.inv(A))
            b0 = b0 + np.kron(y, np.linalg.solve(A, rows.T @ rewards[start:stop]))
    found = inside.shared(policy)
    near(found.A0, A0)
    near(found.beta, np.linalg.solve(A0, b0))


# -- contexts of any scale -------------------------------------------------------------------------


def test_ten_million_times_one_large_context() -> None:
    """kernels/linalg/udu.py of itself: widths to 1e-9 where numpy's inverse has no digits."""
    d, n = 6, 10_000_000
    policy = whim.LinUCBDisjoint(n_features=d)
    policy.add_arms(["a"])
    x = 1e6 * np.array([0.6, -0.3, 0.2, 0.7, 0.1, -0.4])
    X, r = np.tile(x, (BLOCK, 1)), np.arange(BLOCK) % 2 * 1.0
    for _ in range(0, n, BLOCK):
        learn(policy, X, r)
    for y in (x, np.eye(d)[0], np.array([1.0, 2.0, 0.0, 0.0, 0.0, 0.0])):
        agree(policy, y, exact.constant(x, n, n / 2, 1.0, y))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("ridge", [1.0, 1e-3])
@every_plain
def test_constant_contexts(name: str, ridge: float, scale: float) -> None:
    """One context 100,000 times: widths and means to 1e-9 of A = λI + n xxᵀ, in any direction."""
    d, n = 4, 100_000
    policy = PLAIN[name](d, ridge)
    policy.add_arms(["a"])
    x = scale * np.array([0.6, -0.3, 0.2, 0.7])
    r = np.arange(n) % 3 / 2.0  # sums without rounding
    learn(policy, np.tile(x, (n, 1)), r)
    across = np.array([0.3, 0.6, 0.0, 0.0])
    for y in (x, across, scale * across, np.array([1.0, 2.0, -1.0, 0.5]), np.eye(d)[3]):
        agree(policy, y, exact.constant(x, n, float(r.sum()), ridge, y))


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("d", [1, 4])
@every_plain
def test_random_contexts(name: str, d: int, scale: float) -> None:
    policy = PLAIN[name](d, 1.0)
    policy.add_arms(["a"])
    rng = np.random.default_rng(5)
    X = scale * rng.normal(size=(200, d))
    r = rng.normal(size=200)
    learn(policy, X, r)
    at = [X[0], rng.normal(size=d), scale * rng.normal(size=d), np.zeros(d)]
    for y, expected in zip(at, exact.ridge(X, r, 1.0, at), strict=True):
        agree(policy, y, expected)


@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize(("ridge", "mean"), [(1.0, 1e-7), (1e-6, 1e-5)])
@every_plain
def test_scales_that_alternate(name: str, ridge: float, mean: float, rank: int) -> None:
    """1e6 and 1e-6 in turn, the large ones in a subspace: A has a condition of 1e14 and 1e20.

    In the second case one rounding of the large contexts moves the exact mean by 1e-6 widths.
    """
    d, n = 4, 200
    policy = PLAIN[name](d, ridge)
    policy.add_arms(["a"])
    rng = np.random.default_rng(6)
    basis = rng.normal(size=(rank, d))
    X = 1e-6 * rng.normal(size=(n, d))
    X[::2] = 1e6 * rng.normal(size=(n // 2, rank)) @ basis
    r = rng.normal(size=n)
    learn(policy, X, r)
    at = [X[0], X[1], rng.normal(size=d), np.eye(d)[0]]
    for y, expected in zip(at, exact.ridge(X, r, ridge, at), strict=True):
        agree(policy, y, expected, mean)


SHAPES: dict[str, Callable[[np.random.Generator, int], F64]] = {
    "constant": lambda rng, d: np.linspace(1.0, 0.2, d),
    "few": lambda rng, d: np.roll(np.linspace(1.0, -0.5, d), rng.integers(2)),
    "random": lambda rng, d: rng.normal(size=d),
    "alternating": lambda rng, d: rng.normal(size=d) * rng.choice([1e-6, 1e6]),
    "one large direction": lambda rng, d: (
        1e6 * np.linspace(1.0, 0.2, d) if rng.random() < 0.5 else rng.normal(size=d)
    ),
}
CASES = [(scale, shape) for shape in ("constant", "few", "random") for scale in (1e-6, 1.0, 1e6)]
CASES += [(1.0, "alternating"), (1.0, "one large direction")]
any_scale = pytest.mark.parametrize(("scale", "shape"), CASES)


@any_scale
@pytest.mark.parametrize(("d", "window"), [(1, 2), (3, 2), (3, 12)])
def test_restarts_at_any_scale(d: int, window: int, scale: float, shape: str) -> None:
    """PSLinUCB-Disjoint, one arm, through changes: exact ridge of the plays since the last one."""
    policy = whim.PSLinUCBDisjoint(n_features=d, window=window, threshold=0.3)
    policy.add_arms(["a"])
    ledger = Ledger(d=d, k=0, window=window, seed_first=True)
    ledger.add("a")
    rng = np.random.default_rng([7, d, window])
    changes = 0
    for t in range(400):
        x = scale * SHAPES[shape](rng, d)
        r = float(t // 40 % 2) + 0.05 * float(rng.normal())
        theta_pre = inside.theta_pre(policy, "a")
        X, _, rewards = inside.window(policy, "a")
        event = policy.update("a", x, r)
        ledger.learn("a", x, np.zeros(0), r, event is not None)
        if event is not None:
            changes += 1
            residuals = np.vstack([X, x]) @ theta_pre - np.append(rewards, r)
            assert event.statistic == pytest.approx(abs(residuals.mean()), rel=1e-9, abs=1e-9)
        if t % 57 == 56:
            at = [x, rng.normal(size=d), scale * rng.normal(size=d)]
            seen, _, r_seen = ledger.arrays(ledger.live("a"))
            for y, expected in zip(at, exact.ridge(seen, r_seen, 1.0, at), strict=True):
                agree(policy, y, expected)
    assert changes >= 3


def big_exact(ledger: Ledger, x: F64, z: F64) -> exact.Ridge:
    """The hybrid as one ridge over a block of x for each segment, the live one first, and z."""
    d, k = ledger.d, ledger.k
    segments = [ledger.live("a"), *ledger.frozen]
    size = d * len(segments) + k
    rows, rewards = [], []
    for i, segment in enumerate(segments):
        for x_s, z_s, r_s in segment:
            row = np.zeros(size)
            row[i * d : i * d + d], row[-k:] = x_s, z_s
            rows.append(row)
            rewards.append(r_s)
    at = np.zeros(size)
    at[:d], at[-k:] = x, z
    return exact.ridge(np.array(rows), np.array(rewards), ledger.ridge, [at])[0]


def hybrid_at_scale(scale: float, shape: str, changes: bool, g_pre: str) -> None:
    d, k, window = 2, 3, 6
    policy = whim.PSLinUCBHybrid(
        n_features=d, n_cross_features=k, window=window, g_pre=g_pre,
        first_window="seed" if changes else "literal",
        threshold=0.3 if changes else math.inf,
    )  # fmt: skip
    policy.add_arms(["a"])
    ledger = Ledger(d=d, k=k, window=window, seed_first=changes)
    ledger.add("a")
    rng = np.random.default_rng([8, int(changes)])
    for t in range(60):
        x, z = rng.normal(size=d), scale * SHAPES[shape](rng, k) * rng.normal()
        r = float(t // 20 % 2) + 0.05 * float(rng.normal())
        event = policy.update("a", x, r, cross=z)
        ledger.learn("a", x, z, r, event is not None)
        if t % 20 == 19:
            for x_at, z_at in ((x, z), (np.zeros(d), np.array([0.2, -0.6, 0.8])), (x, np.zeros(k))):
                found = policy.rank(x_at, ["a"], cross=z_at[None])[0]
                expected = big_exact(ledger, x_at, z_at)
                assert found.width == pytest.approx(math.sqrt(expected.square), rel=1e-8, abs=0)
                bound = 1.0 + abs(expected.mean) + found.width
                assert abs(found.mean - expected.mean) <= 1e-8 * bound
    assert (len(ledger.frozen) >= 2) == changes


@any_scale
def test_the_hybrid_without_changes_at_any_scale(scale: float, shape: str) -> None:
    """Cross rows of any scale and rank: the exact big ridge to 1e-8."""
    hybrid_at_scale(scale, shape, changes=False, g_pre="exact")


@pytest.mark.parametrize("g_pre", ["exact", "literal"])
@pytest.mark.parametrize(
    ("scale", "shape"),
    CASES,
)
def test_the_hybrid_through_changes_at_any_scale(scale: float, shape: str, g_pre: str) -> None:
    """The same through changes, at each of which A0 is taken apart and put together."""
    hybrid_at_scale(scale, shape, changes=True, g_pre=g_pre)


@any_scale
def test_the_hybrid_s_score_test_at_any_scale(scale: float, shape: str) -> None:
    """The same through changes that the score test finds; each keeps as many plays as it says."""
    d, k = 2, 4
    policy = whim.PSLinUCBHybrid(n_features=d, n_item_features=2, window=16)
    policy.add_arms(["a"], features=[[1.0, 1.0]])
    ledger = Ledger(d=d, k=k, window=1000, seed_first=False)
    ledger.add("a")
    rng = np.random.default_rng(8)
    for t in range(120):
        x, z = rng.normal(size=d), scale * SHAPES[shape](rng, k) * rng.normal()
        r = float(x[0] * (-1) ** (t // 30)) + 0.05 * float(rng.normal())
        event = policy.update("a", x, r, cross=z)
        ledger.learn("a", x, z, r, changed=False)
        if event is not None:
            seen = ledger.inside["a"]
            ledger.freeze(seen[: -event.window])
            ledger.inside["a"] = seen[-event.window :]
        if t % 40 == 39:
            for x_at, z_at in ((x, z), (np.zeros(d), np.array([0.2, -0.6, 0.8, 0.1])), (x, 0 * z)):
                found = policy.rank(x_at, ["a"], cross=z_at[None])[0]
                expected = big_exact(ledger, x_at, z_at)
                assert found.width == pytest.approx(math.sqrt(expected.square), rel=1e-8, abs=0)
                bound = 1.0 + abs(expected.mean) + found.width
                assert abs(found.mean - expected.mean) <= 1e-8 * bound
    assert len(ledger.frozen) == 3


# -- windows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [2, 37, 1000])
@pytest.mark.parametrize("payoff", ["disjoint", "hybrid"])
def test_running_sums_do_not_drift(payoff: str, window: int) -> None:
    """After a million plays with huge ones among them the statistic is that of the window."""
    d, k, n = 3, 2, 1_000_000
    parts: dict[str, Any] = {"window": window, "threshold": 0.5, "ridge": 1e-9}
    policy: Any = whim.PSLinUCBDisjoint(n_features=d, **parts)
    if payoff == "hybrid":
        policy = whim.PSLinUCBHybrid(n_features=d, n_cross_features=k, **parts)
    else:
        k = 0
    policy.add_arms(["a"])
    rng = np.random.default_rng(window)
    truth = rng.normal(size=d + k)
    for at in range(0, n, BLOCK):
        rows = rng.standard_normal((BLOCK, d + k))
        rows[5000::101, :d] *= 1e6
        X, Z = rows[:, :d], rows[:, d:] if k else None
        events = policy.update_many(["a"] * BLOCK, X, rows @ truth, cross=Z)
        assert all(at == 0 and event.step < 5000 for event in events)  # not learnt yet
    seen = inside.window(policy, "a")
    assert len(seen.r) == window - 1
    rows = np.hstack([seen.X, seen.Z, seen.r[:, None]])
    exactly = [math.fsum(column) for column in rows.T]
    # what adding and taking away numbers of 5e6 may cost in one window, whatever came before
    bound = 4 * window * np.finfo(float).eps * 5e6
    np.testing.assert_allclose(inside.sums(policy, "a"), exactly, rtol=0, atol=bound)
    theta, beta = inside.theta_pre(policy, "a"), np.zeros(0)
    if k:
        beta = inside.shared(policy, "pre").beta
    x, z = np.ones(d), np.ones(k)
    reward = float(truth.sum()) + window
    event = policy.update("a", x, reward, cross=z if k else None)
    residuals = [*(seen.X @ theta + seen.Z @ beta - seen.r), x @ theta + z @ beta - reward]
    assert event.statistic == pytest.approx(abs(math.fsum(residuals)) / window, abs=1e-8)
    assert event.statistic == pytest.approx(1.0, abs=1e-6)


# -- the edges of the range ------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1e10, -1e10, 1e-300, 5e-324, 0.0])
@every_plain
def test_the_largest_and_smallest_contexts(name: str, value: float) -> None:
    """Anything within the documented range gives finite means and widths."""
    policy = PLAIN[name](3, 1.0)
    policy.add_arms(["a"])
    X = value * np.array([[1.0, 0.5, -0.25], [0.5, 0.5, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    learn(policy, X.repeat(60, axis=0), np.tile([1.0, -1.0, 0.5], 80))
    for y in (*X, np.ones(3), np.zeros(3)):
        found = look(policy, y)
        assert np.isfinite(found[1:]).all()
        assert found.width >= 0.0


@pytest.mark.parametrize(
    "value",
    [
        1e10,
        1e5,
        1e-300,
        0.0,
    ],
)
def test_the_largest_and_smallest_contexts_of_the_hybrid(value: float) -> None:
    policy = whim.PSLinUCBHybrid(n_features=2, n_item_features=2, window=5, threshold=0.3)
    policy.add_arms(["a", "b"], features=[[1.0, 0.5], [0.0, -1.0]])
    rng = np.random.default_rng(9)
    changes = 0
    for t in range(200):
        x = value * rng.normal(size=2).clip(-1, 1)
        arm = "ab"[t % 2]
        changes += policy.update(arm, x, float(t // 30 % 2)) is not None
        for found in policy.rank(x) + policy.rank(np.ones(2)):
            assert np.isfinite(found[1:]).all()
    assert changes >= 2
    assert not np.isnan(inside.shared(policy, "pre").A0_inv).any()


@pytest.mark.parametrize("value", [1.0001e10, -1e60, 1e308, math.inf, math.nan])
@every_plain
def test_what_is_out_of_range_is_refused(name: str, value: float) -> None:
    policy = PLAIN[name](2, 1.0)
    policy.add_arms(["a"])
    before = policy.to_bytes()
    bad = np.array([[1.0, value]])
    with pytest.raises(InvalidInputError, match="must be finite and at most 1e\\+10 in size"):
        learn(policy, bad, np.ones(1))
    with pytest.raises(InvalidInputError, match="must be finite and at most 1e\\+10 in size"):
        learn(policy, np.ones((1, 2)), bad[0, 1:])
    with pytest.raises(InvalidInputError, match="must be finite and at most 1e\\+10 in size"):
        look(policy, bad[0])
    assert policy.to_bytes() == before
