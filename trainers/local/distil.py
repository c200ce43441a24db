"""Distillation: pulling the student's distributions towards those of a teacher whose prompts show more."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from agentbench_credit.batch import CreditBatch, Floats, Ints
from agentbench_credit.credit.method import Distillation
from agentbench_credit.divergences import jsd, over_vocabulary, top_k_with_tail
from agentbench_credit.samples import Sample, build_samples
from agentbench_credit.signals import HEAD_ELEMENTS, response_hidden
from agentbench_credit.trajectory import Trajectory

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def teacher_of(student: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a student that no gradient reaches."""
    return deepcopy(student).requires_grad_(False)


@torch.no_grad()
def follow(teacher: PreTrainedModel, student: PreTrainedModel, decay: float) -> None:
    """Move every weight of a teacher to (1 − decay) · teacher + decay · student, in place.

    Args:
        teacher: See `teacher_of`.
        student: The model that it was copied from.
        decay: 0 leaves the teacher, 1 makes it the student.
    """
    for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
        old.lerp_(new, decay)


def mean_weights(batch: CreditBatch, members: Ints, weights: Floats) -> Floats:
    """Return weights that make a sum over tokens the weighted mean over one mini-batch.

    Args:
        batch: The rollouts.
        members: Trajectories of the mini-batch.
        weights: Weight of each token in the mean [K].

    Returns:
        Weights [K] that sum to 1; 0 outside the mini-batch and in excluded trajectories, everywhere if nothing counts.
    """
    counted = np.zeros(batch.n_trajectories, dtype=bool)
    counted[members] = True
    chosen = np.where(batch.over_tokens(counted & batch.included, "trajectory"), weights, 0.0)
    return chosen / (chosen.sum() or 1.0)


@dataclass(frozen=True, eq=False)
class Lesson:
    """What the teacher makes of an update's rollouts, and what the student takes from it."""

    distillation: Distillation
    """The loss."""
    teacher: PreTrainedModel
    """See `teacher_of`."""
    samples: dict[int, list[Sample]]
    """The sequences with the teacher's prompts, by trajectory."""

    @classmethod
    def of(cls, distillation: Distillation, teacher: PreTrainedModel, trajectories: Sequence[Trajectory]) -> Lesson:
        """Make the teacher's sequences of an update's rollouts."""
        samples: dict[int, list[Sample]] = {}
        for sample in build_samples(trajectories, teacher=True):
            samples.setdefault(sample.trajectory, []).append(sample)
        return cls(distillation, teacher, samples)

    def loss(
        self,
        student: PreTrainedModel,
        hidden: torch.Tensor,
        log_ratio: torch.Tensor,
        tokens: Ints,
        weights: Floats,
        *,
        trajectories: Collection[int],
        temperature: float,
        batch_tokens: int,
    ) -> torch.Tensor:
        """Return Σ_j w_j · min(ratio_j, ratio_clip) · min(JSD(p_j, q_j), token_clip) over a micro-batch's tokens.

        Args:
            student: The model that gives p.
            hidden: Its hidden states [R, H] before the tokens, with gradient.
            log_ratio: log π − log π_behaviour of the tokens [R]; no gradient flows through it.
            tokens: The tokens [R], ascending.
            weights: See `mean_weights` [R]; the teacher does not read tokens of weight 0.
            trajectories: The trajectories that the tokens belong to.
            temperature: Divides the logits of both.
            batch_tokens: Most tokens of one of the teacher's forward passes.

        Returns:
            A scalar with gradient, 0 without a token that counts.
        """
        counted = np.flatnonzero(weights)
        if not len(counted):
            return hidden.new_zeros((), dtype=torch.float32)
        rows = torch.tensor(counted, device=hidden.device)
        with torch.no_grad():
            samples = self._about(tokens[counted], trajectories)
            teacher_hidden = response_hidden(self.teacher, samples, batch_tokens=batch_tokens)
        hidden, settings = hidden.index_select(0, rows), self.distillation
        losses = _divergences(student, self.teacher, hidden, teacher_hidden, temperature, settings.top_k)
        if settings.token_clip is not None:
            losses = losses.clamp(max=settings.token_clip)
        if settings.ratio_clip is not None:
            losses = losses * log_ratio.detach().index_select(0, rows).exp().clamp(max=settings.ratio_clip)
        return (torch.tensor(weights[counted], dtype=losses.dtype, device=losses.device) * losses).sum()

    def _about(self, tokens: Ints, trajectories: Collection[int]) -> list[Sample]:
        """Return the teacher's sequences of some tokens and no other.

        The teacher's conversations may be cut in other places than the student's, so that a sequence can hold tokens
        that are not asked for.
        """
        parts = []
        for sample in (sample for trajectory in trajectories for sample in self.samples.get(trajectory, ())):
            asked = np.isin(sample.tokens, tokens)
            if asked.any():
                parts.append(replace(sample, positions=sample.positions[asked], tokens=sample.tokens[asked]))
        return parts

    def after_step(self, student: PreTrainedModel) -> None:
        """Let the teacher follow the student, if it does."""
        if self.distillation.teacher_decay is not None:
            follow(self.teacher, student, self.distillation.teacher_decay)


def _divergences(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    student_hidden: torch.Tensor,
    teacher_hidden: torch.Tensor,
    temperature: float,
    top_k: int | None,
) -> torch.Tensor:
    """Return JSD(p_j, q_j) of each row [R] in nats, float32."""

    def measure(p_logp: torch.Tensor, q_logp: torch.Tensor) -> torch.Tensor:
        return jsd(*((p_logp, q_logp) if top_k is None else top_k_with_tail(p_logp, q_logp, top_k)))

    sides = [(student.get_output_embeddings(), student_hidden), (teacher.get_output_embeddings(), teacher_hidden)]
    return over_vocabulary(measure, sides, temperature=temperature, head_elements=HEAD_ELEMENTS)
