"""``write_atomic``: all or nothing, permissions and links kept."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from whim.files import unwritable, write_atomic


def test_bytes_text_and_writers(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    write_atomic(str(path), "δ\n")
    assert path.read_bytes() == "δ\n".encode()
    write_atomic(path, lambda file: file.write(b"written"))
    assert path.read_bytes() == b"written"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")

    def fail(file: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_missing_is_the_callers_error(tmp_path: Path) -> None:
    path = tmp_path / "none" / "file"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomic(path, b"")
    assert caught.value.filename == str(path)  # not the temporary file's


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    assert unwritable(tmp_path) is None
    assert unwritable(tmp_path / "new" / "newer") is None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    assert unwritable(tmp_path / "file") == unwritable(tmp_path / "file" / "x") == "Not a directory"


@pytest.mark.skipif(sys.platform == "win32", reason="has neither")
def test_permissions_and_links_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    write_atomic(path, b"1", mode=0o600)
    link.symlink_to(path)
    write_atomic(link, b"2")
    assert link.is_symlink()
    assert path.read_bytes() == b"2"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    write_atomic(path, b"3", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
