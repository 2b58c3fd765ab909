"""Everything that can happen to replicas and their database, at random moments, under load.

Replicas are killed, frozen and cut off; the database crashes, fails over and is cut off; callers
retry with the same ids wherever somebody answers. Afterwards nothing that was acknowledged is lost
or doubled, the log has no gap, every replica and a fold from nothing agree to the last bit, and
each answer is what the library gives for the state that it was based on.
"""

from __future__ import annotations

import heapq
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster import Cluster, Node, Orchestrator, wait_until
from tests.retrying import PLAIN, SPACES, Client, Told
from tests.shared_truth import Whole, changes_of, check_answers, check_copy, check_told
from whim.serve.log.origin import logs_of

SHARDS = 2
_CUTS: tuple[Any, ...] = ("drop", "replies", "reset")


class Blows(NamedTuple):
    """How many of each kind."""

    kill: int = 100
    freeze: int = 20
    restart: int = 10  # of the database, as after a crash
    failover: int = 5
    cut: int = 10  # of a replica's network
    cut_all: int = 10  # of the database's network
    change: int = 2  # of a space's configuration, which is replayed by every replica


class Summary(NamedTuple):
    """What a run has seen, and checked."""

    blows: Blows
    seconds: float
    rows: int
    told: Told
    answers: int
    restarts: list[str]

    def __str__(self) -> str:
        dealt = ", ".join(f"{n} × {name}" for name, n in self.blows._asdict().items())
        told, retries = self.told, ", ".join(f"{n} {k}" for k, n in self.told.retries.items())
        return (
            f"{dealt} in {self.seconds:.0f} s: {len(told.decisions)} decisions, "
            f"{len(told.rewards)} rewards and {len(told.activated)} activations were acknowledged, "
            f"{told.repeated} decisions twice; none lost, none doubled, {self.rows} rows "
            f"in {SHARDS} shards without gaps. {self.answers} answers are the library's for what "
            f"they were based on; all replicas and a fold from nothing have one digest. Retries: "
            f"{retries}; the longest wait was {told.longest:.1f} s; replicas that had to be "
            f"started again: {len(self.restarts)}."
        )


class Conductor:
    """Deals the blows in an order, and at moments, that follow from the seed."""

    def __init__(
        self, cluster: Cluster, told: Told, watch: Orchestrator, seed: int, pace: float
    ) -> None:
        self._cluster, self._told, self._watch, self._pace = cluster, told, watch, pace
        self._random = random.Random(seed)
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._dealt: Counter[str] = Counter()

    def deal(self, blows: Blows) -> None:
        """All of them; callers are answered between any two."""
        kinds = [name for name, n in blows._asdict().items() for _ in range(n)]
        self._random.shuffle(kinds)
        for i, kind in enumerate(kinds):
            self._wait(self._random.uniform(0.05, self._pace))
            before, began = self._told.answered, time.monotonic()
            getattr(self, f"_{kind}")()
            self._until(lambda before=before: self._told.answered > before)
            sys.stderr.write(
                f"{i + 1}/{len(kinds)} {kind}: answered after {time.monotonic() - began:.2f} s, "
                f"{self._told.answered} answers\n"
            )
        self._until(lambda: not self._later)

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self._until(lambda: time.monotonic() >= end)

    def _until(self, done: Callable[[], bool], seconds: float = 120) -> None:
        """Poll, and make good what is due."""
        end = time.monotonic() + seconds
        while not done():
            assert not self._told.wrong, self._told.wrong[:3]
            assert time.monotonic() < end, "nobody was answered in time"
            while self._later and self._later[0][0] <= time.monotonic():
                heapq.heappop(self._later)[2]()
            time.sleep(0.005)

    def _in(self, most: float, act: Callable[[], None]) -> None:
        when = time.monotonic() + self._random.uniform(0.05, most)
        self._dealt["later"] += 1
        heapq.heappush(self._later, (when, self._dealt["later"], act))

    def _pick(self) -> Node:
        """A replica that runs."""
        self._until(lambda: any(node.runs for node in self._cluster.nodes))
        return self._random.choice([node for node in self._cluster.nodes if node.runs])

    # -- blows --------------------------------------------------------------------------------

    def _kill(self) -> None:
        node = self._pick()
        with self._watch.lock:
            node.kill()

        def again() -> None:
            with self._watch.lock:
                if node.service is None:
                    node.start()

        self._in(0.5, again)

    def _freeze(self) -> None:
        node = self._pick()
        with self._watch.lock:
            node.freeze(self._random.random() < 0.5)
        self._in(4.0, node.thaw)

    def _restart(self) -> None:
        self._cluster.server.restart_immediate()

    def _failover(self) -> None:
        if self._random.random() < 0.5:  # the standby may not follow again yet
            self._cluster.server.restart_immediate()
            self._wait(self._random.uniform(0, 0.2))
        self._cluster.fail_over()

    def _cut(self) -> None:
        node = self._random.choice(self._cluster.nodes)
        node.proxy.cut(self._random.choice(_CUTS))
        self._in(self._random.choice((1.0, 9.0)), node.proxy.heal)

    def _cut_all(self) -> None:
        with self._cluster.cut_off(self._random.choice(_CUTS)):
            end = time.monotonic() + self._random.uniform(0.1, self._random.choice((1.0, 7.0)))
            self._until(lambda: time.monotonic() >= end)

    def _change(self) -> None:
        """Other parameters: any replica that answers takes them."""
        config = {key: value for key, value in SPACES[PLAIN].items() if key != "name"}
        config["params"] = {"alpha": round(self._random.uniform(0.3, 1.0), 3)}
        config["explore"] = round(self._random.uniform(0, 0.2), 3)

        def accepted() -> bool:
            service = self._pick().service
            if service is None:
                return False
            try:
                return service.ask("PUT", f"/v1/spaces/{PLAIN}", config, timeout=5.0)[0] == 202
            except OSError:
                return False

        self._until(accepted)


