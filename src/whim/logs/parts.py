"""Many files, or files of a store, into one log: each file a part, the parts merged.

Parts lie in ``NAME.parts`` beside the log until it is whole. A part is named by a digest of its
file's version, the options and this code: a conversion that was interrupted goes on with the parts
that are there, and a file that changed is converted again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from whim.errors import LogFileError, WhimError
from whim.files import write_atomic
from whim.logs.columns import Log, open
from whim.logs.encoding import Sample, given, named_in
from whim.logs.frames import columns_of, items_of, matching, roles_of, scan
from whim.logs.labelled import count_numbers, numeric
from whim.logs.merge import merge
from whim.logs.remote import SourceFile, expand, fetch, fetched, is_address
from whim.logs.sources import Progress, Source
from whim.logs.tables import SEEN
from whim.logs.writer_checks import check_target

EMPTY_FILE = "empty file"
# eighths of the work: fetching a file of a store, and merging; the rest is reading
_FETCHING, _MERGING = 4 / 8, 1 / 8

Task = dict[str, Any]


class Spread(Protocol):
    """``whim.evaluate.spread`` with an engine chosen, or anything that is called like it."""

    def __call__(
        self,
        function: Callable[[Task], Any],
        tasks: Iterable[Task],
        *,
        progress: Callable[[int], None] | None = None,
    ) -> Sequence[Any]:
        """What ``function`` returns for each task."""


def convert_parts(
    files: Sequence[SourceFile],
    path: Source,
    *,
    reader: tuple[str, str],
    options: Mapping[str, Any],
    overwrite: bool = False,
    progress: Progress | None = None,
    spread: Spread | None = None,
) -> Log:
    """Convert each file to a part and merge the parts, in the order of the files.

    Parameters
    ----------
    files
        What ``expand`` made of the sources.
    reader
        Module and function that read a file as a part.
    options
        What the reader takes, its ``format`` among them.
    progress
        Called with the number of bytes done, each time; in all as many as the files have.
    spread
        Does many tasks at once. Workers must see the folder of ``path`` under the same name.
        ``None`` converts one part after the other, here.

    Raises
    ------
    LogFileError
        When a file cannot be read or lacks a column, or no event is left. Parts that are done stay,
        also after Ctrl-C, and the same call goes on with them.
    """
    target = Path(path)
    check_target(target, overwrite)
    folder = target.with_name(f"{target.name}.parts")
    with _alone(folder):
        takes, items = _items(dict(options), folder)
        empty = [file for file in files if file.size == 0 and options.get("format") == "csv"]
        there = [file for file in files if file not in empty] or list(files)
        work = _Work(folder, there, reader, _Meter(progress), spread)
        names, changes = work.convert(takes)
        source = dict(open(folder / names[0]).meta["source"])
        source.pop("part", None)
        source["files"] = [file.name if file.source else Path(file.name).name for file in files]
        if "options" in source:
            source["options"] |= changes
        features = list(takes.get("item_features") or [])
        log = merge(
            [folder / name for name in names], target, source=source, overwrite=overwrite,
            items=None if items is None else items_of(items, takes["item_id"], features),
            warnings={EMPTY_FILE: len(empty)}, progress=work.merged,
        )  # fmt: skip
        shutil.rmtree(folder, ignore_errors=True)
    return log


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """The folder of the parts, for this conversion alone; without any part it does not stay."""
    try:
        folder.mkdir(exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise LogFileError(f"{folder} cannot be written: {error.strerror or error}.") from None
    with lock:
        if os.name == "posix":
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise LogFileError(f"{folder} is in use by another conversion.") from None
        for left in [*folder.glob(".*.part"), *folder.glob(".*.copy")]:  # by one that was killed
            shutil.rmtree(left, ignore_errors=True)
        try:
            yield
        finally:
            if not list(folder.glob("*.whim")):
                shutil.rmtree(folder, ignore_errors=True)


class _Meter:
    """Bytes done, told in whole numbers."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._done, self._told = progress, 0.0, 0

    def add(self, n: float) -> None:
        self._done += n
        if self._progress is not None and int(self._done) > self._told:
            self._progress(int(self._done) - self._told)
            self._told = int(self._done)


