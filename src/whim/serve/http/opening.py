"""``open_engine``: over a log of its own, or as a replica over one in PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from whim.extras import install
from whim.serve.http.shared_keys import refuse_early
from whim.serve.log.origin import SHARDS
from whim.serve.log.reader import UnavailableError
from whim.serve.log.store import CommitLimits, OnCommit
from whim.serve.logging import get
from whim.serve.settings import ConfigError, Settings
from whim.serve.state.engine import Engine
from whim.serve.state.limits import Limits

_DATABASE_SECONDS = 60.0  # that a start waits for a database that does not answer
_DATABASE_PAUSE = 0.25  # seconds between two attempts
_DATABASE_SAID = 10.0  # seconds between two lines that say so


async def opened_engine(
    settings: Settings,
    clock: Callable[[], int],
    on_commit: OnCommit,
    on_config: Callable[[str], None],
    on_lead: Callable[[bool], None],
) -> Engine:
    """The engine that the settings ask for; a database that does not answer is waited for."""
    until = time.monotonic() + _DATABASE_SECONDS
    say_at = 0.0
    while True:
        try:
            return await asyncio.to_thread(
                open_engine, settings, clock, on_commit, on_config, on_lead
            )
        except UnavailableError as error:
            if time.monotonic() > until:
                raise
            _raise_refusal(error)
            if time.monotonic() >= say_at:
                get("whim").warning("waiting for the database", reason=str(error))
                say_at = time.monotonic() + _DATABASE_SAID
        await asyncio.sleep(_DATABASE_PAUSE)


def _raise_refusal(error: UnavailableError) -> None:
    """Raise what waiting for the database does not change."""
    from whim.serve.postgres.connection import RefusedError

    if isinstance(error, RefusedError):
        raise ConfigError(str(error)) from None


def open_engine(
    settings: Settings,
    clock: Callable[[], int],
    on_commit: OnCommit,
    on_config: Callable[[str], None],
    on_lead: Callable[[bool], None],
) -> Engine:
    """The engine that the settings ask for; it may take long, for it reads its log."""
    commits = CommitLimits(settings.commit_seconds, settings.queue_bytes)
    limits = Limits.of(settings)
    if settings.store is None:
        return Engine(
            Path(settings.data), on_commit=on_commit, clock=clock,
            clock_jump=settings.clock_jump_seconds, commits=commits, limits=limits,
        )  # fmt: skip
    need_postgres()
    from whim.serve.postgres.databases import Shard, shards_of
    from whim.serve.postgres.queries import Queries
    from whim.serve.state.replica import Replica
    from whim.serve.state.shards import Shards

    shards = shards_of([settings.store, *settings.more_stores], settings.shards)
    data, several = Path(settings.data), len(shards) > 1
    with contextlib.closing(Queries(shards[0].address)) as documents:
        refuse_early(settings, documents, data / "keys.json")

    def replica(shard: Shard) -> Replica:
        first = shard is shards[0]
        return Replica(
            data if first else data / SHARDS / shard.label, shard, on_commit=on_commit,
            on_config=on_config, commits=commits, limits=limits,
            on_lead=on_lead if first else lambda leads: _say_leads(shard.label, leads),
            max_lag=settings.max_lag_seconds if several else float("inf"),
        )  # fmt: skip

    with contextlib.ExitStack() as opened:
        parts: list[Replica] = []
        for shard in shards:
            part = replica(shard)
            opened.callback(part.close)
            opened.callback(part.documents.close)
            parts.append(part)
        opened.pop_all()  # they stay open
    return Shards(parts) if several else parts[0]


def _say_leads(shard: str, leads: bool) -> None:
    words = "this replica leads" if leads else "this replica does not lead any more"
    get("whim").info(words, shard=shard)


def need_postgres() -> None:
    """Refuse, with what to install, where the packages of a shared log are missing."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"store must be left out without psycopg, which is not installed: "
            f"{install('postgres')} ({error})."
        ) from None
