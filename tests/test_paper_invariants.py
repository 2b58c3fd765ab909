"""What must hold of the paper's algorithms, numbered 1 to 19, of the fast policies.

Shown elsewhere, and not again here:

14  test_modified.py::test_constant_context_equals_mucb
15  test_modified.py::test_round_robin_forces_each_arm_once,
    test_contextfree.py::test_round_robin_forces_each_arm_once_in_every_period (M-UCB);
    here just what they leave open: the round robin after a detection
16  test_forgetting.py::test_sums_of_v_and_vt_are_the_weighted_ones,
    test_swlinucb_equals_ridge_on_the_window, test_forgetting_nothing_is_linucb
17  test_contextfree.py::test_mucb_detects_a_jump_when_it_should,
    test_mucb_that_never_fires_or_forces_is_ucb1
19  test_experts.py::test_denband_on_stationary_clicks_is_one_ridge_model,
    test_dynamic_linucb_that_never_fails_is_linucb
18  test_replay_oracle.py, with the literal replay of tests/oracles
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whim
from tests import inside
from tests.callable_kernels import downdate, rank_one
from tests.ledger import Ledger, crossed, restarts
from tests.oracles import LinUCBHybridOracle, PSLinUCBHybridOracle, big_ridge
from tests.oracles.hybrid import four_terms
from tests.streams import Play, stream
from whim.kernels.linalg import udu

F64 = npt.NDArray[np.float64]

ARMS = 4
THRESHOLD = {2: 0.3, 7: 0.2, 30: 0.06}

window_sizes = pytest.mark.parametrize("window", [2, 7, 30])
first_windows = pytest.mark.parametrize("first_window", ["seed", "literal"])
g_pres = pytest.mark.parametrize("g_pre", ["exact", "literal"])


def close(found: Any, expected: Any, atol: float = 1e-9) -> None:
    """``assert_allclose``, of which only a failure takes long."""
    found, expected = np.asarray(found), np.asarray(expected)
    near = found.shape == expected.shape
    if not (near and (abs(found - expected) <= atol + 1e-9 * abs(expected)).all()):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=atol)


def equal(found: Any, expected: Any) -> None:
    """``assert_array_equal``, of which only a failure takes long."""
    if found.shape != expected.shape or not (found == expected).all():
        np.testing.assert_array_equal(found, expected)


def psd(matrix: F64, floor: float = 0.0) -> None:
    assert np.linalg.eigvalsh((matrix + matrix.T) / 2).min() >= floor - 1e-8


def disjoint_run(
    window: int, first_window: str, steps: int = 900, d: int = 4
) -> tuple[whim.PSLinUCBDisjoint, Ledger, Iterator[tuple[Play, int, Any]]]:
    policy = whim.PSLinUCBDisjoint(
        n_features=d, alpha=0.5, window=window, threshold=THRESHOLD[window],
        first_window=first_window,
    )  # fmt: skip
    policy.add_arms(range(ARMS))
    ledger = Ledger(d=d, k=0, window=window, seed_first=first_window == "seed")
    plays = stream(steps=steps, arms=ARMS, d=d, seed=window)
    return policy, ledger, restarts(policy, ledger, plays, None)


def hybrid_run(
    window: int, first_window: str, g_pre: str, steps: int = 600, **params: Any
) -> tuple[whim.PSLinUCBHybrid, Ledger, F64, Iterator[tuple[Play, int, Any]]]:
    d, m = 3, 2
    policy = whim.PSLinUCBHybrid(
        n_features=d, n_item_features=m, alpha=1.0, window=window, first_window=first_window,
        g_pre=g_pre, **{"threshold": THRESHOLD[window]} | params,
    )  # fmt: skip
    Y = np.random.default_rng(window).normal(size=(ARMS, m))
    policy.add_arms(range(ARMS), features=Y)
    ledger = Ledger(d=d, k=d * m, window=window, seed_first=first_window == "seed")
    plays = stream(steps=steps, arms=ARMS, d=d, seed=window + 1)
    return policy, ledger, Y, restarts(policy, ledger, plays, Y)


# -- disjoint --------------------------------------------------------------------------------------


@first_windows
@window_sizes
def test_oracle_01_theta_is_the_batch_ridge_since_the_last_detection(
    window: int, first_window: str
) -> None:
    """Oracle 1: theta_cum is the batch ridge on the arm's observations since its last detection."""
    policy, ledger, run = disjoint_run(window, first_window)
    changes = 0
    for _, arm, event in run:
        changes += event is not None
        X, _, r = ledger.arrays(ledger.live(arm))
        A = np.eye(X.shape[1]) + X.T @ X
        close(policy.coefficients(arm), np.linalg.solve(A, X.T @ r))
        close(policy.inverse(arm), np.linalg.inv(A))
    assert changes >= 8


