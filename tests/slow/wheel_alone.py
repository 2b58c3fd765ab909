"""The wheel alone, in an empty environment, does what the README and the how-to pages say.

``make wheel``, or ``python tests/slow/wheel_alone.py [--wheel FILE] [--python python3.12 …]``: for
each Python a fresh virtual environment with an empty compile cache gets the wheel as a stranger
would install it. First without extras: the README's ten lines, and that nothing but numpy and numba
came with it. Then with the extras that the README names: ``whim demo``, the tutorial, the guide to
lists and every how-to page.
Nothing of the checkout can be imported; only pages are read from it.

It needs the standard library only. Pythons that are not on the machine are named and skipped,
unless they were asked for by ``--python``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
CORE = {"whim-bandits", "numpy", "numba", "llvmlite"}  # "numpy and numba, nothing else"
TOOLS = {"pip", "setuptools", "wheel"}  # of the environment itself
OF_READERS = ("pandas",)  # what a page's reader has without Whim


def say(text: str) -> None:
    """A line of progress, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def readme_extras() -> list[str]:
    """The extras that the README names, in commands and in its sentence on further ones."""
    text = (ROOT / "README.md").read_text("utf-8")
    further = re.search(r"Further extras \(([^)]*)\)", text)
    assert further is not None, "the README must name further extras"
    commands = ",".join(re.findall(r"whim-bandits\[([^\]]+)\]", text)).split(",")
    return sorted({*commands, *re.findall(r"`(\w+)`", further[1])})


def pythons(asked: list[str]) -> list[Path]:
    """The interpreters to try: those that were asked for, or all that are here."""
    if asked:
        missing = [name for name in asked if shutil.which(name) is None]
        if missing:
            raise SystemExit(f"--python must name a Python of this machine, got {missing[0]!r}.")
        return [Path(str(shutil.which(name))) for name in asked]
    here = {version: _working(f"python{version}") for version in SUPPORTED}
    for version, path in here.items():
        if path is None:
            say(f"python{version}: not on this machine, skipped")
    return [path for path in here.values() if path is not None]


def _working(name: str) -> Path | None:
    """The first of that name which starts: a version manager's stand-in may lead nowhere."""
    for folder in os.get_exec_path():
        path = Path(folder) / name
        if not os.access(path, os.X_OK):
            continue
        probe = [path, "-c", "import ensurepip, sqlite3, ssl, venv; print(1)"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return path
    return None


def built(folder: Path) -> Path:
    """A wheel of this checkout, by the tools of the ``dist`` extra."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "-o", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.whl"))


class Environment:
    """A virtual environment of one Python, with nothing but what is installed into it."""

    def __init__(self, python: Path, folder: Path) -> None:
        subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
        self.bin, self.work = folder / "venv" / "bin", folder / "work"
        self.work.mkdir()
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "WHIM_", "VIRTUAL_ENV"))
        }
        self.environment = {
            **kept, "PATH": f"{self.bin}:{kept.get('PATH', '')}", "MPLBACKEND": "agg",
            "WHIM_CACHE_DIR": str(folder / "cache"),
        }  # fmt: skip

    def run(self, *command: str | Path, at: Path | None = None) -> str:
        """What a command prints; its failure ends everything, with all that it said."""
        done = subprocess.run(
            command, cwd=at or self.work, env=self.environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if done.returncode != 0:
            raise SystemExit(
                f"{' '.join(map(str, command))} ended {done.returncode}:\n{done.stdout}"
            )
        return done.stdout

    def install(self, *what: str) -> None:
        """As the README says it: pip, without constraints."""
        self.run(self.bin / "pip", "install", "-q", "--disable-pip-version-check", *what)

    def installed(self) -> set[str]:
        """The names of all packages that are there."""
        listed = self.run(
            self.bin / "pip", "list", "--format", "json", "--disable-pip-version-check"
        )
        return {one["name"] for one in json.loads(listed)} - TOOLS

    def page(self, path: Path) -> str:
        """Execute the Python of a page in a folder of its own, with nothing else to import."""
        place = self.work / path.relative_to(ROOT).with_suffix("")
        place.mkdir(parents=True)
        for source in (path, ROOT / "tests" / "documents.py"):
            shutil.copy2(source, place)
        python = self.bin / "python"
        return self.run(python, "documents.py", path.name, at=place).strip()


def core(environment: Environment, wheel: Path) -> None:
    """Without extras: the README's lines, and nothing else installed."""
    environment.install(str(wheel))
    there = environment.installed()
    assert there == CORE, f"the library alone installs {sorted(there)}"
    where = environment.run(environment.bin / "python", "-c", "import whim; print(whim.__file__)")
    assert Path(where.strip()).is_relative_to(environment.bin.parent), where
    say(f"  alone ({', '.join(sorted(there))}): {environment.page(ROOT / 'README.md')}")
    refused = subprocess.run(
        [environment.bin / "whim", "demo"], env=environment.environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    said = refused.stderr.strip()
    assert refused.returncode == 2, said
    assert re.fullmatch(r".*pip install.*", said), said  # one line, no traceback
    say(f"  whim demo without its extra: {said}")


def demo(environment: Environment, wheel: Path, seconds: float) -> None:
    """With the extra of the README's command: the demo, shortened."""
    environment.install(f"{wheel}[serve]")
    said = environment.run(
        environment.bin / "whim", "demo", "--seconds", str(seconds), "--no-browser", "--port", "0"
    )
    rate = re.search(r"^click rate .*", said, re.M)
    changes = re.search(r"^changes .* detected.*", said, re.M)
    assert rate is not None, said
    assert changes is not None, said
    say(f"  whim demo --seconds {seconds:g}: {rate[0]}; {changes[0]}")


def pages(environment: Environment, wheel: Path, extras: list[str]) -> None:
    """With all extras of the README: the tutorial, the guide to lists and every how-to page."""
    environment.install(f"{wheel}[{','.join(extras)}]", *OF_READERS)
    docs = ROOT / "docs"
    for path in (docs / "tutorial.md", docs / "lists.md", *sorted((docs / "howto").glob("*.md"))):
        say(f"  {environment.page(path)}")


def main() -> None:
    """One environment per Python; the first failure ends it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheel", type=Path, help="default: one is built")
    parser.add_argument("--python", nargs="+", default=[], help="default: 3.11 to 3.14, if here")
    parser.add_argument("--seconds", type=float, default=10, help="of the demo")
    options = parser.parse_args()
    extras = readme_extras()
    with tempfile.TemporaryDirectory(prefix="whim-wheel-") as folder:
        wheel = built(Path(folder)) if options.wheel is None else options.wheel.resolve()
        chosen = pythons(options.python)
        assert chosen, "no supported Python is on this machine"
        for place, python in enumerate(chosen):
            version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True)
            say(f"{version.stdout.strip()}, {wheel.name}, extras {', '.join(extras)}")
            began = time.monotonic()
            (Path(folder) / str(place)).mkdir()
            environment = Environment(python, Path(folder) / str(place))
            core(environment, wheel)
            demo(environment, wheel, options.seconds)
            pages(environment, wheel, extras)
            say(f"  all in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
