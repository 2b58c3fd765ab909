"""Rewards since an arm's last change: the same live, in batches, and from snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.clocks import Clock
from whim.serve import wire
from whim.serve.state.engine import Engine
from whim.serve.state.since_change import SinceChange
from whim.serve.state.space_state import SpaceState

SECOND = 1_000_000_000
ANSWER = msgspec.json.Decoder(wire.Answer)
CONFIG = wire.SpaceConfig(
    context=wire.Features(size=2, constant=True), explore=0.3, rewards=wire.RewardRules()
)


def play(engine: Engine, clock: Clock, n: int, seed: int = 0) -> list[tuple[Any, float]]:
    """Readers who change their minds every 150 plays; what was shown and earned."""
    rng, earned = np.random.default_rng(seed), []
    for i in range(n):
        clock.now += SECOND
        body = wire.DecisionBody(candidates=["a", "b"], context=rng.normal(size=2).tolist())
        answer = ANSWER.decode(engine.decide("s", body, b""))
        liked = "ab"[i // 150 % 2]
        value = float(rng.random() < (0.9 if answer.arm == liked else 0.1))
        engine.reward("s", wire.RewardBody(decision_id=answer.decision_id, value=value))
        earned.append((answer.arm, value))
    engine.store.flush()
    return earned


def test_it_counts_what_came_after_the_play_that_revealed_a_change(tmp_path: Path) -> None:
    clock = Clock(1_700_000_000 * SECOND)
    engine = Engine(tmp_path / "data", clock=clock)
    engine.create("s", CONFIG)
    earned = play(engine, clock, 800)
    changes = engine.changes("s", 0)
    assert {change["arm"] for change in changes} == {"a", "b"}
    since = engine.space("s").state.stats.since_change
    for arm in "ab":
        last = max(change["plays"] for change in changes if change["arm"] == arm)
        after = [value for shown, value in earned if shown == arm][last:]
        assert since.sums(arm) == (len(after), sum(after), sum(after))
    live, version = since.to_bytes(), engine.space("s").state.version
    rows = [*engine.store.rows(space=engine.space("s").number)]
    engine.close()
    for size in (1, 7, 10_000):  # row by row, and many together
        state = SpaceState(CONFIG, version)
        for at in range(0, len(rows), size):
            some = rows[at : at + size]
            if size == 1:
                state.apply(some[0])
            else:
                state.apply_many([(*row, 0) for row in some])
        assert state.stats.since_change.to_bytes() == live
    again = SpaceState.from_bytes(*state.to_bytes())
    assert again.stats.since_change.to_bytes() == live


def test_a_state_of_an_earlier_whim_does_not_know_them(tmp_path: Path) -> None:
    state = SpaceState(CONFIG)
    state.policy.add_arms(["a"])
    state.stats._arm("a")
    state.stats.saw_change(1, "a")
    head, policy = state.to_bytes()
    old = msgspec.msgpack.decode(head)
    del old["since_change"]
    loaded = SpaceState.from_bytes(msgspec.msgpack.encode(old), policy)
    assert loaded.stats.since_change.sums("a") is None
    assert loaded.stats.arms["a"].changed == 1
    assert loaded.digest() == state.digest()


@pytest.mark.parametrize("seed", range(5))
def test_a_recount_is_play_by_play(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arms = [f"a{i}" for i in rng.integers(4, size=300)]
    rewards = rng.normal(size=300).tolist()
    changes = {int(i): arms[i] if rng.random() < 0.8 else None for i in rng.integers(300, size=9)}
    literal, counted = SinceChange(), SinceChange()
    for since in (literal, counted):
        since.restart("a1")  # from before
    for i, (arm, reward) in enumerate(zip(arms, rewards, strict=True)):
        literal.add(arm, reward)
        counted.add(arm, reward)
        if i in changes:
            literal.restart(changes[i])
    for _, arm in sorted(changes.items()):  # only now are they known
        counted.restart(arm)
    counted.recount(changes, arms, rewards)
    for arm in ("a0", "a1", "a2", "a3", "never"):
        assert counted.sums(arm) == literal.sums(arm)
    counted.forget(["a0", "a1"])
    assert counted.sums("a1") in (None, (0, 0.0, 0.0))