def check_oracle_02(policy: Any, ledger: Ledger, arm: int) -> None:
    cum, pre, seen = inside.cum(policy, arm), inside.pre(policy, arm), inside.window(policy, arm)
    eye = np.eye(ledger.d)
    assert len(seen.r) <= ledger.window - 1
    X, Z, r = ledger.arrays(ledger.inside[arm])
    equal(seen.X, X)
    equal(seen.Z, Z)
    equal(seen.r, r)
    A_cur = eye + seen.X.T @ seen.X
    close(cum.A - eye, (pre.A - eye) + (A_cur - eye))
    close(cum.b, pre.b + seen.X.T @ seen.r)
    close(cum.B, pre.B + seen.X.T @ seen.Z)
    kept = [*seen.X.sum(axis=0), *seen.Z.sum(axis=0), seen.r.sum()]
    close(inside.sums(policy, arm), kept, atol=1e-12)


@first_windows
@window_sizes
def test_oracle_02_cum_is_pre_and_cur_disjoint(window: int, first_window: str) -> None:
    """Oracle 2: A_cum - I == (A_pre - I) + (A_cur - I), b too; |SW| <= ω - 1; cur == the window."""
    policy, ledger, run = disjoint_run(window, first_window)
    for _, arm, _ in run:
        check_oracle_02(policy, ledger, arm)
    assert len(ledger.frozen) >= 8
    check_chunks(policy)


def check_chunks(policy: Any) -> None:
    """No chunk of the pool is lost or held twice, and an arm that goes gives its own back."""
    for last in (False, True):
        if last:
            policy.retire_arms(policy.arms)
        free, held, every = inside.chunks(policy)
        assert sorted(free + held) == every
    assert not held


@g_pres
@first_windows
@window_sizes
def test_oracle_02_cum_is_pre_and_cur_hybrid(window: int, first_window: str, g_pre: str) -> None:
    """Oracle 2 for the hybrid: the same for A, b and B."""
    policy, ledger, _, run = hybrid_run(window, first_window, g_pre)
    for _, arm, _ in run:
        check_oracle_02(policy, ledger, arm)
    assert len(ledger.frozen) >= 8
    check_chunks(policy)


def check_oracle_03(
    policy: Any, fresh: Any, arm: int, rows: tuple[F64, F64, F64], features: F64 | None = None
) -> None:
    X, _, r = rows
    fresh.add_arms([arm], features)
    fresh.update_many([arm] * len(r), X, r)
    for left, right, new in zip(
        inside.pre(policy, arm), inside.cum(policy, arm), inside.cum(fresh, arm), strict=True
    ):
        equal(left, right)
        equal(left, new)
    assert len(inside.window(policy, arm).r) == 0
    assert not inside.sums(policy, arm).any()
    assert inside.seeded(policy, arm)


