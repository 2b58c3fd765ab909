"""What policies are made of: the contract, arms and arrays, saved files, and shared machinery."""

from whim.policies.base.compiled import CompiledPolicy
from whim.policies.base.policy import Policy

__all__ = ["CompiledPolicy", "Policy"]
