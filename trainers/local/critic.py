"""A critic for PPO: what return to expect at the last prompt token of each turn."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from agentbench_credit.batch import Bools, Floats
from agentbench_credit.credit.groups import ROUNDING
from agentbench_credit.errors import TrainingError
from agentbench_credit.packing import packed_batches
from agentbench_credit.samples import Sample
from agentbench_credit.signals import response_hidden
from agentbench_credit.trajectory import Ids, Trajectory

if TYPE_CHECKING:
    from transformers import PreTrainedModel

METRICS = ("critic_loss", "critic_grad_norm", "critic_explained_variance")
"""What `Critic.update` reports."""


class Critic:
    """A copy of the policy's transformer with a linear head that starts at 0, trained by AdamW.

    The model stays in evaluation mode, so that there is no dropout.

    Args:
        model: The policy, which passes `check_model`; it is copied as it is now and not touched later.
        lr: Learning rate.
        batch_tokens: Most tokens of a forward pass and about as many of a micro-batch, unless one sequence has more.
        max_grad_norm: Longest gradient; a longer one is scaled down.
        epochs: Steps of one update, each over all of its turns.
    """

    def __init__(
        self, model: PreTrainedModel, *, lr: float, batch_tokens: int, max_grad_norm: float, epochs: int = 1
    ) -> None:
        body: Any = deepcopy(model.base_model)  # typed as any module
        self.body: PreTrainedModel = body.requires_grad_(True).eval()
        width = int(self.body.config.get_text_config().hidden_size)
        self.head = torch.nn.Linear(width, 1, device=model.device)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self.batch_tokens, self.max_grad_norm, self.epochs = batch_tokens, max_grad_norm, epochs
        self._parameters = [*self.body.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.AdamW(self._parameters, lr=lr)

    @torch.no_grad()
    def values(self, trajectories: Sequence[Trajectory]) -> Floats:
        """Return the value of each turn's prompt, without gradient.

        Args:
            trajectories: Rollouts with T turns in all.

        Returns:
            Values [T] on the scale of the returns; turns without a response have one too.

        Raises:
            TrainingError: A turn has no prompt, or a value is not finite.
        """
        values: Floats = self._predict(_prompt_samples(trajectories)).double().cpu().numpy()
        if not np.isfinite(values).all():
            raise TrainingError("a value is not finite", where="the critic", mend=_MEND)
        return values

    def update(self, trajectories: Sequence[Trajectory], targets: Floats, included: Bools) -> dict[str, float]:
        """Fit the targets: one step of AdamW on the mean squared error over the turns, for each epoch.

        Args:
            trajectories: The N rollouts of one update, with T turns in all.
            targets: What the critic should have predicted at each turn [T].
            included: Which rollouts it learns from [N]; without any of their turns there is no step.

        Returns:
            ``critic_loss`` and ``critic_grad_norm`` (before clipping), means over the steps, and
            ``critic_explained_variance`` 1 − Var(target − value) / Var(target) before the first step: 1 is perfect, 0
            no better than a constant; NaN if the targets are all equal.

        Raises:
            TrainingError: A turn has no prompt, or the loss or its gradient is not finite. The weights are then those
                of the last whole step.
        """
        samples = [sample for sample in _prompt_samples(trajectories) if included[sample.trajectory]]
        if not samples:
            return dict.fromkeys(METRICS, 0.0) | {"critic_explained_variance": float("nan")}
        turns = np.sort(np.concatenate([sample.tokens for sample in samples]))
        values = np.zeros(len(targets))
        steps: list[tuple[float, float]] = []
        for _ in range(self.epochs):
            before, loss, norm = self._step(samples, targets, len(turns))
            values = values if steps else before
            steps.append((loss, norm))
        loss_mean, norm_mean = np.mean(steps, axis=0).tolist()
        explained = _explained_variance(values[turns], targets[turns])
        return dict(zip(METRICS, (loss_mean, norm_mean, explained), strict=True))

    def _step(self, samples: Sequence[Sample], targets: Floats, n_turns: int) -> tuple[Floats, float, float]:
        """Make one step; returns the values before it by turn, the loss and the gradient norm."""
        self.optimizer.zero_grad()
        values, loss = np.zeros(len(targets)), 0.0
        # The batches of the layout are micro-batches in which a beginning that prompts share is computed once.
        owner = {int(turn): index for index, sample in enumerate(samples) for turn in sample.tokens}
        for batch in packed_batches(samples, self.batch_tokens):
            predicted = self._predict([samples[i] for i in sorted({owner[turn] for turn in batch.tokens.tolist()})])
            turns = np.sort(batch.tokens)
            wanted = torch.tensor(targets[turns], dtype=torch.float32, device=predicted.device)
            error = (predicted - wanted).square().sum() / n_turns
            error.backward()
            values[turns] = predicted.detach().cpu().numpy()
            loss += float(error.detach())
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, self.max_grad_norm))
        if not np.isfinite([loss, norm]).all():
            raise TrainingError(f"the loss is {loss} and the gradient norm {norm}", where="the critic", mend=_MEND)
        self.optimizer.step()
        return values, loss, norm

    def _predict(self, samples: Sequence[Sample]) -> torch.Tensor:
        """Return the values of the samples' turns [T], in the order of the turns, in float32."""
        if not samples:
            return torch.zeros(0)
        hidden = response_hidden(self.body, samples, batch_tokens=self.batch_tokens)
        values: torch.Tensor = self.head(hidden.float()).squeeze(-1)
        return values

    def state_dict(self) -> dict[str, Any]:
        """Return weights and optimiser state, everything that training goes on from."""
        return {
            "body": self.body.state_dict(),
            "head": self.head.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Args:
            state: The state of a critic of the same architecture.
        """
        self.body.load_state_dict(state["body"])
        self.head.load_state_dict(state["head"])
        self.optimizer.load_state_dict(state["optimizer"])


_MEND = "lower --critic-lr; the last checkpoint is intact"


def _prompt_samples(trajectories: Sequence[Trajectory]) -> list[Sample]:
    """Return sequences of prompts in which each turn has one position, the one after its prompt.

    A turn's prompt that begins with the prompt of the turn before shares its sequence. The axis of tokens is that of
    turns, and responses matter only as part of later prompts.

    Raises:
        TrainingError: A turn has no prompt.
    """
    samples: list[Sample] = []
    first = 0
    for index, trajectory in enumerate(trajectories):
        prompts = [turn.prompt_ids for turn in trajectory.turns]
        lengths = np.array([len(prompt) for prompt in prompts], dtype=np.int64)
        if not lengths.all():
            where = f"rollout {index} of task {trajectory.task_id}, turn {int(np.argmin(lengths))}"
            raise TrainingError("a turn without a prompt", where=where, mend="the critic reads its last token")
        starts = [t for t in range(len(prompts)) if t == 0 or not _extends(prompts[t], prompts[t - 1])]
        for start, end in pairwise([*starts, len(prompts)]):
            samples.append(Sample(prompts[end - 1], lengths[start:end], np.arange(first + start, first + end), index))
        first += len(prompts)
    return samples


def _extends(prompt: Ids, earlier: Ids) -> bool:
    """Tell whether a prompt begins with an earlier one."""
    return np.array_equal(prompt[: len(earlier)], earlier)


def _explained_variance(values: Floats, targets: Floats) -> float:
    """Return 1 − Var(target − value) / Var(target), NaN if the targets are equal up to rounding."""
    if np.ptp(targets) <= ROUNDING * np.abs(targets).max():
        return float("nan")
    return 1.0 - float((targets - values).var() / targets.var())
