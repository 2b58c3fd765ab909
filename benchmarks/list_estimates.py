"""Estimates of lists beside those of obp, the Open Bandit Pipeline, from the same logs.

    python -m benchmarks.list_estimates

Whim's ``ips``, ``slots`` and ``rips`` are obp's SIPS, IIPS and RIPS; the literal cascade doubly
robust form that the tests hold ``cdr`` to is obp's, given the same model. obp runs in the
environment that ``benchmarks.peers`` makes for it. It ends with 1 if two differ by more than 1e-9.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from tests.list_truth import K, N, World, made_list_log
from tests.oracles import lists as oracle

from benchmarks.peers.environments import Failed, install, python
from whim.evaluate import estimate_lists

OBP = """
import json, sys
import numpy as np
from obp.ope import (
    SlateCascadeDoublyRobust, SlateIndependentIPS, SlateRewardInteractionIPS, SlateStandardIPS,
)
given = dict(np.load(sys.argv[1]))
rows = {name: given[name] for name in ("slate_id", "reward", "position")}
def value(estimator, kind, **more):
    suffix = {"": "", "items": "_item_position", "cascade": "_cascade"}[kind]
    scores = {
        "pscore" + suffix: given["pscore" + suffix],
        "evaluation_policy_pscore" + suffix: given["evaluation_policy_pscore" + suffix],
    }
    return float(estimator.estimate_policy_value(**rows, **scores, **more))
print(json.dumps({
    "ips": value(SlateStandardIPS(len_list=3), ""),
    "slots": value(SlateIndependentIPS(len_list=3), "items"),
    "rips": value(SlateRewardInteractionIPS(len_list=3), "cascade"),
    "cdr": value(
        SlateCascadeDoublyRobust(len_list=3, n_unique_action=5), "cascade",
        action=given["action"], q_hat=given["q_hat"],
        evaluation_policy_action_dist=given["evaluation_policy_action_dist"],
    ),
}))
"""


def ours(world: World, path: Path, q: np.ndarray) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """What Whim says of a made log, and the same log as obp takes it."""
    log = made_list_log(path, world, 500, np.random.default_rng(1))
    kinds = log.context.argmax(1)
    chosen = world.chosen[kinds]
    found = {name: one.interval.value for name, one in estimate_lists(log, chosen.tolist()).items()}
    shown, n = np.asarray(log.list_place).reshape(-1, K), len(kinds)
    rewards = np.asarray(log.list_reward).reshape(-1, K)
    even = dict.fromkeys(oracle.all_lists(N, K), 1.0 / (N * (N - 1) * (N - 2)))
    doubly = []
    for i in range(n):
        logging = even
        if world.logging == "mixed":
            own, e = tuple(world.wanted[kinds[i]].tolist()), world.explore
            logging = {some: e * p + (1 - e) * (some == own) for some, p in even.items()}
        target, a = {tuple(chosen[i].tolist()): 1.0}, tuple(shown[i].tolist())
        doubly.append(
            oracle.cascade_dr(target, logging, a, rewards[i].tolist(), lambda k, top: q[k, top[-1]])
        )
    found["cdr"] = float(np.mean(doubly))
    same = shown == chosen
    prefixes = np.logical_and.accumulate(same, 1).astype(float)
    items = np.tile([1.0 / N], (n, K))
    starts = np.tile(np.cumprod(1.0 / (N - np.arange(K))), (n, 1))
    if log.list_prefix_probability is not None:
        items = np.asarray(log.list_probability).reshape(-1, K)
        starts = np.asarray(log.list_prefix_probability).reshape(-1, K)
    dist = np.zeros((n, K, N))
    np.put_along_axis(dist, chosen[:, :, None], 1.0, axis=2)
    columns = {
        "slate_id": np.repeat(np.arange(n), K), "position": np.tile(np.arange(K), n),
        "reward": rewards.ravel(), "action": shown.ravel(),
        "pscore": np.repeat(starts[:, -1], K),
        "evaluation_policy_pscore": np.repeat(prefixes[:, -1], K),
        "pscore_item_position": items.ravel(),
        "evaluation_policy_pscore_item_position": same.astype(float).ravel(),
        "pscore_cascade": starts.ravel(), "evaluation_policy_pscore_cascade": prefixes.ravel(),
        "q_hat": np.tile(q, (n, 1, 1)).ravel(), "evaluation_policy_action_dist": dist.ravel(),
    }  # fmt: skip
    return found, columns


def main() -> int:
    """Print a table; 1 if anything differs."""
    there = install("obp")
    if isinstance(there, Failed):
        print(f"obp cannot be installed: {there.reason}")
        return 1
    q, worst = np.random.default_rng(2).random((K, N)), 0.0
    print(
        f"obp {there.version}\n\n| users | logging | estimate | whim | obp |\n|---|---|---|---|---|"
    )
    for feedback in ("semi", "cascade"):
        for logging in ("uniform", "mixed"):
            with tempfile.TemporaryDirectory() as folder:
                mine, columns = ours(World(feedback, logging), Path(folder) / "log.whim", q)
                np.savez(Path(folder) / "log.npz", **columns)
                command = [str(python("obp")), "-W", "ignore", "-c", OBP, f"{folder}/log.npz"]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
            for name, theirs in json.loads(done.stdout.splitlines()[-1]).items():
                worst = max(worst, abs(mine[name] - theirs))
                print(f"| {feedback} | {logging} | {name} | {mine[name]:.12f} | {theirs:.12f} |")
    print(f"\nlargest difference {worst:.1e}")
    return int(worst > 1e-9)


if __name__ == "__main__":
    sys.exit(main())
