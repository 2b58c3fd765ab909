"""MABWiser has a simulator over logs, but no replay."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.task import Unable

NOTES = {
    "replay": "none: its Simulator learns from every logged choice and, where its own differs, "
    "puts the arm's mean of the training set for the reward"
}


def replay(path: Path, events: int) -> tuple[float, int, int]:
    """Refuse, with the reason."""
    raise Unable(NOTES["replay"])
