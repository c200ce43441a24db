"""Distillation: its loss and gradient against plain passes and loops, and the teacher's weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from transformers import PreTrainedModel

from agentbench_credit import signals
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.method import Credit, Distillation
from agentbench_credit.errors import TrainingError
from agentbench_credit.policy.base import Sampling
from agentbench_credit.trainer import Objective, Optimisation
from agentbench_credit.trainers.local import distil
from agentbench_credit.trainers.local.distil import mean_weights
from agentbench_credit.trainers.local.optimise import Optimiser
from agentbench_credit.trajectory import Trajectory
from handmade import make_trajectory, make_turn, random_trajectories
from models import small_model
from references.distillation import token_loss

Gradients = list[torch.Tensor]
TEMPERATURE = 0.8
KINDS: dict[str, dict[str, Any]] = {
    "opsd": {},
    "clipped": {"token_clip": 0.2},
    "sdpo": {"top_k": 5, "ratio_clip": 1.2, "teacher_decay": 0.05},
    "wide": {"top_k": 300, "ratio_clip": 1e9},
}


def turn_logits(model: PreTrainedModel, prompt: np.ndarray, response: np.ndarray) -> torch.Tensor:
    """Return the rows of logits that predict a response, from a plain pass."""
    ids = torch.tensor(np.concatenate([prompt, response])[None], dtype=torch.long)
    logits: torch.Tensor = model(ids).logits[0]
    return logits[len(prompt) - 1 : -1]


def rollouts(n: int = 6, *, conversation: bool = False) -> tuple[list[Trajectory], np.ndarray]:
    """Random rollouts of nearly the model, some with teacher's prompts, and weights of which a third is 0."""
    rng, model = np.random.default_rng(3), small_model()
    trajectories = []
    for trajectory in random_trajectories(rng, n, conversation=conversation, teacher=True):
        turns = []
        for turn in trajectory.turns:
            with torch.no_grad():
                logp = torch.log_softmax(turn_logits(model, turn.prompt_ids, turn.response_ids) / TEMPERATURE, -1)
            own = logp[range(len(logp)), turn.response_ids.tolist()].numpy()
            turns.append(replace(turn, logprobs=own + rng.normal(size=len(own)).astype(np.float32) / 3))
        trajectories.append(replace(trajectory, turns=tuple(turns)))
    return trajectories, rng.choice([0.0, 1.0, 2.0], sum(t.n_tokens for t in trajectories))


def teacher_model() -> PreTrainedModel:
    """Return a teacher with weights of its own, some of whose distributions are near the student's."""
    teacher = small_model()
    with torch.no_grad():
        for weight, other in zip(teacher.parameters(), small_model(seed=1).parameters(), strict=True):
            weight.lerp_(other, 0.2)
    return teacher.requires_grad_(False)


def optimiser_of(
    model: PreTrainedModel, *, kl_coefficient: float = 0.0, temperature: float = TEMPERATURE, **optimisation: Any
) -> Optimiser:
    settings = {"lr": 1e-3, "max_grad_norm": 1e9, "ratio_tolerance": 99.0} | optimisation
    reference = small_model(seed=1) if kl_coefficient else None
    objective = Objective(kl_coefficient=kl_coefficient)
    return Optimiser(model, reference, objective, Optimisation(**settings), Sampling(temperature=temperature))


def credit_of(batch: CreditBatch, weights: Sequence[float] | np.ndarray, **settings: Any) -> Credit:
    distillation = Distillation(np.asarray(weights, float), **settings)
    return Credit(np.zeros(batch.n_trajectories), "trajectory", distillation=distillation)


def one_step(
    trajectories: Sequence[Trajectory],
    weights: Sequence[float] | np.ndarray,
    settings: dict[str, Any],
    *,
    model: PreTrainedModel | None = None,
    teacher: PreTrainedModel | None = None,
    **optimisation: Any,
) -> tuple[dict[str, float], Gradients]:
    """Make one update without advantages; returns its metrics and gradient."""
    model = model or small_model()
    optimiser = optimiser_of(model, **optimisation)
    optimiser.teacher = teacher
    batch = CreditBatch.from_trajectories(trajectories)
    metrics = optimiser.update(1, trajectories, batch, credit_of(batch, weights, **settings))
    return metrics, [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]


