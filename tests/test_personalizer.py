"""Clients of the retired Personalizer service work by changing their address.

``tests/data/personalizer_requests.json`` has what the published npm clients send, recorded from
them; where they are installed, they are run themselves.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.crashes import Service as Process
from tests.in_process import running
from whim.serve import wire
from whim.serve.http.personalizer import other_paths
from whim.serve.http.service import Service
from whim.serve.settings import Settings, load
from whim.serve.state.engine import Engine
from whim.serve.wire import SpaceConfig

RECORDED = json.loads((Path(__file__).parent / "data" / "personalizer_requests.json").read_text())
CHEAP = {
    "name": "personalizer", "policy": "linucb-disjoint", "list": {"feedback": "semi"},
    "context": {"rest": 8, "constant": True}, "explore": 0.2,
}  # fmt: skip
ACTIONS = [{"id": name, "features": [{"taste": name}]} for name in ("pasta", "ice", "soup")]
SLOTS = [
    {"id": "Main", "baselineAction": "pasta", "features": [{"size": "large"}],
     "excludedActions": ["ice"]},
    {"id": "Side", "baselineAction": "ice", "features": [{"size": "small"}]},
]  # fmt: skip
FORMS = ["/personalizer/v1.1-preview.1", "/personalizer/v1.1-preview.2",
         "/personalizer/v1.1-preview.3", "/personalizer"]  # fmt: skip
VERSION = {"/personalizer": "?api-version=2022-09-01-preview"}


def settings(data: Path, **more: Any) -> Settings:
    return load(None, data=data, demo=False, **more)


def served(tmp_path: Path, act: Any, *, space: dict[str, Any] | None = None, **more: Any) -> None:
    engine = Engine(tmp_path / "data")  # with the space there, nothing is compiled for it
    config = {name: value for name, value in (CHEAP | (space or {})).items() if name != "name"}
    engine.create("personalizer", msgspec.convert(config, SpaceConfig))
    engine.close()

    async def run() -> None:
        async with running(settings(tmp_path / "data", **more)) as (service, http):
            await act(service, http)

    asyncio.run(run())


def test_what_the_published_clients_send_is_answered(tmp_path: Path) -> None:
    statuses = {"logs/properties": 404, "rank": 201, "reward": 204, "activate": 204}

    async def act(service: Service, http: httpx.AsyncClient) -> None:
        for one in RECORDED:
            content = None if one["body"] is None else json.dumps(one["body"])
            told = await http.request(
                one["method"], one["path"], content=content, headers=one["headers"]
            )
            wanted = next((s for end, s in statuses.items() if one["path"].endswith(end)), 200)
            assert told.status_code == wanted, (one["path"], told.text)
            if one["path"].endswith("multislot/rank"):
                main, side = told.json()["slots"]
                assert (main["id"], side["id"]) == ("Main", "Side")
                assert main["rewardActionId"] in ("pasta", "soup")
                assert side["rewardActionId"] != main["rewardActionId"]
                assert told.json()["eventId"] == "page/1"
        state = service.engine.space("personalizer").state
        assert state.stats.counts["rewards_learnt"] == 3  # of two single events and of the page
        assert state.stats.positions[0].total == 1.0

    served(tmp_path, act)


def test_all_forms_serve_both_kinds_of_calls(tmp_path: Path) -> None:
    async def form(http: httpx.AsyncClient, base: str) -> None:
        query = VERSION.get(base, "")

        async def post(path: str, body: Any = None) -> httpx.Response:
            return await http.post(f"{base}{path}{query}", json=body)

        for key in (f"{base}/1", base.ljust(256, "x")):
            quoted, event = key.replace("/", "%2F"), {"eventId": key, "deferActivation": True}
            told = await post("/rank", {"actions": ACTIONS, **event})
            assert (told.status_code, told.json()["eventId"]) == (201, key)
            assert (await post(f"/events/{quoted}/activate")).status_code == 204
            assert (await post(f"/events/{quoted}/reward", {"value": 1})).status_code == 204
            event["eventId"] = key[1:] + "m"
            quoted = key[1:].replace("/", "%2F") + "m"
            told = await post("/multislot/rank", {"actions": ACTIONS, "slots": SLOTS, **event})
            assert told.status_code == 201
            assert (await post(f"/multislot/events/{quoted}/activate")).status_code == 204
            rewards = {"reward": [{"slotId": "Side", "value": 0.5}]}
            assert (await post(f"/multislot/events/{quoted}/reward", rewards)).status_code == 204
        for path in ("/configurations/service", "/configurations/policy", "/model/properties",
                     "/status"):  # fmt: skip
            assert (await http.get(f"{base}{path}{query}")).status_code == 200

    async def act(service: Service, http: httpx.AsyncClient) -> None:
        for base in FORMS:
            await form(http, base)

    served(tmp_path, act)


def test_the_first_version_had_no_slots_and_has_none() -> None:
    assert not [path for path in other_paths("/personalizer/v1.1-preview.3/multislot/rank")
                if "v1.0" in path]  # fmt: skip
    assert other_paths("/v1/spaces") == []


def test_slots_are_a_list_with_features_under_their_own_names(tmp_path: Path) -> None:
    async def act(service: Service, http: httpx.AsyncClient) -> None:
        body = {"eventId": "page", "contextFeatures": [{"size": "huge"}], "actions": ACTIONS,
                "slots": SLOTS}  # fmt: skip
        path = f"{FORMS[2]}/multislot"
        told = (await http.post(f"{path}/rank", json=body)).json()
        assert (await http.post(f"{path}/rank", json=body)).json() == told
        other = await http.post(f"{path}/rank", json={**body, "slots": SLOTS[:1]})
        assert (other.status_code, other.json()["error"]["path"]) == (409, "$.eventId")
        state = service.engine.space("personalizer").state
        first, second = state.ledger.lists["page"].x
        assert first != second
        wanted = state.context({"size": ["huge"], "slot.size": ["large"]})
        assert first == wanted.tobytes()
        # a slot without a reward gets the default at the end of the wait, or here at once
        both = {"reward": [{"slotId": "Side", "value": 1}, {"slotId": "Main", "value": 0}]}
        assert (await http.post(f"{path}/events/page/reward", json=both)).status_code == 204
        assert service.engine.space("personalizer").state.policy.step == 2

    served(tmp_path, act)


def test_the_baseline_is_shown_to_the_holdback(tmp_path: Path) -> None:
    async def act(service: Service, http: httpx.AsyncClient) -> None:
        changed = {k: v for k, v in CHEAP.items() if k != "name"} | {"shadow": True}
        assert (await http.put("/v1/spaces/personalizer", json=changed)).status_code == 202
        for _ in range(600):
            if service.engine.info("personalizer").version == 2:
                break
            await asyncio.sleep(0.05)
        body = {"actions": ACTIONS, "slots": SLOTS}
        told = (await http.post(f"{FORMS[0]}/multislot/rank", json=body)).json()
        assert [slot["rewardActionId"] for slot in told["slots"]] == ["pasta", "ice"]
        told = (await http.get(f"{FORMS[0]}/configurations/service")).json()
        assert told["learningMode"] == "Apprentice"

    served(tmp_path, act)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"slots": [{**SLOTS[0], "baselineAction": "ice"}]}, "$.slots[0].baselineAction"),
    ({"slots": [{**SLOTS[0], "baselineAction": "none"}]}, "$.slots[0].baselineAction"),
    ({"slots": [SLOTS[1], {**SLOTS[1], "id": "x"}]}, "$.slots[1].baselineAction"),
    ({"slots": [SLOTS[0], {**SLOTS[1], "id": "Main"}]}, "$.slots[1].id"),
    ({"slots": [{"id": "Main"}]}, "$.slots[0]"),
    ({"actions": ACTIONS[:2] * 26}, "$.actions"),
    ({"actions": [ACTIONS[0]] * 2}, "$.actions[1]"),
    ({"actions": ACTIONS[:1]}, "$.slots"),
    ({"contextFeatures": [{"x": 1e300}]}, "$.contextFeatures.x"),
    ({"eventId": "x" * 257}, "$.eventId"),
]


def test_what_is_wrong_is_named_as_the_caller_wrote_it(tmp_path: Path) -> None:
    async def act(service: Service, http: httpx.AsyncClient) -> None:
        for more, path in BAD:
            body = {"actions": ACTIONS, "slots": SLOTS, **more}
            told = await http.post(f"{FORMS[2]}/multislot/rank", json=body)
            assert (told.status_code, told.json()["error"]["path"]) == (422, path)

    served(tmp_path, act)


def test_rewards_of_unknown_slots_and_events_change_nothing(tmp_path: Path) -> None:
    async def act(service: Service, http: httpx.AsyncClient) -> None:
        body = {"eventId": "page", "actions": ACTIONS, "slots": SLOTS}
        path = f"{FORMS[2]}/multislot"
        await http.post(f"{path}/rank", json=body)
        await http.post(f"{FORMS[2]}/rank", json={"eventId": "one", "actions": ACTIONS})
        before = service.engine.seq
        both = {"reward": [{"slotId": "Main", "value": 1}, {"slotId": "Top", "value": 1}]}
        told = await http.post(f"{path}/events/page/reward", json=both)
        assert (told.status_code, told.json()["error"]["path"]) == (422, "$.reward[1].slotId")
        told = await http.post(f"{path}/events/one/reward", json=both)
        assert (told.status_code, told.json()["error"]["path"]) == (422, "$.reward[0].slotId")
        told = await http.post(f"{FORMS[2]}/events/page/reward", json={"value": 1})
        assert told.status_code == 422
        assert (await http.post(f"{path}/events/none/reward", json=both)).status_code == 404
        assert service.engine.seq == before

    served(tmp_path, act)


def test_several_rewards_are_taken_all_or_none(tmp_path: Path) -> None:
    async def act(service: Service, http: httpx.AsyncClient) -> None:
        path = f"{FORMS[2]}/multislot"
        for key in ("page", "sum"):
            body = {"eventId": key, "actions": ACTIONS, "slots": SLOTS}
            assert (await http.post(f"{path}/rank", json=body)).status_code == 201
        space = service.engine.space("personalizer")

        async def pay(key: str, *rewards: tuple[str, float]) -> Any:
            said = [{"slotId": slot, "value": value} for slot, value in rewards]
            told = await http.post(f"{path}/events/{key}/reward", json={"reward": said})
            assert told.status_code == 422
            return told.json()["error"]

        def seen() -> Any:
            return service.engine.seq, space.state.digest()

        allowed = wire.RewardRange(least=0, most=1)
        space.state.config.rewards.range = allowed
        before = seen()
        told = await pay("page", ("Main", 0.5), ("Side", 7.0))
        assert told["path"] == "$.reward[1].value"
        assert told["message"] == "$.reward[1].value must be from 0 to 1, got 7."
        assert seen() == before
        assert space.guard.counts["refused"] == 1
        space.state.ledger.rules.combine = "sum"
        before = seen()
        told = await pay("sum", ("Main", 1), ("Side", 1), ("Main", 1))
        assert (told["code"], told["path"]) == ("limit", "$.reward")
        assert seen() == before

    served(tmp_path, act, max_rewards=2)


def test_rewards_of_a_cascade_count_from_the_top_whatever_their_order(tmp_path: Path) -> None:
    async def act(service: Service, http: httpx.AsyncClient) -> None:
        path, space = f"{FORMS[2]}/multislot", service.engine.space("personalizer")
        assert space.config.list.feedback == "cascade"
        learnt = []
        for key, slots in (("down", ("Main", "Side")), ("up", ("Side", "Main"))):
            body = {"eventId": key, "actions": ACTIONS, "slots": SLOTS}
            await http.post(f"{path}/rank", json=body)
            said = [{"slotId": slot, "value": 1} for slot in slots]
            told = await http.post(f"{path}/events/{key}/reward", json={"reward": said})
            assert told.status_code == 204
            top = space.state.stats.positions[0]
            learnt.append((top.shown, top.clicks))
        assert learnt == [(1, 1), (2, 2)]

    served(tmp_path, act, space={"list": {"feedback": "cascade"}, "explore": 0.0})


def test_the_configuration_is_that_of_the_space(tmp_path: Path) -> None:
    async def act(service: Service, http: httpx.AsyncClient) -> None:
        base = "/personalizer/v1.0"
        told = (await http.get(f"{base}/configurations/service")).json()
        assert told == {
            "rewardWaitTime": "PT600S", "defaultReward": 0.0, "rewardAggregation": "earliest",
            "explorationPercentage": 0.2, "modelExportFrequency": "PT0S",
            "logMirrorEnabled": False, "logRetentionDays": 30, "learningMode": "Online",
            "isAutoOptimizationEnabled": False,
        }  # fmt: skip
        told = (await http.get(f"{base}/configurations/policy")).json()
        assert told == {"name": "linucb-disjoint", "arguments": "{}"}
        told = (await http.get(f"{base}/model/properties")).json()
        assert told["creationTime"] <= told["lastModifiedTime"]
        assert (await http.put(f"{base}/configurations/service", json={})).status_code == 405
        assert (await http.delete("/v1/spaces/personalizer")).status_code == 204
        for path in ("configurations/service", "model/properties"):
            assert (await http.get(f"{base}/{path}")).status_code == 404

    served(tmp_path, act, retention_days=30)


def test_before_the_first_decision_there_is_a_configuration_and_no_model(tmp_path: Path) -> None:
    async def run() -> None:
        chosen = settings(tmp_path / "data", personalizer_space="other")
        async with running(chosen) as (_, http):
            told = (await http.get("/personalizer/v1.0/configurations/policy")).json()
            assert told["name"] == "pslinucb-hybrid"
            assert (await http.get("/personalizer/v1.0/model/properties")).status_code == 404

    asyncio.run(run())


SCRIPT = """
const create = require('@azure-rest/ai-personalizer').default;
const { PersonalizerClient } = require('@azure/cognitiveservices-personalizer');
const { ApiKeyCredentials } = require('@azure/ms-rest-js');
const url = process.argv[1];
const actions = ['pasta', 'ice', 'soup'].map(id => ({ id, features: [{ taste: id }] }));
const slots = [{ id: 'Main', baselineAction: 'pasta' }, { id: 'Side', baselineAction: 'ice' }];
(async () => {
  const client = create(url, { key: 'none' }, { allowInsecureConnection: true });
  const told = [];
  const call = async (path, body, ...ids) => {
    const answer = await client.path(path, ...ids).post(body ? { body } : {});
    told.push(answer.status);
    return answer.body;
  };
  await call('/rank', { eventId: 'e/1', actions, deferActivation: true });
  await call('/events/{eventId}/activate', null, 'e/1');
  await call('/events/{eventId}/reward', { value: 1 }, 'e/1');
  const page = await call('/multislot/rank', { eventId: 'p/1', actions, slots });
  await call('/multislot/events/{eventId}/reward', { reward: [{ slotId: 'Side', value: 1 }] },
             'p/1');
  told.push((await client.path('/configurations/service').get()).status);
  const old = new PersonalizerClient(
    new ApiKeyCredentials({ inHeader: { 'Ocp-Apim-Subscription-Key': 'none' } }), url);
  const one = await old.rank({ eventId: 'old/1', actions });
  await old.events.reward('old/1', { value: 1 });
  console.log(JSON.stringify({ told, slots: page.slots.length, event: one.eventId }));
})();
"""


def test_the_published_javascript_clients_work(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node")
    needed = (
        "require('@azure-rest/ai-personalizer');require('@azure/cognitiveservices-personalizer')"
    )
    if subprocess.run([node, "-e", needed], capture_output=True, check=False).returncode:
        pytest.skip("the clients are not installed where Node looks for them (NODE_PATH)")
    with Process(tmp_path / "data") as service:
        service.wait()
        assert service.ask("POST", "/v1/spaces", CHEAP)[0] == 201
        command = [node, "-e", SCRIPT, f"http://127.0.0.1:{service.port}"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert json.loads(run.stdout) == {
            "told": ["201", "204", "204", "201", "204", "200"], "slots": 2, "event": "old/1",
        }  # fmt: skip
