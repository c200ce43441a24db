"""One update of the policy: epochs × mini-batches of gradients accumulated over micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from agentbench_credit.batch import CreditBatch, Floats, Ints
from agentbench_credit.credit.method import Credit, Ratio
from agentbench_credit.errors import ConfigError, TrainingError
from agentbench_credit.policy.base import Sampling
from agentbench_credit.samples import Sample, build_samples
from agentbench_credit.signals import response_hidden, token_logp
from agentbench_credit.trainer import Objective, Optimisation
from agentbench_credit.trainers.local.distil import Lesson, mean_weights, teacher_of
from agentbench_credit.trainers.local.objective import policy_loss, ratio_segments, token_weights
from agentbench_credit.trajectory import Trajectory

if TYPE_CHECKING:
    from transformers import PreTrainedModel

METRICS = ("loss", "distillation_loss", "grad_norm", "clip_fraction", "ratio_mean", "approx_kl", "reference_kl")
"""What `Optimiser.update` reports beside the learning rate."""


@dataclass(frozen=True, eq=False)
class _Data:
    """The rollouts of one update on the token axis."""

    batch: CreditBatch
    samples: list[Sample]
    targets: Ints
    advantages: Floats
    ratio: Ratio
    reference_logp: Floats | None = None
    lesson: Lesson | None = None

    def units(self, weights: Floats, lesson_weights: Floats) -> list[list[Sample]]:
        """Return what must stay together in a micro-batch, leaving out what has no gradient.

        A turn is in one sample; only a trajectory with a ratio of its own spans several.
        """
        units = [[sample] for sample in self.samples]
        if self.ratio == "sequence":
            units = [list(owned) for _, owned in groupby(self.samples, key=lambda sample: sample.trajectory)]
        moves = weights > 0 if self.reference_logp is not None else (weights > 0) & (self.advantages != 0)
        moves |= lesson_weights > 0
        return [unit for unit in units if any(moves[sample.tokens].any() for sample in unit)]


class Optimiser:
    """AdamW on the clipped objective; the model stays in evaluation mode, so that there is no dropout.

    A credit method with a distillation adds its loss. Its teacher starts as a copy of the model before the first step,
    and either stays so or follows the model after each step.

    Args:
        model: The model to train.
        reference: The model of the divergence term, None without one.
        objective: What is optimised.
        optimisation: How.
        sampling: How the rollouts are sampled; ``max_new_tokens`` is the constant of the ``"constant"`` aggregation.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        reference: PreTrainedModel | None,
        objective: Objective,
        optimisation: Optimisation,
        sampling: Sampling,
    ) -> None:
        self.model, self.reference, self.sampling = model.eval(), reference, sampling
        self.objective, self.optimisation = objective, optimisation
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=optimisation.lr)
        self.teacher: PreTrainedModel | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return all that goes on beside the model: the state of AdamW and the teacher's weights, None without one."""
        teacher = None if self.teacher is None else self.teacher.state_dict()
        return {"adamw": self.optimizer.state_dict(), "teacher": teacher}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state, with the model's weights of the same moment.

        Args:
            state: See `state_dict`.
        """
        self.optimizer.load_state_dict(state["adamw"])
        self.teacher = None
        if state["teacher"] is not None:
            self.teacher = teacher_of(self.model)
            self.teacher.load_state_dict(state["teacher"])

    def update(
        self, number: int, trajectories: Sequence[Trajectory], batch: CreditBatch, credit: Credit
    ) -> dict[str, float]:
        """Train on the rollouts of one update.

        A mini-batch without any signal (every advantage 0, no divergence term, nothing to distil) makes no step.

        Args:
            number: Number of the update, from 1.
            trajectories: The rollouts.
            batch: Made from them.
            credit: Their advantages, and a distillation if the method has one.

        Returns:
            Means over all steps: ``loss`` (all of it), ``distillation_loss`` (its part), ``grad_norm`` (before
            clipping); over all tokens: ``clip_fraction``, ``ratio_mean``, ``approx_kl``, ``reference_kl``; and the
            learning rate ``lr``.

        Raises:
            ConfigError: Fewer groups than mini-batches.
            TrainingError: Loss, gradient or a log-probability is not finite, or the model does not give the tokens the
                probabilities that they were sampled with, or a distillation begins after the first step. The weights
                are then those of the last whole step.
        """
        lr = self.optimisation.lr * min(1.0, number / max(self.optimisation.warmup_updates, 1))
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        data = self._data(trajectories, batch, credit)
        steps: list[Floats] = []
        for _ in range(self.optimisation.epochs):
            for members in self._minibatches(batch):
                step = self._step(data, members, check_ratio=not steps)
                steps += [] if step is None else [step]
        if not steps:
            return dict.fromkeys(METRICS, 0.0) | {"ratio_mean": 1.0, "lr": lr}
        per_step, n_tokens, token_sums = np.split(np.array(steps), [3, 4], axis=1)
        means = [*per_step.mean(0).tolist(), *(token_sums.sum(0) / n_tokens.sum()).tolist()]
        return dict(zip(METRICS, means, strict=True)) | {"lr": lr}

    def _data(self, trajectories: Sequence[Trajectory], batch: CreditBatch, credit: Credit) -> _Data:
        ids = [turn.response_ids for trajectory in trajectories for turn in trajectory.turns]
        targets = np.concatenate([np.zeros(0, np.int64), *ids])
        samples = [s for s in build_samples(trajectories) if batch.included[s.trajectory]]
        reference_logp = None
        if self.reference is not None:
            reference_logp = np.zeros(batch.n_tokens)
            tokens = _tokens(samples)
            with torch.no_grad():
                reference_logp[tokens] = self._logp(self.reference, samples, targets[tokens])[1].cpu().numpy()
        ratio = self.objective.ratio or credit.ratio
        lesson = None
        if credit.distillation is not None:
            lesson = Lesson.of(credit.distillation, self._seated_teacher(), trajectories)
        return _Data(batch, samples, targets, credit.per_token(batch), ratio, reference_logp, lesson)

    def _seated_teacher(self) -> PreTrainedModel:
        """Return the teacher, which is made where there is none yet."""
        if self.teacher is None and self.optimizer.state:
            what = "the distillation begins after the first step, but its teacher starts from the initial weights"
            raise TrainingError(what, mend="distil from the first update on, in a folder of its own")
        if self.teacher is None:
            self.teacher = teacher_of(self.model)
        return self.teacher

    def _logp(
        self, model: PreTrainedModel, samples: Sequence[Sample], targets: Ints
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the hidden states before the samples' tokens and the tokens' log-probabilities."""
        hidden = response_hidden(model, samples, batch_tokens=self.optimisation.batch_tokens)
        return hidden, token_logp(model, hidden, torch.tensor(targets, device=hidden.device), self.sampling.temperature)

    def _minibatches(self, batch: CreditBatch) -> Iterator[Ints]:
        """Yield the trajectories of each mini-batch: whole groups, in their order."""
        parts = self.optimisation.minibatches
        if parts > max(batch.n_groups, 1):
            mend = "use at most one mini-batch per task"
            raise ConfigError(f"{parts} mini-batches for {batch.n_groups} groups", mend=mend)
        for groups in np.array_split(np.arange(batch.n_groups), parts):
            yield np.flatnonzero(np.isin(batch.group, groups))

    def _micro_batches(self, units: Sequence[list[Sample]]) -> Iterator[list[Sample]]:
        """Yield the samples of units, up to the token budget."""
        micro: list[Sample] = []
        size = 0
        for unit in units:
            length = sum(len(sample.ids) for sample in unit)
            if micro and size + length > self.optimisation.batch_tokens:
                yield micro
                micro, size = [], 0
            micro, size = [*micro, *unit], size + length
        if micro:
            yield micro

    def _step(self, data: _Data, members: Ints, *, check_ratio: bool) -> Floats | None:
        """Make one optimiser step; returns losses, gradient norm, number of tokens, token sums, None without signal."""
        weights = token_weights(data.batch, members, self.objective.loss_aggregation, self.sampling.max_new_tokens)
        lesson_weights = np.zeros_like(weights)
        if data.lesson is not None:
            lesson_weights = mean_weights(data.batch, members, data.lesson.distillation.weights)
        self.optimizer.zero_grad()
        sums, n_tokens = np.zeros(6), 0
        for samples in self._micro_batches(data.units(weights, lesson_weights)):
            tokens = _tokens(samples)
            sums += self._backward(data, samples, tokens, weights, lesson_weights, check_ratio=check_ratio)
            n_tokens += len(tokens)
        if not n_tokens:
            return None
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.optimisation.max_grad_norm))
        if not np.isfinite([sums[0], norm]).all():
            what = f"the loss is {sums[0]} and the gradient norm {norm}"
            raise TrainingError(what, mend="lower the learning rate; the last checkpoint is intact")
        self.optimizer.step()
        if data.lesson is not None:
            data.lesson.after_step(self.model)
        return np.array([*sums[:2], norm, n_tokens, *sums[2:]])

    def _backward(
        self,
        data: _Data,
        samples: Sequence[Sample],
        tokens: Ints,
        weights: Floats,
        lesson_weights: Floats,
        *,
        check_ratio: bool,
    ) -> Floats:
        """Add one micro-batch's gradient; returns its loss, the distillation's part of it, and sums."""
        hidden, logp = self._logp(self.model, samples, data.targets[tokens])
        self._check_logp(data.batch, tokens, logp.detach().cpu().numpy(), check_ratio=check_ratio)
        reference = None if data.reference_logp is None else data.reference_logp[tokens]

        def on_device(values: Floats) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.float32, device=logp.device)

        behaviour = on_device(data.batch.logp[tokens])
        parts = policy_loss(
            logp,
            behaviour,
            on_device(data.advantages[tokens]),
            on_device(weights[tokens]),
            torch.tensor(ratio_segments(data.batch, tokens, data.ratio), device=logp.device),
            None if reference is None else on_device(reference),
            clip_low=self.objective.clip_low,
            clip_high=self.objective.clip_high,
            dual_clip=self.objective.dual_clip,
            kl_coefficient=self.objective.kl_coefficient,
        )
        distilled = torch.zeros_like(parts.loss)
        if data.lesson is not None:
            distilled = data.lesson.loss(
                self.model,
                hidden,
                logp - behaviour,
                tokens,
                lesson_weights[tokens],
                trajectories={sample.trajectory for sample in samples},
                temperature=self.sampling.temperature,
                batch_tokens=self.optimisation.batch_tokens,
            )
        loss = parts.loss + distilled
        loss.backward()
        return np.array([float(part.detach()) for part in (loss, distilled, *parts[1:])])

    def _check_logp(self, batch: CreditBatch, tokens: Ints, logp: Floats, *, check_ratio: bool) -> None:
        if not np.isfinite(logp).all():
            raise TrainingError(
                "log-probabilities are not finite", mend="lower the learning rate; the last checkpoint is intact"
            )
        difference = np.abs(logp - batch.logp[tokens])
        if check_ratio and difference.max() > self.optimisation.ratio_tolerance:
            worst = int(np.argmax(difference))
            token = int(tokens[worst])
            what = f"sampled with log-probability {batch.logp[token]:.6f}, but the model gives {logp[worst]:.6f}"
            mend = "sample with the same weights and temperature, in float32, or allow more with --ratio-tolerance"
            raise TrainingError(what, where=batch.place("token", token), mend=mend)


def _tokens(samples: Sequence[Sample]) -> Ints:
    """Return the tokens of samples in the order of their hidden states."""
    return np.sort(np.concatenate([np.zeros(0, np.int64), *(sample.tokens for sample in samples)]))
