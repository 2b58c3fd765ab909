"""How a step's time and a learner's memory grow with the number of arms and of features.

``python -m benchmarks.peers.growth [--peers ...]``. A peer that fails at a size, or whose step
takes longer than ``PATIENCE`` there, is not tried at larger ones.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks.peers.driver import side_by_side
from benchmarks.peers.environments import PEERS
from benchmarks.peers.fresh import fresh
from benchmarks.peers.works import GROWTH_ARMS, GROWTH_FEATURES

__all__ = ["AXES", "run", "text"]

AXES = {"K": GROWTH_ARMS, "d": GROWTH_FEATURES}
PATIENCE = 0.2  # seconds per step; the next size takes ten times that
FROM = {"K": 1000, "d": 50}  # below, the price of a call weighs more than the models
PAIRS = [(k, 5) for k in GROWTH_ARMS] + [(10, d) for d in GROWTH_FEATURES[1:]]


def run(
    peers: list[str], rounds: int = 5, seconds: float = 0.2, *, quick: bool = False
) -> dict[str, Any]:
    """Every point by all peers in turns, whim's exponents, and the memory of PSLinUCB."""
    points: dict[str, dict[str, Any]] = {}
    for axis, sizes in AXES.items():
        left = list(peers)
        gone: dict[str, str] = {}
        for size in sizes:
            name = f"{axis}={size}"
            points[name] = side_by_side([name], left, rounds, seconds)[name]
            points[name] |= {peer: {"skipped": why} for peer, why in gone.items()}
            for peer in list(left):
                row = points[name][peer]
                if "median" not in row:
                    left.remove(peer)
                    gone[peer] = f"at {name}: {row.get('unable') or row.get('failed')}"
                elif row["median"] > PATIENCE:
                    left.remove(peer)
                    gone[peer] = f"{row['median']:.1f} s per step at {name}"
    made = {axis: exponent(points, axis) for axis in AXES}
    pairs = PAIRS[:3] if quick else PAIRS
    return {"points": points, "exponents": made, "windows": [_windows(k, d) for k, d in pairs]}


def exponent(points: dict[str, dict[str, Any]], axis: str, peer: str = "whim") -> dict[str, Any]:
    """The slope of log time over log size; round by round too, for its spread."""
    found = {
        size: points[f"{axis}={size}"][peer]["rounds"]
        for size in AXES[axis]
        if size >= FROM[axis] and "rounds" in points.get(f"{axis}={size}", {}).get(peer, {})
    }
    if len(found) < 2:
        return {"failed": "fewer than two sizes"}
    sizes = np.log(list(found))
    middle = np.polyfit(sizes, [np.log(np.median(r)) for r in found.values()], 1)[0]
    count = min(map(len, found.values()))
    times = np.log([r[:count] for r in found.values()])
    slopes = np.polyfit(sizes, times, 1)[0]
    low, high = np.quantile(slopes, [0.25, 0.75]).tolist()
    return {"median": float(middle), "low": low, "high": high, "sizes": list(found)}


# -- memory -------------------------------------------------------------------------------------


def expected_mb(n_arms: int, d: int) -> float:
    """LinUCBDisjoint by docs/math.md: factors and coefficients of each arm."""
    return n_arms * (d * (d + 1) // 2 + d) * 8 / 1e6


def windows_mb(n_arms: int, d: int) -> float:
    """PSLinUCBDisjoint with the score test by docs/math.md: two models and ten numbers per arm."""
    return n_arms * (2 * (d * (d + 1) // 2 + d) + 10) * 8 / 1e6


def _windows(n_arms: int, d: int) -> dict[str, Any]:
    """MB that PSLinUCB's arms add before any is played, against the numbers that the docs give."""
    found = fresh("benchmarks.peers.growth", f"arms_mb({n_arms}, {d})")
    return {"K": n_arms, "d": d, "stated_mb": windows_mb(n_arms, d)} | found


def arms_mb(n_arms: int, d: int) -> dict[str, float]:
    """In this process, which must be a fresh one; its code is loaded by a policy before."""
    import whim
    from benchmarks.peers.worker import memory

    def made(n: int) -> whim.Policy:
        policy = whim.PSLinUCBDisjoint(n_features=d)
        policy.add_arms(range(n))
        policy.select(np.ones(d))
        return policy

    made(1).update(0, np.ones(d), 0.5)
    before = memory()["current_mb"]
    policy = made(n_arms)
    after = memory()["current_mb"]
    arms = range(min(n_arms, 1000))
    for arm in arms:
        policy.update(arm, np.ones(d), 0.5)
    played = memory()["current_mb"]
    return {"added_mb": round(after - before, 1), "after_a_play_mb": round(played - before, 1)}


# -- tables -------------------------------------------------------------------------------------


def text(found: dict[str, Any]) -> str:
    """µs per step and MB added, one column per size; whim's exponents; PSLinUCB's memory."""
    parts = []
    for axis, sizes in AXES.items():
        names = [f"{axis}={size}" for size in sizes]
        points = [found["points"][name] for name in names]
        for what, cell in (("µs per step", _time), ("MB added", added)):
            lines = [f"{what:<22}" + "".join(f"{name:>13}" for name in names)]
            for peer in points[0]:
                cells = [cell(point.get(peer, {})) for point in points]
                lines.append(f"{peer:<22}" + "".join(f"{c:>13}" for c in cells))
            if cell is added:
                known = [expected_mb(*((s, 5) if axis == "K" else (10, s))) for s in sizes]
                lines.append(f"{'(whim by its docs)':<22}" + "".join(f"{m:>13,.2f}" for m in known))
            parts.append("\n".join(lines))
        last = points[-1]
        whys = [f"{peer}: {row['skipped']}" for peer, row in last.items() if "skipped" in row]
        whys += [f"{p}: {row['failed']}" for p, row in last.items() if "failed" in row]
        parts.append("\n".join(whys))
    for axis, row in found["exponents"].items():
        if "median" in row:
            spread = f"{row['median']:.2f} ({row['low']:.2f}..{row['high']:.2f})"
            parts.append(f"whim's time grows as {axis} to the {spread}, sizes {row['sizes']}")
    lines = ["PSLinUCBDisjoint, MB: by the docs, added by the arms, after 1,000 were played once"]
    for row in found["windows"]:
        after = f"{row['added_mb']:>10,.1f}{row['after_a_play_mb']:>10,.1f}"
        lines.append(f"K={row['K']:<8} d={row['d']:<5}{row['stated_mb']:>10,.2f}{after}")
    return "\n\n".join([part for part in parts if part] + ["\n".join(lines)])


def _time(row: dict[str, Any]) -> str:
    return f"{row['median'] * 1e6:,.1f}" if "median" in row else "-"


def added(row: dict[str, Any]) -> str:
    """MB that the learner added; RSS cannot see less than some pages."""
    if row.get("before_mb") is None:
        return "-"
    return f"{row['current_mb'] - row['before_mb']:,.1f}"


def main() -> None:
    """The demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", default=",".join(["whim", *PEERS]))
    print(text(run(parser.parse_args().peers.split(","), 3, 0.1)))


if __name__ == "__main__":
    main()
