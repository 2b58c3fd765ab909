"""Whether speed was bought with accuracy: every policy's regret against slow, literal NumPy.

``python -m benchmarks.regret [--json FILE] [policy ...]``. Whim's compiled loop and the references
of ``tests/oracles``, which invert their matrices anew, each play work A of
``benchmarks.peers.works`` by their own choices: one that differed would change all that follows.
Regrets must agree to 1e-9, choices and detected changes step by step; the exit code is 1 if any
does not.

The policies are those of ``tests/factories.py`` with contexts of length 5 and, where they want
item features, a fixed matrix of 10 by 3. Cross rows of the caller's ("given") are left out: the
compiled loops make their own. What draws random numbers has a reference that draws the same. Some
references sum a history by products of arrays, or keep a sum from score to score; such sums are
compared with the oracle's own at the end. About 8 minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.factories import FACTORIES
from threadpoolctl import threadpool_limits

import whim
from benchmarks.measure import progress
from benchmarks.references import REFERENCES
from benchmarks.references.common import (
    ITEM,
    Params,
    Reference,
    all_arms,
    item_features,
    true_changes,
    work,
)
from whim.kernels.loops import EACH, EventBatch
from whim.policies.base import CompiledPolicy
from whim.policies.registry import POLICIES
from whim.policies.run_events import run_events

__all__ = ["TOLERANCE", "main", "rows"]

TOLERANCE = 1e-9

# beside those of the tests
_MORE: dict[str, Callable[[], whim.Policy]] = {
    "linucb-disjoint-ties": lambda: whim.LinUCBDisjoint(n_features=5, ties="random", seed=3),
    "pslinucb-disjoint-default": lambda: whim.PSLinUCBDisjoint(n_features=5),
    "pslinucb-hybrid-default": lambda: whim.PSLinUCBHybrid(n_features=5, n_item_features=ITEM),
}
# of the work's 20,000 steps, where the reference takes milliseconds per step
_STEPS = {
    "denband": 2000,
    "denband-authors": 3000,
    "swlinucb-cross": 5000,
    "oracle-restart-all": 10_000,
    "pslinucb-hybrid-literal": 10_000,
    "pslinucb-hybrid-default": 8000,
    "pslinucb-hybrid-revisit": 8000,
}
_LONG = ("hybrid", "denband", "groups", "restart-all", "revisit", "default", "cross")  # go first


# -- both sides -----------------------------------------------------------------------------------


def _adapted(made: whim.Policy) -> whim.Policy:
    """The same policy for contexts and item features of the lengths here, without arms."""
    params = made.params
    if isinstance(made, whim.OracleRestart):
        by_arm = isinstance(params["changes"], dict)
        told = true_changes() if by_arm else list(range(1000, len(work().X), 2000))
        return whim.OracleRestart(policy=_adapted(made.policy), changes=told)
    if params.get("n_features") is not None:
        params["n_features"] = work().d
    if params.get("n_cross_features") is not None:
        params |= {"n_cross_features": None, "n_item_features": ITEM}
    if params.get("n_item_features") is not None:
        params["n_item_features"] = ITEM
    return type(made)(**params)


def _names() -> list[str]:
    """One name a row: the tests' policies, ours, and registered ones that neither holds."""
    found = [name for name in FACTORIES if not name.endswith("-given")] + list(_MORE)
    covered = {type(_made(name)).name for name in found}
    return found + sorted(POLICIES.keys() - covered)


def _made(name: str) -> whim.Policy:
    return _adapted(FACTORIES[name]()) if name in FACTORIES else _MORE[name]()


