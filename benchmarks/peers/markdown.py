"""The results as tables in Markdown, one function each; ``pages`` puts them into the docs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.peers.bars import OWN, fastest, ratio
from benchmarks.peers.growth import AXES, expected_mb

__all__ = ["TABLES"]

WORKS = ("A", "B", "D", "E", "F")


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Columns of numbers are right-aligned, columns of words left-aligned."""
    lines = [list(head), *map(list, rows)]
    columns = list(zip(*lines[1:], strict=True)) or [()] * len(lines[0])
    lines.insert(1, ["---:" if all(map(_figure, column)) else "---" for column in columns])
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in x) + " |" for x in lines)


def _figure(cell: str) -> bool:
    return cell[:1].isdigit() or cell[:1] in ("–", "≥", "≤")


def _number(value: float) -> str:
    """Three significant figures, with commas between thousands."""
    if value == 0:
        return "0"
    places = max(0, 2 - int(np.floor(np.log10(abs(value)))))
    return f"{round(value, 2 - int(np.floor(np.log10(abs(value))))):,.{places}f}"


def _spread(row: dict[str, Any] | None, scale: float = 1.0) -> str:
    if row is None or "median" not in row:
        return "–"
    low, high = _number(row["low"] * scale), _number(row["high"] * scale)
    return f"{_number(row['median'] * scale)} ({low} to {high})"


def _why(row: dict[str, Any]) -> str:
    return str(next((row[k] for k in ("unable", "failed", "skipped") if k in row), "–"))


def _by_speed(found: dict[str, Any]) -> list[str]:
    return sorted(found, key=lambda name: found[name].get("median", np.inf))


# -- one table each -----------------------------------------------------------------------------


def _bars(content: dict[str, Any]) -> str:
    rows = []
    for bar in content["bars"]:
        spread = f" ({_number(bar['low'])} to {_number(bar['high'])})" if "low" in bar else ""
        value = f"{_number(bar['found'])}{spread}" if "found" in bar else "–"
        wanted = bar.get("wanted", "").replace(">=", "≥ ").replace("<=", "≤ ")
        met = {True: "met", False: "**missed**", None: "not measured"}[bar["met"]]
        rows.append((bar["bar"], wanted, value, met, bar.get("note", "")))
    return _table(("bar", "target", "measured (quartiles)", "", "note"), rows)


def _machine(content: dict[str, Any]) -> str:
    about = "; ".join(f"{key} {value}" for key, value in content["machine"].items())
    parts = [
        f"{name} {part['date'][:10]}, load {part['load'][0]} to {part['load'][1]}"
        for name, part in content["parts"].items()
    ]
    rough = " Rough: a quick run." if any(p["quick"] for p in content["parts"].values()) else ""
    return f"{about}. Parts: {'; '.join(parts)}.{rough}"


def _peers(content: dict[str, Any]) -> str:
    rows = []
    for name, row in content.get("peers", {}).items():
        given = f"; given {row['help']}" if row["help"] else ""
        state = row.get("version") or f"not installed: {row['failed']}"
        rows.append((name, state, row["what"] + given))
    return _table(("library", "version", "what it is"), rows)


def _live(found: dict[str, Any]) -> str:
    names = _by_speed(found[WORKS[0]])
    rows = [(n, *(_spread(found[w].get(n), 1e6) for w in WORKS)) for n in names]
    return _table(("µs per step (quartiles)", *WORKS), rows)


def _live_ratios(found: dict[str, Any]) -> str:
    rows = []
    for name in _by_speed(found[WORKS[0]]):
        if name == "whim":
            continue
        each = [ratio(found[work], name) for work in WORKS]
        rows.append((name, *("–" if v is None else _number(v["found"]) for v in each)))
    best = [f"{work}: {fastest(found[work])}" for work in WORKS]
    return _table(("whim is faster, times", *WORKS), rows) + f"\n\nFastest: {', '.join(best)}."


def _live_notes(found: dict[str, Any]) -> str:
    rows = [
        (name, work, found[work][name].get("note") or _why(found[work][name]))
        for name in found[WORKS[0]]
        for work in WORKS
    ]
    return _table(("library", "work", "how, or why not"), rows)


