"""What must hold of a log that replicas share, held against what their callers were told."""

from __future__ import annotations

import bisect
import contextlib
import json
import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tests import list_draws
from tests.retrying import Told
from whim.serve.log.configs import config_histories
from whim.serve.log.reader import LogReader
from whim.serve.log.rows import DECODERS, DecisionRow, Kind, Raw, answer_of
from whim.serve.postgres.reader import Reader
from whim.serve.state import recovery
from whim.serve.state.drawing import draws, probability, seed_of
from whim.serve.state.engine import Engine
from whim.serve.state.lists import uniforms
from whim.serve.state.slots import Slots
from whim.serve.state.space_state import SpaceState
from whim.serve.wire import SpaceConfig

_EFFECTIVE = frozenset(("learnt", "kept"))


class SpaceLog(NamedTuple):
    """The rows of a space, and the configurations that were in force, by version."""

    number: int
    rows: list[Raw]
    versions: dict[int, SpaceConfig]


class Whole:
    """All rows of a shard, verified and without gaps, by the name of their space."""

    def __init__(self, dsn: str, shard: int = 0) -> None:
        with contextlib.closing(Reader(dsn, shard)) as reader:
            self.rows = [row for block in reader.blocks() for row in block]
            head = reader.last()[0]
            histories = config_histories(reader)  # type: ignore[arg-type]
        assert [row[0] for row in self.rows] == list(range(1, head + 1)), "numbers have a gap"
        times = [row[1] for row in self.rows]
        assert times == sorted(times), "time went back"
        self.spaces: dict[str, SpaceLog] = {}
        for number, history in histories.items():
            versions = {version: config for _, version, config in history.served}
            mine = [row for row in self.rows if row[2] == number]
            self.spaces[history.now.name] = SpaceLog(number, mine, versions)

    def digests(self) -> dict[str, str]:
        """Of a fold from nothing, for each space; nothing waits in it any more."""
        found = {}
        for name, space in self.spaces.items():
            state = folded(space)
            assert not state.pending, f"{len(state.pending)} decisions of {name} wait for ever"
            found[name] = state.digest()
        return found


def folded(space: SpaceLog, block: int = 1000) -> SpaceState:
    """The state after all rows, from nothing."""
    version = max(space.versions)
    state = SpaceState(space.versions[version], version)
    for low in range(0, len(space.rows), block):
        state.apply_many(space.rows[low : low + block])
    return state


# -- answers ----------------------------------------------------------------------------------


def check_answers(space: SpaceLog) -> int:
    """Each decision is what the library gives for the state that it was based on; how many."""
    seqs = [row[0] for row in space.rows]
    by_version: dict[int, list[DecisionRow]] = {}
    for row in space.rows:
        if row[3] == Kind.DECISION:
            decision = DECODERS[Kind.DECISION].decode(row[5])
            assert decision.base is not None
            assert decision.base < row[0]
            by_version.setdefault(decision.version, []).append(decision)
    for version, decisions in by_version.items():
        state, low = SpaceState(space.versions[version], version), 0
        for decision in sorted(decisions, key=lambda one: one.base or 0):
            high = bisect.bisect_right(seqs, decision.base or 0)
            if high > low:
                state.apply_many(space.rows[low:high])
                low = high
            assert state.seq == decision.base, (decision.id, state.seq, decision.base)
            _check_answer(state, decision)
    return sum(map(len, by_version.values()))


def bits(numbers: Sequence[float]) -> bytes:
    """Numbers as they are in memory, for two zeros are equal and not the same."""
    return struct.pack(f"{len(numbers)}d", *numbers)


def _check_answer(state: SpaceState, row: DecisionRow) -> None:
    config, n = state.config, len(row.arms)
    x = state.context(row.context)
    order, numbers, chances = state.preview(x, row.arms, row.features, seed_of(config.seed, row.id))
    if row.items is not None:
        _check_list(state, row, order, numbers, chances)
        return
    assert row.order == order, (row.id, row.order, order)
    assert bits(row.numbers) == bits(numbers), (row.id, row.numbers, numbers)
    u, v, w = draws(config.seed, row.id)
    place, mode = order[0], "policy"
    if u < config.holdback:
        place, mode = 0, "holdback"
    elif v < config.explore:
        place, mode = min(int(w * n), n - 1), "explore"
    drawn = None if chances is None else float(chances[place])
    chance = probability(config, place, order[0], n, drawn)
    logged = row.wanted, row.place, row.mode, row.probability, row.drawn
    assert logged == (order[0], place, mode, chance, drawn), row.id


