"""The client: the same request again when the way failed, never for what was refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import whim
from tests.in_process import running
from tests.stores import store
from whim.client import core
from whim.errors import InvalidInputError, WhimError
from whim.serve.settings import load

client_module = pytest.importorskip("whim.client")
ServiceError = client_module.ServiceError

__all__ = ["store"]  # a fixture

ANSWER = {
    "decision_id": "d", "space": "s", "arm": "a", "probability": 1.0, "mode": "policy",
    "version": 1, "ranking": [{"arm": "a", "score": None, "mean": 0.0, "width": None}],
}  # fmt: skip
PAGE = {
    "decision_id": "p", "space": "s", "mode": "policy", "version": 1, "items": [
        {"slot": slot, "arm": arm, "probability": None, "prefix_probability": 0.5, "score": None,
         "mean": 0.0, "width": None}
        for slot, arm in (("top", "a"), (1, 3))
    ],
}  # fmt: skip
REWARDED = {"decision_id": "d", "state": "learnt"}
INFO = {"name": "s", "version": 1, "config": {}, "rebuilding": False, "new_field": 1}


def change(seq: int, arm: str = "a") -> dict[str, Any]:
    return {
        "seq": seq, "at": "2026-01-01T00:00:00Z", "space": "s", "version": 1, "arm": arm,
        "step": 9, "plays": 5, "began": 3, "statistic": 4.0, "threshold": 2.0, "p_value": None,
        "window": 4, "group": None, "theta_before": [0.0], "theta_after": [1.0],
        "direction": [1.0], "features": ["x[0]"],
    }  # fmt: skip


def refusal(code: str, message: str, path: str | None = None) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "path": path}}


class Asked(NamedTuple):
    """A request as the stand-in got it."""

    method: str
    path: str
    headers: Any
    body: bytes


class Service(ThreadingHTTPServer):
    """A stand-in that answers as it is told: ``(status, body, headers)``, "drop" or "hang"."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.told: list[Any] = []
        self.asked: list[Asked] = []
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client went away: that is the test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append(Asked(self.command, self.path, self.headers, body))
        told = self.server.told.pop(0)
        if told == "hang":
            self.server.over.wait(5)
            told = "drop"
        if told == "drop":
            self.close_connection = True
            return
        status, said, headers = (*told, {})[:3]
        data = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Type" in headers:  # a stream: its end is the end of the connection
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.over.set()
        made.shutdown()
        thread.join()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What a client waits, without waiting."""
    found: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        found.append(seconds)
        await real(0)

    monkeypatch.setattr("whim.client.sync.time.sleep", found.append)
    monkeypatch.setattr("whim.client.asynchronous.asyncio.sleep", sleep)
    return found


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest, service: Service) -> Any:
    """Call a client's method by name, of either client."""

    def run(method: str, *args: Any, options: dict[str, Any] | None = None, **named: Any) -> Any:
        given = {"url": service.url, "space": "s", **(options or {})}
        if request.param == "sync":
            with whim.Client(**given) as client:
                return getattr(client, method)(*args, **named)

        async def there() -> Any:
            async with whim.AsyncClient(**given) as client:
                return await getattr(client, method)(*args, **named)

        return asyncio.run(there())

    return run


@pytest.fixture(params=["sync", "async"])
def follow(request: pytest.FixtureRequest, service: Service) -> Any:
    """The first changes of a stream, of either client."""

    def run(count: int, **named: Any) -> list[Any]:
        found: list[Any] = []
        if request.param == "sync":
            with whim.Client(service.url) as client:
                stream = client.stream(**named)
                with contextlib.closing(stream):  # type: ignore[type-var]
                    while len(found) < count:
                        found.append(next(stream))
            return found

        async def there() -> None:
            async with whim.AsyncClient(service.url) as client:
                stream = client.stream(**named)
                async with contextlib.aclosing(stream):  # type: ignore[type-var]
                    while len(found) < count:
                        found.append(await anext(stream))

        asyncio.run(there())
        return found

    return run


