"""Context-free policies: the fast ones against the literal pseudo-code, and cases by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.oracles import CUSUMUCBOracle, DUCBOracle, MUCBOracle, SWUCBOracle, UCBOracle
from tests.streams import stream
from whim.errors import InvalidInputError
from whim.policies.base import Policy
from whim.policies.cusumucb import CUSUMUCB
from whim.policies.ducb import DUCB
from whim.policies.mucb import MUCB
from whim.policies.random_policy import Random
from whim.policies.swucb import SWUCB
from whim.policies.ucb import UCB

LARGEST = np.finfo(float).max
Make = Callable[[], Policy]

PAIRS: dict[str, tuple[Make, Callable[[], Any]]] = {
    "ucb1": (lambda: UCB(alpha=0.7), lambda: UCBOracle(alpha=0.7)),
    "li": (lambda: UCB(bonus="li", alpha=0.4), lambda: UCBOracle(bonus="li", alpha=0.4)),
    **{
        f"mucb-{w}-{gamma}": (
            lambda w=w, b=b, gamma=gamma: MUCB(window=w, threshold=b, gamma=gamma),
            lambda w=w, b=b, gamma=gamma: MUCBOracle(window=w, threshold=b, gamma=gamma),
        )
        for w, b, gamma in [(2, 1.5, 0.3), (10, 2.5, 0.5), (10, 2.5, 1.0), (36, 2.5, 0.07)]
    },
    "ducb": (
        lambda: DUCB(gamma=0.95, bound=0.5),
        lambda: DUCBOracle(gamma=0.95, xi=0.6, bound=0.5),
    ),
    "ducb-1": (
        lambda: DUCB(gamma=1.0, xi=0.3),
        lambda: DUCBOracle(gamma=1.0, xi=0.3, bound=1.0),
    ),
    **{
        f"swucb-{w}": (
            lambda w=w: SWUCB(window=w, bound=0.5),
            lambda w=w: SWUCBOracle(window=w, xi=0.6, bound=0.5),
        )
        for w in (1, 5, 90, 1000)
    },
    "cusum": (
        lambda: CUSUMUCB(warmup=5, drift=0.05, threshold=1.5),
        lambda: CUSUMUCBOracle(warmup=5, drift=0.05, threshold=1.5),
    ),
}
FIRES = [name for name in PAIRS if name.startswith(("mucb", "cusum"))]
ALL: dict[str, Make] = {
    "random": lambda: Random(seed=3),
    "cusum-explores": lambda: CUSUMUCB(warmup=5, threshold=1.5, explore=0.3, seed=5),
    **{name: fast for name, (fast, _) in PAIRS.items()},
}


def expected_scores(slow: Any, x: npt.NDArray[np.float64], names: list[Hashable]) -> Any:
    """The oracle's scores, with the others capped where it forces an arm."""
    scores = slow.scores(x, names)
    forced = slow.forced() if isinstance(slow, MUCBOracle) else None
    if forced in names:
        scores = np.minimum(scores, LARGEST)
        scores[names.index(forced)] = np.inf
    return scores


def forget(slow: Any, name: Hashable, renamed: Hashable | None) -> None:
    """Retire an arm of an oracle or, given a new name, start it afresh in its place."""
    if isinstance(slow, (DUCBOracle, SWUCBOracle)):
        slow.arms.remove(name)
        if renamed is not None:
            slow.add(renamed)
    elif renamed is not None:
        slow.Z[renamed] = []
    else:
        del slow.Z[name]
        if isinstance(slow, MUCBOracle):
            slow.arms.remove(name)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("turnover", [False, True])
