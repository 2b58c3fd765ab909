"""LastFM: files, features against their literal forms, and both protocols' logs."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

import whim
from tests import hetrec
from whim.errors import InvalidInputError, LogFileError, WhimError
from whim.logs import lastfm
from whim.logs.lastfm_features import factorise, reduce_tags, soft_membership, tag_counts
from whim.logs.lastfm_files import read_listening, read_tagging, read_tags
from whim.types import F64

SMALL = {"min_listeners": 8, "n_features": 3, "n_item_features": 4, "n_factors": 4}
WU = {"protocol": "wu2018", "n_item_features": 4, "dense": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hetrec.make(tmp_path_factory.mktemp("hetrec"))


# -- the literal forms --------------------------------------------------------------------------


def slow_counts(folder: Path, artists: list[int], *, words: bool) -> list[Counter[str]]:
    texts = {int(tag): text for tag, text in hetrec.rows(folder / "tags.dat")}
    counts: dict[int, Counter[str]] = {artist: Counter() for artist in artists}
    for _, artist, tag, *_ in hetrec.rows(folder / "user_taggedartists.dat"):
        if int(artist) in counts:
            text = texts[int(tag)]
            terms = re.split(r"[ _-]+", text.lower()) if words else [tag]
            counts[int(artist)].update(term for term in terms if term)
    return [counts[artist] for artist in artists]


def slow_tfidf(counts: list[Counter[str]]) -> F64:
    """Count · (ln((1 + n) / (1 + df)) + 1), each row divided by its length."""
    terms = sorted({term for counter in counts for term in counter})
    n = len(counts)
    table = []
    for counter in counts:
        row = []
        for term in terms:
            df = sum(other[term] > 0 for other in counts)
            row.append(counter[term] * (math.log((1 + n) / (1 + df)) + 1))
        length = math.sqrt(sum(v * v for v in row))
        table.append([v / length if length else 0.0 for v in row])
    return np.array(table)


def slow_factors(matrix: F64, rank: int, *, centred: bool) -> F64:
    """Projections on the leading eigenvectors of MᵀM; their signs are arbitrary."""
    M = matrix - matrix.mean(axis=0) if centred else matrix
    values, vectors = np.linalg.eigh(M.T @ M)
    return M @ vectors[:, np.argsort(values)[::-1][:rank]]


def slow_membership(vectors: F64, labels: list[int], k: int) -> tuple[F64, float]:
    centres = [vectors[[label == j for label in labels]].mean(axis=0) for j in range(k)]
    distances = [[math.dist(v, c) for c in centres] for v in vectors]
    flat = sorted(d for row in distances for d in row)
    half = len(flat) // 2
    h = flat[half] if len(flat) % 2 else (flat[half - 1] + flat[half]) / 2
    kernel = [[math.exp(-(d**2) / (2 * h**2)) for d in row] for row in distances]
    return np.array([[v / sum(row) for v in row] for row in kernel]), h


def same_up_to_sign(found: F64, expected: F64) -> None:
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found, expected * signs, atol=1e-9)


# -- files --------------------------------------------------------------------------------------


def test_files_as_plain_arrays(folder: Path) -> None:
    users, artists = read_listening(folder)
    expected = sorted((int(u), int(a)) for u, a, _ in hetrec.rows(folder / "user_artists.dat"))
    assert list(zip(users.tolist(), artists.tolist(), strict=True)) == expected
    assert read_tags(folder)[4] == "m\u00fasica cl\u00e1sica"
    tagging = read_tagging(folder)
    got = zip(tagging.users.tolist(), tagging.artists.tolist(), tagging.tags.tolist(), strict=True)
    rows = hetrec.rows(folder / "user_taggedartists.dat")
    assert list(got) == [tuple(map(int, row[:3])) for row in rows]
    assert tagging.file == "user_taggedartists.dat"


def test_the_original_times_win_and_dates_become_midnights_of_madrid(tmp_path: Path) -> None:
    dated = [(2, 52, 13, 1, 4, 2009), (2, 52, 15, 1, 1, 2009), (3, 5, 1, 1, 6, 1956)]
    heading = "userID artistID tagID day month year"
    hetrec.write(tmp_path / "user_taggedartists.dat", heading, dated)
    # the first is the example of the data set's own readme
    midnights = [1238536800000, 1230764400000, -428720400000]
    assert read_tagging(tmp_path).times.tolist() == midnights
    for kind, time in ((".derived.dat", 7), (".dat", 8)):
        name = f"user_taggedartists-timestamps{kind}"
        hetrec.write(tmp_path / name, "userID artistID tagID timestamp", [(2, 52, 13, time)])
        found = read_tagging(tmp_path)
        assert (found.times.tolist(), found.file) == ([time], name)


def test_lf_files_and_repeated_records(tmp_path: Path) -> None:
    text = "userID\tartistID\tweight\n2\t5\t1\n2\t5\t3\n1\t5\t3\n\n"
    (tmp_path / "user_artists.dat").write_text(text)
    users, artists = read_listening(tmp_path)
    assert (users.tolist(), artists.tolist()) == ([1, 2], [5, 5])


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("user_artists.dat", None, r"must hold the readable HetRec file user_artists.dat, got"),
        ("user_artists.dat", "", r"line 1: the columns must be userID, artistID, weight, got ''"),
        ("user_artists.dat", "userID\tweight\n", r"line 1: the columns .* got 'userID, weight'"),
        ("user_artists.dat", "userID\tartistID\tweight\n", r"line 2: .* at least one row"),
        (
            "user_artists.dat",
            "userID\tartistID\tweight\n1\t2\t3\n1\t2\n",
            r"user_artists.dat, line 3: a row must have 3 fields, got '1\\t2'",
        ),
        (
            "user_artists.dat",
            "userID\tartistID\tweight\n1\t2\t3\n1\ttwo\t3\n",
            r"user_artists.dat, line 3: artistID must be an integer, got 'two'",
        ),
        (
            "user_taggedartists.dat",
            "userID\tartistID\ttagID\tday\tmonth\tyear\n1\t2\t3\t1\t1\t2009\n1\t2\t3\t31\t2\t2009\n",
            r"line 3: day, month, year must be a date, got '2009-2-31'",
        ),
        ("tags.dat", "tagID\ttagValue\nx\trock\n", r"tags.dat, line 2: tagID must be an integer"),
        ("tags.dat", "tagID\ttagValue\n1\ta\n1\tb\n", r"tags.dat, line 3: tagID must not repeat"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, text: str | None, complaint: str) -> None:
    hetrec.make(tmp_path)
    (tmp_path / name).unlink()
    if text is not None:
        (tmp_path / name).write_bytes(text.encode())
    reader = {"user_artists.dat": read_listening, "tags.dat": read_tags}.get(name, read_tagging)
    with pytest.raises(InvalidInputError, match=complaint):
        reader(tmp_path)


# -- features -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "method"), [(False, "pca"), (True, "svd")])
def test_item_features_are_the_literal_ones(folder: Path, words: bool, method: str) -> None:
    tagging = read_tagging(folder)
    artists = np.unique(tagging.artists)[::2]  # the others' tags must not count
    texts = read_tags(folder) if words else None
    counts, terms = tag_counts(artists, tagging.artists, tagging.tags, texts)
    literal = slow_counts(folder, artists.tolist(), words=words)
    for row, expected in zip(counts.toarray(), literal, strict=True):
        found = {str(term): int(v) for term, v in zip(terms, row, strict=True) if v}
        assert found == dict(expected)
    found = reduce_tags(counts, 4, method=method, seed=0)
    expected = slow_factors(slow_tfidf(literal), 4, centred=method == "pca")
    same_up_to_sign(found, expected)


def test_words_are_parted_at_blanks_hyphens_and_underscores() -> None:
    texts = {1: "Synth_pop", 2: "hip  hop-", 3: "-"}
    counts, terms = tag_counts(np.array([7]), np.array([7, 7, 7, 8]), np.array([1, 2, 3, 1]), texts)
    assert terms == ["hip", "hop", "pop", "synth"]
    assert counts.toarray().tolist() == [[1, 1, 1, 1]]
    with pytest.raises(InvalidInputError, match="every tag in use; 1 are missing, the first is 9"):
        tag_counts(np.array([7]), np.array([7]), np.array([9]), texts)


def test_user_features_are_the_literal_ones(folder: Path) -> None:
    users, artists = read_listening(folder)
    rows, columns = (np.unique(ids, return_inverse=True)[1] for ids in (users, artists))
    matrix = np.zeros((rows.max() + 1, columns.max() + 1))
    matrix[rows, columns] = 1
    vectors = factorise(rows, columns, 5, 0)
    same_up_to_sign(vectors, slow_factors(matrix, 5, centred=False))
    found, labels, bandwidth = soft_membership(vectors, 3)
    expected, h = slow_membership(vectors, labels.tolist(), 3)
    assert bandwidth == pytest.approx(h, rel=1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    # where no label would change any more, each user is with the nearest centre
    assert np.array_equal(found.argmax(axis=1), labels)


def test_memberships_far_from_every_centre_do_not_vanish() -> None:
    vectors = np.array([[0.0], [1.0], [5000.0], [5001.0]])
    found, labels, h = soft_membership(vectors, 2, bandwidth=0.01)
    assert h == 0.01
    assert np.array_equal(found, np.eye(2)[labels])
    wide, _, _ = soft_membership(vectors, 2, bandwidth=1e9)
    np.testing.assert_allclose(wide, 0.5)


def test_features_say_what_they_are(folder: Path) -> None:
    found = lastfm.features(folder, **SMALL)
    users, artists = read_listening(folder)
    listeners = Counter(artists.tolist())
    kept = sorted(a for a, n in listeners.items() if n >= 8)
    assert 4 < len(kept) < len(listeners)
    assert found.artists.tolist() == kept
    assert found.users.tolist() == sorted(set(users[np.isin(artists, kept)].tolist()))
    assert found.item_features.shape == (len(kept), 4)
    assert found.user_features.shape == (len(found.users), 3)
    np.testing.assert_allclose(found.user_features.sum(axis=1), 1)
    assert found.made["bandwidth"] > 0
    assert found.made["times"] == "user_taggedartists.dat"
    again = lastfm.features(folder, **SMALL)
    assert again.item_features.tobytes() == found.item_features.tobytes()
    assert again.user_features.tobytes() == found.user_features.tobytes()


# -- logs ---------------------------------------------------------------------------------------


def of_user(found: lastfm.Features, log: whim.logs.Log) -> list[int]:
    """The user of each event, known by the context."""
    known = {row.tobytes(): int(user) for user, row in zip(*_users(found), strict=True)}
    assert len(known) == len(found.users)
    return [known[np.array(x).tobytes()] for x in log.context]


def _users(found: lastfm.Features) -> tuple[list[int], F64]:
    return found.users.tolist(), found.user_features


def positives(log: whim.logs.Log) -> list[int]:
    first = np.asarray(log.pool_offsets)[np.asarray(log.pool)]
    items = np.asarray(log.pool_items)[first + np.asarray(log.logged)]
    return [log.arms[i] for i in np.asarray(log.item_arm)[items].tolist()]


def pools(log: whim.logs.Log) -> list[list[int]]:
    arms = [log.arms[i] for i in log.item_arm.tolist()]
    members, cuts = log.pool_items.tolist(), log.pool_offsets.tolist()
    return [[arms[i] for i in members[cuts[p] : cuts[p + 1]]] for p in log.pool.tolist()]


@pytest.mark.parametrize("order", ["user", "shuffled", "cluster"])
def test_the_paper_s_log(folder: Path, tmp_path: Path, order: str) -> None:
    found = lastfm.features(folder, **SMALL)
    log = lastfm.convert(folder, tmp_path / "l.whim", **SMALL, order=order)
    users, artists = read_listening(folder)
    mine = np.isin(artists, found.artists)
    pairs = sorted(zip(users[mine].tolist(), artists[mine].tolist(), strict=True))
    n = len(pairs)
    assert (log.logging, log.n_events, log.n_pools) == ("full", 2 * n, 1)
    assert log.n_arms == log.n_items == len(found.artists)
    assert set(log.reward.tolist()) == {1.0}
    assert log.time.tolist() == list(range(2 * n))
    assert pools(log)[0] == found.artists.tolist()
    rows = [found.artists.tolist().index(log.arms[a]) for a in log.item_arm.tolist()]
    assert np.array_equal(log.item_features, found.item_features[rows])
    people = of_user(found, log)
    events = list(zip(people, positives(log), strict=True))
    assert sorted(events[:n]) == pairs
    assert sorted(events[n:]) == pairs
    assert events[:n] != events[n:]
    cluster = dict(zip(found.users.tolist(), found.clusters.tolist(), strict=True))
    group = people if order == "user" else [cluster[user] for user in people]
    blocks = [(key, len(list(some))) for key, some in groupby(group)]
    if order == "shuffled":
        assert log.meta["source"]["changes"] == []
        assert len(blocks) > n / 2
    else:
        assert len(blocks) in (2 * len(set(group)), 2 * len(set(group)) - 1)
        assert log.meta["source"]["changes"] == np.cumsum([m for _, m in blocks])[:-1].tolist()


def test_the_paper_s_log_by_time(folder: Path, tmp_path: Path) -> None:
    found = lastfm.features(folder, **SMALL)
    log = lastfm.convert(folder, tmp_path / "l.whim", **SMALL, order="time", passes=1)
    tagging = read_tagging(folder)
    first: dict[tuple[int, int], int] = {}
    for user, artist, time in zip(tagging.users, tagging.artists, tagging.times, strict=True):
        pair = int(user), int(artist)
        first[pair] = min(int(time), first.get(pair, int(time)))
    users, artists = read_listening(folder)
    mine = np.isin(artists, found.artists)
    pairs = set(zip(users[mine].tolist(), artists[mine].tolist(), strict=True))
    events = list(zip(of_user(found, log), positives(log), strict=True))
    assert sorted(events) == sorted(pairs & set(first))
    assert log.time.tolist() == sorted(log.time.tolist())
    assert log.time.tolist() == [first[event] for event in events]
    assert log.meta["dropped"] == {"never tagged by the user": len(pairs) - len(events)}


def test_wu_2018_s_log(folder: Path, tmp_path: Path) -> None:
    log = lastfm.convert(folder, tmp_path / "l.whim", **WU, pool_size=6, passes=3)
    found = lastfm.features(folder, **WU)
    times = read_tagging(folder).times.tolist()
    events: list[tuple[int, int, int]] = []
    for row, time in zip(hetrec.rows(folder / "user_taggedartists.dat"), times, strict=True):
        event = (int(row[0]), time, int(row[1]))
        if not events or events[-1] != event:
            events.append(event)
    busy = Counter(user for user, _, _ in events)
    dense = sorted((e for e in events if busy[e[0]] >= 5), key=lambda e: e[:2])
    assert 5 < len({user for user, _, _ in dense}) < len(busy)
    tagged = {user: {a for u, _, a in dense if u == user} for user, _, _ in dense}
    assert found.users.tolist() == sorted(tagged)
    assert log.time.tolist() == [time for _, time, _ in dense] * 3
    assert positives(log) == [artist for _, _, artist in dense] * 3
    assert set(log.context.ravel().tolist()) == {1.0}
    everyone = {artist for _, _, artist in events}
    for (user, _, artist), pool in zip(dense * 3, pools(log), strict=True):
        assert len(set(pool)) == 6
        assert set(pool) & tagged[user] == {artist}
        assert set(pool) <= everyone
    # the place of the positive tells nothing: 5 standard deviations
    counts = np.bincount(log.logged, minlength=6)
    n = log.n_events
    assert np.abs(counts - n / 6).max() < 5 * math.sqrt(n * 5 / 36)


def test_wu_2018_s_log_by_time(folder: Path, tmp_path: Path) -> None:
    by_user = lastfm.convert(folder, tmp_path / "a.whim", **WU, pool_size=6)
    by_time = lastfm.convert(folder, tmp_path / "b.whim", **WU, pool_size=6, order="time")
    assert by_time.time.tolist() == sorted(by_user.time.tolist())
    assert sorted(positives(by_time)) == sorted(positives(by_user))


@pytest.mark.parametrize("options", [SMALL | {"pool_size": 4}, WU | {"pool_size": 5}])
def test_the_seed_decides_every_byte(
    folder: Path, tmp_path: Path, options: dict[str, object]
) -> None:
    done: list[int] = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        lastfm.convert(folder, tmp_path / name, **options, seed=seed, progress=done.append)
    assert sum(done) == 3 * whim.logs.open(tmp_path / "a").n_events
    one, same = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in "ab")
    assert one == same
    pool = [(tmp_path / name / "pool_items.bin").read_bytes() for name in "ac"]
    assert pool[0] != pool[1]


def test_a_policy_learns_from_it(folder: Path, tmp_path: Path) -> None:
    log = lastfm.convert(folder, tmp_path / "l.whim", **WU, pool_size=10, passes=20)
    clicks = {}
    for policy in (whim.Random(seed=0), whim.LinUCBUniform(n_item_features=4, payoff="item")):
        arms = [log.arms[i] for i in log.item_arm.tolist()]
        policy.add_arms(arms, features=log.item_features if policy.n_item_features else None)
        clicks[policy.name] = 0
        for pool, best in zip(pools(log), positives(log), strict=True):
            arm = policy.select([1.0], pool).arm
            policy.update(arm, [1.0], float(arm == best))
            clicks[policy.name] += arm == best
    assert clicks["linucb-uniform"] > 1.3 * clicks["random"]


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"protocol": "mine"}, "protocol must be one of paper, wu2018, got 'mine'"),
        ({"order": "random"}, "order must be one of shuffled, user, cluster, time, got 'random'"),
        ({"passes": 0}, "passes must be an integer >= 1, got 0"),
        ({"pool_size": 1}, "pool_size must be an integer >= 2, got 1"),
        ({"pool_size": 1000}, "pool_size must be at most"),
        ({"min_listeners": 1000}, "min_listeners must leave at least 2 artists, got 1000"),
        ({"n_features": 0}, "n_features must be an integer >= 1, got 0"),
        ({"n_features": 41}, "n_features must be at most the number of users"),
        ({"n_item_features": 0}, "n_item_features must be an integer >= 1, got 0"),
        ({"n_item_features": 100}, "n_item_features must be at most"),
        ({"n_factors": 100}, "n_factors must be less than"),
        ({"bandwidth": 0.0}, "bandwidth must be a finite number > 0, got 0.0"),
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
        (WU | {"dense": 0}, "dense must be an integer >= 1, got 0"),
        (WU | {"dense": 1000}, "dense must be at most [0-9]+, the events of the busiest user"),
        (WU | {"order": "cluster"}, "order must not be 'cluster' under protocol='wu2018'"),
        (WU, "pool_size must be at most"),  # 25 are too many here
    ],
)
def test_bad_parameters(
    folder: Path, tmp_path: Path, options: dict[str, object], complaint: str
) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        lastfm.convert(folder, tmp_path / "l.whim", **(SMALL | options))
    assert list(tmp_path.iterdir()) == []


def test_a_log_is_replaced_only_on_request(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "l.whim"
    lastfm.convert(folder, path, **SMALL)
    with pytest.raises(LogFileError, match="overwrite"):
        lastfm.convert(folder, path, **SMALL)
    once = lastfm.convert(folder, path, **SMALL, passes=1, overwrite=True).n_events
    assert lastfm.convert(folder, path, **SMALL, passes=3, overwrite=True).n_events == 3 * once


def test_without_scikit_learn_the_extra_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)  # import then fails as if not installed
    with pytest.raises(WhimError, match=re.escape("pip install 'whim-bandits[features]'")):
        lastfm.features(folder, **SMALL)


def test_scikit_learn_is_imported_only_when_used() -> None:
    code = "import sys, whim.logs.lastfm; print('sklearn' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False"]


# -- the real data, where it is -----------------------------------------------------------------


def real() -> Path:
    """The folder of the real data set, if this machine has it."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    return Path(os.environ.get("WHIM_DATA", beside)) / "hetrec2011-lastfm-2k"


@pytest.mark.skipif(not (real() / "user_artists.dat").is_file(), reason="no LastFM data here")
def test_the_counts_of_the_real_data(tmp_path: Path) -> None:
    log = lastfm.convert(real(), tmp_path / "l.whim", passes=1)
    n_users = len(log.meta["source"]["changes"]) + 1
    assert (log.n_arms, log.n_events, n_users) == (126, 24_909, 1_813)
    assert log.item_features.shape == (126, 10)
    assert log.context.shape == (24_909, 10)
    tagging = read_tagging(real())
    assert len(tagging.users) == 186_479
    if tagging.file.endswith(".derived.dat"):
        rows = np.stack([tagging.users, tagging.artists, tagging.times], axis=1)
        events = rows[np.r_[True, np.diff(rows, axis=0).any(axis=1)]]
        counts = np.unique(events[:, 0], return_counts=True)[1]
        dense = counts[counts >= 10]
        assert (len(events), len(dense), dense.sum()) == (94_949, 980, 91_335)
