"""Run every benchmark and print one table: ``python -m benchmarks [--json FILE]``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.measure import THREADS, Row, machine, progress, run_part, table

__all__ = ["main"]


def main() -> int:
    """The exit code: 1 if a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="also write the rows and the machine here")
    options = parser.parse_args()
    cores = os.cpu_count() or 1
    about = machine()
    rows: list[Row] = run_part("speed", "live")
    rows += run_part("speed", "batch")
    if cores > 1:
        rows += run_part("speed", "batch", threads=cores)
    rows += run_part("memory")
    rows += run_part("replay", "log")
    rows += run_part("replay", "experiment")
    rows += run_part("conversion")
    rows += run_part("startup")
    rows += run_part("groups")
    about["load_after"] = [round(v, 2) for v in os.getloadavg()]

    print(table(rows))
    print()
    print(f"{', '.join(THREADS)}: 1 on both sides unless a line says otherwise.")
    print("; ".join(f"{name} {value}" for name, value in about.items()))
    if options.json:
        content = {"machine": about, "rows": [asdict(r) | {"met": r.met} for r in rows]}
        Path(options.json).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    missed = [row.what for row in rows if row.met is False]
    if missed:
        progress(f"missed: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
