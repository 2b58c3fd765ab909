"""``Desk``: what a clerk does with its tasks. Reads the committed log; writes only snapshots."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whim.errors import WhimError
from whim.serve.jobs import whatif
from whim.serve.jobs.worker import Task
from whim.serve.log.store import LogReader
from whim.serve.state import recovery as behind
from whim.serve.state import retention
from whim.serve.state.snapshots import Snapshots

__all__ = ["Desk"]


class Desk:
    """A clerk's view of a data directory."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._reader = LogReader(data / "log.db")
        self._shadows: behind.Shadows | None = None

    def do(self, task: Task, progress: Callable[[float], None]) -> tuple[Any, list[bytes]]:
        """Do a task: its result, and the large parts of it."""
        if task.do == "snapshot":
            if self._shadows is None:
                snapshots = Snapshots(self._data / "snapshots.db")
                self._shadows = behind.Shadows(self._reader, snapshots)
            return self._shadows.snapshot(task.number, task.told), []
        if task.do == "rebuild":
            return self._rebuild(task, progress)
        if task.do == "trim":
            done = retention.trim(self._data / "log.db", task.before, given_up=task.given_up)
            return done._asdict(), []
        if task.do == "verify":
            return self._verified(), []
        if task.do == "whatif" and task.told.config is not None:
            return whatif.run(self._data, task.told.name, task.told.config, progress), []
        raise WhimError(f"do must be a task that is known, got {task.do!r}.")

    def _verified(self) -> str | None:
        """What is wrong with the database as such: rows have checksums, its indexes have none."""
        path = self._data / "log.db"
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        ) as db:
            try:
                ((found,),) = db.execute("PRAGMA integrity_check(1)").fetchall()
            except sqlite3.Error as error:
                found = str(error)
        return None if found == "ok" else str(found)

    def _rebuild(self, task: Task, progress: Callable[[float], None]) -> tuple[bytes, list[bytes]]:
        last = max(1, self._reader.last()[0])
        held, changes = behind.rebuild(
            self._reader, task.number, task.told, lambda seq: progress(min(1.0, seq / last))
        )
        head, policy = held.to_bytes()
        return behind.pack(changes), [struct.pack("<Q", len(head)), head, policy]
