"""CreditBatch: the flat arrays made from trajectories, the only thing that a credit method sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentbench_credit.errors import ConfigError, CreditInputError

if TYPE_CHECKING:
    from agentbench_credit.trajectory import Trajectory

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

Scalar = TypeVar("Scalar", bound=np.generic)

Level = Literal["trajectory", "turn", "token"]
"""What one entry of an array belongs to."""
Truncation = Literal["terminal", "bootstrap"]
"""Value after a turn limit: 0 as after any end, or that of the state in which the rollout was cut."""

LARGEST = 1e100
"""Numbers beyond this are refused: their squares would overflow in a variance."""

TERMINAL = -1
"""The state after a rollout's last turn, which has value 0."""

SIGNAL_LEVELS: Mapping[str, Level] = {
    "taught": "turn",
    "values": "turn",
    "rollout_values": "turn",
    "final_values": "trajectory",
}
"""What one entry of a signal belongs to; signals that are not named here belong to tokens."""


@dataclass(frozen=True, eq=False)
class CreditBatch:
    """N trajectories with T turns and K response tokens in all, in CSR layout without padding.

    Build it with `from_trajectories` or `from_rewards`. However it is built, NaN, infinities and arrays that do not
    fit together are refused with a `CreditInputError` that names the rollout and the turn.

    Attributes:
        group: Group of each trajectory [N], integers from 0 without a gap.
        included: Whether a trajectory has a valid reward [N]; the others get advantage 0 and enter no statistic.
        success: Whether a trajectory solved its task [N].
        truncated: Whether a trajectory was cut by the turn limit [N].
        final_state: State that each trajectory ended in [N], `TERMINAL` where its group never acted in that state.
        turn_offsets: Turns of trajectory i are ``turn_offsets[i]:turn_offsets[i + 1]`` [N + 1].
        token_offsets: Tokens of turn t are ``token_offsets[t]:token_offsets[t + 1]`` [T + 1].
        state: State of each turn [T], integers below T; equal integers are equal state keys in the same group, so no
            integer occurs in two groups.
        action: Action of each turn [T], integers below T; equal integers are equal action texts.
        reward: Reward of each turn [T], the penalty in it if `penalty_in_reward`; 0 in excluded rollouts.
        penalty: Invalid-action penalty of each turn [T], 0 for valid actions and in excluded rollouts.
        penalty_in_reward: Whether `reward` holds the penalty; if not, it is added to the turn's advantage at the end.
        logp: Behaviour log-probability of each token [K], in nats.
        labels: A name for each trajectory, for error messages [N].
        signals: Arrays that methods ask for, see `SignalName`; of tokens [K] unless `SIGNAL_LEVELS` says otherwise.
        progress: Share of the training budget already spent, 0 to 1, for methods with a schedule.
    """

    group: Ints
    included: Bools
    success: Bools
    truncated: Bools
    final_state: Ints
    turn_offsets: Ints
    token_offsets: Ints
    state: Ints
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
        if not 0.0 <= self.progress <= 1.0:
            raise CreditInputError(f"progress is {self.progress}, expected 0 to 1", where="CreditBatch")
        _check_offsets("turn_offsets", self.turn_offsets, self.n_turns)
        _check_offsets("token_offsets", self.token_offsets, self.n_tokens)
        if len(self.labels) != self.n_trajectories:
            raise CreditInputError(f"{len(self.labels)} labels for {self.n_trajectories} rollouts", where="CreditBatch")
        for name, flags in (("included", self.included), ("success", self.success), ("truncated", self.truncated)):
            _check_array(name, flags, self.n_trajectories, np.bool_)
        self._check_codes()
        self._check_numbers("reward", self.reward, "turn")
        self._check_numbers("penalty", self.penalty, "turn")
        self._check_numbers("logp", self.logp, "token")
        for name, values in self.signals.items():
            self._check_numbers(f"signal {name}", values, SIGNAL_LEVELS.get(name, "token"))
        empty = np.flatnonzero(self.included & (self.turn_counts == 0))
        if empty.size:
            raise CreditInputError("included, but without a turn", where=self.place("trajectory", int(empty[0])))

    def _check_codes(self) -> None:
        n, turns = self.n_trajectories, self.n_turns
        for name, codes, size in (
            ("group", self.group, n),
            ("state", self.state, turns),
            ("action", self.action, turns),
        ):
            _check_array(name, codes, size, np.int64)
            if codes.size and (codes.min() < 0 or codes.max() >= size):
                raise CreditInputError(f"{name} holds integers outside 0 to {size - 1}", where="CreditBatch")
        if not np.bincount(self.group, minlength=self.n_groups).all():
            raise CreditInputError("group leaves out integers below its largest", where="CreditBatch")
        group_of_turn = self.group[self.trajectory_of_turn]
        group_of_state = np.zeros(turns, dtype=np.int64)
        group_of_state[self.state] = group_of_turn
        if (group_of_state[self.state] != group_of_turn).any():
            raise CreditInputError("a state occurs in two groups", where="CreditBatch")
        _check_array("final_state", self.final_state, n, np.int64)
        if n and (self.final_state.min() < TERMINAL or self.final_state.max() >= self.n_states):
            raise CreditInputError("final_state holds integers that are no state", where="CreditBatch")
        known = self.final_state != TERMINAL
        if (group_of_state[self.final_state[known]] != self.group[known]).any():
            raise CreditInputError("a state occurs in two groups", where="CreditBatch")

    def _check_numbers(self, name: str, values: Floats, level: Level) -> None:
        _check_array(name, values, self.size(level), np.float64)
        bad = np.flatnonzero(~(np.abs(values) <= LARGEST))  # NaN is not either
        if bad.size:
            index = int(bad[0])
            mend = "give the rollout no reward (None) to leave it out" if name == "reward" else ""
            raise CreditInputError(f"{name} is {values[index]}", where=self.place(level, index), mend=mend)

    def size(self, level: Level) -> int:
        """Return how many trajectories, turns or tokens there are."""
        return {"trajectory": self.n_trajectories, "turn": self.n_turns, "token": self.n_tokens}[level]

    def place(self, level: Level, index: int) -> str:
        """Return the rollout, and below trajectory level the turn, of an entry by name, for error messages."""
        turn = int(self.turn_of_token[index]) if level == "token" else index
        trajectory = index if level == "trajectory" else int(self.trajectory_of_turn[turn])
        rollout = f"rollout {self.labels[trajectory]}"
        return rollout if level == "trajectory" else f"{rollout}, turn {turn - int(self.turn_offsets[trajectory])}"

    def over_tokens(self, values: NDArray[Scalar], level: Level) -> NDArray[Scalar]:
        """Give each token [K] the value of its trajectory [N] or turn [T]; values of tokens come back as they are."""
        if level == "token":
            return values
        return np.repeat(values[self.trajectory_of_turn] if level == "trajectory" else values, self.token_counts)

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

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.group.max(initial=-1)) + 1

    @property
    def n_states(self) -> int:
        """Number of states over all groups."""
        return int(self.state.max(initial=-1)) + 1

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
        return _owners(self.turn_offsets)

    @cached_property
    def turn_of_token(self) -> Ints:
        """Turn of each token [K]."""
        return _owners(self.token_offsets)

    @cached_property
    def trajectory_of_token(self) -> Ints:
        """Trajectory of each token [K]."""
        return np.repeat(self.trajectory_of_turn, self.token_counts)

    @cached_property
    def next_state(self) -> Ints:
        """State after each turn [T], `TERMINAL` after a rollout's last."""
        following = np.append(self.state, TERMINAL)[1:]
        following[self.last_turns] = TERMINAL
        return following

    @cached_property
    def last_turns(self) -> Ints:
        """Index of the last turn of every trajectory that has one, in the order of trajectories."""
        return self.turn_offsets[1:][self.turn_counts > 0] - 1

    def successors(self, truncation: Truncation) -> Ints:
        """Return the state after each turn [T] whose value counts there.

        Args:
            truncation: ``"terminal"`` is `next_state`; ``"bootstrap"`` gives the last turn of a truncated rollout its
                `final_state`, which stays `TERMINAL` where the group never acted in it.

        Returns:
            The states.
        """
        if truncation == "terminal":
            return self.next_state
        following = self.next_state.copy()
        cut = self.truncated & (self.turn_counts > 0)
        following[self.turn_offsets[1:][cut] - 1] = self.final_state[cut]
        return following

    @cached_property
    def returns(self) -> Floats:
        """Undiscounted return R_i of each trajectory [N]; 0 for excluded ones."""
        return sums_by(self.trajectory_of_turn, self.reward, self.n_trajectories)

    @cached_property
    def absolute_returns(self) -> Floats:
        """Sum of |r_it| over each trajectory [N], the scale of the rounding error in `returns`."""
        return sums_by(self.trajectory_of_turn, np.abs(self.reward), self.n_trajectories)

    @cached_property
    def _from_the_end(self) -> tuple[Ints, list[int]]:
        """Return each turn's place [T] in the order of the distance to the end, and where each distance starts.

        Within a distance the longest trajectories come first, so those that go on are always a prefix.
        """
        rank = np.empty(self.n_trajectories, dtype=np.int64)
        rank[np.argsort(-self.turn_counts, kind="stable")] = np.arange(self.n_trajectories)
        distance = np.repeat(self.turn_offsets[1:], self.turn_counts) - 1 - np.arange(self.n_turns)
        starts = _offsets(np.bincount(distance))
        return starts[distance] + rank[self.trajectory_of_turn], starts.tolist()

    def discounted_sums(self, values: Floats, factor: float) -> Floats:
        """Return Σ_{k≥t} factor^{k−t} v_k of values v [T] for each turn [T], within its trajectory; linear in turns."""
        place, starts = self._from_the_end
        sums = np.empty(self.n_turns)
        sums[place] = values
        for after, start, end in zip(starts, starts[1:], starts[2:], strict=False):
            sums[start:end] += factor * sums[after : after + end - start]
        return sums[place]

    def discounted_returns(self, gamma: float) -> Floats:
        """Return G_it = Σ_{k≥t} γ^{k−t} r_ik for each turn [T]."""
        return self.discounted_sums(self.reward, gamma)

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
            trajectories: Rollouts; one in state ``error``, without turns, or with a missing reward (None, NaN) is
                excluded.
            signals: Arrays by name, in the order of trajectories, turns, tokens; ``taught`` is known without.
            invalid_action_penalty: What a turn with an invalid action costs, as a negative number.
            penalty_in_reward: True adds it to the turn's reward; False to the turn's advantage, after discounting and
                normalisation, so that it stays local.
            progress: Share of the training budget already spent.

        Returns:
            The batch.

        Raises:
            ConfigError: The penalty is positive or not finite.
            CreditInputError: An infinite reward, NaN or infinity elsewhere, or shapes that do not fit.
        """
        if not -np.inf < invalid_action_penalty <= 0.0:
            what = f"invalid_action_penalty is {invalid_action_penalty}"
            raise ConfigError(what, mend="give 0 or a finite negative number")
        turns = [turn for trajectory in trajectories for turn in trajectory.turns]
        turn_offsets = _offsets([len(trajectory.turns) for trajectory in trajectories])
        crashed = np.array([trajectory.state == "error" for trajectory in trajectories], dtype=bool)
        reward, included = _valid_rewards([turn.reward for turn in turns], turn_offsets, crashed)
        invalid = np.array([not turn.action_valid for turn in turns], dtype=bool)
        penalty = np.where(invalid & included[_owners(turn_offsets)], invalid_action_penalty, 0.0)
        labels = _labels([trajectory.group_id for trajectory in trajectories])
        for trajectory, label in zip(trajectories, labels, strict=True):
            for t, turn in enumerate(trajectory.turns):
                if len(turn.logprobs) != len(turn.response_ids):
                    what = f"{len(turn.logprobs)} log-probabilities for {len(turn.response_ids)} response tokens"
                    raise CreditInputError(what, where=f"rollout {label}, turn {t}")
        states: dict[Hashable, int] = {}
        state = _codes(((t.group_id, turn.state_key) for t in trajectories for turn in t.turns), states)
        final = [states.get((t.group_id, t.final_state_key), TERMINAL) for t in trajectories]
        return cls(
            group=_codes(trajectory.group_id for trajectory in trajectories),
            included=included,
            success=np.array([trajectory.success for trajectory in trajectories], dtype=bool),
            truncated=np.array([trajectory.state == "truncated" for trajectory in trajectories], dtype=bool),
            final_state=np.array(final, dtype=np.int64),
            turn_offsets=turn_offsets,
            token_offsets=_offsets([len(turn.response_ids) for turn in turns]),
            state=state,
            action=_codes(turn.action for turn in turns),
            reward=reward + penalty if penalty_in_reward else reward,
            penalty=penalty,
            penalty_in_reward=penalty_in_reward,
            logp=np.concatenate([np.zeros(0), *(turn.logprobs for turn in turns)], dtype=np.float64),
            labels=labels,
            signals=_signals({"taught": [turn.teacher_prompt_ids is not None for turn in turns], **(signals or {})}),
            progress=progress,
        )

    @classmethod
    def from_rewards(
        cls,
        rewards: Sequence[Sequence[Sequence[float | None]]],
        *,
        states: Sequence[Sequence[Sequence[Hashable]]] | None = None,
        actions: Sequence[Sequence[Sequence[Hashable]]] | None = None,
        tokens_per_turn: int = 1,
        logp: ArrayLike | None = None,
        signals: Mapping[str, ArrayLike] | None = None,
    ) -> CreditBatch:
        """Build a batch from rewards alone, for tests, worked examples and tabular worlds.

        A rollout counts as a success if its return is positive.

        Args:
            rewards: ``rewards[g][i][t]`` is the reward of turn t of rollout i of group g; None or NaN excludes the
                rollout.
            states: State keys in the same nesting; without them every turn has a state of its own.
            actions: Actions in the same nesting; without them all are equal.
            tokens_per_turn: Response tokens of every turn.
            logp: Their log-probabilities [K], 0 if None.
            signals: Arrays by name.

        Returns:
            The batch.

        Raises:
            CreditInputError: An infinite reward, or states or actions that are nested in another way than the rewards.
        """
        members = [(g, rollout) for g, group in enumerate(rewards) for rollout in group]
        flat = [reward for _, rollout in members for reward in rollout]
        turn_offsets = _offsets([len(rollout) for _, rollout in members])
        reward, included = _valid_rewards(flat, turn_offsets, np.zeros(len(members), dtype=bool))
        for name, nested in (("states", states), ("actions", actions)):
            if nested is not None and [[*map(len, g)] for g in nested] != [[*map(len, g)] for g in rewards]:
                raise CreditInputError(f"{name} and rewards are not nested alike", where="from_rewards")
        keys: Iterable[Hashable] = range(len(flat))
        if states is not None:
            keys = [(g, key) for g, group in enumerate(states) for rollout in group for key in rollout]
        done: Iterable[Hashable] = [0] * len(flat)
        if actions is not None:
            done = [key for group in actions for rollout in group for key in rollout]
        n_tokens = len(flat) * tokens_per_turn
        return cls(
            group=_codes(g for g, _ in members),
            included=included,
            success=sums_by(_owners(turn_offsets), reward, len(members)) > 0,
            truncated=np.zeros(len(members), dtype=bool),
            final_state=np.full(len(members), TERMINAL),
            turn_offsets=turn_offsets,
            token_offsets=np.arange(len(flat) + 1, dtype=np.int64) * tokens_per_turn,
            state=_codes(keys),
            action=_codes(done),
            reward=reward,
            penalty=np.zeros(len(flat)),
            penalty_in_reward=True,
            logp=np.zeros(n_tokens) if logp is None else np.asarray(logp, dtype=np.float64),
            labels=_labels([str(g) for g, _ in members]),
            signals=_signals(signals),
        )


def sums_by(index: Ints, values: ArrayLike, size: int) -> Floats:
    """Return the sum of the values [n] that belong to each index [n] below `size`; 0 where none does."""
    return np.bincount(index, values, size).astype(np.float64, copy=False)


def _valid_rewards(rewards: Sequence[float | None], turn_offsets: Ints, crashed: Bools) -> tuple[Floats, Bools]:
    """Return the rewards [T], 0 in excluded rollouts, and which rollouts are included [N].

    An infinite reward is kept even there: it is a fault of the environment, which the batch refuses by name.
    """
    values = np.array([np.nan if reward is None else reward for reward in rewards], dtype=np.float64)
    owner, turn_counts = _owners(turn_offsets), np.diff(turn_offsets)
    missing = sums_by(owner, np.isnan(values), len(turn_counts))
    included = (missing == 0) & (turn_counts > 0) & ~crashed
    return np.where(included[owner] | np.isinf(values), values, 0.0), included


def _signals(signals: Mapping[str, ArrayLike] | None) -> dict[str, Floats]:
    return {name: np.asarray(values, dtype=np.float64) for name, values in (signals or {}).items()}


def _offsets(counts: ArrayLike) -> Ints:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _owners(offsets: Ints) -> Ints:
    """Return which interval of the offsets each item lies in."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def _codes(keys: Iterable[Hashable], known: dict[Hashable, int] | None = None) -> Ints:
    """Number keys in the order of their first appearance, which `known` keeps."""
    known = {} if known is None else known
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


def _labels(group_ids: Iterable[str]) -> list[str]:
    """Name each rollout by its group and its place in it."""
    seen: Counter[str] = Counter()
    labels = []
    for group_id in group_ids:
        labels.append(f"{group_id}/{seen[group_id]}")
        seen[group_id] += 1
    return labels


def _check_offsets(name: str, offsets: Ints, end: int) -> None:
    whole = offsets.dtype == np.int64 and offsets.ndim == 1 and offsets.size > 0
    if not whole or offsets[0] != 0 or offsets[-1] != end or (np.diff(offsets) < 0).any():
        raise CreditInputError(f"{name} must be int64 and rise from 0 to {end}", where="CreditBatch")


def _check_array(name: str, values: NDArray[np.generic], size: int, dtype: type[np.generic]) -> None:
    if values.shape != (size,) or values.dtype != dtype:
        got, wanted = f"{values.dtype} {list(values.shape)}", f"{np.dtype(dtype)} [{size}]"
        raise CreditInputError(f"{name} is {got}, expected {wanted}", where="CreditBatch")
