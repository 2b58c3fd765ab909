"""With ``NUMBA_DISABLE_JIT=1`` kernels are plain Python, which a debugger can step through."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
# every oracle of these files, at one size each: `make slow` runs them all, which takes minutes
SOME = "(algorithm_1 and 7-True) or (algorithm_2 and 2-False-2-3) or (equals_literal and 1)"
ORACLES = ("tests/test_disjoint.py", "tests/test_hybrid.py")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )


def test_the_oracle_tests_of_disjoint_and_hybrid_policies_pass() -> None:
    done = _run("-m", "pytest", "-p", "no:cacheprovider", "-n", "0", *ORACLES, "-k", SOME)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout or "[100%]" in done.stdout


def test_the_loops_over_lists_are_the_live_calls() -> None:
    done = _run("-m", "pytest", "-p", "no:cacheprovider", "-n", "0", "tests/test_list_loops.py")
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout or "[100%]" in done.stdout


def test_threads_get_lists_of_their_own() -> None:
    script = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import whim
sys.setswitchinterval(1e-6)
policy = whim.LinUCBDisjoint(n_features=2)
policy.add_arms([*"abcdef"])
rng = np.random.default_rng(0)
X = rng.normal(size=(100, 2))
policy.update_many([*"abcdef"] * 10, X[:60], rng.random(60))
expected = [(policy.select(x), policy.select_list(x, k=3)) for x in X]
def ask(_):
    return [(policy.select(x), policy.select_list(x, k=3)) for x in X] == expected
with ThreadPoolExecutor(4) as pool:
    print(*pool.map(ask, range(8)))
"""
    done = _run("-c", script)
    assert done.stdout.split() == ["True"] * 8, done.stderr[-3000:]


def test_every_call_of_a_policy_works() -> None:
    script = """
import numpy as np
import whim
policy = whim.PSLinUCBHybrid(n_features=2, n_item_features=2)
policy.add_arms(["a", "b"], features=np.eye(2))
x = np.array([1.0, 0.5])
for _ in range(20):
    policy.update(policy.select(x).arm, x, 1.0)
print(len(policy.rank(x)), policy.scores_many(x[None]).shape, policy.step)
"""
    done = _run("-c", script)
    assert done.stdout == "2 (1, 2) 20\n", done.stderr[-3000:]
