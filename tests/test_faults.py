"""Disks, files, clocks and helpers that fail: the service says so or recovers, and is never wrong.

Real processes over HTTP; only the clock, which no process can set for itself, is a made one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from tests.crashes import CONFIG, SPACE, Service, Told, check, children, kills, no_more_room
from tests.in_process import running
from whim.cli.app import app
from whim.serve.jobs.tasks import Tasks
from whim.serve.jobs.worker import Task, Worker, WorkerError
from whim.serve.log.configs import open_spaces
from whim.serve.log.store import LogReader, Store
from whim.serve.server import _loop
from whim.serve.settings import Settings
from whim.serve.state.engine import Engine

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs limits and mounts of Linux")
PATH = f"/v1/spaces/{SPACE}"


def body_of(key: str) -> dict[str, Any]:
    """The same for the same id, so that it can be asked again."""
    chance = random.Random(key)
    context = [round(chance.uniform(-1, 1), 3) for _ in range(3)]
    return {"decision_id": key, "context": context, "candidates": [f"a{i}" for i in range(9)]}


def drive(service: Service, told: Told, name: str, n: int) -> tuple[int, Any]:
    """Decide and reward, and remember what was said, until something is refused."""
    for i in range(n):
        key = f"{name}-{i}"
        status, found = service.ask("POST", f"{PATH}/decisions", body_of(key))
        if status != 200:
            return status, found
        told.decisions[key] = found
        reward = {"decision_id": key, "value": float(i % 3 == 0), "reward_id": f"r-{key}"}
        status, found = service.ask("POST", f"{PATH}/rewards", reward)
        if status != 200:
            return status, found
        told.rewards[f"r-{key}"] = found["state"]
    return 200, None


def start(data: Path, snapshots: float = 60.0) -> Service:
    data.mkdir(parents=True, exist_ok=True)
    settings = data.parent / "whim.toml"
    settings.write_text(f"snapshot_seconds = {snapshots}\ndemo = false\n")
    made = Service(data, "--config", str(settings))
    try:
        made.wait()
        if made.ask("GET", PATH)[0] == 404:
            assert made.ask("POST", "/v1/spaces", CONFIG)[0] == 201
    except BaseException:
        made.stop(signal.SIGKILL)
        raise
    return made


def filled(data: Path, n: int, snapshots: float = 60.0) -> Told:
    """A directory with so many decisions; the service has ended in good order."""
    told = Told()
    with start(data, snapshots) as made:
        assert drive(made, told, "d", n)[0] == 200
        if snapshots < 1:
            last = LogReader(data / "log.db").last()[0]
            time.sleep(2.5)  # until all that waits has ended: nothing comes by itself from then on
            wait_for(lambda: (rebuilt(data)["snapshot"] or 0) >= last)
        assert made.stop() == 0
    return told


def wait_for(ready: Callable[[], Any], seconds: float = 60) -> Any:
    until = time.monotonic() + seconds
    while not (found := ready()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return found


def rebuilt(data: Path) -> dict[str, Any]:
    """What ``whim rebuild`` says of the space."""
    made = CliRunner().invoke(app, ["rebuild", "--data", str(data), "--json"])
    assert made.exit_code == 0, made.output
    (found,) = json.loads(made.stdout)["spaces"]
    assert isinstance(found, dict)
    return found


def must_refuse(data: Path, *words: str) -> None:
    """It does not start, and says why in a sentence."""
    with Service(data) as made:
        code = made.process.wait(60)
        made.stop()
        said = "".join(made.said)
    assert code not in (0, -signal.SIGKILL, -signal.SIGABRT)
    assert "Traceback" not in said
    for word in words:
        assert word in said, said


# -- disks ------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(at: Path, size: str) -> Iterator[None]:
    """A file system of so many bytes."""
    at.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def remount(at: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(at)], check=True)


@LINUX
@pytest.mark.parametrize("how", ["limit", "disk"])
def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path, how: str) -> None:
    data = tmp_path / "disk" / "data"
    told = Told()
    with contextlib.ExitStack() as held:
        if how == "disk":
            held.enter_context(small_disk(tmp_path / "disk", "1m"))
        made = held.enter_context(start(data))
        if how == "limit":
            no_more_room(made, 1_000_000)
        status, found = drive(made, told, "full", 5000)
        assert (status, found["error"]["code"]) == (503, "store_failed")
        assert "cannot be written" in found["error"]["message"]
        assert len(told.decisions) > 20
        for path in ("/healthz", "/readyz"):
            status, found = made.ask("GET", path)
            assert (status, found["status"]) == (503, "failed")
            assert "cannot be written" in found["reason"]
        more = {"decision_id": "full-0", "value": 1.0}
        assert made.ask("POST", f"{PATH}/rewards", more)[0] == 503
        assert made.ask("POST", f"{PATH}/decisions", body_of("full-0"))[0] == 503
        assert made.ask("POST", "/v1/spaces", {**CONFIG, "name": "more"})[0] == 503
        assert made.ask("GET", f"/spaces/{SPACE}")[0] == 200  # the page can still be read
        made.stop()
        assert "Traceback" not in "".join(made.said)
        if how == "disk":
            remount(tmp_path / "disk", "size=64m")
        check(data, told)
        with start(data) as again:
            for key, answer in list(told.decisions.items())[-20:]:
                assert again.ask("POST", f"{PATH}/decisions", body_of(key)) == (200, answer)
            assert drive(again, told, "more", 20)[0] == 200
            assert again.stop() == 0
        check(data, told)


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    must_refuse(file, "data must be a directory", "file")
    (tmp_path / "odd" / "log.db").mkdir(parents=True)
    must_refuse(tmp_path / "odd", "log.db must be")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "log.db").write_text("this is no database, but it is long enough " * 100)
    must_refuse(tmp_path / "text", "log.db must be", "not a database")


@LINUX
@pytest.mark.parametrize("before", ["new", "filled"])
def test_a_read_only_directory(tmp_path: Path, before: str) -> None:
    disk = tmp_path / "disk"
    data = disk / "data"
    with contextlib.ExitStack() as held:
        if os.geteuid() == 0:  # whom permissions do not stop
            held.enter_context(small_disk(disk, "16m"))
        if before == "filled":
            filled(data, 5)
        elif os.geteuid() != 0:
            disk.mkdir()
        if os.geteuid() == 0:
            remount(disk, "ro")
        else:
            (data if before == "filled" else disk).chmod(0o500)
        must_refuse(data, "data must be a directory that can be written to")
        if os.geteuid() != 0:
            (data if before == "filled" else disk).chmod(0o700)


# -- files ------------------------------------------------------------------------------------


def damaged(path: Path, at: int, size: int, seed: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(random.Random(seed).randbytes(size))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Told, str]:
    """A directory in good order, what was acknowledged for it, and its state."""
    data = tmp_path_factory.mktemp("sound") / "data"
    told = filled(data, 150, snapshots=0.3)
    return data, told, rebuilt(data)["digest"]


@pytest.mark.parametrize("size", [64, 8192])
def test_a_damaged_log_is_never_taken_for_the_truth(
    tmp_path: Path, sound: tuple[Path, Told, str], size: int
) -> None:
    data = tmp_path / "data"
    whole = (sound[0] / "log.db").read_bytes()
    page = int.from_bytes(whole[16:18], "big")
    places = list(range(0, len(whole), page))
    assert len(places) > 10
    refused = 0
    for seed, place in enumerate(random.Random(size).sample(places, 3)):
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(sound[0], data)
        damaged(data / "log.db", place + (page - size) // 2, size, seed)
        refused += not _same_or_refused(data, sound[1])
    assert refused


def _same_or_refused(data: Path, told: Told) -> bool:
    """Every answer is the one that was given; or it says that it cannot tell, from then on."""
    with Service(data) as made:
        try:
            made.wait()
        except AssertionError:
            assert made.process.wait(60) == 1
            made.stop()
            said = "".join(made.said)
            assert "Traceback" not in said
            assert "log.db" in said
            return False
        for key, answer in told.decisions.items():
            status, found = made.ask("POST", f"{PATH}/decisions", body_of(key))
            if status == 503:
                assert found["error"]["code"] == "store_failed"
                assert made.ask("GET", "/healthz")[0] == 503
                return False
            assert (status, found) == (200, answer)
        made.stop()
        assert "Traceback" not in "".join(made.said)
    return True


def test_a_damaged_index_is_found_behind_the_scenes(
    tmp_path: Path, sound: tuple[Path, Told, str]
) -> None:
    data = tmp_path / "data"
    shutil.copytree(sound[0], data)
    log = data / "log.db"
    whole = bytearray(log.read_bytes())
    page = int.from_bytes(whole[16:18], "big")
    key = next(iter(sound[1].decisions)).encode()
    leaves = [at for at in range(page, len(whole), page) if whole[at] == 10]  # of an index
    at = next(
        whole.index(key, leaf, leaf + page) for leaf in leaves if key in whole[leaf : leaf + page]
    )
    whole[at] ^= 1  # the row is sound, and cannot be found by its id
    log.write_bytes(whole)
    with Service(data) as made:
        made.wait()
        health = wait_for(
            lambda: made.ask("GET", "/healthz")[0] == 503 and made.ask("GET", "/healthz")
        )
        assert "log.db must be sound" in health[1]["reason"]
        status, found = made.ask("POST", f"{PATH}/decisions", body_of("another"))
        assert (status, found["error"]["code"]) == (503, "store_failed")
        assert made.ask("GET", PATH)[0] == 200  # what is known can be read


@pytest.mark.parametrize("damage", ["cut", "empty", "junk", "middle", "gone", "directory"])
def test_snapshots_that_are_damaged_are_done_without(
    tmp_path: Path, sound: tuple[Path, Told, str], damage: str
) -> None:
    data = tmp_path / "data"
    shutil.copytree(sound[0], data)
    path = data / "snapshots.db"
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "middle":
        damaged(path, len(whole) // 2, 2000, 1)
    elif damage == "junk":
        path.write_bytes(random.Random(2).randbytes(20_000))
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
        if damage == "directory":
            path.mkdir()
    if damage == "middle":  # one of them by the service itself
        with start(data, snapshots=0.3) as made:
            stats = made.ask("GET", f"{PATH}/stats")[1]
            assert stats["counts"]["decisions"] == len(sound[1].decisions)
            wait_for(lambda: rebuilt(data)["snapshot"])  # a new one
            assert made.stop() == 0
            assert "Traceback" not in "".join(made.said)
    else:
        engine = Engine(data)
        assert engine.space(SPACE).state.digest() == sound[2]
        number, row = engine.in_force(SPACE)
        engine.close()
        Tasks(data).do(Task("snapshot", number, row), lambda share: None)
    found = rebuilt(data)
    assert found["equal"]
    assert found["digest"] == sound[2]
    check(data, sound[1])


# -- helpers ----------------------------------------------------------------------------------


@LINUX
def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    data = tmp_path / "data"
    told = Told()
    with start(data, snapshots=0.3) as made:
        for turn in range(3):
            assert drive(made, told, f"t{turn}", 20)[0] == 200
            for process in wait_for(lambda: children(made, "worker")):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        assert drive(made, told, "last", 20)[0] == 200
        last = LogReader(data / "log.db").last()[0] - 45
        wait_for(lambda: (rebuilt(data)["snapshot"] or 0) >= last)
        assert made.ask("GET", "/healthz")[0] == 200
        assert made.stop() == 0
        assert "Traceback" not in "".join(made.said)
    check(data, told)


def test_a_worker_whose_pipe_is_closed_is_replaced(
    tmp_path: Path, sound: tuple[Path, Told, str]
) -> None:
    shutil.copytree(sound[0], tmp_path / "data")
    reader = LogReader(tmp_path / "data" / "log.db")
    number, history = open_spaces(reader)[SPACE]
    reader.close()

    async def run() -> None:
        worker, task = Worker(tmp_path / "data"), Task("snapshot", number, history.now)
        await worker.run(task)
        assert worker._process is not None
        assert worker._process.stdin is not None
        worker._process.stdin.transport.abort()  # as it is for a moment after a kill
        await asyncio.sleep(0)
        with pytest.raises(WorkerError, match="ended before"):
            await worker.run(task)
        await worker.run(task)
        await worker.close()

    with asyncio.Runner(loop_factory=_loop()) as runner:
        runner.run(run())


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, _loop()], ids=["asyncio", "served"])
def test_a_worker_that_is_closed_has_ended_even_if_the_closing_is_cancelled(
    tmp_path: Path, factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """A service that stopped just as the check of its log was done left one behind."""
    Store(tmp_path / "log.db").close()

    async def run() -> None:
        worker = Worker(tmp_path)
        assert await worker.run(Task("verify")) == (None, [])
        process = worker._process
        assert process is not None
        closing = asyncio.ensure_future(worker.close())
        await asyncio.sleep(0)
        assert closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert process.returncode == -signal.SIGKILL

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(run())


@LINUX
def test_a_what_if_whose_worker_is_killed_says_so_and_a_rebuild_is_tried_again(
    tmp_path: Path,
) -> None:
    told = Told()
    config = {k: v for k, v in CONFIG.items() if k != "name"}
    with start(tmp_path / "data") as made:
        assert drive(made, told, "d", 50)[0] == 200
        others = set(children(made, "worker"))  # the one that compiled for the space

        def kill() -> None:
            for process in wait_for(lambda: {*children(made, "worker")} - others):
                os.kill(process, signal.SIGKILL)

        job = made.ask("POST", f"{PATH}/whatif", config)[1]["job"]
        kill()
        found = wait_for(
            lambda: [j for j in [made.ask("GET", f"{PATH}/whatif/{job}")[1]] if j["error"]]
        )
        assert found[0]["state"] == "failed"
        assert "worker" in found[0]["error"]
        assert made.ask("PUT", PATH, {**config, "explore": 0.5})[0] == 202
        kill()
        assert made.ask("GET", PATH)[1]["rebuilding"]
        assert drive(made, told, "e", 10)[0] == 200  # the old one serves
        info = wait_for(lambda: [i for i in [made.ask("GET", PATH)[1]] if not i["rebuilding"]])
        assert (info[0]["version"], info[0]["failed"]) == (2, None)
        assert made.ask("PUT", PATH, {**config, "explore": 0.4})[0] == 202
        wait_for(lambda: made.ask("GET", PATH)[1]["version"] == 3)
        assert made.stop() == 0
        assert "a worker died" in "".join(made.said)


@LINUX
def test_a_writer_that_is_killed_is_the_end_of_writing_and_nothing_is_lost(tmp_path: Path) -> None:
    data, told = tmp_path / "data", Told()
    with start(data) as made:
        assert drive(made, told, "d", 30)[0] == 200
        (writer,) = children(made, "log_writer")
        os.kill(writer, signal.SIGTERM)  # it heeds the service alone
        assert drive(made, told, "e", 10)[0] == 200
        os.kill(writer, signal.SIGKILL)
        wait_for(lambda: made.ask("GET", "/healthz")[0] == 503)
        found = made.ask("GET", "/healthz")[1]
        assert "cannot be written: its writer has ended" in found["reason"]
        status, found = made.ask("POST", f"{PATH}/decisions", body_of("late"))
        assert (status, found["error"]["code"]) == (503, "store_failed")
        assert made.ask("GET", f"/spaces/{SPACE}")[0] == 200
        before = cpu(made)
        time.sleep(0.5)
        assert cpu(made) - before < 0.25  # it does not spin
        made.stop()
        assert "Traceback" not in "".join(made.said)
    check(data, told)
    with start(data) as again:
        assert drive(again, told, "f", 10)[0] == 200
        assert again.stop() == 0
    check(data, told)


def cpu(service: Service) -> float:
    """Seconds of a processor that it has used."""
    stat = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def test_kills_at_any_moment(tmp_path: Path) -> None:
    kills(tmp_path / "data", 3, most=0.4)


# -- clocks -----------------------------------------------------------------------------------


def test_a_clock_that_jumps_back_moves_nothing_back(tmp_path: Path) -> None:
    now = [1_800_000_000 * 10**9]

    settings = Settings(data=str(tmp_path / "data"), demo=False)

    async def closed(client: httpx.AsyncClient) -> int:
        counts = (await client.get(f"{PATH}/stats")).json()["counts"]
        return int(counts.get("closed", 0))

    async def decide(client: httpx.AsyncClient, key: str) -> Any:
        answer = await client.post(f"{PATH}/decisions", json=body_of(key))
        assert answer.status_code == 200
        return answer.json()

    async def reward(client: httpx.AsyncClient, key: str) -> str:
        body = {"decision_id": key, "value": 1.0}
        return str((await client.post(f"{PATH}/rewards", json=body)).json()["state"])

    async def run() -> None:
        rules = {"wait_seconds": 60}
        async with running(settings, lambda: now[0]) as (_, client):
            made = await client.post("/v1/spaces", json={**CONFIG, "rewards": rules})
            assert made.status_code == 201
            first = await decide(client, "one")
            now[0] -= 86_400 * 10**9  # a day back
            await decide(client, "two")
            assert await reward(client, "one") == "learnt"
            assert await decide(client, "one") == first
        async with running(settings, lambda: now[0]) as (_, client):  # and still back
            assert await decide(client, "one") == first
            await decide(client, "three")
            assert await reward(client, "two") == "learnt"
            assert (await client.get("/healthz")).status_code == 200
            now[0] += (86_400 + 59) * 10**9
            await asyncio.sleep(0.6)
            assert await closed(client) == 2
            now[0] += 2 * 10**9
            async with asyncio.timeout(30):  # once its time is over, by the clock
                while await closed(client) < 3:
                    await asyncio.sleep(0.05)
            assert await reward(client, "three") == "late"

    asyncio.run(run())
    reader = LogReader(tmp_path / "data" / "log.db")
    times = [row.at for row in reader.rows()]
    reader.close()
    assert times == sorted(times)
    assert rebuilt(tmp_path / "data")["rows"] == len(times)
