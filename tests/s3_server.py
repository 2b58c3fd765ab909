"""A server that speaks S3, moto's, in a process of its own on a free port."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

__all__ = ["S3Server"]

_SERVE = """
import os, sys, threading
from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

# not moto's ThreadedMotoServer, whose start() waits for ever if its thread fails
app = DomainDispatcherApplication(create_backend_app)
server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
print(server.server_port, flush=True)


def end():  # with the tests, however they end
    sys.stdin.read()
    os._exit(0)


threading.Thread(target=end, daemon=True).start()
server.serve_forever()
"""


class S3Server:
    """Runs until ``stop``; ``environment`` makes any S3 client of a process use it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().decode().strip()
        assert port, "moto's server did not start"
        self._url = f"http://127.0.0.1:{port}"
        self.environment = {
            "AWS_ENDPOINT_URL": self._url,
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",  # or a client without keys asks the network
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    @contextlib.contextmanager
    def checking_keys(self) -> Iterator[None]:
        """Refuse keys that nobody was given, which are all; else any will do."""
        self._free_requests("0")
        try:
            yield
        finally:
            self._free_requests("inf")

    def _free_requests(self, count: str) -> None:
        request = urllib.request.Request(
            f"{self._url}/moto-api/reset-auth", count.encode(), {"Content-Type": "text/plain"}
        )
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(request, timeout=20) as answer:
            assert answer.status == 200

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait(20)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
