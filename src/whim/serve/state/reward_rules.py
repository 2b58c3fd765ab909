"""``RewardGuard``: which rewards a space takes as they are, and which of them it logs."""

from __future__ import annotations

from collections import OrderedDict

from msgspec import UNSET

from whim.errors import InvalidInputError
from whim.serve.wire import RewardRules

_LOGGED = 4  # rewards of one decision that change nothing and are logged all the same
_REMEMBERED = 65_536  # decisions that such rewards came for


def check_range(rules: RewardRules) -> None:
    """Raise unless the range of a configuration has a place for its default."""
    if rules.range is UNSET:
        return
    least, most = rules.range.least, rules.range.most
    if not least < most:
        raise InvalidInputError(
            f"$.rewards.range.least must be below most, got {least:g} and {most:g}."
        )
    if not least <= rules.default <= most:
        raise InvalidInputError(
            f"$.rewards.default must be in the range from {least:g} to {most:g}, "
            f"got {rules.default:g}."
        )


class RewardGuard:
    """Counts, since the start, what it ``refused``, ``clipped`` and had ``not_logged``."""

    def __init__(self) -> None:
        self.counts = {"refused": 0, "clipped": 0, "not_logged": 0}
        self._without_effect: OrderedDict[str, int] = OrderedDict()

    def refuse(self, value: float, rules: RewardRules) -> None:
        """Raise if the space refuses a reward as large as this, or as small."""
        allowed = rules.range
        if allowed is UNSET or allowed.outside == "clip" or allowed.least <= value <= allowed.most:
            return
        self.counts["refused"] += 1
        raise InvalidInputError(
            f"$.value must be from {allowed.least:g} to {allowed.most:g}, got {value:g}."
        )

    def in_range(self, value: float, rules: RewardRules) -> float:
        """A reward as it is learnt: clipped if the space says so, or refused."""
        self.refuse(value, rules)
        allowed = rules.range
        if allowed is UNSET or allowed.least <= value <= allowed.most:
            return value
        self.counts["clipped"] += 1
        return min(max(value, allowed.least), allowed.most)

    def logs(self, key: str) -> bool:
        """Whether one more reward that changes nothing is logged: the first few of a decision.

        A caller who repeats one for ever must not fill the disk.
        """
        seen = self._without_effect.pop(key, 0)
        self._without_effect[key] = seen + 1
        if len(self._without_effect) > _REMEMBERED:
            self._without_effect.popitem(last=False)
        if seen < _LOGGED:
            return True
        self.counts["not_logged"] += 1
        return False
