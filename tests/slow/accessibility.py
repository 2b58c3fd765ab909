"""Every page of the dashboard under axe-core, in a real browser: wide and narrow, light and dark.

It needs Chromium, playwright and Node's ``npm``, from which axe-core comes; it is no part of the
tests for that. It ends with 1 if axe finds a serious fault, or a word is broken over two lines.

    python -m tests.slow.accessibility [--axe axe.min.js] [--shots FOLDER]
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.crashes import Service
from tests.test_browser import CHROMIUM, broken_words, sync_api

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
    for one in page.locator("details").all():  # what is folded away is looked at, too
        one.evaluate("one => { one.open = true; }")


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


def look(browser: Any, service: Service, axe: str, shots: Path | None, how: Any) -> list[str]:
    """What is wrong with any page, at one width and in one theme."""
    scheme, width = how
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 844})
    page, wrong = context.new_page(), []
    for name, (path, ready) in PAGES.items():
        page.goto(f"http://127.0.0.1:{service.port}{path}")
        ready(page)
        page.wait_for_timeout(300)
        if shots is not None:
            page.screenshot(path=shots / f"{name}-{scheme}-{width}.png", full_page=True)
        page.evaluate(axe)
        found = page.evaluate("axe.run().then((result) => JSON.stringify(result.violations))")
        where = f"{name}, {scheme}, {width} wide"
        for one in json.loads(found):
            nodes = "; ".join(" ".join(node["target"]) for node in one["nodes"][:3])
            _say(f"{where}: {one['impact']}: {one['id']}: {one['help']} ({nodes})")
            if one["impact"] in SERIOUS:
                wrong.append(f"{where}: {one['id']}")
        wide, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        if wide > room:
            wrong.append(f"{where}: {wide - room} pixels stick out")
        wrong += [f"{where}: a broken word: {word}" for word in broken_words(page)]
    context.close()
    return wrong


def main() -> int:
    """Look at all pages; how many faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axe")
    parser.add_argument("--shots", type=Path)
    asked = parser.parse_args()
    if asked.shots is not None:
        asked.shots.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        axe = axe_source(asked.axe, Path(folder))
        data = Path(folder) / "data"
        data.mkdir()
        (data / "whim.toml").write_text("demo = false\n")
        with Service(data, "--config", str(data / "whim.toml")) as service:
            service.wait()
            assert service.ask("POST", "/v1/spaces", CONFIG)[0] == 201
            fill(service, 2000, False, 0)
            fill(service, 3000, True, 1)
            with sync_api.sync_playwright() as started:
                browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                wrong = [
                    fault
                    for how in (("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390))
                    for fault in look(browser, service, axe, asked.shots, how)
                ]
                browser.close()
    for fault in wrong:
        _say(fault)
    _say(f"{len(PAGES)} pages, each in 2 themes and 2 widths: {len(wrong)} serious faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
