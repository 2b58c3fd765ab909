"""A good caller beside bad ones: what it is told, how long it waits, and what is in the log."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.bad_callers import ATTACKS
from tests.crashes import Service, asked
from whim.serve.state.engine import Engine

NEWS = {"name": "news", "policy": "ucb", "context": {"size": 0}}
WIDE = {"name": "wide", "policy": "linucb-disjoint", "context": {"size": 256}}
PACE = 0.01  # seconds between what the good caller asks


class Outcome(NamedTuple):
    """What a good caller saw: 99 of 100 answers in ``p99`` seconds, health always in ``health``."""

    p99: float
    health: float
    decisions: list[str]


def behave(service: Service, tag: str, seconds: float) -> Outcome:
    """Ask and reward at a steady pace, and look at the health on connections of its own."""
    until = time.monotonic() + seconds
    took: list[float] = []
    health: list[float] = []
    told: list[str] = []

    def look() -> None:
        while time.monotonic() < until:
            began = time.monotonic()
            assert service.ask("GET", "/healthz")[0] == 200
            health.append(time.monotonic() - began)
            time.sleep(0.05)

    looker = threading.Thread(target=look)
    looker.start()
    link = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    for i in itertools.count():
        if time.monotonic() >= until:
            break
        key = f"{tag}-{i}"
        began = time.monotonic()
        _ask_again(link, "decisions", {"candidates": ["a", "b"], "decision_id": key})
        took.append(time.monotonic() - began)
        told.append(key)
        _ask_again(link, "rewards", {"decision_id": key, "value": i % 2})
        time.sleep(PACE)
    link.close()
    looker.join()
    took.sort()
    return Outcome(took[int(0.99 * (len(took) - 1))], max(health), told)


def _ask_again(link: http.client.HTTPConnection, what: str, body: Any) -> None:
    """Ask, and once more on a new connection where the old one is gone."""
    for _ in range(3):
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, answer = asked(link, "POST", f"/v1/spaces/news/{what}", body)
            assert status == 200, answer
            return
        link.close()
    raise AssertionError(f"{what} got no answer")


def attacked(folder: Path, seconds: float) -> dict[str, Outcome]:
    """The good caller alone, as "quiet", and beside each attack; its every decision is logged."""
    outcomes = {}
    (folder / "whim.toml").write_text("max_connections = 250\nheader_seconds = 2\n")
    with Service(folder / "data", "--config", str(folder / "whim.toml")) as service:
        service.wait(120)
        for config in (NEWS, WIDE):
            assert service.ask("POST", "/v1/spaces", config)[0] == 201
        outcomes["quiet"] = behave(service, "quiet", seconds)
        for kind in ATTACKS:
            command = [
                sys.executable,
                "-m",
                "tests.bad_callers",
                kind,
                str(service.port),
                str(seconds),
            ]
            with subprocess.Popen(command) as attack:
                time.sleep(0.5)  # for it to begin
                outcomes[kind] = behave(service, kind, seconds)
                attack.wait(60)
        assert service.stop() == 0
    engine = Engine(folder / "data")
    try:
        number = engine.space("news").number
        for outcome in outcomes.values():
            for key in outcome.decisions:
                assert engine.store.decision(number, key) is not None, key
    finally:
        engine.close()
    return outcomes
