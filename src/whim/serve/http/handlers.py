"""What each route does. Handlers are short: the engine decides, the host waits for the commit."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from whim.errors import WhimError
from whim.serve import wire
from whim.serve.http.problems import Failure, Problem, ProblemError, problem_of
from whim.serve.http.routes import Call, Query, Reply, Route
from whim.serve.http.service import Host, Job
from whim.serve.state.engine import Info
from whim.serve.state.space import Asked
from whim.serve.state.views import ChangeTold, moment

__all__ = ["ROUTES"]

_json = msgspec.json.encode
_AT_ONCE = 32  # of a batch, before others have their turn
_SPACE = "/v1/spaces/{space}"


def _either(name: str) -> Meta:
    """Items of a batch's answer, for the document: one that went well, or what was wrong."""
    refs = [{"$ref": f"#/components/schemas/{n}"} for n in (name, "Failure")]
    return Meta(extra_json_schema={"items": {"anyOf": refs}})


# -- bodies -----------------------------------------------------------------------------------


class NewSpace(wire.SpaceConfig, kw_only=True, forbid_unknown_fields=True):
    """A space to make."""

    name: wire.Name


class SpaceList(Struct):
    """All spaces that serve."""

    spaces: list[Info]


class Rebuilding(Struct):
    """The version that will have the new parameters once the log is folded under them."""

    version: int


class Decisions(Struct, forbid_unknown_fields=True):
    """Several decisions at once."""

    decisions: Annotated[list[wire.DecisionBody], Meta(min_length=1, max_length=1000)]


class Answers(Struct):
    """One answer, or what was wrong, for each decision of the batch, in its order."""

    answers: Annotated[list[Any], _either("Answer")]


class Rewarded(Struct):
    """What became of a reward: learnt, kept (for a sum), duplicate or late."""

    decision_id: str
    state: str


class Rewards(Struct, forbid_unknown_fields=True):
    """Several rewards at once."""

    rewards: Annotated[list[wire.RewardBody], Meta(min_length=1, max_length=1000)]


class Results(Struct):
    """What became of each reward, in the order of the batch."""

    results: Annotated[list[Any], _either("Rewarded")]


class Activated(Struct):
    """Whether this call activated it; false if it was active before."""

    activated: bool


class RetireArms(Struct, forbid_unknown_fields=True):
    """Arms to retire."""

    arms: Annotated[list[wire.ArmName], Meta(min_length=1, max_length=10_000)]


class ArmTold(Struct, kw_only=True):
    """An arm: how often shown and learnt, its mean reward with a 95 % interval, its trend."""

    arm: str | int
    decisions: int
    plays: int
    mean: float | None
    low: float | None
    high: float | None
    trend: list[float | None]
    last_change_at: str | None


class ArmList(Struct):
    """All live arms of a space, of at most ``limit``."""

    arms: list[ArmTold]


class StatsTold(Struct, kw_only=True):
    """Counts since the space was made; see docs/serving.md for their names."""

    counts: dict[str, int]
    matched_share: float | None
    mean_delay_seconds: float | None
    shadow: dict[str, Any]


class ChangeList(Struct):
    """Changes after a row, oldest first; ask again from the last one's ``seq`` for more."""

    changes: list[ChangeTold]


class Begun(Struct):
    """A what-if that was begun."""

    job: str


class Health(Struct, omit_defaults=True):
    """How the service is."""

    status: str
    reason: str | None = None
    spaces: int | None = None


# -- spaces -----------------------------------------------------------------------------------


async def list_spaces(host: Host, call: Call) -> SpaceList:
    """All spaces."""
    return SpaceList([host.engine.info(name) for name in sorted(host.engine.spaces)])


async def create_space(host: Host, call: Call) -> Info:
    """A new space."""
    fields = {name: getattr(call.body, name) for name in wire.SpaceConfig.__struct_fields__}
    name = call.body.name
    await host.create(name, wire.SpaceConfig(**fields))
    return host.engine.info(name)


async def show_space(host: Host, call: Call) -> Info:
    """One space."""
    return host.engine.info(call.params["space"])


async def change_space(host: Host, call: Call) -> Rebuilding:
    """Other parameters, without loss of what was learnt."""
    return Rebuilding(await host.change(call.params["space"], call.body))


async def retire_space(host: Host, call: Call) -> None:
    """The end of a space; its log stays."""
    await host.waited(lambda t: host.engine.retire(call.params["space"], t))


async def list_arms(host: Host, call: Call) -> ArmList:
    """Arms of a space."""
    found = host.engine.space(call.params["space"]).arms_view()
    found.sort(key=lambda a: -a.decisions)
    return ArmList(
        [
            ArmTold(
                arm=a.arm, decisions=a.decisions, plays=a.plays, mean=a.mean, low=a.low,
                high=a.high, trend=a.trend,
                last_change_at=None if a.last_change_at is None else moment(a.last_change_at),
            )
            for a in found[: call.query["limit"]]
        ]
    )  # fmt: skip


