"""Decision-service JSON: the ids and features of contexts and actions, as names or vectors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from whim.checks import LARGEST
from whim.errors import LogFileError
from whim.types import F64, ArmId

MOST = 4096  # features that have a place of their own


class BadLine(Exception):  # noqa: N818 - never leaves the readers of dsjson
    """A line that cannot be used, by the reason's name."""


def is_number(value: Any) -> TypeGuard[float]:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return abs(value) <= LARGEST


def _as_arm(value: Any) -> ArmId:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return value
    raise BadLine("id")


def usual_id(action: dict[str, Any]) -> ArmId:
    inner = action.get("i")
    for value in (action.get("_arm"), action.get("_tag"),
                  inner.get("id") if isinstance(inner, dict) else None):  # fmt: skip
        if value is not None:
            return _as_arm(value)
    if not action:
        raise BadLine("id")
    return json.dumps(action, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def id_at(path: str) -> Callable[[dict[str, Any]], ArmId]:
    names = path.split(".")

    def find(action: dict[str, Any]) -> ArmId:
        value: Any = action
        for name in names:
            if isinstance(value, list) and len(value) == 1:  # a namespace in a list of its own
                value = value[0]
            value = value.get(name) if isinstance(value, dict) else None
        return _as_arm(value)

    return find


def features_of(
    entry: dict[str, Any], vector: str, but: tuple[str, ...]
) -> dict[str, float] | list[float]:
    """Features by flattened name; or the vector that Whim's own export says it was."""
    straight = entry.get(vector)
    if isinstance(straight, list) and all(is_number(value) for value in straight):
        return [float(value) for value in straight]
    values: dict[str, float] = {}
    for name, value in entry.items():
        if name not in but and not name.startswith("_"):
            _flatten(name, value, values)
    return values


def _flatten(name: str, value: Any, into: dict[str, float]) -> None:
    if value is None or value is False:
        return
    if isinstance(value, dict):
        for inner, each in value.items():
            if not inner.startswith("_"):
                _flatten(f"{name}.{inner}", each, into)
    elif isinstance(value, list):
        for i, each in enumerate(value):
            number = isinstance(each, (int, float)) and not isinstance(each, bool)
            _flatten(f"{name}[{i}]" if number else name, each, into)
    elif isinstance(value, str):
        into[f"{name}={value}"] = into.get(f"{name}={value}", 0.0) + 1.0
    else:
        if not (value is True or is_number(value)):
            raise BadLine("features")
        into[name] = into.get(name, 0.0) + float(value)


class Places:
    """Where features go: each to a place of its own, or hashed, or as they are."""

    def __init__(self, option: str, size: int | None, constant: bool) -> None:
        self._option, self._size, self._constant = option, size, constant
        self._place: dict[str, int] = {}
        self._straight: int | None = None
        self.names: list[str] = []

    def look(self, features: dict[str, float] | list[float]) -> None:
        """Take note of an event's features, before any is written."""
        if self._size is not None:
            return
        if isinstance(features, list):
            if self._straight is None and not self._place:
                self._straight = len(features)
            return
        if self._straight is not None:
            return
        for name in features:
            self._place.setdefault(name, len(self._place))
        if len(self._place) > MOST:
            raise LogFileError(
                f"there are more than {MOST} different features; {self._option}=N hashes them "
                "into N places."
            )

    def settle(self, at_least: int) -> None:
        """Name the places, once all is seen."""
        if self._straight is not None:
            self.names = [f"x[{i}]" for i in range(self._straight)]
        elif self._size is not None:
            self.names = [f"hash[{i}]" for i in range(self._size)]
        else:
            self.names = list(self._place)
        self._constant = self._constant or len(self.names) < at_least
        if self._constant:
            self.names.append("constant")

    def vector(self, features: dict[str, float] | list[float]) -> F64:
        """One event's features as they are written."""
        x = np.zeros(len(self.names))
        if self._constant:
            x[-1] = 1.0
        if isinstance(features, list):
            if len(features) != len(x) - self._constant:
                raise BadLine("length")
            x[: len(features)] = features
        elif self._straight is not None:
            raise BadLine("length")
        elif self._size is None:
            for name, value in features.items():
                x[self._place[name]] = value
        else:
            for name, value in features.items():
                place, sign = _hashed(name, self._size)
                x[place] += sign * value
        if not (np.abs(x) <= LARGEST).all():
            raise BadLine("features")
        return x


def _hashed(name: str, size: int) -> tuple[int, float]:
    """A place and a sign, so that names that share a place cancel on average."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    number = int.from_bytes(digest, "little")
    return (number >> 1) % size, 1.0 if number & 1 else -1.0
