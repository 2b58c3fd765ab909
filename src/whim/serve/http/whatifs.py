"""What-ifs: begun at one replica, and asked for at any.

A replica that shares its log writes how far its what-ifs are into the database, about once a
second, and what came of them. A replica that ends leaves what it had begun as it was: who asks
for it later sees that nobody works on it any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from whim.errors import WhimError
from whim.serve import wire
from whim.serve.http.problems import ProblemError
from whim.serve.jobs.background import Job, JobState
from whim.serve.state.policy import build

if TYPE_CHECKING:
    from whim.serve.http.service import Service

_WAITING = 4  # that may wait, of one replica
_STORED = 100  # that are stored, of all replicas
_LARGEST = 1 << 20  # bytes of one that is stored
_EVERY = 1.0  # seconds between two words on a what-if that runs
_LOST = 15.0  # seconds without a word after which nobody works on it any more
_FIRST = 2.0  # seconds that the first word may take
_OPEN = (JobState.WAITING, JobState.RUNNING)
_ID = re.compile("[0-9a-f]{32}")
_NAME = "whatif/"
_PUT = (
    "INSERT INTO whim.document VALUES (%s, 1, %s) ON CONFLICT (name) DO UPDATE SET "
    "version = document.version + 1, body = excluded.body"
)
_PRUNE = (
    "DELETE FROM whim.document WHERE name LIKE 'whatif/%%' AND name < (SELECT min(name) FROM "
    "(SELECT name FROM whim.document WHERE name LIKE 'whatif/%%' ORDER BY name DESC LIMIT %s) AS x)"
)


class _Stored(msgspec.Struct):
    """A what-if as it is in the database, and when that was written (nanoseconds)."""

    job: Job
    at: int


async def begin(service: Service, name: str, config: wire.SpaceConfig) -> str:
    """Begin to replay a space's log under another configuration; the job's id."""
    await asyncio.to_thread(build, config)  # refuses what cannot be built
    service.engine.space(name)
    if service.background.unfinished >= _WAITING:
        raise ProblemError(
            429, "busy", f"at most {_WAITING} what-ifs at a time, please.", retry_after="10"
        )
    documents = service.engine.documents
    if documents is None:
        return service.background.whatif(name, config)
    # the later, the greater, by the database's clock: the oldest ones are removed
    key = f"{documents.time_ns() // 1_000_000:012x}{uuid.uuid4().hex[:20]}"
    service.background.whatif(name, config, key)
    job = service.background.jobs[key]
    with contextlib.suppress(WhimError, TimeoutError):  # others hear of it later
        await asyncio.wait_for(asyncio.to_thread(_write, documents, key, job), _FIRST)
    return key


async def find(service: Service, key: str) -> Job | None:
    """A what-if by its id, of whichever replica."""
    job = service.job(key)
    documents = None if job is not None else getattr(service.engine, "documents", None)
    if documents is None or _ID.fullmatch(key) is None:
        return job
    stored = await asyncio.to_thread(documents.document, _NAME + key)
    if stored is None:
        return None
    found = msgspec.json.decode(stored[1], type=_Stored)
    if found.job.state in _OPEN and documents.time_ns() - found.at > _LOST * 1e9:
        found.job.state = JobState.FAILED
        found.job.error = "the replica that worked on it has ended: start it again."
    return found.job


async def keep_shared(service: Service) -> None:
    """Write how far what-ifs are, for other replicas to tell; until the service ends."""
    documents = service.engine.documents
    finished: set[str] = set()
    while True:
        await asyncio.sleep(_EVERY)
        jobs = service.background.jobs
        finished &= jobs.keys()
        for key, job in list(jobs.items()):
            if key in finished:
                continue
            done = job.state not in _OPEN  # before it is written: it may end meanwhile
            with contextlib.suppress(WhimError):  # the next time
                await asyncio.to_thread(_write, documents, key, job)
                if done:
                    finished.add(key)


def _write(documents: Any, key: str, job: Job) -> None:
    body = msgspec.json.encode(_Stored(job, documents.time_ns()))
    if len(body) <= _LARGEST:
        documents.ask(_PUT, (_NAME + key, body))
        documents.ask(_PRUNE, (_STORED,))
