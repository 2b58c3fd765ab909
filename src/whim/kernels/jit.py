"""``jit``: numba compilation whose cache can never be stale.

numba stamps a cached function with the time and size of its own source file. A kernel that
calls a function of another file is compiled with that function inlined, so an edit there would
leave old machine code in use. Here every kernel is cached in a folder named after a digest of
all kernel sources, of whim's version and of numba's: another source, another folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

__all__ = ["Direct", "again", "cache_folder", "inline", "jit", "lean", "live", "source_digest"]

Function = TypeVar("Function", bound=Callable[..., Any])

_HERE = Path(__file__).parent
_UNCOUNTED = "_nrt"


def source_digest(package: Path = _HERE.parent) -> str:
    """Digest of every source of ``package`` that is compiled, and of the compiler's version."""
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted([*package.glob("kernels/**/*.py"), *package.glob("logs/*_parser.py")]):
        name = source.relative_to(package).as_posix()
        digest.update(name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def cache_folder() -> Path | None:
    """Where compiled kernels are kept: ``WHIM_CACHE_DIR``, beside the sources, or the user's cache.

    ``None`` when none of them can be written: kernels are then compiled anew in each process.
    """
    chosen = os.environ.get("WHIM_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    roots = [Path(chosen)] if chosen else [_HERE / "__pycache__", Path(home) / "whim"]
    for root in roots:
        folder = root / f"kernels-{source_digest()}"
        if _writable(folder):
            return folder
    return None


def _prune(folder: Path) -> None:
    """Remove code of other sources that nobody has written to for a month."""
    old = time.time() - 30 * 24 * 3600
    for other in folder.parent.glob("kernels-*"):
        with contextlib.suppress(OSError):  # another process may be pruning as well
            if other != folder and other.stat().st_mtime < old:
                shutil.rmtree(other)


_FOLDER = cache_folder()
if _FOLDER is not None:
    _prune(_FOLDER)


def jit(function: Function) -> Function:
    """Compile ``function`` without the interpreter lock, cached under the current sources.

    No ``fastmath``: sums keep their order, so the same step gives the same bits in a live call
    and in a compiled loop.
    """
    return _compiled(function, inline="never")


def lean(function: Function) -> Function:
    """As ``jit``, for a kernel that allocates nothing: numba then counts no references.

    Taking an array in costs half as much. A numba without the option, which is not promised,
    compiles as ``jit`` does.
    """
    return _uncounted(function, nogil=True)


def live(function: Function) -> Function:
    """As ``lean``, for a live call, which keeps the interpreter lock.

    It is over in a microsecond; whoever gave the lock away would wait five milliseconds to get it
    back from a busy thread.
    """
    return _uncounted(function, nogil=False)


def _uncounted(function: Function, **how: Any) -> Function:
    counted = _compiled(function, inline="never", **how)
    target = getattr(counted, "targetdescr", None)
    if not hasattr(getattr(target, "options", None), _UNCOUNTED):
        return counted
    return _compiled(function, inline="never", **how, **{_UNCOUNTED: False})


def again(kernel: Function) -> Function:
    """The same ``live`` kernel once more, for arguments of other types: see ``Direct``."""
    return live(cast(Any, kernel).py_func)  # type: ignore[no-any-return]


def inline(function: Function) -> Function:
    """As ``jit``, and copied into its callers: for the few lines at the heart of a loop.

    A call that is not inlined passes each array as a dozen numbers, more work than those lines.
    """
    return _compiled(function, inline="always")


class Direct:
    """A kernel for live calls: from the second call on, ``call`` is its machine code itself.

    numba looks at the type of each argument on every call, which costs a short kernel as much as
    its work. The types of a live call never change: the policy has checked them and every policy
    passes the same ones.
    """

    __slots__ = ("call", "kernel")

    def __init__(self, kernel: Callable[..., Any]) -> None:
        self.kernel: Any = kernel
        self.call: Callable[..., Any] = self._first

    def _first(self, *arguments: Any) -> Any:
        result = self.kernel(*arguments)
        compiled = list(self.kernel.overloads.values())
        if len(compiled) == 1:
            self.call = compiled[0].entry_point
        return result

    def bound(self, first: tuple[Any, ...]) -> Callable[..., Any] | None:
        """The machine code with its first arguments in hand; none before the second call."""
        return None if self.call == self._first else partial(self.call, *first)


def _compiled(function: Function, **how: Any) -> Function:
    config: Any = numba.config
    njit: Any = numba.njit
    before = config.CACHE_DIR
    config.CACHE_DIR = "" if _FOLDER is None else str(_FOLDER)
    try:
        options = {"cache": _FOLDER is not None, "nogil": True, "error_model": "numpy"} | how
        return cast(Function, njit(**options)(function))
    finally:
        config.CACHE_DIR = before
