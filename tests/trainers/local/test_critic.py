"""The critic: what it reads, what its gradient depends on, and that it learns and goes on."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from agentbench_credit.errors import TrainingError
from agentbench_credit.trainers.local import critic as critic_module
from agentbench_credit.trainers.local.critic import Critic
from agentbench_credit.trajectory import Trajectory
from handmade import make_trajectory, make_turn, random_trajectories
from models import small_model


def make_critic(architecture: str = "qwen3", *, opinionated: bool = False, **changes: Any) -> Critic:
    """Return a critic of a small random model; an opinionated one has a random head."""
    critic = Critic(small_model(architecture), **({"lr": 1e-3, "batch_tokens": 10_000, "max_grad_norm": 1e9} | changes))
    if opinionated:
        torch.manual_seed(1)
        torch.nn.init.normal_(critic.head.weight)
        torch.nn.init.normal_(critic.head.bias)
    return critic


def rollouts(*, conversation: bool = False) -> list[Trajectory]:
    trajectories = random_trajectories(np.random.default_rng(5), 9, conversation=conversation)
    assert any(len(turn.response_ids) == 0 for t in trajectories for turn in t.turns), "no turn without a response"
    assert any(not t.turns for t in trajectories), "no rollout without a turn"
    return trajectories


def naive(critic: Critic, trajectories: Sequence[Trajectory]) -> torch.Tensor:
    """The values, one prompt at a time."""
    prompts = [turn.prompt_ids for trajectory in trajectories for turn in trajectory.turns]
    hidden = [critic.body(torch.tensor(prompt[None], dtype=torch.long)).last_hidden_state[0, -1] for prompt in prompts]
    return torch.stack(hidden) @ critic.head.weight[0] + critic.head.bias


def weights(critic: Critic) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in (*critic.body.parameters(), *critic.head.parameters())]


def gradients(critic: Critic) -> list[torch.Tensor]:
    found = [parameter.grad for parameter in (*critic.body.parameters(), *critic.head.parameters())]
    return [gradient for gradient in found if gradient is not None]


def assert_close(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> None:
    assert len(some) == len(others) > 10
    for one, other in zip(some, others, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def targets_for(trajectories: Sequence[Trajectory]) -> np.ndarray:
    return np.random.default_rng(4).normal(size=sum(len(t.turns) for t in trajectories))


def everyone(trajectories: Sequence[Trajectory]) -> np.ndarray:
    return np.ones(len(trajectories), dtype=bool)


@pytest.mark.parametrize("batch_tokens", [10_000, 40, 1])
@pytest.mark.parametrize("conversation", [False, True])
@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
def test_values_are_those_of_one_prompt_at_a_time(architecture: str, conversation: bool, batch_tokens: int) -> None:
    critic = make_critic(architecture, opinionated=True, batch_tokens=batch_tokens)
    trajectories = rollouts(conversation=conversation)
    expected = naive(critic, trajectories).detach().double().numpy()
    assert np.ptp(expected) > 1.0, "there is nothing to tell apart"
    found = critic.values(trajectories)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_new_critic_expects_nothing() -> None:
    assert make_critic().values(rollouts()).tolist() == [0.0] * sum(len(t.turns) for t in rollouts())
    assert make_critic().values([]).tolist() == []
    assert make_critic().values([make_trajectory([])]).tolist() == []


def test_a_conversation_is_one_sequence_and_responses_play_no_part_of_their_own() -> None:
    turns = [make_turn([5, 6], [7]), make_turn([5, 6, 7, 8], []), make_turn([5, 6, 7, 8], [9]), make_turn([5], [6])]
    (talk, fork) = critic_module._prompt_samples([make_trajectory([]), make_trajectory(turns)])
    assert (talk.ids.tolist(), talk.positions.tolist(), talk.tokens.tolist()) == ([5, 6, 7, 8], [2, 4, 4], [0, 1, 2])
    assert (fork.ids.tolist(), fork.positions.tolist(), fork.tokens.tolist()) == ([5], [1], [3])
    assert talk.trajectory == fork.trajectory == 1
    critic = make_critic(opinionated=True)
    other = [replace(turn, response_ids=turn.response_ids + np.int32(1)) for turn in turns]
    before = critic.values([make_trajectory(turns)])
    np.testing.assert_array_equal(critic.values([make_trajectory(other)]), before)
    assert before[1] == before[2]


def test_the_loss_and_gradient_are_those_of_the_mean_squared_error() -> None:
    critic, trajectories = make_critic(opinionated=True), rollouts()
    included = np.arange(len(trajectories)) % 3 != 1
    counted = np.repeat(included, [len(t.turns) for t in trajectories])
    assert 0 < counted.sum() < len(counted)
    targets = targets_for(trajectories)
    errors = (naive(critic, trajectories) - torch.tensor(targets))[torch.tensor(counted)]
    loss = errors.square().mean()
    parameters = [*critic.body.parameters(), *critic.head.parameters()]
    expected = torch.autograd.grad(loss, parameters)
    metrics = critic.update(trajectories, np.where(counted, targets, 1e6), included)
    assert metrics["critic_loss"] == pytest.approx(float(loss.detach()), rel=1e-4)
    norm = torch.stack([gradient.square().sum() for gradient in expected]).sum().sqrt()
    assert metrics["critic_grad_norm"] == pytest.approx(float(norm), rel=1e-4)
    spread = 1.0 - float(errors.detach().numpy().var()) / targets[counted].var()
    assert metrics["critic_explained_variance"] == pytest.approx(spread, rel=1e-4)
    assert_close(gradients(critic), [gradient.float() for gradient in expected])


@pytest.mark.parametrize("conversation", [False, True])
def test_micro_batches_change_nothing(conversation: bool) -> None:
    trajectories = rollouts(conversation=conversation)
    found = []
    for batch_tokens in (10_000, 40, 1):
        critic = make_critic(opinionated=True, batch_tokens=batch_tokens)
        metrics = critic.update(trajectories, targets_for(trajectories), everyone(trajectories))
        found.append((metrics, gradients(critic)))
    whole, *cut = found
    assert whole[0]["critic_grad_norm"] > 0.1, "there is nothing to compare"
    for metrics, parts in cut:
        assert metrics == pytest.approx(whole[0], rel=1e-4)
        assert_close(parts, whole[1])


def test_micro_batches_keep_to_their_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    predict = Critic._predict

    def watched(self: Critic, samples: Sequence[Any]) -> torch.Tensor:
        sizes.append(len(samples))
        return predict(self, samples)

    monkeypatch.setattr(Critic, "_predict", watched)
    trajectories = rollouts()
    critic = make_critic(batch_tokens=1)
    critic.update(trajectories, targets_for(trajectories), everyone(trajectories))
    distinct = sum(len(t.turns) for t in trajectories)
    assert sizes == [1] * distinct


def test_excluded_rollouts_and_the_order_of_rollouts_change_nothing() -> None:
    trajectories = [t for t in rollouts() if t.turns]
    targets = targets_for(trajectories)
    alone = make_critic(opinionated=True)
    metrics = alone.update(trajectories, targets, everyone(trajectories))
    lost = make_trajectory([make_turn([3, 4], [5])], state="error")
    beside = make_critic(opinionated=True)
    included = np.array([False, *everyone(trajectories)])
    same = beside.update([lost, *trajectories], np.append(np.nan, targets), included)
    assert same == pytest.approx(metrics, rel=1e-4)
    assert_close(gradients(beside), gradients(alone))
    backwards = make_critic(opinionated=True)
    pieces = np.split(targets, np.cumsum([len(t.turns) for t in trajectories])[:-1])
    back = backwards.update(trajectories[::-1], np.concatenate(pieces[::-1]), everyone(trajectories))
    assert back == pytest.approx(metrics, rel=1e-4)
    assert_close(gradients(backwards), gradients(alone))


def test_the_policy_is_left_alone() -> None:
    model = small_model()
    before = [p.clone() for p in model.parameters()]
    critic = Critic(model.requires_grad_(False), lr=0.1, batch_tokens=100, max_grad_norm=1.0, epochs=2)
    trajectories = rollouts()
    moved = weights(critic)
    critic.update(trajectories, targets_for(trajectories), everyone(trajectories))
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert all(not p.requires_grad and p.grad is None for p in model.parameters())
    changed = sum(not torch.equal(w, b) for w, b in zip(weights(critic), moved, strict=True))
    assert changed == len(moved), "a part of the critic does not learn"


def test_it_learns_a_constant() -> None:
    trajectories = rollouts()
    critic = make_critic(lr=3e-2)
    targets = np.full(sum(len(t.turns) for t in trajectories), 3.0)
    losses = []
    for _ in range(60):
        metrics = critic.update(trajectories, targets, everyone(trajectories))
        losses.append(metrics["critic_loss"])
        assert np.isnan(metrics["critic_explained_variance"]), "there is no variance to explain"
    assert losses[0] == pytest.approx(9.0)
    assert losses[-1] < 0.01
    np.testing.assert_allclose(critic.values(trajectories), 3.0, atol=0.3)


def test_it_learns_the_values_of_two_states_behind_noise() -> None:
    """Every rollout passes the first state, with mean return 1, and half of them the second, with mean return 5."""
    first, second = make_turn([10, 11], [20]), make_turn([10, 11, 20, 12], [21])
    trajectories = [make_trajectory([first, second]), make_trajectory([first, second]), make_trajectory([first])]
    targets = np.array([0.0, 4.0, 1.0, 6.0, 2.0])
    critic = make_critic(lr=1e-2)
    explained = [
        critic.update(trajectories, targets, everyone(trajectories))["critic_explained_variance"] for _ in range(120)
    ]
    np.testing.assert_allclose(critic.values(trajectories), [1.0, 5.0, 1.0, 5.0, 1.0], atol=0.05)
    assert explained[0] == pytest.approx(0.0, abs=1e-6)
    assert explained[-1] == pytest.approx(1.0 - (4 / 5) / targets.var(), abs=0.01)


def test_a_long_gradient_is_cut_and_epochs_are_steps() -> None:
    trajectories = rollouts()
    targets = 100 * targets_for(trajectories)
    critic = make_critic(opinionated=True, max_grad_norm=0.01)
    assert critic.update(trajectories, targets, everyone(trajectories))["critic_grad_norm"] > 1.0
    norm = torch.stack([gradient.square().sum() for gradient in gradients(critic)]).sum().sqrt()
    assert float(norm) == pytest.approx(0.01, rel=1e-3)
    one_by_one, at_once = make_critic(), make_critic(epochs=3)
    steps = [one_by_one.update(trajectories, targets, everyone(trajectories)) for _ in range(3)]
    metrics = at_once.update(trajectories, targets, everyone(trajectories))
    assert all(torch.equal(a, b) for a, b in zip(weights(one_by_one), weights(at_once), strict=True))
    assert metrics["critic_loss"] == pytest.approx(np.mean([step["critic_loss"] for step in steps]))
    assert metrics["critic_explained_variance"] == steps[0]["critic_explained_variance"]


def test_without_a_turn_to_learn_from_there_is_no_step() -> None:
    critic = make_critic(opinionated=True)
    before = weights(critic)
    trajectories = rollouts()
    for some, included in ((trajectories, ~everyone(trajectories)), ([], everyone([]))):
        metrics = critic.update(some, targets_for(some), included)
        assert metrics["critic_loss"] == metrics["critic_grad_norm"] == 0.0
        assert np.isnan(metrics["critic_explained_variance"])
    assert all(torch.equal(a, b) for a, b in zip(weights(critic), before, strict=True))


def saved(critic: Critic) -> dict[str, Any]:
    """The state as a checkpoint gives it back."""
    file = io.BytesIO()
    torch.save(critic.state_dict(), file)
    file.seek(0)
    state: dict[str, Any] = torch.load(file, weights_only=True)
    return state


def test_a_resumed_critic_ends_with_the_same_bits() -> None:
    trajectories = rollouts()
    targets, all_of_them = targets_for(trajectories), everyone(trajectories)
    straight = make_critic(epochs=2)
    for _ in range(2):
        straight.update(trajectories, targets, all_of_them)
    state = saved(straight)
    # The policy has moved on meanwhile: the critic's own weights count.
    resumed = Critic(small_model(seed=5), lr=1.0, batch_tokens=10_000, max_grad_norm=1e9, epochs=2)
    resumed.load_state_dict(state)
    for _ in range(2):
        assert resumed.update(trajectories, targets, all_of_them) == straight.update(trajectories, targets, all_of_them)
    assert all(torch.equal(a, b) for a, b in zip(weights(resumed), weights(straight), strict=True))
    np.testing.assert_array_equal(resumed.values(trajectories), straight.values(trajectories))


@pytest.mark.parametrize("broken", [np.nan, np.inf, 1e30])
def test_what_is_not_finite_stops_before_the_step(broken: float) -> None:
    trajectories, critic = rollouts(), make_critic(opinionated=True)
    critic.update(trajectories, targets_for(trajectories), everyone(trajectories))
    before, state = weights(critic), saved(critic)["optimizer"]["state"]
    targets = targets_for(trajectories)
    targets[2] = broken
    with pytest.raises(TrainingError, match=r"critic: the loss is .* lower --critic-lr"):
        critic.update(trajectories, targets, everyone(trajectories))
    assert all(torch.equal(a, b) for a, b in zip(weights(critic), before, strict=True))
    assert all(torch.equal(state[0][name], kept) for name, kept in saved(critic)["optimizer"]["state"][0].items())
    good = targets_for(trajectories)
    assert np.isfinite(critic.update(trajectories, good, everyone(trajectories))["critic_loss"]), "it cannot go on"


def test_broken_weights_give_no_values() -> None:
    critic = make_critic(opinionated=True)
    with torch.no_grad():
        critic.head.bias.fill_(torch.nan)
    with pytest.raises(TrainingError, match="critic: a value is not finite"):
        critic.values(rollouts())


def test_a_turn_without_a_prompt_is_named() -> None:
    trajectories = [make_trajectory([make_turn([3], [4]), make_turn([], [])], group="task 7")]
    with pytest.raises(TrainingError, match="rollout 0 of task task 7, turn 1: a turn without a prompt"):
        make_critic().values(trajectories)
