"""One rollout under way: what was said, what the environment answered, and the trajectory that comes of it."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field

from agentbench_credit.env import AgentEnv, Info
from agentbench_credit.errors import EnvironmentContractError
from agentbench_credit.policy.base import Request, Response, Sampling
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
class Episode:
    """A rollout under way."""

    index: int
    start: Start
    env: AgentEnv
    prompter: Prompter
    with_reference: bool
    observation: str = ""
    info: Info = field(default_factory=dict)
    reference: str | None = None
    _remaining: str | None = None
    prompt_ids: Ids | None = None
    teacher_prompt_ids: Ids | None = None
    turns: list[Turn] = field(default_factory=list)
    state: State | None = None
    error: str | None = None
    timings: dict[str, float] = field(default_factory=lambda: {"generate": 0.0, "environment": 0.0})

    def reset(self) -> None:
        """Start the task, or go to where the rollout starts."""
        began = time.perf_counter()
        if self.start.snapshot is None:
            self.observation, self.info = self.env.reset(options={"task": self.start.task_id})
            self.reference = self.env.reference()
        else:
            self.observation, self.info = self.env.restore(self.start.snapshot)
        self._look()
        self.timings["environment"] += time.perf_counter() - began

    def _look(self) -> None:
        """Ask the environment for the ground truth of the current state, if the teacher needs it."""
        self._remaining = self.env.reference() if self.with_reference else None

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
        """Render the next prompt, and the teacher's if the ground truth has something to say."""
        self.prompt_ids = self._prompt(None)
        self.teacher_prompt_ids = None if self._remaining is None else self._prompt(self._remaining)
        return Request(
            self.prompt_ids,
            self.start.seed + (len(self.turns) << 64),
            self.env,
            lambda: self.prompter.messages(*self._said()),
            self.info["admissible_actions"],
            continues=self.prompter.mode == "conversation",
        )

    def read(self, response: Response) -> str:
        """Return a response as text."""
        return str(self.prompter.tokenizer.decode(response.ids, skip_special_tokens=True))

    def act(self, response: Response, text: str) -> None:
        """Step the environment by a response's action, and record the turn."""
        assert self.prompt_ids is not None, "request first"
        action = parse_action(text)
        before, observed = self.info, self.observation
        began = time.perf_counter()
        self.observation, reward, terminated, truncated, self.info = self.env.step(action)
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
            self._look()
        self.timings["environment"] += time.perf_counter() - began

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
