"""Values by fresh rollouts: exact for sure policies, close for random ones, from the state and prompt of each turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from agentbench_credit.batch import CreditBatch
from agentbench_credit.branching import BranchedValues, rollout_values
from agentbench_credit.credit.vineppo import vineppo
from agentbench_credit.env import AgentEnv, Info, Panel, Task
from agentbench_credit.envs.sokoban import ENVIRONMENT as SOKOBAN
from agentbench_credit.errors import AgentBenchError, ConfigError, EnvironmentContractError
from agentbench_credit.policy.base import Policy, Request, Sampling
from agentbench_credit.policy.prompts import Prompter
from agentbench_credit.policy.scripted import ScriptedPolicy, random_action
from agentbench_credit.policy.transformers import TransformersPolicy
from agentbench_credit.rollout import Start, rollout
from agentbench_credit.trainer import RewardRule
from agentbench_credit.trajectory import Trajectory
from models import small_model, small_tokenizer
from toy_env import ENVIRONMENT as CORRIDOR
from toy_env import TURNS, Corridor

TOKENIZER = small_tokenizer()
MODES = [Prompter(TOKENIZER), Prompter(TOKENIZER, history=2), Prompter(TOKENIZER, "conversation")]
Script = Callable[[Request], str]


def scripted(script: Script) -> ScriptedPolicy:
    return ScriptedPolicy(script, TOKENIZER, "scripted")


def corridor(**changes: Any) -> Callable[[], AgentEnv]:
    """Make corridors, with attributes set on each."""

    def make() -> AgentEnv:
        env = CORRIDOR.make()
        for name, value in changes.items():
            setattr(env, name, value)
        return env

    return make


def played(
    script: Script | Policy,
    tasks: Sequence[str],
    make: Callable[[], AgentEnv] | None = None,
    prompter: Prompter = MODES[0],
) -> list[Trajectory]:
    """One rollout a task; those of one task are a group."""
    policy = scripted(script) if callable(script) else script
    starts = [Start(task, task, seed) for seed, task in enumerate(tasks)]
    return rollout(policy, make or corridor(), starts, prompter=prompter, sampling=Sampling(max_new_tokens=4))


def branched(
    script: Script | Policy,
    trajectories: Sequence[Trajectory],
    make: Callable[[], AgentEnv] | None = None,
    prompter: Prompter = MODES[0],
    **kwargs: Any,
) -> BranchedValues:
    policy = scripted(script) if callable(script) else script
    options = {"seed": 0, "sampling": Sampling(max_new_tokens=4)} | kwargs
    return rollout_values(policy, make or corridor(), trajectories, prompter=prompter, **options)


def expert(request: Request) -> str:
    return request.env.expert_action() or "up"


def then_expert(*actions: str) -> Script:
    """The actions, then the expert's."""
    return lambda request: [*actions, expert(request)][min(request.seed >> 64, len(actions))]


@pytest.mark.parametrize("prompter", MODES)
def test_a_sure_policy_has_exact_values_in_sokoban(prompter: Prompter) -> None:
    """From any state on the way, also after a refused action, the policy's own return from there is the value."""
    tasks = [task.id for task in SOKOBAN.load_panel("6x6-1box", "train")][:4]
    make = lambda: SOKOBAN.make(preset="6x6-1box")  # noqa: E731
    trajectories = played(then_expert("up", "jump", "left", "left"), tasks, make, prompter)
    found = branched(expert, trajectories, make, prompter, rollouts=3, parallel=5)
    expected, env = [], make()
    for trajectory in trajectories:
        for t in range(len(trajectory.turns)):
            env.reset(options={"task": trajectory.task_id})
            over, value = False, 0.0
            for turn in trajectory.turns[:t]:
                env.step(turn.action)
            while not over:
                _, reward, ended, cut, _ = env.step(env.expert_action() or "up")
                over, value = ended or cut, value + reward
            expected.append(value)
    assert len(expected) > 20
    assert len({round(value, 9) for value in expected}) > 5
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-12)
    batch = CreditBatch.from_trajectories(trajectories, signals={"rollout_values": found.values})
    credit = vineppo(batch).values
    sure = np.array([turn.action == "up" or t >= 4 for x in trajectories for t, turn in enumerate(x.turns)])
    after = sure & (np.concatenate([np.arange(len(x.turns)) for x in trajectories]) >= 4)
    assert not credit[after].any(), "what the policy would have done anyway earns nothing"
    assert credit[~after].any()


@cache
def win_chance(place: int, door: int, turns_left: int) -> float:
    """Chance of a random walk to reach the door in time; at the ends of the line it leaves the line."""
    if place == door:
        return 1.0
    return turns_left and sum(win_chance(place + step, door, turns_left - 1) for step in (-1, 1)) / 2


