"""The news world over replicas: every answer is held against a policy of the library itself.

The policy is driven here by the rows of the log alone: arms are added as decisions show them, and
the reward of each is learnt as it comes. No code of the service has a part in it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tests.cluster import Cluster, lasts_of, wait_until
from tests.retrying import Caller, Told
from tests.shared_truth import SpaceLog, Whole, bits, check_copy
from whim.policies import policy as make_policy
from whim.serve.log.rows import DECODERS, DecisionRow, Kind, RewardRow, answer_of
from whim.worlds import Episode, NewsWorld

SPACE = "front"
CONFIG: dict[str, Any] = {
    "name": SPACE, "policy": "pslinucb-disjoint", "params": {"alpha": 0.2}, "context": {"size": 6},
    "explore": 0.02, "rewards": {"wait_seconds": 100_000.0},
}  # fmt: skip
_BATCHES = (1, 4, 16)  # decisions per request


class Report(NamedTuple):
    """What came of a run."""

    decisions: int
    behind: int  # that were not based on the row before them, for others were on their way
    clicks: float
    rate: float
    changes: int

    def __str__(self) -> str:
        return (
            f"{self.decisions} decisions of the news world over three replicas at "
            f"{self.rate:.0f} a second, {self.clicks:.4f} clicks each, {self.changes} changes: "
            f"every answer is the library's for the row it was based on, which for {self.behind} "
            "was not the last one."
        )


def _digest(answer: Any) -> bytes:
    return hashlib.blake2b(json.dumps(answer, sort_keys=True).encode(), digest_size=16).digest()


class _Readers(threading.Thread):
    """Some of the visits: what is shown to each, and whether it is clicked."""

    def __init__(
        self, name: str, ports: Sequence[int], told: Told, world: Episode, visits: range
    ) -> None:
        super().__init__(daemon=True)
        self._random, self._caller = random.Random(name), Caller(name, ports, told)
        self._told, self._world, self._visits = told, world, visits
        self.digests: dict[str, bytes] = {}

    def run(self) -> None:
        """All of them, a few at a time; each few are rewarded at any replica."""
        visits = list(self._visits)
        try:
            while visits:
                n = self._random.choice(_BATCHES)
                self._visit(visits[:n])
                del visits[:n]
        except Exception as error:  # it must not pass unseen because it is in a thread
            self._told.wrong.append(repr(error))
        finally:
            self._caller.close()

    def _visit(self, visits: list[int]) -> None:
        world, pools = self._world, [_pool(self._world, i) for i in visits]
        bodies = [
            {"decision_id": f"v{i}", "context": world.contexts[i].tolist(), "candidates": pool}
            for i, pool in zip(visits, pools, strict=True)
        ]
        if len(visits) == 1:
            answers = [self._caller.call(f"{SPACE}/decisions", bodies[0])]
        else:
            many = self._caller.call(f"{SPACE}/decisions/batch", {"decisions": bodies})
            answers = many["answers"]
        rewards = []
        for i, pool, answer in zip(visits, pools, answers, strict=True):
            self.digests[answer["decision_id"]] = _digest(answer)
            click = float(world.rewards[i, pool.index(answer["arm"])])
            rewards.append({"decision_id": f"v{i}", "value": click, "reward_id": f"r{i}"})
        if len(visits) == 1:
            self._caller.call(f"{SPACE}/rewards", rewards[0])
        else:
            self._caller.call(f"{SPACE}/rewards/batch", {"rewards": rewards})


def _pool(world: Episode, visit: int) -> list[int]:
    pool = world.pool_of[visit]
    return [int(arm) for arm in world.members[world.offsets[pool] : world.offsets[pool + 1]]]


def check_library(space: SpaceLog) -> tuple[int, int, int]:
    """Each decision by a policy that has learnt the rows up to its base.

    How many there are, how many were not based on the row before them, and changes of interest.
    """
    policy = make_policy("pslinucb-disjoint", n_features=6, alpha=0.2)
    logged = [(row[0], DECODERS[row[3]].decode(row[5])) for row in space.rows]
    decisions = [(seq, row) for seq, row in logged if type(row) is DecisionRow]
    waiting: dict[str, tuple[Any, Any]] = {}
    known: set[Any] = set()
    place = behind = changes = 0
    last = {seq: before for (before, _), (seq, _) in itertools.pairwise(logged)}
    for seq, decision in sorted(decisions, key=lambda one: one[1].base or 0):
        base = decision.base or 0
        while place < len(logged) and logged[place][0] <= base:
            row = logged[place][1]
            place += 1
            if type(row) is DecisionRow:
                policy.add_arms([arm for arm in row.arms if arm not in known])
                known.update(row.arms)
                waiting[row.id] = row.arms[row.place], row.context
            elif type(row) is RewardRow and row.id in waiting:
                arm, x = waiting.pop(row.id)
                changes += policy.update(arm, np.array(x), row.value) is not None
        order, numbers, _ = policy.preview(np.array(decision.context), decision.arms)
        assert decision.order == order, (decision.id, decision.order, order)
        assert bits(decision.numbers) == bits(numbers), (decision.id, decision.numbers, numbers)
        behind += last[seq] != decision.base
    return len(decisions), behind, changes


def front_page(folder: Path, visits: int, *, threads: int = 4, seed: int = 0) -> Report:
    """Serve visits by three replicas, and check every answer; what is wrong raises."""
    world, told = NewsWorld().episode(horizon=visits, seed=seed), Told()
    with Cluster(folder) as cluster:
        cluster.create(CONFIG)
        ports, began = [node.port for node in cluster.nodes], time.monotonic()
        crew = [
            _Readers(f"t{i}", ports, told, world, range(i, visits, threads)) for i in range(threads)
        ]
        for thread in crew:
            thread.start()
        for thread in crew:
            while thread.is_alive():
                thread.join(30)
                sys.stderr.write(f"{sum(len(one.digests) for one in crew)} of {visits}\n")
        rate = visits / (time.monotonic() - began)
        assert not told.wrong, told.wrong[:3]
        for node in cluster.nodes:
            wait_until(lambda node=node: lasts_of(node.data) == cluster.heads())
        cluster.stop()
        whole = Whole(cluster.server.dsn)
    space = whole.spaces[SPACE]
    answers: dict[str, bytes] = {}
    for one in crew:
        answers |= one.digests
    clicks = 0.0
    for row in space.rows:
        body = DECODERS[row[3]].decode(row[5])
        if row[3] == Kind.DECISION:
            answer = json.loads(msgspec.json.encode(answer_of(SPACE, body)))
            assert answers.pop(body.id) == _digest(answer), f"{body.id} was answered otherwise"
        elif row[3] == Kind.REWARD:
            clicks += body.value
    assert not answers, f"lost: {list(answers)[:5]}"
    digests = whole.digests()
    for node in cluster.nodes:
        check_copy(node.data, whole, digests)
    decisions, behind, changes = check_library(space)
    return Report(decisions, behind, clicks / decisions, rate, changes)
