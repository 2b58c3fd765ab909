"""The Dockerfile's steps in a clean root file system, and then the service in it, restricted.

``make image`` (as root, on Debian, with debootstrap): a root is made, the steps of
``deploy/Dockerfile`` are executed in it one by one, and the service is started by the image's own
entry point as a user without a name, with the root mounted read-only, a volume for its data and an
empty /tmp. Asserted: it is ready and has decided within three seconds of its start, nothing was
compiled, and the health check agrees.

The base image is python:3.12-slim: Debian with a Python in /usr/local. Here it is debootstrap's
Debian, and the Python whose prefix ``--python`` names, copied there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LIBRARIES = (
    "ca-certificates,libssl3,libffi8,zlib1g,libsqlite3-0,libbz2-1.0,liblzma5,libreadline8,"
    "libncursesw6,libuuid1,libexpat1,netbase,tzdata"
)
NOBODY = 54321  # in no passwd
WITHIN = 3.0  # seconds from the start to the first decision
SPACE = {"name": "offers", "policy": "pslinucb-disjoint", "context": {"size": 2}}
DECISION = {"context": [1, 0.5], "candidates": ["a", "b"]}
OWN = "WHIM_IMAGE_OWN_MOUNTS"
KEY = "a-first-key-of-forty-eight-characters-0123456789"


def instructions(text: str) -> list[tuple[str, str]]:
    r"""The Dockerfile's instructions in order, continued lines joined.

    >>> instructions("FROM a\n# no\nRUN b \\\n && c")
    [('FROM', 'a'), ('RUN', 'b  && c')]
    """
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n", "", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]  # type: ignore[misc]


class Image:
    """A root file system, and what the steps so far have set."""

    def __init__(self, root: Path, lent: list[Path]) -> None:
        self.root, self.lent = root, lent
        self.environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
        self.user, self.folder = "0:0", "/"
        self.entry: list[str] = []
        self.command: list[str] = []
        self.health: list[str] = []

    def inside(self, command: list[str], **more: str) -> list[str]:
        """A command line that runs in the root, as the user and in the folder of now."""
        said = [f"{k}={v}" for k, v in {**self.environment, **more}.items()]
        script = f"cd {shlex.quote(self.folder)} && exec {shlex.join(command)}"
        words = ["chroot", f"--userspec={self.user}", str(self.root), "/usr/bin/env", "-i"]
        return [*words, *said, "/bin/sh", "-c", script]

    def step(self, kind: str, rest: str) -> None:
        """Do one instruction."""
        if kind == "ENV":
            self.environment |= dict(word.split("=", 1) for word in shlex.split(rest))
        elif kind == "WORKDIR":
            self.folder = rest
            (self.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif kind == "COPY":
            *sources, target = rest.split()
            where = self.root / self.folder.lstrip("/") / target
            for source in sources:
                self._copy(ROOT / source, where, into=target.endswith("/"))
        elif kind == "RUN":
            lent = {
                k: v for k, v in os.environ.items() if k.startswith("PIP_") or "proxy" in k.lower()
            }
            subprocess.run(self.inside(["/bin/sh", "-c", rest], **lent), check=True)
        elif kind == "USER":
            users = (self.root / "etc/passwd").read_text()
            found = re.search(rf"^{rest}:[^:]*:(\d+:\d+):", users, re.M)
            assert found is not None, f"there is no user {rest}"
            self.user = found[1]
        elif kind in ("ENTRYPOINT", "CMD"):
            setattr(self, "entry" if kind == "ENTRYPOINT" else "command", json.loads(rest))
        elif kind == "HEALTHCHECK":
            self.health = json.loads(rest[rest.index("CMD") + 3 :])
        elif kind not in ("FROM", "EXPOSE"):
            raise SystemExit(f"no step is known for {kind}")

    def _copy(self, source: Path, target: Path, *, into: bool) -> None:
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target, dirs_exist_ok=True, ignore=ignored)
        else:
            place = target / source.name if into else target
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place)

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """What a build needs of the machine: devices, processes, names, packages."""
        with contextlib.ExitStack() as stack:
            for folder in ("proc", "dev"):
                stack.enter_context(mounted("--rbind", f"/{folder}", self.root / folder))
            for path in self.lent:
                place = self.root / str(path).lstrip("/")
                if path.is_dir():
                    place.mkdir(parents=True, exist_ok=True)
                else:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.touch()
                stack.enter_context(mounted("--bind", str(path), place))
            yield

    @contextlib.contextmanager
    def read_only(self, data: Path) -> Iterator[None]:
        """As a container that runs: nothing can be written but the volume and /tmp."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(mounted("--bind", str(self.root), self.root))
            subprocess.run(["mount", "-o", "remount,ro,bind", self.root], check=True)
            stack.enter_context(mounted("--rbind", "/proc", self.root / "proc"))
            stack.enter_context(mounted("--rbind", "/dev", self.root / "dev"))
            stack.enter_context(mounted("--bind", str(data), self.root / "var/lib/whim"))
            stack.enter_context(mounted("-t", "tmpfs", "tmpfs", self.root / "tmp"))
            yield