async def retire_arms(host: Host, call: Call) -> None:
    """Arms that will not be shown again."""
    await host.waited(lambda t: host.engine.retire_arms(call.params["space"], call.body.arms, t))


async def show_stats(host: Host, call: Call) -> StatsTold:
    """Counts of a space."""
    return StatsTold(**host.engine.space(call.params["space"]).fold.stats.summary())


# -- decisions and rewards --------------------------------------------------------------------


async def decide(host: Host, call: Call) -> bytes:
    """What to show."""
    one = host.ask(call.params["space"], call.body)
    await one.token
    return one.answer


async def decide_many(host: Host, call: Call) -> bytes:
    """Several decisions; each is as if it had come alone."""
    name = call.params["space"]
    host.engine.space(name)
    found: list[bytes] = []
    bodies = call.body.decisions
    for at in range(0, len(bodies), _AT_ONCE):
        asked = [Asked.of(body) for body in bodies[at : at + _AT_ONCE]]
        host.engine.decide_many(name, asked)
        for one in asked:
            where = f"$.decisions[{len(found)}]"
            found.append(_json(_failure(one.error, where)) if one.error else one.answer)
        await asyncio.sleep(0)
    await host.synced()
    return b'{"answers":[' + b",".join(found) + b"]}"


async def reward(host: Host, call: Call) -> Rewarded:
    """What came of a decision."""
    body = call.body
    token = host.token()
    state = host.engine.reward(call.params["space"], body, token)
    await token
    return Rewarded(body.decision_id, state)


async def reward_many(host: Host, call: Call) -> Results:
    """Several rewards; each is as if it had come alone."""
    name = call.params["space"]
    host.engine.space(name)
    found: list[Rewarded | Failure] = []
    for i, body in enumerate(call.body.rewards):
        try:
            found.append(Rewarded(body.decision_id, host.engine.reward(name, body)))
        except WhimError as error:
            found.append(_failure(error, f"$.rewards[{i}]"))
        if i % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
    await host.synced()
    return Results(found)


def _failure(error: Exception, where: str) -> Failure:
    """A problem of one item; that of the log is a problem of the whole request."""
    found = problem_of(error)
    if found is None or found.status >= 500:
        raise error
    told = found.problem
    path = where + (told.path or "$").removeprefix("$")
    return Failure(Problem(told.code, told.message, path))


async def activate(host: Host, call: Call) -> Activated:
    """A deferred decision was shown."""
    params = call.params
    return Activated(
        await host.waited(lambda t: host.engine.activate(params["space"], params["decision"], t))
    )


# -- changes ----------------------------------------------------------------------------------


async def list_changes(host: Host, call: Call) -> dict[str, Any]:
    """Changes of interest that were found."""
    name = call.params["space"]
    host.engine.space(name)
    return {"changes": host.changes_after(name, call.query["since"], call.query["limit"])}


async def stream_changes(host: Host, call: Call) -> None:
    """Changes as they are found, as server-sent events."""
    name = call.params["space"]
    host.engine.space(name)
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
        with host.listening(name) as bell:
            await say(": whim\nretry: 1000\n\n")
            while not (gone.done() or host.closing.is_set() or name not in host.engine.spaces):
                bell.clear()
                found = host.changes_after(name, since)
                for i, change in enumerate(found):
                    last = i + 1 == len(found) or found[i + 1]["seq"] != change["seq"]
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


# -- what if ----------------------------------------------------------------------------------


async def begin_whatif(host: Host, call: Call) -> Begun:
    """A replay of the space's own log under another configuration."""
    return Begun(await host.whatif(call.params["space"], call.body))


async def show_whatif(host: Host, call: Call) -> Job:
    """How far a what-if is, and what came of it."""
    host.engine.space(call.params["space"])
    found = host.job(call.params["job"])
    if found is None:
        raise ProblemError(404, "not_found", "job must be one that was begun and is remembered.")
    return found


# -- operations -------------------------------------------------------------------------------


def _trouble(host: Host) -> str | None:
    if host.problem is not None:
        return str(host.problem)
    if host.ready and host.engine.store.failed is not None:
        return str(host.engine.store.failed)
    return None


async def healthz(host: Host, call: Call) -> Reply:
    """Whether it works; while the log is still read it does."""
    reason = _trouble(host)
    health = Health("ok") if reason is None else Health("failed", reason)
    return Reply(_json(health), 200 if reason is None else 503)


async def readyz(host: Host, call: Call) -> Reply:
    """Whether it takes requests now."""
    reason = _trouble(host)
    if reason is not None:
        return Reply(_json(Health("failed", reason)), 503)
    if not host.ready or host.closing.is_set():
        return Reply(_json(Health("stopping" if host.closing.is_set() else "starting")), 503)
    return Reply(_json(Health("ready", spaces=len(host.engine.spaces))))


