"""R6A and R6B: the compiled parser equals the literal one; bad files end in a count or an error."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whim.logs
from tests import yahoo_literal
from tests.test_logs import bytes_of
from whim.errors import InvalidInputError, LogFileError
from whim.logs import Log, sources, yahoo, yahoo_parser
from whim.logs.yahoo import DROPPED, WARNINGS, convert

# the line that Yahoo's readme shows, with two of its articles; the shown one's features are made up
EXAMPLE = (
    b"1241160900 109513 0 |user 2:0.000012 3:0.000000 4:0.000006 5:0.000023 6:0.999958 1:1.000000 "
    b"|109498 2:0.306008 3:0.000450 4:0.077048 5:0.230439 6:0.386055 1:1.000000 "
    b"|109513 2:0.200000 3:0.100000 4:0.300000 5:0.250000 6:0.150000 1:1.000000 "
    b"|109453 2:0.421669 3:0.000011 4:0.010902 5:0.309585 6:0.257833 1:1.000000\n"
)
EXAMPLE_B = (
    b"1317513291 id-560620 0 |user 1 9 11 13 23 16 104 20 |id-552077 |id-560620 |id-565822\n"
)
USER = b"2:.1 3:.2 4:.3 5:.4 6:.5 1:1"
ARTICLE = b"2:0.1 3:0.2 4:0.3 5:0.2 6:0.2 1:1"


def line(
    when: bytes = b"1", shown: bytes = b"10", click: bytes = b"1", user: bytes = USER,
    pool: bytes = b"|10 " + ARTICLE + b" |11 " + ARTICLE,
) -> bytes:  # fmt: skip
    return b" ".join([when, shown, click, b"|user", user, pool]) + b"\n"


def converted(folder: Path, text: bytes, name: str = "text", **options: Any) -> Log:
    (folder / name).write_bytes(text)
    return convert(folder / name, folder / "log.whim", overwrite=True, **options)


def same_as_literal(log: Log, text: bytes, named: bool = False) -> None:
    wanted = yahoo_literal.read(text, named)
    assert log.meta["dropped"] == dict(+wanted.dropped)
    warnings = dict(log.meta["warnings"])
    warnings.pop("time earlier than the event before", None)
    assert warnings == dict(+wanted.warnings)
    assert log.meta["read"] == wanted.lines
    assert log.n_events == len(wanted.events)
    for i, (when, x, arms, features, shown, reward) in enumerate(wanted.events):
        found = log.event(i)
        assert (found.time, found.arms, found.shown) == (when, arms, shown)
        assert found.reward == reward
        # bit for bit, the sign of zero as well
        assert found.x.astype("f8").tobytes() == np.array(x).tobytes()
        assert found.features.tobytes() == np.array(features).tobytes()


def test_the_published_example(tmp_path: Path) -> None:
    log = converted(tmp_path, EXAMPLE)
    event = log.event(0)
    assert event.x.tolist() == [1.0, 0.000012, 0.0, 0.000006, 0.000023, 0.999958]
    assert event.arms == [109498, 109513, 109453]
    assert event.features[0].tolist() == [1.0, 0.306008, 0.00045, 0.077048, 0.230439, 0.386055]
    assert (event.time, event.shown, event.reward) == (1241160900, 109513, 0.0)
    assert log.logging == "uniform"
    assert log.meta["source"] == {"reader": "r6a", "files": ["text"]}
    same_as_literal(log, EXAMPLE)


def test_the_published_example_of_r6b(tmp_path: Path) -> None:
    log = converted(tmp_path, EXAMPLE_B)
    assert log.context.dtype == np.uint8
    assert (np.flatnonzero(log.context[0]) + 1).tolist() == [1, 9, 11, 13, 16, 20, 23, 104]
    assert log.event(0).arms == ["id-552077", "id-560620", "id-565822"]
    assert log.item_features.shape == (3, 0)
    same_as_literal(log, EXAMPLE_B, named=True)


BROKEN = {
    b"": None,
    b"\xff\x00\x80junk\n": yahoo_parser.BAD_HEADER,
    b"hello\n": yahoo_parser.BAD_HEADER,
    b"1 2\n": yahoo_parser.BAD_HEADER,
    b"1 2 |user 1\n": yahoo_parser.BAD_HEADER,
    line(when=b"1.5"): yahoo_parser.BAD_HEADER,
    line(when=b"1" * 19): yahoo_parser.BAD_HEADER,
    line(shown=b"id-10"): yahoo_parser.BAD_HEADER,
    line(click=b"2"): yahoo_parser.BAD_CLICK,
    line(click=b"-1"): yahoo_parser.BAD_CLICK,
    line(click=b"1.0"): yahoo_parser.BAD_CLICK,
    b"1 10 1\n": yahoo_parser.BAD_USER,
    b"1 10 1 |users 1:1\n": yahoo_parser.BAD_USER,
    b"1 10 1 |us\n": yahoo_parser.BAD_USER,
    line(user=USER.replace(b":.1", b":")): yahoo_parser.BAD_USER,
    line(user=USER.replace(b":.1", b":x")): yahoo_parser.BAD_USER,
    line(user=USER.replace(b":.1", b":nan")): yahoo_parser.BAD_USER,
    line(user=USER.replace(b":.1", b":1e400")): yahoo_parser.BAD_USER,
    line(user=USER.replace(b":.1", b":1e11")): yahoo_parser.BAD_USER,
    line(user=USER.replace(b":.1", b":1_0")): yahoo_parser.BAD_USER,
    line(user=USER + b" 2:0.1"): yahoo_parser.BAD_USER,
    line(user=USER.replace(b"2:.1 ", b"")): yahoo_parser.USER_LACKS,
    line(user=b""): yahoo_parser.USER_LACKS,
    line(pool=b""): yahoo_parser.EMPTY_POOL,
    line(pool=b"|11 2:1"): yahoo_parser.EMPTY_POOL,
    line(pool=b"|11 " + ARTICLE): yahoo_parser.NOT_IN_POOL,
    line(pool=b"|10 1:1 |11 " + ARTICLE): yahoo_parser.SHOWN_LACKS,
    line(pool=b"|10 " + ARTICLE + b" |10 " + ARTICLE): yahoo_parser.REPEATED,
    line(pool=b"|10 " + ARTICLE + b" |x " + ARTICLE): yahoo_parser.BAD_POOL,
    line(pool=b"|10 " + ARTICLE + b" | 11 " + ARTICLE): yahoo_parser.BAD_POOL,
    line(pool=b"|10 " + ARTICLE + b" |11 2:1e 3:1"): yahoo_parser.BAD_POOL,
    line(pool=b"|10 " + ARTICLE + b" |11 2"): yahoo_parser.BAD_POOL,
    line(user=USER + b" " * (1 << 20)): yahoo_parser.LONG,
    b" " * (1 << 20) + b" \n": yahoo_parser.LONG,
    line(pool=b" ".join(b"|%d" % i for i in range(10_001))): yahoo_parser.TOO_MANY,
}


@pytest.mark.parametrize("text", list(BROKEN), ids=lambda text: repr(text[:60]))
def test_each_kind_of_bad_line(tmp_path: Path, text: bytes) -> None:
    reason = BROKEN[text]
    log = converted(tmp_path, EXAMPLE + text + EXAMPLE)
    assert log.n_events == 2
    assert log.meta["dropped"] == ({} if reason is None else {DROPPED[reason]: 1})
    if len(text) < 1 << 20:
        same_as_literal(log, EXAMPLE + text + EXAMPLE)
    malformed = reason is not None and reason < yahoo_parser.USER_LACKS
    if malformed:
        with pytest.raises(LogFileError, match=r"text, line 2: ") as caught:
            converted(tmp_path, EXAMPLE + text + EXAMPLE, strict=True)
        assert DROPPED[reason] in str(caught.value)
    else:  # missing features are the published files' own
        assert converted(tmp_path, EXAMPLE + text + EXAMPLE, strict=True).n_events == 2


def test_an_article_without_features_leaves_the_pool_and_not_its_event(tmp_path: Path) -> None:
    more = EXAMPLE.replace(b"|109498", b"|109528 2:1.000000 |109498")
    log = converted(tmp_path, more + more.replace(b" 109513 0", b" 109528 1") + EXAMPLE)
    assert log.arms == [109498, 109513, 109453]
    assert log.n_pools == 1
    assert log.meta["dropped"] == {DROPPED[yahoo_parser.SHOWN_LACKS]: 1}
    assert log.meta["warnings"] == {WARNINGS[yahoo_parser.LACKING]: 1}


def test_stray_features_are_ignored_and_counted(tmp_path: Path) -> None:
    text = EXAMPLE.replace(b"|user", b"|user 7:0.5 12:1").replace(b"|109453", b"|109453 0:3")
    log = converted(tmp_path, text)
    assert log.event(0).x.tolist() == [1.0, 0.000012, 0.0, 0.000006, 0.000023, 0.999958]
    assert log.meta["warnings"] == {WARNINGS[yahoo_parser.STRAY]: 3}


# -- anything at all --------------------------------------------------------------------------

ODD = (
    "1e-05 -0.5 -0.000000 +.5 5. 1E3 0e999 1e-400 1e10 1e-5000 9007199254740993 0.1e1 1e22 "
    "123456789012345678901e-20 . - 1e e5 nan inf 0x1 1.2.3 1,5 --1"
)
NUMBERS = st.one_of(
    st.floats(-1, 1).map(lambda v: b"%.6f" % v),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda v: repr(v).encode()),
    st.decimals(-100, 100, places=25).map(lambda v: str(v).encode()),
    st.sampled_from([word.encode() for word in ["", *ODD.split()]]),
)
SPACE = st.sampled_from([b" "] * 8 + [b"  ", b"\t", b" \r "])


@st.composite
def vectors(draw: st.DrawFn) -> bytes:
    ids = draw(st.sampled_from([[2, 3, 4, 5, 6, 1]] * 6 + [[1], [2, 3], [1, 2, 3, 4, 5, 6, 7]]))
    plain = draw(st.booleans())
    values = [b"0.25" if plain else draw(NUMBERS) for _ in ids]
    return b" ".join(b"%d:%s" % pair for pair in zip(ids, values, strict=True))


@st.composite
def lines_a(draw: st.DrawFn) -> bytes:
    ids = draw(st.lists(st.integers(100, 106), max_size=6, unique=draw(st.integers(0, 9)) > 0))
    shown = draw(st.sampled_from([*ids, *ids, 100]))
    words = [
        draw(st.sampled_from([b"1241160900"] * 9 + [b"x", b""])),
        b"%d" % shown,
        draw(st.sampled_from([b"0", b"1"] * 5 + [b"2"])),
        draw(st.sampled_from([b"|user"] * 9 + [b"user"])),
        draw(vectors()),
    ]
    stock = {i: b"|%d 2:%.6f 3:0.1 4:0.1 5:0.1 6:0.1 1:1.0" % (i, i / 1000) for i in ids}
    words += [
        stock[i] if draw(st.integers(0, 5)) else b"|%d %s" % (i, draw(vectors())) for i in ids
    ]
    text = b"".join(word + draw(SPACE) for word in words)
    return text[: draw(st.integers(0, len(text)))] if draw(st.integers(0, 9)) == 0 else text


@st.composite
def lines_b(draw: st.DrawFn) -> bytes:
    ids = draw(st.lists(st.integers(1, 9), max_size=7, unique=draw(st.integers(0, 9)) > 0))
    shown = draw(st.sampled_from([*ids, *ids, 1]))
    user = draw(st.lists(st.integers(0, 140), max_size=8))
    words = [
        b"13", b"id-%d" % shown, draw(st.sampled_from([b"0", b"1", b"y"])), b"|user",
        *(b"%d" % feature for feature in user), *(b"|id-%d" % i for i in ids),
    ]  # fmt: skip
    words.insert(draw(st.integers(0, len(words))), draw(st.sampled_from([b""] * 9 + [b"|", b"z"])))
    return b"".join(word + draw(SPACE) for word in words)


def whole_text(draw: st.DrawFn, lines: st.SearchStrategy[bytes], first: bytes) -> bytes:
    some = draw(st.lists(lines, max_size=8))
    again = draw(st.lists(st.sampled_from(some or [b""]), max_size=8))  # so that memory is used
    end = draw(st.sampled_from([b"\n", b"\r\n"]))
    noise = draw(st.sampled_from([b"", b"", b"\n", b"\x00\xfe\n"]))
    return first + end.join([*some, *again, *some]) + draw(st.sampled_from([b"", end])) + noise


@st.composite
def texts_a(draw: st.DrawFn) -> bytes:
    return whole_text(draw, lines_a(), EXAMPLE)


@st.composite
def texts_b(draw: st.DrawFn) -> bytes:
    return whole_text(draw, lines_b(), EXAMPLE_B)


@settings(max_examples=100, deadline=None)
@given(text=texts_a())
def test_r6a_equals_the_literal_reader(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    same_as_literal(converted(tmp_path_factory.mktemp("a"), text), text)


@settings(max_examples=50, deadline=None)
@given(text=texts_b())
def test_r6b_equals_the_literal_reader(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    same_as_literal(converted(tmp_path_factory.mktemp("b"), text), text, named=True)


def big_text(lines: int, seed: int = 0) -> bytes:
    """Many lines: pools that repeat, change and are shuffled, features that change, bad lines."""
    rng = np.random.default_rng(seed)
    vector = [
        b" ".join(b"%d:%.6f" % (i, v) for i, v in zip([2, 3, 4, 5, 6, 1], row, strict=True))
        for row in rng.random((60, 6))
    ]
    ids = list(range(20))
    out = []
    for i in range(lines):
        if i % 40 == 0:
            ids = rng.permutation(30)[: rng.integers(2, 12)].tolist()
        if i % 200 > 150:
            ids = rng.permutation(ids).tolist()
        pool = b" ".join(b"|%d %s" % (a, vector[a + 30 * (i % 97 == 0)]) for a in ids)
        shown = b"%d" % ids[rng.integers(len(ids))]
        user = vector[rng.integers(60)]
        out.append(line(b"%d" % i, shown, b"01"[(u := rng.integers(2)) : u + 1], user, pool))
        if i % 31 == 0:
            out.append(out[-1][: rng.integers(1, 200)] + b"\n")
    return b"".join(out)


def test_the_log_is_the_same_with_any_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = big_text(1500)
    monkeypatch.setattr(sources, "BLOCK", 20_000)
    logs = []
    for jobs in (1, 2, 3):
        (tmp_path / str(jobs)).mkdir()
        logs.append(bytes_of(converted(tmp_path / str(jobs), text, jobs=jobs).path))
    assert logs[0] == logs[1] == logs[2]
    same_as_literal(whim.logs.open(tmp_path / "1" / "log.whim"), text)


@pytest.mark.parametrize("size", [1, 7, 100, 3000])
def test_blocks_of_any_size_give_the_same_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    text = big_text(60)
    monkeypatch.setattr(sources, "BLOCK", size)
    same_as_literal(converted(tmp_path, text), text)


def test_a_block_with_more_than_its_columns_hold_is_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = big_text(120)
    rows = {"events": 7, "members": 10_100, "items": 10_030, "slow": 60_100}
    monkeypatch.setattr(yahoo, "_ROWS", rows)
    same_as_literal(converted(tmp_path, text), text)


def mutated(rng: np.random.Generator, text: bytes) -> bytes:
    """Bytes changed, cut out, put in and copied elsewhere."""
    odd = b"|: \n\t\r.eE+-0123456789iduser\x00\xff"
    out = bytearray(text)
    for _ in range(rng.integers(1, 80)):
        i, j = rng.integers(len(out), size=2).tolist()
        byte = odd[rng.integers(len(odd))]
        kind = rng.integers(4)
        if kind == 0:
            out[i] = byte
        elif kind == 1:
            del out[i : i + int(rng.integers(1, 30))]
        elif kind == 2:
            out.insert(i, byte)
        else:
            out[i:i] = out[j : j + int(rng.integers(1, 60))]
    return bytes(out)


@pytest.mark.parametrize("named", [False, True])
def test_damaged_text_equals_the_literal_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    rng = np.random.default_rng(5)
    text = big_text(40)
    if named:
        text = re.sub(rb"\|(\d+) [^|\n]*", rb"|id-\1 ", text)
        text = re.sub(rb"(?m)^(\d+) (\d+) ", rb"\1 id-\2 ", re.sub(rb":[0-9.]+", b"", text))
    for _ in range(25):
        damaged = (EXAMPLE_B if named else EXAMPLE) + mutated(rng, text)
        monkeypatch.setattr(sources, "BLOCK", int(rng.integers(50, 20_000)))
        same_as_literal(converted(tmp_path, damaged), damaged, named)


# -- files -------------------------------------------------------------------------------------


def test_gzip_folders_and_order(tmp_path: Path) -> None:
    folder = tmp_path / "days"
    folder.mkdir()
    (folder / "b.gz").write_bytes(gzip.compress(line(b"2")) + gzip.compress(line(b"3")) + b"\0\0")
    (folder / "a").write_bytes(line(b"1")[:-1])  # no line feed at the end
    (folder / "c").write_bytes(b"")
    (folder / ".hidden").write_bytes(b"junk")
    log = convert([folder, folder / "a"], tmp_path / "log.whim")
    assert log.time.tolist() == [1, 2, 3, 1]
    assert log.meta["warnings"] == {"empty file": 1, "time earlier than the event before": 1}
    assert log.meta["source"]["files"] == ["a", "b.gz", "c", "a"]


def test_progress_tells_every_byte(tmp_path: Path) -> None:
    text = big_text(300)
    (tmp_path / "a").write_bytes(text)
    (tmp_path / "b.gz").write_bytes(gzip.compress(text))
    told: list[int] = []
    convert([tmp_path / "a", tmp_path / "b.gz"], tmp_path / "log.whim", progress=told.append)
    size = sum((tmp_path / name).stat().st_size for name in ("a", "b.gz"))
    assert sum(told) == size


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (gzip.compress(big_text(300))[:-2000], "ends early after [1-9][0-9]* events"),
        (gzip.compress(EXAMPLE)[:-4], "ends early after 1 events; nothing was written"),
        (gzip.compress(EXAMPLE)[:-8] + b"12345678", "damaged"),
        (gzip.compress(EXAMPLE) + b"more", "followed by something else"),
        (b"", "nothing but empty files"),
        (b"\n\n", "nothing but empty files"),
        (b"\x00\x01\x02" * 1000, "does not look like"),
        (b"time,arm\n1,2\n", "does not look like"),
        (line(click=b"7"), "no event could be read from .*: 1 × click"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, word: str) -> None:
    with pytest.raises(LogFileError, match=word):
        converted(tmp_path, content)
    assert [p.name for p in tmp_path.iterdir()] == ["text"]


def test_damaged_gzip_of_a_known_format(tmp_path: Path) -> None:
    packed = gzip.compress(big_text(500))
    for cut in (3, 11, 500, len(packed) - 1):
        with pytest.raises(LogFileError, match=r"text: the gzip file ends early"):
            converted(tmp_path, packed[:cut], format="r6a")
    assert [p.name for p in tmp_path.iterdir()] == ["text"]


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LogFileError, match="no such file"):
        convert(tmp_path / "nothing", tmp_path / "log.whim")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LogFileError, match="no files"):
        convert(tmp_path / "empty", tmp_path / "log.whim")
    with pytest.raises(LogFileError, match="at least one"):
        convert([], tmp_path / "log.whim")
    with pytest.raises(InvalidInputError, match="format"):
        converted(tmp_path, EXAMPLE, format="r7")
    with pytest.raises(InvalidInputError, match="jobs"):
        converted(tmp_path, EXAMPLE, jobs=0)


_PEAK = """
import sys
from pathlib import Path
from whim.logs.yahoo import convert
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1e3
convert(sys.argv[1], sys.argv[1] + ".first")
before = peak()
log = convert(sys.argv[2], sys.argv[2] + ".whim", format="r6a")
print(peak() - before, log.n_events, sum(log.meta["dropped"].values()))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
@pytest.mark.parametrize("packed", [False, True])
def test_a_line_without_end_takes_little_memory(tmp_path: Path, packed: bool) -> None:
    (tmp_path / "small").write_bytes(EXAMPLE)
    monster = EXAMPLE + b"1" * 100_000_000 + b"\n" + EXAMPLE
    if packed:  # a small file that unpacks to a large one
        monster = gzip.compress(monster, 1)
    (tmp_path / "large").write_bytes(monster)
    command = [sys.executable, "-c", _PEAK, str(tmp_path / "small"), str(tmp_path / "large")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    more, events, dropped = done.stdout.split()
    assert float(more) < 40
    assert (events, dropped) == ("2", "1")
