"""Pages for those who decide: a range of time, an arm's own page, the form of a space."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import msgspec
import numpy as np
import pytest

from tests.clocks import Clock
from tests.in_process import running
from tests.test_dashboard import (  # noqa: F401
    ANSWER,
    CONFIG,
    NASTY,
    SECOND,
    ask,
    closed,
    data_of,
    engine,
    fill,
    service,
    uniform,
)
from whim.serve import wire
from whim.serve.dashboard import space_form, words
from whim.serve.http.keys import Keys
from whim.serve.jobs import coefficients, whatif
from whim.serve.log.reader import LogReader
from whim.serve.settings import load
from whim.serve.state.choosing import DecisionRequest
from whim.serve.state.space_state import SpaceState
from whim.serve.state.stats import MICRO

DAY = 86_400 * SECOND


@pytest.fixture
def clock():
    return Clock(time.time_ns() - 3600 * SECOND - DAY)


@pytest.fixture
def two_days(engine, clock):  # noqa: F811
    """A space of two days: clicks on arm a yesterday, none today; c came today."""
    engine.create("news", msgspec.structs.replace(CONFIG, holdback=0.0))

    def visits(n: int, arms: list[str], likes: dict[str, float]) -> None:
        for i in range(n):
            clock.now += SECOND
            context = {"<b>device</b>": "phone"}
            body = wire.DecisionBody(candidates=arms[i % len(arms) :][:1], context=context)
            answer = ANSWER.decode(engine.decide("news", body, b""))
            value = float(i % 10 < likes[answer.arm] * 10)
            engine.reward("news", wire.RewardBody(decision_id=answer.decision_id, value=value))
        engine.store.flush()

    visits(200, ["a", "b"], {"a": 0.8, "b": 0.2})
    clock.now += DAY + 600 * SECOND
    visits(100, ["a", "c"], {"a": 0.0, "c": 0.4})
    return engine


# -- a range of time --------------------------------------------------------------------------


def test_a_range_is_about_its_own_time(two_days, ask):  # noqa: F811
    every, hour = ask("/spaces/news").text, ask("/spaces/news?range=hour").text
    assert re.search(r"So far,\s+<b>[\d.]+\u00a0%</b> of 300 decisions were rewarded", every)
    assert re.search(r"In the last hour,\s+<b>20\u00a0%</b> of 100 decisions were rewarded", hour)
    assert 'aria-current="true"' in hour
    assert "for all ranges of time together" in hour
    assert "no difference" not in hour
    week = ask("/page/spaces/news/summary?range=week").text
    assert "of 300 decisions" in week
    assert sum(ask("/page/spaces/news/series?range=hour").json()["n"]) == 100
    none = ask("/page/spaces/news/series?from=2001-01-01T00:00&to=2001-01-02T00:00").json()
    assert none["t"] == []
    text = ask("/page/spaces/news/summary?from=2001-01-01T00:00&to=2001-01-02T00:00").text
    assert "no decision has a settled reward" in text


def test_the_comparison_moves_with_its_range(engine, clock, ask):  # noqa: F811
    """Worse than the holdback some hours ago, better within the last one, nothing an hour later."""
    engine.create("news", CONFIG)
    stats, now = engine.space("news").state.stats, time.time_ns() // 1000

    def past(hours: float, policy: int, holdback: int) -> int:
        begun = now - round(hours * 3600) * MICRO
        for i in range(1500):
            closed(stats, begun + i * MICRO, float(i % 10 < policy))
            closed(stats, begun + i * MICRO, float(i % 10 < holdback), "holdback")
        return begun // MICRO

    def told(query: str) -> tuple[str, list[str]]:
        text = ask(f"/page/spaces/news/summary?{query}").text
        first = re.findall(r'class="headline">(.*?)</p>', text, re.S)[0]
        return re.sub(r"<.*?>|[ \n]+", " ", first).replace("  ", " "), re.findall(
            r'class="sub">([^<]*beyond chance)', text
        )

    early = past(5, 2, 4)
    past(0.7, 8, 4)
    hour, cards = told("range=hour")
    assert "In the last hour, 80\u00a0% of 1\u202f500 decisions were rewarded" in hour
    assert "100\u00a0% more than in the holdback" in hour
    assert cards == ["last hour: better, beyond chance"]
    between = {"from": _iso(early), "to": _iso(early + 3600)}
    before, cards = told(urlencode(between))
    assert re.search(r"From .* to .*, 20\u00a0% of 1\u202f500 decisions", before)
    assert "50\u00a0% less than in the holdback" in before
    assert cards == ["this time: worse, beyond chance"]
    since, cards = told(urlencode({"from": _iso(early)}))
    assert re.search(r"Since .*, 50\u00a0% of 3\u202f000 decisions", since)
    clock.now = time.time_ns() + 3600 * SECOND
    later, cards = told("range=hour")
    assert "In the last hour, no decision has a settled reward" in later
    assert cards == []


def _iso(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()


def test_arms_of_a_range_by_hand(two_days, ask):  # noqa: F811
    def row(text: str, arm: str) -> list[str]:
        found = re.search(rf"<span>{arm}</span></a></th>(.*?)</tr>", text, re.S)
        assert found is not None
        return re.findall(r'number(?: wide| ends)?">(.*?)</td>', found[1])

    hour = ask("/page/spaces/news/arms?range=hour&sort=mean").text
    assert re.findall(r"<span>(\w)</span></a></th>", hour) == ["c", "a", "b"]
    assert row(hour, "a")[0] == "0.000"
    assert row(hour, "a")[-2:] == ["50", "50"]
    assert row(hour, "b")[-2:] == ["0", "0"]
    assert row(ask("/page/spaces/news/arms").text, "a")[-2:] == ["150", "150"]
    assert "range=hour" in hour  # the next look is at the same range


def test_changes_of_a_range_and_of_an_arm(engine, clock, ask):  # noqa: F811
    engine.create("news", CONFIG)
    fill(engine, clock, "news", 1200, change=700)
    changes = engine.recent_changes("news")
    assert len({event["arm"] for _, _, event in changes}) == 2
    for arm in "ab":
        own = [seq for seq, _, event in changes if event["arm"] == arm]
        text = ask(f"/page/spaces/news/changes?id={arm}").text
        assert [int(seq) for seq in re.findall(r'data-seq="(\d+)"', text)] == own
        seen = ask(f"/page/spaces/news/changes?id={arm}&latest={own[0]}&version=1")
        assert seen.status_code == 204
    at = changes[0][1]
    assert [c[0] for c in engine.recent_changes("news", span=(at, at + 1))] == [changes[0][0]]
    assert engine.recent_changes("news", span=(0, changes[-1][1])) == []
    old = ask("/page/spaces/news/changes?from=2001-01-01T00:00&to=2001-01-02T00:00").text
    assert "No changes detected in this time" in old


@pytest.mark.parametrize("query", ["from=x", "from=2026-01-02T00:00&to=2026-01-01T00:00",
                                   "to=9999-12-31T23:59:59", "from=%3Cb%3E"])  # fmt: skip
def test_a_range_that_is_none_is_told_so(engine, ask, query):  # noqa: F811
    engine.create("news", CONFIG)
    found = ask(f"/spaces/news?{query}")
    assert found.status_code == 422
    assert re.search("(from|to) must be", found.text)
    assert "<b>" not in found.text


# -- an arm's own page ------------------------------------------------------------------------


def test_an_arms_page_tells_its_rate_and_its_changes(engine, clock, ask):  # noqa: F811
    engine.create("news", CONFIG)
    fill(engine, clock, "news", 1200, arms=(NASTY[0], "b"), change=700)
    text = ask("/spaces/news/arm", params={"id": NASTY[0]}).text
    assert NASTY[0] not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert re.search(r"So far, it was shown [\d\u202f]+ times", text)
    assert "was rewarded" in text
    assert 'class="told"' in text
    rows = ask("/page/spaces/news/arms").text
    for url in re.findall(r'class="arm" href="([^"]*)"', rows):  # each row leads to its page
        assert ask(url.replace("&amp;", "&")).status_code == 200
    series = ask("/page/spaces/news/arm/series", params={"id": NASTY[0]}).json()
    assert sum(series["n"]) == engine.space("news").state.stats.arms[NASTY[0]].closed
    assert series["changes"]
    for query in ("id=none", "number=7", "number=x", ""):
        assert ask(f"/spaces/news/arm?{query}").status_code == 404


def test_coefficients_of_clicks_are_told_as_log_odds(engine, clock, ask):  # noqa: F811
    units = {"adaptive-linucb": "log-odds of a click", "pslinucb-disjoint": "reward"}
    for policy, unit in units.items():
        engine.create(policy, msgspec.structs.replace(CONFIG, policy=policy, holdback=0.0))
        fill(engine, clock, policy, 1200, change=700)
        text = ask(f"/spaces/{policy}/arm?id=a").text
        told = re.search(
            r"What each feature of a visitor adds to the ([\w -]+?) (?:when|that)", text
        )
        assert told is not None
        assert told[1] == unit
        assert (">in log-odds of a click<" in text) == (unit != "reward")
        assert (">in units of reward<" in text) == (unit == "reward")
    engine.create("numbers", msgspec.structs.replace(CONFIG, policy="adaptive-linucb"))
    for value in (0.0, 1.0, 0.5):  # which are no clicks
        body = wire.DecisionBody(candidates=["a"], context={"<b>device</b>": "phone"})
        answer = ANSWER.decode(engine.decide("numbers", body, b""))
        engine.reward("numbers", wire.RewardBody(decision_id=answer.decision_id, value=value))
    assert "adds to the reward that" in ask("/spaces/numbers/arm?id=a").text


def test_positions_have_a_mean_where_rewards_are_no_clicks(engine, clock, ask):  # noqa: F811
    """Of clicks it would be the share once more, and the table too wide for a phone."""
    for name, value in (("clicks", 1.0), ("sales", 2.5)):
        engine.create(name, wire.SpaceConfig(context=wire.Features(size=1)))
        body = wire.ListBody(
            candidates=["a", "b", "c"], context=[1.0], k=2, decision_id=f"of {name}"
        )
        answer = msgspec.json.decode(engine.decide(name, body, DecisionRequest.of(body).raw))
        top = answer["items"][0]["arm"]
        reward = wire.RewardBody(decision_id=f"of {name}", value=value, arm=top)
        engine.reward(name, reward)
        engine.store.flush()
        text = ask(f"/spaces/{name}").text
        assert "Positions in lists" in text
        assert ("Mean reward</th>" in text) == (name == "sales")


def test_numbers_and_texts_are_different_arms(engine, clock, ask):  # noqa: F811
    engine.create("n", wire.SpaceConfig(context=wire.Features(size=1)))
    engine.decide("n", wire.DecisionBody(candidates=[7], context=[1.0]), b"")
    assert ask("/spaces/n/arm?number=7").status_code == 200
    assert ask("/spaces/n/arm?id=7").status_code == 404


def test_coefficients_over_time_are_those_that_the_space_had(engine, clock):  # noqa: F811
    """Against the literal way: stop after every row, and ask the policy."""
    engine.create("news", CONFIG)
    fill(engine, clock, "news", 700, change=350)
    number, config_row = engine.in_force("news")
    with contextlib.closing(LogReader(data_of(engine) / "log.db")) as reader:
        found = coefficients.run(reader, number, config_row, "a", (0, 1 << 62), lambda share: None)
    state, wanted = SpaceState(config_row.config), []
    rows = [*engine.store.rows(space=number)]
    for stop in found["t"]:
        while rows and rows[0].at <= round(stop * 1e6):
            state.apply(rows.pop(0))
        known = "a" in state.policy.arms
        wanted.append(state.policy.coefficients("a").tolist() if known else None)
    names = state.context.names
    assert [line["name"] for line in found["lines"]] == names
    for i, line in enumerate(found["lines"]):
        np.testing.assert_allclose(
            [np.nan if v is None else v for v in line["values"]],
            [np.nan if one is None else one[i] for one in wanted], rtol=1e-9, atol=1e-12,
        )  # fmt: skip
    last = engine.space("news").state.policy.coefficients("a")
    assert {one["name"]: one["last"] for one in found["now"]} == pytest.approx(
        dict(zip(names, last.tolist(), strict=True))
    )


def test_a_policy_without_coefficients_has_none_to_show(engine, clock):  # noqa: F811
    uniform(engine, clock, 20, lambda arm, x, rng: 1.0, wire.SpaceConfig(policy="random"), [1.0])
    number, config_row = engine.in_force("log")
    with contextlib.closing(LogReader(data_of(engine) / "log.db")) as reader:
        found = coefficients.run(reader, number, config_row, "a", (0, 1 << 62), lambda share: None)
    assert found["lines"] is None


# -- what if, in words ------------------------------------------------------------------------


def test_a_what_if_is_told_in_a_sentence(engine, clock, service, ask):  # noqa: F811
    def reward(arm: str, x: Any, rng: Any) -> float:
        return float(rng.random() < (0.9 if (x[0] > 0) == (arm == "a") else 0.1))

    uniform(engine, clock, 600, reward)
    other = wire.SpaceConfig(policy="linucb-disjoint", context=wire.Features(size=2))
    result = whatif.run(data_of(engine), "log", other, lambda share: None)
    job = SimpleNamespace(state="done", progress=1.0, result=result, error=None)
    service.job = {"j": job}.get
    page = ask("/page/spaces/log/whatif/j").text
    told = re.sub(r"<.*?>|\s+", " ", re.findall(r'class="headline">(.*?)</p>', page, re.S)[0])
    told = re.sub(r"\s+", " ", told)
    rate, low, high = (100 * result["whatif"][k] for k in ("rate", "low", "high"))
    rate = f"{rate:.1f}".removesuffix(".0")
    assert f"{rate} % [{low:.1f}, {high:.1f}] of decisions would have been rewarded" in told
    before = f"{100 * result['logged']['rate']:.1f}".removesuffix(".0")
    assert f"instead of {before} %" in told
    assert re.search(r"more ?, beyond chance", told)
    first, folded = page.split('<details class="how">')
    assert "SNIPS" not in first
    assert "Effective sample size" in folded
    result["clicks"] = False
    assert "a decision would have earned" in ask("/page/spaces/log/whatif/j").text


# -- the form ---------------------------------------------------------------------------------

CONFIGS = [
    CONFIG,
    wire.SpaceConfig(),
    wire.SpaceConfig(
        policy="swlinucb", params={"window": 50, "alpha": 0.25}, explore=1.0, shadow=True, seed=3,
        context=wire.Features(size=4, constant=True),
        rewards=wire.RewardRules(wait_seconds=0.5, default=-1.5, combine="sum",
                                 range=wire.RewardRange(least=-2, most=3.5, outside="clip")),
    ),
    wire.SpaceConfig(
        policy="pslinucb-hybrid", items=wire.Features(size=2),
        context=wire.Features(rest=8, fields=[
            wire.Field(name="odd, name", kind="choice", values=["a,b", " c", "["]),
            wire.Field(name="age", kind="number", mean=40, scale=12.5),
            wire.Field(name="words", kind="hash", size=8), wire.Field(name="new", kind="flag"),
        ]),
    ),
]  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS)
def test_a_configuration_survives_its_form(config: wire.SpaceConfig) -> None:
    again, errors = space_form.read(space_form.to_fields(config), config)
    assert errors == {}
    assert again == config
    fields = {**space_form.to_fields(config), "name": "made-anew"}
    assert space_form.read(fields, None) == (config, {})


@pytest.mark.parametrize(
    ("wrong", "field", "words"),
    [
        ({"name": ""}, "name", "filled in"),
        ({"name": "two words"}, "name", "letters"),
        ({"explore": "2"}, "explore", "at most 1"),
        ({"explore": "much"}, "explore", "a number"),
        ({"policy": "none"}, "policy", "must be one of"),
        ({"p.alpha": "-1"}, "p.alpha", ">= 0"),
        ({"p.nonsense": "1"}, "p", "nonsense"),
        ({"rewards.wait_seconds": "0"}, "rewards.wait_seconds", "above 0"),
        ({"rewards.range.least": "1"}, "rewards.range.most", "filled in"),
        ({"context.fields.2.name": "x", "context.fields.2.kind": "odd"}, "context.fields.2.kind",
         "one of the choices"),
        ({"context.fields.1.name": "n", "context.fields.1.kind": "number",
          "context.fields.1.scale": "0"}, "context.fields.1.scale", "above 0"),
        ({"items.size": "2"}, "items", "empty"),
    ],
)  # fmt: skip
def test_an_error_stands_beside_its_field(
    ask: Any,  # noqa: F811
    wrong: dict[str, str],
    field: str,
    words: str,
) -> None:
    form = {"name": "made", "context.size": "", "context.constant": "on", **wrong}
    found = ask("/new", "POST", data=form)
    assert found.status_code == 422
    place = f'id="error-{field}">' if field != "p" else 'class="field-error">'
    assert place in found.text
    assert words in found.text.split(place)[1].split("</p>")[0].replace("&gt;", ">")
    if field not in ("p", "items"):
        assert f'aria-describedby="error-{field}"' in found.text


def test_all_wrong_fields_are_told_at_once() -> None:
    fields = {"name": "a b", "explore": "2", "holdback": "x", "seed": "-1",
              "context.fields.0.name": "n", "context.fields.0.kind": "odd"}  # fmt: skip
    config, errors = space_form.read(fields, None)
    assert config is None
    assert errors.keys() == {"name", "explore", "holdback", "seed", "context.fields.0.kind"}


class _Sent(HTMLParser):
    """What a browser sends of the last form of a page that nobody touched."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        got = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.fields = {}
        elif tag == "select":
            self._select = got["name"]
        elif tag == "option" and (self._select not in self.fields or "selected" in got):
            self.fields[self._select] = got["value"]
        elif tag == "input" and (got.get("type") != "checkbox" or "checked" in got):
            self.fields[got["name"]] = got.get("value", "on")


