"""``jit``: numba compilation whose cache can never be stale, and short cuts for live calls.

numba stamps a cached function with the time and size of its own source file. A kernel that calls a
function of another file is compiled with that function's code, so an edit there would leave old
machine code in use. Here every kernel is cached in a folder named after a digest of all compiled
sources and of numba: another source, another folder.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import hashlib
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar, cast

import numba
from numba.core import event

from whim.errors import WhimError

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


class _Compiling(event.Listener):
    """Logs, once per process, that compiling takes long, and that its result cannot be kept.

    Garbage is not collected meanwhile: the compiler makes many objects, and few that are garbage.
    """

    def __init__(self) -> None:
        self._spent, self._depth, self._since = 0.0, 0, 0.0
        self._said, self._collects = False, False
        self._timer: threading.Timer | None = None

    def on_start(self, compiling: Any) -> None:
        self._depth += _ours(compiling)
        if self._depth != 1 or not _ours(compiling):
            return
        self._collects = gc.isenabled()
        gc.disable()
        if self._said:
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
        if self._depth != 0 or not _ours(compiling):
            return
        if self._collects:
            gc.enable()
        if self._timer is not None:
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


event.register("numba:compile", _Compiling())  # type: ignore[no-untyped-call]


class NotCachedError(WhimError):
    """A kernel would have to be compiled, where only cached ones were wanted."""


class _Refusing(event.Listener):
    """Refuses to compile in a thread that is within ``cached_only``."""

    def __init__(self) -> None:
        self.thread = threading.local()

    def on_start(self, compiling: Any) -> None:
        if getattr(self.thread, "refuses", False) and _ours(compiling):
            raise NotCachedError(f"{compiling.data['dispatcher'].py_func.__name__} is not cached.")

    def on_end(self, compiling: Any) -> None:
        pass


_refusing = _Refusing()
# after the other, which has seen the beginning when it is told of the end
event.register("numba:compile", _refusing)  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def cached_only() -> Iterator[None]:
    """In this thread kernels are loaded; one that would be compiled raises ``NotCachedError``."""
    _refusing.thread.refuses = True
    try:
        yield
    finally:
        _refusing.thread.refuses = False


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
    bound.__qualname__ = f"{code.__qualname__}_{name}"  # what the cached file is called
    return bound


class Specialised:
    """Copies of kernels, and of all that they call, whose globals named in ``constants`` are these.

    A branch on a global that is False is not even compiled. A kernel that neither uses one of the
    constants nor calls one that does is its own copy.
    """

    def __init__(self, name: str, constants: dict[str, Any]) -> None:
        self._name, self._constants = name, constants
        self._copies: dict[Any, Any] = {}

    def __call__(self, kernel: Any) -> Any:
        """The copy of a kernel; without compiling, the kernel, which is right for all constants."""
        options = getattr(kernel, "whim_options", None)
        if options is None:
            return kernel
        if kernel not in self._copies:
            steps = list(dis.get_instructions(kernel.py_func))
            names = {step.argval for step in steps if step.opname == "LOAD_GLOBAL"}
            members = {step.argval for step in steps if step.opname in ("LOAD_ATTR", "LOAD_METHOD")}
            parts = self._changed(kernel.py_func.__globals__, names, members)
            copy = bind(kernel.py_func, self._name, **parts)
            self._copies[kernel] = _compiled(copy, **options) if parts else kernel
        return self._copies[kernel]

    def _changed(self, space: dict[str, Any], names: set[str], members: set[str]) -> dict[str, Any]:
        """What stands for something else in a copy; ``members`` are names within modules."""
        parts: dict[str, Any] = {}
        for name in names & space.keys():
            value = space[name]
            if isinstance(value, ModuleType) and value.__name__.startswith("whim.kernels."):
                if changed := self._changed(vars(value), members, set()):
                    parts[name] = ModuleType(value.__name__)
                    vars(parts[name]).update(vars(value) | changed)
            else:
                parts[name] = self._constants.get(name, self(value))
        return {name: part for name, part in parts.items() if part is not space[name]}


# a kernel that is not compiled can be interrupted, by another that works on the same arrays
_interpreting = threading.RLock()


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
        kernel = self.kernel
        if not hasattr(kernel, "signatures"):  # nothing is compiled
            with _interpreting:
                return kernel(*arguments)
        result = kernel(*arguments)
        if len(kernel.signatures) == 1:
            self.call = kernel.get_overload(kernel.signatures[0])
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
        kernel = njit(**options)(function)
        if kernel is not function:
            kernel.whim_options = options
        return cast(Function, kernel)
    finally:
        config.CACHE_DIR = before