@first_windows
@window_sizes
def test_oracle_03_a_detection_leaves_the_window_disjoint(window: int, first_window: str) -> None:
    """Oracle 3: after a detection pre == cum == a fresh model fed the window; cur and SW empty."""
    policy, ledger, run = disjoint_run(window, first_window)
    changes = 0
    for _, arm, event in run:
        if ledger.restarted is not None:
            changes += event is not None
            fresh = whim.LinUCBDisjoint(n_features=ledger.d)
            check_oracle_03(policy, fresh, arm, ledger.arrays(ledger.before[arm]))
    assert changes >= 8


@g_pres
@first_windows
@window_sizes
def test_oracle_03_a_detection_leaves_the_window_hybrid(
    window: int, first_window: str, g_pre: str
) -> None:
    """Oracle 3 for the hybrid."""
    policy, ledger, Y, run = hybrid_run(window, first_window, g_pre)
    changes = 0
    for _, arm, event in run:
        if ledger.restarted is not None:
            changes += event is not None
            fresh = whim.LinUCBHybrid(n_features=ledger.d, n_item_features=Y.shape[1])
            check_oracle_03(policy, fresh, arm, ledger.arrays(ledger.before[arm]), Y[[arm]])
    assert changes >= 8


@pytest.mark.parametrize("payoff", ["disjoint", "exact", "literal"])
@window_sizes
def test_oracle_04_the_first_full_window(window: int, payoff: str) -> None:
    """Oracle 4: at the first full window theta_pre == 0, stat == |mean r|, and cum is unchanged."""
    d, m = 3, 2
    made: dict[str, Any] = {}
    Y = None
    for first_window in ("literal", "seed"):
        parts = {"window": window, "threshold": 1e-9, "first_window": first_window}
        if payoff == "disjoint":
            made[first_window] = whim.PSLinUCBDisjoint(n_features=d, **parts)
            made["plain"] = whim.LinUCBDisjoint(n_features=d)
        else:
            sizes = {"n_features": d, "n_item_features": m}
            made[first_window] = whim.PSLinUCBHybrid(**sizes, g_pre=payoff, **parts)
            made["plain"] = whim.LinUCBHybrid(**sizes)
            Y = np.random.default_rng(5).normal(size=(ARMS, m))
    for policy in made.values():
        policy.add_arms(range(ARMS), features=Y)
    literal, seed, plain = made["literal"], made["seed"], made["plain"]
    rng = np.random.default_rng(window)
    for arm in range(ARMS):
        rewards = []
        for play in range(window):
            x, r = rng.normal(size=d), float(rng.normal(0.4, 1.0))
            rewards.append(r)
            if payoff == "disjoint" or arm == 0:  # β_pre has learnt nothing yet
                assert not inside.theta_pre(literal, arm).any()
            predicted = 0.0
            if payoff != "disjoint":
                X, Z, _ = inside.window(literal, arm)
                X, Z = np.vstack([X, x]), np.vstack([Z, np.kron(Y[arm], x)])  # type: ignore[index]
                predicted = float(
                    np.mean(
                        X @ inside.theta_pre(literal, arm) + Z @ inside.shared(literal, "pre").beta
                    )
                )
            event = literal.update(arm, x, r)
            assert seed.update(arm, x, r) is None
            plain.update(arm, x, r)
            assert (event is not None) == (play == window - 1)
        assert event.statistic == pytest.approx(abs(predicted - np.mean(rewards)), abs=1e-12)
        close(event.theta_before, event.theta_after, atol=1e-12)
        for policy in (literal, seed):
            for found, expected in zip(
                inside.cum(policy, arm), inside.cum(plain, arm), strict=True
            ):
                close(found, expected, atol=1e-12)
            if payoff != "disjoint":
                for found, expected in zip(
                    inside.shared(policy), inside.shared(plain), strict=True
                ):
                    close(found, expected, atol=1e-11)
    for arm in range(ARMS):
        for found, expected in zip(inside.pre(literal, arm), inside.pre(seed, arm), strict=True):
            equal(found, expected)


