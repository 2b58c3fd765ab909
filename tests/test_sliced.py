"""Bodies that are decoded in slices are decoded as msgspec does it at once."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from whim.serve import wire
from whim.serve.http import bodies
from whim.serve.http.personalizer import RankRequest
from whim.serve.http.sliced import SlicedDecoder
from whim.serve.http.turns import Turns

ONE = {"candidates": ["a", 7, {"id": "b", "features": [1.0, 2.0]}], "context": [0.5]}
FULL = ONE | {"decision_id": "d", "deferred": True, "context": {"x": 1}}


def sliced(takes: type[msgspec.Struct], field: str, raw: bytes) -> Any:
    return asyncio.run(SlicedDecoder(takes, field).decode(raw, Turns()))


@pytest.mark.parametrize(
    ("takes", "field", "body"),
    [(wire.DecisionBody, "candidates", ONE), (wire.DecisionBody, "candidates", FULL),
     (bodies.Decisions, "decisions", {"decisions": [ONE, FULL] * 20}),
     (bodies.Lists, "lists", {"lists": [ONE | {"k": 2}, FULL | {"slots": [{"id": 1}, {}]}] * 9}),
     (RankRequest, "actions", {"actions": [{"id": "a", "features": [{"b": 1}]}], "eventId": "e"}),
     (bodies.Rewards, "rewards", {"rewards": [{"decision_id": "é", "value": 1e3}] * 3})],
)  # fmt: skip
def test_the_same_body(takes: Any, field: str, body: Any) -> None:
    raw = msgspec.json.encode(body)
    assert sliced(takes, field, raw) == msgspec.json.decode(raw, type=takes)


@pytest.mark.parametrize(
    "body",
    [{}, {"decisions": []}, {"decisions": [ONE] * 1001}, {"decisions": 1}, {"decisions": [1]},
     {"decisions": [ONE, {"candidates": []}]}, {"decisions": [ONE, ONE | {"candidates": [1.5]}]},
     {"decisions": [ONE | {"more": 1}]}, {"decisions": [ONE], "more": 1},
     {"decisions": [{"context": []}]}, {"decisions": [ONE, ONE | {"decision_id": ""}]},
     {"decisions": [ONE | {"candidates": [{"id": "a", "features": "no"}]}]}],
)  # fmt: skip
def test_the_same_error(body: Any) -> None:
    raw = msgspec.json.encode(body)
    with pytest.raises(msgspec.ValidationError) as expected:
        msgspec.json.decode(raw, type=bodies.Decisions)
    with pytest.raises(msgspec.ValidationError) as found:
        sliced(bodies.Decisions, "decisions", raw)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("raw", [b"", b"{", b'{"decisions":[{]}', b'{"decisions":[{"a":tru}]}'])
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        sliced(bodies.Decisions, "decisions", raw)


def test_a_small_request_goes_before_slices() -> None:
    async def run() -> tuple[int, int]:
        turns, done = Turns(), 0

        def work() -> None:
            nonlocal done
            time.sleep(0.001)
            done += 1

        async def long() -> None:
            for _ in range(30):
                await turns.run(work)

        async def small() -> int:
            before = done
            for _ in range(6):  # turns of the event loop that a decision takes
                await asyncio.sleep(0)
            return done - before

        # nobody knew that they are long
        running = [asyncio.ensure_future(turns.first(long())) for _ in range(2)]
        await asyncio.sleep(0.005)
        met = [await turns.first(small()) for _ in range(5)]
        await asyncio.gather(*running)
        return max(met), done

    assert asyncio.run(run()) == (0, 60)


def test_slices_do_not_wait_for_ever() -> None:
    async def run() -> float:
        turns = Turns()

        other = asyncio.ensure_future(turns.first(asyncio.sleep(3600)))
        await asyncio.sleep(0)
        began = time.monotonic()
        for _ in range(3):
            await turns.run(lambda: None)
        took = time.monotonic() - began
        other.cancel()
        return took

    assert asyncio.run(run()) < 1.0
