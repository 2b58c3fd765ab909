"""What the verbs share in running: the one progress bar, and how many processes pay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["bar", "processes"]

_SMALL = 1_000_000  # steps: another process is ready after about as long as these take


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how far work is; gives a function to call with the number of parts done.

    On stderr, gone when the work is, and only where someone looks.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    shown = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with shown:  # its end, also by Ctrl-C, wipes the bar and shows the cursor again
        task = shown.add_task(what, total=total)
        yield lambda done: shown.update(task, completed=done)


def processes(jobs: int, steps: float) -> int:
    """``jobs``; where it is -1 and there are few steps to do, 1: the result is the same.

    >>> processes(-1, 1e5), processes(-1, 1e8), processes(2, 1e5)
    (1, -1, 2)
    """
    return 1 if jobs == -1 and steps < _SMALL else jobs