@first_windows
@window_sizes
def test_oracle_05_never_firing_is_linucb_disjoint(window: int, first_window: str) -> None:
    """Oracle 5: δ = inf chooses exactly LinUCB-Disjoint's arms, scores to the last bit."""
    parts = {"window": window, "threshold": math.inf, "first_window": first_window}
    fast = whim.PSLinUCBDisjoint(n_features=4, alpha=0.6, **parts)
    plain = whim.LinUCBDisjoint(n_features=4, alpha=0.6)
    fast.add_arms(range(ARMS))
    plain.add_arms(range(ARMS))
    for play in stream(steps=1500, arms=ARMS, d=4, seed=window):
        decision = plain.select(play.x, play.candidates)
        assert fast.select(play.x, play.candidates) == decision
        r = float(play.rewards[decision.arm])
        plain.update(decision.arm, play.x, r)
        assert fast.update(decision.arm, play.x, r) is None


@g_pres
@first_windows
@pytest.mark.parametrize("window", [2, 30])
def test_oracle_05_never_firing_is_linucb_hybrid(
    window: int, first_window: str, g_pre: str
) -> None:
    """Oracle 5: δ = inf chooses exactly LinUCB-Hybrid's arms."""
    d, m = 3, 2
    parts = {"window": window, "threshold": math.inf, "first_window": first_window, "g_pre": g_pre}
    fast = whim.PSLinUCBHybrid(n_features=d, n_item_features=m, alpha=0.6, **parts)
    plain = whim.LinUCBHybrid(n_features=d, n_item_features=m, alpha=0.6)
    Y = np.random.default_rng(1).normal(size=(ARMS, m))
    fast.add_arms(range(ARMS), features=Y)
    plain.add_arms(range(ARMS), features=Y)
    for play in stream(steps=1500, arms=ARMS, d=d, seed=window):
        decision = plain.select(play.x, play.candidates)
        found = fast.select(play.x, play.candidates)
        assert found.arm == decision.arm
        close(found[1:], decision[1:], atol=1e-12)
        r = float(play.rewards[decision.arm])
        plain.update(decision.arm, play.x, r)
        assert fast.update(decision.arm, play.x, r) is None


@g_pres
@first_windows
@window_sizes
def test_oracle_05_no_cross_features_is_disjoint(
    window: int, first_window: str, g_pre: str
) -> None:
    """Oracle 5: with z = 0 the hybrid is the disjoint policy, choices and changes alike."""
    parts = {"window": window, "threshold": THRESHOLD[window], "first_window": first_window}
    fast = whim.PSLinUCBHybrid(n_features=4, n_item_features=2, alpha=0.6, g_pre=g_pre, **parts)
    plain = whim.PSLinUCBDisjoint(n_features=4, alpha=0.6, **parts)
    fast.add_arms(range(ARMS), features=np.zeros((ARMS, 2)))
    plain.add_arms(range(ARMS))
    changes = 0
    for play in stream(steps=1500, arms=ARMS, d=4, seed=window):
        decision = plain.select(play.x, play.candidates)
        found = fast.select(play.x, play.candidates)
        assert found.arm == decision.arm
        close(found[1:], decision[1:], atol=1e-12)
        r = float(play.rewards[decision.arm])
        event, other = plain.update(decision.arm, play.x, r), fast.update(decision.arm, play.x, r)
        assert (event is None) == (other is None)
        if event is not None and other is not None:
            changes += 1
            assert other.statistic == pytest.approx(event.statistic, abs=1e-12)
    assert changes >= 15


