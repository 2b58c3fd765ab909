"""What each route does. Handlers are short: the engine decides, the service awaits the commit."""

from __future__ import annotations

import asyncio
import functools
import time
from typing import Any

import msgspec

from whim.errors import WhimError
from whim.serve import wire
from whim.serve.http import bodies, whatifs
from whim.serve.http.guard import must_reach
from whim.serve.http.metrics import CONTENT_TYPE
from whim.serve.http.problems import Failure, Problem, ProblemError, problem_of
from whim.serve.http.routes import Call, Query, Reply, Route
from whim.serve.http.service import Service
from whim.serve.http.turns import SLICE
from whim.serve.jobs.background import Job
from whim.serve.state.views import Info, arm_views

_json = msgspec.json.encode
_SPACE = "/v1/spaces/{space}"
_get, _post = (functools.partial(Route, method) for method in ("GET", "POST"))


# -- spaces -----------------------------------------------------------------------------------


async def list_spaces(service: Service, call: Call) -> bodies.SpaceList:
    """List the spaces."""
    names = [n for n in service.engine.names if call.key is None or call.key.reaches(n)]
    return bodies.SpaceList([service.engine.info(name) for name in names])


async def create_space(service: Service, call: Call) -> Info:
    """Make a space."""
    fields = {name: getattr(call.body, name) for name in wire.SpaceConfig.__struct_fields__}
    name = call.body.name
    must_reach(call.key, name)
    await service.create(name, wire.SpaceConfig(**fields))
    return service.engine.info(name)


async def show_space(service: Service, call: Call) -> Info:
    """Show a space."""
    return service.engine.info(call.params["space"])


async def change_space(service: Service, call: Call) -> bodies.Rebuilding:
    """Change a space: it is rebuilt from its log, and until then the old one serves."""
    name = call.params["space"]
    return bodies.Rebuilding(await service.change(name, _config(service, name, call.body)))


def _config(service: Service, name: str, body: bodies.OtherConfig) -> wire.SpaceConfig:
    """What a body asks for instead of what a space has, and of what is being built for it."""
    _, wanted = service.engine.wanted(name)
    now = service.engine.info(name).config
    return body.instead_of(now, wanted.config or now)


async def retire_space(service: Service, call: Call) -> None:
    """Retire a space; its log stays."""
    await service.commit(lambda t: service.engine.retire(call.params["space"], t))


async def list_arms(service: Service, call: Call) -> bodies.ArmList:
    """List the arms of a space."""
    space = service.engine.space(call.params["space"])
    return bodies.ArmList(await service.turns.collect(arm_views(space, call.query["limit"])))


async def retire_arms(service: Service, call: Call) -> None:
    """Retire arms."""
    await service.commit(
        lambda t: service.engine.retire_arms(call.params["space"], call.body.arms, t)
    )


async def show_stats(service: Service, call: Call) -> bodies.StatsView:
    """Counts of a space."""
    space = service.engine.space(call.params["space"])
    summary = space.state.stats.summary()
    summary["counts"] |= {f"rewards_{name}": n for name, n in space.guard.counts.items()}
    return msgspec.convert(summary, bodies.StatsView)


# -- decisions and rewards --------------------------------------------------------------------


async def decide(service: Service, call: Call) -> bytes:
    """Ask what to show. The same decision_id and body give the same answer."""
    return await service.decided(call.params["space"], call.body)


async def decide_list(service: Service, call: Call) -> bytes:
    """Ask for a list. The same decision_id and body give the same answer."""
    return await service.decided(call.params["space"], call.body)


async def decide_many(service: Service, call: Call) -> bytes:
    """Ask for several decisions at once."""
    return await _decide_many(service, call, "decisions")


async def decide_list_many(service: Service, call: Call) -> bytes:
    """Ask for several lists at once."""
    return await _decide_many(service, call, "lists")


async def _decide_many(service: Service, call: Call, field: str) -> bytes:
    name, decisions = call.params["space"], getattr(call.body, field)
    asked = [one async for one in service.decide_many(name, field, decisions)]
    await service.commit(service.engine.part(name).sync)
    answers = [
        _json(_failure(one.error, f"$.{field}[{i}]")) if one.error else one.answer
        for i, one in enumerate(asked)
    ]
    return b'{"answers":[' + b",".join(answers) + b"]}"


async def reward(service: Service, call: Call) -> bodies.Rewarded:
    """Report the reward of a decision."""
    body = call.body
    state = await service.commit(lambda t: service.engine.reward(call.params["space"], body, t))
    return bodies.Rewarded(body.decision_id, state)


