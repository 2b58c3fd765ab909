"""An R6A-format log of a million events: how long to convert it, and to replay it.

``python -m benchmarks.peers.logs [--quick]``. No peer reads R6A, so conversion is held against a
reader in plain Python. The peers' own replay tools get the visits of work B as arrays, with choices
among the page or, where a tool knows no candidates, among all; whim replays the same visits too.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import whim
from benchmarks.conversion import ARTICLES, plain_reader, write_text
from benchmarks.measure import interleave, progress
from benchmarks.peers import replays
from benchmarks.peers.driver import TASKS, turns
from benchmarks.peers.environments import PEERS, ROOT
from whim.logs.yahoo import convert

__all__ = ["own", "peers_replays", "text"]

_PLAIN = 20_000  # events that the plain reader reads in a round


def own(events: int = 1_000_000, rounds: int = 3) -> dict[str, Any]:
    """Seconds an event of conversion and of replay, in rounds that take turns."""
    path = ROOT / ".bench" / f"r6a-{events}.txt"
    if not path.exists():
        progress(f"logs: writing {events} events")
        half = path.with_suffix(".part")
        write_text(half, events, shuffled=False)
        half.replace(path)
    progress("logs: compiling")
    _converted(path, 1, "1")
    visits = _visits()
    sides = {
        "plain Python, reading only": partial(_plain, path, min(_PLAIN, events)),
        "whim, jobs=1": partial(_converted, path, 1, "1"),
        "whim, jobs=2": partial(_converted, path, 2, "2"),
        "replay": partial(_replayed, path.with_name(f"{path.stem}-1.whim")),
        "replay of the peers' log": partial(_replayed, visits),
    }
    progress(f"logs: {rounds} rounds")
    found = {name: _figures(values) for name, values in interleave(sides, rounds).items()}
    log = whim.logs.open(path.with_name(f"{path.stem}-1.whim"))
    about = {"events": log.n_events, "arms": log.n_arms, "articles": ARTICLES}
    return about | {"text_mb": path.stat().st_size / 1e6, "sides": found}


def _figures(values: np.ndarray) -> dict[str, Any]:
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return {"median": median, "low": low, "high": high, "rounds": values.tolist()}


def _plain(path: Path, events: int) -> float:
    start = time.perf_counter()
    for _ in plain_reader(path, events):
        pass
    return (time.perf_counter() - start) / events


def _converted(path: Path, jobs: int, name: str) -> float:
    made = path.with_name(f"{path.stem}-{name}.whim")
    start = time.perf_counter()
    log = convert(path, made, format="r6a", jobs=jobs, overwrite=True)
    return (time.perf_counter() - start) / log.n_events


def _replayed(path: Path) -> float:
    """All of ``replay``, opening the log included."""
    policy = whim.LinUCBDisjoint(n_features=6, alpha=0.2)
    start = time.perf_counter()
    [run] = whim.replay(path, {"lin": policy}).runs["lin"]
    return (time.perf_counter() - start) / run.events


def _visits() -> Path:
    """The peers' log as one of ours."""
    path = TASKS / "replay.whim"
    with np.load(replays.log(TASKS)) as found:
        X, pools, place, reward = (found[k] for k in ("contexts", "pools", "place", "reward"))
        n_arms = int(found["n_arms"])
    new = np.r_[True, (pools[1:] != pools[:-1]).any(axis=1)]
    with whim.logs.Writer(path, n_features=X.shape[1], logging="uniform", overwrite=True) as w:
        w.block(
            time=np.arange(len(X)), context=X, pool=np.cumsum(new) - 1, logged=place,
            reward=reward, pool_offsets=np.arange(new.sum() + 1) * pools.shape[1],
            pool_items=pools[new].ravel(), item_arm=list(range(n_arms)),
        )  # fmt: skip
    return path


def peers_replays(peers: list[str], rounds: int = 3, seconds: float = 10.0) -> dict[str, Any]:
    """Each peer's own tool, a fresh process a round, in turns."""
    found: dict[str, Any] = {}
    speeds: dict[str, list[float]] = {name: [] for name in peers}
    left = list(peers)
    for r in range(rounds):
        for name in turns(list(left), r):
            progress(f"logs: replay by {name}, round {r + 1}")
            found[name] = replays.run(name, seconds)
            if "events_a_second" in found[name]:
                speeds[name].append(1 / found[name]["events_a_second"])
            else:
                left.remove(name)
    for name in left:
        found[name] |= _figures(np.array(speeds[name]))
    return found


def text(found: dict[str, Any]) -> str:
    """Conversion and replay: time per event, and events per second."""
    about = (
        f"{found['events']:,} events of {found['articles']} articles, {found['text_mb']:,.0f} MB"
    )
    lines = [f"{about} of R6A text; no peer reads R6A", ""]
    lines.append(f"{'':<30}{'µs per event':>12}{'quartiles':>19}{'events/s':>12}")
    rows = dict(found["sides"].items())
    rows |= {f"replay by {name}": row for name, row in found["peers"].items()}
    for name, row in rows.items():
        if "median" not in row:
            lines.append(f"{name:<30}{'-':>12}  {row.get('unable') or row.get('failed')}")
            continue
        spread = f"{row['low'] * 1e6:,.4g}..{row['high'] * 1e6:,.4g}"
        speed = f"{1 / row['median']:>12,.0f}"
        part = f"  {row['events']:,} events; {row['note']}" if "note" in row else ""
        lines.append(f"{name:<30}{row['median'] * 1e6:>12,.4g}{spread:>19}{speed}{part}")
    return "\n".join(lines)


def main() -> None:
    """The demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    made = own(50_000, 2) if given.quick else own()
    seconds = 2.0 if given.quick else 10.0
    print(text(made | {"peers": peers_replays(given.peers.split(","), 2, seconds)}))


if __name__ == "__main__":
    main()
