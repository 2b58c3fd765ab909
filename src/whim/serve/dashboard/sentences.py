"""A change of interest in one sentence: who likes which arm more or less now.

Coefficients of single features do not say that: with a constant, or with all values of a choice,
one may go up and another down by the same amount and nobody has changed. So the sentence is about
readers: what the move comes to for those of each kind, others being average.

A move that is estimated from few observations differs between kinds of readers by chance alone. A
kind is told only if the readers of its field differ by more than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from whim.detectors.score_test import chi2_tail
from whim.features.fields import names_of, waves
from whim.serve import wire

_EVERYBODY = 0.5  # of the common move: kinds of readers that differ by less have moved together
_CONTRAST = 0.5  # of the largest move: an opposite one of this size is told as well
_RARE = 0.5  # what a move counts of readers who are few, and of whom little is known
_ROUND = 48  # values of a cyclic field that are tried, if it is not of whole numbers
_LONGEST_ROUND = 366  # period up to which a cyclic field may be of whole numbers
_LONGEST = 40  # characters of a name
_CHANCE = 0.02  # that any kind is told although all readers have moved alike
_CLEAR = 2.0  # standard errors from which a move of all readers is up or down
_MARKED = 0.2  # share of readers with a flag, which marks the fewer, for it is not known
_FEW = 0.05  # share of readers whose value is missing or not listed, for it is not known
_LEAD = "Readers now like"


class Known(NamedTuple):
    """How well a move is known: ``noise`` is the variance of that of an average reader.

    ``window`` is how many rewards there were since the change.
    """

    noise: float
    window: int

    @classmethod
    def by(cls, variance: float, log_odds: bool, plays: int, window: int) -> Known:
        """By the variance of an arm's rewards, of which there were ``plays``.

        A click tells the more of its log-odds the more clicks vary.

        >>> Known.by(0.25, False, plays=200, window=100)
        Known(noise=0.005, window=100)
        """
        if not window:
            return cls(math.inf, 0)
        each = 1 / max(variance, 1e-12) if log_odds else max(variance, 1e-12)
        return cls(each / window + each / max(plays - window, 1), window)


EXACTLY = Known(0.0, 1)


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
    direction: Sequence[float | None], features: wire.Features | None, known: Known = EXACTLY
) -> tuple[str, str]:
    """What is said before an arm's name, and after it.

    ``direction`` is how the arm's coefficients moved, ``features`` what they belong to: None if
    that is not known. ``known`` says how well.

    >>> device = wire.Field(name="device", kind="choice", values=["phone", "desktop"])
    >>> readers = wire.Features(fields=[device], constant=True)
    >>> change_sentence([0.0, 0.9, 0.1], readers)
    ('Desktop readers now like', 'more')
    >>> change_sentence([-0.5, 0.5, 0.0], readers)
    ('Phone readers now like', 'less, desktop readers more')
    >>> change_sentence([-0.5, 0.5, 0.9], readers, Known(noise=0.1, window=50))
    ('Readers now like', 'more')
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
    common, kinds, (vague, name) = _read(moves, features, known)
    first = max(kinds, key=lambda kind: kind.weight, default=None)
    told = [kind for kind in kinds if not kind.rare or kind is first]
    apart = max((abs(kind.move - common) for kind in told), default=0.0)
    if max(apart, vague) <= _EVERYBODY * abs(common):
        clear = abs(common) > _CLEAR * math.sqrt(known.noise)
        return _LEAD, _word(common) if clear else "differently"
    if first is None or vague > abs(first.move):
        return _LEAD, f"differently, depending on {name}"
    opposite = [
        kind
        for kind in told
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


def _read(moves: list[float], features: wire.Features, known: Known) -> _Moves:
    common, at = moves[-1] if features.constant else 0.0, 0
    beyond = _beyond(features, known)
    vague = [(0.0, "")]
    apart: list[_Kind] = []  # how far each is from the average
    for field in features.fields:
        n = len(names_of(field))
        usual, kinds, unclear = _field(field, own := moves[at : at + n])
        at += n
        common += usual
        told = beyond(*_variance(field, own))
        apart += [k for k in kinds if (beyond(_FEW * k.move**2, 1) if k.rare else told)]
        vague += [(unclear, field.name[:_LONGEST])] * told
    rest = moves[at : at + features.rest]
    if rest and beyond(_mean_square(rest), len(rest)):
        vague += [(abs(move), "other features") for move in rest]
    numbers = moves[at + features.rest :][: features.size]
    if numbers and beyond(sum(move**2 for move in numbers), len(numbers)):
        vague += [(abs(move), f"x[{i}]") for i, move in enumerate(numbers)]
    kinds = [kind._replace(move=common + kind.move) for kind in apart]
    return _Moves(common, kinds, max(vague))


def _beyond(features: wire.Features, known: Known) -> Callable[[float, int], bool]:
    """Whether readers have moved apart by more than chance lets estimates do.

    Where all have moved alike, the variance of a field's moves over readers, by the noise, is about
    χ² with as many degrees of freedom as the field has. What else is learnt costs observations.
    """
    if not known.noise:
        return lambda variance, free: True
    chance = _CHANCE / (len(features.fields) + bool(features.rest) + bool(features.size))
    others = (
        _places(features) - features.constant - sum(f.kind == "choice" for f in features.fields)
    )

    def beyond(variance: float, free: int) -> bool:
        noise = known.noise * (1 + max(others - free, 0) / max(known.window, 1))
        return chi2_tail(variance / noise, free) < chance

    return beyond


def _variance(field: wire.Field, moves: list[float]) -> tuple[float, int]:
    """Of a field's moves over readers, and of how many coefficients it is made.

    As far as it is known who they are: values of a choice are alike, numbers are scaled.
    """
    if field.kind == "choice" and len(field.values) > 1:
        own = moves[: len(field.values)]
        usual = sum(own) / len(own)
        return _mean_square([move - usual for move in own]), len(own) - 1
    if field.kind in ("choice", "flag"):
        return _MARKED * (1 - _MARKED) * moves[0] ** 2, 1
    own = moves[:-1] if field.missing else moves
    if field.kind == "cyclic":
        return sum(move**2 for move in own) / 2, len(own)
    return _mean_square(own), len(own)


def _mean_square(moves: Sequence[float]) -> float:
    return sum(move**2 for move in moves) / max(len(moves), 1)


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
