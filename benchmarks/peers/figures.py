"""The two pictures of the benchmarks: a live step by library, and growth with K and d."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.peers.growth import AXES
from whim.report.style import LIGHT

__all__ = ["draw", "growth", "live"]

WORKS = {
    "A": "A: K=10, d=5",
    "B": "B: 20 of 60, d=6",
    "D": "D: K=20, d=100",
    "E": "E: hybrid, K=20",
    "F": "F: changes detected",
}
WHIM, PEER, LIMIT = LIGHT["curve-1"], LIGHT["reference"], LIGHT["curve-2"]
_GREYS = ("#4b535b", "#6c757e", "#8d969e", "#a7aeb5")
_PRIVATE = {"vowpalwabbit-binding": "vowpalwabbit, private calls"}


def draw(content: dict[str, Any], folder: Path, kind: str = "svg") -> None:
    """Both, as far as they were measured."""
    plt.rcParams.update({"svg.hashsalt": "whim", "font.family": "sans-serif", "font.size": 9})
    parts = {name: part["found"] for name, part in content["parts"].items() if "found" in part}
    made = {}
    if "live" in parts:
        made["bench-live"] = live(parts["live"], parts.get("limit", []))
    if "growth" in parts:
        made["bench-growth"] = growth(parts["growth"]["points"])
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in made.items():
        plain = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": 110}
        figure.savefig(folder / f"{name}.{kind}", **plain)
        plt.close(figure)


# -- a live step --------------------------------------------------------------------------------


def live(found: dict[str, Any], limit: list[dict[str, Any]]) -> plt.Figure:
    """One row per library, one panel per work: µs per step, quartiles as a line, the C loop."""
    loops = {row["what"].removeprefix("limit: "): row["theirs"] for row in limit}
    names = sorted(found["A"], key=lambda n: _place(found, n), reverse=True)
    size = (11, 0.6 + 0.27 * len(names))
    figure, panels = plt.subplots(
        1, len(WORKS), figsize=size, sharex=True, sharey=True, layout="constrained"
    )
    for axes, (work, title) in zip(panels, WORKS.items(), strict=True):
        for y, name in enumerate(names):
            _dot(axes, y, name, found[work].get(name, {}))
        if work in loops:
            axes.axvline(loops[work], color=LIMIT, lw=1.2, ls=(0, (3, 2)))
            axes.annotate(
                "C loop", (loops[work], 1), (3, -2), xycoords=("data", "axes fraction"),
                textcoords="offset points", color=LIMIT, fontsize=8, va="top",
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_ylim(-0.7, len(names) - 0.1)
        axes.grid(axis="x", color=LIGHT["grid"], lw=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", which="minor", length=0)
    panels[0].set_xlim(0.03, 3e8)  # room for the numbers right of the dots
    panels[0].set_xticks(ticks := [1, 1e3, 1e6], map(_tick, ticks))
    panels[0].set_yticks(range(len(names)), [_PRIVATE.get(name, name) for name in names])
    for label, name in zip(panels[0].get_yticklabels(), names, strict=True):
        label.set(color=WHIM if name == "whim" else "black")
        label.set_fontweight("bold" if name == "whim" else "normal")
    figure.supxlabel(
        "select and update, µs per step unless another unit is shown; log scale; "
        "no dot: not supported",
        fontsize=9,
    )
    return figure


def _place(found: dict[str, Any], name: str) -> float:
    """Order of a row: by A, else by the first work that it can do, behind the others."""
    times = [found[work].get(name, {}).get("median") for work in WORKS]
    first = next((t for t in times if t is not None), np.inf)
    return float(first if times[0] is not None else 1e6 + first)


def _dot(axes: plt.Axes, y: int, name: str, row: dict[str, Any]) -> None:
    if "median" not in row:
        return
    ours = name == "whim"
    colour = WHIM if ours else PEER
    low, middle, high = (row[key] * 1e6 for key in ("low", "median", "high"))
    axes.plot([low, high], [y, y], color=colour, lw=3, alpha=0.5, solid_capstyle="butt")
    fill = "white" if name in _PRIVATE else colour
    axes.plot(middle, y, "o", ms=7 if ours else 5, color=colour, mfc=fill)
    near = 4 if ours else 3
    axes.annotate(
        _short(middle), (high, y), (near, 0), textcoords="offset points", va="center",
        fontsize=7.5, color=colour, fontweight="bold" if ours else "normal",
    )  # fmt: skip


def _short(value: float) -> str:
    """Microseconds in the unit that reads best."""
    scale, unit = (1e6, " s") if value >= 1e6 else (1e3, " ms") if value >= 1e3 else (1.0, "")
    value /= scale
    return f"{value:,.0f}{unit}" if value >= 10 else f"{value:.2g}{unit}"


def _tick(value: float) -> str:
    return f"{value:g} µs" if value < 1e3 else _short(value)


# -- growth -------------------------------------------------------------------------------------


def growth(points: dict[str, Any]) -> plt.Figure:
    """Time over K and over d; names at the ends of the lines, pushed apart where they meet."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 5.2), layout="constrained")
    words = {"K": "number of arms K (d = 5)", "d": "length of a context d (K = 10)"}
    for axes, (axis, sizes) in zip(panels, AXES.items(), strict=True):
        lines = _lines(points, axis, sizes)
        for i, (name, line) in enumerate(lines.items()):
            ours = name == "whim"
            colour = WHIM if ours else _GREYS[i % len(_GREYS)]
            dashes = (0, (3, 2)) if name in _PRIVATE else "-"
            x, y = zip(*line, strict=True)
            axes.plot(
                x, y, color=colour, lw=2.4 if ours else 1.1, ls=dashes, marker="o",
                ms=4 if ours else 2.5, zorder=3 if ours else 2,
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel=words[axis], xlim=(sizes[0] * 0.9, sizes[-1]))
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.tick_params(which="minor", length=0)
        axes.grid(axis="y", color=LIGHT["grid"], lw=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(f"Time per step over {axis}", loc="left", fontsize=10)
        low, high = np.log10(axes.get_ylim())
        ticks = 10.0 ** np.arange(np.ceil(low), np.floor(high) + 1)
        axes.set_yticks(ticks, map(_tick, ticks))
        _names(axes, lines, sizes[-1])
    return figure


def _lines(
    points: dict[str, Any], axis: str, sizes: tuple[int, ...]
) -> dict[str, list[tuple[int, float]]]:
    """Each library's points, as far as it came."""
    found: dict[str, list[tuple[int, float]]] = {}
    for size in sizes:
        for name, row in points[f"{axis}={size}"].items():
            if "median" in row:
                found.setdefault(name, []).append((size, row["median"] * 1e6))
    return dict(sorted(found.items(), key=lambda item: item[1][-1][1]))


def _names(axes: plt.Axes, lines: dict[str, list[tuple[int, float]]], last: int) -> None:
    """Names in a column on the right, in the order of the ends, with a thin line to each."""
    low, high = np.log10(axes.get_ylim())
    gap = (high - low) / 22
    ends = np.array([np.log10(line[-1][1]) for line in lines.values()])
    places = _apart(ends, gap, low, high)
    right, wide = np.log10(last), np.log10(last) - np.log10(axes.get_xlim()[0])
    column = 10 ** (right + 0.07 * wide)
    for i, ((name, line), place) in enumerate(zip(lines.items(), places, strict=True)):
        ours = name == "whim"
        colour = WHIM if ours else _GREYS[i % len(_GREYS)]
        (x, y), here = line[-1], 10**place
        axes.plot([x, column], [y, here], color=colour, lw=0.6, ls=":", clip_on=False, zorder=1)
        early = f", to {x:,}" if x < last else ""
        axes.annotate(
            _PRIVATE.get(name, name) + early, (column, here), (2, 0), textcoords="offset points",
            va="center", fontsize=8.5, color=colour, annotation_clip=False,
            fontweight="bold" if ours else "normal",
        )  # fmt: skip


def _apart(ends: np.ndarray, gap: float, low: float, high: float) -> np.ndarray:
    """Places as near to the ends as a least distance allows; ``ends`` ascend."""
    places = ends.copy()
    for _ in range(500):
        for i in range(len(places) - 1):
            short = gap - (places[i + 1] - places[i])
            if short > 1e-9:
                places[i] -= short / 2
                places[i + 1] += short / 2
        places += max(0.0, low - places[0]) if len(places) else 0.0
        places[-1:] = np.minimum(places[-1:], high)
    return places
