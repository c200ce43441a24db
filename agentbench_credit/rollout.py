"""Environments × policy → groups of trajectories."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field

from agentbench_credit.command import progress
from agentbench_credit.env import AgentEnv, Info
from agentbench_credit.errors import EnvironmentContractError, ModelError
from agentbench_credit.policy.base import Policy, Request, Response, Sampling
from agentbench_credit.policy.prompts import Prompter, parse_action
from agentbench_credit.trajectory import Ids, State, Trajectory, Turn


@dataclass(frozen=True)
class Start:
    """One rollout to do."""

    task_id: str
    """Task of the environment's panel."""
    group_id: str
    """Rollouts with one group id must start in the identical state."""
    seed: int
    """Seed of the rollout's sampling; turn t samples with a seed derived from it."""
    snapshot: object | None = None
    """State of the task to start from; None for its first."""
    past: tuple[Turn, ...] = ()
    """Turns before the snapshot: prompts show them as they show turns of the rollout, which does not hold them."""


@dataclass(eq=False)
class _Episode:
    """A rollout under way."""

    index: int
    start: Start
    env: AgentEnv
    prompter: Prompter
    with_reference: bool
    observation: str = ""
    info: Info = field(default_factory=dict)
    reference: str | None = None
    prompt_ids: Ids | None = None
    teacher_prompt_ids: Ids | None = None
    turns: list[Turn] = field(default_factory=list)
    state: State | None = None
    error: str | None = None
    timings: dict[str, float] = field(default_factory=lambda: {"generate": 0.0, "environment": 0.0})

    def reset(self) -> None:
        """Start the task, or go to where the rollout starts, and render the first prompt."""
        began = time.perf_counter()
        if self.start.snapshot is None:
            self.observation, self.info = self.env.reset(options={"task": self.start.task_id})
            self.reference = self.env.reference()
        else:
            self.observation, self.info = self.env.restore(self.start.snapshot)
        self.timings["environment"] += time.perf_counter() - began
        self._render()

    def _render(self) -> None:
        """Make the prompt of the next turn, and the teacher's if the ground truth has something to say."""
        reference = self.env.reference() if self.with_reference else None
        self.prompt_ids = self._prompt(None)
        self.teacher_prompt_ids = None if reference is None else self._prompt(reference)

    def _prompt(self, reference: str | None) -> Ids:
        instruction, observations, responses = self._said()
        if not responses:
            return self.prompter.first(instruction, self.observation, reference=reference)
        last = (self.turns or self.start.past)[-1]
        previous = None if reference is not None else (last.prompt_ids, last.response_ids)
        return self.prompter.next(instruction, observations, responses, previous, reference=reference)

    def _said(self) -> tuple[str, list[str], list[str]]:
        """Return the instruction, all observations and all responses so far."""
        played = [*self.start.past, *self.turns]
        observations = [*(turn.observation for turn in played), self.observation]
        return str(self.info["instruction"]), observations, [turn.response for turn in played]

    def request(self) -> Request:
        """Return the request for the next response."""
        assert self.prompt_ids is not None, "reset first"
        seed = self.start.seed + (len(self.turns) << 64)
        return Request(
            self.prompt_ids,
            seed,
            self.env,
            lambda: self.prompter.messages(*self._said()),
            self.info["admissible_actions"],
        )

    def advance(self, response: Response) -> None:
        """Take a response, step the environment, record the turn."""
        assert self.prompt_ids is not None, "reset first"
        text = str(self.prompter.tokenizer.decode(response.ids, skip_special_tokens=True))
        action = parse_action(text)
        before, observed = self.info, self.observation
        began = time.perf_counter()
        self.observation, reward, terminated, truncated, self.info = self.env.step(action)
        self.timings["environment"] += time.perf_counter() - began
        turn = Turn(
            observation=observed,
            state_key=before["state_key"],
            admissible_actions=before["admissible_actions"],
            prompt_ids=self.prompt_ids,
            response_ids=response.ids,
            logprobs=response.logprobs,
            finish_reason=response.finish_reason,
            response=text,
            action=action,
            action_valid=bool(self.info["action_valid"]),
            reward=None if reward is None else float(reward),
            teacher_prompt_ids=self.teacher_prompt_ids,
            info=dict(self.info.get("metrics", {})),
        )
        self.turns.append(turn)
        if terminated or truncated:
            self.state = "ended" if terminated else "truncated"
        else:
            self._render()

    def fail(self, error: Exception) -> None:
        """End the rollout with an error."""
        self.state, self.error = "error", f"{type(error).__name__}: {error}"

    def trajectory(self, policy_id: str, sampling: Sampling) -> Trajectory:
        """Return what happened."""
        spec = self.env.spec
        if spec is None:
            mend = "build it with Environment.make or gymnasium.make, which record how"
            raise EnvironmentContractError("the environment has no spec", where=type(self.env).__name__, mend=mend)
        return Trajectory(
            env_id=spec.id,
            env_kwargs=dict(spec.kwargs),
            task_id=self.start.task_id,
            group_id=self.start.group_id,
            seed=self.start.seed,
            policy_id=policy_id,
            sampling=asdict(sampling),
            turns=tuple(self.turns),
            final_state_key=self.info.get("state_key", b""),
            state=self.state or "error",
            success=self.state != "error" and bool(self.info["success"]),
            reference=self.reference,
            error=self.error,
            timings=self.timings,
        )


