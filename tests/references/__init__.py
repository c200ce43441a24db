"""Slow, obvious credit methods, written from their formulas over plain lists, and random worlds to run them on."""

from functools import partial

from references.graph_paths import g2po, graft, graphgpo
from references.graph_values import bepo, gagpo
from references.rollout_level import grpo, rloo
from references.statistics import centre, returns_to_go, z_score
from references.step_methods import dr_grpo, ecpo, gaca, hgpo, reinforce_pp, rtmc
from references.token_level import gear, quantile, rlsd, segment_anchors
from references.turn_level import gigpo
from references.turn_token_methods import crest, empg, high_entropy, mt_grpo
from references.value_methods import gae
from references.vine import vineppo
from references.world import Rollout, World, build, flat, members, random_rollout, trajectory, worlds

REFERENCES = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "reinforce_pp": reinforce_pp,
    "gae": gae,
    "gigpo": gigpo,
    "hgpo": hgpo,
    "gagpo": gagpo,
    "bepo": partial(bepo, gated=False),
    "gated_bepo": partial(bepo, gated=True),
    "gaca": gaca,
    "graft": graft,
    "graphgpo": graphgpo,
    "g2po": g2po,
    "rtmc": rtmc,
    "ecpo": ecpo,
    "vineppo": vineppo,
    "mt_grpo": mt_grpo,
    "empg": empg,
    "high_entropy": high_entropy,
    "rlsd": rlsd,
    "crest": crest,
    "gear": gear,
}
"""By method: a function from a world to one number per rollout, turn or token of every group, nested."""

__all__ = [
    "REFERENCES",
    "Rollout",
    "World",
    "build",
    "centre",
    "crest",
    "empg",
    "flat",
    "gear",
    "gigpo",
    "grpo",
    "high_entropy",
    "members",
    "mt_grpo",
    "quantile",
    "random_rollout",
    "returns_to_go",
    "rloo",
    "rlsd",
    "segment_anchors",
    "trajectory",
    "worlds",
    "z_score",
]