async def metrics(host: Host, call: Call) -> Reply:
    """For Prometheus."""
    return Reply(host.metrics.render(), media=b"text/plain; version=0.0.4; charset=utf-8")


async def openapi(host: Host, call: Call) -> bytes:
    """The document of the routes."""
    return host.document


_SINCE = Query("since", 0, 0, 2**62, "the row after which to begin")
_LIMIT = Query("limit", 100, 1, 1000, "how many at most")
_ARMS = Query("limit", 1000, 1, 100_000, "how many at most, those shown most first")

ROUTES: list[Route] = [
    Route(method="POST", path=_SPACE + "/decisions", handler=decide, scope="decide",
          takes=wire.DecisionBody, gives=wire.Answer, problems=(404, 409), tag="decisions",
          about="Ask what to show. The same decision_id and body give the same answer."),
    Route(method="POST", path=_SPACE + "/rewards", handler=reward, scope="reward",
          takes=wire.RewardBody, gives=Rewarded, problems=(404,), tag="decisions",
          about="Tell what came of a decision."),
    Route(method="POST", path=_SPACE + "/decisions/batch", handler=decide_many, scope="decide",
          takes=Decisions, gives=Answers, problems=(404,), tag="decisions",
          about="Ask for several decisions at once."),
    Route(method="POST", path=_SPACE + "/rewards/batch", handler=reward_many, scope="reward",
          takes=Rewards, gives=Results, problems=(404,), tag="decisions",
          about="Tell several rewards at once."),
    Route(method="POST", path=_SPACE + "/decisions/{decision}/activate", handler=activate,
          scope="decide", gives=Activated, problems=(404,), tag="decisions",
          about="Say that a deferred decision was shown: its waiting begins."),
    Route(method="GET", path="/v1/spaces", handler=list_spaces, gives=SpaceList, tag="spaces",
          about="List the spaces."),
    Route(method="POST", path="/v1/spaces", handler=create_space, scope="admin", takes=NewSpace,
          gives=Info, status=201, problems=(409,), tag="spaces", about="Make a space."),
    Route(method="GET", path=_SPACE, handler=show_space, gives=Info, problems=(404,),
          tag="spaces", about="Show a space."),
    Route(method="PUT", path=_SPACE, handler=change_space, scope="admin", takes=wire.SpaceConfig,
          gives=Rebuilding, status=202, problems=(404, 409), tag="spaces",
          about="Change a space: it is rebuilt from its log, and until then the old one serves."),
    Route(method="DELETE", path=_SPACE, handler=retire_space, scope="admin", status=204,
          problems=(404,), tag="spaces", about="Retire a space; its log stays."),
    Route(method="GET", path=_SPACE + "/arms", handler=list_arms, gives=ArmList, query=(_ARMS,),
          problems=(404,), tag="spaces", about="List the arms of a space."),
    Route(method="POST", path=_SPACE + "/arms/retire", handler=retire_arms, scope="admin",
          takes=RetireArms, status=204, problems=(404,), tag="spaces", about="Retire arms."),
    Route(method="GET", path=_SPACE + "/stats", handler=show_stats, gives=StatsTold,
          problems=(404,), tag="spaces", about="Counts of a space."),
    Route(method="GET", path=_SPACE + "/changes", handler=list_changes, gives=ChangeList,
          query=(_SINCE, _LIMIT), problems=(404,), tag="changes",
          about="List the changes of interest that were found."),
    Route(method="GET", path=_SPACE + "/changes/stream", handler=stream_changes, query=(_SINCE,),
          gives=str, media="text/event-stream", problems=(404,), tag="changes",
          about="Changes as they are found, as server-sent events; Last-Event-ID is honoured."),
    Route(method="POST", path=_SPACE + "/whatif", handler=begin_whatif, scope="read",
          takes=wire.SpaceConfig, gives=Begun, status=202, problems=(404, 429), tag="what if",
          about="Replay the space's own log under another configuration."),
    Route(method="GET", path=_SPACE + "/whatif/{job}", handler=show_whatif, gives=Job,
          problems=(404,), tag="what if", about="How far a what-if is, and what came of it."),
    Route(method="GET", path="/healthz", handler=healthz, scope=None, gives=Health, always=True,
          problems=(503,), tag="operations", about="Whether the service works."),
    Route(method="GET", path="/readyz", handler=readyz, scope=None, gives=Health, always=True,
          problems=(503,), tag="operations", about="Whether the service takes requests now."),
    Route(method="GET", path="/metrics", handler=metrics, gives=str, media="text/plain",
          tag="operations", about="Counters for Prometheus."),
    Route(method="GET", path="/openapi.json", handler=openapi, gives=dict[str, Any], scope=None,
          always=True, tag="operations", about="This document."),
]  # fmt: skip
