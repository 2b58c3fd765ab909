"""``KnownDecisions``: decisions by their id, committed or in flight, so that none is made twice."""

from __future__ import annotations

import collections

import msgspec

from whim.errors import WhimError
from whim.serve.log.ids import Ids
from whim.serve.log.rows import DECODERS, Kind, answer_of
from whim.serve.log.store import Store
from whim.serve.state.space import ConflictError, DecisionRequest, Space


class KnownDecisions:
    """The decisions of all spaces; the store knows those that are committed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ids = Ids()
        # digests and answers of those that are not committed yet; in the order of their rows
        self._in_flight: dict[tuple[int, str], tuple[bytes, bytes]] = {}
        self._order: collections.deque[tuple[int, list[tuple[int, str]]]] = collections.deque()

    def learn(self, seconds: float) -> None:
        """Go on reading the ids of an old log for so long."""
        self._ids.learn(self._store, seconds)

    def is_new(self, space: int, key: str) -> bool:
        """Remember an id; whether it is new for certain."""
        return not self._ids.add(space, key)

    def add(self, space: int, seq: int, requests: list[DecisionRequest]) -> None:
        """Remember decisions whose last row is ``seq``, and which are not committed yet."""
        keys = []
        for one in requests:
            key = space, one.row.id
            if one.digest:
                self._in_flight[key] = one.digest, one.answer
                keys.append(key)
            else:
                self._ids.add(*key)
        self._order.append((seq, keys))

    def forget_committed(self) -> None:
        """Forget what was on its way: for what is committed the log answers."""
        committed, order = self._store.committed, self._order
        while order and order[0][0] <= committed:
            for key in order.popleft()[1]:
                del self._in_flight[key]

    def exists(self, space: Space, key: str) -> bool:
        """Whether a decision was made, without reading what was decided."""
        if (space.number, key) in self._in_flight:
            return True
        may = self._ids.may_have(space.number, key)
        return may and self._store.decision(space.number, key) is not None

    def find(self, space: Space, key: str) -> tuple[bytes, bytes] | None:
        """Digest and answer of a decision that was made before."""
        in_flight = self._in_flight.get((space.number, key))
        if in_flight is not None:
            return in_flight
        if not self._ids.may_have(space.number, key):
            return None
        row = self._store.decision(space.number, key)
        if row is None:
            return None
        decision = DECODERS[Kind.DECISION].decode(row.body)
        return decision.digest, msgspec.json.encode(answer_of(space.name, decision))

    def repeat(self, space: Space, key: str, request: DecisionRequest) -> bool:
        """Whether a decision was made before: its answer is given again, to the same body."""
        try:
            known = self.find(space, key)
            if known is None:
                return False
            if known[0] != request.digest:
                raise ConflictError(
                    f"$.decision_id must come with the same body, got another for {key!r}."
                )
            request.answer = known[1]
        except WhimError as error:
            request.error = error
        return True
