"""The files in ``deploy`` are valid, agree with each other, and name what the service has."""

from __future__ import annotations

import http.server
import importlib.util
import ipaddress
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest

from whim.serve.app import API
from whim.serve.http.first_key import VARIABLE
from whim.serve.server import drain_seconds
from whim.serve.settings import Settings, load

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
PORT = 8126
PATHS = {route.path: route for route in API}
# variables that are no settings: of the compiler's cache, of the first key, of the entry point
OTHERS = {"WHIM_CACHE_DIR", VARIABLE, "WHIM_STORE_FILE"}
CLOSING = 20  # seconds after the requests: for what was put, and for the log's processes to end


def _compose() -> Any:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def _objects() -> dict[tuple[str, str], Any]:
    """What Kubernetes is told to make, by kind and name."""
    found: dict[tuple[str, str], Any] = {}
    for path in KUBERNETES:
        for one in yaml.safe_load_all(path.read_text()):
            key = one["kind"], one["metadata"]["name"]
            assert key not in found, f"{key} is there twice"
            found[key] = one
    return found


def _replicas() -> dict[str, Any]:
    return {n: s for n, s in _compose()["services"].items() if s["image"].startswith("whim")}


def _pod() -> Any:
    return _objects()["StatefulSet", "whim"]["spec"]["template"]["spec"]


def _seconds(text: str) -> float:
    number, unit = re.fullmatch(r"(\d+)(ms|s|m)", text).groups()  # type: ignore[union-attr]
    return float(number) * {"ms": 0.001, "s": 1, "m": 60}[unit]


def _settings(variables: dict[str, str]) -> Settings:
    """Settings of these variables; that each is one is checked."""
    for name in variables:
        known = name.removeprefix("WHIM_").lower() in Settings.__struct_fields__
        assert not name.startswith("WHIM_") or known or name in OTHERS, f"{name} is no setting"
    return load(None, environment=variables)


def _image() -> dict[str, str]:
    """What the Dockerfile puts into the environment."""
    text = (DEPLOY / "Dockerfile").read_text()
    words = [w for line in re.findall(r"^ENV (.*)$", text, re.M) for w in shlex.split(line)]
    return dict(word.split("=", 1) for word in words)


