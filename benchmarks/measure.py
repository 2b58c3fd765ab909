"""What the benchmarks share: interleaved rounds, rows of the table, and the machine's name."""

from __future__ import annotations

import gc
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "THREADS",
    "Row",
    "compare",
    "emit",
    "environment",
    "interleave",
    "machine",
    "progress",
    "run_part",
    "table",
]

# the same for both sides, and set before NumPy starts
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; ``ratio`` is a median over rounds, ``low`` to ``high`` its quartiles.

    ``best`` is the ratio of the two sides' fastest rounds, what a quiet machine would tend to.
    ``wanted`` starts with ``>=`` or ``<=``, or is empty for a line that only informs.
    """

    what: str
    ours: float
    theirs: float | None
    unit: str
    ratio: float
    low: float
    high: float
    best: float
    wanted: str
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the median ratio keeps the bar; ``None`` without one."""
        if not self.wanted:
            return None
        bound = float(self.wanted[2:])
        return self.ratio >= bound if self.wanted.startswith(">=") else self.ratio <= bound


def progress(text: str) -> None:
    """A line on stderr, so that stdout holds only the table."""
    print(text, file=sys.stderr, flush=True)


def interleave(
    sides: Mapping[str, Callable[[], float]], rounds: int
) -> dict[str, npt.NDArray[np.float64]]:
    """Measure each side once per round, in alternating order; the first round is discarded.

    A side returns its own figure (seconds per operation), so that it can leave out its set-up.
    """
    names = list(sides)
    found: dict[str, list[float]] = {name: [] for name in names}
    gc.collect()
    gc.disable()
    try:
        for r in range(rounds + 1):
            turn = r % len(names)
            order = names[turn:] + names[:turn]
            for name in order if r % 2 else reversed(order):
                value = sides[name]()
                if r:
                    found[name].append(value)
    finally:
        gc.enable()
    return {name: np.array(values) for name, values in found.items()}


def compare(
    what: str,
    ours: npt.NDArray[np.float64],
    theirs: npt.NDArray[np.float64],
    *,
    wanted: str,
    unit: str = "µs",
    note: str = "",
    slowness: bool = False,
) -> Row:
    """A row from seconds per round: how many times faster ours is, or how many times slower."""
    scale = {"µs": 1e6, "ms": 1e3, "s": 1.0}[unit]
    ratios = ours / theirs if slowness else theirs / ours
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75]).tolist()
    a, b = float(ours.min()), float(theirs.min())
    return Row(
        what=what,
        ours=float(np.median(ours)) * scale,
        theirs=float(np.median(theirs)) * scale,
        unit=unit,
        ratio=median,
        low=low,
        high=high,
        best=a / b if slowness else b / a,
        wanted=wanted,
        note=note,
    )


def environment(threads: int) -> dict[str, str]:
    """The environment of a measured process: threads fixed, bytecode written."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return env | dict.fromkeys(THREADS, str(threads))


def run_part(module: str, *arguments: str, threads: int = 1) -> list[Row]:
    """Run one benchmark in a fresh process and read its rows."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments, "--rows"]
    done = subprocess.run(
        command, env=environment(threads), stdout=subprocess.PIPE, text=True, check=True
    )
    return [Row(**row) for row in json.loads(done.stdout)]


def emit(rows: list[Row]) -> None:
    """Print rows for ``run_part`` or, without ``--rows``, as a table."""
    print(json.dumps([asdict(r) for r in rows]) if "--rows" in sys.argv else table(rows))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(rows: list[Row]) -> str:
    """The rows as one text table with their notes below."""
    head = ("what", "ours", "theirs", "unit", "ratio", "quartiles", "fastest", "wanted", "met")
    lines = [head]
    for row in rows:
        met = {True: "yes", False: "NO", None: "-"}[row.met]
        single = row.low == row.high
        lines.append(
            (
                row.what,
                _number(row.ours),
                _number(row.theirs),
                row.unit,
                f"{row.ratio:.2f}" if row.theirs is not None else _number(row.ratio),
                "-" if single else f"{row.low:.2f}..{row.high:.2f}",
                "-" if single else f"{row.best:.2f}",
                row.wanted.replace("=", "= ") or "-",
                met,
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    left = (0, 3)
    text = [
        "  ".join(
            cell.ljust(w) if i in left else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    text.insert(1, "-" * max(map(len, text)))
    notes = [f"{row.what}: {row.note}" for row in rows if row.note]
    return "\n".join([*text, "", *notes])


def machine() -> dict[str, Any]:
    """Processor, memory, load and versions."""
    import numba

    import whim

    info = Path("/proc/cpuinfo")
    names = [
        line.split(":", 1)[1].strip()
        for line in (info.read_text().splitlines() if info.exists() else [])
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    build: Any = np.show_config(mode="dicts")
    blas = build["Build Dependencies"]["blas"]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory, 1),
        "system": platform.platform(),
        "load_before": [round(v, 2) for v in os.getloadavg()],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "blas": f"{blas['name']} {blas['version']}",
        "whim": whim.__version__,
    }
