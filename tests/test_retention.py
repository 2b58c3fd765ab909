"""Old rows go, what they taught stays: the base and the rest fold to the live state."""

import contextlib
import sqlite3
import threading
import time

import msgspec
import pytest

import whim.logs
from tests.test_engine import CONFIGS, SECOND, ask, clock, engine, folded, rebuilt, reward, traffic
from whim.serve import wire
from whim.serve.jobs.export import export
from whim.serve.jobs.history import History
from whim.serve.jobs.trim import Trimmed
from whim.serve.jobs.trim import trim as trim_log
from whim.serve.log.base import read_base, remains
from whim.serve.log.reader import StoreError
from whim.serve.log.rows import Kind
from whim.serve.state.engine import Engine
from whim.serve.state.recovery import Rebuilt, begin, state_of
from whim.serve.state.space_state import SpaceState

__all__ = ["clock", "engine"]  # fixtures


def trim(engine, before, **more):
    """Up to a time; pauses are not slept through."""
    return trim_log(engine.store.path, before, pause=lambda seconds: None, **more)


def base_of(engine, name):
    return read_base(engine.store, engine.space(name).number), engine.store.trimmed()


def from_base(engine, name, config=None, version=None):
    """A space by its base and the rows that are wanted, as a recovery would have it."""
    space = engine.space(name)
    base, upto = base_of(engine, name)
    held = begin(base, config or space.config, version or space.state.version)
    for row in engine.store.rows(space=space.number):
        if row.seq > held.seq and remains(row.seq, upto, base):
            held.apply(row)
    return held


def cut(engine, share):
    """A time that a share of the rows lie before, of those that none was trimmed from."""
    upto = base_of(engine, "s")[1]
    ats = [row.at for row in rows_of(engine) if row.seq > upto]
    return ats[int(share * len(ats))]


def rows_of(engine):
    return list(engine.store.rows(space=1))


@pytest.mark.parametrize("kind", CONFIGS)
def test_base_and_rest_are_the_live_state_bit_for_bit(engine, clock, kind):
    engine.create("s", CONFIGS[kind])
    traffic(engine, clock, "s", 120, seed=1)
    whole = rows_of(engine)
    live = engine.space("s").state.digest()
    for share in (0.3, 0.6, 0.4):
        before = cut(engine, share)
        found = trim(engine, before)
        assert found.rows > 0
        left = rows_of(engine)
        assert from_base(engine, "s").digest() == live
        base, upto = base_of(engine, "s")
        assert upto == base.seq == found.seq
        assert {row.seq for row in left if row.seq <= upto and row.kind > Kind.BUILT} == base.kept
        waiting = state_of(base).pending
        assert {row.key for row in left if row.seq in base.kept} == waiting.keys()
        assert [row for row in whole if row.seq > upto] == [r for r in left if r.seq > upto]
        assert max(r.at for r in whole if r.seq <= upto) < before
    traffic(engine, clock, "s", 40, seed=2)
    trim(engine, cut(engine, 0.5))
    assert from_base(engine, "s").digest() == engine.space("s").state.digest()


def test_nothing_goes_that_is_not_old(engine, clock):
    engine.create("s", CONFIGS["score test"])
    traffic(engine, clock, "s", 20, seed=1)
    before = rows_of(engine)
    assert trim(engine, before[0].at) == Trimmed(0, 0, 0.0, False, [])
    assert rows_of(engine) == before
    assert base_of(engine, "s") == (None, 0)


def test_the_last_row_stays_for_numbers_go_on_from_it(engine, clock):
    engine.create("s", CONFIGS["score test"])
    traffic(engine, clock, "s", 20, seed=1)
    last = rows_of(engine)[-1]
    trim(engine, last.at + 1)
    assert rows_of(engine)[-1] == last
    assert trim(engine, last.at + 1).rows == 0
    assert from_base(engine, "s").digest() == engine.space("s").state.digest()


def test_work_is_done_in_parts(engine, clock):
    engine.create("s", CONFIGS["score test"])
    traffic(engine, clock, "s", 50, seed=1)
    before, calls = cut(engine, 0.8), 1
    while (found := trim(engine, before, most=17)).more:
        calls += 1
        assert from_base(engine, "s").digest() == engine.space("s").state.digest()
    assert calls > 3
    assert found.seq == max(r.seq for r in rows_of(engine) if r.at < before)


