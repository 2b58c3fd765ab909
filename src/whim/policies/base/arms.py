"""``ArmArrays``: a policy's arms and arrays: adding, retiring, growing, saving and loading.

Every array of a policy either has one row per slot (``_rows``) or is kept whole (``_keep``); what
is declared so is reset, grown and saved without further code. ``Policy`` adds the decisions.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.arms import ArmTable, check_id
from whim.errors import InvalidInputError, StateFileError
from whim.files import write_atomic
from whim.kernels.jit import FastCall
from whim.policies.base import state_file
from whim.policies.base.naming import Naming
from whim.types import F64, I64, ArmId


class ArmArrays(Naming):
    """Arms with a slot each, and the arrays that belong to them.

    Parameters
    ----------
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
    restarts_all: ClassVar[bool] = False  # whether what it reports and restarts is all arms

    _written = 0  # rows up to which spare ones hold the prior already
    # held by reads from the moment they fill ``_out`` until they have taken their numbers from it
    _lock: threading.RLock
    # the state as kernels take it, and the kernels of live calls, until an array is replaced
    _bound: Any = None
    _choose_kernel: FastCall | None = None
    _observe_kernel: FastCall | None = None

    def __new__(cls, *args: Any, **params: Any) -> Self:
        policy = super().__new__(cls, *args, **params)
        policy._lock = threading.RLock()
        return policy

    def __init__(
        self,
        *,
        n_features: int | None,
        n_item_features: int = 0,
        n_cross: int = 0,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
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
        self._kept: list[str] = []
        self._live: I64
        self._everyone: I64 | None  # the same, or None where there is no arm
        self._relist()
        self._features: F64 = np.zeros((0, self._m))
        self._out: F64 = np.zeros((0, 3))
        self._room: F64 = np.zeros((0, 3))  # the same for ``select``, which holds no lock
        self._rows({"_features": np.zeros(self._m)})

    # -- arrays ---------------------------------------------------------------------------------

    def _rows(self, priors: dict[str, npt.NDArray[Any]]) -> None:
        """Declare arrays with one row per slot: attribute name and the row of a new arm."""
        self._priors.update(priors)
        for name, prior in priors.items():
            setattr(self, name, np.zeros((self._capacity, *prior.shape), prior.dtype))
        self._unbind()

    def _unbind(self) -> None:
        """To be called when an array or a number of the state is replaced."""
        self._bound = self._choose_kernel = self._observe_kernel = None

    def __getstate__(self) -> dict[str, Any]:
        # copies bind their own arrays; machine code cannot be sent to another process, nor a lock
        rest = {name: value for name, value in vars(self).items() if name != "_lock"}
        return rest | {"_bound": None, "_choose_kernel": None, "_observe_kernel": None}

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
        self._capacity, self._written = capacity, 0
        self._unbind()
        self._out, self._room = np.zeros((capacity, 3)), np.zeros((capacity, 3))
        self._plays += [0] * (capacity - len(self._plays))

    def _keep(self, **arrays: npt.NDArray[Any]) -> None:
        """Declare arrays that are not rows of slots: attributes, saved whole."""
        self._kept += [name for name in arrays if name not in self._kept]
        self._unbind()
        for name, array in arrays.items():
            setattr(self, name, array)

    def _forget(self, slots: list[int], gone: bool) -> None:
        """Return slots to the state of a new arm; ``gone`` when the arm is being retired."""
        for name, prior in self._priors.items():
            if name != "_features" or gone:
                getattr(self, name)[slots] = prior
        if gone:
            for slot in slots:
                self._plays[slot] = 0

    # -- arms -----------------------------------------------------------------------------------

    @property
    def arms(self) -> list[ArmId]:
        """The live arms, in the order in which they were added."""
        return list(self._table.slot_of)

    def make_room(self, arms: int, seconds: float = 0.0) -> bool:
        """Grow arrays for so many more arms, then get their memory, for so long; False: go on."""
        until, used = time.perf_counter() + seconds, len(self._table.id_of)
        self._reserve(used + arms)
        for row in range(max(used, self._written), used + arms):
            for name, prior in self._priors.items():
                getattr(self, name)[row] = prior
            self._written = row + 1
            if time.perf_counter() > until:
                break
        return self._written >= used + arms

    @property
    def arm_bytes(self) -> int:
        """Bytes of memory that the rows of one arm take."""
        return max(1, sum(prior.nbytes for prior in self._priors.values()))

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
    def evens_out(self) -> bool:
        """Whether equal scores go to the arm with the fewest plays, as where arms share a model."""
        return False

    def plays(self, arm: ArmId) -> int:
        """Updates of one arm since it was added."""
        return self._plays[self._table.slot(arm)]

    def add_arms(self, arms: Iterable[ArmId], features: npt.ArrayLike | None = None) -> list[ArmId]:
        """Add arms and return the ids that are new; live ones are left as they are.

        Parameters
        ----------
        arms
            Ids: any hashable but bool and None.
        features
            One row per id (hybrid and uniform payoffs). A live arm keeps the features it has:
            ``set_features`` replaces them.
        """
        ids = self._id_list(arms, "arms")
        Y = self._item_features(ids, features)
        missing = self._table.missing(ids)
        self._reserve((used := len(self._table.id_of)) + len(missing))
        slots = [slot for _, slot in self._table.add(missing)]
        bare = [slot for slot in slots if not used <= slot < self._written]
        for name, prior in self._priors.items():
            getattr(self, name)[bare] = prior
        if Y is not None and missing:
            first = {arm: i for i, arm in reversed(list(enumerate(ids)))}
            self._features[slots] = Y[[first[arm] for arm in missing]]
        self._relist()
        return missing

    def _relist(self) -> None:
        # the table's own, near at hand for live calls
        self._slot_of, self._id_of = self._table.slot_of, self._table.id_of
        # candidates of the last call and their slots; one attribute, so that threads see a pair
        self._recent: tuple[list[ArmId], I64] = [], np.zeros(0, np.int64)
        self._list(self._table.live)

    def _list(self, live: I64) -> None:
        """Take these slots for those of all arms."""
        self._unbind()
        self._live = live
        self._everyone = live if len(live) else None

    def retire_arms(self, arms: Iterable[ArmId]) -> None:
        """Remove arms and what was learnt of them alone; added again, they start afresh."""
        ids = dict.fromkeys(check_id(arm) for arm in self._id_list(arms, "arms"))
        slots = self._table.slots(list(ids)).tolist()
        self._forget(slots, gone=True)
        self._table.retire([self._table.id_of[s] for s in slots])
        self._relist()

    def reset_arms(self, arms: Iterable[ArmId] | None = None) -> None:
        """Forget what was learnt of these arms (all by default), as if they were new.

        For a change that the caller knows of. A policy with one model for all arms forgets it
        whole. A hybrid policy keeps β and, in it, what these arms have taught about all.
        """
        ids = self.arms if arms is None else self._id_list(arms, "arms")
        slots = self._table.slots(list(dict.fromkeys(map(check_id, ids)))).tolist()
        if slots:
            self._forget(slots, gone=False)

    def set_features(self, arms: Iterable[ArmId], features: npt.ArrayLike) -> None:
        """Replace the item features of live arms."""
        ids = self._id_list(arms, "arms")
        slots = self._table.slots(ids)
        if self._m == 0 or features is None:
            needs = "takes no item features" if self._m == 0 else f"needs {self._m} per arm"
            raise InvalidInputError(
                f"features must fit: {type(self).__name__} {needs}, got {features!r}."
            )
        self._refeature(slots, self._item_rows(ids, features))

    def _refeature(self, slots: I64, features: F64) -> None:
        """Replace the item features of slots, and what depends on them."""
        self._features[slots] = features

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
        return self._item_rows(ids, features)

    def _item_rows(self, ids: list[ArmId], features: Any) -> F64:
        rows = self._table_by_name("features", features, self._item_encoding, self._m)
        return checks.matrix("features", rows, len(ids), self._m)

    @staticmethod
    def _id_list(arms: Iterable[ArmId], name: str) -> list[ArmId]:
        if isinstance(arms, (str, bytes)) or not isinstance(arms, Iterable):
            raise InvalidInputError(f"{name} must be a list of arm ids, got {arms!r}.")
        if isinstance(arms, np.ndarray):
            return cast("list[ArmId]", arms.tolist())
        return list(arms)

    # -- saving ---------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The whole state as one sealed byte string (docs/state.md)."""
        used = len(self._table.id_of)
        header = {
            "class": self.name or type(self).__name__,
            "params": {name: state_file.encode_value(v) for name, v in self._params.items()},
            "step": self._step,
            "arms": [state_file.encode_id(a) for a in self._table.slot_of],
            "slots": list(self._table.slot_of.values()),
            "rng": self._rng.bit_generator.state,
            **self._features_to_header(),
        }
        arrays = {name[1:]: getattr(self, name)[:used] for name in self._priors}
        arrays |= {name[1:]: getattr(self, name) for name in self._kept}
        arrays = self._to_file(arrays)
        return state_file.pack(header, arrays | {"plays": np.array(self._plays[:used], np.int64)})

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str = "data") -> Self:
        """The policy that ``to_bytes`` sealed; its next decisions are the same to the last bit."""
        header, arrays = state_file.unpack(data, source)
        if header["class"] != (cls.name or cls.__name__):
            raise StateFileError(
                f"{source} must hold a {cls.name or cls.__name__}, got {header['class']!r}."
            )
        try:
            return cls._restored(header, arrays)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StateFileError(
                f"{source} must hold a whole {cls.__name__}: {error!r}."
            ) from error

    @classmethod
    def _restored(cls, header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Self:
        policy = cls(**{k: state_file.decode_value(v) for k, v in header["params"].items()})
        ids, slots = [state_file.decode_id(a) for a in header["arms"]], header["slots"]
        rows = len(arrays["plays"])
        if len(set(slots)) != len(ids) or not all(0 <= s < rows for s in slots):
            raise ValueError(f"slots must be one per live arm and below {rows}, got {slots}")
        policy._table.restore(ids, slots, rows)
        policy._reserve(rows)
        arrays = policy._from_file(arrays)
        for name, prior in policy._priors.items():
            state_file.must_fit(name, arrays[name[1:]], (rows, *prior.shape), prior.dtype)
            getattr(policy, name)[:rows] = arrays[name[1:]]
        for name in policy._kept:
            state_file.must_fit(name, arrays[name[1:]], None, getattr(policy, name).dtype)
        policy._keep(**{name: arrays[name[1:]] for name in policy._kept})
        policy._verify()
        policy._plays[:rows] = arrays["plays"].tolist()
        policy._relist()
        policy._step = header["step"]
        policy._rng.bit_generator.state = header["rng"]
        policy._features_from_header(header)
        return policy

    def _to_file(self, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The arrays by name as a file keeps them, where kernels want them otherwise."""
        return arrays

    def _from_file(self, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The arrays of a file by name as the kernels want them; ValueError if they do not fit."""
        return arrays

    def _verify(self) -> None:
        """Refuse, with ``ValueError``, loaded arrays whose numbers would lead a kernel astray."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, whole or not at all."""
        write_atomic(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a policy of this class from a file; ``whim.load`` reads one of any class."""
        return cls.from_bytes(Path(path).read_bytes(), source=str(path))