# -- what is asked, and how it is read -------------------------------------------------------------


def test_every_method_asks_what_the_service_knows(ask: Any, service: Service) -> None:
    stats = {"counts": {"decisions": 3}}
    arm = {"arm": "a", "decisions": 5, "plays": 3, "mean": 0.5, "low": None, "high": None}
    calls: list[tuple[str, tuple[Any, ...], str, str, Any, Any]] = [
        ("spaces", (), "GET", "", {"spaces": [INFO]}, None),
        ("space", ("s",), "GET", "/s", INFO, None),
        ("retire", ("s",), "DELETE", "/s", {}, None),
        ("activate", ("a/b",), "POST", "/s/decisions/a%2Fb/activate", {"activated": True}, True),
        ("arms", (), "GET", "/s/arms?limit=1000", {"arms": [arm]}, [client_module.Arm(**arm)]),
        ("retire_arms", (["a", 2],), "POST", "/s/arms/retire", {}, None),
        ("stats", (), "GET", "/s/stats", stats, stats),
        ("changes", (7,), "GET", "/s/changes?since=7&limit=1000", {"changes": [change(8)]}, None),
        ("change", ("s",), "PUT", "/s", {"version": 2}, 2),
    ]
    for method, args, verb, path, said, wanted in calls:
        service.told, service.asked = [(200, said)], []
        found = ask(method, *args)
        assert (service.asked[0].method, service.asked[0].path) == (verb, f"/v1/spaces{path}")
        if wanted is not None:
            assert found == wanted
        if method == "changes":
            assert (found[0].seq, found[0].theta_after) == (8, [1.0])
        if method in ("space", "spaces"):
            info = found if method == "space" else found[0]
            assert info.config.policy == "pslinucb-disjoint"


def test_a_decision_and_its_reward(ask: Any, service: Service) -> None:
    service.told = [(200, ANSWER), (200, REWARDED)]
    made = ask("decide", np.array([1.0, 2.0]), [np.int64(3), "b", {"id": "c", "features": [1.0]}])
    assert isinstance(made, client_module.Answer)
    assert (made.arm, made.ranking[0].score) == ("a", None)
    assert ask("reward", made.decision_id, 1.0) == client_module.Rewarded("d", "learnt")
    decision, reward = (json.loads(asked.body) for asked in service.asked)
    assert len(decision.pop("decision_id")) == len(reward.pop("reward_id")) == 32
    assert decision == {
        "context": [1.0, 2.0], "candidates": [3, "b", {"id": "c", "features": [1.0]}],
        "deferred": False,
    }  # fmt: skip
    assert reward == {"decision_id": "d", "value": 1.0}
    assert service.asked[0].headers["Content-Type"] == "application/json"


def test_lists_and_batches_of_them(ask: Any, service: Service) -> None:
    bad = refusal("invalid", "k must be at most 1.", "$.lists[1].k")
    service.told = [*[(200, PAGE)] * 3, (200, {"answers": [PAGE, bad, PAGE]})]
    page = ask("decide_list", np.array([1.0]), ["a", np.int64(3)], 2, deferred=True)
    assert isinstance(page, client_module.ListAnswer)
    assert [(item.slot, item.arm) for item in page.items] == [("top", "a"), (1, 3)]
    slot = client_module.Slot(id="top", exclude=["b"], features={"size": 1})
    ask("decide_list", {"hour": 9}, ["a"], slots=[slot, {"baseline": "a"}], decision_id="p/1")
    body = client_module.ListBody(candidates=["a"], k=1, decision_id="mine")
    ask("decide_list", [1.0], ["a"], 1, slots=[{}])  # the service says that these contradict
    assert json.loads(service.asked.pop().body).keys() >= {"k", "slots"}
    answers = ask("decide_list_many", [body, {"candidates": ["b"], "k": 2}, {"candidates": [3]}])
    assert answers[0] == answers[2] == page
    assert isinstance(answers[1], ServiceError)
    assert answers[1].path == "$.lists[1].k"

    paths = ["/v1/spaces/s/lists"] * 2 + ["/v1/spaces/s/lists/batch"]
    assert [(asked.method, asked.path) for asked in service.asked] == [("POST", p) for p in paths]
    first, second, third = (json.loads(asked.body) for asked in service.asked)
    assert len(first.pop("decision_id")) == 32
    assert first == {"context": [1.0], "candidates": ["a", 3], "k": 2, "deferred": True}
    assert "k" not in second
    assert second["slots"][0]["exclude"] == ["b"]
    assert (second["slots"][1], second["decision_id"]) == ({"baseline": "a"}, "p/1")
    assert third["lists"][0]["decision_id"] == "mine"
    assert len({one["decision_id"] for one in third["lists"]}) == 3


