"""Changes of interest as callers see them: over the API, on the stream, to webhooks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from whim.serve.state.engine import Engine
    from whim.serve.state.space import Space

__all__ = ["ChangeTold", "moment", "told"]


class ChangeTold(Struct, kw_only=True):
    """A change: when it was found and when it began, how sure, and what moved.

    ``plays`` and ``began`` count the arm's plays; ``features`` names the coefficients.
    """

    seq: int
    at: str
    space: str
    version: int
    arm: str | int | None
    step: int
    plays: int
    began: int | None
    statistic: float | None
    threshold: float | None
    p_value: float | None
    window: int
    group: str | int | None
    theta_before: list[float | None]
    theta_after: list[float | None]
    direction: list[float | None]
    features: list[str]


def moment(at: int) -> str:
    """Microseconds since 1970 as RFC 3339."""
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="milliseconds")


def told(engine: Engine, space: Space, since: int, most: int = 1000) -> list[dict[str, Any]]:
    """Changes of a space after row ``since``."""
    version = space.fold.version
    names = space.fold.context.names
    return [
        {"seq": seq, "at": moment(at), "space": space.name, "version": version, **event}
        | {"features": names if len(names) == len(event["theta_before"]) else []}
        for seq, at, event in engine.store.changes(space.number, version, since, most)
    ]
