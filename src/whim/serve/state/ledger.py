"""``Ledger``: what a space waits for, and what becomes of a reward. Facts of the log alone.

Whether a reward is learnt, kept, late or a duplicate follows from the rows before it and from the
rules in force then, whatever policy learns from them: so every process that reads the log comes to
the same answer, and a rebuild under another configuration leaves it as it was told to the caller.
"""

from __future__ import annotations

from whim.checks import LARGEST
from whim.serve.log.rows import Activation, ConfigRow, Expiry, Kind, RewardRow
from whim.serve.state.stats import MICRO, Pending
from whim.serve.wire import RewardRules, RewardState

_REMEMBERED = 65_536  # rewards that closed a decision, so that their repetition is called one
# as plain names: an enumeration's members are slow to look up
_LEARNT, _KEPT = RewardState.LEARNT, RewardState.KEPT
_DUPLICATE, _LATE = RewardState.DUPLICATE, RewardState.LATE
Closed = tuple[str, float | None]  # a decision and what is learnt for it; None: it was never shown


class Ledger:
    """The decisions that wait, under the rules in force; ``closed_by`` has the last rewards' ids.

    Rows that an earlier version wrote say themselves what became of them.
    """

    def __init__(self, rules: RewardRules) -> None:
        self.pending: dict[str, Pending] = {}
        self.closed_by: dict[str, str] = {}
        self.wanted = 0  # the version asked for last; 0: not known, and then it is the next one
        self.use(rules)

    def use(self, rules: RewardRules) -> None:
        """Apply these rules from now on; what waits keeps the end of its waiting."""
        self.rules = rules
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
            self.use(row.config.rewards)

    def due(self, at: int, logged: int = 0) -> int:
        """When a waiting that begins at ``at`` ends, unless the row says so itself."""
        return logged or at + self._wait

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
        if self.rules.combine == "earliest":
            if waiting.count:
                return _DUPLICATE
            return _KEPT if waiting.deferred else _LEARNT
        return _KEPT

    def rewarded(self, at: int, row: RewardRow) -> RewardState:
        """Take a reward; a decision that it closes still waits to be taken out."""
        state, waiting = self.outcome(at, row), self.pending.get(row.id)
        if waiting is None or state is _DUPLICATE or state is _LATE:
            return state
        waiting.total += row.value
        waiting.count += 1
        if row.reward_id is not None:
            if waiting.seen is None:
                waiting.seen = []
            waiting.seen.append(row.reward_id)  # in place: a copy for each would be quadratic
            if state is _LEARNT and row.state is None:
                self.closed_by[row.id] = row.reward_id
                if len(self.closed_by) > _REMEMBERED:
                    del self.closed_by[next(iter(self.closed_by))]
        return state

    @staticmethod
    def learnt(row: RewardRow) -> float | None:
        """What is learnt of a reward that is."""
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
                closed.append((entry, self._at_end(waiting)))
        return closed

    def _at_end(self, waiting: Pending) -> float | None:
        if waiting.deferred:
            return None
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
