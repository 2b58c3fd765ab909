"""``Outgoing``: rows on their way to the shared log, and who waits for what becomes of them.

A reply may wait for the commit alone, or until its row has come back and was taken here. Nobody
waits for longer than a set time: the database may be away, and what became of a row is then told
to who asks again, with the same id.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from whim.errors import WhimError
from whim.serve.postgres.append import Appended, Done, Entry
from whim.serve.postgres.connection import UnavailableError
from whim.serve.postgres.link import Link

Act = Callable[[], None]
OnAppended = Callable[[Appended, Act], None]
OnError = Callable[[Exception], None]


class _Put:
    """What to do once rows are there, or if that is not known; and after it is told."""

    def __init__(self, since: float, done: OnAppended, fail: OnError) -> None:
        self.since, self.done, self.fail = since, done, fail
        self.then: list[Act] = []


class Outgoing:
    """Rows of one replica; ``seconds`` is how long anybody waits for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop, self._seconds = loop, seconds
        self._puts: dict[int, _Put] = {}
        self._numbers: Iterator[int] = itertools.count()
        self._awaited: list[tuple[int, int, Act]] = []  # by row: what to do when it was taken
        self._taken = self.appended = 0  # rows up to which all were taken; the last of our own
        self.link: Link

    def put(self, entries: list[Entry], done: OnAppended, fail: OnError) -> None:
        """Append; ``done`` gets what became of it, and what to call when all is told."""
        number = next(self._numbers)
        self._puts[number] = _Put(self._loop.time(), done, fail)
        try:
            self.link.put(entries, number)
        except WhimError:
            del self._puts[number]
            raise

    def put_one(
        self, entry: Entry, token: Any, result: Callable[[int], Any], taken: Exception | None = None
    ) -> None:
        """Append a row; the token gets its ``result`` when it was taken here.

        ``taken`` is what it gets if another row has the key.
        """

        def done(appended: Appended, finish: Act) -> None:
            def told() -> None:
                if appended.old and taken is not None:
                    fail(token, taken)
                else:
                    attempt(lambda: tell(token, result(appended.seqs[0])), token)
                finish()

            self.when_taken(appended.seqs[0], told)

        self.put([entry], done, functools.partial(fail, token))

    def answered(self, dones: list[Done]) -> None:
        """The database has said what became of rows."""
        for number, appended, error in dones:
            put = self._puts.get(number)
            if put is None:  # nobody waits any longer
                continue
            if appended is None:
                self._give_up(number, error or UnavailableError("the database has not answered."))
            else:
                self.appended = max(self.appended, *appended.seqs)
                put.done(appended, functools.partial(self._finish, number))

    def _finish(self, number: int) -> None:
        put = self._puts.pop(number, None)
        for act in () if put is None else put.then:
            act()

    def _give_up(self, number: int, error: Exception) -> None:
        put = self._puts.pop(number)
        put.fail(error)
        for act in put.then:
            act()

    def when_taken(self, seq: int, act: Act) -> None:
        """Act once a row was taken here."""
        if seq <= self._taken:
            act()
        else:
            heapq.heappush(self._awaited, (seq, next(self._numbers), act))

    def took(self, seq: int) -> None:
        """All rows up to this one were taken."""
        self._taken = seq
        while self._awaited and self._awaited[0][0] <= seq:
            heapq.heappop(self._awaited)[2]()

    def sync(self, token: Any) -> None:
        """Have ``token`` returned once all that was put so far is told."""
        left = len(self._puts)
        if not left:
            tell(token, None)
            return

        def one() -> None:
            nonlocal left
            left -= 1
            if not left:
                tell(token, None)

        for put in self._puts.values():
            put.then.append(one)

    def give_up_old(self) -> None:
        """Answer those who have waited too long."""
        for number, put in list(self._puts.items()):
            if self._loop.time() - put.since > self._seconds:
                self._give_up(number, too_late(self._seconds))

    def give_up(self, reason: str) -> None:
        """Answer all who wait."""
        for number in list(self._puts):
            self._give_up(number, UnavailableError(reason))


def too_late(seconds: float) -> UnavailableError:
    """What those get who have waited for so long."""
    return UnavailableError(
        f"the database must answer within {seconds:g} s, and has not: try again with the same id."
    )


def tell(token: Any, result: Any) -> None:
    """Give a caller who waits what came of it."""
    if token is not None and not token.done():
        token.set_result(result)


def fail(token: Any, error: Exception) -> None:
    """Give a caller who waits an error."""
    if token is not None and not token.done():
        token.set_exception(error)


def attempt(act: Callable[[], Any], token: Any) -> None:
    """Do something for a caller who waits; what goes wrong is told."""
    try:
        act()
    except Exception as error:  # of any kind: those who wait must get an answer
        fail(token, error)
