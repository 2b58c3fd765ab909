"""Whim with ``scoring="float32"``, for batches: beside the peers that score in single precision."""

from __future__ import annotations

from functools import partial

from benchmarks.peers.adapters import whim_

NOTES = {
    "A": "LinUCBDisjoint",
    "C": 'LinUCBDisjoint(scoring="float32").scores_many: every score, returned as float64',
}
learner = whim_.learner
batch = partial(whim_.batch, scoring="float32")
