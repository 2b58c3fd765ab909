"""Kills a service at random moments under load, and holds what it acknowledged against its log.

Workers talk HTTP to a real process. What they were told is kept; after each kill the log is read
from outside: every acknowledged decision and reward must be there once, with the answer that was
given, and snapshot + rest must equal the fold of the whole log. What was in flight is asked again.
With ``backups``, they are taken all the time: each must restore to a prefix of the log.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from tests.forked import Forked
from tests.ports import free_ports
from whim.serve.backup import backup, restore
from whim.serve.log import rows
from whim.serve.log.reader import LogReader
from whim.serve.state.engine import Engine
from whim.serve.state.space_state import SpaceState

if sys.platform != "win32":
    import resource

SPACE = "news"
CONFIG = {
    "name": SPACE, "policy": "pslinucb-disjoint",
    "context": {"size": 3, "constant": True}, "explore": 0.1, "holdback": 0.1,
    "rewards": {"wait_seconds": 2.0},
}  # fmt: skip


class Service:
    """``whim serve`` as a process of its own, whose clock may be so many seconds ahead."""

    def __init__(self, data: Path, *more: str, port: int | None = None, ahead: float = 0.0) -> None:
        self.port = free_ports() if port is None else port
        self.data = data
        self.process = Forked(
            "serve", "--data", str(data), "--port", str(self.port), *more, ahead=ahead
        )
        self.said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        self.said.extend(self.process.stderr)

    def wait(self, seconds: float = 60) -> None:
        """Until it is ready."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise AssertionError(f"the service ended: {''.join(self.said)}")
            with contextlib.suppress(OSError):
                if self.ask("GET", "/readyz")[0] == 200:
                    return
            time.sleep(0.02)
        raise AssertionError(f"the service was not ready in time: {''.join(self.said)}")

    def ask(
        self, method: str, path: str, body: Any = None, *, timeout: float = 30, **headers: str
    ) -> tuple[int, Any]:
        """One request on a connection of its own."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            return asked(link, method, path, body, **headers)
        finally:
            link.close()

    def stop(self, how: int = signal.SIGTERM) -> int:
        """End it; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(30)
        self._listener.join(5)
        self.process.stderr.close()
        return code

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop(signal.SIGKILL)


def no_more_room(service: Service, room: int = 200_000) -> None:
    """As if the disk were nearly full: no file of the service grows beyond so many bytes more."""
    if sys.platform == "win32":
        raise AssertionError("only where files can be limited")
    sizes = [path.stat().st_size for path in service.data.glob("*.db*")]
    most = max(sizes, default=0) + room
    for pid in (service.process.pid, *children(service)):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))


