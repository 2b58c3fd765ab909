"""A load test for a service of your own: readers come at a steady rate, decide, and reward.

    python deploy/loadtest.py http://127.0.0.1:8126 --rate 200 --seconds 30 --p99-ms 50

It makes a space of its own (``load-test``), and retires it afterwards; its rows stay in the log.
The key, with the scope admin, comes from ``WHIM_KEY``. Readers do not wait for each other: a slow
answer does not make the next reader come later, so that waiting is measured and not left out. Times
are those of a caller, repeats after 429 or 503 included.
It needs ``pip install 'whim-bandits[serve]'``.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import whim
from whim.client import ServiceError, UnreachableError
from whim.errors import WhimError

READY = 300.0  # seconds: a service that has never had such a space compiles for it
MOST_WAITING = 5000  # readers under way: beyond it the service is hopelessly behind
QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "worst_ms": 1.0}


class LoadTest:
    """Counts and times of one run."""

    def __init__(self, client: whim.AsyncClient, options: argparse.Namespace) -> None:
        self.client, self.options = client, options
        self.rng = np.random.default_rng(options.seed)
        self.tastes = self.rng.normal(size=(options.arms, options.features))
        self.times: dict[str, list[float]] = {"decision": [], "reward": []}
        self.errors: collections.Counter[str] = collections.Counter()
        self.turned_away = 0

    async def visit(self, name: str) -> None:
        """One reader: a decision, and a reward that depends on what was shown."""
        options = self.options
        x = self.rng.normal(size=options.features)
        pool = self.rng.choice(options.arms, min(options.candidates, options.arms), replace=False)
        try:
            answer = await self.timed(
                "decision",
                self.client.decide(x.tolist(), [f"arm-{i}" for i in pool], decision_id=name),
            )
            likes = float(self.tastes[int(str(answer.arm)[4:])] @ x > 0)
            await self.timed("reward", self.client.reward(name, likes))
        except ServiceError as error:
            self.errors[f"{error.status} {error.code}"] += 1
        except UnreachableError:
            self.errors["unreachable"] += 1

    async def timed(self, kind: str, call: Any) -> Any:
        began = time.perf_counter()
        answer = await call
        self.times[kind].append(time.perf_counter() - began)
        return answer

    async def run(self) -> float:
        """All readers; returns the seconds that it took."""
        options, under_way = self.options, set()
        began, run = time.perf_counter(), f"{time.time_ns():x}"
        for n in range(int(options.rate * options.seconds)):
            await asyncio.sleep(max(0.0, began + n / options.rate - time.perf_counter()))
            if len(under_way) >= MOST_WAITING:
                self.turned_away += 1
                continue
            task = asyncio.create_task(self.visit(f"{run}-{n}"))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)
        return time.perf_counter() - began

    def result(self, took: float) -> dict[str, Any]:
        """What is printed: rates, quantiles in milliseconds, errors."""
        told: dict[str, Any] = {"seconds": round(took, 2), "errors": dict(self.errors)}
        told["turned_away"] = self.turned_away
        for kind, seconds in self.times.items():
            told[kind] = {"count": len(seconds), "per_second": round(len(seconds) / took, 1)}
            for name, q in QUANTILES.items():
                told[kind][name] = (
                    round(float(np.quantile(seconds, q)) * 1e3, 2) if seconds else None
                )
        return told


async def drive(options: argparse.Namespace) -> dict[str, Any]:
    """Make the space, run, retire the space."""
    async with (
        whim.AsyncClient(options.url, space=options.space, timeout=options.timeout) as client,
        whim.AsyncClient(options.url, timeout=READY) as admin,
    ):
        try:
            await admin.create(
                options.space, policy=options.policy, context={"size": options.features},
                rewards={"wait_seconds": 600},
            )  # fmt: skip
        except ServiceError as error:
            if error.status != 409:
                raise
            raise WhimError(
                f"--space must be a name that is free, got {options.space!r}: the load test makes "
                "its own space, so that it learns nothing into one of yours."
            ) from None
        try:
            test = LoadTest(client, options)
            # connections, and the first decision of a space, are not measured
            for n in range(5):
                await test.visit(f"warm-{time.time_ns():x}-{n}")
            test.times = {kind: [] for kind in test.times}
            return test.result(await test.run())
        finally:
            await admin.retire(options.space)


def missed(told: dict[str, Any], limit: float | None) -> list[str]:
    """What a run failed by, in sentences."""
    lines, p99 = [], told["decision"]["p99_ms"]
    if limit is not None and p99 is None:
        lines.append(f"p99 of decisions must be at most {limit:g} ms, and none was answered.")
    elif limit is not None and p99 > limit:
        lines.append(f"p99 of decisions must be at most {limit:g} ms, got {p99:g}.")
    if told["errors"]:
        each = ", ".join(f"{count:,} × {what}" for what, count in told["errors"].items())
        lines.append(f"all requests must be answered, got errors: {each}.")
    if told["turned_away"]:
        lines.append(
            f"at most {MOST_WAITING:,} readers must wait at a time; {told['turned_away']:,} more "
            "came and were not sent, so the service is slower than --rate."
        )
    return lines


def above_zero(kind: type[float], least: str = "more than 0") -> Callable[[str], float]:
    """A number of the command line that is more than 0."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = kind(0)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"must be {least}, got {text}")
        return value

    return read


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    number, whole = above_zero(float), above_zero(int, "a whole number above 0")
    parser.add_argument("url", help="http://HOST:PORT or https://HOST")
    parser.add_argument("--rate", type=number, default=100, help="readers per second (100)")
    parser.add_argument("--seconds", type=number, default=30, help="how long they come (30)")
    parser.add_argument("--features", type=whole, default=6, help="of a context (6)")
    parser.add_argument("--arms", type=whole, default=60, help="arms in all (60)")
    parser.add_argument("--candidates", type=whole, default=20, help="arms of each decision (20)")
    parser.add_argument("--policy", default="pslinucb-disjoint", help="of the space")
    parser.add_argument("--space", default="load-test", help="its name; it must be free")
    parser.add_argument("--timeout", type=number, default=5, help="seconds per attempt (5)")
    parser.add_argument("--p99-ms", type=number, help="fail if decisions' p99 is longer")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Print the result as JSON; 1 if something failed or was too slow, 2 if it could not run.

    What it was is said on stderr.
    """
    options = parsed(arguments)
    try:
        told = asyncio.run(drive(options))
    except WhimError as error:
        sys.stderr.write(f"loadtest: {error}\n")
        return 2
    except KeyboardInterrupt:  # the space is retired by then
        return 130
    sys.stdout.write(json.dumps(told, indent=1) + "\n")
    failed = missed(told, options.p99_ms)
    for line in failed:
        sys.stderr.write(f"loadtest: {line}\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
