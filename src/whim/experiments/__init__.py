"""The paper's experiments as data, with ids such as synthetic/disjoint."""

from whim.experiments.findings import Curve, Figure, Findings, Table

__all__ = ["Curve", "Figure", "Findings", "Table"]
