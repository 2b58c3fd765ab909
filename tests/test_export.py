"""What leaves a space: exports against hand-made logs, dsjson both ways."""

import contextlib
import gzip
import json
import sqlite3
import threading

import msgspec
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import whim
import whim.logs
from tests.test_engine import CONFIGS, SECOND, ask, clock, engine, rebuilt, reward, traffic
from whim.cli.app import app
from whim.errors import InvalidInputError, LogFileError
from whim.evaluate import replay
from whim.logs.dsjson import BAD_LINE, EXPECTED
from whim.logs.readers import format_of
from whim.serve import wire
from whim.serve.jobs import export as exporting
from whim.serve.jobs.export import export
from whim.serve.log.reader import StoreError
from whim.serve.log.rows import DecisionRow
from whim.serve.state.drawing import probability
from whim.serve.state.space import NotFoundError

__all__ = ["clock", "engine"]  # fixtures
FIRST = 1_700_000_000 * 1_000_000  # µs of the test's clock


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


def written(data, tmp_path, format, **more):
    out = tmp_path / f"out.{format}"
    found = export(data, "s", out, format=format, overwrite=True, **more)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []
    return found, out


def small(engine, clock):
    """Five decisions: matched, default, late, never shown, waiting."""
    engine.create("s", CONFIGS["score test"])
    contexts = [[float(i), 0.5, -1.0] for i in range(5)]
    keys = []
    for i, x in enumerate(contexts):
        if i == 4:
            clock.now += 20 * SECOND
            engine.tick()
        found = ask(engine, "s", context=x, decision_id=f"d{i}", deferred=i == 3)
        keys.append(found)
        engine.store.flush()
        if i == 0:
            clock.now += SECOND
            reward(engine, "s", "d0", 0.75)
            reward(engine, "s", "d0", 0.5)  # late: it is closed, and still matched
    engine.store.flush()
    reward(engine, "s", "d2")
    engine.store.flush()
    return keys


def test_parquet_has_a_row_for_each_decision_and_what_came_of_it(engine, clock, data, tmp_path):
    answers = small(engine, clock)
    found, out = written(data, tmp_path, "parquet")
    table = pl.read_parquet(out)
    assert found["rows"] == len(table) == 5
    assert table["decision_id"].to_list() == ["d0", "d1", "d2", "d3", "d4"]
    states = ["matched", "default", "late", "never shown", "waiting"]
    assert table["reward_state"].to_list() == states
    assert table["reward"].to_list() == [0.75, 0.0, 0.0, None, None]
    assert table["rewards"].to_list() == [2, 0, 1, 0, 0]
    assert table["context"].to_list()[1] == [1.0, 0.5, -1.0, 1.0]  # with its constant
    assert table["arm"].to_list() == [a.arm for a in answers]
    assert table["probability"].to_list() == [a.probability for a in answers]
    assert table["mode"].to_list() == [a.mode for a in answers]
    assert table["wanted"].to_list() == [a.ranking[0].arm for a in answers]
    assert table["candidates"].to_list() == [["a", "b", "c"]] * 5
    assert table["version"].to_list() == [1] * 5
    at = table["at"].dt.epoch("us").to_list()
    assert at == [FIRST, *[FIRST + 1_000_000] * 3, FIRST + 21_000_000]
    closed = table["reward_at"].dt.epoch("us").to_list()
    assert closed == [FIRST + 1_000_000, FIRST + 21_000_000, FIRST + 21_000_000, None, None]


