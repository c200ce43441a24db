"""Memory and speed of the token signals at a large vocabulary: ``python -m agentbench_credit.bench --only signals``.

The naive way, to compare with, keeps the logits of all tokens.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from agentbench_credit.credit.method import SignalName
from agentbench_credit.divergences import jsd, over_vocabulary
from agentbench_credit.signals import HEAD_ELEMENTS, ROLES, TOP_K, Role, signals_of

VOCABULARY = 151_936
"""Of Qwen2.5 and Qwen3."""
TOKENS, NAIVE_TOKENS = 8_192, 1_024
"""Tokens whose memory is measured; the naive way does not fit at more, and is compared with at half of it."""
HIDDEN = 1_024
"""Width of the hidden states where time is measured, that of Qwen3-0.6B; 16 where memory is."""
REPEATS = 5
CHILD_SECONDS = 600.0

Part = Literal["signals", "jsd", "jsd with gradient"]
Way = Literal["ours", "naive"]


class Example:
    """Random hidden states of a student and a teacher near it.

    Args:
        tokens: Number of rows R.
        hidden: Width H of the hidden states.
        temperature: Divides the logits.
    """

    def __init__(self, tokens: int, hidden: int, temperature: float = 1.3) -> None:
        generator = torch.Generator().manual_seed(0)
        self.head = nn.Linear(hidden, VOCABULARY, bias=False).requires_grad_(False)
        self.head.weight.normal_(std=2 / math.sqrt(hidden), generator=generator)
        self.hidden: dict[Role, torch.Tensor] = {"student": torch.randn(tokens, hidden, generator=generator)}
        noise = torch.randn(tokens, hidden, generator=generator)
        self.hidden["teacher"] = noise.mul_(0.3).add_(self.hidden["student"])
        self.targets = torch.randint(VOCABULARY, (tokens,), generator=generator)
        self.temperature = temperature

    def run(self, part: Part, way: Way) -> torch.Tensor:
        """Compute signals [R, 4], or JSD [R]; its gradient runs to the student's hidden states only."""
        if part == "signals":
            return torch.stack(list((self.signals() if way == "ours" else self.naive_signals()).values()), dim=-1)
        with torch.set_grad_enabled(part == "jsd with gradient"):
            student = self.hidden["student"].requires_grad_(part == "jsd with gradient")
            losses = self.jsd(student) if way == "ours" else self.naive_jsd(student)
            if part == "jsd with gradient":
                return torch.autograd.grad(losses.sum(), student)[0]
        return losses

    def signals(self) -> dict[SignalName, torch.Tensor]:
        """Compute all token signals."""
        found = signals_of(self.head, self.hidden, self.targets, tuple(ROLES), self.temperature)
        return {name: found[name] for name in ROLES}

    def jsd(self, student: torch.Tensor) -> torch.Tensor:
        """Compute the divergence of distillation over the whole vocabulary."""
        sides = [(self.head, student), (self.head, self.hidden["teacher"])]
        return over_vocabulary(jsd, sides, temperature=self.temperature, head_elements=HEAD_ELEMENTS)

    @torch.no_grad()
    def naive_signals(self) -> dict[SignalName, torch.Tensor]:
        """Compute all token signals from the whole logits."""
        p_logp, q_logp = (self._naive_logp(hidden) for hidden in self.hidden.values())
        p, likeliest = p_logp.exp(), p_logp.topk(TOP_K, dim=-1).indices
        p_few, q_few = (
            torch.cat(
                [x.gather(-1, likeliest), x.scatter(-1, likeliest, -math.inf).logsumexp(-1, keepdim=True)], dim=-1
            )
            for x in (p_logp, q_logp)
        )
        return {
            "entropy": -(p * p_logp).sum(-1),
            "teacher_logp": q_logp.gather(-1, self.targets[:, None]).squeeze(-1),
            "kl": (p * (p_logp - q_logp)).sum(-1),
            "kl_topk": (p_few.exp() * (p_few - q_few)).sum(-1),
        }

    def naive_jsd(self, student: torch.Tensor) -> torch.Tensor:
        """Compute the divergence of distillation from the whole logits."""
        p_logp, q_logp = self._naive_logp(student), self._naive_logp(self.hidden["teacher"])
        m_logp = torch.logaddexp(p_logp, q_logp) - math.log(2.0)
        return (p_logp.exp() * (p_logp - m_logp) + q_logp.exp() * (q_logp - m_logp)).sum(-1) / 2

    def _naive_logp(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(self.head(hidden).float() / self.temperature, dim=-1)


def peak_megabytes(part: Part, way: Way, tokens: int) -> float:
    """Return by how much a fresh process grows at its peak while it computes, in MB (10⁶ bytes).

    The growth is that of the memory in use, as Linux counts it, over what is in use with head and hidden states made.

    Args:
        part: What to compute.
        way: Ours or the naive one.
        tokens: Number of rows.

    Returns:
        The growth, nan where there is no ``/proc``.
    """
    # Not forked: a child would start with the memory of this process.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_growth, part, way, tokens).result(timeout=CHILD_SECONDS)


def _growth(part: Part, way: Way, tokens: int) -> float:
    if not Path("/proc/self/status").exists():
        return math.nan
    torch.set_num_threads(1)
    example = Example(tokens, 16)
    before = _status("VmRSS")
    example.run(part, way)
    return (_status("VmHWM") - before) * 1024 / 1e6


def _status(field: str) -> int:
    """Return a size from Linux's account of this process, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def alternating_seconds(works: list[Callable[[], object]], repeats: int) -> list[list[float]]:
    """Return the seconds of several works that take turns, so that a busy machine slows down all of them.

    Args:
        works: What to time.
        repeats: How often each runs after a first time that does not count.

    Returns:
        One list for each work.
    """
    times: list[list[float]] = [[] for _ in works]
    for repeat in range(repeats + 1):
        for work, found in zip(works, times, strict=True):
            began = time.perf_counter()
            work()
            if repeat:
                found.append(time.perf_counter() - began)
    return times


def bench() -> dict[str, float]:
    """Measure signals and JSD at a vocabulary of 151,936.

    Returns:
        By name: the peak of extra memory at 8,192 tokens, ours, and at 1,024 tokens, both; tokens a second, the median
        ratio of our seconds to the naive way's and the largest difference of the two results at 512 tokens.
    """
    results = {}
    parts: tuple[Part, ...] = ("signals", "jsd", "jsd with gradient")
    for part in parts:
        if part != "jsd with gradient":  # whose memory grows with the tokens of a micro-batch
            results[f"{part}: extra MB, {TOKENS} tokens"] = peak_megabytes(part, "ours", TOKENS)
        results[f"{part}: extra MB, {NAIVE_TOKENS} tokens"] = peak_megabytes(part, "ours", NAIVE_TOKENS)
        results[f"{part}: extra MB, {NAIVE_TOKENS} tokens, naive"] = peak_megabytes(part, "naive", NAIVE_TOKENS)
    tokens = NAIVE_TOKENS // 2
    example = Example(tokens, HIDDEN)
    for part in parts:
        ways: tuple[Way, Way] = ("ours", "naive")
        ours, naive = alternating_seconds([partial(example.run, part, way) for way in ways], REPEATS)
        results[f"{part}: tokens/s"] = tokens / statistics.median(ours)
        results[f"{part}: seconds, ours / naive"] = statistics.median(a / b for a, b in zip(ours, naive, strict=True))
        difference = example.run(part, "ours") - example.run(part, "naive")
        results[f"{part}: largest difference"] = float(difference.abs().max())
    return results
