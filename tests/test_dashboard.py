"""The page says what the engine knows, escapes what callers said, and asks nobody else."""

import asyncio
import html
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import httpx
import msgspec
import numpy as np
import pytest
from starlette.applications import Starlette

import whim
from tests.clocks import Clock
from whim.evaluate.anytime import studentised
from whim.serve import wire
from whim.serve.dashboard import changes, forms, rates
from whim.serve.dashboard.render import STATIC, problem_page
from whim.serve.dashboard.routes import routes
from whim.serve.http.keys import Keys
from whim.serve.jobs import whatif
from whim.serve.log.reader import StoreError
from whim.serve.state.engine import Engine
from whim.serve.state.recovery import Rebuilt, rebuild
from whim.serve.state.space import NotFoundError
from whim.serve.state.stats import MICRO, Stats
from whim.serve.state.views import arm_views

ANSWER = msgspec.json.Decoder(wire.Answer)
SECOND = 1_000_000_000
NASTY = ["<script>alert(1)</script>", "'; DROP TABLE log; --", '"><img src=x onerror=alert(1)>']
CONFIG = wire.SpaceConfig(
    context=wire.Features(
        fields=[wire.Field(name="<b>device</b>", kind="choice", values=["phone", "desk"])],
        constant=True,
    ),
    rewards=wire.RewardRules(wait_seconds=5),
    explore=0.1,
    holdback=0.2,
    baseline="random",
)
TEMPLATES = sorted((STATIC.parent / "templates").glob("*.html"))


@pytest.fixture
def clock():
    return Clock(time.time_ns() - 3600 * SECOND)


@pytest.fixture
def engine(tmp_path, clock):
    made = Engine(tmp_path / "data", clock=clock)
    yield made
    made.close()


@pytest.fixture
def service(engine, tmp_path):
    return SimpleNamespace(
        engine=engine,
        keys=Keys(tmp_path / "keys.json"),
        ready=True,
        problem=None,
        job=lambda key: None,
    )


@pytest.fixture
def ask(service):
    app = Starlette(routes=routes())
    app.state.service = service

    def call(path, method="GET", **more):
        async def send():
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return await client.request(method, path, **more)

        return asyncio.run(send())

    return call


