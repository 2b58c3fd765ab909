"""The log folded together and one by one, read from elsewhere, and on disks that fail."""

import contextlib
import os
import random
import shutil
import sqlite3
import tempfile
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.oracles.rewards import fates
from tests.test_engine import (
    CONFIGS,
    RULES,
    SECOND,
    ask,
    clock,
    engine,
    folded,
    rebuilt,
    reward,
    traffic,
)
from whim.errors import InvalidInputError
from whim.policies import policy as make_policy
from whim.serve import wire
from whim.serve.log.configs import open_spaces
from whim.serve.log.reader import LogReader, StoreError
from whim.serve.log.rows import DECODERS, Kind
from whim.serve.state import recovery
from whim.serve.state.drawing import seed_of
from whim.serve.state.engine import Engine
from whim.serve.state.recovery import Rebuilt
from whim.serve.state.snapshots import peek
from whim.serve.state.space import NotFoundError
from whim.serve.state.space_state import SpaceState
from whim.serve.state.stats import Pending, Stats
from whim.serve.state.views import arm_views

__all__ = ["clock", "engine"]  # fixtures

# -- the batched fold -------------------------------------------------------------------------

BATCHED = {
    **CONFIGS,
    "eager": wire.SpaceConfig(
        params={"false_alarm": 0.01}, context=wire.Features(constant=True), rewards=RULES
    ),
    "names": wire.SpaceConfig(
        context=wire.Features(
            fields=[
                wire.Field(name="age", kind="number", mean=0.5, scale=2.0),
                wire.Field(name="device", kind="choice", values=["phone", "desk"]),
                wire.Field(name="tags", kind="hash", size=4),
            ],
            rest=3,
            constant=True,
        ),
        rewards=RULES,
    ),
    "groups": wire.SpaceConfig(
        policy="pslinucb-groups", params={"groups": 2}, context=wire.Features(size=2),
        items=wire.Features(size=2),
    ),
    "ties": wire.SpaceConfig(
        policy="lints", params={"ties": "random"}, context=wire.Features(size=2), rewards=RULES
    ),
    "cusum": wire.SpaceConfig(
        policy="cusum-ucb", params={"threshold": 1.5, "warmup": 3, "explore": 0.2},
        context=wire.Features(), rewards=RULES,
    ),
    "light": wire.SpaceConfig(
        params={"scoring": "float32"}, context=wire.Features(size=3), rewards=RULES
    ),
}  # fmt: skip


