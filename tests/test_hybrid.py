"""Hybrid payoffs: the fast policies against the literal pseudo-code and against one big ridge."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import whim
from tests import inside
from tests.oracles import LinUCBHybridOracle, PSLinUCBHybridOracle, schur
from tests.streams import stream
from whim.kernels.detection import windows


def crossed(x: npt.NDArray[np.float64], Y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.array([np.kron(y, x) for y in Y])


def shared_matrix(policy: whim.PSLinUCBHybrid, which: int) -> npt.NDArray[np.float64]:
    """A0 of G_cum (0) or G_pre (1), out of the kept factors."""
    return inside.shared(policy, "cum" if which == 0 else "pre").A0


@pytest.mark.parametrize("g_pre", ["literal", "exact"])
@pytest.mark.parametrize("first_window", ["literal", "seed"])
@pytest.mark.parametrize(("d", "m"), [(1, 1), (2, 3), (5, 2), (20, 1)])
@pytest.mark.parametrize(("window", "repeated"), [(2, False), (9, True), (30, False)])
def test_pslinucb_equals_algorithm_2(
    g_pre: str, first_window: str, d: int, m: int, window: int, repeated: bool
) -> None:
    threshold = {2: 0.4, 9: 0.15, 30: 0.08}[window]
    arms = 4
    Y = np.random.default_rng(d).normal(size=(arms, m)) / np.sqrt(m)
    fast = whim.PSLinUCBHybrid(
        n_features=d,
        n_item_features=m,
        alpha=0.7,
        ridge=0.4 if window == 9 else 1.0,
        window=window,
        threshold=threshold,
        first_window=first_window,
        g_pre=g_pre,
    )
    slow = PSLinUCBHybridOracle(
        d=d,
        k=d * m,
        alpha=0.7,
        ridge=0.4 if window == 9 else 1.0,
        window=window,
        threshold=threshold,
        first_window=first_window,
        g_pre=g_pre,
    )
    fast.add_arms(range(arms), features=Y)
    for a in range(arms):
        slow.add(a)
    changes = 0
    for play in stream(steps=700, arms=arms, d=d, seed=window, repeated=repeated):
        Z = crossed(play.x, Y[play.candidates])
        expected = slow.scores(play.x, Z, play.candidates)
        np.testing.assert_allclose(fast.scores(play.x, play.candidates), expected, atol=1e-9)
        decision = fast.select(play.x, play.candidates, cross=Z)
        place = int(np.argmax(expected))
        assert decision.arm == play.candidates[place]
        r = float(play.rewards[decision.arm])
        changed = slow.update(decision.arm, play.x, Z[place], r)
        event = fast.update(decision.arm, play.x, r)
        assert (event is not None) == changed
        if event is not None:
            changes += 1
            assert event.statistic == pytest.approx(slow.last_statistic, abs=1e-9)
            np.testing.assert_allclose(event.theta_after, slow.theta_cum(decision.arm), atol=1e-9)
    assert changes >= 8
    np.testing.assert_allclose(shared_matrix(fast, 0), slow.A0_cum, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(shared_matrix(fast, 1), slow.A0_pre, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("d", "m"), [(1, 2), (4, 3)])
def test_linucb_equals_literal(d: int, m: int) -> None:
    arms = 5
    Y = np.random.default_rng(d).normal(size=(arms, m))
    fast = whim.LinUCBHybrid(n_features=d, n_item_features=m, alpha=0.8, ridge=0.5)
    slow = LinUCBHybridOracle(d=d, k=d * m, alpha=0.8, ridge=0.5)
    fast.add_arms(range(arms), features=Y)
    for a in range(arms):
        slow.add(a)
    for play in stream(steps=500, arms=arms, d=d, seed=3):
        Z = crossed(play.x, Y[play.candidates])
        expected = slow.scores(play.x, Z, play.candidates)
        np.testing.assert_allclose(fast.scores(play.x, play.candidates), expected, atol=1e-9)
        np.testing.assert_allclose(
            fast.scores_many(play.x[None], play.candidates)[0], expected, atol=1e-9
        )
        place = int(np.argmax(expected))
        arm = fast.select(play.x, play.candidates).arm
        assert arm == play.candidates[place]
        slow.update(arm, play.x, Z[place], float(play.rewards[arm]))
        fast.update(arm, play.x, float(play.rewards[arm]))


def test_a_retired_or_reset_arm_stays_in_the_shared_models() -> None:
    """Its window joins G_pre; both shared models then hold the segment, once, frozen."""
    d, m, ridge = 2, 2, 0.7
    k = d * m
    rng = np.random.default_rng(4)
    Y = rng.normal(size=(3, m))
    policy = whim.PSLinUCBHybrid(
        n_features=d, n_item_features=m, window=8, threshold=0.5, ridge=ridge
    )
    policy.add_arms([0, 1, 2], features=Y)
    live: dict[int, list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], float]]] = {
        a: [] for a in range(3)
    }
    frozen = []
    for t in range(300):
        arm = int(rng.integers(3))
        x = rng.normal(size=d)
        r = float(rng.normal() + (t // 100))
        live[arm].append((x, np.kron(Y[arm], x), r))
        event = policy.update(arm, x, r)
        if event is not None:
            frozen.append(live[arm][:-8])
            live[arm] = live[arm][-8:]
        if t == 150:
            frozen.append(live.pop(1))
            live[1] = []
            policy.reset_arms([1])
        if t == 200:
            frozen.append(live.pop(2))
            live[2] = []
            policy.retire_arms([2])
            policy.add_arms([2], features=Y[2:])
    assert len(frozen) > 4
    A = ridge * np.eye(k) + sum(schur(s, d, k, ridge)[0] for s in [*frozen, *live.values()] if s)
    np.testing.assert_allclose(shared_matrix(policy, 0), A, atol=1e-9)
    inside = ridge * np.eye(k) + sum(schur(s, d, k, ridge)[0] for s in frozen if s)
    inside += sum(
        schur(
            s[: len(s) - policy._table_rows[policy._table.slot_of[a], windows.COUNT]], d, k, ridge
        )[0]
        for a, s in live.items()
    )
    np.testing.assert_allclose(shared_matrix(policy, 1), inside, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(("alpha", "ridge"), [(0.0, 1.0), (0.7, 1e-3), (1.0, 1.0), (50.0, 30.0)])
@pytest.mark.parametrize(("arms", "d", "m"), [(1, 1, 1), (3, 2, 3), (6, 6, 6), (21, 5, 1)])
def test_leaving_candidates_out_changes_no_bit_of_a_decision(
    scale: float, alpha: float, ridge: float, arms: int, d: int, m: int
) -> None:
    rng = np.random.default_rng([arms, d])
    policy = whim.LinUCBHybrid(n_features=d, n_item_features=m, alpha=alpha, ridge=ridge)
    Y = rng.normal(size=(arms, m))
    Y[-1] = 0.0  # no cross features at all
    policy.add_arms(range(arms), features=Y)
    theta = rng.normal(size=(arms, d))
    for _ in range(300):
        x = scale * rng.normal(size=d)
        chosen = sorted(rng.permutation(arms)[: rng.integers(1, arms + 1)].tolist())
        decision, ranked = policy.select(x, chosen), policy.rank(x, chosen)
        assert decision == ranked[0]
        policy.update(decision.arm, x, float(theta[decision.arm] @ x / scale + rng.normal()))


def test_one_of_twins_wins_as_in_a_ranking() -> None:
    policy = whim.LinUCBHybrid(n_features=2, n_item_features=1)
    policy.add_arms(list("abcd"), features=[[1.0], [0.5], [1.0], [0.5]])
    assert policy.select([1.0, 0.0]).arm == "a"
    assert policy.select([1.0, 0.0], ["d", "b"]).arm == "d"
    assert policy.select([0.0, 0.0]) == policy.rank([0.0, 0.0])[0]


@pytest.mark.parametrize("make", [whim.LinUCBHybrid, whim.PSLinUCBHybrid])
@pytest.mark.parametrize("ridge", [0.3, 1.0, 49.0])
def test_rows_of_the_caller_and_new_features_equal_the_literal_form(
    make: type[whim.LinUCBHybrid] | type[whim.PSLinUCBHybrid], ridge: float
) -> None:
    """Cross features are kron(y, x) until features are set, rows are given, and saved between."""
    d, m, arms = 3, 2, 4
    rng = np.random.default_rng(5)
    Y = rng.normal(size=(arms, m))
    fast = make(n_features=d, n_item_features=m, alpha=0.8, ridge=ridge)
    slow = LinUCBHybridOracle(d=d, k=d * m, alpha=0.8, ridge=ridge)
    fast.add_arms(range(arms), features=Y)
    for a in range(arms):
        slow.add(a)
    for t in range(400):
        x = rng.normal(size=d)
        if t % 40 == 39:
            changed = rng.permutation(arms)[:2].tolist()
            Y[changed] = rng.normal(size=(2, m))
            fast.set_features(changed, Y[changed])
        if t in (60, 61, 220):
            fast = make.from_bytes(fast.to_bytes())  # type: ignore[assignment]
        Z = crossed(x, Y)
        given = t % 7 == 3
        if given:
            Z += rng.normal(size=Z.shape)
        rows = Z if given else None
        expected = slow.scores(x, Z, range(arms))
        np.testing.assert_allclose(fast.scores(x, cross=rows), expected, atol=1e-9)
        decision = fast.select(x, cross=rows)
        assert decision.score == pytest.approx(expected.max(), abs=1e-9)
        np.testing.assert_allclose(fast.coefficients(t % arms), slow.theta(t % arms), atol=1e-9)
        arm, r = decision.arm, float(rng.normal())
        slow.update(arm, x, Z[arm], r)
        if t % 3:
            assert fast.update(arm, x, r, cross=Z[arm] if given else None) is None
        else:
            fast.update_many([arm], x[None], [r], cross=Z[[arm]] if given else None)
        if not given:
            np.testing.assert_allclose(
                fast.scores_many(x[None])[0], slow.scores(x, Z, range(arms)), atol=1e-9
            )


def test_a_state_file_with_a_wrong_mark_is_refused() -> None:
    policy = whim.LinUCBHybrid(n_features=2, n_item_features=1)
    policy._mixed[0] = 2
    with pytest.raises(whim.errors.StateFileError, match="mixed"):
        whim.LinUCBHybrid.from_bytes(policy.to_bytes())