def fill(engine, clock, name, n, arms=("a", "b"), seed=0, change=None):
    """Decisions of readers who like one arm each, and another one after ``change``."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        clock.now += SECOND
        device = int(rng.integers(2))
        body = wire.DecisionBody(
            candidates=list(arms), context={"<b>device</b>": ["phone", "desk"][device]},
            # it decides what is explored, so it is the same in every run
            decision_id=f"visit-{seed}-{(clock.now - clock.began) // SECOND}",
        )  # fmt: skip
        answer = ANSWER.decode(engine.decide(name, body, b""))
        liked = arms[device if change is None or i < change else 1 - device]
        value = float(rng.random() < (0.9 if answer.arm == liked else 0.1))
        body = wire.RewardBody(decision_id=answer.decision_id, value=value)
        engine.reward(name, body)
    engine.store.flush()


def take_over(engine, name):
    """Let the version that is wanted serve."""
    number, wanted = engine.wanted(name)
    state, _ = rebuild(engine.store, number, wanted)
    engine.swap(name, Rebuilt(number, state, []))
    engine.store.flush()


# -- what is shown ----------------------------------------------------------------------------


def test_a_space_with_a_change_shows_what_moved(engine, clock, ask):
    engine.create("news", CONFIG)
    fill(engine, clock, "news", 1200, change=700)
    found = ask("/spaces/news")
    assert found.status_code == 200
    assert 'data-seq="' in found.text
    assert "over holdback" in found.text
    assert "&lt;b&gt;device&lt;/b&gt;=phone" in found.text
    latest = changes.latest(engine, "news")
    assert latest
    part = ask(f"/page/spaces/news/changes?latest={latest}&version=1")
    assert part.status_code == 204
    assert "timeline" in ask("/page/spaces/news/changes?latest=1&version=1").text
    assert "No earlier changes" in ask("/page/spaces/news/changes?before=1").text
    cards = ask("/").text
    assert 'href="/spaces/news"' in cards
    assert "1\u202f200" in cards
    series = ask("/page/spaces/news/series").json()
    lengths = {
        len(column) for name, column in series.items() if name not in ("holdback", "changes")
    }
    assert len(lengths) == 1
    assert 1 < lengths.pop() <= 120
    assert series["holdback"]
    assert series["changes"][0]["arm"] in ("a", "b")


@pytest.mark.parametrize(
    "path",
    ["/", "/page/spaces", "/spaces/news"]
    + [f"/page/spaces/news/{part}" for part in ("arms", "summary", "changes")],
)
def test_what_callers_said_is_escaped(engine, clock, ask, path):
    engine.create("news", CONFIG)
    fill(engine, clock, "news", 900, arms=(NASTY[0], NASTY[2]), change=500)
    assert changes.latest(engine, "news")
    text = ask(path).text
    for said in (NASTY[0], NASTY[2], "<b>device"):
        assert said not in text
    if path.endswith(("arms", "changes", "news")):
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_nothing_is_sought_by_what_a_caller_says(engine, clock, ask):
    engine.create("news", CONFIG)
    fill(engine, clock, "news", 10, arms=(NASTY[1], "b"))
    for odd in ("sort=%27%3BDROP", "page=-1", "page=99999999999999999999", "page=x", "down=%00"):
        found = ask(f"/page/spaces/news/arms?{odd}")
        assert found.status_code == 200
        assert "&#39;; DROP TABLE log; --" in found.text
    assert ask("/page/spaces/news/changes?before=%27&latest=x").status_code == 200
    assert ask("/page/spaces/news/params?policy=<b>").status_code == 404


def test_arms_are_sorted_and_paged(engine, clock, ask):
    engine.create("news", CONFIG)
    arms = [f"arm-{i:03}" for i in range(120)]
    fill(engine, clock, "news", 40, arms=arms)
    first = ask("/page/spaces/news/arms?sort=arm&down=0").text
    assert re.findall(r">(arm-\d+)</span>", first) == arms[:50]
    assert 'aria-sort="ascending"' in first
    last = ask("/page/spaces/news/arms?sort=arm&down=0&page=3").text
    assert re.findall(r">(arm-\d+)</span>", last) == arms[100:]
    down = ask("/page/spaces/news/arms?sort=mean&down=1").text
    assert (
        re.findall(
            r">(arm-\d+)</span>", ask("/page/spaces/news/arms?q=ARM-01&sort=arm&down=0").text
        )
        == arms[10:20]
    )
    assert "No arm id contains" in ask("/page/spaces/news/arms?q=<b>").text
    means = [float(m) for m in re.findall(r'number">(\d\.\d+)</td>\n<td class="number ends', down)]
    assert means == sorted(means, reverse=True)


def test_very_many_arms_are_looked_through_in_turns(engine, ask):
    engine.create("many", wire.SpaceConfig(context=wire.Features(size=1)))
    every = [f"arm-{i:04}" for i in range(2600)]
    for start in (1300, 0):
        body = wire.DecisionBody(candidates=every[start : start + 1300], context=[1.0])
        engine.decide("many", body, b"")
    last = ask("/page/spaces/many/arms?sort=arm&down=0&page=999").text
    assert re.findall(r">(arm-\d+)</span>", last) == every[1950:2000]
    assert "the other 600 arms" in last


def test_nothing_yet(engine, ask):
    for path in ("/", "/page/spaces"):
        assert "No space yet" in ask(path).text
    engine.create("news", CONFIG)
    text = ask("/spaces/news").text
    assert "No decision yet" in text
    assert "curl -X POST http://here/v1/spaces/news/decisions" in text
    assert "/v1/spaces/news/rewards" in text
    assert "No changes detected yet" in text
    assert 'id="arms-poll"' in text
    assert ask("/page/spaces/news/series").json()["t"] == []
    engine.create("items", wire.SpaceConfig(
        policy="pslinucb-hybrid", context=wire.Features(size=2), items=wire.Features(size=1)
    ))  # fmt: skip
    assert "features" in ask("/page/spaces/items/summary").text


def test_the_first_request_of_the_page_is_one_that_the_space_takes(engine, ask):
    (kinds,) = [f.type for f in msgspec.structs.fields(wire.Field) if f.name == "kind"]
    fields = [
        wire.Field(name=kind, kind=kind, **({"values": ["x"]} if kind == "choice" else {}),
                   **({"period": 24} if kind == "cyclic" else {}))
        for kind in get_args(kinds)
    ]  # fmt: skip
    features = wire.Features(fields=fields, constant=True)
    engine.create("all", wire.SpaceConfig(context=features))
    page = ask("/spaces/all")
    assert page.status_code == 200
    shown = html.unescape(page.text)
    body = re.search(r"/decisions .*?-d '(\{.*?\})'", shown, re.S)[1]
    request = msgspec.json.decode(body, type=wire.DecisionBody)
    assert set(request.context) == set(get_args(kinds))
    assert ANSWER.decode(engine.decide("all", request, b"")).arm == "a"


def test_what_a_chart_s_own_legend_says_is_hidden_beside_it():
    """The script's legend has values; the other one is for narrow screens, and for changes."""
    assert ".twice { display: none; }" in (STATIC / "page.css").read_text()
    items = 0
    for template in TEMPLATES:
        text = template.read_text()
        for found in re.finditer(r'<ul class="legend.*?</ul>', text, re.S):
            beside = text[: found.start()].splitlines()[-2:] + text[found.end() :].splitlines()[:2]
            assert any('class="chart"' in line for line in beside)
            for item in re.findall("<li.*?</li>", found[0], re.S):
                assert "twice" in item or "key mark" in item
                items += 1
    assert items == 8