def mixed(engine, clock, name, steps, seed):
    """As ``traffic``, but with features that come, change and do not fit, and arms that go."""
    dice = random.Random(seed)
    config = engine.space(name).config
    made = []
    for t in range(steps):
        clock.now += int(0.1 * SECOND)
        arms = dice.sample(range(8), 4)
        candidates = []
        for a in arms:
            features = [float(a), float(t > steps // 2 and a == 3)] if config.items.size else None
            candidates.append(wire.Candidate(f"i{a}" if a % 2 else a, features))
        context = [round(dice.gauss(0, 1), 3) for _ in range(config.context.size)]
        if config.context.fields:
            context = {"age": dice.random(), "device": dice.choice(["phone", "desk", "tv"])}
            context |= {"tags": ["a", "b"], "other": dice.choice([True, "x", 2.5])}
        found = ask(engine, name, candidates, context, deferred=dice.random() < 0.1)
        made.append(found.decision_id)
        engine.store.flush()
        for _ in range(2):
            value = float(t > steps // 2) + 0.1 * dice.random()
            reward(engine, name, dice.choice(made[-10:]), value)
        if t % 50 == 49:
            last = ask(engine, name, candidates[:1], context)
            engine.retire_arms(name, [last.arm])
            reward(engine, name, last.decision_id)
        if t % 10 == 9:
            engine.tick()
    engine.store.flush()


def one_by_one(engine, config, version=1):
    held, changes = SpaceState(config, version), []
    for row in engine.store.rows(space=1):
        changes += held.apply(row)
    return held, changes


@pytest.mark.parametrize("kind", BATCHED)
def test_rows_folded_together_are_the_same_as_one_by_one(engine, clock, kind, monkeypatch):
    seen = []
    monkeypatch.setattr(engine.store, "_on_commit", lambda commit: seen.extend(commit.changes))
    config = engine.create("s", BATCHED[kind]).config
    mixed(engine, clock, "s", 260, seed=10)
    held, changes = one_by_one(engine, config)
    assert held.digest() == engine.space("s").state.digest()
    assert [change for _, change in seen] == changes
    assert {engine.name(number) for number, _ in seen} <= {"s"}
    for size in (1, 7, 2048):
        monkeypatch.setattr("whim.serve.log.reader._BLOCK", size)
        other = SpaceState(config)
        assert recovery.advance(engine.store, other, 1) == changes
        assert other.digest() == held.digest()
        assert other.seq == held.seq
    assert held.skipped  # decisions whose arms were retired
    if kind in ("paper's test", "cusum", "eager"):
        assert changes


@pytest.mark.parametrize(
    "config",
    [
        wire.SpaceConfig(context=wire.Features(size=2)),  # the vectors were of 3
        wire.SpaceConfig(context=wire.Features(rest=2)),
        wire.SpaceConfig(policy="lints", context=wire.Features(size=3)),
        wire.SpaceConfig(policy="mucb", params={"window": 4, "threshold": 1.5, "gamma": 0.1},
                         context=wire.Features()),
        wire.SpaceConfig(policy="pslinucb-hybrid", context=wire.Features(size=3),
                         items=wire.Features(size=2)),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit_are_left_out_alike(engine, clock, config):
    engine.create("s", CONFIGS["paper's test"])
    mixed(engine, clock, "s", 120, seed=11)
    held, changes = one_by_one(engine, config)
    other = SpaceState(config)
    assert recovery.advance(engine.store, other, 1) == changes
    assert other.digest() == held.digest()


def test_changes_come_after_their_commit(tmp_path, clock):
    told = []

    def listen(commit):
        connection = sqlite3.connect(tmp_path / "data" / "log.db")
        last = connection.execute("SELECT max(seq) FROM log").fetchone()[0]
        connection.close()
        told.extend((number, change, change.seq <= last) for number, change in commit.changes)

    engine = Engine(tmp_path / "data", clock=clock, on_commit=listen)
    engine.create("s", CONFIGS["paper's test"])
    mixed(engine, clock, "s", 300, seed=12)
    assert told
    assert all(safe for *_, safe in told)
    assert {engine.name(number) for number, *_ in told} == {"s"}
    before = len(told)
    engine.change("s", msgspec.structs.replace(CONFIGS["paper's test"], explore=0.5))
    engine.swap("s", rebuilt(engine, "s"))
    engine.close()
    assert len(told) == before  # the same history again is no news


def test_arms_are_shown_with_their_rewards_and_their_trend(engine, clock):
    engine.create("s", CONFIGS["score test"])
    for t in range(60):
        clock.now += SECOND
        found = ask(engine, "s", ["a", "b"][t % 2 : t % 2 + 1])
        reward(engine, "s", found.decision_id, float(t % 4 == 0))
    ask(engine, "s", ["c"])
    a, b, c = arm_views(engine.space("s"))
    assert (a.arm, a.decisions, a.plays, a.mean) == ("a", 30, 30, 0.5)
    assert a.low < 0.5 < a.high
    assert (b.mean, b.low, b.last_change_at) == (0.0, 0.0, None)
    assert 0.1 < b.high < 0.2  # thirty zeros do not show that there will never be a click
    assert (c.arm, c.decisions, c.plays, c.mean, c.low, c.trend) == ("c", 1, 0, None, None, [])
    assert 10 <= len(a.trend) <= 24
    assert {v for v in a.trend if v is not None} == {0.5}
    engine.retire_arms("s", ["a"])
    ask(engine, "s", ["a"])
    assert [v.decisions for v in arm_views(engine.space("s")) if v.arm == "a"] == [1]


def test_trends_are_of_the_last_day_and_bounded():
    stats = Stats()
    waiting = Pending(0, 0, "a", b"", 1.0, "policy", True, False)
    for hour in range(24 * 30):
        stats.closed(hour * 3600 * 1_000_000, waiting, float(hour % 2), True)
    arm = stats.arms["a"]
    assert len(arm.trend) <= 24
    assert stats.trend_width == 4096 * 1_000_000
    again = Stats.from_bytes(stats.to_bytes())
    again.closed(24 * 30 * 3600 * 1_000_000, waiting, 1.0, True)
    stats.closed(24 * 30 * 3600 * 1_000_000, waiting, 1.0, True)
    assert again.to_bytes() == stats.to_bytes()
    for i in range(3000):
        stats.decided(0, "policy", i)
    assert sum(one.trend is not None for one in stats.arms.values()) == 2000


# -- ids --------------------------------------------------------------------------------------


def test_ids_are_known_after_a_restart_and_new_ones_need_no_look(tmp_path, clock, monkeypatch):
    engine = Engine(tmp_path / "data", clock=clock)
    for name in ("s", "t"):
        engine.create(name, CONFIGS["score test"])
    first = {f"d{i}": ask(engine, "s", decision_id=f"d{i}") for i in range(30)}
    engine.close()
    monkeypatch.setattr("whim.serve.log.ids._STEP", 7)
    for look in (0.0, 1.0):  # before it knows them all, and after
        monkeypatch.setattr("whim.serve.state.engine._LEARN_AT_START", look)
        again = Engine(tmp_path / "data", clock=clock)
        looks = []
        read = again.store.decision
        monkeypatch.setattr(
            again.store, "decision", lambda *given, r=read, n=looks: n.append(given) or r(*given)
        )
        assert all(ask(again, "s", decision_id=key) == found for key, found in first.items())
        assert len(looks) == 30
        ask(again, "t", decision_id="d1" if look else "d2")
        assert len(looks) == (30 if look else 31)
        with pytest.raises(NotFoundError):
            reward(again, "s", "never")
        again.close()


def test_what_was_on_its_way_is_forgotten_once_it_is_safe(engine):
    engine.create("s", CONFIGS["score test"])
    for i in range(50):
        ask(engine, "s", decision_id=f"d{i}")
        if i % 10 == 9:
            engine.store.flush()
    engine.tick()
    assert not engine._known._in_flight
    assert not engine._known._order


# -- directories and disks --------------------------------------------------------------------


def test_a_directory_has_one_engine(tmp_path, clock):
    engine = Engine(tmp_path / "data", clock=clock)
    with pytest.raises(StoreError, match="no other running service, got data"):
        Engine(tmp_path / "data", clock=clock)
    engine.create("s", CONFIGS["score test"])
    engine.close()
    Engine(tmp_path / "data", clock=clock).close()
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="data must be a directory"):
        Engine(tmp_path / "file", clock=clock)


@pytest.mark.parametrize("size", [5, 64, 2048])
def test_decisions_counted_together_are_counted_as_one_by_one(engine, clock, monkeypatch, size):
    engine.create("s", CONFIGS["score test"])
    dice = random.Random(size)
    lists = [["a", "b", "c"], ["b", "c", "d"], ["a", "d"]]
    made = []
    for t in range(1500):
        # a few seconds in a bin, then bins that must be joined, again and again
        clock.now += int((0.7 if t % 100 else 400.0) * SECOND)
        context = [dice.gauss(0, 1) for _ in range(3)]
        made.append(ask(engine, "s", dice.choice(lists), context).decision_id)
        engine.store.flush()
        for _ in range(dice.randrange(3)):
            reward(engine, "s", dice.choice(made[-5:]), dice.random())
        if t % 100 == 50:
            engine.tick()
        if t % 400 == 399:
            engine.retire_arms("s", [dice.choice(engine.space("s").state.policy.arms)])
    engine.store.flush()
    told = []
    plain = Stats.decided_many

    def seen(self, *given):
        told.append(plain(self, *given))
        return told[-1]

    monkeypatch.setattr(Stats, "decided_many", seen)
    monkeypatch.setattr("whim.serve.log.reader._BLOCK", size)
    space = engine.space("s")
    held = SpaceState(space.config, space.state.version)
    recovery.advance(engine.store, held, space.number)
    assert held.digest() == one_by_one(engine, space.config)[0].digest() == space.state.digest()
    if size < 100:
        assert {*told} == {True, False}


@contextlib.contextmanager
def lowly(place):
    """As one whom permissions hold back: root is made another user, whose the files are."""
    root = os.geteuid() == 0
    if root:
        for path in (place, *place.rglob("*")):
            os.chown(path, 65534, 65534)
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_what_cannot_be_written_is_said_at_the_start(clock):
    place = Path(tempfile.mkdtemp())  # which others may enter, unlike a test's own directory
    data = place / "data"
    engine = Engine(data, clock=clock)
    engine.create("s", CONFIGS["score test"])
    traffic(engine, clock, "s", 10, seed=1)
    engine.close()
    (data / "log.db").chmod(0o400)
    with lowly(place), pytest.raises(StoreError, match=r"log\.db must be .*permission denied"):
        Engine(data, clock=clock)
    (data / "log.db").chmod(0o600)
    (data / "lock").unlink()
    data.chmod(0o500)
    with lowly(place), pytest.raises(StoreError, match="data must be a directory that can be wr"):
        Engine(data, clock=clock)
    data.chmod(0o700)
    Engine(data, clock=clock).close()
    shutil.rmtree(place)


@pytest.mark.parametrize("junk", [b"\0", b"\xa5"])
def test_no_damaged_page_is_taken_for_the_truth(tmp_path, clock, junk):
    data = tmp_path / "data"
    engine = Engine(data, clock=clock)
    engine.create("s", CONFIGS["paper's test"])
    traffic(engine, clock, "s", 60, seed=13)
    live = engine.space("s").state.digest()
    keys = [row.key for row in engine.store.rows() if row.key]
    engine.close()
    whole = (data / "log.db").read_bytes()
    size = int.from_bytes(whole[16:18], "big")
    refused = 0
    for page in range(len(whole) // size):
        (data / "log.db").write_bytes(
            whole[: page * size] + junk * size + whole[(page + 1) * size :]
        )
        try:
            engine = Engine(data, clock=clock)
        except StoreError:
            refused += 1
            continue
        assert engine.space("s").state.digest() == live  # it was of no row, or
        try:
            for key in keys:
                assert engine.store.decision(engine.space("s").number, key) is not None
            engine.store.changes(1, 1)
        except StoreError:
            refused += 1
        engine.close()
    assert refused > len(whole) // size / 2


def test_a_snapshot_that_was_damaged_is_written_anew(tmp_path, clock):
    data = tmp_path / "data"
    engine = Engine(data, clock=clock)
    engine.create("s", CONFIGS["score test"])
    traffic(engine, clock, "s", 20, seed=14)
    engine.snapshot("s")
    engine.close()
    with sqlite3.connect(data / "snapshots.db") as connection:
        connection.execute("UPDATE page SET data = zeroblob(length(data))")
    connection.close()
    again = Engine(data, clock=clock)
    again.snapshot("s")
    again.close()
    last = Engine(data, clock=clock)
    assert last.recovered == 0
    last.close()


@pytest.mark.parametrize("junk", [b"\0", b"\xa5"])
def test_wherever_snapshots_are_damaged_they_are_written_anew(tmp_path, clock, junk):
    data = tmp_path / "data"
    engine = Engine(data, clock=clock)
    engine.create("s", CONFIGS["score test"])
    traffic(engine, clock, "s", 20, seed=14)
    engine.snapshot("s")
    live = engine.space("s").state.digest()
    engine.close()
    whole = (data / "snapshots.db").read_bytes()
    size = int.from_bytes(whole[16:18], "big")
    for page in range(len(whole) // size):
        hole = slice(page * size + 100 * (page == 0), (page + 1) * size)  # but the head
        holed = bytearray(whole)
        holed[hole] = junk * (hole.stop - hole.start)
        (data / "snapshots.db").write_bytes(holed)
        engine = Engine(data, clock=clock)
        assert engine.space("s").state.digest() == live
        engine.snapshot("s")
        engine.close()
        assert peek(data / "snapshots.db", 1).digest() == live


def test_the_log_is_read_while_it_is_written_without_a_lock(engine, clock):
    engine.create("s", CONFIGS["score test"])
    traffic(engine, clock, "s", 20, seed=15)
    reader = LogReader(engine.store.path)
    number, history = open_spaces(reader)["s"]
    held, _ = recovery.rebuild(reader, number, history.now)
    assert held.digest() == engine.space("s").state.digest()
    traffic(engine, clock, "s", 5, seed=16)
    recovery.advance(reader, held, number)
    assert held.digest() == engine.space("s").state.digest()
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader._connection.execute("DELETE FROM log")
    reader.close()
    with pytest.raises(StoreError, match=r"nothing\.db must be a readable log"):
        LogReader(engine.store.path.with_name("nothing.db"))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("pslinucb-disjoint", {"n_features": 2}),
        ("linucb-hybrid", {"n_features": 2, "n_item_features": 1}),
        ("ucb", {}),
        ("mucb", {"window": 4, "threshold": 3.0, "gamma": 0.5}),
    ],
)
def test_ranked_many_is_ranked_of_each(name, given):
    rng = np.random.default_rng(0)
    policy = make_policy(name, **given)
    arms = [1, 0, *(f"i{i}" for i in range(80))]
    policy.add_arms(arms, rng.normal(size=(82, 1)) if "n_item_features" in given else None)
    X = rng.normal(size=(9, 2)) if given.get("n_features") else None
    played = rng.choice(82, 60).tolist()
    contexts = None if X is None else rng.normal(size=(60, 2))
    policy.update_many([arms[i] for i in played], contexts, rng.random(60))
    before = policy.to_bytes()
    sizes = (1, 2, 5, 20, 63, 64, 65, 82, 3)
    lists = [[arms[i] for i in rng.choice(82, n, replace=False)] for n in sizes]
    expected = [policy.ranked(None if X is None else X[i], lists[i]) for i in range(9)]
    assert policy.ranked_many(X, lists) == expected
    odd = [["i1", "i1"], ["i1", "nobody"], [True, "i1"], [["i1"]], []]
    for bad in odd:
        mixed = [*lists[:4], bad, *lists[5:]]
        assert policy.ranked_many(X, mixed) == [*expected[:4], None, *expected[5:]]
    assert policy.ranked_many(None if X is None else X[:0], []) == []
    assert policy.to_bytes() == before
    if X is not None:
        with pytest.raises(InvalidInputError, match="X must"):
            policy.ranked_many(X * np.nan, lists)


def test_ranked_many_is_not_for_a_policy_that_draws():
    policy = make_policy("lints", n_features=1)
    policy.add_arms(["a"])
    with pytest.raises(InvalidInputError, match="LinTS draws"):
        policy.ranked_many([[1.0]], [["a"]])


@pytest.mark.parametrize("ties", ["first", "random"])
@pytest.mark.parametrize("name", ["pslinucb-disjoint", "lints", "random", "linucb-disjoint"])
def test_ranked_is_rank_without_objects(name, ties):
    given = {} if name == "random" else {"n_features": 2}
    policy, twin = (make_policy(name, seed=3, ties=ties, **given) for _ in range(2))
    for one in (policy, twin):
        one.add_arms(["a", "b", "c", "d"])
        one.update_many(["a", "b"], [[1.0, 0.5], [0.5, 1.0]] if given else None, [1.0, 0.2])
    x = [0.3, -0.2] if given else None
    arms = ["d", "b", "a", "c"]
    for _ in range(20):
        order, found = policy.ranked(x, arms)
        table = np.reshape(found, (4, 3)).tolist()
        assert [(arms[i], *table[i]) for i in order] == [tuple(d) for d in twin.rank(x, arms)]
        if policy.randomised:
            policy.select(x, arms)
            twin.select(x, arms)
    assert policy.to_bytes() == twin.to_bytes()


# -- what becomes of rewards ------------------------------------------------------------------


@pytest.mark.parametrize("combine", ["earliest", "sum"])
def test_the_log_alone_says_what_became_of_each_reward(engine, clock, combine):
    """Against the literal form: random requests, rules that change, repeats, ends of waiting."""
    rules = wire.RewardRules(wait_seconds=3.0, combine=combine)
    config = wire.SpaceConfig(policy="ucb", context=wire.Features(), rewards=rules)
    engine.create("s", config)
    dice, told = random.Random(3), []
    for i in range(300):
        clock.now += dice.randrange(SECOND)
        key = f"d{i}"
        body = wire.DecisionBody(
            candidates=["a", "b"], decision_id=key, deferred=dice.random() < 0.2
        )
        engine.decide("s", body, b"")
        if dice.random() < 0.1:
            engine.activate("s", f"d{dice.randrange(max(0, i - 5), i + 1)}")
        for _ in range(dice.randrange(3)):
            to = f"d{dice.randrange(max(0, i - 6), i + 1)}"
            name = dice.choice([None, "r", "q"])
            state = engine.reward("s", wire.RewardBody(decision_id=to, value=1.0, reward_id=name))
            told.append((to, str(state)))
        if dice.random() < 0.3:
            engine.tick()
        if i == 150:  # other rules, from the row on that says that they are built
            other = "sum" if combine == "earliest" else "earliest"
            rules = wire.RewardRules(wait_seconds=2.0, combine=other)
            engine.change("s", msgspec.structs.replace(config, rewards=rules))
            engine.store.flush()
            number, wanted = engine.wanted("s")
            engine.swap("s", Rebuilt(number, recovery.rebuild(engine.store, number, wanted)[0], []))
    engine.store.flush()
    became = [fate for fate in fates(engine.store.rows()) if fate[1] != "ended"]
    counts = engine.space("s").state.stats.counts
    for state in ("learnt", "kept", "duplicate", "late"):
        told_so = sum(one[1] == state for one in told)
        assert told_so > 5
        # of those that change nothing only the first few are logged
        logged = sum(one[1] == state for one in became)
        assert logged == told_so if state in ("learnt", "kept") else logged <= told_so
        assert counts[f"rewards_{state}"] == logged
    assert sorted(set(became)) == sorted(set(told))
    assert folded(engine, "s").digest() == engine.space("s").state.digest()


def test_a_decision_says_on_what_it_was_based_and_can_be_made_again(engine, clock):
    engine.create("s", CONFIGS["draws"])
    rng = np.random.default_rng(0)
    state = SpaceState(CONFIGS["draws"])
    for i in range(60):
        body = wire.DecisionBody(
            candidates=["a", "b", f"new-{i // 7}"], context=rng.normal(size=2).tolist(),
            decision_id=f"d{i}",
        )  # fmt: skip
        engine.decide("s", body, b"")
        if i % 2:
            engine.reward("s", wire.RewardBody(decision_id=f"d{i}", value=float(i % 3)))
    engine.store.flush()
    for row in engine.store.rows():
        if row.kind == Kind.DECISION:
            logged = DECODERS[row.kind].decode(row.body)
            assert state.seq == logged.base
            x = np.array(logged.context)
            seed = seed_of(CONFIGS["draws"].seed, logged.id)
            found = state.preview(x, logged.arms, logged.features, seed)
            assert (found.order, found.numbers) == (logged.order, logged.numbers)
            assert found.chances[logged.place] == logged.drawn
        state.apply(row)
