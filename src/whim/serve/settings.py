"""``Settings``: what ``whim.toml`` and the environment may say; every field has a default."""

from __future__ import annotations

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from whim.errors import WhimError
from whim.serve.wire import Name

_Seconds = Annotated[float, Meta(gt=0, le=10_000_000)]
_Text = Annotated[str, Meta(min_length=1, max_length=4096)]
# by the name of a setting that is a list, what is between its words in a variable, if not JSON;
# an address of PostgreSQL may name several hosts, with commas
_LISTS = {"webhooks": None, "trusted_proxies": ",", "more_stores": " "}
_Variable = Annotated[str, Meta(max_length=256, pattern="^[A-Za-z_][A-Za-z0-9_]*$")]


class ConfigError(WhimError):
    """The service cannot start with these settings."""


class Webhook(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Where changes are sent: those of ``spaces``, of all if that is empty.

    ``secret_env`` names the environment variable that holds the secret for signatures. One with a
    ``name`` goes on where it was when its address changes.
    """

    url: _Text
    spaces: list[Name] = []
    secret_env: _Variable | None = None
    name: Name | None = None


class Settings(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """How the service runs. ``port`` 0 is any that is free; ``rate`` 0 is no limit.

    What begins with ``max_`` bounds what callers can make the service hold or compute.
    """

    data: _Text = "whim-data"
    store: _Text | None = None  # postgresql://…: one of many replicas over one log; None: in data
    shards: Annotated[int, Meta(ge=1, le=64)] | None = None  # per database; None: as it has, or 1
    more_stores: Annotated[list[_Text], Meta(max_length=64)] = []  # other databases with shards
    max_lag_seconds: _Seconds = 5.0  # behind the shared log, beyond which a replica is not ready
    host: Annotated[str, Meta(min_length=1, max_length=255)] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8126
    max_body: Annotated[int, Meta(ge=1024, le=2**30)] = 2 * 1024 * 1024
    rate: Annotated[float, Meta(ge=0, le=1e9)] = 0.0  # requests per second for each caller
    burst: Annotated[int, Meta(ge=1, le=10**9)] = 100
    snapshot_seconds: _Seconds = 60.0
    retention_days: Annotated[float, Meta(gt=0, le=100_000)] | None = None
    demo: bool = True
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    access_log: bool = False
    webhooks: Annotated[list[Webhook], Meta(max_length=1000)] = []
    personalizer_space: Name = "personalizer"
    shutdown_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 10.0
    drain_seconds: Annotated[float, Meta(ge=0, le=3600)] | None = None  # None: 5, or 0 on loopback
    commit_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 10.0
    queue_bytes: Annotated[int, Meta(ge=1 << 16, le=1 << 40)] = 1 << 26
    clock_jump_seconds: Annotated[float, Meta(ge=1, le=1e9)] = 60.0
    trusted_proxies: Annotated[list[_Text], Meta(max_length=1000)] = []  # addresses or networks
    first_key_file: _Text | None = None  # whose content becomes the first key
    max_buffered: Annotated[int, Meta(ge=1024, le=2**40)] = 64 * 1024 * 1024  # bodies half sent
    max_header_bytes: Annotated[int, Meta(ge=1024, le=2**24)] = 32 * 1024
    max_connections: Annotated[int, Meta(ge=16, le=10**6)] = 1000
    header_seconds: _Seconds = 10.0
    body_seconds: _Seconds = 30.0
    idle_seconds: _Seconds = 30.0
    max_arms: Annotated[int, Meta(ge=1, le=10**8)] = 20_000  # this and what follows: of a space
    max_arm_bytes: Annotated[int, Meta(ge=1024, le=2**50)] = 2**30
    max_new_arm_bytes: Annotated[int, Meta(ge=1024, le=2**50)] = 2**27
    max_waiting: Annotated[int, Meta(ge=1, le=10**9)] = 1_000_000
    max_values: Annotated[int, Meta(ge=1, le=10**9)] = 250_000  # of one decision
    max_batch_values: Annotated[int, Meta(ge=1, le=10**9)] = 2_000_000
    max_rewards: Annotated[int, Meta(ge=1, le=10**6)] = 1000
    wrong_keys: Annotated[int, Meta(ge=1, le=10**9)] = 1000  # a minute, from one address


def load(
    path: Path | None, *, environment: Mapping[str, str] | None = None, **overrides: Any
) -> Settings:
    """Settings from a file, if there is one, from ``environment``, and from ``overrides``.

    Later ones win; None is none. ``environment`` has a variable ``WHIM_PORT`` for ``port``.

    >>> load(None, port=9000).port
    9000
    >>> load(None, environment={"WHIM_PORT": "9000"}).port
    9000
    >>> load(None, port=90000)
    Traceback (most recent call last):
    whim.serve.settings.ConfigError: port must be `int` <= 65535, got 90000.
    """
    fields: dict[str, Any] = {}
    where = ""
    if path is not None:
        fields, where = _read(path), f"{path.name}: "
    fields |= _from_environment(environment or {})
    overrides = {name: value for name, value in overrides.items() if value is not None}
    for name, value in overrides.items():
        fields[name] = str(value) if isinstance(value, Path) else value
    try:
        settings = msgspec.convert(fields, Settings)
    except msgspec.ValidationError as error:
        text, field = _sentence(str(error), fields)
        raise ConfigError(text if field in overrides else where + text) from None
    _check(settings, "" if {"webhooks", "host"} & overrides.keys() else where)
    if settings.store is None and (settings.more_stores or settings.shards):
        name = "more_stores" if settings.more_stores else "shards"
        raise ConfigError(f"{where}store must be given with {name}, got none.")
    return settings


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings that variables give, each checked by itself so that errors name it."""
    fields: dict[str, Any] = {}
    for name in Settings.__struct_fields__:
        variable = f"WHIM_{name.upper()}"
        text = environment.get(variable, "")
        # Kubernetes sets WHIM_PORT to an address where a service of it is named whim
        if not text or (name == "port" and re.match("(tcp|udp)://", text)):
            continue
        value: Any = text
        if name in _LISTS:
            value = _list(variable, text, _LISTS[name])
        try:
            given = msgspec.convert({name: value}, Settings, strict=False)
            _check(given, "")
        except msgspec.ValidationError as error:
            text, _ = _sentence(str(error), {name: value})
            raise ConfigError(variable + text.removeprefix(name)) from None
        except ConfigError as error:
            raise ConfigError(f"{variable}: {error}") from None
        fields[name] = msgspec.to_builtins(getattr(given, name))
    return fields


def _list(variable: str, text: str, between: str | None) -> Any:
    """A list as JSON, or, of plain words, with something between them."""
    if between and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(between) if part.strip()]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{variable} must be a list in JSON: {error}.") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise ConfigError(f"config must be a file that can be read, got {path}: "
                          f"{error.strerror}.") from None  # fmt: skip
    except UnicodeDecodeError:
        raise ConfigError(f"config must be UTF-8 text, got {path}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"config must be TOML, got {path}: {error}.") from None


def _sentence(error: str, fields: dict[str, Any]) -> tuple[str, str]:
    """What msgspec says, as a parameter, a constraint and what came; and the top field."""
    text, _, at = error.partition(" - at `$.")
    at = at.removesuffix("`")
    unknown = re.search(r"unknown field `(.*)`", text)
    if unknown is not None:
        name = unknown[1]
        known = (Webhook if at else Settings).__struct_fields__
        close = difflib.get_close_matches(name, known, 1)
        hint = f"; perhaps {close[0]}" if close else ""
        field = f"{at}.{name}" if at else name
        return f"{field} must be a setting that exists{hint}.", re.split(r"[.\[]", field)[0]
    missing = re.search(r"required field `(.*)`", text)
    if missing is not None:
        return f"{at}.{missing[1]} must be given.", re.split(r"[.\[]", at)[0]
    must = text.removeprefix("Expected ").partition(", got ")[0]
    if text.startswith("Invalid enum value"):
        must = "one of those that are documented"
        literal = Settings.__annotations__.get(at, "")
        if "Literal" in str(literal):
            must = "one of " + ", ".join(re.findall(r"[\"']([^\"']+)[\"']", str(literal)))
    return f"{at} must be {must}, got {_came(fields, at)}.", re.split(r"[.\[]", at)[0]


def _came(value: Any, at: str) -> str:
    """The value at a path; an address may hold a secret, so only its kind is shown."""
    for part in re.findall(r"[^.\[\]]+", at):
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, TypeError, ValueError):
            return "another"
    if isinstance(value, (dict, list)) or at.endswith(".url") or "store" in at:
        return f"`{type(value).__name__}`"
    return repr(value)[:80]


