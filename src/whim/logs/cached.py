"""Logs of a store, such as ``s3://bucket/visits.whim``, in a folder of this machine by digest.

``digest.json`` of a log has the SHA-256 of each of its files, so a few hundred bytes say whether
the copy here is the log there. Logs without it are told apart by what the store says of each file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from pathlib import Path, PurePosixPath
from typing import Any

from whim.errors import LogFileError
from whim.logs.columns import DIGEST, Log, open
from whim.logs.remote import (
    SourceFile,
    connect,
    fetch,
    is_local,
    reaching,
    source_file,
    version_of,
)

_log = logging.getLogger("whim.logs")
_KEPT = 30 * 24 * 3600  # seconds that a copy stays which nobody opens


def cache_folder() -> Path:
    """Where copies of logs are kept: below ``WHIM_CACHE_DIR``, or in the user's cache."""
    if chosen := os.environ.get("WHIM_CACHE_DIR"):
        root = Path(chosen)
    elif home := os.environ.get("XDG_CACHE_HOME"):
        root = Path(home) / "whim"
    else:
        try:
            root = Path("~/.cache").expanduser() / "whim"
        except RuntimeError:  # no HOME, and a user without a name
            root = Path(tempfile.gettempdir()) / "whim"
    return root / "logs"


def open_cached(address: str) -> Log:
    """The log at an address, from this machine's copy if that is the same, else from a new copy."""
    fs, path = connect(address)
    if is_local(fs):
        return open(path)
    log = _open(fs, path, address)
    log.address = address
    return log


def _open(fs: Any, path: str, address: str) -> Log:
    path = path.rstrip("/")
    with reaching(address):
        listed = {
            PurePosixPath(info["name"]).name: info
            for info in fs.ls(path, detail=True)
            if info["type"] == "file"
        }
        if "meta.json" not in listed:
            raise LogFileError(f"{address} is no log: it has no meta.json.")
        digests = json.loads(fs.cat_file(f"{path}/{DIGEST}")) if DIGEST in listed else None
    if digests is not None and not (isinstance(digests, dict) and "meta.json" in digests):
        raise LogFileError(f"{address}: {DIGEST} does not list the files of a log.")
    what: Any = digests or {name: version_of(info) for name, info in sorted(listed.items())}
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]
    place = cache_folder() / digest
    copy = place / (PurePosixPath(path).name or "log")
    with contextlib.suppress(LogFileError):  # not there, or damaged: then anew
        log = open(copy)
        os.utime(place)
        return log
    names = sorted({*digests, DIGEST} if digests else listed)
    missing = [name for name in names if name not in listed]
    if missing:
        raise LogFileError(f"{address} has no {missing[0]}: it is not whole.")
    files = [source_file(fs, address, listed[name]) for name in names]
    return _copied(address, files, digests, copy)


def _copied(
    address: str, files: list[SourceFile], digests: dict[str, str] | None, copy: Path
) -> Log:
    """Fetch all files, check them, and give the copy its name when it is whole."""
    root = copy.parent.parent
    megabytes = sum(file.size or 0 for file in files) / 1e6
    _log.info("fetching %s (%.0f MB), once; kept in %s", address, megabytes, copy)
    try:
        root.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".fetching-", dir=root))
    except OSError as error:
        raise LogFileError(
            f"{root}, where copies of logs are kept, cannot be written ({error.strerror}): set "
            "WHIM_CACHE_DIR to a folder that can."
        ) from None
    try:
        inside = fresh / copy.name
        inside.mkdir()
        for file in files:
            name = PurePosixPath(file.path).name
            fetch(file, inside / name)
            digest = _sha256(inside / name)
            if digests is not None and digest != digests.get(name, digest):
                raise LogFileError(
                    f"{file.name} must have the SHA-256 that {DIGEST} says, got another: it is "
                    "being replaced, or damaged."
                )
        open(inside)
        _rename(fresh, copy)
    except OSError as error:
        raise LogFileError(f"{address} cannot be kept in {root}: {error.strerror}.") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    _prune(root)
    return open(copy)


def _rename(fresh: Path, copy: Path) -> None:
    try:
        fresh.rename(copy.parent)
    except OSError:  # there is one: of another process that was faster, or damaged
        with contextlib.suppress(LogFileError):
            open(copy)
            return
        shutil.rmtree(copy.parent)
        fresh.rename(copy.parent)


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())  # a copy that has its name is whole, also after a power cut
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _prune(root: Path) -> None:
    """Remove copies that nobody has opened for a month."""
    old = time.time() - _KEPT
    for other in root.iterdir():
        with contextlib.suppress(OSError):  # another process may be pruning as well
            if other.stat().st_mtime < old:
                shutil.rmtree(other)
