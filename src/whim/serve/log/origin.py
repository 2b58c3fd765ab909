"""Whose log a data directory holds: its own, a replica's copy of another, or one that has moved."""

from __future__ import annotations

from pathlib import Path

import msgspec

from whim.files import sync_folder, write_atomic
from whim.serve.log.reader import StoreError

ORIGIN = "origin"  # the file that names the log of which a directory holds a copy
SHARDS = "shards"  # the folder in which a replica keeps copies of all shards but the first
MOVED = "moved"  # the file that says where the log of a directory is now


class Moved(msgspec.Struct, frozen=True):
    """Where a directory's log is: ``store``, an address without secrets, and the log's id there.

    ``arriving``: it is on its way from there to here. ``token`` is that of the move.
    """

    store: str
    log: str
    token: str
    arriving: bool = False


def origin_of(data: Path) -> str | None:
    """The id of the shared log of which a directory holds a copy; None: its log is its own."""
    path = data / ORIGIN
    return path.read_text().strip() if path.is_file() else None


def logs_of(data: Path) -> list[Path]:
    """The directories that hold a log: the service's own, and a replica's for further shards."""
    return [data, *sorted(path.parent for path in (data / SHARDS).glob("*/log.db"))]


def refuse_copy(data: Path) -> None:
    """Raise if a directory holds a copy: its log must not go on by itself."""
    if origin_of(data) is not None:
        raise StoreError(
            f"data must be the directory of a log of its own, got {data.name}, a replica's copy of "
            "one in PostgreSQL: set store, or choose another directory."
        )


def moved_of(data: Path) -> Moved | None:
    """Where the log of a directory has gone; None: it is here."""
    path = data / MOVED
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Moved)
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(f"{data.name}/{MOVED} must be as `whim move` wrote it: {error}.") from None


def say_moved(data: Path, moved: Moved | None) -> None:
    """Have a directory say where its log has gone, or, with None, that it is here again."""
    if moved is None:
        (data / MOVED).unlink(missing_ok=True)
        sync_folder(data)
    else:
        write_atomic(data / MOVED, msgspec.json.encode(moved) + b"\n", mode=0o600)


def refuse_moved(data: Path) -> None:
    """Raise if the log of a directory has gone elsewhere: what it still has must not go on."""
    moved = moved_of(data)
    if moved is None:
        return
    if moved.arriving:
        raise StoreError(
            f"data must hold a whole log, got {data.name}, to which one is being moved from "
            f"{moved.store}: run that `whim move` again."
        )
    raise StoreError(
        f"data must be the directory of a log that is there, got {data.name}, whose log was moved "
        f"to {moved.store}: set store, with another directory as data, or bring it back with "
        "`whim move`."
    )