def _check(settings: Settings, where: str) -> None:
    """What types cannot say."""
    if not settings.host.isprintable() or " " in settings.host:
        raise ConfigError(f"{where}host must be an address or a name, got {settings.host!r}.")
    stores = {"store": settings.store or "postgresql://"}
    stores |= {f"more_stores[{i}]": store for i, store in enumerate(settings.more_stores)}
    for name, store in stores.items():
        if not store.startswith(("postgresql://", "postgres://")):
            raise ConfigError(  # without what came: it may hold a password
                f"{where}{name} must begin with postgresql://, got another address."
            )
    for i, proxy in enumerate(settings.trusted_proxies):
        try:
            ipaddress.ip_network(proxy)
        except ValueError:
            raise ConfigError(f"{where}trusted_proxies[{i}] must be an address or a network such "
                              f"as 10.0.0.0/8, got {proxy[:80]!r}.") from None  # fmt: skip
    seen: dict[str, int] = {}
    names: dict[str, int] = {}
    for i, hook in enumerate(settings.webhooks):
        if hook.name is not None and names.setdefault(hook.name, i) != i:
            raise ConfigError(f"{where}webhooks[{i}].name must differ from others, got that of "
                              f"webhooks[{names[hook.name]}].")  # fmt: skip
        reason = _bad_url(hook.url)
        if reason:
            raise ConfigError(f"{where}webhooks[{i}].url must be an http or https address, "
                              f"got {reason}.")  # fmt: skip
        if hook.url in seen:
            raise ConfigError(f"{where}webhooks[{i}].url must differ from others, got that of "
                              f"webhooks[{seen[hook.url]}].")  # fmt: skip
        seen[hook.url] = i


def _bad_url(url: str) -> str:
    """Why an address will not do; its path and query are not repeated, they may be secret."""
    if not url.isascii() or not url.isprintable() or " " in url:
        return "one with spaces or letters that must be escaped"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "one that cannot be read"
    if parts.scheme not in ("http", "https"):
        return f"scheme {parts.scheme[:20]!r}"
    return "" if host else "one without a host"


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
