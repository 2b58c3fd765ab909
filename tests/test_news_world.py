"""``NewsWorld``: its truth, its log as columns and as text, and that contexts matter in it."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whim
from whim.errors import InvalidInputError
from whim.worlds import NewsLog, NewsWorld
from whim.worlds.r6a import Block, write_blocks

SIX = r"2:[01]\.\d{6} 3:[01]\.\d{6} 4:[01]\.\d{6} 5:[01]\.\d{6} 6:[01]\.\d{6} 1:1\.000000"
LINE = re.compile(rf"12\d{{8}} \d{{6}} [01] \|user {SIX}( \|109\d{{3}} {SIX})+\n")
SMALL = NewsWorld(n_arms=40, pool_size=6)


def parsed(lines: list[str]) -> dict[str, Any]:
    """A plain reader: times, shown ids, clicks, users and pools, features with id 1 first."""

    def vector(tokens: list[str]) -> list[float]:
        by_id = dict(token.split(":") for token in tokens)
        return [float(by_id[str(j)]) for j in range(1, 7)]

    times, shown, clicks, users, pools, features = [], [], [], [], [], {}
    for line in lines:
        head, user, *items = [part.split() for part in line.split("|")]
        times.append(int(head[0]))
        shown.append(int(head[1]))
        clicks.append(float(head[2]))
        assert user[0] == "user"
        users.append(vector(user[1:]))
        pools.append([int(item[0]) for item in items])
        features.update({int(item[0]): vector(item[1:]) for item in items})
    return {
        "time": times,
        "shown": shown,
        "clicks": clicks,
        "users": users,
        "pools": pools,
        "features": features,
    }


def assert_same(text: dict[str, Any], log: NewsLog) -> None:
    np.testing.assert_array_equal(text["time"], log.time)
    np.testing.assert_array_equal(text["users"], log.contexts)
    np.testing.assert_array_equal(text["clicks"], log.clicks)
    pools = [log.members[log.offsets[p] : log.offsets[p + 1]] for p in log.pool_of]
    np.testing.assert_array_equal(text["pools"], log.ids[np.array(pools)])
    shown = [pool[place] for pool, place in zip(pools, log.logged, strict=True)]
    np.testing.assert_array_equal(text["shown"], log.ids[shown])
    for article, y in text["features"].items():
        np.testing.assert_array_equal(y, log.features[article - 109_417])


def test_text_and_columns_are_the_same_events(tmp_path: Path) -> None:
    changes = SMALL.write_r6a(tmp_path / "log", events=3000, seed=7)
    lines = (tmp_path / "log").read_text("ascii").splitlines(keepends=True)
    assert len(lines) == 3000
    for line in lines:
        assert LINE.fullmatch(line)
        assert len(line.split()) == 10 + 7 * 6
    log = SMALL.columns(events=3000, seed=7)
    text = parsed(lines)
    assert_same(text, log)
    assert len(text["features"]) == 40
    assert changes == {int(log.ids[a]): steps for a, steps in log.changes.items()}
    assert log.expected is None


def test_twenty_articles_are_150_tokens(tmp_path: Path) -> None:
    NewsWorld().write_r6a(tmp_path / "log", events=50, seed=0)
    for line in (tmp_path / "log").read_text().splitlines(keepends=True):
        assert LINE.fullmatch(line)
        assert len(line.split(" ")) == 150


def test_a_membership_of_one_and_a_click_are_written_in_full(tmp_path: Path) -> None:
    log = SMALL.columns(events=1, seed=0)
    x = np.array([[1.0, 0.0, 1.0, 0.000001, 0.5, 0.999999]])
    block = (log.time, np.array([2]), np.array([1.0]), x, log.members[:6])
    write_blocks([tmp_path / "log"], [block], ids=log.ids, features=log.features, events=1)
    user = "2:0.000000 3:1.000000 4:0.000001 5:0.500000 6:0.999999 1:1.000000"
    head = f"1241160900 109419 1 |user {user} |109417 2:"
    assert (tmp_path / "log").read_text().startswith(head)


def test_several_files_and_gz(tmp_path: Path) -> None:
    SMALL.write_r6a(str(tmp_path / "all"), events=1000, seed=1)
    paths = [tmp_path / "1", tmp_path / "2.gz", tmp_path / "3"]
    SMALL.write_r6a(paths, events=1000, seed=1)
    texts = [paths[0].read_bytes(), gzip.decompress(paths[1].read_bytes()), paths[2].read_bytes()]
    assert [text.count(b"\n") for text in texts] == [333, 333, 334]
    assert b"".join(texts) == (tmp_path / "all").read_bytes()
    again = tmp_path / "again.gz"
    SMALL.write_r6a([tmp_path / "1", again, tmp_path / "3"], events=1000, seed=1)
    assert again.read_bytes() == paths[1].read_bytes()
    assert len(list(tmp_path.iterdir())) == 5  # no leftovers


def test_an_interrupted_write_leaves_nothing_new(tmp_path: Path) -> None:
    log = SMALL.columns(events=300, seed=0)
    pool = log.members[:6]

    def events() -> Iterator[Block]:
        yield log.time[:200], log.logged[:200], log.clicks[:200], log.contexts[:200], pool
        raise KeyboardInterrupt

    paths = [tmp_path / "1", tmp_path / "2"]
    paths[1].write_text("what was there")
    with pytest.raises(KeyboardInterrupt):
        write_blocks(paths, events(), ids=log.ids, features=log.features, events=300)
    assert paths[0].read_bytes().count(b"\n") == 150
    assert paths[1].read_text() == "what was there"
    assert sorted(tmp_path.iterdir()) == paths


def test_bad_logs(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="events must be an integer >= 1"):
        SMALL.columns(events=0, seed=0)
    with pytest.raises(InvalidInputError, match="path must name 1 to 2 files, got 3"):
        SMALL.write_r6a([tmp_path / name for name in "abc"], events=2, seed=0)
    with pytest.raises(InvalidInputError, match="path must name 1 to 2 files, got 0"):
        SMALL.write_r6a([], events=2, seed=0)


def test_the_log_is_the_episode_with_one_place_shown() -> None:
    log = SMALL.columns(events=2000, seed=3, expected=True)
    episode = SMALL.episode(horizon=2000, seed=3)
    for name in ("contexts", "pool_of", "offsets", "members", "features", "expected", "changes"):
        np.testing.assert_array_equal(getattr(log, name), getattr(episode, name))
    np.testing.assert_array_equal(log.clicks, episode.rewards[np.arange(2000), log.logged])


def test_blocks_of_any_size_give_the_same_events(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SMALL.columns(events=2000, seed=3, expected=True)
    monkeypatch.setattr("whim.worlds.news.BLOCK", 7)
    pieces = SMALL.columns(events=2000, seed=3, expected=True)
    for name in ("contexts", "logged", "clicks"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(pieces, name))
    assert whole.expected is not None
    assert pieces.expected is not None
    np.testing.assert_allclose(whole.expected, pieces.expected, rtol=1e-12)


def test_users_and_articles_look_like_yahoo_s() -> None:
    log = NewsWorld().columns(events=20_000, seed=0)
    for people in (log.contexts, log.features):
        assert (people[:, 0] == 1).all()
        members = people[:, 1:]
        assert members.min() >= 0
        np.testing.assert_allclose(members.sum(axis=1), 1, atol=3e-6)
        np.testing.assert_array_equal(members, np.rint(members * 1e6) / 1e6)
    assert log.ids[0] == 109_417
    assert len(log.ids) == 271
    assert (log.time % 300 == 0).all()
    assert (np.diff(log.time) >= 0).all()
    assert log.time[0] == 1_241_160_900
    assert log.time[-1] - log.time[0] == 10 * 86_400 - 300
    ticks = SMALL.columns(events=2880, seed=0).time
    assert (np.diff(ticks) == 300).all()


def test_pools_rotate_one_article_at_a_time_and_none_returns() -> None:
    log = NewsWorld().columns(events=50_000, seed=2)
    pools = log.members.reshape(-1, 20)
    assert len(pools) == 271 - 20 + 1
    assert ((np.diff(pools, axis=0) != 0).sum(axis=1) == 1).all()
    assert np.array_equal(np.unique(pools), np.arange(271))
    came = [int(pool[pool > pools[p].max()][0]) for p, pool in enumerate(pools[1:])]
    assert came == list(range(20, 271))  # numbered by appearance, each once
    shown = np.bincount(log.logged, minlength=20)
    assert np.abs(shown - 2500).max() < 4.5 * np.sqrt(2500)


def test_random_s_click_rate() -> None:
    rates = [NewsWorld().columns(events=60_000, seed=s).clicks.mean() for s in range(3)]
    assert np.mean(rates) == pytest.approx(0.035, abs=0.0015)
    high = NewsWorld(rate=0.1).columns(events=60_000, seed=0).clicks.mean()
    assert high == pytest.approx(0.1, rel=0.06)


@pytest.mark.parametrize("changes", [0, 1.0, 3.0])
def test_change_points_are_where_rates_jump_and_nowhere_else(changes: float) -> None:
    """With no decay a rate is linear in x; a fit that holds on one side breaks on the other."""
    world = NewsWorld(n_arms=30, pool_size=5, decay=0.0, changes_per_life=changes)
    episode = world.episode(horizon=12_000, seed=1)
    places = episode.members.reshape(-1, 5)[episode.pool_of]
    found = 0
    for arm, steps in episode.changes.items():
        t, place = np.nonzero(places == arm)
        X, p = episode.contexts[t], episode.expected[t, place]
        assert all(t[0] < step <= t[-1] for step in steps)
        bounds = [t[0], *steps, t[-1] + 1]
        fits = []
        for low, high in pairwise(bounds):
            rows = (t >= low) & (t < high)
            if rows.sum() < 10:
                fits.append(None)
                continue
            fit = np.linalg.lstsq(X[rows, 1:], p[rows])[0]
            np.testing.assert_allclose(X[rows, 1:] @ fit, p[rows], atol=1e-12)
            fits.append(fit)
        for before, after in pairwise(fits):
            assert before is None or after is None or np.abs(before - after).max() > 1e-4
        found += len(steps)
    assert found == pytest.approx(30 * changes, rel=0.15)


def test_decay_takes_a_steady_share_of_each_rate() -> None:
    still, fading = (
        NewsWorld(n_arms=10, pool_size=5, decay=d).episode(horizon=5000, seed=1) for d in (0.0, 0.4)
    )
    ratio = fading.expected / still.expected
    places = still.members.reshape(-1, 5)[still.pool_of]
    t, place = np.nonzero(places == 7)
    kept = ratio[t, place]
    assert kept[0] == pytest.approx(1.2)
    assert kept[-1] == pytest.approx(0.8, abs=0.01)
    np.testing.assert_allclose(np.diff(kept), np.diff(kept)[0], rtol=1e-6)
    assert still.changes == fading.changes


def test_interests_do_not_depend_on_rate_noise_or_length() -> None:
    plain, doubled = (
        NewsWorld(n_arms=30, pool_size=5, rate=rate).episode(horizon=1000, seed=4)
        for rate in (0.02, 0.04)
    )
    np.testing.assert_allclose(doubled.expected, 2 * plain.expected, rtol=1e-12)
    np.testing.assert_array_equal(doubled.contexts, plain.contexts)
    long = NewsWorld(n_arms=30, pool_size=5, rate=0.02).episode(horizon=100_000, seed=4)
    np.testing.assert_array_equal(long.features, plain.features)
    np.testing.assert_array_equal(long.members, plain.members)
    np.testing.assert_allclose(long.expected[0], plain.expected[0], rtol=1e-9)


def test_contexts_matter_and_can_be_learnt() -> None:
    """Disjoint LinUCB gets well above chance, and further above it than UCB without contexts."""
    world = NewsWorld(n_arms=60)
    episode = world.episode(horizon=12_000, seed=0)
    pools = episode.members.reshape(-1, 20).tolist()
    rates = {}
    for label, policy in (
        ("ucb", whim.UCB()),
        ("linucb", whim.LinUCBDisjoint(n_features=6, alpha=0.2)),
    ):
        policy.add_arms(range(60))
        got = np.empty(12_000)
        for t, x in enumerate(episode.contexts):
            pool = pools[episode.pool_of[t]]
            arm = policy.select(x, pool).arm
            place = pool.index(arm)
            policy.update(arm, x, episode.rewards[t, place])
            got[t] = episode.expected[t, place]
        rates[label] = got.mean() / episode.expected.mean()
    assert rates["ucb"] > 1
    assert rates["linucb"] > 1.25
    assert rates["linucb"] > 1.1 * rates["ucb"]
    assert episode.best.mean() > 2 * episode.expected.mean()
