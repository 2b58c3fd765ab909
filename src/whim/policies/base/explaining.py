"""``Explaining``: why an arm scores as it does, decisions of many contexts, changes drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whim.features.vector import named
from whim.policies.base.preview import Previewing
from whim.types import F64, ArmId, Decision

_ALMOST_1 = 1.0 - 2.0**-53  # log-odds of a mean that was rounded to 0 or 1 stay finite


class Explanation(NamedTuple):
    """What one arm's score is made of.

    ``adds`` is what each feature adds to ``total``: its value times its coefficient, the arm's own
    and, for hybrid and shared payoffs, what all arms share. ``rest`` is the rest of the total:
    cross features of the caller's, and what uncertainty about the arm does to its mean (one not
    played lately, new coefficients); all of it for a policy that ignores contexts.

    ``unit`` is what these are in. For ``"reward"`` the total is ``mean``. While ``AdaptiveLinUCB``
    takes rewards for clicks it is ``"log-odds"``: ``mean`` is then the probability of a click (of
    the higher of two rewards), p, and the total ln(p / (1 - p)). ``score`` is ``mean`` + ``width``
    unless the policy samples.
    """

    arm: ArmId
    score: float
    mean: float
    width: float
    adds: F64
    rest: float
    unit: str = "reward"

    @property
    def total(self) -> float:
        """What ``adds`` and ``rest`` sum up to: the mean, or its log-odds."""
        return _log_odds(self.mean) if self.unit == "log-odds" else self.mean

    def __str__(self) -> str:
        """A line per feature, the largest first, then the rest and the width."""
        names = getattr(self.adds, "names", ()) or [f"x[{i}]" for i in range(len(self.adds))]
        order = np.argsort(-np.abs(self.adds), kind="stable").tolist()
        lines = [(names[i], float(self.adds[i])) for i in order]
        lines += [("rest", self.rest)] if abs(self.rest) > 1e-12 else []
        if self.unit == "log-odds":
            lines.append(("log-odds", self.total))
        lines += [("mean", self.mean), ("width", self.width), ("score", self.score)]
        wide = max(len(name) for name, _ in lines)
        body = "\n".join(f"  {name:<{wide}}  {value:+.4g}" for name, value in lines)
        return f"{self.arm!r}\n{body}"


def _log_odds(p: float) -> float:
    p = min(max(p, 1.0 - _ALMOST_1), _ALMOST_1)
    return math.log(p) - math.log1p(-p)


class Explaining(Previewing):
    """What helps people to see what a policy does; none of its calls changes what was learnt."""

    @property
    def unit(self) -> str:
        """What coefficients and explanations are in: ``"reward"``, or ``"log-odds"`` of a click.

        The latter is only of ``AdaptiveLinUCB``, while rewards have had at most two values.
        """
        return "log-odds" if getattr(self, "_clicks", False) else "reward"

    def explain(
        self, x: npt.ArrayLike | None, arm: ArmId, *, cross: npt.ArrayLike | None = None
    ) -> Explanation:
        """What each feature adds to an arm's mean in a context, and the width.

        See ``Explanation``; ``unit`` says what the policy's numbers are in.

        Parameters
        ----------
        x
            The context, a vector or a row by name.
        arm
            A live arm.
        cross
            Its row of cross features, if the policy takes those of the caller.

        Examples
        --------
        >>> import whim
        >>> policy = whim.LinUCBDisjoint(n_features=2, alpha=0.5).with_features(["age", "one"])
        >>> arms = policy.add_arms(["toys"])
        >>> policy.update("toys", [1.0, 1.0], 3.0)
        >>> print(policy.explain({"age": 2.0, "one": 1.0}, "toys"))
        'toys'
          age    +2
          one    +1
          mean   +3
          width  +0.7071
          score  +3.707
        """
        self._table.slot(arm)
        context: F64 = np.array(self._context(x))
        rows: Any = None if cross is None else [cross]
        [(_, score, mean, width)] = self.rank(context, [arm], cross=rows)
        slopes = self._slopes(arm, len(context))
        adds: F64 = np.zeros(0) if slopes is None else slopes * context
        total = _log_odds(mean) if self.unit == "log-odds" else mean
        rest = total - float(adds.sum())
        if self._encoding is not None and len(adds) == self._encoding.size:
            adds = named(adds, self._encoding.names)
        return Explanation(arm, score, mean, width, adds, rest, self.unit)

    def _slopes(self, arm: ArmId, d: int) -> F64 | None:
        """How the mean of an arm grows with each feature of x; None: not with x alone."""
        y = self._features[self._table.slot(arm)]
        own, shared = getattr(self, "coefficients", None), None
        if not d or own is None:
            return None
        if hasattr(self, "shared_coefficients"):  # hybrid: z = kron(y, x)
            shared = self.shared_coefficients() if self._m else None
            theta = np.asarray(own(arm))
        else:
            one_per_arm = getattr(self, "_own", True)
            theta = np.asarray(own(arm) if one_per_arm else own())
            if not one_per_arm:
                if theta.ndim != 1 or not self._m or len(theta) != self._m * d:
                    return None
                theta, shared = np.zeros(d), theta
        return theta if shared is None else theta + y @ shared.reshape(self._m, d)

    def select_many(
        self, X: Any, arms: Iterable[ArmId] | None = None, *, cross: Any = None
    ) -> list[Decision]:
        """Choose an arm for each of many contexts: the same as a loop of ``select``.

        Parameters
        ----------
        X
            A matrix, or a table of rows by name, as ``Features.many`` takes it. A policy that
            ignores contexts takes their number.
        arms
            The candidates of all of them; every live arm by default.
        cross
            For each context what ``select`` takes.

        Examples
        --------
        >>> import whim
        >>> policy = whim.LinUCBDisjoint(n_features=1, alpha=0.0)
        >>> arms = policy.add_arms(["a", "b"])
        >>> events = policy.update_many(["a", "b"], [[1.0], [-1.0]], [1.0, 1.0])
        >>> [decision.arm for decision in policy.select_many([[2.0], [-2.0]])]
        ['a', 'b']
        """
        candidates = None if arms is None else self._id_list(arms, "arms")
        if self._shape is None and isinstance(X, int) and not isinstance(X, bool):
            contexts: Any = [None] * X
        else:
            contexts = self._contexts(X, None)
        choose: Any = self.select  # type: ignore[attr-defined]
        if cross is None:
            return [choose(x, candidates) for x in contexts]
        return [choose(x, candidates, cross=z) for x, z in zip(contexts, cross, strict=True)]

    def plot_changes(self) -> Any:
        """A figure of ``history``: when which arm changed, and which coefficients moved.

        It needs matplotlib (the extra "plot"). Nothing is shown: save it, or return it in a
        notebook.
        """
        from whim.policies.base.change_plot import draw

        return draw(self.history, self._step)
