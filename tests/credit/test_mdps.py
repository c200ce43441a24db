"""Credit against the truth, in worlds small enough to know it: expected gradients, and who finds the decisive step."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from agentbench_credit.credit import Credit, CreditMethod
from agentbench_credit.credit.bepo import bepo
from agentbench_credit.credit.dr_grpo import dr_grpo
from agentbench_credit.credit.gae import gae
from agentbench_credit.credit.gagpo import gagpo
from agentbench_credit.credit.gated_bepo import gated_bepo
from agentbench_credit.credit.gigpo import gigpo
from agentbench_credit.credit.grpo import grpo
from agentbench_credit.credit.rloo import rloo
from agentbench_credit.credit.rtmc import rtmc
from agentbench_credit.credit.vineppo import vineppo
from mdps import DecisiveChain, StopWorld

Floats = NDArray[np.float64]

GRADED = StopWorld(logits=(-0.8, 0.4, -0.2), pay=(0.9, 0.0, 1.0, 0.4))
BINARY = StopWorld(logits=(-0.8, 0.4, -0.2), pay=(0.0, 1.0, 0.0, 1.0))
WRONG = (2.0, -1.0, 2.0)
"""Values that are far from the truth."""


def unbiased(world: StopWorld, _: int) -> Floats:
    return np.ones(world.horizon)


def with_itself_in_the_baseline(world: StopWorld, n: int) -> Floats:
    """A rollout is 1/n of the mean that it is compared with."""
    return np.full(world.horizon, (n - 1) / n)


def against_visitors(world: StopWorld, n: int) -> Floats:
    """The same among the visitors of a step: E[max(m − 1, 0)] / E[m], m binomial, so rare steps are learned slower."""
    q = world.reach[:-1]
    return 1.0 - (1.0 - (1.0 - q) ** n) / (n * q)


def both(world: StopWorld, n: int) -> Floats:
    return with_itself_in_the_baseline(world, n) + against_visitors(world, n)


MONTE_CARLO = {"gamma": 1.0, "norm": "none"}
Factor = Callable[[StopWorld, int], Floats]
FACTORS: list[tuple[CreditMethod, dict[str, Any], Factor]] = [
    (rloo, {}, unbiased),
    (rloo, {"baseline_over": "step"}, unbiased),  # however the others are weighed, a rollout is not one of them
    (vineppo, {}, unbiased),
    (gae, MONTE_CARLO | {"gae_lambda": 1.0}, unbiased),
    (gae, MONTE_CARLO | {"gae_lambda": 0.95}, unbiased),
    (gae, MONTE_CARLO | {"gae_lambda": 0.0}, unbiased),
    (dr_grpo, {}, with_itself_in_the_baseline),
    (gigpo, MONTE_CARLO | {"episode_norm": "none", "omega": 0.0}, with_itself_in_the_baseline),
    (gigpo, MONTE_CARLO | {"episode_norm": "none"}, both),
    (gagpo, MONTE_CARLO | {"gae_lambda": 1.0}, against_visitors),
    (gagpo, MONTE_CARLO | {"gae_lambda": 0.8}, against_visitors),
    (gagpo, MONTE_CARLO | {"gae_lambda": 0.0}, against_visitors),
    (bepo, MONTE_CARLO | {"alpha_max": 1.0}, against_visitors),
    (rtmc, {"gamma": 1.0, "n0": 0.0}, against_visitors),
]
"""The expected estimate is the exact gradient, step by step times a factor. One line adds a method."""
CASES = [
    pytest.param(method, params, factor, id=f"{method.name}{i}") for i, (method, params, factor) in enumerate(FACTORS)
]


def expected(
    world: StopWorld, n: int, method: CreditMethod, values: tuple[float, ...] | None = None, **params: Any
) -> Floats:
    """Expected estimate with groups of n, over every group that there can be."""
    groups = world.every_group(n)
    batch = world.batch(groups, values)
    return world.expectation(batch, method(batch, **params), groups)


def cosine(a: Floats, b: Floats) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_the_gradient_is_the_derivative_of_the_expected_reward() -> None:
    for t in range(GRADED.horizon):
        ends = []
        for step in (1e-5, -1e-5):
            logits = list(GRADED.logits)
            logits[t] += step
            moved = StopWorld(tuple(logits), GRADED.pay)
            ends.append(float(moved.probability @ moved.pay))
            assert moved.values[0] == pytest.approx(ends[-1])
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(GRADED.gradient()[t], abs=1e-9)
    assert np.abs(GRADED.gradient()).min() > 0.01, "there is nothing to learn"


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize(("method", "params", "factor"), CASES)
def test_the_expected_estimate_is_the_gradient_times_a_known_factor(
    method: CreditMethod, params: dict[str, Any], factor: Factor, n: int
) -> None:
    if n == 1 and factor is unbiased and not method.signals:
        n = 3  # a group of one has nothing to compare with
    found = expected(GRADED, n, method, **params)
    np.testing.assert_allclose(found, factor(GRADED, n) * GRADED.gradient(), rtol=0, atol=1e-12)


@cache
def sampled() -> tuple[list[tuple[int, ...]], Any]:
    rng = np.random.default_rng(0)
    drawn = rng.choice(GRADED.horizon + 1, size=(3000, 4), p=GRADED.probability)
    groups = [tuple(group) for group in drawn.tolist()]
    return groups, GRADED.batch(groups)


@pytest.mark.parametrize(("method", "params", "factor"), CASES)
def test_sampled_groups_agree_within_their_error(method: CreditMethod, params: dict[str, Any], factor: Factor) -> None:
    groups, batch = sampled()
    estimates = GRADED.estimates(batch, method(batch, **params), groups)
    errors = estimates.std(0, ddof=1) / math.sqrt(len(groups))
    distance = np.abs(estimates.mean(0) - factor(GRADED, 4) * GRADED.gradient())
    assert (distance <= 5 * errors).all()
    assert (errors < 0.2 * np.abs(GRADED.gradient())).all(), "the bound excludes something"


def test_values_need_not_be_true_where_they_are_a_baseline_only() -> None:
    """λ = 1 forgives any values; else the error e of the next step's value moves the estimate by −q p (1 − p) e."""
    found = expected(GRADED, 1, gae, WRONG, **MONTE_CARLO, gae_lambda=1.0)
    np.testing.assert_allclose(found, GRADED.gradient(), rtol=0, atol=1e-12)
    error = np.append(np.subtract(WRONG, GRADED.values)[1:], 0.0)
    bias = -GRADED.reach[:-1] * GRADED.stop * (1 - GRADED.stop) * error
    assert np.abs(bias[:-1]).min() > 0.05
    for estimate in (
        expected(GRADED, 1, gae, WRONG, **MONTE_CARLO, gae_lambda=0.0),
        expected(GRADED, 1, vineppo, WRONG),
    ):
        np.testing.assert_allclose(estimate, GRADED.gradient() + bias, rtol=0, atol=1e-12)
    # Fresh rollouts err to both sides alike.
    mirrored = tuple(2 * np.array(GRADED.values) - WRONG)
    mean = (expected(GRADED, 1, vineppo, WRONG) + expected(GRADED, 1, vineppo, mirrored)) / 2
    np.testing.assert_allclose(mean, GRADED.gradient(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [2, 4])
def test_grpo_scales_the_gradient_of_wins_and_losses(n: int) -> None:
    """With k wins in n the estimate has k (n − k) / n² times the difference of winners and losers, over the std."""
    p = float(BINARY.probability @ BINARY.pay)
    chances = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    shares = [k * (n - k) / n**2 for k in range(n + 1)]
    stds = [math.sqrt(k * (n - k) / (n * (n - 1))) for k in range(n + 1)]
    scale = sum(c * s / std for c, s, std in zip(chances, shares, stds, strict=True) if std) / (p * (1 - p))
    found = expected(BINARY, n, grpo, eps=0.0)
    np.testing.assert_allclose(found, scale * BINARY.gradient(), rtol=0, atol=1e-12)
    assert scale > 1.2 * (n - 1) / n, "dividing by a std below 1 makes more of the group than there is"


def test_grpo_bends_the_gradient_of_graded_rewards() -> None:
    """Groups with a small spread count more than those with a large one, whatever they would add."""
    found = expected(GRADED, 4, grpo)
    assert 0.8 < cosine(found, GRADED.gradient()) < 0.9999
    assert cosine(expected(GRADED, 4, dr_grpo), GRADED.gradient()) == pytest.approx(1.0, abs=1e-12)


def test_a_mean_over_steps_bends_it_where_it_holds_the_rollout_itself() -> None:
    """The longer a rollout, the more it is compared with itself."""
    assert cosine(expected(GRADED, 4, dr_grpo, baseline_over="step"), GRADED.gradient()) < 0.9999


@pytest.mark.parametrize("method", [grpo, gigpo, gagpo, bepo, gated_bepo, rtmc, gae, vineppo], ids=lambda m: m.name)
def test_defaults_point_uphill(method: CreditMethod) -> None:
    """Normalisation, discount and episode term bend the direction, but the expected reward rises along it."""
    for world in (GRADED, BINARY):
        assert cosine(expected(world, 4, method), world.gradient()) > 0.8


CHAIN = DecisiveChain()
WON = np.array([actions[CHAIN.decisive] for actions in CHAIN.actions], dtype=bool)


def chain_credit(method: CreditMethod, **params: Any) -> tuple[Floats, Credit]:
    batch = CHAIN.batch()
    credit = method(batch, **params)
    return CHAIN.table(batch, credit), credit


FINDERS: list[tuple[CreditMethod, dict[str, Any]]] = [
    (vineppo, {}),
    (gae, MONTE_CARLO | {"gae_lambda": 0.0}),
    (gagpo, MONTE_CARLO | {"gae_lambda": 0.0}),
    (bepo, MONTE_CARLO | {"gae_lambda": 0.0, "alpha_max": 1.0}),
    (rtmc, {"gamma": 1.0, "n0": 0.0}),
]
"""Methods that compare what follows a turn with what preceded it."""


@pytest.mark.parametrize(("method", "params"), [pytest.param(m, p, id=m.name) for m, p in FINDERS])
def test_one_step_differences_put_all_credit_on_the_decisive_step(method: CreditMethod, params: dict[str, Any]) -> None:
    credit = np.zeros((len(WON), CHAIN.length))
    credit[:, CHAIN.decisive] = np.where(WON, 0.5, -0.5)
    np.testing.assert_allclose(chain_credit(method, **params)[0], credit, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", [grpo, rloo, dr_grpo], ids=lambda m: m.name)
def test_trajectory_level_credit_is_spread_evenly(method: CreditMethod) -> None:
    table, _ = chain_credit(method)
    np.testing.assert_array_equal(table, np.repeat(table[:, :1], CHAIN.length, axis=1))
    assert (np.sign(table[:, 0]) == np.where(WON, 1, -1)).all()


@pytest.mark.parametrize(
    ("method", "params"),
    [(gigpo, MONTE_CARLO | {"episode_norm": "none"}), (gagpo, MONTE_CARLO | {"gae_lambda": 1.0})],
    ids=["gigpo", "gagpo"],
)
def test_comparing_returns_in_a_state_credits_everything_up_to_the_decisive_step(
    method: CreditMethod, params: dict[str, Any]
) -> None:
    """Before it all rollouts share their states and differ in their returns; after it no state has two returns."""
    table, _ = chain_credit(method, **params)
    episode = table[:, -1]
    np.testing.assert_allclose(episode, np.where(WON, 0.5, -0.5) * (method is gigpo), rtol=0, atol=1e-12)
    step = table - episode[:, None]
    before = np.arange(CHAIN.length) <= CHAIN.decisive
    np.testing.assert_allclose(step, np.where(WON, 0.5, -0.5)[:, None] * before, rtol=0, atol=1e-12)


@pytest.mark.parametrize("gae_lambda", [0.5, 0.8])
def test_between_the_two_credit_fades_with_the_distance_to_the_decisive_step(gae_lambda: float) -> None:
    """A_t = λ^{d − t} δ_d up to the decisive step d, 0 after it; so the smaller λ, the sharper."""
    distance = CHAIN.decisive - np.arange(CHAIN.length)
    fading = np.where(distance >= 0, gae_lambda ** np.maximum(distance, 0.0), 0.0)
    for method in (gagpo, gae):
        table, _ = chain_credit(method, **MONTE_CARLO, gae_lambda=gae_lambda)
        np.testing.assert_allclose(table, np.where(WON, 0.5, -0.5)[:, None] * fading, rtol=0, atol=1e-12)


def test_a_discount_alone_makes_credit_earlier_smaller() -> None:
    """gigpo with γ < 1: returns-to-go differ less the further away they are, so its step term grows up to the step."""
    step = chain_credit(gigpo, norm="none", gamma=0.5)[0] - chain_credit(gigpo, norm="none", gamma=0.5, omega=0.0)[0]
    sizes = np.abs(step).mean(0)
    assert (np.diff(sizes[: CHAIN.decisive + 1]) > 0).all()
    np.testing.assert_allclose(sizes[CHAIN.decisive + 1 :], 0.0, atol=1e-12)


def test_the_gate_opens_at_the_decisive_step_only() -> None:
    """Everywhere else a state has one successor, and the episode advantage is what remains."""
    table, credit = chain_credit(gated_bepo, gamma=1.0)
    assert credit.diagnostics["gate_share"] == pytest.approx(1 / CHAIN.length)
    others = np.delete(table, CHAIN.decisive, axis=1)
    episode, _ = chain_credit(grpo)
    np.testing.assert_allclose(others, np.delete(episode, CHAIN.decisive, axis=1), rtol=0, atol=1e-12)
    assert np.abs(table[:, CHAIN.decisive] - episode[:, 0]).min() > 0.1
