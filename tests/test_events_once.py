"""Changes are delivered once, whatever is configured meanwhile; streams end with their key."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.clocks import Clock
from tests.test_webhooks import Changes, Receiver, delivering, no_proxy, until  # noqa: F401
from whim.serve.http.handlers import stream_changes
from whim.serve.http.keys import Keys
from whim.serve.http.routes import Call
from whim.serve.http.service import Service
from whim.serve.log.rows import Change
from whim.serve.log.store import pack_changes
from whim.serve.settings import ConfigError, Settings, load
from whim.serve.state import recovery
from whim.serve.state.engine import Engine
from whim.serve.state.served import ServedChanges
from whim.serve.wire import DecisionBody, SpaceConfig
from whim.types import ChangeEvent

SPACE = "news"
UCB = SpaceConfig(policy="ucb")


def event(arm: str) -> ChangeEvent:
    one = np.zeros(1)
    return ChangeEvent(arm, 1, 1, 2.0, 1.0, one, one, 0)


class Reported:
    """An engine whose versions report what a test says."""

    def __init__(self, data: Path) -> None:
        self.engine = Engine(data, clock=Clock(1_800_000_000 * 10**9))
        self.engine.create(SPACE, UCB)
        self.served = ServedChanges(self.engine.store)

    def report(self, arm: str) -> Change:
        """A row, and a change that it reveals to the version that serves."""
        engine = self.engine
        engine.decide(SPACE, DecisionBody(candidates=["a"], context=[1.0]), b"{}")
        change, space = Change(engine.seq, engine.now(), event(arm)), engine.space(SPACE)
        engine.store.append([], [], pack_changes(space.number, space.state.version, [change]))
        engine.store.flush()
        return change

    def rebuild(self, found: list[Change]) -> None:
        """Another version, which has these changes in the rows so far."""
        engine = self.engine
        version = engine.change(SPACE, UCB)
        engine.store.flush()
        number, wanted = engine.wanted(SPACE)
        state, _ = recovery.rebuild(engine.store, number, wanted)
        packed = pack_changes(number, version, found)
        engine.swap(SPACE, recovery.Rebuilt(number, state, packed))
        engine.store.flush()

    def read(self, space: str, since: int) -> list[dict[str, Any]]:
        return self.served.after(space, since)

    def names(self) -> list[str]:
        return self.served.names


@pytest.fixture
def reported(tmp_path: Path) -> Any:
    made = Reported(tmp_path / "data")
    yield made
    made.engine.close()


@pytest.mark.usefixtures("no_proxy")
def test_another_version_loses_no_change_and_repeats_none(
    tmp_path: Path, reported: Reported
) -> None:
    taken = True

    async def run() -> None:
        nonlocal taken
        async with Receiver(lambda request: 200 if taken else 500) as there:

            def arms() -> list[str]:
                return [request.change["arm"] for request in there.got]

            async with delivering(tmp_path, reported, there.url) as hooks:
                first = reported.report("first")
                hooks.wake(SPACE)
                await until(lambda: arms() == ["first"])
                taken = False
                second = reported.report("second")
                hooks.wake(SPACE)
                await until(lambda: len(there.got) > 2)
            # the new version has seen the first change a row later, and the second not at all
            reported.rebuild([first._replace(seq=second.seq, event=event("first again"))])
            taken, there.got = True, []
            async with delivering(tmp_path, reported, there.url) as hooks:
                await until(lambda: arms() == ["second"])
                reported.report("third")
                hooks.wake(SPACE)
                await until(lambda: len(there.got) == 2)
                await asyncio.sleep(0.05)
                assert arms() == ["second", "third"]
                assert [r.change["version"] for r in there.got] == [1, 2]
                taken = False
                reported.report("fourth")
            reported.engine.retire(SPACE)  # with one on its way
            reported.engine.store.flush()
            taken, there.got = True, []
            async with delivering(tmp_path, reported, there.url):
                await until(lambda: arms() == ["fourth"])

    asyncio.run(run())


@pytest.mark.usefixtures("no_proxy")
def test_another_configuration_loses_no_change_and_repeats_none(tmp_path: Path) -> None:
    async def run() -> None:
        async with Receiver(lambda request: 200) as there, Receiver(lambda request: 500) as down:
            changes = Changes(a=[], b=[])
            hook: dict[str, Any] = {"url": down.url}
            async with delivering(tmp_path, changes, hooks=[hook]) as hooks:
                changes.add("b", 5, "b5")
                hooks.wake("b")
                await until(lambda: len(down.got) > 1)
            hook["spaces"] = ["a"]
            async with delivering(tmp_path, changes, hooks=[hook]):
                pass
            hook["spaces"] = []
            hook["name"] = "desk"  # what had no name goes on under one
            async with delivering(tmp_path, changes, hooks=[hook]):
                changes.add("a", 6, "a6")
            hook["url"] = there.url  # and with a name the address may change
            async with delivering(tmp_path, changes, hooks=[hook]):
                await until(lambda: len(there.got) == 2)
                assert sorted(there.n()) == ["a6", "b5"]
                await asyncio.sleep(0.3)  # until the answers have been noted: a stop before repeats
            there.got = []
            async with delivering(tmp_path, changes, hooks=[hook]) as hooks:
                changes.add("b", 9, "b9")
                hooks.wake("b")
                await until(lambda: there.n() == ["b9"])

    asyncio.run(run())


def test_names_of_webhooks_differ() -> None:
    hooks = [{"url": f"http://{i}.example", "name": "desk"} for i in range(2)]
    with pytest.raises(ConfigError, match=r"webhooks\[1\]\.name must differ .* webhooks\[0\]"):
        load(None, webhooks=hooks)


@contextlib.asynccontextmanager
async def listener(service: Service, key: Any) -> AsyncIterator[asyncio.Task[None]]:
    """A stream that is open."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        await asyncio.sleep(3600)

    scope: Any = {"method": "GET", "headers": []}
    call = Call(scope, receive, send, {"space": SPACE}, None, key, {"since": 0})
    task = asyncio.ensure_future(stream_changes(service, call))
    while len(sent) < 2:
        await asyncio.sleep(0.01)
    try:
        yield task
    finally:
        task.cancel()


def test_a_stream_ends_with_its_key(tmp_path: Path) -> None:
    data = tmp_path / "data"
    Reported(data).engine.close()
    keys = Keys(data / "keys.json")

    async def run() -> None:
        settings = Settings(data=str(data), demo=False, personalizer_space=SPACE)
        service = Service(settings)
        await service.start()
        await service.opened.wait()
        try:
            async with listener(service, None) as open_to_all:
                tokens = [keys.make(name, ["read"]) for name in ("one", "two")]
                await asyncio.wait([open_to_all], timeout=5)
                assert open_to_all.done()  # there are keys now, and it has none
            one, two = (service.keys.check(token) for token in tokens)
            assert one is not None
            async with listener(service, one) as first, listener(service, two) as second:
                keys.revoke("one")
                await asyncio.wait([first], timeout=5)
                assert first.done()
                assert not second.done()
        finally:
            await service.close()

    asyncio.run(run())
