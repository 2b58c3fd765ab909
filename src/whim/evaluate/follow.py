"""``Follower``: a policy that meets arms as a stream of events brings them.

Arms are added when they first appear, in the order of the pool; an arm that comes back with
other features has them replaced. Between two such events the stream runs in compiled loops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from whim.kernels.lists import ListBatch
from whim.kernels.loops import EventBatch
from whim.policies import OracleRestart, Policy
from whim.policies.run_events import Outcome, run_events
from whim.policies.run_lists import ListOutcome, run_lists
from whim.types import F64, I64, ArmId, ChangeEvent


class Follower:
    """Run a policy, without arms yet, over events whose pools hold items.

    An item is an arm with its features: ``item_arm`` says which arm each is, ``features`` has a row
    for each, used if the policy takes item features.
    """

    def __init__(self, policy: Policy, ids: Sequence[ArmId], item_arm: I64, features: F64) -> None:
        self.policy = policy
        self._ids = ids
        self._item_arm = item_arm
        self._features = features if policy.n_item_features else None
        inner = policy.policy if isinstance(policy, OracleRestart) else policy
        self._slot_of = inner._table.slot_of
        self._current = np.full(len(ids), -1)  # the item that an arm is at present
        self._slots = np.zeros(len(item_arm), np.int64)
        self._seen = np.zeros(len(item_arm), bool)
        # features that change matter only to a policy that looks at them
        self._changeable = self._features is not None and len(item_arm) > len(ids)

    def go(self, batch: EventBatch) -> Outcome:
        """Run over events in order; ``members`` holds items here."""
        chosen = np.empty(len(batch.X), np.int64)
        changes: list[tuple[int, ChangeEvent]] = []
        for cut, members in self._parts(batch):
            part = batch._replace(
                X=batch.X[cut], pool_of=batch.pool_of[cut], members=members,
                logged=batch.logged[cut], rewards=batch.rewards[cut],
            )  # fmt: skip
            followed = run_events(self.policy, part)
            chosen[cut] = followed.chosen
            changes += [(cut.start + i, event) for i, event in followed.changes]
        return Outcome(chosen, changes)

    def go_lists(self, batch: ListBatch, *, by_visits: bool = True) -> ListOutcome:
        """The same over visits that are shown lists.

        Steps of an ``OracleRestart`` count visits, unless ``by_visits`` is false: in a world it
        does not know how many items of a list will be learnt.
        """
        policy, inner, due = self.policy, self.policy, {}
        if by_visits and isinstance(policy, OracleRestart):
            inner, due = policy.policy, policy._due
        outcomes: list[ListOutcome] = []
        changes: list[tuple[int, ChangeEvent]] = []
        for cut, members in self._parts(batch, {step for step in due if step < len(batch.X)}):
            for arm in due.get(cut.start, ()) if cut.start else ():
                if arm is None or arm in self._slot_of:
                    inner.reset_arms(None if arm is None else [arm])
            part = batch._replace(
                X=batch.X[cut], pool_of=batch.pool_of[cut], members=members,
                rewards=batch.rewards[cut], seen=batch.seen[cut], examine=batch.examine[cut],
            )  # fmt: skip
            outcomes.append(run_lists(inner, part))
            changes += [(cut.start + i, event) for i, event in outcomes[-1].changes]
        chosen, rewards, learnt = (
            np.concatenate([outcome[i] for outcome in outcomes]) for i in range(3)
        )
        return ListOutcome(chosen, rewards, learnt, changes)

    def _parts(
        self, batch: EventBatch | ListBatch, more: Collection[int] = ()
    ) -> Iterator[tuple[slice, I64]]:
        """Stretches without a new arm, split before the events ``more`` too; members as slots."""
        starts = sorted({*self._starts(batch), *more})
        members = _Members(batch.members, self._slots, self._seen)
        for start, stop in zip(starts, [*starts[1:], len(batch.X)], strict=True):
            members.fill(self.meet(self._pool(batch, start)))
            yield slice(start, stop), members.slots

    def _starts(self, batch: EventBatch | ListBatch) -> list[int]:
        """Events before which an arm must be added or its features replaced; 0 first."""
        switches = np.flatnonzero(np.diff(batch.pool_of, prepend=-1))
        if self._changeable:  # look at each pool as it comes up
            starts, current = [0], self._current.copy()
            for i in switches.tolist():
                items = self._pool(batch, i)
                if (current[self._item_arm[items]] != items).any():
                    current[self._item_arm[items]] = items
                    starts.append(i)
            return sorted(set(starts))
        n_pools = len(batch.offsets) - 1
        first_use = np.full(n_pools, len(batch.X))
        np.minimum.at(first_use, batch.pool_of[switches], switches)
        first_seen = np.full(len(self._item_arm), len(batch.X))
        np.minimum.at(first_seen, batch.members, np.repeat(first_use, np.diff(batch.offsets)))
        new = first_seen[~self._seen]
        return sorted({0, *new[new < len(batch.X)].tolist()})

    @staticmethod
    def _pool(batch: EventBatch | ListBatch, event: int) -> I64:
        pool = batch.pool_of[event]
        return batch.members[batch.offsets[pool] : batch.offsets[pool + 1]]

    def meet(self, items: I64) -> I64:
        """Add a pool's new arms, replace features that changed; the items never met before."""
        arms = self._item_arm[items]
        before = self._current[arms]
        new = items[before < 0]
        if len(new):
            ids = [self._ids[a] for a in self._item_arm[new].tolist()]
            rows = None if self._features is None else self._features[new]
            self.policy.add_arms(ids, rows)
        other = items[(before >= 0) & (before != items)]
        if len(other) and self._features is not None:
            ids = [self._ids[a] for a in self._item_arm[other].tolist()]
            self.policy.set_features(ids, self._features[other])
        self._current[arms] = items
        unseen: I64 = items[~self._seen[items]]
        ids = [self._ids[a] for a in self._item_arm[unseen].tolist()]
        self._slots[unseen] = [self._slot_of[arm] for arm in ids]
        self._seen[unseen] = True
        return unseen


class _Members:
    """The members of a batch's pools as slots, filled in as items are met.

    An item keeps its slot. Looking all of them up again for each new arm would take time in
    proportion to arms × members: hours for a large catalogue with a pool of its own each event.
    """

    def __init__(self, items: I64, slot_of: I64, seen: npt.NDArray[np.bool_]) -> None:
        self.slots = slot_of[items]
        self._slot_of = slot_of
        unknown = np.flatnonzero(~seen[items])
        self._places = unknown[np.argsort(items[unknown], kind="stable")]
        self._items = items[self._places]

    def fill(self, met: I64) -> None:
        """Write the slots of items that have just got one."""
        lows = np.searchsorted(self._items, met, "left").tolist()
        highs = np.searchsorted(self._items, met, "right").tolist()
        slots = self._slot_of[met].tolist()
        for low, high, slot in zip(lows, highs, slots, strict=True):
            self.slots[self._places[low:high]] = slot
