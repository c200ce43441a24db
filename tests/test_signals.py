"""Signals against the naive computation: one sequence at a time, the whole vocabulary, no batching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
)

from agentbench_credit import signals
from agentbench_credit.credit.method import SignalName
from agentbench_credit.errors import ModelError, TrainingError
from agentbench_credit.samples import build_samples
from agentbench_credit.signals import check_model, compute_signals, response_hidden, token_logp
from agentbench_credit.trajectory import Trajectory
from handmade import make_trajectory, make_turn, random_trajectories
from models import small_model

ALL: tuple[SignalName, ...] = ("entropy", "teacher_logp", "kl", "kl_topk")


def naive(model: PreTrainedModel, trajectories: Sequence[Trajectory], temperature: float) -> dict[str, np.ndarray]:
    rows: dict[str, list[float]] = {"logp": [], "entropy": [], "teacher_logp": [], "kl": [], "kl_topk": []}
    for trajectory in trajectories:
        for turn in trajectory.turns:
            for j, token in enumerate(turn.response_ids):
                teacher = turn.prompt_ids if turn.teacher_prompt_ids is None else turn.teacher_prompt_ids
                logs = []
                for prompt in (turn.prompt_ids, teacher):
                    ids = torch.tensor(np.concatenate([prompt, turn.response_ids[:j]])[None], dtype=torch.long)
                    with torch.no_grad():
                        logits = model(ids).logits[0, -1].double() / temperature
                    logs.append(torch.log_softmax(logits, -1))
                p, q = logs
                rows["logp"].append(float(p[token]))
                rows["teacher_logp"].append(float(q[token]))
                rows["entropy"].append(float(-(p.exp() * p).sum()))
                rows["kl"].append(float((p.exp() * (p - q)).sum()))
                order = p.argsort(descending=True)
                few = [torch.cat([x[order[:100]], x[order[100:]].logsumexp(0, keepdim=True)]) for x in (p, q)]
                rows["kl_topk"].append(float((few[0].exp() * (few[0] - few[1])).sum()))
    return {name: np.array(values) for name, values in rows.items()}


@pytest.mark.parametrize("conversation", [False, True])
@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
def test_signals_equal_the_naive_computation(
    architecture: str, conversation: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(architecture)
    trajectories = random_trajectories(np.random.default_rng(1), 9, conversation=conversation, teacher=True)
    expected = naive(model, trajectories, 0.7)
    assert expected["kl"].max() > 0.1, "the example has nothing to tell apart"
    for batch_tokens, head_elements, block_tokens in [(10_000, 2**25, 2**16), (40, 900, 7), (1, 1, 1)]:
        monkeypatch.setattr(signals, "HEAD_ELEMENTS", head_elements)
        monkeypatch.setattr(signals, "BLOCK_TOKENS", block_tokens)
        found = compute_signals(model, trajectories, ALL, temperature=0.7, batch_tokens=batch_tokens)
        assert list(found) == list(ALL)
        for name in ALL:
            assert found[name].dtype == np.float64
            np.testing.assert_allclose(found[name], expected[name], atol=1e-5)


@pytest.mark.parametrize("conversation", [False, True])
def test_log_probabilities_equal_the_naive_computation(conversation: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    trajectories = random_trajectories(np.random.default_rng(2), 9, conversation=conversation)
    ids = np.concatenate([turn.response_ids for trajectory in trajectories for turn in trajectory.turns])
    targets = torch.tensor(ids, dtype=torch.long)
    gradients = []
    for head_elements in (2**25, 900):
        monkeypatch.setattr(signals, "HEAD_ELEMENTS", head_elements)
        hidden = response_hidden(model, build_samples(trajectories), batch_tokens=50)
        logp = token_logp(model, hidden, targets, 1.3)
        np.testing.assert_allclose(logp.detach(), naive(model, trajectories, 1.3)["logp"], atol=1e-5)
        gradients.append(torch.autograd.grad((logp * torch.linspace(-1, 1, len(logp))).sum(), list(model.parameters())))
    for whole, chunked in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, chunked, atol=1e-5, rtol=1e-4)


def count_tokens(model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    shapes: list[tuple[int, ...]] = []
    forward: Any = model.base_model.forward

    def counted(*args: Any, **kwargs: Any) -> object:
        shapes.append(tuple(kwargs["input_ids"].shape))
        return forward(*args, **kwargs)

    monkeypatch.setattr(model.base_model, "forward", counted)
    return shapes


def test_only_what_is_needed_runs_and_equal_sequences_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    turns = [make_turn([5, 6], [7], teacher=[9, 5, 6]), make_turn([5, 6], [7]), make_turn([5, 8], [7, 7])]
    shapes = count_tokens(model, monkeypatch)
    check_model(model)
    head_shapes = list(shapes)

    def shapes_for(*needed: SignalName) -> list[tuple[int, ...]]:
        shapes.clear()
        compute_signals(model, [make_trajectory(turns)], needed, temperature=1.0, batch_tokens=1000)
        return shapes[len(head_shapes) :]

    # Student 5 6 7 and 5 8 7 7; the teacher also sees 9 5 6 7.
    assert shapes_for("entropy") == [(1, 6)]
    assert shapes_for("teacher_logp") == [(2, 6)]
    assert shapes_for("kl") == shapes_for("entropy", "kl", "teacher_logp") == [(2, 6)]
    assert compute_signals(model, [make_trajectory(turns)], (), temperature=1.0, batch_tokens=9) == {}


def test_no_information_in_the_teachers_prompt_gives_zero_divergence() -> None:
    model = small_model()
    rng = np.random.default_rng(3)
    turns = [make_turn(p, rng.integers(3, 300, 4).tolist(), teacher=p) for p in rng.integers(3, 300, (6, 8)).tolist()]
    turns.append(make_turn([5, 6], [7]))
    found = compute_signals(model, [make_trajectory(turns)], ALL, temperature=1.0, batch_tokens=30)
    assert found["kl"].max() < 1e-6
    assert found["kl"].min() >= 0.0
    np.testing.assert_allclose(found["teacher_logp"], naive(model, [make_trajectory(turns)], 1.0)["logp"], atol=1e-5)


def test_trajectories_without_tokens() -> None:
    model = small_model()
    found = compute_signals(model, [make_trajectory([])], ALL, temperature=1.0, batch_tokens=30)
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(ALL, 0)
    assert response_hidden(model, [], batch_tokens=30).shape == (0, 32)
    assert token_logp(model, torch.zeros(0, 32), torch.zeros(0, dtype=torch.long), 1.0).shape == (0,)


def test_broken_weights_are_reported_with_rollout_and_turn() -> None:
    model = small_model()
    with torch.no_grad():
        embedding: Any = model.get_input_embeddings()
        embedding.weight[42] = torch.nan
    good, bad = make_turn([3, 4], [5]), make_turn([3, 42], [5])
    trajectories = [make_trajectory([good]), make_trajectory([good, bad])]
    for name in ALL:
        with pytest.raises(TrainingError, match=f"rollout g/1, turn 1: {name} is nan"):
            compute_signals(model, trajectories, (name,), temperature=1.0, batch_tokens=30)


SIZES: dict[str, Any] = dict(
    vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
)


def refuse(model: PreTrainedModel, message: str) -> None:
    needed: SignalName = "entropy"
    with pytest.raises(ModelError, match=message):
        compute_signals(model, [], (needed,), temperature=1.0, batch_tokens=8)


def test_plain_models_pass_whatever_computes_their_attention() -> None:
    for architecture in ("qwen3", "llama"):
        model = small_model(architecture)
        for implementation in ("sdpa", "eager"):
            model.set_attn_implementation(implementation)
            check_model(model)
        check_model(model.bfloat16())


def test_scaled_or_capped_logits_are_refused() -> None:
    capped = Gemma2Config(**SIZES, num_key_value_heads=1, head_dim=8)
    refuse(Gemma2ForCausalLM(capped).eval(), "scaled or capped logits")
    refuse(CohereForCausalLM(CohereConfig(**SIZES, num_key_value_heads=2)).eval(), "scaled or capped logits")
    headless: Any = small_model()
    headless.set_output_embeddings(None)
    refuse(headless, "no output embedding")


def test_attention_that_is_not_full_is_refused() -> None:
    window = MistralConfig(**SIZES, num_key_value_heads=1, sliding_window=64)
    refuse(MistralForCausalLM(window).eval(), "not full in every layer")
    check_model(MistralForCausalLM(MistralConfig(**SIZES, num_key_value_heads=1, sliding_window=None)).eval())
    recurrent = MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, state_size=4)
    refuse(MambaForCausalLM(recurrent).eval(), "takes no attention mask")
    deaf: Any = small_model()
    forward = deaf.base_model.forward
    deaf.base_model.forward = lambda **inputs: forward(**(inputs | {"attention_mask": None}))
    refuse(deaf, "does not follow a mask")


def test_nothing_keeps_a_gradient() -> None:
    model = small_model()
    turn = make_turn([3, 4], [5, 6], teacher=[9, 3, 4])
    compute_signals(model, [make_trajectory([turn])], ALL, temperature=1.0, batch_tokens=30)
    assert all(isinstance(p, nn.Parameter) and p.grad is None for p in model.parameters())