def test_equals_the_oracle(name: str, turnover: bool) -> None:
    """Decision by decision, also with arms that come, go, are reset, and share slots in turn."""
    fast, slow = PAIRS[name][0](), PAIRS[name][1]()
    arms = 5
    names: dict[int, Hashable] = {a: a for a in range(arms)}  # ids of the oracle, never used twice
    fast.add_arms(range(arms))
    for a in range(arms):
        slow.add(a)
    changes, at = 0, 0
    steps = 2000 if name.startswith("mucb-36") else 420
    for at, play in enumerate(stream(steps=steps, arms=arms, d=2, seed=7, period=30)):
        if turnover and at == 100:
            fast.retire_arms([1, 3])
            forget(slow, 1, None)
            forget(slow, 3, None)
            del names[1], names[3]
        if turnover and at == 130:
            fast.add_arms([3, 1])  # slots change hands, and the order is now 0 2 4 3 1
            names |= {3: "3 again", 1: "1 again"}
            slow.add("3 again")
            slow.add("1 again")
            assert fast.arms == [0, 2, 4, 3, 1]
        if turnover and at in (160, 161, 300):
            fast.reset_arms([2])
            renamed = f"2 at {at}" if isinstance(slow, (DUCBOracle, SWUCBOracle)) else names[2]
            forget(slow, names[2], renamed)
            names[2] = renamed
        candidates = [a for a in play.candidates if a in names] or [0]
        expected = expected_scores(slow, play.x, [names[a] for a in candidates])
        found = fast.scores(play.x, candidates)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        decision = fast.select(play.x, candidates)
        assert decision.arm == candidates[int(np.argmax(expected))]
        r = float(play.rewards[decision.arm])
        changed = slow.update(names[decision.arm], play.x, r)
        event = fast.update(decision.arm, play.x, r)
        assert (event is not None) == changed
        if event is not None:
            changes += 1
            assert event.arm == decision.arm
            assert event.step == fast.step == at + 1
            assert event.statistic == pytest.approx(slow.last_statistic, abs=1e-9)
            assert (event.theta_after, event.window) == ((0.0,), 0)
    assert changes >= (8 if name in FIRES else 0)


def filled(make: Make, steps: int = 0, seed: int = 0) -> Policy:
    policy = make()
    policy.add_arms(["a", "b", "c", "d"])
    policy.retire_arms(["b"])
    policy.add_arms(["e", "b"])
    arms, rewards = plays(steps, seed)
    policy.update_many(arms, None, rewards)
    return policy


