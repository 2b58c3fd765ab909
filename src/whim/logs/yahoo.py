"""Yahoo's front page logs R6A and R6B: text in the published format into a log."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whim.checks import choice, integer
from whim.errors import LogFileError
from whim.logs import yahoo_parser as parser
from whim.logs.columns import Log, open
from whim.logs.sources import LINE_LIMIT, Block, Progress, Source, beginning, blocks, files_of
from whim.logs.sources import no_events as _no_events
from whim.logs.writer import Writer

DROPPED = {
    parser.BAD_HEADER: "line without a readable time, article and click",
    parser.BAD_CLICK: "click other than 0 or 1",
    parser.BAD_USER: "user features not readable",
    parser.BAD_POOL: "candidate articles not readable",
    parser.TOO_MANY: f"more than {parser.MOST_ARTICLES} candidate articles",
    parser.LONG: "line longer than 1 MB",
    parser.REPEATED: "article twice among the candidates",
    parser.EMPTY_POOL: "no candidate article with features",
    parser.NOT_IN_POOL: "shown article not among the candidates",
    parser.USER_LACKS: "user without all features",
    parser.SHOWN_LACKS: "shown article without all features",
}
WARNINGS = {
    parser.EMPTY_LINE: "empty line",
    parser.STRAY: "feature of an unknown number ignored",
    parser.LACKING: "candidate without all features left out",
}
EMPTY_FILE = "empty file"

_USER_FEATURES = {"r6a": 6, "r6b": 136}
_ITEM_FEATURES = {"r6a": 6, "r6b": 0}
_ROWS = {"events": 1 << 16, "members": 1 << 19, "items": 1 << 16, "slow": 1 << 18}


def convert(
    sources: Source | Sequence[Source],
    path: Source,
    *,
    format: str | None = None,
    strict: bool = False,
    overwrite: bool = False,
    jobs: int = 1,
    logging: str | None = "uniform",
    progress: Progress | None = None,
    _part: bool = False,
) -> Log:
    """Read R6A or R6B files, plain or gzip, in the order given; a folder means its files by name.

    Vectors are ordered by feature number, so the constant, number 1, comes first (in the files
    it stands last). An article that lacks features is left out of the pools, and its event is
    dropped only where it was the one shown. What is dropped is counted by reason.

    Parameters
    ----------
    format
        ``"r6a"`` or ``"r6b"``; ``None`` finds out from the first line.
    strict
        Stop at the first malformed line. Missing features, which the published files have, are
        counted all the same.
    jobs
        Threads that parse; the log is the same, byte for byte, with any number.
    logging
        How articles were chosen; both data sets say uniformly at random.
    progress
        Called with the number of bytes read, each time.

    Raises
    ------
    LogFileError
        When a file cannot be read to its end, a line is malformed under ``strict``, or no event
        is left.
    """
    files = files_of(sources)
    integer("jobs", jobs, 1)
    kind = detect(files) if format is None else choice("format", format, ("r6a", "r6b"))
    source = {"reader": kind, "files": [file.name for file in files]}
    with Writer(
        path, n_features=_USER_FEATURES[kind], n_item_features=_ITEM_FEATURES[kind],
        logging=logging, source=source, context_dtype="float64" if kind == "r6a" else "uint8",
        context_names=[str(i + 1) for i in range(_USER_FEATURES[kind])],
        item_names=[str(i + 1) for i in range(_ITEM_FEATURES[kind])], overwrite=overwrite,
    ) as writer:  # fmt: skip
        for file in files:
            _read(file, kind, writer, strict, jobs, progress)
        if not writer.n_events and not _part:
            raise _no_events(files, writer.dropped, "nothing but empty lines")
    return open(path)


def detect(files: Sequence[Path]) -> str:
    """``"r6a"`` or ``"r6b"``, by the first line that is not blank."""
    for file in files:
        words = beginning(file).lstrip().split(b"\n", 1)[0].split()
        if not words:
            continue
        if len(words) > 3 and words[0].isdigit() and words[3] == b"|user":
            return "r6b" if words[1].startswith(b"id-") else "r6a"
        raise LogFileError(f"{file} does not look like R6A or R6B: see its first line.")
    raise _no_events(files, {}, "nothing but empty files")


class _Part(NamedTuple):
    """What one call of the parser read."""

    counts: npt.NDArray[np.int64]
    columns: dict[str, Any]


def _parse(data: npt.NDArray[np.uint8], kind: str, limit: int) -> list[_Part]:
    """All of a block; in several parts only if it holds unusually many articles."""
    parts = []
    start = 0
    while start < len(data):
        out = _space(kind)
        start = parser.parse(data, start, kind == "r6b", limit, out)
        counts = out.counts
        for of_item, row, column, low, high in out.slow[: counts[parser.N_SLOW]].tolist():
            rows = out.features if of_item else out.context
            rows[row, column] = float(data[low:high].tobytes())
        n, items = int(counts[parser.N_EVENTS]), int(counts[parser.N_ITEMS])
        known = out.item_id[:items].tolist()
        columns = {
            "time": out.time[:n],
            "context": (out.context if kind == "r6a" else out.flags)[:n],
            "pool": out.pool[:n],
            "logged": out.place[:n],
            "reward": out.reward[:n],
            "pool_offsets": out.offsets[: counts[parser.N_POOLS] + 1],
            "pool_items": out.members[: counts[parser.N_MEMBERS]],
            "item_arm": known if kind == "r6a" else [f"id-{each}" for each in known],
            "item_features": out.features[:items],
        }
        parts.append(_Part(counts, columns))
    return parts


def _space(kind: str) -> parser.Columns:
    """Room for the events of one call."""
    n, items = _ROWS["events"], _ROWS["items"]
    return parser.Columns(
        time=np.empty(n, np.int64), context=np.empty((n, 6)), flags=np.empty((n, 136), np.uint8),
        pool=np.empty(n, np.int32), place=np.empty(n, np.int32), reward=np.empty(n),
        offsets=np.empty(n + 1, np.int64), members=np.empty(_ROWS["members"], np.int32),
        item_id=np.empty(items, np.int64), features=np.empty((items, _ITEM_FEATURES[kind])),
        slow=np.empty((_ROWS["slow"], 5), np.int32), counts=np.zeros(parser.COUNTS, np.int64),
    )  # fmt: skip


def _read(
    file: Path, kind: str, writer: Writer, strict: bool, jobs: int, progress: Progress | None
) -> None:
    lines = 0
    try:
        for parts in _parsed(file, kind, jobs, progress):
            for part in parts:
                bad, why = part.counts[parser.FIRST_BAD : parser.FIRST_BAD + 2].tolist()
                if strict and bad:
                    raise LogFileError(f"{file}, line {lines + bad}: {DROPPED[why]}.")
                lines += int(part.counts[parser.N_LINES])
                for code, reason in DROPPED.items():
                    writer.drop(reason, int(part.counts[code]))
                for code, what in WARNINGS.items():
                    writer.warn(what, int(part.counts[code]))
                writer.block(**part.columns)
            if not parts:  # a line that was skipped while reading
                if strict:
                    raise LogFileError(f"{file}, line {lines + 1}: {DROPPED[parser.LONG]}.")
                lines += 1
                writer.drop(DROPPED[parser.LONG])
    except _StoppedError as stopped:
        raise LogFileError(
            f"{stopped.why} after {writer.n_events} events; nothing was written."
        ) from None
    writer.read += lines
    if not lines:
        writer.warn(EMPTY_FILE)


class _StoppedError(Exception):
    """Reading failed; what came before has been handed out."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why.rstrip(".")


def _parsed(file: Path, kind: str, jobs: int, progress: Progress | None) -> Iterator[list[_Part]]:
    """The parts of each block in order; an empty list stands for a line too long."""
    parse = partial(_parse, kind=kind, limit=LINE_LIMIT)
    waiting: deque[Callable[[], list[_Part]]] = deque()
    failed: str | None = None
    with ThreadPoolExecutor(jobs) as threads:  # starts none before the first submit
        source = blocks(file, progress=progress)
        while True:
            try:
                block = next(source, None)
            except LogFileError as error:
                block, failed = None, str(error)
            if block is not None:
                waiting.append(_task(parse, block, threads if jobs > 1 else None))
            while waiting and (block is None or jobs == 1 or len(waiting) > jobs + 1):
                yield waiting.popleft()()
            if block is None:
                break
    if failed is not None:
        raise _StoppedError(failed)


def _task(
    parse: Callable[[Any], list[_Part]], block: Block, threads: ThreadPoolExecutor | None
) -> Callable[[], list[_Part]]:
    """The parts of a block, once they are needed."""
    if block.data is None:
        return list
    if threads is None:
        return partial(parse, block.data)
    return threads.submit(parse, block.data).result
