"""``Background``: what a service does beside requests, mostly in workers, while decisions go on."""

from __future__ import annotations

import asyncio
import enum
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from whim.errors import WhimError
from whim.serve.jobs.worker import Task, Worker, WorkerDiedError, WorkerError, join_state
from whim.serve.log.reader import StoreError, UnavailableError
from whim.serve.log.rows import ConfigRow
from whim.serve.logging import get as get_log
from whim.serve.state.engine import Engine
from whim.serve.state.policy import compile_for, kernels_of, load_for
from whim.serve.state.recovery import BusyError, Rebuilt
from whim.serve.state.space import NotFoundError
from whim.serve.state.space_state import SpaceState
from whim.serve.wire import SpaceConfig

_TRIM_SECONDS = 3600.0  # from one look for rows that are too old to the next
_TRIM_SOON = 1.0  # the same, while there is more to do, or after a look in vain
_ATTEMPTS = 5  # at a task whose worker dies; a second before the next, then two, four, eight
_JOBS = 20  # what-ifs that are remembered; so many coefficients over time, too
_FRESH = 60.0  # seconds for which coefficients over time are shown again
_LONG_COMPILE = 2.0  # seconds after which it is said


class JobState(enum.StrEnum):
    """How far a what-if is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


_OPEN = (JobState.WAITING, JobState.RUNNING)
_WAITING = 4  # coefficients over time that may be computed or wait


class Job(msgspec.Struct):
    """A what-if: how far it is, and what came of it."""

    state: str = JobState.WAITING
    progress: float = 0.0
    result: Any = None
    error: str | None = None
    space: str = ""


class Check(msgspec.Struct):
    """How far the check of the whole log is: ``running``, ``done``, ``damaged`` or ``broken off``.

    One that was broken off, because its worker died again and again, is begun at the next start.
    """

    state: str = "running"
    progress: float = 0.0


class Background:
    """Snapshots, rebuilds, what-ifs, compiling, retention and the check of the log.

    ``commit`` calls the engine with a token and waits until that has come back; ``spawn`` starts a
    task that ends with the service.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        commit: Callable[[Callable[[Any], Any]], Awaitable[Any]],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        on_snapshot: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._commit, self._spawn, self._on_snapshot = commit, spawn, on_snapshot
        self._log = get_log("whim")
        self._workers = {part.data: Worker(part.data) for part in engine.parts}
        self._one_whatif, self._one_rebuild = asyncio.Lock(), asyncio.Lock()
        self._snapped: dict[int, int] = {}  # by number, the row of a space's last snapshot
        self._compiled: set[tuple[object, ...]] = set()
        self._said_compiling = False
        self.jobs: dict[str, Job] = {}
        self._one_history = asyncio.Lock()
        self._histories: dict[tuple[Any, ...], tuple[Job, float]] = {}  # and when it was begun
        self.check = Check("done", 1.0)  # there is nothing to check in a new log

    async def close(self) -> None:
        """End the workers."""
        for worker in self._workers.values():
            await worker.close()

    async def _run_alone(
        self, data: Path, task: Task, progress: Callable[[float], None] | None = None
    ) -> tuple[Any, list[bytes]]:
        """Do a task that may take long in a worker of its own."""
        worker = Worker(data)
        try:
            return await worker.run(task, progress)
        finally:
            await worker.close()

    async def _run_until_done(
        self, data: Path, task: Task, progress: Callable[[float], None] | None = None
    ) -> tuple[Any, list[bytes]]:
        """The same, again if the worker dies: it may have been killed for want of memory."""
        for attempt in range(1, _ATTEMPTS):
            try:
                return await self._run_alone(data, task, progress)
            except WorkerDiedError:
                wait = 2.0 ** (attempt - 1)
                self._log.warning("a worker died", task=task.do, attempt=attempt, again_in=wait)
                await asyncio.sleep(wait)
        return await self._run_alone(data, task, progress)

    # -- compiling ----------------------------------------------------------------------------

    async def compile(self, config: SpaceConfig, *, serving: bool = True) -> None:
        """Have what a space needs compiled; what is wrong with its configuration raises here.

        While the service answers requests a worker compiles what the cache does not have, and its
        result is loaded here: compiling would take the interpreter from the requests.
        """
        kernels = kernels_of(config)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(_LONG_COMPILE, self._say_compiling, config.policy)
        try:
            if serving and kernels not in self._compiled:
                if await asyncio.to_thread(load_for, config):
                    self._compiled.add(kernels)
                    return
                try:
                    worker = self._workers[self._engine.data]
                    await worker.run(Task("compile", config_row=ConfigRow("", 0, config)))
                except WorkerError as error:  # what is wrong shows again below
                    self._log.debug("not compiled by a worker", reason=str(error))
            await asyncio.to_thread(compile_for, config)
            self._compiled.add(kernels)
        finally:
            timer.cancel()

    def _say_compiling(self, policy: str) -> None:
        if not self._said_compiling:
            self._said_compiling = True
            self._log.info(f"compiling kernels for {policy}; cached for later starts")

    # -- snapshots, retention, the check of the log -------------------------------------------

    async def keep_snapshots(self, seconds: float) -> None:
        """Write snapshots every so many seconds."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.snapshot_all()
            except Exception as error:  # a fault of ours must not be the last snapshot
                self._log.error("no snapshot", exc_info=error)

    async def snapshot_all(self) -> None:
        """Write a snapshot of every space that has moved."""
        for name, seq in self._engine.seqs.items():
            if name not in self._engine:
                continue
            part = self._engine.part(name)
            if part.failed is not None:
                continue
            number, config_row = part.in_force(name)
            if self._snapped.get(number) == seq:
                continue
            try:
                await self._workers[part.data].run(Task("snapshot", number, config_row))
            except WorkerError as error:
                self._log.warning("no snapshot", space=name, reason=str(error))
                continue
            self._snapped[number] = seq
            self._on_snapshot(name)

    async def verify(self) -> None:
        """Check the whole log once; one that is damaged takes nothing more."""
        check, parts = Check(), self._engine.parts
        self.check = check
        for i, part in enumerate(parts):

            def progress(share: float, before: int = i) -> None:
                check.progress = (before + share) / len(parts)

            try:
                problem, _ = await self._run_until_done(part.data, Task("verify"), progress)
            except WorkerError as error:
                check.state = "broken off"
                self._log.warning("not verified", reason=str(error))
                return
            if problem is not None:
                check.state = "damaged"
                part.found_damage(problem)
                self._log.error("the log is damaged", reason=problem)
        check.progress = 1.0
        if check.state == "running":
            check.state = "done"

    async def keep_trimmed(self, days: float) -> None:
        """Remove rows from the log that are older than so many days."""
        while True:
            soon = [await self._trim(part, days) for part in self._engine.parts]
            await asyncio.sleep(_TRIM_SOON if any(soon) else _TRIM_SECONDS)

    async def _trim(self, part: Engine, days: float) -> bool:
        """Remove rows from one log; whether there is more to do soon."""
        before = part.now() - round(days * 86_400e6)
        task = Task("trim", before=before, given_up=part.given_up)
        try:
            done, _ = await self._workers[part.data].run(task)
            if done["rows"]:
                self._log.info("trimmed", rows=done["rows"])
            if shared := await asyncio.to_thread(part.trim_shared):
                self._log.info("trimmed the shared log", rows=shared)
            if done["waits_for"]:  # its rows are being read: wait until that has ended
                async with self._one_rebuild:
                    pass
            return done["more"] or bool(done["waits_for"])
        except (WorkerError, StoreError, UnavailableError) as error:
            self._log.warning("not trimmed", reason=str(error))
            return isinstance(error, (WorkerDiedError, UnavailableError))

    # -- rebuilds -----------------------------------------------------------------------------

    def rebuild(self, name: str) -> None:
        """Begin to build what is wanted of a space, one space at a time."""
        self._spawn(self._rebuild(name))

    async def _rebuild(self, name: str) -> None:
        async with self._one_rebuild:
            if name in self._engine and self._engine.needs_build(name):
                await self._build(name)

    async def _build(self, name: str) -> None:
        engine = self._engine.part(name)
        number, wanted = engine.wanted(name)
        try:
            await self._commit(engine.sync)
            packed, parts = await self._run_until_done(engine.data, Task("rebuild", number, wanted))
            state = await asyncio.to_thread(SpaceState.from_bytes, *join_state(parts))
            await self.compile(state.config)
            packed += await asyncio.to_thread(engine.catch_up, state, number)
            rebuilt = Rebuilt(number, state, packed)
            await self._commit(lambda token: engine.swap(name, rebuilt, token))
            self._log.info("rebuilt", space=name, version=wanted.version, skipped=state.skipped)
        except (BusyError, NotFoundError):  # changed again or retired: what comes after sees to it
            self._log.info("superseded", space=name, version=wanted.version)
        except WhimError as error:
            self._log.warning("not rebuilt", space=name, version=wanted.version, reason=str(error))
            engine.rebuild_failed(name, wanted.version, str(error))

    # -- what if, and what was ----------------------------------------------------------------

    @property
    def unfinished(self) -> int:
        """What-ifs that wait or run."""
        return sum(job.state in _OPEN for job in self.jobs.values())

    def whatif(self, name: str, config: SpaceConfig, key: str | None = None) -> str:
        """Begin to replay a space's log under another configuration; the job's id."""
        key, job = key or uuid.uuid4().hex, Job(space=name)
        self.jobs[key] = job
        for old in list(self.jobs)[:-_JOBS]:
            del self.jobs[old]
        data = self._engine.part(name).data
        task = Task("whatif", config_row=ConfigRow(name, 0, config))
        self._spawn(self._run_job(job, data, task, self._one_whatif))
        return key

    async def _run_job(self, job: Job, data: Path, task: Task, alone: asyncio.Lock) -> None:
        def progress(share: float) -> None:
            job.progress = share

        async with alone:
            job.state = JobState.RUNNING
            try:
                job.result, _ = await self._run_alone(data, task, progress)
                job.state, job.progress = JobState.DONE, 1.0
            except WorkerError as error:
                job.state, job.error = JobState.FAILED, str(error)

    def coefficients(
        self, name: str, arm: str | int, span: tuple[int, int], what: str = ""
    ) -> Job | None:
        """An arm's coefficients over time, begun now or lately; None: too many are being computed.

        ``what`` is the span in words that stay the same while it moves along.
        """
        number, config_row = self._engine.in_force(name)
        key = number, config_row.version, type(arm), arm, what
        now = asyncio.get_running_loop().time()
        job, begun = self._histories.get(key, (None, 0.0))
        busy = job is not None and job.state in _OPEN
        if job is not None and (busy or now - begun < _FRESH):
            return job
        if sum(one.state in _OPEN for one, _ in self._histories.values()) >= _WAITING:
            return None
        job = Job(space=name)
        self._histories.pop(key, None)
        self._histories[key] = job, now
        for old in list(self._histories)[:-_JOBS]:
            del self._histories[old]
        task = Task("coefficients", number, config_row, arm=arm, span=span)
        data = self._engine.part(name).data
        self._spawn(self._run_job(job, data, task, self._one_history))
        return job
