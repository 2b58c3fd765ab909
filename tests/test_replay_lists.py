"""Replay of logs of lists: against a literal loop, against the truth, and its errors."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import whim
from tests.list_truth import RIGHT, WORLDS, World, coverage, made_list_log
from whim.cli.app import app
from whim.errors import InvalidInputError
from whim.evaluate import ListReplayResult, estimate_lists, replay_lists
from whim.logs import ListWriter
from whim.types import F64, I64


def log_of(folder: Path, feedback: str, logging: str, n: int = 400) -> whim.logs.Log:
    rng = np.random.default_rng(5)
    return made_list_log(folder / "log.whim", World(feedback, logging), n, rng)


@pytest.mark.parametrize("match", ["prefix", "list"])
def test_replay_is_the_literal_loop(tmp_path: Path, match: str) -> None:
    log = log_of(tmp_path, "cascade", "uniform")
    result = whim.replay(log, {"lin": whim.LinUCBDisjoint(n_features=4)}, match=match, bins=5)
    assert isinstance(result, ListReplayResult)
    [run] = result.runs["lin"]
    policy = whim.LinUCBDisjoint(n_features=4)
    policy.add_arms(list(range(5)))
    counts, totals, chosen, learnt = np.zeros(3), np.zeros(3), [], 0
    for i in range(log.n_events):
        event = log.shown_list(i)
        arms = policy.select_list(event.x, event.arms, 3).arms
        chosen.append(arms)
        n = 0
        while n < 3 and arms[n] == event.shown[n]:
            n += 1
        n = n if match == "prefix" or n == 3 else 0
        counts[:n] += 1
        totals[:n] += event.rewards[:n]
        learnt += n
        if n:
            policy.update_list(arms[:n], event.x, event.rewards[:n], feedback="cascade")
    assert run.learnt == learnt
    assert run.total == totals.sum()
    assert run.rate == pytest.approx((totals / counts).sum())
    assert run.interval.low < run.rate < run.interval.high
    # what the estimates say of the lists that it chose
    for name, one in estimate_lists(log, chosen).items():
        assert run.listed[name].interval == pytest.approx(one.interval, nan_ok=True)
    [row] = result.rows()
    assert row["rips"] == run.listed["rips"].interval.value
    assert row["rips_effective"] > 0
    assert result.over_time("lin")[-1]["ctr"] == pytest.approx(run.rate)


class Fixed(whim.Policy):
    """Always the candidates in their order; it learns nothing."""

    name = "fixed"

    def __init__(self, *, seed: int = 0, ties: str = "first") -> None:
        super().__init__(n_features=None, seed=seed, ties=ties)
        self._rows({"_nothing": np.zeros(1)})

    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        self._out[: len(slots)] = -np.arange(len(slots), dtype=float)[:, None]
        return 0

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        return 0


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch) -> dict[str, whim.Policy]:
    """To be replayed in this process, where a policy of one's own takes the place of any."""
    monkeypatch.setattr(replay_lists, "fresh", lambda data, run: Fixed())
    return {"fixed": whim.Random()}


@pytest.mark.parametrize("match", ["prefix", "list"])
def test_short_lists_agree_more_often_and_count_no_more(
    tmp_path: Path, match: str, fixed: dict[str, whim.Policy]
) -> None:
    """Half of the lists have one item, half have three; who sees them clicks all the same."""
    rng, rates = np.random.default_rng(0), {"a": 0.5, "b": 0.4, "c": 0.3, "d": 0.2, "e": 0.1}
    values, held, logs, path = [], 0, 20, tmp_path / "log.whim"
    for _ in range(logs):
        with ListWriter(path, n_features=1, logging="uniform", overwrite=True) as w:
            for i in range(3000):
                shown = rng.permutation(list(rates))[: 1 if i % 2 else 3].tolist()
                clicks = [float(rng.random() < rates[arm]) for arm in shown]
                w.add_list(time=i, x=[1.0], arms=list(rates), shown=shown, rewards=clicks)
        result = whim.replay(path, fixed, match=match, feedback="semi", bins=5)
        run = result.runs["fixed"][0]
        values.append(run.rate)
        held += run.interval.low <= 0.85 <= run.interval.high
        same = result.relative("fixed", "fixed")
        assert same.value == 0
    assert abs(float(np.mean(values)) - 0.85) < 4 * np.std(values) / math.sqrt(logs)
    assert held >= 16


