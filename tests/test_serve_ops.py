"""The service's surroundings: settings, keys, limits, metrics and logs."""

import json
import logging
import os
import stat
import threading
import timeit
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.captured import captured
from tests.clocks import Clock
from whim.cli import show_notices
from whim.errors import InvalidInputError
from whim.serve import wire
from whim.serve.http.guard import refuse_open
from whim.serve.http.keys import SCOPES, Keys, KeysError
from whim.serve.http.limits import Rates
from whim.serve.http.metrics import Metrics
from whim.serve.log.reader import StoreError
from whim.serve.logging import get
from whim.serve.settings import ConfigError, Settings, load
from whim.serve.state.clock import ClockView
from whim.serve.state.engine import Engine

# -- settings ---------------------------------------------------------------------------------


def written(tmp_path, text):
    path = tmp_path / "whim.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_settings_need_nothing():
    assert load(None) == Settings()
    assert load(None).host == "127.0.0.1"


def test_settings_come_from_the_file_and_what_is_given_wins(tmp_path):
    path = written(tmp_path, 'port = 9000\nrate = 5\n[[webhooks]]\nurl = "https://a.example/x"\n')
    found = load(path, port=9001, host=None, data=tmp_path)
    assert (found.port, found.rate, found.host) == (9001, 5.0, "127.0.0.1")
    assert found.data == str(tmp_path)
    assert found.webhooks[0].url == "https://a.example/x"


@pytest.mark.parametrize(
    ("text", "field", "more"),
    [
        ("prot = 1", "prot", "perhaps port"),
        ('port = "x"', "port", "'x'"),
        ("port = 70000", "port", "70000"),
        ("port = true", "port", "True"),
        ("rate = nan", "rate", "nan"),
        ("rate = inf", "rate", "inf"),
        ("demo = 1", "demo", "bool"),
        ('log_level = "loud"', "log_level", "debug, info, warning, error"),
        ('host = "a b"', "host", "'a b'"),
        ("webhooks = [{}]", "webhooks[0].url", "given"),
        ("webhooks = [{url = 1}]", "webhooks[0].url", "`int`"),
        ('webhooks = [{url = "ftp://a/secret"}]', "webhooks[0].url", "ftp"),
        ('webhooks = [{url = "http://"}]', "webhooks[0].url", "host"),
        ('webhooks = [{url = "http://a:99999/secret"}]', "webhooks[0].url", "cannot be read"),
        ('webhooks = [{url = "http://a/ secret"}]', "webhooks[0].url", "escaped"),
        ('webhooks = [{url = "http://a", spces = []}]', "webhooks[0].spces", "perhaps spaces"),
        ('webhooks = [{url = "http://a"}, {url = "http://a"}]', "webhooks[1].url", "webhooks[0]"),
        ("port = ", "config", "TOML"),
    ],
)
def test_a_wrong_setting_is_one_sentence_that_names_it(tmp_path, text, field, more):
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, text))
    said = str(caught.value)
    assert f"{field} must " in said
    assert more in said
    assert "\n" not in said
    assert "secret" not in said
    assert said.endswith(".")


