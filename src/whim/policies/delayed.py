"""``Delayed``: decisions whose rewards come later; contexts are kept until they do."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.arms import check_id
from whim.errors import InvalidInputError, StateFileError
from whim.files import write_atomic
from whim.policies import registry
from whim.policies.base import Policy, state_file
from whim.types import F64, ArmId, ChangeEvent, Decision

_KIND = "delayed"

P = TypeVar("P", bound=Policy)


class _Waiting(NamedTuple):
    arm: ArmId
    x: F64
    cross: F64
    at: float


class Delayed(Generic[P]):
    """A policy with a memory of the decisions that wait for their reward, by a key.

    Parameters
    ----------
    policy
        What decides and learns. It may also be used directly.
    capacity
        Decisions that may wait; the oldest makes room for a new one.
    default
        The reward that is learnt for a decision that is given up, such as 0 for a click that never
        came. None: nothing is learnt from it.

    Examples
    --------
    >>> import whim
    >>> policy = whim.LinUCBDisjoint(n_features=1)
    >>> arms = policy.add_arms(["toys", "sport"])
    >>> visits = Delayed(policy, default=0.0)
    >>> visits.select("visit 1", [1.0]).arm, visits.select("visit 2", [0.5]).arm
    ('toys', 'toys')
    >>> visits.reward("visit 2", 1.0)  # in any order
    >>> len(visits), policy.step, visits.waiting
    (1, 1, ['visit 1'])
    >>> visits.expire()  # nobody clicked
    []
    >>> policy.step
    2
    """

    def __init__(self, policy: P, *, capacity: int = 100_000, default: float | None = None) -> None:
        if not isinstance(policy, Policy):
            raise InvalidInputError(f"policy must be a Policy, got {policy!r}.")
        self._policy = policy
        self._capacity = checks.integer("capacity", capacity, 1)
        self._default = None if default is None else checks.real("default", default)
        self._waiting: dict[ArmId, _Waiting] = {}

    @property
    def policy(self) -> P:
        """What decides and learns."""
        return self._policy

    @property
    def waiting(self) -> list[ArmId]:
        """The keys of decisions that wait for their reward, oldest first."""
        return list(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, key: object) -> bool:
        return key in self._waiting

    def __repr__(self) -> str:
        return (
            f"Delayed({self._policy!r}, capacity={self._capacity}, default={self._default}) "
            f"with {len(self)} waiting"
        )

    def select(
        self,
        key: ArmId,
        x: Any = None,
        arms: Iterable[ArmId] | None = None,
        *,
        cross: npt.ArrayLike | None = None,
        at: float | None = None,
    ) -> Decision:
        """Choose an arm and remember the decision under ``key``, which must be new.

        Parameters
        ----------
        key
            By which its reward will come: text or a number, as for arms.
        x, arms, cross
            As for ``Policy.select``.
        at
            When, in seconds; the clock's time by default.

        Notes
        -----
        Where the memory is full, the oldest decision is given up first.
        """
        if check_id(key) in self._waiting:
            raise InvalidInputError(f"key must be new, got {key!r}, which waits for its reward.")
        when = time.time() if at is None else checks.real("at", at)
        ids = self._policy.arms if arms is None else self._policy._id_list(arms, "arms")
        context = np.array(self._policy._context(x))
        decision = self._policy.select(context if len(context) else None, ids, cross=cross)
        row = np.zeros(0)
        if cross is not None:
            row = np.array(cross, np.float64)[ids.index(decision.arm)]
        self._waiting[key] = _Waiting(decision.arm, context, row, when)
        if len(self._waiting) > self._capacity:
            self.drop(next(iter(self._waiting)))
        return decision

    def reward(self, key: ArmId, reward: float) -> ChangeEvent | None:
        """Learn the reward of a decision; the change that it revealed, if any.

        A key that does not wait, because it was never chosen, has its reward or was given up, is an
        error, and so is an arm that was retired since: ``forget`` such a decision.
        """
        kept = self._kept(key)
        event = self._learn(kept, reward)
        del self._waiting[key]
        return event

    def drop(self, key: ArmId) -> ChangeEvent | None:
        """Give a decision up: ``default`` is learnt, if there is one and the arm still lives."""
        kept = self._kept(key)
        event = None
        if self._default is not None and kept.arm in self._policy._table.slot_of:
            event = self._learn(kept, self._default)
        del self._waiting[key]
        return event

    def forget(self, key: ArmId) -> None:
        """Remove a decision and learn nothing from it."""
        self._kept(key)
        del self._waiting[key]

    def expire(self, before: float | None = None) -> list[ChangeEvent]:
        """Give up the decisions made before a time, or all; the changes that this revealed."""
        limit = np.inf if before is None else checks.real("before", before)
        old = [key for key, kept in self._waiting.items() if kept.at < limit]
        events = [self.drop(key) for key in old]
        return [event for event in events if event is not None]

    def _kept(self, key: ArmId) -> _Waiting:
        kept = self._waiting.get(check_id(key))
        if kept is None:
            raise InvalidInputError(
                f"key must be of a decision that waits for its reward, got {key!r}: it was never "
                "chosen, has its reward already, or was given up."
            )
        return kept

    def _learn(self, kept: _Waiting, reward: float) -> ChangeEvent | None:
        x = kept.x if len(kept.x) else None
        return self._policy.update(
            kept.arm, x, reward, cross=kept.cross if len(kept.cross) else None
        )

    # -- saving ---------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The policy and the decisions that wait, as one sealed byte string (docs/state.md)."""
        all_kept = self._waiting.values()
        header = {
            "class": _KIND,
            "capacity": self._capacity,
            "default": self._default,
            "keys": [state_file.encode_id(key) for key in self._waiting],
            "arms": [state_file.encode_id(kept.arm) for kept in all_kept],
        }
        arrays: dict[str, npt.NDArray[Any]] = {
            "policy": np.frombuffer(self._policy.to_bytes(), np.uint8),
            "at": np.array([kept.at for kept in all_kept], np.float64),
            "sizes": np.array([[len(w.x), len(w.cross)] for w in all_kept], np.int64),
            "numbers": np.concatenate([np.zeros(0), *(n for w in all_kept for n in w[1:3])]),
        }
        return state_file.pack(header, arrays)

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str = "data") -> Delayed[Policy]:
        """What ``to_bytes`` sealed."""
        header, arrays = state_file.unpack(data, source)
        if header["class"] != _KIND:
            raise StateFileError(
                f"{source} must hold decisions that wait, got {header['class']!r}."
            )
        policy = registry.from_bytes(arrays["policy"].tobytes(), source=source)
        try:
            made = Delayed(policy, capacity=header["capacity"], default=header["default"])
            ends = np.cumsum(arrays["sizes"].reshape(-1))
            pieces = np.split(arrays["numbers"], ends[:-1]) if len(ends) else []
            for i, (key, arm) in enumerate(zip(header["keys"], header["arms"], strict=True)):
                x, cross = pieces[2 * i], pieces[2 * i + 1]
                if len(x) != (policy.n_features or len(x)):
                    raise ValueError(f"contexts must have {policy.n_features} numbers")
                kept = _Waiting(state_file.decode_id(arm), x, cross, float(arrays["at"][i]))
                made._waiting[state_file.decode_id(key)] = kept
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StateFileError(f"{source} must hold whole decisions: {error!r}.") from error
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of it to a file, whole or not at all."""
        write_atomic(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Delayed[Policy]:
        """Read what ``save`` wrote."""
        return cls.from_bytes(Path(path).read_bytes(), source=str(path))
