"""Who may pass: keys and their scopes, the rate, and, without keys, only this machine.

A service without keys listens on loopback only. Even there another site's page could send
requests through the reader's browser, so the host and origin that a browser names must be ours.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.types import Scope

from whim.serve.http.problems import ProblemError
from whim.serve.settings import ConfigError, Settings, is_loopback

if TYPE_CHECKING:
    from whim.serve.http.keys import Key, Keys
    from whim.serve.http.service import Service

COOKIE = "whim_key"
_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
_SAFE = frozenset(("GET", "HEAD"))
_FORWARDED = frozenset((
    b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto",
    b"x-real-ip",
))  # fmt: skip


def token_of(headers: dict[bytes, bytes]) -> tuple[str | None, bool]:
    """The key that came, and whether a browser sent it by itself (a cookie)."""
    bearer = headers.get(b"authorization", b"")
    if bearer[:7].lower() == b"bearer ":
        return str(bearer[7:], "latin-1").strip(), False
    for name in (b"x-api-key", b"ocp-apim-subscription-key"):
        if name in headers:
            return str(headers[name], "latin-1"), False
    if b"cookie" in headers:
        try:
            cookie = SimpleCookie(str(headers[b"cookie"], "latin-1")).get(COOKIE)
        except CookieError:
            cookie = None
        if cookie is not None:
            return cookie.value, True
    return None, False


def admit(
    service: Service, scope: Scope, wanted: str | None, headers: dict[bytes, bytes],
    *, limited: bool = True,
) -> Key | None:  # fmt: skip
    """Let a request pass, or raise the problem; the key that it came with.

    What is not ``limited`` passes at any rate: who watches over a service must always see it.
    """
    key = None
    if wanted is not None:
        if service.keys.any:
            token, by_browser = token_of(headers)
            if token is None:
                raise ProblemError(
                    401, "no_key", "a key must be sent with the request.", www_authenticate="Bearer"
                )
            key = check_key(service.keys, token, address_of(scope))
            scope["key_name"] = key.name  # for the access log
            if not key.allows(wanted):
                raise ProblemError(403, "scope", f"the key must have the scope {wanted}.")
            if by_browser and scope["method"] not in _SAFE:
                _same_origin(headers)
        else:
            _local(service, scope, headers)
    if limited and service.rates is not None:
        wait = service.rates.take(_caller(scope, key))
        if wait > 0:
            raise ProblemError(
                429, "rate", f"at most {service.settings.rate:g} requests per second, please.",
                retry_after=_seconds(wait),
            )  # fmt: skip
    return key


def charge(service: Service, scope: Scope, key: Key | None, entries: int) -> None:
    """Have a batch cost as much as its entries would one by one."""
    if service.rates is not None:
        service.rates.charge(_caller(scope, key), entries - 1)  # it has paid for one


def must_reach(key: Key | None, space: str | None) -> None:
    """Refuse a key that is limited to other spaces, or to any where all are concerned."""
    if key is not None and key.spaces and (space is None or not key.reaches(space)):
        what = "all spaces" if space is None else f"the space {space[:80]}"
        raise ProblemError(403, "space", f"the key must be for {what}: it is limited to others.")


def check_key(keys: Keys, token: str, address: str) -> Key:
    """The key of a token, or the problem; an address that sent too many wrong ones must wait."""
    key = keys.check(token)
    attempts = keys.attempts
    wait = attempts.wrong(address) if key is None else attempts.right(address, key.name)
    if wait > 0:
        raise ProblemError(
            429, "wrong_keys", "too many wrong keys came from this address; try again later.",
            retry_after=_seconds(wait),
        )  # fmt: skip
    if key is None:
        raise ProblemError(
            401,
            "wrong_key",
            "the key must be valid: it is unknown or revoked, or its time is over.",
            www_authenticate="Bearer",
        )
    return key


def address_of(scope: Scope) -> str:
    """Where a request comes from."""
    return str((scope.get("client") or ("",))[0])


def _caller(scope: Scope, key: Key | None) -> str:
    return key.name if key is not None else address_of(scope)


def _seconds(wait: float) -> str:
    return str(max(1, round(wait + 0.5)))


def refuse_open(settings: Settings, keys: Keys) -> None:
    """Raise unless only this machine can connect or there is a key to require."""
    if not is_loopback(settings.host) and not keys.any:
        raise ConfigError(
            f"host must be a loopback address while there are no keys, got {settings.host!r}: "
            "make one with `whim keys make`."
        )
    if settings.trusted_proxies and not keys.any:
        raise ConfigError(
            "trusted_proxies must be empty while there are no keys, got "
            f"{len(settings.trusted_proxies)}: make one with `whim keys make`."
        )


def _local(service: Service, scope: Scope, headers: dict[bytes, bytes]) -> None:
    if not service.loopback:
        raise ProblemError(401, "no_key", "a key must be made first: whim keys make.")
    # a proxy on this machine would let in everybody; many speak HTTP/1.0 and say nothing else
    if scope["http_version"] == "1.0" or not _FORWARDED.isdisjoint(headers):
        raise ProblemError(
            403, "proxied", "without keys a request must come from this machine and through no "
            "proxy, and use HTTP/1.1: make a key with `whim keys make`.",
        )  # fmt: skip
    named = str(headers.get(b"host", b"localhost"), "latin-1")
    if named != service.last_host:  # mostly the same one
        try:
            name = urlsplit(f"//{named}").hostname
        except ValueError:
            name = None
        if name not in _LOOPBACK:
            raise ProblemError(
                403, "host", f"without keys the host must be localhost, got {named[:80]!r}."
            )
        service.last_host = named
    if scope["method"] not in _SAFE:
        _same_origin(headers)


def _same_origin(headers: dict[bytes, bytes]) -> None:
    origin = headers.get(b"origin")
    if origin is None:
        return
    try:
        named = urlsplit(str(origin, "latin-1")).netloc.encode("latin-1")
    except ValueError:
        named = b""
    if named != headers.get(b"host"):
        raise ProblemError(403, "origin", "a page of another site must not send requests here.")