def by_hand(
    trajectories: Sequence[Trajectory],
    weights: Sequence[float] | np.ndarray,
    *,
    top_k: int | None = None,
    token_clip: float | None = None,
    ratio_clip: float | None = None,
    teacher_decay: float | None = None,  # noqa: ARG001
) -> tuple[float, Gradients]:
    """Return loss and gradient in double precision: one pass for each turn and role; the loss is checked by loops."""
    student, teacher = small_model().double(), teacher_model().double()
    total, looped, place = torch.zeros((), dtype=torch.float64), 0.0, 0
    for turn in (turn for trajectory in trajectories for turn in trajectory.turns):
        shown = turn.prompt_ids if turn.teacher_prompt_ids is None else turn.teacher_prompt_ids
        rows = [
            turn_logits(m, prompt, turn.response_ids) for m, prompt in ((student, turn.prompt_ids), (teacher, shown))
        ]
        for j, token in enumerate(turn.response_ids.tolist()):
            p, q = (torch.softmax(logits[j] / TEMPERATURE, -1) for logits in rows)
            ratio = float(p[token].detach()) / np.exp(float(turn.logprobs[j]))
            numbers = (rows[0][j].detach().tolist(), rows[1][j].detach().tolist())
            bounds: dict[str, Any] = dict(top_k=top_k, token_clip=token_clip, ratio_clip=ratio_clip)
            looped += weights[place] * token_loss(*numbers, temperature=TEMPERATURE, ratio=ratio, **bounds)
            if top_k is not None and top_k < len(p):
                kept = p.argsort(descending=True)[:top_k]
                p, q = (torch.cat([x[kept], 1 - x[kept].sum(0, keepdim=True)]) for x in (p, q))
            q = q.detach()
            m = (p + q) / 2
            loss = ((q * (q / m).log()).sum() + (p * (p / m).log()).sum()) / 2
            loss = loss if token_clip is None else loss.clamp(max=token_clip)
            loss = loss if ratio_clip is None else loss * min(ratio, ratio_clip)
            total = total + weights[place] * loss
            place += 1
    scale = 1 / sum(weights)
    assert float(total.detach()) == pytest.approx(looped, abs=1e-9)
    gradients = torch.autograd.grad(total * scale, list(student.parameters()))
    return looped * scale, [gradient.float() for gradient in gradients]


def assert_same(first: Gradients, second: Gradients) -> None:
    largest = max(float(g.abs().max()) for g in first)
    assert largest > 1e-3, "there is nothing to compare"
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, atol=2e-6 * max(largest, 1.0), rtol=2e-4)


