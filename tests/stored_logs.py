"""A log of every format that there ever was, from format 4 on, and what is in it.

``python -m tests.stored_logs FOLDER`` writes one of today's format. That is for a new format, once:
a file that is there holds what users have on their disks, and is never made again.
"""

from __future__ import annotations

import json
import lzma
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from whim.serve import wire
from whim.serve.jobs.trim import trim
from whim.serve.log.log_writer import FORMAT
from whim.serve.state.engine import Engine

FOLDER = Path(__file__).parent / "data"


def stored(number: int) -> Path:
    """The file of a format; what is expected of it lies beside it."""
    return FOLDER / f"log-format-{number}.db.xz"


def unpack(number: int, data: Path) -> None:
    """A data directory with the log of a format, and nothing else."""
    data.mkdir(parents=True)
    (data / "log.db").write_bytes(lzma.decompress(stored(number).read_bytes()))


def described(data: Path) -> dict[str, Any]:
    """All that a log says, by the engine that opens it."""
    engine = Engine(data)
    try:
        spaces = {
            name: {
                "digest": space.state.digest(),
                "version": space.state.version,
                "counts": space.state.stats.summary()["counts"],
                "arms": sorted(map(str, space.state.policy.arms)),
                "waiting": sorted(space.state.pending),
                "changes": len(engine.changes(name, 0)),
            }
            for name, space in sorted(engine.spaces.items())
        }
        return {"rows": engine.seq, "trimmed": engine.store.trimmed(), "spaces": spaces}
    finally:
        engine.close()


def _write(data: Path) -> None:
    """Rows of every kind, a change of interest, a rebuilt version, and a base of the first rows."""
    now = [1_790_000_000_000_000_000]
    engine = Engine(data, clock=lambda: now[0])
    quick = wire.RewardRules(wait_seconds=5.0)
    engine.create("means", wire.SpaceConfig(policy="ucb", context=wire.Features(), rewards=quick))
    engine.create("tested", wire.SpaceConfig(
        policy="pslinucb-disjoint", params={"window": 8, "threshold": 0.2},
        context=wire.Features(size=1), explore=0.1, holdback=0.1,
    ))  # fmt: skip
    engine.create("gone", wire.SpaceConfig(policy="ucb", context=wire.Features()))
    engine.retire("gone")
    for i in range(60):
        now[0] += 1_000_000_000
        for name, context in (("means", []), ("tested", [1.0])):
            key = f"{name}/{i}"
            body = wire.DecisionBody(
                candidates=["a", "b", 7], context=context, decision_id=key, deferred=i % 9 == 4
            )
            arm = json.loads(engine.decide(name, body, key.encode()))["arm"]
            if i % 9 == 4 and i % 2:
                engine.activate(name, key)
            if i % 4:
                value = float((arm == "a") == (i < 30))
                engine.reward(name, wire.RewardBody(decision_id=key, value=value, reward_id=key))
        _show_list(engine, i)
        engine.tick()
    engine.retire_arms("means", [7])
    engine.change("means", wire.SpaceConfig(
        policy="ucb", params={"alpha": 2.0}, context=wire.Features(), rewards=quick
    ))  # fmt: skip
    engine.store.flush()
    from whim.serve.state.recovery import Rebuilt, rebuild

    number, wanted = engine.wanted("means")
    state, _ = rebuild(engine.store, number, wanted)
    engine.swap("means", Rebuilt(number, state, []))
    engine.store.flush()
    trim(data / "log.db", 1_790_000_010_000_000, pause=lambda seconds: None)
    engine.close()


def _show_list(engine: Engine, i: int) -> None:
    """With features and exclusions of slots, or without; some are rewarded, some deferred."""
    key, arms = f"list/{i}", ["a", "b", "c", 7]
    slots = [wire.Slot(id=f"p{j}", features=[1.0 + j], exclude=arms[j : j + 1]) for j in range(3)]
    body = wire.ListBody(candidates=arms, context=[1.0], decision_id=key, k=2)
    if i % 3 == 1:
        body = wire.ListBody(candidates=arms, decision_id=key, slots=slots, deferred=i % 9 == 4)
    items = json.loads(engine.decide("tested", body, key.encode()))["items"]
    for item in items if i % 4 else ():
        value = float(item["arm"] == "a")
        reward = wire.RewardBody(decision_id=key, value=value, slot=item["slot"])
        engine.reward("tested", reward)


def main(out: Path) -> None:
    """Write a log of today's format and what is expected of it."""
    with tempfile.TemporaryDirectory() as name:
        _write(Path(name) / "data")
        log = (Path(name) / "data" / "log.db").read_bytes()
        expected = {"made": platform.machine(), **described(Path(name) / "data")}
        (out / stored(FORMAT).name).write_bytes(lzma.compress(log, preset=9))
        path = out / stored(FORMAT).name
        path.with_suffix("").with_suffix(".json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
