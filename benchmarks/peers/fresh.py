"""Call one function of a module in a fresh process of ours, on one thread, and read its answer."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.measure import environment
from benchmarks.peers.environments import ROOT

__all__ = ["Broken", "fresh"]

_CODE = """
import dataclasses, json, {module} as module
def plain(value):
    return dataclasses.asdict(value) | {{"met": value.met}}
print(json.dumps(module.{call}, default=plain))
"""


class Broken(Exception):  # noqa: N818
    """The process failed; what it said is on stderr."""


def fresh(module: str, call: str) -> Any:
    """What ``module.call`` returns; progress goes to stderr as ever."""
    code = _CODE.format(module=module, call=call)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment(1),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Broken(f"{module}.{call} ended with code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])
