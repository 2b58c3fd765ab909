"""A service alone: the compose file and the systemd unit name what exists, and the settings fit."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.test_command_lines import check, simple_commands
from tests.test_deploy import CLOSING, DEPLOY, ROOT, _image, _settings
from whim.serve.server import drain_seconds

yaml = pytest.importorskip("yaml")
ALONE = DEPLOY / "compose.alone.yaml"
UNIT = DEPLOY / "systemd" / "whim.service"


# -- compose.alone.yaml -----------------------------------------------------------------------


def _compose() -> Any:
    return yaml.safe_load(ALONE.read_text())


def test_the_container_is_the_image_with_settings_that_exist() -> None:
    (whim,) = _compose()["services"].values()
    assert (DEPLOY / whim["build"]["context"]).resolve() == ROOT
    assert (ROOT / whim["build"]["dockerfile"]).is_file()
    settings = _settings({**_image(), **whim["environment"]})
    (port,) = whim["ports"]
    assert port == f"127.0.0.1:{settings.port}:{settings.port}", "only this machine reaches it"
    assert settings.store is None
    (volume,) = whim["volumes"]
    name, _, where = volume.partition(":")
    assert set(_compose()["volumes"]) == {name}
    assert settings.data.startswith(where + "/"), "below it: the volume is the system's"
    check_ = whim["healthcheck"]["test"]
    assert check_[-1] in (DEPLOY / "Dockerfile").read_text()
    last = drain_seconds(settings) + settings.shutdown_seconds + CLOSING
    assert int(whim["stop_grace_period"].removesuffix("s")) >= last


def test_its_first_key_is_a_secret_that_is_not_committed() -> None:
    compose = _compose()
    (whim,) = compose["services"].values()
    assert whim["environment"]["WHIM_FIRST_KEY_FILE"] == "/run/secrets/first_key"
    assert set(whim["secrets"]) == set(compose["secrets"]) == {"first_key"}
    folder = Path(compose["secrets"]["first_key"]["file"]).parent
    assert f"deploy/{folder}/" in (ROOT / ".gitignore").read_text().splitlines()


def test_its_header_names_itself() -> None:
    header = re.findall(r"^#   (.*)$", ALONE.read_text(), re.M)
    assert any(str(ALONE.relative_to(ROOT)) in line for line in header)


# -- systemd ----------------------------------------------------------------------------------


def _unit() -> dict[str, list[str]]:
    """The unit's settings; those that may be repeated are lists, so all are."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.M):
        found.setdefault(name, []).append(value)
    return found


def test_the_unit_starts_what_the_command_line_understands() -> None:
    unit = _unit()
    (start,) = unit["ExecStart"]
    (words,) = simple_commands(start)
    check(words)
    header = [words for line in re.findall(r"^#   (.*)$", UNIT.read_text(), re.M)
              for words in simple_commands(line)]  # fmt: skip
    for one in header:
        check(one)
    assert [one[0] for one in header if one[1:2] in (["warm"], ["serve"])] == [words[0]]
    assert {"adaptive-linucb", "pslinucb-disjoint"} <= {w for one in header for w in one}


def test_the_unit_sets_only_settings_that_exist_and_fit() -> None:
    unit = _unit()
    words = [word for line in unit["Environment"] for word in shlex.split(line)]
    variables = dict(word.split("=", 1) for word in words)
    settings = _settings(variables)
    (state,), (cache,) = unit["StateDirectory"], unit["CacheDirectory"]
    assert settings.data.startswith(f"/var/lib/{state}/")
    assert variables["WHIM_CACHE_DIR"] == f"/var/cache/{cache}"
    last = drain_seconds(settings) + settings.shutdown_seconds
    assert int(unit["TimeoutStopSec"][0]) >= last + 5, "the log is closed after the requests"
    needs = {"AF_UNIX", "AF_INET"}
    assert needs <= set(unit["RestrictAddressFamilies"][0].split())


def test_systemd_itself_takes_the_unit(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("needs systemd-analyze")
    text = UNIT.read_text().replace("/opt/whim/bin/whim serve", f"{sys.executable} serve")
    (tmp_path / UNIT.name).write_text(text)
    done = subprocess.run(
        [tool, "verify", "--man=no", str(tmp_path / UNIT.name)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert not complaints, done.stderr
