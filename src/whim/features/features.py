"""``Features``: data as people have it become vectors with names, one row or a table at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import whim.checks as checks
from whim.errors import InvalidInputError
from whim.features.data import as_columns, as_flag, as_row, as_text, plain
from whim.features.encoder import Encoder
from whim.features.fields import Field, number
from whim.features.scaling import Moments, both, moments, numbers_of, scale_of
from whim.types import F64


class _Schema(NamedTuple):
    fields: tuple[Field, ...]
    rest: int
    constant: bool
    size: int = 0


class Features:
    """How rows become vectors: declared here, or fitted by ``whim.features.fit``.

    Every row must have every name, with None or nan for a value that is not known, and no other:
    so a column that was renamed or forgotten is an error, not a wrong prediction.

    Parameters
    ----------
    fields
        Made by ``number``, ``choice``, ``flag``, ``text`` and ``cyclic``.
    constant
        Whether to add a 1, which linear policies need.
    rest
        Dimensions that take, by hashing, what no field names; 0: such a name is an error.
    sparse
        Rows have only some of the names: what is absent is 0, or missing where the field says so.

    Examples
    --------
    >>> import whim
    >>> from whim.features import Features, choice, cyclic, number
    >>> features = Features([number("age", mean=40, scale=10), choice("device", ["phone", "desk"])])
    >>> features({"age": 50, "device": "desk"}).tolist()
    [1.0, 0.0, 1.0, 1.0]
    >>> features.names
    ['age', 'device=phone', 'device=desk', 'constant']
    >>> features({"age": 50, "devise": "desk"})
    Traceback (most recent call last):
      ...
    whim.errors.InvalidInputError: x must have 'device' (None where it is not known), got 'age', \
