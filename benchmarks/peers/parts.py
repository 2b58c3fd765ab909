"""The parts of ``python -m benchmarks.peers``: how each is run, in full and quick, and shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.measure import Row, progress, table
from benchmarks.peers import batches, growth, logs, starts, works
from benchmarks.peers.bars import OWN
from benchmarks.peers.driver import TASKS, Gone, Process, side_by_side
from benchmarks.peers.driver import table as live_table
from benchmarks.peers.fresh import fresh

__all__ = ["LIVE", "PARTS", "Setting", "run", "show", "warm"]

PARTS = ("live", "limit", "decision", "batch", "starts", "logs", "growth", "regret")
LIVE = ("A", "B", "D", "E", "F")
_COMPILING = 900.0  # seconds that a first compilation may take


@dataclass(frozen=True, slots=True)
class Setting:
    """Who takes part, and whether roughly."""

    peers: list[str]
    quick: bool
    works: list[str]

    @property
    def all(self) -> list[str]:
        """Whim first."""
        return ["whim", *self.peers]


def run(part: str, setting: Setting) -> Any:
    """Measure one part; what comes back can be written as JSON."""
    quick = setting.quick
    if part == "live":
        # short rounds: two that follow each other then find the machine in the same mood
        return side_by_side(setting.works, setting.all, *((3, 0.1) if quick else (31, 0.1)))
    if part == "batch":
        names = [*OWN, *setting.peers]
        return batches.batches(names, *((3, 0.5) if quick else (7, 1.0)))
    if part == "growth":
        return growth.run(setting.all, *((3, 0.1) if quick else (5, 0.1)), quick=quick)
    if part == "starts":
        return starts.run(setting.all, 3 if quick else 7)
    if part == "decision":
        return fresh("benchmarks.peers.decision", f"run({5 if quick else 31})")
    if part == "logs":
        made = fresh("benchmarks.peers.logs", "own(50_000, 2)" if quick else "own()")
        rough = (2, 2.0) if quick else (3, 5.0)
        return made | {"peers": logs.peers_replays(setting.peers, *rough)}
    if part == "limit":
        return fresh("benchmarks.limit", f"rows({5 if quick else 21})")
    some = "module._names()[:3]" if quick else ""
    return fresh("benchmarks.regret", f"rows({some})")


def show(part: str, found: Any) -> str:
    """A part as text."""
    if part == "live":
        return "\n\n".join(f"{work}\n{live_table(rows)}" for work, rows in found.items())
    if part in ("limit", "decision"):
        names = Row.__dataclass_fields__
        return table([Row(**{k: row[k] for k in names}) for row in found]) if found else "nothing"
    if part == "regret":
        return "\n".join(_regret(row) for row in found)
    return {"batch": batches, "growth": growth, "starts": starts, "logs": logs}[part].text(found)


def _regret(row: dict[str, Any]) -> str:
    """One policy beside its reference."""
    agrees = {True: "equal", False: "DIFFERS", None: "-"}[row["agrees"]]
    both = f"{row.get('regret', '-')!s:>22}{row.get('reference_regret', '-')!s:>22}"
    return f"{row['policy']:<36}{both}  {agrees:<8} {row.get('note', '')}".rstrip()


def warm(parts: list[str], works_asked: list[str]) -> None:
    """Compile for every work beforehand, or the first step would be counted as too slow."""
    names: list[str] = list(works_asked) if "live" in parts else []
    if "growth" in parts:
        names += ["K=10", *(f"d={d}" for d in works.GROWTH_FEATURES)]
    for name in names:
        progress(f"compiling: {name}")
        _short_run(["open", "round"], task=str(works.write(name, TASKS)))
    if "batch" in parts:
        for name in OWN:
            progress(f"compiling: C {name}")
            _short_run(["open", "batch"], task=str(works.write("K=10", TASKS)), name=name)


def _short_run(commands: list[str], task: str, name: str = "whim") -> None:
    """A failure here shows again, and is told, when it is measured."""
    values: dict[str, dict[str, Any]] = {
        "open": {"task": task},
        "round": {"seconds": 0.05, "most": 100},
        "batch": {"path": str(batches.write()), "seconds": 0.1},
    }
    process = None
    try:
        process = Process(name)
        for do in commands:
            answer = process.ask(do, within=_COMPILING, late="too long", **values[do])
            if "failed" in answer:
                progress(f"compiling: {answer['failed']}")
    except Gone as gone:
        progress(f"compiling: {gone}")
    if process is not None:
        process.kill()
