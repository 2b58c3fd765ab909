"""``SharedCursors``: how far each webhook has come, for whichever replica delivers.

What is asked is answered from memory, and what is said is written by a thread of its own, the
last word on each: a database that is away must not keep deliveries waiting. A cursor that is lost
only sends again.
"""

from __future__ import annotations

import json
import threading

from whim.errors import WhimError
from whim.serve.postgres.queries import Queries

_PAUSE = 0.5  # seconds before what could not be written is written again
_HOOK = (
    "INSERT INTO whim.hook VALUES (%s, %s, %s) ON CONFLICT (url) DO UPDATE SET "
    "since = excluded.since, spaces = excluded.spaces"
)
_CURSOR = (
    "INSERT INTO whim.hook_cursor VALUES (%s, %s, %s, %s) ON CONFLICT (url, space) DO UPDATE SET "
    "seq = excluded.seq, done = excluded.done"
)
_Key = tuple[str, str, str]  # table, address, space


class SharedCursors:
    """The same as ``jobs.cursors.Cursors``, in the database."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        rows = queries.ask("SELECT url, since, spaces FROM whim.hook")
        self._hooks = {url: (since, json.loads(spaces)) for url, since, spaces in rows}
        rows = queries.ask("SELECT url, space, seq, done FROM whim.hook_cursor")
        self._cursors = {(url, space): (seq, done) for url, space, seq, done in rows}
        self._changed = threading.Condition()
        self._unsaid: dict[_Key, tuple[str, tuple[object, ...]]] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="whim cursors", daemon=True)
        self._thread.start()

    def hook(self, url: str) -> tuple[int, list[str]] | None:
        """The row after which an address began, and the spaces it asked for; None: it is new."""
        return self._hooks.get(url)

    def meet(self, url: str, since: int, spaces: list[str]) -> None:
        """Remember an address, or what it asks for now."""
        self._hooks[url] = since, spaces
        self._say(("hook", url, ""), _HOOK, (url, since, json.dumps(spaces)))

    def rename(self, url: str, new: str) -> None:
        """From now on an address goes by another hash."""
        if url in self._hooks:
            self.meet(new, *self._hooks.pop(url))
        for (known, space), (seq, done) in list(self._cursors.items()):
            if known == url:
                self.write(new, space, seq, done)

    def read(self, url: str, space: str) -> tuple[int, int] | None:
        """How far a space is: a row, and how many of its changes were delivered."""
        return self._cursors.get((url, space))

    def write(self, url: str, space: str, seq: int, done: int) -> None:
        """Remember how far a space is."""
        self._cursors[url, space] = seq, done
        self._say(("cursor", url, space), _CURSOR, (url, space, seq, done))

    def _say(self, key: _Key, sql: str, values: tuple[object, ...]) -> None:
        with self._changed:
            self._unsaid[key] = sql, values
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._unsaid and not self._closing:
                    self._changed.wait()
                unsaid, self._unsaid = self._unsaid, {}
                if not unsaid:
                    return
            for key, (sql, values) in unsaid.items():
                try:
                    self._queries.ask(sql, values)
                except WhimError:
                    with self._changed:
                        self._unsaid.setdefault(key, (sql, values))
                        if self._closing:
                            return
                        self._changed.wait(_PAUSE)

    def close(self) -> None:
        """Write what was said, if the database answers."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
