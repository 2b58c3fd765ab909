"""``PSLinUCBGroups``: very many arms, one model per group, and arms that leave theirs."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.arms import check_id
from whim.detectors import ScoreTest
from whim.errors import InvalidInputError
from whim.kernels.detection import windows
from whim.kernels.detection.contrast import Contrast
from whim.kernels.linalg import batch, udu
from whim.kernels.models import disjoint, groups
from whim.policies.base import clusters, state_file
from whim.policies.base.detecting import score_state
from whim.policies.base.model_rows import ModelRows
from whim.types import F64, I64, ArmId, ChangeEvent

_UNKNOWN: I64 = np.zeros(0, np.int64)


class PSLinUCBGroups(ModelRows):
    """PSLinUCB for very many arms: the arms of a group share one model until one differs.

    A decision scores each model that has a candidate, and takes the candidate of the best that
    was played least. A reward teaches the group. Two score tests watch it: whether the group's
    θ has changed, which restarts the group, and whether the arm's own plays have a θ of their
    own. Such an arm leaves: from then on it has a model of its own, made of these plays, which
    the group forgets.

    Parameters
    ----------
    n_features
        Length d of a context.
    groups
        ``"given"``: ``add_arms`` is given the group of each arm. A number: so many groups are
        found by k-means in the item features of the arms that are added first, so add many at
        once; later arms join the nearest centre, or make the groups that those first were too
        few for. Needs scikit-learn.
    n_item_features
        Length m of an arm's features, scaled so that distances mean something; only for groups
        that are to be found.
    alpha
        α >= 0: how many widths of optimism.
    window
        Plays that are kept of each group, and of each arm that was played; see
        ``PSLinUCBDisjoint``.
    false_alarm
        Expected false alarms per play where nothing changes, shared by the two tests; see
        ``PSLinUCBDisjoint`` for which rewards it holds.
    ridge
        λ > 0; the paper's 1.
    seed, ties
        See ``Policy``; with ``ties="first"`` equal scores go to the arm played least, then to
        the first.

    Examples
    --------
    >>> policy = PSLinUCBGroups(n_features=1, groups="given")
    >>> policy.add_arms(["jazz 1", "jazz 2", "rock 1"], groups=["jazz", "jazz", "rock"])
    ['jazz 1', 'jazz 2', 'rock 1']
    >>> arms, rewards = ["jazz 1", "jazz 2"] * 20, [0.8, 0.9, 0.9, 0.8] * 10
    >>> policy.update_many(arms, [[1.0]] * 40, rewards)
    []
    >>> policy.coefficients("jazz 1") == policy.coefficients("jazz 2")
    array([ True])

    An arm that has become another leaves its group:

    >>> [event] = policy.update_many(["jazz 2"] * 8, [[1.0]] * 8, [0.1, 0.2] * 4)
    >>> event.arm, event.plays, event.began
    ('jazz 2', 26, 21)
    >>> policy.group("jazz 1"), policy.group("jazz 2")
    ('jazz', None)
    """

    name = "pslinucb-groups"
    _kernels = groups.GROUPS
    _home: I64
    _played: I64
    _group_rows: I64
    _labels: npt.NDArray[np.uint8]
    _centres: F64

    def __init__(
        self,
        *,
        n_features: int,
        groups: str | int,
        n_item_features: int | None = None,
        alpha: float = 1.0,
        window: int = 256,
        false_alarm: float = 1e-5,
        ridge: float = 1.0,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(
            n_features=checks.integer("n_features", n_features, 1),
            n_item_features=_item_features(groups, n_item_features),
            seed=seed,
            ties=ties,
        )
        d, m = n_features, self._m
        self._alpha = checks.number("alpha", alpha, least=0)
        self._ridge = checks.number("ridge", ridge, least=1e-30, most=1e30)
        self._test = ScoreTest(false_alarm, window)
        self._shared = ScoreTest(self._test.false_alarm / 2, window).bounds(d)
        self._wanted = None if groups == "given" else int(groups)
        self._names: dict[ArmId, int] = {}  # labels and the numbers of their groups
        self._open_rows(d, self._ridge)
        self._w = np.zeros(d)
        self._score_test = score_state(self._test, d, self._flat, self._report)
        self._rows({"_home": np.zeros((), np.int64)})
        self._keep(
            _group_rows=np.zeros(0, np.int64),
            _labels=np.zeros(0, np.uint8),
            _centres=np.zeros((0, m)),
        )

    # -- arms -----------------------------------------------------------------------------------

    def add_arms(
        self,
        arms: Iterable[ArmId],
        features: npt.ArrayLike | None = None,
        *,
        groups: Iterable[ArmId] | None = None,
    ) -> list[ArmId]:
        """Add arms, each to a group; those that are live already are left as they are.

        Parameters
        ----------
        arms
            Ids: any hashable but bool and None.
        features
            One row per id, where groups are to be found.
        groups
            One label per id, where groups are given: text, numbers, bytes or tuples of them.

        Returns
        -------
        list
            The ids that are new.
        """
        ids = self._id_list(arms, "arms")
        first = {arm: i for i, arm in reversed(list(enumerate(map(check_id, ids))))}
        new = [first[arm] for arm in self._table.missing(ids)]
        Y = self._item_features(ids, features)
        if self._wanted is None:
            homes = self._given(len(ids), groups, new)
        else:
            homes = self._nearest(Y, groups, new)
        added = super().add_arms(ids, features)
        slots = self._table.slots(added)
        self._home[slots] = homes
        self._model[slots] = self._group_rows[homes]
        self._live_rows = None
        self._unbind()
        return added

    def set_features(self, arms: Iterable[ArmId], features: npt.ArrayLike) -> None:
        """Replace the item features of live arms, which stay in the groups that they are in."""
        super().set_features(arms, features)

    def _settle_in(self, slots: I64, features: F64 | None) -> None:
        """In the nearest groups; one that is not made yet has learnt nothing, as a spare model."""
        super()._settle_in(slots, features)
        rows = np.append(self._group_rows, self._spare)
        self._model[slots] = self._spare
        if features is not None and len(slots):
            homes = clusters.nearest(features, self._found(features))
            self._model[slots] = rows[np.minimum(homes, len(rows) - 1)]

    def _leave(self, slots: I64) -> None:
        super()._leave(slots)
        self._model[slots] = self._priors["_model"]

    def _given(self, n: int, labels: Iterable[ArmId] | None, new: list[int]) -> I64:
        """The groups of new arms by label; labels never seen are groups never seen."""
        if labels is None:
            if new:
                raise InvalidInputError("groups must be given: one label for each new arm.")
            return _UNKNOWN
        names = [_label(label) for label in self._id_list(labels, "groups")]
        if len(names) != n:
            raise InvalidInputError(
                f"groups must be one label per arm, {n} in all, got {len(names)}."
            )
        wanted = [names[i] for i in new]
        for name in wanted:
            if name not in self._names:
                self._names[name] = self._new_group()
        text = json.dumps([state_file.encode_id(name) for name in self._names])
        self._labels = np.frombuffer(text.encode(), np.uint8)
        return np.array([self._names[name] for name in wanted], np.int64)

    def _nearest(self, Y: F64 | None, labels: Iterable[ArmId] | None, new: list[int]) -> I64:
        """The groups of new arms by their features; the first arms make the groups."""
        if labels is not None:
            raise InvalidInputError(f"groups must be None: {self!r} finds them itself.")
        if Y is None or not new:
            return _UNKNOWN
        found = self._found(Y[new])
        for _ in range(len(found) - len(self._centres)):
            self._new_group()
        self._centres = found
        return clusters.nearest(Y[new], found)

    def _found(self, fresh: F64) -> F64:
        """The centres of groups once these arms have come, if they are among the first."""
        more = (self._wanted or 1) - len(self._centres)
        if not more:
            return self._centres
        if len(self._centres):  # those that came first were too few
            known = (fresh[:, None] == self._centres).all(axis=2).any(axis=1)
            fresh = fresh[~known]
        return np.concatenate((self._centres, clusters.centres(fresh, more, self._params["seed"])))

    def _new_group(self) -> int:
        """A new group's number."""
        self._group_rows = np.append(self._group_rows, self._new_row())
        return len(self._group_rows) - 1

    def group(self, arm: ArmId) -> ArmId | None:
        """The label or number of an arm's group; ``None`` for an arm that has left it."""
        slot = self._table.slot(arm)
        left = self._kind[self._model[slot]] == groups.ONE
        return None if left else self._label_of(int(self._home[slot]))

    @property
    def left(self) -> list[ArmId]:
        """The live arms that have left their groups, in ``arms`` order."""
        gone = self._live[self._kind[self._model[self._live]] == groups.ONE]
        return [self._table.id_of[slot] for slot in gone.tolist()]

    def _label_of(self, number: int) -> ArmId:
        return number if self._wanted is not None else list(self._names)[number]

    def reset_arms(self, arms: Iterable[ArmId] | None = None) -> None:
        """Forget what was learnt of these arms (all by default), as if they were new.

        Those that had left are back in their groups. A group forgets what it has learnt when all
        its arms are reset; else it keeps it, and in it what these arms have taught.
        """
        super().reset_arms(arms)

    def _forget(self, slots: list[int], gone: bool) -> None:
        home, played = self._home[slots], self._played[slots]
        for slot in slots:
            windows.clear(windows.Windows(self._ends, self._pool, self._links), slot)
            if self._kind[self._model[slot]] == groups.ONE:
                self._free_row(int(self._model[slot]))
        super()._forget(slots, gone)
        if gone:
            return
        self._home[slots], self._played[slots] = home, played
        self._model[slots] = self._group_rows[home]
        self._live_rows = None
        self._unbind()
        others = self._live[~np.isin(self._live, slots)]
        for number in np.setdiff1d(home, self._home[others]).tolist():
            self._blank(int(self._group_rows[number]))

    def _verify(self) -> None:
        super()._verify()
        if self._wanted is None:
            coded = json.loads(self._labels.tobytes() or "[]")
            self._names = {state_file.decode_id(c): i for i, c in enumerate(coded)}
        rows, live = self._group_rows, self._table.live
        made = len(self._names) if self._wanted is None else len(self._centres)
        if self._centres.shape[1:] != (self._m,) or rows.shape != (made,):
            raise ValueError(f"group_rows must be one per group, got {rows.shape}")
        inside = ((rows >= 0) & (rows < len(self._kind))).all()
        if not inside or (self._kind[rows] != groups.SHARED).any():
            raise ValueError("group_rows must name models that arms share")
        home = self._home[live]
        if not ((home >= 0) & (home < made)).all():
            raise ValueError("home must name groups")

    # -- decisions ------------------------------------------------------------------------------

    @property
    def evens_out(self) -> bool:
        return not self._random_ties

    def _ranked(self, slots: I64) -> I64:
        if self._random_ties:
            return super()._ranked(slots)
        return np.lexsort((self._played[slots], -self._out[: len(slots), 0]))

    def _score_many(self, X: F64, slots: I64) -> F64:
        d = X.shape[1]
        rows, place = np.unique(self._model[slots], return_inverse=True)
        P = np.empty((len(rows), udu.packed_size(d)))
        batch.pack_rows(self._cum, rows, d, P)
        T = np.ascontiguousarray(self._cum[rows, P.shape[1] :])
        return batch.bounds(X, T, P, self._alpha)[:, place]

    # -- state and events -----------------------------------------------------------------------

    def _state(self) -> groups.State:
        return groups.State(
            model=disjoint.Ridge(self._cum, self._cum, self._alpha, self._ridge, self._w),
            windows=self._windows(),
            test=self._score_test._replace(flat=self._flat),
            shared=self._shared,
            contrast=Contrast(self._past, self._sums, self._side, self._totals),
            arms=groups.Arms(
                self._model, self._kind, self._played, self._ends, self._clock, self._spare
            ),
            among=groups.Among(self._live, self._all_rows(), self._mark, self._among, self._scores),
            copies=self._copies,
        )

    def _decides_at_once(self) -> bool:
        return not self._random_ties

    def _event(self, slot: int) -> ChangeEvent:
        if self._kind[self._spare] != groups.UNUSED:  # the arm that left has it
            self._taken()
        row = self._model[slot]
        shared = self._kind[row] == groups.SHARED
        plays = int(self._clock[row, groups.EVER]) if shared else self._plays[slot]
        group = self._label_of(int(self._home[slot])) if shared else None
        return self._scored_change(slot, self._d or 0, plays, group)


def _item_features(groups: object, n_item_features: object) -> int:
    """m, from how groups come about."""
    if groups == "given" and isinstance(groups, str):
        if n_item_features is not None:
            raise InvalidInputError(
                "n_item_features must be None where groups are given, since nothing looks at "
                f"them, got {n_item_features!r}."
            )
        return 0
    if isinstance(groups, (str, bool)) or not isinstance(groups, (int, np.integer)) or groups < 1:
        raise InvalidInputError(f"groups must be 'given' or an integer >= 1, got {groups!r}.")
    return checks.integer("n_item_features", n_item_features, 1)


def _label(label: object) -> ArmId:
    """A label in its plain form, one that can be saved."""
    try:
        name = check_id(label)
        state_file.encode_id(name)
    except InvalidInputError:
        raise InvalidInputError(
            f"groups must be labels of text, numbers, bytes or tuples of them, got {label!r}."
        ) from None
    return name
