"""What can be logged: requests as bytes, and the path of what cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from whim.errors import InvalidInputError
from whim.serve.log.rows import DecisionRow, FeatureValues

_encode = msgspec.msgpack.encode
_deterministic = msgspec.msgpack.Encoder(order="deterministic").encode


def canonical(body: msgspec.Struct) -> bytes:
    """A body as bytes that are the same for the same body."""
    try:
        return _deterministic(body)
    except OverflowError:  # a whole number that MessagePack has no room for
        return msgspec.json.encode(body, order="deterministic")


def to_bytes(
    encode: Callable[[Any], bytes], value: Any, decision: DecisionRow | None = None
) -> bytes:
    """As bytes; what cannot be encoded is named, in a decision by its path."""
    try:
        return encode(value)
    except (OverflowError, UnicodeEncodeError) as error:
        if decision is not None:
            check_loggable(decision.id, decision.context, decision.arms, decision.features)
        raise InvalidInputError(
            f"$ must be text and numbers that can be logged: {error}."
        ) from None


def check_loggable(
    key: str, context: Any, ids: list[str | int], features: list[FeatureValues] | None
) -> None:
    """Raise, with its path, if a part of a decision cannot be logged."""
    try:
        _encode((key, context, ids, features))
    except (OverflowError, UnicodeEncodeError) as error:
        path = "$.decision_id" if _odd(key) else _path_in("$.context", context)
        for i, (arm, values) in enumerate(zip(ids, features or [None] * len(ids), strict=True)):
            if path is None:
                path = f"$.candidates[{i}]" if _odd(arm) else None
            if path is None:
                path = _path_in(f"$.candidates[{i}].features", values)
        raise InvalidInputError(
            f"{path or '$'} must be text and numbers that can be logged: {error}."
        ) from None


def _odd(value: Any) -> bool:
    """Whether it cannot be logged."""
    try:
        _encode(value)
    except (OverflowError, UnicodeEncodeError):
        return True
    return False


def _path_in(path: str, value: Any) -> str | None:
    """Where in features something cannot be logged."""
    if not _odd(value):
        return None
    names = [n for n, v in value.items() if _odd((n, v))] if isinstance(value, dict) else []
    return f"{path}.{names[0]}" if names else path
