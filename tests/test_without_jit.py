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
