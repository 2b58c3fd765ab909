"""``whim warm``: compile policies ahead of time, for an image or before a measurement."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whim.cli.options import Jobs

if TYPE_CHECKING:
    from whim.policies import Policy

# for parameters without a default; what is compiled does not depend on them
_VALUES: dict[str, Any] = {
    "n_features": 2, "window": 10, "threshold": 1.0, "gamma": 0.5, "b": 0.1, "c": 0.1,
    "groups": "given",
}  # fmt: skip
# a policy whose other settings run other code
_VARIANTS: dict[str, list[dict[str, Any]]] = {
    "pslinucb-disjoint": [{}, {"threshold": 1.0}],
    "pslinucb-hybrid": [{}, {"threshold": 1.0}],
}


def warm(
    policy: Annotated[
        list[str] | None,
        typer.Argument(metavar="[POLICY]...", help="NAME[:param=value,...]. Default: all."),
    ] = None,
    jobs: Jobs = -1,
) -> None:
    """Compile the calls and loops of policies now, so that no later call waits for it.

    What is compiled is kept in the folder that 'whim doctor' shows.
    """
    from whim.cli.progress import bar, processes
    from whim.evaluate.warm import warm as compile_all

    made = examples(policy or None)
    began = time.monotonic()
    with bar("compiling", len(made)) as progress:
        compile_all(made, jobs=processes(jobs, float("inf")), progress=progress)
    seconds = time.monotonic() - began
    what = "policy is" if len(made) == 1 else "policies are"
    typer.echo(f"{len(made)} {what} compiled ({seconds:.0f} s)", err=True)


def examples(specs: list[str] | None = None) -> list[Policy]:
    """A small policy for each spec, or for each registered policy and its variants."""
    from whim.cli.specs import Source, complete, parse_policy
    from whim.policies import POLICIES
    from whim.policies import policy as make

    if specs is None:
        # OracleRestart runs the code of the policy inside it
        names = [name for name in POLICIES if name != "oracle-restart"]
        wanted = [(name, v) for name in names for v in _VARIANTS.get(name, [{}])]
    else:
        wanted = [(spec.name, spec.params) for spec in map(parse_policy, specs)]
    source = Source("this", 2, 2, knows_truth=False)
    policies: list[Policy] = []
    for name, params in wanted:
        takes = inspect.signature(POLICIES[name]).parameters if name in POLICIES else {}
        required = [key for key, p in takes.items() if p.default is p.empty]
        params = {key: value for key, value in _VALUES.items() if key in required} | params
        if params.get("groups") != "given":  # else there is nothing to complete
            params = complete(name, params, source)
        policies.append(make(name, **params))
    return policies
