"""What a credit method is: a function of a batch, a declaration of its needs, and checks around every call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from agentbench_credit.batch import Bools, CreditBatch, Floats, Ints, Level
from agentbench_credit.credit.groups import trajectory_groups
from agentbench_credit.credit.params import check_params
from agentbench_credit.errors import CreditInputError

Ratio = Literal["token", "turn", "sequence"]
Evidence = Literal["code", "paper", "abstract"]
Teacher = Literal["none", "reference", "feedback"]
"""What a teacher's prompt shows: the ground truth, or a successful sibling's answer and the environment's feedback."""
SignalName = Literal["entropy", "teacher_logp", "kl", "kl_topk", "taught", "values", "final_values", "rollout_values"]
"""What a trainer computes for a method, in nats unless it is a value.

Per token: ``entropy`` H(p_j) of the student, ``teacher_logp`` log q_j(y_j), ``kl`` D(p_j‖q_j) over the vocabulary,
``kl_topk`` the same over the student's likeliest tokens with the rest in one. Per turn: ``taught`` 1 where a teacher's
prompt has more to show than the student's, else 0, known from the trajectories; ``values`` V(s_t) of a learned critic;
``rollout_values`` the mean return of fresh rollouts from s_t. Per trajectory: ``final_values`` V of its end.
"""
Signals = tuple[SignalName, ...] | Callable[..., tuple[SignalName, ...]]
"""Signals that a method reads; a function of its parameters where they decide."""


@dataclass(frozen=True, eq=False)
class Distillation:
    """A loss that pulls the student p towards a teacher q, for methods that assign no advantage."""

    weights: Floats
    """Weight of each token in the mean [K]; 0 leaves it out."""
    top_k: int | None = None
    """Divergence over the student's likeliest tokens, the rest in one; None for the whole vocabulary."""
    token_clip: float | None = None
    """Most that one token's divergence counts, in nats; None for no bound."""
    ratio_clip: float | None = None
    """Most that the importance ratio, which multiplies the divergence, counts; None leaves the ratio out."""
    teacher_decay: float | None = None
    """Share of the student that flows into the teacher's weights at each optimiser step; None keeps the first ones."""


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
    distillation: Distillation | None = None
    """A loss beside, or instead of, the policy gradient."""
    value_targets: Floats | None = None
    """What a critic should have predicted at each turn [T]; None for methods without one."""

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
    signals: Signals = ()
    """Signals it reads from the batch."""
    teacher: Teacher = "none"
    """What the teacher's prompt shows."""
    scheduled: bool = False
    """Whether its credit depends on the share of the training budget that is spent."""

    @property
    def is_reconstruction(self) -> bool:
        """Whether the formula is ours because only the paper's abstract is public."""
        return self.evidence == "abstract"

    @property
    def params(self) -> dict[str, Any]:
        """The method's parameters with their defaults."""
        signature = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in signature if p.kind is p.KEYWORD_ONLY}

    def signals_for(self, params: Mapping[str, Any]) -> tuple[SignalName, ...]:
        """Return the signals that the method reads with these parameters, its defaults where none is given.

        Raises:
            ConfigError: A parameter that the method does not have, or a value outside its declared range.
        """
        check_params(self.name, self.function, self.params, params)
        return self.signals(**self.params | dict(params)) if callable(self.signals) else self.signals

    def __call__(self, batch: CreditBatch, **params: Any) -> Credit:
        """Assign credit.

        An invalid-action penalty that was kept out of the reward is added to the advantage of its turn, and of each of
        the turn's tokens, after everything else; a trajectory-level method then returns turn-level values.

        Args:
            batch: The rollouts, with every signal in `signals`.
            **params: Overrides of `params`.

        Returns:
            Finite advantages, 0 for excluded rollouts, with the diagnostics that every method has: how many rollouts
            there are, how many are excluded, how many groups of which sizes, how many of them hold one return only
            (``zero_signal_groups``) or got no advantage but 0 (``groups_without_credit``), and the share of turns that
            a teacher knew more about (``taught_share``).

        Raises:
            ConfigError: A parameter that the method does not have, or a value outside its declared range.
            CreditInputError: A missing signal, or a result that is not finite.
        """
        check_params(self.name, self.function, self.params, params)
        missing = [name for name in self.signals_for(params) if name not in batch.signals]
        if missing:
            mend = "pass signals=… to CreditBatch.from_trajectories; the trainers compute them"
            raise CreditInputError(f"the batch has no signal {', '.join(missing)}", where=self.name, mend=mend)
        credit = self.function(batch, **params)
        if credit.values.shape != (batch.size(credit.level),):
            what = f"returned shape {credit.values.shape}, expected ({batch.size(credit.level)},)"
            raise CreditInputError(what, where=self.name)
        if credit.distillation is not None:
            self._check_distillation(batch, credit.distillation)
        if credit.value_targets is not None:
            self._check_value_targets(batch, credit.value_targets)
        if not batch.penalty_in_reward:
            credit = _with_penalty(batch, credit)
        values = credit.values
        if not batch.included.all():
            values = np.where(_included(batch, credit.level), values, 0.0)
        finite = np.isfinite(values)
        if not finite.all():
            place = batch.place(credit.level, int(np.argmin(finite)))
            raise CreditInputError("the advantage is not finite", where=f"{self.name}, {place}")
        credit = replace(credit, values=values)
        common = {"reconstruction": self.is_reconstruction} | _common_diagnostics(batch, credit)
        if self.teacher != "none" and "taught" in batch.signals:
            taught = batch.signals["taught"][_included(batch, "turn")]
            common["taught_share"] = float(taught.mean()) if taught.size else 0.0
        return replace(credit, diagnostics=common | credit.diagnostics)

    def _check_value_targets(self, batch: CreditBatch, targets: Floats) -> None:
        if targets.shape != (batch.n_turns,):
            raise CreditInputError(
                f"returned value targets of shape {targets.shape}, expected ({batch.n_turns},)", where=self.name
            )
        wrong = ~np.isfinite(targets) & _included(batch, "turn")
        if wrong.any():
            bad = int(np.argmax(wrong))
            place = f"{self.name}, {batch.place('turn', bad)}"
            raise CreditInputError(f"a value target is {targets[bad]}", where=place)

    def _check_distillation(self, batch: CreditBatch, distillation: Distillation) -> None:
        weights = distillation.weights
        if weights.shape != (batch.n_tokens,):
            what = f"returned distillation weights of shape {weights.shape}, expected ({batch.n_tokens},)"
            raise CreditInputError(what, where=self.name)
        wrong = ~(np.isfinite(weights) & (weights >= 0))
        if wrong.any():
            bad = int(np.argmax(wrong))
            place = f"{self.name}, {batch.place('token', bad)}"
            raise CreditInputError(f"a distillation weight is {weights[bad]}", where=place)


