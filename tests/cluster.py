"""``Cluster``: PostgreSQL with a synchronous standby, and replicas of the service over it.

Each replica reaches the database by a network of its own, which can be cut, and has a clock of its
own. All of them are processes that can be killed, frozen and started again.
"""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.crashes import Service
from tests.ports import free_ports
from tests.postgres import Server
from tests.proxy import Proxy
from whim.serve.log.origin import logs_of
from whim.serve.log.reader import LogReader

SETTINGS = "snapshot_seconds = 0.5\ndemo = false\ndrain_seconds = 0\n"


class Node:
    """A replica: its directory, its network, its clock, and the process that runs now, if any."""

    def __init__(self, folder: Path, server: Server, ahead: float, shards: int) -> None:
        self.name, self.data, self._ahead, self._shards = folder.name, folder, ahead, shards
        self.proxy, self.port = Proxy(server.port), free_ports()
        self._store = server.address("postgres", self.proxy.port)
        self.service: Service | None = None
        self.lives = 0
        self._ends: list[threading.Thread] = []
        self._frozen: list[psutil.Process] = []

    def start(self) -> None:
        """Start it on the directory that it has."""
        settings = self.data.with_suffix(".toml")
        settings.write_text(f"{SETTINGS}shards = {self._shards}\n")
        self.lives += 1
        self.service = Service(
            self.data, "--config", str(settings), "--store", self._store, port=self.port,
            ahead=self._ahead,
        )  # fmt: skip

    @property
    def runs(self) -> bool:
        """Whether there is a process."""
        return self.service is not None and self.service.process.poll() is None

    @property
    def trouble(self) -> str | None:
        """Why it must be started again: it has ended by itself, or failed for good."""
        service = self.service
        if service is None or self._frozen:
            return None
        if service.process.poll() is not None:
            return "ended: " + "".join(service.said[-8:])
        with contextlib.suppress(OSError):
            status, body = service.ask("GET", "/healthz", timeout=1.0)
            if status == 503:
                return str(body)
        return None

    def kill(self) -> None:
        """As ``kill -9``; what it had started finds that it is gone."""
        service, self.service = self.service, None
        if service is not None:
            service.process.send_signal(signal.SIGKILL)
            service.process.wait(30)
            # it reads what is said to the end, and a worker may be at work for a while yet
            self._ends.append(threading.Thread(target=service.stop, daemon=True))
            self._ends[-1].start()
        self.thaw()

    def freeze(self, family: bool) -> None:
        """SIGSTOP; with ``family``, for the processes that it has started as well."""
        assert self.service is not None
        first = psutil.Process(self.service.process.pid)
        self._frozen = [first, *(first.children(recursive=True) if family else ())]
        for process in self._frozen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self) -> None:
        """SIGCONT."""
        frozen, self._frozen = self._frozen, []
        for process in frozen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def close(self) -> None:
        """End it."""
        self.kill()
        for end in self._ends:
            end.join(30)
        self.proxy.close()


