"""Divergences against a few naive lines in double precision, masks included, and their memory in a real process."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from agentbench_credit import divergences
from agentbench_credit.divergences import entropy, jsd, over_vocabulary, reverse_kl, top_k_with_tail
from agentbench_credit.signals_bench import peak_megabytes

V = 60


def logits(seed: int, rows: int = 7, scale: float = 3.0) -> torch.Tensor:
    return torch.randn(rows, V, generator=torch.Generator().manual_seed(seed)) * scale


def logp(seed: int, **shape: float) -> torch.Tensor:
    return torch.log_softmax(logits(seed, **shape), -1)  # type: ignore[arg-type]


def naive_kl(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return (p * (p / q).log()).nan_to_num(0.0).sum(-1)


def naive_jsd(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return (naive_kl(p, (p + q) / 2) + naive_kl(q, (p + q) / 2)) / 2


def test_rows_equal_the_naive_computation() -> None:
    p, q = logp(0), logp(1)
    exact_p, exact_q = p.double().exp(), q.double().exp()
    torch.testing.assert_close(entropy(p).double(), -(exact_p * exact_p.log()).sum(-1), atol=1e-5, rtol=0.0)
    torch.testing.assert_close(reverse_kl(p, q).double(), naive_kl(exact_p, exact_q), atol=1e-5, rtol=0.0)
    torch.testing.assert_close(jsd(p, q).double(), naive_jsd(exact_p, exact_q), atol=1e-5, rtol=0.0)
    torch.testing.assert_close(p, logp(0), msg="the input was overwritten")


@pytest.mark.parametrize("k", [1, 5, V - 1, V, V + 9])
def test_the_tail_holds_all_others(k: int) -> None:
    p, q = logp(0), logp(1)
    p_few, q_few = top_k_with_tail(p, q, k)
    for row in range(len(p)):
        order = p[row].argsort(descending=True)
        kept, rest = order[:k], order[k:]
        sides = [torch.cat([x[row][kept].exp(), x[row][rest].exp().sum()[None]]) for x in (p, q)]
        assert float(reverse_kl(p_few, q_few)[row]) == pytest.approx(float(naive_kl(*sides)), abs=1e-5)
        assert float(jsd(p_few, q_few)[row]) == pytest.approx(float(naive_jsd(*sides)), abs=1e-5)


@pytest.mark.parametrize("k", [5, V])
def test_the_gradient_is_the_naive_one(k: int) -> None:
    ours, exact = logits(0).requires_grad_(), logits(0).double().requires_grad_()
    jsd(*top_k_with_tail(torch.log_softmax(ours, -1), logp(1), k)).sum().backward()
    order = exact.argsort(-1, descending=True)
    p, q = (x.gather(-1, order) for x in (torch.softmax(exact, -1), logp(1).double().exp()))
    p, q = (torch.cat([x[:, :k], x[:, k:].sum(-1, keepdim=True)], -1) if k < V else x for x in (p, q))
    m = (p + q) / 2
    (((p * (p / m).log()) + (q * (q / m).log())).sum() / 2).backward()
    assert ours.grad is not None
    assert exact.grad is not None
    assert float(exact.grad.abs().max()) > 1e-2
    torch.testing.assert_close(ours.grad.double(), exact.grad, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
def test_bounds_hold_whatever_the_logits(scale: float) -> None:
    p, q = logp(0, scale=scale), logp(1, scale=scale)
    for few in ((p, q), (p, p), top_k_with_tail(p, q, 5)):
        assert float(reverse_kl(*few).min()) >= 0.0
        assert float(jsd(*few).min()) >= 0.0
        assert float(jsd(*few).max()) <= math.log(2.0) + 1e-7
    assert float(entropy(p).min()) >= 0.0


def test_a_masked_vocabulary_gives_the_numbers_of_the_rest() -> None:
    free = torch.arange(V) % 3 > 0
    wide = [logits(seed).masked_fill(~free, -math.inf).requires_grad_() for seed in (0, 1)]
    p, q = (torch.log_softmax(x, -1) for x in wide)
    for k in (5, 45, V):  # 40 tokens are allowed
        few, without = top_k_with_tail(p, q, k), top_k_with_tail(p[:, free], q[:, free], k)
        for measure in (reverse_kl, jsd):
            torch.testing.assert_close(measure(*few), measure(*without), atol=1e-5, rtol=0.0)
        gradient = torch.autograd.grad(jsd(*few).sum(), wide[0], retain_graph=True)[0]
        assert gradient.isfinite().all()
    torch.testing.assert_close(entropy(p), entropy(p[:, free]), atol=1e-6, rtol=0.0)


def test_what_the_teacher_excludes_is_infinitely_far_and_nan_stays() -> None:
    p, q = logp(0), logp(1)
    q[2, 3], q[4] = -math.inf, math.nan
    found = reverse_kl(p, q)
    assert found[2] == math.inf
    assert found.isnan().nonzero().tolist() == [[4]]
    assert jsd(p, q).isnan().nonzero().tolist() == [[4]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("chunk", [1, 3, 4, 7, 12, 99])
def test_chunks_and_blocks_change_nothing(
    chunk: int, gradient: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 rows in chunks of one row, of a divisor, with a remainder, and of all; blocks of two rows."""
    monkeypatch.setattr(divergences, "BLOCK_ELEMENTS", 2 * V)
    torch.manual_seed(0)
    heads = [nn.Linear(8, V).to(dtype) for _ in range(2)]
    heads[1].requires_grad_(False)
    hidden = [(torch.randn(12, 8) * 3).to(dtype) for _ in range(2)]
    targets = torch.arange(12)

    def measure(p_logp: torch.Tensor, q_logp: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return torch.stack([jsd(p_logp, q_logp), p_logp.gather(-1, rows[:, None]).squeeze(-1)], -1)

    whole = [torch.log_softmax(head(h).float() / 0.7, -1) for head, h in zip(heads, hidden, strict=True)]
    expected = measure(*whole, targets)
    with torch.set_grad_enabled(gradient):
        elements = chunk * 2 * V * (1 + gradient)
        sides = list(zip(heads, hidden, strict=True))
        found = over_vocabulary(measure, sides, targets, temperature=0.7, head_elements=elements)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    if gradient:
        grads = [torch.autograd.grad(x.sum(), heads[0].weight)[0].float() for x in (found, expected)]
        torch.testing.assert_close(*grads, atol=1e-4 if dtype == torch.float32 else 0.3, rtol=1e-3)


def test_signals_of_the_largest_vocabulary_need_little_memory() -> None:
    """512 tokens at 151,936, whose logits are 311 MB for each model; the naive way at 256 tests the meter."""
    assert peak_megabytes("signals", "ours", 512) < 300
    assert peak_megabytes("signals", "naive", 256) > 500
