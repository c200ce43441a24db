"""What a credit method is: a function of a batch, a declaration of its needs, and checks around every call."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from agentbench_credit.batch import CreditBatch, Floats
from agentbench_credit.errors import ConfigError, CreditInputError

Level = Literal["trajectory", "turn", "token"]
Ratio = Literal["token", "turn", "sequence"]
Evidence = Literal["code", "paper", "abstract"]
SignalName = Literal["entropy", "teacher_logp", "kl"]


@dataclass(frozen=True, eq=False)
class Credit:
    """Advantages, and what was noticed on the way."""

    values: Floats
    """Advantages: [N] at trajectory level, [T] at turn level, [K] at token level."""
    level: Level
    """What one value belongs to."""
    ratio: Ratio = "token"
    """The importance ratio that the method's objective takes."""
    diagnostics: dict[str, Any] = field(default_factory=dict)
    """Counts and shares by name: group sizes, zero-signal groups, singleton states, anchors, excluded rollouts."""

    def per_token(self, batch: CreditBatch) -> Floats:
        """Return the advantage of each token [K]."""
        if self.level == "token":
            return self.values
        index = batch.turn_of_token if self.level == "turn" else batch.trajectory_of_token
        return self.values[index]


@dataclass(frozen=True)
class CreditMethod:
    """A named credit method; call it like the function it wraps."""

    name: str
    """Registry name."""
    function: Callable[..., Credit] = field(repr=False)
    """``function(batch, **params)``, pure NumPy."""
    paper: str
    """arXiv id."""
    evidence: Evidence
    """How far the formula is known; ``"abstract"`` makes it a reconstruction."""
    summary: str
    """When to use it, in one line."""
    signals: tuple[SignalName, ...] = ()
    """Token signals it reads from the batch."""

    @property
    def is_reconstruction(self) -> bool:
        """Whether the formula is ours because only the paper's abstract is public."""
        return self.evidence == "abstract"

    @property
    def params(self) -> dict[str, Any]:
        """The method's parameters with their defaults."""
        signature = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in signature if p.kind is p.KEYWORD_ONLY}

    def __call__(self, batch: CreditBatch, **params: Any) -> Credit:
        """Assign credit.

        Args:
            batch: The rollouts, with every signal in `signals`.
            **params: Overrides of `params`.

        Returns:
            Finite advantages, 0 for excluded rollouts, with the common diagnostics added.

        Raises:
            ConfigError: A parameter that the method does not have.
            CreditInputError: A missing signal, or a result that is not finite.
        """
        for name in params.keys() - self.params.keys():
            near = difflib.get_close_matches(name, self.params, n=1)
            known = ", ".join(self.params) or "none"
            mend = f"did you mean {near[0]}?" if near else f"it has: {known}"
            raise ConfigError(f"no parameter {name!r}", where=self.name, mend=mend)
        missing = [name for name in self.signals if name not in batch.signals]
        if missing:
            mend = "pass signals=… to CreditBatch.from_trajectories; the trainers compute them"
            raise CreditInputError(f"the batch has no signal {', '.join(missing)}", where=self.name, mend=mend)
        credit = self.function(batch, **params)
        values = self._finish(batch, credit)
        return replace(credit, values=values, diagnostics=_common_diagnostics(batch) | credit.diagnostics)

    def _finish(self, batch: CreditBatch, credit: Credit) -> Floats:
        """Check shape and finiteness, zero the excluded rollouts, add a penalty kept out of the reward."""
        size, owner = {
            "trajectory": (batch.n_trajectories, np.arange(batch.n_trajectories)),
            "turn": (batch.n_turns, batch.trajectory_of_turn),
            "token": (batch.n_tokens, batch.trajectory_of_token),
        }[credit.level]
        if credit.values.shape != (size,):
            raise CreditInputError(f"returned shape {credit.values.shape}, expected ({size},)", where=self.name)
        values = np.where(batch.included[owner], credit.values, 0.0)
        if not np.isfinite(values).all():
            rollout = int(owner[np.flatnonzero(~np.isfinite(values))[0]])
            raise CreditInputError("the advantage is not finite", where=f"{self.name}, rollout {batch.labels[rollout]}")
        return values


def credit_method(
    name: str, *, paper: str, evidence: Evidence, summary: str, signals: tuple[SignalName, ...] = ()
) -> Callable[[Callable[..., Credit]], CreditMethod]:
    """Turn a function ``f(batch, *, params) -> Credit`` into a `CreditMethod`.

    Args:
        name: Registry name.
        paper: arXiv id of the source.
        evidence: ``"code"``, ``"paper"`` or ``"abstract"``.
        summary: When to use it, in one line.
        signals: Token signals it reads.

    Returns:
        The decorator.
    """

    def wrap(function: Callable[..., Credit]) -> CreditMethod:
        return CreditMethod(name, function, paper, evidence, summary, signals)

    return wrap


def _common_diagnostics(batch: CreditBatch) -> dict[str, Any]:
    included = batch.included
    groups, index = np.unique(batch.group[included], return_inverse=True)
    sizes = np.bincount(index, minlength=len(groups))
    low, high = np.full(len(groups), np.inf), np.full(len(groups), -np.inf)
    np.minimum.at(low, index, batch.returns[included])
    np.maximum.at(high, index, batch.returns[included])
    return {
        "rollouts": batch.n_trajectories,
        "excluded_rollouts": int((~included).sum()),
        "groups": len(groups),
        "group_size_min": int(sizes.min(initial=0)) if len(sizes) else 0,
        "group_size_max": int(sizes.max(initial=0)),
        "zero_signal_groups": int((low == high).sum()),
    }
