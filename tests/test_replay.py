"""``replay`` against the literal loop, on logs known by hand, and at its edges."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whim
from tests.made_logs import POLICIES, D, made_log
from tests.oracles.replay import Literal, replay_log
from whim.errors import InvalidInputError
from whim.evaluate.follow import Follower
from whim.kernels.loops import MATCH, ONE
from whim.logs import Log

replaying = importlib.import_module("whim.evaluate.replay")
FLOOR, BINS = 0.12, 7


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Log]:
    folder = tmp_path_factory.mktemp("logs")
    return {name: made_log(folder, logging=name) for name in ("uniform", "propensity", "full")}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks a log, none of them of the same length as a stretch between new arms."""
    monkeypatch.setattr(replaying, "_BLOCK", 83)


def at_the_end(policy: whim.Policy, log: Log, scheme: str = "uniform") -> whim.Policy:
    """The policy after it followed a whole log."""
    how = replaying.Plan(scheme, 1.0, 0, BINS, log.n_events, 0.0)
    follower = Follower(policy, log.arms, np.asarray(log.item_arm, np.int64), log.item_features)
    for block in replaying._blocks(log, how, 0):
        follower.go(block.batch)
    return policy


def same(run: whim.evaluate.ReplayRun, literal: Literal, end: int) -> None:
    """Counts, totals, parts and changes equal; estimates to 1e-9."""
    at, counted = np.array(literal.at), np.array(literal.counted)
    assert run.events == len(at)
    assert run.matched == counted.sum()
    assert run.total == sum(literal.earned)
    parts = at * BINS // end
    for b in range(BINS):
        inside = parts == b
        assert run.bin_events[b] == inside.sum()
        assert run.bin_matched[b] == counted[inside].sum()
        assert run.bin_total[b] == np.array(literal.earned)[inside].sum()
    assert [c[:3] for c in run.changes] == [c[:3] for c in literal.changes]
    np.testing.assert_array_equal([c[3] for c in run.changes], [c[3] for c in literal.changes])


# -- the literal loop ---------------------------------------------------------------------------


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("scheme", ["uniform", "propensity", "full"])
@pytest.mark.parametrize("name", POLICIES)
def test_replay_is_the_literal_loop(logs: dict[str, Log], name: str, scheme: str) -> None:
    log = logs[scheme]
    result = whim.replay(log, {name: POLICIES[name]()}, bins=BINS, floor=FLOOR)
    [run] = result.runs[name]
    literal = replay_log(POLICIES[name](), log, scheme, floor=FLOOR)
    same(run, literal, log.n_events)
    if scheme == "full":
        assert run.matched == log.n_events
        assert not run.estimates()
        return
    assert 0 < run.matched < log.n_events
    wanted = literal.estimates()
    assert run.estimates().keys() == wanted.keys()
    for which, interval in run.estimates().items():
        np.testing.assert_allclose(interval, wanted[which], rtol=0, atol=1e-9)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("scheme", ["uniform", "full"])
@pytest.mark.parametrize("name", POLICIES)
def test_the_policy_ends_as_in_the_literal_loop(
    logs: dict[str, Log], name: str, scheme: str
) -> None:
    literal = replay_log(POLICIES[name](), logs[scheme], scheme)
    found = at_the_end(POLICIES[name](), logs[scheme], scheme)
    assert found.to_bytes() == literal.policy.to_bytes()


@pytest.mark.parametrize("name", ["mucb", "pslinucb-disjoint", "pslinucb-hybrid"])
def test_changes_fire_on_the_made_log(logs: dict[str, Log], name: str) -> None:
    """Else the comparison of changes above would compare nothing."""
    for scheme in ("uniform", "full"):
        assert whim.replay(logs[scheme], {name: POLICIES[name]()}).runs[name][0].changes


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ["random", "lints", "pslinucb-disjoint", "pslinucb-hybrid"])
def test_samples_and_runs_are_the_literal_loop_with_the_same_coins(
    logs: dict[str, Log], name: str
) -> None:
    log = logs["uniform"]
    result = whim.replay(
        log, {name: POLICIES[name]()}, sample=0.4, first=0.7, runs=2, seed=3, bins=BINS
    )
    for run, found in enumerate(result.runs[name]):
        policy = POLICIES[name]()
        if run:
            seed = [policy.params["seed"], run, 101]
            policy._rng = np.random.Generator(np.random.PCG64(seed))
        literal = replay_log(policy, log, "uniform", sample=0.4, first=0.7, seed=3, run=run)
        same(found, literal, round(0.7 * log.n_events))


