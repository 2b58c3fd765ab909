"""The shell of a document: its commands one by one, and as a script that runs in a folder.

A block of ``sh`` is commands, a ``console`` block commands after ``$`` and what they print. A
script has them in order, as a reader would type them, with these differences:

- what installs, clones, makes a database or compiles beforehand is left out;
- ``whim serve`` in the foreground goes to the background, and is waited for;
- ports and addresses are swapped for free ones, and ``whim spaces`` is told the port; pauses are
  shorter;
- an HTTP error of ``curl`` is an error of the script, as is any command that fails.

Pages with no service run without a shell, see ``run_here``.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

from tests.documents import BLOCK
from whim.cli.app import app

ROOT = Path(__file__).parent.parent
SKIPPED = ("pip install", "createdb ", "git clone", "python3 -m venv", "whim warm", "make ")
_PORT = "8126"
_START = """\
set -eu -o pipefail
trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT
curl() {
  case " $* " in
    *" -sf "*) command curl "$@" ;;
    *) command curl -sS --fail-with-body "$@" && echo ;;
  esac
}"""
_READY = "until curl -sf localhost:{port}/readyz > /dev/null; do sleep 0.1; done"


class Command(NamedTuple):
    """A command of a page, and the lines that the page shows below it."""

    text: str
    shown: list[str]


def sections(text: str, headings: tuple[str, ...]) -> str:
    """The parts of a page below these headings; all of it without any."""
    if not headings:
        return text
    parts = re.split(r"^(?=##+ )", text, flags=re.M)
    found = {part.splitlines()[0].lstrip("# "): part for part in parts if part.strip()}
    return "".join(found[heading] for heading in headings)


def commands(text: str) -> list[Command]:
    """All commands of a page's ``sh`` and ``console`` blocks."""
    return [
        command
        for kind, source in BLOCK.findall(text)
        if kind in ("sh", "console")
        for command in _of_block(source, prompts=kind == "console")
    ]


def _of_block(source: str, prompts: bool) -> Iterator[Command]:
    lines = iter(source.splitlines())
    shown: list[str] = []
    for line in lines:
        if not line.strip():
            continue
        if prompts and not line.startswith("$ "):
            shown.append(line)
            continue
        text = line.removeprefix("$ ") if prompts else line
        while not _complete(text):
            text += "\n" + next(lines)
        shown = []
        yield Command(text, shown)


def _complete(text: str) -> bool:
    if text.endswith("\\"):
        return False
    try:
        shlex.split(text, comments=True)
    except ValueError:  # a quotation mark is open
        return False
    return True


def script(page: list[Command], port: int, swaps: Mapping[str, str]) -> str:
    """The page's commands for bash."""
    lines = [_START]
    for command in page:
        text = command.text
        if text.startswith(SKIPPED):
            continue
        for old, new in {**swaps, _PORT: str(port), "sleep 1;": "sleep 0.1;"}.items():
            text = text.replace(old, new)
        if "--url" not in text:
            text = re.sub(r"(?<=whim spaces )\w+", rf"\g<0> --url http://127.0.0.1:{port}", text)
        if re.match(r"whim serve[^&]*?(#.*)?$", text):
            text = text.partition("#")[0].strip() + " &\n" + _READY.format(port=port)
        lines.append(text)
    return "\n".join(lines) + "\n"


def run_script(
    text: str, folder: Path, port: int, *, seconds: float = 120, **environment: str
) -> str:
    """Run a script in a folder; what it and its services print."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("WHIM_") or name == "WHIM_CACHE_DIR"
    }
    kept["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    whole = {**kept, "WHIM_PORT": str(port), **environment}
    said = folder / "said.txt"  # a pipe would stay open as long as a service does
    with said.open("w") as output:
        process = subprocess.Popen(
            ["bash", "-c", text], cwd=folder, env=whole, stdout=output, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            _end(process.pid)
            process.wait()
    assert code == 0, f"ended {code}:\n{text}\n---\n{said.read_text()}"
    return said.read_text()


def run_here(page: list[Command], swaps: Mapping[str, str]) -> str:
    """Run the ``whim`` commands of a page, all it has, in this process and folder: far quicker."""
    said = ""
    for command in page:
        text = command.text.replace("\\\n", " ")
        for old, new in swaps.items():
            text = text.replace(old, new)
        verb, *arguments = shlex.split(text, comments=True)
        assert verb == "whim", text
        found = CliRunner().invoke(app, arguments)
        assert found.exit_code == 0, f"{text}\n---\n{found.output}\n{found.exception!r}"
        said += found.output
        prints(command.shown, found.output, swaps)
    return said


def _end(group: int) -> None:
    """Whatever of a script is still there; it has had its time."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def prints(shown: list[str], said: str, swaps: Mapping[str, str]) -> None:
    """Check that lines of a page were printed; … stands for anything."""
    for line in shown:
        for old, new in swaps.items():
            line = line.replace(old, new)
        pattern = ".*".join(re.escape(part) for part in line.strip().split("…"))
        assert re.search(pattern, said), f"not printed: {line}\n---\n{said}"