@pytest.mark.parametrize("conversation", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradient_are_those_of_the_formula_however_a_batch_is_cut(kind: str, conversation: bool) -> None:
    trajectories, weights = rollouts(conversation=conversation)
    loss, gradients = by_hand(trajectories, weights, **KINDS[kind])
    for batch_tokens in (10_000, 40, 1):
        teacher = teacher_model()
        metrics, found = one_step(trajectories, weights, KINDS[kind], teacher=teacher, batch_tokens=batch_tokens)
        assert metrics["distillation_loss"] == pytest.approx(loss, abs=1e-5)
        assert metrics["loss"] == metrics["distillation_loss"]
        assert_same(found, gradients)


def test_a_teachers_conversation_may_be_cut_in_other_places_than_the_students() -> None:
    turns = [make_turn([3, 4], [5, 6], teacher=[7]), make_turn([9], [10, 11], teacher=[7, 5, 6, 12])]
    trajectories, weights = [make_trajectory(turns)], [1.0, 0.0, 1.0, 1.0]
    loss, gradients = by_hand(trajectories, weights)
    metrics, found = one_step(trajectories, weights, {}, teacher=teacher_model(), batch_tokens=1)
    assert metrics["distillation_loss"] == pytest.approx(loss, abs=1e-5)
    assert_same(found, gradients)


@pytest.mark.parametrize("kind", ["opsd", "sdpo"])
def test_rows_go_through_the_head_in_chunks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trajectories, weights = rollouts()
    _, whole = one_step(trajectories, weights, KINDS[kind], teacher=teacher_model())
    counted = int((weights > 0).sum())
    for module in (distil, signals):
        monkeypatch.setattr(module, "HEAD_ELEMENTS", 3 * 300)
    model, teacher, sizes = small_model(), teacher_model(), [0]
    weight_pointers = {p.data_ptr() for m in (model, teacher) for p in m.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in weight_pointers:
            sizes.append(tensor.numel())
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        _, pieces = one_step(trajectories, weights, KINDS[kind], model=model, teacher=teacher)
    assert_same(pieces, whole)
    assert counted > 9
    assert max(sizes) < counted * 300, "something as large as tokens × vocabulary was kept"


@pytest.mark.parametrize("kind", ["opsd", "sdpo"])
def test_a_teacher_that_sees_the_same_has_nothing_to_teach(kind: str) -> None:
    trajectories = random_trajectories(np.random.default_rng(3), 8)
    weights = np.ones(sum(t.n_tokens for t in trajectories))
    metrics, gradients = one_step(trajectories, weights, KINDS[kind])
    assert metrics["distillation_loss"] == pytest.approx(0.0, abs=1e-6)
    assert max(float(g.abs().max()) for g in gradients) < 1e-6


def test_a_token_beyond_the_bound_counts_but_has_no_gradient() -> None:
    trajectories, weights = rollouts()
    metrics, gradients = one_step(trajectories, weights, {"token_clip": 1e-9}, teacher=teacher_model())
    assert metrics["distillation_loss"] == pytest.approx(1e-9)
    assert not any(g.any() for g in gradients)


def test_only_tokens_with_weight_have_a_gradient_and_none_at_all_makes_no_step() -> None:
    turns = [make_turn([10, 11], [20, 21, 22], teacher=[9]), make_turn([10, 11, 20, 21, 22, 12], [23], teacher=[8])]
    model = small_model()
    seen: list[torch.Tensor] = []

    def keep(_module: Any, _inputs: Any, output: torch.Tensor) -> None:
        if output.requires_grad:  # not the teacher's copy
            output.retain_grad()
            seen.append(output)

    # The last layer's output feeds the head only, so its gradient shows which positions the loss looks at.
    last: Any = model.base_model.norm
    last.register_forward_hook(keep)
    one_step([make_trajectory(turns)], [0.0, 1.0, 0.0, 1.0], {}, model=model, teacher=teacher_model())
    (hidden,) = seen
    assert hidden.grad is not None
    # Prompt 10 11, answer 20 21 22, environment 12, answer 23: the positions before 21 and 23.
    assert (hidden.grad[0].abs().amax(-1) > 0).tolist() == [False, False, True, False, False, True, False]
    model = small_model()
    metrics, _ = one_step([make_trajectory(turns)], [0.0] * 4, {"teacher_decay": 0.5}, model=model)
    assert metrics["loss"] == metrics["distillation_loss"] == metrics["grad_norm"] == 0.0
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), small_model().parameters(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_certain_students_and_teachers_have_a_finite_gradient(kind: str) -> None:
    """Probabilities that are 0 in single precision, of tokens and of all the others together."""
    trajectories, weights = rollouts()
    model, teacher = small_model(), teacher_model()
    with torch.no_grad():
        for m in (model, teacher):
            m.get_output_embeddings().weight.mul_(100.0)
    kinds = KINDS[kind] | {"ratio_clip": None}  # which would be 0
    metrics, gradients = one_step(trajectories, weights, kinds, model=model, teacher=teacher, ratio_tolerance=1e9)
    assert 0.01 < metrics["distillation_loss"] < math.log(2) + 1e-6
    assert all(g.isfinite().all() for g in gradients)


def test_excluded_rollouts_are_left_out() -> None:
    trajectories, weights = rollouts()
    lost = make_trajectory([make_turn([3, 4], [5, 6], teacher=[1])], group="g0", state="error")
    teacher = teacher_model()
    metrics, gradients = one_step([lost, *trajectories], [9.0, 9.0, *weights], {}, teacher=teacher)
    alone = one_step(trajectories, weights, {}, teacher=teacher)
    assert metrics == pytest.approx(alone[0], rel=1e-4)
    assert_same(gradients, alone[1])


def test_weights_are_a_mean_over_the_mini_batch() -> None:
    batch = CreditBatch.from_rewards([[[0.0, 1.0], [None]], [[1.0]]], tokens_per_turn=2)
    weights = np.array([1.0, 1.0, 0.0, 2.0, 5.0, 5.0, 0.0, 3.0])
    np.testing.assert_allclose(mean_weights(batch, np.arange(3), weights), [1 / 7, 1 / 7, 0, 2 / 7, 0, 0, 0, 3 / 7])
    np.testing.assert_allclose(mean_weights(batch, np.array([0, 1]), weights), [0.25, 0.25, 0, 0.5, 0, 0, 0, 0])
    assert not mean_weights(batch, np.array([1]), weights).any()


def test_each_minibatch_is_a_mean_of_its_own() -> None:
    trajectories, weights = rollouts(8)
    pieces = np.split(weights, np.cumsum([t.n_tokens for t in trajectories])[:-1])
    expected = [by_hand(trajectories[part], np.concatenate(pieces[part]))[0] for part in (slice(4), slice(4, 8))]
    assert abs(expected[0] - expected[1]) > 1e-3
    # So small a rate leaves the weights as they are.
    metrics, _ = one_step(trajectories, weights, {}, teacher=teacher_model(), minibatches=2, lr=1e-12)
    assert metrics["distillation_loss"] == pytest.approx(sum(expected) / 2, abs=1e-5)


def test_advantages_and_the_reference_add_to_it() -> None:
    trajectories, weights = rollouts()
    batch = CreditBatch.from_trajectories(trajectories)
    advantages = np.random.default_rng(5).normal(size=batch.n_tokens)
    found = {}
    for name, credit in {
        "both": Credit(advantages, "token", distillation=Distillation(weights)),
        "policy": Credit(advantages, "token"),
        "teacher": credit_of(batch, weights),
        "reference": credit_of(batch, 0 * weights),
    }.items():
        model = small_model()
        optimiser = optimiser_of(model, kl_coefficient=0.5)
        optimiser.teacher = small_model(seed=2).requires_grad_(False)
        metrics = optimiser.update(1, trajectories, batch, credit)
        found[name] = (metrics, [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()])
    # The reference is in all four, so once on each side.
    for key in ("loss", "distillation_loss"):
        sums = [found[name][0][key] for name in ("both", "reference", "policy", "teacher")]
        assert sums[0] + sums[1] == pytest.approx(sums[2] + sums[3], abs=1e-5)
    both = [a + b for a, b in zip(found["both"][1], found["reference"][1], strict=True)]
    assert_same(both, [a + b for a, b in zip(found["policy"][1], found["teacher"][1], strict=True)])
    assert found["policy"][0]["distillation_loss"] == 0.0
    assert found["teacher"][0]["distillation_loss"] > 0.01
    assert found["reference"][0]["loss"] == pytest.approx(0.5 * found["reference"][0]["reference_kl"], rel=1e-4)


@pytest.mark.parametrize("decay", [None, 0.25])
def test_the_teacher_stays_or_follows_each_step(decay: float | None) -> None:
    trajectories, weights = rollouts(8)
    model = small_model()
    optimiser = optimiser_of(model, kl_coefficient=0.1, epochs=2, minibatches=2, lr=1e-2)
    students = [[p.detach().clone() for p in model.parameters()]]
    optimiser.optimizer.register_step_post_hook(
        lambda *_: students.append([p.detach().clone() for p in model.parameters()])
    )
    batch = CreditBatch.from_trajectories(trajectories)
    metrics = optimiser.update(1, trajectories, batch, credit_of(batch, weights, teacher_decay=decay))
    assert len(students) == 5
    assert optimiser.teacher is not None
    for index, weight in enumerate(optimiser.teacher.parameters()):
        assert not weight.requires_grad
        assert weight.grad is None
        expected = students[0][index].double()
        for student in students[1:]:
            expected = expected + (decay or 0.0) * (student[index].double() - expected)
        torch.testing.assert_close(weight.double(), expected, atol=1e-6, rtol=0.0)
        assert torch.equal(weight, students[0][index]) == (decay is None)
    assert metrics["distillation_loss"] > 0
    assert optimiser.reference is not None
    for weight, initial in zip(optimiser.reference.parameters(), small_model(seed=1).parameters(), strict=True):
        assert torch.equal(weight, initial)


def copied(state: dict[str, Any]) -> dict[str, Any]:
    """Write a state as a checkpoint does and read it back."""
    file = BytesIO()
    torch.save(state, file)
    file.seek(0)
    return dict(torch.load(file, weights_only=True))


@pytest.mark.parametrize("decay", [None, 0.25])
def test_a_run_that_was_stopped_goes_on_bit_by_bit(decay: float | None) -> None:
    trajectories, weights = rollouts()
    batch = CreditBatch.from_trajectories(trajectories)
    credit = credit_of(batch, weights, teacher_decay=decay)
    whole, first, second = small_model(), small_model(), small_model(seed=9)
    straight = optimiser_of(whole)
    for number in (1, 2):
        straight.update(number, trajectories, batch, credit)
    before = optimiser_of(first)
    assert before.state_dict()["teacher"] is None
    before.update(1, trajectories, batch, credit)
    after = optimiser_of(second)
    second.load_state_dict(first.state_dict())
    after.load_state_dict(copied(before.state_dict()))
    after.update(2, trajectories, batch, credit)
    assert straight.teacher is not None
    assert after.teacher is not None
    for resumed, one in ((second, whole), (after.teacher, straight.teacher)):
        assert all(torch.equal(a, b) for a, b in zip(resumed.parameters(), one.parameters(), strict=True))
    assert not any(p.requires_grad for p in after.teacher.parameters())


def test_a_distillation_that_begins_late_has_no_initial_weights() -> None:
    trajectories, weights = rollouts()
    batch = CreditBatch.from_trajectories(trajectories)
    optimiser = optimiser_of(small_model())
    optimiser.update(1, trajectories, batch, Credit(weights, "token"))
    with pytest.raises(TrainingError, match="begins after the first step"):
        optimiser.update(2, trajectories, batch, credit_of(batch, weights))
