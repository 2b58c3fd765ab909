"""``Tasks``: what a worker does. Reads the committed log; writes snapshots, and trims.

Each task imports what it needs: the check of the log, made at every start, needs no policies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whim.errors import WhimError
from whim.serve.jobs.check import find_damage
from whim.serve.jobs.worker import Task, split_state
from whim.serve.log.reader import LogReader

if TYPE_CHECKING:
    from whim.serve.log.store import Packed
    from whim.serve.state.recovery import Replicas

Progress = Callable[[float], None]


class Tasks:
    """A worker's view of a data directory."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._reader = LogReader(data / "log.db")

    @functools.cached_property
    def _replicas(self) -> Replicas:
        from whim.serve.state.recovery import Replicas
        from whim.serve.state.snapshots import Snapshots

        return Replicas(self._reader, Snapshots(self._data / "snapshots.db"))

    def do(self, task: Task, progress: Progress) -> tuple[Any, list[bytes]]:
        """Do a task: its result, and the large parts of it."""
        name, config = task.config_row.name, task.config_row.config
        if task.do == "snapshot":
            return self._replicas.snapshot(task.number, task.config_row), []
        if task.do == "rebuild":
            return self._rebuild(task, progress)
        if task.do == "trim":
            from whim.serve.jobs.trim import trim

            done = trim(self._reader.path, task.before, given_up=task.given_up)
            return done._asdict(), []
        if task.do == "verify":
            return find_damage(self._reader, progress), []
        if task.do == "whatif" and config is not None:
            from whim.serve.jobs import whatif

            return whatif.run(self._data, name, config, progress), []
        if task.do == "coefficients":
            from whim.serve.jobs import coefficients

            number, arm, span = task.number, task.arm, task.span
            return coefficients.run(self._reader, number, task.config_row, arm, span, progress), []
        if task.do == "compile" and config is not None:
            from whim.serve.state.policy import compile_for

            compile_for(config)
            return None, []
        raise WhimError(f"do must be a task that is known, got {task.do!r}.")

    def _rebuild(self, task: Task, progress: Progress) -> tuple[list[Packed], list[bytes]]:
        from whim.serve.log.store import pack_changes
        from whim.serve.state.recovery import rebuild

        last = max(1, self._reader.last()[0])
        state, changes = rebuild(
            self._reader, task.number, task.config_row,
            lambda seq: progress(min(1.0, seq / last)),
        )  # fmt: skip
        packed = pack_changes(task.number, state.version, changes)
        return packed, split_state(*state.to_bytes())
