"""What the verbs share in running: the one progress bar, and how many processes pay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

_SMALL = 1_000_000  # steps: another process is ready after about as long as these take


@contextmanager
def bar(what: str, total: int, *, in_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """Show how far work is; gives a function to call with the number of parts done."""
    with stages(in_bytes=in_bytes) as shown:
        yield shown.stage(what, total)


@contextmanager
def stages(*, in_bytes: bool = False) -> Iterator[Stages]:
    """A bar for work in stages, of which one is shown at a time.

    On stderr, removed at the end, and only if stderr is a terminal.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    shown = Progress(
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(),
        DownloadColumn() if in_bytes else MofNCompleteColumn(), TimeRemainingColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
    with shown:  # its end, also by Ctrl-C, wipes the bar and shows the cursor again
        yield Stages(shown)


class Stages:
    """What ``stages`` gives: the next stage, and lines that stay."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown

    def stage(self, what: str, total: int) -> Callable[[int], None]:
        """Begin a stage in place of the last; gives what to call with the parts done."""
        self._clear()
        task = self._shown.add_task(what, total=total)
        return lambda done: self._shown.update(task, completed=done)

    def say(self, text: str) -> None:
        """Write a line above the bar."""
        self._clear()
        self._shown.console.print(text, markup=False, highlight=False)

    def _clear(self) -> None:
        for task in self._shown.task_ids:
            self._shown.remove_task(task)


def processes(jobs: int, steps: float) -> int:
    """``jobs``; where it is -1, 1 if there are few steps or joblib is missing: the same result.

    >>> processes(-1, 1e5), processes(-1, 1e8), processes(2, 1e5)
    (1, -1, 2)
    """
    if jobs != -1:
        return jobs
    return 1 if steps < _SMALL or find_spec("joblib") is None else -1
