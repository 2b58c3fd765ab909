"""What an earlier Whim wrote is continued with the same bits, and its API is the same."""

from __future__ import annotations

import asyncio
import json
import platform
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import stored_service
from tests.stored_service import COPIES, EXPECTED
from whim.serve import wire
from whim.serve.app import make
from whim.serve.http.keys import Keys
from whim.serve.http.service import Service
from whim.serve.jobs.export import export
from whim.serve.jobs.whatif import run
from whim.serve.log.migrate import migrate
from whim.serve.log.rows import DECODERS, Kind
from whim.serve.settings import load
from whim.serve.state.engine import Engine

OPENAPI = EXPECTED.with_name("openapi.json")
expected = json.loads(EXPECTED.read_text())
same_machine = pytest.mark.skipif(
    platform.machine() != expected["made"], reason="bits are those of one type of machine"
)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return stored_service.unpacked(tmp_path)


def state(engine: Engine) -> dict[str, Any]:
    # policies that draw had probability 1 then, and each decision moved their stream on, which
    # stays where it is now: all else of the state must be the same
    space = engine.spaces["drawn"]
    for waiting in space.state.pending.values():
        waiting.probability = 1.0
    for row in engine.store.rows(0, None, space.number):
        if row.kind == Kind.DECISION:
            space.state.policy._rng.standard_normal(len(DECODERS[row.kind].decode(row.body).arms))
    for space in engine.spaces.values():  # nor was this part of the state
        space.state.ledger.closed_by.clear()
    return {
        name: {
            "digest": space.state.digest(),
            "info": without_skipped(msgspec.to_builtins(engine.info(name))),
            "stats": space.state.stats.summary(),
            "changes": engine.changes(name, 0)[-5:],
        }
        for name, space in sorted(engine.spaces.items())
    }


def without_skipped(info: Any) -> Any:
    assert info.pop("skipped") >= 0  # told since
    return info


ADDED = ("probability", "kind")  # to changes, since: None where a policy holds no such belief


