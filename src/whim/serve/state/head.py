"""``Head``: what a snapshot holds of a state beside its policy."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from whim.serve.state.stats import Pending, PositionCounts
from whim.serve.state.waiting import WaitingList, list_rules
from whim.serve.wire import ListRules, RewardRules, SpaceConfig


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
    lists: dict[str, WaitingList] = {}
    list_rules: ListRules | None = None  # in force
    positions: list[PositionCounts] = []

    @property
    def in_force(self) -> tuple[RewardRules, ListRules]:
        """The rules that were in force when it was written."""
        return self.rules or self.config.rewards, self.list_rules or list_rules(self.config)


def rules_of(head: bytes) -> tuple[RewardRules, ListRules]:
    """The rules that were in force when a state was written."""
    return msgspec.msgpack.decode(head, type=Head).in_force
