"""``python -m benchmarks.service``: the service under load, as ratios in one run.

Load beside the no-op stack, memory over a million decisions, recovery, decisions while a
worker works, and the news world. Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.service import news, running
from whim.serve import wire
from whim.serve.state.engine import Engine
from whim.worlds import NewsWorld

OUT = Path(__file__).parent.parent / "service.json"
SPACE = {"name": "load", "context": {"size": 6}}  # rewards are waited for as by default
PATH = "/v1/spaces/load/decisions"


def say(text: str) -> None:
    """Progress, on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def drive(port: int, seconds: float, seed: int, connections: int = 32) -> dict[str, Any]:
    """The load generator, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.service.load", str(port), PATH,
         "--seconds", str(seconds), "--seed", str(seed), "--connections", str(connections)],
        stdout=subprocess.PIPE, check=True, timeout=seconds + 120,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    if found["wrong"]:
        raise RuntimeError(f"{found['wrong']} requests were not answered with 200")
    return found


def quartiles(values: list[float]) -> list[float]:
    """Median, and the quartiles around it."""
    low, mid, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return [mid, low, high]


def load(folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Decisions per second and their 99th percentile, in turns with the no-op stacks."""
    found: dict[str, list[dict[str, Any]]] = {"whim": [], "noop": [], "bare": []}
    with (
        running.noop() as noop,
        running.noop("bare") as bare,
        running.service(folder / "load") as whim,
    ):
        running.ask(whim[0], "POST", "/v1/spaces", SPACE)
        sides = {"noop": noop, "bare": bare, "whim": whim}
        for port, _ in sides.values():
            drive(port, 2, 0)
        for turn in range(1, rounds + 1):
            for name, (port, process) in sides.items():
                before = running.cpu(process)
                one = drive(port, seconds, turn)
                one["cpu_us"] = 1e6 * (running.cpu(process) - before) / one["count"]
                found[name].append(one)
            rates = ", ".join(f"{name} {found[name][-1]['rate']:.0f}" for name in sides)
            say(f"  round {turn}, requests per second: {rates}")
    result: dict[str, Any] = {"rounds": rounds, "seconds": seconds}
    for name, ones in found.items():
        result[name] = {
            "rate": quartiles([o["rate"] for o in ones]),
            "p50_ms": quartiles([1e3 * o["p50"] for o in ones]),
            "p99_ms": quartiles([1e3 * o["p99"] for o in ones]),
            "cpu_us": quartiles([o["cpu_us"] for o in ones]),
        }
    for name in ("noop", "bare"):
        pairs = list(zip(found["whim"], found[name], strict=True))
        result[f"rate_of_{name}"] = quartiles([w["rate"] / o["rate"] for w, o in pairs])
        result[f"p99_of_{name}"] = quartiles([w["p99"] / o["p99"] for w, o in pairs])
    return result


def memory(folder: Path, decisions: int) -> dict[str, Any]:
    """Resident megabytes of the service, its log writer and worker; decisions come and expire."""
    found = []
    with running.service(folder / "memory", "snapshot_seconds = 10\n") as (port, process):
        running.ask(port, "POST", "/v1/spaces", {**SPACE, "rewards": {"wait_seconds": 20}})
        done, seed = 0, 1000
        while done < decisions:
            done += int(drive(port, 10, seed)["count"])
            seed += 1
            found.append([done, running.resident(process)])
            say(f"  {done} decisions: {found[-1][1]:.0f} MB")
    settled = [mb for count, mb in found if count >= decisions / 3]
    return {"decisions": done, "megabytes": found, "growth": settled[-1] / settled[0]}


def recovery(folder: Path, decisions: int) -> dict[str, Any]:
    """Rows per second of a start without snapshot: as many rewards as decisions."""
    data = folder / "recovery"
    rng = np.random.default_rng(0)
    engine = Engine(data)
    engine.create(
        "load",
        wire.SpaceConfig(
            context=wire.Features(size=6), rewards=wire.RewardRules(wait_seconds=86_400)
        ),
    )
    contexts = np.round(rng.normal(size=(decisions, 6)), 4).tolist()
    pools = [
        [f"article-{i}" for i in rng.choice(60, 20, replace=False).tolist()] for _ in range(512)
    ]
    for i, x in enumerate(contexts):
        body = wire.DecisionBody(context=x, candidates=pools[i % 512], decision_id=f"d{i}")
        engine.decide("load", body, b"")
        engine.reward("load", wire.RewardBody(decision_id=f"d{i}", value=float(i % 3 == 0)))
        if i % 1000 == 0:
            engine.store.flush()
    state = engine.space("load").state.digest()
    engine.close()
    rates = []
    for _ in range(5):
        began = time.perf_counter()
        engine = Engine(data)
        rates.append(engine.recovered / (time.perf_counter() - began))
        if engine.space("load").state.digest() != state:
            raise RuntimeError("the state after a recovery must be the state before")
        rows = engine.recovered
        engine.close()
    return {"rows": rows, "rows_a_second": quartiles(rates)}


