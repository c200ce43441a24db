"""Two small worlds whose values and policy gradients are known exactly, by going through every outcome."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit import Credit

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StopWorld:
    """At each of H steps the policy stops, and is paid for the step, or goes on; after the last step it is paid too.

    An outcome is the step that the rollout stops at, H for none. The policy stops at step t with probability
    σ(logits[t]), and its gradient is with respect to the logits.
    """

    logits: tuple[float, ...]
    pay: tuple[float, ...]
    """Reward of each outcome, paid on the rollout's last turn."""

    @property
    def horizon(self) -> int:
        return len(self.logits)

    @cached_property
    def stop(self) -> Floats:
        """Probability of stopping at each step [H], once there."""
        return 1.0 / (1.0 + np.exp(-np.array(self.logits)))

    @cached_property
    def reach(self) -> Floats:
        """Probability of coming to each step [H + 1]."""
        return np.concatenate([[1.0], np.cumprod(1.0 - self.stop)])

    @cached_property
    def probability(self) -> Floats:
        """Probability of each outcome [H + 1]."""
        return self.reach * np.append(self.stop, 1.0)

    @cached_property
    def values(self) -> list[float]:
        """Expected reward from each step [H], with what was paid before, which is nothing."""
        return [float(self.probability[t:] @ self.pay[t:] / self.reach[t]) for t in range(self.horizon)]

    def turns(self, outcome: int) -> int:
        return min(outcome + 1, self.horizon)

    def scores(self, outcome: int) -> list[float]:
        """Derivative of log π of each turn's action with respect to the logit of its step."""
        return [float((t == outcome) - self.stop[t]) for t in range(self.turns(outcome))]

    def gradient(self) -> Floats:
        """Exact gradient of the expected reward [H]."""
        total = np.zeros(self.horizon)
        for outcome, (probability, reward) in enumerate(zip(self.probability, self.pay, strict=True)):
            scores = self.scores(outcome)
            total[: len(scores)] += probability * reward * np.array(scores)
        return total

    def every_group(self, size: int) -> list[tuple[int, ...]]:
        return list(itertools.product(range(self.horizon + 1), repeat=size))

    def batch(self, groups: Sequence[Sequence[int]], values: Sequence[float] | None = None) -> CreditBatch:
        """Groups of outcomes; both signals that are values have those of the steps, the exact ones if None."""
        outcomes = [outcome for group in groups for outcome in group]
        known = self.values if values is None else values
        steps = [t for outcome in outcomes for t in range(self.turns(outcome))]
        signal = [known[t] for t in steps]
        return CreditBatch.from_rewards(
            [[[*[0.0] * (self.turns(o) - 1), self.pay[o]] for o in group] for group in groups],
            states=[[list(range(self.turns(o))) for o in group] for group in groups],
            actions=[[["stop" if t == o else "go" for t in range(self.turns(o))] for o in group] for group in groups],
            signals={"values": signal, "rollout_values": signal, "final_values": [0.0] * len(outcomes)},
        )

    def estimates(self, batch: CreditBatch, credit: Credit, groups: Sequence[Sequence[int]]) -> Floats:
        """Each group's estimate of the gradient: mean over rollouts of Σ_t A_t ∇ log π [G, H]."""
        outcomes = [outcome for group in groups for outcome in group]
        scores = np.concatenate([self.scores(outcome) for outcome in outcomes])
        step = np.arange(batch.n_turns) - batch.turn_offsets[batch.trajectory_of_turn]
        total = np.zeros((len(groups), self.horizon))
        np.add.at(total, (batch.group[batch.trajectory_of_turn], step), credit.per_token(batch) * scores)
        return total / len(groups[0])

    def expectation(self, batch: CreditBatch, credit: Credit, groups: Sequence[Sequence[int]]) -> Floats:
        """Expected estimate over all groups of one size [H]; exact."""
        weights = [math.prod(self.probability[outcome] for outcome in group) for group in groups]
        return np.array(weights) @ self.estimates(batch, credit, groups)


@dataclass(frozen=True)
class DecisiveChain:
    """Every rollout takes `length` steps of two actions; only the action at step `decisive` matters: it wins or loses.

    The state tells the step, and after the decisive one whether it was right. The batch is one group: every sequence of
    actions once, so that the empirical mean of a state is its expectation.
    """

    length: int = 5
    decisive: int = 2

    @cached_property
    def actions(self) -> list[tuple[int, ...]]:
        return list(itertools.product((0, 1), repeat=self.length))

    def batch(self) -> CreditBatch:
        rollouts = self.actions
        states = [[(t, t > self.decisive and a[self.decisive]) for t in range(self.length)] for a in rollouts]
        values = [0.5 if t <= self.decisive else float(won) for rollout in states for t, won in rollout]
        return CreditBatch.from_rewards(
            [[[*[0.0] * (self.length - 1), float(a[self.decisive])] for a in rollouts]],
            states=[states],
            actions=[[list(a) for a in rollouts]],
            signals={"values": values, "rollout_values": values},
        )

    def table(self, batch: CreditBatch, credit: Credit) -> Floats:
        """Credit of each turn [rollouts, length]."""
        return credit.per_token(batch).reshape(len(self.actions), self.length)
