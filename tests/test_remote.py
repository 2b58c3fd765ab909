"""Files and logs in S3, over a real server: converting them, and this machine's copies of logs."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import whim.logs
from tests.made_logs import made_log
from tests.part_tables import MODES, cut, same_log, visits
from tests.s3_server import S3Server
from tests.test_logs import bytes_of
from whim.cli import main
from whim.errors import LogFileError, WhimError
from whim.logs import cached

s3fs = pytest.importorskip("s3fs")
pytest.importorskip("moto")
PLAIN = MODES["seen"]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    running = S3Server()
    yield running
    running.stop()


@pytest.fixture
def bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bucket]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:  # the user's own
        monkeypatch.delenv(name)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WHIM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    s3fs.S3FileSystem.clear_instance_cache()
    yield Bucket(f"whim-{time.time_ns()}")
    s3fs.S3FileSystem.clear_instance_cache()


class Bucket:
    """A bucket of the server, made for one test."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.store = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
        self.store.mkdir(name)

    def put(self, file: Path, key: str) -> str:
        self.store.pipe_file(f"{self.name}/{key}", file.read_bytes())
        return f"s3://{self.name}/{key}"

    def put_log(self, log: whim.logs.Log, key: str) -> str:
        for file in log.path.iterdir():
            self.put(file, f"{key}/{file.name}")
        return f"s3://{self.name}/{key}"


def whim_command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-c", "from whim_command import main; main()"]
    return subprocess.run([*start, *map(str, words)], capture_output=True, text=True, check=False)


# -- converting --------------------------------------------------------------------------------


def test_parts_of_a_bucket(tmp_path: Path, bucket: Bucket) -> None:
    frame = visits(300)
    for i, file in enumerate(cut(frame, [100, 0, 60], tmp_path / "parts")):
        bucket.put(file, f"day={i}/visits.parquet")
    address = f"s3://{bucket.name}/day=*/*.parquet"
    told: list[int] = []
    made = whim.logs.convert(address, tmp_path / "a.whim", progress=told.append, **PLAIN)
    assert made.meta["source"]["files"][3] == f"s3://{bucket.name}/day=3/visits.parquet"
    (file,) = cut(frame, [], tmp_path / "whole")
    same_log(made, whim.logs.convert(file, tmp_path / "b.whim", **PLAIN))
    assert sum(told) == sum(bucket.store.du(f"{bucket.name}", total=False).values())
    two = whim_command(
        "convert", address, "--to", tmp_path / "c.whim", "--arm", "shown", "--reward", "click",
        "--context", "u1,u2", "--arms", "seen", "--jobs", "2", "--json",
    )  # fmt: skip
    assert two.returncode == 0, two.stderr
    assert json.loads(two.stdout)["read"] == 300
    assert bytes_of(tmp_path / "c.whim") == bytes_of(made.path)


def test_a_part_that_changed_in_the_bucket_is_converted_again(
    tmp_path: Path, bucket: Bucket
) -> None:
    frame = visits(300)
    files = cut(frame, [100, 100], tmp_path / "parts", "csv")
    address = f"s3://{bucket.name}/visits/"
    for file in files:
        bucket.put(file, f"visits/{file.name}")
    damaged = bucket.put(tmp_path / "parts" / "part-000.csv", "visits/part-003.csv")
    bucket.store.pipe_file(f"{bucket.name}/visits/part-003.csv", b"when,shown\n1,a\n")
    lacks = rf"^{damaged} has no column 'u1' for context; it has"
    with pytest.raises(LogFileError, match=lacks):  # before the first is converted
        whim.logs.convert(address, tmp_path / "a.whim", format="csv", **PLAIN)
    assert not list(tmp_path.glob("a.whim.parts/*.whim"))
    with pytest.raises(LogFileError, match=lacks):
        whim.logs.convert(address, tmp_path / "a.whim", format="csv", raw=True, **PLAIN)
    assert len(list(tmp_path.glob("a.whim.parts/*.whim"))) == 3
    changed = visits(80, seed=7)
    changed.write_csv(files[1])
    bucket.put(files[1], "visits/part-001.csv")
    bucket.store.rm(f"{bucket.name}/visits/part-003.csv")
    made = whim.logs.convert(address, tmp_path / "a.whim", format="csv", raw=True, **PLAIN)
    (whole,) = cut(pl.concat([frame[:100], changed, frame[200:]]), [], tmp_path / "whole", "csv")
    same_log(made, whim.logs.convert(whole, tmp_path / "b.whim", raw=True, **PLAIN))