def test_blocks_do_not_matter(logs: dict[str, Log], monkeypatch: pytest.MonkeyPatch) -> None:
    made = {name: POLICIES[name]() for name in ("lints", "pslinucb-hybrid")}
    whole = whim.replay(logs["propensity"], made, sample=0.8)
    monkeypatch.setattr(replaying, "_BLOCK", 29)
    parts = whim.replay(logs["propensity"], made, sample=0.8)
    for name in made:
        one, other = whole.runs[name][0], parts.runs[name][0]
        assert one.changes == other.changes
        assert np.array_equal(one.bin_total, other.bin_total)
        for which, interval in one.estimates().items():
            np.testing.assert_allclose(interval, other.estimates()[which], atol=1e-12)


def test_a_pool_of_its_own_for_every_event_of_a_large_catalogue(tmp_path: Path) -> None:
    """New arms in nearly every event: slots are filled in as they come, and only then."""
    rng = np.random.default_rng(0)
    n, arms = 300, 400
    with whim.logs.Writer(tmp_path / "wide.whim", n_features=2, logging="uniform") as w:
        for i in range(n):
            pool = rng.choice(arms, 8, replace=False).tolist()
            reward = float(rng.random() < 0.4)
            w.event(time=i, x=rng.normal(size=2), arms=pool, shown=pool[i % 8], reward=reward)
    log = whim.logs.open(tmp_path / "wide.whim")
    for made in (lambda: whim.LinTS(n_features=2), lambda: whim.LinUCBDisjoint(n_features=2)):
        literal = replay_log(made(), log, "uniform")
        assert at_the_end(made(), log).to_bytes() == literal.policy.to_bytes()