@pytest.mark.parametrize("method", ["decide_list", "decide_list_many"])
def test_lists_are_asked_for_again_to_the_byte(
    ask: Any, service: Service, waits: list[float], method: str
) -> None:
    alone = method == "decide_list"
    service.told = ["drop", (503, b""), (200, PAGE if alone else {"answers": [PAGE]})]
    args = ([1.0], ["a"], 1) if alone else ([{"candidates": ["a"], "k": 1}],)
    told = ask(method, *args)
    assert (told if alone else told[0]).decision_id == "p"
    assert len({asked.body for asked in service.asked}) == 1
    assert len(waits) == 2


def test_spaces_are_made_from_fields_or_a_configuration(ask: Any, service: Service) -> None:
    service.told = [(201, INFO), (201, INFO)]
    ask("create", "s", policy="ucb", context={"size": 0})
    config = client_module.SpaceConfig(explore=0.1)
    ask("create", "s", config)
    bodies = [json.loads(asked.body) for asked in service.asked]
    assert bodies[0] == {"name": "s", "policy": "ucb", "context": {"size": 0}}
    assert (bodies[1]["name"], bodies[1]["explore"]) == ("s", 0.1)
    with pytest.raises(InvalidInputError, match="got both"):
        ask("create", "s", config, policy="ucb")


def test_a_batch_has_an_error_in_the_place_of_what_was_refused(ask: Any, service: Service) -> None:
    bad = refusal("invalid", "value must be a number.", "$.rewards[1].value")
    service.told = [(200, {"answers": [ANSWER, bad]}), (200, {"results": [REWARDED, bad]})]
    body = client_module.DecisionBody(candidates=["a"], decision_id="mine")
    answers = ask("decide_many", [body, {"candidates": ["b"]}])
    assert answers[0].arm == "a"
    assert isinstance(answers[1], ServiceError)
    results = ask("reward_many", [{"decision_id": "d", "value": 1}, {"decision_id": "e"}])
    assert results[0].state == "learnt"
    assert (results[1].code, results[1].path) == ("invalid", "$.rewards[1].value")
    asked = json.loads(service.asked[0].body)["decisions"]
    assert asked[0]["decision_id"] == "mine"
    assert len(asked[1]["decision_id"]) == 32


