"""Which rows of a table of models are in use, oldest first.

``order`` is a permutation of the rows whose first ``marks[LIVE]`` entries are in use.
"""

from __future__ import annotations

from whim.kernels.jit import part
from whim.types import I64

LIVE = 0


@part
def add_row(order: I64, marks: I64) -> int:
    """The row of one more model; when all are in use the oldest gives way."""
    live = marks[LIVE]
    if live < order.shape[0]:
        row: int = order[live]
        marks[LIVE] = live + 1
    else:
        row = order[0]
        for i in range(live - 1):
            order[i] = order[i + 1]
        order[live - 1] = row
    return row


@part
def drop_row(place: int, order: I64, marks: I64) -> None:
    """Take the model at ``place`` of ``order`` out of use; the others keep their order."""
    row = order[place]
    last = marks[LIVE] - 1
    for i in range(place, last):
        order[i] = order[i + 1]
    order[last] = row
    marks[LIVE] = last