def as_sent(page: str) -> dict[str, str]:
    parser = _Sent()
    parser.feed(page)
    return parser.fields


def test_a_form_as_a_browser_sends_it_says_what_it_was_given(engine, ask):  # noqa: F811
    fields = [
        wire.Field(name="device", kind="choice", values=["phone"], other=True, missing=True),
        wire.Field(name="hour", kind="cyclic", period=24.0, harmonics=2),
        wire.Field(name="price", kind="number", log=10.0),
        wire.Field(name="title", kind="hash", words=True),
        *(wire.Field(name=f"flag-{i}", kind="flag") for i in range(8)),
    ]
    config = msgspec.structs.replace(CONFIG, context=wire.Features(fields=fields, constant=True))
    engine.create("news", config)
    sent = as_sent(ask("/spaces/news/edit").text)
    assert len(sent) > 100
    assert space_form.read(sent, config) == (config, {})
    again = ask("/spaces/news/edit", "POST", data=sent)
    assert "othing is different" in again.text


def test_every_attribute_has_words() -> None:
    assert set(words.ATTRIBUTES) == set(space_form.ATTRIBUTES)
    assert set(words.KINDS) == set(space_form.KINDS)


def test_a_space_is_made_and_changed_by_the_form(tmp_path: Path) -> None:
    """Through the whole service: keys and their scopes, the origin, the rebuild, the arm's page."""
    data = tmp_path / "data"
    data.mkdir()
    keys = Keys(data / "keys.json")
    admin, reader = (
        keys.make("me", ["read", "admin", "decide", "reward"]),
        keys.make("you", ["read"]),
    )
    other = keys.make("else", ["read", "admin"], spaces=["elsewhere"])
    form = {
        "name": "news", "explore": "0.1", "rewards.wait_seconds": "5", "context.constant": "on",
        "context.fields.0.name": "device", "context.fields.0.kind": "choice",
        "context.fields.0.values": "phone, desktop",
    }  # fmt: skip

    async def live() -> None:
        async with running(load(None, data=data, demo=False)) as (service, client):  # noqa: F811

            def me(token: str) -> dict[str, str]:
                return {"cookie": f"whim_key={token}"}

            async def post(path: str, data: dict[str, str], token: str = admin, **more: str) -> Any:
                return await client.post(path, data=data, headers=me(token) | more)

            for path in ("/new", "/page/form/params?policy=ucb"):
                assert (await client.get(path, headers=me(reader))).status_code == 403
            assert (await post("/new", form, reader)).status_code == 403
            assert (await post("/new", form, origin="http://evil.example")).status_code == 403
            refused = await post("/new", form, other)
            assert refused.status_code == 422
            assert "limited to others" in refused.text
            assert service.engine.names == []
            made = await post("/new", form, origin="http://localhost")
            assert (made.status_code, made.headers["location"]) == (303, "/spaces/news")
            twice = await post("/new", form)
            assert (twice.status_code, "must be new" in twice.text) == (422, True)
            assert 'href="/new"' not in (await client.get("/", headers=me(reader))).text
            for i in range(40):
                body = {"candidates": ["a", 7], "context": {"device": "phone"},
                        "decision_id": f"d{i}"}  # fmt: skip
                api = {"authorization": f"Bearer {admin}"}
                await client.post("/v1/spaces/news/decisions", json=body, headers=api)
                said = {"decision_id": f"d{i}", "value": float(i % 2)}
                await client.post("/v1/spaces/news/rewards", json=said, headers=api)

            edit = "/spaces/news/edit"
            assert (await client.get(edit, headers=me(other))).status_code == 403
            shown = (await client.get(edit, headers=me(admin))).text
            assert "40 decisions and their rewards" in shown
            assert 'value="phone, desktop"' in shown
            same = await post(edit, form | {"version": "1"})
            assert (same.status_code, "nothing is different" in same.text.lower()) == (422, True)
            sent = await post(edit, as_sent(shown))
            assert (sent.status_code, "nothing is different" in sent.text.lower()) == (422, True)
            late = await post(edit, form | {"version": "0", "explore": "0.2"})
            assert (late.status_code, "somebody else" in late.text.lower()) == (422, True)
            assert (
                await post(edit, form | {"version": "1", "explore": "0.2"}, reader)
            ).status_code == 403
            assert service.engine.info("news").wanted == 1
            changed = await post(edit, form | {"version": "1", "explore": "0.2"})
            assert changed.status_code == 303
            for _ in range(600):
                if service.engine.info("news").version == 2:
                    break
                await asyncio.sleep(0.05)
            config = service.engine.space("news").config
            assert (config.explore, config.context.fields[0].values) == (0.2, ["phone", "desktop"])
            for _ in range(600):
                url = "/page/spaces/news/arm/coefficients?number=7"
                part = (await client.get(url, headers=me(reader))).text
                if "data-chart" in part:
                    break
                await asyncio.sleep(0.05)
            assert "device=phone" in part
            lines = await client.get(url.replace("?", "/series?"), headers=me(reader))
            assert len(lines.json()["lines"]) == 3

    asyncio.run(live())
