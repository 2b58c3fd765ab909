"""``python -m tests.slow.list_probabilities [N]``: logged probabilities of lists against N draws.

A million by default, for every way in which chance has a say; what is wrong raises.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.served_lists import RANDOM, SETTINGS, compare, config
from whim.serve.state.engine import Engine

if __name__ == "__main__":
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    slots = [{"exclude": ["a"]}, {"baseline": "d"}, {"exclude": ["b", "c"]}]
    for more in [*SETTINGS, RANDOM]:  # with exclusions a random policy's are not known
        for body in ({"k": 3}, {"slots": slots})[: 1 if more is RANDOM else 2]:
            began = time.process_time()
            with tempfile.TemporaryDirectory() as folder:
                engine = Engine(Path(folder) / "data")
                engine.create("s", config(**more))
                p = compare(engine, body, n)
                engine.close()
            assert p > 1e-3, (more, body, p)
            sys.stdout.write(
                f"{more}, {'exclusions' if 'slots' in body else 'k = 3'}: {n} lists, least p-value "
                f"of all items and prefixes (Bonferroni) {min(p, 1):.3g}, "
                f"{time.process_time() - began:.0f} s of processor time\n"
            )
            sys.stdout.flush()