def rollout(
    policy: Policy,
    make_env: Callable[[], AgentEnv],
    starts: Sequence[Start],
    *,
    prompter: Prompter,
    sampling: Sampling,
    parallel: int = 128,
    with_reference: bool = False,
    on_finished: Callable[[int, Trajectory], None] | None = None,
    label: str = "rollout",
) -> list[Trajectory]:
    """Play every start to its end, as `play` does, and keep all rollouts.

    Args:
        policy: Answers the prompts.
        make_env: Builds one environment.
        starts: What to play.
        prompter: Renders the prompts, with the policy's tokenizer.
        sampling: How tokens are drawn.
        parallel: Most episodes under way at once.
        with_reference: Also render each turn's prompt with the ground truth, for a teacher.
        on_finished: Called with the start's index and the trajectory, in the order in which rollouts finish.
        label: Text of the progress bar.

    Returns:
        One trajectory per start, in the order of the starts.

    Raises:
        EnvironmentContractError: Members of a group start in different states, or an environment has no spec.
        ModelError: The policy's model is broken.
    """
    done: dict[int, Trajectory] = {}
    played = play(
        policy,
        make_env,
        starts,
        prompter=prompter,
        sampling=sampling,
        parallel=parallel,
        with_reference=with_reference,
        label=label,
    )
    with closing(played):
        for index, trajectory in played:
            done[index] = trajectory
            if on_finished is not None:
                on_finished(index, trajectory)
    return [done[index] for index in range(len(starts))]


