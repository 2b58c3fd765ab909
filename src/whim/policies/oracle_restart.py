"""``OracleRestart``: a policy that knows when interests change, the reference for detectors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.errors import InvalidInputError, StateFileError
from whim.features import Features
from whim.policies.base import state_file
from whim.policies.base.policy import Policy
from whim.types import F64, I64, ArmId, ChangeEvent

P = ParamSpec("P")
T = TypeVar("T")


def _inside(
    method: Callable[Concatenate[Policy, P], T],
) -> Callable[Concatenate[OracleRestart, P], T]:
    """The same method of the policy inside, with its parameters."""

    @functools.wraps(method)
    def forward(self: OracleRestart, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = getattr(self._inner, method.__name__)(*args, **kwargs)
        return result

    return forward


class OracleRestart(Policy):
    """Wrap a policy and restart, at the true change points, just the arms that changed.

    The reference for every detector: it has no delay, no misses and no false alarms. Over a
    hybrid policy it restarts the arms' own coefficients and keeps β, which does not change.

    Parameters
    ----------
    policy
        The policy that learns and decides, for example ``LinUCBDisjoint``.
    changes
        For each arm the steps after which its rewards are new: 2000 means that update 2001 is
        the first of the new regime. A plain list of steps is a change of all arms.

    Examples
    --------
    >>> from whim.policies.linucb_disjoint import LinUCBDisjoint
    >>> policy = OracleRestart(policy=LinUCBDisjoint(n_features=1), changes={"toys": [2]})
    >>> policy.add_arms(["toys", "sport"])
    ['toys', 'sport']
    >>> for _ in range(2):
    ...     for arm in policy.arms[:1]:
    ...         event = policy.update(arm, [1.0], 1.0)
    >>> policy.rank([1.0])[0].mean
    0.0
    """

    name = "oracle-restart"

    def __init__(
        self, *, policy: Policy, changes: Mapping[Any, Sequence[int]] | Sequence[int]
    ) -> None:
        if not isinstance(policy, Policy):
            raise InvalidInputError(f"policy must be a Policy, got {policy!r}.")
        super().__init__(
            n_features=policy.n_features,
            n_item_features=policy.n_item_features,
            n_cross=policy.n_cross_features,
        )
        self._inner = policy
        # step -> arms to restart after it; None stands for all
        self._due: dict[int, list[ArmId | None]] = {}
        by_arm = changes.items() if isinstance(changes, Mapping) else [(None, changes)]
        for arm, steps in by_arm:
            if not isinstance(steps, (Sequence, np.ndarray)):
                raise InvalidInputError(
                    f"changes must be steps by arm, or a list of steps, got {changes!r}."
                )
            for step in steps:
                self._due.setdefault(checks.integer("changes", step, 0), []).append(arm)
        self._table = policy._table

    def _restart(self) -> None:
        for arm in self._due.get(self._inner.step, ()):
            if arm is None:
                self._inner.reset_arms()
            elif arm in self._table.slot_of:
                self._inner.reset_arms([arm])

    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        raise NotImplementedError("the wrapped policy scores")

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        raise NotImplementedError("the wrapped policy learns")

    @property
    def policy(self) -> Policy:
        """The policy that learns and decides."""
        return self._inner

    @property
    def step(self) -> int:
        return self._inner.step

    @property
    def features(self) -> Features | None:
        return self._inner.features

    @property
    def history(self) -> list[ChangeEvent]:
        return self._inner.history

    def with_features(self, features: Any, *, items: Any = None) -> Self:
        self._inner.with_features(features, items=items)
        return self

    def clone(self, **changes: Any) -> Self:
        """Around a clone of the policy inside."""
        return (
            super()
            .clone(**({"policy": self._inner.clone()} | changes))
            .with_features(self._inner.features, items=self._inner._item_encoding)
        )

    @property
    def randomised(self) -> bool:
        return self._inner.randomised

    @property
    def evens_out(self) -> bool:
        return self._inner.evens_out

    def add_arms(
        self, arms: Iterable[ArmId], features: npt.ArrayLike | None = None, **more: Any
    ) -> list[ArmId]:
        """As the policy inside, which may take more (``groups``)."""
        return self._inner.add_arms(arms, features, **more)

    plays = _inside(Policy.plays)
    retire_arms = _inside(Policy.retire_arms)
    reset_arms = _inside(Policy.reset_arms)
    set_features = _inside(Policy.set_features)
    select = _inside(Policy.select)
    scores = _inside(Policy.scores)
    rank = _inside(Policy.rank)
    probabilities = _inside(Policy.probabilities)
    scores_many = _inside(Policy.scores_many)
    explain = _inside(Policy.explain)
    select_many = _inside(Policy.select_many)
    plot_changes = _inside(Policy.plot_changes)
    select_list = _inside(Policy.select_list)
    _check_many = _inside(Policy._check_many)
    _scaled = _inside(Policy._scaled)

    def update(
        self,
        arm: ArmId,
        x: npt.ArrayLike | None,
        reward: float,
        *,
        cross: npt.ArrayLike | None = None,
    ) -> ChangeEvent | None:
        event = self._inner.update(arm, x, reward, cross=cross)
        self._restart()
        return event

    def _learn_many(self, slots: I64, X: F64, r: F64, z: F64 | None) -> list[ChangeEvent]:
        events: list[ChangeEvent] = []
        at, first = 0, self.step
        stops = sorted(s - first for s in self._due if 0 < s - first < len(slots))
        for stop in [*stops, len(slots)]:
            rows = None if z is None else z[at:stop]
            events += self._inner._learn_many(slots[at:stop], X[at:stop], r[at:stop], rows)
            if stop > at:
                self._restart()
            at = stop
        return events

    def to_bytes(self) -> bytes:
        due = [
            [step, sorted((None if a is None else state_file.encode_id(a) for a in arms), key=repr)]
            for step, arms in sorted(self._due.items())
        ]
        inner = np.frombuffer(self._inner.to_bytes(), np.uint8)
        return state_file.pack({"class": self.name, "due": due}, {"policy": inner})

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str = "data") -> Self:
        from whim.policies import registry  # it imports this module

        header, arrays = state_file.unpack(data, source)
        if header["class"] != cls.name:
            raise StateFileError(f"{source} must hold a {cls.name}, got {header['class']!r}.")
        inner = registry.from_bytes(arrays["policy"].tobytes(), source=source)
        changes: dict[ArmId, list[int]] = {}
        for step, arms in header["due"]:
            for arm in arms:
                changes.setdefault(None if arm is None else state_file.decode_id(arm), []).append(
                    step
                )
        return cls(policy=inner, changes=changes)
