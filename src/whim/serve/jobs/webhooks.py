"""``Webhooks``: changes of interest, posted to addresses: at least once, and in order.

Each address and space is a lane of its own with a cursor on disk, so that one that hangs delays
nobody else. A cursor is the row up to which all was delivered, and how many of that row's changes
were, for one row may reveal many.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import random
import sqlite3
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from whim.serve.jobs.cursors import Cursors
from whim.serve.logging import get
from whim.serve.settings import ConfigError, Settings, Webhook
from whim.version import __version__

if TYPE_CHECKING:
    import httpx

Read = Callable[[str, int], list[dict[str, Any]]]

_AT_ONCE = 4  # requests to one address, whatever the number of its spaces


def wait_before(attempt: int) -> float:
    """Seconds before attempt 1, 2, ...: twice as long each time, 1 s to 5 min, and not in step."""
    return max(1.0, min(300.0, 2.0 ** min(attempt, 9)) * random.uniform(0.5, 1.0))


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """What ``Whim-Signature`` says of a body sent at ``timestamp``."""
    return "sha256=" + hmac.digest(secret, timestamp.encode() + b"." + body, "sha256").hex()


class _Hook:
    """An address while the service runs."""

    def __init__(self, settings: Webhook, secret: bytes | None) -> None:
        self.settings, self.secret = settings, secret
        self.by_url = self.id = hashlib.sha256(settings.url.encode()).hexdigest()
        if settings.name is not None:  # a name is no address: they cannot be equal
            self.id = hashlib.sha256(f"name {settings.name}".encode()).hexdigest()
        parts = urlsplit(settings.url)  # the rest of an address is never said
        self.host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        self.gone = asyncio.Event()  # it said so: 410
        self.room = asyncio.Semaphore(_AT_ONCE)

    def wants(self, space: str) -> bool:
        return not self.settings.spaces or space in self.settings.spaces


class _Item(NamedTuple):
    """A change that is to be sent, and where the cursor stands once it is."""

    change: dict[str, Any]
    delivery: str
    seq: int
    done: int


class Webhooks:
    """Deliveries of a service; a secret whose variable is not set is an error here.

    ``read`` gives changes of a space after a row, in order, at least all those of one row at a
    time. ``count`` is called after each attempt with how it ended: delivered, failed or gone. A
    ``client`` that is not given is made, and closed. ``backoff`` gives the seconds before an
    attempt by its number, ``timeout`` those that it may take from connecting to the status.
    ``counted``: whether a space is in the log whose rows say when an address began; those of
    another log have numbers of their own.
    """

    def __init__(
        self,
        settings: Settings,
        data: Path,
        read: Read,
        spaces: Callable[[], list[str]],
        count: Callable[[str], None] | None = None,
        client: httpx.AsyncClient | None = None,
        *,
        cursors: Any = None,
        counted: Callable[[str], bool] = lambda space: True,
        backoff: Callable[[int], float] = wait_before,
        timeout: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._read, self._spaces, self._count, self._counted = read, spaces, count, counted
        self._backoff, self._timeout, self._clock = backoff, timeout, clock
        self._client, self._own = client, client is None
        self._log = get("webhooks")
        self._hooks = [_Hook(one, _secret(i, one)) for i, one in enumerate(settings.webhooks)]
        self._sending: dict[tuple[str, str], tuple[str, str]] = {}  # by lane: host, time of change
        self._lanes: dict[tuple[str, str], tuple[asyncio.Task[None], asyncio.Event]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._cursors: Cursors | None = None
        if self._hooks:
            self._cursors = Cursors(data / "webhooks.db") if cursors is None else cursors
            try:
                self._meet(self._cursors)
            except sqlite3.Error as error:
                self._cursors.close()
                raise ConfigError(f"webhooks.db must be writable: {error}.") from None

    # -- where to begin -----------------------------------------------------------------------

    def _meet(self, cursors: Cursors) -> None:
        """A new address begins now, and so does a space that an old one did not ask for.

        One that got a name goes on where it was, and a space that is not asked for any more stays
        where it is.
        """
        for hook in self._hooks:
            if cursors.hook(hook.id) is None:
                cursors.rename(hook.by_url, hook.id)
            known, wanted = cursors.hook(hook.id), sorted(hook.settings.spaces)
            if known is None:
                last = {space: self._last(space) for space in self._spaces()}
                since = max((n for s, n in last.items() if self._counted(s)), default=0)
                for space, seq in last.items():
                    if hook.wants(space) and not self._counted(space):
                        cursors.write(hook.id, space, seq + 1, 0)
                cursors.meet(hook.id, since, wanted)
            elif known[1] != wanted:
                for space in self._spaces():
                    if cursors.read(hook.id, space) is not None:
                        continue
                    if known[1] and space not in known[1]:
                        if hook.wants(space):
                            cursors.write(hook.id, space, self._last(space) + 1, 0)
                    elif not hook.wants(space):
                        cursors.write(hook.id, space, self._since(known[0], space) + 1, 0)
                cursors.meet(hook.id, known[0], wanted)

    def _since(self, since: int, space: str) -> int:
        """The row of a space's log after which an address began."""
        return since if self._counted(space) else 0

    def _last(self, space: str) -> int:
        last = 0
        while changes := self._read(space, last):
            last = changes[-1]["seq"]
        return last

    def _begin(self, hook: _Hook, space: str) -> tuple[int, int]:
        """Cursor of a lane; a space made after the address was met begins with its first change."""
        assert self._cursors is not None
        cursor = self._cursors.read(hook.id, space)
        if cursor is None:
            known = self._cursors.hook(hook.id)
            cursor = (self._since(known[0] if known else 0, space) + 1, 0)
        return cursor

    # -- life ---------------------------------------------------------------------------------

    def wake(self, space: str) -> None:
        """A space has changes; from any thread."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(self._wake, space)

    def _wake(self, space: str) -> None:
        if self._stop.is_set() or self._loop is None:
            return
        for hook in self._hooks:
            if hook.gone.is_set() or not hook.wants(space):
                continue
            lane = self._lanes.get((hook.id, space))
            if lane is None or lane[0].done():
                bell = asyncio.Event()
                task = asyncio.create_task(self._run(hook, space, bell), name=f"webhook {space}")
                lane = self._lanes[hook.id, space] = (task, bell)
            lane[1].set()

    async def run(self) -> None:
        """Deliver until closed."""
        if not self._hooks:
            await self._stop.wait()
            return
        if self._client is None:
            import httpx

            self._client = httpx.AsyncClient(limits=httpx.Limits(max_connections=None))
        self._loop = asyncio.get_running_loop()
        try:
            for space in self._spaces():
                self._wake(space)
            await self._stop.wait()
        finally:
            await self._end()

    async def _end(self) -> None:
        self._loop = None
        tasks = [task for task, _ in self._lanes.values()]
        self._lanes.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Stop where it is; what was not delivered will be after the next start."""
        self._stop.set()
        await self._end()
        if self._client is not None and self._own:
            await self._client.aclose()
            self._client = None
        if self._cursors is not None:
            self._cursors.close()
            self._cursors = None

    # -- a lane -------------------------------------------------------------------------------

    async def _run(self, hook: _Hook, space: str, bell: asyncio.Event) -> None:
        fails = 0
        at = None
        while not hook.gone.is_set():
            bell.clear()
            try:
                at = at or self._begin(hook, space)
                items = self._items(space, at)
            except Exception as error:  # of whatever kind: a lane must not end while it is wanted
                fails += 1
                self._log.error("changes cannot be read", space=space, error=type(error).__name__)
                await asyncio.sleep(self._backoff(fails))
                continue
            fails = 0
            for item in items:
                if not await self._deliver(hook, space, item):
                    return
                at = item.seq, item.done
                self._keep(hook, space, at)
            if not items:
                if space not in self._spaces():  # retired; it is woken if it is made again
                    return
                await bell.wait()

    def _items(self, space: str, at: tuple[int, int]) -> list[_Item]:
        """What comes after a cursor; its row is read again, for it may be half delivered."""
        seq, done = at
        items = []
        places: dict[int, int] = {}
        for change in self._read(space, seq - 1):
            row = change["seq"]
            place = places[row] = places.get(row, -1) + 1
            if row > seq or place >= done:
                name = f"{space}:{change.get('version', 0)}:{row}:{place}"
                items.append(_Item(change, name, row, place + 1))
        return items

    def _keep(self, hook: _Hook, space: str, at: tuple[int, int]) -> None:
        assert self._cursors is not None
        try:
            self._cursors.write(hook.id, space, *at)
        except sqlite3.Error as error:  # it goes on, and may send again after a restart
            self._log.error("cursor not kept", host=hook.host, space=space, reason=str(error))

    def lags(self) -> dict[str, float]:
        """By host, the age in seconds of the oldest change that is not delivered yet."""
        lags = {str(hook.host): 0.0 for hook in self._hooks}
        for host, at in self._sending.values():
            age = self._clock() - datetime.fromisoformat(at).timestamp()
            lags[host] = max(lags[host], age)
        return lags

    async def _deliver(self, hook: _Hook, space: str, item: _Item) -> bool:
        """Send until it is taken; False if nothing more is wanted there."""
        lane = hook.id, space
        if "at" in item.change:
            self._sending[lane] = str(hook.host), item.change["at"]
        try:
            return await self._send(hook, space, item)
        finally:
            self._sending.pop(lane, None)

    async def _send(self, hook: _Hook, space: str, item: _Item) -> bool:
        body = msgspec.json.encode({"type": "change", "change": item.change})
        attempt = 0
        while not hook.gone.is_set():
            attempt += 1
            async with hook.room:
                if hook.gone.is_set():
                    break
                status, reason = await self._post(hook, item.delivery, body)
            taken = 200 <= status < 300
            outcome = "delivered" if taken else "gone" if status == 410 else "failed"
            if self._count is not None:
                self._count(outcome)
            said: dict[str, Any] = {"host": hook.host, "space": space, "delivery": item.delivery}
            if taken:
                self._log.debug("delivered", **said, attempt=attempt)
                return True
            if status == 410:
                hook.gone.set()
                self._log.warning("gone: nothing more is sent there until a restart", **said)
                break
            wait = self._backoff(attempt)
            self._log.warning(
                "not delivered", **said, reason=reason, attempt=attempt, again_in=round(wait, 1)
            )
            await asyncio.sleep(wait)
        return False

    async def _post(self, hook: _Hook, delivery: str, body: bytes) -> tuple[int, str]:
        """One attempt: the status, 0 if there was none, and what to say of it."""
        assert self._client is not None
        timestamp = str(int(self._clock()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"whim/{__version__}",
            "Whim-Event": "change",
            "Whim-Delivery": delivery,
            "Whim-Timestamp": timestamp,
        }
        if hook.secret is not None:
            headers["Whim-Signature"] = signature(hook.secret, timestamp, body)
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._client.stream(
                    "POST", hook.settings.url, content=body, headers=headers,
                    follow_redirects=False, timeout=self._timeout,
                ) as reply,
            ):  # fmt: skip
                return reply.status_code, f"status {reply.status_code}"  # the rest is not read
        except Exception as error:  # its text may hold the address
            return 0, type(error).__name__


def _secret(i: int, webhook: Webhook) -> bytes | None:
    if webhook.secret_env is None:
        return None
    secret = os.environ.get(webhook.secret_env)
    if not secret:
        raise ConfigError(
            f"webhooks[{i}].secret_env must name a variable that is set, got "
            f"{webhook.secret_env!r}."
        )
    return secret.encode("utf-8", "surrogateescape")
