"""``python -m tests.slow.kills [N]``: kill -9 under load, N times (100); what is wrong raises."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.crashes import kills

if __name__ == "__main__":
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as folder:
        told = kills(Path(folder) / "data", times, seed=times)
    sys.stdout.write(
        f"{times} kills: {len(told.decisions)} decisions and {len(told.rewards)} rewards were "
        "acknowledged; none lost, none applied twice, every state the fold of its log.\n"
    )