# -- valid by schemas of others ---------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("compose*.yaml")), ids=lambda path: path.name)
def test_compose_files_are_valid(path: Path) -> None:
    if importlib.util.find_spec("check_jsonschema") is None:
        pytest.skip("needs check-jsonschema, which has the schema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run(
        [*command, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_manifests_are_valid(path: Path) -> None:
    codecs = pytest.importorskip("lightkube.codecs")
    text = path.read_text()
    # a field of a wrong kind is refused, and one that does not exist is not there any more
    read = [one.to_dict() for one in codecs.load_all_yaml(text)]
    assert read == list(yaml.safe_load_all(text))


# -- the image --------------------------------------------------------------------------------


def test_the_image_copies_what_exists_and_installs_extras_that_exist() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = [w for line in re.findall(r"^COPY (.*)$", text, re.M) for w in line.split()[:-1]]
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert len(copied) > 4
    for name in copied:
        assert (ROOT / name).exists(), f"{name} is copied"
        assert f"!{name}" in kept, f"{name} must not be ignored"
    extras = re.search(r"'\.\[([\w,]+)\]'", text)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras is not None
    assert {"serve", "postgres"} <= set(extras[1].split(",")) <= set(known)
    assert f"EXPOSE {PORT}\n" in text
    assert "USER whim" in text
    settings = _settings(_image())
    assert (settings.port, settings.host) == (PORT, "0.0.0.0")


def _entry(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(DEPLOY / "entrypoint.sh"), *command],
        env={"PATH": os.environ["PATH"], **variables}, capture_output=True, text=True, timeout=30,
    )  # fmt: skip


def test_secrets_come_from_files_and_the_command_takes_the_place_of_the_script(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a$b 'c\"\n")
    said = _entry("env", PGPASSWORD_FILE=str(secret), WHIM_STORE="postgresql://here/whim")
    lines = said.stdout.splitlines()
    assert "PGPASSWORD=a$b 'c\"" in lines
    assert "WHIM_STORE=postgresql://here/whim" in lines
    assert not any(line.startswith("PGPASSWORD_FILE") for line in lines)
    said = _entry("env", WHIM_STORE_FILE=str(secret))
    assert "WHIM_STORE=a$b 'c\"" in said.stdout.splitlines()
    assert _entry("env", PGPASSWORD_FILE=str(tmp_path / "none")).returncode != 0
    assert _entry("sh", "-c", "exit 7").returncode == 7


@pytest.mark.parametrize(
    ("health", "ready", "code", "ended"),
    [(200, 200, 0, False), (200, 503, 1, False), (503, 503, 1, True), (None, None, 1, False)],
)
def test_the_health_check_ends_what_has_failed_for_good(
    health: int | None, ready: int | None, code: int, ended: bool
) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = {"/healthz": health, "/readyz": ready}[self.path]
            self.send_response(status or 500)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    if health is None:
        server.server_close()  # nobody listens there
    else:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    service = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        done = subprocess.run(
            [sys.executable, str(DEPLOY / "healthcheck.py"), str(service.pid)],
            env={**os.environ, "WHIM_PORT": str(server.server_port)}, timeout=30, check=False,
        )  # fmt: skip
        assert done.returncode == code
        if ended:
            assert service.wait(10) == -signal.SIGTERM
        else:
            assert service.poll() is None
    finally:
        service.kill()
        service.communicate()
        if health is not None:
            server.shutdown()
            server.server_close()


# -- compose ----------------------------------------------------------------------------------


def test_compose_sets_only_settings_that_exist_and_fit() -> None:
    services, replicas = _compose()["services"], _replicas()
    assert len(replicas) == 3
    front = ipaddress.ip_network(_compose()["networks"]["front"]["ipam"]["config"][0]["subnet"])
    for name, replica in replicas.items():
        settings = _settings({**_image(), **replica["environment"]})
        assert settings.port == PORT
        assert settings.trusted_proxies == [str(front)]
        assert settings.store is not None
        hosts = re.search("@([^/]+)/", settings.store)
        assert hosts is not None
        assert set(hosts[1].split(",")) == {"primary", "standby"} <= set(services)
        last = drain_seconds(settings) + settings.shutdown_seconds + CLOSING
        assert _seconds(replica["stop_grace_period"]) >= last
        assert replica["volumes"] == [f"{name}:{Path(settings.data).parent}"], "one copy for each"
        assert replica["build"]["dockerfile"] == "deploy/Dockerfile"
        assert (DEPLOY / replica["build"]["context"]).resolve() == ROOT
        assert replica["healthcheck"]["test"][-1] in (DEPLOY / "Dockerfile").read_text()


def test_compose_names_what_it_defines() -> None:
    compose = _compose()
    used: dict[str, set[str]] = {"secrets": set(), "networks": set(), "volumes": set()}
    for service in compose["services"].values():
        secrets = set(service.get("secrets", []))
        used["secrets"] |= secrets
        used["networks"] |= set(service["networks"])
        for name, value in service.get("environment", {}).items():
            if name.endswith("_FILE"):
                assert value.removeprefix("/run/secrets/") in secrets, f"{name}: {value}"
            assert "password" not in str(value).lower() or name.endswith("_FILE")
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / source).is_file(), source
            else:
                assert source not in used["volumes"], f"{source} is used twice"
                used["volumes"].add(source)
        assert set(service.get("depends_on", [])) <= set(compose["services"])
    for kind, names in used.items():
        assert names == set(compose[kind]), kind
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    for secret in compose["secrets"].values():
        assert f"deploy/{Path(secret['file']).parent}/" in ignored, "secrets are not committed"


def test_the_primary_waits_for_the_name_of_the_standby() -> None:
    compose = _compose()["services"]
    primary = (DEPLOY / "postgres" / "primary.sh").read_text()
    standby = (DEPLOY / "postgres" / "standby.sh").read_text()
    waited = re.search(r"synchronous_standby_names = '(\w+)'", primary)
    assert waited is not None
    assert re.findall(r"application_name=(\w+)", standby) == [waited[1]]
    mounted = {v.split(":")[0] for name in ("primary", "standby") for v in compose[name]["volumes"]}
    assert {"./postgres/primary.sh", "./postgres/standby.sh"} <= mounted
    assert compose["primary"]["command"] == compose["standby"]["command"], "or it cannot follow"
    assert "-csynchronous_commit=on" in compose["primary"]["command"]
    assert not any("fsync" in word for word in compose["primary"]["command"])
    needed = 4 * len(_replicas())
    most = next(w for w in compose["primary"]["command"] if w.startswith("-cmax_connections="))
    assert int(most.partition("=")[2]) >= 2 * needed, "room for a roll-out and for people"


def test_the_proxy_names_the_replicas_and_leaves_those_that_drain() -> None:
    text = (DEPLOY / "haproxy.cfg").read_text()
    words = [line.split() for line in text.splitlines() if line.split("#")[0].strip()]
    servers = {w[1]: w[2] for w in words if w[0] == "server"}
    assert servers == {name: f"{name}:{PORT}" for name in _replicas()}
    assert [w[1] for w in words if w[0] == "default_backend"] == [
        w[1] for w in words if w[0] == "backend"
    ]
    proxy = _compose()["services"]["proxy"]
    bound = [w[1] for w in words if w[0] == "bind"]
    assert bound == [f":{port.split(':')[1]}" for port in proxy["ports"]]
    assert proxy["volumes"] == ["./haproxy.cfg:/usr/local/etc/haproxy/haproxy.cfg:ro"]
    (check,) = (w for w in words if w[:2] == ["http-check", "send"])
    assert PATHS[check[check.index("uri") + 1]].method == check[check.index("meth") + 1] == "GET"
    (default,) = (w for w in words if w[0] == "default-server")
    inter = _seconds(default[default.index("inter") + 1])
    found_out = inter * int(default[default.index("fall") + 1])
    for replica in _replicas().values():
        drain = drain_seconds(_settings({**_image(), **replica["environment"]}))
        assert found_out + 1 < drain, "it must be left before it goes"
    for words_of in (w for w in words if w[:2] in (["timeout", "server"], ["timeout", "client"])):
        assert _seconds(words_of[2]) > 2 * 15, "a quiet stream says something every 15 s"


# -- Kubernetes -------------------------------------------------------------------------------


def _variables() -> dict[str, str]:
    (container,) = _pod()["containers"]
    (source,) = container["envFrom"]
    variables: dict[str, str] = _objects()["ConfigMap", source["configMapRef"]["name"]]["data"]
    return {**_image(), **variables}


def test_kubernetes_sets_only_settings_that_exist_and_fit() -> None:
    variables, (container,) = _variables(), _pod()["containers"]
    assert all(isinstance(value, str) for value in variables.values())
    settings = _settings(variables)
    assert settings.store is not None
    assert ":" not in settings.store.split("@")[0].removeprefix("postgresql://"), "no password"
    assert {p["name"]: p["containerPort"] for p in container["ports"]} == {"http": settings.port}
    end = drain_seconds(settings) + settings.shutdown_seconds + CLOSING
    assert _pod()["terminationGracePeriodSeconds"] >= end
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert settings.data.startswith(mounts["data"] + "/"), "below it: the volume is the system's"
    (volume,) = _pod()["volumes"]
    files = {f"{mounts[volume['name']]}/{item['path']}" for item in volume["secret"]["items"]}
    assert {variables["PGPASSWORD_FILE"], variables["WHIM_FIRST_KEY_FILE"]} == files
    claims = _objects()["StatefulSet", "whim"]["spec"]["volumeClaimTemplates"]
    assert {c["metadata"]["name"] for c in claims} | {volume["name"]} == set(mounts)
    user = re.search(r"--uid (\d+)", (DEPLOY / "Dockerfile").read_text())
    assert user is not None
    security = _pod()["securityContext"]
    assert security["runAsUser"] == security["fsGroup"] == int(user[1])


def test_probes_ask_what_exists_and_for_what_they_are_for() -> None:
    (container,) = _pod()["containers"]
    ports = {port["name"] for port in container["ports"]}
    asked = {}
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = container[kind]
        asked[kind], port = probe["httpGet"]["path"], probe["httpGet"]["port"]
        assert PATHS[asked[kind]].method == "GET"
        assert PATHS[asked[kind]].scope is None, "a probe has no key"
        assert port in ports
    # one that is behind or reads the log must not be restarted for it
    assert asked["startupProbe"] == asked["livenessProbe"] == "/healthz"
    assert asked["readinessProbe"] == "/readyz"
    readiness = container["readinessProbe"]
    unready = readiness["periodSeconds"] * readiness["failureThreshold"]
    assert unready < drain_seconds(_settings(_variables()))


def test_kubernetes_objects_name_each_other() -> None:
    objects = _objects()
    stateful = objects["StatefulSet", "whim"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    headless = objects["Service", stateful["serviceName"]]["spec"]
    assert headless["clusterIP"] == "None"
    selectors = [stateful["selector"]["matchLabels"]]
    for (kind, _), one in objects.items():
        if kind == "Service":
            selectors.append(one["spec"]["selector"])
            assert {port["targetPort"] for port in one["spec"]["ports"]} == {"http"}
        elif kind == "PodDisruptionBudget":
            selectors.append(one["spec"]["selector"]["matchLabels"])
            assert one["spec"]["maxUnavailable"] < stateful["replicas"]
    assert len(selectors) == 4
    assert all(selector.items() <= labels.items() for selector in selectors)
    assert {kind for kind, _ in objects} == {
        "ConfigMap", "Service", "StatefulSet", "PodDisruptionBudget",
    }  # fmt: skip


def test_the_guide_makes_the_secrets_that_are_used() -> None:
    guide = (ROOT / "docs" / "scaling.md").read_text()
    made = re.search(r"^\$ for name in ([\w ]+); do openssl", guide, re.M)
    assert made is not None
    assert set(made[1].split()) == set(_compose()["secrets"])
    (volume,) = _pod()["volumes"]
    assert f"kubectl create secret generic {volume['secret']['secretName']} " in guide
    keys = {item["key"] for item in volume["secret"]["items"]}
    assert set(re.findall(r"--from-literal=([\w-]+)=", guide)) == keys
