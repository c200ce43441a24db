"""Policies: prompts, backends and the embedded model."""

from agentbench_credit.policy.base import Policy, Request, Response, Sampling

__all__ = ["Policy", "Request", "Response", "Sampling"]
