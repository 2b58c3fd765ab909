"""``shards_of``: the shards of a log, in one database or in several, as replicas follow them.

The first database knows the ids of the others (``stores`` in its ``whim.meta``), and each of those
that of the first (``home``): an address that is left out, or one of another log, is noticed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from whim.serve.log.reader import StoreError
from whim.serve.logging import get
from whim.serve.postgres import schema
from whim.serve.postgres.queries import Queries
from whim.serve.postgres.reader import open_reader

_META = "SELECT value FROM whim.meta WHERE name = %s"
_KNOW = (
    "INSERT INTO whim.meta VALUES ('stores', %s) ON CONFLICT (name) DO UPDATE "
    "SET value = excluded.value WHERE meta.value = %s RETURNING 1"
)


class Shard(NamedTuple):
    """One shard: where it is, and what it is called.

    ``store`` is its database as ``whim.place`` names it. ``label`` is the place of the database
    and that of the shard in it, ``0.0`` for the first. ``layout`` is what the database had when
    this was read: how many shards, and which other databases.
    """

    address: str
    log_id: str
    number: int = 0
    store: str = ""
    label: str = "0.0"
    layout: tuple[int, str] = (1, "[]")

    @property
    def origin(self) -> str:
        """What tells its log from any other."""
        return f"{self.log_id}/{self.number}" if self.number else self.log_id


class _Database(NamedTuple):
    address: str
    queries: Queries
    log_id: str
    shards: int

    def meta(self, name: str) -> str | None:
        rows = self.queries.ask(_META, (name,))
        return rows[0][0] if rows else None


def shards_of(addresses: Sequence[str], shards: int | None = None) -> list[Shard]:
    """All shards of a log, of the first database first; each database has at least ``shards``.

    Tables, shards and databases that are not there yet are made, and made known to each other.
    """
    with contextlib.ExitStack() as opened:
        databases = [opened.enter_context(_opened(address, shards)) for address in addresses]
        order = _join(databases)
        by_id = {one.log_id: one for one in databases}
        stores = json.dumps(order[1:])
        found = []
        for k, log_id in enumerate(order):
            address, _, _, count = by_id[log_id]
            layout = count, stores if not k else "[]"
            found += [
                Shard(address, log_id, n, log_id if k else "", f"{k}.{n}", layout)
                for n in range(count)
            ]
        return found


@contextlib.contextmanager
def _opened(address: str, shards: int | None) -> Iterator[_Database]:
    with contextlib.closing(Queries(address)) as queries:
        log_id, risks = queries.open()
        for risk in risks:
            get("whim").warning("the database may lose what was acknowledged", reason=risk)
        ((count,),) = queries.ask("SELECT count(*) FROM whim.head")
        if shards is not None and shards < count:
            raise StoreError(
                f"shards must be at least {count}, which the database has: a shard is never "
                f"removed, got {shards}."
            )
        if shards is not None and shards > count:
            queries.ask(schema.ADD_SHARDS, (shards,))
            count = shards
        yield _Database(address, queries, log_id, count)


def _join(databases: list[_Database]) -> list[str]:
    """Make databases known to each other; their ids in the order in which they came to the log."""
    home, ids = databases[0], [one.log_id for one in databases]
    if len(set(ids)) < len(ids):
        raise StoreError("more_stores must be databases of their own, got one of them twice.")
    if home.meta("home") is not None:
        raise StoreError(
            "store must be the first database of its log, got one that has further shards of it: "
            "it goes to more_stores."
        )
    while True:
        told = home.meta("stores")
        known: list[str] = json.loads(told or "[]")
        if missing := len(set(known) - set(ids)):
            raise StoreError(
                f"more_stores must name every database that has shards of the log, got "
                f"{len(ids) - 1} without {missing} of them."
            )
        for i, one in enumerate(databases[1:]):
            _must_belong(one, home.log_id, f"more_stores[{i}]", one.log_id in known)
        new = [log_id for log_id in ids[1:] if log_id not in known]
        if not new:
            return [home.log_id, *known]
        if home.queries.ask(_KNOW, (json.dumps(known + new), told or "")):
            return [home.log_id, *known, *new]  # else another replica was faster: look again


def _must_belong(one: _Database, home: str, name: str, known: bool) -> None:
    """Raise if a database is another log's; an empty one becomes this one's."""
    if not known and one.meta("home") is None:
        rows = one.queries.ask("SELECT 1 FROM whim.head WHERE seq > 0")
        if rows or one.meta("stores") is not None:
            raise StoreError(f"{name} must be empty or of this log, got a log of its own.")
        one.queries.ask("INSERT INTO whim.meta VALUES ('home', %s) ON CONFLICT DO NOTHING", (home,))
    if one.meta("home") != home:
        raise StoreError(f"{name} must be empty or of this log, got one of another.")


def existing_shards(addresses: Sequence[str]) -> list[Shard]:
    """The shards of a log that must be there; nothing is made, and what is left out is refused."""
    found: list[Shard] = []
    ids: set[str] = set()
    known: list[str] = []
    for address in addresses:
        with contextlib.closing(open_reader(address)) as reader:
            meta: dict[str, str] = dict(reader.query("SELECT name, value FROM whim.meta"))
            heads = reader.query("SELECT shard FROM whim.head WHERE shard >= 0 ORDER BY shard")
        ids.add(meta["log"])
        known += [*json.loads(meta.get("stores", "[]")), meta.get("home", meta["log"])]
        found += [Shard(address, meta["log"], number) for (number,) in heads]
    if missing := len(set(known) - ids):
        raise StoreError(
            f"store must be given for every database of the log, got {len(addresses)} without "
            f"{missing} of them."
        )
    return found
