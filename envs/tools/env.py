"""Tool-use benchmarks as text environments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import gymnasium
from gymnasium import spaces

from agentbench_credit import errors
from agentbench_credit.env import Info, Panel, Task, chosen_task
from agentbench_credit.envs.tools.host import Call, View
from agentbench_credit.envs.tools.panels import load_panel
from agentbench_credit.envs.tools.presets import find_preset
from agentbench_credit.errors import EnvironmentContractError
from agentbench_credit.policy.tool_calls import LONGEST, STYLES, Style, describe_tools, format_calls, parse_tool_calls
from agentbench_credit.service import Service, ServiceCallError, ServiceDiedError

if TYPE_CHECKING:
    from agentbench_credit.trajectory import FinishReason

LONGEST_OBSERVATION = 10_000_000
"""Characters that an observation may have, as its space says."""
START_SECONDS = 120.0
"""Deadline of what is not the policy's fault: starting a process and a task, going back to a state."""
USER_VARIABLE = "AGENTBENCH_TAU2_USER"
"""What tells a host's process who plays the user."""

_ASCII = "".join(map(chr, [9, 10, *range(32, 127)]))


@dataclass(frozen=True)
class Snapshot:
    """The exact state of a conversation; the generator that draws tasks is not part of it."""

    task_id: str
    """The task that is played."""
    host: str
    """The benchmark's part."""
    turn: int
    """Turns taken."""
    observation: str
    """The last observation."""
    valid: bool
    """Whether the last action was executed."""
    truncated: bool
    """Whether the turn limit ended the conversation."""
    errors: tuple[tuple[str, int], ...]
    """How often each cause kept calls from being executed."""