async def reward_many(service: Service, call: Call) -> bodies.Results:
    """Report several rewards at once."""
    name = call.params["space"]
    service.engine.space(name)
    told: list[tuple[str, Any, asyncio.Future[Any] | Exception]] = []
    waiting = iter(call.body.rewards)

    def take_some() -> bool:
        """Take rewards for as long as a slice; whether there are more."""
        until = time.perf_counter() + SLICE
        for body in waiting:
            token = service.token()
            try:
                told.append((body.decision_id, service.engine.reward(name, body, token), token))
            except WhimError as error:
                told.append((body.decision_id, None, error))
            if time.perf_counter() > until:
                return True
        return False

    while await service.turns.run(take_some):
        pass
    tokens = [token for _, _, token in told if isinstance(token, asyncio.Future)]
    await asyncio.gather(*tokens, return_exceptions=True)
    return bodies.Results([_rewarded(*one, f"$.rewards[{i}]") for i, one in enumerate(told)])


def _rewarded(
    key: str, state: Any, token: asyncio.Future[Any] | Exception, where: str
) -> bodies.Rewarded | Failure:
    """What became of one reward of many."""
    error = token if isinstance(token, Exception) else token.exception()
    if isinstance(error, Exception):
        return _failure(error, where)
    return bodies.Rewarded(key, token.result() if state is None else state)  # type: ignore[union-attr]


def _failure(error: Exception, where: str) -> Failure:
    """A problem of one item; that of the log is a problem of the whole request."""
    known = problem_of(error)
    if known is None or known.status >= 500:
        raise error
    problem = known.problem
    path = where + (problem.path or "$").removeprefix("$")
    return Failure(Problem(problem.code, problem.message, path))


async def activate(service: Service, call: Call) -> bodies.Activated:
    """Say that a deferred decision was shown: its waiting begins."""
    params = call.params
    return bodies.Activated(
        await service.commit(
            lambda t: service.engine.activate(params["space"], params["decision"], t)
        )
    )


# -- changes ----------------------------------------------------------------------------------


async def list_changes(service: Service, call: Call) -> dict[str, Any]:
    """List the changes of interest that were detected."""
    name = call.params["space"]
    service.engine.space(name)
    return {"changes": service.changes_after(name, call.query["since"], call.query["limit"])}


async def stream_changes(service: Service, call: Call) -> None:
    """Stream changes as they are detected, as server-sent events; Last-Event-ID is honoured."""
    name = call.params["space"]
    service.engine.space(name)
    service.streams.check()
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
        with service.streams.listening(name) as bell:
            await say(": whim\nretry: 1000\n\n")
            while not gone.done() and not service.closing.is_set():
                if name not in service.engine or not service.keys.still_allows(
                    call.key, "read", name
                ):
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


# -- what if ----------------------------------------------------------------------------------


async def begin_whatif(service: Service, call: Call) -> bodies.Begun:
    """Replay the space's own log under another configuration."""
    name = call.params["space"]
    config = call.body.instead_of(service.engine.info(name).config)
    return bodies.Begun(await service.whatif(name, config))


async def show_whatif(service: Service, call: Call) -> Job:
    """Progress and result of a what-if."""
    service.engine.space(call.params["space"])
    job = await whatifs.find(service, call.params["job"])
    if job is None or (call.key is not None and not call.key.reaches(job.space)):
        raise ProblemError(404, "not_found", "job must be a what-if that is still stored.")
    return job


# -- operations -------------------------------------------------------------------------------


async def healthz(service: Service, call: Call) -> Reply:
    """Whether the service works, how far the check of its log is, and whether its clock is held."""
    reason = service.trouble
    health = bodies.Health("ok" if reason is None else "failed", reason)
    if service.ready:
        check, clock = service.background.check, service.engine.clock.view
        if check.state != "done":
            health.check = check
        if clock.held:
            health.clock = bodies.ClockHealth(clock.reason, round(clock.ahead, 3))
        if (lag := service.engine.lag) is not None:
            engine = service.engine
            health.replica = bodies.ReplicaHealth(engine.leads, *lag, engine.shards)
    return Reply(_json(health), 200 if reason is None else 503)


async def readyz(service: Service, call: Call) -> Reply:
    """Whether the service accepts requests now."""
    reason = service.trouble
    if reason is not None:
        return Reply(_json(bodies.Health("failed", reason)), 503)
    stopping = service.draining or service.closing.is_set()
    if stopping or not service.ready:
        return Reply(_json(bodies.Health("stopping" if stopping else "starting")), 503)
    lags, most = [part.lag for part in service.engine.parts], service.settings.max_lag_seconds
    late = [lag[1] for lag in lags if lag is not None and lag[1] > most]
    if late:
        reason = f"at most {most:g} s behind the log (max_lag_seconds), got {max(late):.1f} s."
        if len(late) == len(lags):
            return Reply(_json(bodies.Health("behind", reason)), 503)
        # the spaces of other shards are served here as everywhere
        reason = f"shards must be {reason[:-1]} on {len(late)} of {len(lags)}."
    return Reply(_json(bodies.Health("ready", reason or None, len(service.engine.names))))