def _ours(policy: whim.Policy, steps: int) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Choices and the steps, from 1, at which changes were detected."""
    task = work()
    none, all_arms = np.zeros(steps, np.int64), np.arange(task.n_arms)
    ends = np.array([0, task.n_arms])
    X, R = np.ascontiguousarray(task.X[:steps]), np.ascontiguousarray(task.R[:steps])
    found = run_events(policy, EventBatch(EACH, X, none, ends, all_arms, none, R))
    return found.chosen, [at + 1 for at, _ in found.changes]


def _theirs(reference: Reference, steps: int) -> tuple[npt.NDArray[np.int64], list[int]]:
    """The same of a reference, which goes by its own choices."""
    task = work()
    chosen, changes = np.empty(steps, np.int64), []
    for t in range(steps):
        x = task.X[t]
        arm = chosen[t] = reference.choose(x)
        if reference.learn(int(arm), x, float(task.R[t, arm])):
            changes.append(t + 1)
    return chosen, changes


def _lost(chosen: npt.NDArray[np.int64]) -> float:
    expected = work().expected[: len(chosen)]
    return float((expected.max(axis=1) - expected[np.arange(len(chosen)), chosen]).sum())


def _note(params: Params, compiled: bool) -> str:
    words = [] if compiled else ["live calls"]
    if params.get("scoring") == "float32":
        words.append("float32")  # near enough for the same choices, not more
    return ", ".join(words)


def _row(name: str) -> dict[str, Any]:
    """Both sides of one policy."""
    steps = _STEPS.get(name, len(work().X))
    if name not in FACTORIES and name not in _MORE:
        return {"policy": name, "steps": 0, "note": "no reference", "agrees": None}
    with threadpool_limits(1):
        policy = _made(name)
        policy.add_arms(all_arms(), features=item_features() if policy.n_item_features else None)
        inner = policy.policy if isinstance(policy, whim.OracleRestart) else policy
        compiled = isinstance(inner, CompiledPolicy) and inner._runs_compiled()
        params = policy.params
        if isinstance(policy, whim.PSLinUCBGroups):  # k-means is not what is compared
            params |= {"labels": [policy.group(arm) for arm in all_arms()]}
        start = time.thread_time()
        ours, found = _ours(policy, steps)
        took = time.thread_time() - start
        row = {
            "policy": name,
            "steps": steps,
            "regret": _lost(ours),
            "changes": len(found),
            "seconds": took,
            "note": _note(params, compiled),
        }
        build = REFERENCES.get(type(policy).name)
        if build is None:
            return row | {"note": "no reference", "agrees": None}
        start = time.thread_time()
        reference = build(params)
        theirs, seen = _theirs(reference, steps)
        took = time.thread_time() - start
        for quick, literal in reference.same():
            np.testing.assert_allclose(quick, literal, rtol=1e-9, atol=1e-12)
    difference = row["regret"] - _lost(theirs)
    apart = np.flatnonzero(ours != theirs)
    return row | {
        "reference_regret": _lost(theirs),
        "difference": difference,
        "relative": abs(difference) / max(_lost(theirs), 1e-300),
        "steps_that_differ": len(apart),
        "first_that_differs": int(apart[0]) + 1 if len(apart) else None,
        "reference_changes": len(seen),
        "changes_that_differ": len(set(found) ^ set(seen)),
        "reference_seconds": took,
        "agrees": abs(difference) <= TOLERANCE and not len(apart) and found == seen,
    }


def rows(names: Sequence[str] | None = None, jobs: int | None = None) -> list[dict[str, Any]]:
    """One row per policy (all by default); ``agrees`` is None where there is no reference."""
    wanted = _names() if names is None else list(names)
    order = sorted(wanted, key=lambda name: not any(word in name for word in _LONG))
    context = multiprocessing.get_context("spawn")
    found: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(jobs or min(2, os.cpu_count() or 1), mp_context=context) as pool:
        for row in pool.map(_row, order):
            found[row["policy"]] = row
            progress(f"regret: {row['policy']}: {row.get('reference_seconds', 0):.1f} s")
    return [found[name] for name in wanted]


def _table(found: list[dict[str, Any]]) -> str:
    head = (
        "policy", "steps", "regret", "reference", "difference", "relative", "steps apart",
        "changes", "reference", "apart", "agrees", "",
    )  # fmt: skip
    lines = [head]
    for row in found:
        cells = [row["policy"], f"{row['steps']}"]
        cells.append(f"{row['regret']:.6f}" if "regret" in row else "-")
        if "difference" in row:
            cells += [
                f"{row['reference_regret']:.6f}", f"{row['difference']:.1e}",
                f"{row['relative']:.1e}", f"{row['steps_that_differ']}", f"{row['changes']}",
                f"{row['reference_changes']}", f"{row['changes_that_differ']}",
                "yes" if row["agrees"] else "NO",
            ]  # fmt: skip
        else:
            cells += ["-", "-", "-", "-", f"{row.get('changes', '-')}", "-", "-", "-"]
        first = row.get("first_that_differs")
        lines.append((*cells, f"from step {first}" if first else row["note"]))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    ends = {0, len(head) - 1}
    text = [
        "  ".join(
            cell.ljust(width) if i in ends else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    text.insert(1, "-" * max(map(len, text)))
    return "\n".join(text)


def main() -> int:
    """The exit code: 1 if a policy and its reference differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regret")
    parser.add_argument("policies", nargs="*", help="names of rows; all by default")
    parser.add_argument("--json", metavar="FILE", help="also write the rows here")
    options = parser.parse_args()
    found = rows(options.policies or None)
    print(_table(found))
    compared = [row for row in found if row["agrees"] is not None]
    bad = [row["policy"] for row in compared if not row["agrees"]]
    print(f"\n{len(compared) - len(bad)} of {len(compared)} agree to {TOLERANCE:g}.")
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n")
    if bad:
        progress(f"differ: {', '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
