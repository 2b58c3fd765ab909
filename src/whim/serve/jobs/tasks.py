"""``Tasks``: what a worker does. Reads the committed log; writes snapshots, and trims."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whim.errors import WhimError
from whim.serve.jobs import whatif
from whim.serve.jobs.check import find_damage
from whim.serve.jobs.trim import trim
from whim.serve.jobs.worker import Task, split_state
from whim.serve.log.reader import LogReader
from whim.serve.log.store import Packed, pack_changes
from whim.serve.state import recovery
from whim.serve.state.policy import compile_for
from whim.serve.state.snapshots import Snapshots

Progress = Callable[[float], None]


class Tasks:
    """A worker's view of a data directory."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._reader = LogReader(data / "log.db")

    @functools.cached_property
    def _replicas(self) -> recovery.Replicas:
        return recovery.Replicas(self._reader, Snapshots(self._data / "snapshots.db"))

    def do(self, task: Task, progress: Progress) -> tuple[Any, list[bytes]]:
        """Do a task: its result, and the large parts of it."""
        name, config = task.config_row.name, task.config_row.config
        if task.do == "snapshot":
            return self._replicas.snapshot(task.number, task.config_row), []
        if task.do == "rebuild":
            return self._rebuild(task, progress)
        if task.do == "trim":
            done = trim(self._reader.path, task.before, given_up=task.given_up)
            return done._asdict(), []
        if task.do == "verify":
            return find_damage(self._reader, progress), []
        if task.do == "whatif" and config is not None:
            return whatif.run(self._data, name, config, progress), []
        if task.do == "compile" and config is not None:
            compile_for(config)
            return None, []
        raise WhimError(f"do must be a task that is known, got {task.do!r}.")

    def _rebuild(self, task: Task, progress: Progress) -> tuple[list[Packed], list[bytes]]:
        last = max(1, self._reader.last()[0])
        state, changes = recovery.rebuild(
            self._reader, task.number, task.config_row,
            lambda seq: progress(min(1.0, seq / last)),
        )  # fmt: skip
        packed = pack_changes(task.number, state.version, changes)
        return packed, split_state(*state.to_bytes())
