"""The format of saved policies, beyond what the contract asks of every one of them."""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whim
from tests.factories import FACTORIES
from whim.errors import InvalidInputError, StateFileError
from whim.policies.base import state_file

DTYPES = {"f8": "<f8", "i8": "<i8", "u1": "u1"}


def small() -> whim.PSLinUCBDisjoint:
    """A policy with a few plays, a change and a retired arm: 2 kB or so."""
    policy = whim.PSLinUCBDisjoint(n_features=1, window=2, threshold=0.5)
    policy.add_arms(["a", "b"])
    policy.update_many(["a"] * 6, [[1.0]] * 6, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    policy.retire_arms(["b"])
    return policy


def taken_apart(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The file read as its documentation says, with struct, json and numpy.frombuffer alone."""
    magic, version, length = struct.unpack_from("<8sIQ", data)
    assert magic == b"whim\x00pol"
    assert version == 1
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]
    header = json.loads(data[20 : 20 + length].decode("utf-8"))
    arrays, end = {}, 20 + length
    for entry in header["arrays"]:
        shape = tuple(entry["shape"])
        at = 20 + length + entry["offset"]
        flat = np.frombuffer(data, DTYPES[entry["dtype"]], math.prod(shape), at)
        arrays[entry["name"]] = flat.reshape(shape)
        assert at == end, "arrays stand one after the other"
        end = at + flat.nbytes
    assert end == len(data) - 32, "and nothing else"
    return header, arrays


def sealed(header: dict[str, Any], version: int = 1) -> bytes:
    text = json.dumps({"arrays": [], **header}).encode()
    body = struct.pack("<8sIQ", b"whim\x00pol", version, len(text)) + text
    return body + hashlib.sha256(body).digest()


# -- layout ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FACTORIES)
def test_the_layout_is_the_documented_one(name: str) -> None:
    policy = FACTORIES[name]()
    header, _ = taken_apart(policy.to_bytes())
    assert header["class"] == policy.name
    assert whim.from_bytes(policy.to_bytes()).params.keys() == policy.params.keys()


def test_the_header_and_the_arrays_mean_what_they_say() -> None:
    policy = small()
    header, arrays = taken_apart(policy.to_bytes())
    assert header["class"] == "pslinucb-disjoint"
    assert header["params"] == policy.params
    assert header["step"] == policy.step == 6
    assert header["arms"] == [["s", "a"]]
    assert header["slots"] == [0]
    assert header["rng"]["bit_generator"] == "PCG64"
    assert arrays["plays"].tolist() == [6, 0]
    # d(d+1)/2 factors of A⁻¹, then theta
    assert arrays["cum"][0].tolist() == [
        policy.inverse("a")[0, 0],
        policy.coefficients("a")[0],
    ]
    assert {"pre", "table_rows", "pool", "links"} <= set(arrays)


def test_pack_and_unpack_are_inverse() -> None:
    arrays = {
        "none": np.zeros((0, 3)),
        "one": np.array(7),
        "cut": np.arange(12.0).reshape(3, 4)[:, ::2],
        "bytes": np.arange(5, dtype=np.uint8),
        "odd": np.array([math.inf, -math.inf, math.nan, -0.0, 5e-324]),
    }
    header = {"class": "x", "text": "é\u2028\ud800", "big": 10**40}
    found_header, found = state_file.unpack(state_file.pack(header, arrays), "here")
    assert found_header == header
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        assert found[name].flags.writeable
        assert found[name].shape == array.shape
    assert np.signbit(found["odd"][3])


# -- damage ----------------------------------------------------------------------------------------


def test_every_altered_byte_is_refused() -> None:
    good = small().to_bytes()
    for at in range(len(good)):
        for bits in (1, 0x80, 0xFF):
            bad = good[:at] + bytes([good[at] ^ bits]) + good[at + 1 :]
            with pytest.raises(StateFileError, match=r"^here must "):
                whim.from_bytes(bad, source="here")


def test_every_truncation_is_refused() -> None:
    good = small().to_bytes()
    for length in range(len(good)):
        with pytest.raises(StateFileError, match=r"^here must "):
            whim.from_bytes(good[:length], source="here")


def test_additions_and_swaps_are_refused() -> None:
    good = small().to_bytes()
    half = len(good) // 2
    for bad in (good + b"\0", good + good, b"\0" + good, good[half:] + good[:half], good[::-1]):
        with pytest.raises(StateFileError):
            whim.from_bytes(bad)


@pytest.mark.parametrize("version", [2, 3, 2**32 - 1])
def test_a_newer_file_says_so(version: int, tmp_path: Path) -> None:
    """Whatever a newer format looks like after the version, its digest included."""
    good = small().to_bytes()
    newer = good[:8] + struct.pack("<I", version) + good[12:-32] + b"who knows" * 5
    path = tmp_path / "policy"
    path.write_bytes(newer)
    for read in (whim.load, whim.PSLinUCBDisjoint.load):
        with pytest.raises(StateFileError, match=rf"{path}.* got {version}: a newer whim wrote it"):
            read(path)


def test_another_class_is_named(tmp_path: Path) -> None:
    path = tmp_path / "policy"
    small().save(path)
    with pytest.raises(StateFileError, match="must hold a linucb-disjoint, got 'pslinucb-disj"):
        whim.LinUCBDisjoint.load(path)
    with pytest.raises(StateFileError, match="must hold a oracle-restart, got 'pslinucb-disj"):
        whim.OracleRestart.load(path)


class Unregistered(whim.LinUCBDisjoint):
    """A policy of a user's own."""

    name = "mine"


def test_an_unregistered_class_says_so(tmp_path: Path) -> None:
    path = tmp_path / "policy"
    policy = Unregistered(n_features=1)
    policy.add_arms(["a"])
    policy.save(path)
    with pytest.raises(StateFileError, match=r"got 'mine': load it with its own class or register"):
        whim.load(path)
    assert Unregistered.load(path).to_bytes() == policy.to_bytes()
    wrapped = whim.OracleRestart(policy=policy, changes=[3])
    with pytest.raises(StateFileError, match="got 'mine'"):
        whim.from_bytes(wrapped.to_bytes())


def test_a_registered_class_of_ones_own_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whim.policies.registry, "POLICIES", dict(whim.POLICIES))
    assert whim.register(Unregistered) is Unregistered
    Unregistered(n_features=2).save(tmp_path / "policy")
    assert type(whim.load(tmp_path / "policy")) is Unregistered
    with pytest.raises(InvalidInputError, match="name must be new, got 'mine'"):
        whim.register(type("Other", (Unregistered,), {}))
    with pytest.raises(InvalidInputError, match="name must be set on Nameless"):
        whim.register(type("Nameless", (Unregistered,), {"name": ""}))


def test_a_file_with_a_good_seal_and_nothing_in_it(tmp_path: Path) -> None:
    """Not by chance, but by a program that writes the format and gets the class wrong."""
    with pytest.raises(StateFileError, match="must hold a registered policy, got 'nobody'"):
        whim.from_bytes(sealed({"class": "nobody"}))


# -- writing ---------------------------------------------------------------------------------------


def listing(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize("broken", ["os.fsync", "pathlib.Path.replace", "os.fdopen"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_crash_while_writing_leaves_the_old_file(
    broken: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "policy"
    policy = small()
    policy.save(path)
    before = path.read_bytes()
    policy.update("a", [1.0], 1.0)

    def fail(*args: object, **kwargs: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(broken, fail)
        with pytest.raises(type(error)):
            policy.save(path)
        with pytest.raises(type(error)):
            policy.save(tmp_path / "new")
    assert path.read_bytes() == before
    assert listing(tmp_path) == ["policy"]
    policy.save(path)
    assert whim.load(path).step == policy.step == 7


def test_the_new_file_is_on_the_disk_before_it_has_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written, flushed, synced, named, and then the folder is synced: a power cut finds one."""
    calls = []
    fsync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        if calls[-1] == "file":
            assert os.fstat(handle).st_size == len(small().to_bytes())
        fsync(handle)

    def named(self: Path, target: Path) -> Path:
        calls.append("name")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", named)
    small().save(tmp_path / "policy")
    assert calls == ["file", "name", "folder"]


def test_a_missing_directory_is_an_oserror(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "policy"
    with pytest.raises(FileNotFoundError, match="nowhere"):
        small().save(path)
    assert listing(tmp_path) == []


def test_a_directory_is_not_written_over(tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    folder.mkdir()
    with pytest.raises(OSError, match="policy"):
        small().save(folder)
    assert listing(tmp_path) == ["policy"]


def test_loading_what_is_not_a_file(tmp_path: Path) -> None:
    for load in (whim.load, whim.LinUCBDisjoint.load, whim.OracleRestart.load):
        with pytest.raises(FileNotFoundError, match="nothing"):
            load(tmp_path / "nothing")
        with pytest.raises(OSError, match=str(tmp_path)):
            load(tmp_path)
        empty = tmp_path / "empty"
        empty.write_bytes(b"")
        with pytest.raises(StateFileError, match=r"empty must be a saved policy"):
            load(empty)


def test_paths_of_any_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("plain", Path("as a path"), str(tmp_path / "Ünï ✓.whim"), ".hidden", "-o"):
        small().save(path)
        assert whim.load(path).to_bytes() == small().to_bytes()
    assert len(listing(tmp_path)) == 5


@pytest.mark.skipif(os.name != "posix", reason="modes are a POSIX idea")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permission_bits_follow_the_umask(mask: int, tmp_path: Path) -> None:
    path = tmp_path / "policy"
    before = os.umask(mask)
    try:
        small().save(path)
        small().save(path)
        assert os.umask(mask) == mask, "saving leaves the umask as it was"
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


@pytest.mark.skipif(os.name != "posix", reason="modes are a POSIX idea")
def test_a_private_file_stays_private(tmp_path: Path) -> None:
    path = tmp_path / "policy"
    small().save(path)
    path.chmod(0o600)
    small().save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    link = tmp_path / "current"
    link.symlink_to(tmp_path / "real")
    small().save(link)
    assert link.is_symlink()
    assert whim.load(tmp_path / "real").arms == ["a"]


def test_a_sealed_file_that_lies_is_refused() -> None:
    header, arrays = state_file.unpack(small().to_bytes(), "here")
    lies: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "no arms": ({k: v for k, v in header.items() if k != "arms"}, arrays),
        "a parameter too many": (header | {"params": {**header["params"], "x": 1}}, arrays),
        "a slot outside": (header | {"slots": [99]}, arrays),
        "another shape": (header, arrays | {"cum": arrays["cum"][:, :1]}),
        "no window": (header, {k: v for k, v in arrays.items() if k != "pool"}),
        "links outside": (header, arrays | {"links": arrays["links"] + 10**6}),
        "ends outside": (header, arrays | {"table_rows": arrays["table_rows"] - 5}),
    }
    for text, numbers in lies.values():
        sealed = state_file.pack(text, numbers)
        with pytest.raises(StateFileError, match="here must hold a whole"):
            whim.from_bytes(sealed, source="here")


# -- ids -------------------------------------------------------------------------------------------

IDS: list[Any] = [
    "text", "", "é✓\u2028\x00", "\ud800", "1", 1, -1, 0, 2**70, -(2**70), 0.5, -1e-300, 1e300,
    math.inf, -math.inf, b"", b"\x00\xff", (), ("a", 1, 0.5, b"b"), ((), (1, ("x",))),
]  # fmt: skip


@pytest.mark.parametrize("arm", IDS, ids=repr)
def test_ids_of_each_type(arm: Any, tmp_path: Path) -> None:
    policy = whim.LinUCBDisjoint(n_features=1)
    policy.add_arms(["other", arm])
    policy.update(arm, [1.0], 1.0)
    policy.save(tmp_path / "policy")
    copy = whim.load(tmp_path / "policy")
    assert copy.arms == ["other", arm]
    assert type(copy.arms[1]) is type(arm)
    assert copy.plays(arm) == 1
    assert state_file.decode_id(json.loads(json.dumps(state_file.encode_id(arm)))) == arm


def test_numpy_ids_become_plain_ones() -> None:
    policy = whim.LinUCBDisjoint(n_features=1)
    policy.add_arms([np.int64(3), np.str_("a"), np.uint8(4)])
    policy.add_arms(np.array(["b", "c"]))
    assert [type(a) for a in policy.arms] == [int, str, int, str, str]
    assert whim.from_bytes(policy.to_bytes()).arms == [3, "a", 4, "b", "c"]


def test_other_numpy_ids_become_plain_ones_too() -> None:
    policy = whim.LinUCBDisjoint(n_features=1)
    policy.add_arms([np.float64(0.5), np.bytes_(b"x")])
    assert whim.from_bytes(policy.to_bytes()).arms == [0.5, b"x"]


@pytest.mark.parametrize("arm", [frozenset({1}), ("a", None), ("a", True), range(3), 1j], ids=repr)
def test_an_id_that_cannot_be_saved_is_named(arm: Any, tmp_path: Path) -> None:
    path = tmp_path / "policy"
    policy = small()
    policy.save(path)
    before = path.read_bytes()
    policy.add_arms([arm])
    assert policy.select([1.0], [arm]).arm == arm
    last = repr(arm[-1]) if isinstance(arm, tuple) else repr(arm)
    for save in (lambda: policy.save(path), policy.to_bytes):
        with pytest.raises(InvalidInputError) as caught:
            save()
        assert str(caught.value).startswith("arm id must be str, int, float, bytes or a tuple")
        assert last in str(caught.value)
    assert path.read_bytes() == before
    assert listing(tmp_path) == ["policy"]
    policy.retire_arms([arm])
    policy.save(path)
