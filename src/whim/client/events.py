"""``Events``: a stream of changes as bytes, and what to ask for when it was cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import msgspec

from whim.client.core import AGAIN, ServiceError, UnreachableError, pause, problem
from whim.client.views import Change

_QUIET = 60.0  # seconds of silence after which it reconnects
_change = msgspec.json.Decoder(Change).decode


class Events:
    """Server-sent events of one address; ``since`` is the row after which they are wanted."""

    def __init__(self, path: str, since: int, retries: int) -> None:
        self._path, self._last, self._retries = path, since, retries
        self._failures, self._met = 0, False
        self._rest, self._id, self._data = b"", b"", list[bytes]()
        self._handed: list[Change] = []  # since the last row that came whole

    def request(self) -> dict[str, Any]:
        """What to ask for now: all after the last change that was handed on."""
        self._rest, self._id, self._data = b"", b"", []
        headers = {"Accept": "text/event-stream"}
        if self._last:
            headers["Last-Event-ID"] = str(self._last)
        timeout = httpx.Timeout(5.0, read=_QUIET)
        return {"method": "GET", "url": self._path, "headers": headers, "timeout": timeout}

    def opened(self, reply: httpx.Response) -> None:
        """It streams, or it refused: then its body must have been read."""
        if not reply.is_success:
            raise problem(reply)
        self._met, self._failures = True, 0

    def feed(self, data: bytes) -> Iterator[Change]:
        """Take bytes; the changes that they complete. Only line feeds end lines here.

        One row may reveal several changes, and only the last of them has the row's id: after a cut
        within them all come again, and those that were handed on are left out.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            change = self._line(line.removesuffix(b"\r"))
            if change is None:
                continue
            if change not in self._handed:
                yield change
                self._handed.append(change)
            if self._id.isdigit():
                self._last, self._id, self._handed = int(self._id), b"", []

    def _line(self, line: bytes) -> Change | None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name == b"id":
            self._id = value.strip()
        elif not line and self._data:
            data, self._data = b"\n".join(self._data), []
            try:
                return _change(data)
            except msgspec.DecodeError as error:
                said = f"an event must be a change of Whim's: {error}."
                raise ServiceError(200, "unexpected", said) from error
        return None

    def failed(self, error: Exception | None) -> float:
        """How long to wait before asking anew; raises what will not pass by itself."""
        self._failures += 1
        if isinstance(error, ServiceError) and error.status not in AGAIN:
            raise error
        if error is not None and not self._met and self._failures > self._retries:
            raise (
                error if isinstance(error, ServiceError) else UnreachableError(self._path, error)
            )
        return pause(self._failures - 1)
