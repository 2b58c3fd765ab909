"""``Encoder``: an object of features becomes a vector, the same way in the library and the service.

What a service has logged is encoded again on every rebuild, so the numbers may never change.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from whim.checks import LARGEST
from whim.errors import InvalidInputError
from whim.features.fields import LARGEST_SIZE, logged, names_of, waves
from whim.types import F64

_FEW = 64  # numbers that are summed sooner without an array
_SMALL = 256  # dimensions up to which a list of floats is quicker to fill than an array
_LONG = 200  # characters of a text whose place is not worth remembering
_WORD = re.compile(r"\w+")
_CACHED = 1 << 16  # different values of a column whose places are remembered
_abs = np.absolute


class Schema(Protocol):
    """How a context, or an item, becomes a vector: ``Features``, or what a service is sent.

    Without ``fields`` it comes as a vector of ``size`` numbers. With them it comes as an object;
    ``rest`` dimensions take, by hashing, what no field names. ``constant`` adds a 1.
    """

    @property
    def fields(self) -> Sequence[Any]: ...
    @property
    def size(self) -> int: ...
    @property
    def rest(self) -> int: ...
    @property
    def constant(self) -> bool: ...


def _place(text: str, size: int) -> tuple[int, float]:
    """Where a text goes and with which sign, so that texts that share a place cancel on average."""
    return (_hashed_once if len(text) < _LONG else _hashed)(text, size)


def _hashed(text: str, size: int) -> tuple[int, float]:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    number = int.from_bytes(digest, "little")
    return (number >> 1) % size, 1.0 if number & 1 else -1.0


_hashed_once = functools.lru_cache(maxsize=1 << 14)(_hashed)


def _error(path: str, must: str, value: Any) -> InvalidInputError:
    shown = repr(value)
    return InvalidInputError(f"{path} must be {must}, got {shown[:80]}.")


def _number(path: str, value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value) if abs(value) <= LARGEST else math.inf
        if math.isfinite(number):
            return number
    raise _error(path, f"a number of at most {LARGEST:g} in size", value)


class Encoder:
    """Vectors of ``size`` numbers from what callers send; ``path`` is where it stands in a request.

    With ``complete`` every name must be there, if only as None; else what is absent is missing.
    ``whim.features.Features`` is what users of the library declare.
    """

    def __init__(self, features: Schema, path: str, *, complete: bool = False) -> None:
        self._path, self._complete = path, complete
        self._features = features
        self._known = {f.name for f in features.fields}
        if len(self._known) != len(features.fields):
            twice = [name for name, n in Counter(f.name for f in features.fields).items() if n > 1]
            raise InvalidInputError(f"{path} must have fields of different names, got {twice}.")
        if features.size and (features.fields or features.rest):
            raise InvalidInputError(
                f"{path} must have either size, for vectors, or fields, for objects, not both."
            )
        self._size = features.size
        # a field, where its dimensions begin, what fills them, and that of a missing value or -1
        self._parts: list[tuple[Any, int, Callable[..., None], int]] = []
        self._ends: list[int] = []  # of the dimensions of each field's value
        self.names: list[str] = []
        for f in features.fields:
            start, part = len(self.names), _PARTS[f.kind]
            if f.kind == "number" and f.log:
                part = _as_log
            elif f.kind == "hash" and f.words:
                part = _as_words
            self.names += names_of(f)
            self._ends.append(len(self.names) - bool(f.missing))
            self._parts.append((f, start, part, self._ends[-1] if f.missing else -1))
        self._rest_at = len(self.names)
        self.names += [f"rest[{i}]" for i in range(features.rest)]
        self.names += [f"x[{i}]" for i in range(features.size)]
        self.by_name = bool(features.fields or features.rest)
        if features.constant:
            self.names.append("constant")
        self.size = len(self.names)
        if self.size > LARGEST_SIZE:
            raise InvalidInputError(
                f"{path} must have at most {LARGEST_SIZE} dimensions in all, got {self.size}."
            )

    def at(self, path: str) -> Encoder:
        """The same, for what stands at another place."""
        other = copy.copy(self)
        other._path = path
        return other

    def __call__(self, values: Any, *, lenient: bool = False) -> F64:
        """The vector; ``lenient``, on a rebuild, leaves out features that no field names."""
        if not self.by_name:
            return self._vector(values)
        x = np.array(self._filled(values, lenient), np.float64)
        if not (_abs(x) <= LARGEST).all():  # features that share a dimension add up
            raise _error(self._path, f"at most {LARGEST:g} in size once added up", values)
        return x

    def many(self, batch: list[Any], *, lenient: bool = False) -> tuple[F64, list[bool]]:
        """The vectors of many at once, to the same bit, and which of them fit."""
        n = len(batch)
        if self.by_name:
            rows, fits = [], []
            for one in batch:
                try:
                    rows.append(self._filled(one, lenient))
                    fits.append(True)
                except InvalidInputError:
                    rows.append([0.0] * self.size)
                    fits.append(False)
            x = np.array(rows, np.float64).reshape(n, self.size)
            small: Any = (_abs(x) <= LARGEST).all(axis=1)
            return x, fits if small.all() else [
                a and b for a, b in zip(fits, small.tolist(), strict=True)
            ]
        x = np.zeros((n, self.size))
        try:
            x[:, : self._size] = np.array(batch, np.float64).reshape(n, self._size)
            if self._features.constant:
                x[:, -1] = 1.0
            if (_abs(x) <= LARGEST).all():
                return x, [True] * n
        except (TypeError, ValueError):  # of unequal length: one by one shows which
            pass
        fits = []
        for i, one in enumerate(batch):
            try:
                x[i] = self(one, lenient=lenient)
                fits.append(True)
            except InvalidInputError:
                fits.append(False)
        return x, fits

    def _filled(self, features: Any, lenient: bool) -> Any:
        """The numbers of an object, in a list or in an array."""
        if not isinstance(features, dict):
            raise _error(self._path, "an object of features by name", features)
        if self._complete:
            self._check_complete(features, self._path)
        x: Any = [0.0] * self.size if self.size <= _SMALL else np.zeros(self.size)
        for f, at, part, missing in self._parts:
            value = features.get(f.name)
            if value is not None:
                part(self._path, f, value, x, at)
            elif missing >= 0:
                x[missing] = 1.0
        if not features.keys() <= self._known:
            rest = features.keys() - self._known
            if self._features.rest:
                for name in sorted(rest):
                    self._hash_rest(name, features[name], x)
            elif not lenient:
                self._refuse_unknown(rest, self._path)
        if self._features.constant:
            x[-1] = 1.0
        return x

    def check_names(self, names: Collection[str], path: str) -> None:
        """Refuse names of which some are absent, or that no field has."""
        if self._complete:
            self._check_complete(names, path)
        unknown = set(names) - self._known
        if unknown and not self._features.rest:
            self._refuse_unknown(unknown, path)

    def _check_complete(self, names: Collection[str], path: str) -> None:
        if not self._known <= set(names):
            absent = sorted(self._known - set(names))
            raise InvalidInputError(
                f"{path} must have {', '.join(map(repr, absent[:5]))} (None where it is not "
                f"known), got {', '.join(map(repr, list(names)[:5])) or 'nothing'}."
            )

    def _refuse_unknown(self, unknown: Collection[str], path: str) -> NoReturn:
        known = ", ".join(sorted(self._known)) or "none"
        raise _error(path, f"made of known features ({known})", sorted(unknown)[0])

    def columns(self, table: Mapping[str, Any], n: int, *, first: int = 0) -> F64:
        """The vectors of ``n`` rows that come as columns by name, to the same bit.

        Errors count rows from ``first``.
        """
        self.check_names(table.keys(), self._path)
        x = np.zeros((n, self.size))
        for (f, at, part, missing), end in zip(self._parts, self._ends, strict=True):
            if f.name in table:
                own = x[:, at : end + (missing >= 0)]
                _fill_column(self._path, f, part, table[f.name], own, missing, first)
            elif missing >= 0:
                x[:, missing] = 1.0
        for name in sorted(table.keys() - self._known):
            for i, value in enumerate(table[name]):
                self._hash_rest(name, value, x[i])
        if self._features.constant:
            x[:, -1] = 1.0
        if not (_abs(x) <= LARGEST).all():
            self._refuse_large(table, x, first)
        return x

    def _refuse_large(self, table: Mapping[str, Any], x: F64, first: int) -> NoReturn:
        """Name the first row, and the column of its first number that is too large."""
        row, at = np.argwhere(~(_abs(x) <= LARGEST))[0].tolist()
        path = f"row {first + row}: {self._path}"
        for (f, start, _, _), end in zip(self._parts, self._ends, strict=True):
            if start <= at < end:
                how = "once scaled" if f.kind == "number" else "once added up"
                value = table[f.name][row]
                value = value.item() if isinstance(value, np.generic) else value
                raise _error(f"{path}.{f.name}", f"at most {LARGEST:g} in size {how}", value)
        raise _error(path, f"at most {LARGEST:g} in size once added up", x[row, at])

    def _vector(self, values: Any) -> F64:
        size = self._size
        if not isinstance(values, list) or len(values) != size:
            came = f"{len(values)} of them" if isinstance(values, list) else values
            raise _error(self._path, f"a list of {size} numbers", came)
        try:
            # sooner made than an array of NumPy's, which has the same memory
            numbers = array("d", values)
        except (TypeError, OverflowError):
            raise _error(self._path, f"a list of {size} numbers", values) from None
        if self._features.constant:
            numbers.append(1.0)
        x = np.frombuffer(numbers) if numbers else np.zeros(0)
        # sums are quick, and of few numbers quicker without NumPy; only one that is not surely
        # small is looked at number by number
        total = sum(map(abs, numbers)) if size <= _FEW else _abs(x).sum()
        if not total <= LARGEST and not (_abs(x) <= LARGEST).all():
            raise _error(self._path, f"numbers of at most {LARGEST:g} in size", values)
        return x

    def _hash_rest(self, name: str, value: Any, x: Any) -> None:
        path, size = f"{self._path}.{name}", self._features.rest
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, (bool, str)):
                place, sign = _place(f"{name}={part}", size)
                amount = 1.0
            elif part is None:
                continue
            else:
                place, sign = _place(name, size)
                amount = _number(path, part)
            x[self._rest_at + place] += sign * amount


def _fill_column(
    path: str, f: Any, part: Callable[..., None], values: Any, x: F64, missing: int, first: int
) -> None:
    """The dimensions of one field for all rows; each value as ``part`` has it, equal ones once."""
    if isinstance(values, np.ndarray) and f.kind == "number" and not f.log:  # nan: missing
        gaps = np.isnan(values)
        x[:, 0] = np.where(gaps, 0.0, (values - f.mean) / f.scale)
        if missing >= 0:
            x[gaps, -1] = 1.0
        return
    known: dict[Any, F64] = {}
    for i, value in enumerate(values):
        if value is None or value != value:
            if missing >= 0:
                x[i, -1] = 1.0
            continue
        key = (value.__class__, value) if value.__class__.__hash__ else None
        row = None if key is None else known.get(key)
        if row is None:
            row = np.zeros(x.shape[1])
            try:
                part(path, f, value, row, 0)
            except InvalidInputError as error:
                raise InvalidInputError(f"row {first + i}: {error}") from None
            if key is not None and len(known) < _CACHED:
                known[key] = row
        x[i] = row


def _as_number(path: str, f: Any, value: Any, x: Any, at: int) -> None:
    kind = value.__class__
    if (kind is not float and kind is not int) or not -LARGEST <= value <= LARGEST:
        _number(f"{path}.{f.name}", value)
    scaled = x[at] = (float(value) - f.mean) / f.scale
    if not -LARGEST <= scaled <= LARGEST:
        raise _error(f"{path}.{f.name}", f"at most {LARGEST:g} in size once scaled", value)


def _as_log(path: str, f: Any, value: Any, x: Any, at: int) -> None:
    scaled = x[at] = (logged(_number(f"{path}.{f.name}", value), f.log) - f.mean) / f.scale
    if not -LARGEST <= scaled <= LARGEST:
        raise _error(f"{path}.{f.name}", f"at most {LARGEST:g} in size once scaled", value)


def _as_choice(path: str, f: Any, value: Any, x: Any, at: int) -> None:
    if not isinstance(value, str):
        raise _error(f"{path}.{f.name}", "a text", value)
    if value in f.values:
        x[at + f.values.index(value)] = 1.0
    elif f.other:
        x[at + len(f.values)] = 1.0


def _as_flag(path: str, f: Any, value: Any, x: Any, at: int) -> None:
    if not isinstance(value, bool):
        raise _error(f"{path}.{f.name}", "true or false", value)
    x[at] = float(value)


def _as_hash(path: str, f: Any, value: Any, x: Any, at: int) -> None:
    texts = value if isinstance(value, list) else [value]
    for text in texts:
        if not isinstance(text, str):
            raise _error(f"{path}.{f.name}", "a text or a list of texts", value)
        place, sign = _place(text, f.size)
        x[at + place] += sign


def _as_words(path: str, f: Any, value: Any, x: Any, at: int) -> None:
    texts = value if isinstance(value, list) else [value]
    if all(isinstance(text, str) for text in texts):
        value = [word for text in texts for word in _WORD.findall(text.lower())]
    _as_hash(path, f, value, x, at)


def _as_cyclic(path: str, f: Any, value: Any, x: Any, at: int) -> None:
    number = _number(f"{path}.{f.name}", value)
    for i, wave in enumerate(waves(number, f.period, f.harmonics or 1)):
        x[at + i] = wave


_PARTS: dict[str, Callable[..., None]] = {
    "number": _as_number,
    "choice": _as_choice,
    "flag": _as_flag,
    "hash": _as_hash,
    "cyclic": _as_cyclic,
}
