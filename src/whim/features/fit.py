"""``fit``: features from a table: what kind each column is, and how its numbers are scaled."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import whim.checks as checks
from whim.errors import InvalidInputError
from whim.features.data import as_columns, as_flag, as_text, declared_categories, lacks_names
from whim.features.features import Features
from whim.features.fields import KINDS, Field, choice, cyclic, flag, logged, number, text
from whim.features.scaling import ROUNDING, moments, numbers_of, scale_of, to_digits_of
from whim.features.times import advice, first_time
from whim.types import F64

# a last word, or name, of a cyclic column: its period, and the values that it may have
_ROUND = {"hour": (24, 0, 23), "weekday": (7, 0, 7), "dow": (7, 0, 7), "month": (12, 1, 12),
          "minute": (60, 0, 59)}  # fmt: skip
_ROUND_NAMES = {"hour of day": "hour", "hourofday": "hour", "day of week": "dow",
                "dayofweek": "dow", "month of year": "month"}  # fmt: skip
HARMONICS = 2  # an evening is narrower than half a day
_SKEWED = 1.5  # skewness from which a logarithm is tried
_RARE = 0.002  # share of rows below which a category is one of the others
_COVERED = 0.9  # share of rows that the listed categories must have, or the text is hashed
_HASHED = 32  # dimensions of hashed text


def fit(
    data: Any,
    *,
    kinds: Mapping[str, str | Field] | None = None,
    cyclic: Mapping[str, float | None] | Iterable[str] | str = (),
    constant: bool = True,
    most: int = 32,
) -> Features:
    """Features of a table's columns: numbers scaled, categories listed, text hashed.

    A number has mean 0 and standard deviation 1 afterwards, by its logarithm if it is skewed; one
    that is only ever 0 or 1 stays so. Text with few values is a category: rare values share a
    dimension. Other text is hashed word by word. A column named ``hour``, ``weekday``, ``month`` or
    ``minute`` whose numbers fit is cyclic. Where values are missing, that has a dimension of its
    own. A column of declared categories (pandas' Categorical, polars' Enum) has all of them. Rows
    that lack names that others have make features that are ``sparse``. Dates and times of day are
    refused. ``partial_fit`` goes on with more rows.

    Parameters
    ----------
    data
        A data frame (pandas, polars), columns by name, or a list of dicts.
    kinds
        What columns are instead of what they look like: ``"number"``, ``"choice"``, ``"flag"``,
        ``"hash"``, or a ``Field``.
    cyclic
        Columns of numbers that are cyclic, with their periods: ``{"angle": 360}``; a column of the
        names above needs no period, and with period 0 is an ordinary number.
    constant
        Whether to add a 1.
    most
        Categories that a column may have; rarer ones share a dimension.

    Examples
    --------
    >>> from whim.features import fit
    >>> rows = [{"age": 20 + i, "device": "phone" if i % 3 else "desk"} for i in range(30)]
    >>> features = fit(rows)
    >>> features.describe()
    ['age: number, (age - 34.5) / 8.65544', 'device: one of 2 (phone, desk)', 'constant: 1']
    >>> features({"age": 34.5, "device": "desk"}).tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    columns, n = as_columns(data, gaps=True)
    if not n or not columns:
        raise InvalidInputError("data must have at least one row and one column, got none.")
    checks.integer("most", most, 1)
    asked, rounds = _asked(kinds), _periods(cyclic)
    for name in [*asked, *rounds]:
        if name not in columns:
            raise InvalidInputError(
                f"data must have the column {name!r}; it has {', '.join(list(columns)[:20])}."
            )
    listed = declared_categories(data)
    fields, seen = [], {}
    for name, values in columns.items():
        given = asked.get(name)
        if rounds.get(name) and given not in (None, "number", "cyclic"):
            raise InvalidInputError(f"cyclic must name numbers, got {name!r} of kind {given!r}.")
        if isinstance(given, Field):
            fields.append(_fitting(given, name, values))
            continue
        if given is not None:
            checks.choice(f"kind of {name}", given, KINDS)
        kind = "cyclic" if rounds.get(name) else given
        kind = kind or ("choice" if name in listed else _kind(name, values))
        f = _field(name, kind, values, rounds, most, listed.get(name, ()))
        if f.kind == "number" and (numbers := numbers_of(values, name)):
            seen[name] = moments(numbers, f)
        fields.append(f)
    features = Features(fields, constant=constant, sparse=lacks_names(data, columns))
    features._seen = seen  # which partial_fit goes on from
    return features


def _asked(kinds: Mapping[str, str | Field] | None) -> dict[str, str | Field]:
    if kinds is None or isinstance(kinds, Mapping):
        return dict(kinds or {})
    raise InvalidInputError(f"kinds must be a dict of kinds by column, got {kinds!r}.")


def _fitting(given: Field, name: str, values: Sequence[Any]) -> Field:
    """A field that was given for a column, which it must be of, and able to take."""
    if given.name != name:
        raise InvalidInputError(
            f"kinds must have fields of their columns' names, got {given.name!r} for {name!r}."
        )
    Features([given])._many({name: values}, "data")
    return given


def _periods(given: Mapping[str, float | None] | Iterable[str] | str) -> dict[str, float]:
    given = [given] if isinstance(given, str) else given
    if not isinstance(given, Iterable):
        raise InvalidInputError(
            f"cyclic must be names of columns, or periods by name, got {given!r}."
        )
    asked = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given)
    periods = {}
    for name, period in asked.items():
        if period is not None:
            periods[name] = checks.number(f"period of {name}", period, least=0)
        elif (known := round_of(str(name))) is None:
            raise _no_period(name)
        else:
            periods[name] = float(known[0])
    return periods


