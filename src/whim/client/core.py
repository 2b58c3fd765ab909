"""``Core``: the requests of a client, how replies are read, and when to ask again."""

from __future__ import annotations

import functools
import inspect
import os
import random
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import msgspec
import numpy as np

from whim.client.views import Arm, Change, Rewarded, SpaceInfo
from whim.errors import InvalidInputError, WhimError
from whim.serve.settings import is_loopback
from whim.serve.wire import (
    Answer,
    Candidate,
    DecisionBody,
    ListAnswer,
    ListBody,
    RewardBody,
    Slot,
    SpaceConfig,
)

T = TypeVar("T")
P = ParamSpec("P")
Context = Sequence[float] | Mapping[str, Any]
Candidates = Sequence[str | int | Candidate | Mapping[str, Any]]
Slots = Sequence[Slot | Mapping[str, Any]]
Decisions = Iterable[DecisionBody | Mapping[str, Any]]
Lists = Iterable[ListBody | Mapping[str, Any]]
Rewards = Iterable[RewardBody | Mapping[str, Any]]
AGAIN = (429, 502, 503, 504)
_LONGEST = 30.0  # seconds: a service that asks for more is reported to the caller instead


class ServiceError(WhimError):
    """The service refused: ``status``, ``code``, ``message`` and the ``path`` of a bad field."""

    def __init__(self, status: int, code: str, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.path = status, code, message, path


class UnreachableError(ServiceError):
    """No answer came, in any attempt."""

    def __init__(self, url: str, error: Exception) -> None:
        said = str(error).rstrip(".") or type(error).__name__
        if isinstance(error, httpx.ReadTimeout):
            said = "none came before the timeout; what was asked for may still happen"
        super().__init__(0, "unreachable", f"url must be of a service that answers: {url}: {said}.")


class _Problem(msgspec.Struct):
    code: str = "unknown"
    message: str = ""
    path: str | None = None


class _Failed(msgspec.Struct):
    error: _Problem | None = None


class Call(NamedTuple, Generic[T]):
    """A request that is not sent yet, and how its answer is read."""

    method: str
    path: str
    body: bytes | None
    reads: Callable[[bytes], T]
    repeatable: bool = True  # asked twice, it happens once

    @property
    def parts(self) -> dict[str, Any]:
        """As httpx takes it."""
        kind = {} if self.body is None else {"Content-Type": "application/json"}
        return {"method": self.method, "url": self.path, "content": self.body, "headers": kind}


# -- in and out of JSON -----------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """What arrays and numbers of numpy, and lists of other kinds, are in JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    raise InvalidInputError(f"a request must be made of text and numbers, got {value!r}.")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_failed = msgspec.json.Decoder(_Failed).decode


def _field(kind: Any, name: str) -> Callable[[bytes], Any]:
    """A reader of one field of an answer."""
    decode = msgspec.json.Decoder(kind).decode
    return lambda data: decode(_fields(data)[name])


def _each(kind: Any, name: str) -> Callable[[bytes], list[Any]]:
    """A reader of a batch, in which each part is an answer or an error."""
    parts, decode = _field(list[msgspec.Raw], name), msgspec.json.Decoder(kind).decode

    def read(data: bytes) -> list[Any]:
        answers: list[Any] = []
        for part in parts(data):
            bad = _failed(part).error
            answers.append(
                decode(part) if bad is None else ServiceError(422, bad.code, bad.message, bad.path)
            )
        return answers

    return read


def _nothing(_: bytes) -> None:
    return None


_answer, _answers = msgspec.json.Decoder(Answer).decode, _each(Answer, "answers")
_list_answer = msgspec.json.Decoder(ListAnswer).decode
_list_answers = _each(ListAnswer, "answers")
_rewarded, _results = msgspec.json.Decoder(Rewarded).decode, _each(Rewarded, "results")
_info, _infos = msgspec.json.Decoder(SpaceInfo).decode, _field(list[SpaceInfo], "spaces")
_object = msgspec.json.Decoder(dict[str, Any]).decode
_arms, _changes = _field(list[Arm], "arms"), _field(list[Change], "changes")
_version, _activated = _field(int, "version"), _field(bool, "activated")


def _named(body: Any, name: str) -> dict[str, Any]:
    """A body with an id of ours if it has none."""
    fields = dict(body) if isinstance(body, Mapping) else msgspec.structs.asdict(body)
    if fields.get(name) is None:
        fields[name] = uuid.uuid4().hex
    return fields


def _reward(fields: dict[str, Any]) -> dict[str, Any]:
    """A reward, whose value may be whether there was a click."""
    value = fields.get("value")
    return fields | {"value": float(value)} if isinstance(value, (bool, np.bool_)) else fields


def _config(config: SpaceConfig | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    if config is not None and fields:
        raise InvalidInputError("config must be a SpaceConfig or its fields, got both.")
    plain: dict[str, Any] = msgspec.to_builtins(dict(fields) if config is None else config)
    return plain


def problem(reply: httpx.Response) -> ServiceError:
    """What a refusal says."""
    try:
        error = _failed(reply.content).error
    except msgspec.DecodeError:  # of somebody between here and the service
        error = None
    if error is None:
        text = " ".join(reply.text.split())[:200] or reply.reason_phrase
        said = f"{reply.url.host} must answer as Whim does, got {reply.status_code}: {text}."
        error = _Problem(f"http_{reply.status_code}", said)
    return ServiceError(reply.status_code, error.code, error.message, error.path)


# -- when to ask again ------------------------------------------------------------------------


def pause(attempt: int, longest: float = 5.0) -> float:
    """Twice as long each time, and never in step with the other callers."""
    return min(0.1 * 2.0 ** min(attempt, 10), longest) * random.uniform(0.5, 1.0)


def _asked_to_wait(reply: httpx.Response) -> float:
    try:
        return max(float(reply.headers.get("Retry-After", 0)), 0.0)
    except ValueError:  # a date: as long as we would wait anyway
        return 0.0


class Core:
    """What both clients share: everything but the sending."""

    def __init__(
        self, url: str, key: str | None, space: str | None, timeout: float, retries: int
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInputError(f"url must be http://HOST:PORT or https://HOST, got {url!r}.")
        for name, value, low in (("timeout", timeout, 0), ("retries", retries, -1)):
            if not value > low:
                raise InvalidInputError(f"{name} must be more than {low}, got {value!r}.")
        self.url, self.retries = url, retries
        self._default_space = space
        key = os.environ.get("WHIM_KEY") if key is None else key
        self.options: dict[str, Any] = {
            "base_url": url,
            "timeout": timeout,
            "headers": {"Authorization": f"Bearer {key}"} if key else {},
            "trust_env": not is_loopback(parts.hostname),  # no proxy between here and here
            "verify": parts.scheme == "https",  # reading certificates takes its time
        }

    async def run(
        self,
        call: Call[T],
        request: Callable[..., Awaitable[httpx.Response]],
        sleep: Callable[[float], Awaitable[None]],
    ) -> T:
        """Send a call, by the ``request`` of a client, until there is an answer."""
        for attempt in range(self.retries + 1):
            last = attempt == self.retries
            try:
                reply = await request(**call.parts)
            except httpx.TransportError as error:
                never_came = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
                if last or not (call.repeatable or never_came):
                    raise UnreachableError(self.url, error) from error
                await sleep(pause(attempt))
                continue
            status, wait = reply.status_code, _asked_to_wait(reply)
            if reply.is_success:
                return _read(call, reply)
            again = status in AGAIN if call.repeatable else status in (429, 503)
            if last or not again or wait > _LONGEST:
                raise problem(reply)
            await sleep(max(wait, pause(attempt)))
        raise AssertionError("the last attempt returns or raises")

    # -- calls: the methods of both clients -------------------------------------------------

    def at(self, space: str | None, *path: str) -> str:
        """Where something of a space is."""
        name = self._default_space if space is None else space
        if name is None:
            raise InvalidInputError("space must be given, to the client or to its method.")
        return "/".join(["/v1/spaces", *(quote(part, safe="") for part in (name, *path))])

    def spaces(self) -> Call[list[SpaceInfo]]:
        """All spaces."""
        return Call("GET", "/v1/spaces", None, _infos)

    def space(self, name: str) -> Call[SpaceInfo]:
        """One space."""
        return Call("GET", self.at(name), None, _info)

    def create(
        self, /, name: str, config: SpaceConfig | None = None, **fields: Any
    ) -> Call[SpaceInfo]:
        """Make a space, from a configuration or from its fields."""
        body = _encode({"name": name, **_config(config, fields)})
        return Call("POST", "/v1/spaces", body, _info, repeatable=False)

    def change(self, /, name: str, config: SpaceConfig | None = None, **fields: Any) -> Call[int]:
        """Ask for another configuration; the version that will have it once it is rebuilt."""
        body = _encode(_config(config, fields))
        return Call("PUT", self.at(name), body, _version, repeatable=False)

    def retire(self, name: str) -> Call[None]:
        """End a space; its log stays."""
        return Call("DELETE", self.at(name), None, _nothing, repeatable=False)

    def decide(
        self, context: Context, candidates: Candidates, *, decision_id: str | None = None,
        deferred: bool = False, space: str | None = None,
    ) -> Call[Answer]:  # fmt: skip
        """What to show. ``deferred``: it is learnt only if ``activate`` says that it was shown."""
        body = {"context": context, "candidates": candidates, "decision_id": decision_id}
        data = _encode(_named(body | {"deferred": deferred}, "decision_id"))
        return Call("POST", self.at(space, "decisions"), data, _answer)

    def decide_list(
        self, context: Context, candidates: Candidates, k: int | None = None, *,
        slots: Slots | None = None, decision_id: str | None = None, deferred: bool = False,
        space: str | None = None,
    ) -> Call[ListAnswer]:  # fmt: skip
        """What to show in ``k`` places, or in ``slots``; rewards are for items of it."""
        body: dict[str, Any] = {"context": context, "candidates": candidates}
        body |= {name: at for name, at in (("k", k), ("slots", slots)) if at is not None}
        body["decision_id"] = decision_id
        data = _encode(_named(body | {"deferred": deferred}, "decision_id"))
        return Call("POST", self.at(space, "lists"), data, _list_answer)

    def decide_many(
        self, decisions: Decisions, *, space: str | None = None
    ) -> Call[list[Answer | ServiceError]]:
        """Several decisions at once; one that is refused is an error in its place."""
        data = _encode({"decisions": [_named(each, "decision_id") for each in decisions]})
        return Call("POST", self.at(space, "decisions", "batch"), data, _answers)

    def decide_list_many(
        self, lists: Lists, *, space: str | None = None
    ) -> Call[list[ListAnswer | ServiceError]]:
        """Several lists at once; one that is refused is an error in its place."""
        data = _encode({"lists": [_named(each, "decision_id") for each in lists]})
        return Call("POST", self.at(space, "lists", "batch"), data, _list_answers)

    def reward(
        self, decision_id: str, value: float, *, reward_id: str | None = None,
        slot: str | int | None = None, arm: str | int | None = None, space: str | None = None,
    ) -> Call[Rewarded]:  # fmt: skip
        """Report the reward of a decision; of a list, ``slot`` or ``arm`` says of which item."""
        body = {"decision_id": decision_id, "value": value, "reward_id": reward_id}
        body |= {name: at for name, at in (("slot", slot), ("arm", arm)) if at is not None}
        data = _encode(_reward(_named(body, "reward_id")))
        return Call("POST", self.at(space, "rewards"), data, _rewarded)

    def reward_many(
        self, rewards: Rewards, *, space: str | None = None
    ) -> Call[list[Rewarded | ServiceError]]:
        """Several rewards at once; one that is refused is an error in its place."""
        data = _encode({"rewards": [_reward(_named(each, "reward_id")) for each in rewards]})
        return Call("POST", self.at(space, "rewards", "batch"), data, _results)

    def activate(self, decision_id: str, *, space: str | None = None) -> Call[bool]:
        """A deferred decision was shown; whether this call was the first to say so."""
        path = self.at(space, "decisions", decision_id, "activate")
        return Call("POST", path, None, _activated)

    def arms(self, *, limit: int = 1000, space: str | None = None) -> Call[list[Arm]]:
        """The arms of a space, those shown most first."""
        return Call("GET", f"{self.at(space, 'arms')}?limit={int(limit)}", None, _arms)

    def retire_arms(self, arms: Sequence[str | int], *, space: str | None = None) -> Call[None]:
        """Forget arms that will not be shown again."""
        body = _encode({"arms": arms})
        return Call("POST", self.at(space, "arms", "retire"), body, _nothing, repeatable=False)

    def stats(self, *, space: str | None = None) -> Call[dict[str, Any]]:
        """Counts and rates of a space."""
        return Call("GET", self.at(space, "stats"), None, _object)

    def changes(
        self, since: int = 0, *, limit: int = 1000, space: str | None = None
    ) -> Call[list[Change]]:
        """Changes detected after row ``since`` of the log."""
        path = f"{self.at(space, 'changes')}?since={int(since)}&limit={int(limit)}"
        return Call("GET", path, None, _changes)


def describe(method: Callable[..., Any], build: Callable[..., Any]) -> None:
    """Make a client's method look like the one of ``Core`` that it sends: for ``help``."""
    functools.update_wrapper(method, build)
    made = inspect.signature(build)
    answer = str(made.return_annotation).removeprefix("Call[").removesuffix("]")
    method.__signature__ = made.replace(return_annotation=answer)  # type: ignore[attr-defined]


def _read(call: Call[T], reply: httpx.Response) -> T:
    try:
        return call.reads(reply.content)
    except (msgspec.DecodeError, KeyError) as error:
        said = f"the answer to {call.method} {call.path} must be Whim's: {error}."
        raise ServiceError(reply.status_code, "unexpected", said) from error
