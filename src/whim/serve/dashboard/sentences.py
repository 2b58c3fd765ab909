"""A change of interest in one sentence: who likes which arm more or less now.

Coefficients of single features do not say that: with a constant, or with all values of a choice,
one may go up and another down by the same amount and nobody has changed. So the sentence is about
readers: what the move comes to for those of each kind, others being average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from whim.features.fields import names_of, waves
from whim.serve import wire

_EVERYBODY = 0.5  # of the common move: kinds of readers that differ by less have moved together
_CONTRAST = 0.5  # of the largest move: an opposite one of this size is told as well
_RARE = 0.5  # what a move counts of readers who are few, and of whom little is known
_ROUND = 48  # values of a cyclic field that are tried, if it is not of whole numbers
_LONGEST_ROUND = 366  # period up to which a cyclic field may be of whole numbers
_LONGEST = 40  # characters of a name
_LEAD = "Readers now like"


class _Kind(NamedTuple):
    """Readers of one kind, as the subject of a sentence and as its contrast, and their move.

    A kind is contrasted with those of the same ``field``. A ``rare`` one, whose value is missing
    or not listed, is told only if no other kind has moved half as much.
    """

    readers: str
    others: str
    field: str
    move: float
    rare: bool = False

    @property
    def weight(self) -> float:
        """By which the kind that a sentence is about is chosen."""
        return abs(self.move) * (_RARE if self.rare else 1.0)


class _Moves(NamedTuple):
    """What a change comes to: for an average reader, and for each kind of readers.

    ``vague`` is the largest move along a feature that tells nobody's kind, by its name: a
    dimension of hashed texts, or a number of a vector.
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
    first = max(kinds, key=lambda kind: kind.weight, default=None)
    known = [kind for kind in kinds if not kind.rare or kind is first]
    apart = max((abs(kind.move - common) for kind in known), default=0.0)
    if max(apart, vague) <= _EVERYBODY * abs(common):
        return _LEAD, _word(common)
    if first is None or vague > abs(first.move):
        return _LEAD, f"differently, depending on {name}"
    opposite = [
        kind
        for kind in known
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


def _places(features: wire.Features) -> int:
    inside = sum(len(names_of(field)) for field in features.fields)
    return inside + features.rest + features.size + features.constant


def _read(moves: list[float], features: wire.Features) -> _Moves:
    common, at = moves[-1] if features.constant else 0.0, 0
    vague = [(0.0, "")]
    apart: list[_Kind] = []  # how far each is from the average
    for field in features.fields:
        n = len(names_of(field))
        usual, kinds, unclear = _field(field, moves[at : at + n])
        at += n
        common += usual
        apart += kinds
        vague.append((unclear, field.name[:_LONGEST]))
    vague += [(abs(move), "other features") for move in moves[at : at + features.rest]]
    rest = moves[at + features.rest :][: features.size]
    vague += [(abs(move), f"x[{i}]") for i, move in enumerate(rest)]
    kinds = [kind._replace(move=common + kind.move) for kind in apart]
    return _Moves(common, kinds, max(vague))


def _field(field: wire.Field, moves: list[float]) -> tuple[float, list[_Kind], float]:
    """What a field's moves come to for an average reader, and its kinds of readers.

    Their moves are from that of the average; the last number is the largest move that tells
    nobody's kind.
    """
    name, unclear = field.name[:_LONGEST], 0.0
    *own, unknown = moves if field.missing else [*moves, 0.0]
    usual = 0.0
    kinds: list[_Kind] = []
    if field.kind == "hash":
        unclear = max(map(abs, own))
    elif field.kind == "choice":
        usual = sum(own[: len(field.values)]) / len(field.values)
        for value, move in zip(field.values, own, strict=False):
            kinds.append(_Kind(*_who(name, value[:_LONGEST]), name, move - usual))
        if field.other:
            kinds.append(_rare(name, "not listed", name, own[-1] - usual))
    elif field.kind == "flag":
        usual = own[0] / 2
        for word, move in (("marked", usual), ("not marked", -usual)):
            who = f"{word} “{name}”"  # a flag may be any word: subscriber, evening, new
            kinds.append(_Kind(f"Readers {who}", f"those {who}", name, move))
    elif field.kind == "cyclic":
        kinds += _round(name, field, own)
    else:
        kinds += _number(name, own[0], centred=field.mean != 0)
    if field.missing:
        group = name if field.kind == "choice" else f"{name} unknown"
        kinds.append(_rare(name, "unknown", group, unknown - usual))
    return usual, kinds, unclear


def _rare(name: str, what: str, group: str, move: float) -> _Kind:
    """Readers whose value is missing, or is none of those that the field lists."""
    who = f"whose {name} is {what}"
    return _Kind(f"Readers {who}", f"those {who}", group, move, rare=True)


def _round(name: str, field: wire.Field, moves: list[float]) -> list[_Kind]:
    """Readers around the two values of a cyclic field at which most was gained and lost."""
    period = float(field.period or 1.0)
    whole = period.is_integer() and period <= _LONGEST_ROUND
    step = 1.0 if whole else period / _ROUND
    curve = []
    for i in range(round(period / step)):
        heights = waves(i * step, period, len(moves) // 2)
        move = sum(a * b for a, b in zip(moves, heights, strict=True))
        curve.append((move, i * step))
    kinds = []
    for move, value in (max(curve), min(curve)):
        shown = period if value == 0.0 and period == 12 else value  # months, hours on a clock
        who = f"whose {name} is around {shown:.3g}"
        kinds.append(_Kind(f"Readers {who}", f"those {who}", name, move))
    return kinds


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
