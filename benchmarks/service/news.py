"""The news world through the service: the clicks of two policies, beside ``whim simulate``.

Each space is driven in turn, decision, reward, next, so its policy sees just what it sees in a
simulation: the choices must be the same, all of them.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import whim
from benchmarks.service.running import ask, service
from whim.worlds import Episode, NewsWorld

POLICIES = {"LinUCB": "linucb-disjoint", "PSLinUCB": "pslinucb-disjoint"}
ALPHA = 0.2


class Reader:
    """Keep-alive HTTP on a stream: as little as will do."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        """Connect."""
        self._in, self._out = await asyncio.open_connection("127.0.0.1", self._port)

    async def post(self, path: str, body: bytes) -> bytes:
        """The body of the answer."""
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        self._out.write(head.encode() + body)
        told = await self._in.readuntil(b"\r\n\r\n")
        if not told.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(told.decode())
        at = told.index(b"content-length: ") + 16
        return await self._in.readexactly(int(told[at : told.index(b"\r", at)]))


async def drive(port: int, name: str, episode: Episode) -> tuple[float, list[int]]:
    """All decisions of an episode in one space; its clicks, and the places chosen."""
    link = Reader(port)
    await link.open()
    clicks, places = 0.0, []
    for step, x in enumerate(episode.contexts.tolist()):
        pool = episode.pool(step).tolist()
        body = json.dumps({"context": x, "candidates": pool, "decision_id": str(step)}).encode()
        told = json.loads(await link.post(f"/v1/spaces/{name}/decisions", body))
        place = pool.index(told["arm"])
        click = float(episode.rewards[step, place])
        body = json.dumps({"decision_id": str(step), "value": click}).encode()
        await link.post(f"/v1/spaces/{name}/rewards", body)
        clicks += click
        places.append(place)
    return clicks, places


async def _all(port: int, episode: Episode) -> dict[str, tuple[float, list[int]]]:
    found = await asyncio.gather(*(drive(port, name, episode) for name in POLICIES))
    return dict(zip(POLICIES, found, strict=True))


def _alone(name: str, episode: Episode) -> list[int]:
    """The places that the policy chooses by live calls, without a service."""
    policy = whim.policy(POLICIES[name], n_features=episode.contexts.shape[1], alpha=ALPHA)
    places, known = [], set()
    for step, x in enumerate(episode.contexts):
        pool = episode.pool(step).tolist()
        new = [arm for arm in pool if arm not in known]
        if new:
            policy.add_arms(new)
            known.update(new)
        place = pool.index(policy.select(x, pool).arm)
        policy.update(pool[place], x, float(episode.rewards[step, place]))
        places.append(place)
    return places


def measure(folder: Path, decisions: int, runs: int, world: NewsWorld) -> dict[str, Any]:
    """Drive run 0 through the service; simulate it and others."""
    policies = {
        name: whim.policy(policy, n_features=world.n_features, alpha=ALPHA)
        for name, policy in POLICIES.items()
    }
    result = whim.simulate(world, policies, horizon=decisions, runs=runs, seed=0, jobs=1)
    rates = {name: result.reward[name] for name in POLICIES}
    gains = rates["PSLinUCB"] - rates["LinUCB"]
    spread = 1.96 * gains.std(ddof=1) / np.sqrt(runs)
    episode = world.episode(horizon=decisions, seed=0, run=0)
    began = time.perf_counter()
    with service(folder / "news") as (port, _):
        for name, policy in POLICIES.items():
            ask(port, "POST", "/v1/spaces", {
                "name": name, "policy": policy, "params": {"alpha": ALPHA},
                "context": {"size": world.n_features}, "rewards": {"wait_seconds": 3600},
            })  # fmt: skip
        found = asyncio.run(_all(port, episode))
    seconds = time.perf_counter() - began
    served = {name: clicks / decisions for name, (clicks, _) in found.items()}
    return {
        "decisions": decisions,
        "runs": runs,
        "served": served,
        "served_gain": served["PSLinUCB"] - served["LinUCB"],
        "simulated_run_0": {name: float(rates[name][0]) for name in POLICIES},
        "simulated_gain": [
            float(gains.mean()), float(gains.mean() - spread), float(gains.mean() + spread)
        ],
        "same_choices": {
            name: int(np.sum(np.array(found[name][1]) == np.array(_alone(name, episode))))
            for name in POLICIES
        },
        "seconds": seconds,
    }  # fmt: skip
