"""Declared parameters: what is refused, and with which advice."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit import METHODS, Credit, credit_method
from agentbench_credit.errors import ConfigError

if TYPE_CHECKING:
    from agentbench_credit.credit.params import Share

BATCH = CreditBatch.from_rewards(
    [[[1.0], [0.0]]], signals={"kl": [0.0, 0.0], "entropy": [0.0, 0.0], "teacher_logp": [0.0, 0.0]}
)


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("grpo", {"dof": 1}, "grpo: no parameter 'dof' — did you mean ddof?"),
        ("rloo", {"xyz": 1}, "rloo: no parameter 'xyz' — it has: baseline_over"),
        ("grpo", {"ddof": 2}, "grpo: ddof is 2 — give 0 or 1"),
        ("grpo", {"eps": -1.0}, "grpo: eps is -1.0 — give a number at least 0"),
        ("grpo", {"eps": math.nan}, "eps is nan"),
        ("grpo", {"baseline_over": "steps"}, "give 'trajectory' or 'step'"),
        ("gigpo", {"gamma": 1.01}, "give a number at least 0 and at most 1"),
        ("gigpo", {"gamma": "0.9"}, "gamma is '0.9'"),
        ("gigpo", {"gamma": True}, "gamma is True"),
        ("gigpo", {"gamma": math.inf}, "gamma is inf"),
        ("gigpo", {"norm": None}, "give 'std' or 'none'"),
        ("gear", {"temperature": 0.0}, "give a number at least 1e-09"),
        ("gear", {"epsilon": 1.5}, "epsilon is 1.5"),
        ("gear", {"anchor_quantile": 90}, "give a number at least 0 and at most 1, or inf"),
        ("gear", {"anchor_quantile": -math.inf}, "anchor_quantile is -inf"),
        ("gear", {"mean_preserving": 1}, "give true or false"),
    ],
)
def test_refused(method: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        METHODS.get(method)(BATCH, **params)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("grpo", {"ddof": 0, "eps": 0}),
        ("gigpo", {"gamma": 1, "omega": 2.5}),
        ("gear", {"entropy_quantile": math.inf, "anchor_floor": math.inf, "mean_preserving": False}),
    ],
)
def test_allowed(method: str, params: dict[str, Any]) -> None:
    assert METHODS.get(method)(BATCH, **params).values.size == 2


def test_a_method_without_readable_annotations_still_runs() -> None:
    @credit_method("own", paper="", evidence="code", summary="")
    def own(batch: CreditBatch, *, share: Share = 0.5, other=1) -> Credit:  # type: ignore[no-untyped-def]  # on purpose
        return Credit(batch.returns * share * other, "trajectory")

    assert own(BATCH, share=0.25, other=2).values.tolist() == [0.5, 0.0]
    with pytest.raises(ConfigError, match="no parameter 'shares'"):
        own(BATCH, shares=1)
