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
from whim.policies.base.lists import FEEDBACK, chances, no_features
from whim.types import F64, ArmId, ChangeEvent, Decision, ListDecision

P = TypeVar("P", bound=Policy)


class _Waiting(NamedTuple):
    """A decision: the arm, or in a list several; x and cross as they are learnt, empty if none."""

    arms: list[ArmId]
    x: F64
    cross: F64
    at: float
    listed: bool = False


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
        came; in a list for each item. None: nothing is learnt from it.
    feedback, examine
        How lists are seen and what is learnt from them, as for ``Policy.update_list``.

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

    def __init__(
        self,
        policy: P,
        *,
        capacity: int = 100_000,
        default: float | None = None,
        feedback: str = "cascade",
        examine: npt.ArrayLike | None = None,
    ) -> None:
        if not isinstance(policy, Policy):
            raise InvalidInputError(f"policy must be a Policy, got {policy!r}.")
        self._policy = policy
        self._capacity = checks.integer("capacity", capacity, 1)
        self._default = None if default is None else checks.real("default", default)
        self._feedback = checks.choice("feedback", feedback, tuple(FEEDBACK))
        seen = None if examine is None else checks.vector("examine", examine, None)
        self._examine = chances(feedback, seen, 0 if seen is None else len(seen))
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
        when = self._when(key, at)
        ids = self._policy.arms if arms is None else self._policy._id_list(arms, "arms")
        context = np.array(self._policy._context(x))
        decision = self._policy.select(context if len(context) else None, ids, cross=cross)
        row = np.zeros(0)
        if cross is not None:
            row = np.array(cross, np.float64)[ids.index(decision.arm)]
        self._remember(key, _Waiting([decision.arm], context, row, when))
        return decision

    def select_list(
        self,
        key: ArmId,
        x: Any = None,
        arms: Iterable[ArmId] | None = None,
        k: int = 5,
        *,
        cross: npt.ArrayLike | None = None,
        at: float | None = None,
        **more: Any,
    ) -> ListDecision:
        """Choose ``k`` arms and remember the list under ``key``; ``reward_list`` has its rewards.

        Parameters
        ----------
        key, at
            As for ``select``.
        x, arms, k, cross, more
            As for ``Policy.select_list``, which has ``limits``, ``groups``, ``diversity`` and
            ``features``, too.

        Examples
        --------
        >>> import whim
        >>> policy = whim.LinUCBDisjoint(n_features=1)
        >>> arms = policy.add_arms(["toys", "sport", "news"])
        >>> visits = Delayed(policy)
        >>> visits.select_list("visit 1", [1.0], k=2).arms
        ['toys', 'sport']
        >>> visits.reward_list("visit 1", [0, 1])
        []
        >>> [policy.plays(arm) for arm in arms]
        [1, 1, 0]
        """
        when, k = self._when(key, at), checks.integer("k", k, 1)
        policy = self._policy
        ids = policy.arms if arms is None else policy._id_list(arms, "arms")
        contexts = np.array(policy._slot_contexts(x, k))
        chances(self._feedback, self._examine, min(k, len(ids)))
        if self._examine is not None and cross is None and not contexts.size:
            raise no_features(policy)
        given = contexts if len(contexts) > 1 else contexts[0]
        shown = policy.select_list(given if given.size else None, ids, k, cross=cross, **more)
        rows = np.zeros(0)
        if cross is not None:
            rows = np.array(cross, np.float64)[[ids.index(arm) for arm in shown.arms]]
        kept = given[: len(shown.arms)] if given.ndim == 2 else given
        self._remember(key, _Waiting(list(shown.arms), kept, rows, when, listed=True))
        return shown

    def _when(self, key: ArmId, at: float | None) -> float:
        """The time of a decision, whose key must be new."""
        if check_id(key) in self._waiting:
            raise InvalidInputError(f"key must be new, got {key!r}, which waits for its reward.")
        return time.time() if at is None else checks.real("at", at)

    def _remember(self, key: ArmId, kept: _Waiting) -> None:
        self._waiting[key] = kept
        if len(self._waiting) > self._capacity:
            self.drop(next(iter(self._waiting)))

    def reward(self, key: ArmId, reward: float) -> ChangeEvent | None:
        """Learn the reward of a decision; the change that it revealed, if any.

        A key that does not wait, because it was never chosen, has its reward or was given up, is an
        error, and so is an arm that was retired since: ``forget`` such a decision.
        """
        kept = self._kept(key, listed=False)
        event = self._learn(kept, reward)
        del self._waiting[key]
        return event

    def reward_list(self, key: ArmId, rewards: npt.ArrayLike) -> list[ChangeEvent]:
        """Learn a list, whole or not at all, by ``feedback``; the changes that it revealed.

        ``rewards`` has one number per item, the top first. Errors are those of ``reward``.
        """
        kept = self._kept(key, listed=True)
        events = self._learn_list(kept, rewards)
        del self._waiting[key]
        return events

    def drop(self, key: ArmId) -> ChangeEvent | None:
        """Give a decision up: ``default`` is learnt, if there is one and the arm still lives.

        From a list it is learnt if all of its arms live; the last of several changes is returned.
        """
        events = self._give_up(key)
        return events[-1] if events else None

    def _give_up(self, key: ArmId) -> list[ChangeEvent]:
        kept = self._kept(key)
        events: list[ChangeEvent] = []
        if self._default is not None and self._policy._table.slot_of.keys() >= set(kept.arms):
            if kept.listed:
                events = self._learn_list(kept, [self._default] * len(kept.arms))
            elif (event := self._learn(kept, self._default)) is not None:
                events = [event]
        del self._waiting[key]
        return events

    def forget(self, key: ArmId) -> None:
        """Remove a decision and learn nothing from it."""
        self._kept(key)
        del self._waiting[key]

    def expire(self, before: float | None = None) -> list[ChangeEvent]:
        """Give up the decisions made before a time, or all; the changes that this revealed."""
        limit = np.inf if before is None else checks.real("before", before)
        old = [key for key, kept in self._waiting.items() if kept.at < limit]
        return [event for key in old for event in self._give_up(key)]

    def _kept(self, key: ArmId, *, listed: bool | None = None) -> _Waiting:
        kept = self._waiting.get(check_id(key))
        if kept is None:
            raise InvalidInputError(
                f"key must be of a decision that waits for its reward, got {key!r}: it was never "
                "chosen, has its reward already, or was given up."
            )
        if listed is not None and listed != kept.listed:
            method, of = ("reward", "one arm") if listed else ("reward_list", "a list")
            raise InvalidInputError(
                f"key must be of {'a list' if listed else 'one arm'}, got {key!r}, which is of "
                f"{of}: use {method}."
            )
        return kept

    def _learn(self, kept: _Waiting, reward: float) -> ChangeEvent | None:
        x = kept.x if len(kept.x) else None
        return self._policy.update(
            kept.arms[0], x, reward, cross=kept.cross if len(kept.cross) else None
        )

    def _learn_list(self, kept: _Waiting, rewards: npt.ArrayLike) -> list[ChangeEvent]:
        return self._policy.update_list(
            kept.arms,
            kept.x if kept.x.size else None,
            rewards,
            feedback=self._feedback,
            examine=self._examine,
            cross=kept.cross if kept.cross.size else None,
        )

    # -- saving ---------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The policy and the decisions that wait, as one sealed byte string (docs/state.md)."""
        all_kept = self._waiting.values()
        header = {
            "class": state_file.DELAYED,
            "capacity": self._capacity,
            "default": self._default,
            "feedback": self._feedback,
            "examine": None if self._examine is None else self._examine.tolist(),
            "keys": [state_file.encode_id(key) for key in self._waiting],
            "arms": [_encoded(kept) for kept in all_kept],
        }
        numbers = [n.reshape(-1) for w in all_kept for n in w[1:3]]
        arrays: dict[str, npt.NDArray[Any]] = {
            "policy": np.frombuffer(self._policy.to_bytes(), np.uint8),
            "at": np.array([kept.at for kept in all_kept], np.float64),
            "sizes": np.array([[w.x.size, w.cross.size] for w in all_kept], np.int64),
            "numbers": np.concatenate([np.zeros(0), *numbers]),
        }
        return state_file.pack(header, arrays)

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str = "data") -> Delayed[Policy]:
        """What ``to_bytes`` sealed."""
        header, arrays = state_file.unpack(data, source, delayed=True)
        if header["class"] != state_file.DELAYED:
            raise StateFileError(
                f"{source} must hold decisions that wait, got {header['class']!r}."
            )
        policy = registry.from_bytes(arrays["policy"].tobytes(), source=source)
        lists = {name: header[name] for name in ("feedback", "examine") if name in header}
        try:
            made = Delayed(policy, capacity=header["capacity"], default=header["default"], **lists)
            ends = np.cumsum(arrays["sizes"].reshape(-1))
            pieces = np.split(arrays["numbers"], ends[:-1]) if len(ends) else []
            for i, (key, arms) in enumerate(zip(header["keys"], header["arms"], strict=True)):
                x, cross = pieces[2 * i], pieces[2 * i + 1]
                kept = _decoded(arms, x, cross, float(arrays["at"][i]), policy.n_features)
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


def _encoded(kept: _Waiting) -> list[Any]:
    """The arm of a decision, or those of a list, for JSON."""
    ids = [state_file.encode_id(arm) for arm in kept.arms]
    return ["list", ids] if kept.listed else ids[0]


def _decoded(coded: list[Any], x: F64, cross: F64, at: float, d: int | None) -> _Waiting:
    """What waits, as a file has it; ``ValueError`` if its numbers do not fit."""
    listed = coded[0] == "list"
    arms = [state_file.decode_id(arm) for arm in (coded[1] if listed else [coded])]
    n = len(arms)
    if not n or len(x) not in {d or len(x), n * (d or 0)} or len(cross) % n:
        raise ValueError(f"contexts must have {d} numbers")
    if d and len(x) > d:
        x = x.reshape(n, d)
    return _Waiting(arms, x, cross.reshape(n, -1) if listed else cross, at, listed)
