"""The bars: each target beside what was measured.

The ratio on a work is the median over rounds of the fastest peer's time over whim's in the same
round. The fastest is the peer with the lowest median among those driven by documented calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["OWN", "PRIVATE", "bars", "fastest", "ratio", "text"]

OWN = ("whim", "whim-float32")  # the second for batches alone
PRIVATE = ("vowpalwabbit-binding",)  # private calls: shown beside, never the yardstick
LIVE = {"A": 5.0, "B": 10.0, "D": 1.3, "E": 30.0}
BATCH, LOOPS, DECISION = 2.0, 2.0, 1.5
GROWTH = {"K": 1.0, "d": 2.0}
SLACK = 0.1  # of an exponent: a fit through points that leave one cache after the other

Bar = dict[str, Any]


def fastest(found: dict[str, Any]) -> str | None:
    """The peer to beat on a work."""
    able = {
        name: row["median"]
        for name, row in found.items()
        if "median" in row and name not in OWN + PRIVATE
    }
    return min(able, key=able.__getitem__) if able else None


def ratio(found: dict[str, Any], peer: str | None, own: str = "whim") -> dict[str, float] | None:
    """How many times faster whim is than a peer, with quartiles over the rounds."""
    if peer is None or any("rounds" not in found.get(name, {}) for name in (peer, own)):
        return None
    ours, theirs = found[own]["rounds"], found[peer]["rounds"]
    count = min(len(ours), len(theirs))
    each = np.array(theirs[:count]) / np.array(ours[:count])
    low, median, high = np.quantile(each, [0.25, 0.5, 0.75]).tolist()
    return {"found": median, "low": low, "high": high}


def bars(parts: dict[str, Any]) -> list[Bar]:
    """The bars of the parts at hand; ``met`` is None where nothing was measured."""
    makers = {
        "live": _live,
        "batch": _batch,
        "limit": _limit,
        "decision": _decision,
        "growth": _growth,
        "regret": _regret,
    }
    found = []
    for part, maker in makers.items():
        if part not in parts:
            continue
        if "broken" in parts[part]:
            found.append({"bar": f"{part}: all of it", "met": False, "note": parts[part]["broken"]})
        else:
            found += maker(parts[part]["found"])
        for bar in found:
            bar.setdefault("part", part)
    return found


def _held(bar: str, wanted: str, values: dict[str, float] | None, **more: Any) -> Bar:
    """``wanted`` starts with >= or <=."""
    made: Bar = {"bar": bar, "wanted": wanted, "met": None, **more}
    if values is None:
        return made | {"note": more.get("note") or "not measured"}
    bound = float(wanted[2:])
    kept = values["found"] >= bound if wanted.startswith(">=") else values["found"] <= bound
    return made | values | {"met": bool(kept)}


def _raced(bar: str, least: float, found: dict[str, Any], own: str = "whim") -> Bar:
    """Against the fastest peer; ``private`` has the ratio to private calls."""
    peer = fastest(found)
    private = ratio(found, PRIVATE[0], own)
    shown = None if private is None else private["found"]
    why = "" if "median" in found[own] else f"{own}: {found[own]}"
    if why:
        return {"bar": bar, "wanted": f">={least:g}", "met": False, "note": why}
    count = sum("median" in row for name, row in found.items() if name not in OWN + PRIVATE)
    note = f"{peer}, fastest of {count} peers" if peer else "not measured: no peer did it"
    return _held(bar, f">={least:g}", ratio(found, peer, own), note=note, private=shown)


def _live(found: dict[str, Any]) -> Iterator[Bar]:
    for work, least in LIVE.items():
        if work not in found:
            continue
        yield _raced(f"{work}: live select + update, times faster", least, found[work])


def _batch(found: dict[str, Any]) -> Iterator[Bar]:
    """The bar refers to float32, which the peers may use too; the note has float64."""
    bar = "C: batch scoring, times the scores per second"
    if "whim-float32" not in found:  # an older run
        yield _raced(bar, BATCH, found)
        return
    made = _raced(f"{bar}, float32", BATCH, found, "whim-float32")
    plain = ratio(found, fastest(found))
    if plain is not None:
        spread = f"{plain['low']:.2f} to {plain['high']:.2f}"
        made["note"] += f"; whim in float64: {plain['found']:.2f} ({spread})"
    yield made


def _row(row: dict[str, Any]) -> dict[str, float]:
    return {"found": row["ratio"], "low": row["low"], "high": row["high"]}


def _limit(rows: list[dict[str, Any]]) -> Iterator[Bar]:
    """The bar refers to the plain loop; the note has the loop tuned to these very sizes."""
    known = {row["what"].removeprefix("limit: "): row for row in rows}
    for work in ("A", "B", "B, replay", "D", "E", *(f"update_many, {w}" for w in "ADE")):
        row, tuned = known.get(f"{work}, plain C"), known.get(work)
        values = None if row is None else _row(row)
        note = "not measured: no C compiler"
        if tuned is not None:
            found, low, high = (tuned[name] for name in ("ratio", "low", "high"))
            note = f"{found:.2f} ({low:.2f} to {high:.2f}) times C tuned to these very sizes"
        yield _held(
            f"{work}: compiled loop, times a plain C loop", f"<={LOOPS:g}", values, note=note
        )


def _decision(rows: list[dict[str, Any]]) -> Iterator[Bar]:
    for row in rows:
        if row["wanted"]:
            yield _held(f"{row['what']}, times one read", f"<={DECISION:g}", _row(row))


def _growth(found: dict[str, Any]) -> Iterator[Bar]:
    for axis, most in GROWTH.items():
        row = found["exponents"][axis]
        values = None
        if "median" in row:
            values = {"found": row["median"], "low": row["low"], "high": row["high"]}
        note = f"{most:g}, and {SLACK:g} for the fit"
        bar = f"time of a live step grows as {axis} to the power"
        yield _held(bar, f"<={most + SLACK:g}", values, note=note)


def _regret(rows: list[dict[str, Any]]) -> Iterator[Bar]:
    compared = [row for row in rows if row["agrees"] is not None]
    bad = [row["policy"] for row in compared if not row["agrees"]]
    values = {"found": float(len(bad))}
    note = ", ".join(bad) or f"{len(compared)} policies compared"
    yield _held("regret: policies that differ from the reference", "<=0", values, note=note)


def text(found: list[Bar]) -> str:
    """The bars as a text table."""
    head = ("bar", "target", "measured", "quartiles", "private calls", "", "")
    lines = [head]
    for bar in found:
        met = {True: "met", False: "MISSED", None: "-"}[bar["met"]]
        spread = f"{bar['low']:.2f}..{bar['high']:.2f}" if "low" in bar else ""
        private = "" if bar.get("private") is None else f"{bar['private']:.2f}"
        value = f"{bar['found']:.2f}" if "found" in bar else "-"
        note = bar.get("note", "")
        lines.append((bar["bar"], bar.get("wanted", ""), value, spread, private, met, note))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    left = (0, 5, 6)
    made = [
        "  ".join(
            cell.ljust(w) if i in left else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    made.insert(1, "-" * max(widths[0] + 50, 80))
    return "\n".join(made)
