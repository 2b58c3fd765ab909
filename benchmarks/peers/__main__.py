"""Whim and the other libraries side by side, and the bars: ``python -m benchmarks.peers``.

Sets up an environment for each peer (needs the network once), runs the parts, prints a table for
each and one of the bars, and keeps all in a JSON file, part by part, so that parts can be run
apart. The exit code is 1 if a bar was missed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import machine, progress
from benchmarks.peers import bars, parts
from benchmarks.peers.environments import PEERS, ROOT, Failed, install
from benchmarks.peers.fresh import Broken

__all__ = ["RESULTS", "main"]

RESULTS = ROOT / "benchmarks" / "peers.json"
_QUICK = ROOT / ".bench" / "quick.json"  # rough figures must not replace a whole run's


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few short rounds: to see it work")
    parser.add_argument("--only", default=",".join(parts.PARTS), metavar="PART,PART")
    parser.add_argument(
        "--works", default=",".join(parts.LIVE), metavar="WORK,WORK", help="of the part live"
    )
    parser.add_argument("--peers", default=",".join(PEERS), metavar="NAME,NAME")
    parser.add_argument("--json", type=Path, metavar="FILE", help="results are merged into this")
    given = parser.parse_args()
    chosen = [part for part in parts.PARTS if part in given.only.split(",")]
    names = [name for name in given.peers.split(",") if name]
    _known(parser, "part", given.only.split(","), parts.PARTS)
    _known(parser, "peer", names, tuple(PEERS))
    works = given.works.split(",")
    _known(parser, "work", works, parts.LIVE)
    path = given.json or (_QUICK if given.quick else RESULTS)
    try:
        return _run(chosen, parts.Setting(names, given.quick, works), path)
    except KeyboardInterrupt:
        progress(f"stopped; the parts that were finished are in {path.name}")
        return 130


def _known(parser: argparse.ArgumentParser, what: str, names: list[str], all_: Any) -> None:
    wrong = [name for name in names if name not in all_]
    if wrong:
        parser.error(f"no such {what}: {', '.join(wrong)} (there are: {', '.join(all_)})")


def _run(chosen: list[str], setting: parts.Setting, path: Path) -> int:
    about = machine()
    about.pop("load_before")  # of each part, below
    content = json.loads(path.read_text()) if path.exists() else {}
    content |= {"machine": about, "quick": setting.quick}
    if {"live", "batch", "growth", "starts", "logs"} & set(chosen):
        content["peers"] = content.get("peers", {}) | _installed(setting.peers)
    parts.warm(chosen, setting.works)
    made = content.setdefault("parts", {})
    for part in chosen:
        before = made.get(part, {}).get("found", {}) if part == "live" else {}
        made[part] = _part(part, setting)
        if before and "found" in made[part]:  # works that were not asked for stay
            made[part]["found"] = before | made[part]["found"]
        content["bars"] = bars.bars(made)
        _save(path, content)
        print(f"\n== {part}\n")
        print(made[part].get("broken") or parts.show(part, made[part]["found"]), flush=True)
    held = [bar for bar in content.get("bars", []) if bar["part"] in chosen]
    print(f"\n== bars\n\n{bars.text(held)}\n")
    print("; ".join(f"{name} {value}" for name, value in about.items()))
    print(f"load, of each part before and after: {_loads(made, chosen)}")
    print(f"Kept in {path.name}.")
    broken = [part for part in chosen if "broken" in made[part]]
    return 1 if broken or any(bar["met"] is False for bar in held) else 0


def _part(part: str, setting: parts.Setting) -> dict[str, Any]:
    """One part with when and how busy; one that breaks does not stop the others."""
    progress(f"== {part}")
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    about: dict[str, Any] = {"date": now, "quick": setting.quick, "load": [_load()]}
    start = time.perf_counter()
    try:
        about["found"] = parts.run(part, setting)
    except Broken as broken:
        about["broken"] = str(broken)
    about["seconds"] = round(time.perf_counter() - start, 1)
    about["load"].append(_load())
    return about


def _load() -> float:
    return round(os.getloadavg()[0], 2)


def _loads(made: dict[str, Any], chosen: list[str]) -> str:
    return ", ".join(f"{part} {made[part]['load'][0]}..{made[part]['load'][1]}" for part in chosen)


def _installed(names: list[str]) -> dict[str, Any]:
    """Every peer's version, or the reason why it is not there."""
    found: dict[str, Any] = {}
    for name in names:
        progress(f"installing: {name}")
        made = install(name)
        about = {"what": PEERS[name].what, "help": PEERS[name].help}
        if isinstance(made, Failed):
            progress(f"installing: {name} failed: {made.reason}")
            found[name] = about | {"failed": made.reason}
        else:
            found[name] = about | {"version": made.version, "size_mb": made.size_mb}
    return found


def _save(path: Path, content: dict[str, Any]) -> None:
    """Without this machine's folders, which reasons of failures may name."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    for folder in (str(ROOT), sys.base_prefix, str(Path.home())):
        if len(folder) > 4:
            text = text.replace(folder, ".")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".part")
    fresh.write_text(text + "\n")
    fresh.replace(path)


if __name__ == "__main__":
    sys.exit(main())