def test_what_is_given_is_checked_and_not_blamed_on_the_file(tmp_path):
    with pytest.raises(ConfigError, match=r"^port must be"):
        load(written(tmp_path, "port = 1"), port=-1)
    with pytest.raises(ConfigError, match=r"^config must be a file"):
        load(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(tmp_path / "bytes.toml")


def test_only_loopback_is_open(tmp_path):
    keys = Keys(tmp_path / "keys.json")
    for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        refuse_open(load(None, host=host), keys)
    for host in ("0.0.0.0", "::", "192.168.0.3", "example.org", "127.0.0.1.example.org"):
        with pytest.raises(ConfigError, match="host must be a loopback"):
            refuse_open(load(None, host=host), keys)
    keys.make("a", ["read"])
    refuse_open(load(None, host="0.0.0.0"), keys)


# -- keys -------------------------------------------------------------------------------------


def test_a_key_is_known_by_its_token_alone(tmp_path):
    path = tmp_path / "data" / "keys.json"
    keys = Keys(path)
    assert not keys.any
    assert keys.check("whim_x") is None
    token = keys.make("web", ["reward", "decide"])
    assert token.startswith("whim_")
    assert len(token) >= 5 + 43
    found = keys.check(token)
    assert found is not None
    assert (found.name, found.scopes, found.revoked) == ("web", ["decide", "reward"], False)
    assert found.allows("decide")
    assert not found.allows("read")
    assert not found.allows("admin")
    assert keys.any
    for wrong in ("", token[:-1], token + "x", token.upper(), "\udcff", "é" * 100_000):
        assert keys.check(wrong) is None
    text = path.read_text(encoding="utf-8")
    assert token not in text
    assert token[5:] not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(p.name for p in path.parent.iterdir()) == ["keys.json", "keys.json.lock"]


def test_admin_includes_all(tmp_path):
    keys = Keys(tmp_path / "keys.json")
    key = keys.check(keys.make("root", ["admin"]))
    assert all(key.allows(scope) for scope in SCOPES)


@pytest.mark.parametrize("name", ["", "a b", "../x", "-a", "a\n", "x" * 65, "é"])
def test_key_names_are_plain(tmp_path, name):
    with pytest.raises(InvalidInputError, match="name must be"):
        Keys(tmp_path / "keys.json").make(name, ["read"])


@pytest.mark.parametrize("scopes", [[], ["write"], ["read", "root"], "read", "admin"])
def test_scopes_are_among_four(tmp_path, scopes):
    with pytest.raises(InvalidInputError, match="scopes must be among decide"):
        Keys(tmp_path / "keys.json").make("a", scopes)


def test_a_name_is_taken_once_and_for_all(tmp_path):
    keys = Keys(tmp_path / "keys.json")
    keys.make("a", ["read"])
    keys.revoke("a")
    with pytest.raises(InvalidInputError, match="new"):
        keys.make("a", ["read"])
    with pytest.raises(InvalidInputError, match="that of a key"):
        keys.revoke("b")


def test_a_running_service_sees_what_another_process_does(tmp_path):
    clock = Clock(100.0)
    service, operator = Keys(tmp_path / "keys.json", clock), Keys(tmp_path / "keys.json")
    assert not service.any
    token = operator.make("a", ["read"])
    clock.now += 1.1
    assert service.check(token).name == "a"
    operator.revoke("a")
    clock.now += 1.1
    assert service.check(token) is None
    assert service.any  # a revoked key does not open the service
    assert [k.revoked for k in operator.list()] == [True]


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"format":2,"keys":[]}', b"\xff", b"[" * 9999]
)
def test_a_damaged_file_closes(tmp_path, damage):
    clock = Clock(100.0)
    path = tmp_path / "keys.json"
    keys = Keys(path, clock)
    token = keys.make("a", ["admin"])
    assert keys.check(token)
    whole = path.read_bytes()
    path.write_bytes(damage)
    clock.now += 1.1
    assert keys.check(token) is None
    assert keys.any
    assert "keys.json" in keys.problem
    fresh = Keys(path)
    assert fresh.any
    assert fresh.check(token) is None
    for call in (fresh.list, lambda: fresh.make("b", ["read"]), lambda: fresh.revoke("a")):
        with pytest.raises(KeysError):
            call()
    assert path.read_bytes() == damage
    path.write_bytes(whole)
    clock.now += 1.1
    assert keys.check(token)
    assert keys.problem is None


def test_a_key_twice_in_the_file_is_damage(tmp_path):
    path = tmp_path / "keys.json"
    Keys(path).make("a", ["read"])
    told = json.loads(path.read_bytes())
    told["keys"] *= 2
    path.write_text(json.dumps(told))
    assert Keys(path).any
    with pytest.raises(KeysError, match="once"):
        Keys(path).list()


