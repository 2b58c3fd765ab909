"""``python -m benchmarks.postgres``: the log in PostgreSQL beside the one in SQLite, in one run.

Both on the same disk, with every commit synced. A row is as large as a decision with twenty
candidates. PostgreSQL is started here, as the tests do.

Shards make up for the latency of commits, which wait for each other on one shard. So what they gain
depends on the disk at that moment. Where a commit took 4 ms, eight shards had 2.9 times the rate of
one, with a synchronous standby or without. Where it took 0.4 ms, they had 1.3 to 1.8 times without
one and 1.85 with one, perhaps because the two cores were the limit then. The bar is for the
arrangement with a standby, on whatever disk there is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tests.postgres import Server

from benchmarks.measure import Row, compare, emit, interleave, progress
from whim.serve.log.rows import Kind
from whim.serve.log.rows import Row as LogRow
from whim.serve.log.store import Store
from whim.serve.postgres import schema
from whim.serve.postgres.append import Appender, Done, Entry, Writer
from whim.serve.postgres.connection import connect
from whim.serve.postgres.lease import Leader, Lease
from whim.serve.postgres.tail import Follower, Tail

BODY = 800  # bytes
SIZES = (8, 32, 256)  # rows per commit
COMMITS = {8: 60, 32: 40, 256: 12}  # per round
ROUNDS = 9
SHARDS = 8
TAKEOVERS = 20
Times = npt.NDArray[np.float64]


def entries(n: int) -> list[Entry]:
    """Rows with ids of their own."""
    return [Entry(1, Kind.DECISION, os.urandom(12).hex(), os.urandom(BODY)) for _ in range(n)]


def timed(commits: list[list[Entry]], commit: Callable[[list[Entry]], None]) -> list[float]:
    """Seconds of each commit."""
    took = []
    for some in commits:
        start = time.perf_counter()
        commit(some)
        took.append(time.perf_counter() - start)
    return took


class Sqlite:
    """The store of one machine, and how long its commits took."""

    def __init__(self, folder: Path) -> None:
        self._store = Store(folder / "log.db")
        self._seq = 0
        self.took: dict[int, list[float]] = {n: [] for n in SIZES}

    def commit(self, some: list[Entry]) -> None:
        at = time.time_ns() // 1000
        rows = [LogRow(self._seq + i, at, *entry) for i, entry in enumerate(some, 1)]
        self._seq += len(rows)
        self._store.append(rows, [None])
        self._store.flush()

    def close(self) -> None:
        self._store.close()


class Postgres:
    """The same over PostgreSQL."""

    def __init__(self, dsn: str) -> None:
        self._appender = Appender(dsn)
        self.took: dict[int, list[float]] = {n: [] for n in SIZES}

    def commit(self, some: list[Entry]) -> None:
        self._appender.append(some)

    def close(self) -> None:
        self._appender.disconnect()


def commits(dsn: str, folder: Path) -> list[Row]:
    """Rows per second and the time of a commit, against SQLite."""
    sides = {"postgres": Postgres(dsn), "sqlite": Sqlite(folder)}
    rows = []
    for n in SIZES:

        def one(side: Postgres | Sqlite, n: int = n) -> float:
            took = timed([entries(n) for _ in range(COMMITS[n])], side.commit)
            side.took[n] += took
            return sum(took) / (n * len(took))

        measured = interleave(
            {name: (lambda side=side: one(side)) for name, side in sides.items()}, ROUNDS
        )
        rows.append(
            compare(
                f"rows per second, {n} a commit", measured["postgres"], measured["sqlite"],
                wanted=">=0.6" if n == 32 else "", note="time of a row; ratio: of the speeds",
            )
        )  # fmt: skip
        for name, share in (("median", 0.5), ("p99", 0.99)):
            ours, theirs = (
                float(np.quantile(side.took[n][COMMITS[n] :], share)) for side in sides.values()
            )
            wanted = "<=3" if name == "p99" else ""
            rows.append(_single(f"append {name}, {n} a commit", ours, theirs, wanted=wanted))
        progress(f"{n} rows a commit: done")
    for side in sides.values():
        side.close()
    return rows


def _single(what: str, ours: float, theirs: float | None, *, wanted: str, note: str = "") -> Row:
    """A line from two numbers of seconds, in ms; without the other side the number is the ratio."""
    ratio = ours if theirs is None else ours / theirs
    other = None if theirs is None else theirs * 1e3
    return Row(what, ours * 1e3, other, "ms", ratio, ratio, ratio, ratio, wanted, note)


def lag(dsn: str, seconds: float = 10.0, rate: int = 1000) -> list[Row]:
    """How long after its acknowledgement a row is at another node, at a steady rate."""
    acknowledged: dict[int, float] = {}
    took: list[float] = []

    def on_done(done: list[Done]) -> None:
        now = time.monotonic()
        for sent, appended, error in done:
            if appended is None:
                raise RuntimeError("an append failed") from error
            took.append(now - sent)
            acknowledged.update(dict.fromkeys(appended.seqs, now))

    n = int(seconds * rate)
    other = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.postgres", "--follow", dsn, str(n)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert other.stdout is not None
    other.stdout.readline()  # it has caught up
    writer = Writer(Appender(dsn), on_done)
    ready = entries(n)
    begin = time.monotonic()
    for i, entry in enumerate(ready):
        time.sleep(max(0.0, begin + i / rate - time.monotonic()))
        writer.put([entry], time.monotonic())
    writer.close(30)
    arrived = dict(line.split() for line in other.communicate(timeout=60)[0].splitlines())
    lags = [max(0.0, float(at) - acknowledged[int(seq)]) for seq, at in arrived.items()]
    appends = np.quantile(took, [0.5, 0.99])
    note = f"{rate} rows a second; theirs: the append itself, from put to acknowledgement"
    return [
        _single("lag median", float(np.median(lags)), float(appends[0]), wanted=""),
        _single("lag p99", float(np.quantile(lags, 0.99)), float(appends[1]), wanted="<=2",
                note=note),
    ]  # fmt: skip


def follow(dsn: str, n: int) -> None:
    """Print when each of the next ``n`` rows arrived; the other node."""
    arrived: list[tuple[int, float]] = []
    done = threading.Event()
    tail = Tail(dsn)
    while tail.read():
        pass
    print("caught up", flush=True)

    def on_rows(rows: list[tuple[int, ...]]) -> None:
        now = time.monotonic()
        arrived.extend((row[0], now) for row in rows)
        if len(arrived) >= n:
            done.set()

    follower = Follower(tail, on_rows, lambda error: done.set())  # type: ignore[arg-type]
    done.wait(300)
    follower.close()
    print("\n".join(f"{seq} {at!r}" for seq, at in arrived))


def shards(dsn: str, how: str, wanted: str, seconds: float = 2.0, n: int = 32) -> list[Row]:
    """As many writers on as many shards, against all of them on one."""

    def run(places: list[int]) -> float:
        counts = [0] * len(places)
        end = time.monotonic() + seconds

        def write(i: int, shard: int) -> None:
            appender = Appender(dsn, shard)
            some = [entry._replace(key=None) for entry in entries(n)]
            while time.monotonic() < end:
                appender.append(some)
                counts[i] += n
            appender.disconnect()

        threads = [threading.Thread(target=write, args=pair) for pair in enumerate(places)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return seconds / sum(counts)

    sides = {
        "many": lambda: run(list(range(1, SHARDS + 1))),
        "one": lambda: run([1] * SHARDS),
    }
    measured = interleave(sides, 5)
    note = f"{n} rows a commit; time of a row; ratio: of the speeds"
    what = f"{SHARDS} shards against one, {how}"
    return [compare(what, measured["many"], measured["one"], wanted=wanted, note=note)]


def takeovers(dsn: str) -> list[Row]:
    """From the moment at which a leader is frozen to the moment at which another one leads."""
    took = []
    rng = np.random.default_rng(0)
    for number in range(TAKEOVERS):
        first = Lease(dsn, f"lease {number}")
        first.step()
        second = Leader(Lease(dsn, f"lease {number}"))
        for _ in range(int(rng.integers(2, 6))):
            time.sleep(0.2 * float(rng.random()))
            first.step()
        start = time.monotonic()  # it does not step any more
        while not second.leads:
            time.sleep(0.001)
        took.append(time.monotonic() - start)
        second.close()
        first.release()
    p99 = float(np.quantile(took, 0.99))
    note = f"{TAKEOVERS} frozen leaders; median {np.median(took):.2f} s"
    return [Row("leader takeover p99", p99, None, "s", p99, p99, p99, p99, "<=2", note)]


def comebacks(server: Server) -> list[Row]:
    """From the moment at which a database that crashed answers to the first acknowledgement."""
    took = []
    for _ in range(5):
        acknowledged = threading.Event()
        writer = Writer(Appender(server.dsn), lambda done, event=acknowledged: event.set())
        writer.put(entries(1), None)
        acknowledged.wait(30)
        server.stop("immediate")
        acknowledged.clear()
        writer.put(entries(1), None)
        time.sleep(0.5)  # it is tried at long intervals by now
        server.resume()
        start = time.monotonic()
        acknowledged.wait(30)
        took.append(time.monotonic() - start)
        writer.close()
    worst = max(took)
    note = f"the longest of {len(took)} restarts; median {np.median(took):.3f} s"
    return [Row("acknowledgement after a crash", worst, None, "s", worst, worst, worst, worst,
                "<=1", note)]  # fmt: skip


def main() -> int:
    """All parts; 1 if a bar is missed."""
    if "--follow" in sys.argv:
        follow(sys.argv[-2], int(sys.argv[-1]))
        return 0
    with (
        tempfile.TemporaryDirectory() as folder,
        Server.start(durable=True, shared_buffers="128MB", max_wal_size="1GB") as server,
    ):
        with connect(server.dsn) as connection:
            schema.create(connection, shards=SHARDS + 1)
        rows = commits(server.dsn, Path(folder))
        rows += lag(server.dsn)
        progress("lag: done")
        rows += shards(server.dsn, "no standby", "")
        with server.standby():
            rows += shards(server.dsn, "synchronous standby", ">=2")
            server.wait_for_standby("")
        progress("shards: done")
        rows += takeovers(server.dsn) + comebacks(server)
        emit(rows)
    return int(any(row.met is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
