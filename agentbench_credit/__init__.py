"""agentbench_credit: which credit-assignment method to trust for long-horizon language-agent training."""

__version__ = "0.1.0"
