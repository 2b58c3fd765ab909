"""Changes of interest that are known: for all readers of an arm, or for one kind of them.

Readers have one to six features of several kinds, of which some matter before and after; clicks are
drawn, and a policy learns and reports.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import msgspec
import numpy as np

import whim
from whim.features import Features
from whim.serve import wire
from whim.serve.dashboard.sentences import Known, change_sentence
from whim.types import F64

POLICIES = ("adaptive-linucb", "pslinucb-disjoint")
WINDOWS = range(20, 151)  # plays since the change, of which a study asks
SHIFT, GROUP = (1.2, 2.2), (2.0, 3.5)  # log-odds by which all readers, or those of a kind, move
_BEFORE, _AFTER = (300, 2000), 250


class Made(NamedTuple):
    """What a policy reported, how well it is known, and what is true.

    Readers like it ``more`` or less now: all of them (``whom`` is None), or those of a field, with
    its value where it is a choice, around a value where it is cyclic.
    """

    moved: list[float]
    known: Known
    features: wire.Features
    more: bool
    whom: tuple[str, str | float | None] | None

    def verdict(self) -> str:
        """What the sentence about it is: all, vague, right or wrong."""
        lead, rest = change_sentence(self.moved, self.features, self.known)
        more = rest.startswith("more")
        if lead == "Readers now like":
            if rest.startswith("differently"):
                return "vague" if rest == "differently" else "wrong"
            return "all"
        if self.whom is None or self.whom[0] not in lead:
            return "wrong"
        return "right" if self._names(lead, more == self.more) else "wrong"

    def _names(self, lead: str, same: bool) -> bool:
        """Whether those are named who have moved, or with the other word their opposites."""
        assert self.whom is not None
        name, value = self.whom
        kind = next(field.kind for field in self.features.fields if field.name == name)
        if kind == "choice":
            return same and f" {value} " in lead
        if kind == "flag":
            return ("not marked" not in lead) == same
        if kind == "number":
            return ("is high" in lead) == same
        assert isinstance(value, float)
        apart = abs(float(lead.split("around ")[1].split()[0]) - value) % 24
        return (min(apart, 24 - apart) <= 6) == same


class _Readers(NamedTuple):
    """Values of each field for each reader, drawn unevenly."""

    fields: list[wire.Field]
    values: dict[str, list[str | float | bool]]

    def vectors(self, n: int) -> F64:
        encode = Features.from_dict({"fields": [_plain(f) for f in self.fields], "constant": True})
        return np.array([
            encode({name: values[i] for name, values in self.values.items()}) for i in range(n)
        ])  # fmt: skip


def _plain(field: wire.Field) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(field)
    return plain


def _readers(rng: np.random.Generator, places: int, n: int) -> _Readers:
    """Fields that fill about so many places."""
    fields, values, left = list[wire.Field](), dict[str, list[str | float | bool]](), places - 1
    while left > 0:
        name, kind = f"f{len(fields)}", int(rng.integers(4))
        if kind == 0 and left >= 2:
            k = int(rng.integers(2, min(left, 6) + 1))
            shares = rng.dirichlet(np.full(k, 3.0))
            fields.append(wire.Field(name=name, kind="choice", values=[f"v{i}" for i in range(k)]))
            values[name] = [f"v{i}" for i in rng.choice(k, n, p=shares)]
            left -= k
        elif kind == 1 and left >= 2:
            fields.append(wire.Field(name=name, kind="cyclic", period=24.0))
            values[name] = rng.integers(0, 24, n).astype(float).tolist()
            left -= 2
        elif kind == 2:
            fields.append(wire.Field(name=name, kind="flag"))
            values[name] = (rng.random(n) < rng.uniform(0.2, 0.8)).tolist()
            left -= 1
        else:
            fields.append(wire.Field(name=name, kind="number", mean=40.0, scale=10.0))
            values[name] = (40 + 10 * rng.normal(size=n)).tolist()
            left -= 1
    return _Readers(fields, values)


def _group(
    rng: np.random.Generator, readers: _Readers
) -> tuple[tuple[str, str | float | None], F64]:
    """A kind of readers, and how much of it each reader is; one that is neither few nor most."""
    for last in [*[False] * 50, True]:
        field = readers.fields[int(rng.integers(len(readers.fields)))]
        cells = readers.values[field.name]
        if field.kind == "choice":
            value = str(rng.choice(field.values))
            of_it = np.array([cell == value for cell in cells], float)
            if not (0.2 <= of_it.mean() <= 0.7 or last):
                continue
            return (field.name, value), of_it
        if field.kind == "flag":
            return (field.name, None), np.array(cells, float)
        if field.kind == "number":
            return (field.name, None), (np.array(cells, float) - 40) / 20
        hour = float(rng.integers(24))
        near = np.cos(2 * math.pi * (np.array(cells, float) - hour) / 24)
        return (field.name, hour), np.maximum(near, 0.0)
    raise AssertionError("the last one is taken")


def make(seed: int, policy: str, places: int, group: bool, lasting: float = 0.5) -> Made | None:
    """What a policy reports of one change; None where it reports none in time.

    ``lasting`` is the deviation of the log-odds by features, which stay as they are.
    """
    rng = np.random.default_rng([seed, places, group, POLICIES.index(policy)])
    before = int(rng.integers(*_BEFORE))
    n = before + _AFTER
    readers = _readers(rng, places, n)
    X = readers.vectors(n)
    weights = rng.normal(size=X.shape[1]) * lasting / math.sqrt(len(readers.fields))
    sign = 1.0 if rng.random() < 0.5 else -1.0
    whom, size = None, np.ones(n)
    if group:
        whom, size = _group(rng, readers)
    change = sign * rng.uniform(*(GROUP if group else SHIFT)) * size
    logits = X @ weights - sign * rng.uniform(0.3, 1.0) + change * (np.arange(n) >= before)
    clicks = (rng.random(n) < 1 / (1 + np.exp(-logits))).astype(float)
    made = {
        "adaptive-linucb": whim.AdaptiveLinUCB, "pslinucb-disjoint": whim.PSLinUCBDisjoint,
    }[policy](n_features=X.shape[1])  # fmt: skip
    made.add_arms(["a"])
    for event in made.update_many(["a"] * n, X, clicks):
        if event.plays > before and event.window in WINDOWS:
            moved = np.subtract(event.theta_after, event.theta_before).tolist()
            known = Known.by(
                float(clicks[: event.plays].var()), made.unit == "log-odds", event.plays,
                event.window,
            )  # fmt: skip
            features = wire.Features(fields=readers.fields, constant=True)
            return Made(moved, known, features, sign > 0, whom)
    return None


def counted(
    seed: int, policy: str, places: int, group: bool, runs: int, lasting: float = 0.5
) -> Counter[str]:
    """Verdicts on the changes that a policy reports."""
    found = (make(1000 * seed + run, policy, places, group, lasting) for run in range(runs))
    return Counter(one.verdict() for one in found if one is not None)
