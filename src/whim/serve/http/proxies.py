"""``Proxies``: what a proxy says of its caller counts only if the proxy is trusted.

``X-Forwarded-For``, ``X-Forwarded-Proto`` and ``X-Forwarded-Host`` of a trusted one replace the
address, scheme and host of the request; those of anybody else are not looked at.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

_FOR, _PROTO, _HOST = b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"


class Proxies:
    """An application behind proxies, by their addresses or networks."""

    def __init__(self, app: ASGIApp, trusted: Sequence[str]) -> None:
        self._app = app
        networks = [ipaddress.ip_network(text) for text in trusted]

        @functools.lru_cache(4096)
        def trusts(text: str) -> bool:
            address = _address(text)
            return address is not None and any(address in network for network in networks)

        self._trusts = trusts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request as the one that the proxy got."""
        if scope["type"] == "http" and self._trusts((scope.get("client") or ("",))[0]):
            scope = self._original(scope)
        await self._app(scope, receive, send)

    def _original(self, scope: Scope) -> Scope:
        headers = scope["headers"]
        original = {**scope}
        address = self._caller(_values(headers, _FOR))
        if address is not None:
            original["client"] = address, 0
        proto = _values(headers, _PROTO)[-1:]  # the nearest proxy's own word
        if proto in (["http"], ["https"]):
            original["scheme"] = proto[0]
        host = _values(headers, _HOST)[-1:]
        if host:
            kept = [pair for pair in headers if pair[0] != b"host"]
            original["headers"] = [*kept, (b"host", host[0].encode("latin-1"))]
        return original

    def _caller(self, chain: list[str]) -> str | None:
        """The last address that no trusted proxy has: those before it anybody can write."""
        caller = None
        for text in reversed(chain):
            address = _address(text)
            if address is None:
                break
            caller = str(address)
            if not self._trusts(caller):
                break
        return caller


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[str]:
    joined = b",".join(value for header, value in headers if header == name)
    return [part for part in (p.strip() for p in str(joined, "latin-1").split(",")) if part]


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address, perhaps in brackets or with a port; None if it is none."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
