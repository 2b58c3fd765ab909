"""``Head``: what a snapshot holds of a state beside its policy."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from whim.serve.state.stats import Pending
from whim.serve.wire import RewardRules, SpaceConfig


class Head(Struct):
    """As it is stored; what is missing in an older one has a default."""

    seq: int
    version: int
    config: SpaceConfig
    pending: dict[str, Pending]
    stats: bytes
    skipped: int
    since_change: bytes = b""
    rules: RewardRules | None = None  # in force; older snapshots lack them
    closed_by: dict[str, str] = {}
    wanted: int = 0
    spans: bytes = b""


def rules_of(head: bytes) -> RewardRules:
    """The rules that were in force when a state was written."""
    stored = msgspec.msgpack.decode(head, type=Head)
    return stored.rules or stored.config.rewards
