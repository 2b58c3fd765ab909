"""The dashboard, the documentation's site and a report under axe-core, in a real browser.

Each page is looked at wide and narrow, light and dark. It needs Chromium, playwright and Node's
``npm``, from which axe-core comes; it is no part of the tests for that. It ends with 1 if axe finds
a serious fault, something sticks out, or a word of the dashboard is broken over two lines.

    python -m tests.slow.accessibility [--site FOLDER] [--axe axe.min.js] [--shots FOLDER]
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import sample_results as samples
from tests.crashes import Service
from tests.test_browser import CHROMIUM, broken_words, sync_api
from whim.report import write_report

AXE = "axe-core@4.14.0"
SERIOUS = ("serious", "critical")
ARMS = ["sport", "toys", "travel", "an-article-with-a-long-id-2026-11-18"]
CONFIG = {
    "name": "front-page", "explore": 0.1, "holdback": 0.1, "baseline": "random",
    "rewards": {"wait_seconds": 1},
    "context": {
        "fields": [
            {"name": "device", "kind": "choice", "values": ["phone", "desktop"]},
            {"name": "hour", "kind": "number", "mean": 12, "scale": 7},
        ],
        "constant": True,
    },
}  # fmt: skip
LIKED = {"sport": 0.3, "toys": 0.2, "travel": 0.1}


def fill(service: Service, n: int, changed: bool, seed: int) -> None:
    """So many visits; desktop visitors like travel once interests have changed."""
    chance = random.Random(seed)
    path = f"/v1/spaces/{CONFIG['name']}"
    for _ in range(0, n, 50):
        visits = [
            {"device": chance.choice(["phone", "desktop"]), "hour": chance.randrange(24)}
            for _ in range(50)
        ]
        body = {"decisions": [{"context": x, "candidates": ARMS} for x in visits]}
        status, told = service.ask("POST", f"{path}/decisions/batch", body)
        assert status == 200, told
        rewards = []
        for answer, x in zip(told["answers"], visits, strict=True):
            likes = LIKED.get(answer["arm"], 0.15)
            if changed and answer["arm"] == "travel" and x["device"] == "desktop":
                likes = 0.7
            if changed and answer["arm"] == "sport":
                likes = 0.1
            value = float(chance.random() < likes)
            rewards.append({"decision_id": answer["decision_id"], "value": value})
        assert service.ask("POST", f"{path}/rewards/batch", {"rewards": rewards})[0] == 200


def _space(page: Any) -> None:
    page.wait_for_selector("[data-chart=rates] canvas")


def _whatif(page: Any) -> None:
    _space(page)
    page.locator("#whatif-policy").select_option("linucb-disjoint")
    page.wait_for_timeout(500)
    page.get_by_role("button", name="Replay the log").click()
    page.wait_for_selector("[data-chart=whatif] canvas", timeout=60_000)
    unfold(page)


def _arm(page: Any) -> None:
    page.wait_for_selector("[data-chart=lines] canvas", timeout=60_000)


def _wrong_form(page: Any) -> None:
    page.locator("[name=name]").fill("two words")
    page.locator("[name=explore]").fill("2")
    page.get_by_role("button", name="Make the space").click()
    page.wait_for_selector(".field-error")


def _nothing(page: Any) -> None:
    page.wait_for_timeout(200)


PAGES: dict[str, tuple[str, Callable[[Any], None]]] = {
    "spaces": ("/", _nothing),
    "space": ("/spaces/front-page", _space),
    "space-hour": ("/spaces/front-page?range=hour", _space),
    "space-between": ("/spaces/front-page?from=2026-01-01T00:00&to=2999-01-01T00:00", _space),
    "whatif": ("/spaces/front-page", _whatif),
    "arm": ("/spaces/front-page/arm?id=travel", _arm),
    "arm-hour": ("/spaces/front-page/arm?id=sport&range=hour", _arm),
    "new": ("/new", _nothing),
    "new-wrong": ("/new", _wrong_form),
    "change": ("/spaces/front-page/edit", _nothing),
    "not-found": ("/spaces/nobody-made-this", _nothing),
    "login": ("/login", _nothing),
}


def axe_source(given: str | None, folder: Path) -> str:
    """The script of axe-core, from a file or from npm."""
    if given is not None:
        return Path(given).read_text("utf-8")
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm must be installed, or --axe be the path of axe.min.js.")
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), AXE]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return (folder / "node_modules/axe-core/axe.min.js").read_text("utf-8")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


class Look:
    """One width and one theme: what is wrong with the pages that are shown to it."""

    def __init__(self, browser: Any, axe: str, shots: Path | None, scheme: str, width: int) -> None:
        self.how, self._axe, self._shots = f"{scheme}-{width}", axe, shots
        size = {"width": width, "height": 844}
        self._context = browser.new_context(color_scheme=scheme, viewport=size)
        self.page = self._context.new_page()
        self.wrong: list[str] = []

    def close(self) -> list[str]:
        """The faults of all its pages."""
        self._context.close()
        return self.wrong

    def dashboard(self, service: Service) -> None:
        """Every page of the service."""
        for name, (path, ready) in PAGES.items():
            self.page.goto(f"http://127.0.0.1:{service.port}{path}")
            ready(self.page)
            self._judge(name)
            broken = broken_words(self.page)
            self.wrong += [f"{name}, {self.how}: a broken word: {word}" for word in broken]

    def files(self, paths: dict[str, Path]) -> None:
        """Pages that are files, with everything unfolded."""
        for name, path in paths.items():
            self.page.goto(path.resolve().as_uri())
            self._judge(name)
            if self.page.locator("main details").count():
                unfold(self.page)
                self._judge(f"{name}-unfolded")

    def _judge(self, name: str) -> None:
        self.page.wait_for_timeout(300)
        if self._shots is not None:
            place = self._shots / f"{name.replace('/', '-')}-{self.how}.png"
            self.page.screenshot(path=place, full_page=True)
        self.page.evaluate(self._axe)
        found = self.page.evaluate("axe.run().then((result) => JSON.stringify(result.violations))")
        for one in json.loads(found):
            nodes = "; ".join(" ".join(node["target"]) for node in one["nodes"][:3])
            _say(f"{name}, {self.how}: {one['impact']}: {one['id']}: {one['help']} ({nodes})")
            if one["impact"] in SERIOUS:
                self.wrong.append(f"{name}, {self.how}: {one['id']}")
        wide, room = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        if wide > room:
            self.wrong.append(f"{name}, {self.how}: {wide - room} pixels stick out")


def unfold(page: Any) -> None:
    """Open what is folded away, to look at it, too."""
    for one in page.locator("details").all():
        one.evaluate("one => { one.open = true; }")


def still_pages(site: Path | None, folder: Path) -> dict[str, Path]:
    """The site's pages, and reports of every experiment and of one alone."""
    pages = {"report": folder / "report.html", "report-alone": folder / "alone.html"}
    write_report(samples.every(), pages["report"])
    write_report([samples.yahoo()], pages["report-alone"])
    if site is not None:
        made = sorted(site.rglob("*.html"))
        if not made:
            raise SystemExit(f"--site must be a folder of HTML pages, got {site}: none there.")
        pages |= {f"site/{path.relative_to(site).with_suffix('')}": path for path in made}
    return pages


