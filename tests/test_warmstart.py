"""The embedded policy: how it is made, and what the one that ships can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbench_credit.env import ENVIRONMENTS, AgentEnv, Info, Panel
from agentbench_credit.policy.base import Sampling
from agentbench_credit.policy.models import TINY_FOLDER
from agentbench_credit.policy.prompts import Prompter
from agentbench_credit.policy.transformers import TransformersPolicy, load_policy
from agentbench_credit.results import measure
from agentbench_credit.rollout import Start, rollout
from agentbench_credit.warmstart import clone, demonstrations, encode, new_model
from models import small_tokenizer

SOKOBAN = ENVIRONMENTS.get("sokoban")


def sokoban(tasks: int) -> AgentEnv:
    panel = SOKOBAN.load_panel("embedded", "validation")
    part = Panel(panel.name, panel.split, panel.version, panel.tasks[:tasks])
    return SOKOBAN.make(preset="embedded", split="validation", panel=part)


@pytest.fixture(scope="module")
def tiny() -> TransformersPolicy:
    return load_policy("tiny", device="cpu")


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_any_text_is_encoded_exactly(text: str) -> None:
    tokenizer = TOKENIZER
    ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert tokenizer.decode(ids) == text


TOKENIZER = small_tokenizer()


def test_demonstrations_are_the_expert_s_answers_in_states_a_noisy_one_visits() -> None:
    env = sokoban(40)
    shown = list(demonstrations(env, noise=0.5, reference_share=0.5, seed=0))
    assert shown == list(demonstrations(env, noise=0.5, reference_share=0.5, seed=0))
    assert 0.3 < np.mean([d.reference is not None for d in shown]) < 0.7
    for d in shown:
        assert d.reference is None or d.reference.startswith(d.action)
        assert 1 <= len(d.action.split(" || ")) <= 5
    straight = list(demonstrations(env, noise=0.0, reference_share=0.0, seed=0))
    starts = {env.reset(options={"task": task.id})[0] for task in env.panel}
    assert {d.observation for d in straight} >= starts
    assert {d.observation for d in shown} - {d.observation for d in straight}, "noise leads off the plan"
    assert all(d.reference is None for d in straight)


def test_cloning_is_deterministic_and_lowers_the_loss() -> None:
    pairs = [encode(TOKENIZER, d) for d in demonstrations(sokoban(30), noise=0.2, reference_share=0.5, seed=0)]

    def train(seed: int) -> tuple[list[float], torch.Tensor]:
        model = new_model(TOKENIZER, hidden_size=32, layers=1, seed=seed)
        losses = clone(model, pairs, steps=12, batch_size=8, lr=3e-3, seed=seed)
        return losses, model.get_output_embeddings().weight

    (losses, weights), (again, same), (other, _) = train(0), train(0), train(1)
    assert losses == again
    assert torch.equal(weights, same)
    assert losses != other
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 0.5


def test_the_loss_is_that_of_response_tokens_only() -> None:
    model = new_model(TOKENIZER, hidden_size=32, layers=1, seed=0).eval()
    prompt, response = np.arange(5, 20, dtype=np.int32), np.array([7, 8, 2], np.int32)
    other = np.arange(30, 34, dtype=np.int32), np.array([9, 2], np.int32)
    (loss,) = clone(model, [(prompt, response), other], steps=1, batch_size=2, lr=0.0, seed=0)
    total, count = 0.0, 0
    for p, r in ((prompt, response), other):
        ids = torch.tensor(np.concatenate([p, r])).long()[None]
        with torch.no_grad():
            logp = torch.log_softmax(model(ids).logits[0], -1)
        total -= sum(float(logp[len(p) - 1 + j, token]) for j, token in enumerate(r))
        count += len(r)
    assert loss == pytest.approx(total / count, abs=1e-5)


def test_tiny_is_small_untied_and_whole(tiny: TransformersPolicy) -> None:
    parameters = sum(p.numel() for p in tiny.model.parameters())
    assert 1_000_000 <= parameters <= 4_000_000
    assert tiny.model.config.model_type == "qwen3"
    assert not tiny.model.config.tie_word_embeddings
    assert tiny.model.get_input_embeddings().weight is not tiny.model.get_output_embeddings().weight
    assert sum(path.stat().st_size for path in TINY_FOLDER.iterdir()) <= 10_000_000
    env = sokoban(1)
    observation, info = env.reset(options={"task": env.panel.tasks[0].id})
    pieces = tiny.tokenizer.tokenize(observation)
    assert len(pieces) == len(observation), "every cell is a token"
    assert len(Prompter(tiny.tokenizer).first(info["instruction"], observation)) < 80


class ShowsPlan:
    """Sokoban whose observation carries the reference, so that the policy acts as its own teacher."""

    def __init__(self, env: AgentEnv) -> None:
        self.env, self.spec = env, env.spec

    def _with_plan(self, observation: str) -> str:
        plan = self.env.reference()
        return observation if plan is None else f"{observation}\nReference: {plan}"

    def reset(self, **kwargs: Any) -> tuple[str, Info]:
        observation, info = self.env.reset(**kwargs)
        return self._with_plan(observation), info

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        observation, *rest = self.env.step(action)
        return (self._with_plan(observation), *rest)  # type: ignore[return-value]

    def reference(self) -> str | None:
        return self.env.reference()

    def close(self) -> None:
        self.env.close()


def success(policy: TransformersPolicy, make: Callable[[], Any]) -> float:
    tasks = SOKOBAN.load_panel("embedded", "validation").tasks[:200]
    starts = [Start(task.id, task.id, seed) for seed, task in enumerate(tasks)]
    sampling = Sampling(temperature=0.4, max_new_tokens=24)
    return measure(rollout(policy, make, starts, prompter=Prompter(policy.tokenizer), sampling=sampling)).success


def test_the_teacher_reads_the_plan_and_the_student_has_room_above(tiny: TransformersPolicy) -> None:
    student = success(tiny, lambda: sokoban(200))
    teacher = success(tiny, lambda: ShowsPlan(sokoban(200)))
    assert 0.25 <= student <= 0.60, "30 to 55 % on held-out levels, with room for chance"
    assert teacher >= student + 0.25, "far above: the plan is read"
