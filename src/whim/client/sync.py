"""``Client``: a Whim service, from code that waits for answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx

from whim.client import core
from whim.client.core import Call, Core, ServiceError, T
from whim.client.events import Events
from whim.serve.wire import Answer, SpaceConfig


class Client:
    """A Whim service. Close it, or use it in ``with``.

    Requests that fail on the way, or with 429, 502, 503 or 504, are sent again with the same id;
    what is refused raises ``ServiceError``.

    Parameters
    ----------
    url
        Where the service listens.
    key
        An API key; by default the environment's ``WHIM_KEY``.
    space
        The default space.
    timeout
        Seconds for an answer, per attempt.
    retries
        How many more attempts to make.
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
        self._http = httpx.Client(**self._core.options)

    def _run(self, call: Call[T]) -> T:
        talk = self._core.talk(call)
        try:
            step = next(talk)
            while True:
                if isinstance(step, float):
                    time.sleep(step)
                    step = next(talk)
                    continue
                try:
                    reply = self._http.request(**step.parts)
                except httpx.TransportError as error:
                    step = talk.throw(error)
                else:
                    step = talk.send(reply)
        except StopIteration as end:
            answer: T = end.value
            return answer

    def spaces(self) -> list[core.SpaceInfo]:
        """All spaces."""
        return self._run(self._core.spaces())

    def space(self, name: str) -> core.SpaceInfo:
        """One space."""
        return self._run(self._core.info(name))

    def create(self, name: str, config: SpaceConfig | None = None, **fields: Any) -> core.SpaceInfo:
        """Make a space, from a configuration or from its fields."""
        return self._run(self._core.create(name, config, fields))

    def change(self, name: str, config: SpaceConfig | None = None, **fields: Any) -> int:
        """Ask for another configuration; the version that will have it once it is rebuilt."""
        return self._run(self._core.change(name, config, fields))

    def retire(self, name: str) -> None:
        """End a space; its log stays."""
        return self._run(self._core.retire(name))

    def decide(
        self,
        context: core.Context,
        candidates: core.Candidates,
        *,
        decision_id: str | None = None,
        deferred: bool = False,
        space: str | None = None,
    ) -> Answer:
        """What to show. ``deferred``: it is learnt only if ``activate`` says that it was shown."""
        return self._run(
            self._core.decide(
                space, context=context, candidates=candidates, decision_id=decision_id,
                deferred=deferred,
            )
        )  # fmt: skip

    def decide_many(
        self, decisions: core.Decisions, *, space: str | None = None
    ) -> list[Answer | ServiceError]:
        """Several decisions at once; one that is refused is an error in its place."""
        return self._run(self._core.decide_many(space, decisions))

    def reward(
        self,
        decision_id: str,
        value: float,
        *,
        reward_id: str | None = None,
        space: str | None = None,
    ) -> core.Rewarded:
        """Say what came of a decision."""
        return self._run(
            self._core.reward(space, decision_id=decision_id, value=value, reward_id=reward_id)
        )

    def reward_many(
        self, rewards: core.Rewards, *, space: str | None = None
    ) -> list[core.Rewarded | ServiceError]:
        """Several rewards at once; one that is refused is an error in its place."""
        return self._run(self._core.reward_many(space, rewards))

    def activate(self, decision_id: str, *, space: str | None = None) -> bool:
        """A deferred decision was shown; whether this call was the first to say so."""
        return self._run(self._core.activate(space, decision_id))

    def arms(self, *, limit: int = 1000, space: str | None = None) -> list[core.Arm]:
        """The arms of a space, those shown most first."""
        return self._run(self._core.arms(space, limit))

    def retire_arms(self, arms: Sequence[str | int], *, space: str | None = None) -> None:
        """Forget arms that will not be shown again."""
        return self._run(self._core.retire_arms(space, arms))

    def stats(self, *, space: str | None = None) -> dict[str, Any]:
        """Counts and rates of a space."""
        return self._run(self._core.stats(space))

    def changes(
        self, since: int = 0, *, limit: int = 1000, space: str | None = None
    ) -> list[core.Change]:
        """Changes found after row ``since`` of the log."""
        return self._run(self._core.changes(space, since, limit))

    def stream(self, since: int = 0, *, space: str | None = None) -> Iterator[core.Change]:
        """Changes as they are found, without end; a cut connection is resumed where it broke."""
        events = Events(self._core.at(space, "changes", "stream"), since, self._core.retries)
        while True:
            why: Exception | None = None
            try:
                with self._http.stream(**events.request()) as reply:
                    if not reply.is_success:
                        reply.read()
                    events.opened(reply)
                    for data in reply.iter_bytes():
                        yield from events.feed(data)
            except (httpx.TransportError, ServiceError) as error:
                why = error
            time.sleep(events.failed(why))

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