def test_the_key_is_the_given_one_or_the_environment_s(
    ask: Any, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHIM_KEY", "whim_env")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # never to this machine
    service.told = [(200, {"spaces": []})] * 3
    ask("spaces")
    ask("spaces", options={"key": "whim_given"})
    ask("spaces", options={"key": ""})
    sent = [asked.headers["Authorization"] for asked in service.asked]
    assert sent == ["Bearer whim_env", "Bearer whim_given", None]


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", ["drop", (502, b"<p>bad gateway</p>"), (503, b""), (504, b"")])
def test_what_failed_on_the_way_is_asked_again_to_the_byte(
    ask: Any, service: Service, waits: list[float], failure: Any
) -> None:
    service.told = [failure, failure, (200, ANSWER), failure, (200, REWARDED)]
    assert ask("decide", [1.0], ["a"]).arm == "a"
    assert ask("reward", "d", 1.0).state == "learnt"
    first, second, third, fourth, fifth = service.asked
    assert first.body == second.body == third.body
    assert fourth.body == fifth.body
    assert len(waits) == 3
    assert 0 < waits[0] <= 0.1 < 2 * waits[1] <= 0.4


def test_a_timeout_is_asked_again(ask: Any, service: Service, waits: list[float]) -> None:
    service.told = ["hang", (200, ANSWER)]
    start = time.monotonic()
    assert ask("decide", [1.0], ["a"], options={"timeout": 0.2}).arm == "a"
    assert time.monotonic() - start < 3
    assert service.asked[0].body == service.asked[1].body


def test_it_waits_as_long_as_it_is_asked_to_but_not_for_ever(
    ask: Any, service: Service, waits: list[float]
) -> None:
    limited = refusal("rate", "wait.")
    service.told = [(429, limited, {"Retry-After": "7"}), (200, ANSWER)]
    ask("decide", [1.0], ["a"])
    assert waits == [7.0]
    service.told = [(429, limited, {"Retry-After": "3600"})]
    with pytest.raises(ServiceError, match="wait") as refused:
        ask("decide", [1.0], ["a"])
    assert refused.value.status == 429
    service.told = [(503, limited, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}), (200, ANSWER)]
    ask("decide", [1.0], ["a"])
    assert waits[1] < 1


def test_it_gives_up_in_the_end(ask: Any, service: Service, waits: list[float]) -> None:
    service.told = ["drop"] * 3
    with pytest.raises(client_module.UnreachableError, match="url must be of a service") as lost:
        ask("decide", [1.0], ["a"], options={"retries": 2})
    assert lost.value.code == "unreachable"
    assert len(service.asked) == 3
    service.told = [(503, refusal("store_failed", "the log cannot be written: full."))] * 4
    with pytest.raises(ServiceError, match="cannot be written") as refused:
        ask("decide", [1.0], ["a"])
    assert (refused.value.status, refused.value.code) == (503, "store_failed")
    with pytest.raises(client_module.UnreachableError):
        ask("spaces", options={"url": "http://127.0.0.1:1", "retries": 1})


def test_an_answer_that_does_not_come_in_time(ask: Any, service: Service) -> None:
    service.told = ["hang"]
    with pytest.raises(client_module.UnreachableError, match=r"may still happen\.$"):
        ask("create", "s", options={"timeout": 0.2})


@pytest.mark.parametrize("clicked", [True, np.True_, 1, np.float32(1)])
def test_a_click_is_a_reward(ask: Any, service: Service, clicked: Any) -> None:
    service.told = [(200, {"decision_id": "d", "state": "learnt"}), (200, {"results": []})]
    ask("reward", "d", clicked)
    ask("reward_many", [{"decision_id": "d", "value": clicked}])
    one, many = (json.loads(asked.body) for asked in service.asked)
    for value in (one["value"], many["rewards"][0]["value"]):
        assert (value, isinstance(value, bool)) == (1, False)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500])
def test_what_was_refused_is_not_asked_again(ask: Any, service: Service, status: int) -> None:
    service.told = [(status, refusal("no", "context must be a vector.", "$.context"))]
    with pytest.raises(ServiceError) as refused:
        ask("decide", [1.0], ["a"])
    error = refused.value
    assert isinstance(error, WhimError)
    assert (error.status, error.code, error.path) == (status, "no", "$.context")
    assert str(error) == error.message == "context must be a vector."
    assert len(service.asked) == 1