def torture(
    folder: Path,
    blows: Blows,
    *,
    seed: int = 0,
    clients: int = 4,
    pace: float = 2.5,
    spaces: tuple[str, ...] = tuple(SPACES),
    pause: float = 0.02,
) -> Summary:
    """Deal the blows under load, then hold everything against the log; what is wrong raises."""
    told, began, then = Told(), time.monotonic(), time.time()
    with Cluster(folder, shards=SHARDS) as cluster:
        cluster.create(*(SPACES[name] for name in spaces))
        watch = Orchestrator(cluster.nodes)
        ports = [node.port for node in cluster.nodes]
        crew = [Client(f"c{i}", ports, told, spaces, pause) for i in range(clients)]
        for thread in (watch, *crew):
            thread.start()
        try:
            Conductor(cluster, told, watch, seed, pace).deal(blows)
            for node in cluster.nodes:
                wait_until(lambda node=node: node.service.ask("GET", "/readyz")[0] == 200)
        finally:
            for client in crew:
                client.finish()
            for client in crew:
                client.join(200)
            watch.finish()
        assert not told.wrong, told.wrong[:3]
        cluster.settle(list(spaces))
        cluster.stop()
        seconds = time.monotonic() - began
        wholes = [Whole(cluster.server.dsn, shard) for shard in range(SHARDS)]
    assert sorted(name for whole in wholes for name in whole.spaces) == sorted(spaces)
    assert all(whole.spaces for whole in wholes), "a shard has nothing to do"
    answers = 0
    for shard, whole in enumerate(wholes):
        times = [row[1] / 1e6 for row in whole.rows]
        assert then - 1 < min(times) <= max(times) < time.time() + 1, "a replica's clock got in"
        check_told(whole, told)
        digests = whole.digests()
        copies = [logs_of(node.data)[shard] for node in cluster.nodes]
        for copy in copies:
            check_copy(copy, whole, digests)
        seen = [changes_of(copy, whole) for copy in copies]
        assert all(changes == seen[0] for changes in seen), "replicas have seen other changes"
        answers += sum(check_answers(space) for space in whole.spaces.values())
    rows = sum(len(whole.rows) for whole in wholes)
    return Summary(blows, seconds, rows, told, answers, watch.restarts)
