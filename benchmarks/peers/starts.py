"""What it takes to start: import, import to the first decision, and the installed size.

``python -m benchmarks.peers.starts [--peers ...]``. Fresh processes that time themselves, in
turns; the interpreter's own start is left out, and bytecode and compiled code are cached, as on
any second run. Whim is measured in a clean environment, installed as a user would.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.measure import environment, progress
from benchmarks.peers.driver import adapter, turns
from benchmarks.peers.environments import PEERS, ROOT, Failed, install, install_own, python

__all__ = ["run", "text"]

_LONGEST = 300.0  # seconds; the first run of a library that compiles takes long
_CODE = """
import sys, time
start = time.perf_counter()
import {imports}
imported = time.perf_counter()
numpy = "numpy" in sys.modules
from benchmarks.peers.adapters import {adapter}
{adapter}.start()
end = time.perf_counter()
print()
print(imported - start, end - start, int(numpy))
"""


def run(peers: list[str], rounds: int = 7) -> dict[str, dict[str, Any]]:
    """Seconds of import and of import to first decision, medians of rounds in turns."""
    found: dict[str, dict[str, Any]] = {}
    times: dict[str, list[tuple[float, float]]] = {}
    commands: dict[str, list[str]] = {}
    for name in peers:
        made = install(name) if name in PEERS else install_own()
        failed = isinstance(made, Failed)
        found[name] = {"failed": f"not installed: {made.reason}"} if failed else asdict(made)
        if failed and name in PEERS:
            continue
        interpreter = sys.executable if failed else str(python(name))
        imports = PEERS[name].imports if name in PEERS else name
        code = _CODE.format(imports=imports, adapter=adapter(name))
        commands[name], times[name] = [interpreter, "-c", code], []
    progress(f"starts: {rounds} rounds of {len(commands)} fresh processes, and one to fill caches")
    for r in range(rounds + 1):
        for name in turns(list(commands), r):
            answer = _once(commands[name])
            if isinstance(answer, str):
                found[name]["failed"] = answer
                del commands[name]
            elif r:
                times[name].append(answer[:2])
                found[name]["brings_numpy"] = bool(answer[2])
    for name in commands:
        for column, what in enumerate(("import", "first_decision")):
            values = [pair[column] for pair in times[name]]
            low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
            found[name][what] = {"median": median, "low": low, "high": high, "rounds": values}
    return found


def _once(command: list[str]) -> tuple[float, float, int] | str:
    """The two times and whether NumPy came with the import, or why there are none."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment(1),
            capture_output=True,
            text=True,
            timeout=_LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no decision in {_LONGEST:.0f} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no reason given"])[-1][:300]
    a, b, numpy = done.stdout.split()[-3:]
    return float(a), float(b), int(numpy)


def text(found: dict[str, dict[str, Any]]) -> str:
    """The quickest to a decision first."""
    head = f"{'peer':<22}{'import ms':>10}{'quartiles':>14}{'to a decision':>15}{'quartiles':>14}"
    lines = [f"{head}{'MB':>8}  version"]

    def key(item: tuple[str, dict[str, Any]]) -> float:
        return float(item[1].get("first_decision", {}).get("median", np.inf))

    for name, row in sorted(found.items(), key=key):
        size = f"{row['size_mb']:,.0f}" if "size_mb" in row else "-"
        cells = "".join(_cells(row.get(w), n) for w, n in (("import", 10), ("first_decision", 15)))
        bare = "; NumPy comes later, at the latest with our adapter"
        note = bare if row.get("brings_numpy") is False else ""
        why = f"  {row['failed']}" if "failed" in row else ""
        lines.append(f"{name:<22}{cells}{size:>8}  {row.get('version', '')}{note}{why}")
    return "\n".join(lines)


def _cells(row: dict[str, Any] | None, width: int) -> str:
    if row is None:
        return f"{'-':>{width}}{'':>14}"
    spread = f"{row['low'] * 1e3:,.0f}..{row['high'] * 1e3:,.0f}"
    return f"{row['median'] * 1e3:>{width},.0f}{spread:>14}"


def main() -> None:
    """The demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", default=",".join(["whim", *PEERS]))
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(text(run(given.peers.split(","), given.rounds)))


if __name__ == "__main__":
    main()
