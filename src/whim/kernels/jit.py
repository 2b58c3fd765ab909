"""``jit``: numba compilation whose cache can never be stale, and short cuts for live calls.

numba stamps a cached function with the time and size of its own source file. A kernel that calls a
function of another file is compiled with that function's code, so an edit there would leave old
machine code in use. Here every kernel is cached in a folder named after a digest of all compiled
sources and of numba: another source, another folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
from numba.core import event

Function = TypeVar("Function", bound=Callable[..., Any])

_HERE = Path(__file__).parent
_NRT = "_nrt"  # numba's option for counting references
_UNWRAPPED = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_PATIENCE = 2.0  # seconds of compiling before a word about it
_log = logging.getLogger("whim.kernels")


# -- where compiled code is kept ----------------------------------------------------------------


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
    roots = [_HERE / "__pycache__"]
    if chosen := os.environ.get("WHIM_CACHE_DIR"):
        roots = [Path(chosen)]
    elif home := os.environ.get("XDG_CACHE_HOME"):
        roots.append(Path(home) / "whim")
    else:
        with contextlib.suppress(RuntimeError):  # no HOME, and a user without a name
            roots.append(Path("~/.cache").expanduser() / "whim")
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


class _Notices(event.Listener):
    """Logs, once per process, that compiling takes long, and that its result cannot be kept."""

    def __init__(self) -> None:
        self._spent, self._depth, self._since = 0.0, 0, 0.0
        self._said = False
        self._timer: threading.Timer | None = None

    def on_start(self, compiling: Any) -> None:
        self._depth += _ours(compiling)
        if self._depth != 1 or self._said or not _ours(compiling):
            return
        if _FOLDER is None:
            self._said = True
            _log.warning(
                "compiled kernels cannot be kept, so each process compiles them again: no cache "
                "folder can be written; set WHIM_CACHE_DIR to one that can"
            )
            return
        self._since = time.monotonic()
        self._timer = threading.Timer(max(0.0, _PATIENCE - self._spent), self._say)
        self._timer.daemon = True
        self._timer.start()

    def on_end(self, compiling: Any) -> None:
        self._depth -= _ours(compiling)
        if self._depth == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._spent += time.monotonic() - self._since

    def _say(self) -> None:
        if not self._said:
            self._said = True
            _log.info("compiling kernels, once for this machine; kept in %s", _FOLDER)


def _ours(compiling: Any) -> bool:
    kernel = compiling.data["dispatcher"].py_func
    return str(kernel.__module__).startswith("whim.")


event.register("numba:compile", _Notices())  # type: ignore[no-untyped-call]


# -- compiling ----------------------------------------------------------------------------------


def jit(function: Function) -> Function:
    """Compile ``function`` without the interpreter lock, cached under the current sources.

    No ``fastmath``: sums keep their order, so the same step gives the same bits in a live call
    and in a compiled loop.
    """
    return _compiled(function, inline="never")


def jit_nonrt(function: Function) -> Function:
    """As ``jit``, for a kernel that allocates nothing: numba then counts no references.

    Taking an array in costs half as much. A numba without the option, which is not promised,
    compiles as ``jit`` does.
    """
    return _compiled(function, inline="never", **_uncounted(function))


def jit_live(function: Function) -> Function:
    """As ``jit_nonrt``, for a live call, which keeps the interpreter lock.

    It is over in a microsecond; whoever gave the lock away would wait five milliseconds to get it
    back from a busy thread.
    """
    return _compiled(function, inline="never", nogil=False, **_uncounted(function))


def part(function: Function) -> Function:
    """A part of kernels, not called from Python; it is compiled once for all of a process.

    It has no wrapper, the dearest part of a short function with many arrays.
    """
    return _compiled(function, inline="never", cache=False, **_UNWRAPPED)


def inline(function: Function) -> Function:
    """As ``part``, and the compiler must put it into each caller: for a few lines of arithmetic.

    LLVM does so, late: numba's own inlining takes ten times as long.
    """
    return _compiled(function, inline="never", forceinline=True, cache=False, **_UNWRAPPED)


def splice(function: Callable[..., Any]) -> Any:
    """A part of which a kernel is little more than the frame: it is not compiled by itself."""
    return _compiled(getattr(function, "py_func", function), inline="always", cache=False)


def bind(function: Callable[..., Any], name: str, **parts: Any) -> Any:
    """A copy of a template whose globals named in ``parts`` are these, to be compiled.

    How one text serves every model: numba takes globals as constants.
    """
    code: Any = function
    bound = FunctionType(code.__code__, {**code.__globals__, **parts}, name)
    bound.__doc__, bound.__module__ = function.__doc__, function.__module__
    bound.__qualname__ = f"{code.__name__}_{name}"  # what the cached file is called
    return bound


class FastCall:
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
        signatures: Any = getattr(self.kernel, "signatures", ())  # none where nothing is compiled
        if len(signatures) == 1:
            self.call = self.kernel.get_overload(signatures[0])
        return result


def _uncounted(function: Any) -> dict[str, Any]:
    target = getattr(_compiled(function), "targetdescr", None)
    return {_NRT: False} if hasattr(getattr(target, "options", None), _NRT) else {}


def _compiled(function: Function, **options: Any) -> Function:
    config: Any = numba.config
    njit: Any = numba.njit
    before = config.CACHE_DIR
    config.CACHE_DIR = "" if _FOLDER is None else str(_FOLDER)
    try:
        options = {"cache": _FOLDER is not None, "nogil": True, "error_model": "numpy"} | options
        return cast(Function, njit(**options)(function))
    finally:
        config.CACHE_DIR = before
