"""Group statistics, the one implementation behind every method, with the policies for its edge cases.

A group of one, and a group whose values are all equal, give exactly 0: neither a small standard deviation nor the
rounding of a sum may become a signal. Items that are left out enter no statistic and get 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from agentbench_credit.batch import Bools, CreditBatch, Floats, Ints, sums_by
from agentbench_credit.credit.params import Baseline, Ddof

ROUNDING = 1e-12
"""Values of one group are equal if they differ by no more than this share of what they were summed from."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Items divided into groups, each item with its weight in the group's statistics; every operation is linear."""

    index: Ints
    """Group of each item [n], integers below `n_groups`."""
    weights: Floats
    """Weight of each item [n]: 1, or how many turns it stands for; 0 leaves it out."""
    n_groups: int
    """Number of groups G, those without a member included."""

    @cached_property
    def sizes(self) -> Ints:
        """Number of items of each group that are not left out [G]."""
        return sums_by(self.index, self._members, self.n_groups).astype(np.int64)

    @cached_property
    def _members(self) -> Bools:
        """Return which items are not left out [n]."""
        return self.weights > 0

    def sums(self, values: Floats) -> Floats:
        """Return the weighted sum of each group's values [G]."""
        return sums_by(self.index, self.weights * values, self.n_groups)

    @cached_property
    def total_weights(self) -> Floats:
        """Sum of each group's weights [G]."""
        return sums_by(self.index, self.weights, self.n_groups)

    def _lowest(self, values: Floats) -> Floats:
        """Return the lowest value of each group [G], infinity for a group without items."""
        lowest = np.full(self.n_groups, np.inf)
        np.minimum.at(lowest, self.index, np.where(self._members, values, np.inf))
        return lowest

    def _highest(self, values: Floats) -> Floats:
        """Return the highest value of each group [G], −infinity for a group without items."""
        highest = np.full(self.n_groups, -np.inf)
        np.maximum.at(highest, self.index, np.where(self._members, values, -np.inf))
        return highest

    def all_equal(self, values: Floats, scale: Floats | None = None) -> Bools:
        """Tell which groups hold no two different values [G]; true for groups of one or none.

        Args:
            values: One value per item [n].
            scale: Sum of the absolute terms that each value was summed from, or more [n]: what its rounding error is
                measured against; the absolute values if None.

        Returns:
            A flag per group [G].
        """
        spread = self._highest(values) - self._lowest(values)
        return spread <= ROUNDING * self._highest(np.abs(values) if scale is None else scale)

    def centred(self, values: Floats, scale: Floats | None = None) -> Floats:
        """Return value − weighted mean of its group [n], exactly 0 in groups that are `all_equal`.

        Args:
            values: One value per item [n].
            scale: As in `all_equal`.

        Returns:
            The deviations [n], 0 for items left out.
        """
        live = self._members & ~self.all_equal(values, scale)[self.index]
        # Subtracting a member first keeps a common offset of the group out of the sums.
        shifted = np.where(live, values - self._lowest(values)[self.index], 0.0)
        means = self.sums(shifted) / np.maximum(self.total_weights, 1.0)
        return np.where(live, shifted - means[self.index], 0.0)

    def z_scores(self, values: Floats, scale: Floats | None = None, *, ddof: int = 1, eps: float = 1e-6) -> Floats:
        """Return (value − mean) / (std + eps) within each group [n].

        Args:
            values: One value per item [n].
            scale: As in `all_equal`.
            ddof: 1 for the sample's standard deviation, 0 for the population's.
            eps: Added to the standard deviation.

        Returns:
            The scores [n], exactly 0 where `centred` is.
        """
        deviations = self.centred(values, scale)
        # A group that is not all equal weighs at least 2, so the bound below only spares the others a division by 0.
        variances = self.sums(deviations**2) / np.maximum(self.total_weights - ddof, 1.0)
        divisors = np.sqrt(variances) + eps
        divisors[variances == 0.0] = 1.0
        return deviations / divisors[self.index]

    def at_mean(self, values: Floats, scale: Floats | None = None) -> Bools:
        """Tell which items equal the weighted mean of their group [n] but for rounding; true for items left out.

        Args:
            values: One value per item [n].
            scale: As in `all_equal`.

        Returns:
            A flag per item [n].
        """
        highest = self._highest(np.abs(values) if scale is None else scale)
        return np.abs(self.centred(values, scale)) <= ROUNDING * np.maximum(highest, 0.0)[self.index]

    def means(self, values: Floats) -> Floats:
        """Return the weighted mean of each group's values [G], 0 for a group without items."""
        return self.sums(values) / np.where(self.total_weights > 0, self.total_weights, 1.0)

    def minus_mean_of_others(self, values: Floats, scale: Floats | None = None) -> Floats:
        """Return value − weighted mean of the group's other items [n].

        Args:
            values: One value per item [n].
            scale: As in `all_equal`.

        Returns:
            The differences [n], exactly 0 where `centred` is.
        """
        totals = self.total_weights[self.index]
        others = np.maximum(totals - self.weights, 1.0)  # 0 only in a group of one, where the deviation is 0
        return self.centred(values, scale) * (totals / others)