def test_a_file_that_goes_away_does_not_open(tmp_path):
    clock = Clock(100.0)
    keys = Keys(tmp_path / "keys.json", clock)
    token = keys.make("a", ["admin"])
    assert keys.check(token)
    keys.path.unlink()
    clock.now += 1.1
    assert keys.any
    assert keys.check(token) is None
    with pytest.raises(KeysError, match="gone"):
        keys.make("b", ["admin"])


def test_a_directory_in_its_place_closes(tmp_path):
    (tmp_path / "keys.json").mkdir()
    keys = Keys(tmp_path / "keys.json")
    assert keys.any
    assert keys.check("whim_x") is None


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    keys = Keys(tmp_path / "keys.json")
    token = keys.make("a", ["read"])

    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(KeysError, match="No space left"):
            keys.make("b", ["read"])
    assert keys.check(token)
    assert len(keys.list()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["keys.json", "keys.json.lock"]


def test_writers_at_once_lose_nothing(tmp_path):
    def make(i):
        Keys(tmp_path / "keys.json").make(f"k{i}", ["read"])

    threads = [threading.Thread(target=make, args=(i,)) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert {k.name for k in Keys(tmp_path / "keys.json").list()} == {f"k{i}" for i in range(12)}


# -- limits -----------------------------------------------------------------------------------


def test_a_bucket_empties_and_fills():
    clock = Clock(100.0)
    rates = Rates(2.0, 3, clock)
    assert [rates.take("a") for _ in range(3)] == [0.0] * 3
    wait = rates.take("a")
    assert wait == pytest.approx(0.5)
    assert rates.take("a") == wait  # asking too early costs nothing
    assert rates.take("b") == 0.0
    clock.now += wait
    assert rates.take("a") == 0.0
    assert rates.take("a") > 0
    clock.now += 1000
    assert [rates.take("a") > 0 for _ in range(4)] == [False, False, False, True]


def test_a_caller_gets_its_rate():
    clock = Clock(100.0)
    rates = Rates(7.0, 5, clock)
    taken = 0
    for _ in range(10_000):
        clock.now += 0.01
        taken += rates.take("a") == 0.0
    assert abs(taken - 7 * 100 - 5) <= 1


def test_no_rate_is_no_limit_and_keeps_nothing():
    rates = Rates(0, 1)
    assert not any(rates.take("a") for _ in range(1000))
    assert len(rates) == 0


def test_callers_are_bounded_and_the_oldest_goes_first():
    clock = Clock(100.0)
    rates = Rates(0.001, 1, clock, most=100)
    for i in range(1000):
        assert rates.take(f"c{i}") == 0.0
        assert rates.take("busy" if i else "c0") >= 0.0
    assert len(rates) == 100
    assert rates.take("busy") > 0  # seen all the time, so kept


@pytest.mark.parametrize("wrong", [(-1, 1), (float("nan"), 1), (1, 0)])
def test_rates_must_make_sense(wrong):
    with pytest.raises(InvalidInputError, match="must be at least"):
        Rates(*wrong)


# -- metrics ----------------------------------------------------------------------------------


def scraped(metrics):
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            found[sample.name, *sorted(sample.labels.values())] = sample.value
    return found


@pytest.fixture
def engine(tmp_path):
    made = Engine(tmp_path / "data")
    yield made
    made.close()


def test_metrics_are_what_the_spaces_have_counted(engine):
    clock = Clock(100.0)
    metrics = Metrics(clock=clock)
    assert b"whim_arms" not in metrics.render()
    metrics.engine = engine
    engine.create("news", wire.SpaceConfig(context=wire.Features(size=1)))
    for i in range(5):
        body = wire.DecisionBody(candidates=["a", "b"], context=[1.0], decision_id=f"d{i}")
        engine.decide("news", body, str(i).encode())
    for i in (0, 1, 1):
        engine.reward("news", wire.RewardBody(decision_id=f"d{i}", value=1.0))
    engine.store.flush()
    metrics.change("news")
    metrics.webhook("failed")
    clock.now += 7
    found = scraped(metrics)
    assert found["whim_decisions_total", "news", "policy"] == 5
    assert found["whim_decisions_total", "holdback", "news"] == 0
    assert found["whim_rewards_total", "learnt", "news"] == 2
    assert found["whim_rewards_total", "late", "news"] == 1
    assert found["whim_changes_total", "news"] == 1
    assert found["whim_waiting", "news"] == 3
    assert found["whim_arms", "news"] == 2
    assert found["whim_steps_total", "news"] == 2
    assert found["whim_log_rows_total",] == 9
    assert found["whim_store_failed",] == 0
    assert found["whim_snapshot_age_seconds",] == 7
    assert found["whim_webhooks_total", "failed"] == 1
    assert found["whim_webhooks_total", "delivered"] == 0
    metrics.snapshot("news")
    assert scraped(metrics)["whim_snapshot_age_seconds",] == 0
    engine.retire("news")
    found = scraped(metrics)
    assert ("whim_arms", "news") not in found
    assert found["whim_log_rows_total",] >= 9
    engine.store.failed = StoreError("full.")
    assert scraped(metrics)["whim_store_failed",] == 1


def test_requests_fall_into_buckets():
    metrics = Metrics()
    for seconds in (0.0001, 0.0005, 0.003, 100.0):
        metrics.request("/v1/spaces/{space}", "GET", 200, seconds)
    found = scraped(metrics)
    labels = ("200", "GET")
    path = "/v1/spaces/{space}"

    def bucket(le):
        return found["whim_request_seconds_bucket", *sorted([*labels, path, le])]

    assert [bucket(le) for le in ("0.0005", "0.002", "0.005", "10.0", "+Inf")] == [2, 2, 3, 3, 4]
    assert found["whim_request_seconds_count", *sorted([*labels, path])] == 4
    assert found["whim_request_seconds_sum", *sorted([*labels, path])] == pytest.approx(100.0036)


def test_callers_cannot_make_series_without_end():
    metrics = Metrics()
    for i in range(5000):
        metrics.request("/x", f"M{i}", 405, 0.1)
    assert metrics.render().count(b"whim_request_seconds_count") == 1
    for i in range(5000):
        metrics.request(f"/{i}", "GET", 200, 0.1)
    text = metrics.render()
    assert text.count(b"whim_request_seconds_count") < 2100
    assert b'route="other"' in text


def test_hostile_names_are_escaped():
    space = SimpleNamespace(
        state=SimpleNamespace(
            stats=SimpleNamespace(counts={}),
            policy=SimpleNamespace(step=3, arms=[]),
            pending={},
            seq=1,
        ),
        guard=SimpleNamespace(counts={}),
    )
    names = ['a"} 1\nwhim_arms{space="b', "back\\slash", "\ud800"]
    engine = SimpleNamespace(
        spaces=dict.fromkeys(names, space), seq=0, failed=None, trouble=None,
        totals={name: {"steps": 3} for name in names},
        store=SimpleNamespace(queued_bytes=0, committed=0),
        clock=SimpleNamespace(view=ClockView(False, 0.0, 0)),
        lag=None, queued_bytes=0,
    )  # fmt: skip
    engine.parts = [engine]
    found = scraped(Metrics(engine))
    assert ("whim_arms", "b") not in found
    assert found["whim_steps_total", names[0]] == 3
    assert found["whim_steps_total", names[1]] == 3
    assert found["whim_steps_total", "?"] == 3


def test_counting_a_request_is_cheap():
    metrics = Metrics()
    metrics.request("/r", "POST", 200, 0.001)
    best = min(
        timeit.repeat(lambda: metrics.request("/r", "POST", 200, 0.001), number=2000, repeat=20)
    )
    assert best / 2000 < 3e-6


# -- logs -------------------------------------------------------------------------------------


@pytest.fixture
def logs(capsys):
    with captured(capsys) as begin:
        yield begin


TOKEN = "whim_" + "aB3-_" * 8 + "xyz"


def test_logs_are_json_lines(logs):
    lines = logs(log_format="json")
    get("host").info("ready", rows=3, odd=object(), infinite=float("inf"))
    get("whim.host").debug("not said")
    logging.getLogger("uvicorn.error").info("Started %s", "it", extra={"color_message": "x"})
    logging.getLogger("other").info("not said")
    logging.getLogger("other").warning("careful")
    first, second, third = (json.loads(line) for line in lines())
    assert (first["event"], first["rows"], first["level"]) == ("ready", 3, "info")
    assert first["logger"] == "whim.host"
    assert first["timestamp"].endswith("Z")
    assert (second["event"], second["logger"]) == ("Started it", "uvicorn.error")
    assert third["event"] == "careful"


def test_set_up_twice_says_things_once(logs):
    logs()
    lines = logs()
    get("x").info("once")
    assert len(lines()) == 1


def test_what_kernels_say_is_in_the_services_log_once(logs):
    show_notices()  # as the command line does before it starts a service
    lines = logs(log_format="json")
    logging.getLogger("whim.kernels").info("compiling kernels; kept in %s", "here")
    (line,) = (json.loads(line) for line in lines())
    assert (line["event"], line["logger"]) == ("compiling kernels; kept in here", "whim.kernels")


def test_text_is_one_line_and_obeys_nobody(logs):
    lines = logs(log_level="debug")
    get("host").debug("be\nware", space="a\x1b[31m b\r\n2026 error forged", n=1.5, empty="")
    (line,) = lines()
    assert "\x1b" not in line
    assert "debug   be\\nware" in line
    assert "n=1.5" in line
    assert "empty=''" in line


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_secret_is_ever_logged(logs, log_format):
    lines = logs(log_format=log_format, log_level="debug", access_log=True)
    log = get("guard").bind(Authorization="Bearer hidden-a")
    for name in ("token", "api_key", "key", "X-API-Key", "Ocp-Apim-Subscription-Key", "apiKey"):
        log.info("by name", **{name: "hidden-b"})
    log.info("more", whim_key="hidden-c", cookies={"a": "hidden-d"}, secret_env="hidden-e")
    log.info("nested", headers={"authorization": "hidden-f", "ok": [{"Set-Cookie": "hidden-g"}]})
    log.info("bodies", body=b"hidden-h", password="hidden-i")
    log.warning("in text %s", TOKEN, path=f"/x?{TOKEN}", seen=[TOKEN], odd=TOKEN.encode())
    log.info("a header: Bearer hidden-jjjjjjj")
    try:
        local = "hidden-k"
        raise ValueError(f"token was {TOKEN}", len(local))
    except ValueError:
        log.exception("fault")
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
    access = logging.getLogger("uvicorn.access")
    access.info('%s - "%s %s HTTP/%s" %d', "1.2.3.4:5", "GET", "/v1?key=hidden-l", "1.1", 200)
    logging.getLogger("other").warning("%s", {"authorization": f"Bearer {TOKEN}"})
    logging.getLogger("httpx").info("HTTP Request: POST https://a.example/hidden-m")
    text = "\n".join(lines())
    assert "hidden" not in text
    assert TOKEN not in text
    assert "aB3-_" not in text
    assert "ValueError" in text
    assert "/v1" in text
    assert text.count("***") > 10


def test_access_lines_are_fields_and_off_unless_wanted(logs):
    args = ('%s - "%s %s HTTP/%s" %d', "1.2.3.4:5", "GET", "/v1/spaces?limit=3", "1.1", 200)
    lines = logs(log_format="json", access_log=True)
    logging.getLogger("uvicorn.access").info(*args)
    (line,) = map(json.loads, lines())
    assert (line["event"], line["method"], line["path"]) == ("request", "GET", "/v1/spaces")
    assert (line["status"], line["caller"]) == (200, "1.2.3.4:5")
    lines = logs(log_format="json")
    logging.getLogger("uvicorn.access").info(*args)
    assert lines() == []