def test_a_random_policy_has_its_value_within_the_error_of_a_mean() -> None:
    rollouts, wins = 40, lambda request: expert(request) if request.seed >> 64 < 4 else random_action(request)
    trajectories = played(wins, ["train-0", "train-3"])
    found = branched(random_action, trajectories, rollouts=rollouts, seed=3).values
    states = [turn.state_key.split() for trajectory in trajectories for turn in trajectory.turns]
    left = [TURNS - t for trajectory in trajectories for t in range(len(trajectory.turns))]
    exact = np.array([win_chance(int(place), int(door), n) for (place, door), n in zip(states, left, strict=True)])
    assert np.ptp(exact) > 0.3
    errors = np.sqrt(exact * (1 - exact) / rollouts)
    assert (np.abs(found - exact) <= 4 * errors + 1e-12).all()
    assert abs((found - exact).sum()) <= 4 * np.sqrt((errors**2).sum())
    assert np.abs(found - exact).max() > 0, "a mean of 40 draws is not the expectation"


@pytest.mark.parametrize("prompter", MODES)
def test_fresh_rollouts_see_what_the_policy_saw(prompter: Prompter) -> None:
    trajectories = played(random_action, ["train-0", "train-1"], prompter=prompter)
    seen: list[bytes] = []

    def script(request: Request) -> str:
        if request.seed >> 64 == 0:
            seen.append(request.prompt_ids.tobytes())
        return "left"

    found = branched(script, trajectories, prompter=prompter, rollouts=2)
    prompts = {turn.prompt_ids.tobytes() for trajectory in trajectories for turn in trajectory.turns}
    assert set(seen) == prompts
    assert len(seen) == found.costs["branch_rollouts"] == 2 * found.costs["branch_states"]
    other = MODES[MODES.index(prompter) - 1]
    with pytest.raises(ConfigError, match="another prompt"):
        branched(script, trajectories, prompter=other, rollouts=1)


def test_a_model_plays_on_from_its_own_tokens() -> None:
    policy = TransformersPolicy(small_model(), TOKENIZER, "small")
    policy.max_length = 4096
    prompter = MODES[2]
    trajectories = played(policy, ["train-0"], prompter=prompter)
    trajectories = [replace(each, turns=each.turns[:3], state="truncated") for each in trajectories]
    found = branched(policy, trajectories, prompter=prompter, rollouts=2, invalid_action_penalty=-0.5)
    assert found.values.tolist() == [-6.0, -5.5, -5.0], "an untrained model says nothing that is understood"
    assert found.costs["branch_tokens"] > found.costs["branch_turns"] == 2 * (12 + 11 + 10)


def test_turns_in_one_state_share_their_rollouts() -> None:
    trajectories = played(then_expert("left", "right"), ["train-0"] * 2)
    trajectories += played(then_expert("right", "left"), ["train-0"])
    assert [t.turns[2].state_key for t in trajectories] == [trajectories[0].turns[0].state_key] * 3
    found = branched(random_action, trajectories, rollouts=5)
    n = len(trajectories[0].turns)
    first, second, third = found.values.reshape(3, n)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(np.delete(first, 1), np.delete(third, 1))
    # The first turn, two different second ones, and the rest: the third turn's state is the first's, two turns later.
    assert found.costs["branch_states"] == 1 + 2 + (n - 2)
    remembered = [
        played(then_expert(*moves), ["train-0"], prompter=MODES[1])[0]
        for moves in (["left", "right"], ["right", "left"])
    ]
    with_past = branched(random_action, remembered, prompter=MODES[1], rollouts=1)
    assert with_past.costs["branch_states"] == 1 + 2 * 3 + (n - 4), "until the history of two turns is the same again"


class Nameless(Corridor):
    """A corridor whose snapshot does not name the task."""

    def snapshot(self) -> Any:
        return "", *self.state[1:]


def test_two_tasks_with_equal_snapshots_and_prompts_share_no_rollouts() -> None:
    """The same line and door, but what a rollout is worth depends on its task."""

    def nameless() -> AgentEnv:
        env: Any = Nameless()
        env.spec = CORRIDOR.make().spec
        env.panel = Panel("line", "train", 1, (Task("one", "0 5"), Task("two", "0 5")))
        return env

    def rewards(played: Sequence[Trajectory]) -> list[Trajectory]:
        return [RewardRule(success_reward={"one": 1.0, "two": 2.0}[each.task_id]).apply([each])[0] for each in played]

    trajectories = played(expert, ["one", "two"], nameless)
    found = branched(expert, trajectories, nameless, rollouts=1, rewards=rewards)
    assert found.values.tolist() == [1.0] * 5 + [2.0] * 5


def test_what_it_cost_is_counted() -> None:
    trajectories = played(expert, ["train-0"])
    n = len(trajectories[0].turns)
    costs = branched(expert, trajectories, rollouts=3).costs
    seconds = costs.pop("branch_seconds")
    assert seconds > 0
    turns = 3 * n * (n + 1) / 2
    tokens = turns * len(trajectories[0].turns[0].response_ids)
    expected = {"states": n, "rollouts": 3 * n, "crashed": 0, "turns": turns, "tokens": tokens}
    assert costs == {f"branch_{name}": value for name, value in expected.items()}


