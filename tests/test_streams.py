"""``beyond/streams``: the streams, the rivals, the logistic bandit against its literal form."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import whim
from tests.oracles.logistic import DiscountedLogisticOracle
from whim.errors import LogFileError
from whim.evaluate.intervals import block_interval
from whim.experiments import Options, run, stream_rivals, stream_sources, streams
from whim.experiments.logistic import DiscountedLogistic
from whim.experiments.stream_rivals import ADAPTIVE, HINDSIGHT, LINUCB, LOGISTIC, Rival, Task
from whim.experiments.stream_sources import KINDS, Stream, arranged
from whim.logs.labelled import read_npz
from whim.report.figures import describe, draw
from whim.testing import check_policy


@pytest.mark.parametrize(("gamma", "ridge"), [(1.0, 1.0), (0.9, 0.3)])
def test_the_logistic_bandit_equals_its_literal_form(gamma: float, ridge: float) -> None:
    rng = np.random.default_rng(3)
    d, arms = 3, 3
    fast = DiscountedLogistic(n_features=d, gamma=gamma, alpha=0.7, ridge=ridge)
    fast.add_arms(range(arms))
    slow = [DiscountedLogisticOracle(d, gamma, ridge) for _ in range(arms)]
    for t in range(60):
        x = rng.normal(size=d)
        expected = []
        for oracle in slow:
            m, P = oracle.beliefs(t)
            expected.append(x @ m + 0.7 * math.sqrt(x @ P @ x))
        np.testing.assert_allclose(fast.scores(x), expected, rtol=1e-7, atol=1e-9)
        arm, r = int(rng.integers(arms)), float(rng.random() < 0.5)
        fast.update(arm, x, r)
        slow[arm].update(t, x, r)


def test_the_literal_form_moves_by_the_moments() -> None:
    rng = np.random.default_rng(4)
    oracle = DiscountedLogisticOracle(2, 1.0, 1.0)
    for t in range(20):
        x, r = rng.normal(size=2), float(rng.random() < 0.3)
        m, P = oracle.moved(t, x, r)
        oracle.update(t, x, r)
        found_m, found_P = oracle.beliefs(t + 1)
        np.testing.assert_allclose(found_m, m, atol=1e-8)
        np.testing.assert_allclose(found_P, P, atol=1e-8)


def test_the_logistic_bandit_keeps_the_contract_and_stays_finite() -> None:
    assert check_policy(lambda: DiscountedLogistic(n_features=3, gamma=0.97))
    policy = DiscountedLogistic(n_features=2, gamma=1.0)
    policy.add_arms(["a"])
    for scale in (1e-6, 1.0, 1e6):
        policy.update_many(["a"] * 2000, np.tile([1.0, scale], (2000, 1)), np.ones(2000))
        assert np.isfinite(policy.scores([1.0, scale])).all()


@pytest.mark.parametrize("kind", KINDS)
def test_streams_are_made_anew_the_same_and_have_every_arm(kind: str) -> None:
    stream = Stream(kind, kind=kind, steps=1600, seed=2)
    X, R, arms = stream.load()
    assert R.shape == (len(X), len(arms))
    assert len(X) == (400 if kind == "objects in turn" else 1600)
    np.testing.assert_array_equal(R.sum(1), 1.0)
    assert (R.sum(0) > 0).all()
    np.testing.assert_array_equal(X[:, 0], 1.0)
    stream_sources._made.cache_clear()
    again = stream.load()
    np.testing.assert_array_equal(again.X, X)
    other = Stream(kind, kind=kind, steps=1600, seed=3).load()
    assert not np.array_equal(other.X, X)


def test_shuffled_and_reordered_are_the_same_plays() -> None:
    stream = Stream("classes swap", kind="classes swap", steps=200)
    X, R = arranged(stream, shuffled=False, order=0, seed=0)
    mixed, rewards = arranged(stream, shuffled=True, order=2, seed=0)
    rows = [np.flatnonzero((x == X).all(1))[0] for x in mixed]
    assert sorted(rows) == list(range(200))
    assert rows != list(range(200))
    columns = np.random.default_rng([0, 2, stream_sources._ORDER]).permutation(R.shape[1])
    np.testing.assert_array_equal(rewards, R[rows][:, columns])


def test_the_user_s_archives_are_the_streams(tmp_path: Path) -> None:
    (tmp_path / "drift").mkdir()
    np.savez(tmp_path / "drift" / "b.npz", X=np.ones((4, 2)), y=[0, 1, 1, 0])
    np.savez(tmp_path / "a.npz", X=np.ones((3, 2), np.float32), R=[[0.5, 1], [0, 0], [1, 1]])
    found = stream_sources.sources(Options(data=tmp_path))
    assert [one.name for one in found] == ["b", "a"]
    assert found[1].load().rewards.tolist() == [[0.5, 1], [0, 0], [1, 1]]
    assert found[0].load().arms == [0, 1]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert [one.kind for one in stream_sources.sources(Options(data=empty))] == list(KINDS)


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"X": np.ones((3, 2))}, "X and either y or R, got X"),
        ({"X": np.ones((3, 2)), "y": np.zeros(2)}, "y must be 3 classes"),
        ({"X": np.ones((3, 2)), "y": [0.0, np.nan, 1.0]}, "y must hold classes"),
        ({"X": np.ones(3), "y": np.zeros(3)}, "X must be a matrix"),
        ({"X": [[1.0], [np.inf]], "y": [0, 1]}, "X must be finite .* row 1"),
        ({"X": np.ones((3, 2)), "R": np.ones((2, 2))}, "R must have 3 rows"),
        ({"X": np.ones((3, 2)), "y": np.array([0, "a", None])}, "cannot be read"),
    ],
)
def test_archives_that_are_none(tmp_path: Path, arrays: dict[str, object], word: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(LogFileError, match=word):
        read_npz(tmp_path / "a.npz")


def test_what_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(LogFileError, match="no such file"):
        read_npz(tmp_path / "a.npz")
    (tmp_path / "a.npz").write_bytes(b"PK and nothing else")
    with pytest.raises(LogFileError, match="cannot be read"):
        read_npz(tmp_path / "a.npz")
    np.save(tmp_path / "b.npy", np.ones(3))
    with pytest.raises(LogFileError, match="named arrays"):
        read_npz(tmp_path / "b.npy")


def test_rewards_are_those_of_live_calls() -> None:
    stream = Stream("recurring interests", kind="recurring interests", steps=300, seed=1)
    task = Task(stream, True, 1, 0, LINUCB, {"alpha": 0.3})
    found = stream_rivals.earned(task)
    X, R = arranged(stream, shuffled=True, order=1, seed=0)
    policy = whim.LinUCBDisjoint(n_features=X.shape[1], alpha=0.3)
    policy.add_arms(range(R.shape[1]))
    for x, row, reward in zip(X, R, found, strict=True):
        arm = policy.select(x).arm
        assert row[arm] == reward
        policy.update(arm, x, float(row[arm]))


def test_vowpal_wabbit_learns_where_it_is_installed() -> None:
    pytest.importorskip("vowpalwabbit")
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(3000), rng.normal(size=(3000, 2))])
    R = np.eye(2)[(X[:, 1] > 0).astype(int)]
    rival = stream_rivals.rivals(quick=False)[stream_rivals.VOWPAL]
    assert rival.make(n_features=3, **rival.usual).run(X, R)[1000:].mean() > 0.9


def test_blocks_make_the_interval_of_a_series_that_lingers() -> None:
    steady = np.repeat(np.random.default_rng(0).random(50), 40)
    wide, narrow = block_interval(steady, 40), block_interval(steady, 4)
    assert wide.value == pytest.approx(steady.mean())
    assert narrow.value == pytest.approx(steady.mean())
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
    uneven = block_interval(np.arange(105.0), 10)
    assert uneven.value == pytest.approx(52.0)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two streams, and policies that need no long compilation."""
    every = stream_rivals.rivals(quick=True)
    kept = {label: every[label] for label in (LINUCB, LOGISTIC)}
    kept = {ADAPTIVE: Rival(whim.LinUCBDisjoint, {"alpha": 0.5}, []), **kept}
    monkeypatch.setattr(streams, "rivals", lambda *, quick: kept)
    monkeypatch.setattr(stream_rivals, "rivals", lambda *, quick: kept)
    monkeypatch.setattr(stream_sources, "QUICK_STEPS", 400)


