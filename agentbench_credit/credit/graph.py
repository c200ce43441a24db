"""The empirical state graph of each group, and the exact values of its mean-backup equation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from agentbench_credit.batch import Bools, CreditBatch, Floats, Ints, Truncation, sums_by
from agentbench_credit.credit.groups import Groups, state_groups, visit_diagnostics
from agentbench_credit.errors import CreditInputError

Sinks = Literal[1, 2]
"""What rollouts end in: one sink, or one for successes and one for failures."""


@dataclass(frozen=True, eq=False)
class StateGraph:
    """The disjoint union of all groups' graphs: a node per state, an edge per turn, repeats and self-loops kept.

    Build it with `state_graph`. Nodes are numbered as the batch's states, in which no two groups share a number. The
    numbers from `n_nodes` on are the sinks; all groups share them, since nothing leaves a sink.
    """

    batch: CreditBatch
    """The rollouts."""
    source: Ints
    """Node that each turn leaves [T]."""
    target: Ints
    """Node or sink that each turn leads to [T]."""
    kept: Bools
    """Whether a turn belongs to the graph [T]: those of excluded rollouts do not."""
    n_nodes: int
    """Number of nodes, those that only excluded rollouts visit included."""

    @cached_property
    def visits(self) -> Ints:
        """Number of kept turns that leave each node [n_nodes]."""
        return np.bincount(self.source[self.kept], minlength=self.n_nodes)

    @cached_property
    def ends(self) -> Bools:
        """Whether a turn leads to a sink [T]."""
        return self.target >= self.n_nodes

    @cached_property
    def edges(self) -> tuple[Ints, Ints, Ints]:
        """Source, target and number of kept turns of each distinct edge [E], in the order of sources, then targets."""
        span = self.n_nodes + 2
        codes, counts = np.unique((self.source * span + self.target)[self.kept], return_counts=True)
        return codes // span, codes % span, counts

    @cached_property
    def by_group(self) -> Groups:
        """The turns by group, those that are not kept left out."""
        group = self.batch.group[self.batch.trajectory_of_turn]
        return Groups(group, self.kept.astype(np.float64), self.batch.n_groups)

    @cached_property
    def scale(self) -> Floats:
        """Largest Σ|r| over a rollout of each turn's group [T], what the rounding of values is measured against."""
        largest = np.zeros(self.batch.n_groups)
        np.maximum.at(largest, self.batch.group, self.batch.absolute_returns)
        return largest[self.by_group.index]

    @property
    def diagnostics(self) -> dict[str, float]:
        """The counts of `visit_diagnostics`."""
        return visit_diagnostics(state_groups(self.batch))

    def successors(self, *, self_loops: bool = True) -> Ints:
        """Return the number of distinct nodes and sinks that kept turns from each node lead to [n_nodes].

        Args:
            self_loops: Whether a node is a successor of itself.

        Returns:
            The counts.
        """
        source, target, _ = self.edges
        return np.bincount(source[self_loops | (source != target)], minlength=self.n_nodes)

    def after(self, values: Floats, sink_values: ArrayLike = 0.0) -> Floats:
        """Return the value of the node or sink that each turn leads to [T].

        Args:
            values: Values of the nodes [n_nodes].
            sink_values: Value of the sink that a turn leads to: a number, or one per turn [T], read where it `ends`.

        Returns:
            The values.
        """
        return np.where(self.ends, sink_values, np.append(values, (0.0, 0.0))[self.target])


def state_graph(batch: CreditBatch, *, truncation: Truncation = "terminal", sinks: Sinks = 2) -> StateGraph:
    """Build the graph of a batch; linear in turns.

    Args:
        batch: The rollouts.
        truncation: ``"terminal"``: a rollout's last turn leads to a sink; ``"bootstrap"``: that of a truncated rollout
            leads to its final state, if a rollout that counts acted there.
        sinks: 1, or 2 for different sinks after success and failure.

    Returns:
        The graph.
    """
    owner = batch.trajectory_of_turn
    kept = batch.included[owner]
    n_nodes = batch.n_states
    visited = np.zeros(n_nodes + 1, dtype=bool)  # the last entry is that of TERMINAL, -1
    visited[batch.state[kept]] = True
    following = batch.successors(truncation)
    sink = n_nodes + (batch.success[owner] if sinks == 2 else np.zeros(len(owner), dtype=np.int64))
    return StateGraph(batch, batch.state, np.where(visited[following], following, sink), kept, n_nodes)


