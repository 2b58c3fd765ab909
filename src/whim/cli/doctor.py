"""``whim doctor``: versions, the kernel cache, cores, BLAS, missing extras, the data directory."""

from __future__ import annotations

import os
import platform
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from whim.cli.options import DATA, DataDir, Json


def doctor(
    data: DataDir = DATA,
    as_json: Json = False,
) -> None:
    """Show what this installation has, what it lacks, and how to install that."""
    from whim.cli.show import print_json

    checks = _checks(data)
    if as_json:
        print_json(checks)
    else:
        typer.echo("\n".join(_lines(checks)))


def _checks(data: Path) -> dict[str, Any]:
    from whim.extras import EXTRAS, install

    missing = {
        extra: {"for": purpose, "packages": lacking, "install": install(extra)}
        for extra, (purpose, packages) in EXTRAS.items()
        if (lacking := [name for name in packages if find_spec(name) is None])
    }
    return {
        "versions": _versions(),
        "platform": platform.platform(),
        "cache": _cache(),
        "cores": {"machine": os.cpu_count(), "usable": _usable_cores()},
        "blas": _blas(),
        "missing_extras": missing,
        "data": _directory(data),
    }


def _versions() -> dict[str, str]:
    from whim.version import __version__

    own = {"whim": __version__, "python": platform.python_version()}
    return own | {name: version(name) for name in ("numpy", "numba", "llvmlite")}


def _cache() -> dict[str, Any]:
    """Where compiled kernels are kept, and how much is there."""
    from whim.kernels.jit import cache_folder

    folder = cache_folder()
    files = [] if folder is None else [file for file in folder.rglob("*") if file.is_file()]
    return {
        "folder": None if folder is None else str(folder),
        "writable": folder is not None,
        "megabytes": round(sum(file.stat().st_size for file in files) / 1e6, 1),
        "compiled": sum(file.suffix == ".nbc" for file in files),
    }


def _usable_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _blas() -> list[dict[str, Any]] | None:
    """The libraries that numpy multiplies matrices with; None where that is unknown."""
    if find_spec("threadpoolctl") is None:
        return None
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    return [
        {"library": library["internal_api"], "version": library["version"],
         "threads": library["num_threads"]}
        for library in threadpool_info()
        if library["user_api"] == "blas"
    ]  # fmt: skip


def _directory(path: Path) -> dict[str, Any]:
    """Whether the service could keep its data there."""
    above = path
    while not above.exists() and above != above.parent:
        above = above.parent
    try:
        with tempfile.TemporaryFile(dir=above):
            problem = None
    except OSError as error:
        problem = error.strerror or str(error)
    return {"path": str(path.absolute()), "exists": path.is_dir(), "problem": problem}


def _lines(checks: dict[str, Any]) -> list[str]:
    cache, cores, data = checks["cache"], checks["cores"], checks["data"]
    lines = [f"{name:<10} {number}" for name, number in checks["versions"].items()]
    lines.append(f"platform   {checks['platform']}")
    if cache["folder"] is None:
        lines.append("cache      none can be written, so each process compiles again: set "
                     "WHIM_CACHE_DIR to a folder that can")  # fmt: skip
    else:
        lines.append(f"cache      {cache['folder']} ({cache['megabytes']:.1f} MB, "
                     f"{cache['compiled']} compiled functions)")  # fmt: skip
    lines.append(f"cores      {cores['usable']} of {cores['machine']} usable")
    if checks["blas"] is None:
        lines.append("blas       unknown (threadpoolctl is not installed)")
    lines += [
        f"blas       {blas['library']} {blas['version']}, {blas['threads']} threads"
        for blas in checks["blas"] or []
    ]
    state = data["problem"] or ("usable" if data["exists"] else "usable; does not exist yet")
    lines.append(f"data       {data['path']} ({state})")
    return lines + [
        f"missing    {extra}, for {lacks['for']} ({', '.join(lacks['packages'])}): "
        f"{lacks['install']}"
        for extra, lacks in checks["missing_extras"].items()
    ]