'devise'.
    """

    def __init__(
        self,
        fields: Iterable[Field],
        *,
        constant: bool = True,
        rest: int = 0,
        sparse: bool = False,
    ) -> None:
        if not isinstance(fields, Iterable):
            raise InvalidInputError(f"fields must be a list of fields, got {fields!r}.")
        several = tuple(fields)
        for field in several:
            if not isinstance(field, Field):
                raise InvalidInputError(
                    f"fields must be made by number, choice, flag, text or cyclic, got {field!r}."
                )
        checks.integer("rest", rest, 0)
        self.sparse = bool(sparse)
        self._seen: dict[str, Moments] = {}
        self._use(_Schema(several, rest, bool(constant)))

    def _use(self, schema: _Schema) -> None:
        self._schema = schema
        self._encoder = Encoder(schema, "features", complete=not self.sparse).at("x")
        names = self._encoder.names
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidInputError(
                f"fields must have dimensions of different names, got {twice!r}."
            )
        ready = {"choice": as_text, "hash": as_text, "flag": as_flag}
        self._ready = {f.name: ready[f.kind] for f in schema.fields if f.kind in ready}

    # -- what it is -----------------------------------------------------------------------------

    @property
    def fields(self) -> tuple[Field, ...]:
        """The declared features."""
        return self._schema.fields

    @property
    def constant(self) -> bool:
        """Whether the last dimension is always 1."""
        return self._schema.constant

    @property
    def rest(self) -> int:
        """Dimensions that take what no field names."""
        return self._schema.rest

    @property
    def names(self) -> list[str]:
        """The name of each dimension of a vector."""
        return list(self._encoder.names)

    @property
    def size(self) -> int:
        """The length of a vector: ``n_features`` of a policy."""
        return self._encoder.size

    def __len__(self) -> int:
        return self.size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Features) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = [f"{f.name}: {f.kind}" for f in self.fields]
        parts += ["rest"] * (self.rest > 0) + ["constant"] * self.constant
        return f"<Features {', '.join(parts)}; {self.size} dimensions>"

    # -- rows to vectors ------------------------------------------------------------------------

    def __call__(self, row: Any) -> F64:
        """The vector of one row: a dict, a row of a data frame, or a frame of one row."""
        named = as_row(row)
        if named is None:
            raise InvalidInputError(
                f"x must be a dict of {', '.join(f.name for f in self.fields[:5])}, got "
                f"{type(row).__name__}."
            )
        ready = {str(name): plain(value) for name, value in named.items()}
        for name in self._ready.keys() & ready.keys():
            ready[name] = self._ready[name](ready[name])
        return self._encoder(ready)

    def many(self, data: Any) -> F64:
        """The vectors of a table: a data frame, columns by name or a list of dicts.

        Row by row the same bits as from a call with that row.

        >>> from whim.features import Features, flag
        >>> Features([flag("new")]).many([{"new": True}, {"new": None}]).tolist()
        [[1.0, 1.0], [0.0, 1.0]]
        """
        return self._many(data, "X")

    def _many(self, data: Any, name: str) -> F64:
        """The same of what an error calls ``name``."""
        columns, n = as_columns(data, name, gaps=self.sparse)
        if not columns and not n:  # no rows, and so no names
            return np.zeros((0, self.size))
        for column in self._ready.keys() & columns.keys():
            columns[column] = [self._ready[column](value) for value in columns[column]]
        return self._encoder.at("x" if name == "X" else name).columns(columns, n)

    # -- numbers scaled as they come ------------------------------------------------------------

    def partial_fit(self, data: Any) -> Features:
        """Learn mean and scale of the numbers from more rows, which come in any portions.

        After ``fit`` it goes on from the rows of that; a mean and scale that were declared are
        replaced. What a policy has learnt belongs to the scale at that time: let it settle over the
        first rows, then leave it.

        >>> from whim.features import Features, number
        >>> features = Features([number("age")], constant=False)
        >>> _ = features.partial_fit([{"age": 30}, {"age": 40}]).partial_fit([{"age": 50}])
        >>> features.fields[0].mean, round(features.fields[0].scale, 2)
        (40.0, 8.16)
        """
        columns, n = as_columns(data, gaps=True)
        if columns or n:
            self._encoder.check_names(columns.keys(), "data")
        fields, seen = [], dict(self._seen)
        for f in self.fields:
            if f.kind == "number" and (values := numbers_of(columns.get(f.name, []), f.name)):
                before, more = seen.get(f.name, (0, 0.0, 0.0)), moments(values, f)
                now = seen[f.name] = both(before, more)
                if not (_left_as_it_is(f, before) and set(values) <= {0.0, 1.0}):
                    f = replace(f, mean=now[1], scale=scale_of(now))
            fields.append(f)
        self._use(self._schema._replace(fields=tuple(fields)))
        self._seen = seen
        return self

    # -- stored ---------------------------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        """The ``context`` (or ``items``) of a space of the service that encodes the same."""
        told: dict[str, Any] = {"fields": [f.to_dict() for f in self.fields]}
        told |= {"rest": self.rest} if self.rest else {}
        return told | ({"constant": True} if self.constant else {})

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON; ``from_dict`` makes it again."""
        seen = {name: list(three) for name, three in self._seen.items()}
        told = self.config() | ({"sparse": True} if self.sparse else {})
        return told | ({"seen": seen} if seen else {})

    @classmethod
    def from_dict(cls, declared: Mapping[str, Any]) -> Features:
        """What ``to_dict`` described."""
        told = declared.get("fields") if isinstance(declared, Mapping) else None
        if not isinstance(told, Sequence) or isinstance(told, str):
            raise InvalidInputError(
                f"features must be a dict with a list of fields, got {str(declared)[:80]}."
            )
        fields = [Field.from_dict(f) for f in told]
        made = cls(
            fields, constant=declared.get("constant", False), rest=declared.get("rest", 0),
            sparse=declared.get("sparse", False),
        )  # fmt: skip
        made._seen = _seen(declared.get("seen", {}))
        return made

    @classmethod
    def plain(cls, names: Sequence[str]) -> Features:
        """Names of numbers that are taken as they are, for vectors that need no encoding."""
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise InvalidInputError(f"names must be a list of texts, got {names!r}.")
        return cls([number(name) for name in names], constant=False)

    def describe(self) -> list[str]:
        """One line per feature: what becomes of it."""
        from whim.features.describe import described

        lines = [f"{f.name}: {described(f)}" for f in self.fields]
        lines += [f"whatever else: hashed over {self.rest} dimensions"] if self.rest else []
        return [*lines, "constant: 1"] if self.constant else lines


def load(path: str | os.PathLike[str]) -> Features:
    """The features that a log was converted with, or those of a JSON file (``to_dict``).

    >>> import tempfile
    >>> from whim.features import Features, load, number
    >>> file = Path(tempfile.mkdtemp()) / "features.json"
    >>> _ = file.write_text(json.dumps(Features([number("age")]).to_dict()))
    >>> load(file)
    <Features age: number, constant; 2 dimensions>
    """
    file = Path(path)
    log = file.is_dir()
    source = file / "meta.json" if log else file
    try:
        told = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidInputError(
            f"path must be a log or a JSON file of features, got {source}: {why}."
        ) from None
    if log:
        told = told.get("encoding")
        if told is None:
            raise InvalidInputError(f"{file} must be a log with features: it was converted raw.")
    return Features.from_dict(told)


def _seen(told: Any) -> dict[str, Moments]:
    """What ``to_dict`` said of the rows that were seen."""
    try:
        return {
            name: (checks.integer("", n, 1), checks.real("", mean), checks.number("", sq, least=0))
            for name, (n, mean, sq) in told.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise InvalidInputError(
            f"seen must have a count, a mean and a sum of squares by name, got {str(told)[:80]}."
        ) from None


def _left_as_it_is(f: Field, seen: Moments) -> bool:
    """Whether ``fit`` saw only 0 and 1, which it does not scale."""
    n, mean, squares = seen
    return n > 0 and (f.mean, f.scale) == (0.0, 1.0) and (mean, squares) != (0.0, n)
