"""What a credit method is: a function of a batch, a declaration of its needs, and checks around every call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from agentbench_credit.batch import Bools, CreditBatch, Floats, Level
from agentbench_credit.credit.groups import trajectory_groups
from agentbench_credit.credit.params import check_params
from agentbench_credit.errors import CreditInputError

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
        return batch.over_tokens(self.values, self.level)


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

        An invalid-action penalty that was kept out of the reward is added to the advantage of its turn, and of each of
        the turn's tokens, after everything else; a trajectory-level method then returns turn-level values.

        Args:
            batch: The rollouts, with every signal in `signals`.
            **params: Overrides of `params`.

        Returns:
            Finite advantages, 0 for excluded rollouts, with the common diagnostics added.

        Raises:
            ConfigError: A parameter that the method does not have, or a value outside its declared range.
            CreditInputError: A missing signal, or a result that is not finite.
        """
        check_params(self.name, self.function, self.params, params)
        missing = [name for name in self.signals if name not in batch.signals]
        if missing:
            mend = "pass signals=… to CreditBatch.from_trajectories; the trainers compute them"
            raise CreditInputError(f"the batch has no signal {', '.join(missing)}", where=self.name, mend=mend)
        credit = self.function(batch, **params)
        if credit.values.shape != (batch.size(credit.level),):
            what = f"returned shape {credit.values.shape}, expected ({batch.size(credit.level)},)"
            raise CreditInputError(what, where=self.name)
        if not batch.penalty_in_reward:
            credit = _with_penalty(batch, credit)
        values = np.where(_included(batch, credit.level), credit.values, 0.0)
        finite = np.isfinite(values)
        if not finite.all():
            place = batch.place(credit.level, int(np.argmin(finite)))
            raise CreditInputError("the advantage is not finite", where=f"{self.name}, {place}")
        common = {"reconstruction": self.is_reconstruction} | _common_diagnostics(batch)
        return replace(credit, values=values, diagnostics=common | credit.diagnostics)


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


def _included(batch: CreditBatch, level: Level) -> Bools:
    """Return which entries of a level belong to included rollouts."""
    if level == "token":
        return batch.over_tokens(batch.included, "trajectory")
    return batch.included if level == "trajectory" else batch.included[batch.trajectory_of_turn]


def _with_penalty(batch: CreditBatch, credit: Credit) -> Credit:
    """Add each turn's penalty to its advantage, spreading trajectory-level values over the turns."""
    if credit.level == "token":
        return replace(credit, values=credit.values + batch.over_tokens(batch.penalty, "turn"))
    values = credit.values if credit.level == "turn" else credit.values[batch.trajectory_of_turn]
    return replace(credit, values=values + batch.penalty, level="turn")


def _common_diagnostics(batch: CreditBatch) -> dict[str, Any]:
    """Count rollouts and groups; a group's size is its included rollouts, zero-signal if they have one return."""
    groups = trajectory_groups(batch)
    return {
        "rollouts": batch.n_trajectories,
        "excluded_rollouts": int((~batch.included).sum()),
        "groups": groups.n_groups,
        "group_size_min": int(groups.sizes.min()) if groups.n_groups else 0,
        "group_size_max": int(groups.sizes.max(initial=0)),
        "zero_signal_groups": int(groups.all_equal(batch.returns, batch.absolute_returns).sum()),
    }
