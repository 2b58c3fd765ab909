"""How long a fresh process takes to import whim and to its first decision, against numba's import.

Each measurement is a process of its own that times itself, interpreter start left out. Bytecode
and compiled kernels are cached, as on any second run; the first run, which compiles, is shown
apart.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial

from benchmarks.measure import Row, compare, emit, environment, interleave, progress

__all__ = ["main", "startup"]

_TIMED = """
import time
start = time.perf_counter()
{code}
print(time.perf_counter() - start)
"""
_IMPORT_NUMBA = "import numba"
_IMPORT_WHIM = "import whim"
_DECIDE = """
import whim
policy = whim.PSLinUCBDisjoint(n_features=6, alpha=0.2, window=1000, threshold=0.1)
policy.add_arms(range(20))
policy.select([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
"""
_DECIDE_AND_LEARN = _DECIDE + "policy.update(0, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 1.0)"
_HYBRID = """
import whim
policy = whim.PSLinUCBHybrid(n_features=6, n_item_features=6, window=1000, threshold=0.1)
policy.add_arms(range(2), features=[[0.1] * 6, [0.2] * 6])
policy.select([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
policy.update(0, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 1.0)
"""


def _seconds(code: str, env: dict[str, str]) -> float:
    command = [sys.executable, "-c", _TIMED.format(code=code)]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def startup(rounds: int = 15) -> list[Row]:
    """Rows f: import, first decision, and for information the first update and a cold cache."""
    env = environment(int(os.environ.get("OPENBLAS_NUM_THREADS", "1")))
    codes = {
        "numba": _IMPORT_NUMBA,
        "whim": _IMPORT_WHIM,
        "decide": _DECIDE,
        "learn": _DECIDE_AND_LEARN,
    }
    progress("startup: filling the caches")
    for code in codes.values():
        _seconds(code, env)
    progress(f"startup: {rounds} rounds of {len(codes)} fresh processes")
    sides = {name: partial(_seconds, code, env) for name, code in codes.items()}
    found = interleave(sides, rounds)
    progress("startup: compiling into an empty cache")
    cold = [
        f"{name} {_cold(code, env):.0f} s"
        for name, code in (("disjoint", _DECIDE_AND_LEARN), ("hybrid", _HYBRID))
    ]
    cases = [
        ("f. import whim", "whim", "<=1.5", "against import numba, each in a fresh process"),
        ("f. first decision", "decide", "<=3", "import, construct, add_arms, select; cache warm"),
        (
            "f. first decision and update",
            "learn",
            "",
            f"the first run on a machine compiles instead, select and update: {', '.join(cold)}",
        ),
    ]
    return [
        compare(
            what, found[ours], found["numba"], wanted=wanted, unit="ms", slowness=True, note=note
        )
        for what, ours, wanted, note in cases
    ]


def _cold(code: str, env: dict[str, str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return _seconds(code, env | {"WHIM_CACHE_DIR": folder})


def main() -> None:
    """``python -m benchmarks.startup``."""
    emit(startup())


if __name__ == "__main__":
    main()