def main() -> int:
    """Look at all pages; 1 if there is a fault."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--site", type=Path, help="the documentation, as 'make docs' builds it")
    parser.add_argument("--axe", help="default: from npm")
    parser.add_argument("--shots", type=Path, help="keep pictures of all pages here")
    asked = parser.parse_args()
    if asked.shots is not None:
        asked.shots.mkdir(parents=True, exist_ok=True)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        axe = axe_source(asked.axe, Path(folder))
        files = still_pages(asked.site, Path(folder))
        data = Path(folder) / "data"
        data.mkdir()
        (data / "whim.toml").write_text("demo = false\n")
        with (
            Service(data, "--config", str(data / "whim.toml")) as service,
            sync_api.sync_playwright() as started,
        ):
            service.wait()
            assert service.ask("POST", "/v1/spaces", CONFIG)[0] == 201
            fill(service, 2000, False, 0)
            fill(service, 3000, True, 1)
            browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for scheme, width in itertools.product(("light", "dark"), (1280, 390)):
                look = Look(browser, axe, asked.shots, scheme, width)
                look.dashboard(service)
                look.files(files)
                wrong += look.close()
            browser.close()
    for fault in wrong:
        _say(fault)
    count = len(PAGES) + len(files)
    _say(f"{count} pages, each in 2 themes and 2 widths: {len(wrong)} serious faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