def play(
    policy: Policy,
    make_env: Callable[[], AgentEnv],
    starts: Sequence[Start],
    *,
    prompter: Prompter,
    sampling: Sampling,
    parallel: int = 128,
    with_reference: bool = False,
    label: str = "rollout",
) -> Generator[tuple[int, Trajectory]]:
    """Play every start to its end; a finished episode leaves the batch and the next start takes its place.

    An exception of the environment or the policy ends that rollout with state ``error``: it is kept, counts as a
    failure, and is warned about. A prompt that leaves no room for a response ends its rollout as ``truncated``.

    Args:
        policy: Answers the prompts.
        make_env: Builds one environment; one for each place in the batch, and anew after a failure.
        starts: What to play.
        prompter: Renders the prompts, with the policy's tokenizer.
        sampling: How tokens are drawn.
        parallel: Most episodes under way at once.
        with_reference: Also render each turn's prompt with the ground truth, for a teacher.
        label: Text of the progress bar.

    Yields:
        A start's index and its trajectory, in the order in which rollouts finish; none is kept here.

    Raises:
        EnvironmentContractError: Members of a group start in different states, or an environment has no spec.
        ModelError: The policy's model is broken.
    """
    group_keys: dict[str, tuple[bytes, str]] = {}
    envs = [make_env() for _ in range(min(parallel, len(starts)))]
    waiting = iter(enumerate(starts))
    try:
        with progress(label, len(starts)) as bar:
            active = [_begin(waiting, env, prompter, with_reference, group_keys) for env in envs]
            episodes = [episode for episode in active if episode is not None]
            while episodes:
                _play_turn(policy, [episode for episode in episodes if episode.state is None], sampling)
                following: list[_Episode] = []
                for episode in episodes:
                    if episode.state is None:
                        following.append(episode)
                        continue
                    trajectory = episode.trajectory(policy.policy_id, sampling)
                    if trajectory.error:
                        warnings.warn(f"rollout of {episode.start.task_id} failed: {trajectory.error}", stacklevel=2)
                    yield episode.index, trajectory
                    bar.advance()
                    if trajectory.error:  # an instance that has failed is not trusted again
                        episode.env.close()
                        envs[envs.index(episode.env)] = episode.env = make_env()
                    fresh = _begin(waiting, episode.env, prompter, with_reference, group_keys)
                    following += [] if fresh is None else [fresh]
                episodes = following
    finally:
        for env in envs:
            env.close()


def _begin(
    waiting: Iterator[tuple[int, Start]],
    env: AgentEnv,
    prompter: Prompter,
    with_reference: bool,
    group_keys: dict[str, tuple[bytes, str]],
) -> _Episode | None:
    """Start the next waiting rollout and check that its group starts in one state."""
    index, start = next(waiting, (None, None))
    if index is None or start is None:
        return None
    episode = _Episode(index, start, env, prompter, with_reference)
    try:
        episode.reset()
    except Exception as error:  # whatever an environment raises is that rollout's failure
        episode.fail(error)
        return episode
    found = (episode.info["state_key"], start.task_id)
    expected = group_keys.setdefault(start.group_id, found)
    if expected != found:
        keys = f"{expected[1]} with key {expected[0]!r}, {found[1]} with key {found[0]!r}"
        what = f"group members start in different states: {keys}"
        mend = "reset(options={'task': id}) must give one state, see check_env"
        raise EnvironmentContractError(what, where=f"group {start.group_id}", mend=mend)
    return episode


def _play_turn(policy: Policy, episodes: list[_Episode], sampling: Sampling) -> None:
    """Generate one response for each episode and step its environment."""
    for episode in episodes:
        if len(episode.request().prompt_ids) + sampling.max_new_tokens > policy.max_length:
            episode.state = "truncated"
    playing = [episode for episode in episodes if episode.state is None]
    began = time.perf_counter()
    responses = _generate(policy, [episode.request() for episode in playing], sampling)
    seconds = (time.perf_counter() - began) / max(len(playing), 1)
    for episode, response in zip(playing, responses, strict=True):
        episode.timings["generate"] += seconds
        try:
            if isinstance(response, Exception):
                raise response
            if response is None:
                episode.state = "truncated"
            else:
                episode.advance(response)
        except Exception as error:  # as above
            episode.fail(error)


def _generate(policy: Policy, requests: list[Request], sampling: Sampling) -> Sequence[Response | Exception | None]:
    """Generate for all requests at once; if that fails, one by one, so that one bad request fails alone."""
    try:
        return policy.generate(requests, sampling)
    except ModelError:  # nothing that another request could mend
        raise
    except Exception as error:
        warnings.warn(f"generation of {len(requests)} responses failed ({error}); trying one by one", stacklevel=2)
    answers: list[Response | Exception | None] = []
    for request in requests:
        try:
            answers += policy.generate([request], sampling)
        except Exception as error:  # handed to the rollout it belongs to
            answers.append(error)
    return answers