def without_added(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {n: v for n, v in value.items() if n not in ADDED or v is not None}
        return {name: without_added(part) for name, part in kept.items()}
    return [without_added(part) for part in value] if isinstance(value, list) else value


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@same_machine
@pytest.mark.parametrize("copy", COPIES)
def test_it_is_opened_and_goes_on_with_the_same_bits(stored: Path, copy: str) -> None:
    found = without_added(as_json(stored_service.recorded(stored / copy, Engine, wire, state)))
    assert found["before"] == expected[copy]["before"]
    for part in ("answers", "after"):
        drawn, then = found[part].pop("drawn"), dict(expected[copy][part])
        assert drawn != then.pop("drawn")  # draws follow from a decision's id since
        assert found[part] == then, part


def test_draws_follow_from_the_id_whatever_was_drawn_before(stored: Path, tmp_path: Path) -> None:
    def answers(data: Path, keys: list[str]) -> dict[str, Any]:
        engine = Engine(data)
        try:
            return {
                key: json.loads(engine.decide("drawn", wire.DecisionBody(
                    candidates=["a", "b", 7, "d"], context=[0.5, -0.5], decision_id=key
                ), b""))
                for key in keys
            }  # fmt: skip
        finally:
            engine.close()

    keys = [f"now-{i}" for i in range(30)]
    found = answers(stored / "closed", keys)
    again = answers(stored_service.unpacked(tmp_path / "again") / "closed", keys[::-1])
    assert again == found
    assert len({one["arm"] for one in found.values()}) > 1


@same_machine
@pytest.mark.parametrize("copy", COPIES)
def test_it_is_the_same_without_its_snapshots(stored: Path, copy: str) -> None:
    for path in (stored / copy).glob("snapshots.db*"):
        path.unlink()
    engine = Engine(stored / copy)
    try:
        assert as_json(state(engine)) == expected[copy]["before"]
    finally:
        engine.close()


# what the stored warning says today
REWORDED = (
    "The effective sample size is only 18 decisions: take the estimate as a hint. More "
    "exploration, or a longer log, would make it more precise."
)


@same_machine
def test_exports_and_what_ifs_are_the_same(stored: Path, tmp_path: Path) -> None:
    migrate(stored / "closed" / "log.db")  # as the next start does
    found = stored_service.outside(stored / "closed", tmp_path, wire, export, run)
    assert found["whatif"]["warnings"] == [REWORDED]
    found["whatif"]["warnings"] = expected["outside"]["whatif"]["warnings"]
    assert (found["whatif"].pop("support"), found["whatif"].pop("unknown")) == (1.0, None)  # new
    assert found["whatif"].pop("clicks") in (True, False)  # new
    assert as_json(found) == expected["outside"]


def test_its_keys_are_in_force(stored: Path) -> None:
    key = Keys(stored / "closed" / "keys.json").check(expected["token"])
    assert key is not None
    assert (key.name, key.scopes) == ("reader", ["read"])


def test_a_service_serves_it(stored: Path) -> None:
    """Webhook cursors, an unfinished rebuild and all: through the whole service."""

    async def live() -> int:
        service = Service(load(None, data=stored / "closed"))
        await service.start()
        await service.opened.wait()
        assert service.problem is None
        for _ in range(600):
            if service.engine.info("drawn").version == 2:
                break
            await asyncio.sleep(0.1)
        version = service.engine.info("drawn").version
        await service.close()
        return version

    assert asyncio.run(live()) == 2


def without_words(value: Any) -> Any:
    """A document without its descriptions and summaries."""
    if isinstance(value, dict):
        return {
            name: without_words(part)
            for name, part in value.items()
            if not (isinstance(part, str) and name in ("description", "summary"))
        }
    return [without_words(part) for part in value] if isinstance(value, list) else value


def test_the_openapi_document_is_the_same_but_for_descriptions(tmp_path: Path) -> None:
    async def made() -> bytes:
        service = Service(load(None, data=tmp_path / "data", demo=False))
        make(service)
        return service.document

    found = without_words(json.loads(asyncio.run(made())))
    before = json.loads(OPENAPI.read_text())
    for document in (found, before):
        del document["info"]["version"]
    for name in ADDED:  # neither is required
        del found["components"]["schemas"]["ChangeTold"]["properties"][name]
    for name in ("check", "clock", "replica"):  # of the health, not required either
        del found["components"]["schemas"]["Health"]["properties"][name]
    for name in ("Check", "ClockHealth", "ReplicaHealth", "ShardView"):
        del found["components"]["schemas"][name]
    _without_lag(found)
    _without_other_configs(found)
    for part in found["components"]["schemas"]["RankRequest"]["properties"]["eventId"]["anyOf"]:
        if "maxLength" in part:  # longer ones are taken since
            assert part["maxLength"] == 256
            part["maxLength"] = 128
    _without_added_by_limits(found, before)
    _without_lists(found)
    _without_new_pages(found, before)
    del found["components"]["schemas"]["ArmTold"]["properties"]["since_change"]  # nor is this
    del found["components"]["schemas"]["RateView"]
    field = found["components"]["schemas"]["Field"]["properties"]  # none of these is required
    for name in ("log", "period", "harmonics", "missing", "other", "words"):
        del field[name]
    field["kind"]["enum"].remove("cyclic")
    assert found == before


def _without_lists(found: Any) -> None:
    """Lists, and Personalizer's calls that are served since: paths, and fields not required."""
    added = ("/lists", "/multislot/", "/configurations/", "/model/properties", "/v1.0/status")
    for path in [path for path in found["paths"] if any(part in path for part in added)]:
        del found["paths"][path]
    schemas = found["components"]["schemas"]
    for name in (
        "ListAnswer", "ListAnswers", "ListBody", "ListItem", "ListRules", "Lists",
        "ModelProperties", "MultiSlotRankRequest", "MultiSlotRankResponse",
        "MultiSlotRewardRequest", "PolicyContract", "PositionView", "ServiceConfiguration",
        "ServiceStatus", "Slot", "SlotRequest", "SlotResponse", "SlotReward",
    ):  # fmt: skip
        del schemas[name]
    for name in ("SpaceConfig", "NewSpace"):
        del schemas[name]["properties"]["list"]
    del schemas["StatsTold"]["properties"]["positions"]
    for name in ("slot", "arm"):
        del schemas["RewardBody"]["properties"][name]
    for schema in (schemas["RewardBody"], schemas["StatsTold"]):
        assert not {"slot", "arm", "positions"} & set(schema["required"])


def _without_other_configs(found: Any) -> None:
    """What is sent instead of a configuration is as it was, but for what may be left out."""
    schemas = found["components"]["schemas"]
    assert schemas["Info"]["properties"].pop("skipped") == {"type": "integer", "default": 0}
    other, whole = schemas.pop("OtherConfig"), schemas["SpaceConfig"]
    assert not other["required"]
    for name in other["properties"].keys() - {"context", "items"}:
        assert other["properties"][name] == whole["properties"][name]
    for path, method in (("", "put"), ("/whatif", "post")):
        asked = found["paths"][f"/v1/spaces/{{space}}{path}"][method]["requestBody"]["content"]
        assert asked["application/json"]["schema"]["$ref"].endswith("/OtherConfig")
        asked["application/json"]["schema"]["$ref"] = "#/components/schemas/SpaceConfig"


def _without_lag(found: Any) -> None:
    """A header of every answer that ends, and not required: how far a replica is behind."""
    assert list(found["components"].pop("headers")) == ["Whim-Lag"]
    for path in found["paths"].values():
        for operation in path.values():
            for reply in operation["responses"].values():
                whole = reply.pop("headers", {})
                ends = "text/event-stream" not in reply.get("content", {})
                assert list(whole) == ["Whim-Lag"] * (ends and operation["tags"] != ["page"])


def _without_new_pages(found: Any, before: Any) -> None:
    """An arm's own page, the form of spaces; and the range of time, which need not be given."""
    new = found["paths"].keys() - before["paths"].keys()
    assert {"/new", "/spaces/{space}/edit", "/spaces/{space}/arm"} <= new
    for path in new:
        assert not path.startswith("/v1")
        del found["paths"][path]
    for path, operations in found["paths"].items():
        for operation in operations.values():
            if operation["tags"] == ["page"]:
                operation["parameters"] = [
                    one for one in operation["parameters"]
                    if one["required"] or one["name"] not in ("range", "from", "to", "id", "number")
                ]  # fmt: skip
            assert path in before["paths"]


def _without_added_by_limits(found: Any, before: Any) -> None:
    """A range of rewards, the space of a what-if, a space that was retired, activation's scope."""
    schemas, personalizer = found["components"]["schemas"], "/personalizer/v1.0"
    del schemas["RewardRange"], schemas["RewardRules"]["properties"]["range"]
    del schemas["Job"]["properties"]["space"]
    del found["paths"][f"{personalizer}/rank"]["post"]["responses"]["404"]
    activate = f"{personalizer}/events/{{event}}/activate"
    assert before["paths"][activate]["post"]["security"][0] == {"bearer": ["reward"]}
    before["paths"][activate]["post"]["security"] = [{"bearer": ["decide"]}, {"header": ["decide"]}]


def test_paths_that_the_documentation_named_still_lead_there() -> None:
    from whim.features.encoder import Encoder
    from whim.serve import encode, webhooks
    from whim.serve.jobs.webhooks import signature

    assert (encode.Encoder, webhooks.signature) == (Encoder, signature)
