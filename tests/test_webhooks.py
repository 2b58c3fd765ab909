"""Webhooks against a real server: order, failures, restarts, signatures, and what is not said."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import sqlite3
import time
from types import SimpleNamespace

import httpx
import pytest

from tests.captured import captured
from whim.serve.http.metrics import Metrics
from whim.serve.jobs.webhooks import Webhooks, wait_before
from whim.serve.settings import ConfigError, load


class Receiver:
    """An HTTP server on the test's loop that does as it is told."""

    def __init__(self, answer=lambda request: 200):
        self.answer = answer
        self.got = []
        self.hanging = set()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/hook-path"
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for task in list(self.hanging):
            task.cancel()
        await asyncio.gather(*self.hanging, return_exceptions=True)
        await self.server.wait_closed()

    async def _serve(self, reader, writer):
        self.hanging.add(asyncio.current_task())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {k.lower(): v for k, _, v in (h.partition(": ") for h in head[1:] if h)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            request = SimpleNamespace(line=head[0], headers=headers, body=body)
            request.change = json.loads(body)["change"] if body else None
            self.got.append(request)
            status = self.answer(request)
            if status == "hang":
                await asyncio.sleep(3600)
            if status == "drip":  # a byte now and then keeps a read from timing out
                for _ in range(3600):
                    writer.write(b"H")
                    await writer.drain()
                    await asyncio.sleep(0.05)
            more = f"location: {self.url}/elsewhere\r\n" if 300 <= status < 400 else ""
            writer.write(f"HTTP/1.1 {status} x\r\n{more}content-length: 0\r\n\r\n".encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.hanging.discard(asyncio.current_task())
            writer.close()

    def n(self):
        return [request.change["n"] for request in self.got]


class Changes:
    """What a log would say: changes by space, some of which share a row."""

    def __init__(self, **spaces):
        self.spaces = {name: list(found) for name, found in spaces.items()}

    def add(self, space, seq, n, version=1):
        change = {"seq": seq, "space": space, "version": version, "n": n, "p_value": None}
        self.spaces.setdefault(space, []).append(change)

    def read(self, space, since, most=3):
        return [c for c in self.spaces.get(space, []) if c["seq"] > since][:most]

    def names(self):
        return list(self.spaces)


class Tally(Metrics):
    """Metrics whose outcomes a test can read."""

    @property
    def outcomes(self):
        return {k: v for k, v in self._webhooks.items() if v}


@contextlib.asynccontextmanager
async def delivering(tmp_path, changes, *urls, metrics=None, hooks=None, **more):
    settings = load(None, webhooks=hooks or [{"url": url} for url in urls])
    more = {"backoff": lambda attempt: 0.001, "timeout": 5.0, **more}
    count = None if metrics is None else metrics.webhook
    made = Webhooks(settings, tmp_path, changes.read, changes.names, count, **more)
    running = asyncio.create_task(made.run())
    await asyncio.sleep(0)
    try:
        yield made
    finally:
        await made.close()
        await running


async def until(condition, seconds=5.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


@pytest.fixture
def no_proxy(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


pytestmark = pytest.mark.usefixtures("no_proxy")


@pytest.fixture
def logs(capsys):
    with captured(capsys) as begin:
        yield begin


def test_a_change_is_posted_signed_and_counted(tmp_path, monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", "s3cret")
    changes, tally = Changes(news=[]), Tally()

    async def main():
        async with Receiver() as there:
            hooks = [{"url": there.url, "secret_env": "HOOK_SECRET"}]
            async with delivering(
                tmp_path, changes, hooks=hooks, metrics=tally, clock=lambda: 1700000000.9
            ) as made:
                changes.add("news", 7, 0, version=3)
                made.wake("news")
                await until(lambda: tally.outcomes)
            return there.got

    (request,) = asyncio.run(main())
    assert request.line == "POST /hook-path HTTP/1.1"
    assert json.loads(request.body) == {"type": "change", "change": changes.spaces["news"][0]}
    told = request.headers
    assert told["content-type"] == "application/json"
    assert told["user-agent"].startswith("whim/")
    assert told["whim-event"] == "change"
    assert told["whim-delivery"] == "news:3:7:0"
    assert told["whim-timestamp"] == "1700000000"
    wanted = hmac.new(b"s3cret", b"1700000000." + request.body, hashlib.sha256).hexdigest()
    assert told["whim-signature"] == f"sha256={wanted}"
    assert tally.outcomes == {"delivered": 1}


def test_without_a_secret_there_is_no_signature(tmp_path):
    changes = Changes(news=[])

    async def main():
        async with Receiver() as there, delivering(tmp_path, changes, there.url) as made:
            changes.add("news", 1, 0)
            made.wake("news")
            await until(lambda: there.got)
            assert "whim-signature" not in there.got[0].headers

    asyncio.run(main())


@pytest.mark.parametrize("value", [None, ""])
def test_a_secret_that_is_not_set_is_an_error_at_the_start(tmp_path, monkeypatch, value):
    monkeypatch.delenv("HOOK_SECRET", raising=False)
    if value is not None:
        monkeypatch.setenv("HOOK_SECRET", value)
    settings = load(None, webhooks=[{"url": "http://a.example", "secret_env": "HOOK_SECRET"}])
    with pytest.raises(ConfigError, match=r"webhooks\[0\]\.secret_env must name a variable"):
        Webhooks(settings, tmp_path, lambda space, since: [], lambda: [])


@pytest.mark.parametrize("bad", [500, 404, 302, 307, 429])
def test_it_tries_again_in_order_and_follows_no_redirect(tmp_path, bad):
    changes, tally = Changes(news=[]), Tally()
    for i in range(5):
        changes.add("news", 10 + i, i)
    answers = iter([bad, bad, 200, bad, 204, 201, bad, 202, 200])
    waits = []

    def backoff(attempt):
        waits.append(attempt)
        return 0.001

    async def main():
        begin = Changes(news=[])
        async with Receiver(lambda request: next(answers)) as there:
            async with delivering(tmp_path, begin, there.url):
                pass
            async with delivering(tmp_path, changes, there.url, metrics=tally, backoff=backoff):
                await until(lambda: tally.outcomes.get("delivered") == 5)
            return there

    there = asyncio.run(main())
    assert there.n() == [0, 0, 0, 1, 1, 2, 3, 3, 4]
    assert all("elsewhere" not in request.line for request in there.got)
    assert waits == [1, 2, 1, 1]
    assert tally.outcomes == {"delivered": 5, "failed": 4}


def test_waits_grow_to_five_minutes_and_not_in_step():
    for attempt, low, high in ((1, 1, 2), (4, 8, 16), (9, 150, 300), (10_000, 150, 300)):
        found = [wait_before(attempt) for _ in range(200)]
        assert low <= min(found)
        assert max(found) <= high
        assert len(set(found)) > 50


def test_a_new_address_begins_now_and_a_new_space_with_its_first(tmp_path):
    changes = Changes(old=[])
    for i in range(10):  # more than one reading gives
        changes.add("old", i + 1, i)

    async def main():
        async with Receiver() as there, delivering(tmp_path, changes, there.url) as made:
            await asyncio.sleep(0.05)
            assert there.got == []
            changes.add("old", 11, 10)
            made.wake("old")
            changes.add("new", 12, 11)
            changes.add("new", 13, 12)
            made.wake("new")
            await until(lambda: len(there.got) == 3)
            return there

    assert sorted(asyncio.run(main()).n()) == [10, 11, 12]


def test_spaces_of_another_log_have_numbers_of_their_own(tmp_path):
    changes = Changes()
    changes.add("here", 90, "old")
    changes.add("there", 5, "old")

    async def main():
        counted = {"counted": lambda space: space == "here"}
        async with Receiver() as to, delivering(tmp_path, changes, to.url, **counted) as made:
            for space, seq in (("there", 6), ("new", 1), ("here", 91)):
                changes.add(space, seq, f"{space} {seq}")
                made.wake(space)
            await until(lambda: len(to.got) == 3)
            return to

    assert sorted(asyncio.run(main()).n()) == ["here 91", "new 1", "there 6"]


def test_a_space_made_while_it_was_down_is_not_missed(tmp_path):
    changes = Changes(old=[])
    changes.add("old", 5, 0)

    async def main():
        async with Receiver() as there:
            async with delivering(tmp_path, changes, there.url):
                pass
            changes.add("new", 8, 1)
            async with delivering(tmp_path, changes, there.url):
                await until(lambda: there.got)
            return there

    assert asyncio.run(main()).n() == [1]


def test_only_spaces_asked_for_and_one_asked_for_later_begins_now(tmp_path):
    changes = Changes(a=[], b=[], c=[])

    async def main():
        async with Receiver() as there:
            hooks = [{"url": there.url, "spaces": ["a"]}]
            async with delivering(tmp_path, changes, hooks=hooks) as made:
                for i, space in enumerate("abc"):
                    changes.add(space, i + 1, i)
                    made.wake(space)
                await until(lambda: there.got)
                await asyncio.sleep(0.03)
                assert there.n() == [0]
            hooks[0]["spaces"] = ["a", "b"]
            async with delivering(tmp_path, changes, hooks=hooks) as made:
                for i, space in enumerate("abc"):
                    changes.add(space, i + 11, i + 10)
                    made.wake(space)
                await until(lambda: len(there.got) == 3)
                await asyncio.sleep(0.03)
            return there

    assert sorted(asyncio.run(main()).n()) == [0, 10, 11]


class Moved(httpx.AsyncHTTPTransport):
    """Sends to where the test's server is."""

    def __init__(self, url):
        super().__init__()
        self.url = httpx.URL(url)

    async def handle_async_request(self, request):
        request.url = self.url
        return await super().handle_async_request(request)


def test_a_restart_goes_on_within_a_row(tmp_path):
    changes = Changes(news=[])
    changes.read = lambda space, since: [c for c in changes.spaces[space] if c["seq"] > since]

    async def life():
        """Takes three, then fails until the service ends; what it got."""
        async with (
            Receiver(lambda request: 200 if len(there.got) <= 3 else 500) as there,
            httpx.AsyncClient(transport=Moved(there.url)) as client,
            delivering(tmp_path, changes, "http://hook.example/x", client=client),
        ):
            if changes.spaces["news"]:
                await until(lambda: len(there.got) > 3 or 8 in there.n())
        return there.n()

    assert asyncio.run(life()) == []
    for n, seq in enumerate([4, 9, 9, 9, 9, 9, 9, 9, 12]):
        changes.add("news", seq, n)
    assert asyncio.run(life())[:4] == [0, 1, 2, 3]
    assert asyncio.run(life())[:4] == [3, 4, 5, 6]
    assert asyncio.run(life()) == [6, 7, 8]


def test_a_delivery_keeps_its_name(tmp_path):
    changes = Changes(news=[])
    answers = iter([200, 500, 200, 200])

    async def main():
        async with Receiver(lambda request: next(answers)) as there:
            async with delivering(tmp_path, changes, there.url) as made:
                for n in range(3):
                    changes.add("news", 9, n)
                made.wake("news")
                await until(lambda: len(there.got) == 4)
            return [request.headers["whim-delivery"] for request in there.got]

    assert asyncio.run(main()) == ["news:1:9:0", "news:1:9:1", "news:1:9:1", "news:1:9:2"]


@pytest.mark.parametrize("how", ["hang", "drip"])
def test_an_address_that_hangs_delays_no_other_and_is_tried_again(tmp_path, how):
    changes, tally = Changes(news=[]), Tally()

    async def main():
        async with Receiver(lambda request: how) as bad, Receiver() as good:
            async with delivering(
                tmp_path, changes, bad.url, good.url, metrics=tally, timeout=1.0
            ) as made:
                for n in range(6):
                    changes.add("news", n + 1, n)
                made.wake("news")
                await until(lambda: len(good.got) == 6)
                assert len(bad.got) == 1
                await until(lambda: len(bad.got) == 2)
            assert bad.n() == [0, 0]
            assert good.n() == list(range(6))

    asyncio.run(main())
    assert tally.outcomes["failed"] == 1


def test_closing_does_not_wait_for_one_that_hangs(tmp_path):
    changes = Changes(news=[])

    async def main():
        async with Receiver(lambda request: "hang") as bad:
            async with delivering(tmp_path, changes, bad.url, timeout=60) as made:
                changes.add("news", 1, 0)
                made.wake("news")
                await until(lambda: bad.got)
                began = time.perf_counter()
            assert time.perf_counter() - began < 1
            await made.close()  # twice does no harm
            made.wake("news")

    asyncio.run(main())


def test_nobody_there_is_a_failure_like_others(tmp_path):
    changes, tally = Changes(news=[]), Tally()

    async def main():
        async with Receiver() as there:
            url = there.url
        async with delivering(tmp_path, changes, url, metrics=tally) as made:
            changes.add("news", 1, 0)
            made.wake("news")
            await until(lambda: tally.outcomes.get("failed", 0) >= 3)

    asyncio.run(main())


def test_gone_pauses_an_address_until_a_restart(tmp_path, logs):
    lines = logs(log_format="json")
    changes, tally = Changes(a=[], b=[]), Tally()
    status = [410]

    async def main():
        async with Receiver(lambda request: status[0]) as there:
            async with delivering(tmp_path, changes, there.url, metrics=tally) as made:
                changes.add("a", 1, 0)
                made.wake("a")
                await until(lambda: tally.outcomes.get("gone"))
                changes.add("b", 2, 1)
                made.wake("b")
                made.wake("a")
                await asyncio.sleep(0.05)
                assert there.n() == [0]
            status[0] = 200
            async with delivering(tmp_path, changes, there.url):
                await until(lambda: len(there.got) == 3)
            return there

    assert sorted(asyncio.run(main()).n()) == [0, 0, 1]
    assert sum("gone" in line for line in lines()) == 1


def test_what_cannot_be_read_is_tried_again(tmp_path, logs):
    lines = logs(log_format="json")
    changes = Changes(news=[])
    read, fails = changes.read, [0]

    def broken(space, since):
        if changes.spaces["news"] and fails[0] < 3:
            fails[0] += 1
            raise sqlite3.OperationalError("database is locked")
        return read(space, since)

    changes.read = broken

    async def main():
        async with Receiver() as there, delivering(tmp_path, changes, there.url) as made:
            changes.add("news", 1, 0)
            made.wake("news")
            await until(lambda: there.got)

    asyncio.run(main())
    assert sum("cannot be read" in line for line in lines()) == 3


def test_a_retired_space_lets_go_and_can_come_back(tmp_path):
    changes = Changes(news=[])

    async def main():
        async with Receiver() as there, delivering(tmp_path, changes, there.url) as made:
            del changes.spaces["news"]
            made.wake("news")
            await until(lambda: all(task.done() for task, _ in made._lanes.values()))
            changes.add("news", 20, 5)
            made.wake("news")
            await until(lambda: there.n() == [5])

    asyncio.run(main())


def test_waking_from_another_thread(tmp_path):
    changes = Changes(news=[])

    async def main():
        async with Receiver() as there, delivering(tmp_path, changes, there.url) as made:
            await asyncio.sleep(0.02)

            def work():
                for n in range(50):
                    changes.add("news", n + 1, n)
                    made.wake("news")

            await asyncio.to_thread(work)
            await until(lambda: len(there.got) == 50)
            return there

    assert asyncio.run(main()).n() == list(range(50))


def test_many_spaces_make_few_requests_at_once(tmp_path):
    changes = Changes(**{f"s{i}": [] for i in range(30)})

    async def main():
        async with (
            Receiver(lambda request: "hang") as bad,
            Receiver() as good,
            delivering(tmp_path, changes, bad.url, good.url, timeout=60) as made,
        ):
            for i in range(30):
                changes.add(f"s{i}", i + 1, i)
                made.wake(f"s{i}")
            await until(lambda: len(good.got) == 30)
            assert len(bad.got) == 4

    asyncio.run(main())


def test_damaged_cursors_are_set_aside_and_said(tmp_path, logs):
    lines = logs(log_format="json")
    (tmp_path / "webhooks.db").write_bytes(b"not a database" * 1000)
    changes = Changes(news=[])
    changes.add("news", 1, 0)

    async def main():
        async with Receiver() as there, delivering(tmp_path, changes, there.url) as made:
            changes.add("news", 2, 1)
            made.wake("news")
            await until(lambda: there.n() == [1])

    asyncio.run(main())
    assert (tmp_path / "webhooks.db.damaged").exists()
    assert "set aside" in lines()[0]


def test_no_directory_for_cursors_is_an_error(tmp_path):
    settings = load(None, webhooks=[{"url": "http://a.example"}])
    with pytest.raises(ConfigError, match=r"webhooks\.db must be writable"):
        Webhooks(settings, tmp_path / "none", lambda space, since: [], lambda: [])


def test_no_webhooks_touch_nothing(tmp_path):
    async def main():
        async with delivering(tmp_path, Changes(news=[]), hooks=[]) as made:
            made.wake("news")
            await asyncio.sleep(0)

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_neither_secrets_nor_addresses_are_logged_or_kept(tmp_path, monkeypatch, logs, log_format):
    monkeypatch.setenv("HOOK_SECRET", "hidden-secret")
    lines = logs(log_format=log_format, log_level="debug")
    changes, tally = Changes(news=[]), Tally()
    answers = iter([500, "hang", 302, 200, 410])

    async def main():
        async with Receiver(lambda request: next(answers)) as there:
            url = there.url.replace("//", "//user:hidden-word@") + "/hidden-path?t=hidden-query"
            hooks = [{"url": url, "secret_env": "HOOK_SECRET"}]
            async with delivering(
                tmp_path, changes, hooks=hooks, metrics=tally, timeout=0.2
            ) as made:
                changes.add("news", 1, "hidden-body")
                changes.add("news", 2, "hidden-body")
                made.wake("news")
                await until(lambda: tally.outcomes.get("gone"))
            assert there.got[0].headers["authorization"].startswith("Basic ")

    asyncio.run(main())
    text = "\n".join(lines())
    assert "not delivered" in text
    assert "status 500" in text
    assert "TimeoutError" in text
    assert "127.0.0.1:" in text
    assert "hidden" not in text
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"hidden" not in kept
