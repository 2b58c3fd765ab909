"""What strangers need who run the service: variables, secrets, proxies, lines and metrics."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from tests.captured import captured
from tests.crashes import Service as Process
from tests.in_process import running
from whim.cli import demo
from whim.cli.app import app as cli
from whim.client import AsyncClient
from whim.errors import WhimError
from whim.serve.http.first_key import make_first_key
from whim.serve.http.guard import refuse_open
from whim.serve.http.keys import Keys
from whim.serve.http.proxies import Proxies
from whim.serve.http.service import Service
from whim.serve.jobs import background
from whim.serve.jobs.webhooks import Webhooks
from whim.serve.settings import ConfigError, load

TOKEN = "a-secret-of-more-than-32-characters-0123456789"
SPACE = {"policy": "ucb", "context": {"size": 0}}
HASHED = {"policy": "ucb", "context": {"rest": 2}}

# -- settings from the environment ------------------------------------------------------------


def test_every_setting_may_come_from_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "whim.toml"
    path.write_text("port = 1\nrate = 7\nburst = 3\n")
    found = load(
        path,
        environment={
            "WHIM_PORT": "9000", "WHIM_RATE": "2.5", "WHIM_DEMO": "false", "WHIM_HOST": "::1",
            "WHIM_RETENTION_DAYS": "30", "WHIM_LOG_FORMAT": "json", "WHIM_BURST": "",
            "WHIM_TRUSTED_PROXIES": "10.0.0.0/8, ::1", "WHIM_KEY": "of the client",
            "WHIM_WEBHOOKS": '[{"url": "https://a.example/x", "spaces": ["news"]}]',
        },
        host="127.0.0.2",
    )  # fmt: skip
    assert (found.port, found.rate, found.demo, found.burst) == (9000, 2.5, False, 3)
    assert (found.host, found.retention_days, found.log_format) == ("127.0.0.2", 30.0, "json")
    assert found.trusted_proxies == ["10.0.0.0/8", "::1"]
    assert found.webhooks[0].spaces == ["news"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("WHIM_PORT", "x", "WHIM_PORT must be `int`, got 'x'."),
        ("WHIM_PORT", "70000", "WHIM_PORT must be `int` <= 65535, got '70000'."),
        ("WHIM_DEMO", "maybe", "WHIM_DEMO must be `bool`, got 'maybe'."),
        ("WHIM_LOG_LEVEL", "loud", "WHIM_LOG_LEVEL must be one of debug, info, warning, error"),
        ("WHIM_WEBHOOKS", "[", "WHIM_WEBHOOKS must be a list in JSON"),
        ("WHIM_WEBHOOKS", '[{"url": 1}]', "WHIM_WEBHOOKS[0].url must be"),
        ("WHIM_WEBHOOKS", '[{"url": "ftp://x"}]', "WHIM_WEBHOOKS: webhooks[0].url must be"),
        ("WHIM_TRUSTED_PROXIES", "nginx", "trusted_proxies[0] must be an address or a network"),
    ],
)
def test_a_wrong_variable_is_named(name: str, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, environment={name: text})
    assert said in str(caught.value)


def test_what_kubernetes_sets_for_a_service_named_whim_is_no_port() -> None:
    assert load(None, environment={"WHIM_PORT": "tcp://10.0.0.1:8126"}).port == 8126


def test_verbs_read_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHIM_PORT", "70000")
    found = CliRunner().invoke(cli, ["serve", "--data", str(tmp_path)])
    assert isinstance(found.exception, WhimError)
    assert "WHIM_PORT must be" in str(found.exception)
    monkeypatch.setenv("WHIM_DATA", str(tmp_path / "data"))
    assert CliRunner().invoke(cli, ["keys", "make", "a", "--scope", "read"]).exit_code == 0
    assert (tmp_path / "data" / "keys.json").exists()
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


# -- a first key ------------------------------------------------------------------------------


def test_a_secret_becomes_the_first_key_and_only_the_first(tmp_path: Path) -> None:
    keys, settings = Keys(tmp_path / "keys.json"), load(None, host="0.0.0.0")
    assert not make_first_key(settings, keys, {})
    assert make_first_key(settings, keys, {"WHIM_FIRST_KEY": f" {TOKEN}\n"})
    refuse_open(settings, keys)
    key = keys.check(TOKEN)
    assert key is not None
    assert (key.name, key.scopes) == ("first", ["admin"])
    assert not make_first_key(settings, keys, {"WHIM_FIRST_KEY": TOKEN + "2"})
    keys.revoke("first")
    assert not make_first_key(settings, keys, {"WHIM_FIRST_KEY": TOKEN})
    assert keys.check(TOKEN) is keys.check(TOKEN + "2") is None


def test_the_secret_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(TOKEN + "\n")
    keys = Keys(tmp_path / "keys.json")
    settings = load(None, first_key_file=tmp_path / "secret")
    with pytest.raises(ConfigError, match="got both"):
        make_first_key(settings, keys, {"WHIM_FIRST_KEY": TOKEN})
    assert make_first_key(settings, keys, {})
    assert keys.check(TOKEN)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("short", "must have 32 to 256 printable ASCII characters, got 5"),
        ("", "got 0"),
        ("x" * 20 + " " + "y" * 20, "no spaces"),
        ("é" * 40, "printable ASCII"),
        (None, "first_key_file must be a file that can be read"),
    ],
)
def test_a_poor_secret_is_refused_and_not_repeated(
    tmp_path: Path, text: str | None, said: str
) -> None:
    if text is not None:
        (tmp_path / "secret").write_text(text)
    settings = load(None, first_key_file=tmp_path / "secret")
    with pytest.raises(ConfigError, match=said) as caught:
        make_first_key(settings, Keys(tmp_path / "keys.json"), {})
    assert not text or text not in str(caught.value)
    assert not (tmp_path / "keys.json").exists()


# -- proxies ----------------------------------------------------------------------------------


def seen(client: str, trusted: list[str], *headers: tuple[str, str]) -> tuple[Any, Any, Any]:
    """Address, scheme and host as the application sees them."""
    found: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        found.append(scope)

    scope = {
        "type": "http", "client": (client, 1), "scheme": "http",
        "headers": [(n.encode(), v.encode()) for n, v in (("host", "inside:8126"), *headers)],
    }  # fmt: skip
    asyncio.run(Proxies(inner, trusted)(scope, None, None))  # type: ignore[arg-type]
    host = [value.decode() for name, value in found[0]["headers"] if name == b"host"]
    return found[0]["client"][0], found[0]["scheme"], host


def test_what_a_proxy_says_counts_only_if_it_is_trusted() -> None:
    said = (
        ("x-forwarded-for", "6.6.6.6, 1.2.3.4, 10.0.0.9"), ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "whim.example"),
    )  # fmt: skip
    assert seen("10.0.0.1", ["10.0.0.0/8"], *said) == ("1.2.3.4", "https", ["whim.example"])
    assert seen("11.0.0.1", ["10.0.0.0/8"], *said) == ("11.0.0.1", "http", ["inside:8126"])
    assert seen("::ffff:10.0.0.1", ["10.0.0.0/8"], *said)[0] == "1.2.3.4"


@pytest.mark.parametrize(
    ("chain", "caller"),
    [
        ("1.2.3.4:5678", "1.2.3.4"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("10.0.0.7, 10.0.0.8", "10.0.0.7"),
        ("1.2.3.4, forged, 10.0.0.8", "10.0.0.8"),
        ("forged", "10.0.0.1"),
        ("", "10.0.0.1"),
    ],
)
def test_the_caller_is_the_last_that_is_not_trusted(chain: str, caller: str) -> None:
    assert seen("10.0.0.1", ["10.0.0.0/8"], ("x-forwarded-for", chain))[0] == caller


def test_headers_that_come_twice_are_one_chain() -> None:
    chain = [("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "2.2.2.2")]
    assert seen("10.0.0.1", ["10.0.0.1"], *chain)[0] == "2.2.2.2"


def test_proxies_need_keys(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.json")
    settings = load(None, trusted_proxies=["127.0.0.1"])
    with pytest.raises(ConfigError, match="trusted_proxies must be empty while there are no keys"):
        refuse_open(settings, keys)
    keys.make("a", ["read"])
    refuse_open(settings, keys)


# -- the application --------------------------------------------------------------------------


Act = Callable[[Service, httpx.AsyncClient], Awaitable[None]]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that runs another with a service in this process."""
    monkeypatch.setattr(background, "compile_for", lambda config: None)

    def run(act: Act, **settings: Any) -> None:
        async def live() -> None:
            loaded = load(None, data=tmp_path / "data", demo=False, **settings)
            async with running(loaded, base_url="http://127.0.0.1") as (service, client):
                await act(service, client)

        asyncio.run(live())

    return run


