"""``Proxy``: a network that can be cut, between a client and a server on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any, Literal

Cut = Literal["drop", "replies", "reset"]


class Proxy:
    """Forwards connections of its ``port`` to another one, as long as it is whole.

    ``drop``: nothing goes through, and nobody is told; once healed, connections go on where they
    were, as they do when packets are sent again. ``replies``: requests arrive, answers are lost.
    ``reset``: connections break, and new ones are refused until it is healed.
    """

    def __init__(self, target: int) -> None:
        self.target = target  # of new connections; it may move, as an address does in a failover
        self._how: Cut | None = None
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._loop = asyncio.new_event_loop()
        self._whole = asyncio.Event()
        self._whole.set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = int(self._server.sockets[0].getsockname()[1])

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._how == "reset":
            writer.transport.abort()
            return
        try:
            await self._whole.wait()
            above, upward = await asyncio.open_connection("127.0.0.1", self.target)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            return
        pair = (writer, upward)
        self._pairs.add(pair)
        pumps = [
            asyncio.create_task(self._pump(reader, upward, replies=False)),
            asyncio.create_task(self._pump(above, writer, replies=True)),
        ]
        with contextlib.suppress(asyncio.CancelledError):  # by ``close``
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        self._pairs.discard(pair)
        for end in pair:
            end.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if replies and self._how == "replies":
                    continue
                await self._whole.wait()
                writer.write(data)
                await writer.drain()

    def cut(self, how: Cut = "drop") -> None:
        """Cut the network."""
        self._call(self._cut(how))

    async def _cut(self, how: Cut) -> None:
        self._how = how
        if how == "drop":
            self._whole.clear()
        elif how == "reset":
            self._break()

    def _break(self) -> None:
        for pair in self._pairs:
            for end in pair:
                end.transport.abort()

    def heal(self) -> None:
        """Make it whole again."""
        self._call(self._heal())

    async def _heal(self) -> None:
        if self._how == "replies":
            self._break()  # what was lost is missing in these streams
        self._how = None
        self._whole.set()

    def close(self) -> None:
        """Break all connections and take no more."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        self._break()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # transports close their sockets in a turn of their own

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
