"""``LinUCBHybrid``: Li et al. 2010, Algorithm 2."""

from __future__ import annotations

from whim.policies.base.hybrid import HybridPolicy


class LinUCBHybrid(HybridPolicy):
    """LinUCB with arm coefficients and coefficients that all arms share.

    Parameters
    ----------
    n_features, n_item_features
        Lengths d of a context and m of an arm's features; the cross features are
        z = kron(y, x), k = d·m of them.
    n_cross_features
        Instead of ``n_item_features``: the length k of rows that the caller passes as ``cross``.
    alpha
        α >= 0: how many widths of optimism.
    ridge
        λ > 0 for both kinds of coefficients; the paper's 1.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = LinUCBHybrid(n_features=2, n_item_features=1, alpha=0.1)
    >>> policy.add_arms(["a", "b"], features=[[1.0], [0.8]])
    ['a', 'b']
    >>> policy.update("a", [1.0, 0.5], 1.0)
    >>> float(policy.rank([1.0, 0.5])[1].mean.__round__(3))  # what "a" taught about "b"
    0.286
    """

    name = "linucb-hybrid"
