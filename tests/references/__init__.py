"""Slow, obvious credit methods, written from their formulas over plain lists, and random worlds to run them on."""

from references.rollout_level import grpo, rloo
from references.statistics import centre, returns_to_go, z_score
from references.token_level import gear, quantile, rlsd, segment_anchors
from references.turn_level import gigpo
from references.world import Rollout, World, build, flat, members, trajectory, worlds

__all__ = [
    "Rollout",
    "World",
    "build",
    "centre",
    "flat",
    "gear",
    "gigpo",
    "grpo",
    "members",
    "quantile",
    "returns_to_go",
    "rloo",
    "rlsd",
    "segment_anchors",
    "trajectory",
    "worlds",
    "z_score",
]
