"""What each route does. Handlers are short: the engine decides, the service awaits the commit."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from whim.errors import WhimError
from whim.serve import wire
from whim.serve.http.bodies import (
    Activated,
    Answers,
    ArmList,
    Begun,
    ChangeList,
    Decisions,
    Health,
    NewSpace,
    Rebuilding,
    Results,
    RetireArms,
    Rewarded,
    Rewards,
    SpaceList,
    StatsView,
)
from whim.serve.http.metrics import CONTENT_TYPE
from whim.serve.http.problems import Failure, Problem, ProblemError, problem_of
from whim.serve.http.routes import Call, Query, Reply, Route
from whim.serve.http.service import Service
from whim.serve.http.stream import stream_changes
from whim.serve.jobs.background import Job
from whim.serve.state.space import DecisionRequest
from whim.serve.state.views import Info, arm_views

__all__ = ["ROUTES"]

_json = msgspec.json.encode
_AT_ONCE = 32  # of a batch, before others have their turn
_SPACE = "/v1/spaces/{space}"


# -- spaces -----------------------------------------------------------------------------------


async def list_spaces(service: Service, call: Call) -> SpaceList:
    """All spaces."""
    return SpaceList([service.engine.info(name) for name in service.engine.names])


async def create_space(service: Service, call: Call) -> Info:
    """A new space."""
    fields = {name: getattr(call.body, name) for name in wire.SpaceConfig.__struct_fields__}
    name = call.body.name
    await service.create(name, wire.SpaceConfig(**fields))
    return service.engine.info(name)


async def show_space(service: Service, call: Call) -> Info:
    """One space."""
    return service.engine.info(call.params["space"])


async def change_space(service: Service, call: Call) -> Rebuilding:
    """Other parameters, without loss of what was learnt."""
    return Rebuilding(await service.change(call.params["space"], call.body))


async def retire_space(service: Service, call: Call) -> None:
    """The end of a space; its log stays."""
    await service.commit(lambda t: service.engine.retire(call.params["space"], t))


async def list_arms(service: Service, call: Call) -> ArmList:
    """Arms of a space."""
    space = service.engine.space(call.params["space"])
    return ArmList(arm_views(space, call.query["limit"]))


async def retire_arms(service: Service, call: Call) -> None:
    """Arms that will not be shown again."""
    await service.commit(
        lambda t: service.engine.retire_arms(call.params["space"], call.body.arms, t)
    )


async def show_stats(service: Service, call: Call) -> StatsView:
    """Counts of a space."""
    return StatsView(**service.engine.space(call.params["space"]).state.stats.summary())


# -- decisions and rewards --------------------------------------------------------------------


async def decide(service: Service, call: Call) -> bytes:
    """What to show."""
    request = service.decide(call.params["space"], call.body)
    await request.token
    return request.answer


async def decide_many(service: Service, call: Call) -> bytes:
    """Several decisions; each is as if it had come alone."""
    name = call.params["space"]
    service.engine.space(name)
    answers: list[bytes] = []
    bodies = call.body.decisions
    for at in range(0, len(bodies), _AT_ONCE):
        requests = [DecisionRequest.of(body) for body in bodies[at : at + _AT_ONCE]]
        service.engine.decide_many(name, requests)
        for one in requests:
            where = f"$.decisions[{len(answers)}]"
            answers.append(_json(_failure(one.error, where)) if one.error else one.answer)
        await asyncio.sleep(0)
    await service.commit(service.engine.sync)
    return b'{"answers":[' + b",".join(answers) + b"]}"


async def reward(service: Service, call: Call) -> Rewarded:
    """What came of a decision."""
    body = call.body
    token = service.token()
    state = service.engine.reward(call.params["space"], body, token)
    await token
    return Rewarded(body.decision_id, state)


async def reward_many(service: Service, call: Call) -> Results:
    """Several rewards; each is as if it had come alone."""
    name = call.params["space"]
    service.engine.space(name)
    results: list[Rewarded | Failure] = []
    for i, body in enumerate(call.body.rewards):
        try:
            results.append(Rewarded(body.decision_id, service.engine.reward(name, body)))
        except WhimError as error:
            results.append(_failure(error, f"$.rewards[{i}]"))
        if i % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
    await service.commit(service.engine.sync)
    return Results(results)


def _failure(error: Exception, where: str) -> Failure:
    """A problem of one item; that of the log is a problem of the whole request."""
    known = problem_of(error)
    if known is None or known.status >= 500:
        raise error
    problem = known.problem
    path = where + (problem.path or "$").removeprefix("$")
    return Failure(Problem(problem.code, problem.message, path))


async def activate(service: Service, call: Call) -> Activated:
    """A deferred decision was shown."""
    params = call.params
    return Activated(
        await service.commit(
            lambda t: service.engine.activate(params["space"], params["decision"], t)
        )
    )


# -- changes ----------------------------------------------------------------------------------


async def list_changes(service: Service, call: Call) -> dict[str, Any]:
    """Changes of interest that were found."""
    name = call.params["space"]
    service.engine.space(name)
    return {"changes": service.changes_after(name, call.query["since"], call.query["limit"])}


# -- what if ----------------------------------------------------------------------------------


async def begin_whatif(service: Service, call: Call) -> Begun:
    """A replay of the space's own log under another configuration."""
    return Begun(await service.whatif(call.params["space"], call.body))


async def show_whatif(service: Service, call: Call) -> Job:
    """How far a what-if is, and what came of it."""
    service.engine.space(call.params["space"])
    job = service.job(call.params["job"])
    if job is None:
        raise ProblemError(404, "not_found", "job must be one that was begun and is remembered.")
    return job


# -- operations -------------------------------------------------------------------------------


async def healthz(service: Service, call: Call) -> Reply:
    """Whether it works; while the log is still read it does."""
    reason = service.trouble
    health = Health("ok") if reason is None else Health("failed", reason)
    return Reply(_json(health), 200 if reason is None else 503)


async def readyz(service: Service, call: Call) -> Reply:
    """Whether it takes requests now."""
    reason = service.trouble
    if reason is not None:
        return Reply(_json(Health("failed", reason)), 503)
    if not service.ready or service.closing.is_set():
        return Reply(_json(Health("stopping" if service.closing.is_set() else "starting")), 503)
    return Reply(_json(Health("ready", spaces=len(service.engine.names))))


async def metrics(service: Service, call: Call) -> Reply:
    """For Prometheus."""
    return Reply(service.metrics.render(), media=CONTENT_TYPE.encode())


async def openapi(service: Service, call: Call) -> bytes:
    """The document of the routes."""
    return service.document


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
    Route(method="GET", path=_SPACE + "/stats", handler=show_stats, gives=StatsView,
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
