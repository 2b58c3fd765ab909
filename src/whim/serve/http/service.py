"""``Host``: the engine on an event loop. Replies wait for their commit, and nothing else waits.

Waiting decisions are closed by the clock here; snapshots, rebuilds and what-ifs go to a clerk.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from whim.errors import WhimError
from whim.serve import wire
from whim.serve.http.keys import Keys
from whim.serve.http.limits import Rates
from whim.serve.http.metrics import Metrics
from whim.serve.http.problems import ProblemError
from whim.serve.jobs.webhooks import Webhooks
from whim.serve.jobs.worker import Clerk, ClerkError, Task, joined
from whim.serve.log.store import StoreError, packed
from whim.serve.logging import get as get_log
from whim.serve.settings import Settings, is_loopback
from whim.serve.starter import DEMO, demo_config, warm
from whim.serve.state.engine import BusyError, Engine
from whim.serve.state.recovery import unpack
from whim.serve.state.space import Asked, NotFoundError
from whim.serve.state.space_state import Change, Fold, build
from whim.serve.state.views import told

__all__ = ["Host", "Job"]

_TICK = 0.25  # seconds: the longest that an ended waiting stays open
_AT_ONCE = 100  # waitings that are ended before others have their turn
_TRIM = 3600.0  # seconds from one look for rows that are too old to the next
_JOBS = 20  # what-ifs that are remembered
_QUEUE = 4  # what-ifs that may wait


class Job(msgspec.Struct):
    """A what-if: how far it is, and what came of it."""

    state: str = "waiting"  # then running, and done or failed
    progress: float = 0.0
    result: Any = None
    error: str | None = None


class Host:
    """All that a running service holds.

    Parameters
    ----------
    settings
        As in ``whim.toml``.
    clock
        Nanoseconds since 1970.
    """

    def __init__(self, settings: Settings, *, clock: Callable[[], int] = time.time_ns) -> None:
        self.settings = settings
        self.data = Path(settings.data)
        self.loopback = is_loopback(settings.host)
        self.last_host = ""
        self.log = get_log("whim")
        self.keys = Keys(self.data / "keys.json")
        self.rates = Rates(settings.rate, settings.burst) if settings.rate else None
        self.metrics = Metrics()
        self.engine: Engine
        self.document = b""  # OpenAPI, set by the application
        self.ready = False
        self.problem: Exception | None = None
        self.opened = asyncio.Event()
        self.closing = asyncio.Event()
        self.jobs: dict[str, Job] = {}
        self._clock = clock
        self._bells: dict[str, set[asyncio.Event]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._clerk = Clerk(self.data)
        self._one_whatif = asyncio.Lock()
        self._one_rebuild = asyncio.Lock()
        self._snapped: dict[int, int] = {}
        self._asked: list[tuple[str, Asked]] = []
        self._hooks: Webhooks | None = None

    # -- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to read the log; ``opened`` is set when that has ended, well or not."""
        self._loop = asyncio.get_running_loop()
        self._spawn(self._open())

    async def _open(self) -> None:
        began = time.perf_counter()
        try:
            self.engine = await asyncio.to_thread(
                Engine, self.data, told=self._safe, clock=self._clock, on_change=self._on_change
            )
            self.metrics.engine = self.engine
            self.engine.store.later = self._loop.call_soon
            self._loop.add_reader(self.engine.store.fileno(), self._ready)
            if self.settings.demo and not self.engine.ever:
                await self.create(DEMO, demo_config())
            for space in list(self.engine.spaces.values()):
                await asyncio.to_thread(warm, space.config)
            self._hooks = Webhooks(
                self.settings, self.data, self.changes_after, lambda: list(self.engine.spaces),
                self.metrics,
            )  # fmt: skip
        except Exception as error:  # of whatever kind: it must not seem to be starting for ever
            self.problem = error
            fault = None if isinstance(error, WhimError) else error
            self.log.error("cannot start", reason=str(error), exc_info=fault)
            return
        finally:
            if self.problem is not None:
                self.opened.set()
        if self.keys.problem is not None:
            self.log.error("nothing is let in", reason=self.keys.problem)
        took = time.perf_counter() - began
        self.log.info("ready", rows=self.engine.recovered, seconds=round(took, 3))
        for name in self.engine.spaces:
            if self.engine.info(name).rebuilding:
                self._spawn(self._rebuild(name))
        if self.engine.store.last_seq:  # of the rows that were there
            self._spawn(self._verify())
        self._spawn(self._tick())
        self._spawn(self._snapshots())
        self._spawn(self._hooks.run())
        if self.settings.retention_days is not None:
            self._spawn(self._retention(self.settings.retention_days))
        self.ready = True
        self.opened.set()

    async def close(self) -> None:
        """Finish what was accepted, then close."""
        self.ready = False
        self.closing.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._clerk.close()
        if self._hooks is not None:
            await self._hooks.close()
        if hasattr(self, "engine"):
            self._loop.remove_reader(self.engine.store.fileno())
            with contextlib.suppress(StoreError):
                self.engine.store.flush()
            await asyncio.to_thread(self.engine.close)

    def end_streams(self) -> None:
        """Let those who listen go, so that a shutdown need not wait for them."""
        self.closing.set()
        for bells in self._bells.values():
            for bell in bells:
                bell.set()

    def must_be_ready(self, reading: bool = False) -> None:
        """Refuse while the log is read, and after it failed; to read goes on then."""
        if not self.ready:
            raise ProblemError(
                503, "starting", "the service is reading its log; try again soon.", retry_after="1"
            )
        failed = self.engine.store.failed
        if failed is not None and not reading:
            raise failed

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.log.error("a task ended", task=task.get_name(), exc_info=task.exception())

    # -- decisions and commits --------------------------------------------------------------

    def ask(self, name: str, body: wire.DecisionBody) -> Asked:
        """Have a decision made, together with all that are asked for in this turn of the loop.

        Its answer is there and safe when its token is done.
        """
        one = Asked.of(body, self._loop.create_future())
        if not self._asked:
            self._loop.call_soon(self._decide)
        self._asked.append((name, one))
        return one

    def _decide(self) -> None:
        asked, self._asked = self._asked, []
        by_space: dict[str, list[Asked]] = {}
        for name, one in asked:
            by_space.setdefault(name, []).append(one)
        for name, some in by_space.items():
            try:
                self.engine.decide_many(name, some)
            except Exception as error:  # of whatever kind: those who wait must be told
                for one in some:
                    one.error = one.error or error
            for one in some:
                if one.error is not None and not one.token.done():
                    one.token.set_exception(one.error)
        self.engine.store.hand_over()

    def _ready(self) -> None:
        store = self.engine.store
        store.ready()
        if store.failed is not None and not store.busy:
            self._loop.remove_reader(store.fileno())  # it says nothing any more

    def _safe(self, tokens: list[asyncio.Future[None]], error: Exception | None) -> None:
        """These may be answered."""
        for token in tokens:
            if not token.done():
                if error is None:
                    token.set_result(None)
                else:
                    token.set_exception(error)

    def token(self) -> asyncio.Future[None]:
        """Given with an engine's call, it is done when the row is safe."""
        return self._loop.create_future()

    async def waited(self, act: Callable[[asyncio.Future[None]], Any]) -> Any:
        """Do something with the engine and wait until its row is safe."""
        token = self.token()
        found = act(token)
        await token
        return found

    async def synced(self) -> None:
        """Wait until all rows queued so far are safe."""
        await self.waited(lambda t: self.engine.store.append([], [], [t]))

    # -- changes ----------------------------------------------------------------------------

    def _on_change(self, found: list[tuple[str, int, Change]]) -> None:
        for space, _, change in found:
            self.metrics.change(space)
            self.log.info("change", space=space, arm=change.event.arm, plays=change.event.plays)
        for space in {space for space, _, _ in found}:
            for bell in self._bells.get(space, ()):
                bell.set()
            if self._hooks is not None:
                self._hooks.wake(space)

    def changes_after(self, name: str, since: int, most: int = 1000) -> list[dict[str, Any]]:
        """Changes of a space after row ``since``, as callers see them."""
        space = self.engine.spaces.get(name)
        return [] if space is None else told(self.engine, space, since, most)

    @contextlib.contextmanager
    def listening(self, name: str) -> Any:
        """A bell that rings when a space reports a change, or when the service ends."""
        bell = asyncio.Event()
        bells = self._bells.setdefault(name, set())
        bells.add(bell)
        try:
            yield bell
        finally:
            bells.discard(bell)
            if not bells:
                self._bells.pop(name, None)

    # -- behind the scenes ------------------------------------------------------------------

    async def _tick(self) -> None:
        said = False
        while True:
            due = self.engine.tick(most=_AT_ONCE)
            if self.engine.store.failed is not None and not said:
                self.log.error("nothing more is accepted", reason=str(self.engine.store.failed))
                said = True
            wait = _TICK if due is None else (due - self.engine.now()) / 1e6
            await asyncio.sleep(min(max(wait, 0.001), _TICK))

    async def _snapshots(self) -> None:
        while True:
            await asyncio.sleep(self.settings.snapshot_seconds)
            try:
                await self.snap()
            except Exception as error:  # a fault of ours must not be the last snapshot
                self.log.error("no snapshot", exc_info=error)

    async def snap(self) -> None:
        """Write a snapshot of every space that has moved."""
        for name, space in list(self.engine.spaces.items()):
            seq = space.fold.seq
            if self._snapped.get(space.number) == seq or self.engine.store.failed is not None:
                continue
            try:
                await self._clerk.run(Task("snapshot", space.number, self.engine.in_force(name)))
            except ClerkError as error:
                self.log.warning("no snapshot", space=name, reason=str(error))
                continue
            self._snapped[space.number] = seq
            self.metrics.snapshot(name)

    async def _verify(self) -> None:
        """Look through the whole database once; one that is damaged takes nothing more."""
        clerk = Clerk(self.data)
        try:
            found, _ = await clerk.run(Task("verify", 0, wire.ConfigRow("", 0, None)))
        except ClerkError as error:
            self.log.warning("not verified", reason=str(error))
            return
        finally:
            await clerk.close()
        if found is not None:
            self.engine.store.failed = StoreError(f"log.db must be sound: {found}.")
            self.log.error("the log is damaged", reason=found)

    async def _retention(self, days: float) -> None:
        """Take rows out of the log that are older than was asked for."""
        nothing = wire.ConfigRow("", 0, None)
        while True:
            before = self.engine.now() - round(days * 86_400e6)
            task = Task("trim", 0, nothing, before, self.engine.given_up)
            try:
                found, _ = await self._clerk.run(task)
            except ClerkError as error:
                self.log.warning("not trimmed", reason=str(error))
                found = {"rows": 0, "more": False}
            if found["rows"]:
                self.log.info("trimmed", rows=found["rows"])
            await asyncio.sleep(1.0 if found["more"] else _TRIM)

    async def create(self, name: str, config: wire.SpaceConfig) -> None:
        """Make a space."""
        await asyncio.to_thread(warm, config)
        await self.waited(lambda t: self.engine.create(name, config, t))

    async def change(self, name: str, config: wire.SpaceConfig) -> int:
        """Ask for other parameters; the version that is being built."""
        await asyncio.to_thread(build, config)  # it may take its time; what it finds is kept
        version: int = await self.waited(lambda t: self.engine.change(name, config, t))
        self._spawn(self._rebuild(name))
        return version

    async def _rebuild(self, name: str) -> None:
        """Build what was asked for last, one space at a time."""
        async with self._one_rebuild:
            space = self.engine.spaces.get(name)
            if space is not None and self.engine.info(name).rebuilding:
                await self._build(name)

    async def _build(self, name: str) -> None:
        number, wish = self.engine.begin_rebuild(name)
        clerk = Clerk(self.data)
        try:
            await self.synced()
            found, parts = await clerk.run(Task("rebuild", number, wish))
            held = await asyncio.to_thread(Fold.from_bytes, *joined(parts))
            changes = unpack(found)
            await asyncio.to_thread(warm, held.config)
            changes += await asyncio.to_thread(self.engine.catch_up, held, number)
            old = await asyncio.to_thread(packed, number, held.version, changes)
            await self.waited(lambda t: self.engine.swap(name, number, held, old, t))
            self.log.info("rebuilt", space=name, version=wish.version, skipped=held.skipped)
        except (BusyError, NotFoundError):  # changed again or retired: what comes after sees to it
            self.log.info("superseded", space=name, version=wish.version)
        except WhimError as error:
            self.log.warning("not rebuilt", space=name, version=wish.version, reason=str(error))
            self.engine.rebuild_failed(name, wish.version, str(error))
        finally:
            await clerk.close()

    # -- what if ----------------------------------------------------------------------------

    async def whatif(self, name: str, config: wire.SpaceConfig) -> str:
        """Begin to replay a space's log under another configuration; the job's id."""
        await asyncio.to_thread(build, config)  # refuses what cannot be built
        space = self.engine.space(name)
        busy = sum(job.state in ("waiting", "running") for job in self.jobs.values())
        if busy >= _QUEUE:
            raise ProblemError(
                429, "busy", f"at most {_QUEUE} what-ifs at a time, please.", retry_after="10"
            )
        key, job = uuid.uuid4().hex, Job()
        self.jobs[key] = job
        for old in list(self.jobs)[:-_JOBS]:
            del self.jobs[old]
        task = Task("whatif", space.number, wire.ConfigRow(name, space.fold.version, config))
        self._spawn(self._whatif(job, task))
        return key

    async def _whatif(self, job: Job, task: Task) -> None:
        def progress(share: float) -> None:
            job.progress = share

        async with self._one_whatif:
            job.state = "running"
            clerk = Clerk(self.data)
            try:
                job.result, _ = await clerk.run(task, progress)
                job.state, job.progress = "done", 1.0
            except ClerkError as error:
                job.state, job.error = "failed", str(error)
            finally:
                await clerk.close()

    def job(self, key: str) -> Job | None:
        """A what-if by its id."""
        return self.jobs.get(key)
