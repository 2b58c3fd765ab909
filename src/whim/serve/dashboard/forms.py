"""What browsers send: the login, and the configuration of a what-if; checked here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from starlette.requests import ClientDisconnect, Request

from whim.errors import InvalidInputError
from whim.serve import wire
from whim.serve.state.policy import build

_MOST = 64 * 1024  # bytes
_FIELDS = 2000  # as many as the form of a space has with all of its rows


async def fields(request: Request) -> dict[str, str]:
    """The fields of a form; of two with the same name the last."""
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > _MOST:
                raise InvalidInputError(f"the form must have at most {_MOST} bytes, got more.")
    except ClientDisconnect:
        raise InvalidInputError("the form must be complete.") from None
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS))
    except ValueError:
        raise InvalidInputError(f"the form must be text of at most {_FIELDS} fields.") from None


def local(path: str) -> str:
    """Where to go after a login: a path of this service, or its first page.

    >>> local("/spaces/news"), local("//elsewhere/x"), local("javascript:x")
    ('/spaces/news', '/', '/')
    """
    odd = not path.startswith("/") or path[:2] in ("//", "/\\") or not path.isprintable()
    try:
        parts = urlsplit(path)
    except ValueError:
        return "/"
    return "/" if odd or "\\" in path or parts.scheme or parts.netloc else path


def path_of(url: str) -> str:
    """The path of the page that a request for a part came from, as the browser names it.

    >>> path_of("http://localhost:8126/spaces/news?sort=arm"), path_of("http://["), path_of("")
    ('/spaces/news', '/', '/')
    """
    try:
        return local(urlsplit(url).path or "/")
    except ValueError:
        return "/"


def config_of(fields: Mapping[str, str], now: wire.SpaceConfig) -> wire.SpaceConfig:
    """A configuration from a form: that of now with another policy, parameters, exploration.

    Parameters are read as JSON, and as text where that fails; empty ones are the defaults.
    """
    params: dict[str, Any] = {}
    for name, text in fields.items():
        if name.startswith("p.") and text.strip():
            params[name[2:]] = value_of(text.strip())
    text = fields.get("explore", "").strip()
    values = {
        **msgspec.to_builtins(now),
        "policy": fields.get("policy", now.policy),
        "params": params,
        "explore": value_of(text) if text else now.explore,
    }
    try:
        config = msgspec.convert(values, wire.SpaceConfig)
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"{error}.") from None
    return checked(config)


def checked(config: wire.SpaceConfig) -> wire.SpaceConfig:
    """The configuration, which can be built."""
    try:
        build(config)
    except TypeError as error:  # a parameter that the policy lacks, or that is not there
        raise InvalidInputError(f"$.params must fit {config.policy}: {error}.") from None
    return config


def value_of(text: str) -> Any:
    """What a text stands for: JSON, or else itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
