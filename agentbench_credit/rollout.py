"""Environments × policy → groups of trajectories."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from agentbench_credit.command import progress
from agentbench_credit.env import AgentEnv
from agentbench_credit.episode import Episode, Start
from agentbench_credit.errors import EnvironmentContractError
from agentbench_credit.policy.base import Answer, Policy, Request, Response, Sampling, Stream
from agentbench_credit.policy.prompts import Prompter
from agentbench_credit.trajectory import Trajectory

__all__ = ["Start", "Timing", "play", "rollout"]

ENVIRONMENT_THREADS = 4
"""Environments that step at once, while the policy generates."""


@dataclass
class Timing:
    """Where the wall time of rollouts goes, in seconds."""

    total: float = 0.0
    """All of it."""
    generate: float = 0.0
    """The policy at work."""
    wait: float = 0.0
    """Waiting for environments; what is left of the total goes to prompts, parsing and records."""
    environment: float = 0.0
    """Environments at work, most of it while the policy generates."""
    _shared: float = 0.0

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Time a block as the total."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.total += time.perf_counter() - began

    def ask(self, episode: Episode) -> None:
        """Note that an episode's request is under way."""
        episode.timings["generate"] -= self._shared

    def collect(self, stream: Stream, asked: Sequence[Episode]) -> list[Answer]:
        """Let the policy work; what it takes is shared by the episodes whose requests are under way."""
        began = time.perf_counter()
        answers = stream.collect()
        seconds = time.perf_counter() - began
        self.generate += seconds
        self._shared += seconds / len(asked)
        return answers

    def answered(self, episode: Episode) -> None:
        """Note that an episode's request is answered."""
        episode.timings["generate"] += self._shared

    def join(self, episode: Episode, work: Future[None]) -> None:
        """Wait for an environment; whatever it raises is that rollout's failure."""
        before, began = episode.timings["environment"], time.perf_counter()
        try:
            work.result()
        except Exception as error:
            episode.fail(error)
        self.wait += time.perf_counter() - began
        self.environment += episode.timings["environment"] - before

    def __str__(self) -> str:
        """Return shares of the total, such as ``generate 82 %, wait 1 %, prompts and parsing 17 %``."""
        rest = self.total - self.generate - self.wait
        parts = {"generate": self.generate, "wait for environments": self.wait, "prompts and parsing": rest}
        shares = (f"{name} {100 * seconds / (self.total or 1.0):.0f} %" for name, seconds in parts.items())
        return f"{', '.join(shares)}; environments worked {self.environment:.1f} s beside it"


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
    timing: Timing | None = None,
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
        timing: Counts where the time goes.
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
        timing=timing,
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
    timing: Timing | None = None,
    label: str = "rollout",
) -> Generator[tuple[int, Trajectory]]:
    """Play every start to its end; no episode waits for the others of its turn.

    Environments step in threads while the policy answers others. What an environment says is taken up after the answers
    that follow its step, however fast it was: so the order of events, and with it every rounding, is the same each
    time, if the policy's answers come in a fixed order.

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
        timing: Counts where the time goes.
        label: Text of the progress bar.

    Yields:
        A start's index and its trajectory, in the order in which rollouts finish; none is kept here.

    Raises:
        EnvironmentContractError: Members of a group start in different states, or an environment has no spec.
        ModelError: The policy's model is broken.
    """
    timing = timing or Timing()
    waiting = iter(enumerate(starts))
    envs = [make_env() for _ in range(min(parallel, len(starts)))]
    loop = _Loop(waiting, prompter, with_reference)
    pool = ThreadPoolExecutor(ENVIRONMENT_THREADS, thread_name_prefix="environment")
    try:
        with progress(label, len(starts)) as bar, closing(policy.stream(sampling)) as stream, pool, timing.whole():
            work = [(episode, pool.submit(episode.reset)) for episode in map(loop.begin, envs) if episode is not None]
            asked: dict[int, Episode] = {}
            while work or asked:
                answers = timing.collect(stream, list(asked.values())) if asked else []
                done: list[tuple[Episode, Future[None] | None]] = [*work]
                work = []
                for request, answer in answers:
                    episode = asked.pop(id(request))
                    timing.answered(episode)
                    if isinstance(answer, Response):
                        work.append((episode, pool.submit(episode.act, answer, episode.read(answer))))
                        continue
                    if isinstance(answer, Exception):
                        episode.fail(answer)
                    else:
                        episode.state = "truncated"
                    done.append((episode, None))
                for episode, future in done:
                    if future is not None:
                        timing.join(episode, future)
                        loop.check_start(episode)
                    following = loop.next_request(episode, policy, sampling) if episode.state is None else None
                    if following is not None:
                        asked[id(following)] = episode
                        timing.ask(episode)
                        stream.add(following)
                        continue
                    trajectory = episode.trajectory(policy.policy_id, sampling)
                    if trajectory.error:
                        warnings.warn(f"rollout of {episode.start.task_id} failed: {trajectory.error}", stacklevel=2)
                    yield episode.index, trajectory
                    bar.advance()
                    if trajectory.error:  # an instance that has failed is not trusted again
                        episode.env.close()
                        envs[envs.index(episode.env)] = episode.env = make_env()
                    fresh = loop.begin(episode.env)
                    if fresh is not None:
                        work.append((fresh, pool.submit(fresh.reset)))
    finally:
        for env in envs:
            env.close()


@dataclass(eq=False)
class _Loop:
    """The rollouts that have not begun, and what each group begins with."""

    waiting: Iterator[tuple[int, Start]]
    prompter: Prompter
    with_reference: bool
    group_keys: dict[str, tuple[bytes, str]] = field(default_factory=dict)

    def begin(self, env: AgentEnv) -> Episode | None:
        """Return the next rollout that waits, None if there is none."""
        index, start = next(self.waiting, (None, None))
        if index is None or start is None:
            return None
        return Episode(index, start, env, self.prompter, self.with_reference)

    def check_start(self, episode: Episode) -> None:
        """Make sure that a rollout that has just been reset starts where its group does."""
        if episode.turns or episode.state is not None:
            return
        start, found = episode.start, (episode.info["state_key"], episode.start.task_id)
        expected = self.group_keys.setdefault(start.group_id, found)
        if expected != found:
            keys = f"{expected[1]} with key {expected[0]!r}, {found[1]} with key {found[0]!r}"
            what = f"group members start in different states: {keys}"
            mend = "reset(options={'task': id}) must give one state, see check_env"
            raise EnvironmentContractError(what, where=f"group {start.group_id}", mend=mend)

    def next_request(self, episode: Episode, policy: Policy, sampling: Sampling) -> Request | None:
        """Return a rollout's next request; None, and the rollout's end, where there is no room or no prompt."""
        try:
            request = episode.request()
        except Exception as error:  # a template may refuse what an environment says
            episode.fail(error)
            return None
        if len(request.prompt_ids) + sampling.max_new_tokens > policy.max_length:
            episode.state = "truncated"
            return None
        return request
