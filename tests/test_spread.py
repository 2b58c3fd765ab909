"""Runs spread over processes or a cluster: the same bits, nothing lost, nothing done twice."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from threadpoolctl import threadpool_limits

import whim
from tests import spread_tasks
from tests.spread_tasks import bits, calls, check_errors, environment, tasks, until
from whim.errors import InvalidInputError, WhimError
from whim.evaluate.spread import spread
from whim.evaluate.store import TaskStore, code_digest
from whim.evaluate.sweep import grid, sweep


def workers_here() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("popen_loky" in word for word in child.cmdline()):
                found.append(child)
    return found


@pytest.fixture(scope="module")
def alone() -> list[Any]:
    return bits(spread(spread_tasks.regret, tasks()))


# -- processes -------------------------------------------------------------------------------------


def test_two_jobs_give_the_bits_of_one_in_order_and_tell_how_far_they_are(
    alone: list[Any],
) -> None:
    assert len({result["curve"] for result in alone}) == 6  # the order can be told
    told: list[int] = []
    results = spread(spread_tasks.regret, tasks(), jobs=2, progress=told.append)
    assert bits(results) == alone
    assert told == [1, 2, 3, 4, 5, 6]
    told.clear()
    assert bits(spread(spread_tasks.regret, iter(tasks(n=2)), progress=told.append)) == alone[:2]
    assert told == [1, 2]


def test_modules_of_the_current_folder_are_not_taken_for_pythons(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('not that one')")
    script = "from whim.evaluate.spread import spread; print(spread(abs, [-1, -2], jobs=2))"
    home = {"PYTHONPATH": str(Path(whim.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd=tmp_path, env={**os.environ, **home},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("[1, 2]\n", 0), done.stderr
    assert "PYTHONSAFEPATH" not in os.environ


def test_each_worker_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    for result in spread(spread_tasks.threads, [0, 1], jobs=2):
        assert result["names"] == ["1", "1", "1"]
        assert set(result["threads"]) == {1}
    with threadpool_limits(2):
        assert set(spread_tasks.threads(0)["threads"]) == {2}
        assert set(spread(spread_tasks.threads, [0])[0]["threads"]) == {1}


def test_the_runs_of_a_killed_worker_are_done_again(tmp_path: Path, alone: list[Any]) -> None:
    todo = tasks(tmp_path / "marks", dies=3)
    told: list[int] = []
    results = spread(spread_tasks.die_once, todo, jobs=2, progress=told.append)
    assert bits(results) == alone
    assert told == [1, 2, 3, 4, 5, 6]
    assert calls(tmp_path / "marks")[3] == 2


def test_a_task_that_kills_every_worker_is_named() -> None:
    with pytest.raises(WhimError, match=r"worker after worker killed .* 1: {'seed': 1, 'dies': 1}"):
        spread(spread_tasks.die_always, tasks(n=4, dies=1), jobs=2)


@pytest.mark.parametrize("how", [{}, {"jobs": 2}])
def test_errors_come_up_as_they_are(how: dict[str, Any]) -> None:
    check_errors(how)


def test_an_interruption_here_ends_the_workers(tmp_path: Path, alone: list[Any]) -> None:
    todo = tasks(tmp_path / "marks")
    store = TaskStore(tmp_path / "store")

    def stop(done: int) -> None:
        if done == 3:
            assert workers_here()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spread(spread_tasks.regret, todo, jobs=2, store=store, progress=stop)
    until(lambda: not workers_here(), "workers end")
    kept = [task["seed"] for task in todo if store.get(spread_tasks.regret, task) is not None]
    assert len(kept) == 3
    assert bits(spread(spread_tasks.regret, todo, store=store)) == alone
    assert all(calls(tmp_path / "marks")[seed] == 1 for seed in kept)


@pytest.mark.parametrize("to", ["parent", "group"])
def test_ctrl_c_stops_everything(to: str, tmp_path: Path) -> None:
    """A terminal sends it to all processes of the group, ``kill -INT`` to one."""
    todo = tasks(tmp_path / "marks", n=4)
    script = "from whim.evaluate.spread import spread\nfrom tests.spread_tasks import sleep\n"
    script += f"spread(sleep, {todo!r}, jobs=2)"
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        until(lambda: len(calls(tmp_path / "marks")) == 2, "two tasks start")
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) >= 2
        (os.killpg if to == "group" else os.kill)(process.pid, signal.SIGINT)
        error = process.communicate(timeout=20)[1]
        assert process.returncode == -signal.SIGINT
        assert error.rstrip().endswith("KeyboardInterrupt")
        assert not psutil.wait_procs(family, timeout=10)[1]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


# -- store -----------------------------------------------------------------------------------------


def test_a_stopped_run_goes_on_with_the_rest(tmp_path: Path, alone: list[Any]) -> None:
    todo = tasks(tmp_path / "marks")

    def stop(done: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spread(spread_tasks.regret, todo, store=tmp_path / "store", progress=stop)
    assert calls(tmp_path / "marks") == {0: 1, 1: 1, 2: 1, 3: 1}
    told: list[int] = []
    results = spread(spread_tasks.regret, todo, store=tmp_path / "store", progress=told.append)
    assert bits(results) == alone
    assert told == [4, 5, 6]
    assert calls(tmp_path / "marks") == dict.fromkeys(range(6), 1)
    assert bits(spread(spread_tasks.regret, todo, store=tmp_path / "store", jobs=2)) == alone
    assert calls(tmp_path / "marks") == dict.fromkeys(range(6), 1)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _alter(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.index(b'"found": ') + 9 if path.suffix == ".json" else len(data) // 2
    data[at] = data[at] ^ 1  # another digit
    path.write_bytes(data)


def _swap(path: Path) -> None:
    other = next(one for one in path.parent.glob(f"*{path.suffix}") if one != path)
    path.write_bytes(other.read_bytes())


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize("harm", [_cut, _alter, _swap, _empty, Path.unlink])
def test_a_damaged_entry_is_done_again(
    suffix: str, harm: Callable[[Path], Any], tmp_path: Path, alone: list[Any]
) -> None:
    todo = tasks(tmp_path / "marks", n=2)
    store = TaskStore(tmp_path / "store")
    spread(spread_tasks.regret, todo, store=store)
    before = set(store.path.iterdir())
    assert len(before) == 4
    harm(next(path for path in sorted(before) if path.suffix == suffix))
    assert bits(spread(spread_tasks.regret, todo, store=store)) == alone[:2]
    assert sorted(calls(tmp_path / "marks").values()) == [1, 2]
    assert set(store.path.iterdir()) == before


def test_an_entry_under_another_s_name_counts_as_missing(tmp_path: Path) -> None:
    store = TaskStore(tmp_path)
    for seed in (0, 1):
        store.put(spread_tasks.regret, {"seed": seed}, {"final": seed})
    _swap(next(tmp_path.iterdir()))
    found = [store.get(spread_tasks.regret, {"seed": seed}) for seed in (0, 1)]
    assert found in ([None, {"final": 1}], [{"final": 0}, None])


def test_another_setting_function_or_code_is_another_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TaskStore(tmp_path)
    task = {"seed": 0, "window": 20, "policy": b"one", "log": Path("a.whim")}
    store.put(spread_tasks.regret, task, {"final": 1.0})
    assert store.get(spread_tasks.regret, dict(reversed(task.items()))) == {"final": 1.0}
    for other in ({"window": 21}, {"policy": b"two"}, {"log": Path("b.whim")}, {"more": None}):
        assert store.get(spread_tasks.regret, task | other) is None
    assert store.get(spread_tasks.die_once, task) is None
    monkeypatch.setattr("whim.evaluate.store.code_digest", lambda: "another")
    assert store.get(spread_tasks.regret, task) is None


def test_the_code_that_counts_is_covered(tmp_path: Path) -> None:
    """In a copy of whim: its version, a kernel and a world each make another digest."""
    import whim

    copy = tmp_path / "whim"
    shutil.copytree(Path(whim.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))

    def digest() -> str:
        code_digest.cache_clear()
        return code_digest(copy)

    found = [code_digest(), digest()]
    assert found[0] == found[1]  # wherever it is installed
    for name in ("__init__.py", "kernels/models/disjoint.py", "worlds/piecewise.py"):
        with (copy / name).open("a") as file:
            file.write("# edited\n")
        found.append(digest())
    assert len(set(found)) == 4
    with (copy / "cli/app.py").open("a") as file:
        file.write("# edited\n")
    assert digest() == found[-1]


def test_an_edited_function_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"edited_{tmp_path.name}"
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it would hide an edit of this second
    monkeypatch.syspath_prepend(str(tmp_path))
    for factor in (2, 3, 2):
        source = f"def run(task):\n    return {{'value': {factor} * task}}\n"
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        module = importlib.import_module(name)
        assert spread(module.run, [5], store=tmp_path / "store") == [{"value": 5 * factor}]
        monkeypatch.delitem(sys.modules, name)
    assert len(list((tmp_path / "store").iterdir())) == 2


def test_a_key_says_what_a_task_is(tmp_path: Path) -> None:
    store = TaskStore(tmp_path / "store", key=lambda task: task["seed"])
    spread(spread_tasks.regret, tasks(tmp_path / "a", n=2), store=store)
    spread(spread_tasks.regret, tasks(tmp_path / "b", n=3), store=store)
    assert (calls(tmp_path / "a"), calls(tmp_path / "b")) == ({0: 1, 1: 1}, {2: 1})


def test_what_comes_back_is_what_was_returned_when_it_was_new(tmp_path: Path) -> None:
    todo = [{"kind": "fine"}]
    new = spread(spread_tasks.odd, todo, store=tmp_path)
    again = spread(spread_tasks.odd, todo, store=tmp_path)
    assert bits(again) == bits(new)
    assert list(again[0]) == list(new[0])
    assert [type(value) for value in again[0].values()] == [type(v) for v in new[0].values()]
    direct = spread(spread_tasks.odd, todo)[0]
    assert again[0]["one"] == direct["one"]
    assert again[0]["list"] == [1, [None, True, "ω"]]
    assert again[0]["large"] == 2**70
    assert again[0]["file"].tobytes() == direct["file"].tobytes()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("objects", "result 'array' must hold numbers or text, got objects"),
        ("bytes", "result 'raw' must be made of dicts .* got b'policy'"),
        ("no dict", "results must be dicts with text as keys to be stored, got 3"),
    ],
)
def test_what_cannot_be_stored_is_refused(kind: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=said):
        spread(spread_tasks.odd, [{"kind": kind}], store=tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_told_apart_is_refused(tmp_path: Path) -> None:
    for task in ({"at": {1: 2}}, {"at": [np.zeros(2)]}, {"at": object()}):
        with pytest.raises(InvalidInputError, match=r"task\['at'\].* must be made of dicts"):
            spread(spread_tasks.odd, [task], store=tmp_path)
    for function in (lambda task: task, functools.partial(spread_tasks.odd)):
        with pytest.raises(InvalidInputError, match="function must be a top-level function"):
            spread(function, [1], store=tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="store must be a folder"):
        TaskStore(tmp_path / "file")


# -- sweep -----------------------------------------------------------------------------------------


def test_a_sweep_is_tidy_and_resumes(tmp_path: Path) -> None:
    axes = {"window": [10, 30], "threshold": [0.1, 0.4]}
    base = tasks(tmp_path / "marks", n=1)[0] | {"window": 5}
    del base["seed"]
    rows = sweep(spread_tasks.regret, base, axes, seeds=range(2), jobs=2, store=tmp_path / "s")
    heads = [(row["window"], row["threshold"], row["seed"]) for row in rows]
    assert heads == [(w, t, s) for w in (10, 30) for t in (0.1, 0.4) for s in (0, 1)]
    assert set(rows[0]) == {
        *("window", "threshold", "seed"),
        *("curve", "final", "found", "steps", "long"),
    }
    direct = spread_tasks.regret({"seed": 1, "window": 30, "threshold": 0.1})
    assert rows[5]["curve"].tobytes() == direct["curve"].tobytes()
    assert rows[5]["curve"].tobytes() != rows[1]["curve"].tobytes()
    assert sum(calls(tmp_path / "marks").values()) == 8
    wider = axes | {"window": [10, 20, 30]}
    more = sweep(spread_tasks.regret, base, wider, seeds=range(3), store=tmp_path / "s")
    assert sum(calls(tmp_path / "marks").values()) == 8 + 10
    assert bits([row for row in more if row["window"] != 20 and row["seed"] < 2]) == bits(rows)


def test_grids() -> None:
    assert grid({}) == [{}]
    assert grid({"a": (1,), "b": ["x", "y"]}) == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}]


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"law": "ball"}, "axis 'law' must be a list of values, got 'ball'"),
        ({"window": 3}, "axis 'window' must be a list of values, got 3"),
        ({"window": []}, "axis 'window' must have values, each once, got \\[\\]"),
        ({"window": [3, 4, 3]}, "axis 'window' must have values, each once"),
        ({"seed": [3]}, "seed must be given by seeds"),
    ],
)
def test_refused_axes(axes: Any, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        sweep(spread_tasks.regret, {}, axes)


def test_refusals() -> None:
    def run(**how: Any) -> None:
        spread(spread_tasks.regret, tasks(), **how)

    with pytest.raises(InvalidInputError, match=r"jobs, unless -1, must be an integer >= 1, got 0"):
        run(jobs=0)
    with pytest.raises(InvalidInputError, match="engine must be one of local, dask, ray"):
        run(engine="spark")
    with pytest.raises(InvalidInputError, match="address must be that of a dask scheduler"):
        run(engine="dask")
    with pytest.raises(InvalidInputError, match="address must be None"):
        run(address="tcp://127.0.0.1:1")
    with pytest.raises(InvalidInputError, match=r"not be called as settings are, got \['final'\]"):
        sweep(spread_tasks.regret, {}, {"final": [1]})
    assert spread(spread_tasks.regret, []) == []


def test_ray_says_what_to_install() -> None:
    with contextlib.suppress(ImportError):
        import ray  # noqa: F401

        pytest.skip("ray is installed")
    with pytest.raises(WhimError, match=r"pip install 'whim-bandits\[ray\]'"):
        spread(spread_tasks.regret, tasks(n=1), engine="ray")