def plays(steps: int, seed: int) -> tuple[list[str], npt.NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    arms = rng.choice(list("abcde"), steps).tolist()
    return arms, np.repeat(rng.random(steps // 50 + 1) * 2, 50)[:steps] + rng.random(steps)


@pytest.mark.parametrize("name", ALL)
def test_update_many_is_the_loop(name: str) -> None:
    many, loop = filled(ALL[name]), filled(ALL[name])
    for seed in range(2):
        arms, rewards = plays(2500, seed)
        events = many.update_many(arms, None, rewards)
        one_by_one = [loop.update(a, None, r) for a, r in zip(arms, rewards.tolist(), strict=True)]
        assert events == [e for e in one_by_one if e is not None]
        assert bool(events) == (name in FIRES or name == "cusum-explores")
        assert many.to_bytes() == loop.to_bytes()
        many.retire_arms(["d"])
        many.add_arms(["d"])
        loop.retire_arms(["d"])
        loop.add_arms(["d"])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("steps", [0, 3, 60, 700])
def test_saved_and_loaded_it_goes_on(name: str, steps: int) -> None:
    policy = filled(ALL[name], steps)
    twin = type(policy).from_bytes(policy.to_bytes())
    for r in np.random.default_rng(steps).random(200).tolist():
        np.testing.assert_array_equal(policy.scores(), twin.scores())
        decision = policy.select()
        assert twin.select() == decision
        assert policy.update(decision.arm, None, r) == twin.update(decision.arm, None, r)
    for p in (policy, twin):
        p.retire_arms(["a"])
        p.add_arms(["f", "a"])
        p.update_many(["f", "a"] * 100, None, [0.25] * 200)
    assert policy.to_bytes() == twin.to_bytes()


@pytest.mark.parametrize("name", ALL)
def test_looking_changes_nothing(name: str) -> None:
    policy = filled(ALL[name], 40)
    before = policy.to_bytes()
    scores = policy.scores(None, ["d", "a", "e"])
    ranking = policy.rank(None, ["d", "a", "e"])
    assert policy.scores_many(np.ones((3, 2)), ["d", "a", "e"]).shape == (3, 3)
    assert policy.to_bytes() == before
    decision = policy.select(None, ["d", "a", "e"])
    assert decision == ranking[0]
    assert decision.arm == ["d", "a", "e"][int(np.argmax(scores))]
    assert decision.score == scores.max()


@pytest.mark.parametrize("name", ALL)
def test_scores_many_repeats_scores(name: str) -> None:
    policy = filled(ALL[name], 40)
    table = policy.scores_many(np.ones((3, 2)))
    assert table.shape == (3, 5)
    np.testing.assert_array_equal(table[0], policy.scores())
    if not policy._draws:
        np.testing.assert_array_equal(table[2], policy.scores())
    assert policy.scores_many(np.ones((0, 2))).shape == (0, 5)


@pytest.mark.parametrize("name", ALL)
def test_a_reset_arm_is_new(name: str) -> None:
    policy = filled(ALL[name], 40)
    policy.reset_arms()
    if name != "random":
        assert all(d.width == math.inf and d.mean == 0.0 for d in policy.rank())
    assert policy.step == 40
    policy.update_many(["a", "b"], None, [1.0, 0.0])
    policy.retire_arms(["a"])
    policy.add_arms(["z"])  # takes the slot of "a"
    assert policy.rank(None, ["z"])[0].mean == 0.0
    assert policy.plays("z") == 0


@pytest.mark.parametrize(
    ("cls", "params"),
    [
        (Random, {}),
        (UCB, {}),
        (MUCB, {"window": 2, "threshold": 0.5, "gamma": 0.1}),
        (DUCB, {"gamma": 0.9}),
        (SWUCB, {"window": 3}),
        (CUSUMUCB, {"threshold": 1.0}),
    ],
)
def test_contexts_are_checked_and_ignored(cls: type[Policy], params: dict[str, Any]) -> None:
    free, fixed = cls(**params), cls(n_features=2, **params)
    for policy in (free, fixed):
        policy.add_arms(["a", "b"])
        policy.update("a", [0.5, 1.0], 1.0)
        before = policy.to_bytes()
        for bad in (np.array([0.0, np.nan]), [0.0, math.inf], [[1.0, 2.0]], "x"):
            for act in (policy.select, policy.scores, lambda x, p=policy: p.update("a", x, 1.0)):
                with pytest.raises(InvalidInputError, match="x must"):
                    act(bad)
            with pytest.raises(InvalidInputError, match="X must"):
                policy.update_many(["a"], [bad], [1.0])
        with pytest.raises(InvalidInputError, match="reward must"):
            policy.update("a", [0.5, 1.0], math.nan)
        assert policy.to_bytes() == before
    for bad in (None, [1.0], np.ones(3)):
        with pytest.raises(InvalidInputError, match="x must be a vector of length 2"):
            fixed.select(bad)
    for fine in (None, [1.0], np.ones(3)):
        free.select(fine)
        free.update("b", fine, 0.0)


# -- by hand ------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1.0, 0.7, 0.4, 0.33, 0.1])
@pytest.mark.parametrize("n_arms", [1, 2, 5])
def test_round_robin_forces_each_arm_once_in_every_period(gamma: float, n_arms: int) -> None:
    policy = MUCB(window=40, threshold=10.0, gamma=gamma)
    policy.add_arms(["gone", *range(n_arms - 1)])
    policy.retire_arms(["gone"])
    policy.add_arms(["last"])  # the first slot, the last turn
    period = max(n_arms, math.floor(n_arms / gamma))

    def forced_in_one_period() -> list[Hashable]:
        forced = []
        for at in range(period):
            decision = policy.select()
            if decision.score == math.inf:
                forced.append(decision.arm)
                assert at < n_arms
                assert np.isfinite(policy.scores()).sum() == n_arms - 1
            assert policy.update(decision.arm, None, 0.5) is None
        return forced

    for _ in range(3):
        assert forced_in_one_period() == policy.arms
    policy.update(policy.arms[0], None, 0.5)  # off the beat, until a restart
    assert policy.update_many([policy.arms[0]] * 80, None, [0.0] * 40 + [1.0] * 40) != []
    policy.reset_arms()
    assert forced_in_one_period() == policy.arms


@pytest.mark.parametrize(("window", "threshold"), [(2, 0.5), (10, 2), (10, 4.5), (100, 30)])
def test_mucb_detects_a_jump_when_it_should(window: int, threshold: float) -> None:
    """Ones after zeros: the late half sums to the number of ones, so the first above b fires."""
    policy = MUCB(window=window, threshold=threshold, gamma=0.0)
    policy.add_arms(["a", "b"])
    quiet = 3 * window + 1
    policy.update("b", None, 1.0)
    [event] = policy.update_many(["a"] * (quiet + window), None, [0] * quiet + [1] * window)
    ones = math.floor(threshold) + 1
    assert (event.step, event.plays) == (1 + quiet + ones, quiet + ones)
    assert event.statistic == ones
    assert event.theta_before == (pytest.approx(ones / (quiet + ones)),)
    assert policy.rank(None, ["b"])[0].width == math.inf  # all arms restart
    rest = window - ones  # the clock starts again: t - tau is the plays since, and the one to come
    if rest:
        width = math.sqrt(2 * math.log(rest + 1) / rest)
        assert policy.rank(None, ["a"])[0].width == pytest.approx(width)


def test_mucb_that_never_fires_or_forces_is_ucb1() -> None:
    fast = MUCB(window=4, threshold=math.inf, gamma=0.0)
    slow = UCBOracle()
    slow.t = 1  # M-UCB counts the step being decided, UCB1 those that are over
    fast.add_arms(range(4))
    for a in range(4):
        slow.add(a)
    for play in stream(steps=500, arms=4, d=1, seed=2):
        expected = slow.scores(None, play.candidates)
        np.testing.assert_allclose(fast.scores(None, play.candidates), expected, rtol=1e-9)
        arm = fast.select(None, play.candidates).arm
        assert arm == play.candidates[int(np.argmax(expected))]
        slow.update(arm, None, float(play.rewards[arm]))
        assert fast.update(arm, None, float(play.rewards[arm])) is None


def test_forced_arm_that_is_no_candidate_leaves_the_index() -> None:
    policy = MUCB(window=4, threshold=9.0, gamma=1.0)
    policy.add_arms(["a", "b", "c"])
    policy.update_many(["a", "b", "c"], None, [0.0, 0.5, 1.0])  # next is the turn of "a"
    assert policy.select().arm == "a"
    assert policy.select(None, ["b", "c"]) == policy.rank(None, ["c"])[0]
    assert math.isfinite(policy.select(None, ["b", "c"]).score)


def test_forced_arm_beats_unplayed_arms() -> None:
    policy = MUCB(window=4, threshold=9.0, gamma=1.0)
    policy.add_arms(["a", "b", "c"])
    assert policy.scores(None, ["c", "b", "a"]).tolist() == [LARGEST, LARGEST, math.inf]


def test_mucb_halves_stay_exact_through_long_windows() -> None:
    window = 90  # several chunks
    policy = MUCB(window=window, threshold=window * 0.3, gamma=0.0)
    policy.add_arms(["a"])
    rewards = np.random.default_rng(0).random(20_000)
    rewards[-window // 2 :] += 1.0
    [event] = policy.update_many(["a"] * len(rewards), None, rewards)
    last = rewards[event.step - window : event.step].tolist()
    half = window // 2
    assert event.statistic == pytest.approx(math.fsum(last[half:]) - math.fsum(last[:half]), 1e-12)
    assert event.step > len(rewards) - half


def test_swucb_forgets_large_rewards_without_a_trace() -> None:
    policy = SWUCB(window=300)
    policy.add_arms(["a", "b"])
    rng = np.random.default_rng(0)
    policy.update_many(["a", "b"] * 1500, None, 1e9 * rng.normal(size=3000))
    policy.update_many(["a", "b"] * 1500, None, [0.1, 0.7] * 1500)
    means = {d.arm: d.mean for d in policy.rank()}
    assert means == {"a": pytest.approx(0.1, abs=1e-13), "b": pytest.approx(0.7, abs=1e-13)}


def test_swucb_memory_follows_the_plays() -> None:
    policy = SWUCB(window=10**9)
    policy.add_arms(["a"])
    policy.update_many(["a"] * 100, None, [0.5] * 100)
    assert len(policy.to_bytes()) < 10_000
    assert policy.select().mean == 0.5


def test_ducb_stays_finite_for_a_million_steps() -> None:
    policy = DUCB(gamma=0.99)
    policy.add_arms(["a", "b", "once"])
    policy.update("once", None, 0.3)
    n = 500_000
    policy.update_many(["a", "b"] * n, None, [1.0, 0.0] * n)
    a, b, once = (policy.rank(None, [arm])[0] for arm in ("a", "b", "once"))
    assert (once.score, once.width) == (math.inf, math.inf)
    assert once.mean == pytest.approx(0.3)
    assert (a.mean, b.mean) == (pytest.approx(1.0), 0.0)
    plays_b = 1 / (1 - 0.99**2)
    assert b.width == pytest.approx(2 * math.sqrt(0.6 * math.log(100) / plays_b), rel=1e-9)
    assert a.width == pytest.approx(b.width / math.sqrt(0.99), rel=1e-9)
    policy.update("once", None, 1.0)
    assert policy.rank(None, ["once"])[0].mean == 1.0
    policy.reset_arms(["a", "b"])
    policy.update("a", None, 1.0)
    assert np.isfinite(policy.scores(None, ["a", "once"])).all()


def test_cusum_explores_uniformly_and_on_its_own_stream() -> None:
    policy = CUSUMUCB(threshold=math.inf, explore=0.25, seed=11)
    policy.add_arms(["a", "b", "c"])
    policy.update_many(["a", "b", "c"], None, [0.0, 0.0, 1.0])
    rng = np.random.Generator(np.random.PCG64(11))
    explored = []
    for _ in range(2000):
        u0, u1 = rng.random(2)
        decision = policy.select(None, ["c", "b", "a"])
        if u0 < 0.25:
            assert decision.arm == ["c", "b", "a"][int(u1 * 3)]
            assert decision.score == math.inf
            explored.append(decision.arm)
        else:
            assert decision.arm == "c"
            assert math.isfinite(decision.score)
    assert len(explored) == pytest.approx(500, abs=80)
    assert all(explored.count(arm) == pytest.approx(500 / 3, abs=45) for arm in "abc")


def test_cusum_resets_one_arm() -> None:
    policy = CUSUMUCB(warmup=4, drift=0.0, threshold=1.5)
    policy.add_arms(["a", "b"])
    policy.update_many(["b"] * 3, None, [0.5] * 3)
    assert policy.update_many(["a"] * 7, None, [0.5] * 4 + [1.0] * 3) == []
    event = policy.update("a", None, 1.0)
    assert event is not None
    assert (event.arm, event.step, event.plays, event.statistic) == ("a", 11, 8, 2.0)
    assert event.theta_before == (0.75,)
    a, b = (policy.rank(None, [arm])[0] for arm in "ab")
    assert a.width == math.inf
    assert b.width == pytest.approx(math.sqrt(2 * math.log(3) / 3))


def test_random_is_uniform_and_seeded() -> None:
    def choices(seed: int) -> list[Hashable]:
        policy = Random(seed=seed)
        policy.add_arms(list("abcd"))
        return [policy.select(None, ["d", "a", "b"]).arm for _ in range(3000)]

    first = choices(0)
    assert first == choices(0)
    assert first != choices(1)
    assert all(first.count(arm) == pytest.approx(1000, abs=100) for arm in "abd")
    policy = Random()
    policy.add_arms(["a"])
    assert policy.select()[2:] == (0.0, 0.0)


def test_theory() -> None:
    found = MUCB.theory(229_000, 20, 1, 0.02)
    assert found["window"] == pytest.approx(798_677, abs=1)
    assert found["window"] % 2 == 0
    assert found["gamma"] == 0.0
    assert MUCB.theory(1000, 20, 900, 0.02)["gamma"] == 1.0
    assert MUCB.click_threshold(1000, 0.5, 229_000, 20) == pytest.approx(119, abs=0.5)
    for made in (
        MUCB(**found),
        DUCB(**DUCB.theory(1000, 0)),
        SWUCB(**SWUCB.theory(2, 1)),
        CUSUMUCB(**CUSUMUCB.theory(2, 1)),
    ):
        made.add_arms(["a"])
        assert made.select().arm == "a"
    for theory in (DUCB.theory, SWUCB.theory, CUSUMUCB.theory):
        with pytest.raises(InvalidInputError, match=r"^changes must be fewer"):
            theory(10, 10)
        with pytest.raises(InvalidInputError, match=r"^horizon must"):
            theory(0, 1)


GOOD: dict[type[Policy], dict[str, Any]] = {
    Random: {},
    UCB: {},
    MUCB: {"window": 10, "threshold": 1.0, "gamma": 0.1},
    DUCB: {"gamma": 0.9},
    SWUCB: {"window": 10},
    CUSUMUCB: {"threshold": 1.0},
}
BAD: list[tuple[type[Policy], str, list[Any]]] = [
    *((cls, "n_features", [0, -1, 1.5, True]) for cls in GOOD),
    *((cls, "seed", [-1, 0.5]) for cls in GOOD),
    *((cls, "ties", ["last", None]) for cls in GOOD),
    (UCB, "bonus", ["ucb2", None]),
    (UCB, "alpha", [-0.1, math.nan, math.inf, "1"]),
    (MUCB, "window", [0, 3, 2.0, True, -2]),
    (MUCB, "threshold", [0, -1.0, math.nan, None]),
    (MUCB, "gamma", [-0.1, 1.1, math.nan]),
    (DUCB, "gamma", [0, 1.1, math.nan]),
    (DUCB, "xi", [-1, math.inf]),
    (DUCB, "bound", [0, math.inf]),
    (SWUCB, "window", [0, 1.5]),
    (SWUCB, "xi", [-1]),
    (SWUCB, "bound", [-1]),
    (CUSUMUCB, "warmup", [0, 2.5]),
    (CUSUMUCB, "drift", [-0.1, math.inf]),
    (CUSUMUCB, "threshold", [0, math.nan]),
    (CUSUMUCB, "explore", [-0.1, 1.1]),
]


@pytest.mark.parametrize(
    ("cls", "name", "value"), [(cls, name, v) for cls, name, values in BAD for v in values]
)
def test_bad_parameters_are_named(cls: type[Policy], name: str, value: object) -> None:
    with pytest.raises(InvalidInputError, match=rf"^{name} must .*, got "):
        cls(**{**GOOD[cls], name: value})


@pytest.mark.parametrize("cls", GOOD)
def test_parameters_are_what_was_given(cls: type[Policy]) -> None:
    policy = cls(**GOOD[cls], n_features=3, seed=4)
    assert policy.params.items() >= {**GOOD[cls], "n_features": 3, "seed": 4}.items()
    assert eval(repr(policy), {cls.__name__: cls}).params == policy.params
