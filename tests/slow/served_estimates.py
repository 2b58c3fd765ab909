"""``python -m tests.slow.served_estimates``: estimates on logs of every policy of the service.

500 logs each, with and without explore: 95 % intervals of what another policy is worth hold the
truth in 93 to 97 % of those whose estimates are not refused, or all are refused. Prints a line for
each and ends with 1 if one is out of bounds by more than chance: three standard errors, which are
three points for 500 logs. Seeds are fixed.
"""

from __future__ import annotations

import math
import sys

from tests.served_truth import CONFIGS, held
from whim.serve.state.policy import SERVED

LOGS, EVENTS = 500, 1000


def main() -> int:
    """The exit code."""
    assert sorted(CONFIGS) == SERVED, "a policy is missing"
    bad = 0
    for policy in SERVED:
        for explore in (0.0, 0.2):
            found = held(policy, explore, logs=LOGS, events=EVENTS)
            known = found.logs - found.refused
            text = f"{policy:<20} explore {explore:<4} refused {found.refused:>4} of {found.logs}"
            for name, count in found.held.items() if known else ():
                slack = 3 * math.sqrt(0.95 * 0.05 / known)
                fine = 0.93 - slack <= count / known <= 0.97 + slack
                bad += not fine
                text += f"  {name} {count / known:.3f} {'ok' if fine else 'OUT OF BOUNDS'}"
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
