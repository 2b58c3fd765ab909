"""``Writer``: makes a log event by event or block by block, in bounded memory, all or nothing."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from whim.checks import LARGEST, choice, integer, matrix, real, vector
from whim.errors import InvalidInputError, LogFileError
from whim.logs.columns import (
    COLUMNS,
    CONTEXT_DTYPES,
    DIGEST,
    FORMAT,
    LIST_COLUMNS,
    LOGGING,
)
from whim.logs.numbering import Numbering, plain_id
from whim.logs.writer_checks import check_block, check_target, different, int64, names_of
from whim.types import F64, ArmId

EARLIER = "time earlier than the event before"
_ROWS = 4096  # events kept by ``event`` before they become a block


class Writer:
    """Write a log; under its name it appears whole, when the ``with`` block ends, or not at all.

    Parameters
    ----------
    path
        The folder to make, by custom ``name.whim``.
    n_features, n_item_features
        Length of a context and of an item's feature vector.
    logging
        How the shown arm was chosen: ``"uniform"``, ``"propensity"``, ``"full"`` or ``None``.
    source
        What the log is made of, for the reader of ``meta.json``.
    propensities
        Whether events come with the probability of the shown arm.
    context_dtype
        ``"float64"``, or ``"uint8"`` for features that are 0 or 1.
    context_names, item_names
        Names of the features, if they have any.
    encoding
        How columns became the context, as ``Features.to_dict`` has it, for ``Log.features``.
    overwrite
        Replace a log that is there already. Anything that is no log is never replaced.

    Notes
    -----
    Equal pools are stored once as long as they are remembered: the memory of pools and items is
    bounded, and an old one that returns later may get a second number.

    Examples
    --------
    >>> import tempfile, whim.logs
    >>> path = tempfile.mkdtemp() + "/tiny.whim"
    >>> with whim.logs.Writer(path, n_features=1, n_item_features=2, logging="uniform") as w:
    ...     for click in (0.0, 1.0):
    ...         w.event(time=0, x=[1.0], arms=[17, 4], features=[[1, 0], [0, 1]], shown=4,
    ...                 reward=click)
    ...     w.drop("no pool")
    >>> log = whim.logs.open(path)
    >>> log.n_events, log.n_items, log.n_pools, log.meta["dropped"]
    (2, 2, 1, {'no pool': 1})
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        n_features: int,
        n_item_features: int = 0,
        logging: str | None = None,
        source: Mapping[str, Any] | None = None,
        propensities: bool = False,
        context_dtype: str = "float64",
        context_names: Sequence[str] | None = None,
        item_names: Sequence[str] | None = None,
        encoding: Mapping[str, Any] | None = None,
        overwrite: bool = False,
    ) -> None:
        self.path = Path(path)
        self._d = integer("n_features", n_features, 1)
        self._m = integer("n_item_features", n_item_features, 0)
        self._logging = None if logging is None else choice("logging", logging, LOGGING)
        if logging == "propensity" and not propensities:
            raise InvalidInputError(
                "propensities must be given under logging='propensity' (of a table, propensity "
                "names their column), got none."
            )
        self._has_propensity = bool(propensities)
        self._context_dtype = choice("context_dtype", context_dtype, tuple(CONTEXT_DTYPES))
        self._names = {
            "context_names": names_of("context_names", context_names, self._d),
            "item_names": names_of("item_names", item_names, self._m),
        }
        self._source = dict(source or {})
        self._encoding = {} if encoding is None else {"encoding": dict(encoding)}
        self._overwrite = overwrite
        check_target(self.path, self._overwrite)

        self.n_events = 0
        self.read = 0
        self._dropped: Counter[str] = Counter()
        self._warnings: Counter[str] = Counter()
        self._numbers = Numbering(self._put)
        self._rows: list[tuple[int, Any, int, int, float, float]] = []
        self._last_time: int | None = None
        self._files: dict[str, BinaryIO] = {}
        self._digests: dict[str, Any] = {}
        self._folder = self.path.parent / f".{self.path.name}.{uuid.uuid4().hex[:8]}.part"
        self._begin()

    # -- the events -------------------------------------------------------------------------

    def event(
        self,
        *,
        time: int,
        x: Any,
        arms: Sequence[ArmId],
        shown: ArmId,
        reward: float,
        features: Any = None,
        propensity: float | None = None,
    ) -> None:
        """One event: the candidates, the one of them that was shown and what it earned.

        ``features`` has a row for each candidate; it may be left out if items have none.
        """
        places = different(arms)
        place = places.get(plain_id(shown))
        if place is None:
            raise InvalidInputError(f"shown must be one of the arms, got {shown!r}.")
        Y = self._features(features, len(places))
        when, chance = int64(time), self._probability(propensity)
        context, reward = self._context(vector("x", x, self._d)[None])[0], real("reward", reward)
        pool = self._pool(places, Y)
        self._rows.append((when, context, pool, place, reward, chance))
        self.n_events += 1
        if len(self._rows) >= _ROWS:
            self._flush_rows()

    def block(
        self,
        *,
        time: npt.NDArray[Any],
        context: npt.NDArray[Any],
        pool: npt.NDArray[Any],
        logged: npt.NDArray[Any],
        reward: npt.NDArray[Any],
        pool_offsets: npt.NDArray[Any],
        pool_items: npt.NDArray[Any],
        item_arm: Sequence[ArmId],
        item_features: F64 | None = None,
        propensity: F64 | None = None,
    ) -> None:
        """Many events at once; pools and items are numbered within the block.

        ``pool``, ``pool_offsets``, ``pool_items`` and ``logged`` mean what they mean in ``Log``;
        ``item_arm`` holds the id of each of the block's items and ``item_features`` a row for
        each. The arms of a pool must differ. The writer finds what it knows already.
        """
        n = len(time)
        Y = np.zeros((len(item_arm), 0)) if item_features is None else item_features
        x = self._context(np.asarray(context))
        check_block(n, x, pool, logged, reward, pool_offsets, pool_items, item_arm, Y, self._m)
        if self._has_propensity != (propensity is not None):
            raise InvalidInputError(
                f"propensity must {'' if self._has_propensity else 'not '}be given to this writer."
            )
        if propensity is not None and not ((propensity > 0) & (propensity <= 1)).all():
            raise InvalidInputError("propensity must lie in (0, 1].")
        ids = [plain_id(arm) for arm in item_arm]
        if not n:
            return
        self._flush_rows()
        numbers = self._numbers.block(
            np.asarray(pool), np.asarray(pool_offsets), np.asarray(pool_items), ids,
            np.ascontiguousarray(Y, "<f8"), self.n_events,
        )  # fmt: skip
        self._append(time, x, numbers, logged, reward, propensity)
        self.n_events += n

    def drop(self, reason: str, count: int = 1) -> None:
        """Count what the reader could not use."""
        if count:
            self._dropped[reason] += count

    def warn(self, what: str, count: int = 1) -> None:
        """Count what the reader used although it was unusual."""
        if count:
            self._warnings[what] += count

    @property
    def dropped(self) -> dict[str, int]:
        """What was dropped so far, by reason."""
        return dict(self._dropped)

    # -- the end ----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def close(self) -> None:
        """Write what is left and give the log its name."""
        with self._all_or_nothing():
            self._flush_rows()
            for file in self._files.values():
                file.close()
            self._text("arms.json", list(self._numbers.arms))
            self._text("meta.json", self._meta())
            self._text(DIGEST, {name: self._digests[name].hexdigest() for name in self._digests})
            check_target(self.path, self._overwrite)
            self._rename()

    def abandon(self) -> None:
        """Leave nothing behind; a log that was there before stays as it was."""
        for file in self._files.values():
            file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- inside -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.abandon()
            if not isinstance(error, OSError):
                raise
            why = error.strerror or error
            raise LogFileError(f"{self.path} cannot be written: {why}.") from None

    def _begin(self) -> None:
        with self._all_or_nothing():
            self._folder.mkdir()
            for name in self._columns():
                self._files[name] = (self._folder / f"{name}.bin").open("wb", buffering=1 << 18)
                self._digests[f"{name}.bin"] = hashlib.sha256()
            self._write("pool_offsets", np.zeros(1, np.int64))

    def _columns(self) -> list[str]:
        """The names of the log's columns."""
        return [name for name in COLUMNS if name != "propensity" or self._has_propensity]

    def _rename(self) -> None:
        if not self.path.exists():
            self._folder.rename(self.path)
            return
        aside = self._folder.with_suffix(".old")
        self.path.rename(aside)
        try:
            self._folder.rename(self.path)
        except OSError:
            aside.rename(self.path)
            raise
        shutil.rmtree(aside, ignore_errors=True)

    def _meta(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "n_events": self.n_events,
            "n_arms": len(self._numbers.arms),
            "n_items": self._numbers.n_items,
            "n_pools": self._numbers.n_pools,
            "n_members": self._numbers.n_members,
            "n_features": self._d,
            "n_item_features": self._m,
            "context_dtype": self._context_dtype,
            "propensities": self._has_propensity,
            **self._names,
            **self._encoding,
            "logging": self._logging,
            "source": self._source,
            "read": self.read or self.n_events + sum(self._dropped.values()),
            "dropped": dict(self._dropped),
            # by name: which came first may depend on how events come in blocks
            "warnings": dict(sorted(self._warnings.items())),
        }

    def _text(self, name: str, content: Any) -> None:
        text = json.dumps(content, indent=None if name == "arms.json" else 2, ensure_ascii=False)
        data = f"{text}\n".encode()
        (self._folder / name).write_bytes(data)
        self._digests[name] = hashlib.sha256(data)

    def _write(self, name: str, values: npt.NDArray[Any]) -> None:
        dtype = (COLUMNS | LIST_COLUMNS)[name] or CONTEXT_DTYPES[self._context_dtype]
        self._put(name, np.ascontiguousarray(values, dtype).reshape(-1).data)

    def _put(self, name: str, content: bytes | memoryview) -> None:
        with self._all_or_nothing():
            self._files[name].write(content)
        self._digests[f"{name}.bin"].update(content)

    def _flush_rows(self) -> None:
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        time, *others, propensity = (np.array(column) for column in zip(*rows, strict=True))
        self._append(time, *others, propensity if self._has_propensity else None)

    def _append(self, *columns: npt.NDArray[Any] | None) -> None:
        """Columns of events: time, context, pool, logged, reward and propensity."""
        names = ("time", "context", "pool", "logged", "reward", "propensity")
        for name, values in zip(names, columns, strict=True):
            if values is not None:
                self._write(name, values)
        self._notice(np.asarray(columns[0]))

    def _notice(self, times: npt.NDArray[Any]) -> None:
        """Count the events that are earlier than the one before them."""
        before = times[:1] if self._last_time is None else np.array([self._last_time])
        back = np.diff(np.concatenate([before, times])) < 0
        self.warn(EARLIER, int(np.count_nonzero(back)))
        self._last_time = int(times[-1])

    def _features(self, features: Any, n: int) -> F64 | None:
        """The features of an event's candidates, checked."""
        if features is None and self._m:
            raise InvalidInputError(f"features must have {self._m} columns, got None.")
        return matrix("features", features, n, self._m) if self._m else None

    def _pool(self, ids: Iterable[ArmId], Y: F64 | None) -> int:
        """The number of the pool of these candidates, in their order."""
        keys = itertools.repeat(b"") if Y is None else (y.tobytes() for y in Y)
        items = [
            self._numbers.item(arm, key, self.n_events) for arm, key in zip(ids, keys, strict=False)
        ]
        (pool,) = self._numbers.pools([np.array(items, "<i4").tobytes()])
        return pool

    def _context(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if x.ndim != 2 or x.shape[1] != self._d or x.dtype.kind not in "iufb":
            raise InvalidInputError(
                f"context must have {self._d} numbers per event, got shape {x.shape} of {x.dtype}."
            )
        if self._context_dtype == "uint8":
            with np.errstate(invalid="ignore"):
                whole = x.astype(np.uint8)
            if x.dtype != np.uint8 and not (whole == x).all():
                raise InvalidInputError("context must hold whole numbers in 0..255 for uint8.")
            return whole
        if not (np.abs(x) <= LARGEST).all():
            raise InvalidInputError(f"context must be finite and at most {LARGEST:g} in size.")
        return x.astype(np.float64)

    def _probability(self, propensity: float | None) -> float:
        if not self._has_propensity:
            if propensity is not None:
                raise InvalidInputError("propensity must not be given to this writer.")
            return math.nan
        if propensity is None or not 0 < (chance := real("propensity", propensity)) <= 1:
            raise InvalidInputError(f"propensity must lie in (0, 1], got {propensity!r}.")
        return chance
