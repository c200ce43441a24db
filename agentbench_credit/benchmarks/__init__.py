"""Benchmarks: an environment, a preset and a split under one name; suites are lists of benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

from agentbench_credit.registry import Registry


@dataclass(frozen=True)
class Benchmark:
    """One column of results: success on every task of one panel."""

    name: str
    """Registry name."""
    environment: str
    """Name in the environment registry."""
    preset: str
    """The environment's preset."""
    split: str = "test"
    """Split of the panel."""


SOKOBAN = Benchmark("sokoban", environment="sokoban", preset="embedded")

BENCHMARKS: Registry[Benchmark] = Registry(
    "benchmark",
    "agentbench_credit.benchmarks",
    base=Benchmark,
    builtin=lambda: {"sokoban": "agentbench_credit.benchmarks:SOKOBAN"},
)

SUITES = {"embedded": ("sokoban",)}
"""Benchmarks of each suite, in the order of the table."""
