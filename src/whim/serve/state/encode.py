"""``Encoder``: an object of features becomes a vector, the same way on every rebuild."""

from __future__ import annotations

import functools
import hashlib
import math
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from whim.checks import LARGEST
from whim.errors import InvalidInputError
from whim.serve.wire import LARGEST_SIZE, Features, Field
from whim.types import F64

_FEW = 64  # numbers that are summed sooner without an array
_SMALL = 256  # places up to which a list of floats is quicker to fill than an array
_LONG = 200  # characters of a text whose place is not worth remembering
_abs = np.absolute


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

    >>> schema = Features(fields=[Field(name="age", kind="number", mean=40.0, scale=10.0),
    ...                           Field(name="device", kind="choice", values=["phone", "desk"])])
    >>> encoder = Encoder(schema, "$.context")
    >>> encoder({"age": 50, "device": "desk"}).tolist(), encoder.names
    ([1.0, 0.0, 1.0], ['age', 'device=phone', 'device=desk'])
    """

    def __init__(self, features: Features, path: str) -> None:
        self._path = path
        self._features = features
        self._known = {f.name for f in features.fields}
        if len(self._known) != len(features.fields):
            raise InvalidInputError(f"{path} must have fields of different names.")
        if features.size and (features.fields or features.rest):
            raise InvalidInputError(
                f"{path} must have either size, for vectors, or fields, for objects, not both."
            )
        self._size = features.size
        self._parts: list[tuple[Field, int, Callable[..., None]]] = []
        self.names: list[str] = []
        for f in features.fields:
            self._parts.append((f, len(self.names), _PARTS[f.kind]))
            self.names += _names(f)
        self._rest_at = len(self.names)
        self.names += [f"rest[{i}]" for i in range(features.rest)]
        self.names += [f"x[{i}]" for i in range(features.size)]
        self.by_name = bool(features.fields or features.rest)
        if features.constant:
            self.names.append("constant")
        self.size = len(self.names)
        if self.size > LARGEST_SIZE:
            raise InvalidInputError(
                f"{path} must have at most {LARGEST_SIZE} places in all, got {self.size}."
            )

    def __call__(self, values: Any, *, lenient: bool = False) -> F64:
        """The vector; ``lenient``, on a rebuild, leaves out features that no field names."""
        if not self.by_name:
            return self._vector(values)
        x = np.array(self._filled(values, lenient), np.float64)
        if not (_abs(x) <= LARGEST).all():  # features that share a place add up
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
        x: Any = [0.0] * self.size if self.size <= _SMALL else np.zeros(self.size)
        for f, at, part in self._parts:
            value = features.get(f.name)
            if value is not None:
                part(self._path, f, value, x, at)
        if not features.keys() <= self._known:
            rest = features.keys() - self._known
            if self._features.rest:
                for name in sorted(rest):
                    self._hash_rest(name, features[name], x)
            elif not lenient:
                known = ", ".join(sorted(self._known)) or "none"
                raise _error(self._path, f"made of known features ({known})", sorted(rest)[0])
        if self._features.constant:
            x[-1] = 1.0
        return x

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


def _names(f: Field) -> list[str]:
    if f.kind == "choice":
        if not f.values or len(set(f.values)) != len(f.values):
            raise InvalidInputError(f"values of field {f.name} must be different texts.")
        return [f"{f.name}={value}" for value in f.values]
    return [f"{f.name}[{i}]" for i in range(f.size)] if f.kind == "hash" else [f.name]


def _as_number(path: str, f: Field, value: Any, x: Any, at: int) -> None:
    kind = value.__class__
    if (kind is not float and kind is not int) or not -LARGEST <= value <= LARGEST:
        _number(f"{path}.{f.name}", value)
    scaled = x[at] = (float(value) - f.mean) / f.scale
    if not -LARGEST <= scaled <= LARGEST:
        raise _error(f"{path}.{f.name}", f"at most {LARGEST:g} in size once scaled", value)


def _as_choice(path: str, f: Field, value: Any, x: Any, at: int) -> None:
    if not isinstance(value, str):
        raise _error(f"{path}.{f.name}", "a text", value)
    if value in f.values:
        x[at + f.values.index(value)] = 1.0


def _as_flag(path: str, f: Field, value: Any, x: Any, at: int) -> None:
    if not isinstance(value, bool):
        raise _error(f"{path}.{f.name}", "true or false", value)
    x[at] = float(value)


def _as_hash(path: str, f: Field, value: Any, x: Any, at: int) -> None:
    texts = value if isinstance(value, list) else [value]
    for text in texts:
        if not isinstance(text, str):
            raise _error(f"{path}.{f.name}", "a text or a list of texts", value)
        place, sign = _place(text, f.size)
        x[at + place] += sign


_PARTS: dict[str, Callable[..., None]] = {
    "number": _as_number,
    "choice": _as_choice,
    "flag": _as_flag,
    "hash": _as_hash,
}
