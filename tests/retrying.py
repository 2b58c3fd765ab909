"""Clients of replicas: they retry with the same id at any replica, and keep what they were told."""

from __future__ import annotations

import contextlib
import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.crashes import asked

PLAIN, SUMS, DRAWN = "news", "sums", "drawn"
RULES = {"wait_seconds": 2.0}
SPACES: dict[str, dict[str, Any]] = {
    PLAIN: {
        "name": PLAIN, "policy": "pslinucb-disjoint", "context": {"size": 3, "constant": True},
        "explore": 0.1, "holdback": 0.1, "rewards": RULES,
    },
    SUMS: {
        "name": SUMS, "policy": "pslinucb-hybrid", "context": {"size": 2, "constant": True},
        "items": {"size": 1, "constant": True}, "explore": 0.1,
        "rewards": {**RULES, "combine": "sum"}, "list": {"feedback": "semi"},
    },
    DRAWN: {
        "name": DRAWN, "policy": "lints", "context": {"size": 3, "constant": True},
        "rewards": RULES,
    },
}  # fmt: skip
_LATER = frozenset((429, 503))  # try again, with the same id
_PATIENCE = 180.0  # seconds after which a request that nobody answers is one too many


class Told:
    """All that was acknowledged, by space and id."""

    def __init__(self) -> None:
        self.decisions: dict[tuple[str, str], Any] = {}
        self.rewards: dict[tuple[str, str], list[str]] = {}
        self.activated: set[tuple[str, str]] = set()
        # rewards without an id, which are sent once: by decision and value, whether kept
        self.once: dict[tuple[str, str, float], bool] = {}
        self.repeated = 0  # decisions that were asked for again, elsewhere
        self.retries: Counter[str] = Counter()  # by what went wrong
        self.wrong: list[Any] = []
        self.answered = 0
        self.longest = 0.0  # seconds until an answer

    def wanted_again(self, where: str, key: str, answer: Any) -> None:
        """Keep an answer, which must be the one that was given before, if there was one."""
        known = self.decisions.setdefault((where, key), answer)
        if known != answer:
            self.wrong.append(("two answers", where, key, known, answer))


class Caller:
    """Asks replicas by their ports, one after the other in any order, until one answers."""

    def __init__(self, name: str, ports: Sequence[int], told: Told) -> None:
        self._random, self._ports, self._told = random.Random(name), ports, told
        self._links: dict[int, http.client.HTTPConnection] = {}

    def call(self, path: str, body: Any) -> Any:
        """The answer, at last; None if it was refused, or never came, which is noted."""
        began = time.monotonic()
        while time.monotonic() - began < _PATIENCE:
            port = self._random.choice(self._ports)
            try:
                status, found = self._ask(port, path, body)
            except (OSError, http.client.HTTPException) as error:
                self._drop(port)
                self._told.retries[type(error).__name__] += 1
            else:
                if status == 200:
                    self._told.answered += 1
                    self._told.longest = max(self._told.longest, time.monotonic() - began)
                    return found
                if status not in _LATER:
                    self._told.wrong.append((path, body, status, found))
                    return None
                self._told.retries[str(status)] += 1
            time.sleep(self._random.uniform(0.01, 0.1))
        self._told.wrong.append((path, body, "was never answered"))
        return None

    def once(self, path: str, body: Any) -> Any:
        """Ask one replica, once; its answer, or None."""
        port = self._random.choice(self._ports)
        try:
            status, found = self._ask(port, path, body)
        except (OSError, http.client.HTTPException):
            self._drop(port)
            return None
        return found if status == 200 else None

    def _ask(self, port: int, path: str, body: Any) -> tuple[int, Any]:
        link = self._links.get(port)
        if link is None:
            link = self._links[port] = http.client.HTTPConnection("127.0.0.1", port)
        # some give up before the service does, and ask again while the first attempt is under way
        link.timeout = self._random.choice((0.3, 2.0, 15.0))
        if link.sock is not None:
            link.sock.settimeout(link.timeout)
        return asked(link, "POST", f"/v1/spaces/{path}", body)

    def _drop(self, port: int) -> None:
        link = self._links.pop(port, None)
        if link is not None:
            link.close()

    def close(self) -> None:
        """Drop all connections."""
        for port in list(self._links):
            self._drop(port)


