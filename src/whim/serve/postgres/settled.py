"""``settle``: what is read of the log is with the synchronous standby, after a crash too.

A commit is seen by others once its standby has it. But what had not got that far when the database
crashed is seen as soon as it is back, and if it failed over before the standby had followed, rows
would be lost that a replica has read and answered from. So who connects first after a crash makes
a commit of its own, which waits for the standby, and with it for all before.
"""

from __future__ import annotations

from whim.serve.postgres.connection import Connection

# the table is unlogged: a crash of the server, or of one of its processes, empties it
_SETTLED = "SELECT 1 FROM whim.settled WHERE since = pg_postmaster_start_time()"
# locking a row is a change that is logged, so that the commit waits; the insert alone is not
_SETTLE = (
    "WITH locked AS (SELECT name FROM whim.meta WHERE name = 'format' FOR UPDATE) "
    "INSERT INTO whim.settled SELECT pg_postmaster_start_time() FROM locked ON CONFLICT DO NOTHING"
)


def settle(connection: Connection) -> None:
    """Wait until the standby has all that is seen here; at once, unless it is new after a crash."""
    if connection.execute(_SETTLED).fetchone() is None:
        connection.execute(_SETTLE)
