"""``connect``: a connection to PostgreSQL that no cut network keeps waiting for long."""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg
from psycopg import conninfo
from psycopg.abc import PQGen

from whim.serve.log.reader import StoreError, UnavailableError

__all__ = [
    "LIMIT",
    "TRANSIENT",
    "Connection",
    "RewoundError",
    "UnavailableError",
    "connect",
    "describe",
]

LIMIT = 5.0  # seconds that a statement may take
_GRACE = 1.0  # seconds more until nobody waits for the server to say that they are over
_CONNECT_SECONDS = 2  # libpq takes no less
# what may pass by itself: a lost connection, a restart, a failover, a full disk, a lock
TRANSIENT = psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError
RV = TypeVar("RV")


class RewoundError(StoreError):
    """The log is not the one that was read or written before: what was computed of it is void."""


class Connection(psycopg.Connection[Any]):
    """One whose statements end in time: after ``limit`` seconds they fail, and it is of no use.

    They are not cancelled. A commit that waits for its standby would answer to that as if it were
    safe; nobody must hear of it until it is.
    """

    limit: float | None = None

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Wait for a reply, but not for longer than allowed."""
        return super().wait(gen, interval, self.limit if timeout is None else timeout)


def connect(dsn: str, *, limit: float = LIMIT, name: str = "whim") -> Connection:
    """A connection for single statements, each a transaction; to a primary, not to a standby.

    ``limit`` is in seconds: the server ends a statement then, and a server that does not answer
    is given up a little later. What the address itself says about such things is left as it is.
    """
    milliseconds = int(limit * 1000)
    defaults: dict[str, Any] = {
        "application_name": name,
        "connect_timeout": _CONNECT_SECONDS,
        "target_session_attrs": "read-write",
        "keepalives_idle": 1,
        "keepalives_interval": 1,
        "keepalives_count": 3,
        "tcp_user_timeout": milliseconds,
        "options": (  # the append needs what others committed while it waited for its turn
            f"-c statement_timeout={milliseconds} -c lock_timeout={milliseconds} "
            "-c default_transaction_isolation=read\\ committed"
        ),
    }
    whole = conninfo.make_conninfo("", **{**defaults, **conninfo.conninfo_to_dict(dsn)})
    made = Connection.connect(whole, autocommit=True)
    made.limit = limit + _GRACE
    return made


def describe(error: BaseException) -> str:
    """What went wrong, on one line and without the address, which may hold a secret."""
    return " ".join(str(error).split()) or type(error).__name__
