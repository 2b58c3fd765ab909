"""``python -m tests.slow.attacks [SECONDS]``: bad callers of every kind, SECONDS (60) of each.

A well-behaved caller beside them waits at most 3 times as long as when it is alone (99 of 100
answers), sees ``/healthz`` within 100 ms, and finds every decision that it was told of in the log.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.attacks import attacked

if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as folder:
        outcomes = attacked(Path(folder), seconds)
    quiet, missed = outcomes["quiet"].p99, []
    for kind, outcome in outcomes.items():
        sys.stdout.write(
            f"{kind:10} p99 {outcome.p99 * 1e3:6.1f} ms ({outcome.p99 / quiet:4.1f} times quiet), "
            f"health within {outcome.health * 1e3:6.1f} ms, {len(outcome.decisions)} decisions, "
            "all in the log\n"
        )
        if outcome.p99 > 3 * quiet or outcome.health > 0.1:
            missed.append(kind)
    sys.exit(f"missed: {', '.join(missed)}" if missed else 0)