def children(service: Service, kind: str = "") -> list[int]:
    """Processes that the service has started: its ``log_writer``, or a ``worker``, or all."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == service.process.pid and fields[0] != "Z":
                said = stat.with_name("cmdline").read_text().split("\0")
                if any(word.endswith(("." + kind, kind + ".py")) for word in said) or not kind:
                    found.append(int(stat.parent.name))
    return found


def asked(
    link: http.client.HTTPConnection, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any]:
    """Status and body, decoded if it is JSON."""
    raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    link.request(method, path, raw, {k.replace("_", "-"): v for k, v in headers.items()})
    reply = link.getresponse()
    text = reply.read()
    if reply.headers.get("content-type", "").startswith("application/json") and text:
        return reply.status, json.loads(text)
    return reply.status, text


class Worker(threading.Thread):
    """Decides and rewards until the service is gone, and remembers what it was told."""

    def __init__(self, name: str, service: Service, told: Told, retry: list[Any]) -> None:
        super().__init__(daemon=True)
        self._tag, self._service, self._told = name, service, told
        self._retry = retry
        self.flying: list[Any] = []
        self._random = random.Random(name)

    def run(self) -> None:
        """Until the connection breaks."""
        link = http.client.HTTPConnection("127.0.0.1", self._service.port, timeout=30)
        try:
            for path, body in self._retry:
                self._send(link, path, body)
            count = 0
            while True:
                count += 1
                key = f"{self._tag}-{count}"
                context = [round(self._random.uniform(-1, 1), 3) for _ in range(3)]
                pool = self._random.sample([f"a{i}" for i in range(9)], 5)
                body = {"decision_id": key, "context": context, "candidates": pool}
                if count % 3 == 0:
                    self._list(link, body)
                    continue
                self._send(link, "decisions", body)
                if self._random.random() < 0.7:
                    value = float(self._random.random() < 0.3)
                    self._send(
                        link, "rewards",
                        {"decision_id": key, "value": value, "reward_id": f"r-{key}"},
                    )  # fmt: skip
        except (OSError, http.client.HTTPException):
            pass  # it was killed; what was in flight is in ``flying``
        finally:
            link.close()

    def _list(self, link: http.client.HTTPConnection, body: dict[str, Any]) -> None:
        """A list of three, and rewards for some of its items."""
        key = body["decision_id"]
        self._send(link, "lists", {**body, "k": 3})
        for slot in range(3):
            if self._random.random() < 0.5:
                value = float(self._random.random() < 0.3)
                self._send(
                    link, "rewards",
                    {"decision_id": key, "value": value, "reward_id": f"r{slot}-{key}",
                     "slot": slot},
                )  # fmt: skip

    def _send(self, link: http.client.HTTPConnection, path: str, body: Any) -> None:
        self.flying = [(path, body)]
        status, found = asked(link, "POST", f"/v1/spaces/{SPACE}/{path}", body)
        self.flying = []
        if status != 200:
            self._told.wrong.append((path, body, status, found))
        elif path in ("decisions", "lists"):
            self._told.decisions[body["decision_id"]] = found
        else:
            self._told.rewards[body["reward_id"]] = found["state"]


class Told:
    """All that was acknowledged."""

    def __init__(self) -> None:
        self.decisions: dict[str, Any] = {}
        self.rewards: dict[str, str] = {}
        self.wrong: list[Any] = []
        self.backups = 0  # that were made and checked


def _answer(row: rows.DecisionRow) -> Any:
    return json.loads(msgspec.json.encode(rows.answer_of(SPACE, row)))


def check(data: Path, told: Told) -> tuple[int, int]:
    """Read the log from outside and hold it against what was told; rows, and rows of rewards."""
    engine = Engine(data)
    try:
        space = engine.space(SPACE)
        whole = SpaceState(space.state.config, space.state.version)
        decisions: dict[str, Any] = {}
        rewards: Counter[str] = Counter()
        learnt: Counter[str] = Counter()
        states: dict[str, set[str]] = {}
        count = 0
        for row in engine.store.rows(0, None, space.number):
            count += 1
            if row.kind == rows.Kind.DECISION:
                body = msgspec.msgpack.decode(row.body, type=rows.DecisionRow)
                assert body.id not in decisions, f"{body.id} was decided twice"
                decisions[body.id] = _answer(body)
            elif row.kind == rows.Kind.REWARD:
                reward = msgspec.msgpack.decode(row.body, type=rows.RewardRow)
                assert reward.reward_id is not None
                rewards[reward.reward_id] += 1
                state = whole.ledger.outcome(row.at, reward)
                states.setdefault(reward.reward_id, set()).add(state)
                learnt[reward.id] += state == "learnt"
            elif row.kind == rows.Kind.EXPIRY:
                ends = msgspec.msgpack.decode(row.body, type=rows.Expiry)
                for key, learn in whole.ledger.ended(row.at, ends):
                    learnt[key] += learn is not None
            whole.apply(row)
        for key, answer in told.decisions.items():
            assert key in decisions, f"{key} was acknowledged and is lost"
            assert decisions[key] == answer, f"{key} was answered otherwise"
        for key, state in told.rewards.items():
            assert rewards[key] >= 1, f"reward {key} was acknowledged and is lost"
            assert state in states[key], f"reward {key} was told {state}, logged {states[key]}"
        twice = [key for key, n in learnt.items() if n > 1]
        assert not twice, f"learnt twice: {twice[:5]}"
        assert space.state.digest() == whole.digest(), "the state must be the fold of the log"
        return count, sum(rewards.values())
    finally:
        engine.close()


class Backups(threading.Thread):
    """Takes one backup after another until it is told to stop; the last one is finished."""

    def __init__(self, data: Path, folder: Path, told: Told, seed: int) -> None:
        super().__init__(daemon=True)
        self._data, self._folder, self._told = data, folder, told
        self._random = random.Random(seed)
        self._stop_asked = threading.Event()
        self.made: list[tuple[Path, list[str]]] = []  # and what was acknowledged before each

    def run(self) -> None:
        """Until ``finish``."""
        while not self._stop_asked.wait(self._random.uniform(0, 0.15)):  # the load is the point
            acknowledged = list(self._told.decisions)
            to = self._folder / f"backup-{len(self.made)}"
            try:
                backup(self._data, to)
            except Exception as error:  # it must not pass unseen because it is in a thread
                self._told.wrong.append(("backup", str(to), repr(error)))
                return
            self.made.append((to, acknowledged))

    def finish(self) -> None:
        """Stop, restore what was made, and hold it against the log."""
        self._stop_asked.set()
        self.join(120)
        assert not self.is_alive(), "a backup must end"
        assert not self._told.wrong, self._told.wrong[:3]
        restored = self._folder / "restored"
        for made, acknowledged in self.made:
            restore(made, restored)
            check_prefix(restored, self._data, acknowledged)
            self._told.backups += 1
            for folder in (made, restored):
                shutil.rmtree(folder)


def check_prefix(restored: Path, data: Path, acknowledged: list[str]) -> None:
    """Its rows are the first ones of the log, and its state is what they alone teach."""
    engine = Engine(restored)
    try:
        space, last = engine.space(SPACE), engine.seq
        whole = SpaceState(space.state.config, space.state.version)
        with contextlib.closing(LogReader(data / "log.db")) as live:
            for mine, row in zip(engine.store.rows(), live.rows(0, last), strict=True):
                assert mine == row, f"row {row.seq} differs in the backup"
                if row.space == space.number:
                    whole.apply(row)
        assert space.state.digest() == whole.digest(), "the state must be the fold of the prefix"
        for key in acknowledged:
            found = engine.store.decision(space.number, key)
            assert found is not None, f"{key} was acknowledged before the backup, and is not in it"
    finally:
        engine.close()


def kills(
    data: Path,
    times: int,
    seed: int = 0,
    workers: int = 4,
    most: float = 1.0,
    backups: Path | None = None,
) -> Told:
    """Start, drive, kill, check; again and again; with backups in a folder, if one is given."""
    chance = random.Random(seed)
    told = Told()
    retry: list[list[Any]] = [[] for _ in range(workers)]
    data.mkdir(parents=True)
    settings = data / "whim.toml"
    settings.write_text("snapshot_seconds = 0.3\ndemo = false\n")
    for turn in range(times):
        with Service(data, "--config", str(settings)) as service:
            service.wait()
            if turn == 0:
                assert service.ask("POST", "/v1/spaces", CONFIG)[0] == 201
            crew = [Worker(f"{turn}-{i}", service, told, retry[i]) for i in range(workers)]
            for worker in crew:
                worker.start()
            before = len(told.decisions)
            while len(told.decisions) == before and any(w.is_alive() for w in crew):
                time.sleep(0.001)
            taken = None if backups is None else Backups(data, backups, told, turn)
            if taken is not None:
                taken.start()
            time.sleep(chance.uniform(0, most))
            os.kill(service.process.pid, signal.SIGKILL)
            for worker in crew:
                worker.join(30)
            retry = [worker.flying for worker in crew]
            if taken is not None:
                taken.finish()
        assert not told.wrong, told.wrong[:3]
        count, _ = check(data, told)
        sys.stderr.write(
            f"kill {turn + 1}: {len(told.decisions)} decisions and {len(told.rewards)} rewards "
            f"acknowledged, all among {count} rows\n"
        )
    return told