@pytest.mark.parametrize("d", [1, 2, 3, 6, 7, 10])
@pytest.mark.parametrize("arms", [7, 8, 13])
def test_pools_that_stay_are_scored_side_by_side_to_the_same_bit(
    tmp_path: Path, d: int, arms: int
) -> None:
    """Two pools, each for many events in a row: the case that ``linalg.packed`` is for."""
    rng = np.random.default_rng([d, arms])
    theta = rng.normal(size=(2, arms, d))
    n = 600
    with whim.logs.Writer(tmp_path / "a.whim", n_features=d, logging="uniform") as w:
        for i in range(n):
            pool = list(range(arms)) if i // 40 % 2 else list(range(arms))[::-1]
            x, shown = rng.normal(size=d), int(rng.integers(arms))
            reward = round(64 * float(x @ theta[2 * i // n, shown])) / 64  # sums are exact
            w.event(time=i, x=x, arms=pool, shown=shown, reward=reward)
    log = whim.logs.open(tmp_path / "a.whim")
    for made in (
        lambda: whim.LinUCBDisjoint(n_features=d, alpha=0.3),
        lambda: whim.PSLinUCBDisjoint(n_features=d, window=3, threshold=0.2),
    ):
        literal = replay_log(made(), log, "uniform")
        same(whim.replay(log, {"it": made()}, bins=BINS).runs["it"][0], literal, n)
        assert at_the_end(made(), log).to_bytes() == literal.policy.to_bytes()
        assert literal.changes or made().name != "pslinucb-disjoint"


# -- by hand ------------------------------------------------------------------------------------


class Favourite(whim.Policy):
    """Always the candidate with the smallest id; learns nothing."""

    name = "favourite"

    def __init__(self, *, seed: int = 0, ties: str = "first") -> None:
        super().__init__(n_features=None, seed=seed, ties=ties)

    def _score(self, x: Any, slots: Any, cross: Any, noise: Any) -> int:
        ids = [self._table.id_of[slot] for slot in slots]
        return ids.index(min(ids))  # type: ignore[type-var]

    def _observe(self, slot: int, x: Any, cross: Any, reward: float) -> int:
        return 0


@pytest.fixture(autouse=True)
def favourite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(whim.policies.POLICIES, "favourite", Favourite)


def plain_log(path: Path, n: int = 4000, K: int = 5, rewards: Any = None) -> Log:
    rng = np.random.default_rng(1)
    with whim.logs.Writer(path, n_features=D, logging="uniform") as w:
        for i in range(n):
            shown = int(rng.integers(K))
            reward = float(rng.random() < 0.1 * (shown + 1)) if rewards is None else rewards[i]
            arms = rng.permutation(K).tolist()
            w.event(time=i, x=rng.normal(size=D), arms=arms, shown=shown, reward=reward)
    return whim.logs.open(path)


def test_a_constant_policy_has_its_arm_s_empirical_rate(tmp_path: Path) -> None:
    log = plain_log(tmp_path / "a.whim")
    shown = [log.event(i).shown for i in range(log.n_events)]
    [run] = whim.replay(log, {"f": Favourite()}).runs["f"]
    own = log.reward[np.array(shown) == 0]
    assert run.matched == len(own)
    assert run.rate == own.mean()
    assert run.interval.low < run.rate < run.interval.high


@pytest.mark.parametrize("name", ["random", "ucb", "linucb-disjoint", "pslinucb-disjoint"])
def test_one_event_in_k_is_retained(tmp_path: Path, name: str) -> None:
    log = plain_log(tmp_path / "a.whim")
    [run] = whim.replay(log, {name: POLICIES[name]()}).runs[name]
    assert abs(run.matched / 4000 - 1 / 5) < 4 * math.sqrt(0.2 * 0.8 / 4000)


def agreeing(path: Path, policy: whim.Policy, n: int = 300, other: bool = False) -> Log:
    """A log that shows what the policy chooses, or always something else."""
    rng = np.random.default_rng(2)
    with whim.logs.Writer(path, n_features=D, n_item_features=2, logging="uniform") as w:
        Y = rng.normal(size=(6, 2))
        for i in range(n):
            ids = rng.permutation(6)[: rng.integers(2, 7)].tolist()
            x, reward = rng.normal(size=D), float(rng.random() < 0.3)
            policy.add_arms(ids, Y[ids] if policy.n_item_features else None)
            before = policy.to_bytes()
            arm = policy.select(x, ids).arm
            if other:
                policy = whim.policies.from_bytes(before)
                arm = ids[(ids.index(arm) + 1) % len(ids)]
            else:
                policy.update(arm, x, reward)
            w.event(time=i, x=x, arms=ids, features=Y[ids], shown=arm, reward=reward)
    return whim.logs.open(path)


@pytest.mark.parametrize("name", POLICIES)
def test_a_log_that_always_agrees_keeps_every_event(tmp_path: Path, name: str) -> None:
    policy = POLICIES[name]()
    log = agreeing(tmp_path / "a.whim", policy)
    [run] = whim.replay(log, {name: POLICIES[name]()}).runs[name]
    assert run.matched == run.events == 300
    assert run.rate == log.reward.mean()
    assert at_the_end(POLICIES[name](), log).to_bytes() == policy.to_bytes()


@pytest.mark.parametrize("name", POLICIES)
def test_a_log_that_never_agrees_teaches_nothing(tmp_path: Path, name: str) -> None:
    log = agreeing(tmp_path / "a.whim", POLICIES[name](), other=True)
    [run] = whim.replay(log, {name: POLICIES[name]()}).runs[name]
    assert run.matched == 0
    assert math.isnan(run.rate)
    assert run.estimates() == {}
    blank = POLICIES[name]()
    for i in range(log.n_events):
        event = log.event(i)
        blank.add_arms(event.arms, event.features if blank.n_item_features else None)
    assert at_the_end(POLICIES[name](), log).to_bytes() == blank.to_bytes()


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(
    name=st.sampled_from(sorted(POLICIES)),
    seed=st.integers(0, 10**6),
    extra=st.lists(st.integers(0, 3), min_size=25, max_size=60),
)
def test_events_that_do_not_match_may_as_well_be_absent(
    name: str, seed: int, extra: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Put events at which the policy chooses something else between those of a log."""
    folder = tmp_path_factory.mktemp("between")
    rng = np.random.default_rng(seed)
    Y = rng.normal(size=(5, 2))
    policy = POLICIES[name]()
    policy.add_arms(range(5), Y if policy.n_item_features else None)
    plain, between = (
        whim.logs.Writer(folder / f"{n}.whim", n_features=D, n_item_features=2, logging="uniform")
        for n in ("plain", "between")
    )
    for i, count in enumerate(extra):
        for part in range(count + 1 if i else 1):
            pool = rng.permutation(5)[: rng.integers(2, 6)].tolist() if i else list(range(5))
            x, reward = rng.normal(size=D), float(rng.random() < 0.5)
            then = whim.policies.from_bytes(policy.to_bytes())
            chosen = then.select(x, pool).arm
            if part:
                shown = next(arm for arm in pool if arm != chosen)
            else:
                shown = pool[rng.integers(len(pool))]
                if shown == chosen:
                    then.update(chosen, x, reward)
                    policy = then
            for w in (between,) if part else (plain, between):
                w.event(time=0, x=x, arms=pool, features=Y[pool], shown=shown, reward=reward)
    ends = []
    for w in (plain, between):
        w.close()
        ends.append(at_the_end(POLICIES[name](), whim.logs.open(w.path)).to_bytes())
    assert ends == [policy.to_bytes()] * 2


# -- settings -----------------------------------------------------------------------------------


def test_a_sample_keeps_its_share_in_order(tmp_path: Path) -> None:
    log = plain_log(tmp_path / "a.whim")
    result = whim.replay(log, {"f": Favourite()}, sample=0.1, runs=3, bins=4)
    for run in result.runs["f"]:
        assert abs(run.events - 400) < 4 * math.sqrt(4000 * 0.1 * 0.9)
        assert (np.abs(run.bin_events - 100) < 4 * math.sqrt(1000 * 0.1 * 0.9)).all()
    assert len({run.events for run in result.runs["f"]}) > 1
    how = replaying.Plan("uniform", 0.1, 0, 4, log.n_events, 0.0)
    [block] = replaying._blocks(log, how, 0)
    assert (np.diff(block.at) > 0).all()
    np.testing.assert_array_equal(block.batch.X, log.context[block.at])
    assert block.batch.mode == MATCH


def test_the_first_part_alone(tmp_path: Path) -> None:
    log = plain_log(tmp_path / "a.whim", n=1001)
    half = whim.replay(log, {"f": Favourite()}, first=0.5)
    assert half.runs["f"][0].events == round(1001 * 0.5) == half.settings["events"]
    assert half.runs["f"][0].bin_events.min() > 0
    tiny = whim.replay(log, {"f": Favourite()}, first=1e-9)
    assert tiny.runs["f"][0].events == 1


def test_jobs_and_other_policies_change_nothing(logs: dict[str, Log]) -> None:
    names = ("lints", "pslinucb-disjoint", "random")
    made = {name: POLICIES[name]() for name in names}
    one = whim.replay(logs["propensity"], made, runs=2, sample=0.9, jobs=1)
    two = whim.replay(logs["propensity"], made, runs=2, sample=0.9, jobs=2)
    assert one.rows() == two.rows()
    assert one.changes().equals(two.changes())
    for name in names:
        alone = whim.replay(logs["propensity"], {name: made[name]}, runs=2, sample=0.9)
        assert alone.rows() == [
            row | {k: v for k, v in alone.rows()[0].items() if k.startswith("relative")}
            for row in one.rows()
            if row["policy"] == name
        ]


def test_progress_counts_pairs_of_policy_and_run(logs: dict[str, Log]) -> None:
    seen: list[int] = []
    whim.replay(
        logs["uniform"], {"a": whim.UCB(), "b": whim.Random()}, runs=2, progress=seen.append
    )
    assert seen[-1] == 4
    assert seen == sorted(seen)


# -- edges --------------------------------------------------------------------------------------


def test_refusals(tmp_path: Path, logs: dict[str, Log]) -> None:
    silent = made_log(tmp_path, logging=None, n=20)
    uniform = logs["uniform"]
    ucb = whim.UCB()
    with pytest.raises(InvalidInputError, match=r"logging must be declared.*does not say"):
        whim.replay(silent, {"u": ucb})
    assert whim.replay(silent, {"u": ucb}, logging="uniform").runs["u"][0].events == 20
    with pytest.raises(InvalidInputError, match="logging must be one of"):
        whim.replay(silent, {"u": ucb}, logging="lucky")
    with pytest.raises(InvalidInputError, match="logging must not be 'propensity'"):
        whim.replay(uniform, {"u": ucb}, logging="propensity")
    for name, alone in (("uniform", "what was shown alone"), ("propensity", "shown alone")):
        with pytest.raises(InvalidInputError, match=f"logging must be '{name}' or .*{alone}"):
            whim.replay(logs[name], {"u": ucb}, logging="full")
    with pytest.raises(InvalidInputError, match=r"must be 'full' or .* every candidate"):
        whim.replay(logs["full"], {"u": ucb}, logging="uniform")
    with pytest.raises(InvalidInputError, match=r"n_features = 3, got 'w' with 4"):
        whim.replay(uniform, {"w": whim.LinUCBDisjoint(n_features=4)})
    with pytest.raises(InvalidInputError, match=r"n_item_features = 2, got 'w' with 5"):
        whim.replay(uniform, {"w": whim.LinUCBHybrid(n_features=3, n_item_features=5)})
    with pytest.raises(InvalidInputError, match="at least one policy"):
        whim.replay(uniform, {})
    with pytest.raises(InvalidInputError, match="policies must be policies"):
        whim.replay(uniform, {"w": "ucb"})  # type: ignore[dict-item]
    with pytest.raises(InvalidInputError, match="cross features"):
        whim.replay(uniform, {"w": whim.LinUCBHybrid(n_features=3, n_cross_features=6)})
    used = whim.UCB()
    used.add_arms([1])
    with pytest.raises(InvalidInputError, match="no arms yet"):
        whim.replay(uniform, {"w": used})
    bad: list[dict[str, Any]] = [
        {"sample": 0}, {"sample": 1.1}, {"first": 0}, {"first": 2}, {"runs": 0}, {"bins": 0},
        {"seed": -1},
    ]  # fmt: skip
    for wrong in bad:
        with pytest.raises(InvalidInputError, match=f"{next(iter(wrong))} must"):
            whim.replay(uniform, {"u": ucb}, **wrong)
    with pytest.raises(InvalidInputError, match="floor must"):
        whim.replay(logs["propensity"], {"u": ucb}, floor=0.0)


@pytest.mark.parametrize("logging", ["uniform", "propensity", "full"])
def test_an_empty_log_has_no_rate(tmp_path: Path, logging: str) -> None:
    log = made_log(tmp_path, logging=logging, n=0)
    result = whim.replay(log, {"ps": POLICIES["pslinucb-disjoint"](), "ucb": whim.UCB()})
    [run] = result.runs["ps"]
    assert run.events == run.matched == 0
    assert math.isnan(run.rate)
    assert result.over_time("ps") == []
    assert result.table().height == 2
    result.plot()
    check_saved(result, tmp_path / "out")


def test_pools_of_a_single_arm_always_match(tmp_path: Path) -> None:
    with whim.logs.Writer(tmp_path / "a.whim", n_features=D, logging="uniform") as w:
        for i in range(90):
            w.event(time=i, x=np.ones(D), arms=[i % 3], shown=i % 3, reward=float(i % 2))
    result = whim.replay(tmp_path / "a.whim", {n: POLICIES[n]() for n in ("lints", "ucb")})
    for [run] in result.runs.values():
        assert (run.matched, run.rate) == (90, 0.5)
        assert run.estimates()["ips"].value == run.estimates()["snips"].value == 0.5


def test_contexts_of_bytes_and_the_floor_by_default(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    p = np.linspace(0.1, 1.0, 201)
    with whim.logs.Writer(
        tmp_path / "a.whim", n_features=4, logging="propensity", propensities=True,
        context_dtype="uint8",
    ) as w:  # fmt: skip
        for i in range(201):
            x, shown = rng.integers(0, 2, size=4), int(rng.integers(2))
            w.event(time=i, x=x, arms=[0, 1], shown=shown, reward=1.0, propensity=p[i])
    log = whim.logs.open(tmp_path / "a.whim")
    result = whim.replay(log, {"lin": whim.LinUCBDisjoint(n_features=4)}, bins=BINS)
    inverse = 1 / p  # rising p: the first at which 5 % of the inverse propensities are reached
    floor = next(p[i] for i in range(201) if sum(inverse[: i + 1]) >= 0.05 * sum(inverse))
    assert result.settings["floor"] == floor < np.quantile(p, 0.05)
    literal = replay_log(whim.LinUCBDisjoint(n_features=4), log, "propensity", floor=floor)
    same(result.runs["lin"][0], literal, 201)


def test_the_floor_of_a_log_that_rarely_explores_is_the_rare_propensity(tmp_path: Path) -> None:
    with whim.logs.Writer(
        tmp_path / "a.whim", n_features=1, logging="propensity", propensities=True
    ) as w:
        for i in range(400):
            rare = i % 25 == 0
            chance = 0.04 if rare else 0.96
            w.event(time=i, x=[1.0], arms=[0, 1], shown=int(rare), reward=1.0, propensity=chance)
    result = whim.replay(tmp_path / "a.whim", {"u": whim.UCB()})
    assert result.settings["floor"] == 0.04


def test_runs_of_one_log_are_no_surer_than_the_log(logs: dict[str, whim.logs.Log]) -> None:
    """Five replays of the same events by a policy without chance say what one of them says."""
    policies = {"a": whim.UCB(), "b": whim.LinUCBDisjoint(n_features=D)}
    one, five = (whim.replay(logs["uniform"], policies, runs=runs) for runs in (1, 5))
    for found in (one, five):
        assert found.rate("a").low < found.rate("a").value < found.rate("a").high
    width = [found.rate("b").high - found.rate("b").low for found in (one, five)]
    assert width[0] == pytest.approx(width[1])
    between = [found.relative("b", "a") for found in (one, five)]
    assert between[0].high - between[0].low == pytest.approx(between[1].high - between[1].low)


def test_rewards_that_are_not_clicks(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    rewards = rng.normal(7.0, 2.0, size=900)
    log = plain_log(tmp_path / "a.whim", n=900, rewards=rewards)
    result = whim.replay(log, {"f": Favourite()}, bins=3)
    [run] = result.runs["f"]
    own = rewards[[log.event(i).shown == 0 for i in range(900)]]
    error = 1.959964 * own.std() / math.sqrt(len(own))
    wanted = own.mean(), own.mean() - error, own.mean() + error
    np.testing.assert_allclose(run.interval, wanted, rtol=1e-6)
    last = result.over_time("f")[-1]
    np.testing.assert_allclose([last["ctr"], last["ctr_low"], last["ctr_high"]], wanted, rtol=1e-6)
    one = plain_log(tmp_path / "b.whim", n=1, K=1, rewards=[5.0])
    found = whim.replay(one, {"f": Favourite()})
    assert found.rate("f").value == 5.0
    assert math.isnan(found.rate("f").low)
    assert found.over_time("f")[-1]["ctr"] == 5.0


# -- what comes out -----------------------------------------------------------------------------


def check_saved(result: whim.evaluate.ReplayResult, folder: Path) -> None:
    import polars

    assert result.save(folder) == folder
    content = json.loads((folder / "result.json").read_text("utf-8"), parse_constant=pytest.fail)
    assert set(content) == {"settings", "policies"}
    assert [row["policy"] for row in content["policies"]] == list(result.runs)
    points = polars.read_parquet(folder / "over_time.parquet")
    wanted = [(label, p) for label in result.runs for p in result.over_time(label)]
    assert points.rows(named=True) == [{"policy": label, **p} for label, p in wanted]
    assert "ctr_low" in points.columns
    assert polars.read_parquet(folder / "changes.parquet").equals(result.changes())
    assert not list(folder.glob(".*"))


def test_tables_figures_and_files(tmp_path: Path, logs: dict[str, Log]) -> None:
    made = {name: POLICIES[name]() for name in ("random", "pslinucb-disjoint")}
    for runs in (1, 3):
        result = whim.replay(logs["propensity"], made, runs=runs, sample=0.9)
        table = result.table(baseline="random")
        assert table["policy"].to_list() == list(made)
        for name in ("ctr", "ips", "snips", "dr"):
            low, value, high = (table[f"{name}{end}"] for end in ("_low", "", "_high"))
            assert ((low <= value) & (value <= high)).all()
        assert table["relative"][0] == 0.0
        ratio = table["ctr"][1] / table["ctr"][0] - 1
        assert table["relative"][1] == pytest.approx(ratio)
        points = result.over_time("random")
        assert points[-1]["matched"] == sum(run.matched for run in result.runs["random"])
        apart = result.over_time("random", cumulative=False)
        assert sum(p["reward"] for p in apart) == points[-1]["reward"]
        figure = result.plot()
        figure.savefig(tmp_path / "figure.png")
        assert [t.get_text() for t in figure.axes[0].get_legend().get_texts()] == list(made)
        check_saved(result, tmp_path / f"out{runs}")


def test_full_logs_are_walked_with_every_reward_known(logs: dict[str, Log]) -> None:
    how = replaying.Plan("full", 1.0, 0, 1, logs["full"].n_events, 0.0)
    assert next(iter(replaying._blocks(logs["full"], how, 0))).batch.mode == ONE