@contextlib.contextmanager
def mounted(*words: str | Path) -> Iterator[None]:
    """A mount for a while; what it brings with it goes with it."""
    subprocess.run(["mount", *words], check=True)
    subprocess.run(["mount", "--make-rslave", words[-1]], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--recursive", "--lazy", words[-1]], check=True)


def base(root: Path, prefix: Path, mirror: str) -> None:
    """Debian with a Python in /usr/local, new each time; Debian itself is fetched once."""
    debian = root.with_name(root.name + ".debian")
    if not (debian / "etc/passwd").exists():
        debian.parent.mkdir(parents=True, exist_ok=True)
        words = ["--variant=minbase", f"--include={LIBRARIES}", "bookworm", str(debian)]
        subprocess.run(["debootstrap", *words, *([mirror] if mirror else [])], check=True)
    subprocess.run(["rm", "-rf", "--one-file-system", root], check=True)
    subprocess.run(["cp", "-a", debian, root], check=True)
    keep = shutil.ignore_patterns("__pycache__", "site-packages", "test")
    shutil.copytree(prefix, root / "usr/local", dirs_exist_ok=True, symlinks=True, ignore=keep)
    packages = next((root / "usr/local/lib").glob("python3.*")) / "site-packages"
    packages.mkdir(exist_ok=True)
    python = f"/usr/local/bin/{packages.parent.name}"
    subprocess.run(["chroot", root, "/sbin/ldconfig"], check=True)  # a shared libpython is found
    subprocess.run(
        ["chroot", root, python, "-m", "ensurepip"], check=True, stdout=subprocess.DEVNULL
    )
    for name, target in (("python", python), ("pip", "/usr/local/bin/pip3")):
        link = root / "usr/local/bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def in_own_mounts() -> None:
    """Start again where mounts are this process's own: none outlives it, whatever happens."""
    if os.environ.get(OWN) is None:
        words = ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv]
        os.execvpe(words[0], words, {**os.environ, OWN: "1"})


def ask(path: str, body: dict[str, object] | None = None) -> dict[str, object]:
    request = urllib.request.Request(
        f"http://127.0.0.1:8126{path}", headers={"Authorization": f"Bearer {KEY}"}
    )
    request.data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.loads(reply.read())


def first_decision(image: Image, data: Path, *, make: bool) -> tuple[float, str]:
    """Start the service; seconds until it has decided, and what it logged."""
    image.user = f"{NOBODY}:{NOBODY}"
    log = data / "said"
    with log.open("w") as said:
        began = time.monotonic()
        command = [*image.entry, *image.command]
        service = subprocess.Popen(
            image.inside(command, WHIM_FIRST_KEY=KEY, WHIM_DRAIN_SECONDS="0"),
            stdout=said, stderr=said,
        )  # fmt: skip
        try:
            while True:
                try:
                    if make:
                        ask("/v1/spaces", SPACE)
                        make = False
                    ask("/v1/spaces/offers/decisions", DECISION)
                    took = time.monotonic() - began
                    break
                except OSError as error:
                    if time.monotonic() - began > 120 or service.poll() is not None:
                        raise SystemExit(f"no decision: {error}\n{log.read_text()}") from error
                    time.sleep(0.02)
            children = Path(f"/proc/{service.pid}/task/{service.pid}/children").read_text().split()
            pid = children[0] if children else str(service.pid)
            healthy = subprocess.run(image.inside([*image.health, pid]), check=False).returncode
            touched = subprocess.run(
                image.inside(["touch", "/opt/whim/x"]), capture_output=True, check=False
            )
            assert healthy == 0, "the health check says that it is not healthy"
            assert b"Read-only file system" in touched.stderr, touched.stderr
        finally:
            service.terminate()
            service.wait(60)
    return took, log.read_text()


def main() -> None:
    """Build, start twice, say what was seen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "root", type=Path, help="where to make the root; made anew each time, from ROOT.debian"
    )
    parser.add_argument(
        "--python", type=Path, default=Path(sys.base_prefix), help="prefix to copy to /usr/local"
    )
    parser.add_argument("--mirror", default="", help="of debootstrap")
    parser.add_argument(
        "--lend", type=Path, action="append", default=[], help="a path that the build sees, too"
    )
    options = parser.parse_args()
    in_own_mounts()
    base(options.root, options.python, options.mirror)
    lent = [p for p in (Path("/etc/resolv.conf"), *options.lend) if p.exists()]
    image = Image(options.root.resolve(), lent)
    with image.building():
        for kind, rest in instructions((ROOT / "deploy" / "Dockerfile").read_text()):
            sys.stdout.write(f"{kind} {rest}\n")
            sys.stdout.flush()
            image.step(kind, rest)
    data = options.root.with_name(options.root.name + ".data")
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    os.chown(data, NOBODY, NOBODY)
    with image.read_only(data):
        for make in (True, False):
            took, said = first_decision(image, data, make=make)
            sys.stdout.write(
                f"{'new' if make else 'restarted'}: first decision after {took:.2f} s\n"
            )
            assert "compiling kernels" not in said, said
            assert took < WITHIN, f"first decision after {took:.2f} s\n{said}"


if __name__ == "__main__":
    main()
