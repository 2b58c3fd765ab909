"""A change of interest in one sentence: who likes which arm more or less now.

Coefficients of single features do not say that: with a constant, or with all values of a choice,
one may go up and another down by the same amount and nobody has changed. So the sentence is about
readers: what the move comes to for those of each kind, others being average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from whim.serve import wire

_EVERYBODY = 0.5  # of the common move: kinds of readers that differ by less have moved together
_CONTRAST = 0.5  # of the largest move: an opposite one of this size is told as well
_LONGEST = 40  # characters of a name
_LEAD = "Readers now like"


class _Kind(NamedTuple):
    """Readers of one kind, as the subject of a sentence and as its contrast, and their move.

    A kind is contrasted with those of the same ``field``.
    """

    readers: str
    others: str
    field: str
    move: float


class _Moves(NamedTuple):
    """What a change comes to: for an average reader, and for each kind of readers.

    ``vague`` is the largest move along a feature that tells nobody's kind, by its name: a place
    of hashed texts, or a number of a vector.
    """

    common: float
    kinds: list[_Kind]
    vague: tuple[float, str]


def change_sentence(
    direction: Sequence[float | None], features: wire.Features | None
) -> tuple[str, str]:
    """What is said before an arm's name, and after it.

    ``direction`` is along which the arm's coefficients moved, ``features`` what they belong to:
    None if that is not known.

    >>> device = wire.Field(name="device", kind="choice", values=["phone", "desktop"])
    >>> readers = wire.Features(fields=[device], constant=True)
    >>> change_sentence([0.0, 0.9, 0.1], readers)
    ('Desktop readers now like', 'more')
    >>> change_sentence([-0.5, 0.5, 0.0], readers)
    ('Phone readers now like', 'less, desktop readers more')
    >>> change_sentence([0.1, 0.0, -0.9], readers)
    ('Readers now like', 'less')
    >>> change_sentence([0.6, -0.8], None)
    ('Readers now like', 'differently')
    """
    moves = [m for m in direction if m is not None and math.isfinite(m)]
    if len(moves) != len(direction) or not any(moves):
        return _LEAD, "differently"
    if len(moves) == 1 and (features is None or features.size or _places(features) != 1):
        return _LEAD, _word(moves[0])  # a mean reward, or what stands for one
    if features is None or _places(features) != len(moves):
        return _LEAD, "differently"
    common, kinds, (vague, name) = _read(moves, features)
    apart = max((abs(kind.move - common) for kind in kinds), default=0.0)
    if max(apart, vague) <= _EVERYBODY * abs(common):
        return _LEAD, _word(common)
    if not kinds or vague > max(abs(kind.move) for kind in kinds):
        return _LEAD, f"differently, depending on {name}"
    first = max(kinds, key=lambda kind: abs(kind.move))
    opposite = [
        kind
        for kind in kinds
        if kind.field == first.field and kind.move * first.move < 0
        and abs(kind.move) >= _CONTRAST * abs(first.move)
    ]  # fmt: skip
    after = _word(first.move)
    if opposite:
        other = max(opposite, key=lambda kind: abs(kind.move))
        after += f", {other.others} {_word(other.move)}"
    return f"{first.readers} now like", after


def _word(move: float) -> str:
    return "more" if move > 0 else "less"


def _length(field: wire.Field) -> int:
    return {"choice": len(field.values), "hash": field.size}.get(field.kind, 1)


def _places(features: wire.Features) -> int:
    inside = sum(_length(field) for field in features.fields)
    return inside + features.rest + features.size + features.constant


def _read(moves: list[float], features: wire.Features) -> _Moves:
    common, at = moves[-1] if features.constant else 0.0, 0
    vague = [(0.0, "")]
    apart: list[_Kind] = []  # how far each is from the average
    for field in features.fields:
        some = moves[at : at + _length(field)]
        at += len(some)
        name = field.name[:_LONGEST]
        if field.kind == "hash":
            vague.append((max(map(abs, some)), name))
        elif field.kind == "choice":
            middle = sum(some) / len(some)
            common += middle
            for value, move in zip(field.values, some, strict=True):
                apart.append(_Kind(*_who(name, value[:_LONGEST]), name, move - middle))
        elif field.kind == "flag":
            common += some[0] / 2
            for word, move in (("marked", some[0] / 2), ("not marked", -some[0] / 2)):
                who = f"{word} “{name}”"  # a flag may be any word: subscriber, evening, new
                apart.append(_Kind(f"Readers {who}", f"those {who}", name, move))
        else:
            apart += _number(name, some[0], centred=field.mean != 0)
    vague += [(abs(move), "other features") for move in moves[at : at + features.rest]]
    rest = moves[at + features.rest :][: features.size]
    vague += [(abs(move), f"x[{i}]") for i, move in enumerate(rest)]
    kinds = [kind._replace(move=common + kind.move) for kind in apart]
    return _Moves(common, kinds, max(vague))


def _number(name: str, move: float, centred: bool) -> list[_Kind]:
    """Readers with a high and with a low number; they are opposites only about a mean."""
    return [
        _Kind(
            f"Readers whose {name} is {size}", f"those whose {name} is {size}",
            name if centred else f"{name} {size}", sign * move,
        )
        for size, sign in (("high", 1), ("low", -1))
    ]  # fmt: skip


def _who(name: str, value: str) -> tuple[str, str]:
    """Readers who chose a value: "desktop readers" where it is a word, else by the field's name."""
    if value.isalpha() and value.islower() and len(value) > 2:
        return f"{value.capitalize()} readers", f"{value} readers"
    return f"Readers whose {name} is {value}", f"those whose {name} is {value}"