def test_shadow_tells_what_it_would_have_done(engine, clock, ask):
    engine.create("news", msgspec.structs.replace(CONFIG, shadow=True, holdback=0.0))
    fill(engine, clock, "news", 200)
    text = ask("/page/spaces/news/summary").text
    assert "would have agreed" in text
    assert "would have earned" in text
    assert "made in shadow mode" not in text


def test_what_was_shown_in_shadow_is_not_taken_for_the_policys(engine, clock, ask):
    shadow = msgspec.structs.replace(CONFIG, shadow=True)
    for name, config in (("news", shadow), ("live", CONFIG)):
        engine.create(name, config)
        fill(engine, clock, name, 40)
    engine.change("news", CONFIG)
    take_over(engine, "news")
    text = ask("/page/spaces/news/summary").text
    assert "40 of all decisions were made in shadow mode" in text
    assert 'data-name="policy (the baseline while in shadow)"' in ask("/spaces/news").text
    assert 'data-name="policy"' in ask("/spaces/live").text
    assert "made in shadow mode" not in ask("/page/spaces/live/summary").text
    assert "made in shadow mode" not in ask("/page/spaces/news/summary?range=hour").text


# -- what goes wrong --------------------------------------------------------------------------


def test_a_space_that_is_not_there(ask):
    found = ask("/spaces/%3Cb%3Enone")
    assert found.status_code == 404
    assert "<b>none" not in found.text
    part = ask("/page/spaces/none/summary", headers={"hx-request": "true"})
    assert part.status_code == 404
    assert "<html" not in part.text


def test_a_log_that_fails_is_said_on_every_page(engine, ask):
    engine.create("news", CONFIG)
    engine.store.flush()
    engine.store.failed = StoreError("the log cannot be written: disk <full>.")
    for path in ("/", "/spaces/news", "/page/spaces/news/summary"):
        assert "disk &lt;full&gt;" in ask(path).text


def test_rebuilding_is_said(engine, ask):
    engine.create("news", CONFIG)
    engine.change("news", msgspec.structs.replace(CONFIG, explore=0.3))
    assert "is being built from the log" in ask("/page/spaces/news/summary").text
    assert "rebuilding" in ask("/page/spaces").text
    engine.rebuild_failed("news", 2, "it is <odd>.")
    assert "it is &lt;odd&gt;" in ask("/page/spaces/news/summary").text