class ToolsEnv(gymnasium.Env[str, str]):
    """Serve a user by calling tools.

    The observation is what the user says, or the results of calls. An action is a text with calls in the format of
    `style`, which are executed in order, or a text without calls, which is said to the user. Calls that cannot be
    understood are answered with the reason, change nothing, and are counted by cause in ``info["call_errors"]``. The
    reward is the benchmark's, at the end; after it, `step` returns the last observation with reward 0.

    The benchmark's code runs in a process of its own. Calls that it does not answer in time, or that end it twice, are
    answered as such (causes ``timeout`` and ``crash``), and the conversation goes on from the state before them.

    Args:
        preset: Names the benchmark; see `presets.PRESETS`.
        split: ``"test"``.
        style: Format of calls: ``"hermes"``, ``"python"`` or ``"openai"``.
        user: Who plays the user where the benchmark has one: ``"scripted"``, or ``"openai:URL#model"``, an
            OpenAI-compatible server.
        panel: Tasks to play instead of the preset's.
        max_turns: Turn limit instead of the preset's.

    Raises:
        EnvironmentContractError: An argument has a value that is not offered.
    """

    def __init__(
        self,
        preset: str = "bfcl-multi-turn",
        split: str = "test",
        style: Style = "hermes",
        user: str = "scripted",
        panel: Panel | None = None,
        max_turns: int | None = None,
    ) -> None:
        self._settings = find_preset(preset)
        if style not in STYLES:
            raise EnvironmentContractError(f"no style {style!r}", mend=f"known: {', '.join(STYLES)}")
        if user != "scripted" and not (self._settings.has_user and user.startswith("openai:")):
            mend = "give scripted or openai:URL#model" if self._settings.has_user else "leave the argument user out"
            raise EnvironmentContractError(f"no user {user!r} in {preset}", mend=mend)
        if max_turns is not None and max_turns < 1:
            raise EnvironmentContractError(f"max_turns is {max_turns}", mend="give at least 1")
        self.panel = load_panel(preset, split) if panel is None else panel
        self.style = style
        self.max_turns = self._settings.turns if max_turns is None else max_turns
        told = "".join(sorted({*_ASCII, *"".join(task.data for task in self.panel)}))
        self.observation_space = spaces.Text(LONGEST_OBSERVATION, charset=told)
        self.action_space = spaces.Text(LONGEST, charset=_ASCII)
        variables = {USER_VARIABLE: user} if self._settings.has_user else {}
        self._service = Service(self._settings.host, variables=variables)
        self._task: Task | None = None
        self._view: View | None = None
        self._system, self._observation, self._turn = "", "", 0
        self._valid, self._truncated = True, False
        self._errors: Counter[str] = Counter()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Start a task.

        Args:
            seed: Seeds the generator that draws tasks.
            options: ``{"task": id}`` names the task; without it one is drawn from the panel.

        Returns:
            Observation and info.

        Raises:
            EnvironmentContractError: Unknown task or option.
            ServiceDiedError: The benchmark's process cannot be started.
        """
        super().reset(seed=seed)
        task = chosen_task(self.panel, options, lambda: self.np_random)
        return self._set(task, lambda: self._ask("start", task.data), turn=0)

    def step(self, action: str, finish_reason: FinishReason = "stop") -> tuple[str, float, bool, bool, Info]:
        """Act.

        Args:
            action: Calls in the format of the environment's style, or a text for the user; nothing is raised about it.
            finish_reason: ``"length"`` if the text was cut off by a limit; nothing of it is executed then.

        Returns:
            Observation, reward, terminated (the conversation ended), truncated (turn limit), info.

        Raises:
            ServiceDiedError: The benchmark's process was lost, and could not be brought back.
            ServiceCallError: What plays the user cannot be reached.
        """
        view = self._require_task()
        if view["terminated"] or self._truncated:
            self._valid = False
            return self._observation, 0.0, view["terminated"], self._truncated, self._info()
        self._turn += 1
        accepted = view.get("accepts", view["tools"])
        parsed = parse_tool_calls(action, accepted, style=self.style, finish_reason=finish_reason)
        if parsed.error is None:
            self._act(list(parsed.calls), parsed.text)
        else:
            self._refuse(parsed.error.cause, parsed.error.message)
        view = self._require_task()
        self._truncated = self._turn >= self.max_turns and not view["terminated"]
        return self._observation, float(view["reward"]), view["terminated"], self._truncated, self._info()

    def _act(self, calls: list[Call], text: str) -> None:
        """Let the host act; where it does not come back, go back to the state before and say so."""
        before = self._ask("snapshot")
        for is_last in (False, True):  # a process may end for reasons that are not the policy's
            try:
                view = self._service.call("act", calls, text, seconds=self._settings.seconds)
            except ServiceDiedError as error:
                cause, why = ("timeout", "took too long") if "no answer" in error.what else ("crash", "broke off")
            except ServiceCallError as error:
                if error.kind in vars(errors):  # such as a model that plays the user and cannot be reached
                    raise
                cause, why = "crash", f"failed ({error.kind})"
            else:
                self._see(view, valid=True)
                return
            self._ask("restore", before)
            if is_last or cause == "timeout":
                break
        self._refuse(cause, f"What you asked for {why} and was undone. Try something else.")

    def _refuse(self, cause: str, message: str) -> None:
        self._errors[cause] += 1
        self._see(self._ask("invalid", f"Error: {message}"), valid=False)

    def _ask(self, method: str, *arguments: Any) -> Any:
        return self._service.call(method, *arguments, seconds=START_SECONDS)

    def _see(self, view: View, *, valid: bool) -> None:
        self._view, self._valid = view, valid
        # Tools may return halves of characters, which no tokenizer takes.
        self._observation = view["observation"].encode("utf-8", "replace").decode()[:LONGEST_OBSERVATION]

    def _set(self, task: Task, view: Callable[[], View], *, turn: int) -> tuple[str, Info]:
        self._task, self._turn, self._truncated = task, turn, False
        self._errors = Counter()
        self._see(view(), valid=True)
        self._system = cast(str, self._ask("system"))
        return self._observation, self._info()

    def _info(self) -> Info:
        view = self._require_task()
        assert self._task is not None
        tools = describe_tools(view["tools"], self.style)
        by_cause = {f"call_errors.{cause}": float(count) for cause, count in self._errors.items()}
        return {
            "state_key": bytes.fromhex(view["state_key"]),
            "admissible_actions": None,
            "action_valid": self._valid,
            "task_id": self._task.id,
            "instruction": f"{self._system}\n\n{tools}" if self._system else tools,
            "success": view["success"],
            "turn": self._turn,
            "system": self._system,
            "tools": view["tools"],
            "call_errors": dict(self._errors),
            "scores": view["scores"],
            "metrics": {**view["scores"], "call_errors": float(self._errors.total()), **by_cause},
        }

    def reference(self) -> str | None:
        """Return the gold actions that are left, one after the other.

        Returns:
            The actions, None if the conversation is over or they do not lead to success any more.
        """
        view = self._require_task()
        if view["terminated"] or self._truncated:
            return None
        return "\n".join(map(self._written, self._ask("reference"))) or None

    def expert_action(self) -> str | None:
        """Return the next gold action, None where there is none."""
        view = self._require_task()
        gold = None if view["terminated"] or self._truncated else self._ask("gold")
        return None if gold is None else self._written(gold)

    def _written(self, gold: Any) -> str:
        if isinstance(gold, str):
            return gold
        return format_calls(gold if isinstance(gold, list) else [gold], self.style)

    def snapshot(self) -> Snapshot:
        """Return the exact state of the conversation."""
        self._require_task()
        assert self._task is not None
        counted = tuple(sorted(self._errors.items()))
        host = self._ask("snapshot")
        return Snapshot(self._task.id, host, self._turn, self._observation, self._valid, self._truncated, counted)

    def restore(self, snapshot: object) -> tuple[str, Info]:
        """Go back to a state.

        Args:
            snapshot: What `snapshot` returned, here or in another instance with the same panel.

        Returns:
            The observation and info that the state had.

        Raises:
            EnvironmentContractError: Not a snapshot of this environment, or of a task that the panel lacks.
        """
        if not isinstance(snapshot, Snapshot):
            raise EnvironmentContractError(f"cannot restore a {type(snapshot).__name__}", mend="give a Snapshot")
        task = self.panel[snapshot.task_id]
        self._set(task, lambda: self._ask("restore", snapshot.host), turn=snapshot.turn)
        self._observation, self._valid, self._truncated = snapshot.observation, snapshot.valid, snapshot.truncated
        self._errors = Counter(dict(snapshot.errors))
        return self._observation, self._info()

    def close(self) -> None:
        """Give the process back; the next conversation may have it."""
        self._service.close()
        self._view = None
        super().close()

    def _require_task(self) -> View:
        if self._view is None:
            raise EnvironmentContractError("no task has been started", mend="call reset() first")
        return self._view
