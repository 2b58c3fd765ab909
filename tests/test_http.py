"""The service as its callers see it: a real process, real sockets."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crashes import Service
from tests.stores import store
from whim.serve.app import API
from whim.serve.http.keys import Keys

__all__ = ["store"]  # a fixture

NEWS = {
    "name": "news", "context": {"size": 2, "constant": True},
    "rewards": {"wait_seconds": 30},
}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, store: tuple[str, ...]) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("open") / "data", *store) as made:
        made.wait()
        assert made.ask("POST", "/v1/spaces", NEWS)[0] == 201
        yield made


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, dict[str, str]]]:
    data = tmp_path_factory.mktemp("locked") / "data"
    data.mkdir()
    keys = Keys(data / "keys.json")
    tokens = {scope: keys.make(scope, [scope]) for scope in ("decide", "reward", "read", "admin")}
    with Service(data) as made:
        made.wait()
        yield made, tokens


def decide(service: Service, space: str = "news", **body: Any) -> tuple[int, Any]:
    asked = {"context": [0.5, -0.5], "candidates": ["a", "b"], **body}
    return service.ask("POST", f"/v1/spaces/{space}/decisions", asked)


# -- the loop ---------------------------------------------------------------------------------


def test_a_decision_and_its_reward(service: Service) -> None:
    status, answer = decide(service)
    assert status == 200
    assert answer["arm"] in ("a", "b")
    assert [r["arm"] for r in answer["ranking"]] == ["a", "b"]
    assert answer["probability"] == 1.0
    status, told = service.ask(
        "POST", "/v1/spaces/news/rewards", {"decision_id": answer["decision_id"], "value": 1}
    )
    assert (status, told["state"]) == (200, "learnt")


def test_the_same_id_and_body_give_the_same_answer(service: Service) -> None:
    first = decide(service, decision_id="same")
    assert decide(service, decision_id="same") == first
    raw = b'{ "candidates":["a","b"], "decision_id":"same", "context": [0.5,-0.5] }'
    assert service.ask("POST", "/v1/spaces/news/decisions", raw) == first  # spaces are no body
    status, told = decide(service, decision_id="same", candidates=["a"])
    assert (status, told["error"]["code"], told["error"]["path"]) == (
        409, "conflict", "$.decision_id",
    )  # fmt: skip


def test_a_batch_answers_each(service: Service) -> None:
    asked = {"context": [1, 2], "candidates": ["a"]}
    body = {"decisions": [asked, {**asked, "context": [1]}, {**asked, "decision_id": "b3"}]}
    status, told = service.ask("POST", "/v1/spaces/news/decisions/batch", body)
    assert status == 200
    assert told["answers"][0]["arm"] == "a"
    assert told["answers"][1]["error"]["path"] == "$.decisions[1].context"
    rewards = [{"decision_id": "b3", "value": 1}, {"decision_id": "nobody", "value": 1}]
    status, told = service.ask("POST", "/v1/spaces/news/rewards/batch", {"rewards": rewards})
    assert status == 200
    assert told["results"][0]["state"] == "learnt"
    assert told["results"][1]["error"]["code"] == "not_found"


def test_deferred_decisions_are_activated(service: Service) -> None:
    decide(service, decision_id="later", deferred=True)
    path = "/v1/spaces/news/decisions/later/activate"
    assert service.ask("POST", path) == (200, {"activated": True})
    assert service.ask("POST", path) == (200, {"activated": False})
    assert service.ask("POST", "/v1/spaces/news/decisions/none/activate")[0] == 404


def test_spaces_are_made_changed_and_retired(service: Service) -> None:
    assert service.ask("POST", "/v1/spaces", {**NEWS, "name": "short"})[0] == 201
    assert service.ask("POST", "/v1/spaces", {**NEWS, "name": "short"})[0] == 409
    for i in range(30):
        decide(service, "short", decision_id=f"d{i}")
        service.ask("POST", "/v1/spaces/short/rewards", {"decision_id": f"d{i}", "value": 1})
    before = service.ask("GET", "/v1/spaces/short")[1]
    wish = {k: v for k, v in NEWS.items() if k != "name"} | {"params": {"alpha": 0.7}}
    assert service.ask("PUT", "/v1/spaces/short", wish) == (202, {"version": 2})
    until = time.monotonic() + 60
    while (found := service.ask("GET", "/v1/spaces/short")[1])["version"] != 2:
        assert time.monotonic() < until
        assert decide(service, "short")[0] == 200  # it goes on meanwhile
        time.sleep(0.05)
    assert found["steps"] == before["steps"] == 30
    assert found["config"]["params"] == {"alpha": 0.7}
    assert service.ask("DELETE", "/v1/spaces/short")[0] == 204
    assert decide(service, "short")[0] == 404
    assert "short" not in [s["name"] for s in service.ask("GET", "/v1/spaces")[1]["spaces"]]


def test_a_configuration_without_the_features_of_a_space_is_refused(service: Service) -> None:
    """It is whole: what it left out would be the default, which nothing that is logged fits."""
    fields = {"fields": [{"name": "device", "kind": "flag"}], "constant": True}
    made = {"policy": "pslinucb-hybrid", "context": fields, "items": {"size": 2}}
    assert service.ask("POST", "/v1/spaces", {"name": "whole", **made})[0] == 201
    arm = {"id": "a", "features": [1, 0]}
    for i in range(3):
        decide(service, "whole", context={"device": True}, candidates=[arm], decision_id=f"w{i}")
    path, part = "/v1/spaces/whole", {"policy": "adaptive-linucb", "explore": 0.1}
    for method, url in (("PUT", path), ("POST", f"{path}/whatif")):
        for name, body in (("context", part), ("items", part | {"context": fields})):
            status, told = service.ask(method, url, body)
            assert (status, told["error"]["path"]) == (422, f"$.{name}")
            assert f"$.{name} must be given where" in told["error"]["message"]
            assert told["error"]["message"].endswith("got none.")
    before = service.ask("GET", path)[1]
    assert (before["version"], before["wanted"], before["skipped"]) == (1, 1, 0)
    # who says that there are none may have that
    assert service.ask("PUT", path, part | {"context": {"size": 1}, "items": {}})[0] == 202
    until = time.monotonic() + 60
    while (found := service.ask("GET", path)[1])["version"] != 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert (found["skipped"], found["failed"]) == (3, None)
    assert "3 logged decisions are not learnt" in str(service.ask("GET", "/spaces/whole")[1])
    begun = service.ask("POST", f"{path}/whatif", {"policy": "linucb-disjoint"})
    assert begun[0] == 202  # the default is what it has


def test_arms_are_listed_and_retired(service: Service) -> None:
    decide(service, candidates=["x1", "x2"])
    arms = [a["arm"] for a in service.ask("GET", "/v1/spaces/news/arms")[1]["arms"]]
    assert {"x1", "x2"} <= set(arms)
    assert service.ask("POST", "/v1/spaces/news/arms/retire", {"arms": ["x1"]})[0] == 204
    arms = [a["arm"] for a in service.ask("GET", "/v1/spaces/news/arms")[1]["arms"]]
    assert "x1" not in arms
    assert service.ask("POST", "/v1/spaces/news/arms/retire", {"arms": ["x1"]})[0] == 404


# -- bad input --------------------------------------------------------------------------------

WRONG = [
    (b"", 400, None),
    (b"{", 400, None),
    (b'{"context": [NaN, 1], "candidates": ["a"]}', 400, None),
    (b"\xff\xfe", 400, None),
    (b"[]", 422, "$"),
    (b'{"context": [0, 1]}', 422, "$"),
    (b'{"context": [0, 1], "candidates": []}', 422, "$.candidates"),
    (b'{"context": [0, 1], "candidates": ["a", "a"]}', 422, "$.candidates[1]"),
    (b'{"context": [0, "1"], "candidates": ["a"]}', 422, "$.context[1]"),
    (b'{"context": [0], "candidates": ["a"]}', 422, "$.context"),
    (b'{"context": {"a": 1}, "candidates": ["a"]}', 422, "$.context"),
    (b'{"context": [0, 1e300], "candidates": ["a"]}', 422, "$.context[1]"),
    (b'{"context": [0, 1], "candidates": [true]}', 422, "$.candidates[0]"),
    (b'{"context": [0, 1], "candidates": [""]}', 422, "$.candidates[0]"),
    (b'{"context": [0, 1], "candidates": ["a"], "decision_id": 7}', 422, "$.decision_id"),
    (b'{"context": [0, 1], "candidates": ["a"], "what": 7}', 422, "$"),
    (b'{"context": ' + b"[" * 5000 + b"]" * 5000 + b', "candidates": ["a"]}', 422, None),
    (b'{"context": {"a": ' + b'{"a":' * 900_00 + b"1" + b"}" * 900_01 + b', "candidates": ["a"]}',
     422, None),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "status", "path"), WRONG, ids=range(len(WRONG)))
def test_a_bad_body_is_told_where(
    service: Service, raw: bytes, status: int, path: str | None
) -> None:
    found, told = service.ask("POST", "/v1/spaces/news/decisions", raw)
    assert found == status, told
    assert set(told["error"]) == {"code", "message", "path"}
    if path is not None:
        assert told["error"]["path"] == path, told


def test_a_body_of_ten_megabytes_is_refused(service: Service) -> None:
    link = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    link.putrequest("POST", "/v1/spaces/news/decisions")
    link.putheader("content-length", str(10 << 20))
    link.endheaders()
    reply = link.getresponse()  # without reading it all
    assert reply.status == 413
    link.close()
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as raw:
        raw.sendall(
            b"POST /v1/spaces/news/decisions HTTP/1.1\r\nhost: localhost\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        try:
            for _ in range(10):
                raw.sendall(chunk)
        except OSError:
            pass  # it has hung up
        assert b" 413 " in raw.recv(4096)
    assert decide(service)[0] == 200


def test_ids_may_be_anything_that_is_text(service: Service) -> None:
    for name in ("'; DROP TABLE log; --", "<script>alert(1)</script>", "\u202e \x00", "💥" * 60):
        status, answer = decide(service, candidates=[name], decision_id=name)
        assert status == 200
        assert answer["arm"] == name
        body = {"decision_id": name, "value": 1}
        assert service.ask("POST", "/v1/spaces/news/rewards", body)[0] == 200
    status, told = decide(service, candidates=["\ud800"])
    assert status in (400, 422), told


def test_unknown_paths_and_methods_have_the_same_shape(service: Service) -> None:
    for method, path, status in (
        ("GET", "/v1/nothing", 404), ("PATCH", "/v1/spaces", 405), ("GET", "/v1/spaces/no", 404),
        ("GET", "/v1/spaces/news/decisions", 405), ("GET", "/v1/spaces/news/changes?since=x", 422),
        ("GET", "/v1/spaces/news/changes?sinc=1", 422),
    ):  # fmt: skip
        found, told = service.ask(method, path)
        assert found == status
        assert set(told["error"]) == {"code", "message", "path"}


def test_only_this_machine_and_its_own_pages(service: Service) -> None:
    assert service.ask("GET", "/v1/spaces", host="evil.example")[0] == 403
    body = {"context": [0, 0], "candidates": ["a"]}
    path = "/v1/spaces/news/decisions"
    assert service.ask("POST", path, body, origin="https://evil.example")[0] == 403
    own = f"http://127.0.0.1:{service.port}"
    assert service.ask("POST", path, body, origin=own)[0] == 200


# -- operations -------------------------------------------------------------------------------


def test_health_metrics_and_document(service: Service) -> None:
    status, told = service.ask("GET", "/healthz")
    told.pop("replica", None)  # where the log is shared
    assert (status, told) == (200, {"status": "ok"})
    status, told = service.ask("GET", "/readyz")
    assert (status, told["status"]) == (200, "ready")
    text = service.ask("GET", "/metrics")[1].decode()
    assert 'whim_decisions_total{mode="policy",space="news"}' in text
    assert "whim_request_seconds_bucket" in text


def test_the_document_is_valid_and_complete(service: Service) -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    document = service.ask("GET", "/openapi.json")[1]
    validator.validate(document)
    written = {(p, m.upper()) for p, ms in document["paths"].items() for m in ms}
    assert {(r.path, r.method) for r in API} <= written
    ids = [o["operationId"] for ms in document["paths"].values() for o in ms.values()]
    assert len(ids) == len(set(ids))


def test_changes_come_over_the_stream(service: Service) -> None:
    config = {**NEWS, "name": "turning"}
    assert service.ask("POST", "/v1/spaces", config)[0] == 201
    link = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    link.request("GET", "/v1/spaces/turning/changes/stream")
    stream = link.getresponse()
    assert stream.status == 200
    found: list[Any] = []

    def listen() -> None:
        for line in stream:
            if line.startswith(b"data: "):
                found.append(json.loads(line[6:]))
                return

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    for i in range(3000):
        x = [(i % 7) / 7 - 0.5, (i % 5) / 5 - 0.5]
        decide(service, "turning", decision_id=f"t{i}", candidates=["a"], context=x)
        value = (x[0] if i < 200 else -x[0]) + (0 if i < 200 else 1)
        service.ask("POST", "/v1/spaces/turning/rewards", {"decision_id": f"t{i}", "value": value})
        if found:
            break
    listener.join(30)
    link.close()
    assert found
    assert found[0]["arm"] == "a"
    assert found[0]["features"] == ["x[0]", "x[1]", "constant"]
    assert len(found[0]["theta_before"]) == len(found[0]["theta_after"]) == 3
    listed = service.ask("GET", "/v1/spaces/turning/changes")[1]["changes"]
    assert listed[0] == found[0]
    assert service.ask("GET", f"/v1/spaces/turning/changes?since={listed[0]['seq']}")[1] == {
        "changes": listed[1:]
    }


# -- keys -------------------------------------------------------------------------------------


def _filled(path: str) -> str:
    return re.sub(r"{\w+(?::\w+)?}", "demo", path)


def test_every_route_asks_for_its_key(locked: tuple[Service, dict[str, str]]) -> None:
    service, tokens = locked
    document = service.ask("GET", "/openapi.json")[1]
    walked = 0
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            needs = [scope for way in operation.get("security", []) for scope in way.values()]
            if operation["tags"] == ["page"]:
                _walk_page(service, method.upper(), _filled(path))
            elif needs:
                walked += 1
                _walk(service, tokens, method.upper(), _filled(path), needs[0][0])
    assert walked == sum(r.scope is not None for r in API)
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert service.ask("GET", path)[0] == 200


def _walk(service: Service, tokens: dict[str, str], method: str, path: str, scope: str) -> None:
    assert service.ask(method, path)[0] == 401, path
    for header in ("authorization", "x_api_key", "ocp_apim_subscription_key", "cookie"):
        for wrong in ("", "x", "whim_" + "A" * 43, "Bearer whim_" + "A" * 43, "whim_key=nope"):
            assert service.ask(method, path, **{header: wrong})[0] == 401, (path, header, wrong)
    for held, token in tokens.items():
        if held not in (scope, "admin"):
            found = service.ask(method, path, authorization=f"Bearer {token}")
            assert found[0] == 403, (path, held, found)
    if not path.endswith("/stream") and method != "DELETE":
        found = service.ask(method, path, b"{}", x_api_key=tokens[scope])
        assert found[0] not in (401, 403, 500), (path, found)


def _walk_page(service: Service, method: str, path: str) -> None:
    status, _ = service.ask(method, path)
    if path.startswith(("/login", "/static")):
        assert status < 500
    else:
        assert status in (303, 401), (path, status)


def test_a_revoked_key_stops_working(locked: tuple[Service, dict[str, str]]) -> None:
    service, _ = locked
    keys = Keys(service.data / "keys.json")
    token = keys.make("short-lived", ["read"])
    until = time.monotonic() + 10
    while service.ask("GET", "/v1/spaces", x_api_key=token)[0] != 200:
        assert time.monotonic() < until
        time.sleep(0.1)
    keys.revoke("short-lived")
    while service.ask("GET", "/v1/spaces", x_api_key=token)[0] != 401:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert token not in "".join(service.said)


def test_other_addresses_need_keys(tmp_path: Path) -> None:
    with Service(tmp_path / "data", "--host", "0.0.0.0") as made:
        assert made.process.wait(60) == 2
        made.stop()
        assert "keys" in "".join(made.said)


# -- life and death ---------------------------------------------------------------------------


def test_a_stop_finishes_what_was_accepted(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as made:
        made.wait()
        made.ask("POST", "/v1/spaces", NEWS)
        link = http.client.HTTPConnection("127.0.0.1", made.port, timeout=30)
        link.request("GET", "/v1/spaces/news/changes/stream")
        stream = link.getresponse()  # a listener must not hold it up
        told: list[int] = []

        def work() -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                told.extend(decide(made, decision_id=f"k{i}")[0] for i in range(100_000))

        worker = threading.Thread(target=work)
        worker.start()
        time.sleep(0.5)
        began = time.monotonic()
        assert made.stop(signal.SIGTERM) == 0
        assert time.monotonic() - began < 8
        worker.join()
        stream.close()
        link.close()
        assert told
        assert set(told) <= {200, 503}
    with Service(tmp_path / "data") as again:
        again.wait()
        stats = again.ask("GET", "/v1/spaces/news/stats")[1]
        assert stats["counts"]["decisions"] >= told.count(200)


def test_two_services_cannot_share_a_directory(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as first:
        first.wait()
        with Service(tmp_path / "data") as second:
            assert second.process.wait(60) != 0
            second.stop()
            assert "in use" in "".join(second.said) or "another" in "".join(second.said)
        with Service(tmp_path / "other", port=first.port) as third:
            assert third.process.wait(60) == 2
            third.stop()
            assert "port" in "".join(third.said)
        assert first.ask("GET", "/readyz")[0] == 200


# -- lists --------------------------------------------------------------------------------------


def test_a_list_and_the_rewards_of_its_items(service: Service) -> None:
    path, rewards = "/v1/spaces/news/lists", "/v1/spaces/news/rewards"
    body = {"context": [0.5, -0.5], "candidates": ["a", "b", "c", "d"], "k": 3}
    status, answer = service.ask("POST", path, {**body, "decision_id": "page/1"})
    assert status == 200
    assert [item["slot"] for item in answer["items"]] == [0, 1, 2]
    assert service.ask("POST", path, {**body, "decision_id": "page/1"}) == (200, answer)
    status, told = service.ask("POST", path, {**body, "k": 2, "decision_id": "page/1"})
    assert (status, told["error"]["code"]) == (409, "conflict")
    assert decide(service, decision_id="page/1")[0] == 409  # nor is it a decision about one arm

    def pay(value: float, **more: Any) -> Any:
        return service.ask("POST", rewards, {"decision_id": "page/1", "value": value, **more})

    assert pay(1.0)[1]["error"]["path"] == "$.slot"
    assert pay(1.0, slot=7)[1]["error"]["path"] == "$.slot"
    assert pay(0.0, arm=answer["items"][0]["arm"])[1]["state"] == "kept"
    before = service.ask("GET", "/v1/spaces/news")[1]["steps"]
    assert pay(1.0, slot=1)[1]["state"] == "learnt"
    assert service.ask("GET", "/v1/spaces/news")[1]["steps"] == before + 2
    assert pay(1.0, slot=2)[1]["state"] == "late"
    stats = service.ask("GET", "/v1/spaces/news/stats")[1]
    assert stats["counts"]["lists"] == 1
    assert [one["clicks"] for one in stats["positions"]] == [0, 1, 0]
    page = service.ask("GET", "/spaces/news")[1].decode()
    assert "Positions in lists" in page
    assert "looked at from the top up to the first click" in page
    batch = {"rewards": [{"decision_id": "page/1", "value": 1, "slot": 0},
                         {"decision_id": "page/2", "value": 1, "slot": 0}]}  # fmt: skip
    first, second = service.ask("POST", f"{rewards}/batch", batch)[1]["results"]
    assert (first["state"], second["error"]["path"]) == ("late", "$.rewards[1].decision_id")


def test_a_number_that_no_log_can_hold_is_refused(service: Service) -> None:
    huge = {"name": "huge", "params": {"alpha": [{"deep": 10**30}]}}
    status, answer = service.ask("POST", "/v1/spaces", huge)
    assert status == 422
    assert "whole numbers between -2**63 and 2**64 - 1" in answer["error"]["message"]
    assert service.ask("PUT", "/v1/spaces/news", {"params": huge["params"]})[0] == 422


def test_a_deferred_list_of_slots(service: Service) -> None:
    slots = [{"id": "hero", "exclude": ["a"]}, {"id": "side", "exclude": ["b", "c"]}]
    body = {"context": [0.1, 0.2], "candidates": ["a", "b", "c", "d"], "slots": slots,
            "decision_id": "page/later", "deferred": True}  # fmt: skip
    status, answer = service.ask("POST", "/v1/spaces/news/lists", body)
    assert status == 200
    hero, side = answer["items"]
    assert hero["arm"] in ("b", "c", "d")
    assert side["arm"] in ("a", "d")
    reward = {"decision_id": "page/later", "value": 1, "slot": "side"}
    assert service.ask("POST", "/v1/spaces/news/rewards", reward)[1]["state"] == "kept"
    path = "/v1/spaces/news/decisions/page%2Flater/activate"
    assert service.ask("POST", path) == (200, {"activated": True})
    assert service.ask("POST", path) == (200, {"activated": False})


def test_the_old_personalizer_client_works(service: Service) -> None:
    pytest.importorskip("azure.cognitiveservices.personalizer")
    from azure.cognitiveservices.personalizer import PersonalizerClient
    from azure.cognitiveservices.personalizer.models import RankableAction, RankRequest
    from msrest.authentication import CognitiveServicesCredentials

    client = PersonalizerClient(
        f"http://127.0.0.1:{service.port}", CognitiveServicesCredentials("none")
    )
    actions = [
        RankableAction(id="pasta", features=[{"taste": "salty", "spice": 1}, {"cuisine": "it"}]),
        RankableAction(id="ice", features=[{"taste": "sweet", "spice": 0}]),
        RankableAction(id="soup", features=[{"taste": "salty"}]),
    ]
    for i in range(20):
        asked = RankRequest(
            actions=actions, context_features=[{"time": "morning"}, {"user": {"age": i}}],
            excluded_actions=["soup"], event_id=f"event-{i}", defer_activation=i == 0,
        )  # fmt: skip
        told = client.rank(rank_request=asked)
        assert told.event_id == f"event-{i}"
        assert told.reward_action_id in ("pasta", "ice")
        assert told.ranking[0].id == told.reward_action_id
        chances = {r.id: r.probability for r in told.ranking}
        assert set(chances) == {"pasta", "ice", "soup"}
        assert chances["soup"] == 0.0
        assert sum(chances.values()) == pytest.approx(1.0)
        if i == 0:
            client.events.activate(event_id="event-0")
        client.events.reward(event_id=f"event-{i}", value=float(told.reward_action_id == "ice"))
    made = service.ask("GET", "/v1/spaces/personalizer")[1]
    assert made["steps"] == 20
    client.close()