def test_spaces_are_trimmed_together_and_retired_ones_go(engine, clock):
    for name in ("s", "t", "gone"):
        engine.create(name, CONFIGS["score test"])
        traffic(engine, clock, name, 20, seed=len(name))
    traffic(engine, clock, "s", 20, seed=7)
    engine.retire("gone")
    engine.store.flush()
    trim(engine, engine.now())
    for name in ("s", "t"):
        assert from_base(engine, name).digest() == engine.space(name).state.digest()
    kinds = {row.kind for row in engine.store.rows(space=3)}
    assert max(kinds) <= Kind.BUILT
    engine.create("new", CONFIGS["score test"])
    traffic(engine, clock, "new", 10, seed=8)
    assert base_of(engine, "new")[0] is None
    assert from_base(engine, "new").digest() == engine.space("new").state.digest()


def test_what_waits_is_still_known_and_learnt(engine, clock):
    config = msgspec.structs.replace(
        CONFIGS["draws"],
        rewards=wire.RewardRules(wait_seconds=1000, combine="sum"),
    )
    engine.create("s", config)
    keys = [ask(engine, "s", decision_id=f"d{i}").decision_id for i in range(4)]
    engine.store.flush()
    reward(engine, "s", keys[0], 0.25)
    clock.now += 500 * SECOND
    ask(engine, "s")
    engine.store.flush()
    assert trim(engine, engine.now()).rows == 1  # the reward: it is in the base
    assert [r.key for r in rows_of(engine) if r.kind == Kind.DECISION][:4] == keys
    again = ask(engine, "s", decision_id="d2")
    assert again.decision_id == "d2"
    engine.store.flush()
    assert len([r for r in rows_of(engine) if r.kind == Kind.DECISION]) == 5  # it was no new one
    reward(engine, "s", keys[0], 0.5)
    clock.now += 501 * SECOND
    engine.tick()
    engine.store.flush()
    assert from_base(engine, "s").digest() == engine.space("s").state.digest()
    last = ask(engine, "s").decision_id
    engine.store.flush()
    trim(engine, engine.now() + 1)
    left = [r.key for r in rows_of(engine) if r.kind == Kind.DECISION]
    assert left[-1] == last
    assert not set(left) & set(keys)


def test_other_parameters_learn_from_what_is_kept(engine, clock):
    engine.create("s", CONFIGS["hybrid"])
    traffic(engine, clock, "s", 60, seed=1)
    trim(engine, cut(engine, 0.5))
    base, _ = base_of(engine, "s")
    other = msgspec.structs.replace(CONFIGS["hybrid"], params={"alpha": 0.3})
    held = from_base(engine, "s", other, 2)
    assert 0 < held.policy.step < engine.space("s").state.policy.step
    assert held.skipped == 0  # arms are known by the features that they were told with before
    assert set(engine.space("s").state.policy.arms) <= set(held.policy.arms) | {
        arm.id for arm in base.body.arms
    }
    # and what is in force then is what later bases go on from
    engine.change("s", other)
    engine.store.flush()
    assert trim(engine, engine.now()).waits_for == ["s"]
    engine.swap("s", Rebuilt(1, from_base(engine, "s", other, 2), []))
    traffic(engine, clock, "s", 30, seed=2)
    live = engine.space("s").state.digest()
    assert from_base(engine, "s").digest() == live
    trim(engine, cut(engine, 0.6))
    after = base_of(engine, "s")[0]
    assert after.version == 2
    assert after.body.since == base.body.at
    assert from_base(engine, "s").digest() == live


def test_a_version_that_cannot_be_built_is_not_waited_for(engine, clock):
    engine.create("s", CONFIGS["score test"])
    traffic(engine, clock, "s", 20, seed=1)
    engine.change("s", msgspec.structs.replace(CONFIGS["score test"], params={"alpha": 0.3}))
    engine.store.flush()
    assert trim(engine, engine.now()).rows == 0
    assert trim(engine, engine.now(), given_up={1: 2}).rows > 0


def test_an_altered_base_is_no_truth(engine, clock):
    engine.create("s", CONFIGS["score test"])
    traffic(engine, clock, "s", 20, seed=1)
    trim(engine, engine.now())
    with contextlib.closing(sqlite3.connect(engine.store.path)) as connection, connection:
        connection.execute("UPDATE base_page SET data = zeroblob(length(data))")
    with pytest.raises(StoreError, match="seal"):
        base_of(engine, "s")


