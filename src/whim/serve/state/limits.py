"""``Limits``: how much one caller can make a space hold or compute; and what is said beyond."""

from __future__ import annotations

from msgspec import Struct

from whim.errors import WhimError
from whim.serve.settings import Settings


class LimitError(WhimError):
    """More than a space may hold or compute."""


class FullError(LimitError):
    """As much is waiting as may: try again when some of it has ended."""


class Limits(Struct, frozen=True, kw_only=True):
    """Of each space; the settings of the same names say the same."""

    max_arms: int = 20_000
    max_arm_bytes: int = 1 << 30  # of all arms' models together
    max_new_arm_bytes: int = 128 << 20  # of the models of arms that one decision brings
    max_waiting: int = 1_000_000
    max_values: int = 250_000  # candidates times features, of one decision
    max_batch_values: int = 2_000_000  # of all decisions of a batch
    max_rewards: int = 1000  # of one decision whose rewards are summed

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Those that the settings ask for."""
        return cls(**{name: getattr(settings, name) for name in cls.__struct_fields__})