def test_what_would_happen_twice_is_not_asked_twice(ask: Any, service: Service) -> None:
    for method, args in (("create", ("s",)), ("retire", ("s",)), ("retire_arms", (["a"],))):
        service.told, service.asked = ["drop"], []
        with pytest.raises(client_module.UnreachableError):
            ask(method, *args)
        assert len(service.asked) == 1


@pytest.mark.parametrize("said", [b"hello", b"", {"arm": 1}])
def test_answers_of_something_else(ask: Any, service: Service, said: Any) -> None:
    service.told = [(200, said)]
    with pytest.raises(ServiceError, match="must be Whim's") as odd:
        ask("decide", [1.0], ["a"])
    assert odd.value.code == "unexpected"
    service.told = [(404, b"<html>nothing here</html>")]
    with pytest.raises(ServiceError, match="nothing here"):
        ask("decide", [1.0], ["a"])


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"url": "127.0.0.1:8126"}, "url must be http"),
        ({"url": "ftp://here"}, "url must be http"),
        ({"timeout": 0}, "timeout must be more than 0, got 0"),
        ({"retries": -1}, "retries must be more than -1, got -1"),
    ],
)
def test_a_client_that_cannot_be(options: dict[str, Any], line: str) -> None:
    for kind in (whim.Client, whim.AsyncClient):
        with pytest.raises(InvalidInputError, match=line):
            kind(**options)


def test_a_space_must_be_named_somewhere() -> None:
    with whim.Client() as client, pytest.raises(InvalidInputError, match="space must be given"):
        client.decide([1.0], ["a"])
    with pytest.raises(InvalidInputError, match="made of text and numbers"):
        core.Core("http://x", None, "s", 5, 1).decide(object(), [])


# -- the stream ------------------------------------------------------------------------------------


def events(*numbers: int, arm: str = "a") -> bytes:
    parts = [b": hello\n\n"]
    for seq in numbers:
        data = json.dumps(change(seq, arm), ensure_ascii=False).encode()
        parts.append(b"id: %d\nevent: change\ndata: %s\n\n" % (seq, data))
    return b"".join(parts)


def test_a_stream_is_taken_up_where_it_broke(
    follow: Any, service: Service, waits: list[float]
) -> None:
    kind = {"Content-Type": "text/event-stream"}
    cut = events(3, 5)[:-20]  # the second did not come whole
    service.told = [
        "drop", (200, cut, kind), (503, b""), (200, events(5, arm="\u2028line\x85"), kind),
        (200, events(9).replace(b"\n", b"\r\n"), kind),
    ]  # fmt: skip
    found = follow(3, space="s", since=2)
    assert [each.seq for each in found] == [3, 5, 9]
    assert found[1].arm == "\u2028line\x85"
    sent = [asked.headers["Last-Event-ID"] for asked in service.asked]
    assert sent == ["2", "2", "3", "3", "5"]
    assert len(waits) == 4


def test_changes_of_one_row_come_once_each(
    follow: Any, service: Service, waits: list[float]
) -> None:
    kind = {"Content-Type": "text/event-stream"}
    first = events(4, arm="a").replace(b"id: 4\n", b"")
    both = first + events(4, arm="b")
    service.told = [(200, first, kind), (200, both, kind), (200, events(7), kind)]
    assert [(each.seq, each.arm) for each in follow(3, space="s")] == [(4, "a"), (4, "b"), (7, "a")]
    assert [asked.headers["Last-Event-ID"] for asked in service.asked] == [None, None, "4"]


def test_a_stream_that_is_refused_or_never_there(
    follow: Any, service: Service, waits: list[float]
) -> None:
    service.told = [(404, refusal("not_found", "space must be one that exists."))]
    with pytest.raises(ServiceError, match="one that exists"):
        follow(1, space="s")
    service.told = ["drop"] * 4
    with pytest.raises(client_module.UnreachableError):
        follow(1, space="s")
    service.told = [(200, b"data: {}\n\n", {"Content-Type": "text/event-stream"})]
    with pytest.raises(ServiceError, match="an event must be"):
        follow(1, space="s")


