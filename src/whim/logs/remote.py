"""Addresses such as ``s3://bucket/day=*/*.parquet``: which files they mean, and their bytes.

Whatever fsspec opens, with its settings and credentials; ``file://`` and plain paths are read in
place, all others are fetched to a local file before they are read.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from whim.errors import InvalidInputError, LogFileError, WhimError
from whim.extras import install, require
from whim.logs.sources import Progress, Source, files_of

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://")
_MAGIC = re.compile(r"[*?[]")
# what tells one version of a file from another, in the words of different stores
_DIGESTS = ("ETag", "etag", "md5Hash", "content_md5", "crc32c", "checksum")
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "modified", "created", "ino")

_KEYS = "(for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile)"


class SourceFile(NamedTuple):
    """A file to read: its name for people, where it is, and which version of it was listed.

    ``source`` is the address that it was found by, which may hold a user and a host; it is empty
    for a file of this machine, whose ``path`` is then an ordinary one.
    """

    name: str
    source: str
    path: str
    size: int | None
    version: str


def is_address(source: object) -> bool:
    """Whether a source is an address rather than a path.

    >>> is_address("s3://bucket/visits.csv"), is_address("visits.csv"), is_address("C:/visits.csv")
    (True, False, False)
    """
    return isinstance(source, str) and _ADDRESS.match(source) is not None


def is_pattern(source: object) -> bool:
    """Whether a source is a pattern such as ``day-*.csv`` and no file of that very name."""
    return bool(_MAGIC.search(str(source))) and (
        is_address(source) or not Path(str(source)).exists()
    )


def connect(address: str) -> tuple[Any, str]:
    """The file system of an address, which has forgotten what it listed before, and the path."""
    fsspec = require("fsspec", "remote", "Addresses such as s3://bucket/key need")
    try:
        fs, path = fsspec.core.url_to_fs(address)
    except ImportError as error:
        protocol = address.split("://")[0]
        how = f": {install('remote')}" if protocol in ("s3", "s3a") else ""
        raise WhimError(
            f"{protocol}:// needs a package that is not installed{how} ({error})."
        ) from error
    except ValueError as error:
        raise InvalidInputError(
            f"sources must be paths or addresses that fsspec knows, got {address}: {error}."
        ) from None
    with contextlib.suppress(AttributeError, NotImplementedError):
        fs.invalidate_cache()
    return fs, path


@contextlib.contextmanager
def reaching(address: str) -> Iterator[None]:
    """What a store says about a file, as one sentence that names the address."""
    try:
        yield
    except WhimError:
        raise
    except FileNotFoundError:
        raise LogFileError(f"{address}: there is no such file, folder or bucket.") from None
    except Exception as error:  # each store has errors of its own
        kind = type(error).__name__
        if kind in ("NoCredentialsError", "PartialCredentialsError"):
            raise LogFileError(
                f"{address} needs credentials, and none were found {_KEYS}."
            ) from None
        said = (str(error).splitlines() or [kind])[0].rstrip(".") or kind
        if isinstance(error, PermissionError):
            raise LogFileError(f"{address}: access is denied {_KEYS}: {said[:300]}.") from None
        raise LogFileError(f"{address} cannot be read: {said[:300]}.") from None


def expand(sources: Source | Sequence[Source]) -> list[SourceFile]:
    """The files that paths, folders, patterns and addresses mean, each source's sorted by name."""
    several = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    files: list[SourceFile] = []
    for source in several:
        files += _far(str(source)) if is_address(source) else _near(source)
    if not files:
        raise LogFileError("sources must name at least one file.")
    return files


def _near(source: Source) -> list[SourceFile]:
    if is_pattern(source):
        paths = [Path(name) for name in sorted(glob.glob(str(source), recursive=True))]  # noqa: PTH207 - absolute or not
        paths = [path for path in paths if path.is_file()]
        if not paths:
            raise LogFileError(f"{source} matches no file.")
    else:
        paths = files_of(source)
        if Path(source).is_dir():
            paths = [path for path in paths if path.name[0] != "_"] or paths
    return [_local(path) for path in paths]


