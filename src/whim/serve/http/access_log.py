"""``AccessLog``: one line per request, with an id that the caller gets back.

The id is the caller's own (``X-Request-ID``), so that a line can be found again from the other
side; one is made where none came.
"""

from __future__ import annotations

import itertools
import re
import secrets
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_NAME = b"x-request-id"
_SOUND = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")  # others are not repeated


class AccessLog:
    """An application whose requests are logged: who, what, how it ended and how long it took."""

    def __init__(self, app: ASGIApp, log: Any) -> None:
        self._app, self._log = app, log
        self._prefix, self._numbers = secrets.token_hex(6), itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, then log it; what was never answered has the status 0."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0
        key = scope["request_id"] = self._id(scope)

        async def send_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (_NAME, key.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_id)
        finally:
            caller = scope.get("client")
            self._log.info(
                "request", request_id=key, method=scope["method"], path=scope["path"],
                status=status, milliseconds=round(1000 * (time.perf_counter() - began), 3),
                key_name=scope.get("key_name"),
                caller=None if caller is None else f"{caller[0]}:{caller[1]}",
            )  # fmt: skip

    def _id(self, scope: Scope) -> str:
        for name, value in scope["headers"]:
            if name == _NAME and _SOUND.fullmatch(value):
                return str(value, "ascii")
        return f"{self._prefix}-{next(self._numbers)}"
