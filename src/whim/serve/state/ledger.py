"""``Ledger``: what a space waits for, and what becomes of a reward. Facts of the log alone.

Whether a reward is learnt, kept, late or a duplicate follows from the rows before it and from the
rules in force then, whatever policy learns from them: so every process that reads the log comes to
the same answer, and a rebuild under another configuration leaves it as it was told to the caller.
"""

from __future__ import annotations

from whim.checks import LARGEST
from whim.serve.log.rows import Activation, ConfigRow, Expiry, Kind, RewardRow
from whim.serve.state.stats import LEFT_OUT, MICRO, Pending
from whim.serve.state.waiting import CASCADE, WaitingList, list_rules
from whim.serve.wire import ListRules, RewardRules, RewardState

_REMEMBERED = 65_536  # rewards that closed a decision, so that their repetition is called one
# as plain names: an enumeration's members are slow to look up
_LEARNT, _KEPT = RewardState.LEARNT, RewardState.KEPT
_DUPLICATE, _LATE = RewardState.DUPLICATE, RewardState.LATE
Learn = float | list[float] | None  # one for each item of a list; None: it was never shown
Closed = tuple[str, Learn]  # a decision and what is learnt for it


class Ledger:
    """The decisions that wait, under the rules in force; ``closed_by`` has the last rewards' ids.

    Rows that an earlier version wrote say themselves what became of them.
    """

    def __init__(self, rules: RewardRules, lists: ListRules = CASCADE) -> None:
        self.pending: dict[str, Pending] = {}
        self.lists: dict[str, WaitingList] = {}  # of those that wait: their items
        self.closed_by: dict[str, str] = {}
        self.wanted = 0  # the version asked for last; 0: not known, and then it is the next one
        self.use(rules, lists)

    def use(self, rules: RewardRules, lists: ListRules) -> None:
        """Apply these rules from now on; what waits keeps the end of its waiting."""
        self.rules, self.list_rules = rules, lists
        self._wait = round(rules.wait_seconds * MICRO)

    def configured(self, kind: int, row: ConfigRow) -> None:
        """Take a row of a configuration: that of a new space is in force at once.

        A version that is built after another one was asked for never is.
        """
        if kind == Kind.CONFIG:
            self.wanted = row.version
        elif row.version != (self.wanted or row.version):
            return
        if row.config is not None and (kind == Kind.BUILT or row.version == 1):
            self.use(row.config.rewards, list_rules(row.config))

    def due(self, at: int, logged: int = 0) -> int:
        """When a waiting that begins at ``at`` ends, unless the row says so itself."""
        return logged or at + self._wait

    def shown_list(self, key: str) -> WaitingList | None:
        """A list that waits, if it was shown and fits the features of now."""
        items = self.lists.get(key)
        if items is None:
            return None
        waiting = self.pending[key]
        return None if waiting.deferred or waiting.mode == LEFT_OUT else items

    # -- what a row does ----------------------------------------------------------------------

    def outcome(self, at: int, row: RewardRow) -> RewardState:
        """What becomes of a reward."""
        if row.state is not None:
            return row.state
        waiting = self.pending.get(row.id)
        if waiting is None or (at >= waiting.due and not waiting.deferred):
            again = row.reward_id is not None and self.closed_by.get(row.id) == row.reward_id
            return _DUPLICATE if again else _LATE
        if row.reward_id is not None and row.reward_id in (waiting.seen or ()):
            return _DUPLICATE
        if row.id in self.lists:
            return self._of_list(waiting, self.lists[row.id], row)
        if self.rules.combine == "earliest":
            if waiting.count:
                return _DUPLICATE
            return _KEPT if waiting.deferred else _LEARNT
        return _KEPT

    def _of_list(self, waiting: Pending, items: WaitingList, row: RewardRow) -> RewardState:
        """What becomes of a reward for an item: a list is learnt from once, and as a whole.

        That is when no more can come: with ``cascade`` after a click, with all after a reward for
        every item; a sum waits to the end.
        """
        if self.rules.combine == "sum":
            return _KEPT
        item, cascade = row.item or 0, self.list_rules.feedback == "cascade"
        if items.counts[item] or (cascade and items.any_clicked):
            return _DUPLICATE
        others = all(n for i, n in enumerate(items.counts) if i != item)
        over = others or (cascade and row.value > 0)
        return _LEARNT if over and not waiting.deferred else _KEPT

    def rewarded(self, at: int, row: RewardRow) -> RewardState:
        """Take a reward; a decision that it closes still waits to be taken out."""
        state, waiting = self.outcome(at, row), self.pending.get(row.id)
        if waiting is None or state is _DUPLICATE or state is _LATE:
            return state
        waiting.total += row.value
        waiting.count += 1
        if row.id in self.lists:
            self.lists[row.id].take(row.item or 0, row.value)
        if row.reward_id is not None:
            if waiting.seen is None:
                waiting.seen = []
            waiting.seen.append(row.reward_id)  # in place: a copy for each would be quadratic
            if state is _LEARNT and row.state is None:
                self.closed_by[row.id] = row.reward_id
                if len(self.closed_by) > _REMEMBERED:
                    del self.closed_by[next(iter(self.closed_by))]
        return state

    def learnt(self, row: RewardRow) -> Learn:
        """What is learnt by a reward that closes a decision, once it was taken."""
        items = self.lists.get(row.id)
        if items is not None:
            return items.rewards(self.rules.default)
        return row.value if row.state is None else row.learn

    def ended(self, at: int, row: Expiry) -> list[Closed]:
        """The decisions of a row whose time is over, and which wait still."""
        closed: list[Closed] = []
        for entry in row.closed:
            if not isinstance(entry, str):  # as an earlier version wrote it
                if entry[0] in self.pending:
                    closed.append(entry)
                continue
            waiting = self.pending.get(entry)
            if waiting is not None and waiting.due <= at:
                closed.append((entry, self._at_end(entry, waiting)))
        return closed

    def _at_end(self, key: str, waiting: Pending) -> Learn:
        if waiting.deferred:
            return None
        if key in self.lists:
            return self.lists[key].rewards(self.rules.default)
        if waiting.count:
            return max(-LARGEST, min(LARGEST, waiting.total))  # a sum knows no bound
        return self.rules.default

    def activated(self, at: int, row: Activation) -> bool:
        """Begin to wait for the reward of a deferred decision; whether there was such a one."""
        waiting = self.pending.get(row.id)
        if waiting is None or not waiting.deferred:
            return False
        waiting.deferred, waiting.due = False, self.due(at, row.due)
        return True