@pytest.mark.parametrize("at", range(1, 12))
def test_a_trim_that_is_cut_short_loses_nothing(engine, clock, at):
    engine.create("s", CONFIGS["hybrid"])
    traffic(engine, clock, "s", 40, seed=1)
    live = engine.space("s").state.digest()
    before = cut(engine, 0.7)
    trim(engine, cut(engine, 0.2))
    count = 0

    def stop(seconds):
        nonlocal count
        count += 1
        if count == at:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        trim_log(engine.store.path, before, pause=stop)
    assert from_base(engine, "s").digest() == live
    trim(engine, before)
    assert from_base(engine, "s").digest() == live
    base, upto = base_of(engine, "s")
    assert {r.seq for r in rows_of(engine) if r.seq <= upto and r.kind > Kind.BUILT} == base.kept
    assert engine.store.query("SELECT DISTINCT seq FROM base_page") == [(upto,)]


def test_the_log_is_held_for_moments_only(engine, clock):
    config = wire.SpaceConfig(policy="linucb-disjoint", context=wire.Features(size=30))
    engine.create("s", config)
    for first in range(0, 2000, 500):  # 8 MB of models
        ask(engine, "s", [f"i{a}" for a in range(first, first + 500)])
        engine.store.flush()
    traffic(engine, clock, "s", 300, seed=1)
    done, waits = [], []
    thread = threading.Thread(target=lambda: done.append(trim_log(engine.store.path, engine.now())))
    thread.start()
    while thread.is_alive():
        start = time.perf_counter()
        ask(engine, "s", ["i7"])
        engine.store.flush()
        waits.append(time.perf_counter() - start)
    thread.join()
    assert done[0].rows > 300
    assert done[0].longest_lock < 0.1  # on a machine with nothing else to do, a few milliseconds
    assert max(waits) < 0.5
    assert from_base(engine, "s").digest() == engine.space("s").state.digest()


@pytest.mark.parametrize("kind", ["score test", "draws", "hybrid"])
def test_an_export_has_what_is_left(engine, clock, tmp_path, kind):
    data = engine.store.path.parent
    engine.create("s", CONFIGS[kind])
    traffic(engine, clock, "s", 100, seed=1)
    with History(data, "s") as history:
        whole = {d.row.key: d for d in history.decisions(tmp_path)}
    (tmp_path / "outcomes.db").unlink()
    trim(engine, cut(engine, 0.5))
    base, upto = base_of(engine, "s")
    with History(data, "s") as history:
        left = {d.row.key: d for d in history.decisions(tmp_path)}
    wanted = [k for k, d in whole.items() if remains(d.row.seq, upto, base)]
    assert list(left) == wanted
    for key in wanted:
        a, b = whole[key], left[key]
        assert (a.row, a.state, a.reward, a.reward_at) == (b.row, b.state, b.reward, b.reward_at)
        assert a.x.tolist() == b.x.tolist()
        if a.features is not None:
            assert [y.tolist() for y in a.features] == [y.tolist() for y in b.features]
    assert whim.logs.open(export(data, "s", tmp_path / "s.whim", format="log")["out"]).n_events > 0


def test_without_a_base_all_begins_with_nothing_learnt(engine, clock):
    engine.create("s", CONFIGS["score test"])
    traffic(engine, clock, "s", 20, seed=1)
    assert (
        begin(None, CONFIGS["score test"], 1).digest() == SpaceState(CONFIGS["score test"]).digest()
    )
    assert from_base(engine, "s").digest() == folded(engine, "s").digest()


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("snapshot", [False, True])
def test_a_restart_goes_on_from_the_base(tmp_path, clock, kind, snapshot):
    data = tmp_path / "data"
    engine = Engine(data, clock=clock)
    engine.create("s", CONFIGS[kind])
    traffic(engine, clock, "s", 30, seed=1)
    if snapshot:
        engine.snapshot("s")  # older than the base will be
    traffic(engine, clock, "s", 60, seed=2)
    trim(engine, cut(engine, 0.7))
    live = engine.space("s").state.digest()
    engine.close()
    again = Engine(data, clock=clock)
    assert again.space("s").state.digest() == live
    traffic(again, clock, "s", 20, seed=3)
    again.snapshot("s")
    trim(again, cut(again, 0.5))
    again.change("s", msgspec.structs.replace(CONFIGS[kind], explore=0.5))
    again.swap("s", rebuilt(again, "s"))
    again.store.flush()
    live = again.space("s").state.digest()
    again.close()
    last = Engine(data, clock=clock)
    assert last.space("s").state.version == 2
    assert last.space("s").state.digest() == live
    last.close()
