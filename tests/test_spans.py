"""Counts over time: those of a list of all events; live, in batches and from snapshots alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.clocks import Clock
from tests.test_since_change import ANSWER, CONFIG, SECOND, play
from whim.serve import wire
from whim.serve.state.engine import Engine
from whim.serve.state.space_state import SpaceState
from whim.serve.state.spans import OF_ARM, OF_SPACE, Ladder, Spans

US = 1_000_000
HOUR, DAY = 3600 * US, 86_400 * US
NOW = 1_760_000_000 * US


def literal(events: list[Any], since: int, until: int, holdback: bool = False) -> list[float]:
    """Decisions, closed, sum and squares of a span: the oracle."""
    inside = [e for e in events if since <= e[0] < until]
    rewards = [e[3] for e in inside if e[3] is not None and e[2] == holdback]
    return [len(inside), len(rewards), sum(rewards), sum(r * r for r in rewards)]


def summed(ladder: Ladder, since: int, until: int) -> tuple[list[float], int, int]:
    """The same of a ladder's bins, and the span that they cover."""
    found = [*ladder.between(since, until)]
    first, last = (found[0][0], found[-1][0] + found[-1][1]) if found else (since, until)
    fields = ("decisions", "closed", "total", "squares")
    return [sum(getattr(one, f) for _, _, one in found) for f in fields], first, last


@pytest.mark.parametrize(("seed", "days", "wait"), [(0, 3, 60), (1, 40, 7200), (2, 700, 90_000)])
def test_every_span_is_that_of_a_list_of_all_events(seed: int, days: int, wait: int) -> None:
    """Two arms over months; rewards come late, by which bins may have been joined already."""
    rng = np.random.default_rng(seed)
    ats = np.sort(rng.integers(NOW - days * DAY, NOW, size=3000)).tolist()
    closes = [at + int(rng.integers(1, wait * US)) for at in ats]
    arms = [f"a{i}" for i in rng.integers(2, size=3000)]
    values = rng.integers(0, 5, size=3000).astype(float).tolist()  # whole: sums in any order
    held = (rng.random(3000) < 0.2).tolist()
    steps = sorted([(at, 0, i) for i, at in enumerate(ats)] + [(c, 1, i) for i, c in
                                                             enumerate(closes)])  # fmt: skip
    spans = Spans()
    for now, closing, i in steps:
        if closing:
            spans.closed(now, ats[i], arms[i], held[i], values[i])
        else:
            spans.decided(now, arms[i])
    events = list(zip(ats, arms, held, values, strict=True))
    assert len(spans.space.bins) < 900
    for since in (NOW - HOUR, NOW - DAY, NOW - 7 * DAY, NOW - days * DAY):
        for until in (NOW + DAY, NOW - days * DAY // 3):
            if since >= until:
                continue
            found, first, last = summed(spans.space, since, until)
            assert first <= since + OF_SPACE[-1].width
            assert found == literal(events, first, last)
            for arm in ("a0", "a1"):
                found, first, last = summed(spans.arms[arm], since, until)
                own = [(at, a, False, v) for at, a, _, v in events if a == arm]
                assert found == literal(own, first, last)
    end = max(closes)
    for ladder, levels, ages in (
        (spans.space, OF_SPACE, (HOUR, DAY, 7 * DAY)),
        (spans.arms["a0"], OF_ARM[1:], (HOUR, DAY, 7 * DAY)),
    ):  # the last hour, day and week are known in bins of their own size
        for level, age in zip(levels, ages, strict=False):
            widths = {width for _, width, _ in ladder.between(end - age, end)}
            assert not widths or max(widths) <= level.width
    again = Spans.from_bytes(spans.to_bytes(), 3000)
    assert again.to_bytes() == spans.to_bytes()


def test_decisions_that_nobody_closes_do_not_pile_up() -> None:
    one, many = Spans(), Spans()
    ats = [NOW + i * 61 * US for i in range(5000)]
    one.decided(ats[0], "a")
    many.decided(ats[0], "a")
    for at in ats[1:]:
        one.decided(at, "a")
    for i in range(1, 5000, 50):
        if not many.decided_many(ats[i : i + 50], ["a"] * len(ats[i : i + 50])):
            for at in ats[i : i + 50]:
                many.decided(at, "a")
    assert len(one.space.bins) <= 1001
    assert sum(b.decisions for b in one.space.bins.values()) == 5000
    assert one.to_bytes() == many.to_bytes()


def test_live_rows_batches_and_snapshots_agree(tmp_path: Path) -> None:
    clock = Clock(1_700_000_000 * SECOND)
    engine = Engine(tmp_path / "data", clock=clock)
    engine.create("s", CONFIG)
    play(engine, clock, 300)
    clock.now += 3 * 3600 * SECOND
    play(engine, clock, 300, seed=1)
    for _ in range(5):  # never rewarded: the waiting ends
        ANSWER.decode(engine.decide("s", wire.DecisionBody(candidates=["a"], context=[0, 1]), b""))
    clock.now += 700 * SECOND
    engine.tick()
    engine.store.flush()
    space = engine.space("s")
    spans = space.state.stats.spans
    live, version = spans.to_bytes(), space.state.version
    assert spans.whole
    assert sum(b.closed for b in spans.space.bins.values()) == 605
    rows = [*engine.store.rows(space=space.number)]
    engine.close()
    for size in (1, 7, 10_000):
        state = SpaceState(CONFIG, version)
        for at in range(0, len(rows), size):
            if size == 1:
                state.apply(rows[at])
            else:
                state.apply_many([(*row, 0) for row in rows[at : at + size]])
        assert state.stats.spans.to_bytes() == live
    again = SpaceState.from_bytes(*state.to_bytes())
    assert again.stats.spans.to_bytes() == live


def test_a_state_of_an_earlier_whim_begins_to_count() -> None:
    state = SpaceState(CONFIG)
    state.policy.add_arms(["a"])
    state.stats.decided(NOW, "policy", "a")
    head, policy = state.to_bytes()
    old = msgspec.msgpack.decode(head)
    del old["spans"]
    loaded = SpaceState.from_bytes(msgspec.msgpack.encode(old), policy)
    assert not loaded.stats.spans.whole
    assert loaded.digest() == state.digest()
    loaded.stats.decided(NOW + HOUR, "policy", "a")
    assert loaded.stats.spans.since == NOW + HOUR
    assert SpaceState.from_bytes(*loaded.to_bytes()).stats.spans.since == NOW + HOUR
    state.stats.retired(["a"])
    assert "a" not in state.stats.spans.arms
