"""The files of HetRec 2011 LastFM 2k as plain arrays, each row checked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np

from whim.errors import InvalidInputError
from whim.types import I64

_LISTENING = ("userID", "artistID", "weight")
_TAGS = ("tagID", "tagValue")
_TIMED = ("userID", "artistID", "tagID", "timestamp")
_DATED = ("userID", "artistID", "tagID", "day", "month", "year")
_INTEGER = re.compile(r"-?[0-9]{1,15}").fullmatch

# the original; the same rebuilt from the dates; the dates
_TIMESTAMPS = "user_taggedartists-timestamps.dat"
_DERIVED = "user_taggedartists-timestamps.derived.dat"
_DATES = "user_taggedartists.dat"


@dataclass(frozen=True, slots=True)
class Tagging:
    """Who gave which artist which tag, and when, in the order of the file."""

    users: I64
    artists: I64
    tags: I64
    times: I64  # milliseconds since 1970 began (UTC)
    file: str  # that the times come from


def read_listening(folder: str | Path) -> tuple[I64, I64]:
    """User and artist of each listening record of ``user_artists.dat``; repeats count once.

    The number of plays is read, checked and left out: a listened artist is a positive.
    """
    table = _integers(Path(folder) / "user_artists.dat", _LISTENING)
    pairs = np.unique(table[:, :2], axis=0)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def read_tags(folder: str | Path) -> dict[int, str]:
    """The text of each tag of ``tags.dat``."""
    path = Path(folder) / "tags.dat"
    tags: dict[int, str] = {}
    for number, (tag, value) in _rows(path, _TAGS):
        if not _INTEGER(tag):
            raise _bad(path, number, "tagID must be an integer", tag)
        if int(tag) in tags:
            raise _bad(path, number, "tagID must not repeat", tag)
        tags[int(tag)] = value
    return tags


def read_tagging(folder: str | Path) -> Tagging:
    """The tag assignments with their times.

    The times come from the original ``user_taggedartists-timestamps.dat``; where that is
    missing from its ``.derived.dat`` twin; where both are, from ``user_taggedartists.dat``: the
    midnight, in Madrid, with which a date begins, as the original has it for all rows but those
    of the days of the crawl.
    """
    for name in (_TIMESTAMPS, _DERIVED):
        path = Path(folder) / name
        if path.is_file():
            table = _integers(path, _TIMED)
            times = table[:, 3].copy()
            break
    else:
        name, path = _DATES, Path(folder) / _DATES
        table = _integers(path, _DATED)
        times = np.empty(len(table), np.int64)
        for i, (day, month, year) in enumerate(table[:, 3:].tolist()):
            try:
                times[i] = _midnight(day, month, year)
            except ValueError:
                date = f"{year}-{month}-{day}"
                # no blank lines within, so row i stands on line i + 2
                raise _bad(path, i + 2, "day, month, year must be a date", date) from None
    users, artists, tags = (table[:, i].copy() for i in range(3))
    return Tagging(users, artists, tags, times, name)


@cache
def _midnight(day: int, month: int, year: int) -> int:
    """Milliseconds at which a day began in Madrid, where the data set was made."""
    return int(datetime(year, month, day, tzinfo=ZoneInfo("Europe/Madrid")).timestamp()) * 1000


def _integers(path: Path, columns: tuple[str, ...]) -> I64:
    """A table of integers, (rows, columns)."""
    table: list[str] = []
    for number, fields in _rows(path, columns):
        for name, field in zip(columns, fields, strict=True):
            if not _INTEGER(field):
                raise _bad(path, number, f"{name} must be an integer", field)
        table += fields
    return np.array(table).astype(np.int64).reshape(-1, len(columns))


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of each row below the heading; at least one row."""
    try:
        # tags.dat is ISO-8859-1 and the others are ASCII; splitlines() would break lines at
        # characters of that encoding, such as 0x85
        text = path.read_bytes().decode("iso-8859-1")
    except OSError as error:
        raise InvalidInputError(
            f"folder must hold the readable HetRec file {path.name}, got {path.parent} "
            f"({error.strerror})."
        ) from None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    heading = lines[0].split("\t") if lines else []
    if heading != list(columns):
        raise _bad(path, 1, f"the columns must be {', '.join(columns)}", ", ".join(heading))
    if len(lines) == 1:
        raise _bad(path, 2, "there must be at least one row", "")
    for number, line in enumerate(lines[1:], start=2):
        fields = line.split("\t")
        if len(fields) != len(columns):
            raise _bad(path, number, f"a row must have {len(columns)} fields", line)
        yield number, fields


def _bad(path: Path, line: int, constraint: str, came: str) -> InvalidInputError:
    shown = came if len(came) <= 60 else came[:57] + "..."
    return InvalidInputError(f"{path.name}, line {line}: {constraint}, got {shown!r}.")
