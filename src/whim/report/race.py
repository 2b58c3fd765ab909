"""Which policy of a saved run is ahead, and of which it cannot be told, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Row = Mapping[str, Any]


class Race(NamedTuple):
    """The policy with the best number, and the others: those it is not clearly ahead of first."""

    first: Row
    tied: list[Row]
    behind: list[Row]

    def told(self, what: str, number: Callable[[Row], str]) -> str:
        """A sentence; ``what`` is such as "lowest regret", ``number`` shows that of a row."""
        whose = f"{what} is that of {self.first['policy']}: {number(self.first)}"
        if not self.tied:
            return f"The {whose}."
        names = [f"{row['policy']}'s ({number(row)})" for row in self.tied]
        same = " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
        head = "The" if self.behind else "No policy is clearly ahead: the"
        return f"{head} {whose}, which cannot be told apart from {same}."


def race(rows: Sequence[Row], place: Callable[[Row], float], ahead: Callable[[Row, Row], bool]
         ) -> Race:  # fmt: skip
    """Rank rows by ``place``, the lowest first; ``ahead`` says whether a lead is beyond chance."""
    first, *others = sorted(rows, key=place)
    clear = {row["policy"]: ahead(first, row) for row in others}
    return Race(
        first,
        [row for row in others if not clear[row["policy"]]],
        [row for row in others if clear[row["policy"]]],
    )
