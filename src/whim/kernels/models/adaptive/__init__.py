"""The adaptive mixture: a Bayesian mixture over when today's coefficients began (docs/math.md)."""

from __future__ import annotations

from whim.kernels.loops import Kernels
from whim.kernels.models.adaptive.learn import finish, learn
from whim.kernels.models.adaptive.score import decide, score

ADAPTIVE = Kernels("adaptive", score, learn, decide=decide, finish=finish)
