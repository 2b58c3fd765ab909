"""A data directory that an earlier Whim wrote, and how it is continued.

``python -m tests.stored_service FOLDER`` makes it anew. It was run with the code of whim before
``serve`` was split into packages, and must not be run again just to make a test pass: what it
holds is what users have on their disks.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

STORED = Path(__file__).parent / "data" / "service.tar.xz"
EXPECTED = STORED.with_name("service.json")
COPIES = ("closed", "killed")
CONFIGS: dict[str, dict[str, Any]] = {
    "news": {
        "policy": "pslinucb-disjoint", "params": {"window": 8, "threshold": 0.2},
        "context": {"size": 3, "constant": True}, "explore": 0.1, "holdback": 0.1,
        "baseline": "random", "rewards": {"wait_seconds": 3600},
    },
    "brief": {
        "policy": "linucb-disjoint", "context": {"size": 2}, "shadow": True,
        "rewards": {"wait_seconds": 1.0, "default": 0.1, "combine": "sum"},
    },
    "shop": {
        "policy": "linucb-hybrid", "seed": 3, "explore": 0.2,
        "context": {"fields": [
            {"name": "device", "kind": "choice", "values": ["phone", "desk"]},
            {"name": "age", "kind": "number", "mean": 40, "scale": 10},
        ], "rest": 2, "constant": True},
        "items": {"fields": [{"name": "price", "kind": "number"}], "constant": True},
    },
    "groups": {
        "policy": "pslinucb-groups", "params": {"groups": 2, "window": 20},
        "context": {"size": 2, "constant": True}, "items": {"size": 2},
    },
    "drawn": {"policy": "lints", "context": {"size": 2}, "seed": 5},
    "means": {"policy": "ucb", "context": {"size": 0}},
}  # fmt: skip
SHOP_NOW = {**CONFIGS["shop"], "policy": "pslinucb-hybrid", "params": {"window": 30}}


class Clock:
    """Nanoseconds since 1970, moved by hand."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def ask(chance: random.Random, name: str, i: int, tag: str) -> dict[str, Any]:
    """The body of a space's decision number ``i``."""
    size = {"news": 3, "brief": 2, "groups": 2, "drawn": 2}.get(name, 0)
    context: Any = [round(chance.uniform(-1, 1), 3) for _ in range(size)]
    arms: list[Any] = ["a", "b", 7, "d"] if i % 7 else ["a", "b", 7, "d", f"new-{i}"]
    if name == "news":
        arms = ["a", "b", 7]
    if name in ("shop", "personalizer"):
        context = {"device": chance.choice(["phone", "desk"]), "age": chance.randint(20, 60)}
        context |= {"mood": chance.choice(["good", "bad"])} if i % 3 else {}
        arms = [
            {"id": arm, "features": {"price": (j + 1) / 2 + (i // 20) / 4}}
            for j, arm in enumerate(arms)
        ]
    if name == "groups":
        arms = [{"id": arm, "features": [float(j % 2), j / 8]} for j, arm in enumerate(arms)]
    return {
        "decision_id": f"{tag}-{name}-{i}", "context": context, "candidates": arms,
        "deferred": i % 11 == 5,
    }  # fmt: skip


def pay(chance: random.Random, arm: Any, i: int, turn: int = 70) -> float:
    """What came of it; interests change at ``turn``."""
    liked = ("a", 7) if i < turn else ("b", "d")
    return round(chance.uniform(0.5, 1.0) if arm in liked else chance.uniform(0.0, 0.4), 3)


# -- going on ---------------------------------------------------------------------------------


def go_on(engine: Any, clock: Clock, wire: Any, steps: int = 60) -> dict[str, Any]:
    """Decisions, rewards, activations and ends of waiting.

    By space: a digest of all that was answered, and the arms, so that a difference can be seen.
    """
    answers: dict[str, Any] = {}
    chance = random.Random(1)
    for name in [*sorted(CONFIGS), "personalizer"]:
        found: list[Any] = []
        arms = []
        for i in range(steps):
            clock.now += 37_000_000
            told = ask(chance, name, i, "next")
            body = msgspec.convert(told, wire.DecisionBody)
            answer = json.loads(engine.decide(name, body, msgspec.json.encode(told)))
            if name == "drawn":  # whose probability was 1 then, whatever was drawn
                assert 0 < answer["probability"] < 1
                answer["probability"] = 1.0
            found.append(answer)
            arms.append(answer["arm"])
            if told["deferred"]:
                found.append(engine.activate(name, told["decision_id"]))
            if i % 5 != 3:
                reward = wire.RewardBody(
                    decision_id=told["decision_id"], value=pay(chance, answer["arm"], i, 20),
                    reward_id=f"r{i}",
                )  # fmt: skip
                found += [engine.reward(name, reward) for _ in range(1 + (i % 9 == 0))]
        engine.tick()
        info = msgspec.to_builtins(engine.info(name))
        info.pop("skipped", None)  # told since
        found.append(info)
        digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
        answers[name] = {"arms": arms, "digest": digest}
    engine.retire_arms("news", ["b"])
    return answers


def unpacked(folder: Path) -> Path:
    """The stored directories, in ``folder``."""
    with tarfile.open(STORED) as archive:
        archive.extractall(folder, filter="data")
    return folder


# -- making it, with the code of then ---------------------------------------------------------


class _Sink(http.server.BaseHTTPRequestHandler):
    taken = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        type(self).taken += 1
        self.send_response(204 if self.taken < 3 else 500)  # then some are left to be delivered
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def _served(data: Path, port: int, how: int) -> Iterator[Any]:
    import whim

    settings = data.parent / "whim.toml"
    settings.write_text(
        f'snapshot_seconds = 1.5\n[[webhooks]]\nurl = "http://127.0.0.1:{port}/hook"\n'
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "whim", "serve", "--config", str(settings), "--data", str(data),
         "--port", "0"], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    address = process.stdout.readline().split()[-1]
    with whim.Client(address, timeout=300) as client:
        yield client
    process.send_signal(how)
    process.wait()
    process.stdout.close()


def _rank(client: Any, i: int, tag: str) -> None:
    body = {
        "eventId": f"{tag}-rank-{i}", "contextFeatures": [{"user": {"age": 20 + i % 30}}],
        "actions": [{"id": arm, "features": [{"price": j}]} for j, arm in enumerate("abc")],
    }  # fmt: skip
    told = client._http.post("/personalizer/v1.0/rank", json=body, timeout=300).json()
    value = {"value": float(told["rewardActionId"] == "b")}
    client._http.post(f"/personalizer/v1.0/events/{told['eventId']}/reward", json=value)


def _drive(client: Any, tag: str, first: int, last: int) -> None:
    chance = random.Random(f"{tag} {first}")
    for name in CONFIGS:
        asked = [ask(chance, name, i, tag) for i in range(first, last)]
        for at in range(0, len(asked), 10):
            part = asked[at : at + 10]
            answers = client.decide_many(part, space=name)
            rewards = []
            for i, answer in enumerate(answers, first + at):
                if i % 11 == 5 and i % 2:
                    client.activate(answer.decision_id, space=name)
                if i % 5 != 3:
                    value = pay(chance, answer.arm, i)
                    rewards.append({"decision_id": answer.decision_id, "value": value})
            client.reward_many(rewards, space=name)
    for i in range(first // 5, last // 5):
        _rank(client, i, tag)


def _make_data(folder: Path) -> str:
    sink = http.server.HTTPServer(("127.0.0.1", 0), _Sink)
    threading.Thread(target=sink.serve_forever, daemon=True).start()
    data = folder / "closed"
    with _served(data, sink.server_port, signal.SIGTERM) as client:
        for name, config in CONFIGS.items():
            client.create(name, **config)
        client.create("gone", context={"size": 1})
        client.decide([1.0], ["x", "y"], space="gone")
        client.retire("gone")
        _drive(client, "first", 0, 60)
        version = client.change("shop", **SHOP_NOW)
        while client.space("shop").version < version:
            time.sleep(0.1)
        client.retire_arms(["new-7"], space="means")
        time.sleep(4)  # snapshots, and ends of waiting
        _drive(client, "first", 60, 110)
        client.change("drawn", **{**CONFIGS["drawn"], "params": {"alpha": 0.5}})
    shutil.copytree(data, folder / "killed")
    with _served(folder / "killed", sink.server_port, signal.SIGKILL) as client:
        _drive(client, "killed", 0, 40)
    sink.shutdown()
    made = subprocess.run(
        [sys.executable, "-m", "whim", "keys", "make", "reader", "--scope", "read",
         "--data", str(data)], stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return made.stdout.strip()


def _record(data: Path) -> dict[str, Any]:
    """What the code of then holds and answers; on a copy."""
    from whim.serve.engine import Engine
    from whim.serve.tell import told

    from whim.serve import wire

    def state(engine: Any) -> dict[str, Any]:
        return {
            name: {
                "digest": space.fold.digest(),
                "info": msgspec.to_builtins(engine.info(name)),
                "stats": space.fold.stats.summary(),
                "changes": told(engine, space, 0)[-5:],
            }
            for name, space in sorted(engine.spaces.items())
        }

    return recorded(data, Engine, wire, state)


def recorded(
    data: Path, engine: Callable[..., Any], wire: Any, state: Callable[[Any], dict[str, Any]]
) -> dict[str, Any]:
    """The state of a data directory, how it goes on, and the state after that."""
    clock = Clock((_last_at(data) + 1_000_000) * 1000)
    opened = engine(data, clock=clock)
    try:
        before = state(opened)
        answers = go_on(opened, clock, wire)
        opened.store.flush()
        return {"before": before, "answers": answers, "after": state(opened)}
    finally:
        opened.close()


def _last_at(data: Path) -> int:
    with contextlib.closing(sqlite3.connect(data / "log.db")) as log:
        return int(log.execute("SELECT at FROM log ORDER BY seq DESC LIMIT 1").fetchone()[0])


def _exported(data: Path, folder: Path) -> dict[str, Any]:
    from whim.serve.export import export
    from whim.serve.whatif import run

    from whim.serve import wire

    return outside(data, folder, wire, export, run)


def outside(data: Path, folder: Path, wire: Any, export: Any, whatif: Any) -> dict[str, Any]:
    """What verbs read from a data directory: an export's digest, and a what-if."""
    found: dict[str, Any] = {}
    for name in sorted(CONFIGS):
        out = folder / f"{name}.dsjson"
        export(data, name, out, format="dsjson", overwrite=True)
        found[f"export {name}"] = hashlib.sha256(out.read_bytes()).hexdigest()
    config = msgspec.convert({**CONFIGS["news"], "policy": "linucb-disjoint", "params": {}},
                             wire.SpaceConfig)  # fmt: skip
    found["whatif"] = whatif(data, "news", config, lambda share: None)
    return found


def main(out: Path) -> None:
    """Make the archive and what is expected of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        token = _make_data(folder)
        out.mkdir(parents=True, exist_ok=True)
        with tarfile.open(out / STORED.name, "w:xz") as archive:
            for copy in COPIES:
                for path in sorted((folder / copy).iterdir()):
                    archive.add(path, f"{copy}/{path.name}")
        expected: dict[str, Any] = {"token": token, "made": os.uname().machine}
        expected["outside"] = _exported(folder / "closed", folder)
        expected |= {copy: _record(folder / copy) for copy in COPIES}
        text = json.dumps(expected, separators=(",", ":"))
        (out / EXPECTED.name).write_text(text + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
