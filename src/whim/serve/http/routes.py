"""The route table's parts: what a route needs, takes and gives; each is an ASGI endpoint.

One ``Route`` makes both the path that is served and its entry in the OpenAPI document, so the
document cannot fall behind. Here is all that happens around a handler: key, rate, size, decoding,
errors, metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec
from starlette.types import Receive, Scope, Send

from whim.serve.http.guard import admit, charge, must_reach
from whim.serve.http.problems import Failure, ProblemError, problem_of
from whim.serve.http.sliced import SlicedDecoder
from whim.serve.http.turns import LARGE

if TYPE_CHECKING:
    from whim.serve.http.keys import Key
    from whim.serve.http.service import Service

_JSON = b"application/json"
_encode = msgspec.json.Encoder().encode
_NO_STORE = (b"cache-control", b"no-store")

_FAST = ("decide", "reward")  # scopes of what need not see what was just accepted here


class Query(msgspec.Struct, frozen=True):
    """A number in the query."""

    name: str
    default: int
    least: int
    most: int
    about: str


class Route(msgspec.Struct, frozen=True):
    """One method of one path; its handler's docstring is its summary in the document."""

    method: str
    path: str
    handler: Callable[[Service, Call], Awaitable[Any]]
    scope: str | None = "read"  # None: needs no key
    takes: Any = None
    gives: Any = None
    status: int = 200
    media: str = "application/json"
    query: tuple[Query, ...] = ()
    problems: tuple[int, ...] = ()
    always: bool = False  # answers even before the log is read or after it failed
    tag: str = "whim"
    limited: bool = True  # by the rate of its caller
    entries: Callable[[Any], int] | None = None  # of a batch's body: each costs as one request
    long: str | None = None  # the field of its body that may be a long list
    several_spaces: bool = False  # its handler keeps to those that the key is for


class Call(msgspec.Struct):
    """A request, checked: where, by whom, with what."""

    scope: Scope
    receive: Receive
    send: Send
    params: dict[str, str]
    body: Any
    key: Key | None
    query: dict[str, int]

    def header(self, name: bytes) -> str | None:
        """A header's value."""
        for header, value in self.scope["headers"]:
            if header == name:
                return str(value, "latin-1")
        return None


class Reply(msgspec.Struct):
    """An answer that is not just JSON with the route's status."""

    body: bytes
    status: int = 200
    media: bytes = _JSON
    headers: list[tuple[bytes, bytes]] = []


