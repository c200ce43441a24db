"""CreditBatch: the flat arrays made from trajectories, the only thing that a credit method sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentbench_credit.errors import CreditInputError

if TYPE_CHECKING:
    from agentbench_credit.trajectory import Trajectory

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

TERMINAL = -1
"""`next_state` of every rollout's last turn."""


@dataclass(frozen=True, eq=False)
class CreditBatch:
    """N trajectories with T turns and K response tokens in all, in CSR layout without padding.

    Build it with `from_trajectories` or `from_rewards`; both validate. Groups and states are dense integers.

    Attributes:
        group: Group of each trajectory [N].
        included: Whether a trajectory has a valid reward [N]; the others get advantage 0 and enter no statistic.
        success: Whether a trajectory solved its task [N].
        truncated: Whether a trajectory was cut by the turn limit [N].
        turn_offsets: Turns of trajectory i are ``turn_offsets[i]:turn_offsets[i + 1]`` [N + 1].
        token_offsets: Tokens of turn t are ``token_offsets[t]:token_offsets[t + 1]`` [T + 1].
        state: State of each turn [T]; equal integers are equal state keys.
        next_state: State after each turn [T], `TERMINAL` after the last.
        action: Action of each turn [T]; equal integers are equal action texts.
        reward: Reward of each turn [T], the invalid-action penalty in it if `penalty_in_reward`; 0 in excluded rollouts.
        penalty: Invalid-action penalty of each turn [T], 0 for valid actions.
        penalty_in_reward: Whether `reward` holds the penalty; if not, it is added to the turn's advantage at the end.
        logp: Behaviour log-probability of each token [K].
        signals: Token arrays [K] that methods ask for: ``entropy``, ``teacher_logp``, ``kl``.
        progress: Share of the training budget already spent, 0 to 1, for methods with a schedule.
        labels: A name for each trajectory, for error messages [N].
    """

    group: Ints
    included: Bools
    success: Bools
    truncated: Bools
    turn_offsets: Ints
    token_offsets: Ints
    state: Ints
    next_state: Ints
    action: Ints
    reward: Floats
    penalty: Floats
    penalty_in_reward: bool
    logp: Floats
    labels: Sequence[str]
    signals: Mapping[str, Floats] = field(default_factory=dict)
    progress: float = 0.0

    def __post_init__(self) -> None:
        """Refuse NaN, infinities and inconsistent shapes, naming rollout and turn."""
        sizes = {"group": self.n_trajectories, "included": self.n_trajectories, "success": self.n_trajectories}
        sizes |= {"truncated": self.n_trajectories, "state": self.n_turns, "next_state": self.n_turns}
        sizes |= {"action": self.n_turns, "reward": self.n_turns, "penalty": self.n_turns, "logp": self.n_tokens}
        for name, size in sizes.items():
            self._check_shape(name, getattr(self, name), size)
        for name in ("reward", "penalty"):
            self._check_finite(name, getattr(self, name), self.trajectory_of_turn)
        self._check_finite("logp", self.logp, self.trajectory_of_token)
        for name, values in self.signals.items():
            self._check_shape(f"signal {name}", values, self.n_tokens)
            self._check_finite(f"signal {name}", values, self.trajectory_of_token)

    def _check_shape(self, name: str, values: NDArray[np.generic], size: int) -> None:
        if values.shape != (size,):
            raise CreditInputError(f"{name} has shape {values.shape}, expected ({size},)", where="CreditBatch")

    def _check_finite(self, name: str, values: Floats, trajectory: Ints) -> None:
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            index = int(bad[0])
            turn = index if values.size == self.n_turns and trajectory is self.trajectory_of_turn else None
            raise self.error(f"{name} is {values[index]}", turn=turn, token=None if turn is not None else index)

    def error(self, what: str, *, turn: int | None = None, token: int | None = None) -> CreditInputError:
        """Return an error that names the rollout and the turn of a turn or token index."""
        if token is not None:
            turn = int(self.turn_of_token[token])
        assert turn is not None, "a turn or a token must be given"
        trajectory = int(self.trajectory_of_turn[turn])
        where = f"rollout {self.labels[trajectory]}, turn {turn - int(self.turn_offsets[trajectory])}"
        mend = "give the rollout no reward (None) to leave it out"
        return CreditInputError(what, where=where, mend=mend)

    @property
    def n_trajectories(self) -> int:
        """Number of trajectories N."""
        return len(self.turn_offsets) - 1

    @property
    def n_turns(self) -> int:
        """Number of turns T."""
        return len(self.token_offsets) - 1

    @property
    def n_tokens(self) -> int:
        """Number of response tokens K."""
        return int(self.token_offsets[-1])

    @cached_property
    def turn_counts(self) -> Ints:
        """Turns of each trajectory [N]."""
        return np.diff(self.turn_offsets)

    @cached_property
    def token_counts(self) -> Ints:
        """Tokens of each turn [T]."""
        return np.diff(self.token_offsets)

    @cached_property
    def trajectory_of_turn(self) -> Ints:
        """Trajectory of each turn [T]."""
        return np.repeat(np.arange(self.n_trajectories), self.turn_counts)

    @cached_property
    def turn_of_token(self) -> Ints:
        """Turn of each token [K]."""
        return np.repeat(np.arange(self.n_turns), self.token_counts)

    @cached_property
    def trajectory_of_token(self) -> Ints:
        """Trajectory of each token [K]."""
        return self.trajectory_of_turn[self.turn_of_token]

    @cached_property
    def returns(self) -> Floats:
        """Undiscounted return R_i of each trajectory [N]; 0 for excluded ones."""
        return np.bincount(self.trajectory_of_turn, self.reward, self.n_trajectories)

    def discounted_returns(self, gamma: float) -> Floats:
        """Return G_t = Σ_{k≥t} γ^{k−t} r_k for each turn [T], within its trajectory."""
        result = self.reward.copy()
        order = np.argsort(-self.turn_counts, kind="stable")
        last = self.turn_offsets[1:][order] - 1
        longer = np.searchsorted(-self.turn_counts[order], -np.arange(1, self.turn_counts.max(initial=0)), side="left")
        for back, count in enumerate(longer, start=1):
            at = last[:count] - back
            result[at] += gamma * result[at + 1]
        return result

    @classmethod
    def from_trajectories(
        cls,
        trajectories: Sequence[Trajectory],
        *,
        signals: Mapping[str, ArrayLike] | None = None,
        invalid_action_penalty: float = 0.0,
        penalty_in_reward: bool = True,
        progress: float = 0.0,
    ) -> CreditBatch:
        """Flatten trajectories, in their order; linear in tokens.

        Args:
            trajectories: Rollouts; one in state ``error``, without turns, or with a missing (None, NaN) reward is excluded.
            signals: Token arrays [K] in the order of trajectories, turns, tokens.
            invalid_action_penalty: Added to the reward of every turn with an invalid action (a negative number).
            penalty_in_reward: False adds the penalty to the turn's advantage after discounting instead.
            progress: Share of the training budget already spent.

        Returns:
            The batch.

        Raises:
            CreditInputError: An infinite reward, NaN or infinity elsewhere, or wrong shapes.
        """
        turns = [turn for trajectory in trajectories for turn in trajectory.turns]
        rewards = [
            np.array([np.nan if turn.reward is None else turn.reward for turn in trajectory.turns])
            for trajectory in trajectories
        ]
        included = np.array(
            [t.state != "error" and len(r) > 0 and not np.isnan(r).any() for t, r in zip(trajectories, rewards, strict=True)],
            dtype=bool,
        )
        kept = [r if ok else np.zeros(len(r)) for r, ok in zip(rewards, included, strict=True)]
        reward = np.concatenate([*kept, np.zeros(0)])
        valid = np.array([turn.action_valid for turn in turns], dtype=bool)
        penalty = np.where(valid, 0.0, invalid_action_penalty)
        next_keys = [
            key
            for trajectory in trajectories
            for key in [*(turn.state_key for turn in trajectory.turns[1:]), *([None] if trajectory.turns else [])]
        ]
        known: dict[bytes | None, int] = {None: TERMINAL}
        state = _codes([turn.state_key for turn in turns], known)
        turn_counts = [len(trajectory.turns) for trajectory in trajectories]
        return cls(
            group=_codes([trajectory.group_id for trajectory in trajectories], {}),
            included=included,
            success=np.array([trajectory.success for trajectory in trajectories], dtype=bool),
            truncated=np.array([trajectory.state == "truncated" for trajectory in trajectories], dtype=bool),
            turn_offsets=_offsets(turn_counts),
            token_offsets=_offsets([len(turn.response_ids) for turn in turns]),
            state=state,
            next_state=_codes(next_keys, known),
            action=_codes([turn.action for turn in turns], {}),
            reward=reward + penalty if penalty_in_reward else reward,
            penalty=penalty,
            penalty_in_reward=penalty_in_reward,
            logp=np.concatenate([*(turn.logprobs for turn in turns), np.zeros(0, np.float32)]).astype(np.float64),
            labels=[f"{trajectory.group_id}/{i}" for i, trajectory in enumerate(trajectories)],
            signals={name: np.asarray(values, dtype=np.float64) for name, values in (signals or {}).items()},
            progress=progress,
        )

    @classmethod
    def from_rewards(
        cls,
        rewards: Sequence[Sequence[Sequence[float | None]]],
        *,
        states: Sequence[Sequence[Sequence[object]]] | None = None,
        tokens_per_turn: int = 1,
    ) -> CreditBatch:
        """Build a batch from rewards alone, for tests, worked examples and tabular worlds.

        Args:
            rewards: ``rewards[g][i][t]`` is the reward of turn t of rollout i of group g; None marks the rollout as excluded.
            states: State keys in the same nesting; without them every turn has a state of its own.
            tokens_per_turn: Response tokens of every turn, each with log-probability 0.

        Returns:
            The batch.
        """
        rollouts = [(g, rollout) for g, group in enumerate(rewards) for rollout in group]
        flat_states = None if states is None else [list(keys) for group in states for keys in group]
        counts = [len(rollout) for _, rollout in rollouts]
        included = np.array([len(r) > 0 and None not in r for _, r in rollouts], dtype=bool)
        values = [r if ok else [0.0] * len(r) for (_, r), ok in zip(rollouts, included, strict=True)]
        n_turns = sum(counts)
        offsets = _offsets(counts)
        keys = list(range(n_turns)) if flat_states is None else [key for rollout in flat_states for key in rollout]
        state = _codes(keys, {})
        next_state = np.append(state[1:], TERMINAL)[:n_turns]
        next_state[offsets[1:][np.diff(offsets) > 0] - 1] = TERMINAL
        return cls(
            group=np.array([g for g, _ in rollouts], dtype=np.int64),
            included=included,
            success=np.array([sum(v) > 0 for v in values], dtype=bool),
            truncated=np.zeros(len(rollouts), dtype=bool),
            turn_offsets=offsets,
            token_offsets=np.arange(n_turns + 1, dtype=np.int64) * tokens_per_turn,
            state=state,
            next_state=next_state,
            action=np.zeros(n_turns, dtype=np.int64),
            reward=np.array([reward for rollout in values for reward in rollout], dtype=np.float64),
            penalty=np.zeros(n_turns),
            penalty_in_reward=True,
            logp=np.zeros(n_turns * tokens_per_turn),
            labels=[f"group {g}/{i}" for i, (g, _) in enumerate(rollouts)],
        )


def _offsets(counts: Sequence[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(np.asarray(counts, dtype=np.int64))]).astype(np.int64)


def _codes(keys: Sequence[object], known: dict[object, int] | dict[bytes | None, int]) -> Ints:
    """Number keys in the order of their first appearance, extending `known`."""
    codes = np.empty(len(keys), dtype=np.int64)
    table: dict[object, int] = known  # type: ignore[assignment]
    fresh = len(table) - (TERMINAL in table.values())
    for i, key in enumerate(keys):
        code = table.get(key)
        if code is None:
            code = table[key] = fresh
            fresh += 1
        codes[i] = code
    return codes
