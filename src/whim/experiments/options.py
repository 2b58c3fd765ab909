"""``Options``: how experiments are to be run; ``Stage``: how they say how far they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from whim import checks

# given a title and the number of parts, what to call with the number of parts done
Stage = Callable[[str, int], Callable[[int], None]]

# of those beyond the paper, what uses data
_READING = ("beyond/clicks", "beyond/rewards", "beyond/streams", "beyond/lastfm")


def after(advance: Callable[[int], None], before: int) -> Callable[[int], None]:
    """``advance`` for a part of a stage: what was done ``before`` it is added."""
    return lambda done: advance(before + done)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run an experiment."""

    quick: bool = False  # fewer runs and shorter logs, the same code
    runs: int | None = None  # by default what the paper did, or few if quick
    jobs: int = -1  # processes, one per core; results do not depend on it
    seed: int = 0  # of worlds, samples and policies
    data: Path | None = None  # the user's own copies of data sets
    work: Path = Path("whim-paper")  # for logs that are made on the way
    stage: Stage = lambda title, total: lambda done: None  # announces a part of the work

    def __post_init__(self) -> None:
        if self.runs is not None:
            checks.integer("runs", self.runs, 1)
        checks.integer("seed", self.seed, 0)

    def choose(self, full: int, quick: int) -> int:
        """The number of runs: as requested, or the default given."""
        return self.runs or (quick if self.quick else full)

    def command(self, experiment: str) -> str:
        """What reproduces an experiment under these options."""
        words = ["whim paper", experiment]
        if self.quick:
            words.append("--quick")
        if self.runs is not None:
            words.append(f"--runs {self.runs}")
        if self.seed:
            words.append(f"--seed {self.seed}")
        reads = not experiment.startswith(("synthetic", "beyond")) or experiment in _READING
        if self.data is not None and reads:
            words.append("--data DIR")
        return " ".join(words)
