"""Credit methods: pure NumPy functions from a `CreditBatch` to advantages, one file each."""

from agentbench_credit.credit.method import Credit, CreditMethod, credit_method
from agentbench_credit.registry import Registry

_BUILTIN = (
    *("grpo", "dr_grpo", "rloo", "reinforce_pp", "gae"),
    *("gigpo", "hgpo", "gagpo", "bepo", "gated_bepo", "gaca", "graft", "graphgpo", "g2po", "rtmc", "ecpo", "vineppo"),
    *("mt_grpo", "empg", "high_entropy", "rlsd", "crest", "gear"),
    *("opsd", "sdpo"),
)

METHODS: Registry[CreditMethod] = Registry(
    "credit method",
    "agentbench_credit.credit",
    base=CreditMethod,
    builtin=lambda: {name: f"agentbench_credit.credit.{name}:{name}" for name in _BUILTIN},
)

__all__ = ["METHODS", "Credit", "CreditMethod", "credit_method"]
