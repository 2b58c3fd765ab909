"""What a service answers, as objects."""

from __future__ import annotations

import msgspec

from whim.serve.wire import SpaceConfig


class SpaceInfo(msgspec.Struct, kw_only=True):
    """A space: ``steps`` are rewards learnt, ``waiting`` decisions whose reward may still come.

    While it is rebuilding, ``wanted`` is the version to come; ``failed`` says why it did not.
    ``skipped`` are logged decisions that are not learnt, mostly since they do not fit ``config``.
    """

    name: str
    version: int
    config: SpaceConfig
    wanted: int = 0
    rebuilding: bool = False
    failed: str | None = None
    arms: int = 0
    waiting: int = 0
    steps: int = 0
    skipped: int = 0


class Rewarded(msgspec.Struct):
    """What became of a reward: learnt, kept, duplicate or late."""

    decision_id: str
    state: str


class Rate(msgspec.Struct, kw_only=True):
    """A mean reward over ``plays`` with its 95 % interval; None where too few are known."""

    plays: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None


class Arm(msgspec.Struct, kw_only=True):
    """An arm: how often shown and learnt, its mean reward with a 95 % interval, its trend.

    These are over all rewards; ``since_change`` is the rate after its last change, if it had one.
    """

    arm: str | int
    decisions: int
    plays: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    trend: list[float | None] = []
    last_change_at: str | None = None
    since_change: Rate | None = None


class Change(msgspec.Struct, kw_only=True):
    """A change of interest that the service detected: ``whim.ChangeEvent``, its space and time."""

    seq: int
    at: str
    space: str
    version: int
    arm: str | int | None
    step: int
    plays: int
    statistic: float | None
    threshold: float | None
    theta_before: list[float | None]
    theta_after: list[float | None]
    window: int
    began: int | None = None
    p_value: float | None = None
    direction: list[float | None] = []
    group: str | int | None = None
    features: list[str] = []
    probability: float | None = None
    kind: str | None = None
