"""The service compiles what its spaces need before it is ready, and nothing inside a request."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.captured import captured
from whim.serve import wire
from whim.serve.http.service import Service
from whim.serve.jobs import background
from whim.serve.jobs.worker import Task, Worker
from whim.serve.settings import load
from whim.serve.starter import personalizer_config


def run(data: Path, act: Callable[[Service], Any] | None = None, **settings: Any) -> Service:
    """A service that was started, and closed after ``act``."""

    async def live() -> Service:
        service = Service(load(None, data=data, **settings))
        await service.start()
        await service.opened.wait()
        assert service.problem is None
        if act is not None:
            await act(service)
        await service.close()
        return service

    return asyncio.run(live())


def test_all_spaces_and_personalizers_are_compiled_before_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(background, "compile_for", lambda config: compiled.append(config.policy))

    async def make(service: Service) -> None:
        assert service.ready
        assert compiled == ["pslinucb-disjoint", "pslinucb-hybrid"]  # demo, Personalizer
        await service.create("drawn", wire.SpaceConfig(policy="lints"))

    run(tmp_path / "data", make)
    compiled.clear()
    run(tmp_path / "data")
    assert compiled == ["pslinucb-disjoint", "lints", "pslinucb-hybrid"]
    compiled.clear()
    run(tmp_path / "data", personalizer_space="drawn")  # which is a space already
    assert compiled == ["pslinucb-disjoint", "lints"]


def test_compiling_for_long_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(background, "_LONG_COMPILE", 0.05)
    monkeypatch.setattr(background, "compile_for", lambda config: time.sleep(0.2))
    with captured(capsys) as begin:
        said = begin()
        run(tmp_path / "data")
        lines = [line for line in said() if "compiling" in line]
    assert len(lines) == 1
    assert "compiling kernels for pslinucb-disjoint; cached for later starts" in lines[0]


@pytest.mark.parametrize("cached", [False, True])
def test_a_space_that_is_made_later_is_compiled_by_a_worker_once(
    cached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And by none if the cache has what it needs."""
    tasks: list[Task] = []
    here: list[str] = []

    async def work(self: Worker, task: Task, progress: Any = None) -> tuple[Any, list[bytes]]:
        tasks.append(task)
        return None, []

    def load(config: wire.SpaceConfig) -> bool:
        looked.append(config.policy)
        return cached

    looked: list[str] = []
    monkeypatch.setattr(Worker, "run", work)
    monkeypatch.setattr(background, "compile_for", lambda config: here.append(config.policy))
    monkeypatch.setattr(background, "load_for", load)

    async def make(service: Service) -> None:
        here.clear()
        for i, alpha in enumerate((0.1, 0.2)):
            await service.create(f"u{i}", wire.SpaceConfig(policy="ucb", params={"alpha": alpha}))
        await service.create("demo-2", wire.SpaceConfig())  # as the demo's

    run(tmp_path / "data", make)
    compiled = [t.config_row.config for t in tasks if t.do == "compile"]
    names = [config.policy for config in compiled if config is not None]
    assert names == ([] if cached else ["ucb"])
    assert here == (["ucb"] if cached else ["ucb", "ucb"]) + ["pslinucb-disjoint"]
    assert looked == ["ucb"]


def test_only_cached_kernels_are_loaded_where_nothing_may_be_compiled(tmp_path: Path) -> None:
    script = """
import sys
from whim.serve import wire
from whim.serve.state.policy import compile_for, load_for
config = wire.SpaceConfig(policy="ucb")
print(load_for(config))
if sys.argv[1] == "compile":
    compile_for(config)
    print(load_for(config))
"""

    def loaded(how: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script, how], stdout=subprocess.PIPE, text=True, check=True,
            env={**os.environ, "WHIM_CACHE_DIR": str(tmp_path)},
        )  # fmt: skip
        return done.stdout

    assert loaded("compile") == "False\nTrue\n"
    assert loaded("load") == "True\n"


_FIRST_REQUESTS = """
    import os
    import sys
    from pathlib import Path
    import msgspec
    from numba.core.dispatcher import Dispatcher
    from whim.serve import wire
    from whim.serve.state.engine import Engine
    from whim.serve.state.policy import compile_for

    compiled, plain = [], Dispatcher.compile

    def compile(self, sig):
        compiled.append(self.py_func.__name__)
        return plain(self, sig)

    def first_requests(data, config):
        engine = Engine(data)
        engine.create("s", config)
        for i in range(60):
            candidates = ["a", "b", f"c{i}"]
            if config.items.fields or config.items.rest or config.items.size:
                candidates = [wire.Candidate(a, {"x": float(i)}) for a in candidates]
            context = {"y": i} if config.context.rest else [float(i % 3)] * config.context.size
            key = f"d{i}"
            body = wire.DecisionBody(candidates=candidates, context=context, decision_id=key)
            engine.decide("s", body, b"")
            engine.reward("s", wire.RewardBody(decision_id=key, value=float(i % 2)))
        engine.retire_arms("s", ["b"])
        engine.store.flush()
        engine.snapshot("s")
        engine.close()
        Engine(data).close()

    Dispatcher.compile = compile
    for name, config in msgspec.json.decode(sys.argv[2], type=dict[str, wire.SpaceConfig]).items():
        for how in ("cold", "warm"):
            if os.fork():  # each in a process in which nothing has been compiled yet
                assert os.wait()[1] == 0
                continue
            if how == "warm":
                compile_for(config)
                compiled.clear()
            first_requests(Path(sys.argv[1], f"{name}-{how}"), config)
            print(name, how, *sorted(set(compiled)), flush=True)
            os._exit(0)
"""
_CONFIGS = {
    config.policy: config
    for config in (
        wire.SpaceConfig(context=wire.Features(size=3)),
        wire.SpaceConfig(policy="lints", context=wire.Features(size=2)),
        wire.SpaceConfig(policy="ducb", context=wire.Features(), params={"gamma": 0.99}),
        personalizer_config(),
    )
}


def test_first_requests_compile_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_FIRST_REQUESTS), str(tmp_path),
         msgspec.json.encode(_CONFIGS).decode()],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    compiled = {tuple(words[:2]): words[2:] for words in map(str.split, done.stdout.splitlines())}
    assert len(compiled) == 2 * len(_CONFIGS) == 8
    for name in _CONFIGS:
        assert compiled[name, "cold"]  # or this test would see nothing
        assert compiled[name, "warm"] == []
