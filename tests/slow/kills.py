"""``python -m tests.slow.kills [N]``: kill -9 under load and backups, N times (100).

What is wrong raises.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.crashes import kills

if __name__ == "__main__":
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as folder:
        told = kills(Path(folder) / "data", times, seed=times, backups=Path(folder))
    sys.stdout.write(
        f"{times} kills: {len(told.decisions)} decisions and {len(told.rewards)} rewards were "
        "acknowledged; none lost, none applied twice, every state the fold of its log. "
        f"{told.backups} backups were taken meanwhile; each restores to a prefix of the log.\n"
    )
