"""One class a policy; all keep the contract of ``Policy``."""

from whim.policies.base import Policy
from whim.policies.linucb_disjoint import LinUCBDisjoint
from whim.policies.linucb_hybrid import LinUCBHybrid
from whim.policies.linucb_uniform import LinUCBUniform
from whim.policies.modified_pslinucb import ModifiedPSLinUCB
from whim.policies.pslinucb_disjoint import PSLinUCBDisjoint
from whim.policies.pslinucb_hybrid import PSLinUCBHybrid
from whim.policies.registry import POLICIES, from_bytes, load, policy, register

__all__ = [
    "POLICIES",
    "LinUCBDisjoint",
    "LinUCBHybrid",
    "LinUCBUniform",
    "ModifiedPSLinUCB",
    "PSLinUCBDisjoint",
    "PSLinUCBHybrid",
    "Policy",
    "from_bytes",
    "load",
    "policy",
    "register",
]
