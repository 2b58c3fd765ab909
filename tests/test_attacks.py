"""Bad callers of every kind, half a second of each; ``make slow`` has a minute and tight bounds."""

from __future__ import annotations

from pathlib import Path

from tests.attacks import attacked
from tests.bad_callers import ATTACKS


def test_a_good_caller_is_served_beside_bad_ones(tmp_path: Path) -> None:
    outcomes = attacked(tmp_path, 0.5)
    assert set(outcomes) == {"quiet", *ATTACKS}
    for kind, outcome in outcomes.items():
        assert outcome.decisions, kind
        assert outcome.health < 2.0, kind  # of seconds that it took before
        assert outcome.p99 < 2.0, kind
