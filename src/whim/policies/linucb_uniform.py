"""``LinUCBUniform``: one coefficient vector for all arms (Chu et al. 2011)."""

from __future__ import annotations

from whim.policies.base.ridge import RidgePolicy


class LinUCBUniform(RidgePolicy):
    """LinUCB with one ridge model of the arms' features, shared by all arms.

    Parameters
    ----------
    n_item_features
        Length m of an arm's features.
    n_features
        Length d of a context; needed for ``payoff="cross"`` only.
    n_cross_features
        Length k of the rows that the caller will pass as ``cross`` in every call, for a caller
        with no item features.
    payoff
        ``"item"``: the reward is yᵀθ, as in the paper. ``"cross"``: it is kron(y, x)ᵀβ = xᵀWy.
    alpha
        α >= 0: how many widths of optimism.
    ridge
        λ > 0; the paper's 1.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = LinUCBUniform(n_item_features=2, alpha=0.0)
    >>> policy.add_arms(["jazz", "rock", "blues"], features=[[1, 0], [0, 1], [0.9, 0.1]])
    ['jazz', 'rock', 'blues']
    >>> policy.update("blues", None, 1.0)
    >>> [d.arm for d in policy.rank()]
    ['jazz', 'blues', 'rock']
    """

    name = "linucb-uniform"
    _payoffs = ("item", "cross")

    def __init__(
        self,
        *,
        n_item_features: int | None = None,
        n_features: int | None = None,
        n_cross_features: int | None = None,
        payoff: str = "item",
        alpha: float = 1.0,
        ridge: float = 1.0,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(
            n_item_features=n_item_features,
            n_features=n_features,
            n_cross_features=n_cross_features,
            payoff=payoff,
            alpha=alpha,
            ridge=ridge,
            seed=seed,
            ties=ties,
        )