def test_rates_of_lists_that_differ_in_length_are_compared(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    with ListWriter(tmp_path / "log.whim", n_features=1, logging="uniform") as w:
        for i in range(4000):
            shown = rng.permutation(list("abc"))[: 1 if i % 2 else 2].tolist()
            w.add_list(time=i, x=[1.0], arms=list("abc"), shown=shown,
                       rewards=[float(arm == "a") for arm in shown])  # fmt: skip
    policies = {"random": whim.Random(), "best": whim.LinUCBDisjoint(n_features=1)}
    result = whim.replay(tmp_path / "log.whim", policies, feedback="semi")
    value = result.relative("best", "random")  # 1 against (1/3 + 2/3) / 2
    assert value.low < 1.0 < value.high
    assert value.value == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("logging", ["uniform", "mixed"])
def test_rates_of_prefixes_are_not_biased(
    tmp_path: Path, logging: str, fixed: dict[str, whim.Policy]
) -> None:
    """A policy that always shows the same lists earns what they are worth, for cascade users."""
    world, rng, values, held = World("cascade", logging), np.random.default_rng(9), [], 0
    truth = float(1 - np.prod(1 - world.rates[:, :3], axis=1).mean())
    for _ in range(40):
        log = made_list_log(tmp_path / "log.whim", world, 1500, rng)
        run = whim.replay(log, fixed).runs["fixed"][0]
        values.append(run.rate)
        held += run.interval.low <= truth <= run.interval.high
    error = float(np.std(values) / math.sqrt(len(values)))
    assert abs(float(np.mean(values)) - truth) < 4 * error
    assert held >= 33


@pytest.mark.parametrize(("feedback", "logging"), WORLDS)
def test_intervals_hold_the_truth(tmp_path: Path, feedback: str, logging: str) -> None:
    """The quick form of ``tests/slow/list_estimates.py``."""
    held = coverage(tmp_path, feedback, logging, logs=25, lists=2500)
    assert held.refused == 0
    for name in RIGHT[feedback]:
        assert abs(held.mean[name] - held.truth) < 4 * held.error[name], name
        assert held.share[name] >= 0.8, name


def test_without_support_it_is_unknown(tmp_path: Path) -> None:
    with ListWriter(
        tmp_path / "sure.whim", n_features=1, logging="propensity", propensities=True, wanted=True
    ) as writer:
        for i in range(50):
            writer.add_list(
                time=i, x=[1.0], arms=["a", "b", "c"], shown=["a", "b"], rewards=[i % 2, 0],
                probabilities=[1.0, 1.0], prefix_probabilities=[1.0, 1.0], wanted=["a", "b"],
                explore=0.0,
            )  # fmt: skip
    log = whim.logs.open(tmp_path / "sure.whim")
    other = estimate_lists(log, lambda event: ["a", "c"])
    for name in ("slots", "rips", "cdr", "pi", "ips"):
        assert other[name].support.problem is not None
        assert math.isnan(other[name].interval.value)
    same = estimate_lists(log, lambda event: ["a", "b"])
    assert {one.interval.value for one in same.values()} == {0.5}


def test_lists_of_whole_rewards(tmp_path: Path) -> None:
    log = log_of(tmp_path, "whole", "uniform")
    with pytest.raises(InvalidInputError, match="rewards of items"):
        whim.replay(log, {"random": whim.Random()})
    problems = {
        name: one.support.problem for name, one in estimate_lists(log, [[0, 1, 2]] * 400).items()
    }
    assert problems["pi"] is None
    assert "whole lists" in str(problems["rips"])


def test_the_first_k_positions(tmp_path: Path) -> None:
    log = log_of(tmp_path, "semi", "mixed")
    one = estimate_lists(log, [[3]] * 400, k=1)
    values = [one[name].interval.value for name in ("slots", "rips", "pi", "ips")]
    assert values == pytest.approx([values[0]] * 4)  # one position: one estimate
    for k in (0, 4):
        with pytest.raises(InvalidInputError, match="k must be"):
            whim.replay(log, {"random": whim.Random()}, k=k)


def test_wrong_options(tmp_path: Path) -> None:
    log = log_of(tmp_path, "semi", "uniform")
    for options in ({"match": "click"}, {"feedback": "all"}, {"logging": "full"}):
        with pytest.raises(InvalidInputError, match=next(iter(options))):
            whim.replay(log, {"random": whim.Random()}, **options)  # type: ignore[arg-type]
    with whim.logs.Writer(tmp_path / "one.whim", n_features=1, logging="uniform") as writer:
        writer.event(time=0, x=[1.0], arms=["a"], shown="a", reward=1.0)
    with pytest.raises(InvalidInputError, match="match must not be given"):
        whim.replay(tmp_path / "one.whim", {"random": whim.Random()}, match="list")
    with pytest.raises(InvalidInputError, match="must be one of lists"):
        estimate_lists(tmp_path / "one.whim", [["a"]])


@pytest.mark.parametrize("lists", [False, True])
def test_a_rate_that_leans_towards_small_pools_is_said_to(tmp_path: Path, lists: bool) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "log.whim"
    writer: whim.logs.Writer = (ListWriter if lists else whim.logs.Writer)(
        path, n_features=1, logging="uniform"
    )
    with writer:
        for i in range(4000):
            pool, rate = (list("ab"), 0.8) if i % 2 else (list("abcdefgh"), 0.1)
            shown, click = str(rng.choice(pool)), float(rng.random() < rate)
            event = {"time": i, "x": [1.0], "arms": pool}
            if isinstance(writer, ListWriter):
                writer.add_list(**event, shown=[shown], rewards=[click])
            else:
                writer.event(**event, shown=shown, reward=click)
    result = whim.replay(path, {"random": whim.Random()})
    [row] = result.rows()
    name = "slots" if lists else "snips"
    estimate = row["slots"] if lists else row["snips"]
    assert row["ctr"] > 0.6
    assert estimate == pytest.approx(0.45, abs=0.04)
    assert result.settings["candidates"] == (2, 8)
    said = CliRunner().invoke(app, ["replay", str(path), "--policy", "random"])
    assert f"{name} weighs that out" in said.output.replace("\n", " ").replace("SNIPS", "snips")


def test_a_log_without_lists_says_nothing(tmp_path: Path) -> None:
    with ListWriter(tmp_path / "log.whim", n_features=1, logging="uniform"):
        pass
    for one in estimate_lists(tmp_path / "log.whim", []).values():
        assert math.isnan(one.interval.value)
    [row] = whim.replay(tmp_path / "log.whim", {"random": whim.Random()}).rows()
    assert row["events"] == 0
    assert math.isnan(row["ctr"])
    assert math.isnan(row["slots"])
