"""What tests of lists in the service share: an engine, requests and rewards, and counted draws."""

from __future__ import annotations

import contextlib
import json
import math
import operator
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from scipy import stats

from tests.clocks import Clock
from whim.serve import wire
from whim.serve.state.choosing import DecisionRequest
from whim.serve.state.engine import Engine

_answer = msgspec.json.Decoder(wire.ListAnswer).decode
_item = operator.attrgetter("arm", "probability", "prefix_probability")
ARMS = ["a", "b", "c", "d", "e", "f"]
SECOND = 1_000_000_000


def config(**more: Any) -> wire.SpaceConfig:
    fields: dict[str, Any] = {
        "policy": "linucb-disjoint", "context": {"size": 2}, "rewards": {"wait_seconds": 10},
    }  # fmt: skip
    return msgspec.convert(fields | more, wire.SpaceConfig)


@pytest.fixture
def clock() -> Clock:
    return Clock(1_790_000_000 * SECOND)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def engine(data: Path, clock: Clock) -> Iterator[Engine]:
    made = Engine(data, clock=clock)
    yield made
    with contextlib.suppress(OSError):  # some tests close it themselves
        made.close()


def ask(engine: Engine, key: str, space: str = "s", **more: Any) -> Any:
    fields: dict[str, Any] = {"context": [1.0, 0.5], "candidates": ARMS, "decision_id": key}
    fields |= {} if "slots" in more else {"k": 3}
    body = msgspec.convert(fields | more, wire.ListBody)
    request = DecisionRequest.of(body)
    return json.loads(engine.decide(space, body, request.raw))


def pay(engine: Engine, key: str, value: float, space: str = "s", **more: Any) -> str:
    return str(engine.reward(space, wire.RewardBody(decision_id=key, value=value, **more)))


def steps(engine: Engine, space: str = "s") -> int:
    return engine.space(space).state.policy.step


def shown(answer: Any) -> list[Any]:
    return [item["arm"] for item in answer["items"]]


SETTINGS: list[dict[str, Any]] = [
    {"explore": 0.3},
    {"explore": 0.2, "holdback": 0.3},
    {"explore": 0.2, "holdback": 0.3, "baseline": "random"},
    {"shadow": True, "baseline": "random"},
]

RANDOM: dict[str, Any] = {"policy": "random", "explore": 0.2, "holdback": 0.3}


def compare(engine: Engine, more: dict[str, Any], n: int) -> float:
    """The least p-value of the counts of items and prefixes, given what was logged for them."""
    ask(engine, "first", **more)  # so that the arms are known
    space = engine.space("s")
    fields = {"context": [1.0, 0.5], "candidates": ARMS, **more}
    body = msgspec.convert(fields, wire.ListBody)
    lists: Counter[tuple[tuple[str, float, float], ...]] = Counter()  # of equal bits
    for first in range(0, n, 500):
        requests = [
            DecisionRequest(msgspec.structs.replace(body, decision_id=f"k{i}"))
            for i in range(first, min(first + 500, n))
        ]
        space.propose(requests)  # deciding changes nothing
        for one in requests:
            lists[tuple(_item(item) for item in _answer(one.answer).items)] += 1
    assert lists.total() == n
    said: dict[tuple[int, tuple[str, ...]], float] = {}
    counts: Counter[tuple[int, tuple[str, ...]]] = Counter()
    for items, count in lists.items():
        arms = tuple(arm for arm, _, _ in items)
        for j, (_, chance, prefix) in enumerate(items):
            for key, p in (((j, arms[j : j + 1]), chance), ((-1 - j, arms[: j + 1]), prefix)):
                counts[key] += count
                assert math.isclose(said.setdefault(key, p), p, rel_tol=1e-12)
    for kind in {kind for kind, _ in said}:
        total = sum(p for (k, _), p in said.items() if k == kind)
        assert total <= 1 + 1e-9
    tests = [
        stats.binomtest(counts[key], n, min(1.0, p)).pvalue for key, p in said.items() if p * n >= 5
    ]
    assert len(tests) > 10
    return float(min(tests) * len(tests))
