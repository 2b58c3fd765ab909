"""Compiled kernels are cached between processes, and old machine code never runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import whim

# one update and one decision; what they cost the compiler, and where its code was kept
SCRIPT = """
import json
import whim
from whim.kernels import jit
policy = whim.LinUCBDisjoint(n_features=1)
policy.add_arms(["a"])
policy.update("a", [1.0], 1.0)
mean = policy.select([1.0]).mean
code = policy._code
stats = [kernel.stats for kernel in (code.observe.kernel, code.choose.kernel)]
print(json.dumps({
    "mean": mean,
    "loaded": sum(sum(s.cache_hits.values()) for s in stats),
    "compiled": sum(sum(s.cache_misses.values()) for s in stats),
    "folder": str(jit.cache_folder()),
    "source": whim.__file__,
}))
"""
# a line of ``udu.learn``, which the kernel has compiled into itself
OLD, NEW = b"gain = (r - predict(f, x)) / a", b"gain = (r - predict(f, x)) * a"
# caches of kernels; and bytecode, which goes by time and size, of the file that is edited
NOT_COPIED = shutil.ignore_patterns("kernels-*", "udu.*.pyc")
OLD_MEAN, NEW_MEAN = 0.5, 2.0  # one reward of 1 at x = 1, a = 2


@dataclass(frozen=True)
class Package:
    """A copy of whim of its own, with a home of its own."""

    root: Path
    cache: Path | None

    @property
    def callee(self) -> Path:
        return self.root / "whim" / "kernels" / "linalg" / "udu.py"

    def run(self, before: str = "", **more: str) -> dict[str, object]:
        """Decide in a fresh process, after what is to happen ``before``; its answer."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("WHIM", "NUMBA", "XDG"))}
        env |= {"PYTHONPATH": str(self.root), "HOME": str(self.root)}
        # Python's own bytecode goes by time and size alone: it must not hide the kernels' cache
        env |= {"PYTHONDONTWRITEBYTECODE": "1"} | more
        if self.cache is not None:
            env["WHIM_CACHE_DIR"] = str(self.cache)
        done = subprocess.run(
            [sys.executable, "-c", before + SCRIPT],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, object] = json.loads(done.stdout) | {"stderr": done.stderr}
        assert Path(str(answer["source"])).is_relative_to(self.root)
        return answer

    def replace(self, old: bytes, new: bytes) -> None:
        """Edit the callee so that neither its size nor its time tells."""
        before = self.callee.stat()
        text = self.callee.read_bytes()
        assert text.count(old) == 1
        assert len(old) == len(new)
        self.callee.write_bytes(text.replace(old, new))
        os.utime(self.callee, ns=(before.st_atime_ns, before.st_mtime_ns))
        after = self.callee.stat()
        assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def _copy(root: Path, **more: bool) -> None:
    shutil.copytree(Path(whim.__file__).parent, root / "whim", ignore=NOT_COPIED, **more)


def test_a_changed_callee_is_compiled_anew_and_the_old_one_is_found_again(tmp_path: Path) -> None:
    package = Package(tmp_path / "installed", tmp_path / "cache")
    _copy(package.root)
    first = package.run()
    assert first["mean"] == OLD_MEAN
    assert (first["loaded"], first["compiled"]) == (0, 2)
    assert Path(str(first["folder"])).is_relative_to(tmp_path / "cache")

    second = package.run()
    assert second["mean"] == OLD_MEAN
    assert (second["loaded"], second["compiled"]) == (2, 0)

    package.replace(OLD, NEW)
    edited = package.run()
    assert edited["mean"] == NEW_MEAN
    assert edited["folder"] != first["folder"]

    package.replace(NEW, OLD)
    restored = package.run()
    assert restored["mean"] == OLD_MEAN
    assert (restored["loaded"], restored["compiled"]) == (2, 0)


def test_another_version_installed_over_it_never_meets_old_code(tmp_path: Path) -> None:
    """As pip does it: the sources are replaced, caches that it does not know of stay."""
    package = Package(tmp_path / "installed", None)
    _copy(package.root)
    package.replace(OLD, NEW)
    edited = package.run()
    assert edited["mean"] == NEW_MEAN
    assert Path(str(edited["folder"])).is_relative_to(package.callee.parent.parent)
    for source in package.root.rglob("*.py"):
        source.unlink()
    _copy(package.root, dirs_exist_ok=True)
    assert package.run()["mean"] == OLD_MEAN
    assert package.run()["loaded"] == 2


def test_without_a_writable_folder_kernels_are_compiled_and_work_and_it_is_said_once(
    tmp_path: Path,
) -> None:
    """A plain file where a folder should be stops even root."""
    package = Package(tmp_path / "installed", tmp_path / "file" / "cache")
    _copy(package.root)
    (tmp_path / "file").write_text("")
    answer = package.run()
    assert answer["mean"] == OLD_MEAN
    assert answer["folder"] == "None"
    assert answer["loaded"] == 0
    said = str(answer["stderr"])
    assert said.count("WHIM_CACHE_DIR") == 1
    assert said.count("\n") == 1


def test_where_the_sources_cannot_be_written_the_users_cache_is_used(tmp_path: Path) -> None:
    package = Package(tmp_path / "installed", None)
    _copy(package.root)
    folder = package.callee.parent.parent / "__pycache__"
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_text("")
    home = tmp_path / "xdg"
    answer = package.run(XDG_CACHE_HOME=str(home))
    assert answer["mean"] == OLD_MEAN
    assert Path(str(answer["folder"])).is_relative_to(home / "whim")
    assert package.run(XDG_CACHE_HOME=str(home))["loaded"] == 2


def test_without_a_home_or_a_name_for_the_user_it_works(tmp_path: Path) -> None:
    """As in a container that runs as a number."""
    package = Package(tmp_path / "installed", None)
    _copy(package.root)
    nameless = """
import os, pwd
del os.environ["HOME"]
def nobody(uid):
    raise KeyError(uid)
pwd.getpwuid = nobody
"""
    assert package.run(nameless)["mean"] == OLD_MEAN
    shutil.rmtree(package.callee.parent.parent / "__pycache__")
    folder = package.callee.parent.parent / "__pycache__"
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_text("")
    answer = package.run(nameless)
    assert (answer["mean"], answer["folder"]) == (OLD_MEAN, "None")


def test_compiling_that_takes_long_is_said_once_through_logging(tmp_path: Path) -> None:
    package = Package(tmp_path / "installed", tmp_path / "cache")
    _copy(package.root)
    listening = """
import logging
logging.basicConfig(level=logging.INFO)
from whim.kernels import jit
jit._PATIENCE = 0.0
"""
    said = str(package.run(listening)["stderr"])
    assert said.count("compiling kernels") == 1
    assert str(tmp_path / "cache") in said
    assert "compiling" not in str(package.run(listening)["stderr"])  # it finds them all
    assert not package.run()["stderr"]
