"""``Policy``: ids, checks, events, save and load. A subclass adds the arithmetic of one method.

A subclass names its arrays (one row a slot) in ``_rows`` and fills two hooks: ``_score`` writes
score, mean and width of each candidate into ``_out`` and returns the best one's place;
``_observe`` takes one reward and says whether a change was detected. See CONTRIBUTING.md.
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.arms import ArmTable
from whim.errors import InvalidInputError, StateFileError
from whim.policies import state
from whim.types import F64, I64, ArmId, ChangeEvent, Decision

__all__ = ["CHANGED", "GROW", "NOT_FINITE", "QUIET", "Policy"]

QUIET, CHANGED, GROW, NOT_FINITE = range(4)
_F64 = np.dtype(np.float64)
_LARGEST = checks.LARGEST


class Policy(ABC):
    """The contract that every policy keeps.

    Parameters
    ----------
    params
        Every constructor parameter as given: what ``repr`` shows and ``save`` stores.
    n_features
        Length d of a context; ``None`` when the policy ignores contexts.
    n_item_features
        Length m of an arm's features; 0 when the policy takes none.
    n_cross
        Length k of a cross-feature row that a caller may pass; 0 when it may not.
    seed
        Of the policy's own random stream.
    ties
        ``"first"``: equal scores go to the arm first in the candidate list. ``"random"``: drawn.
    """

    name: ClassVar[str] = ""
    _draws: ClassVar[bool] = False

    def __init__(
        self,
        params: dict[str, Any],
        *,
        n_features: int | None,
        n_item_features: int = 0,
        n_cross: int = 0,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        self._params = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in params.items()
            if name not in ("self", "__class__")
        }
        self._random_ties = checks.choice("ties", ties, ("first", "random")) == "random"
        self._rng = np.random.Generator(np.random.PCG64(checks.integer("seed", seed, 0)))
        self._d = n_features
        self._shape = None if n_features is None else (n_features,)
        self._m = n_item_features
        self._k = n_cross
        self._builds_cross = n_item_features > 0 or n_cross == 0
        self._table = ArmTable()
        self._step = 0
        self._capacity = 0
        self._priors: dict[str, npt.NDArray[Any]] = {}
        self._plays: list[int] = []
        self._live: I64 = self._table.live
        self._features: F64 = np.zeros((0, self._m))
        self._out: F64 = np.zeros((0, 3))
        self._rows({"_features": np.zeros(self._m)})

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self._params.items())
        return f"{type(self).__name__}({shown})"

    # -- what a subclass fills in ---------------------------------------------------------------

    @abstractmethod
    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        """Fill ``_out[:n]``; the best candidate's place, or -1 if the context is not finite."""

    @abstractmethod
    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        """Learn one reward; QUIET, CHANGED, or (nothing touched) GROW or NOT_FINITE."""

    def _observe_many(
        self, start: int, slots: I64, X: F64, cross: F64 | None, rewards: F64
    ) -> tuple[int, int]:
        """Learn in order from ``start``; stop after a change or before GROW."""
        for i in range(start, len(slots)):
            row = None if cross is None else cross[i]
            status = self._observe(int(slots[i]), X[i], row, float(rewards[i]))
            if status == GROW:
                return i, GROW
            if status == CHANGED:
                return i + 1, CHANGED
        return len(slots), QUIET

    def _event(self, slot: int) -> ChangeEvent:
        """Describe the change that ``_observe`` has just reported."""
        raise NotImplementedError

    def _noise(self, rng: np.random.Generator, n: int) -> F64 | None:
        """The random numbers that one decision among ``n`` candidates uses; none by default."""
        return None

    def _grow_pool(self) -> None:
        """Make room after GROW."""
        raise NotImplementedError

    def _forget(self, slots: list[int], gone: bool) -> None:
        """Return slots to the state of a new arm; ``gone`` when the arm is being retired."""
        for name, prior in self._priors.items():
            if name != "_features" or gone:
                getattr(self, name)[slots] = prior
        if gone:
            for slot in slots:
                self._plays[slot] = 0

    def _shared(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays and numbers of the state that are not rows of slots, for saving."""
        return {}

    def _restore_shared(self, arrays: dict[str, npt.NDArray[Any]]) -> None:  # noqa: B027
        """Take back what ``_shared`` gave."""

    # -- arms -----------------------------------------------------------------------------------

    def _rows(self, priors: dict[str, npt.NDArray[Any]]) -> None:
        """Declare arrays with one row a slot: attribute name and the row of a new arm."""
        self._priors.update(priors)
        for name, prior in priors.items():
            setattr(self, name, np.zeros((self._capacity, *prior.shape), prior.dtype))

    def _reserve(self, slots: int) -> None:
        if slots <= self._capacity:
            return
        half_more = self._capacity + max(8, self._capacity // 2)
        capacity = max(slots, half_more) if self._capacity else slots
        for name, prior in self._priors.items():
            old = getattr(self, name)
            new = np.zeros((capacity, *prior.shape), prior.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
        self._capacity = capacity
        self._out = np.zeros((capacity, 3))
        self._plays += [0] * (capacity - len(self._plays))

    @property
    def arms(self) -> list[ArmId]:
        """The live arms, in the order in which they were added."""
        return list(self._table.slot_of)

    @property
    def step(self) -> int:
        """Updates seen so far."""
        return self._step

    @property
    def n_features(self) -> int | None:
        """Length of a context; ``None`` when the policy ignores contexts."""
        return self._d

    @property
    def n_item_features(self) -> int:
        """Length of an arm's features; 0 when the policy takes none."""
        return self._m

    @property
    def n_cross_features(self) -> int:
        """Length of a row of cross features that a caller may pass; 0 when it may not."""
        return self._k

    @property
    def randomised(self) -> bool:
        """Whether a decision draws from the policy's random stream (beyond ties)."""
        return self._draws

    @property
    def params(self) -> dict[str, Any]:
        """The constructor's parameters."""
        return dict(self._params)

    def plays(self, arm: ArmId) -> int:
        """Updates of one arm since it was added."""
        return self._plays[self._table.slot(arm)]

    def add_arms(self, arms: Iterable[ArmId], features: npt.ArrayLike | None = None) -> list[ArmId]:
        """Add arms; those that are live already are left as they are.

        Parameters
        ----------
        arms
            Ids: any hashable but bool and None.
        features
            One row an id (hybrid and uniform payoffs). A live arm keeps the features it has:
            ``set_features`` replaces them.

        Returns
        -------
        list
            The ids that are new.
        """
        ids = self._id_list(arms, "arms")
        Y = self._item_features(ids, features)
        missing = self._table.missing(ids)
        self._reserve(len(self._table.id_of) + len(missing))
        slots = [slot for _, slot in self._table.add(missing)]
        for name, prior in self._priors.items():
            getattr(self, name)[slots] = prior
        if Y is not None and missing:
            first = {arm: i for i, arm in reversed(list(enumerate(ids)))}
            self._features[slots] = Y[[first[arm] for arm in missing]]
        self._live = self._table.live
        return missing

    def retire_arms(self, arms: Iterable[ArmId]) -> None:
        """Remove arms and what was learnt of them alone; added again, they start afresh."""
        slots = self._table.slots(list(dict.fromkeys(self._id_list(arms, "arms")))).tolist()
        self._forget(slots, gone=True)
        self._table.retire([self._table.id_of[s] for s in slots])
        self._live = self._table.live

    def reset_arms(self, arms: Iterable[ArmId] | None = None) -> None:
        """Forget what was learnt of these arms (all by default), as if they were new.

        For a change that the caller knows of. A policy with one model for all arms forgets it
        whole.
        """
        ids = self.arms if arms is None else self._id_list(arms, "arms")
        slots = self._table.slots(list(dict.fromkeys(ids))).tolist()
        if slots:
            self._forget(slots, gone=False)

    def set_features(self, arms: Iterable[ArmId], features: npt.ArrayLike) -> None:
        """Replace the item features of live arms."""
        ids = self._id_list(arms, "arms")
        slots = self._table.slots(ids)
        Y = self._item_features(ids, features)
        if Y is not None:
            self._features[slots] = Y

    def _item_features(self, ids: list[ArmId], features: npt.ArrayLike | None) -> F64 | None:
        if self._m == 0:
            if features is not None:
                raise InvalidInputError(
                    f"features must be None: {type(self).__name__} takes no item features."
                )
            return None
        if features is None:
            if not self._table.missing(ids):
                return None
            raise InvalidInputError(
                f"features must be given: {type(self).__name__} needs {self._m} item features "
                "for each new arm, got None."
            )
        return checks.matrix("features", features, len(ids), self._m)

    @staticmethod
    def _id_list(arms: Iterable[ArmId], name: str) -> list[ArmId]:
        if isinstance(arms, (str, bytes)) or not isinstance(arms, Iterable):
            raise InvalidInputError(f"{name} must be a list of arm ids, got {arms!r}.")
        if isinstance(arms, np.ndarray):
            return cast("list[ArmId]", arms.tolist())
        return list(arms)

    # -- decisions ------------------------------------------------------------------------------

    def _candidates(self, arms: Iterable[ArmId] | None) -> I64:
        if arms is None:
            slots = self._table.live
            if not len(slots):
                raise InvalidInputError("arms must hold at least one arm: none has been added.")
            return slots
        ids = arms if arms.__class__ is list else self._id_list(arms, "arms")
        ids = cast("list[ArmId]", ids)
        if not ids:
            raise InvalidInputError("arms must hold at least one candidate, got none.")
        slots = self._table.slots(ids)
        if len(set(ids)) != len(ids):
            twice = next(a for i, a in enumerate(ids) if a in ids[:i])
            raise InvalidInputError(f"arms must not repeat, got {twice!r} twice.")
        return slots

    def _context(self, x: npt.ArrayLike | None) -> F64:
        """A vector that the kernel can take; whether it is finite is the kernel's own check."""
        if self._shape is None:
            return _NOTHING if x is None else checks.vector("x", x, None)
        if (
            isinstance(x, np.ndarray)
            and x.dtype is _F64
            and x.shape == self._shape
            and x.flags.carray
        ):
            return x
        return checks.vector("x", x, self._d)

    def _crossed(self, cross: npt.ArrayLike | None, rows: int) -> F64 | None:
        if cross is None:
            if self._k and not self._m:
                raise InvalidInputError(
                    f"cross must be given: {type(self).__name__} was made without item features."
                )
            return None
        if not self._k:
            raise InvalidInputError(
                f"cross must be None: {type(self).__name__} takes no cross features."
            )
        return checks.matrix("cross", cross, rows, self._k)

    def _evaluate(self, x: F64, slots: I64, cross: F64 | None, peek: bool) -> int:
        rng = copy.deepcopy(self._rng) if peek and self._draws else self._rng
        noise = self._noise(rng, len(slots)) if self._draws else None
        best = self._score(x, slots, cross, noise)
        if best < 0:
            checks.vector("x", x, self._d)
        return best

    def select(
        self,
        x: npt.ArrayLike | None = None,
        arms: Iterable[ArmId] | None = None,
        *,
        cross: npt.ArrayLike | None = None,
    ) -> Decision:
        """Choose an arm for a context.

        Parameters
        ----------
        x
            The context, a vector of length ``n_features``.
        arms
            The candidates; every live arm by default.
        cross
            One row of cross features a candidate, instead of those made from item features.
        """
        slots = self._live if arms is None and self._live.size else self._candidates(arms)
        context = self._context(x)
        z = None if cross is None and self._builds_cross else self._crossed(cross, len(slots))
        if self._draws:
            checks.vector("x", context, self._d)  # before the random stream moves on
            best = self._evaluate(context, slots, z, peek=False)
        else:
            best = self._score(context, slots, z, None)
            if best < 0:
                checks.vector("x", context, self._d)
        if self._random_ties:
            column = self._out[: len(slots), 0]
            equal = np.flatnonzero(column == column[best])
            if len(equal) > 1:
                best = int(equal[self._rng.integers(len(equal))])
        score, mean, width = self._out[best].tolist()
        # tuple.__new__: half the cost of the NamedTuple's own constructor
        return tuple.__new__(Decision, (self._table.id_of[slots.item(best)], score, mean, width))

    def scores(
        self,
        x: npt.ArrayLike | None = None,
        arms: Iterable[ArmId] | None = None,
        *,
        cross: npt.ArrayLike | None = None,
    ) -> F64:
        """What ``select`` would order the candidates by, in their order; changes nothing."""
        slots = self._candidates(arms)
        self._evaluate(self._context(x), slots, self._crossed(cross, len(slots)), True)
        return self._out[: len(slots), 0].copy()

    def rank(
        self,
        x: npt.ArrayLike | None = None,
        arms: Iterable[ArmId] | None = None,
        k: int | None = None,
        *,
        cross: npt.ArrayLike | None = None,
    ) -> list[Decision]:
        """The best ``k`` candidates (all by default), best first; changes nothing.

        Equal scores keep the order of the candidate list.
        """
        slots = self._candidates(arms)
        if k is not None:
            checks.integer("k", k, 1)
        self._evaluate(self._context(x), slots, self._crossed(cross, len(slots)), True)
        out = self._out[: len(slots)]
        order = np.argsort(-out[:, 0], kind="stable")[:k]
        ids = self._table.id_of
        return [Decision(ids[slots[i]], *out[i].tolist()) for i in order.tolist()]

    def scores_many(self, X: npt.ArrayLike, arms: Iterable[ArmId] | None = None) -> F64:
        """Scores of many contexts: (n, K) for the candidates, in ``policy.arms`` order by default.

        Row i is what ``scores(X[i])`` gives (to rounding); changes nothing.
        """
        slots = self._candidates(arms)
        contexts = checks.matrix("X", X, None, self._d)
        return self._score_many(contexts, slots)

    def _score_many(self, X: F64, slots: I64) -> F64:
        self._crossed(None, len(slots))
        result = np.empty((len(X), len(slots)))
        rng = copy.deepcopy(self._rng) if self._draws else self._rng
        for i, x in enumerate(X):
            self._score(x, slots, None, self._noise(rng, len(slots)))
            result[i] = self._out[: len(slots), 0]
        return result

    # -- rewards --------------------------------------------------------------------------------

    def update(
        self,
        arm: ArmId,
        x: npt.ArrayLike | None,
        reward: float,
        *,
        cross: npt.ArrayLike | None = None,
    ) -> ChangeEvent | None:
        """Learn the reward of one play; the change that it revealed, if any.

        Parameters
        ----------
        arm
            The arm that was played.
        x
            The context in which it was played.
        reward
            A finite number (a bool counts as 0 or 1).
        cross
            The played arm's row, if ``select`` was given cross features.
        """
        slot = self._table.slot_of.get(arm)
        if slot is None or arm.__class__ is bool:
            slot = self._table.slot(arm)
        context = self._context(x)
        if reward.__class__ is not float or not -_LARGEST <= reward <= _LARGEST:
            reward = checks.real("reward", reward)
        z = None if cross is None and self._builds_cross else self._cross_row(cross)
        status = self._observe(slot, context, z, reward)
        if status == GROW:
            self._grow_pool()
            status = self._observe(slot, context, z, reward)
        if status == NOT_FINITE:
            checks.vector("x", context, self._d)
        self._step += 1
        self._plays[slot] += 1
        return self._event(slot) if status == CHANGED else None

    def _cross_row(self, cross: npt.ArrayLike | None) -> F64 | None:
        row = None if cross is None else checks.vector("cross", cross, self._k or None)[None]
        z = self._crossed(row, 1)
        return None if z is None else z[0]

    def update_many(
        self,
        arms: Sequence[ArmId],
        X: npt.ArrayLike | None,
        rewards: npt.ArrayLike,
        *,
        cross: npt.ArrayLike | None = None,
    ) -> list[ChangeEvent]:
        """Learn many plays in order: the same as a loop of ``update``, much faster.

        All input is checked before anything is learnt.
        """
        return self._learn_many(*self._check_many(arms, X, rewards, cross))

    def _check_many(
        self,
        arms: Sequence[ArmId],
        X: npt.ArrayLike | None,
        rewards: npt.ArrayLike,
        cross: npt.ArrayLike | None,
    ) -> tuple[I64, F64, F64, F64 | None]:
        ids = self._id_list(arms, "arms")
        slots = self._table.slots(ids)
        n = len(ids)
        if X is None and self._shape is None:
            contexts = np.zeros((n, 0))
        else:
            contexts = checks.matrix("X", X, n, self._d)
        r = np.asarray(rewards)
        r = checks.vector("rewards", r.astype(np.float64) if r.dtype == bool else r, n)
        return slots, contexts, r, self._crossed(cross, n)

    def _learn_many(self, slots: I64, X: F64, r: F64, z: F64 | None) -> list[ChangeEvent]:
        events: list[ChangeEvent] = []
        at, n = 0, len(slots)
        while at < n:
            stop, status = self._observe_many(at, slots, X, z, r)
            for slot, more in enumerate(np.bincount(slots[at:stop]).tolist()):
                self._plays[slot] += more
            self._step += stop - at
            at = stop
            if status == CHANGED:
                events.append(self._event(int(slots[at - 1])))
            elif status == GROW:
                self._grow_pool()
        return events

    # -- saving ---------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The whole state as one sealed byte string (docs/state.md)."""
        used = len(self._table.id_of)
        header = {
            "class": self.name or type(self).__name__,
            "params": self._saved_params(),
            "step": self._step,
            "arms": [state.encode_id(a) for a in self._table.slot_of],
            "slots": list(self._table.slot_of.values()),
            "rng": self._rng.bit_generator.state,
        }
        arrays = {name: getattr(self, name)[:used] for name in self._priors}
        arrays["+plays"] = np.array(self._plays[:used], np.int64)
        return state.pack(header, arrays | {f"*{k}": v for k, v in self._shared().items()})

    def _saved_params(self) -> dict[str, Any]:
        return self._params

    @classmethod
    def _from_params(cls, params: dict[str, Any]) -> Self:
        return cls(**params)

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str = "data") -> Self:
        """The policy that ``to_bytes`` sealed; its next decisions are the same to the last bit."""
        header, arrays = state.unpack(data, source)
        if header["class"] != (cls.name or cls.__name__):
            raise StateFileError(
                f"{source} must hold a {cls.name or cls.__name__}, got {header['class']!r}."
            )
        policy = cls._from_params(header["params"])
        ids = [state.decode_id(a) for a in header["arms"]]
        rows = len(arrays["+plays"])
        policy._table.restore(ids, header["slots"], rows)
        policy._reserve(rows)
        for name in policy._priors:
            getattr(policy, name)[:rows] = arrays[name]
        policy._restore_shared({k[1:]: v for k, v in arrays.items() if k[0] == "*"})
        policy._plays[:rows] = arrays["+plays"].tolist()
        policy._live = policy._table.live
        policy._step = header["step"]
        policy._rng.bit_generator.state = header["rng"]
        return policy

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, whole or not at all."""
        state.write_atomic(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a policy of this class from a file; ``whim.load`` reads one of any class."""
        return cls.from_bytes(Path(path).read_bytes(), source=str(path))


_NOTHING: F64 = np.zeros(0)
