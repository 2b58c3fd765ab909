"""The dashboard in a real browser: changes appear without a reload, and no request leaves."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests import sample_results as samples
from tests.crashes import Service, no_more_room
from whim.report import write_report
from whim.serve.http.keys import Keys

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = sync_api.expect

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here")

HTML = "<img src=x onerror=alert(1)>"
SQL = "'; DROP TABLE log; --"
CONFIG = {
    "context": {"size": 2, "constant": True}, "explore": 0.2, "holdback": 0.2,
    "baseline": "random", "rewards": {"wait_seconds": 1},
}  # fmt: skip
Reward = Callable[[Any, list[float]], float]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    data = tmp_path_factory.mktemp("browser") / "data"
    data.mkdir()
    settings = data / "whim.toml"
    settings.write_text("demo = false\n")
    with Service(data, "--config", str(settings)) as made:
        made.wait()
        yield made


_BROKEN = """() => {
  const broken = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    if (node.parentElement.closest(".unseen, select, pre, code, .htmx-indicator")) continue;
    for (const word of node.data.matchAll(/[\\p{L}\\p{N}]+/gu)) {
      if (word[0].length > 18) continue;
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const boxes = [...range.getClientRects()].filter((box) => box.width > 0);
      if (new Set(boxes.map((box) => Math.round(box.top))).size > 1) broken.push(word[0]);
    }
  }
  return broken;
}"""


def broken_words(page: Any) -> list[str]:
    """Words that begin on one line and end on the next."""
    return page.evaluate(_BROKEN)


class Page:
    """A page that remembers what went wrong on it."""

    def __init__(self, browser: Any, service: Service, **how: Any) -> None:
        self.base = f"http://127.0.0.1:{service.port}"
        self.wrong: list[str] = []
        self.allowed: tuple[str, ...] = ()  # what is expected to go wrong
        self.context = browser.new_context(**how)
        self.context.set_default_timeout(30_000)
        self.page = self.context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("dialog", self._asked)
        self.page.on("request", self._sent)
        self.page.on("requestfailed", self._failed)
        self.page.on("response", self._answered)

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"console: {message.text}")

    def _asked(self, dialog: Any) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _sent(self, request: Any) -> None:
        if urlsplit(request.url).scheme != "data" and not request.url.startswith(self.base + "/"):
            self.wrong.append(f"elsewhere: {request.url}")

    def _failed(self, request: Any) -> None:
        if "ERR_ABORTED" not in (request.failure or ""):  # as when the page is left
            self.wrong.append(f"failed: {request.url} {request.failure}")

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self.wrong.append(f"status: {response.status} {response.url}")

    def open(self, path: str) -> Any:
        self.page.goto(self.base + path)
        return self.page

    def fits(self) -> None:
        """Nothing sticks out to the side."""
        wide, room = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= room

    def shot(self, name: str) -> None:
        """A picture, where one is asked for."""
        if "WHIM_SHOTS" in os.environ:
            folder = Path(os.environ["WHIM_SHOTS"])
            folder.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=folder / f"{name}.png", full_page=True)

    def close(self) -> None:
        """Leave; all must have gone well."""
        self.context.close()
        wrong = [w for w in self.wrong if not any(a in w for a in self.allowed)]
        assert not wrong, wrong


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Page]]:
    visits: list[Page] = []

    def begin(service: Service, **how: Any) -> Page:
        visits.append(Page(browser, service, **how))
        return visits[-1]

    yield begin
    for page in visits:
        page.close()


def drive(
    service: Service, space: str, n: int, reward: Reward, arms: list[Any], seed: int = 0
) -> None:
    """So many decisions with their rewards."""
    chance = random.Random(seed)
    xs = [[round(chance.uniform(-1, 1), 3) for _ in range(2)] for _ in range(n)]
    path = f"/v1/spaces/{space}"
    for at in range(0, n, 50):
        some = xs[at : at + 50]
        body = {"decisions": [{"context": x, "candidates": arms} for x in some]}
        status, told = service.ask("POST", f"{path}/decisions/batch", body)
        assert status == 200
        rewards = [
            {"decision_id": a["decision_id"], "value": reward(a["arm"], x)}
            for a, x in zip(told["answers"], some, strict=True)
        ]
        assert service.ask("POST", f"{path}/rewards/batch", {"rewards": rewards})[0] == 200


def before(arm: Any, x: list[float]) -> float:
    return 0.5 + 0.4 * x[0] if arm == HTML else 0.3 + 0.1 * x[1]


def after(arm: Any, x: list[float]) -> float:
    return 0.1 - 0.4 * x[0] if arm == HTML else 0.3 + 0.1 * x[1]


def make(service: Service, name: str, **more: Any) -> None:
    assert service.ask("POST", "/v1/spaces", {"name": name, **CONFIG, **more})[0] == 201


def changes(service: Service, space: str) -> int:
    return len(service.ask("GET", f"/v1/spaces/{space}/changes")[1]["changes"])


# -- the tests --------------------------------------------------------------------------------


def test_nothing_there_yet(service: Service, visit: Callable[..., Page]) -> None:
    visited = visit(service)
    page = visited.open("/")
    expect(page.get_by_role("heading", name="No space yet")).to_be_visible()
    visited.shot("empty")
    make(service, "quiet")
    expect(page.get_by_role("link", name="quiet")).to_be_visible()  # by itself
    page.get_by_role("link", name="quiet").click()
    expect(page.get_by_role("heading", name="No decision yet")).to_be_visible()
    expect(page.get_by_text("No changes detected yet.")).to_be_visible()
    visited.shot("space-empty")
    drive(service, "quiet", 1, before, ["first"])
    expect(page.get_by_role("heading", name="No decision yet")).to_be_hidden()
    expect(page.get_by_role("row").filter(has_text="first")).to_be_visible()
    service.ask("DELETE", "/v1/spaces/quiet")


def test_a_change_found_now_appears_without_reloading(
    service: Service, visit: Callable[..., Page]
) -> None:
    make(service, "turning")
    arms = [HTML, SQL, "plain", "\u202eodd"]
    drive(service, "turning", 600, before, arms)
    assert changes(service, "turning") == 0
    visited = visit(service)
    page = visited.open("/spaces/turning")
    page.evaluate("window.marker = 'still here'")
    expect(page.locator(".event")).to_have_count(0)
    expect(page.locator("[data-chart=rates] canvas")).to_be_visible()
    visited.shot("space-before")
    for i in range(60):
        drive(service, "turning", 50, after, arms, seed=i + 1)
        if changes(service, "turning"):
            break
    found = changes(service, "turning")
    assert found
    expect(page.locator(".event")).to_have_count(min(found, 10))
    first = page.locator(".event").last
    expect(first.locator(".arm")).to_have_text(HTML)  # as text
    expect(first.locator(".moves tr")).to_have_count(4)
    expect(page.locator("#said")).to_contain_text(HTML)
    assert page.evaluate("window.marker") == "still here"
    expect(page.get_by_role("row").filter(has_text=SQL)).to_be_visible()
    assert page.locator("img").count() == 0
    visited.shot("space-change")
    visited.open("/")
    expect(page.locator(".card .tag.change")).to_have_text(str(found))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_themes_and_widths(
    service: Service, visit: Callable[..., Page], scheme: str, width: int
) -> None:
    if service.ask("GET", "/v1/spaces/wide")[0] == 404:
        make(service, "wide")
        arms = [HTML, SQL, "an-id-without-end-" * 12, "plain", 7]
        drive(service, "wide", 600, before, arms)
        drive(service, "wide", 600, after, arms, seed=1)
    visited = visit(
        service, color_scheme=scheme, viewport={"width": width, "height": 844},
        device_scale_factor=2 if width < 500 else 1,
    )  # fmt: skip
    page = visited.open("/spaces/wide")
    expect(page.locator("[data-chart=rates] canvas")).to_be_visible()
    expect(page.locator(".event").first).to_be_visible()
    shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
    level = sum(int(part) for part in shade.strip("rgb()").split(",")[:3])
    assert (level < 200) == (scheme == "dark"), shade
    visited.fits()
    assert broken_words(page) == []
    visited.shot(f"space-{scheme}-{width}")
    visited.open("/")
    expect(page.get_by_role("link", name="wide")).to_be_visible()
    visited.fits()
    visited.shot(f"spaces-{scheme}-{width}")
    page.get_by_role("button", name="Change between light and dark").click()
    other = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert other != shade
    visited.open("/spaces/nobody-has-made-this")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    visited.fits()
    visited.allowed = ("404",)


def test_a_what_if_runs_to_its_curves(service: Service, visit: Callable[..., Page]) -> None:
    make(service, "asked")
    drive(service, "asked", 500, before, ["a", "b"])
    visited = visit(service, viewport={"width": 390, "height": 844})
    page = visited.open("/spaces/asked")
    page.get_by_label("Exploration share").fill("much")
    page.get_by_role("button", name="Replay the log").click()
    expect(page.locator("#whatif-result [role=alert]")).to_contain_text("explore")
    page.get_by_label("Exploration share").fill("0.1")
    page.locator("#whatif-policy").select_option("linucb-disjoint")
    expect(page.locator("#whatif-params")).not_to_contain_text("false_alarm")
    page.get_by_role("button", name="Replay the log").click()
    expect(page.locator("[data-chart=whatif] canvas")).to_be_visible(timeout=60_000)
    expect(page.locator(".compared tbody tr")).to_have_count(2)
    expect(page.locator("#whatif-result")).to_contain_text("500 decisions")
    visited.fits()
    visited.shot("whatif")
    visited.allowed = ("422",)


def test_the_login(tmp_path: Path, visit: Callable[..., Page]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    keys = Keys(data / "keys.json")
    token, other = keys.make("reader", ["read"]), keys.make("decider", ["decide"])
    with Service(data) as made:
        made.wait()
        visited = visit(made)
        page = visited.open("/spaces/demo")
        assert urlsplit(page.url).path == "/login"
        for key, said in (("nonsense", "unknown or revoked"), (other, "scope read")):
            page.get_by_label("Key").fill(key)
            page.get_by_role("button", name="Log in").click()
            expect(page.get_by_role("alert")).to_contain_text(said)
        visited.shot("login")
        page.get_by_label("Key").fill(token)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="demo")).to_be_visible()
        assert urlsplit(page.url).path == "/spaces/demo"
        page.wait_for_timeout(2500)  # parts refresh, with the cookie
        expect(page.locator("#lost")).to_be_hidden()
        keys.revoke("reader")
        expect(page.get_by_label("Key")).to_be_visible()  # by itself
        assert page.url.endswith("/login?next=/spaces/demo")
        visited.allowed = ("401", "403", "htmx:")


def test_a_service_that_takes_nothing_more_says_so(
    tmp_path: Path, visit: Callable[..., Page]
) -> None:
    data = tmp_path / "data"
    with Service(data) as made:
        made.wait()
        visited = visit(made)
        page = visited.open("/spaces/demo")
        expect(page.get_by_role("heading", name="demo", exact=True)).to_be_visible()
        body = {
            "context": {"device": "phone", "hour": 1}, "candidates": [f"a{i}" for i in range(200)]
        }  # fmt: skip
        no_more_room(made)
        for _ in range(1000):
            if made.ask("POST", "/v1/spaces/demo/decisions", body)[0] != 200:
                break
        assert made.ask("GET", "/healthz")[0] == 503
        alert = page.get_by_role("alert").first
        expect(alert).to_contain_text("accepts no more requests")  # by itself
        expect(page.locator(".arms")).to_be_visible()
        page.reload()
        expect(page.get_by_role("alert")).to_contain_text("cannot be written")  # once
        visited.shot("failed")
        visited.open("/")
        expect(page.get_by_role("alert")).to_contain_text("accepts no more requests")
        expect(page.get_by_role("link", name="demo")).to_be_visible()
        visited.allowed = ("503",)
        made.stop(signal.SIGKILL)
        expect(page.locator("#lost")).to_be_visible()
        expect(page.locator("#lost")).to_contain_text("again")
        visited.shot("gone")
        visited.allowed = ("503", "ERR_", "failed:", "htmx:")


def test_a_report_unfolds_what_a_link_leads_to_and_what_is_printed(
    browser: Any, tmp_path: Path
) -> None:
    write_report(samples.every(), tmp_path / "report.html")
    page = browser.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    heading = page.locator("#x-yahoo-table-1-figure-2")
    folded = page.locator("details.more").nth(1)
    expect(heading).to_be_hidden()
    page.goto((tmp_path / "report.html").as_uri() + "#x-yahoo-table-1-figure-2")
    expect(heading).to_be_in_viewport()
    folded.evaluate("one => { one.open = false; }")
    height = "one => one.getBoundingClientRect().height"
    assert folded.evaluate(height) < 100
    page.emulate_media(media="print")
    assert folded.evaluate(height) > 500
    page.close()
