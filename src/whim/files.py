"""``write_atomic``: a file that is either the old one or the whole new one; ``unwritable``."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_atomic(
    path: str | os.PathLike[str],
    data: bytes | str | Callable[[BinaryIO], object],
    *,
    mode: int | None = None,
) -> None:
    """Write a file that is never seen half-written, not even after a power cut.

    Parameters
    ----------
    path
        The file; its folder must exist. A symbolic link stays a link, its target is replaced.
    data
        What to write: bytes, text (as UTF-8), or a function that writes to an open file.
    mode
        Permissions of the file. Without it, those of the file that is replaced, or the usual ones.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "numbers.txt"
    ...     write_atomic(path, "1 2 3")
    ...     path.read_text()
    '1 2 3'
    """
    target = Path(path).resolve()
    fresh = target.with_name(f".{target.name[:200]}.{secrets.token_hex(6)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(fresh, flags, 0o666 if mode is None else mode)
    except OSError as error:
        error.filename = os.fspath(path)  # the caller knows nothing of the temporary one
        raise
    try:
        with os.fdopen(handle, "wb") as file:
            if callable(data):
                data(file)
            else:
                file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            if mode is None and target.exists():  # a private file stays private
                fresh.chmod(stat.S_IMODE(target.stat().st_mode))
            os.fsync(file.fileno())
        fresh.replace(target)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def unwritable(folder: str | os.PathLike[str]) -> str | None:
    """Why nothing can be written into a folder that may have to be made first, or None.

    It is tried, where that folder is or would be made: permissions do not tell all.

    >>> unwritable(tempfile.gettempdir()) is None
    True
    """
    place = Path(folder).absolute()
    try:
        there = next(part for part in (place, *place.parents) if part.exists())
        with tempfile.TemporaryDirectory(prefix=".", dir=there):
            return None
    except OSError as error:
        return error.strerror or str(error)


def sync_folder(folder: Path) -> None:
    """A rename survives a power cut once its folder is on disk."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