def _batch(found: dict[str, Any]) -> str:
    rows, own = [], [name for name in OWN if name in found]
    for name in _by_speed(found):
        row = found[name]
        if "median" not in row:
            rows.append((name, "–", *("–" for _ in own), _why(row)))
            continue
        low, high = _number(1e-6 / row["high"]), _number(1e-6 / row["low"])
        speed = f"{_number(1e-6 / row['median'])} ({low} to {high})"
        each = [ratio(found, name, mine) for mine in own]
        times = ["–" if v is None else _number(v["found"]) for v in each]
        rows.append((name, speed, *times, row["note"]))
    faster = [f"{name} is faster, times" for name in own]
    return _table(("library", "million scores per second", *faster, "how"), rows)


def _growth(found: dict[str, Any], axis: str, memory: bool) -> str:
    names = [f"{axis}={size}" for size in AXES[axis]]
    points = [found["points"][name] for name in names]

    def cell(row: dict[str, Any]) -> str:
        if "median" not in row:
            return "–"
        if memory:
            known = row.get("before_mb") is not None
            return f"{max(0.0, row['current_mb'] - row['before_mb']):,.0f}" if known else "–"
        return _number(row["median"] * 1e6)

    rows = [(peer, *(cell(point.get(peer, {})) for point in points)) for peer in points[0]]
    if memory:
        sizes = [(size, 5) if axis == "K" else (10, size) for size in AXES[axis]]
        rows.append(("whim's models by the formula", *(_number(expected_mb(*s)) for s in sizes)))
    whys = [f"{peer}: {_why(row)}" for peer, row in points[-1].items() if "median" not in row]
    below = "\n\nNot tried further: " + "; ".join(whys) + "." if whys and not memory else ""
    head = ("MB that the learner added" if memory else "µs per step", *names)
    return _table(head, rows) + below


def _windows(found: dict[str, Any]) -> str:
    rows = [
        (f"K={r['K']}, d={r['d']}", _number(r["stated_mb"]), f"{r['added_mb']:,.1f}")
        for r in found["windows"]
    ]
    return _table(("PSLinUCBDisjoint, unplayed", "MB by the formula", "MB added"), rows)


def _starts(found: dict[str, Any]) -> str:
    order = sorted(found, key=lambda n: found[n].get("first_decision", {}).get("median", np.inf))
    rows = [
        (
            name,
            _spread(found[name].get("import"), 1e3),
            _spread(found[name].get("first_decision"), 1e3),
            f"{found[name]['size_mb']:,.0f}" if "size_mb" in found[name] else _why(found[name]),
        )
        for name in order
    ]
    return _table(("library", "import, ms", "to a decision, ms", "installed, MB"), rows)


def _rows(found: list[dict[str, Any]]) -> str:
    rows = [
        (
            row["what"].removeprefix("limit: "),
            f"{_number(row['ours'])} {row['unit']}",
            f"{_number(row['theirs'])} {row['unit']}",
            f"{_number(row['ratio'])} ({_number(row['low'])} to {_number(row['high'])})",
        )
        for row in found
    ]
    return _table(("", "whim", "limit", "times as long"), rows)


def _logs(found: dict[str, Any]) -> str:
    rows = [(name, _spread(row, 1e6), f"{1 / row['median']:,.0f}", "")
            for name, row in found["sides"].items()]  # fmt: skip
    for name, row in found["peers"].items():
        speed = f"{1 / row['median']:,.0f}" if "median" in row else "–"
        note = f"{row['events']:,} events; {row['note']}" if "note" in row else _why(row)
        rows.append((f"replay by {name}", _spread(row, 1e6), speed, note))
    return _table(("", "µs per event", "events per second", "how"), rows)


def _regret(found: list[dict[str, Any]]) -> str:
    rows = []
    for row in found:
        both = [f"{row[k]:.6f}" if k in row else "–" for k in ("regret", "reference_regret")]
        agrees = {True: "equal", False: "**differs**", None: "–"}[row["agrees"]]
        rows.append((row["policy"], *both, agrees))
    return _table(("policy", "regret", "reference's", ""), rows)


TABLES: dict[str, tuple[str | None, Any]] = {
    "bars": (None, _bars),
    "machine": (None, _machine),
    "peers": (None, _peers),
    "live": ("live", _live),
    "live-ratios": ("live", _live_ratios),
    "live-notes": ("live", _live_notes),
    "batch": ("batch", _batch),
    **{
        f"{what}-{axis}": ("growth", lambda f, a=axis, m=what == "memory": _growth(f, a, m))
        for axis in AXES
        for what in ("growth", "memory")
    },
    "windows": ("growth", _windows),
    "starts": ("starts", _starts),
    "decision": ("decision", _rows),
    "limit": ("limit", _rows),
    "logs": ("logs", _logs),
    "regret": ("regret", _regret),
}
