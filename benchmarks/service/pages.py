"""``python -m benchmarks.service.pages``: the last run's tables into docs/benchmarks.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.service.__main__ import OUT, bars

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
_MARKED = re.compile(r"(<!-- service:([\w-]+) -->\n).*?(<!-- /service -->)", re.DOTALL)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _range(found: list[float]) -> str:
    mid, low, high = map(_number, found)
    return f"{mid} ({low} to {high})"


def _load(parts: dict[str, Any]) -> str:
    got = parts["load"]
    names = {
        "whim": "durable decisions",
        "noop": "the same stack, its handler only answers",
        "bare": "a bare Starlette route",
    }
    rows = [
        [names[n], *(_range(got[n][k]) for k in ("rate", "p50_ms", "p99_ms", "cpu_us"))]
        for n in names
    ]
    rows += [
        [
            f"durable decisions over {said}",
            _range(got[f"rate_of_{n}"]),
            "",
            _range(got[f"p99_of_{n}"]),
            "",
        ]
        for n, said in (("noop", "the same stack"), ("bare", "the bare route"))
    ]
    head = ["32 connections", "requests per second", "p50, ms", "p99, ms", "µs of processor"]
    return _table(head, rows)


def _bars(parts: dict[str, Any]) -> str:
    rows = [
        [name, f"{'≥' if sign == '>=' else '≤'} {_number(bound)}", _number(value),
         "met" if fine else "**missed**"]
        for name, value, sign, bound, fine in bars(parts)
    ]  # fmt: skip
    return _table(["bar", "target", "measured", ""], rows)


def _rest(parts: dict[str, Any]) -> str:
    rows = []
    if "memory" in parts:
        points = parts["memory"]["megabytes"]
        third = next(p for p in points if p[0] >= points[-1][0] / 3)
        rows.append(
            [
                "memory after a third, and at the end",
                f"{third[1]:.0f} and {points[-1][1]:.0f} MB over {points[-1][0]:,} decisions",
            ]
        )
    if "recovery" in parts:
        got = parts["recovery"]
        rows.append(
            [
                "recovery without a snapshot",
                f"{_range(got['rows_a_second'])} rows per second, {got['rows']:,} rows",
            ]
        )
    if "undisturbed" in parts:
        got = parts["undisturbed"]
        rows.append(["p99 of decisions on 4 connections, ms", _range(got["quiet_p99_ms"])])
        rows.append(["the same while the space is rebuilt", _range(got["rebuilding_p99_ms"])])
        rows.append(["slowest decision, ms", _range(got["quiet_worst_ms"])])
        rows.append(["the same while the space is rebuilt", _range(got["rebuilding_worst_ms"])])
    if "news" in parts:
        got = parts["news"]
        mid, low, high = got["simulated_gain"]
        alone = got["simulated_run_0"]["PSLinUCB"] - got["simulated_run_0"]["LinUCB"]
        same = ", ".join(f"{n} {v:,}" for n, v in got["same_choices"].items())
        rates = ", ".join(f"{n} {v:.4f}" for n, v in got["served"].items())
        rows.append(
            ["news world, decisions as without a service", f"{same} of {got['decisions']:,}"]
        )
        rows.append(["click rates through the service", rates])
        rows.append(
            [
                "PSLinUCB's gain: served (run 0); simulated, run 0; simulated, mean of 10 runs",
                f"{got['served_gain']:+.4f}; {alone:+.4f}; {mid:+.4f} [{low:+.4f}, {high:+.4f}]",
            ]
        )
    return _table(["", "measured (quartiles)"], rows)


def _when(parts: dict[str, Any]) -> str:
    return "Parts: " + "; ".join(f"{name} {part['when']}" for name, part in parts.items()) + "."


TABLES = {"load": _load, "bars": _bars, "rest": _rest, "when": _when}


def main() -> None:
    """Replace what stands between the markers."""
    parts = json.loads(OUT.read_text())["parts"]
    text = PAGE.read_text()
    PAGE.write_text(_MARKED.sub(lambda m: f"{m[1]}{TABLES[m[2]](parts)}\n{m[3]}", text))


if __name__ == "__main__":
    main()
