"""Whim: recommendations for people who change their minds.

Contextual bandits that find each change of interest, restart just what changed, and say so.
"""

from whim import errors, policies
from whim.policies import *  # noqa: F403
from whim.types import ChangeEvent, Decision

__version__ = "0.1.0"

__all__ = ["ChangeEvent", "Decision", "__version__", "errors", *policies.__all__]
