"""The README's picture of the dashboard: ``whim demo`` to its end, then the page of its space.

Run: ``python examples/page_picture.py docs/images/page.png`` (or ``make picture``). It needs
Chromium, playwright and Pillow. The readers come from a seed, but when each comes is up to the
clock: two pictures differ in their numbers.
"""

from __future__ import annotations

import io
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

SECONDS, SEED, COLOURS = 60, 0, 128
SIZE = {"width": 1280, "height": 1560}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def demo() -> Iterator[str]:
    """The page of a demo whose readers have all come."""
    command = [sys.executable, "-u", "-m", "whim", "demo", "--keep", "--no-browser", "--port", "0"]
    command += ["--seconds", str(SECONDS), "--seed", str(SEED)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = ""
            for line in process.stdout:
                sys.stdout.write(line)
                said += line
                if line.startswith("still serving"):
                    break
            page = re.search(r"http://\S+/spaces/\S+", said)
            if page is None or process.poll() is not None:
                raise SystemExit("the demo must end well, and did not.")
            yield page[0]
        finally:
            process.send_signal(signal.SIGTERM)


def picture(url: str, path: Path) -> None:
    """The top of a page, in few colours so that the file stays small."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as started:
        made = started.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = made.new_page(viewport=SIZE, color_scheme="light")
        page.goto(url)
        page.wait_for_selector("[data-chart=rates] canvas")
        page.wait_for_selector(".event")
        page.wait_for_timeout(500)
        shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        made.close()
    shot.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    with demo() as url:
        picture(url, Path(sys.argv[1]))