async def metrics(service: Service, call: Call) -> Reply:
    """Counters for Prometheus."""
    return Reply(await service.scrape(), media=CONTENT_TYPE.encode())


async def openapi(service: Service, call: Call) -> bytes:
    """Show this document."""
    return service.document


_SINCE = Query("since", 0, 0, 2**62, "the row after which to begin")
_LIMIT = Query("limit", 100, 1, 1000, "how many at most")
_ARMS = Query("limit", 1000, 1, 100_000, "how many at most, those shown most first")

ROUTES: list[Route] = [
    _post(_SPACE + "/decisions", decide, scope="decide", takes=wire.DecisionBody, gives=wire.Answer,
          problems=(404, 409), tag="decisions", long="candidates"),
    _post(_SPACE + "/lists", decide_list, scope="decide", takes=wire.ListBody,
          gives=wire.ListAnswer, problems=(404, 409), tag="decisions", long="candidates"),
    _post(_SPACE + "/rewards", reward, scope="reward", takes=wire.RewardBody, gives=bodies.Rewarded,
          problems=(404,), tag="decisions"),
    _post(_SPACE + "/decisions/batch", decide_many, scope="decide", takes=bodies.Decisions,
          gives=bodies.Answers, problems=(404,), tag="decisions",
          entries=lambda body: len(body.decisions), long="decisions"),
    _post(_SPACE + "/lists/batch", decide_list_many, scope="decide", takes=bodies.Lists,
          gives=bodies.ListAnswers, problems=(404,), tag="decisions",
          entries=lambda body: len(body.lists), long="lists"),
    _post(_SPACE + "/rewards/batch", reward_many, scope="reward", takes=bodies.Rewards,
          gives=bodies.Results, problems=(404,), tag="decisions",
          entries=lambda body: len(body.rewards), long="rewards"),
    _post(_SPACE + "/decisions/{decision}/activate", activate, scope="decide",
          gives=bodies.Activated, problems=(404,), tag="decisions"),
    _get("/v1/spaces", list_spaces, gives=bodies.SpaceList, tag="spaces", several_spaces=True),
    _post("/v1/spaces", create_space, scope="admin", takes=bodies.NewSpace, gives=Info, status=201,
          problems=(409,), tag="spaces", several_spaces=True),
    _get(_SPACE, show_space, gives=Info, problems=(404,), tag="spaces"),
    Route("PUT", _SPACE, change_space, scope="admin", takes=bodies.OtherConfig,
          gives=bodies.Rebuilding, status=202, problems=(404, 409), tag="spaces"),
    Route("DELETE", _SPACE, retire_space, scope="admin", status=204, problems=(404,), tag="spaces"),
    _get(_SPACE + "/arms", list_arms, gives=bodies.ArmList, query=(_ARMS,), problems=(404,),
         tag="spaces"),
    _post(_SPACE + "/arms/retire", retire_arms, scope="admin", takes=bodies.RetireArms, status=204,
          problems=(404,), tag="spaces"),
    _get(_SPACE + "/stats", show_stats, gives=bodies.StatsView, problems=(404,), tag="spaces"),
    _get(_SPACE + "/changes", list_changes, gives=bodies.ChangeList, query=(_SINCE, _LIMIT),
         problems=(404,), tag="changes"),
    _get(_SPACE + "/changes/stream", stream_changes, query=(_SINCE,), gives=str,
         media="text/event-stream", problems=(404,), tag="changes"),
    _post(_SPACE + "/whatif", begin_whatif, scope="read", takes=bodies.OtherConfig,
          gives=bodies.Begun, status=202, problems=(404, 429), tag="what if"),
    _get(_SPACE + "/whatif/{job}", show_whatif, gives=Job, problems=(404,), tag="what if"),
    _get("/healthz", healthz, scope=None, gives=bodies.Health, always=True, problems=(503,),
         tag="operations", limited=False),
    _get("/readyz", readyz, scope=None, gives=bodies.Health, always=True, problems=(503,),
         tag="operations", limited=False),
    _get("/metrics", metrics, gives=str, media="text/plain", tag="operations"),
    _get("/openapi.json", openapi, gives=dict[str, Any], scope=None, always=True, tag="operations"),
]  # fmt: skip