def _local(path: Path) -> SourceFile:
    status = path.stat()
    version = f"{status.st_mtime_ns} {status.st_ino} {status.st_size}"
    return SourceFile(str(path), "", str(path.absolute()), status.st_size, version)


def _far(address: str) -> list[SourceFile]:
    fs, path = connect(address)
    with reaching(address):
        if _MAGIC.search(path):
            listed = list(fs.glob(path, detail=True).values())
            if not listed:  # of a store that is there?
                fs.ls(_MAGIC.split(path)[0].rpartition("/")[0])
        else:
            about = fs.info(path)
            listed = [about] if about["type"] == "file" else _shown(fs.ls(path, detail=True))
    files = sorted(
        (info for info in listed if info["type"] == "file"), key=lambda i: str(i["name"])
    )
    if not files:
        if _MAGIC.search(path):
            raise LogFileError(f"{address} matches no file.")
        deeper = f"{address.rstrip('/')}/**" if path.strip("/") else "s3://bucket/**"
        raise LogFileError(f"{address} holds no files; those of its folders are {deeper}.")
    if is_local(fs):
        return [_local(Path(info["name"])) for info in files]
    return [source_file(fs, address, info) for info in files]


def source_file(fs: Any, address: str, info: Mapping[str, Any]) -> SourceFile:
    """A file of a store, as it was listed."""
    name = info["name"]
    return SourceFile(fs.unstrip_protocol(name), address, name, info.get("size"), version_of(info))


def _shown(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what is hidden: other tools leave ``_SUCCESS`` and the like beside their parts."""
    return [i for i in listed if PurePosixPath(i["name"].rstrip("/")).name[:1] not in (".", "_")]


def is_local(fs: Any) -> bool:
    """Whether a file system is this machine's own."""
    return "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)


def version_of(info: Mapping[str, Any]) -> str:
    """Text that differs when the file has: its size, and a digest or else its times."""
    digest = _digest_of(info)
    times = " ".join(f"{name}={info[name]}" for name in _TIMES if info.get(name))
    return f"{digest or times} size={info.get('size')}"


def _digest_of(info: Mapping[str, Any]) -> str:
    return next((f"{name}={info[name]}" for name in _DIGESTS if info.get(name)), "")


@contextlib.contextmanager
def fetched(file: SourceFile, folder: Path, progress: Progress | None = None) -> Iterator[Path]:
    """A file of this machine with the same bytes: itself, or a copy that goes afterwards.

    Raises
    ------
    LogFileError
        When the file is no longer the one that was listed, before or after its bytes were used.
    """
    if not file.source:
        yield Path(file.path)
        if not Path(file.path).exists() or _local(Path(file.path)).version != file.version:
            raise _changed(file)
        return
    copy = folder / PurePosixPath(file.path).name
    try:
        fetch(file, copy, progress)
        yield copy
    finally:
        copy.unlink(missing_ok=True)


@contextlib.contextmanager
def fetched_all(sources: Sequence[Source]) -> Iterator[list[Source]]:
    """Local files for sources of which some are addresses, for readers that need all at once."""
    with tempfile.TemporaryDirectory(prefix="whim-") as folder, contextlib.ExitStack() as copies:
        paths: list[Source] = []
        for i, file in enumerate(expand(sources)):
            place = Path(folder) / str(i)  # the same name may come from two folders
            place.mkdir()
            paths.append(copies.enter_context(fetched(file, place)))
        yield paths


def fetch(file: SourceFile, copy: Path, progress: Progress | None = None) -> None:
    """Copy the bytes of a file of a store to ``copy``, whole."""
    fs, _ = connect(file.source)
    callbacks = require("fsspec.callbacks", "remote", "Addresses such as s3://bucket/key need")
    told = callbacks.Callback()
    if progress is not None:
        told.relative_update = progress
    with reaching(file.name):
        fs.get_file(file.path, str(copy), callback=told)
        now = fs.info(file.path)
    # times are written in more than one way by some stores, digests are not
    same = version_of(now) == file.version if _digest_of(now) else True
    if not same or copy.stat().st_size != (file.size or now.get("size") or copy.stat().st_size):
        raise _changed(file)


def _changed(file: SourceFile) -> LogFileError:
    return LogFileError(f"{file.name} changed while it was read; convert it again.")
