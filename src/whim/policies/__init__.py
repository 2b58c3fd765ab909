"""One class per policy; all keep the contract of ``Policy``. What they share is in ``base``."""

from whim.policies.adaptive_linucb import AdaptiveLinUCB
from whim.policies.base import Policy
from whim.policies.cusumucb import CUSUMUCB
from whim.policies.delayed import Delayed
from whim.policies.denband import DenBand
from whim.policies.dlinucb import DLinUCB
from whim.policies.ducb import DUCB
from whim.policies.dynamic_linucb import DynamicLinUCB
from whim.policies.lints import LinTS
from whim.policies.linucb_disjoint import LinUCBDisjoint
from whim.policies.linucb_hybrid import LinUCBHybrid
from whim.policies.linucb_uniform import LinUCBUniform
from whim.policies.linucb_watched import LinUCBWatched
from whim.policies.modified_pslinucb import ModifiedPSLinUCB
from whim.policies.mucb import MUCB
from whim.policies.oracle_restart import OracleRestart
from whim.policies.pslinucb_disjoint import PSLinUCBDisjoint
from whim.policies.pslinucb_groups import PSLinUCBGroups
from whim.policies.pslinucb_hybrid import PSLinUCBHybrid
from whim.policies.random_policy import Random
from whim.policies.registry import POLICIES, from_bytes, load, policy, register
from whim.policies.swlinucb import SWLinUCB
from whim.policies.swucb import SWUCB
from whim.policies.ucb import UCB

__all__ = [
    "CUSUMUCB",
    "DUCB",
    "MUCB",
    "POLICIES",
    "SWUCB",
    "UCB",
    "AdaptiveLinUCB",
    "DLinUCB",
    "Delayed",
    "DenBand",
    "DynamicLinUCB",
    "LinTS",
    "LinUCBDisjoint",
    "LinUCBHybrid",
    "LinUCBUniform",
    "LinUCBWatched",
    "ModifiedPSLinUCB",
    "OracleRestart",
    "PSLinUCBDisjoint",
    "PSLinUCBGroups",
    "PSLinUCBHybrid",
    "Policy",
    "Random",
    "SWLinUCB",
    "from_bytes",
    "load",
    "policy",
    "register",
]

for _cls in (
    CUSUMUCB, DUCB, MUCB, SWUCB, UCB, AdaptiveLinUCB, DLinUCB, DenBand, DynamicLinUCB, LinTS,
    LinUCBDisjoint, LinUCBHybrid, LinUCBUniform, LinUCBWatched, ModifiedPSLinUCB, OracleRestart,
    PSLinUCBDisjoint, PSLinUCBGroups, PSLinUCBHybrid, Random, SWLinUCB,
):  # fmt: skip
    register(_cls)