def undisturbed(folder: Path, seconds: float) -> dict[str, Any]:
    """The 99th percentile while a rebuild, snapshots and the dashboard are at work, and without."""
    data = folder / "memory"
    with running.service(data, "snapshot_seconds = 1000\n") as (port, _):
        drive(port, 2, 5000, 4)
        quiet, busy = [], []
        for turn in range(5):
            quiet.append(drive(port, seconds, 5100 + turn, 4))
            config = {"context": SPACE["context"], "rewards": {"wait_seconds": 20}}
            running.ask(port, "PUT", "/v1/spaces/load", {**config, "params": {"alpha": 0.5 + turn}})
            busy.append(drive(port, seconds, 5200 + turn, 4))
            while running.ask(port, "GET", "/v1/spaces/load")["rebuilding"]:
                running.ask(port, "GET", "/spaces/load")
                time.sleep(0.1)
    return {
        "quiet_p99_ms": quartiles([1e3 * q["p99"] for q in quiet]),
        "rebuilding_p99_ms": quartiles([1e3 * b["p99"] for b in busy]),
        "quiet_worst_ms": quartiles([1e3 * q["worst"] for q in quiet]),
        "rebuilding_worst_ms": quartiles([1e3 * b["worst"] for b in busy]),
        "rate_ratio": quartiles([b["rate"] / q["rate"] for b, q in zip(busy, quiet, strict=True)]),
    }


def bars(parts: dict[str, Any]) -> list[tuple[str, float, str, float, bool]]:
    """The bars: name, value, sign, target, and whether it is met."""
    found: list[tuple[str, float, str, float, bool]] = []

    def bar(name: str, value: float, sign: str, bound: float) -> None:
        fine = value >= bound if sign == ">=" else value <= bound
        found.append((name, value, sign, bound, fine))

    if "load" in parts:
        got = parts["load"]
        bar("decisions per second, of the no-op handler's", got["rate_of_noop"][0], ">=", 0.5)
        bar("p99 at 32 connections, times the no-op's", got["p99_of_noop"][0], "<=", 3)
    if "memory" in parts:
        bar("memory at the end, times that after a third", parts["memory"]["growth"], "<=", 1.1)
    if "recovery" in parts:
        bar("rows per second of a recovery", parts["recovery"]["rows_a_second"][0], ">=", 100_000)
    if "news" in parts:
        got = parts["news"]
        least = min(got["same_choices"].values()) / got["decisions"]
        bar("news world: choices as without a service", least, ">=", 1.0)
        alone = got["simulated_run_0"]["PSLinUCB"] - got["simulated_run_0"]["LinUCB"]
        more = round(got["served_gain"] - alone, 9)
        bar("news world: PSLinUCB's gain, beyond that of the same run simulated", more, ">=", 0)
    return found


def main() -> int:
    """Run the parts that were named; keep the others from the last run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="load,memory,recovery,undisturbed,news")
    parser.add_argument("--quick", action="store_true", help="small, and nothing is written")
    asked = parser.parse_args()
    quick = asked.quick
    work = {
        "load": lambda f: load(f, 3 if quick else 9, 1 if quick else 5),
        "memory": lambda f: memory(f, 20_000 if quick else 1_000_000),
        "recovery": lambda f: recovery(f, 5_000 if quick else 250_000),
        "undisturbed": lambda f: undisturbed(f, 1 if quick else 4),
        "news": lambda f: news.measure(
            f, 2_000 if quick else 100_000, 10, NewsWorld(n_arms=30, pool_size=10)
        ),
    }
    parts = json.loads(OUT.read_text())["parts"] if OUT.exists() and not quick else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.only.split(","):
            say(f"{name} ...")
            before = os.getloadavg()[0]
            parts[name] = work[name](Path(folder))
            parts[name]["when"] = f"{datetime.now(UTC):%Y-%m-%d}, load {before:.1f} before"
            say(json.dumps(parts[name]))
            if not quick:
                machine = {"python": platform.python_version(), "cores": os.cpu_count()}
                OUT.write_text(json.dumps({"machine": machine, "parts": parts}, indent=1) + "\n")
    missed = 0
    for name, value, sign, bound, fine in bars(parts):
        print(f"{name:<52} {value:>12.4g}  {sign} {bound:<10.4g} {'met' if fine else 'MISSED'}")
        missed += not fine
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