def trajectory_groups(batch: CreditBatch, baseline_over: Baseline = "trajectory") -> Groups:
    """Return the batch's rollouts by group.

    Args:
        batch: The rollouts.
        baseline_over: ``"trajectory"`` gives each rollout weight 1, ``"step"`` as many as it has turns.

    Returns:
        Groups of trajectories, excluded ones left out.
    """
    weights = batch.turn_counts if baseline_over == "step" else np.ones(batch.n_trajectories)
    return Groups(batch.group, np.where(batch.included, weights, 0.0), batch.n_groups)


def state_groups(batch: CreditBatch) -> Groups:
    """Return the batch's turns by state, repeat visits of one rollout counted each.

    Args:
        batch: The rollouts.

    Returns:
        Groups of turns, those of excluded rollouts left out.
    """
    return Groups(batch.state, batch.included[batch.trajectory_of_turn].astype(np.float64), batch.n_states)


def joint_codes(first: Ints, second: Ints) -> Ints:
    """Return one integer per pair, equal where both of its integers are, from 0 without a gap.

    Args:
        first: Integers from 0 [n].
        second: Integers from 0 [n].

    Returns:
        The codes [n], in the order of `first`, then `second`.
    """
    pairs = first * (second.max(initial=0) + 1) + second
    codes: Ints = np.unique(pairs, return_inverse=True)[1]
    return codes


def action_groups(batch: CreditBatch) -> Groups:
    """Return the batch's turns by state and action, repeat visits of one rollout counted each.

    Args:
        batch: The rollouts.

    Returns:
        Groups of turns, those of excluded rollouts left out.
    """
    index = joint_codes(batch.state, batch.action)
    return Groups(index, batch.included[batch.trajectory_of_turn].astype(np.float64), int(index.max(initial=-1)) + 1)


def visit_diagnostics(states: Groups) -> dict[str, float]:
    """Count the visited states and those that are visited once.

    Args:
        states: Turns by state, see `state_groups`.

    Returns:
        ``states``, ``repeated_states``, ``singleton_share`` (of the states).
    """
    visited = int((states.sizes > 0).sum())
    singletons = int((states.sizes == 1).sum())
    return {
        "states": visited,
        "repeated_states": visited - singletons,
        "singleton_share": singletons / visited if visited else 0.0,
    }


def return_z_scores(batch: CreditBatch, *, ddof: Ddof, eps: float, baseline_over: Baseline) -> Floats:
    """Return A_i = (R_i − mean R) / (std R + eps) of each rollout [N], the episode advantage of many methods.

    Args:
        batch: The rollouts.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviation.
        baseline_over: What has weight 1 in the statistics.

    Returns:
        The advantages [N].
    """
    groups = trajectory_groups(batch, baseline_over)
    return groups.z_scores(batch.returns, batch.absolute_returns, ddof=ddof, eps=eps)
