"""The peers: what to install of each, and which adapter drives it.

The versions were the newest in November 2026. What an old library needs besides, to import at
all, is pinned with it and said in its ``help``.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PEERS", "Peer"]

# for every peer whose own bounds allow it
_NEW = ("numpy==2.4.6", "scipy==1.17.1", "scikit-learn==1.9.1", "pandas==3.1.1")
_OLD = ("numpy==1.26.4", "scipy==1.11.4", "scikit-learn==1.3.2", "pandas==2.1.4")


@dataclass(frozen=True, slots=True)
class Peer:
    """One library: what to install, what to import, and which of our adapters drives it."""

    name: str
    requires: tuple[str, ...]
    imports: str
    adapter: str
    what: str
    pins: tuple[str, ...] = _NEW  # of dependencies, if it wants them at all
    needs: tuple[str, ...] = ()  # to install before, where its own list cannot be met
    options: tuple[str, ...] = ()  # of pip
    help: str = ""  # what it was given so that it works, shown with its figures


_TABLE = (
    Peer(
        "vowpalwabbit",
        ("vowpalwabbit==9.11.9",),
        "vowpalwabbit",
        "vw",
        "C++ online learner with contextual bandits; no confidence bounds",
    ),
    Peer(
        "vowpalwabbit-binding",
        ("vowpalwabbit==9.11.9",),
        "vowpalwabbit",
        "vw_binding",
        "the same past its Python class, by private calls: no row of its own in the comparison",
    ),
    Peer(
        "vowpal-wabbit-next",
        ("vowpal-wabbit-next==0.7.0",),
        "vowpal_wabbit_next",
        "vw_next",
        "newer, experimental bindings of the same engine; dormant since 2023",
        _OLD,
        help="NumPy 1.26",
    ),
    Peer(
        "mabwiser",
        ("mabwiser==2.7.4",),
        "mabwiser.mab",
        "mabwiser_",
        "bandits in the style of scikit-learn",
    ),
    Peer(
        "contextualbandits",
        ("contextualbandits==0.3.30",),
        "contextualbandits.online",
        "contextualbandits_",
        "many contextual policies, partly in Cython",
    ),
    Peer(
        "river",
        ("river==0.26.1",),
        "river.bandit",
        "river_",
        "online learning with drift detectors and a LinUCB",
    ),
    Peer(
        "obp",
        ("obp==0.5.7",),
        "obp.policy",
        "obp_",
        "off-policy evaluation with online policies",
        needs=(
            *("numpy", "pandas", "scipy", "scikit-learn", "matplotlib", "seaborn", "tqdm"),
            *("PyYAML", "mypy-extensions", "torch==2.13.0"),
        ),
        options=("--no-deps", "--ignore-requires-python"),
        help="its bounds ignored: Python below 3.11 and torch 1.12",
    ),
    Peer("pymab", ("pymab==2.0.1",), "pymab", "pymab_", "bandits with a core in Rust"),
    Peer("coba", ("coba==8.1.0",), "coba", "coba_", "experiments with contextual bandits"),
    Peer(
        "bayesianbandits",
        ("bayesianbandits==1.5.0",),
        "bayesianbandits",
        "bayesianbandits_",
        "Bayesian arms with forgetting",
    ),
    Peer(
        "pybandits",
        ("pybandits==8.4.1",),
        "pybandits",
        "pybandits_",
        "Thompson sampling with change points in the rewards of an arm",
        (),
    ),
    Peer(
        "striatum",
        ("striatum==0.2.5",),
        "striatum.bandit",
        "striatum_",
        "LinUCB and others; last release 2016",
        _OLD,
        help="NumPy 1.26 and SciPy 1.11",
    ),
    Peer(
        "paretobandit",
        ("paretobandit==0.1.1",),
        "pareto_bandit",
        "paretobandit_",
        "router of language models: LinUCB with forgetting",
    ),
    Peer(
        "SMPyBandits",
        ("SMPyBandits==0.9.7",),
        "SMPyBandits.Policies",
        "smpybandits_",
        "many policies without contexts; last release 2019",
        _OLD,
        help="NumPy 1.26 and SciPy 1.11",
    ),
)
PEERS = {peer.name: peer for peer in _TABLE}