def _check_list(
    state: SpaceState, row: DecisionRow, order: list[int], numbers: list[float], chances: Any
) -> None:
    """A list is the best that may stand in each slot, or the baseline, or a draw."""
    assert row.items is not None
    config, places = state.config, row.items.places
    slots = Slots(len(row.arms), len(places), row.items.exclude)
    own, first = slots.fill([order]), slots.fill([list(range(len(row.arms)))])
    assert row.order == own, row.id
    shown, mode = own, "policy"
    u, v, _ = draws(config.seed, row.id)
    if u < config.holdback:
        shown, mode = first, "holdback"
    elif v < config.explore:
        shown, mode = slots.draw(uniforms(config.seed, row.id, len(places))), "explore"
    assert (places, row.mode) == (shown, mode), row.id
    mine = [n for place in places for n in numbers[3 * place : 3 * place + 3]]
    assert bits(row.numbers) == bits(mine), row.id
    every = frozenset(range(len(row.arms)))
    allowed = tuple(every - set(out) for out in row.items.exclude or [()] * len(places))
    by_chance = list_draws.told(allowed, tuple(places))
    other, e = 1 - config.holdback, config.explore
    for j, place in enumerate(places):
        item = config.holdback * (first[j] == place)
        item += other * (e * by_chance[0][j] + (1 - e) * (own[j] == place))
        start = config.holdback * (first[: j + 1] == places[: j + 1])
        start += other * (e * by_chance[1][j] + (1 - e) * (own[: j + 1] == places[: j + 1]))
        said = row.items.probabilities[j], row.items.prefixes[j]
        if chances is not None:  # of a policy that draws the top is known, if any may stand there
            assert (config.holdback, e) == (0, 0)
            if j or list_draws.tops(allowed) != every:
                assert said == (None, None), row.id
                continue
            item = start = float(chances[place])
        assert np.allclose(said, (item, start), rtol=1e-9, atol=0), (row.id, j, said, item, start)


# -- what was told ----------------------------------------------------------------------------


def check_told(whole: Whole, told: Told) -> None:
    """All that was acknowledged is in the log, once, with the answer that was given."""
    assert not told.wrong, told.wrong[:3]
    for name, space in whole.spaces.items():
        _check_space(name, space, told)


def _check_space(name: str, space: SpaceLog, told: Told) -> None:
    state = SpaceState(space.versions[1])
    decisions: dict[str, Any] = {}
    outcomes: dict[str, Counter[str]] = {}
    learnt: Counter[str] = Counter()
    activated: set[str] = set()
    nameless: Counter[tuple[str, str, float]] = Counter()
    for raw in space.rows:
        _, at, _, kind, key, body, _ = raw
        row = DECODERS[kind].decode(body)
        if kind == Kind.DECISION:
            assert row.id == key
            assert key not in decisions, f"{key} was decided twice"
            decisions[key] = json.loads(msgspec.json.encode(answer_of(name, row)))
        elif kind == Kind.REWARD:
            outcome = state.ledger.outcome(at, row)
            if row.reward_id is None:
                nameless[name, row.id, row.value] += 1
            outcomes.setdefault(row.reward_id, Counter())[outcome] += 1
            learnt[row.id] += outcome == "learnt"
        elif kind == Kind.EXPIRY:
            assert len(set(row.closed)) == len(row.closed), "an end is named twice"
            for closed, learn in state.ledger.ended(at, row):
                learnt[closed] += learn is not None
        elif kind == Kind.ACTIVATION:
            activated.add(row.id)
        state.apply_many([raw])
    mine = {key: answer for (where, key), answer in told.decisions.items() if where == name}
    for key, answer in mine.items():
        assert key in decisions, f"{key} was acknowledged and is lost"
        assert decisions[key] == answer, f"{key} was answered otherwise"
    for (where, key), states in told.rewards.items():
        if where == name:
            _check_reward(key, states, outcomes.get(key, Counter()))
    for once, kept in told.once.items():
        if once[0] == name:  # a batch whose answer was lost must not be appended again
            assert int(kept) <= nameless[once] <= 1, (once, kept, nameless[once])
    twice = [key for key, n in learnt.items() if n > 1]
    assert not twice, f"learnt twice: {twice[:5]}"
    lost = {key for where, key in told.activated if where == name} - activated
    assert not lost, f"activations that were acknowledged and are lost: {lost}"


def _check_reward(key: str, states: list[str], logged: Counter[str]) -> None:
    counted = sum(logged[state] for state in _EFFECTIVE)
    assert counted <= 1, f"reward {key} counted {counted} times"
    for state in states:
        if state in _EFFECTIVE:
            assert logged[state] == 1, f"reward {key} was told {state} and is lost: {logged}"
        elif state == "duplicate":
            assert counted, f"reward {key} was called a duplicate of nothing: {logged}"


# -- copies -----------------------------------------------------------------------------------


def check_copy(data: Path, whole: Whole, digests: dict[str, str]) -> None:
    """A replica's copy has the same rows; its snapshots and the rest give the same digests."""
    with contextlib.closing(LogReader(data / "log.db")) as reader:
        copied = [row[:6] for block in reader.blocks() for row in block]
    rows = [row[:6] for row in whole.rows]
    pairs = enumerate(zip(copied, rows, strict=False))
    same = next((i for i, (one, other) in pairs if one != other), min(len(copied), len(rows)))
    assert copied == rows, (
        f"{data.name} has {len(copied)} rows and the log {len(rows)}, of which the first {same} "
        f"agree; then {copied[same : same + 3]} instead of {rows[same : same + 3]}"
    )
    engine = Engine(data, copy=True)
    try:
        for name, digest in digests.items():
            live = engine.space(name)
            assert live.state.digest() == digest, f"{name} of {data.name} is another state"
            config_row = engine.in_force(name)[1]
            fresh, _ = recovery.rebuild(engine.store, live.number, config_row)
            assert fresh.digest() == digest, f"{name} of {data.name} folds to another state"
    finally:
        engine.close()


def changes_of(data: Path, whole: Whole) -> dict[str, Any]:
    """The changes of interest that a replica has stored, of the versions in force."""
    with contextlib.closing(LogReader(data / "log.db")) as reader:
        return {
            name: reader.changes(space.number, max(space.versions), 0, 100_000)
            for name, space in whole.spaces.items()
        }
