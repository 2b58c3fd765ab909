"""``AsyncClient``: a Whim service, from code that awaits; method for method as ``Client``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Concatenate

import httpx

from whim.client.core import Call, Core, P, ServiceError, T, describe
from whim.client.events import Events
from whim.client.views import Change


def _sends(
    build: Callable[Concatenate[Core, P], Call[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """A method that sends what a method of ``Core`` makes, with its parameters."""

    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call = build(self._core, *args, **kwargs)
        return await self._core.run(call, self._http.request, asyncio.sleep)

    describe(method, build)
    return method


class AsyncClient:
    """A Whim service. Close it with ``aclose``, or use it in ``async with``.

    Requests that fail on the way, or with 429, 502, 503 or 504, are sent again with the same id;
    what is refused raises ``ServiceError``. Parameters are those of ``Client``.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8126",
        key: str | None = None,
        space: str | None = None,
        timeout: float = 5.0,
        retries: int = 3,
    ) -> None:
        self._core = Core(url, key, space, timeout, retries)
        self._http = httpx.AsyncClient(**self._core.options)

    spaces = _sends(Core.spaces)
    space = _sends(Core.space)
    create = _sends(Core.create)
    change = _sends(Core.change)
    retire = _sends(Core.retire)
    decide = _sends(Core.decide)
    decide_list = _sends(Core.decide_list)
    decide_many = _sends(Core.decide_many)
    decide_list_many = _sends(Core.decide_list_many)
    reward = _sends(Core.reward)
    reward_many = _sends(Core.reward_many)
    activate = _sends(Core.activate)
    arms = _sends(Core.arms)
    retire_arms = _sends(Core.retire_arms)
    stats = _sends(Core.stats)
    changes = _sends(Core.changes)

    async def stream(self, since: int = 0, *, space: str | None = None) -> AsyncIterator[Change]:
        """Changes as they are detected, without end; resumes where a lost connection stopped."""
        events = Events(self._core.at(space, "changes", "stream"), since, self._core.retries)
        while True:
            why: Exception | None = None
            try:
                async with self._http.stream(**events.request()) as reply:
                    if not reply.is_success:
                        await reply.aread()
                    events.opened(reply)
                    async for data in reply.aiter_bytes():
                        for change in events.feed(data):
                            yield change
            except (httpx.TransportError, ServiceError) as error:
                why = error
            await asyncio.sleep(events.failed(why))

    async def aclose(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
