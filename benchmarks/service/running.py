"""``whim serve`` and the no-op stack as processes of their own, on directories of their own."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SETTINGS = "demo = false\nlog_level = 'error'\n"


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def ask(port: int, method: str, path: str, body: Any = None) -> Any:
    """One request; the JSON that came back."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        link.request(method, path, None if body is None else json.dumps(body))
        reply = link.getresponse()
        text = reply.read()
        if reply.status >= 400:
            raise RuntimeError(f"{method} {path}: {reply.status} {text[:500]!r}")
        return json.loads(text) if text[:1] in b"{[" else text
    finally:
        link.close()


def _until(port: int, path: str, process: subprocess.Popen[bytes], seconds: float = 300) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the process ended with {process.returncode}")
        with contextlib.suppress(OSError, RuntimeError, http.client.HTTPException):
            ask(port, "GET", path)
            return
        time.sleep(0.01)
    raise RuntimeError("the process was not ready in time")


@contextlib.contextmanager
def service(data: Path, more: str = "") -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The service on a data directory; its port and process."""
    data.mkdir(parents=True, exist_ok=True)
    settings = data / "whim.toml"
    settings.write_text(SETTINGS + more)
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "whim", "serve", "--config", str(settings), "--data", str(data),
         "--port", str(port)],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _until(port, "/readyz", process)
        yield port, process
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def noop(*more: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The no-op stack; its port and process."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.service.noop", str(port), *more])
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.01)
        yield port, process
    finally:
        process.terminate()
        process.wait(60)


def _family(process: subprocess.Popen[bytes]) -> Iterator[tuple[Path, list[str]]]:
    """A process and those that it has started, each with the fields of its ``stat``."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            if process.pid in (int(path.name), int(fields[1])):
                yield path, fields


def resident(process: subprocess.Popen[bytes]) -> float:
    """Megabytes in memory now, with the processes that it has started."""
    total = 0
    for path, _ in _family(process):
        total += int((path / "status").read_text().split("VmRSS:")[1].split()[0])
    return total / 1024


def cpu(process: subprocess.Popen[bytes]) -> float:
    """Seconds of a processor that it has used, with the processes that it has started."""
    return sum(int(f[11]) + int(f[12]) for _, f in _family(process)) / 100
