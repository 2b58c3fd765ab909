"""``Service``: the engine on an event loop. Replies wait for their commit, and nothing else."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.core import Metric

from whim.errors import WhimError
from whim.serve import wire
from whim.serve.http import whatifs
from whim.serve.http.deliveries import Deliveries
from whim.serve.http.keys import Keys
from whim.serve.http.limits import Rates
from whim.serve.http.metrics import Metrics
from whim.serve.http.opening import opened_engine
from whim.serve.http.problems import ProblemError
from whim.serve.http.routes import Buffers
from whim.serve.http.runtime_metrics import RuntimeMetrics
from whim.serve.http.shared_keys import keep_settled, open_shared
from whim.serve.http.streams import Streams
from whim.serve.http.turns import SLICE, Turns
from whim.serve.jobs.background import Background, Job
from whim.serve.log.reader import StoreError
from whim.serve.log.store import Commit
from whim.serve.logging import get as get_log
from whim.serve.settings import ConfigError, Settings, is_loopback
from whim.serve.starter import DEMO, demo_config, personalizer_config
from whim.serve.state.engine import Engine
from whim.serve.state.policy import build
from whim.serve.state.space import ConflictError, DecisionRequest

_TURN = 0.003  # seconds of small decisions that are made together
_TICK = 0.25  # seconds: the longest that an ended waiting stays open
_LAG_SECONDS = 0.1  # between looks at how late the event loop is
_AT_ONCE = 100  # waitings that are ended before others have their turn
_DECISIONS = 32  # of a batch, before others have their turn
_SCRAPE_SECONDS = 1.0  # after which metrics are shown with the totals of the scrape before


class Service:
    """All that a running service holds; ``clock`` gives nanoseconds since 1970."""

    def __init__(self, settings: Settings, *, clock: Callable[[], int] = time.time_ns) -> None:
        self.settings = settings
        self.data = Path(settings.data)
        self.loopback = is_loopback(settings.host)
        self.last_host = ""
        self.log = get_log("whim")
        self.keys = Keys(self.data / "keys.json", wrong=settings.wrong_keys)
        self.rates = Rates(settings.rate, settings.burst) if settings.rate else None
        self.metrics = Metrics()
        self._runtime = RuntimeMetrics(self)
        self.metrics.add(self._runtime)
        self.turns = Turns()
        self._growing = asyncio.Lock()
        self.buffers = Buffers(settings.max_buffered)
        self.engine: Engine
        self.background: Background
        self.document = b""  # OpenAPI, set by the application
        self.ready = False
        self.problem: Exception | None = None
        self.opened = asyncio.Event()
        self.closing = asyncio.Event()
        self.draining = False  # others should send no more, and what comes is still answered
        self._clock = clock
        self.streams = Streams(settings.max_connections // 2)
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests: collections.deque[tuple[str, DecisionRequest, float]] = collections.deque()
        self.deliveries = Deliveries(self)
        self._safe_totals: list[Metric] = []  # of the last scrape
        self._one_scrape = asyncio.Lock()  # so that none shows less than one before it

    # -- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to read the log; ``opened`` is set when that has ended, even by an error."""
        self._loop = asyncio.get_running_loop()
        self.spawn(self._open())
        self.spawn(self._watch_lag())

    async def _open(self) -> None:
        began = time.perf_counter()
        try:
            await self._open_engine()
        except Exception as error:  # of whatever kind: it must not seem to be starting for ever
            self.problem = error
            if not isinstance(error, ConfigError):  # which the command says
                fault = None if isinstance(error, WhimError) else error
                self.log.error("cannot start", reason=str(error), exc_info=fault)
            self.opened.set()
            return
        if self.keys.problem is not None:
            self.log.error("no request is accepted", reason=self.keys.problem)
        took = time.perf_counter() - began
        self.log.info("ready", rows=self.engine.recovered, seconds=round(took, 3))
        self._start_background()
        self.ready = True
        self.opened.set()

    async def _open_engine(self) -> None:
        self.engine = engine = await opened_engine(
            self.settings, self._clock, self._on_commit, self._on_config, self.deliveries.lead
        )
        self._began = engine.now()
        engine.attach(self._loop)
        self._had_rows = engine.seq > 0
        self.background = Background(
            engine, commit=self.commit, spawn=self.spawn,
            on_snapshot=self.metrics.snapshot,
        )  # fmt: skip
        self.metrics.engine = engine
        self.metrics.check = lambda: self.background.check.progress
        # compiled before anybody is served: inside a request it would take too long
        configs = [engine.info(name).config for name in engine.names]
        if self.settings.demo and not engine.made:
            configs.append(demo_config())
        if self.settings.personalizer_space not in engine:
            configs.append(personalizer_config())
        for config in configs:
            await self.background.compile(config, serving=False)
        await engine.caught_up()
        if engine.documents is not None:  # before anybody is let in
            await asyncio.to_thread(open_shared, self.settings, engine.documents, self.keys.path)
            self.keys.look_again()
        if self.settings.demo and not engine.made:
            with contextlib.suppress(ConflictError):  # another replica has just made it
                await self.commit(lambda token: engine.create(DEMO, demo_config(), token))
        await self.deliveries.open()

    def _on_config(self, name: str) -> None:
        """Another version of a space is wanted: it is built here, too."""
        self.background.rebuild(name)

    def _start_background(self) -> None:
        background = self.background
        for name in self.engine.names:
            if self.engine.info(name).rebuilding:
                background.rebuild(name)
        if self._had_rows:
            self.spawn(background.verify())
        self.spawn(self._tick())
        self.spawn(background.keep_snapshots(self.settings.snapshot_seconds))
        self.deliveries.start()
        if self.engine.documents is not None:
            self.spawn(keep_settled(self))
            self.spawn(whatifs.keep_shared(self))
        if self.settings.retention_days is not None:
            self.spawn(background.keep_trimmed(self.settings.retention_days))

    async def close(self) -> None:
        """Finish what was accepted, then close."""
        self.ready = False
        self.closing.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if hasattr(self, "background"):
            await self.background.close()
        await self.deliveries.close()
        if hasattr(self, "engine"):
            await self.engine.detach()
            await asyncio.to_thread(self.engine.close)

    def end_streams(self) -> None:
        """Let listeners go, so that a shutdown need not wait for them."""
        self.closing.set()
        self.streams.ring_all()

    def give_up(self) -> None:
        """Answer those who wait for a commit that does not end: the service does."""
        if hasattr(self, "engine"):
            self.engine.abandon("the service stopped before a commit had ended")

    def must_be_ready(self, reading: bool = False) -> None:
        """Refuse while the log is read, and after it failed; reading goes on then."""
        if not self.ready:
            said = "the service reads its log, and compiles the first time; try again soon."
            raise ProblemError(503, "starting", said, retry_after="1")
        failed = self.engine.failed
        if failed is not None and not reading:
            raise failed

    @property
    def trouble(self) -> str | None:
        """Why it could not start, or why nothing more is accepted, if that is so."""
        if self.problem is not None:
            return str(self.problem)
        if self.ready and self.engine.trouble is not None:
            return str(self.engine.trouble)
        return None

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside requests, until the service ends."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.log.error("a task ended", task=task.get_name(), exc_info=task.exception())

    # -- decisions and commits ----------------------------------------------------------------

    def _ask(self, name: str, body: wire.DecisionBody, work: float) -> DecisionRequest:
        """Have a decision made, together with all that arrive in this turn of the event loop.

        Its answer is there and safe when its token is done.
        """
        request = DecisionRequest.of(body, self._loop.create_future())
        if not self._requests:
            self._loop.call_soon(self._decide)
        self._requests.append((name, request, work))
        return request

    def _decide(self) -> None:
        """Decide what arrived, for some milliseconds at most, and the rest later."""
        requests, by_space = self._requests, dict[str, list[DecisionRequest]]()
        left = _TURN * 1e6
        while requests and left > 0:
            name, one, work = requests.popleft()
            by_space.setdefault(name, []).append(one)
            left -= work
        if requests:
            self._loop.call_soon(self._decide)
        for name, some in by_space.items():
            try:
                self.engine.decide_many(name, some)
            except Exception as error:  # of any kind: those who wait must get an answer
                for one in some:
                    one.error = one.error or error
            for one in some:
                if one.error is not None and not one.token.done():
                    one.token.set_exception(one.error)
        self.engine.send()

    async def decided(self, name: str, body: wire.DecisionBody) -> bytes:
        """The answer to a decision, once it is safe."""
        if (work := self._work(name, body)) > SLICE * 1e6:
            (request,) = [one async for one in self.decide_many(name, "candidates", [body])]
            request.token = self.token()
            if request.error is None:
                self.engine.part(name).sync(request.token)
            else:
                request.token.set_exception(request.error)
        else:
            request = self._ask(name, body, work)
        try:
            await request.token
            if request.error is not None:  # found while it was made safe
                raise request.error
        finally:  # an error holds this frame; if that held the error, the collector had to come
            request.token = request.error = None
        return request.answer

    def _work(self, name: str, body: wire.DecisionBody) -> float:
        space = self.engine.spaces.get(name)
        return 0.0 if space is None else space.work(body)

    @contextlib.asynccontextmanager
    async def room(self, name: str, bodies: Sequence[wire.DecisionBody]) -> AsyncIterator[None]:
        """Have memory for the new arms of decisions, which it takes a while to get.

        One at a time: else two would be given the same memory, and one of them had none.
        """
        space = self.engine.space(name)
        if not space.brings_new(bodies):
            yield
            return
        async with self._growing:
            while not await self.turns.run(functools.partial(space.make_room, bodies, SLICE)):
                pass
            yield

    async def decide_many(
        self, name: str, field: str, bodies: Sequence[wire.DecisionBody]
    ) -> AsyncIterator[DecisionRequest]:
        """Have a batch of decisions or lists made, slice by slice; safe after another commit.

        It is that ``field`` of a body.
        """
        space = self.engine.space(name)
        space.check_batch(field, bodies)

        def decide(some: Sequence[wire.DecisionBody]) -> list[DecisionRequest]:
            requests = [DecisionRequest.of(body) for body in some]
            self.engine.decide_many(name, requests)
            return requests

        at = 0
        while at < len(bodies):
            begun, left = at, SLICE * 1e6
            while at < len(bodies) and left > 0 and at - begun < _DECISIONS:
                left -= self._work(name, bodies[at])
                at += 1
            some = bodies[begun:at]
            heavy = any(space.needs_room(body) for body in some)
            async with self.room(name, some) if heavy else contextlib.nullcontext():
                requests = await self.turns.run(functools.partial(decide, some))
            for one in requests:
                yield one

    def token(self) -> asyncio.Future[Any]:
        """Given with an engine's call, it is done when the row is safe."""
        return self._loop.create_future()

    async def commit(self, act: Callable[[asyncio.Future[Any]], Any]) -> Any:
        """Do something with the engine and wait until its row is safe; what came of it."""
        token = self.token()
        result = act(token)
        told = await token
        return told if result is None else result

    async def scrape(self) -> bytes:
        """The metrics; totals of which a crash could lose a part are not shown yet."""
        async with self._one_scrape:
            totals, token = self.metrics.totals(), self.token()
            self.engine.sync(token)
            with contextlib.suppress(StoreError, TimeoutError):
                await asyncio.wait_for(token, _SCRAPE_SECONDS)
                self._safe_totals = totals
            return self.metrics.render(self._safe_totals)

    def _on_commit(self, commit: Commit) -> None:
        """Let those who wait for these rows be answered, and report changes."""
        for token in commit.tokens:
            if not token.done():
                if commit.error is None:
                    token.set_result(None)
                else:
                    token.set_exception(commit.error)
        changed = set()
        for number, change in commit.changes:
            name = self.engine.name(number)
            changed.add(name)
            if change.at >= self._began:  # else a replica has only read of it now
                self.metrics.change(name)
                self.log.info("change", space=name, arm=change.event.arm, plays=change.event.plays)
        for name in changed:
            self.streams.ring(name)
            self.deliveries.wake(name)

    def changes_after(self, name: str, since: int, most: int = 1000) -> list[dict[str, Any]]:
        """Changes of a space after row ``since``; none of one that is not there."""
        return self.engine.changes(name, since, most) if name in self.engine else []

    async def _watch_lag(self) -> None:
        """Measure how late the event loop is: what runs too long makes everybody wait."""
        while True:
            due = self._loop.time() + _LAG_SECONDS
            await asyncio.sleep(_LAG_SECONDS)
            self._runtime.loop_lag.add(max(0.0, self._loop.time() - due))

    async def _tick(self) -> None:
        said = held = False
        while True:
            if self.keys.changed():  # those whose key was revoked must not listen on
                self.streams.ring_all()
            due = self.engine.tick(most=_AT_ONCE)
            clock = self.engine.clock.view
            if clock.held != held:
                held = clock.held
                say = self.log.warning if held else self.log.info
                words = "the clock is held" if held else "the clock follows the system's again"
                say(words, reason=clock.reason, ahead_seconds=round(clock.ahead, 3))
            if self.engine.trouble is not None and not said:
                self.log.error("nothing more is accepted", reason=str(self.engine.trouble))
                said = True
            wait = _TICK if due is None else (due - self.engine.now()) / 1e6
            await asyncio.sleep(min(max(wait, 0.001), _TICK))

    # -- spaces and what-ifs ------------------------------------------------------------------

    async def create(self, name: str, config: wire.SpaceConfig) -> None:
        """Make a space; what it needs is compiled first."""
        await self.background.compile(config)
        await self.commit(lambda token: self.engine.create(name, config, token))

    async def change(self, name: str, config: wire.SpaceConfig) -> int:
        """Ask for other parameters; the version that is being built."""
        await asyncio.to_thread(build, config)  # it may take its time; what it finds is kept
        version: int = await self.commit(lambda token: self.engine.change(name, config, token))
        self.background.rebuild(name)
        return version

    async def whatif(self, name: str, config: wire.SpaceConfig) -> str:
        """Begin to replay a space's log under another configuration; the job's id."""
        return await whatifs.begin(self, name, config)

    def job(self, key: str) -> Job | None:
        """A what-if of this replica by its id."""
        return self.background.jobs.get(key)