def test_values_are_of_the_rewards_that_count() -> None:
    """An expert who first says something that is not understood: a cost of 2, then a win of 10, discounted."""
    stutter: Script = lambda request: "uh" if request.seed >> 64 == 0 else expert(request)  # noqa: E731
    trajectories = played(expert, ["train-0"])
    n = len(trajectories[0].turns)
    rule = RewardRule(success_reward=10.0)
    kwargs = {"rewards": rule.apply, "invalid_action_penalty": -2.0, "gamma": 0.5}
    found = branched(stutter, trajectories, rollouts=2, **kwargs)
    assert found.values == pytest.approx([-2.0 + 10.0 * 0.5 ** (n - t) for t in range(n)], abs=1e-12)


def test_seeds_decide_and_the_batch_does_not() -> None:
    trajectories = played(random_action, ["train-0", "train-0"])
    first = branched(random_action, trajectories, rollouts=4)
    again = branched(random_action, trajectories, rollouts=4, parallel=3)
    np.testing.assert_array_equal(again.values, first.values)
    assert (branched(random_action, trajectories, rollouts=4, seed=1).values != first.values).any()
    seeds: list[int] = []

    def script(request: Request) -> str:
        seeds.append(request.seed)
        return random_action(request)

    branched(script, trajectories, rollouts=4)
    assert len(set(seeds)) == len(seeds), "every response has a seed of its own"
    own = {t.seed + (turn << 64) for t in trajectories for turn in range(TURNS)}
    assert not own & set(seeds), "none is a seed of the rollouts themselves"


def test_rollouts_that_do_not_count_are_not_rolled_from() -> None:
    good, crashed, missing = played(expert, ["train-0", "train-1", "train-2"])
    crashed = replace(crashed, state="error", error="lost")
    missing = replace(missing, turns=(replace(missing.turns[0], reward=None), *missing.turns[1:]))
    found = branched(expert, [crashed, good, missing, replace(good, turns=())], rollouts=1)
    counts = [len(each.turns) for each in (crashed, good, missing)]
    parts = np.split(found.values, np.cumsum(counts)[:-1])
    assert [part.tolist() for part in parts] == [[0.0] * counts[0], [1.0] * counts[1], [0.0] * counts[2]]
    assert found.costs["branch_rollouts"] == counts[1]
    assert branched(expert, [], rollouts=1).values.shape == (0,)


class Fragile(Corridor):
    """A corridor that breaks at some word, gives no snapshot, or drifts."""

    snapshots, drift = True, 0

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        if action == "break":
            raise RuntimeError("the floor gave way")
        return super().step(action)

    def restore(self, snapshot: Any) -> tuple[str, Info]:
        task, place, door, turn, valid = snapshot
        return super().restore((task, place + self.drift * (turn == 2), door, turn, valid))

    def snapshot(self) -> Any:
        return super().snapshot() if self.snapshots else None


def fragile(**changes: Any) -> Callable[[], AgentEnv]:
    def make() -> AgentEnv:
        env: Any = Fragile()
        env.spec = CORRIDOR.make().spec
        for name, value in changes.items():
            setattr(env, name, value)
        return env

    return make


def every_other_breaks(request: Request) -> str:
    return "break" if request.seed % 2 else expert(request)


@pytest.mark.filterwarnings("ignore:rollout of train-0 failed")
def test_crashed_rollouts_are_left_out_and_counted() -> None:
    trajectories = played(expert, ["train-0"])
    found = branched(every_other_breaks, trajectories, fragile(), rollouts=8)
    assert found.values.tolist() == [1.0] * len(trajectories[0].turns)
    assert 0 < found.costs["branch_crashed"] < found.costs["branch_rollouts"]
    with pytest.raises(EnvironmentContractError, match=r"turn 0: no fresh rollout .*floor gave way.* — mend"):
        branched(lambda _: "break", trajectories, fragile(), rollouts=2)


@pytest.mark.parametrize(
    ("make", "kwargs", "error", "message"),
    [
        (
            fragile(snapshots=False),
            {},
            EnvironmentContractError,
            "turn 0: the environment gives no snapshot — impl",
        ),
        (
            fragile(drift=1),
            {},
            EnvironmentContractError,
            "turn 2: the same actions lead to another state: .* — ",
        ),
        (corridor(), {"rollouts": 0}, ConfigError, "0 rollouts from each state — use at least 1"),
    ],
)
def test_what_cannot_be_valued_is_refused(
    make: Callable[[], AgentEnv], kwargs: dict[str, Any], error: type[AgentBenchError], message: str
) -> None:
    trajectories = played(expert, ["train-0"])
    with pytest.raises(error, match=message):
        branched(expert, trajectories, make, **kwargs)
