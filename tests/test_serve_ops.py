"""The service's surroundings: settings, keys, limits, metrics, logs and webhooks."""

import json
import os
import stat
import threading

import pytest

from whim.errors import InvalidInputError
from whim.serve.keys import SCOPES, Keys, KeysError
from whim.serve.limits import Rates
from whim.serve.settings import ConfigError, Settings, load, refuse_open

# -- settings ---------------------------------------------------------------------------------


class Clock:
    """Seconds that a test moves."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


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
    clock = Clock()
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
    clock = Clock()
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
    clock = Clock()
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
    clock = Clock()
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
    clock = Clock()
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
    clock = Clock()
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