class Endpoint:
    """All methods of one path, as an ASGI application."""

    def __init__(self, routes: list[Route]) -> None:
        self.routes = {route.method: route for route in routes}
        if "GET" in self.routes:
            self.routes.setdefault("HEAD", self.routes["GET"])
        self._decoders = {
            r.method: msgspec.json.Decoder(r.takes) for r in routes if r.takes is not None
        }
        self._sliced = {r.method: SlicedDecoder(r.takes, r.long) for r in routes if r.long}
        self.methods = sorted(self.routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; whatever happens becomes one answer."""
        service: Service = scope["app"].state.service
        began = time.perf_counter()
        method = scope["method"]
        route = self.routes.get(method)
        try:
            if route is None:
                known = ", ".join(self.methods)
                said = f"method must be one of {known}, got {method}."
                raise ProblemError(405, "method", said, allow=known)
            result = await self._handled(service, route, scope, receive, send)
        except asyncio.CancelledError:
            if not service.closing.is_set():
                raise
            # the time to finish what was accepted is over
            reply = failure(ProblemError(503, "stopping", "the service stops; try again soon."))
        except Exception as error:
            reply = self._failed(service, error, scope)
        else:
            if result is None and route.media == "text/event-stream":  # it has sent it all
                service.metrics.request(route.path, method, 200, time.perf_counter() - began)
                return
            if type(result) is bytes:
                reply = Reply(result, route.status)
            elif type(result) is Reply:
                reply = result
            else:
                reply = Reply(b"" if result is None else _encode(result), route.status)
        if service.ready and (lag := service.engine.lag) is not None:
            reply.headers.append((b"whim-lag", b"rows=%d, seconds=%.3f" % lag))
        await answer(send, reply, head=method == "HEAD")
        path = route.path if route is not None else next(iter(self.routes.values())).path
        service.metrics.request(path, method, reply.status, time.perf_counter() - began)

    async def _handled(
        self, service: Service, route: Route, scope: Scope, receive: Receive, send: Send
    ) -> Any:
        """What the handler of a request that may pass returns."""
        headers, params, method = dict(scope["headers"]), scope["path_params"], scope["method"]
        key = admit(service, scope, route.scope, headers, limited=route.limited)
        if key is not None and key.spaces and not route.several_spaces:
            alone = service.settings.personalizer_space if route.tag == "personalizer" else None
            must_reach(key, params.get("space", alone))
        if not route.always:
            service.must_be_ready(reading=method in ("GET", "HEAD"))
            if route.scope not in _FAST:
                await service.engine.settled(params.get("space"))
            if "space" in params and params["space"] not in service.engine:
                await service.engine.know(params["space"])
        query = _numbers(scope, route.query) if route.query else {}
        call = Call(scope, receive, send, params, None, key, query)
        if route.takes is None:
            return await route.handler(service, call)
        raw = await read(headers, receive, service.settings.max_body, service.buffers)
        decode, turns = self._decoders[method].decode, service.turns
        if len(raw) <= LARGE:
            call.body = decode(raw)
            if route.entries is not None:
                charge(service, scope, key, route.entries(call.body))
            return await turns.first(route.handler(service, call))
        with service.buffers.holding(len(raw)):  # until its turn has come
            async with turns.large:
                if route.long:
                    call.body = await self._sliced[method].decode(raw, turns)
                else:
                    call.body = await turns.run(lambda: decode(raw))
                if route.entries is not None:
                    charge(service, scope, key, route.entries(call.body))
                return await route.handler(service, call)

    def _failed(self, service: Service, error: Exception, scope: Scope) -> Reply:
        problem = problem_of(error)
        if problem is None:
            where = {"path": scope["path"], "request_id": scope.get("request_id")}
            service.log.error("fault", **where, exc_info=error)
            problem = ProblemError(500, "fault", "a fault of the service; its log has the details.")
        return failure(problem)


def failure(problem: ProblemError) -> Reply:
    """A problem as an answer."""
    headers = [(k.encode(), v.encode()) for k, v in problem.headers.items()]
    return Reply(_encode(Failure(problem.problem)), problem.status, _JSON, headers)


async def answer(send: Send, reply: Reply, *, head: bool = False) -> None:
    """Send an answer whole."""
    headers = [(b"content-length", b"%d" % len(reply.body)), _NO_STORE, *reply.headers]
    if reply.status != 204:
        headers.append((b"content-type", reply.media))
    try:
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if head else reply.body})
    except (OSError, RuntimeError):
        pass  # the caller has disconnected


class Buffers:
    """Bytes of bodies on their way, or large and waiting for their turn; at most ``most``."""

    def __init__(self, most: int) -> None:
        self._most, self._used = most, 0

    def add(self, size: int) -> None:
        """Count some more, or refuse."""
        if self._used + size > self._most:
            raise ProblemError(
                503, "busy", f"at most {self._most} bytes of bodies may be on their way.",
                retry_after="1", connection="close",
            )  # fmt: skip
        self._used += size

    def free(self, size: int) -> None:
        """They are whole, or given up."""
        self._used -= size

    @contextlib.contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count so many for a while."""
        self.add(size)
        try:
            yield
        finally:
            self.free(size)


async def read(headers: dict[bytes, bytes], receive: Receive, most: int, buffers: Buffers) -> bytes:
    """The body, refused as soon as it is known to be too long."""
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > most:
        raise _too_long(most)
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        parts, size = [body], 0
        try:
            while True:
                buffers.add(len(parts[-1]))
                size += len(parts[-1])
                if not message.get("more_body") or size > most:
                    break
                message = await receive()
                parts.append(message.get("body", b""))
        finally:
            buffers.free(size)
        body = b"".join(parts)
    if message["type"] == "http.disconnect":
        raise ProblemError(400, "cut_short", "the body must be complete.")
    if len(body) > most:
        raise _too_long(most)
    return body


def _too_long(most: int) -> ProblemError:
    return ProblemError(
        413, "too_long", f"the body must be at most {most} bytes.", connection="close"
    )


def _numbers(scope: Scope, wanted: tuple[Query, ...]) -> dict[str, int]:
    text = str(scope["query_string"], "latin-1")
    try:
        values = parse_qs(text, keep_blank_values=True, max_num_fields=50, strict_parsing=False)
    except ValueError:
        raise ProblemError(422, "invalid", "the query must have at most 50 fields.", "?") from None
    known = {q.name for q in wanted}
    for name in values:
        if name not in known:
            raise ProblemError(
                422, "invalid", f"?{name[:80]} must be one of {', '.join(sorted(known))}.", "?"
            )
    numbers = {}
    for q in wanted:
        value = values.get(q.name, [str(q.default)])[-1]
        sound = value.isascii() and value.lstrip("-").isdigit() and len(value) < 20
        if not sound or not q.least <= int(value) <= q.most:
            raise ProblemError(
                422, "invalid",
                f"?{q.name} must be a whole number from {q.least} to {q.most}, got {value[:40]!r}.",
                f"?{q.name}",
            )  # fmt: skip
        numbers[q.name] = int(value)
    return numbers