class _Work:
    """The tasks of one conversion, of which those are done that were not done before."""

    def __init__(
        self,
        folder: Path,
        files: Sequence[SourceFile],
        reader: tuple[str, str],
        meter: _Meter,
        spread: Spread | None,
    ) -> None:
        self.folder, self._files, self._reader = folder, files, reader
        self._meter, self._spread = meter, spread

    def convert(self, options: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
        """The names of the parts, all there, and what the log's source says of options besides."""
        changes: dict[str, Any] = {}
        if "label" in options and options.get("context") is None:
            options, changes = self._columns_of_numbers(options)
        if options.get("context") and not options.get("raw"):
            options = self._with_features(options)
            changes |= {"left_out": options["left_out"]} if options.get("left_out") else {}
        tasks = [self._task(file, options) for file in self._files]
        ready = 0
        if any("*" in name for name in options.get("context") or []):
            self._run(convert_part, tasks[:1])  # the first part says what patterns mean
            names = _context(open(self.folder / tasks[0]["name"]), options)
            same = {"context": names, "patterns": options["context"]}
            tasks[1:] = [self._task(file, options | same) for file in self._files[1:]]
            ready = 1
        self._run(convert_part, tasks[ready:])
        return [task["name"] for task in tasks], changes

    def _with_features(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options with what becomes of the context's columns, the same for all parts."""
        options, patterns = dict(options), options["context"]
        features, names = options.get("features"), patterns
        left_out: list[str] = []
        if features is None or any("*" in name for name in patterns):
            rest = (options.pop("categories", ()), options.pop("cyclic", ()))
            sample = Sample(options["format"], patterns, *rest, roles_of(options))
            for file in self._files:
                _with_file({"folder": str(self.folder)}, file, _Share(file, None), sample.add)
                if sample.full:
                    break
            if features is None:
                names, features, left_out = sample.found()
            else:
                names, left_out = named_in(given(features), sample.names, patterns)
        same = {"context": names, "features": given(features).to_dict()}
        more = {} if names == patterns else {"patterns": patterns, "left_out": left_out}
        return options | same | more

    def merged(self, done: int) -> None:
        """So many parts are merged."""
        self._meter.add((self._files[done - 1].size or 0) * _MERGING)

    def _columns_of_numbers(self, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The context of labelled rows, where it is every column of numbers, over all parts."""
        tasks = [self._task(file, options | {"counting": True}) for file in self._files]
        self._run(count_part, tasks)
        counts = [json.loads((self.folder / task["name"]).read_text("utf-8")) for task in tasks]
        for file, count in zip(self._files, counts, strict=True):
            if set(count) != set(counts[0]):
                raise _other_columns(file.name, self._files[0].name, list(count), list(counts[0]))
        names, left_out = numeric(counts, self._files[0].name, options["label"])
        return options | {"context": names}, {"left_out": left_out}

    def _task(self, file: SourceFile, options: dict[str, Any]) -> Task:
        what = {"file": list(file), "reader": self._reader, "options": options}
        which = [file.name if file.source else file.path, file.version]  # however it was named
        text = json.dumps([which, self._reader, options, _code()], sort_keys=True, default=str)
        name = f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.whim"
        return what | {"folder": str(self.folder), "name": name}

    def _run(self, function: Callable[..., Any], tasks: list[Task]) -> None:
        """Do the tasks whose result is not there; one that is named twice is done once."""
        unique = {task["name"]: task for task in tasks}
        left = [task for task in unique.values() if not _is_done(self.folder / task["name"])]
        new = {task["name"] for task in left}
        self._count(function, [task for task in tasks if task["name"] not in new], 1.0)
        if self._spread is None:
            for task in left:
                function(task, functools.partial(self._count, function, [task]))
            return
        reported = 0

        def more(done: int) -> None:
            nonlocal reported
            self._count(function, left, (done - reported) / len(left))
            reported = done

        if left:
            self._spread(function, left, progress=more)
        for task in left:
            if not (self.folder / task["name"]).exists():
                raise LogFileError(
                    f"{self.folder} must be the same folder for every worker, got one that did "
                    "not write there."
                )

    def _count(self, function: Callable[..., Any], tasks: list[Task], share: float) -> None:
        """So much of the work on these parts is done; merging comes later."""
        if function is convert_part:
            size = sum(task["file"][3] or 0 for task in tasks)
            self._meter.add(size * share * (1 - _MERGING))


def convert_part(task: Task, count: Callable[[float], None] | None = None) -> str:
    """Convert one file to a part; ``count`` is called with shares of the work, in all 1."""
    file, target = SourceFile(*task["file"]), Path(task["folder"]) / task["name"]
    options = dict(task["options"])
    patterns, left_out = options.pop("patterns", None), options.pop("left_out", ())
    options.pop("items_digest", None)
    module, function = task["reader"]
    reader = getattr(importlib.import_module(f"whim.logs.{module}"), function)
    share = _Share(file, count)

    def work(local: Path) -> None:
        if patterns is not None:
            columns = columns_of(scan(local, options["format"]), local)
            found = matching(patterns, columns, "context", local, roles_of(options))
            if {*found} - {*left_out} != {*options["context"]}:
                raise _other_columns(file.name, "the first part", found, options["context"])
        reader(local, target, overwrite=True, progress=share.read, _part=True, **options)

    try:
        _with_file(task, file, share, work)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)  # of a file that changed meanwhile
        raise
    share.end()
    return str(task["name"])


def count_part(task: Task, count: Callable[[float], None] | None = None) -> str:
    """Count the numbers in the columns of one file of labelled rows."""
    file, options = SourceFile(*task["file"]), task["options"]

    def work(local: Path) -> None:
        counts = count_numbers(local, options["format"], options["label"], options.get("time"))
        write_atomic(Path(task["folder"]) / task["name"], json.dumps(counts))

    _with_file(task, file, _Share(file, count), work)
    return str(task["name"])


class _Share:
    """Bytes fetched and read of one file, as shares of the work on it."""

    def __init__(self, file: SourceFile, count: Callable[[float], None] | None) -> None:
        self._size, self._count, self._done = max(file.size or 0, 1), count, 0.0
        self._fetching = _FETCHING / (1 - _MERGING) if file.source else 0.0

    def fetched(self, n: int) -> None:
        self._add(self._fetching * n / self._size)

    def read(self, n: int) -> None:
        self._add((1 - self._fetching) * n / self._size)

    def end(self) -> None:
        self._add(1.0)

    def _add(self, share: float) -> None:
        share = min(share, 1.0 - self._done)
        self._done += share
        if self._count is not None:
            self._count(share)


def _with_file(task: Task, file: SourceFile, share: _Share, work: Callable[[Path], None]) -> None:
    """Call ``work`` with a local file; an error names the file as the user did."""
    scratch = Path(task["folder"]) / f".{uuid.uuid4().hex[:8]}.copy"
    scratch.mkdir(parents=True)
    try:
        with fetched(file, scratch, share.fetched) as local:
            work(local)
    except WhimError as error:
        copy = scratch / PurePosixPath(file.path).name
        text = str(error).replace(str(copy), file.name)
        raise type(error)(text if file.source else text.replace(file.path, file.name)) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _is_done(result: Path) -> bool:
    if result.is_file():
        return True
    try:
        open(result)
    except LogFileError:
        return False
    return True


def _context(part: Log, options: Mapping[str, Any]) -> list[str]:
    """The columns of a part's context."""
    names: list[str] = part.meta["context_names"]
    if names[-1] == SEEN:
        names = names[:-1]
    return names[1:] if options.get("constant") else names


def _other_columns(
    name: str, first: str, columns: Sequence[str], wanted: Sequence[str]
) -> LogFileError:
    return LogFileError(
        f"{name} must have the columns of {first}, {', '.join(wanted[:20])}, "
        f"got {', '.join(columns[:20])}."
    )


def _items(options: dict[str, Any], folder: Path) -> tuple[dict[str, Any], Path | None]:
    """The options with a file of items that every worker sees, named by its content."""
    items = options.get("items")
    if items is None:
        return options, None
    path = Path(str(items))
    if is_address(items):
        (file,) = expand(items)[:1]
        path = folder / "items" / PurePosixPath(file.path).name
        path.parent.mkdir(exist_ok=True)
        if file.source:
            fetch(file, path)
        else:
            path = Path(file.path)
    elif not path.is_file():
        raise LogFileError(f"{path}: there is no such file.")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return options | {"items": str(path.absolute()), "items_digest": digest}, path


@functools.cache
def _code() -> str:
    """Digest of the readers: parts of other code are not taken up."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for file in sorted([*here.glob("*.py"), *here.parent.glob("features/*.py")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()