def test_the_verbs_take_addresses(
    tmp_path: Path,
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = made_log(tmp_path, n=80)
    address = bucket.put_log(log, "logs/news.whim")

    def run(*words: str | Path) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["whim", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        return left.value.code, said.out, said.err

    code, out, err = run("log", address, "--json")
    assert (code, json.loads(out)["events"]) == (0, 80)
    assert err.startswith(f"whim: fetching {address} (")
    code, out, err = run("replay", address, "--policy", "random", "--json", "--jobs", "1")
    assert (code, json.loads(out)["policies"][0]["policy"]) == (0, "random")
    assert "fetching" not in err
    sweep = ["--policy", "ucb", "--vary", "alpha=1,2", "--log", address, "--jobs", "1"]
    code, out, _ = run("sweep", *sweep, "--store", tmp_path / "store", "--json")
    assert (code, json.loads(out)["settings"]["log"]["path"]) == (0, address)
    shutil.rmtree(tmp_path / "cache")  # a new copy is the same log
    _, _, err = run("sweep", *sweep, "--store", tmp_path / "store")
    assert "2 runs, 2 of them done already" in err
    source, to = f"s3://{bucket.name}/none*.csv", tmp_path / "x.whim"
    assert run("convert", source, "--to", to) == (2, "", f"whim: {source} matches no file.\n")


def test_what_a_bucket_refuses_is_one_sentence(
    tmp_path: Path, server: S3Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(address: str, **more: Any) -> str:
        s3fs.S3FileSystem.clear_instance_cache()
        with pytest.raises(WhimError) as error:
            whim.logs.convert(address, tmp_path / "a.whim", **PLAIN | more)
        assert "\n" not in str(error.value)
        return str(error.value)

    none = "there is no such file, folder or bucket."
    assert said("s3://no-such-bucket/*.parquet") == f"s3://no-such-bucket/*.parquet: {none}"
    assert said("s3://no-such-bucket/a.csv") == f"s3://no-such-bucket/a.csv: {none}"
    here = f"s3://{bucket.name}"
    assert said(f"{here}/a.csv") == f"{here}/a.csv: {none}"
    assert said(f"{here}/*.csv") == f"{here}/*.csv matches no file."
    with pytest.raises(LogFileError, match="there is no such file, folder or bucket"):
        whim.logs.open(f"{here}/none.whim")
    with server.checking_keys():
        keys = "(for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile)"
        assert said(f"{here}/a.csv") == f"{here}/a.csv: access is denied {keys}: Forbidden."
        assert said(f"{here}/*.csv").startswith(f"{here}/*.csv: access is denied {keys}: The AWS")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # taken and silent: each attempt is refused at once
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        assert said(f"{here}/a.csv").startswith(f"{here}/a.csv cannot be read: Could not connect")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert said(f"{here}/a.csv") == f"{here}/a.csv needs credentials, and none were found {keys}."


# -- copies of logs ----------------------------------------------------------------------------


def copies(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "logs").glob("*/*"))


def test_a_log_is_copied_once_and_never_stale(tmp_path: Path, bucket: Bucket) -> None:
    log = made_log(tmp_path, n=60)
    address = bucket.put_log(log, "news.whim")
    first = whim.logs.open(address)
    assert bytes_of(first.path) == bytes_of(log.path)
    assert copies(tmp_path) == [first.path]
    assert first.path.name == "news.whim"
    before = first.path.stat().st_ino
    assert whim.logs.open(address).path.stat().st_ino == before
    bucket.put_log(log, "elsewhere/news.whim")
    assert whim.logs.open(f"s3://{bucket.name}/elsewhere/news.whim/").path == first.path
    bucket.put_log(made_log(tmp_path, n=60, seed=1), "news.whim")  # the same sizes
    second = whim.logs.open(address)
    assert second.path != first.path
    assert second.reward.tolist() != first.reward.tolist()
    assert len(copies(tmp_path)) == 2


def test_a_copy_is_checked(tmp_path: Path, bucket: Bucket) -> None:
    log = made_log(tmp_path, n=60)
    address = bucket.put_log(log, "news.whim")
    reward = log.path / "reward.bin"
    bucket.store.pipe_file(f"{bucket.name}/news.whim/reward.bin", bytes(reward.stat().st_size))
    with pytest.raises(LogFileError, match=r"reward\.bin must have the SHA-256 that digest\.json"):
        whim.logs.open(address)
    assert not list((tmp_path / "cache" / "logs").iterdir())
    bucket.store.rm(f"{bucket.name}/news.whim/reward.bin")
    with pytest.raises(LogFileError, match=r"has no reward\.bin"):
        whim.logs.open(address)
    bucket.put(reward, "news.whim/reward.bin")
    copy = whim.logs.open(address).path
    (copy / "reward.bin").write_bytes(b"")  # a damaged copy is made again
    assert whim.logs.open(address).reward.tolist() == log.reward.tolist()
    bucket.store.rm(f"{bucket.name}/news.whim/meta.json")
    with pytest.raises(LogFileError, match=r"is no log: it has no meta\.json"):
        whim.logs.open(address)


def test_logs_without_digests_are_told_apart_by_the_store(tmp_path: Path, bucket: Bucket) -> None:
    log = made_log(tmp_path, n=60)
    (log.path / "digest.json").unlink()
    address = bucket.put_log(log, "old.whim")
    first = whim.logs.open(address)
    assert whim.logs.open(address).path == first.path
    other = made_log(tmp_path, n=60, seed=1)
    bucket.put(other.path / "reward.bin", "old.whim/reward.bin")
    assert whim.logs.open(address).reward.tolist() == other.reward.tolist()
    assert first.reward.tolist() == log.reward.tolist()


def test_copies_that_nobody_opens_go_after_a_month(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = whim.logs.open(bucket.put_log(made_log(tmp_path, n=20), "a.whim"))
    second = whim.logs.open(bucket.put_log(made_log(tmp_path, n=30), "b.whim"))
    old = time.time() - 40 * 24 * 3600
    for path in (first.path.parent, second.path.parent):
        os.utime(path, (old, old))
    whim.logs.open(f"s3://{bucket.name}/b.whim")  # used again
    third = whim.logs.open(bucket.put_log(made_log(tmp_path, n=40), "c.whim"))
    assert copies(tmp_path) == sorted([second.path, third.path])
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(LogFileError, match=r"cannot be written .* set WHIM_CACHE_DIR"):
        whim.logs.open(f"s3://{bucket.name}/c.whim")


def test_where_copies_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHIM_CACHE_DIR", str(tmp_path / "w"))
    assert cached.cache_folder() == tmp_path / "w" / "logs"
    monkeypatch.delenv("WHIM_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cached.cache_folder() == tmp_path / "x" / "whim" / "logs"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cached.cache_folder() == tmp_path / ".cache" / "whim" / "logs"


def test_a_log_at_a_file_address_is_opened_in_place(tmp_path: Path) -> None:
    log = made_log(tmp_path, n=20)
    assert whim.logs.open(f"file://{log.path}").path == log.path


@pytest.mark.parametrize("package", ["fsspec", "s3fs"])
def test_what_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    registry = pytest.importorskip("fsspec.registry")
    monkeypatch.setattr(registry, "_registry", {})
    monkeypatch.setattr(registry, "registry", registry._registry)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(WhimError, match=r"not installed: pip install 'whim-bandits\[remote\]'"):
        whim.logs.open("s3://bucket/a.whim")
