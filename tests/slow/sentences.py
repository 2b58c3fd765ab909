"""``python -m tests.slow.sentences``: how often a change's sentence names the wrong readers.

Changes for all readers, and for one kind of them, of 20 to 150 plays. Four minutes. Ends with 1 if
more than 5 % of the sentences about changes for all certainly name somebody. ``--lasting`` is the
deviation of log-odds that features make all the time (0.5). At 2 a linear policy names more: near 0
and 1 the rates of some readers do move less, though their log-odds do not.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.made_changes import POLICIES, counted
from whim.evaluate.intervals import proportion

PLACES, RUNS, ACCEPTED = (2, 4, 8, 12, 20), 200, 0.05


def share(counts: Counter[str], *verdicts: str) -> str:
    return f"{100 * sum(counts[v] for v in verdicts) / max(counts.total(), 1):.0f} %"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--lasting", type=float, default=0.5)
    options, failed = parser.parse_args(), False
    sys.stdout.write(
        "| policy | features | all changed: reports | somebody named | one kind changed: reports "
        "| rightly named | wrongly named | said of all |\n|" + "---|" * 8 + "\n"
    )
    for policy in POLICIES:
        for places in PLACES:
            all_, kind = (
                counted(options.seed, policy, places, group, RUNS, options.lasting)
                for group in (False, True)
            )
            failed |= proportion(all_["wrong"], all_.total()).low > ACCEPTED
            cells = [policy, places, all_.total(), share(all_, "wrong"), kind.total(),
                     *(share(kind, v) for v in ("right", "wrong", "all"))]  # fmt: skip
            sys.stdout.write(f"| {' | '.join(map(str, cells))} |\n")
            sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
