"""``Client``: a Whim service, from code that waits for answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Concatenate

import httpx

from whim.client.core import Call, Core, P, ServiceError, T, describe
from whim.client.events import Events
from whim.client.views import Change


def _sends(
    build: Callable[Concatenate[Core, P], Call[T]],
) -> Callable[Concatenate[Client, P], T]:
    """A method that sends what a method of ``Core`` makes, with its parameters."""

    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _now(self._core.run(build(self._core, *args, **kwargs), self._request, _sleep))

    describe(method, build)
    return method


async def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def _now(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never gives way, for all that it awaits is done at once."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise AssertionError("nothing in a client that waits gives way")


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

    async def _request(self, **parts: Any) -> httpx.Response:
        return self._http.request(**parts)

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

    def stream(self, since: int = 0, *, space: str | None = None) -> Iterator[Change]:
        """Changes as they are detected, without end; resumes where a lost connection stopped."""
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
