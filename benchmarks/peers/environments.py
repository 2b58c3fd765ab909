"""An environment of its own for every peer, because their pins clash.

The table of what is installed is in ``table``; pip's bounds come from there, so a rerun is the
same.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from benchmarks.peers.table import PEERS, Peer

__all__ = ["PEERS", "ROOT", "Failed", "Installed", "Peer", "install", "install_own", "python"]

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".bench" / "envs"


@dataclass(frozen=True, slots=True)
class Installed:
    """A whole environment; the size is what the peer and its dependencies brought."""

    version: str
    size_mb: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """Why there is none."""

    reason: str


def python(name: str) -> Path:
    """The interpreter of a peer's environment."""
    return ENVIRONMENTS / name / "bin" / "python"


@cache  # a failure is not tried again in the same run
def install(name: str) -> Installed | Failed:
    """Make the environment, or say that the one that is there is whole."""
    peer = PEERS[name]
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    with _alone(ENVIRONMENTS / f"{name}.lock"):
        stamp = ENVIRONMENTS / name / "installed.json"
        asked = [*peer.requires, *peer.pins, *peer.needs, *peer.options, peer.imports]
        if stamp.exists():
            found = json.loads(stamp.read_text())
            if found.pop("asked") == asked:
                return Installed(**found)
        start = time.perf_counter()
        venv = (sys.executable, "-m", "venv", "--clear", str(ENVIRONMENTS / name))
        needs = [_pip(peer, *peer.needs)] if peer.needs else []
        reason = _first_failure(venv, *needs, _pip(peer, *peer.options, *peer.requires))
        if reason is not None:
            return Failed(reason)
        seconds, size = round(time.perf_counter() - start, 1), round(_size(name), 1)
        # our worker needs NumPy even where the peer does not
        loads = (str(python(name)), "-c", f"import numpy, {peer.imports}")
        reason = _first_failure(_pip(peer, "numpy"), loads)
        if reason is not None:
            return Failed(reason)
        made = Installed(_version(peer), size, seconds)
        stamp.write_text(json.dumps(asdict(made) | {"asked": asked}))
        return made


def install_own() -> Installed | Failed:
    """Whim as a user gets it, not editable, in an environment like the peers'."""
    sources = [ROOT / "pyproject.toml", *sorted((ROOT / "src").rglob("*.py"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    folder, bounds = ENVIRONMENTS / "whim", ROOT / "constraints.txt"
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    with _alone(ENVIRONMENTS / "whim.lock"):
        stamp = folder / "installed.json"
        found = json.loads(stamp.read_text()) if stamp.exists() else {}
        if found.pop("asked", None) == digest:
            return Installed(**found)
        start = time.perf_counter()
        pip = (str(python("whim")), "-m", "pip", "install", "-q", "--disable-pip-version-check")
        reason = _first_failure(
            (sys.executable, "-m", "venv", "--clear", str(folder)),
            (*pip, "--no-input", "-c", str(bounds), str(ROOT)),
        )
        if reason is not None:
            return Failed(reason)
        seconds, size = round(time.perf_counter() - start, 1), round(_size("whim"), 1)
        code = "import whim; print(whim.__version__)"
        made = Installed(_run((str(python("whim")), "-c", code)).stdout.strip(), size, seconds)
        stamp.write_text(json.dumps(asdict(made) | {"asked": digest}))
        return made


def _pip(peer: Peer, *wanted: str) -> tuple[str, ...]:
    """The command, bound to the pins."""
    bounds = ENVIRONMENTS / f"{peer.name}.txt"
    bounds.write_text("\n".join(peer.pins) + "\n")
    quiet = ("-q", "--disable-pip-version-check", "--no-input", "-c", str(bounds))
    return (str(python(peer.name)), "-m", "pip", "install", *quiet, *wanted)


def _first_failure(*commands: tuple[str, ...]) -> str | None:
    """Run them in turn; the reason of the first that fails."""
    for command in commands:
        done = _run(command)
        if done.returncode:
            return _meaning(done.stderr + done.stdout)
    return None


def _run(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def _meaning(text: str) -> str:
    """The last line that says something: an error's, if one is marked so."""
    lines = [line.strip() for line in text.splitlines()]
    noise = ("note:", "hint:", "warning:")
    lines = [x for x in lines if x and "://" not in x and not x.lower().startswith(noise)]
    errors = [line for line in lines if "Error: " in line or line.startswith("ERROR: ")]
    return (errors or lines or ["no reason given"])[-1][:300]


def _version(peer: Peer) -> str:
    """What its own metadata say."""
    name = peer.requires[0].partition("==")[0]
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return _run((str(python(peer.name)), "-c", code)).stdout.strip()


def _size(name: str) -> float:
    """MB of what the peer brought into its site-packages."""
    packages = next((ENVIRONMENTS / name / "lib").glob("python*/site-packages"))
    own = ("pip", "setuptools", "_distutils_hack", "pkg_resources", "distutils-precedence")
    return (
        sum(
            path.lstat().st_size
            for top in packages.iterdir()
            if not top.name.startswith(own)
            for path in ([top] if top.is_file() else top.rglob("*"))
            if path.is_file()
        )
        / 1e6
    )


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Two commands must not build the same environment at once."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    for chosen in sys.argv[1:] or PEERS:
        print(chosen, install(chosen), flush=True)
