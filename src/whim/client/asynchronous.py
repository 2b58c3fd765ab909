"""``AsyncClient``: a Whim service, from code that awaits; method for method as ``Client``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx

from whim.client import core
from whim.client.core import Call, Core, ServiceError, T
from whim.client.events import Events
from whim.serve.wire import Answer, SpaceConfig


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

    async def _run(self, call: Call[T]) -> T:
        talk = self._core.talk(call)
        try:
            step = next(talk)
            while True:
                if isinstance(step, float):
                    await asyncio.sleep(step)
                    step = next(talk)
                    continue
                try:
                    reply = await self._http.request(**step.parts)
                except httpx.TransportError as error:
                    step = talk.throw(error)
                else:
                    step = talk.send(reply)
        except StopIteration as end:
            answer: T = end.value
            return answer

    async def spaces(self) -> list[core.SpaceInfo]:
        """All spaces."""
        return await self._run(self._core.spaces())

    async def space(self, name: str) -> core.SpaceInfo:
        """One space."""
        return await self._run(self._core.info(name))

    async def create(
        self, name: str, config: SpaceConfig | None = None, **fields: Any
    ) -> core.SpaceInfo:
        """Make a space, from a configuration or from its fields."""
        return await self._run(self._core.create(name, config, fields))

    async def change(self, name: str, config: SpaceConfig | None = None, **fields: Any) -> int:
        """Ask for another configuration; the version that will have it once it is rebuilt."""
        return await self._run(self._core.change(name, config, fields))

    async def retire(self, name: str) -> None:
        """End a space; its log stays."""
        return await self._run(self._core.retire(name))

    async def decide(
        self,
        context: core.Context,
        candidates: core.Candidates,
        *,
        decision_id: str | None = None,
        deferred: bool = False,
        space: str | None = None,
    ) -> Answer:
        """What to show. ``deferred``: it is learnt only if ``activate`` says that it was shown."""
        return await self._run(
            self._core.decide(
                space, context=context, candidates=candidates, decision_id=decision_id,
                deferred=deferred,
            )
        )  # fmt: skip

    async def decide_many(
        self, decisions: core.Decisions, *, space: str | None = None
    ) -> list[Answer | ServiceError]:
        """Several decisions at once; one that is refused is an error in its place."""
        return await self._run(self._core.decide_many(space, decisions))

    async def reward(
        self,
        decision_id: str,
        value: float,
        *,
        reward_id: str | None = None,
        space: str | None = None,
    ) -> core.Rewarded:
        """Say what came of a decision."""
        return await self._run(
            self._core.reward(space, decision_id=decision_id, value=value, reward_id=reward_id)
        )

    async def reward_many(
        self, rewards: core.Rewards, *, space: str | None = None
    ) -> list[core.Rewarded | ServiceError]:
        """Several rewards at once; one that is refused is an error in its place."""
        return await self._run(self._core.reward_many(space, rewards))

    async def activate(self, decision_id: str, *, space: str | None = None) -> bool:
        """A deferred decision was shown; whether this call was the first to say so."""
        return await self._run(self._core.activate(space, decision_id))

    async def arms(self, *, limit: int = 1000, space: str | None = None) -> list[core.Arm]:
        """The arms of a space, those shown most first."""
        return await self._run(self._core.arms(space, limit))

    async def retire_arms(self, arms: Sequence[str | int], *, space: str | None = None) -> None:
        """Forget arms that will not be shown again."""
        return await self._run(self._core.retire_arms(space, arms))

    async def stats(self, *, space: str | None = None) -> dict[str, Any]:
        """Counts and rates of a space."""
        return await self._run(self._core.stats(space))

    async def changes(
        self, since: int = 0, *, limit: int = 1000, space: str | None = None
    ) -> list[core.Change]:
        """Changes found after row ``since`` of the log."""
        return await self._run(self._core.changes(space, since, limit))

    async def stream(
        self, since: int = 0, *, space: str | None = None
    ) -> AsyncIterator[core.Change]:
        """Changes as they are found, without end; a cut connection is resumed where it broke."""
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
