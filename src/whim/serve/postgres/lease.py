"""``Lease``: which replica does what only one should; ``Leader``, in a thread.

The holder counts a number up. Who sees it stand still for ``seconds`` by its own clock takes over,
if the number is still the same then. So no clock of a machine is compared with another one's, and
a holder that is frozen or cut off loses the lease as one that has died: it knows by its own clock
that its time is over, before anybody else may begin.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import psycopg

from whim.serve.postgres.connection import TRANSIENT, Connection, connect

SECONDS = 1.0
_BEATS = 5  # attempts to renew before it is over
_LEAD = "SELECT holder, term, beat FROM whim.lead(%s, %s, %s, %s, %s)"
_RELEASE = "UPDATE whim.lease SET holder = %s, term = term + 1 WHERE name = %s AND holder = %s"
NOBODY = uuid.UUID(int=0)


class Lease:
    """A lease by its name; for one thread. ``step`` must be called several times in ``seconds``."""

    def __init__(
        self,
        dsn: str,
        name: str = "leader",
        *,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dsn, self._name, self._seconds, self._clock = dsn, name, seconds, clock
        self._connection: Connection | None = None
        self.id = uuid.uuid4()
        self.term = 0  # grows with every change of the holder
        self._beat = 0
        self._since = clock()  # when this beat was seen first
        self._until = -float("inf")

    @property
    def held(self) -> bool:
        """Whether it is held now, by this one."""
        return self._clock() < self._until

    def step(self) -> bool:
        """Renew it, or take it if its time is over; whether it is held. It never raises for long.

        A database that does not answer is asked again by the next step.
        """
        now = self._clock()
        take = now - self._since >= self._seconds
        try:
            if self._connection is None:
                self._connection = connect(self._dsn, limit=self._seconds, name="whim lease")
            row: Any = self._connection.execute(
                _LEAD, (self._name, self.id, self.term, self._beat, take)
            ).fetchone()
        except TRANSIENT:
            self._disconnect()
            return self.held
        holder, term, beat = row
        if holder == self.id:
            self._until = now + self._seconds
        else:
            self._until = -float("inf")
        if (term, beat) != (self.term, self._beat):
            self.term, self._beat, self._since = term, beat, self._clock()
        if holder == NOBODY:  # it was given back: the next step may take it
            self._since = -float("inf")
        return self.held

    def release(self) -> None:
        """Give it back, if it is held, so that another one need not wait."""
        if self.held and self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.execute(_RELEASE, (NOBODY, self._name, self.id))
        self._until = -float("inf")
        self._disconnect()

    def _disconnect(self) -> None:
        made, self._connection = self._connection, None
        if made is not None:
            with contextlib.suppress(psycopg.Error):
                made.close()


class Leader:
    """A ``Lease`` in a thread of its own."""

    def __init__(self, lease: Lease, on_change: Callable[[bool], None] | None = None) -> None:
        self.lease, self._on_change = lease, on_change
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="whim lease", daemon=True)
        self._thread.start()

    @property
    def leads(self) -> bool:
        """Whether this replica is the one, now."""
        return self.lease.held

    def _run(self) -> None:
        led = False
        while True:
            leads = self.lease.step()
            if leads != led and self._on_change is not None:
                with contextlib.suppress(Exception):  # nobody is listening any more
                    self._on_change(leads)
            led = leads
            if self._closing.wait(SECONDS / _BEATS):
                break
        self.lease.release()

    def close(self) -> None:
        """Give it back and end."""
        self._closing.set()
        self._thread.join()