# -- rank-one forms --------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [1.0, 0.2])
def test_oracle_06_the_literal_update_is_the_rank_one_form(ridge: float) -> None:
    """Oracle 6: the fast A0, b0, A, B and b are those of eq. (cum_update), at every step."""
    d, m = 3, 2
    fast = whim.LinUCBHybrid(n_features=d, n_item_features=m, ridge=ridge)
    slow = LinUCBHybridOracle(d=d, k=d * m, alpha=1.0, ridge=ridge)
    Y = np.random.default_rng(2).normal(size=(ARMS, m))
    fast.add_arms(range(ARMS), features=Y)
    for arm in range(ARMS):
        slow.add(arm)
    for play in stream(steps=400, arms=ARMS, d=d, seed=6):
        arm = fast.select(play.x, play.candidates).arm
        r = float(play.rewards[arm])
        fast.update(arm, play.x, r)
        slow.update(arm, play.x, np.kron(Y[arm], play.x), r)
        found, both = inside.cum(fast, arm), inside.shared(fast)
        close(found.A, slow.A[arm])
        close(found.B, slow.B[arm])
        close(found.b, slow.b[arm])
        close(both.A0, slow.A0)
        close(both.b0, slow.b0)


@g_pres
def test_oracle_06_the_literal_update_is_the_rank_one_form_through_changes(g_pre: str) -> None:
    """Oracle 6: the same for M_cum, M_pre, G_cum and G_pre of Algorithm 2."""
    window = 7
    policy, ledger, Y, run = hybrid_run(window, "seed", g_pre)
    slow = PSLinUCBHybridOracle(
        d=ledger.d, k=ledger.k, alpha=1.0, window=window, threshold=THRESHOLD[window],
        first_window="seed", g_pre=g_pre,
    )  # fmt: skip
    for arm in range(ARMS):
        slow.add(arm)
    for play, arm, event in run:
        r = float(play.rewards[arm])
        assert slow.update(arm, play.x, np.kron(Y[arm], play.x), r) == (event is not None)
        cum, pre = inside.cum(policy, arm), inside.pre(policy, arm)
        G_cum, G_pre = inside.shared(policy), inside.shared(policy, "pre")
        close([*cum.A, *pre.A], [*slow.A_cum[arm], *slow.A_pre[arm]])
        close([*cum.B, *pre.B], [*slow.B_cum[arm], *slow.B_pre[arm]])
        close([*cum.b, *pre.b], [*slow.b_cum[arm], *slow.b_pre[arm]])
        close([*G_cum.A0, *G_pre.A0], [*slow.A0_cum, *slow.A0_pre])
        close([*G_cum.b0, *G_pre.b0], [*slow.b0_cum, *slow.b0_pre])
        close(inside.theta_pre(policy, arm), slow.theta_pre(arm))


def packed(d: int, ridge: float, X: F64) -> F64:
    F = udu.prior(d, ridge)[None]
    for x in X:
        rank_one(F[0], x, 1.0, np.zeros(d))
    return F


def dense(F: F64, d: int) -> F64:
    out = np.empty((d, d))
    udu.dense(F[0], out)
    return out


