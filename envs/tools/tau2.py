"""τ²-bench retail and airline: an agent serves a user by an airline's or a shop's rules (arXiv:2506.07982)."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from typing import Any

from agentbench_credit.envs.tools.host import Call, View, tool_responses
from agentbench_credit.envs.tools.tau2_domain import Domain, database_hash
from agentbench_credit.envs.tools.tau2_user import ModelUser, Said, ScriptedUser, User, stops
from agentbench_credit.errors import ConfigError, EnvironmentContractError

USER_VARIABLE = "AGENTBENCH_TAU2_USER"
"""Environment variable that says who the user is: ``scripted`` (the default) or ``openai:URL#model``."""
KEY_VARIABLE = "AGENTBENCH_TAU2_KEY"
"""Environment variable with the key for that URL."""
TURNS = 100
"""The turn of the agent with which the benchmark's limit of 200 steps is reached; the conversation has failed then."""
ERRORS = 10
"""Errors of tools with which it has failed, as in the benchmark; calls that were not understood count here too."""
GREETING = "Hi! How can I help you today?"
"""What the agent is taken to have said first, as in the benchmark."""
FAREWELL = "All of that is done. Thank you for calling."
"""What the gold policy says until the user stops."""

_SCORED_BY = {"DB", "COMMUNICATE"}
_SILENCE = "Error: say something to the user or call a tool."
_domain = cache(Domain)


def retail() -> Tau2Host:
    """Return the host of the shop's conversations."""
    return Tau2Host("retail", os.environ.get(USER_VARIABLE, "scripted"))


def airline() -> Tau2Host:
    """Return the host of the airline's conversations."""
    return Tau2Host("airline", os.environ.get(USER_VARIABLE, "scripted"))


class Tau2Host:
    """The host of a domain; see `agentbench_credit.envs.tools.host.Host`.

    The package's own environment runs the tools. A conversation ends when the user says so; then it is scored as the
    benchmark does: the database's hash must equal the hash after the gold actions, and the agent's texts must contain
    the required information. The benchmark's third judge, a language model that checks assertions, belongs to no task's
    reward in these domains and is not asked; ``nl_assertions_not_evaluated`` counts what it would have been asked.
    The state key holds database, told pieces and number of the user's messages, and told information, but not how near
    the limits `TURNS` and `ERRORS` are.

    Args:
        domain: ``"retail"`` or ``"airline"``.
        user: ``"scripted"``, see `ScriptedUser` and what it cannot do, or ``"openai:URL#model"``.

    Raises:
        ConfigError: There is no such user.
        DataSetError: The package cannot be had.
    """

    def __init__(self, domain: str, user: str = "scripted") -> None:
        self._openai = user.removeprefix("openai:") if user.startswith("openai:") else ""
        if not self._openai and user != "scripted":
            raise ConfigError(f"no user {user!r}", where=USER_VARIABLE, mend="known: scripted, openai:URL#model")
        self._domain = _domain(domain)
        self._talk: _Talk | None = None

    def system(self) -> str:
        """Return the benchmark's instruction and the domain's policy."""
        return self._domain.system

    def start(self, task: str) -> View:
        """Begin a task; the observation is the user's first message."""
        talk = self._begin(task)
        talk.play({"reply": talk.user.reply(talk.said)})
        self._talk = talk
        return self._view(talk)

    def act(self, calls: list[Call], text: str) -> View:
        """Execute calls, or say the text to the user, who answers.

        Args:
            calls: To execute in order.
            text: Said to the user if there are no calls. Beside calls it counts as said only for the required
                information, as in the benchmark.

        Returns:
            The results or the user's answer.

        Raises:
            ModelError: The user's model gives no answer; nothing has happened then.
        """
        return self._take({"calls": calls, "text": text})

    def invalid(self, message: str) -> View:
        """Take note of a turn whose calls could not be understood: one more error, and nothing else."""
        return self._take({"invalid": message})

    def gold(self) -> list[Call] | str | None:
        """Return the next gold action, then the required information, then farewells until the user stops."""
        return next(iter(self.reference()), None)

    def reference(self) -> list[list[Call] | str]:
        """Return the gold actions that are left to do, one a turn, the required information, and a farewell.

        Nothing is left where the conversation is over, or the database was changed otherwise.
        """
        talk = self._current()
        if talk.strayed or talk.ended:
            return []
        left: list[list[Call] | str] = [[call] for call in talk.pending]
        if missing := [info for info in talk.required if info not in talk.told]:
            left.append(f"This is what you asked for: {'; '.join(missing)}.")
        return [*left, FAREWELL]

    def snapshot(self) -> str:
        """Return the task and all turns, from which the state follows."""
        talk = self._current()
        return json.dumps({"task": talk.task, "turns": talk.turns})

    def restore(self, snapshot: str) -> View:
        """Go back to a state by playing it again; the user's replies are those of the snapshot."""
        saved = json.loads(snapshot)
        talk = self._begin(saved["task"])
        for turn in saved["turns"]:
            talk.play(turn)
        self._talk = talk
        return self._view(talk)

    def _begin(self, task: str) -> _Talk:
        read = json.loads(task)
        bases = set(read["evaluation_criteria"].get("reward_basis") or _SCORED_BY)
        if bases - _SCORED_BY or read.get("initial_state"):
            what = f"task {read['id']} has an initial state or is scored by {', '.join(sorted(bases))}"
            raise EnvironmentContractError(what, mend="take a task of retail or airline")
        user: User = ScriptedUser(read["user_scenario"])
        if self._openai:
            user = ModelUser(self._openai, self._domain.user_prompt(read), os.environ.get(KEY_VARIABLE, ""))
        return _Talk(self._domain, task, user)

    def _current(self) -> _Talk:
        if self._talk is None:
            raise EnvironmentContractError("no conversation is going on", mend="start a task first")
        return self._talk

    def _take(self, turn: dict[str, Any]) -> View:
        talk = self._current()
        if talk.ended:
            return self._view(talk)
        if turn.get("text", "").strip() and not turn["calls"] and not talk.is_last_turn:
            turn["reply"] = talk.user.reply([*talk.said, {"role": "assistant", "content": turn["text"]}])
        talk.play(turn)
        return self._view(talk, reward=float(bool(talk.ended) and all(talk.checks().values())))

    def _view(self, talk: _Talk, reward: float = 0.0) -> View:
        checks = talk.checks() if talk.ended else {}
        scores = {name: float(passed) for name, passed in checks.items()}
        if talk.ended:
            scores |= {"nl_assertions_not_evaluated": float(len(talk.goal.get("nl_assertions") or []))}
        state = [talk.task, talk.hash, talk.user.memory(talk.said), sorted(talk.told), talk.ended]
        return {
            "observation": talk.observation,
            "tools": self._domain.tools,
            "state_key": hashlib.sha256(json.dumps(state).encode()).hexdigest(),
            "reward": reward,
            "terminated": bool(talk.ended),
            "success": bool(talk.ended) and all(checks.values()),
            "scores": scores,
        }