# -- the real service ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, store: tuple[str, ...]) -> Iterator[str]:
    data = tmp_path_factory.mktemp("real") / "data"
    process = subprocess.Popen(
        [sys.executable, "-m", "whim", "serve", "--port", "0", "--data", str(data), *store],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    yield process.stdout.readline().split()[-1]
    process.terminate()
    process.communicate(timeout=30)


def test_a_space_s_life_over_the_wire(real: str) -> None:
    with whim.Client(real, space="life") as client:
        rules = {"wait_seconds": 100}
        made = client.create("life", context={"size": 2}, rewards=rules, baseline="random")
        assert (made.name, made.version, made.config.context.size) == ("life", 1, 2)
        with pytest.raises(ServiceError) as twice:
            client.create("life")
        assert (twice.value.status, twice.value.code) == (409, "conflict")

        first = client.decide([1.0, 0.0], ["a", "b"], decision_id="d1")
        assert client.decide([1.0, 0.0], ["a", "b"], decision_id="d1") == first
        with pytest.raises(ServiceError, match="same body") as other:
            client.decide([0.0, 1.0], ["a", "b"], decision_id="d1")
        assert (other.value.status, other.value.path) == (409, "$.decision_id")
        assert client.reward("d1", 1.0).state == "learnt"
        with pytest.raises(ServiceError, match=r"\$.decision_id must be a decision"):
            client.reward("nobody", 1.0)

        answers = client.decide_many(
            [{"context": [1.0, 0.0], "candidates": ["a"]}, {"context": [1.0], "candidates": ["a"]}]
        )
        assert isinstance(answers[0], client_module.Answer)
        assert isinstance(answers[1], ServiceError)
        assert answers[1].path is not None
        assert answers[1].path.startswith("$.decisions[1]")
        told = [
            {"decision_id": answers[0].decision_id, "value": 1},
            {"decision_id": "x", "value": 1},
        ]
        results = client.reward_many(told)
        assert isinstance(results[0], client_module.Rewarded)
        assert isinstance(results[1], ServiceError)

        later = client.decide([1.0, 0.0], ["a"], deferred=True)
        assert client.activate(later.decision_id)
        assert not client.activate(later.decision_id)
        assert {arm.arm: arm.decisions > 0 for arm in client.arms()}.keys() == {"a", "b"}
        client.retire_arms(["b"])
        assert [arm.arm for arm in client.arms()] == ["a"]
        counts = client.stats()["counts"]
        assert (counts["decisions"], counts["rewards_learnt"]) == (3, 2)
        assert client.changes() == []

        version = client.change("life", policy="ucb", context={"size": 2})
        assert version == 2
        end = time.monotonic() + 60
        while client.space("life").version != 2:
            assert time.monotonic() < end
            time.sleep(0.05)
        client.retire("life")
        assert "life" not in {info.name for info in client.spaces()}
        with pytest.raises(ServiceError) as gone:
            client.stats()
        assert (gone.value.status, gone.value.code) == (404, "not_found")


def test_a_change_comes_down_the_stream_as_it_is_found(real: str) -> None:
    async def play() -> list[Any]:
        async with whim.AsyncClient(real, space="turn") as client:
            await client.create("turn", context={"size": 1})

            async def first() -> Any:
                stream = client.stream()
                async with contextlib.aclosing(stream):  # type: ignore[type-var]
                    return await anext(stream)

            watching = asyncio.ensure_future(first())
            for value in (1.0, 0.8) * 20 + (0.0, 0.2) * 10:
                made = await client.decide([1.0], ["toys"])
                await client.reward(made.decision_id, value)
            found = await asyncio.wait_for(watching, 30)
            return [found, *(await client.changes()), await client.changes(found.seq)]

    live, kept, after = asyncio.run(play())
    assert live == kept
    assert after == []
    assert (live.arm, live.space, live.features) == ("toys", "turn", ["x[0]"])
    assert 38 < live.began < 44
    assert live.theta_before[0] > 0.7 > live.theta_after[0]


def test_lists_and_the_rewards_of_their_items(real: str) -> None:
    with whim.Client(real, space="pages") as client:
        client.create("pages", policy="ucb", context={"size": 0}, list={"feedback": "semi"})
        page = client.decide_list([], ["a", "b", "c"], 2, decision_id="p/1")
        assert client.decide_list([], ["a", "b", "c"], 2, decision_id="p/1") == page
        assert [item.slot for item in page.items] == [0, 1]
        assert client.reward("p/1", 1.0, arm=page.items[1].arm).state == "kept"
        assert client.reward("p/1", 1.0, slot=0).state == "learnt"
        slots = [client_module.Slot(id="top", exclude=["a"]), {"id": "side"}]
        page = client.decide_list([], ["a", "b", "c"], slots=slots, deferred=True)
        assert page.items[0].arm != "a"
        assert client.activate(page.decision_id) is True
        with pytest.raises(ServiceError) as refused:
            client.reward(page.decision_id, 1.0, slot="none")
        assert (refused.value.status, refused.value.path) == (422, "$.slot")
        asked = [
            {"candidates": ["a", "b", "c"], "k": k, "decision_id": key}
            for k, key in ((2, "p/1"), (3, "p/2"), (3, "p/2"), (2, "p/2"), (4, "p/3"), (1, "p/4"))
        ]
        answers = client.decide_list_many([{**one, "context": []} for one in asked])
        assert answers[1] == answers[2]
        assert [len(answers[i].items) for i in (0, 1, 5)] == [2, 3, 1]
        assert [(one.code, one.path) for one in answers[3:5]] == [
            ("conflict", "$.lists[3].decision_id"), ("invalid", "$.lists[4].k"),
        ]  # fmt: skip
        assert client.decide_list([], ["a", "b", "c"], 3, decision_id="p/2") == answers[1]
        with pytest.raises(ServiceError) as refused:
            client.reward("p/3", 1.0, slot=0)
        assert refused.value.status == 404
        assert client.reward("p/4", 1.0, slot=0).state == "learnt"
        assert client.stats()["counts"]["lists"] == 4


def test_lists_from_code_that_awaits_in_the_service_s_own_process(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(load(None, data=tmp_path / "data", demo=False)) as (_, http):
            client = whim.AsyncClient("http://localhost", space="pages")
            await client.aclose()
            client._http = http
            await client.create("pages", policy="ucb", context={"size": 0})
            page = await client.decide_list([], ["a", "b", "c"], 2, decision_id="p/1")
            assert [item.slot for item in page.items] == [0, 1]
            bodies = [{"candidates": ["a", "b", "c"], "k": 2, "decision_id": f"p/{i}"}
                      for i in (1, 2)]  # fmt: skip
            bad = {"candidates": ["a"], "slots": [{"exclude": ["a"]}]}
            answers = await client.decide_list_many([*bodies, bad])
            assert answers[0] == page
            assert answers[1].decision_id == "p/2"
            assert (answers[2].code, answers[2].path) == ("invalid", "$.lists[2].slots")
            with pytest.raises(ServiceError) as refused:
                await client.decide_list([], ["a"], 2)
            assert (refused.value.status, refused.value.path) == (422, "$.k")
            clicked = page.items[1].arm
            assert (await client.reward("p/1", 1.0, arm=clicked)).state == "learnt"
            assert (await client.stats())["counts"]["lists"] == 2

    asyncio.run(run())


# -- without the extra -----------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["httpx", "msgspec"])
def test_what_is_missing_is_named(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from whim import *\nimport whim\n"
        "try:\n    whim.Client\nexcept whim.errors.WhimError as e:\n    print(e)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"whim.Client needs {missing}, which is not installed: pip install 'whim-bandits[serve]'.\n"
    )