contexts = st.tuples(
    st.integers(1, 9), st.integers(0, 12), st.integers(0, 2**32 - 1), st.sampled_from([0.1, 1.0])
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(contexts, st.floats(-3, 3), st.floats(-2, 1))
def test_oracle_06_add_then_remove_is_the_identity(
    sizes: tuple[int, int, int, float], exponent: float, ridge_exponent: float
) -> None:
    """Oracle 6: rank_one, then downdate with the same x, gives back the factors."""
    d, n, seed, _ = sizes
    ridge = 10.0**ridge_exponent
    rng = np.random.default_rng(seed)
    F = packed(d, ridge, rng.normal(size=(n, d)))
    before = F.copy()
    x = 10.0**exponent * rng.normal(size=d)
    w, again = np.zeros(d), np.zeros(d)
    grown = rank_one(F[0], x, 1.0, w)
    np.testing.assert_allclose(w, dense(before, d) @ x, rtol=1e-9, atol=1e-12 * abs(w).max())
    rest = downdate(F[0], x, again, np.zeros(d))
    # s/(1+s) of the larger matrix: 1 - s' = 1/(1+s), so digits go as 1+s
    lost = 1e-14 * grown
    assert rest == pytest.approx(1.0 / grown, rel=100 * lost, abs=0)
    size = abs(dense(before, d)).max()
    np.testing.assert_allclose(dense(F, d), dense(before, d), rtol=0, atol=100 * lost * size)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(contexts, st.integers(0, 11))
def test_oracle_06_removing_any_row_is_never_having_seen_it(
    sizes: tuple[int, int, int, float], which: int
) -> None:
    """Oracle 6: the rows may go in another order than they came, and all of them may go."""
    d, n, seed, scale = sizes
    rng = np.random.default_rng(seed)
    X = scale * rng.normal(size=(n + 1, d))
    F = packed(d, 1.0, X)
    gone = which % (n + 1)
    downdate(F[0], X[gone], np.zeros(d), np.zeros(d))
    close(dense(F, d), dense(packed(d, 1.0, np.delete(X, gone, 0)), d))
    for x in np.delete(X, gone, 0)[rng.permutation(n)]:
        downdate(F[0], x, np.zeros(d), np.zeros(d))
    close(dense(F, d), np.eye(d))


# -- one big ridge ---------------------------------------------------------------------------------


@g_pres
@first_windows
@window_sizes
def test_oracle_07_08_one_big_ridge(window: int, first_window: str, g_pre: str) -> None:
    """Oracles 7 and 8, through many detections.

    7: beta_cum and every theta_a are blocks of ONE ridge over all segments, frozen and live.
    8: the squared width is the big ridge's leverage and the paper's four terms.
    """
    policy, ledger, Y, run = hybrid_run(
        window, first_window, g_pre, steps={2: 150, 7: 300, 30: 500}[window]
    )
    d, k = ledger.d, ledger.k
    checked = 0
    for step, (play, _, _) in enumerate(run, start=1):
        if step % 40 and (ledger.restarted is None or len(ledger.frozen) % 5):
            continue
        checked += 1
        segments = [ledger.live(arm) for arm in range(ARMS)] + ledger.frozen
        thetas, beta, M_inv = big_ridge(segments, 1.0)
        close(policy.shared_coefficients(), beta)
        G = inside.shared(policy)
        Z = crossed(play.x, Y)
        ranked = {found.arm: found for found in policy.rank(play.x)}
        for arm in range(ARMS):
            close(policy.coefficients(arm), thetas[arm])
            phi = np.zeros(len(segments) * d + k)
            phi[arm * d : arm * d + d] = play.x
            phi[-k:] = Z[arm]
            leverage = float(phi @ M_inv @ phi)
            own = inside.cum(policy, arm)
            terms = four_terms(play.x, Z[arm], own.A_inv, own.B, G.A0_inv)
            v = Z[arm] - own.B.T @ own.A_inv @ play.x
            short = float(play.x @ own.A_inv @ play.x + v @ G.A0_inv @ v)
            close([ranked[arm].width ** 2, terms, short], leverage)
            close(ranked[arm].mean, play.x @ thetas[arm] + Z[arm] @ beta)
    assert len(ledger.frozen) >= 8
    assert checked >= 5


def check_oracles_09_to_12(
    policy: whim.PSLinUCBHybrid, ledger: Ledger, leak: tuple[F64, F64]
) -> tuple[F64, F64]:
    """``leak`` is E and its b0 at the last restart: zeros for the exact policy."""
    G_cum, G_pre = inside.shared(policy), inside.shared(policy, "pre")
    A0, b0 = ledger.total("live")
    close(G_cum.A0, A0)
    close(G_cum.b0, b0)
    A0_pre, b0_pre = ledger.total("before")
    close(G_pre.A0 - A0_pre, leak[0])
    close(G_pre.b0 - b0_pre, leak[1])
    psd(leak[0])
    psd(A0 - A0_pre)
    psd(G_cum.A0, 1.0)
    psd(G_pre.A0, 1.0)
    return G_pre.A0 - A0_pre, G_pre.b0 - b0_pre


@first_windows
@window_sizes
def test_oracle_09_10_12_shared_models_are_sums_over_segments(
    window: int, first_window: str
) -> None:
    """Oracles 9, 10 and 12 for ``g_pre="exact"``, at every tenth step and after each restart.

    9: G_cum == I + Σ S over all segments. 10: G_pre == I + Σ_frozen S + Σ_a S(pre_a).
    12: A0_cum - A0_pre is positive semidefinite and both are at least I.
    """
    policy, ledger, _, run = hybrid_run(window, first_window, "exact")
    k = ledger.k
    for step, _ in enumerate(run):
        if step % 10 == 0 or ledger.restarted is not None:
            check_oracles_09_to_12(policy, ledger, (np.zeros((k, k)), np.zeros(k)))
            psd(inside.shared(policy).A0 - inside.shared(policy, "pre").A0)
    assert len(ledger.frozen) >= 8


@first_windows
@window_sizes
def test_oracle_09_11_12_the_literal_shared_model_counts_twice(
    window: int, first_window: str
) -> None:
    """Oracles 9, 11 and 12 for ``g_pre="literal"``.

    11: A0_pre literal - exact == E = Σ_{j≠a} [S(pre_j ∪ SW_j) - S(pre_j)] of the last restart,
    positive semidefinite, constant between restarts; b0 likewise.
    """
    policy, ledger, _, run = hybrid_run(window, first_window, "literal")
    k = ledger.k
    leak = (np.zeros((k, k)), np.zeros(k))
    seen = 0
    for step, (_, arm, _) in enumerate(run):
        if ledger.restarted is not None:
            leak = ledger.leak(arm)
            seen += abs(leak[0]).max() > 1e-3
        if step % 10 == 0 or ledger.restarted is not None:
            check_oracles_09_to_12(policy, ledger, leak)
    assert len(ledger.frozen) >= 8
    assert seen >= 8


def test_oracle_11_two_fast_policies_differ_by_the_leak() -> None:
    """Oracle 11 on fast code alone: two policies with the same plays and the same change times."""
    d, m, window = 3, 2, 12
    parts: dict[str, Any] = {"n_features": d, "n_item_features": m, "window": window}
    exact = whim.PSLinUCBHybrid(**parts, threshold=0.5, g_pre="exact")
    literal = whim.PSLinUCBHybrid(**parts, threshold=0.5, g_pre="literal")
    Y = np.random.default_rng(3).normal(size=(ARMS, m))
    for policy in (exact, literal):
        policy.add_arms(range(ARMS), features=Y)
    ledger = Ledger(d=d, k=d * m, window=window, seed_first=True)
    for arm in range(ARMS):
        ledger.add(arm)
    rng = np.random.default_rng(4)
    level = np.zeros(ARMS)
    leak = (np.zeros((d * m, d * m)), np.zeros(d * m))
    changes = 0
    for t in range(1200):
        arm = int(rng.integers(ARMS))
        if t % 80 == 79:
            level[rng.integers(ARMS)] += 4.0  # far more than the threshold: no doubt when it fires
        x = np.array([1.0, *(0.2 * rng.normal(size=d - 1))])
        r = float(level[arm] + 0.01 * rng.normal())
        event, other = exact.update(arm, x, r), literal.update(arm, x, r)
        assert (event is None) == (other is None)
        changes += event is not None
        ledger.learn(arm, x, np.kron(Y[arm], x), r, event is not None)
        if ledger.restarted is not None:
            leak = ledger.leak(arm)
        right, twice = inside.shared(exact, "pre"), inside.shared(literal, "pre")
        close(twice.A0 - right.A0, leak[0])
        close(twice.b0 - right.b0, leak[1], atol=1e-8)
        close(inside.shared(exact).A0, inside.shared(literal).A0)
    assert changes >= 8


def test_oracle_09_10_hold_when_arms_are_retired_and_reset() -> None:
    """Oracles 9 and 10 go on holding: an arm that goes leaves its segments frozen."""
    window = 7
    policy, ledger, Y, run = hybrid_run(window, "seed", "exact")
    rng = np.random.default_rng(8)
    k = ledger.k
    for step, _ in enumerate(run):
        if step % 20 == 19:
            arm = int(rng.integers(ARMS))
            if step % 40 == 39:
                policy.reset_arms([arm])
            else:
                policy.retire_arms([arm])
                policy.add_arms([arm], features=Y[[arm]])
            ledger.forget(arm)
        if step % 10 == 9:
            check_oracles_09_to_12(policy, ledger, (np.zeros((k, k)), np.zeros(k)))
    assert len(ledger.frozen) >= 20


# -- the rest --------------------------------------------------------------------------------------


def test_oracle_13_the_order_of_cross_features() -> None:
    """Oracle 13: kron(y, x)ᵀ vec(W) == xᵀWy, vec stacking columns, wherever z is made or taken."""
    d, m, arms = 3, 2, 6
    rng = np.random.default_rng(13)
    W, Y = rng.normal(size=(d, m)), rng.normal(size=(arms, m))
    x, y = rng.normal(size=d), Y[0]
    assert np.kron(y, x) @ W.flatten(order="F") == pytest.approx(x @ W @ y)
    made = whim.LinUCBUniform(n_item_features=m, n_features=d, payoff="cross", ridge=1e-6)
    given_rows = whim.LinUCBUniform(
        n_cross_features=d * m, n_features=d, payoff="cross", ridge=1e-6
    )
    hybrid = whim.PSLinUCBHybrid(n_features=d, n_item_features=m, window=9, threshold=0.3)
    hybrid_given = whim.PSLinUCBHybrid(
        n_features=d, n_cross_features=d * m, window=9, threshold=0.3
    )
    for policy in (made, hybrid):
        policy.add_arms(range(arms), features=Y)
    given_rows.add_arms(range(arms))
    hybrid_given.add_arms(range(arms))
    for t in range(400):
        x = rng.normal(size=d)
        arm = int(rng.integers(arms))
        r = float(x @ W @ Y[arm]) + 2.0 * (t > 200)
        Z = crossed(x, Y)
        one, other = hybrid.select(x), hybrid_given.select(x, cross=Z)
        assert one.arm == other.arm
        assert one[1:] == pytest.approx(other[1:], rel=1e-12, abs=1e-12)  # by another formula
        assert made.select(x) == given_rows.select(x, cross=Z)
        event, same = hybrid.update(arm, x, r), hybrid_given.update(arm, x, r, cross=Z[arm])
        assert (event is None) == (same is None)
        if event is not None and same is not None:
            assert (event.arm, event.step, event.plays) == (same.arm, same.step, same.plays)
            for before, after in (
                (event.theta_before, same.theta_before),
                (event.theta_after, same.theta_after),
            ):
                assert before == pytest.approx(after, rel=1e-10, abs=1e-10)
        if t <= 200:
            made.update(arm, x, r)
            given_rows.update(arm, x, r, cross=Z[arm])
    np.testing.assert_allclose(made.coefficients().reshape(m, d).T, W, atol=1e-6)


def test_oracle_15_the_round_robin_starts_again_after_a_detection() -> None:
    """Oracle 15, the part left open elsewhere: after a restart arms 1..K are forced, then UCB."""
    arms, gamma = 4, 0.25
    period = math.floor(arms / gamma)
    policy = whim.ModifiedPSLinUCB(n_features=1, window=6, b=0.2, c=0.3, gamma=gamma, alpha=0.1)
    policy.add_arms(range(arms))
    x = np.ones(1)
    restarted, changes, level = 0, 0, 0.0
    for step in range(1200):
        decision = policy.select(x)
        turn = (step - restarted) % period
        assert (decision.score == math.inf) == (turn < arms)
        if turn < arms:
            assert decision.arm == turn
        if step % 150 == 149:
            level = 2.0 - level
        if policy.update(decision.arm, x, level) is not None:
            restarted = step + 1
            changes += 1
    assert changes >= 7