class Client(threading.Thread):
    """Decides, rewards and activates until it is told to stop; what it began it ends."""

    def __init__(
        self, name: str, ports: Sequence[int], told: Told, spaces: Sequence[str], pause: float
    ) -> None:
        super().__init__(daemon=True)
        self._tag, self._told, self._spaces, self._pause = name, told, spaces, pause
        self._caller = Caller(name, ports, told)
        self._random = random.Random(f"what {name}")
        self._stopping = threading.Event()

    def run(self) -> None:
        """Until ``finish``."""
        acts: dict[str, Callable[[str, str], None]] = {
            PLAIN: self._plain, SUMS: self._sums, DRAWN: self._plain,
        }  # fmt: skip
        count = 0
        with contextlib.closing(self._caller):
            while not self._stopping.is_set():
                space, count = self._random.choice(self._spaces), count + 1
                try:
                    acts[space](space, f"{self._tag}-{count}")
                except Exception as error:  # it must not pass unseen because it is in a thread
                    self._told.wrong.append((space, count, repr(error)))
                self._stopping.wait(self._random.uniform(0, self._pause))

    def finish(self) -> None:
        """Stop, after what is under way."""
        self._stopping.set()

    # -- what it does -------------------------------------------------------------------------

    def _plain(self, space: str, key: str) -> None:
        """A decision or a list, perhaps asked for twice, and perhaps rewards."""
        pool = self._random.sample([f"a{i}" for i in range(9)], 5)
        if self._random.random() < 0.02:
            pool.append(f"new {key}")
        body = {"context": self._numbers(3), "candidates": pool}
        if self._random.random() < 0.3:
            slots = [{"exclude": pool[:1]}, {}, {"exclude": pool[1:3]}]
            some = {"k": 3} if self._random.random() < 0.5 else {"slots": slots}
            self._decide(space, key, {**body, **some}, "lists")
            for slot in range(3):
                if self._random.random() < 0.5:
                    self._reward(space, key, f"r{slot}-{key}", slot)
            return
        self._decide(space, key, body)
        if self._random.random() < 0.7:
            self._reward(space, key, f"r-{key}")

    def _sums(self, space: str, key: str) -> None:
        """A decision or a list, with features, perhaps deferred, and rewards that are summed."""
        items = [
            {"id": i, "features": [round(i / 9 + 0.1 * (self._random.random() < 0.1), 3)]}
            for i in self._random.sample(range(9), 4)
        ]
        deferred = self._random.random() < 0.3
        body = {"context": self._numbers(2), "candidates": items, "deferred": deferred}
        k = 2 if self._random.random() < 0.3 else None
        if k is None:
            self._decide(space, key, body)
        else:
            self._decide(space, key, {**body, "k": k}, "lists")
        if deferred and self._random.random() < 0.7:
            found = self._caller.call(f"{space}/decisions/{key}/activate", {})
            if found is not None and found["activated"]:
                self._told.activated.add((space, key))
        for i in range(self._random.choice((0, 1, 1, 2))):
            self._reward(space, key, f"r{i}-{key}", None if k is None else i % k)
        if self._random.random() < 0.5:
            value = self._random.random()
            body = {"decision_id": key, "value": value} | ({} if k is None else {"slot": 0})
            found = self._caller.once(f"{space}/rewards", body)
            self._told.once[space, key, value] = found is not None and found["state"] == "kept"

    def _numbers(self, n: int) -> list[float]:
        return [round(self._random.uniform(-1, 1), 3) for _ in range(n)]

    def _decide(self, space: str, key: str, body: dict[str, Any], path: str = "decisions") -> None:
        whole = {"decision_id": key, **body}
        for again in (False, True):
            answer = self._caller.call(f"{space}/{path}", whole)
            if answer is not None:
                self._told.wanted_again(space, key, answer)
                self._told.repeated += again
            if self._random.random() < 0.9:
                break

    def _reward(self, space: str, key: str, name: str, slot: int | None = None) -> None:
        body = {"decision_id": key, "reward_id": name, "value": float(self._random.random() < 0.3)}
        body |= {} if slot is None else {"slot": slot}
        for _ in range(self._random.choice((1, 1, 1, 2))):
            found = self._caller.call(f"{space}/rewards", body)
            if found is not None:
                self._told.rewards.setdefault((space, name), []).append(found["state"])