def mean_backup(graph: StateGraph, rewards: Floats, gamma: float, sink_values: ArrayLike = 0.0) -> Floats:
    """Solve V(u) = (1/N(u)) Σ [r + γ V(v)] over the N(u) visits of each node u, that is (I − γP̂)V = r̄.

    The solution is exact but for rounding. A node visited once passes on the value of what follows in its rollout, so
    only the nodes visited more often, and those that truncated rollouts lead to, enter a sparse LU decomposition.

    Args:
        graph: The graph.
        rewards: Reward of each turn [T].
        gamma: Discount γ.
        sink_values: As in `StateGraph.after`.

    Returns:
        The values of the nodes [n_nodes], 0 for a node that is never left.

    Raises:
        CreditInputError: γ is 1 and the turns from some node never lead to a sink, which only
            ``truncation="bootstrap"`` allows: its value is then not defined.
    """
    if gamma == 1.0:
        _check_ways_out(graph)
    batch, kept, last = graph.batch, graph.kept, graph.batch.last_turns
    rewards = rewards + np.where(graph.ends, gamma * np.asarray(sink_values, dtype=np.float64), 0.0)
    core = graph.visits > 1
    core[graph.target[last[kept[last] & ~graph.ends[last]]]] = True
    from_core = core[graph.source]
    # A turn's stretch lasts up to the next turn of its rollout that leaves a core node, or to the rollout's end.
    final = np.zeros(batch.n_turns, dtype=bool)
    final[last] = True
    ends_stretch = final | np.append(from_core, False)[1:]
    end = np.flatnonzero(ends_stretch)[np.cumsum(ends_stretch) - ends_stretch]
    returns = batch.discounted_sums(rewards, gamma)
    discount = gamma ** (end + 1 - np.arange(batch.n_turns, dtype=np.float64))
    gained = returns - discount * np.where(final, 0.0, np.append(returns, 0.0)[1:])[end]
    values = np.zeros(graph.n_nodes + 2)
    values[:-2][core] = _solve(graph, core, kept & from_core, graph.target[end], discount, gained)
    single = kept & ~from_core
    values[graph.source[single]] = (gained + discount * values[graph.target[end]])[single]
    return values[:-2]


def _solve(graph: StateGraph, core: Bools, leaving: Bools, target: Ints, discount: Floats, gained: Floats) -> Floats:
    """Return the values of the core nodes, in the order of their numbers.

    Args:
        graph: The graph.
        core: Which nodes they are [n_nodes].
        leaving: Turns that leave them [T].
        target: Core node or sink at the end of each turn's stretch [T].
        discount: Discount of its value [T].
        gained: Discounted rewards of the stretch [T].

    Returns:
        The values.
    """
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import splu

    size = int(core.sum())
    if size == 0:
        return np.zeros(0)
    # Nodes are eliminated in the reverse order of their first visits. That fills in about as little as an order found
    # by search, and one group's values do not depend, not even in their last digit, on what else is in the batch.
    source = graph.source[leaving]
    last_seen = np.empty(graph.n_nodes, dtype=np.int64)
    last_seen[source[::-1]] = np.arange(len(source))  # of the turns in reverse, the last that is written stays
    by_last_seen = np.zeros(len(source), dtype=bool)
    by_last_seen[last_seen[core]] = True
    order = source[::-1][by_last_seen]
    row = np.empty(graph.n_nodes, dtype=np.int64)
    row[order] = np.arange(size)
    inner = leaving & (target < graph.n_nodes)
    # Summed here in the order of turns, since scipy adds up duplicate entries in an order of its own.
    edges, edge = np.unique(row[graph.source[inner]] * size + row[target[inner]], return_inverse=True)
    rows = np.concatenate([np.arange(size), edges // size])
    columns = np.concatenate([np.arange(size), edges % size])
    entries = np.concatenate([graph.visits[order], -sums_by(edge, discount[inner], len(edges))])
    matrix = csc_array((entries, (rows, columns)), shape=(size, size))
    right = sums_by(row[source], gained[leaving], size)
    # One column at a time: no panel and no supernode then reaches from one group into another.
    values = splu(matrix, permc_spec="NATURAL", panel_size=1, relax=1).solve(right)
    return np.asarray(values, dtype=np.float64)[row[core]]


def _check_ways_out(graph: StateGraph) -> None:
    """Refuse a graph with a node from which no sequence of turns leads to a sink; linear in turns."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    last = graph.batch.last_turns
    if graph.ends[last].all():  # each turn's own rollout leads it to a sink
        return
    source, target, _ = graph.edges
    end = graph.n_nodes
    backwards = csr_array((np.ones(len(source)), (np.minimum(target, end), source)), shape=(end + 1, end + 1))
    leads_out = np.zeros(end + 1, dtype=bool)
    leads_out[breadth_first_order(backwards, end, return_predecessors=False)] = True
    lost = np.flatnonzero(graph.kept & ~leads_out[graph.source])
    if lost.size:
        raise CreditInputError(
            "no turn from this state on leads to an end, so with gamma 1 it has no value",
            where=graph.batch.place("turn", int(lost[0])),
            mend="take gamma below 1, or truncation='terminal'",
        )
