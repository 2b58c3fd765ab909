"""``python -m tests.slow.list_loops``: every policy's compiled loop over lists is its live calls.

For users who see every item, who scan, and who look by position, and over a log of lists that are
matched whole or by prefix. Prints a line per policy; what differs raises. Most of the time goes to
the compiler.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.factories import FACTORIES
from tests.test_list_loops import compare, compare_replay, learns_features, logged_lists

VISITS = 1000

if __name__ == "__main__":
    for name, make in FACTORIES.items():
        policy, began = make(), time.monotonic()
        if policy.n_cross_features and not policy.n_item_features:
            continue  # its cross features come from the caller, and worlds have none
        kinds = ("semi", "cascade") + ("positions",) * learns_features(policy)
        with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
            for users in kinds:
                compare(name, users, patch, VISITS)
            log = logged_lists(name, Path(folder), VISITS)
            for match in ("prefix", "list"):
                compare_replay(name, match, patch, log)
        said = f"{name}: {', '.join(kinds)}, logs; {time.monotonic() - began:.0f} s"
        sys.stdout.write(f"{said}\n")
        sys.stdout.flush()