class _Talk:
    """One conversation; all of it follows from its task and turns."""

    def __init__(self, domain: Domain, task: str, user: User) -> None:
        self.task, self.user, self._domain = task, user, domain
        self.goal: dict[str, Any] = json.loads(task)["evaluation_criteria"]
        self._actions: list[Call] = [
            {"name": each["name"], "arguments": each["arguments"]} for each in self.goal.get("actions") or []
        ]
        self.pending = list(self._actions)  # gold actions left to do
        self.required: list[str] = self.goal.get("communicate_info") or []
        self.told: set[str] = set()  # what of it the agent wrote
        self.said: list[Said] = [{"role": "assistant", "content": GREETING}]
        self.turns: list[dict[str, Any]] = []  # the first is the user's alone
        self.strayed = False  # the agent changed what is not to be changed next
        self.ended = ""
        self.observation = ""
        self._errors = 0
        self._environment = domain.environment()
        self._hash = domain.pristine_hash

    @property
    def hash(self) -> str:
        """The hash of the database."""
        if not self._hash:
            self._hash = database_hash(self._environment)
        return self._hash

    @property
    def is_last_turn(self) -> bool:
        """Whether the agent's next turn is its last; the user does not answer it any more."""
        return len(self.turns) >= TURNS

    def checks(self) -> dict[str, bool]:
        """Return what the benchmark's judges say of the ended conversation."""
        return {
            "completed": self.ended == "user",
            "database": self.ended == "user" and self.hash == self._domain.gold_hash(self._actions),
            "communicate": self.ended == "user" and self.told >= set(self.required),
        }

    def play(self, turn: dict[str, Any]) -> None:
        """Let a turn happen whose reply, if it has one, is known."""
        self.turns.append(turn)
        calls, text = turn.get("calls", []), turn.get("text", "")
        plain = text.lower().replace(",", "")
        self.told |= {info for info in self.required if info.lower() in plain}
        if calls:
            self.observation = tool_responses([self._run(call) for call in calls])
        elif text.strip():
            self.said.append({"role": "assistant", "content": text})
        elif "reply" not in turn:
            self._errors += 1
            self.observation = turn.get("invalid", _SILENCE)
        if "reply" in turn:
            self.said.append({"role": "user", "content": turn["reply"]})
            self.observation = turn["reply"]
            self.ended = "user" if stops(turn["reply"]) else ""
        if not self.ended and (len(self.turns) > TURNS or self._errors >= ERRORS):
            self.ended = "limit"

    def _run(self, call: Call) -> str:
        result, failed = self._domain.run(self._environment, call["name"], call["arguments"])
        self._errors += failed
        writes = call["name"] in self._domain.writing
        if writes:
            self._hash = ""
        if call in self.pending:
            self.pending.remove(call)
        elif writes and not failed:
            self.strayed = True
        return result
