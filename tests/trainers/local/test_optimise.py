"""One update of the policy: what its gradient depends on, and what it must not depend on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.method import Credit, Ratio
from agentbench_credit.errors import ConfigError, TrainingError
from agentbench_credit.policy.base import Sampling
from agentbench_credit.samples import build_samples
from agentbench_credit.signals import response_hidden, token_logp
from agentbench_credit.trainer import Objective, Optimisation
from agentbench_credit.trainers.local.optimise import Optimiser
from agentbench_credit.trajectory import Trajectory
from handmade import make_trajectory, make_turn, random_trajectories
from models import small_model

Gradients = list[torch.Tensor]


def sampled(model: PreTrainedModel, trajectories: Sequence[Trajectory], *, noise: float = 0.0) -> list[Trajectory]:
    """Return the trajectories with the log-probabilities that the model gives, moved by some noise."""
    samples = build_samples(trajectories)
    ids = np.concatenate([np.zeros(0, np.int64), *(u.response_ids for t in trajectories for u in t.turns)])
    with torch.no_grad():
        hidden = response_hidden(model, samples, batch_tokens=10_000)
        logp = token_logp(model, hidden, torch.tensor(ids), 1.0).numpy()
    logp = logp + noise * np.random.default_rng(0).normal(size=len(logp)).astype(np.float32)
    start, filled = 0, []
    for trajectory in trajectories:
        turns = []
        for turn in trajectory.turns:
            turns.append(replace(turn, logprobs=logp[start : start + len(turn.response_ids)]))
            start += len(turn.response_ids)
        filled.append(replace(trajectory, turns=tuple(turns)))
    return filled


def one_step(
    trajectories: Sequence[Trajectory],
    advantages: Sequence[float] | np.ndarray,
    *,
    ratio: Ratio = "token",
    reference: PreTrainedModel | None = None,
    objective: Objective | None = None,
    model: PreTrainedModel | None = None,
    temperature: float = 1.0,
    **optimisation: Any,
) -> tuple[dict[str, float], Gradients]:
    """Make one update of a fresh model with token advantages; returns its metrics and the gradient of the last step."""
    model = model or small_model()
    objective = objective or Objective(kl_coefficient=0.0 if reference is None else 0.5)
    settings = Optimisation(**({"lr": 1e-3, "max_grad_norm": 1e9, "ratio_tolerance": 10.0} | optimisation))
    sampling = Sampling(max_new_tokens=8, temperature=temperature)
    optimiser = Optimiser(model, reference, objective, settings, sampling)
    batch = CreditBatch.from_trajectories(trajectories)
    metrics = optimiser.update(1, trajectories, batch, Credit(np.asarray(advantages, float), "token", ratio))
    return metrics, [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]


def assert_same(first: tuple[dict[str, float], Gradients], second: tuple[dict[str, float], Gradients]) -> None:
    assert first[0] == pytest.approx(second[0], rel=1e-4, abs=1e-6)
    assert first[0]["grad_norm"] > 0.01, "there is nothing to compare"
    for one, other in zip(first[1], second[1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def ragged(n: int = 8, *, conversation: bool = False, noise: float = 0.3) -> tuple[list[Trajectory], np.ndarray]:
    trajectories = random_trajectories(np.random.default_rng(5), n, conversation=conversation)
    trajectories = sampled(small_model(), trajectories, noise=noise)
    return trajectories, np.random.default_rng(6).normal(size=sum(t.n_tokens for t in trajectories))


@pytest.mark.parametrize("aggregation", ["token-mean", "sequence-mean", "constant"])
@pytest.mark.parametrize("ratio", ["token", "turn", "sequence"])
def test_micro_batches_change_nothing(ratio: Ratio, aggregation: Any) -> None:
    trajectories, advantages = ragged()
    objective = Objective(loss_aggregation=aggregation, kl_coefficient=0.1)
    whole, one_by_one, pieces = (
        one_step(
            trajectories,
            advantages,
            ratio=ratio,
            reference=small_model(seed=1),
            objective=objective,
            batch_tokens=batch_tokens,
        )
        for batch_tokens in (10_000, 1, 40)
    )
    assert_same(whole, one_by_one)
    assert_same(whole, pieces)


def test_the_loss_and_gradient_are_those_of_the_formula() -> None:
    model = small_model()
    trajectories, advantages = ragged(noise=0.0)
    metrics, gradients = one_step(trajectories, advantages, model=small_model(), ratio_tolerance=1e-4)
    total = torch.zeros(())
    for index, turn in enumerate(turn for trajectory in trajectories for turn in trajectory.turns):
        first = sum(len(u.response_ids) for u in [u for t in trajectories for u in t.turns][:index])
        ids = torch.tensor(np.concatenate([turn.prompt_ids, turn.response_ids])[None], dtype=torch.long)
        logp = torch.log_softmax(model(ids).logits[0], -1)
        for j, token in enumerate(turn.response_ids):
            total = total - advantages[first + j] * logp[len(turn.prompt_ids) + j - 1, int(token)] / len(advantages)
    expected = torch.autograd.grad(total, list(model.parameters()))
    assert metrics["loss"] == pytest.approx(-advantages.mean(), abs=1e-6)
    assert metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-5)
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("ratio", ["token", "turn", "sequence"])
def test_one_conversation_and_its_forked_turns_train_alike(ratio: Ratio) -> None:
    trajectories, advantages = ragged(conversation=True)
    assert any(len(sample.positions) > 4 for sample in build_samples(trajectories)), "no turn extends another"
    fused = one_step(trajectories, advantages, ratio=ratio)
    # An empty turn between two others keeps each from extending the one before.
    gap = make_turn([3], [])
    forks = [replace(t, turns=tuple(x for turn in t.turns for x in (turn, gap))) for t in trajectories]
    assert len(build_samples(forks)) > len(build_samples(trajectories))
    assert_same(fused, one_step(forks, advantages, ratio=ratio))


@pytest.mark.parametrize("ratio", ["token", "turn", "sequence"])
def test_micro_batches_are_as_small_as_the_ratio_allows(ratio: Ratio, monkeypatch: pytest.MonkeyPatch) -> None:
    trajectories, advantages = ragged()
    sizes: list[int] = []
    backward = Optimiser._backward

    def watched(self: Optimiser, data: Any, samples: Any, *others: Any, **more: Any) -> Any:
        sizes.append(len(samples))
        return backward(self, data, samples, *others, **more)

    monkeypatch.setattr(Optimiser, "_backward", watched)
    one_step(trajectories, advantages, ratio=ratio, batch_tokens=1)
    per_trajectory = [sum(len(turn.response_ids) > 0 for turn in t.turns) for t in trajectories]
    assert sizes == ([n for n in per_trajectory if n] if ratio == "sequence" else [1] * sum(per_trajectory))


def test_excluded_rollouts_and_zero_advantages_change_nothing() -> None:
    trajectories, advantages = ragged()
    alone = one_step(trajectories, advantages)
    lost = make_trajectory([make_turn([3, 4], [5, 6])], group="g0", state="error")
    nameless = make_trajectory([make_turn([9], [8], reward=None)], group="g0")
    more = [lost, *trajectories, nameless, make_trajectory([], group="g1", state="error")]
    assert_same(alone, one_step(more, [7.0, 7.0, *advantages, 7.0]))


def test_an_order_of_rollouts_changes_nothing() -> None:
    trajectories, advantages = ragged()
    counts = [t.n_tokens for t in trajectories]
    pieces = np.split(advantages, np.cumsum(counts)[:-1])
    back = one_step(trajectories[::-1], np.concatenate(pieces[::-1]))
    assert_same(one_step(trajectories, advantages), back)


def test_only_sampled_tokens_have_a_gradient_in_a_conversation_of_three_turns() -> None:
    # Prompt 10 11, answer 20 21, environment 12, answer 22, environment 13 14, answer 23.
    turns = [
        make_turn([10, 11], [20, 21]),
        make_turn([10, 11, 20, 21, 12], [22]),
        make_turn([10, 11, 20, 21, 12, 22, 13, 14], [23]),
    ]
    model = small_model()
    trajectories = sampled(model, [make_trajectory(turns)])
    seen: list[torch.Tensor] = []

    def keep(_module: Any, _inputs: Any, output: torch.Tensor) -> None:
        output.retain_grad()
        seen.append(output)

    # The last layer's output feeds the head only, so its gradient shows which positions the loss looks at.
    last: Any = model.base_model.norm
    last.register_forward_hook(keep)
    one_step(trajectories, [1.0, 1.0, 1.0, 1.0], model=model)
    (hidden,) = seen
    assert hidden.shape[:2] == (1, 9)
    assert hidden.grad is not None
    looked_at = hidden.grad[0].abs().amax(-1) > 0
    assert looked_at.tolist() == [False, True, True, False, True, False, False, True, False]


def test_each_turn_has_its_own_advantage_whatever_the_padding() -> None:
    short = make_trajectory([make_turn([10], [20, 21]), make_turn([11], [22])], group="a")
    long = make_trajectory([make_turn([10, 11, 12, 13, 14], [23, 24, 25, 26])], group="b")
    trajectories = sampled(small_model(), [short, long])
    # Advantage 1 on the first turn only, 0 on the longer neighbours: as if that turn were alone.
    advantages = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    beside = one_step(trajectories, advantages)
    padded = one_step(trajectories, advantages, reference=small_model(), objective=Objective(kl_coefficient=1e-9))
    alone = one_step([replace(trajectories[0], turns=trajectories[0].turns[:1])], [1.0, 1.0])
    for metrics, gradients in (beside, padded):
        assert metrics["loss"] == pytest.approx(-2 / 7)
        for one, other in zip(gradients, alone[1], strict=True):
            torch.testing.assert_close(one * 7 / 2, other, atol=1e-6, rtol=1e-4)


def test_equal_rollouts_are_computed_once_and_counted_each() -> None:
    turn = make_turn([10, 11], [20, 21])
    trajectories = sampled(small_model(), [make_trajectory([turn]), make_trajectory([turn])])
    apart = sampled(small_model(), [make_trajectory([turn])])
    assert_same(one_step(trajectories, [1.0, 2.0, 3.0, 4.0]), one_step(apart, [2.0, 3.0]))


def test_no_signal_makes_no_step() -> None:
    for trajectories in (ragged()[0], [], [make_trajectory([])]):
        model = small_model()
        before = [p.clone() for p in model.parameters()]
        zeros = np.zeros(sum(t.n_tokens for t in trajectories))
        metrics, _ = one_step(trajectories, zeros, model=model)
        assert metrics["loss"] == metrics["grad_norm"] == 0.0
        assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_minibatches_are_whole_groups_and_epochs_repeat_them(monkeypatch: pytest.MonkeyPatch) -> None:
    trajectories, advantages = ragged()
    members: list[list[int]] = []
    step = Optimiser._step

    def watched(self: Optimiser, data: Any, part: np.ndarray, *, check_ratio: bool) -> Any:
        members.append(part.tolist())
        return step(self, data, part, check_ratio=check_ratio)

    monkeypatch.setattr(Optimiser, "_step", watched)
    one_step(trajectories, advantages, minibatches=3, epochs=2)
    assert members == [[0, 1, 2, 3], [4, 5], [6, 7]] * 2
    with pytest.raises(ConfigError, match="5 mini-batches for 4 groups"):
        one_step(trajectories, advantages, minibatches=5)


def test_the_learning_rate_warms_up() -> None:
    model = small_model()
    settings = Optimisation(lr=0.4, warmup_updates=4)
    optimiser = Optimiser(model, None, Objective(kl_coefficient=0.0), settings, Sampling())
    trajectories, advantages = ragged()
    batch = CreditBatch.from_trajectories(trajectories)
    rates = [optimiser.update(n, trajectories, batch, Credit(0 * advantages, "token"))["lr"] for n in range(1, 7)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


def test_a_long_gradient_is_cut() -> None:
    trajectories, advantages = ragged()
    metrics, gradients = one_step(trajectories, advantages, max_grad_norm=0.01)
    assert metrics["grad_norm"] > 0.01
    assert float(torch.stack([g.square().sum() for g in gradients]).sum().sqrt()) == pytest.approx(0.01, rel=1e-3)


def test_tokens_sampled_at_another_temperature_are_refused_before_the_first_step() -> None:
    model = small_model()
    before = [p.clone() for p in model.parameters()]
    trajectories, advantages = ragged(noise=0.0)
    turns = trajectories[1].turns
    wrong = replace(turns[0], logprobs=turns[0].logprobs * np.float32(1 / 0.7))
    trajectories[1] = replace(trajectories[1], turns=(wrong, *turns[1:]))
    with pytest.raises(TrainingError, match=r"rollout g0/1, turn 0: sampled with log-probability .*--ratio-tolerance"):
        one_step(trajectories, advantages, model=model, ratio_tolerance=1e-4)
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_later_steps_may_move_away_from_the_behaviour_policy() -> None:
    trajectories, advantages = ragged(noise=0.0)
    metrics, _ = one_step(trajectories, advantages, ratio_tolerance=1e-4, epochs=3, lr=1e-2)
    assert metrics["approx_kl"] > 1e-3
    assert metrics["clip_fraction"] > 0


def test_broken_weights_and_gradients_stop_before_the_step() -> None:
    trajectories, advantages = ragged()
    model = small_model()
    embedding: Any = model.get_input_embeddings()
    with torch.no_grad():
        embedding.weight[int(build_samples(trajectories)[-1].ids[0])] = torch.nan
    with pytest.raises(TrainingError, match="log-probabilities are not finite"):
        one_step(trajectories, advantages, model=model)
    model = small_model()
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(TrainingError, match="the gradient norm"):
        one_step(trajectories, advantages * 1e38, model=model)
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_the_reference_pulls_the_policy_back() -> None:
    trajectories, advantages = ragged()
    model, reference = small_model(), small_model(seed=1)
    settings = Optimisation(lr=3e-3, ratio_tolerance=10.0, epochs=30)
    optimiser = Optimiser(model, reference, Objective(kl_coefficient=1.0), settings, Sampling())
    batch = CreditBatch.from_trajectories(trajectories)
    credit = Credit(0 * advantages, "token")
    first = optimiser.update(1, trajectories, batch, credit)["reference_kl"]
    assert optimiser.update(2, trajectories, batch, credit)["reference_kl"] < first / 2


def by_hand(
    trajectories: Sequence[Trajectory],
    advantages: Sequence[float] | np.ndarray,
    weights: Sequence[float] | np.ndarray,
    *,
    temperature: float = 1.0,
    ratio: Ratio = "token",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = 3.0,
    kl_coefficient: float = 0.0,
) -> tuple[dict[str, float], Gradients]:
    """Return what one step should report and its gradient: a plain pass for each turn, each case spelled out."""
    model, reference = small_model(), small_model(seed=1)
    logp, reference_logp, behaviour, owner = [], [], [], []
    for index, trajectory in enumerate(trajectories):
        for number, turn in enumerate(trajectory.turns):
            ids = torch.tensor([[*turn.prompt_ids.tolist(), *turn.response_ids.tolist()]])
            scores = [torch.log_softmax(m(ids).logits[0] / temperature, -1) for m in (model, reference)]
            for place, token in enumerate(turn.response_ids.tolist()):
                before = len(turn.prompt_ids) + place - 1
                logp.append(scores[0][before, token])
                reference_logp.append(float(scores[1][before, token].detach()))
                behaviour.append(float(turn.logprobs[place]))
                owner.append({"token": (index, number, place), "turn": (index, number), "sequence": (index,)}[ratio])
    found = dict.fromkeys(("loss", "clip_fraction", "ratio_mean", "approx_kl", "reference_kl"), 0.0)
    total = torch.zeros(())
    for j, a in enumerate(advantages):
        gaps = [float(logp[k].detach()) - behaviour[k] for k in range(len(logp)) if owner[k] == owner[j]]
        r = math.exp(sum(gaps) / len(gaps))
        bound = 1 + clip_high if a > 0 and r > 1 + clip_high else 1 - clip_low if a < 0 and r < 1 - clip_low else None
        bound = dual_clip if dual_clip is not None and a < 0 and r > dual_clip else bound
        d = reference_logp[j] - logp[j]
        k3 = d.exp() - d - 1
        total = total + weights[j] * (kl_coefficient * k3 - (r * a * logp[j] if bound is None else 0.0))
        divergence = float(k3.detach())
        found["loss"] += weights[j] * (kl_coefficient * divergence - (r if bound is None else bound) * a)
        means = (float(bound is not None), r, r - 1 - math.log(r), divergence if kl_coefficient else 0.0)
        for name, value in zip(list(found)[1:], means, strict=True):
            found[name] += value / len(logp)
    return found, list(torch.autograd.grad(total, list(model.parameters())))


def difference(first: Gradients, second: Gradients) -> float:
    return max(float((one - other).abs().max()) for one, other in zip(first, second, strict=True))


SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7},
    {"clip_low": 0.05},
    {"clip_high": 0.05},
    {"clip_low": 0.6, "clip_high": 0.1, "temperature": 1.5},
    {"dual_clip": 1.3},
    {"dual_clip": None},
    {"kl_coefficient": 0.7},
    {"ratio": "turn"},
    {"ratio": "sequence"},
]


@pytest.mark.parametrize("change", SETTINGS, ids=str)
def test_every_setting_of_the_objective_reaches_the_gradient(change: dict[str, Any]) -> None:
    trajectories, advantages = ragged(16, noise=1.0)
    weights = np.full(len(advantages), 1 / len(advantages))
    metrics, expected = by_hand(trajectories, advantages, weights, **change)
    if change:
        plain = by_hand(trajectories, advantages, weights)[1]
        assert difference(expected, plain) > 1e-3, "the setting decides nothing here"
    settings = dict(change)
    temperature = settings.pop("temperature", 1.0)
    objective = Objective(**{"kl_coefficient": 0.0} | settings)
    reference = small_model(seed=1) if objective.kl_coefficient else None
    # The credit method's own ratio, which a ratio of the objective overrides.
    own: Ratio = "turn" if objective.ratio == "sequence" else "token"
    found, gradients = one_step(
        trajectories, advantages, ratio=own, reference=reference, objective=objective, temperature=temperature
    )
    assert {name: found[name] for name in metrics} == pytest.approx(metrics, rel=1e-4, abs=1e-5)
    assert difference(gradients, expected) < 1e-5


@pytest.mark.parametrize("ratio", ["turn", "sequence"])
def test_the_ratio_of_the_credit_method_is_taken_unless_the_objective_has_one(ratio: Ratio) -> None:
    trajectories, advantages = ragged()
    weights = np.full(len(advantages), 1 / len(advantages))
    expected = by_hand(trajectories, advantages, weights, ratio=ratio)[1]
    assert difference(one_step(trajectories, advantages, ratio=ratio)[1], expected) < 1e-5


def weights_by_hand(trajectories: Sequence[Trajectory], members: Sequence[int], aggregation: str) -> list[float]:
    """Return each token's weight in the loss of a mini-batch."""
    counted = [i for i in members if trajectories[i].reward is not None and trajectories[i].n_tokens]
    n_tokens = sum(trajectories[i].n_tokens for i in counted)
    weights = []
    for i, trajectory in enumerate(trajectories):
        weight = {
            "token-mean": 1 / n_tokens,
            "sequence-mean": 1 / len(counted) / max(trajectory.n_tokens, 1),
            "constant": 1 / len(counted) / 8,
        }[aggregation]
        weights += [weight if i in counted else 0.0] * trajectory.n_tokens
    return weights


