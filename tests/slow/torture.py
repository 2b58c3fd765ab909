"""``python -m tests.slow.torture [PERCENT] [SEED]``: all blows to three replicas and PostgreSQL.

With a number, so many percent of the 157. What is wrong raises.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.torture import Blows, torture

if __name__ == "__main__":
    percent = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 18
    blows = Blows(*(max(1, round(n * percent / 100)) for n in Blows()))
    with tempfile.TemporaryDirectory() as folder:
        summary = torture(Path(folder), blows, seed=seed, clients=6, pace=3.0, pause=0.01)
    sys.stdout.write(f"{summary}\n")
    for reason in summary.restarts:
        sys.stdout.write(f"started again: {reason}\n")
