"""``create`` makes or migrates Whim's tables; ``text`` is what it would run, for others to run."""

from __future__ import annotations

from importlib import resources
from typing import Any

import msgspec
import psycopg

from whim.serve.log.reader import StoreError

FORMAT = 2
OLDEST = 1  # format that is migrated on start
ADD_SHARDS = (
    "INSERT INTO whim.head (shard) SELECT generate_series(0, %s::integer - 1) "
    "ON CONFLICT DO NOTHING"
)
_LOCK = 0x7768696D  # "whim": of those who make tables at the same time
_MOVE_LOCK = 0x77686D76  # "whmv": of those who move a log
_Connection = psycopg.Connection[Any]


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


STEPS: dict[int, str] = {  # SQL by the format that it starts from; it ends with the next one
    1: "ALTER TABLE whim.place ADD COLUMN name text NOT NULL UNIQUE;\n" + _read("place.sql")
}


class Away(msgspec.Struct, frozen=True):
    """Why a log is not to be served from here: ``kind`` is ``moved`` or ``arriving``.

    ``other`` is the directory to which it has gone, or from which it comes; ``token`` that of the
    move.
    """

    kind: str
    other: str
    token: str


def text(shards: int = 1) -> str:
    """The statements that make an empty schema of today's format, with so many shards."""
    return (
        f"{_read('schema.sql')}{_read('place.sql')}\n"
        f"INSERT INTO whim.head (shard) SELECT generate_series(0, {shards - 1:d});\n"
        f"INSERT INTO whim.meta VALUES ('format', '{FORMAT:d}'), "
        "('log', gen_random_uuid()::text);\n"
    )


def migration(before: int) -> str:
    """The statements that lead from an older format to today's."""
    steps = "\n".join(STEPS[step] for step in range(before, FORMAT))
    return f"{steps}\nUPDATE whim.meta SET value = '{FORMAT:d}' WHERE name = 'format';\n"


def stored_format(connection: _Connection) -> int | None:
    """The format of the tables; None if there are none."""
    with connection.cursor() as cursor:
        # not by to_regclass, which may answer from what it knew before it waited for the lock
        sql = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = 'whim' AND tablename = 'meta'"
        if cursor.execute(sql).fetchone() is None:
            return None
        row = cursor.execute("SELECT value FROM whim.meta WHERE name = 'format'").fetchone()
    return None if row is None else int(row[0])


def create(connection: _Connection, shards: int = 1) -> bool:
    """Make the tables if there are none, or migrate them; whether anything was done.

    It is one transaction, and any number of replicas may do it at the same time. Tables of
    today's format need no right to make any.
    """
    before = stored_format(connection)
    if before == FORMAT:
        return False
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            before = stored_format(connection)
            if before == FORMAT:  # another replica has done it meanwhile
                return False
            if before is not None and not OLDEST <= before < FORMAT:
                raise StoreError(
                    f"the tables must be of a format up to {FORMAT}, got {before}: another whim "
                    "made them."
                )
            statements = text(shards) if before is None else migration(before)
            connection.execute(statements.encode())
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreError(
            f"the tables cannot be made: {error.diag.message_primary}. Have the database's owner "
            f"run what `whim schema{'' if before is None else f' --from {before}'}` prints."
        ) from None
    return True


def add_shards(connection: _Connection, shards: int) -> None:
    """Have at least so many shards; there never become fewer."""
    connection.execute(ADD_SHARDS.encode(), (shards,))


def log_id(connection: _Connection) -> str:
    """What tells this log from any other, also from one that is made in its place."""
    row = connection.execute("SELECT value FROM whim.meta WHERE name = 'log'").fetchone()
    assert row is not None
    return str(row[0])


def away(connection: _Connection) -> Away | None:
    """Whether the log has gone elsewhere, or has not arrived yet; None: it is here."""
    sql = "SELECT value FROM whim.meta WHERE name IN ('moved', 'arriving')"
    row = connection.execute(sql).fetchone()
    return None if row is None else msgspec.json.decode(row[0], type=Away)


def refuse_away(connection: _Connection) -> None:
    """Raise if the log is not to be served from here."""
    gone = away(connection)
    if gone is not None and gone.kind == "moved":
        raise StoreError(
            f"store must hold a log that is there, and its log was moved to {gone.other}: bring it "
            "back with `whim move`, or serve it from there."
        )
    if gone is not None:
        raise StoreError(
            f"store must hold a whole log, and one is being moved to it from {gone.other}: run "
            "that `whim move` again."
        )
    sql = "SELECT pg_try_advisory_xact_lock_shared(%s)"
    row = connection.execute(sql, (_MOVE_LOCK,)).fetchone()
    if row is not None and not row[0]:
        raise StoreError("store must not be moved while a service starts: `whim move` uses it.")


def claim(connection: _Connection) -> bool:
    """Let no service start while this connection lives; False if another one has done so."""
    row = connection.execute("SELECT pg_try_advisory_lock(%s)", (_MOVE_LOCK,)).fetchone()
    return row is not None and bool(row[0])


def risks(connection: _Connection) -> list[str]:
    """What the server is set to that a commit may not survive, in words for its operator."""
    names = ("fsync", "synchronous_commit", "full_page_writes", "synchronous_standby_names")
    columns = ", ".join(f"current_setting('{name}')" for name in names)
    row = connection.execute(f"SELECT {columns}".encode()).fetchone()
    assert row is not None
    fsync, commit, pages, standbys = row
    found = []
    if fsync != "on":
        found.append("fsync is off: a crash of its machine can destroy the database")
    if pages != "on":
        found.append("full_page_writes is off: a crash of its machine can destroy pages")
    if commit == "off":
        found.append("synchronous_commit is off: a crash loses what was acknowledged just before")
    elif commit == "local" and standbys:
        found.append("synchronous_commit is local: a failover loses what was acknowledged")
    if not standbys:
        found.append("there is no synchronous standby: a failover loses what it had not received")
    return found