@pytest.mark.parametrize("aggregation", ["token-mean", "sequence-mean", "constant"])
def test_each_minibatch_has_weights_of_its_own(aggregation: Any) -> None:
    trajectories, _ = ragged()
    nameless = make_trajectory([make_turn([9, 10], [8, 7], reward=None)], group=trajectories[4].group_id)
    trajectories = sampled(small_model(), [*trajectories[:5], nameless, *trajectories[5:]], noise=0.3)
    advantages = np.random.default_rng(7).normal(size=sum(t.n_tokens for t in trajectories))
    members = [[i for i, t in enumerate(trajectories) if t.group_id in names] for names in (("g0", "g1"), ("g2", "g3"))]
    model = small_model()
    objective = Objective(loss_aggregation=aggregation, kl_coefficient=0.0)
    # So small a rate leaves the weights as they are, and every step starts from the same.
    settings = Optimisation(lr=1e-12, max_grad_norm=1e9, minibatches=2, epochs=2, ratio_tolerance=10.0)
    optimiser = Optimiser(model, None, objective, settings, Sampling(max_new_tokens=8))
    seen: list[Gradients] = []

    def keep(*_: Any) -> None:
        seen.append([p.grad.clone() for p in model.parameters() if p.grad is not None])

    optimiser.optimizer.register_step_pre_hook(keep)
    batch = CreditBatch.from_trajectories(trajectories)
    loss = optimiser.update(1, trajectories, batch, Credit(advantages, "token"))["loss"]
    expected = [by_hand(trajectories, advantages, weights_by_hand(trajectories, m, aggregation)) for m in members]
    assert len(seen) == 4
    for gradients, (_, wanted) in zip(seen, expected * 2, strict=True):
        assert difference(gradients, wanted) < 1e-5
    assert loss == pytest.approx(sum(metrics["loss"] for metrics, _ in expected) / 2, abs=1e-5)
    assert difference(expected[0][1], expected[1][1]) > 1e-2


def test_the_step_is_adamw_with_the_rate_of_the_warm_up_in_every_group() -> None:
    trajectories, advantages = ragged()
    model, before = small_model(), small_model()
    settings = Optimisation(lr=0.4, warmup_updates=8, max_grad_norm=1e9, ratio_tolerance=10.0)
    optimiser = Optimiser(model, None, Objective(kl_coefficient=0.0), settings, Sampling())
    optimiser.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "lr": 9.0})
    batch = CreditBatch.from_trajectories(trajectories)
    lr = optimiser.update(2, trajectories, batch, Credit(advantages, "token"))["lr"]
    assert lr == pytest.approx(0.1)
    assert [group["lr"] for group in optimiser.optimizer.param_groups] == [lr, lr]
    for new, old in zip(model.parameters(), before.parameters(), strict=True):
        assert new.grad is not None
        # The first step: both moments are those of this gradient, and weights decay by 1 % of the rate.
        expected = old.detach() * (1 - 0.01 * lr) - lr * new.grad / (new.grad.abs() + 1e-8)
        torch.testing.assert_close(new.detach(), expected, atol=1e-5, rtol=1e-5)
