"""Packages that only some of whim needs: ``require`` imports one, or says how to install it."""

from __future__ import annotations

import importlib.util
from typing import Any

from whim.errors import WhimError

# extra -> what it is for, and the packages that must be there; ``whim doctor`` lists them
EXTRAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cli": ("the command line", ("rich", "typer")),
    "logs": ("CSV, Parquet and Open Bandit files, tables as frames, saved results", ("polars",)),
    "remote": ("files and logs in S3 and other stores", ("fsspec", "s3fs")),
    "runs": ("runs over several processes", ("joblib", "threadpoolctl")),
    "plot": ("figures", ("matplotlib",)),
    "report": ("HTML reports", ("jinja2", "matplotlib")),
    "features": ("LastFM's features, groups of arms by k-means", ("sklearn", "threadpoolctl")),
    "detectors": ("Page-Hinkley and ADWIN", ("river",)),
    "serve": (
        "the service and its clients",
        ("httptools", "httpx", "jinja2", "msgspec", "prometheus_client", "starlette", "structlog",
         "uvicorn"),
    ),
    "postgres": ("the service over PostgreSQL", ("msgspec", "psycopg")),
    "cluster": ("runs on a dask cluster", ("dask", "distributed")),
    "ray": ("runs on a ray cluster", ("ray",)),
}  # fmt: skip


def install(extra: str) -> str:
    """The command that installs an extra.

    >>> install("plot")
    "pip install 'whim-bandits[plot]'"
    """
    return f"pip install 'whim-bandits[{extra}]'"


def require_all(extra: str, what: str) -> None:
    """The same for all packages of an extra, which are looked for and not imported yet.

    >>> require_all("cli", "The command line needs")
    """
    for package in EXTRAS[extra][1]:
        if importlib.util.find_spec(package) is None:
            raise WhimError(f"{what} {package}, which is not installed: {install(extra)}.")


def require(package: str, extra: str, what: str) -> Any:
    """Import a package; where it is missing, say what needs it and which extra has it.

    >>> require("json", "plot", "Figures need").loads("1")
    1
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise WhimError(
            f"{what} {error.name or package}, which is not installed: {install(extra)}."
        ) from error
