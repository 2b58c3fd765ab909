"""``stream_changes``: changes of interest as server-sent events, until somebody leaves."""

from __future__ import annotations

import asyncio

import msgspec

from whim.serve.http.routes import Call
from whim.serve.http.service import Service

__all__ = ["stream_changes"]

_json = msgspec.json.encode


async def stream_changes(service: Service, call: Call) -> None:
    """Changes as they are found, as server-sent events."""
    name = call.params["space"]
    service.engine.space(name)
    since = _last_event(call)
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
    await call.send({"type": "http.response.start", "status": 200, "headers": headers})
    if call.scope["method"] == "HEAD":
        await call.send({"type": "http.response.body", "body": b""})
        return

    async def say(text: str) -> None:
        await call.send({"type": "http.response.body", "body": text.encode(), "more_body": True})

    gone = asyncio.ensure_future(_until_gone(call))
    try:
        with service.listening(name) as bell:
            await say(": whim\nretry: 1000\n\n")
            while not gone.done() and not service.closing.is_set():
                if name not in service.engine:
                    break
                bell.clear()
                changes = service.changes_after(name, since)
                for i, change in enumerate(changes):
                    last = i + 1 == len(changes) or changes[i + 1]["seq"] != change["seq"]
                    mark = f"id: {change['seq']}\n" if last else ""  # all of a row, or again
                    await say(f"{mark}event: change\ndata: {_json(change).decode()}\n\n")
                    since = change["seq"]
                ring = asyncio.ensure_future(bell.wait())
                await asyncio.wait({ring, gone}, timeout=15, return_when=asyncio.FIRST_COMPLETED)
                if not ring.done():
                    ring.cancel()
                    await say(": still here\n\n")
        await call.send({"type": "http.response.body", "body": b""})
    except OSError:  # the listener went
        pass
    finally:
        gone.cancel()


def _last_event(call: Call) -> int:
    header = call.header(b"last-event-id")
    if header is not None and header.isascii() and header.isdigit() and len(header) < 19:
        return int(header)
    return call.query["since"]


async def _until_gone(call: Call) -> None:
    while (await call.receive())["type"] != "http.disconnect":
        pass
