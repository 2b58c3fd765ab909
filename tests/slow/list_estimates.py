"""``python -m tests.slow.list_estimates``: intervals of estimates on 500 logs of lists each.

For every kind of feedback and of logging the 95 % intervals of the estimates that are right for it
hold the truth in 93 to 97 % of 500 logs, of which at most five are refused. Prints a line for each
and ends with 1 if one is out of bounds. Seeds are fixed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.list_truth import WORLDS, coverage

LOGS, LISTS = 500, 4000


def main() -> int:
    """The exit code."""
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for feedback, logging in WORLDS:
            held = coverage(Path(folder), feedback, logging, logs=LOGS, lists=LISTS)
            bad += held.refused > LOGS // 100
            text = f"{feedback:<8} {logging:<8} refused {held.refused}"
            for name, share in held.share.items():
                fine = 0.93 <= share <= 0.97
                bad += not fine
                off = (held.mean[name] - held.truth) / held.error[name]
                text += f"  {name} {share:.3f} ({off:+.1f} s.e.){'' if fine else ' OUT OF BOUNDS'}"
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