def _no_period(name: str) -> InvalidInputError:
    return InvalidInputError(
        f"cyclic must give the period of {name}: cyclic={{{name!r}: 24}}, or --cyclic {name}=24."
    )


def _kind(name: str, values: Sequence[Any]) -> str:
    """What a column looks like."""
    there = [value for value in values if value is not None]
    if there and all(isinstance(value, bool) for value in there):
        return "flag"
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in there):
        return "number"
    if any(isinstance(value, list) for value in there):
        return "hash"
    _check_texts(name, there)
    if any(isinstance(value, list) for value in there):
        return "hash"
    if (time := first_time(there)) is not None:
        raise InvalidInputError(
            f"{name} must hold numbers, texts or true and false, got {time!r}{advice(time)} "
            f"(a category: kinds={{{name!r}: 'choice'}}, or --category {name})."
        )
    return "choice"


def _check_texts(name: str, there: Sequence[Any]) -> None:
    """Refuse what neither is text nor can stand for some."""
    for value in there:
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, (str, int, float, bool)) and one is not None:
                raise InvalidInputError(
                    f"{name} must hold numbers, texts or true and false, got "
                    f"{type(one).__name__}{advice(one)}."
                )


def _field(
    name: str,
    kind: str,
    values: Sequence[Any],
    rounds: Mapping[str, float],
    most: int,
    listed: Sequence[str],
) -> Field:
    there = [value for value in values if value is not None]
    gaps = len(there) < len(values)
    if kind in ("number", "cyclic"):
        numbers = np.array(numbers_of(values, name))
        period = rounds.get(name, _guessed_period(name, numbers))
        if kind == "cyclic" and not period:
            raise _no_period(name)
        if period:
            return cyclic(name, period, harmonics=HARMONICS, missing=gaps)
        return _number(name, numbers, gaps)
    if kind == "flag":
        _check_flags(name, there)
        return flag(name, missing=gaps)
    _check_texts(name, there)
    several = any(isinstance(value, list) for value in there)
    if kind == "choice" and several:
        raise InvalidInputError(f"kind of {name} must be hash, as it has lists, got 'choice'.")
    if kind == "choice" and (f := _choice(name, [*map(as_text, there)], len(values), most, listed)):
        return f
    return text(name, size=_HASHED, words=not several)


def _check_flags(name: str, there: Sequence[Any]) -> None:
    odd = [value for value in there if as_flag(value) not in (True, False)]
    if odd:
        raise InvalidInputError(
            f"{name} must hold true and false, or 1 and 0, got {repr(odd[0])[:80]}."
        )


def _choice(
    name: str, texts: Sequence[str], rows: int, most: int, listed: Sequence[str]
) -> Field | None:
    """A field of the categories, of all ``listed`` ones unless they are many; else None."""
    counts, gaps = Counter(texts), len(texts) < rows
    if 0 < len(listed) <= most:
        return choice(name, listed, missing=gaps)
    rare = max(2, _RARE * rows)
    often = [v for v, n in counts.most_common(most) if n >= rare]
    if len(counts) <= 2:
        often = [v for v, _ in counts.most_common()]
    covered = sum(counts[v] for v in often)
    if counts and covered >= _COVERED * counts.total():
        return choice(name, often, other=covered < counts.total(), missing=gaps)
    return None


def _number(name: str, numbers: F64, gaps: bool) -> Field:
    if not len(numbers) or np.isin(numbers, (0.0, 1.0)).all():
        return number(name, missing=gaps)
    unit = 0.0
    if numbers.min() >= 0 and _skewness(numbers) > _SKEWED:
        # far below most values: 0 stays possible, and the bulk is taken by its logarithm
        unit = _rounded(float(np.quantile(numbers[numbers > 0], 0.05)))
        taken = np.array([logged(value, unit) for value in numbers.tolist()])
        if abs(_skewness(taken)) >= _skewness(numbers) / 2:
            unit = 0.0
    seen = moments(numbers.tolist(), number(name, log=unit))
    scale = _rounded(scale_of(seen))
    mean = to_digits_of(scale, seen[1])
    return number(name, mean=mean, scale=scale, log=unit, missing=gaps)


def _skewness(numbers: F64) -> float:
    mean = float(numbers.mean())
    off = numbers - mean
    spread = float(np.sqrt((off**2).mean()))
    return float((off**3).mean()) / spread**3 if spread > ROUNDING * abs(mean) else 0.0


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def round_of(name: str) -> tuple[int, int, int] | None:
    """The period, and the least and largest value, of a column that its name says is cyclic."""
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    whole = " ".join(words)
    for ending, key in _ROUND_NAMES.items():
        if whole.endswith(ending):
            return _ROUND[key]
    return _ROUND.get(words[-1]) if words else None


def _guessed_period(name: str, numbers: F64) -> float:
    """Of a column whose name and numbers both say that it is cyclic; else 0."""
    known = round_of(name)
    if known is None or not len(numbers):
        return 0.0
    period, low, high = known
    whole = (numbers == np.floor(numbers)).all()
    fits = whole and numbers.min() >= low and numbers.max() <= high
    return float(period) if fits and np.ptp(numbers) >= period / 2 else 0.0
