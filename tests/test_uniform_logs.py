"""A log that says it is uniform is doubted if what it shows cannot have been drawn so."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import whim
from whim.cli.app import app
from whim.evaluate.pools import doubt_uniform

WORDS = "says that its logging is uniform, but 'top' was shown first in"


def written(
    path: Path, n: int, top: float = 0.0, sizes: tuple[int, int] = (10, 10), seed: int = 0,
    arms: int = 10,
) -> whim.logs.Log:  # fmt: skip
    """Pools of some of the arms; a share of events shows the first arm, if it is there."""
    rng = np.random.default_rng(seed)
    names = ["top", *(f"a{i}" for i in range(1, arms))]
    with whim.logs.Writer(path, n_features=1, logging="uniform") as writer:
        for i in range(n):
            pool = rng.permutation(arms)[: rng.integers(sizes[0], sizes[1] + 1)].tolist()
            shown = pool[int(rng.integers(len(pool)))]
            if 0 in pool and rng.random() < top:
                shown = 0
            writer.event(
                time=i, x=[1.0], arms=[names[j] for j in pool], shown=names[shown],
                reward=float(rng.random() < 0.3),
            )  # fmt: skip
    return whim.logs.open(path)


def test_a_top_item_is_found_and_counted(tmp_path: Path) -> None:
    log = written(tmp_path / "a.whim", 2000, top=0.5)
    doubt = doubt_uniform(log)
    assert doubt is not None
    shown = sum(log.event(i).shown == "top" for i in range(2000))
    assert (doubt.arm, doubt.shown, doubt.events) == ("top", shown, 2000)
    assert doubt.expected == pytest.approx(200)
    assert doubt_uniform(log, 0) is None
    assert doubt_uniform(log, 20) is None  # too few to tell


def test_pools_count_each_with_its_size(tmp_path: Path) -> None:
    log = written(tmp_path / "a.whim", 3000, top=0.3, sizes=(2, 8))
    doubt = doubt_uniform(log)
    assert doubt is not None
    events = [log.event(i) for i in range(3000)]
    with_it = [event for event in events if "top" in event.arms]
    assert doubt.events == len(with_it)
    assert doubt.expected == pytest.approx(sum(1 / len(event.arms) for event in with_it))


@pytest.mark.parametrize("arms", [2, 10, 400])
@pytest.mark.parametrize("sizes", [(1, 2), (2, 8), (1, 1)])
def test_a_uniform_log_is_not_doubted(tmp_path: Path, arms: int, sizes: tuple[int, int]) -> None:
    sizes = (sizes[0], min(sizes[1], arms))
    for seed in range(3):
        log = written(tmp_path / f"{seed}.whim", 1000, sizes=sizes, seed=seed, arms=arms)
        assert doubt_uniform(log) is None


def test_the_top_of_lists_is_looked_at(tmp_path: Path) -> None:
    for name, doubted in (("fair", False), ("top", True)):
        rng = np.random.default_rng(1)
        path = tmp_path / f"{name}.whim"
        with whim.logs.ListWriter(path, n_features=1, logging="uniform") as writer:
            for i in range(1000):
                shown = rng.permutation(["top", "b", "c", "d", "e"]).tolist()
                if doubted and rng.random() < 0.4:
                    shown.sort(key=lambda arm: arm != "top")
                writer.add_list(
                    time=i, x=[1.0], arms=["top", "b", "c", "d", "e"], shown=shown[:3],
                    rewards=[0.0, 1.0, 0.0],
                )  # fmt: skip
        found = doubt_uniform(whim.logs.open(path))
        assert (found is not None) == doubted


def test_replay_log_and_convert_say_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shown = np.where(rng.random(1500) < 0.4, "top", rng.choice(["top", "b", "c"], 1500))
    rows = [f"{i % 7},{arm},{i % 2}" for i, arm in enumerate(shown)]
    table, log = tmp_path / "t.csv", str(tmp_path / "t.whim")
    table.write_text("\n".join(["age,shown,click", *rows]) + "\n")
    columns = ["--arm", "shown", "--reward", "click", "--context", "age", "--logging"]

    def ran(*arguments: str) -> tuple[str, str]:
        found = CliRunner().invoke(app, arguments)
        assert found.exit_code == 0, found.output
        return " ".join(found.stdout.split()), found.stderr

    assert WORDS in ran("convert", str(table), "--to", log, *columns, "uniform")[1]
    assert f"doubt t.whim {WORDS}" in ran("log", log)[0]
    out = ran("replay", log, "--policy", "random")[0]
    assert f"WARNING: t.whim {WORDS}" in out
    settings = json.loads(ran("replay", log, "--policy", "random", "--json")[0])["settings"]
    assert WORDS in settings["doubt"]
    result = whim.replay(log, {"random": whim.Random()}, first=0.02)
    assert result.settings["doubt"] is None  # of thirty events nothing is certain


def test_many_events_take_no_time(tmp_path: Path) -> None:
    n, rng = 2_000_000, np.random.default_rng(0)
    path = tmp_path / "large.whim"
    with whim.logs.Writer(path, n_features=1, logging="uniform") as writer:
        writer.event(time=0, x=[1.0], arms=range(50), shown=0, reward=0.0)
    log = whim.logs.open(path)
    log.n_events = n
    log.pool, log.logged = np.zeros(n, np.int32), rng.integers(0, 50, n).astype(np.int32)
    began = time.perf_counter()
    assert doubt_uniform(log) is None
    log.logged[rng.random(n) < 0.02] = 7
    found = doubt_uniform(log)
    assert found is not None
    assert found.arm == 7
    assert time.perf_counter() - began < 5
