"""``connect``: a connection to PostgreSQL that no cut network keeps waiting for long."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import psycopg
from psycopg import conninfo
from psycopg.abc import PQGen

from whim.serve.log.reader import StoreError, UnavailableError

__all__ = [
    "LIMIT",
    "TRANSIENT",
    "Connection",
    "RefusedError",
    "RewoundError",
    "UnavailableError",
    "connect",
    "describe",
    "unavailable",
]

LIMIT = 5.0  # seconds that a statement may take
_GRACE = 1.0  # seconds more until nobody waits for the server to say that they are over
_CONNECT_SECONDS = 2  # libpq takes no less
# what may pass by itself: a lost connection, a restart, a failover, a full disk, a lock
TRANSIENT = psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError
RV = TypeVar("RV")


# what a server says that waiting does not change; libpq keeps the SQLSTATE of a connection that
# failed (3D000, 28...) to itself, and one that says it in another language is waited for
_REFUSALS = re.compile(
    r'(database|role) ".*?" does not exist|role ".*?" is not permitted to log in'
    r'|[\w-]+ authentication failed for user ".*?"|no password supplied'
    r"|(no pg_hba\.conf entry|pg_hba\.conf rejects connection) for [^\n]*"
)


class RefusedError(UnavailableError):
    """There is no such database or role, or it does not let us in."""


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


def unavailable(error: BaseException) -> UnavailableError:
    """That the database does not answer, or what it refuses."""
    if refused := _REFUSALS.search(str(error)):
        return RefusedError(
            f"store must be a database that exists and lets Whim in, got: {refused[0]}."
        )
    return UnavailableError(f"the database does not answer: {describe(error)}.")
