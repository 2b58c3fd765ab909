"""``python -m benchmarks.service.noop PORT [bare]``: the same stack, its handler only answers.

As it is, a request passes all that surrounds a handler of the service: key, size, decoding,
errors, metrics. With ``bare`` it is a Starlette route that reads the body and sends bytes.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
from typing import Any

import msgspec
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.routing import Route as WebRoute
from starlette.types import Receive, Scope, Send

from benchmarks.service.load import POOL
from whim.serve import app, wire
from whim.serve.http import handlers
from whim.serve.http.service import Service
from whim.serve.settings import load

PATH = "/v1/spaces/{space}/decisions"


def body() -> bytes:
    """What a decision answers, once."""
    ranking = [
        wire.Ranked(f"article-{i}", 0.12345678901234 + i, 0.01234567890123, 0.11111111111111 + i)
        for i in range(POOL)
    ]
    return msgspec.json.encode(
        wire.Answer(decision_id="abcdef-1234", space="load", arm="article-1", probability=0.95,
                    mode="policy", version=1, ranking=ranking)
    )  # fmt: skip


class Bare:
    """Reads the body and sends the answer."""

    def __init__(self, answer: bytes) -> None:
        self._body = answer
        self._headers = [
            (b"content-length", b"%d" % len(answer)), (b"cache-control", b"no-store"),
            (b"content-type", b"application/json"),
        ]  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        message = await receive()
        while message.get("more_body"):
            message = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._body})


def main() -> None:
    """Serve on the port that is given."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", int(sys.argv[1])))
    answer = body()

    async def only_answer(service: Service, call: Any) -> bytes:
        return answer

    async def serve(data: str) -> None:
        application: Any
        if sys.argv[2:] == ["bare"]:
            application = Starlette(routes=[WebRoute(PATH, Bare(answer), methods=["POST"])])
        else:
            for route in handlers.ROUTES:
                if route.handler is handlers.decide:
                    app.API[app.API.index(route)] = msgspec.structs.replace(
                        route, handler=only_answer
                    )
            application = app.make(Service(load(None, data=data, demo=False)))
        config = uvicorn.Config(application, log_config=None, access_log=False, lifespan="auto")
        await uvicorn.Server(config).serve(sockets=[listening])

    with (
        tempfile.TemporaryDirectory() as data,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(serve(data))


if __name__ == "__main__":
    main()
