"""``Field``: one feature by name, and how its value becomes numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import whim.checks as checks
from whim.errors import InvalidInputError

KINDS = ("number", "choice", "flag", "hash", "cyclic")
LARGEST_SIZE = 1024  # dimensions of a vector: a policy holds its square for each arm


@dataclass(frozen=True, slots=True)
class Field:
    """One feature by name. A space of the service declares the same under the same names.

    Attributes
    ----------
    name
        Of the column or key that holds it.
    kind
        ``"number"``: (value - mean) / scale. ``"choice"``: a dimension for each of ``values``.
        ``"flag"``: 0 or 1. ``"hash"``: a text, or a list of texts, spread over ``size`` dimensions.
        ``"cyclic"``: sines and cosines of a value with this ``period``.
    mean, scale
        Of a number.
    values
        Of a choice.
    size
        Dimensions of a hash.
    log
        Of a skewed number: it is taken as ``±log(1 + abs(value) / log)`` before it is scaled; 0:
        as is.
    period, harmonics
        Of a cyclic value: 24 for hours; how many sines, and as many cosines.
    missing
        Whether a value that is missing has a dimension of its own. Without it all dimensions are
        0, which for a number stands for its mean.
    other
        Whether choices that ``values`` does not list share a dimension of their own. Without it
        all dimensions are 0.
    words
        Whether a hash takes each word of a text by itself, in lower case.
    """

    name: str
    kind: str
    mean: float = 0.0
    scale: float = 1.0
    values: tuple[str, ...] = ()
    size: int = 16
    log: float = 0.0
    period: float = 0.0
    harmonics: int = 1
    missing: bool = False
    other: bool = False
    words: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidInputError(f"name must be a text, got {self.name!r}.")
        checks.choice(f"kind of field {self.name}", self.kind, KINDS)
        checks.number(f"mean of field {self.name}", self.mean, least=-1e10, most=1e10)
        checks.number(f"scale of field {self.name}", self.scale, above=0, most=1e10)
        checks.number(f"log of field {self.name}", self.log, least=0, most=1e10)
        checks.number(f"period of field {self.name}", self.period, least=0, most=1e10)
        if checks.integer(f"size of field {self.name}", self.size, 1) > LARGEST_SIZE:
            raise InvalidInputError(
                f"size of field {self.name} must be at most {LARGEST_SIZE}, got {self.size}."
            )
        checks.integer(f"harmonics of field {self.name}", self.harmonics, 1)
        given: Any = self.values
        listed = isinstance(given, Iterable) and not isinstance(given, str)
        if not listed or not all(isinstance(v, str) for v in given):
            raise InvalidInputError(
                f"values of field {self.name} must be a list of texts, got {self.values!r}."
            )
        object.__setattr__(self, "values", tuple(self.values))

    def to_dict(self) -> dict[str, Any]:
        """What is not as by default: JSON for a log, a saved policy or a space of the service."""
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        told = {
            f.name: told[f.name]
            for f in fields(self)
            if f.name in ("name", "kind") or told[f.name] != f.default
        }
        return told | ({"values": list(self.values)} if self.values else {})

    @classmethod
    def from_dict(cls, declared: Mapping[str, Any]) -> Field:
        """The field that ``to_dict`` describes."""
        if not isinstance(declared, Mapping):
            raise InvalidInputError(f"a field must be a dict, got {declared!r}.")
        known = {f.name for f in fields(cls)}
        for name in declared:
            if name not in known:
                raise InvalidInputError(
                    f"a field must be made of {', '.join(sorted(known))}, got {name!r}."
                )
        if not {"name", "kind"} <= declared.keys():
            raise InvalidInputError(f"a field must have a name and a kind, got {dict(declared)!r}.")
        return cls(**declared)


def number(
    name: str, *, mean: float = 0.0, scale: float = 1.0, log: float = 0.0, missing: bool = False
) -> Field:
    """A number, taken as (value - mean) / scale; a skewed one, with ``log``, by its logarithm.

    >>> number("age", mean=40.0, scale=10.0).to_dict()
    {'name': 'age', 'kind': 'number', 'mean': 40.0, 'scale': 10.0}
    """
    return Field(name, "number", mean=mean, scale=scale, log=log, missing=missing)


def choice(
    name: str, values: Sequence[str], *, other: bool = False, missing: bool = False
) -> Field:
    """One of several texts, with a dimension for each.

    >>> choice("device", ["phone", "desk"]).values
    ('phone', 'desk')
    """
    listed: Any = values  # which the field looks at
    return Field(name, "choice", values=listed, other=other, missing=missing)


def flag(name: str, *, missing: bool = False) -> Field:
    """True or false."""
    return Field(name, "flag", missing=missing)


def text(name: str, *, size: int = 16, words: bool = True) -> Field:
    """Text hashed over ``size`` dimensions, word by word; without ``words`` each text is one."""
    return Field(name, "hash", size=size, words=words)


def cyclic(name: str, period: float, *, harmonics: int = 1, missing: bool = False) -> Field:
    """A number with a period: 23 and 0 o'clock are neighbours.

    >>> cyclic("hour", 24).period
    24
    """
    return Field(name, "cyclic", period=period, harmonics=harmonics, missing=missing)


def names_of(f: Any) -> list[str]:
    """The names of a field's dimensions."""
    many: list[str]
    if f.kind == "choice":
        if not f.values or len(set(f.values)) != len(f.values):
            raise InvalidInputError(f"values of field {f.name} must be different texts.")
        many = [f"{f.name}={value}" for value in f.values]
        many += [f"{f.name} other"] if f.other else []
    elif f.kind == "hash":
        many = [f"{f.name}[{i}]" for i in range(f.size)]
    elif f.kind == "cyclic":
        if not f.period:
            raise InvalidInputError(f"period of field {f.name} must be > 0, such as 24 for hours.")
        ends = ["" if k == 0 else f" {k + 1}" for k in range(f.harmonics or 1)]
        many = [f"{f.name} {wave}{end}" for end in ends for wave in ("sin", "cos")]
    else:
        many = [f.name]
    return [*many, f"{f.name} missing"] if f.missing else many


def waves(value: float, period: float, harmonics: int) -> list[float]:
    """Sine and cosine of a value, and of its multiples.

    >>> [round(wave, 3) for wave in waves(6, 24, 2)]
    [1.0, 0.0, 0.0, -1.0]
    """
    angle = 2 * math.pi * (value % period) / period
    return [wave(k * angle) for k in range(1, harmonics + 1) for wave in (math.sin, math.cos)]


def logged(value: float, unit: float) -> float:
    """``±log(1 + abs(value) / unit)``.

    >>> logged(0.0, 2.0), round(logged(-2.0, 2.0), 3)
    (0.0, -0.693)
    """
    return math.copysign(math.log1p(abs(value) / unit), value)