@pytest.mark.usefixtures("few")
def test_hindsight_is_the_best_of_the_grid_and_is_called_so(tmp_path: Path) -> None:
    found = run("beyond/streams", Options(quick=True, runs=1, jobs=1, work=tmp_path))
    compared, still, in_time, shuffled, chosen = found.tables
    assert len(compared.rows) == len(still.rows) == len(KINDS)
    labels = [row[0] for row in in_time.rows]
    assert labels == [ADAPTIVE, LINUCB, LINUCB + HINDSIGHT, LOGISTIC, LOGISTIC + HINDSIGHT]
    assert len(shuffled.rows) == len(labels)
    assert "stand-in" in found.warning
    stream = Stream("classes swap", kind="classes swap", steps=400)
    tried = {
        a: stream_rivals.earned(Task(stream, False, 0, 0, LINUCB, {"alpha": a}))[40:].mean()
        for a in (0.1, 1.0)
    }
    cell = in_time.rows[2][1 + list(KINDS).index("classes swap")]
    assert float(cell.split()[0]) == pytest.approx(100 * max(tried.values()), abs=0.05)
    words = [row[3] for row in chosen.rows if row[:3] == ["classes swap", "in time", LINUCB]]
    assert words == [f"alpha {max(tried, key=lambda a: tried[a])}"]


@pytest.mark.usefixtures("few")
def test_rewards_beyond_one_have_no_logistic_rival(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "worth.npz", X=rng.normal(size=(200, 2)), R=3 * rng.random((200, 3)))
    found = run("beyond/streams", Options(quick=True, jobs=1, data=tmp_path, work=tmp_path))
    assert not found.warning
    assert found.command == "whim paper beyond/streams --quick --data DIR"
    assert [row[0] for row in found.tables[2].rows] == [ADAPTIVE, LINUCB, LINUCB + HINDSIGHT]
    figure = found.figures[0]
    assert figure.rows == ["worth"]
    axes = draw(figure).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["worth"]
    assert axes.get_ylim() == (0.5, -0.5)
    assert "in each of 1 rows" in describe(figure)