def test_the_log_has_what_was_learnt(engine, clock, data, tmp_path):
    answers = small(engine, clock)
    told = []
    found = export(data, "s", tmp_path / "s.whim", format="log", progress=told.append)
    log = whim.logs.open(tmp_path / "s.whim")
    assert (found["rows"], log.n_events, log.logging) == (3, 3, "propensity")
    assert found["left_out"] == log.meta["dropped"] == {"never shown": 1, "waiting": 1}
    assert log.reward.tolist() == [0.75, 0.0, 0.0]
    assert [log.event(i).shown for i in range(3)] == [a.arm for a in answers[:3]]
    assert log.propensity.tolist() == [a.probability for a in answers[:3]]
    assert log.context[2].tolist() == [2.0, 0.5, -1.0, 1.0]
    assert log.time.tolist() == [FIRST // 1_000_000, *[FIRST // 1_000_000 + 1] * 2]
    assert log.meta["context_names"] == ["x[0]", "x[1]", "x[2]", "constant"]
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_dsjson_is_what_vw_reads(engine, clock, data, tmp_path):
    answers = small(engine, clock)
    _, out = written(data, tmp_path, "dsjson")
    first, *_ = lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == 3
    shown = ["a", "b", "c"].index(answers[0].arm)
    assert first["_label_cost"] == -0.75
    assert first["_label_Action"] == first["a"][0] == shown + 1
    assert first["_labelIndex"] == shown
    assert first["_label_probability"] == first["p"][0] == answers[0].probability
    assert sorted(first["a"]) == [1, 2, 3]
    assert sum(first["p"]) == pytest.approx(1)
    assert first["Timestamp"] == "2023-11-14T22:13:20.000000Z"
    assert (first["EventId"], first["Version"]) == ("d0", "1")
    assert first["o"] == [{"v": 0.75, "EventId": "d0"}]
    assert first["c"]["x"] == [0.0, 0.5, -1.0, 1.0]
    assert first["c"]["_multi"][0] == {"_tag": "a", "i": {"constant": 1, "id": "a"}}
    assert lines[1]["o"] == []
    assert str(lines[1]["_label_cost"]) == "0.0"  # and not -0.0


def test_times_bound_the_decisions(engine, clock, data, tmp_path):
    small(engine, clock)
    found, out = written(data, tmp_path, "parquet", since=FIRST + 1, until=FIRST + 21_000_000)
    assert found["rows"] == 3
    assert pl.read_parquet(out)["decision_id"].to_list() == ["d1", "d2", "d3"]


# -- against the fold, and both ways ----------------------------------------------------------


@pytest.mark.parametrize("kind", CONFIGS)
def test_what_is_exported_is_what_was_learnt(engine, clock, data, tmp_path, kind):
    engine.create("s", CONFIGS[kind])
    engine.create("other", CONFIGS["score test"])
    for seed in range(3):
        traffic(engine, clock, "s", 50, seed=seed)
        traffic(engine, clock, "other", 5, seed=seed)
    counts = engine.space("s").state.stats.counts
    _, out = written(data, tmp_path, "parquet")
    table = pl.read_parquet(out)
    states = dict(table["reward_state"].value_counts().iter_rows())
    assert len(table) == counts["decisions"] == 150
    assert states["matched"] == counts["matched"]
    assert table["reward"].count() == counts["closed"]
    assert states.get("never shown", 0) == counts.get("never_shown", 0)
    assert states.get("waiting", 0) == len(engine.space("s").state.pending)
    assert table["rewards"].sum() == counts["rewards"]
    log = whim.logs.open(export(data, "s", tmp_path / "s.whim", format="log")["out"])
    assert log.n_events == counts["closed"]
    assert log.reward.tolist() == table["reward"].drop_nulls().to_list()
    kept = table.filter(pl.col("reward").is_not_null())
    if log.n_item_features:
        for i in (0, 17, log.n_events - 1):
            features = log.event(i).features
            assert features.tolist() == kept["features"].to_list()[i]


@pytest.mark.parametrize("kind", [*CONFIGS, "named"])
def test_dsjson_and_back_replays_the_same(engine, clock, data, tmp_path, kind):
    config = CONFIGS.get(kind, NAMED)
    engine.create("s", config)
    if kind == "named":
        named_traffic(engine, clock)
    else:
        traffic(engine, clock, "s", 120, seed=4)
    clock.now += 1000 * SECOND
    engine.tick()
    engine.store.flush()
    straight = whim.logs.open(export(data, "s", tmp_path / "s.whim", format="log")["out"])
    _, out = written(data, tmp_path, "dsjson")
    back = whim.logs.convert(out, tmp_path / "back.whim")
    assert back.meta["source"]["reader"] == "dsjson"
    assert back.arms == straight.arms
    for name in ("time", "context", "pool", "logged", "reward", "propensity", "pool_items",
                 "item_features"):  # fmt: skip
        assert np.array_equal(getattr(back, name), getattr(straight, name)), name
    d, m = straight.n_features, straight.n_item_features
    policies = {
        "linear": whim.policy("linucb-disjoint", n_features=d),
        "plain": whim.policy("ucb"),
    }
    if m:
        policies["hybrid"] = whim.policy("pslinucb-hybrid", n_features=d, n_item_features=m)
    one, other = (replay(log, policies) for log in (straight, back))
    for label in policies:
        a, b = one.runs[label][0], other.runs[label][0]
        assert (a.matched, a.total, a.estimates()) == (b.matched, b.total, b.estimates())
    assert sum(run[0].matched for run in one.runs.values()) > 0


NAMED = wire.SpaceConfig(
    policy="pslinucb-hybrid",
    context=wire.Features(
        fields=[
            wire.Field(name="age", kind="number", mean=40, scale=10),
            wire.Field(name="device", kind="choice", values=["phone", "desk"]),
            wire.Field(name="_new", kind="flag"),
            wire.Field(name="tags", kind="hash", size=4),
        ],
        rest=3,
        constant=True,
    ),
    items=wire.Features(fields=[wire.Field(name="price", kind="number")], constant=True),
    rewards=wire.RewardRules(wait_seconds=5),
    explore=0.3,
)
HOSTILE = ["7", 7, -(2**63), 'a"b\\', "név|ns:x y", "\u2028\x00", "_multi"]


def named_traffic(engine, clock):
    for t in range(40):
        clock.now += SECOND
        context = {"age": 30 + t, "device": "phone" if t % 2 else "desk", "_new": t % 3 == 0,
                   "tags": ["a", "b"][: t % 3], "_multi": [1, 2], "free": "text"}  # fmt: skip
        candidates = [
            # told the first time, and now and then
            wire.Candidate(arm, {"price": t + i} if t % 5 == 0 else None)
            for i, arm in enumerate(HOSTILE)
        ]
        found = ask(engine, "s", candidates, context, decision_id=f'd"{t}\x01')
        engine.store.flush()
        if t % 2:
            reward(engine, "s", found.decision_id, float(t % 4 == 1))
        engine.tick()
    engine.store.flush()


def test_names_and_hostile_ids(engine, clock, data, tmp_path):
    engine.create("s", NAMED)
    named_traffic(engine, clock)
    clock.now += 6 * SECOND
    engine.tick()
    engine.store.flush()
    _, out = written(data, tmp_path, "parquet")
    table = pl.read_parquet(out)
    assert json.loads(table["context_json"][0])["age"] == 30
    assert table["decision_id"][3] == 'd"3\x01'
    assert table["candidates"][0].to_list() == [str(arm) for arm in HOSTILE]
    assert table["features"].to_list()[7][2] == [7.0, 1.0]  # of decision 5, the last that told
    log = whim.logs.open(export(data, "s", tmp_path / "s.whim", format="log")["out"])
    assert log.arms == HOSTILE
    assert log.meta["item_names"] == ["price", "constant"]
    _, out = written(data, tmp_path, "dsjson")
    text = out.read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    line = json.loads(text.split("\n")[0], parse_constant=pytest.fail)
    assert line["c"]["context"] == {"age": 30, "device": "desk", "._new": True, "._multi": 3,
                                    "free": "text"}  # fmt: skip
    assert line["c"]["_multi"][1]["_arm"] == 7
    assert "_arm" not in line["c"]["_multi"][0]


@pytest.mark.parametrize("kind", CONFIGS)
def test_chances_are_those_that_were_logged(engine, clock, data, kind):
    config = msgspec.structs.replace(CONFIGS[kind], explore=0.2, holdback=0.3)
    engine.create("s", config)
    traffic(engine, clock, "s", 40, seed=3)
    rows = [r for r in engine.store.rows() if r.kind == 3]
    for row in rows:
        told = msgspec.msgpack.decode(row.body, type=DecisionRow)
        n = len(told.arms)
        if told.drawn is not None:  # by the policy itself, which knows of the one shown alone
            p = probability(config, told.place, told.wanted, n, told.drawn)
            assert told.probability == p
            continue
        found = [probability(config, i, told.wanted, n) for i in range(n)]
        assert found[told.place] == told.probability
        assert sum(found) == pytest.approx(1)


def test_a_space_that_changed_is_exported_as_it_is_now(engine, clock, data, tmp_path):
    engine.create("s", CONFIGS["score test"])
    traffic(engine, clock, "s", 20, seed=1)
    other = msgspec.structs.replace(CONFIGS["score test"], context=wire.Features(size=2))
    engine.change("s", other)
    engine.swap("s", rebuilt(engine, "s"))
    traffic(engine, clock, "s", 10, seed=2)
    _, out = written(data, tmp_path, "parquet")
    table = pl.read_parquet(out)
    assert table["version"].to_list() == [1] * 20 + [2] * 10
    assert table["context"].to_list()[0] is None
    found = export(data, "s", tmp_path / "s.whim", format="log")
    assert found["rows"] <= 10
    assert sum(found["left_out"].values()) == 30 - found["rows"]
    engine.retire("s")
    engine.store.flush()
    assert written(data, tmp_path, "parquet")[0]["rows"] == 30  # its log stays


# -- trouble ----------------------------------------------------------------------------------


def test_spaces_with_nothing_to_export(engine, data, tmp_path):
    engine.create("s", CONFIGS["score test"])
    engine.store.flush()
    found, out = written(data, tmp_path, "parquet")
    assert found["rows"] == len(pl.read_parquet(out)) == 0
    for format in ("log", "dsjson"):
        with pytest.raises(LogFileError, match="none at all"):
            written(data, tmp_path, format)
    ask(engine, "s")
    engine.store.flush()
    assert written(data, tmp_path, "parquet")[0]["rows"] == 1
    for format in ("log", "dsjson"):
        with pytest.raises(LogFileError, match="1 × waiting"):
            written(data, tmp_path, format)
        assert not (tmp_path / f"out.{format}").exists()


def test_wrong_words_are_said(engine, data, tmp_path):
    engine.create("s", CONFIGS["score test"])
    engine.store.flush()
    with pytest.raises(NotFoundError, match=r"\(s\), got 'nobody'"):
        export(data, "nobody", tmp_path / "x", format="parquet")
    with pytest.raises(InvalidInputError, match="format"):
        export(data, "s", tmp_path / "x", format="xml")
    with pytest.raises(StoreError, match=r"no log\.db"):
        export(tmp_path / "nowhere", "s", tmp_path / "x", format="parquet")
    with pytest.raises(LogFileError, match="cannot be written"):
        export(data, "s", tmp_path / "no" / "x", format="parquet")
    (tmp_path / "x").write_text("mine")
    for format in ("parquet", "log", "dsjson"):
        with pytest.raises(LogFileError, match="is there already"):
            export(data, "s", tmp_path / "x", format=format)
    with pytest.raises(LogFileError, match="folder"):
        export(data, "s", tmp_path, format="parquet", overwrite=True)
    assert (tmp_path / "x").read_text() == "mine"


@pytest.mark.parametrize("format", exporting.FORMATS)
def test_an_export_that_is_stopped_leaves_nothing(engine, clock, data, tmp_path, format):
    small(engine, clock)

    def stop(share):
        if share > 0.5:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        export(data, "s", out, format=format, progress=stop)
    assert [p.name for p in tmp_path.iterdir()] == ["data"]
    export(data, "s", out, format=format)
    before = sorted(p.name for p in tmp_path.rglob("*"))
    with pytest.raises(KeyboardInterrupt):
        export(data, "s", out, format=format, progress=stop, overwrite=True)
    assert sorted(p.name for p in tmp_path.rglob("*")) == before


def test_an_altered_row_is_no_truth(engine, clock, data, tmp_path):
    small(engine, clock)
    with contextlib.closing(sqlite3.connect(data / "log.db", isolation_level=None)) as log:
        log.execute("UPDATE log SET at = at + 1 WHERE seq = 3")
    with pytest.raises(StoreError, match="row 3"):
        written(data, tmp_path, "parquet")


def test_an_export_while_the_engine_writes(engine, clock, data, tmp_path):
    engine.create("s", CONFIGS["score test"])
    traffic(engine, clock, "s", 30, seed=1)
    found = []

    def work():
        found.extend(
            export(data, "s", tmp_path / f"{i}.whim", format="log")["rows"] for i in range(6)
        )

    thread = threading.Thread(target=work)
    thread.start()
    seed = 2
    while thread.is_alive():
        traffic(engine, clock, "s", 10, seed=seed)
        seed += 1
    thread.join()
    assert found == sorted(found)
    assert len(found) == 6
    log = whim.logs.open(tmp_path / "5.whim")
    last = whim.logs.open(export(data, "s", tmp_path / "last.whim", format="log")["out"])
    # what was closed then is closed now, as it was
    then = {tuple(log.context[i].tolist()): log.reward[i] for i in range(log.n_events)}
    now = {tuple(last.context[i].tolist()): last.reward[i] for i in range(last.n_events)}
    assert then.items() <= now.items()


def test_many_parts_make_one_file(engine, clock, data, tmp_path, monkeypatch):
    engine.create("s", CONFIGS["hybrid"])
    traffic(engine, clock, "s", 60, seed=1)
    _, out = written(data, tmp_path, "parquet")
    whole = pl.read_parquet(out)
    monkeypatch.setattr(exporting, "_BATCH", 7)
    _, out = written(data, tmp_path, "parquet")
    assert pl.read_parquet(out).equals(whole)


def test_the_verb(engine, clock, data, tmp_path):
    small(engine, clock)
    run = CliRunner().invoke
    asked = ["export", "--data", str(data), "--space", "s", "--format"]
    out = tmp_path / "s.json.gz"
    found = run(app, [*asked, "dsjson", "--out", str(out), "--json"])
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert told["rows"] == 3
    assert told["left_out"] == {"never shown": 1, "waiting": 1}
    assert len(gzip.decompress(out.read_bytes()).splitlines()) == 3
    made = run(app, ["convert", str(out), "--to", str(tmp_path / "s.whim")])
    assert made.exit_code == 0, made.output
    assert "read 3 lines as dsjson" in made.stdout
    when = ["--since", "2023-11-14T22:13:20.5Z", "--until", "2023-11-15"]
    found = run(app, [*asked, "parquet", "--out", str(tmp_path / "p"), *when])
    assert found.exit_code == 0, found.output
    assert "4 decisions of s" in found.stdout
    bad = run(app, [*asked, "log", "--out", str(tmp_path / "l"), "--since", "soon"])
    assert bad.exit_code == 2
    assert isinstance(run(app, [*asked, "log", "--out", str(out)]).exception, LogFileError)


# -- the reader of dsjson ---------------------------------------------------------------------

LINE = {
    "_label_cost": -0.5, "_label_probability": 0.8, "_label_Action": 2, "_labelIndex": 1,
    "Timestamp": "2019-08-13T20:40:28.7880000Z", "Version": "1", "EventId": "e", "a": [2, 1, 3],
    "c": {
        "user": [{"tier": "pro", "age": 3}, {"geo": "UK", "_seen": 9}], "_synthetic": False,
        "vip": True, "x": [0.25, -1.5],
        "_multi": [
            {"_tag": "news", "i": {"constant": 1, "id": "news"}, "topic": [{"kind": "news"}]},
            {"_tag": "sport", "i": {"constant": 1, "id": "sport"}, "topic": [{"score": 2}]},
            {"_tag": "music", "i": {"constant": 1, "id": "music"}},
        ],
    },
    "p": [0.8, 0.1, 0.1], "VWState": {"m": "m"},
}  # fmt: skip


def read(tmp_path, *lines, **options):
    text = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
    (tmp_path / "day.json").write_text(text + "\n", errors="surrogatepass")
    return whim.logs.convert(
        tmp_path / "day.json", tmp_path / "day.whim", overwrite=True, format="dsjson", **options
    )


def but(**changes):
    found = json.loads(json.dumps(LINE))
    for name, value in changes.items():
        if value is ...:
            del found[name]
        elif name == "c":
            found["c"] |= value
        else:
            found[name] = value
    return found


def test_a_line_of_a_service(tmp_path):
    log = read(tmp_path, LINE)
    event = log.event(0)
    assert (event.shown, event.reward, event.time) == ("sport", 0.5, 1565728828)
    assert log.arms == ["news", "sport", "music"]
    names = ["user.tier=pro", "user.age", "user.geo=UK", "vip", "x[0]", "x[1]"]
    assert log.meta["context_names"] == names
    assert event.x.tolist() == [1.0, 3.0, 1.0, 1.0, 0.25, -1.5]
    assert log.meta["item_names"] == ["topic.kind=news", "topic.score"]
    assert event.features.tolist() == [[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]
    assert log.propensity.tolist() == [0.8]
    assert log.logging == "propensity"


def test_features_have_places_of_their_own_or_are_hashed(tmp_path):
    more = but(c={"user": {"tier": "free"}, "later": 2})
    log = read(tmp_path, LINE, more, constant=True)
    assert log.meta["context_names"][-3:] == ["user.tier=free", "later", "constant"]
    assert log.context[0].tolist()[-3:] == [0.0, 0.0, 1.0]
    assert log.context[1].tolist() == [0.0, 0.0, 0.0, 1.0, 0.25, -1.5, 1.0, 2.0, 1.0]
    log = read(tmp_path, LINE, more, size=16, item_size=2)
    assert (log.n_features, log.n_item_features) == (16, 2)
    assert np.abs(log.context[1]).sum() == pytest.approx(1 + 0.25 + 1.5 + 1 + 2)
    again = read(tmp_path, LINE, more, size=16, item_size=2)
    assert np.array_equal(again.context, log.context)


def test_too_many_features_ask_for_hashing(tmp_path):
    lines = [but(c={"n": {f"f{i}-{j}": 1 for j in range(99)}}) for i in range(50)]
    with pytest.raises(LogFileError, match="size=N"):
        read(tmp_path, *lines)
    assert read(tmp_path, *lines, size=32).n_events == 50


def test_ids_of_actions(tmp_path):
    bare = [
        {"article": {"slug": "a", "n": 4}},
        {"article": [{"slug": "b"}]},
        {"article": {"slug": 7}},
    ]
    log = read(tmp_path, but(c={"_multi": bare}))
    assert log.arms[0] == '{"article":{"n":4,"slug":"a"}}'
    assert read(tmp_path, but(c={"_multi": bare}), arm="article.slug").arms == ["a", "b", 7]
    with pytest.raises(LogFileError, match=BAD_LINE["id"]):
        read(tmp_path, but(c={"_multi": bare}), arm="article.none")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"RewardValue": 1.0, "EventId": "e", "EnqueuedTimeUtc": "2019"}, EXPECTED["dangling"]),
        (but(_skipLearn=True), EXPECTED["skipped"]),
        (but(pdrop=1), EXPECTED["dropped"]),
    ],
)
def test_what_a_sound_log_holds_beside_decisions(tmp_path, line, reason):
    log = read(tmp_path, LINE, line, LINE, strict=True)
    assert log.n_events == 2
    assert log.meta["dropped"] == {reason: 1}
    assert log.meta["read"] == 3


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "json"),
        ("[1]", "json"),
        ("[" * 100_000, "json"),
        ('{"c": NaN}', "json"),
        ('{"c": {"x": "\\ud800", "_multi": [{}]}}', "json"),
        ({"EventId": "e"}, "actions"),
        (but(c={"_multi": []}), "actions"),
        (but(c={"_multi": [1]}), "actions"),
        (but(_label_Action=4), "action"),
        (but(_label_Action=0), "action"),
        (but(_label_Action=True), "action"),
        (but(_label_Action=..., _labelIndex=..., a=...), "action"),
        (but(_label_cost=...), "cost"),
        (but(_label_cost="1"), "cost"),
        (but(_label_cost=1e11), "cost"),
        (but(Timestamp="yesterday"), "time"),
        (but(Timestamp=3), "time"),
        (but(_label_probability=0), "propensity"),
        (but(_label_probability=..., p=...), "propensity"),
        (but(c={"_multi": [{"_tag": "a"}, {"_tag": "a"}]}), "repeated"),
        (but(c={"_multi": [{"_tag": ""}, {"_tag": "a"}]}), "id"),
        (but(c={"_multi": [{}, {"_tag": "a"}]}), "id"),
        (but(c={"age": 1e11}), "features"),
        (but(c={"_x": [1.0, 2.0]}), "length"),
    ],
)  # fmt: skip
def test_each_kind_of_bad_line(tmp_path, line, reason):
    log = read(tmp_path, LINE, line, LINE)
    assert log.n_events == 2
    assert log.meta["dropped"] == {BAD_LINE[reason]: 1}
    with pytest.raises(LogFileError, match=r"day\.json, line 2: "):
        read(tmp_path, LINE, line, LINE, strict=True)


