"""Generation: ids and log-probabilities as sampled, one random stream per request, stops, errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from agentbench_credit.errors import ConfigError, ModelError
from agentbench_credit.policy.base import Request, Response, Sampling, generate
from agentbench_credit.policy.transformers import TransformersPolicy, load_policy
from models import save_model, small_model, small_tokenizer

PROMPTS = ["Move the box", "#PXO_", "up || down || left || right || up", "Move the box", "√"]


def requests(policy: TransformersPolicy, prompts: list[str] = PROMPTS, seed: int = 0) -> list[Request]:
    ids = [np.asarray(policy.tokenizer.encode(text), np.int32) for text in prompts]
    return [Request(prompt, seed + i, None, list) for i, prompt in enumerate(ids)]  # type: ignore[arg-type]


def answers_of(policy: TransformersPolicy, asked: list[Request], sampling: Sampling) -> list[Response]:
    return [answer for answer in generate(policy, asked, sampling) if answer is not None]


@pytest.fixture(scope="module")
def policy() -> TransformersPolicy:
    return TransformersPolicy(small_model(), small_tokenizer(), "small")


def plain_logits(policy: TransformersPolicy, request: Request, response: Response) -> torch.Tensor:
    """Logits [R, V] of one sequence alone, without cache, padding or batch."""
    ids = torch.tensor(np.concatenate([request.prompt_ids, response.ids]))[None].long()
    with torch.no_grad():
        return policy.model(ids).logits[0, len(request.prompt_ids) - 1 : -1]


@pytest.mark.parametrize("temperature", [0.4, 1.0, 1.7])
def test_logprobs_are_those_of_a_plain_forward(policy: TransformersPolicy, temperature: float) -> None:
    asked = requests(policy)
    answers = answers_of(policy, asked, Sampling(temperature=temperature, max_new_tokens=12))
    for request, answer in zip(asked, answers, strict=True):
        logp = torch.log_softmax(plain_logits(policy, request, answer) / temperature, -1)
        expected = logp[torch.arange(len(answer.ids)), torch.tensor(answer.ids).long()]
        np.testing.assert_allclose(answer.logprobs, expected.numpy(), atol=1e-5)
        assert answer.ids.dtype == np.int32
        assert answer.logprobs.dtype == np.float32


def test_a_response_does_not_depend_on_its_batch(policy: TransformersPolicy) -> None:
    sampling = Sampling(max_new_tokens=12)
    asked = requests(policy)
    together = answers_of(policy, asked, sampling)
    backwards = answers_of(policy, asked[::-1], sampling)[::-1]
    alone = [answers_of(policy, [request], sampling)[0] for request in asked]
    small_batches = answers_of(TransformersPolicy(policy.model, policy.tokenizer, "small", slots=2), asked, sampling)
    for answer, *others in zip(together, backwards, alone, small_batches, strict=True):
        for other in others:
            np.testing.assert_array_equal(answer.ids, other.ids)
    assert not np.array_equal(together[0].ids, together[3].ids), "one prompt, two seeds"


def test_greedy_equals_the_library_s_own_generation(policy: TransformersPolicy) -> None:
    for request in requests(policy):
        answer = answers_of(policy, [request], Sampling(temperature=0, max_new_tokens=10))[0]
        ids = torch.tensor(request.prompt_ids)[None].long()
        out = policy.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=10)
        np.testing.assert_array_equal(answer.ids, out[0, ids.shape[1] :].numpy())


def test_first_tokens_follow_the_softmax(policy: TransformersPolicy) -> None:
    n = 4000
    asked = [Request(requests(policy)[0].prompt_ids, seed, None, list) for seed in range(n)]  # type: ignore[arg-type]
    answers = answers_of(policy, asked, Sampling(max_new_tokens=1))
    counts = np.bincount([int(answer.ids[0]) for answer in answers], minlength=300)
    with torch.no_grad():
        probs = torch.softmax(plain_logits(policy, asked[0], answers[0])[0], -1).numpy()
    common = probs > 0.01
    spread = np.sqrt(n * probs[common] * (1 - probs[common]))
    assert common.sum() > 5
    assert (np.abs(counts[common] - n * probs[common]) < 4.5 * spread).all()


def test_top_p_and_top_k_normalise_over_the_survivors(policy: TransformersPolicy) -> None:
    tight = Sampling(top_k=2, top_p=0.5, max_new_tokens=6)
    for sampling in (Sampling(top_k=3, max_new_tokens=6), Sampling(top_p=0.5, max_new_tokens=6), tight):
        for request, answer in zip(requests(policy), answers_of(policy, requests(policy), sampling), strict=True):
            probs = torch.softmax(plain_logits(policy, request, answer), -1).numpy()
            for row, token, logprob in zip(probs, answer.ids, answer.logprobs, strict=True):
                order = np.argsort(-row)
                survivors = row[order][: sampling.top_k or None]
                mass = np.cumsum(survivors) / survivors.sum()
                kept = int(np.searchsorted(mass, sampling.top_p)) + 1 if sampling.top_p < 1 else len(survivors)
                assert token in order[:kept]
                assert logprob == pytest.approx(np.log(row[token] / row[order[:kept]].sum()), abs=1e-4)


def test_stops_at_the_end_of_turn_and_at_the_limit() -> None:
    model = small_model()
    with torch.no_grad():
        model.lm_head.weight[2] = model.lm_head.weight.mean(0) + 1.5 * model.lm_head.weight[7]  # token 2 ends a turn
    policy = TransformersPolicy(model, small_tokenizer(), "small")
    asked = requests(policy, ["up"] * 64)
    answers = answers_of(policy, asked, Sampling(max_new_tokens=8))
    stopped = [answer for answer in answers if answer.finish_reason == "stop"]
    cut = [answer for answer in answers if answer.finish_reason == "length"]
    assert stopped
    assert cut
    for answer in stopped:
        assert answer.ids[-1] == 2
        assert 2 not in answer.ids[:-1]
        assert len(answer.ids) == len(answer.logprobs)
    for answer in cut:
        assert len(answer.ids) == 8
        assert 2 not in answer.ids
    alone = [answers_of(policy, [request], Sampling(max_new_tokens=8))[0] for request in asked]
    for answer, lone in zip(answers, alone, strict=True):
        np.testing.assert_array_equal(answer.ids, lone.ids, "responses that leave the batch change nothing")


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
def test_loads_any_local_folder(tmp_path: Path, architecture: str) -> None:
    policy = load_policy(str(save_model(tmp_path / architecture, architecture)), device="cpu")
    answers = answers_of(policy, requests(policy), Sampling(max_new_tokens=5))
    assert [len(answer.ids) > 0 for answer in answers] == [True] * 5
    assert policy.max_length == 256
    with torch.no_grad():
        again = small_model(architecture, vocab_size=len(policy.tokenizer))
        assert torch.equal(policy.model.lm_head.weight, again.lm_head.weight)


def test_a_broken_folder_is_one_line(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model")
    with pytest.raises(ModelError, match=r"config.json is missing"):
        load_policy(str(tmp_path))
    (folder / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(ModelError, match=r"cannot be loaded") as caught:
        load_policy(str(folder))
    assert "\n" not in str(caught.value)
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"cannot be loaded"):
        load_policy(str(folder))


def test_weights_that_are_missing_are_not_made_up(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 weights are missing.*up_proj"):
        load_policy(str(folder))


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(ModelError, match=r"did you mean Qwen3-4B"):
        load_policy("Qwen3-4")


def test_weights_that_are_not_finite_are_refused() -> None:
    model = small_model()
    with torch.no_grad():
        model.lm_head.weight[5] = float("nan")
    policy = TransformersPolicy(model, small_tokenizer(), "small")
    with pytest.raises(ModelError, match="not finite"):
        answers_of(policy, requests(policy), Sampling(max_new_tokens=2))


@pytest.mark.parametrize("bad", [{"temperature": -1.0}, {"top_p": 0.0}, {"top_k": -1}, {"max_new_tokens": 0}])
def test_sampling_out_of_range_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="out of range"):
        Sampling(**bad)  # type: ignore[arg-type]
