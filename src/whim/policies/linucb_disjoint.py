"""``LinUCBDisjoint``: Li et al. 2010, Algorithm 1."""

from __future__ import annotations

from whim.policies.base.ridge import RidgePolicy


class LinUCBDisjoint(RidgePolicy):
    """LinUCB with one ridge model per arm; learns as if nothing ever changed.

    Parameters
    ----------
    n_features
        Length d of a context.
    alpha
        α >= 0: how many widths of optimism.
    ridge
        λ > 0; the paper's 1.
    scoring
        ``"float32"``: decisions read a copy of the models in single precision, for very many
        arms: half the memory to go through, and half as much more to keep. ``scores_many``
        multiplies in single precision from 128 contexts on; its result is float64 as ever.
        Scores then differ by about 1e-6 of what they are made of, at most 1e-5; what is learnt
        and saved does not.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = LinUCBDisjoint(n_features=2, alpha=0.5)
    >>> policy.add_arms(["a", "b"])
    ['a', 'b']
    >>> policy.update("a", [1.0, 0.0], 1.0)
    >>> decision = policy.select([1.0, 0.0])
    >>> decision.arm, decision.mean, round(decision.width, 4)
    ('a', 0.5, 0.3536)
    """

    name = "linucb-disjoint"

    def __init__(
        self,
        *,
        n_features: int,
        alpha: float = 1.0,
        ridge: float = 1.0,
        scoring: str = "float64",
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(
            n_features=n_features,
            alpha=alpha,
            ridge=ridge,
            scoring=scoring,
            seed=seed,
            ties=ties,
        )
