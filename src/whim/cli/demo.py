"""``whim demo``: the service for a minute, with readers whose interests change, detected live."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whim.errors import WhimError

if TYPE_CHECKING:
    from whim.cli.readers import Shift
    from whim.client import AsyncClient, Change

_RATE = 120  # readers per second
_BEAT = 0.1  # seconds: readers who come within it are sent together
_PORT = 8126
_COMPILING = 300.0  # seconds: with an empty cache the service compiles before it answers
_PATIENCE = 5.0  # seconds before we say why it takes so long
_FIRST_START = "starting the service; the first start on a machine compiles, about a minute"


def demo(
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of simulated traffic.")] = 60,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default 8126, or any if that is taken.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the data here. Default: delete it.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep serving afterwards, until Ctrl-C.")
    ] = False,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Do not open a browser.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the readers.")] = 0,
) -> None:
    """Start the service with simulated readers whose interests change, and show what it detects.

    HTTP, the log and the dashboard are real; only the readers are simulated.
    """
    from whim.cli.serve import needed

    needed()
    with tempfile.TemporaryDirectory(prefix="whim-demo-") as folder, _terminable():
        where = Path(folder) / "data" if data is None else data
        with _service(Path(folder), where, _free(port)) as (url, process):
            show = asyncio.run(_Show(url, seconds, seed).run(no_browser))
            show.summary()
            if keep:
                typer.echo(f"\nstill serving at {url}; Ctrl-C stops it")
                with contextlib.suppress(KeyboardInterrupt):
                    process.wait()


# -- the service ------------------------------------------------------------------------------


def _free(port: int | None) -> int:
    if port is not None:
        return port
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", _PORT))
        except OSError:
            return 0
    return _PORT


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Shut down cleanly on a signal, too: the service is a child process."""

    def end(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    before = {n: signal.signal(n, end) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _service(folder: Path, data: Path, port: int) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The service in a process of its own; its address."""
    settings = folder / "whim.toml"
    settings.write_text('demo = false\nlog_level = "warning"\nsnapshot_seconds = 15\n')
    # -P: a csv.py of the folder that we are in is not the library's
    command = [sys.executable, "-P", "-m", "whim", "serve", "--config", str(settings)]
    command += ["--data", str(data), "--port", str(port)]
    # settings of a real service are not the demo's
    kept = {k: v for k, v in os.environ.items() if k[:5] != "WHIM_" or k == "WHIM_CACHE_DIR"}
    with (folder / "service.log").open("w+") as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=kept,
            start_new_session=True,  # Ctrl-C is for us; we stop it
        )
        try:
            yield _address(process, folder / "service.log"), process
        finally:
            _stop(process)


def _address(process: subprocess.Popen[str], log: Path, within: float = _COMPILING) -> str:
    assert process.stdout is not None
    began, noted = time.monotonic(), False
    while time.monotonic() - began < within:
        if not select.select([process.stdout], [], [], 0.5)[0]:
            if not noted and time.monotonic() - began > _PATIENCE:
                typer.echo(_FIRST_START, err=True)
                noted = True
            continue
        words = process.stdout.readline().split()
        if not words:  # it ended
            said = log.read_text().strip() or "the service did not start."
            raise WhimError(said.splitlines()[-1].removeprefix("whim: "))
        if words[-1].startswith("http"):
            return words[-1]
    raise WhimError(f"the service must start within {within:g} seconds: it did not.")


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _browse(url: str) -> bool:
    """Open a browser if there is a display and a terminal."""
    screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    if not (screen and sys.stdout.isatty()):
        return False
    import webbrowser

    return webbrowser.open(url)


# -- the readers ------------------------------------------------------------------------------


class _Show:
    """The readers, what they are shown, and one line for each change."""

    def __init__(self, url: str, seconds: float, seed: int) -> None:
        from whim.cli.readers import Newspaper

        self._url, self._seconds = url, seconds
        self._paper = Newspaper(seconds, self._shifted, seed=seed)
        self._space = ""
        self._began = 0.0
        self._open: dict[str, float] = {}  # changes that are not detected yet
        self._made = self._found = self._false = 0
        self._shown = {"whim": [0, 0.0], "holdback": [0, 0.0]}
        self._due: list[tuple[float, str, float]] = []

    async def run(self, no_browser: bool) -> _Show:
        """From the first reader to the last."""
        from whim.cli.readers import CONFIG
        from whim.client import AsyncClient

        async with AsyncClient(self._url, timeout=_COMPILING) as client:
            taken = {info.name for info in await client.spaces()}
            names = ["newspaper", *(f"newspaper-{i}" for i in range(2, len(taken) + 2))]
            self._space = next(name for name in names if name not in taken)
            await client.create(self._space, **CONFIG)
        async with AsyncClient(self._url, timeout=10.0) as client:
            page = f"{self._url}/spaces/{self._space}"
            opened = not no_browser and _browse(page)
            typer.echo(f"{'opened' if opened else 'open'} {page}\n")
            typer.echo(f"{_RATE} readers per second, for {self._seconds:g} seconds; Ctrl-C ends it")
            self._began = time.monotonic()
            await self._serve(client, 1)  # the first decision takes longer: code is loaded
            self._began = time.monotonic()
            watching = asyncio.ensure_future(self._watch(client))
            try:
                await self._read(client)
                if watching.done():  # it goes on for ever unless it fails
                    watching.result()
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
        return self

    def _now(self) -> float:
        return time.monotonic() - self._began

    async def _read(self, client: AsyncClient) -> None:
        came = 0
        while (now := self._now()) < self._seconds:
            self._paper.at(now)
            await self._serve(client, max(0, int(now * _RATE) - came))
            came = int(now * _RATE)
            await self._reward(client, now)
            await asyncio.sleep(max(0.0, now + _BEAT - self._now()))
        await self._reward(client, float("inf"))
        await asyncio.sleep(2 * _BEAT)  # for a change that the last reward revealed

    async def _serve(self, client: AsyncClient, count: int) -> None:
        """What the readers of a beat are shown, and the rewards that will follow."""
        from whim.cli.readers import SECTIONS
        from whim.client import Answer

        readers = [self._paper.reader() for _ in range(min(count, _RATE))]
        if not readers:
            return
        requests = [{"context": reader, "candidates": list(SECTIONS)} for reader in readers]
        answers = await client.decide_many(requests, space=self._space)
        for reader, answer in zip(readers, answers, strict=True):
            if not isinstance(answer, Answer):
                raise answer
            value = self._paper.clicks(reader, str(answer.arm))
            group = self._shown["holdback" if answer.mode == "holdback" else "whim"]
            group[0] += 1
            group[1] += value
            due = self._now() + self._paper.delay()
            heapq.heappush(self._due, (due, answer.decision_id, value))

    async def _reward(self, client: AsyncClient, now: float) -> None:
        """The rewards that are known by now."""
        rewards: list[dict[str, Any]] = []
        while self._due and self._due[0][0] <= now and len(rewards) < 1000:
            _, key, value = heapq.heappop(self._due)
            rewards.append({"decision_id": key, "value": value})
        if rewards:
            await client.reward_many(rewards, space=self._space)

    async def _watch(self, client: AsyncClient) -> None:
        async for change in client.stream(space=self._space):
            self._noticed(change)

    # -- what is said -----------------------------------------------------------------------

    def _shifted(self, now: float, shift: Shift) -> None:
        self._made += 1
        self._open[shift.section] = now
        typer.echo(f"{now:6.1f} s  {shift.said}")

    def _noticed(self, change: Change) -> None:
        now, arm = self._now(), str(change.arm)
        since = self._open.pop(arm, None)
        if since is None:
            self._false += 1
            typer.echo(f"{now:6.1f} s  → {arm}: a false alarm, or a duplicate")
            return
        self._found += 1
        moved = _moved(change)
        typer.echo(f"{now:6.1f} s  → detected: {arm}, {now - since:.1f} s after{moved}")

    def summary(self) -> None:
        """Print click rates and how many changes were detected."""
        (n, clicks), (held, held_clicks) = self._shown["whim"], self._shown["holdback"]
        if not n or not held:
            return
        typer.echo(
            f"\nclick rate  {clicks / n:.1%} of {n:,} readers with whim, "
            f"{held_clicks / held:.1%} of {held:,} held back (sections at random)"
        )
        false = f", and {self._false} false alarms" if self._false else ""
        typer.echo(f"changes     {self._found} of {self._made} detected{false}")


def _moved(change: Change) -> str:
    """The coefficient that moved most, by its name."""
    parts = [
        (abs(b - a), name, a, b)
        for name, a, b in zip(
            change.features, change.theta_before, change.theta_after, strict=False
        )
        if a is not None and b is not None
    ]
    if not parts:
        return ""
    _, name, before, after = max(parts)
    return f" ({name} {before:+.2f} → {after:+.2f})"