def test_starting_and_not_starting(service, ask):
    service.ready = False
    found = ask("/")
    assert found.status_code == 503
    assert found.headers["refresh"] == "3"
    service.problem = StoreError("log.db must be a readable log.")
    assert "log.db must be" in ask("/spaces/news").text
    assert problem_page(RuntimeError("x")).status_code == 500
    assert problem_page(service.problem).status_code == 503


# -- the login --------------------------------------------------------------------------------


def test_the_login_sets_a_cookie_that_scripts_cannot_read(service, ask):
    token = service.keys.make("me", ["read"])
    other = service.keys.make("you", ["decide"])
    wrong = ask("/login", "POST", data={"key": "whim_wrong", "next": "/spaces/news"})
    assert wrong.status_code == 401
    assert "unknown or revoked" in wrong.text
    assert "set-cookie" not in wrong.headers
    assert ask("/login", "POST", data={"key": other}).status_code == 403
    right = ask("/login", "POST", data={"key": token, "next": "/spaces/news"})
    assert right.status_code == 303
    assert right.headers["location"] == "/spaces/news"
    cookie = right.headers["set-cookie"].lower()
    for word in ("whim_key=", "httponly", "samesite=strict", "path=/"):
        assert word in cookie
    assert "log out" in ask("/", headers={"cookie": f"whim_key={token}"}).text.lower()
    out = ask("/logout", "POST")
    assert out.headers["location"] == "/login"
    assert "max-age=0" in out.headers["set-cookie"].lower()
    part = ask("/login", headers={"hx-request": "true", "hx-current-url": "http://here/spaces/x"})
    assert part.headers["hx-redirect"] == "/login?next=/spaces/x"


@pytest.mark.parametrize(
    "onward",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "/\n", "", "a\\"],
)
def test_the_login_leads_nowhere_else(ask, onward):
    assert forms.local(onward) == "/"
    assert "evil" not in ask("/login", params={"next": onward}).text


def test_a_form_that_is_too_long(service, ask):
    service.keys.make("me", ["read"])
    assert ask("/login", "POST", content=b"key=" + b"x" * 100_000).status_code == 422


# -- nothing inline, nobody else --------------------------------------------------------------


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_templates_hold_no_inline_code(template):
    text = template.read_text("utf-8")
    assert not re.search(r"\s(on[a-z]+|style|hx-on[^=]*|hx-vals|hx-headers)=[\"']", text)
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)
    assert "<style" not in text
    assert "|safe" not in text.replace(" ", "")
    assert not re.search(r"https?://", text)
    assert not re.search(r"hx-trigger=\"[^\"]*\[", text)  # a filter would need eval


def test_own_files_ask_nobody_else():
    for name in ("page.js", "page.css"):
        text = (STATIC / name).read_text("utf-8")
        assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", text)
        assert "eval(" not in text
        assert "innerHTML" not in text
    vendor = {path.name for path in (STATIC / "vendor").iterdir()}
    assert {"htmx.LICENSE", "uPlot.LICENSE", "README"} <= vendor


def test_pages_link_only_to_what_is_served(engine, clock, ask):
    engine.create("news", CONFIG)
    fill(engine, clock, "news", 60)
    for path in ("/", "/spaces/news", "/login"):
        text = ask(path).text
        for url in re.findall(r'(?:src|href|action|hx-get|hx-post)="([^"]*)"', text):
            assert url.startswith(("/", "#")), url
            assert not url.startswith("//")
    for url in set(re.findall(r'(?:src|href)="(/static[^"]*)"', text)):
        assert ask(url).status_code == 200
    assert ask("/static/../views.py").status_code == 404


# -- rates ------------------------------------------------------------------------------------


def closed(stats, at, value, mode="policy"):
    waiting = SimpleNamespace(at=at, mode=mode, count=1, agreed=True, probability=1.0, arm="a")
    stats.decided(at, mode, "a")
    if value is not None:
        stats.closed(at, waiting, value, True)


def test_bins_that_still_wait_are_left_out():
    stats, second = Stats(), MICRO
    for i in range(10):  # only clicks come early: the rest waits for its time to end
        closed(stats, 0, 1.0 if i < 3 else None)
        closed(stats, 100 * second, 1.0 if i < 3 else 0.0)
    assert [at for at, _ in rates.settled(stats, 60, 30 * second)] == [100 * second]
    found = rates.settled(stats, 60, 62 * second)
    assert [at for at, _ in found] == [0, 100 * second]
    assert rates.overall(found, stats.width).policy.value == pytest.approx(6 / 13)


