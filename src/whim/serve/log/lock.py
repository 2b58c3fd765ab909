"""``DataLock``: a data directory has one service at a time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from whim.serve.log.reader import StoreError

if sys.platform != "win32":
    import fcntl


class DataLock:
    """One service per data directory; the system releases it when the process ends."""

    def __init__(self, data: Path) -> None:
        try:
            data.mkdir(parents=True, exist_ok=True)
            self._file = os.open(data / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(
                f"data must be a directory that can be written to, got {data.name}: "
                f"{error.strerror or error}."
            ) from None
        try:
            if sys.platform != "win32":  # which has no such locks
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise StoreError(
                f"data must be a directory of no other running service, got {data.name}, which "
                "is in use."
            ) from None

    def release(self) -> None:
        """Let another service have it."""
        os.close(self._file)
