"""``whim log``: what is in a log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whim.cli.options import Json

if TYPE_CHECKING:
    from whim.logs import Log


def log(
    path: Annotated[str, typer.Argument(help="A log, such as r6a.whim, or its address.")],
    as_json: Json = False,
) -> None:
    """Describe a log: events, arms, time, rewards, pools, and what was dropped when it was made."""
    from whim.logs import open

    facts = describe(open(path))
    if as_json:
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    for name, value in facts.items():
        typer.echo(f"{name.replace('_', ' '):<15} {_shown(value)}")


def describe(log: Log) -> dict[str, Any]:
    """The facts, from one pass over rewards and pools."""
    import numpy as np

    sizes = np.diff(log.pool_offsets)
    total, low, high = 0.0, None, None
    used = np.zeros(log.n_pools, np.int64)
    for start in range(0, log.n_events, 1 << 20):
        part = slice(start, start + (1 << 20))
        total += float(log.reward[part].sum())
        used += np.bincount(log.pool[part], minlength=log.n_pools)
        first, last = int(log.time[part].min()), int(log.time[part].max())
        low = first if low is None else min(low, first)
        high = last if high is None else max(high, last)
    n = max(log.n_events, 1)
    return {
        "log": str(log.path),
        "reader": log.meta.get("source", {}).get("reader"),
        "files": log.meta.get("source", {}).get("files", []),
        "events": log.n_events,
        "arms": log.n_arms,
        "items": log.n_items,
        "features": log.n_features,
        "item_features": log.n_item_features,
        "context_dtype": log.meta["context_dtype"],
        "time": None if low is None else {"first": low, "last": high},
        "mean_reward": total / n,
        "pools": log.n_pools,
        "pool_size": None
        if not log.n_events
        else {
            "smallest": int(sizes[used > 0].min()),
            "mean": float((used * sizes).sum() / n),
            "largest": int(sizes[used > 0].max()),
        },
        **_lists(log),
        "logging": log.logging,
        **_doubt(log),
        "propensities": bool(log.meta["propensities"]),
        "read": log.meta.get("read"),
        "dropped": log.meta.get("dropped", {}),
        "warnings": log.meta.get("warnings", {}),
    }


def _doubt(log: Log) -> dict[str, Any]:
    """Why it cannot be uniform, if it says so and cannot."""
    if log.logging != "uniform":
        return {}
    from whim.evaluate.pools import doubted

    doubt = doubted(log, log.logging)
    return {} if doubt is None else {"doubt": doubt}


def _lists(log: Log) -> dict[str, Any]:
    """What a log of lists has besides; nothing where events show single items."""
    if not log.has_lists:
        return {}
    import numpy as np

    if not log.n_events:
        return {"lists": True}
    lengths = np.diff(log.list_offsets)
    longest = int(lengths.max())
    position = np.arange(log.meta["n_shown"]) - np.repeat(log.list_offsets[:-1], lengths)
    total = np.bincount(position, log.list_reward, longest)
    rates = total / np.bincount(position, minlength=longest)
    known = not bool(np.isnan(total).any())
    return {
        "lists": True,
        "shown_items": log.meta["n_shown"],
        "list_length": {
            "shortest": int(lengths.min()), "mean": float(lengths.mean()), "longest": longest,
        },
        "position_reward": [float(f"{rate:.4g}") for rate in rates] if known else None,
        "wanted_lists": log.list_wanted is not None,
    }  # fmt: skip


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_shown(each)}" for name, each in value.items()) or "nothing"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "unknown"}[value]
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
