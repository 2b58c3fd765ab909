"""The same stack, server, loop, application and route, with a handler that only answers."""

from __future__ import annotations

import asyncio
import socket
import sys

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from benchmarks.service.load import POOL


class Answer:
    """Reads the body and sends an answer of the size and shape of a decision's."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._headers = [
            (b"content-length", b"%d" % len(body)), (b"cache-control", b"no-store"),
            (b"content-type", b"application/json"),
        ]  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        while message.get("more_body"):
            message = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._body})


def body() -> bytes:
    """What a decision answers, once."""
    from whim.serve import wire

    ranking = [
        wire.Ranked(f"article-{i}", 0.12345678901234 + i, 0.01234567890123, 0.11111111111111 + i)
        for i in range(POOL)
    ]
    import msgspec

    return msgspec.json.encode(
        wire.Answer(decision_id="abcdef-1234", space="load", arm="article-1", probability=0.95,
                    mode="policy", version=1, ranking=ranking)
    )  # fmt: skip


def main() -> None:
    """Serve on the port that is given."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", int(sys.argv[1])))
    app = Starlette(
        routes=[Route("/v1/spaces/{space}/decisions", Answer(body()), methods=["POST"])]
    )
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(server.serve(sockets=[listening]))


if __name__ == "__main__":
    main()