def test_what_is_missing_but_known_otherwise(tmp_path):
    log = read(
        tmp_path, LINE, but(_label_probability=...), but(_label_Action=...),
        but(_label_Action=..., _labelIndex=...), but(Timestamp=...), "",
    )  # fmt: skip
    assert log.propensity.tolist() == [0.8] * 5
    assert {log.event(i).shown for i in range(5)} == {"sport"}
    assert set(log.time.tolist()) == {1565728828}
    assert sum(log.meta["warnings"].values()) == 2
    even = read(tmp_path, but(_label_probability=..., p=...), logging="uniform")
    assert (even.logging, even.propensity) == ("uniform", None)
    with pytest.raises(InvalidInputError, match="logging"):
        read(tmp_path, LINE, logging="full")
    with pytest.raises(LogFileError, match="no event could be read"):
        read(tmp_path, but(_label_cost=...))


def test_names_of_files_tell(tmp_path):
    for name in ("a.json", "a.dsjson", "a.jsonl.gz"):
        assert format_of([tmp_path / name]) == "dsjson"
    (tmp_path / "1.json").write_text(json.dumps(LINE))
    (tmp_path / "2.json.gz").write_bytes(gzip.compress(json.dumps(LINE).encode()))
    log = whim.logs.convert([tmp_path / "1.json", tmp_path / "2.json.gz"], tmp_path / "b.whim")
    assert log.n_events == 2


def test_no_context_at_all(tmp_path):
    line = but()
    line["c"] = {"_multi": [{"_tag": "a"}, {"_tag": "b"}]}
    log = read(tmp_path, line)
    assert (log.context.tolist(), log.meta["context_names"]) == ([[1.0]], ["constant"])