def test_lift_by_hand():
    stats = Stats()
    for i in range(400):
        closed(stats, i, float(i < 240))
        closed(stats, i, float(i < 160), "holdback")
    found = rates.overall(rates.settled(stats, 1, 10**12), stats.width)
    assert found.policy.value == 0.6
    assert found.holdback.value == 0.4
    lift = found.compared.lift
    assert lift.value == pytest.approx(0.5)
    strays = studentised(400 * 400 / 800)
    assert strays > 3  # where one look would take 1.96
    for end in (lift.low, lift.high):  # 0.6 - (1 + end) · 0.4 is just within chance of 0
        spread = strays * np.sqrt(0.24 / 400 * (1 + (1 + end) ** 2))
        assert abs(0.6 - (1 + end) * 0.4) == pytest.approx(spread)
    assert found.compared.claim == 1


def test_the_headline_is_over_all_of_the_time(engine, clock, ask):
    """A recent stretch that looks better is told as recent, without an interval or a claim."""
    engine.create("news", CONFIG)
    stats = engine.space("news").state.stats
    begun = clock.now // SECOND * MICRO
    for i in range(4000):
        late = i >= 3600
        closed(stats, begun + i * MICRO // 10, float(i % 10 < (9 if late else 5)))
        closed(stats, begun + i * MICRO // 10, float(i % 10 < (2 if late else 5)), "holdback")
    clock.now += 1000 * SECOND
    bins = rates.settled(stats, 5, clock.now // 1000)
    assert np.isnan(rates.recent(bins, stats.width).policy.low)
    assert rates.recent(bins, stats.width).policy.value == pytest.approx(0.9)
    text = ask("/page/spaces/news/summary").text
    assert re.search(r"<dt>Reward rate</dt>\s*<dd class=\"big\"><b>0.540</b>", text)
    assert re.search(r"recently: <b>0.900</b> \(last 400", text)
    assert "now" not in re.findall(r"<dt>(.*?)</dt>", text)[0]


# -- arms -------------------------------------------------------------------------------------


def test_an_arms_interval_is_the_same_in_the_api_and_on_the_page(engine, clock, ask):
    engine.create("news", CONFIG)
    fill(engine, clock, "news", 300)
    for view in arm_views(engine.space("news")):
        row = ask(f"/page/spaces/news/arms?q={view.arm}").text
        shown = re.search(r'ends">\[([\d.]+), ([\d.]+)\]', row).groups()
        assert [float(end) for end in shown] == pytest.approx([view.low, view.high], abs=5e-4)
        assert view.low < view.mean < view.high
        assert view.since_change is None


def test_an_arm_shows_its_rate_since_the_change_beside_the_overall_one(engine, clock, ask):
    engine.create("news", CONFIG)
    fill(engine, clock, "news", 2000, change=700)
    space = engine.space("news")
    changed = [view for view in arm_views(space) if view.last_change_at]
    assert changed
    for view in changed:
        assert 0 < view.since_change.plays < view.plays
        assert view.since_change.low < view.since_change.mean < view.since_change.high
        row = ask(f"/page/spaces/news/arms?q={view.arm}").text
        low, high = view.since_change.low, view.since_change.high
        assert f'{view.since_change.mean:.3f} <span class="ends">[{low:.3f}, {high:.3f}]' in row
        assert f"{view.mean:.3f}</td>" in row
    heads = ask("/page/spaces/news/arms?sort=since").text
    assert "Overall" in heads
    assert "Since change" in heads


def test_rates_of_arms_lean_while_those_without_a_reward_wait(engine, clock, ask):
    """A click closes a decision at once; the others wait, here for five seconds."""
    engine.create("news", CONFIG)
    pages = ("/page/spaces/news/arms", "/spaces/news/arm?id=a")
    for i in range(40):
        body = wire.DecisionBody(candidates=["a"], context={}, decision_id=f"{i}")
        engine.decide("news", body, b"")
        if i % 4 == 0:
            engine.reward("news", wire.RewardBody(decision_id=f"{i}", value=1.0))
    engine.store.flush()
    for page in pages:
        assert "30 decisions wait for a reward" in ask(page).text
    clock.now += 6 * SECOND
    engine.tick()
    for page in pages:
        assert "wait for a reward" not in ask(page).text
        assert "0.250" in ask(page).text


def test_a_change_is_told_in_a_sentence_before_its_statistics(engine, clock, ask):
    engine.create("news", CONFIG)
    fill(engine, clock, "news", 1200, change=700)
    text = ask("/page/spaces/news/changes").text
    told = re.findall(r'class="told">(.*?)</p>', text)
    assert told
    for one in told:
        plain = re.sub(r"<.*?>", "", one)
        assert re.fullmatch(r"(Phone|Desk) readers now like [ab] (more|less).*\.", plain), plain
    assert text.index('class="told"') < text.index("Statistic")


def test_a_thin_point_takes_earlier_ones_in():
    stats = Stats()
    for i in range(80):
        closed(stats, i * MICRO, float(i % 2))
    series = rates.series(rates.settled(stats, 1, 10**12), stats.width)
    assert series["rate"][0] == 0.0
    assert series["rate"][-1] == 0.5
    assert series["high"][-1] - series["low"][-1] < 0.3
    assert set(series["held"]) == {None}


# -- what if ----------------------------------------------------------------------------------


def uniform(engine, clock, n, reward, config=None, x=None):
    """A space that shows two arms at random; what was asked, shown and earned."""
    config = config or wire.SpaceConfig(
        policy="linucb-disjoint", context=wire.Features(size=2), explore=1.0
    )
    engine.create("log", config)
    rng, told, given = np.random.default_rng(1), [], x
    for _ in range(n):
        clock.now += SECOND
        x = rng.normal(size=2) if given is None else np.array(given)
        body = wire.DecisionBody(candidates=["a", "b"], context=x.tolist())
        answer = ANSWER.decode(engine.decide("log", body, b""))
        value = reward(answer.arm, x, rng)
        body = wire.RewardBody(decision_id=answer.decision_id, value=value)
        engine.reward("log", body)
        told.append((x, answer.arm, value))
    engine.store.flush()
    return told


def data_of(engine) -> Path:
    return engine.store.path.parent


def test_what_if_by_hand(engine, clock):
    # b always loses, a earns nothing: whoever is greedy and takes the first of equals takes a
    told = uniform(engine, clock, 400, lambda arm, x, rng: -float(arm == "b"), x=[1.0, 0.0])
    greedy = wire.SpaceConfig(
        policy="linucb-disjoint", params={"alpha": 0.0}, context=wire.Features(size=2)
    )
    shares = []
    found = whatif.run(data_of(engine), "log", greedy, shares.append)
    shown = [arm for _, arm, _ in told]
    assert found["events"] == 400
    assert found["matched"] == shown.count("a")
    assert found["effective"] == pytest.approx(shown.count("a"))
    assert found["logged"]["rate"] == pytest.approx(-shown.count("b") / 400)
    assert found["whatif"]["rate"] == 0.0
    assert found["relative"] is None  # nothing can be said relative to a loss
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert found["warnings"] == []
    assert len(found["logged"]["curve"]) == len(found["whatif"]["curve"]) == 8
    assert msgspec.json.decode(msgspec.json.encode(found)) == found


def test_what_if_is_the_policy_asked_before_it_learns(engine, clock):
    def reward(arm, x, rng):
        return float(rng.random() < (0.8 if (x[0] > 0) == (arm == "a") else 0.2))

    told = uniform(engine, clock, 600, reward)
    other = wire.SpaceConfig(
        policy="linucb-disjoint", params={"alpha": 0.5}, context=wire.Features(size=2)
    )
    found = whatif.run(data_of(engine), "log", other, lambda share: None)
    policy = whim.LinUCBDisjoint(n_features=2, alpha=0.5)
    policy.add_arms(["a", "b"])
    earned, n = 0.0, 0
    for x, shown, value in told:
        if policy.select(x, ["a", "b"]).arm == shown:  # every weight is 2
            earned, n = earned + value, n + 1
        policy.update(shown, x, value)
    assert found["matched"] == n
    assert found["whatif"]["rate"] == pytest.approx(earned / n)
    assert found["effective"] == pytest.approx(n)
    assert found["relative"]["low"] > 0
    low, high = found["whatif"]["low"], found["whatif"]["high"]
    half = 1.959963984540054 * np.sqrt(earned / n * (1 - earned / n) / n)
    assert high - low == pytest.approx(2 * half)


@pytest.mark.parametrize("name", ["pslinucb-disjoint", "lints"])
def test_the_same_configuration_earns_what_was_earned(engine, clock, name):
    config = wire.SpaceConfig(policy=name, context=wire.Features(size=2), explore=0.2)
    uniform(engine, clock, 300, lambda arm, x, rng: float(rng.random() < 0.5), config)
    found = whatif.run(data_of(engine), "log", config, lambda share: None)
    assert found["whatif"]["rate"] == pytest.approx(found["logged"]["rate"], abs=1e-12)
    assert found["effective"] == pytest.approx(300)
    assert found["relative"]["value"] == pytest.approx(0, abs=1e-12)
    assert found["warnings"] == []
    assert found["support"] == 1.0


def test_what_if_says_what_it_cannot_know(engine, clock):
    quiet = wire.SpaceConfig(context=wire.Features(size=2))
    uniform(engine, clock, 120, lambda arm, x, rng: 1.0, quiet)
    found = whatif.run(data_of(engine), "log", quiet, lambda share: None)
    assert "never explores" in found["warnings"][0]
    wider = wire.SpaceConfig(context=wire.Features(size=3))
    found = whatif.run(data_of(engine), "log", wider, lambda share: None)
    assert found["skipped"] == 120
    assert found["whatif"]["rate"] is None
    assert "nothing to replay" in found["warnings"][0]
    assert "120 decisions do not fit" in found["warnings"][0]
    assert found["unknown"] == "no decision that is closed fits these features"
    with pytest.raises(NotFoundError, match="space must be one that exists"):
        whatif.run(data_of(engine), "none", quiet, lambda share: None)


def test_what_if_leaves_out_what_was_learnt_from_a_table(engine, clock):
    """One candidate in shadow mode: learnt from, but no choice that a policy could have made."""
    live = msgspec.structs.replace(CONFIG, policy="linucb-disjoint", holdback=0.0, explore=0.5)
    engine.create("news", msgspec.structs.replace(live, shadow=True))
    for i in range(120):
        device, arm, key = ("phone", "desk")[i % 2], "ab"[i // 2 % 2], f"row-{i}"
        body = wire.DecisionBody(
            candidates=[arm], context={"<b>device</b>": device}, decision_id=key
        )
        engine.decide("news", body, b"")
        value = float((device == "phone") == (arm == "a"))
        engine.reward("news", wire.RewardBody(decision_id=key, value=value))
    engine.change("news", live)
    take_over(engine, "news")
    fill(engine, clock, "news", 80, seed=2)
    found = whatif.run(data_of(engine), "news", live, lambda share: None)
    assert found["events"] == engine.space("news").state.stats.counts["decisions"] - 120 == 80
    assert found["support"] == 1.0
    # it has learnt all the same: the other policy chooses as the space did
    assert found["whatif"]["rate"] == pytest.approx(found["logged"]["rate"], abs=1e-12)


def test_what_if_is_unknown_without_support(engine, clock, service, ask):
    """A space that never explores, asked about a policy that would have shown something else."""
    quiet = wire.SpaceConfig(policy="linucb-disjoint", context=wire.Features(size=2))
    uniform(engine, clock, 200, lambda arm, x, rng: float(rng.random() < 0.4), quiet)
    other = wire.SpaceConfig(policy="random", context=wire.Features(size=2))
    found = whatif.run(data_of(engine), "log", other, lambda share: None)
    assert 0.3 < found["support"] < 0.7
    assert found["whatif"]["rate"] is found["whatif"]["low"] is found["relative"] is None
    assert found["whatif"]["curve"] == []
    assert "could not have been shown" in found["unknown"]
    assert "unknown" in found["warnings"][0]
    service.job = {"j": SimpleNamespace(state="done", progress=1.0, result=found, error=None)}.get
    page = ask("/page/spaces/log/whatif/j").text
    assert '<td class="number">unknown</td>' in page
    assert "Share of decisions with support" in page


def test_what_if_that_a_holdback_of_the_first_cannot_support(engine, clock):
    """With a baseline that shows the first, only it and what the policy wanted had a chance."""
    config = wire.SpaceConfig(
        policy="linucb-disjoint", context=wire.Features(size=2), holdback=0.2, baseline="first"
    )
    engine.create("three", config)
    for i in range(150):
        clock.now += SECOND
        body = wire.DecisionBody(candidates=["a", "b", "c"], context=[1.0, float(i % 2)])
        answer = ANSWER.decode(engine.decide("three", body, b""))
        body = wire.RewardBody(decision_id=answer.decision_id, value=float(i % 2))
        engine.reward("three", body)
    engine.store.flush()
    explores = msgspec.structs.replace(config, explore=0.3)
    found = whatif.run(data_of(engine), "three", explores, lambda share: None)
    assert 0.7 < found["support"] < 0.95
    assert found["whatif"]["rate"] is None
    same = whatif.run(data_of(engine), "three", config, lambda share: None)
    assert (same["unknown"], same["support"]) == (None, 1.0)


def test_the_form_asks_for_a_what_if(engine, clock, service, ask):
    engine.create("news", CONFIG)
    fill(engine, clock, "news", 200)
    asked = []

    async def begin(name, config):
        asked.append((name, config))
        return "j"

    jobs = {"j": SimpleNamespace(state="running", progress=0.25, result=None, error=None)}
    service.whatif, service.job = begin, jobs.get
    form = {"policy": "swlinucb", "p.window": "50", "p.alpha": "", "explore": "0.5"}
    running = ask("/page/spaces/news/whatif", "POST", data=form)
    assert running.status_code == 200
    assert 'value="0.25"' in running.text
    ((name, config),) = asked
    assert (name, config.policy, config.params, config.explore) == (
        "news", "swlinucb", {"window": 50}, 0.5,
    )  # fmt: skip
    assert config.context == CONFIG.context

    result = whatif.run(data_of(engine), name, config, lambda share: None)
    jobs["j"] = SimpleNamespace(state="done", progress=1.0, result=result, error=None)
    done = ask("/page/spaces/news/whatif/j").text
    assert "what-if: swlinucb (window = 50, explore = 0.5)" in done
    curves = ask("/page/spaces/news/whatif/j/series").json()
    assert curves["logged"] == result["logged"]["curve"]
    jobs["j"] = SimpleNamespace(state="failed", progress=0.5, result=None, error="<b>no</b>")
    assert "&lt;b&gt;no&lt;/b&gt;" in ask("/page/spaces/news/whatif/j").text
    assert "no longer stored" in ask("/page/spaces/news/whatif/gone").text
    assert ask("/page/spaces/news/whatif/gone/series").status_code == 404


@pytest.mark.parametrize(
    ("form", "word"),
    [
        ({"policy": "none"}, "policy"),
        ({"policy": "swlinucb"}, "window"),
        ({"policy": "linucb-disjoint", "p.alpha": "-1"}, "alpha"),
        ({"policy": "linucb-disjoint", "p.nonsense": "<b>"}, "nonsense"),
        ({"explore": "2"}, "explore"),
        ({"explore": "<i>"}, "explore"),
    ],
)
def test_a_form_that_is_wrong_is_told_so(engine, ask, form, word):
    engine.create("news", CONFIG)
    found = ask("/page/spaces/news/whatif", "POST", data=form)
    assert found.status_code == 422
    assert word in found.text
    assert "<b>" not in found.text


def test_params_of_another_policy(engine, ask):
    engine.create("news", CONFIG)
    text = ask("/page/spaces/news/params?policy=swlinucb").text
    assert 'name="p.window"' in text
    assert "required" in text
    assert "n_features" not in text