class Cluster:
    """A database and replicas ``ahead`` seconds before the true time, one for each number."""

    def __init__(
        self, folder: Path, ahead: tuple[float, ...] = (-3600.0, 0.0, 3600.0), shards: int = 1
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as opened:
            self.server = Server.start(durable=True)
            opened.callback(lambda: self.server.close())
            self.standby = self.server.standby()
            opened.callback(lambda: self.standby.close())
            self.nodes = [
                Node(folder / f"replica{i}", self.server, seconds, shards)
                for i, seconds in enumerate(ahead)
            ]
            for node in self.nodes:
                opened.callback(node.close)
                node.start()
            for node in self.nodes:
                assert node.service is not None
                node.service.wait(180)
            self._opened = opened.pop_all()

    def ask(self, node: int, method: str, path: str, body: Any = None) -> Any:
        """What a replica answers to a request that must succeed."""
        service = self.nodes[node].service
        assert service is not None
        status, found = service.ask(method, path, body, timeout=180)  # kernels may be compiled
        assert status < 300, (method, path, status, found)
        return found

    def create(self, *configs: dict[str, Any]) -> None:
        """Make spaces, and wait until every replica has them."""
        for config in configs:
            self.ask(0, "POST", "/v1/spaces", config)
        for i in range(len(self.nodes)):
            wait_until(
                lambda i=i: (
                    {c["name"] for c in configs}
                    <= {s["name"] for s in self.ask(i, "GET", "/v1/spaces")["spaces"]}
                )
            )

    # -- the database -------------------------------------------------------------------------

    def fail_over(self) -> None:
        """The primary dies, its standby takes over and gets a standby of its own.

        Whether the standby follows at that moment does not matter: it has all that was told.
        """
        old, self.server = self.server, self.standby
        old.kill()
        self.server.promote()
        for node in self.nodes:
            node.proxy.target = self.server.port
        old.close()
        self.standby = self.server.standby()

    @contextlib.contextmanager
    def cut_off(self, how: Any) -> Iterator[None]:
        """Nobody reaches the database."""
        for node in self.nodes:
            node.proxy.cut(how)
        try:
            yield
        finally:
            for node in self.nodes:
                node.proxy.heal()

    # -- the end ------------------------------------------------------------------------------

    def heads(self) -> list[int]:
        """The number of the last row of every shard."""
        return [seq for (seq,) in self.server.execute("SELECT seq FROM whim.head ORDER BY shard")]

    def settle(self, spaces: list[str], seconds: float = 60) -> None:
        """Wait until nothing waits, is being rebuilt or on its way, and copies have every row."""
        self._copied(seconds)  # a replica that has not read of a change yet says that all is built
        for i in range(len(self.nodes)):
            for name in spaces:
                wait_until(lambda i=i, name=name: self._built(i, name), seconds)
                wait_until(lambda i=i, name=name: self._closed(i, name), seconds)
            wait_until(lambda i=i: not self._queued(i), seconds)
        self._copied(seconds)

    def _copied(self, seconds: float) -> None:
        for node in self.nodes:
            wait_until(lambda node=node: lasts_of(node.data) == self.heads(), seconds)

    def _built(self, node: int, space: str) -> bool:
        """Whether a space has the version that was asked for last: a row says so when it has."""
        return not self.ask(node, "GET", f"/v1/spaces/{space}")["rebuilding"]

    def _closed(self, node: int, space: str) -> bool:
        counts = self.ask(node, "GET", f"/v1/spaces/{space}/stats")["counts"]
        return bool(counts["closed"] + counts["never_shown"] == counts["decisions"])

    def _queued(self, node: int) -> bool:
        """Whether rows wait to be written; the database may just have come back."""
        service = self.nodes[node].service
        assert service is not None
        text = service.ask("GET", "/metrics")[1].decode()
        value = re.search(r"^whim_queue_bytes (\S+)", text, re.MULTILINE)
        assert value is not None, text
        return float(value[1]) > 0

    def stop(self) -> None:
        """Have all replicas finish what they do, and end."""
        for node in self.nodes:
            assert node.service is not None
            code, node.service = node.service.stop(), None
            assert code == 0, node.name

    def close(self) -> None:
        """End everything."""
        self._opened.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Orchestrator(threading.Thread):
    """Starts replicas again that have ended or failed for good, as any orchestrator does."""

    def __init__(self, nodes: list[Node]) -> None:
        super().__init__(daemon=True)
        self._nodes, self._stopping = nodes, threading.Event()
        self.lock = threading.Lock()  # who holds it kills and starts replicas
        self.restarts: list[str] = []

    def run(self) -> None:
        """Until ``finish``."""
        while not self._stopping.wait(0.3):
            for node in self._nodes:
                life, reason = node.lives, node.trouble
                with self.lock:
                    if reason is not None and node.lives == life and node.service is not None:
                        self.restarts.append(f"{node.name}: {reason}")
                        node.kill()
                        node.start()

    def finish(self) -> None:
        """Watch no longer."""
        self._stopping.set()
        self.join(30)


def lasts_of(data: Path) -> list[int]:
    """The last row of a replica's copy of every shard."""
    lasts = []
    for folder in logs_of(data):
        with contextlib.closing(LogReader(folder / "log.db")) as reader:
            lasts.append(reader.last()[0])
    return lasts


def wait_until(done: Any, seconds: float = 60) -> None:
    """Poll; what cannot be asked now is asked again."""
    end, problem = time.monotonic() + seconds, None
    while True:
        try:
            if done():
                return
        except Exception as error:  # of any kind: the last one is shown
            problem = error
        assert time.monotonic() < end, f"not in time: {problem!r}"
        time.sleep(0.02)