def credit_method(
    name: str,
    *,
    paper: str,
    evidence: Evidence,
    summary: str,
    signals: Signals = (),
    teacher: Teacher = "none",
    scheduled: bool = False,
) -> Callable[[Callable[..., Credit]], CreditMethod]:
    """Turn a function ``f(batch, *, params) -> Credit`` into a `CreditMethod`.

    Args:
        name: Registry name.
        paper: arXiv id of the source.
        evidence: ``"code"``, ``"paper"`` or ``"abstract"``.
        summary: When to use it, in one line.
        signals: Signals it reads.
        teacher: What the teacher's prompt shows.
        scheduled: Whether its credit depends on the share of the training budget that is spent.

    Returns:
        The decorator.
    """

    def wrap(function: Callable[..., Credit]) -> CreditMethod:
        return CreditMethod(name, function, paper, evidence, summary, signals, teacher, scheduled)

    return wrap


def _included(batch: CreditBatch, level: Level) -> Bools:
    """Return which entries of a level belong to included rollouts."""
    if level == "token":
        return batch.over_tokens(batch.included, "trajectory")
    return batch.included if level == "trajectory" else batch.included[batch.trajectory_of_turn]


def _any_by(flags: Bools, offsets: Ints | None) -> Bools:
    """Return whether any flag is set in each of the intervals that the offsets divide them into."""
    if offsets is None:
        return flags
    found = np.zeros(len(offsets) - 1, dtype=bool)
    filled = np.diff(offsets) > 0
    if filled.any():
        found[filled] = np.logical_or.reduceat(flags, offsets[:-1][filled])
    return found


def _with_penalty(batch: CreditBatch, credit: Credit) -> Credit:
    """Add each turn's penalty to its advantage, spreading trajectory-level values over the turns."""
    if credit.level == "token":
        return replace(credit, values=credit.values + batch.over_tokens(batch.penalty, "turn"))
    values = credit.values if credit.level == "turn" else credit.values[batch.trajectory_of_turn]
    return replace(credit, values=values + batch.penalty, level="turn")


def _common_diagnostics(batch: CreditBatch, credit: Credit) -> dict[str, Any]:
    """Count rollouts and groups; a group's size is its included rollouts, zero-signal if they have one return."""
    groups = trajectory_groups(batch)
    offsets = {"trajectory": None, "turn": batch.turn_offsets, "token": batch.token_offsets[batch.turn_offsets]}
    credited = np.bincount(batch.group, _any_by(credit.values != 0, offsets[credit.level]), batch.n_groups) > 0
    return {
        "rollouts": batch.n_trajectories,
        "excluded_rollouts": int((~batch.included).sum()),
        "groups": groups.n_groups,
        "group_size_min": int(groups.sizes.min()) if groups.n_groups else 0,
        "group_size_max": int(groups.sizes.max(initial=0)),
        "zero_signal_groups": int(groups.all_equal(batch.returns, batch.absolute_returns).sum()),
        "groups_without_credit": int((~credited).sum()),
    }