@pytest.mark.parametrize(
    "header", ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP"]
)
def test_without_keys_nothing_passes_through_a_proxy(
    served: Callable[..., None], header: str
) -> None:
    async def act(service: Service, client: httpx.AsyncClient) -> None:
        assert (await client.get("/v1/spaces")).status_code == 200
        answer = await client.get("/v1/spaces", headers={header: "127.0.0.1"})
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "proxied"
        assert (await client.get("/healthz", headers={header: "127.0.0.1"})).status_code == 200

    served(act)


def test_callers_behind_a_trusted_proxy_have_rates_of_their_own(
    served: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    Keys(tmp_path / "data" / "keys.json").make("a", ["read"])

    async def statuses(client: httpx.AsyncClient) -> list[int]:
        addresses = ("1.1.1.1", "1.1.1.1", "2.2.2.2")
        return [
            (await client.get("/openapi.json", headers={"X-Forwarded-For": a})).status_code
            for a in addresses
        ]

    async def trusted(service: Service, client: httpx.AsyncClient) -> None:
        assert await statuses(client) == [200, 429, 200]

    async def untrusted(service: Service, client: httpx.AsyncClient) -> None:
        assert await statuses(client) == [200, 429, 429]

    served(trusted, rate=0.001, burst=1, trusted_proxies=["127.0.0.0/8"])
    served(untrusted, rate=0.001, burst=1, trusted_proxies=["10.0.0.0/8"])
    served(untrusted, rate=0.001, burst=1)


IDS = ("a/b", "a//b/activate", "/", "%2F", "a b\n?#é", "x" * 128)


def test_ids_with_a_slash_work_everywhere(served: Callable[..., None]) -> None:
    async def act(service: Service, http: httpx.AsyncClient) -> None:
        await http.post("/v1/spaces", json={"name": "news", **SPACE})
        client = AsyncClient("http://127.0.0.1", space="news", retries=0)
        client._http = http  # the same transport, in this process
        for key in IDS:
            await client.decide([], ["a/1", "b"], decision_id=key, deferred=True)
            assert await client.activate(key) is True
            assert await client.activate(key) is False
            await client.reward(key, 1.0)
        assert (await http.post("/v1/spaces/news/decisions/none/x/activate")).status_code == 404
        assert (await http.get("/v1/spaces/news/arms")).json()["arms"][0]["arm"] == "a/1"
        await client.retire_arms(["a/1"])

    served(act)


def test_personalizers_ids_have_up_to_256_characters_and_slashes(
    served: Callable[..., None],
) -> None:
    async def act(service: Service, http: httpx.AsyncClient) -> None:
        await http.post("/v1/spaces", json={"name": "personalizer", **HASHED})
        base = "/personalizer/v1.0"
        for key in ("e/1", "x" * 256):
            body = {"eventId": key, "actions": [{"id": "a"}], "deferActivation": True}
            assert (await http.post(f"{base}/rank", json=body)).json()["eventId"] == key
            quoted = key.replace("/", "%2F")
            assert (await http.post(f"{base}/events/{quoted}/activate")).status_code == 204
            paid = await http.post(f"{base}/events/{quoted}/reward", json={"value": 1})
            assert paid.status_code == 204
        body = {"eventId": "x" * 257, "actions": [{"id": "a"}]}
        assert (await http.post(f"{base}/rank", json=body)).status_code == 422
        counts = (await http.get("/v1/spaces/personalizer/stats")).json()["counts"]
        assert counts["rewards_learnt"] == 2

    served(act)


# -- lines and metrics ------------------------------------------------------------------------


def test_access_lines_have_an_id_a_duration_and_the_keys_name(
    served: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    token = Keys(tmp_path / "data" / "keys.json").make("shop", ["read"])
    answers: list[httpx.Response] = []

    async def act(service: Service, http: httpx.AsyncClient) -> None:
        with_key = {"Authorization": f"Bearer {token}"}
        named = {**with_key, "X-Request-ID": "my-id/7"}
        for path, headers in (
            ("/v1/spaces?x=secret", {}), ("/v1/spaces", named), ("/healthz", with_key),
            ("/nowhere", {"X-Request-ID": "bad id"}),
        ):  # fmt: skip
            answers.append(await http.get(path, headers=headers))

    with captured(capsys) as begin:
        lines = begin(log_format="json", access_log=True)
        served(act, access_log=True)
        said = [json.loads(line) for line in lines()]
    found = [line for line in said if line["event"] == "request"]
    assert [line["status"] for line in found] == [401, 200, 200, 404]
    assert [line["key_name"] for line in found] == [None, "shop", None, None]
    assert [line["path"] for line in found] == ["/v1/spaces", "/v1/spaces", "/healthz", "/nowhere"]
    assert found[1]["request_id"] == "my-id/7"
    assert len({line["request_id"] for line in found}) == 4
    assert [a.headers["x-request-id"] for a in answers] == [line["request_id"] for line in found]
    assert all(0 < line["milliseconds"] < 10_000 for line in found)
    assert found[0]["caller"].startswith("127.0.0.1:")
    assert token not in json.dumps(said)


def scraped(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_say_how_the_service_itself_is(served: Callable[..., None]) -> None:
    async def act(service: Service, http: httpx.AsyncClient) -> None:
        await http.post("/v1/spaces", json={"name": "news", **SPACE})
        for i in range(5):
            body = {"candidates": ["a"], "decision_id": str(i)}
            await http.post("/v1/spaces/news/decisions", json=body)
        loop = asyncio.get_running_loop()
        loop.call_soon(__import__("time").sleep, 0.4)
        slow = 0.0
        for _ in range(100):  # until the loop's lag was measured, whenever that began
            found = scraped((await http.get("/metrics")).text)
            times = found["whim_loop_lag_seconds_bucket", "+Inf"]
            slow = times - found["whim_loop_lag_seconds_bucket", "0.1"]
            if slow >= 1 and times >= 2:
                break
            await asyncio.sleep(0.1)
        assert found["whim_commit_seconds_count",] >= 6
        assert found["whim_commit_seconds_sum",] > 0
        assert found["whim_commit_queue_rows",] == 0
        assert found["whim_loop_lag_seconds_count",] >= 2
        assert slow >= 1
        assert found["whim_rebuilding", "news"] == found["whim_rebuild_failed", "news"] == 0
        assert found["whim_database_bytes", "log.db"] > 0
        assert found["whim_database_bytes", "log.db-wal"] > 0
        (build,) = [key for key in found if key[0] == "whim_build_info"]
        assert found[build] == 1
        assert found["whim_webhook_lag_seconds", "127.0.0.1:9"] == 0

    served(act, webhooks=[{"url": "http://127.0.0.1:9/x"}])


def test_a_change_that_cannot_be_delivered_is_seen_in_the_metrics(tmp_path: Path) -> None:
    change = {"seq": 7, "at": "2026-05-01T12:00:00.000+00:00", "space": "news", "version": 1}
    stamp = 1777636800.0  # the same moment

    async def live() -> None:
        settings = load(None, webhooks=[{"url": "http://a.example/x"}])
        changes: list[dict[str, Any]] = []
        status = [503]
        transport = httpx.MockTransport(lambda request: httpx.Response(status[0]))
        async with httpx.AsyncClient(transport=transport) as client:
            hooks = Webhooks(
                settings, tmp_path, lambda space, since: [c for c in changes if c["seq"] > since],
                lambda: ["news"], client=client, backoff=lambda attempt: 0.01,
                clock=lambda: stamp + 90,
            )  # fmt: skip
            running = asyncio.ensure_future(hooks.run())
            changes.append(change)
            async with asyncio.timeout(30):
                while hooks.lags() != {"a.example": 90.0}:
                    await asyncio.sleep(0.01)
                status[0] = 204
                while hooks.lags() != {"a.example": 0.0}:
                    await asyncio.sleep(0.01)
            running.cancel()
            await hooks.close()

    asyncio.run(live())


# -- a real process ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    before = os.umask(0o022)
    try:
        made = Process(tmp_path_factory.mktemp("ops") / "data")
    finally:
        os.umask(before)
    with made:
        made.wait()
        yield made


def test_data_are_for_their_owner_alone(process: Process) -> None:
    assert stat.S_IMODE(process.data.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in process.data.iterdir()}
    assert {"log.db", "log.db-wal", "snapshots.db", "lock"} <= modes.keys()
    assert set(modes.values()) == {0o600}, modes


def test_a_proxy_with_nginxs_defaults_opens_nothing(process: Process) -> None:
    """``proxy_pass http://127.0.0.1:8126;`` and no more: HTTP/1.0 and the Host of the address."""
    with socket.create_connection(("127.0.0.1", process.port)) as link:
        link.sendall(
            f"GET /v1/spaces HTTP/1.0\r\nHost: 127.0.0.1:{process.port}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        answer = b"".join(iter(lambda: link.recv(4096), b"")).decode()
    assert " 403 " in answer.splitlines()[0]
    assert '"proxied"' in answer
    assert process.ask("GET", "/v1/spaces")[0] == 200


def test_the_demo_has_settings_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, str]] = []
    monkeypatch.setenv("WHIM_HOST", "0.0.0.0")
    monkeypatch.setenv("WHIM_FIRST_KEY", TOKEN)
    monkeypatch.setenv("WHIM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(demo.subprocess, "Popen", lambda *a, **more: given.append(more["env"]))
    monkeypatch.setattr(demo, "_address", lambda process, log: "http://x")
    monkeypatch.setattr(demo, "_stop", lambda process: None)
    with demo._service(tmp_path, tmp_path / "data", 0):
        pass
    assert {name for name in given[0] if name.startswith("WHIM_")} == {"WHIM_CACHE_DIR"}
    assert given[0]["PATH"] == os.environ["PATH"]
