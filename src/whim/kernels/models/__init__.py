"""Payoff models: each file a ``State``, how it scores and how it learns."""
