"""Click rates on LastFM, the tables of docs/lastfm.md.

    python examples/lastfm_clicks.py FOLDER paper --orders user shuffled --passes 1 2 --seeds 0 1 2
    python examples/lastfm_clicks.py FOLDER wu2018

Every policy chooses and learns at every event: the reward of each candidate is known.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np

import whim
from whim.logs import lastfm
from whim.logs.columns import Log


def paper() -> dict[str, Callable[[], whim.Policy]]:
    """The policies of the paper's LastFM table with its settings."""
    d = {"n_features": 10}
    dm = {"n_features": 10, "n_item_features": 10}
    return {
        "random": lambda: whim.Random(seed=0),
        "linucb-disjoint": lambda: whim.LinUCBDisjoint(**d, alpha=0.15),
        "pslinucb-disjoint": lambda: whim.PSLinUCBDisjoint(
            **d, alpha=0.15, window=1200, threshold=0.035
        ),
        "linucb-hybrid": lambda: whim.LinUCBHybrid(**dm, alpha=0.2),
        "pslinucb-hybrid": lambda: whim.PSLinUCBHybrid(
            **dm, alpha=0.2, window=1000, threshold=0.02
        ),
    }


def wu2018() -> dict[str, Callable[[], whim.Policy]]:
    """One model for all arms, as Wu et al. compare."""
    m = {"n_item_features": 25, "alpha": 0.3, "ridge": 0.1}
    wu = {"tau": 30, "delta1": 0.1}
    return {
        "random": lambda: whim.Random(seed=0),
        "linucb": lambda: whim.LinUCBUniform(**m, payoff="item"),
        "dlinucb sigma=0.1": lambda: whim.DynamicLinUCB(**m, **wu, sigma=0.1),
        "dlinucb sigma=0.2": lambda: whim.DynamicLinUCB(**m, **wu, sigma=0.2),
        "dlinucb sigma=0.1 eta=0.5": lambda: whim.DynamicLinUCB(**m, **wu, sigma=0.1, eta=0.5),
        "dlinucb sigma=0.1 eta=0.6": lambda: whim.DynamicLinUCB(**m, **wu, sigma=0.1, eta=0.6),
        "dlinucb sigma=0.1 eta=0.7": lambda: whim.DynamicLinUCB(**m, **wu, sigma=0.1, eta=0.7),
    }


def play(log: Log, policy: whim.Policy) -> tuple[int, int, int]:
    """Clicks, changes reported, and plays of the arm that was played most."""
    arms = [log.arms[i] for i in log.item_arm.tolist()]
    policy.add_arms(arms, features=log.item_features if policy.n_item_features else None)
    offsets, members, pools = (
        np.asarray(a).tolist() for a in (log.pool_offsets, log.pool_items, log.pool)
    )
    everyone = len(offsets) == 2
    contexts = list(np.array(log.context))
    clicks = changes = 0
    plays: dict[object, int] = {}
    for t, place in enumerate(log.logged.tolist()):
        low, high = offsets[pools[t]], offsets[pools[t] + 1]
        best = arms[members[low + place]]
        pool = None if everyone else [arms[i] for i in members[low:high]]
        arm = policy.select(contexts[t], pool).arm
        click = arm == best
        changes += policy.update(arm, contexts[t], float(click)) is not None
        clicks += click
        plays[arm] = plays.get(arm, 0) + 1
    return clicks, changes, max(plays.values())


def main() -> None:
    """Print one line per policy and choice of options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("protocol", choices=["paper", "wu2018"])
    parser.add_argument("--orders", nargs="+", default=["user"])
    parser.add_argument("--passes", nargs="+", type=int, default=[1])
    parser.add_argument("--pools", nargs="+", type=int, default=[0], help="0: the protocol's own")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--only", nargs="+", default=[""], help="policies whose name holds this")
    options = parser.parse_args()
    policies = paper() if options.protocol == "paper" else wu2018()
    with tempfile.TemporaryDirectory() as folder:
        for choice in product(options.pools, options.orders, options.passes, options.seeds):
            pool, order, passes, seed = choice
            log = lastfm.convert(
                options.folder, Path(folder) / "lastfm.whim", protocol=options.protocol,
                pool_size=pool or None, order=order, passes=passes, seed=seed, overwrite=True,
            )  # fmt: skip
            for label, make in policies.items():
                if any(word in label for word in options.only):
                    start = time.perf_counter()
                    clicks, changes, top = play(log, make())
                    took = time.perf_counter() - start
                    print(
                        f"pool {pool or 'own'} order {order} passes {passes} seed {seed} "
                        f"{label:26s} {clicks:6d} of {log.n_events} {clicks / log.n_events:.5f} "
                        f"changes {changes} most-played {top} {took:.0f} s",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
