"""Verbs of the service as a user meets them: serve, spaces, keys, rebuild, demo."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

import whim
import whim.features
from whim.cli import demo, readers
from whim.cli.app import app
from whim.client import Change
from whim.errors import WhimError
from whim.serve import wire
from whim.serve.state.engine import Engine
from whim.serve.state.space import DecisionRequest, Space
from whim.serve.state.space_state import SpaceState


def run(*arguments: str) -> Any:
    """A command in this process."""
    return CliRunner().invoke(app, arguments)


def said(*arguments: str) -> str:
    found = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


def refused(*arguments: str) -> str:
    found = run(*arguments)
    assert isinstance(found.exception, WhimError), (found.output, found.exception)
    assert found.stdout == ""
    return str(found.exception)


class Served:
    """``whim serve`` in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "whim", "serve", "--port", "0", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.url = ""
        self.lines: list[str] = []
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith("whim serves at "):
                self.url = line.split()[-1]
            if line.startswith("stop with"):
                break

    def stop(self, how: int = signal.SIGINT) -> tuple[int, str]:
        """Its exit code, and what it said on stderr."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            _, err = self.process.communicate(timeout=30)
        finally:
            self.process.kill()
            self.process.wait()
        return self.process.returncode, err


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served("--data", str(tmp_path_factory.mktemp("service") / "data"))
    yield made
    made.stop()


# -- serve -----------------------------------------------------------------------------------------


def test_serve_says_where_it_is_and_stops_in_good_order(tmp_path: Path) -> None:
    config = tmp_path / "whim.toml"
    config.write_text(f'data = "{tmp_path / "one"}"\nport = 1\ndemo = false\nlog_format = "json"\n')
    made = Served("--config", str(config))
    text = "".join(made.lines)
    assert re.search(r"^whim serves at http://127\.0\.0\.1:\d+$", text, re.M), made.stop()
    assert str(tmp_path / "one") in text
    assert "Ctrl-C" in text
    with whim.Client(made.url) as client:
        assert client.spaces() == []
    code, err = made.stop()
    assert code == 0
    assert "stopped" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--port", "70000"], "port must be `int` <= 65535, got 70000."),
        (["--host", "0.0.0.0"], "host must be a loopback address while there are no keys"),
        (["--log-format", "xml"], "log_format must be one of text, json, got 'xml'."),
        (["--config", "no-such.toml"], "config must be a file that can be read"),
        (["--config", "odd.toml"], "odd.toml: prot must be a setting that exists; perhaps port."),
    ],
)
def test_serve_refuses_in_one_line(
    tmp_path: Path, arguments: list[str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.toml").write_text("prot = 1\n")
    assert line in refused("serve", "--data", str(tmp_path / "data"), *arguments)


def test_serve_refuses_a_file_for_its_data(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("mine")
    line = f"data must be a directory that can be written to, got {file}: Not a directory."
    assert refused("serve", "--data", str(file), "--port", "0") == line
    assert file.read_text() == "mine"


# -- spaces ----------------------------------------------------------------------------------------


def test_a_space_from_its_making_to_its_end(served: Served, tmp_path: Path) -> None:
    at = ("--url", served.url)
    out = said("spaces", "create", "shop", "--policy", "linucb-disjoint:alpha=0.3",
               "--set", "context.size=2", "--set", "explore=0.1", *at)  # fmt: skip
    assert out == "shop is made: linucb-disjoint\n"
    found = json.loads(said("spaces", "show", "shop", "--json", *at))
    assert found["config"]["params"] == {"alpha": 0.3}
    assert (found["config"]["explore"], found["config"]["context"]["size"]) == (0.1, 2)
    assert "shop" in said("spaces", "list", *at)
    text = said("spaces", "show", "shop", *at)
    assert "version 1" in text
    out = said("spaces", "change", "shop", "--param", "alpha=0.7", "--wait", *at)
    assert out == "shop: version 2 serves\n"
    found = json.loads(said("spaces", "list", "--json", *at))["spaces"]
    (shop,) = [info for info in found if info["name"] == "shop"]
    assert shop["config"]["params"] == {"alpha": 0.7}
    assert shop["config"]["context"]["size"] == 2
    for file, body in (("s.json", '{"policy": "ucb"}'), ("s.toml", 'policy = "ucb"')):
        (tmp_path / file).write_text(body)
        out = said("spaces", "change", "shop", "--file", str(tmp_path / file), "--wait", "--json",
                   *at)  # fmt: skip
        assert json.loads(out)["rebuilding"] is False
    assert json.loads(said("spaces", "show", "shop", "--json", *at))["config"]["policy"] == "ucb"
    answer = CliRunner().invoke(app, ["spaces", "retire", "shop", *at], input="n\n")
    assert answer.exit_code == 1
    assert said("spaces", "retire", "shop", "--yes", *at) == "shop is retired\n"
    assert "one that exists" in refused("spaces", "show", "shop", *at)


def test_spaces_refuse_in_one_line(served: Served, tmp_path: Path) -> None:
    at = ("--url", served.url)
    (tmp_path / "bad.json").write_text("[1]")
    (tmp_path / "cut.json").write_text("{")
    for arguments, line in (
        (["create", "sh op"], "name must be 1 to 64 letters (a to z), digits, points"),
        (["create", "shop\n"], "first one a letter or digit, got 'shop\\n'"),
        (["create", "s" * 65], "name must be 1 to 64 letters"),
        (["create", "s", "--policy", "magic"], "policy must be one of"),
        (["create", "s", "--param", "alpha"], "param must be made of name=value, got 'alpha'"),
        (["create", "s", "--set", "speed=3"], "unknown field `speed`"),
        (["create", "s", "--set", "alfa=2"], "perhaps params.alfa is meant."),
        (["create", "s", "--set", "exlpore=0.1"], "perhaps explore is meant."),
        (["create", "s", "--set", "list.x=3"], "list.x must be a field of a space, got an unkn"),
        (["create", "s", "--set", "seed.x=3"], "seed must be a whole number, got {'x': 3}."),
        (["create", "s", "--set", "shadow=maybe"], "shadow must be true or false, got 'maybe'."),
        (["create", "s", "--set", "explore=2"], "explore must be a number <= 1.0, got 2."),
        (
            ["create", "s", "--set", "baseline=last"],
            "baseline must be as docs/serving.md says, got",
        ),
        (["create", "s", "--set", f"params.x={2**70}"], "params must hold whole numbers between"),
        (["create", "s", "--set", "policy=ucb", "--set", "policy.x=3"], "set must name a field"),
        (["create", "s", "--file", "no-such.json"], "file must be one that can be read"),
        (["create", "s", "--file", str(tmp_path / "bad.json")], "file must hold an object"),
        (["create", "s", "--file", str(tmp_path / "cut.json")], "file must be JSON or TOML"),
        (["change", "demo"], "change must name what to change"),
        (["show", "nowhere"], "one that exists"),
    ):
        assert line in refused("spaces", *arguments, *at)
    assert "url must be http" in refused("spaces", "list", "--url", "here")
    assert "a service that answers" in refused("spaces", "list", "--url", "http://127.0.0.1:1")


def test_a_space_learns_from_a_table(served: Served, tmp_path: Path) -> None:
    at = ("--url", served.url)
    file, log = tmp_path / "visits.csv", tmp_path / "visits.whim"
    rng = np.random.default_rng(0)
    rows = ["visit,device,price,shown,click"]
    for visit in range(600):
        device, shown = rng.choice(["phone", "desk", ""]), rng.choice(["sale", "new"])
        click = int(rng.random() < (0.6 if (shown == "sale") == (device == "phone") else 0.1))
        price = "" if visit % 50 == 7 else f"{np.exp(rng.normal(3, 1)):.2f}"
        rows.append(f"v{visit},{device},{price},{shown},{click}")
    file.write_text("\n".join([*rows, "v-,phone,1,,1", "v+,phone,1,new,"]) + "\n")
    columns = ("--arm", "shown", "--reward", "click")
    said("convert", str(file), "--to", str(log), *columns, "--context", "device,price")
    made = ("--policy", "linucb-disjoint:alpha=0.3", "--features", str(log))
    said("spaces", "create", "table", *made, *at)
    send = ("spaces", "learn", "table", str(file), *columns, "--id", "visit", *at)
    assert "shadow of table must be true" in refused(*send)
    said("spaces", "change", "table", "--set", "shadow=true", "--wait", *at)
    out = said(*send)
    assert "rewards  600 learnt" in out
    assert "dropped  1 no arm, 1 no reward" in out
    assert json.loads(said(*send, "--json"))["rewards"] == {"duplicate": 600}

    # what the space knows is what a policy in this process learns from the same rows
    policy = whim.LinUCBDisjoint(n_features=whim.features.load(log).size, alpha=0.3)
    converted = whim.logs.open(log)
    policy.add_arms(converted.arms)
    for i in range(converted.n_events):
        event = converted.event(i)
        policy.update(event.shown, event.x, event.reward)
    said("spaces", "change", "table", "--set", "shadow=false", "--wait", *at)
    with whim.Client(served.url, space="table") as client:
        assert client.stats()["counts"]["decisions_shadow"] == 600
        for device, price in (("phone", 3.0), (None, 80.0), ("desk", None)):
            context = {"device": device, "price": price}
            answer = client.decide(context, ["sale", "new"])
            x = whim.features.load(log)(context)
            means = {d.arm: d.mean for d in policy.rank(x)}
            assert {one.arm: one.mean for one in answer.ranking} == means
            assert client.reward(answer.decision_id, device is None).state == "learnt"
            policy.update(answer.arm, x, float(device is None))


def test_tables_that_a_space_cannot_learn_from(served: Served, tmp_path: Path) -> None:
    at = ("--url", served.url)
    space = {"policy": "ucb", "shadow": True,
             "context": {"fields": [{"name": "age", "kind": "number"}]}}  # fmt: skip
    with whim.Client(served.url) as client:
        client.create("strict", **space, rewards={"range": {"least": 0, "most": 1}})
        client.create("vector", policy="ucb", shadow=True)
        client.create("items", **{**space, "policy": "pslinucb-hybrid"}, items={"size": 2})
    file = tmp_path / "t.csv"
    file.write_text("age,shown,click\n3,a,1\n4,b,7\n5,a,0\n")
    (tmp_path / "empty.csv").write_text("age,shown,click\n3,,1\n")
    (tmp_path / "ids.csv").write_text("visit,age,shown,click\nv,3,a,1\nv,4,b,1\nw,5,a,0\n")
    (tmp_path / "known.csv").write_text("visit,age,shown,click\nv,3,a,1\nu,4,b,1\nw,5,a,0\n")
    with whim.Client(served.url, space="strict") as client:
        client.decide({"age": 40}, ["b"], decision_id="u")
    (tmp_path / "other.csv").write_text("years,shown,click\n3,a,1\n")
    columns = ("--arm", "shown", "--reward", "click")
    for name, table, options, line in (
        ("strict", "t.csv", ("--arm", "show", "--reward", "click"), "no column 'show' for arm"),
        ("strict", "t.csv", (*columns, "--id", "visit"), "no column 'visit' for id"),
        ("strict", "other.csv", columns, "no column 'age' for the context of the space"),
        ("strict", "empty.csv", columns, "must have rows that can be learnt: 1 × no arm."),
        ("strict", "no.csv", columns, "there is no such file"),
        ("vector", "t.csv", columns, "context of vector must have fields"),
        ("items", "t.csv", columns, "items of items must have no features"),
        ("strict", "t.csv", columns, "the reward of row 2 must be from 0 to 1, as rewards.range"),
        ("strict", "ids.csv", (*columns, "--id", "visit"), "'v' in rows 1, 2; 1 such values are"),
        ("strict", "known.csv", (*columns, "--id", "visit"), "row 2 must be one that strict takes"),
    ):
        assert line in refused("spaces", "learn", name, str(tmp_path / table), *options, *at)
    with whim.Client(served.url, space="strict") as client:  # those of known.csv that were fine
        counts = client.stats()["counts"]
        assert (counts["decisions"], counts["rewards_learnt"]) == (3, 2)
    send = ("spaces", "learn", "strict", str(file), *columns, "--json", *at)
    for rest, found in (
        ("4,b,1\n5,a,0\n", {"learnt": 3}),  # mended
        ("5,a,0\n5,a,0\n", {"duplicate": 2, "learnt": 1}),  # a row is removed, one comes
    ):
        file.write_text(f"age,shown,click\n3,a,1\n{rest}")
        assert json.loads(said(*send))["rewards"] == found
    (tmp_path / "more").mkdir()  # another file of that name
    other = file.rename(tmp_path / "more" / file.name)
    found = json.loads(said(*send[:3], str(other), *send[4:]))
    assert found["rewards"] == {"learnt": 3}


# -- keys ------------------------------------------------------------------------------------------


def test_keys_are_made_listed_and_revoked_on_the_files(tmp_path: Path) -> None:
    at = ("--data", str(tmp_path / "data"))
    made = run("keys", "make", "shop", "--scope", "decide", "--scope", "reward", *at)
    assert made.exit_code == 0
    assert re.fullmatch(r"whim_[\w-]{43}\n", made.stdout)
    assert "store it now" in made.stderr
    assert made.stdout.strip() not in made.stderr
    assert "No key has the scope admin" in made.stderr
    text = said("keys", "list", *at)
    assert "shop" in text
    assert made.stdout.strip() not in text
    assert said("keys", "revoke", "shop", *at) == "shop is revoked\n"
    (key,) = json.loads(said("keys", "list", "--json", *at))["keys"]
    assert (key["name"], key["scopes"], key["revoked"]) == ("shop", ["decide", "reward"], True)
    assert "name must be new" in refused("keys", "make", "shop", "--scope", "read", *at)
    assert "scopes must be among" in refused("keys", "make", "b", "--scope", "all", *at)
    assert "name must be that of a key" in refused("keys", "revoke", "nobody", *at)
    # one for some spaces is not enough, one for all is
    for name, more in (("here", ("--space", "news")), ("all", ()), ("web", ())):
        made = run("keys", "make", name, "--scope", "admin", *more, *at)
        assert ("No key has the scope admin" in made.stderr) == (name == "here")
    gone = str(tmp_path / "nowhere")
    assert "directory that exists" in refused("keys", "list", "--data", gone)
    assert not Path(gone).exists()
    assert run("keys", "make", "c").exit_code == 2


def test_keys_for_some_spaces_and_with_an_end(tmp_path: Path) -> None:
    at = ("--data", str(tmp_path / "data"))
    limited = ("--space", "news", "--space", "shop", "--until", "2999-06-30")
    assert run("keys", "make", "partner", "--scope", "decide", *limited, *at).exit_code == 0
    (key,) = json.loads(said("keys", "list", "--json", *at))["keys"]
    assert (key["spaces"], key["until"]) == (["news", "shop"], "2999-06-30T23:59:59Z")
    assert "news, shop" in said("keys", "list", *at)
    wrong = ("keys", "make", "old", "--scope", "read", "--until", "2001-01-01", *at)
    assert "until must be in the future, got '2001-01-01'" in refused(*wrong)


def test_a_running_service_takes_keys_as_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHIM_KEY", raising=False)
    data = tmp_path / "data"
    made = Served("--data", str(data))
    try:
        at = ("--url", made.url)
        assert "demo" in said("spaces", "list", *at)
        token = said("keys", "make", "reader", "--scope", "read", "--data", str(data)).strip()
        end = time.monotonic() + 10
        while run("spaces", "list", *at).exit_code == 0:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert "key must" in refused("spaces", "list", *at)
        assert "demo" in said("spaces", "list", "--key", token, *at)
        monkeypatch.setenv("WHIM_KEY", token)
        assert "demo" in said("spaces", "list", *at)
        assert "scope admin" in refused("spaces", "create", "s", *at)
    finally:
        made.stop()


# -- rebuild ---------------------------------------------------------------------------------------


def filled(data: Path, decisions: int, *, snapshot: bool = True) -> None:
    """A log with a change of interest in it, and a snapshot of its first half."""
    paper = readers.Newspaper(decisions, lambda now, shift: None)
    engine = Engine(data)
    engine.create("news", msgspec.convert(readers.CONFIG, wire.SpaceConfig))
    engine.create("idle", wire.SpaceConfig())
    for i in range(decisions):
        paper.at(i)
        reader = paper.reader()
        body = wire.DecisionBody(candidates=list(readers.SECTIONS), context=reader)
        found = msgspec.json.decode(engine.decide("news", body, b""), type=wire.Answer)
        value = paper.clicks(reader, str(found.arm))
        engine.reward("news", wire.RewardBody(decision_id=found.decision_id, value=value))
        if i == decisions // 2 and snapshot:
            engine.store.flush()
            engine.snapshot("news")
    engine.close()


def test_rebuild_from_the_whole_log_is_what_a_restart_would_have(tmp_path: Path) -> None:
    filled(tmp_path, 400)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.db")}
    found = json.loads(said("rebuild", "--data", str(tmp_path), "--json"))["spaces"]
    idle, news = found
    assert (idle["space"], idle["equal"], idle["rows"]) == ("idle", None, 1)
    assert news["equal"] is True
    assert news["digest"] == news["digest_of_snapshot"]
    assert (news["rows"], 0 < news["rest"] < 500) == (801, True)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.db")} == before
    out = said("rebuild", "--data", str(tmp_path), "--space", "news")
    assert "equal" in out
    assert news["digest"][:16] in out


def test_rebuild_says_so_if_they_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, 100)
    real = SpaceState.digest
    monkeypatch.setattr(SpaceState, "digest", lambda self: real(self) + str(id(self)))
    done = run("rebuild", "--data", str(tmp_path), "--space", "news")
    assert done.exit_code == 1
    assert "DIFFERENT" in done.stdout


def test_rebuild_refuses(tmp_path: Path) -> None:
    assert "a service's directory" in refused("rebuild", "--data", str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    filled(tmp_path, 5)
    assert "one of idle, news, got 'x'" in refused("rebuild", "--data", str(tmp_path),
                                                   "--space", "x")  # fmt: skip
    (tmp_path / "snapshots.db").write_bytes(b"x" * 5000)  # no snapshot is no fault
    assert "no snapshot" in said("rebuild", "--data", str(tmp_path))
    assert (tmp_path / "snapshots.db").read_bytes() == b"x" * 5000
    with sqlite3.connect(tmp_path / "log.db") as connection:
        connection.execute("UPDATE log SET at = at + 1 WHERE seq = 5")
    connection.close()
    assert "row 5 of log.db must match its checksum" in refused("rebuild", "--data", str(tmp_path))


def test_rebuild_while_the_service_runs(served: Served) -> None:
    data = next(line.split()[-1] for line in served.lines if line.startswith("data in"))
    with whim.Client(served.url, space="busy") as client:
        client.create("busy", context={"size": 1})
        over = threading.Event()

        def drive() -> None:
            while not over.is_set():
                made = client.decide([1.0], ["a", "b"])
                client.reward(made.decision_id, 1.0)

        thread = threading.Thread(target=drive)
        thread.start()
        try:
            rows = 0
            while rows < 50:
                out = json.loads(said("rebuild", "--data", data, "--space", "busy", "--json"))
                assert out["spaces"][0]["equal"] is not False
                rows = out["spaces"][0]["rows"]
        finally:
            over.set()
            thread.join()


# -- demo ------------------------------------------------------------------------------------------


def test_the_demo_s_changes_are_found_within_it() -> None:
    """The readers against the engine itself, without waiting for a minute."""
    seconds, rate = 60, 120
    made: dict[str, float] = {}
    found: dict[str, float] = {}
    extra = 0
    paper = readers.Newspaper(seconds, lambda now, shift: made.update({shift.section: now}))
    space = Space(1, "s", SpaceState(msgspec.convert(readers.CONFIG, wire.SpaceConfig)))
    waiting: list[tuple[float, str, float]] = []
    seq = 0
    for i in range(seconds * rate):
        now = i / rate
        paper.at(now)
        reader = paper.reader()
        body = wire.DecisionBody(
            candidates=list(readers.SECTIONS), context=reader, decision_id=str(i)
        )
        seq += 2
        one = DecisionRequest(body)
        space.decide([one], seq, int(now * 1e6))
        answer = msgspec.json.decode(one.answer, type=wire.Answer)
        waiting.append((now + 0.7, str(i), paper.clicks(reader, str(answer.arm))))
        if waiting[0][0] <= now:
            _, key, value = waiting.pop(0)
            told = wire.RewardBody(decision_id=key, value=value)
            for change in space.reward(told, seq + 1, int(now * 1e6))[2]:
                arm = str(change.event.arm)
                extra += arm in found or arm not in made
                found.setdefault(arm, now)
    assert set(made) == {"sport", "culture", "politics", "travel"}
    assert {"sport", "politics"} <= set(found)
    assert len(found) >= 3
    assert all(0 < found[arm] - made[arm] < 20 for arm in found)
    assert found["sport"] - made["sport"] < 5
    assert extra <= 1


def test_the_demo_from_start_to_end(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (tmp_path / "csv.py").write_text("raise SystemExit('not that one')")  # as one may have there
    home = {"PYTHONPATH": str(Path(whim.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "whim", "demo", "--seconds", "3", "--port", "0",
         "--no-browser", "--data", str(data)],
        cwd=tmp_path, env={**os.environ, **home},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"open http://127\.0\.0\.1:\d+/spaces/newspaper\n", done.stdout)
    assert "sport bores everybody" in done.stdout
    assert re.search(r"click rate +\d+\.\d% of .* with whim", done.stdout)
    assert re.search(r"changes +\d of 4 detected", done.stdout)
    assert done.stderr in ("", demo._FIRST_START + "\n")  # a first start compiles
    found = json.loads(said("rebuild", "--data", str(data), "--json"))["spaces"]
    assert found[0]["space"] == "newspaper"
    assert found[0]["rows"] > 100


def test_the_demo_says_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    def change(arm: str) -> Change:
        return Change(
            seq=9, at="", space="newspaper", version=1, arm=arm, step=9, plays=9, statistic=9.0,
            threshold=1.0, window=8, theta_before=[0.5, 0.1], theta_after=[0.1, 0.2],
            features=["device=phone", "evening"],
        )  # fmt: skip

    show = demo._Show("http://127.0.0.1:1", 60, 0)
    show._began = time.monotonic() - 20
    show._paper.at(18.0)
    for arm in ("sport", "sport", "science"):
        show._noticed(change(arm))
    show._shown = {"whim": [1000, 440.0], "holdback": [100, 21.0]}
    show.summary()
    text = capsys.readouterr().out
    assert "  18.0 s  the season is over: sport bores everybody\n" in text
    assert "  20.0 s  → detected: sport, 2.0 s after (device=phone +0.50 → +0.10)\n" in text
    assert text.count("a false alarm, or a duplicate") == 2
    assert "44.0% of 1,000 readers with whim, 21.0% of 100 held back" in text
    assert "1 of 2 detected, and 2 false alarms" in text


def test_the_demo_is_stopped_and_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "whim", "demo", "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert process.stdout is not None
    url = process.stdout.readline().split()[-1].rpartition("/spaces/")[0]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
    with whim.Client(url, retries=0) as client, pytest.raises(WhimError, match="answers"):
        client.spaces()


def test_the_demo_refuses(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_bytes(b"x" * 5000)
    text = refused("demo", "--port", "0", "--no-browser", "--data", str(tmp_path))
    assert "log.db must be a readable log" in text
    assert run("demo", "--seconds", "0").exit_code == 2
    assert run("demo", "--port", "70000").exit_code == 2
