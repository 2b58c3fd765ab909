"""Decisions that are asked for together, the filter of their ids, and the process that writes."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import uvloop

from tests.clocks import Clock
from tests.test_engine import ANSWER, CONFIGS, SECOND, clock, engine, folded, reward
from whim.serve import wire
from whim.serve.log import log_writer
from whim.serve.log.ids import Ids
from whim.serve.log.reader import StoreError
from whim.serve.log.rows import Row
from whim.serve.log.store import Store
from whim.serve.state.engine import Engine
from whim.serve.state.space import ConflictError, DecisionRequest

__all__ = ["clock", "engine"]  # fixtures


def bodies(config, n, seed):
    rng = np.random.default_rng(seed)
    for i in range(n):
        arms = [f"i{a}" for a in rng.choice(8 + i // 4, 5, replace=False)]
        candidates = arms
        if config.items.size or i % 3 == 0:
            features = config.items.size
            candidates = [
                wire.Candidate(a, rng.normal(size=2).tolist() if features else None) for a in arms
            ]
        context = rng.normal(size=config.context.size).tolist()
        yield wire.DecisionBody(candidates=candidates, context=context, decision_id=f"{seed}-{i}")


@pytest.mark.parametrize("kind", CONFIGS)
def test_many_at_once_are_as_one_after_the_other(tmp_path, kind):
    together, alone = (
        Engine(tmp_path / name, clock=Clock(1_700_000_000 * SECOND)) for name in ("a", "b")
    )
    for made in (together, alone):
        made.create("s", CONFIGS[kind])
    for turn in range(6):
        asked = [DecisionRequest.of(body) for body in bodies(CONFIGS[kind], 20, turn)]
        together.decide_many("s", asked)
        for one, body in zip(asked, bodies(CONFIGS[kind], 20, turn), strict=True):
            assert one.error is None
            assert one.answer == alone.decide("s", body, one.raw)
        for made in (together, alone):
            for i in range(0, 20, 3):
                reward(made, "s", f"{turn}-{i}", float(i % 2))
    for made in (together, alone):
        made.store.flush()
    assert [*together.store.rows()] == [*alone.store.rows()]
    assert together.space("s").state.digest() == alone.space("s").state.digest()
    assert folded(together, "s").digest() == together.space("s").state.digest()
    together.close()
    alone.close()


def test_each_of_many_has_its_own_error_and_repeats_are_seen_among_them(engine):
    engine.create("s", CONFIGS["score test"])

    def body(key, candidates=("a", "b"), context=(0.5, 0.5, 0.5)):
        return wire.DecisionBody(
            candidates=list(candidates), context=list(context), decision_id=key
        )

    told = []
    engine.store._on_commit = lambda commit: told.extend(commit.tokens)
    given = [
        body("1"), body("2", context=[1.0]), body("1"), body("3", ["a", "a"]), body("1", ["a"]),
        body(None), body(None), body("2"), body("\ud800"), body("4", ["new", "newer"]),
    ]  # fmt: skip
    asked = [DecisionRequest(b, repr(b).encode(errors="replace"), i) for i, b in enumerate(given)]
    engine.decide_many("s", asked)
    engine.store.flush()
    assert asked[0].answer == asked[2].answer
    said = {i: str(one.error) for i, one in enumerate(asked) if one.error is not None}
    assert said.keys() == {1, 3, 4, 8}
    assert "$.context must be a list of 3" in said[1]
    assert "$.candidates[1] must not repeat" in said[3]
    assert isinstance(asked[4].error, ConflictError)
    assert "$.decision_id must be text" in said[8]
    assert sorted(told) == [0, 2, 5, 6, 7, 9]
    rows = [row for row in engine.store.rows() if row.kind == 3]
    assert [row.seq for row in rows] == [2, 3, 4, 5, 6]
    keys = [ANSWER.decode(asked[i].answer).decision_id for i in (0, 5, 6, 7, 9)]
    assert [row.key for row in rows] == keys
    assert folded(engine, "s").digest() == engine.space("s").state.digest()
    again = [DecisionRequest(one.body, one.raw) for one in asked[:3]]
    engine.decide_many("s", again)  # from the log
    assert again[0].answer == asked[0].answer


def test_a_decision_that_failed_leaves_nothing_behind(engine):
    engine.create("s", CONFIGS["draws"])
    before = engine.space("s").state.digest()
    odd = wire.DecisionBody(candidates=["a", 2**63 - 1, "\ud800"], context=[0.1, 0.2])
    large = wire.DecisionBody(candidates=["a"], context=[0.1, 0.2], decision_id="\ud800")
    for body in (odd, large):
        one = DecisionRequest(body)
        engine.decide_many("s", [one])
        assert "must be text and numbers that can be logged" in str(one.error)
    assert engine.space("s").state.digest() == before
    assert engine.store.last_seq == 0


def test_the_filter_forgets_no_id_and_is_seldom_wrong():
    ids, loaded = Ids(), Ids()
    for filter_ in (ids, loaded):
        filter_._at = None  # as after all old ids were learnt
    known = [(1 + i % 2, f"id-{i}") for i in range(20_000)]
    assert sum(ids.add(*one) for one in known) < 20
    assert all(ids.may_have(*one) for one in known)
    assert all(ids.add(*one) for one in known)
    loaded._add_all(known)
    assert loaded._bytes == ids._bytes
    assert sum(ids.may_have(3, f"id-{i}") for i in range(20_000)) < 20


def test_before_all_old_ids_are_known_every_id_may_be_there():
    ids = Ids()
    assert ids.may_have(1, "a")
    assert ids.add(1, "a")


# -- the process that writes ------------------------------------------------------------------


def rows(first, n, size=10):
    return [Row(i, i, 1, 4, None, os.urandom(size)) for i in range(first, first + n)]


def test_what_is_appended_is_read_in_its_order_whatever_its_size(tmp_path):
    told = []
    store = Store(tmp_path / "log.db", lambda commit: told.append((commit.tokens, commit.error)))
    given = [rows(1, 3), rows(4, 2500), rows(2504, 5, 3_000_000), rows(2509, 1)]
    for i, some in enumerate(given):
        store.append(some, [i])
    store.flush()
    assert [t for tokens, _ in told for t in tokens] == [0, 1, 2, 3]
    assert {error for _, error in told} == {None}
    assert [*store.rows()] == [row for some in given for row in some]
    assert store.committed == 2509
    assert not store._in_flight
    store.close()
    again = Store(tmp_path / "log.db")
    assert again.last_seq == 2509
    again.close()


def test_a_row_that_cannot_be_written_is_the_end_and_is_said_to_all_who_wait(tmp_path):
    told = []
    store = Store(
        tmp_path / "log.db", lambda commit: told.append((commit.tokens, str(commit.error)))
    )
    store.append(rows(1, 1), ["first"])
    store.flush()
    store.append(rows(1, 1), ["twice"])  # a number that is taken
    store.append(rows(2, 1), ["after"])
    with pytest.raises(StoreError, match="cannot be written: UNIQUE"):
        store.flush()
    assert [tokens for tokens, _ in told] == [["first"], ["twice"], ["after"]]
    assert all("UNIQUE" in said for _, said in told[1:])
    assert store.committed == 1
    store.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_on_an_event_loop_neither_much_nor_slow_writing_is_taken_for_a_failure(tmp_path, loop):
    told = []
    store = Store(tmp_path / "log.db", lambda commit: told.append((commit.tokens, commit.error)))

    async def work():
        store.attach(asyncio.get_running_loop())
        store.append(rows(1, 3, 3_000_000), ["much"])
        await asyncio.sleep(0)
        store.flush()
        os.kill(store.writer, signal.SIGSTOP)
        awake = threading.Timer(0.5, os.kill, (store.writer, signal.SIGCONT))
        awake.start()
        store.append(rows(4, 3, 3_000_000), ["slow"])
        store.flush()
        awake.join()
        store.append(rows(7, 1), ["by itself"])
        while len(told) < 3:
            await asyncio.sleep(0.01)
        store.detach()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(work(), 60))
    assert told == [(["much"], None), (["slow"], None), (["by itself"], None)]
    assert store.last() == (7, 7)
    store.close()


def test_a_new_writer_waits_for_the_last_one_to_end(tmp_path):
    first = Store(tmp_path / "log.db")
    os.kill(first.writer, signal.SIGSTOP)
    first.append(rows(1, 400), [])  # which it will commit when it can
    first._link.close()  # as if the service had been killed
    begin = subprocess.Popen(
        [sys.executable, "-c",
         "import sys; from pathlib import Path; from whim.serve.log.store import Store; "
         "made = Store(Path(sys.argv[1])); print(made.last_seq); made.close()",
         str(tmp_path / "log.db")], stdout=subprocess.PIPE,
    )  # fmt: skip
    time.sleep(0.2)
    with pytest.raises(subprocess.TimeoutExpired):
        begin.wait(3)
    os.kill(first.writer, signal.SIGCONT)
    assert begin.communicate(timeout=60)[0].strip() == b"400"
    first._writer.wait(10)
    first._connection.close()


def test_the_writer_needs_nothing_of_whim():
    run = "import runpy, sys; runpy.run_path(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-P", "-X", "importtime", "-c", run, log_writer.__file__],
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "msgspec" in names
    assert not {name for name in names if name.partition(".")[0] in ("whim", "numpy", "numba")}


def test_what_a_long_reader_held_back_is_moved_beside_commits(tmp_path, monkeypatch):
    """A commit after a backup of minutes would have moved all of it first."""
    monkeypatch.setattr(log_writer, "_CHECKPOINT", 1)
    monkeypatch.setattr(log_writer, "_MUCH", 1 << 20)
    path = f"{(tmp_path / 'log.db').as_uri()}?mode=rwc"
    log = log_writer._open(path)
    checkpoints = log_writer.Checkpoints(log, path)

    def commit(n):
        first = log.execute("SELECT COALESCE(MAX(seq), 0) + 1 FROM log").fetchone()[0]
        log_writer._write(log, [(first + i, 1, 1, 4, None, b"x" * 2000) for i in range(n)], [])
        checkpoints.committed(2000 * n)

    def waiting():
        size = (tmp_path / "log.db-wal").stat().st_size
        _, pages, moved = log.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return pages - moved, size

    commit(10)
    assert (checkpoints.held_back, checkpoints.thread.ident) == (0, None)  # moved at once
    reader = sqlite3.connect(path, uri=True, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT COUNT(*) FROM log").fetchone()
    commit(1000)
    assert checkpoints.held_back > 1 << 20
    assert checkpoints.thread.ident is None
    reader.close()
    commit(10)
    assert checkpoints.thread.ident is not None  # it is moved there
    checkpoints.thread.join()
    assert checkpoints.held_back == 0
    assert waiting()[0] == 0
    size = waiting()[1]
    for _ in range(50):
        commit(10)
    assert waiting() == (0, size)  # it begins anew each time
    log.close()
