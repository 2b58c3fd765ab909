"""``TaskStore``: a folder with the result of each finished task, so that a stopped run goes on.

An entry is ``<digest>.json`` with the plain results and, where there are arrays, ``<digest>.npz``.
The digest covers the task's description, the function's name and file, and the code of whim that
decides results: another setting or another code, another entry. Nothing is pickled.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from whim.errors import InvalidInputError
from whim.files import write_atomic
from whim.kernels.jit import source_digest

_ROOT = Path(__file__).parent.parent
# what stands before a result; a change in the command line or a figure is none of its business
_PACKAGES = ("kernels", "detectors", "policies", "worlds", "logs", "evaluate", "experiments")


@functools.cache
def code_digest(root: Path = _ROOT) -> str:
    """Digest of whim's version, of numba's and of every source that decides a result."""
    digest = hashlib.sha256(source_digest(root).encode())
    inside = (source for name in _PACKAGES for source in (root / name).rglob("*.py"))
    for source in sorted([*root.glob("*.py"), *inside]):  # the root's own files contain the version
        digest.update(source.relative_to(root).as_posix().encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:20]


class TaskStore:
    """Results of finished tasks in a folder.

    Parameters
    ----------
    path
        The folder; made when it is missing.
    key
        Says what a task is, in dicts, lists, text, numbers, paths and bytes. Two tasks with the
        same description are taken to have the same result: a task that names a file which may
        change should describe its content as well. The task describes itself by default.

    Examples
    --------
    >>> import tempfile, whim.evaluate.intervals as intervals
    >>> store = TaskStore(tempfile.mkdtemp())
    >>> store.put(intervals.gain, {"seed": 1}, {"regret": np.array([1.5]), "found": 2})
    {'found': 2, 'regret': array([1.5])}
    >>> store.get(intervals.gain, {"seed": 1})
    {'found': 2, 'regret': array([1.5])}
    >>> store.get(intervals.gain, {"seed": 2}) is None
    True
    """

    def __init__(
        self, path: str | os.PathLike[str], *, key: Callable[[Any], Any] | None = None
    ) -> None:
        self.path = Path(path)
        self._key = key
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputError(
                f"store must be a folder, got {str(path)!r}: {error.strerror}."
            ) from None

    def get(self, function: Callable[..., Any], task: Any) -> dict[str, Any] | None:
        """The stored result; ``None`` when there is none or when it is damaged."""
        name, _ = self._entry(function, task)
        try:
            stored = json.loads((self.path / f"{name}.json").read_bytes())
            plain: dict[str, Any] = stored["result"]
            if stored["sealed"] != _seal(name, plain, stored["arrays"]):
                return None
            return plain | self._arrays(name, stored["arrays"])
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
            return None

    def put(self, function: Callable[..., Any], task: Any, result: Any) -> dict[str, Any]:
        """Store a result, and return it as ``get`` will: plain values first, then arrays."""
        if not isinstance(result, Mapping) or not all(isinstance(name, str) for name in result):
            raise InvalidInputError(
                f"results must be dicts with text as keys to be stored, got {result!r:.200}."
            )
        name, description = self._entry(function, task)
        arrays = {k: v for k, v in result.items() if isinstance(v, np.ndarray)}
        plain = {k: _plain(f"result {k!r}", v) for k, v in result.items() if k not in arrays}
        index: dict[str, Any] = {"names": list(arrays), "sha256": None}
        if arrays:  # first the arrays: an entry exists once its JSON does
            data = _packed(arrays)
            index["sha256"] = hashlib.sha256(data).hexdigest()
            write_atomic(self.path / f"{name}.npz", data)
        entry = {
            "task": description,
            "result": plain,
            "arrays": index,
            "sealed": _seal(name, plain, index),
        }
        write_atomic(self.path / f"{name}.json", json.dumps(entry, indent=1))
        return plain | arrays

    def _arrays(self, name: str, index: dict[str, Any]) -> dict[str, Any]:
        if not index["names"]:
            return {}
        data = (self.path / f"{name}.npz").read_bytes()
        if hashlib.sha256(data).hexdigest() != index["sha256"]:
            raise ValueError("the arrays are not those that were stored")
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            return {key: file[f"array{i}"] for i, key in enumerate(index["names"])}

    def _entry(self, function: Callable[..., Any], task: Any) -> tuple[str, Any]:
        """The name of a task's files, and the task's description."""
        described = task if self._key is None else self._key(task)
        description = _plain("task", described, task=True)
        parts = [code_digest(), _function_digest(function), _canonical(description)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32], description


@functools.cache
def _function_digest(function: Callable[..., Any]) -> str:
    """Name of a function with a digest of its file: an edited function is another one."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<")
    file = getattr(sys.modules.get(str(module)), "__file__", None)
    if file is None or "<" in name:
        raise InvalidInputError(
            "function must be a top-level function of a module's file when results are stored, "
            f"got {function!r}."
        )
    return f"{module}:{name}:{hashlib.sha256(Path(file).read_bytes()).hexdigest()}"


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _seal(name: str, plain: dict[str, Any], index: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical([name, plain, index]).encode()).hexdigest()


def _packed(arrays: dict[str, Any]) -> bytes:
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise InvalidInputError(f"result {name!r} must hold numbers or text, got objects.")
    file = io.BytesIO()
    # numbered: a result may be called anything, also "file"
    np.savez(file, **{f"array{i}": array for i, array in enumerate(arrays.values())})
    return file.getvalue()


def _plain(name: str, value: Any, *, task: bool = False) -> Any:
    """``value`` as JSON will give it back; paths and bytes only distinguish tasks."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if task and isinstance(value, bytes):
        return {"sha256": hashlib.sha256(value).hexdigest()}
    if task and isinstance(value, PurePath):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(f"{name}[{i}]", part, task=task) for i, part in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(f"{name}[{key!r}]", part, task=task) for key, part in value.items()}
    raise InvalidInputError(
        f"{name} must be made of dicts with text as keys, lists, text and numbers to be stored, "
        f"got {value!r:.200}."
    )
