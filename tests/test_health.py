"""The service knows when it is not well: commits that hang, queues, clocks, rows, shutdowns."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import json
import os
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clocks import Clock
from tests.crashes import SPACE, Service, children
from tests.in_process import running
from whim.serve.http.service import Service as LiveService
from whim.serve.jobs.background import Background
from whim.serve.jobs.worker import Task, WorkerDiedError, WorkerError
from whim.serve.log.rows import Row
from whim.serve.log.store import (
    Commit,
    CommitLimits,
    QueueFullError,
    Store,
    StoreError,
    pack_changes,
)
from whim.serve.logging import set_up
from whim.serve.server import _loop, drain_seconds
from whim.serve.settings import Settings
from whim.serve.state import recovery
from whim.serve.state.clock import SteadyClock
from whim.serve.state.engine import Engine
from whim.serve.wire import DecisionBody, Features, SpaceConfig

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs signals of Linux")
PATH = f"/v1/spaces/{SPACE}"
SECOND = 10**9


def wait_for(ready: Callable[[], Any], seconds: float = 30) -> Any:
    until = time.monotonic() + seconds
    while not (found := ready()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


def decision(key: str) -> dict[str, Any]:
    return {"decision_id": key, "context": [1.0], "candidates": ["a", "b"]}


def filled(data: Path, rows: int, clock: Callable[[], int] = time.time_ns) -> None:
    """A log of one space, with a snapshot of all its rows."""
    engine = Engine(data, clock=clock)
    engine.create(SPACE, SpaceConfig(policy="ucb"))
    for i in range(rows):
        body = DecisionBody(candidates=["a", "b"], context=[1.0], decision_id=f"d{i}")
        engine.decide(SPACE, body, b"{}")
    engine.store.flush()
    engine.snapshot(SPACE)
    engine.close()


@contextlib.asynccontextmanager
async def served(
    data: Path, clock: Callable[[], int] = time.time_ns, **settings: Any
) -> AsyncIterator[tuple[LiveService, httpx.AsyncClient]]:
    """A service with a space, in this process, and a client of it."""
    if not data.exists():
        filled(data, 0, clock)
    settings = {"demo": False, "personalizer_space": SPACE, **settings}
    async with running(Settings(data=str(data), **settings), clock) as both:
        yield both


def run(work: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=_loop()) as runner:
        runner.run(work())


def process(tmp_path: Path, **settings: Any) -> Service:
    """A service as a process of its own, with one space."""
    path = tmp_path / "whim.toml"
    if not (tmp_path / "data").exists():
        filled(tmp_path / "data", 0)
    settings = {"demo": False, "personalizer_space": SPACE, **settings}
    path.write_text("".join(f"{name} = {json.dumps(v)}\n" for name, v in settings.items()))
    made = Service(tmp_path / "data", "--config", str(path))
    try:
        made.wait()
    except BaseException:
        made.stop(signal.SIGKILL)
        raise
    return made


# -- commits that do not end ------------------------------------------------------------------


@LINUX
@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_commit_that_does_not_end_in_time_fails_the_log(tmp_path: Path, size: int) -> None:
    commits: list[Commit] = []
    store = Store(tmp_path / "log.db", commits.append, CommitLimits(0.5))

    async def work() -> None:
        store.attach(asyncio.get_running_loop())
        os.kill(store.writer, signal.SIGSTOP)
        store.append([Row(1, 1, 1, 1, None, b"x" * size)], ["first"])
        longest, end = 0.0, time.monotonic() + 5
        while not commits and time.monotonic() < end:  # nobody else is made to wait
            began = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - began)
            store.append([Row(2, 1, 1, 1, None, b"x")], [])
        assert longest < 0.3
        assert [commit.tokens for commit in commits] == [["first"]]
        assert "took longer than 0.5 s" in str(commits[0].error)
        store.append([Row(9, 1, 1, 1, None, b"x")], ["second"])
        await asyncio.sleep(0.01)
        assert isinstance(commits[-1].error, StoreError)
        with pytest.raises(StoreError):
            store.detach()

    run(work)
    began = time.monotonic()
    store.close()
    assert time.monotonic() - began < 1.0


@LINUX
def test_a_commit_that_is_slow_but_ends_in_time_is_no_failure(tmp_path: Path) -> None:
    commits: list[Commit] = []
    store = Store(tmp_path / "log.db", commits.append, CommitLimits(0.8))
    body = b"x" * 3_000_000

    async def work() -> None:
        store.attach(asyncio.get_running_loop())
        os.kill(store.writer, signal.SIGSTOP)
        store.append([Row(1, 1, 1, 1, None, body)], ["first"])
        await asyncio.sleep(0.2)
        os.kill(store.writer, signal.SIGCONT)
        time.sleep(1.2)  # a loop that stands still is not the writer's fault
        while not commits:
            await asyncio.sleep(0.01)
        store.detach()

    run(work)
    assert commits[0].error is None
    assert [row.body for row in store.rows()] == [body]
    store.close()


@LINUX
def test_a_service_whose_writer_is_stopped_says_so_and_ends(tmp_path: Path) -> None:
    with process(tmp_path, commit_seconds=0.8) as made:
        assert made.ask("POST", f"{PATH}/decisions", decision("one"))[0] == 200
        (writer,) = children(made, "log_writer")
        os.kill(writer, signal.SIGSTOP)
        began = time.monotonic()
        status, found = made.ask("POST", f"{PATH}/decisions", decision("two"))
        assert (status, found["error"]["code"]) == (503, "store_failed")
        assert 0.7 < time.monotonic() - began < 4
        status, found = made.ask("GET", "/healthz")
        assert (status, found["status"]) == (503, "failed")
        assert "a commit took longer than 0.8 s" in found["reason"]
        assert made.ask("GET", PATH)[0] == 200
        assert b"whim_store_failed 1.0" in made.ask("GET", "/metrics")[1]
        began = time.monotonic()
        made.stop()
        assert time.monotonic() - began < 5
        assert "Traceback" not in "".join(made.said)
    again = Engine(tmp_path / "data")
    assert again.store.decision(1, "one") is not None
    again.close()


@LINUX
def test_a_shutdown_ends_in_time_and_answers_those_who_wait(tmp_path: Path) -> None:
    with process(tmp_path, commit_seconds=300, shutdown_seconds=2, drain_seconds=60) as made:
        (writer,) = children(made, "log_writer")
        os.kill(writer, signal.SIGSTOP)
        answers: list[Any] = []

        def ask() -> None:
            answers.append(made.ask("POST", f"{PATH}/decisions", decision("one")))

        waiting = threading.Thread(target=ask)
        waiting.start()
        half = socket.create_connection(("127.0.0.1", made.port))
        half.sendall(
            f"POST {PATH}/decisions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{{"
            .encode()
        )  # fmt: skip
        time.sleep(0.3)
        made.process.send_signal(signal.SIGTERM)
        wait_for(lambda: made.ask("GET", "/readyz")[0] == 503)
        began = time.monotonic()
        code = made.stop()  # a second signal ends the drain
        assert time.monotonic() - began < 6
        waiting.join(5)
        assert code == 0
        assert answers[0][0] == 503
        assert answers[0][1]["error"]["code"] == "store_failed"
        reply = http.client.HTTPResponse(half)
        reply.begin()
        assert reply.status == 503
        assert json.loads(reply.read())["error"]["code"] == "stopping"
        half.close()
        assert "Traceback" not in "".join(made.said)


@LINUX
def test_the_queue_of_the_log_is_bounded(tmp_path: Path) -> None:
    async def work() -> None:
        async with served(tmp_path / "data", queue_bytes=1 << 16) as (service, client):
            os.kill(service.engine.store.writer, signal.SIGSTOP)
            waiting = []
            for i in range(400):
                ask = client.post(f"{PATH}/decisions", json=decision(f"d{i}"))
                waiting.append(asyncio.ensure_future(ask))
                await asyncio.sleep(0)
            while service.engine.store.queued_bytes < 1 << 16:
                await asyncio.sleep(0.01)
            with pytest.raises(QueueFullError):
                service.engine.create("more", SpaceConfig())
            assert (await client.get("/healthz")).status_code == 200
            refused = await client.post(f"{PATH}/decisions", json=decision("more"))
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "queue_full"
            assert refused.headers["retry-after"] == "1"
            os.kill(service.engine.store.writer, signal.SIGCONT)
            codes = {answer.status_code for answer in await asyncio.gather(*waiting)}
            assert codes == {200, 503}
            taken = await client.post(f"{PATH}/decisions", json=decision("more"))
            assert taken.status_code == 200
            assert service.engine.store.queued_bytes == 0

    run(work)


# -- clocks -----------------------------------------------------------------------------------


def test_a_clock_does_not_follow_a_jump_forward() -> None:
    wall, elapsed = Clock(1_800_000_000 * SECOND), Clock(50 * SECOND)
    clock = SteadyClock(0, wall, jump=60, elapsed=elapsed)
    start = clock()
    assert (start, clock.view.held) == (1_800_000_000 * 10**6, False)
    wall.now += 60 * SECOND  # what is within the limit is followed
    assert clock() == start + 60 * 10**6
    wall.now += 365 * 86_400 * SECOND
    for _ in range(1000):  # on its own pace
        wall.now += 1_500
        elapsed.now += 1_500
        clock()
    assert clock() == start + 60 * 10**6 + 1500
    assert clock.view.held
    assert clock.view.jumps == 1
    assert clock.view.ahead == pytest.approx(-365 * 86_400, abs=1)
    wall.now -= 365 * 86_400 * SECOND
    wall.now += SECOND
    elapsed.now += SECOND
    assert clock() == pytest.approx(start + 61 * 10**6, abs=2000)
    assert not clock.view.held
    wall.now += 3600 * SECOND  # an hour in which nobody asked is no jump
    elapsed.now += 3600 * SECOND
    assert clock() == wall.now // 1000
    assert clock.view.jumps == 1


def test_a_clock_behind_the_last_row_is_held() -> None:
    wall, elapsed = Clock(1_800_000_000 * SECOND), Clock(0)
    last = (1_800_000_000 + 86_400) * 10**6
    clock = SteadyClock(last, wall, jump=60, elapsed=elapsed)
    assert clock() == last
    assert clock.view.held
    assert clock.view.ahead == 86_400
    wall.now += 86_401 * SECOND
    elapsed.now += 86_401 * SECOND
    assert clock() == last + 10**6
    assert not clock.view.held


def test_a_year_ahead_for_a_moment_ends_no_wait_and_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(Settings())
    clock = Clock(1_800_000_000 * SECOND)

    async def work() -> None:
        async with served(tmp_path / "data", clock) as (_, client):
            answer = await client.post(f"{PATH}/decisions", json=decision("one"))
            assert answer.status_code == 200
            assert "clock" not in (await client.get("/healthz")).json()
            clock.now += 365 * 86_400 * SECOND
            await asyncio.sleep(0.6)
            answer = await client.post(f"{PATH}/decisions", json=decision("two"))
            assert answer.status_code == 200
            health = await client.get("/healthz")
            assert health.status_code == 200
            assert "jumped forward" in health.json()["clock"]["reason"]
            assert health.json()["clock"]["ahead_seconds"] < -364 * 86_400
            scraped = (await client.get("/metrics")).text
            assert "whim_clock_held 1.0" in scraped
            assert "whim_clock_jumps_total 1.0" in scraped
            assert "whim_clock_ahead_seconds -3153" in scraped
            clock.now -= 365 * 86_400 * SECOND
            await asyncio.sleep(0.6)
            assert "clock" not in (await client.get("/healthz")).json()
            assert "whim_clock_held 0.0" in (await client.get("/metrics")).text
            reward = {"decision_id": "one", "value": 1.0}
            learnt = await client.post(f"{PATH}/rewards", json=reward)
            assert learnt.json()["state"] == "learnt"  # its wait has not ended

    run(work)
    said = capsys.readouterr().err
    assert "the clock is held" in said
    assert "the clock follows the system's again" in said


# -- damage before the last snapshot ----------------------------------------------------------


@pytest.mark.parametrize("damage", ["altered", "deleted", "none"])
def test_damage_before_the_last_snapshot_is_found(tmp_path: Path, damage: str) -> None:
    data = tmp_path / "data"
    filled(data, 200)
    with contextlib.closing(sqlite3.connect(data / "log.db")) as log, log:
        if damage == "altered":
            log.execute("UPDATE log SET at = at + 1 WHERE seq = 50")
        elif damage == "deleted":
            log.execute("DELETE FROM log WHERE seq = 50")

    async def work() -> None:
        async with served(data) as (_, client):
            first = (await client.get("/healthz")).json()["check"]
            assert first["state"] == "running"
            assert 0 <= first["progress"] < 1
            scraped = (await client.get("/metrics")).text
            assert "whim_log_check_progress 1.0" not in scraped
            running = {"state": "running"}
            while (health := await client.get("/healthz")).json().get("check", {}).items() >= (
                running.items()
            ):
                await asyncio.sleep(0.02)
            assert "whim_log_check_progress 1.0" in (await client.get("/metrics")).text
            answer = await client.post(f"{PATH}/decisions", json=decision("new"))
            if damage == "none":
                assert health.json() == {"status": "ok"}
                assert (health.status_code, answer.status_code) == (200, 200)
                return
            assert health.json()["check"]["state"] == "damaged"
            assert health.status_code == 503
            named = "row 50" if damage == "altered" else "got 51 after 49"
            assert named in health.json()["reason"]
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "store_failed"
            assert (await client.get(PATH)).status_code == 200

    run(work)


# -- shutdowns --------------------------------------------------------------------------------


@LINUX
def test_readiness_goes_before_the_listener(tmp_path: Path) -> None:
    with process(tmp_path, drain_seconds=0.8) as made:
        began = time.monotonic()
        made.process.send_signal(signal.SIGTERM)
        status, found = wait_for(
            lambda: made.ask("GET", "/readyz")[0] == 503 and made.ask("GET", "/readyz")
        )
        assert (status, found["status"]) == (503, "stopping")
        assert made.ask("GET", "/healthz")[0] == 200
        assert made.ask("POST", f"{PATH}/decisions", decision("one"))[0] == 200
        assert made.stop(signal.SIGCONT) == 0  # no second signal to end
        assert time.monotonic() - began > 0.8


def test_the_drain_is_for_those_who_come_from_elsewhere() -> None:
    assert drain_seconds(Settings()) == 0.0
    assert drain_seconds(Settings(host="0.0.0.0")) == 5.0
    assert drain_seconds(Settings(host="0.0.0.0", drain_seconds=1.5)) == 1.5


# -- totals -----------------------------------------------------------------------------------


def _shown(scraped: str) -> float:
    """All decisions of the space, in the form in which they are scraped."""
    rows = [row for row in scraped.splitlines() if row.startswith("whim_decisions_total{")]
    return sum(float(row.rpartition(" ")[2]) for row in rows)


def _decided(engine: Engine) -> int:
    return sum(n for name, n in engine.totals[SPACE].items() if name.startswith("decisions_"))


def test_totals_never_fall(tmp_path: Path) -> None:
    clock = Clock(1_800_000_000 * SECOND)
    filled(tmp_path / "data", 30, clock)
    engine = Engine(tmp_path / "data", clock=clock)
    # contexts of another length: no decision so far fits
    engine.change(SPACE, SpaceConfig(policy="ucb", context=Features(size=2)))
    engine.store.flush()
    number, wanted = engine.wanted(SPACE)
    state, changes = recovery.rebuild(engine.store, number, wanted)
    engine.swap(SPACE, recovery.Rebuilt(number, state, pack_changes(number, 2, changes)))
    assert engine.space(SPACE).state.stats.counts["decisions"] == 0
    assert _decided(engine) == 30
    engine.close()
    engine = Engine(tmp_path / "data", clock=clock)  # a restart
    body = DecisionBody(candidates=["a"], context=[1.0, 2.0], decision_id="more")
    engine.decide(SPACE, body, b"{}")
    assert _decided(engine) == 31
    engine.retire(SPACE)
    engine.create(SPACE, SpaceConfig(policy="ucb"))
    assert _decided(engine) == 31
    engine.close()
    engine = Engine(tmp_path / "data", clock=clock)
    assert _decided(engine) == 31
    engine.close()


@LINUX
def test_totals_that_are_not_safe_are_not_shown(tmp_path: Path) -> None:
    async def work() -> None:
        async with served(tmp_path / "data") as (service, client):
            await client.post(f"{PATH}/decisions", json=decision("one"))
            assert _shown((await client.get("/metrics")).text) == 1
            os.kill(service.engine.store.writer, signal.SIGSTOP)
            waiting = asyncio.ensure_future(client.post(f"{PATH}/decisions", json=decision("two")))
            await asyncio.sleep(0.05)
            assert _decided(service.engine) == 2  # a crash would lose one of them
            assert _shown((await client.get("/metrics")).text) == 1
            os.kill(service.engine.store.writer, signal.SIGCONT)
            assert (await waiting).status_code == 200
            assert _shown((await client.get("/metrics")).text) == 2

    run(work)


# -- workers ----------------------------------------------------------------------------------


class _Jobs(Background):
    """Without workers: each task is answered by what a test gives."""

    def __init__(self, engine: Engine, answers: list[Any]) -> None:
        self.answers, self.done = answers, []  # type: ignore[var-annotated]

        async def commit(act: Callable[[Any], Any]) -> Any:
            result = act(None)
            engine.store.flush()
            return result

        super().__init__(
            engine, commit=commit, spawn=asyncio.ensure_future, on_snapshot=lambda name: None
        )
        run = functools.partial(self._run_alone, engine.data)
        self._workers[engine.data].run = run  # type: ignore[method-assign]

    async def _run_alone(self, data: Path, task: Task, progress: Any = None) -> Any:
        self.done.append(task.do)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer, []


async def _no_wait(seconds: float, _sleep: Any = asyncio.sleep) -> None:
    await _sleep(0)


def test_a_task_whose_worker_dies_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "data", 0)
    engine = Engine(tmp_path / "data")
    monkeypatch.setattr("whim.serve.jobs.background.asyncio.sleep", _no_wait)

    async def work() -> None:
        died = WorkerDiedError("the worker ended.")
        jobs = _Jobs(engine, [died, died, None])
        await jobs.verify()
        assert jobs.done == ["verify"] * 3
        assert jobs.check.state == "done"
        jobs = _Jobs(engine, [died] * 9)  # not for ever
        await jobs.verify()
        assert jobs.done == ["verify"] * 5
        assert jobs.check.state == "broken off"
        engine.change(SPACE, SpaceConfig(policy="ucb", explore=0.5))
        jobs = _Jobs(engine, [died, WorkerError("it does not fit.")])
        await jobs._rebuild(SPACE)
        assert jobs.done == ["rebuild"] * 2
        assert engine.info(SPACE).failed == "it does not fit."  # what it says is final

    run(work)
    engine.close()


def test_retention_goes_on_when_the_rebuild_that_it_met_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "data", 0)
    engine = Engine(tmp_path / "data")
    slept: list[float] = []

    async def sleep(seconds: float, _sleep: Any = asyncio.sleep) -> None:
        slept.append(seconds)
        await _sleep(3600 if seconds > 100 else 0)

    monkeypatch.setattr("whim.serve.jobs.background.asyncio.sleep", sleep)

    async def work() -> None:
        trimmed = {"rows": 0, "more": False, "waits_for": []}
        died = WorkerDiedError("the worker ended.")
        answers = [{**trimmed, "waits_for": [SPACE]}, died, trimmed]
        jobs = _Jobs(engine, answers)
        await jobs._one_rebuild.acquire()
        task = asyncio.ensure_future(jobs.keep_trimmed(1.0))
        await asyncio.wait([task], timeout=0.1)
        assert jobs.done == ["trim"]  # it waits for the rebuild
        jobs._one_rebuild.release()
        await asyncio.wait([task], timeout=0.1)
        assert jobs.done == ["trim"] * 3
        assert slept == [1.0, 1.0, 3600.0]
        task.cancel()

    run(work)
    engine.close()
