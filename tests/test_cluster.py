"""``spread`` over a real dask cluster: a scheduler and workers, each a process, over TCP."""

from __future__ import annotations

import functools
import importlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import spread_tasks
from tests.part_tables import MODES, cut, same_log, visits
from tests.spread_tasks import bits, calls, check_errors, environment, tasks, until
from whim.errors import WhimError
from whim.evaluate.spread import spread
from whim.logs import convert

spreading = importlib.import_module("whim.evaluate.spread")  # the name is its function's

distributed = pytest.importorskip("distributed")


class Cluster:
    """A scheduler and its workers on the loopback, on ports that are free."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self.file = folder / "scheduler.json"

    def start(self) -> None:
        host = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
        self._run("scheduler", *host, "--scheduler-file", str(self.file))
        until(self._written, "the scheduler listens")
        self.address = json.loads(self.file.read_text())["address"]

    def _written(self) -> bool:
        try:
            return bool(json.loads(self.file.read_text())["address"])
        except (OSError, ValueError):  # not there yet, or half of it
            return False

    def grow(self, size: int) -> None:
        """Start workers until ``size`` are alive, and wait until the scheduler knows them."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        for _ in range(size - len(self.workers)):
            self.workers.append(
                self._run(
                    *("worker", self.address, "--host", "127.0.0.1", "--nthreads", "1"),
                    *("--no-nanny", "--no-dashboard", "--local-directory", str(self.folder)),
                )
            )
        with distributed.Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(size, timeout=60)

    def _run(self, kind: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{kind}-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{kind}", *words],
                env=environment(),
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait(20)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    shared.grow(2)
    return shared


def test_two_workers_give_the_bits_of_one_process(cluster: Cluster) -> None:
    alone = bits(spread(spread_tasks.regret, tasks(n=8)))
    told: list[int] = []
    found = spread(
        spread_tasks.regret,
        tasks(n=8),
        engine="dask",
        address=cluster.address,
        progress=told.append,
    )
    assert bits(found) == alone
    assert told == list(range(1, 9))


def test_workers_convert_the_parts_of_a_log(cluster: Cluster, tmp_path: Path) -> None:
    files = cut(visits(200), [60, 60], tmp_path / "parts")
    engine = functools.partial(spread, engine="dask", address=cluster.address)
    made = convert(files, tmp_path / "a.whim", spread=engine, **MODES["seen"])
    same_log(made, convert(files, tmp_path / "b.whim", **MODES["seen"]))


def test_the_runs_of_a_killed_worker_are_done_again(cluster: Cluster, tmp_path: Path) -> None:
    alone = bits(spread(spread_tasks.regret, tasks(n=8)))
    todo = tasks(tmp_path / "marks", n=8, dies=3)
    store = tmp_path / "store"
    how: dict[str, Any] = {"engine": "dask", "address": cluster.address, "store": store}
    assert bits(spread(spread_tasks.die_once, todo, **how)) == alone
    assert [worker.poll() for worker in cluster.workers].count(-signal.SIGKILL) == 1
    done = calls(tmp_path / "marks")
    assert done[3] == 2
    assert set(done) == set(range(8))
    assert bits(spread(spread_tasks.die_once, todo, store=store)) == alone
    assert calls(tmp_path / "marks") == done


def test_errors_come_up_as_they_are(cluster: Cluster) -> None:
    check_errors({"engine": "dask", "address": cluster.address})


def test_another_code_at_the_workers_is_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spreading, "code_digest", lambda: "another")
    with pytest.raises(WhimError, match="workers must run the same version of whim"):
        spread(spread_tasks.regret, tasks(n=1), engine="dask", address=cluster.address)


def test_an_interruption_takes_the_tasks_back(cluster: Cluster, tmp_path: Path) -> None:
    """Those under way come to their end, those that wait are not run."""
    how: dict[str, Any] = {"engine": "dask", "address": cluster.address}

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spread(spread_tasks.wait, tasks(tmp_path / "marks", n=30), progress=stop, **how)
    with distributed.Client(cluster.address, set_as_default=False) as client:
        until(lambda: client.run_on_scheduler(known_tasks) == 0, "the scheduler forgets them")
    (tmp_path / "marks" / "go").touch()
    assert len(spread(spread_tasks.regret, tasks(n=4), **how)) == 4
    assert 1 <= len(calls(tmp_path / "marks")) <= 3


def known_tasks(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


def test_no_worker_a_task_that_kills_them_a_scheduler_that_goes_and_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")
    cluster = Cluster(tmp_path)
    try:
        cluster.start()
        how: dict[str, Any] = {"engine": "dask", "address": cluster.address}
        with monkeypatch.context() as hasty:
            hasty.setattr(spreading, "_PATIENCE", 1)
            with pytest.raises(WhimError, match=rf"dask scheduler {cluster.address} has no worker"):
                spread(spread_tasks.regret, tasks(n=1), **how)
        cluster.grow(2)
        with pytest.raises(WhimError, match=r"worker after worker killed .* task 0: {'seed': 0"):
            spread(spread_tasks.die_always, tasks(n=1, dies=0), **how)

        def kill(done: int) -> None:
            cluster.processes[0].kill()

        with pytest.raises(WhimError, match=f"scheduler {cluster.address} is gone"):
            spread(spread_tasks.regret, tasks(n=30), progress=kill, **how)
    finally:
        cluster.stop()
    monkeypatch.setattr(spreading, "_PATIENCE", 1)
    with pytest.raises(WhimError, match=f"address must be .* got {cluster.address}"):
        spread(spread_tasks.regret, tasks(n=1), **how)
