"""The training loop: it learns, stops and goes on exactly, and refuses what would train wrongly."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentbench_credit.batch import CreditBatch
from agentbench_credit.branching import BranchedValues, rollout_values
from agentbench_credit.credit import METHODS
from agentbench_credit.credit.method import Credit, CreditMethod, credit_method
from agentbench_credit.errors import AgentBenchError, ConfigError, TrainingError
from agentbench_credit.policy.base import Sampling
from agentbench_credit.policy.prompts import Prompter
from agentbench_credit.policy.transformers import TransformersPolicy, load_policy
from agentbench_credit.rollout import Start
from agentbench_credit.run_folder import TRAINING_LOG
from agentbench_credit.trainer import Objective, Optimisation, RewardRule, SignalSources, TaskSchedule
from agentbench_credit.trainers.local import collect
from agentbench_credit.trainers.local.trainer import train
from models import small_model, small_tokenizer
from toy_training import ToyEnv, load_panel


@credit_method("centred", paper="", evidence="code", summary="")
def centred(batch: CreditBatch, *, scale: float = 1.0) -> Credit:
    """Return each return minus the mean of all."""
    diagnostics = {"mean": batch.returns.mean(), "name": "centred", "list": [1, 2]}
    return Credit(scale * (batch.returns - batch.returns.mean()), "trajectory", diagnostics=diagnostics)


@credit_method(
    "informed",
    paper="",
    evidence="code",
    summary="",
    signals=("teacher_logp", "entropy", "kl"),
    teacher="reference",
    scheduled=True,
)
def informed(batch: CreditBatch) -> Credit:
    """Return the sum of the token signals, to see that they arrive."""
    tokens = [batch.signals[name] for name in ("teacher_logp", "entropy", "kl")]
    return Credit(np.sum(tokens, axis=0), "token", "turn", {"progress": batch.progress})


class Interrupted(TaskSchedule):
    """A schedule under which the user presses Ctrl-C in an update."""

    at: int | None = None

    def starts(self, update: int) -> list[Start]:
        if update == self.at:
            raise KeyboardInterrupt
        return super().starts(update)


def run(
    out: Path,
    updates: int,
    *,
    method: CreditMethod = centred,
    stop_at: int | None = None,
    sampling: Sampling | None = None,
    make_env: Any = ToyEnv,
    objective: Objective | None = None,
    lr: float = 3e-3,
    **parameters: Any,
) -> tuple[Path, TransformersPolicy]:
    tokenizer = small_tokenizer()
    policy = TransformersPolicy(small_model(vocab_size=len(tokenizer)), tokenizer, "small")
    schedule = Interrupted(load_panel("toy", "train"), updates=updates, tasks_per_update=2, group_size=6, seed=3)
    schedule.at = stop_at
    prompt_mode = parameters.pop("prompt_mode", "turn")
    path = train(
        policy,
        make_env,
        schedule,
        method,
        out,
        method_params=parameters.pop("method_params", {}),
        objective=objective or Objective(),
        optimisation=Optimisation(lr=lr, **parameters.pop("optimisation", {})),
        sampling=sampling or Sampling(max_new_tokens=4),
        prompter=Prompter(tokenizer, prompt_mode),
        **parameters,
    )
    return path, policy


def log_of(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((out / TRAINING_LOG).read_text("utf-8").splitlines()))


def without_seconds(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{name: value for name, value in row.items() if not name.startswith("seconds_")} for row in rows]


def assert_equal_weights(first: TransformersPolicy, second: TransformersPolicy) -> None:
    for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_training_raises_the_return(tmp_path: Path) -> None:
    path, policy = run(tmp_path, 25, lr=1e-2, objective=Objective(kl_coefficient=0.0))
    returns = [float(row["return_mean"]) for row in log_of(tmp_path)]
    assert np.mean(returns[-5:]) > np.mean(returns[:5]) + 0.3, returns
    assert path == tmp_path / "checkpoints" / "update-000025"
    loaded = load_policy(str(path), device="cpu")
    assert_equal_weights(loaded, policy)
    assert [p.name for p in sorted((tmp_path / "checkpoints").iterdir())] == ["update-000020", "update-000025"]


def test_the_log_holds_what_happened(tmp_path: Path) -> None:
    run(tmp_path, 2, method_params={"scale": 2.0})
    rows = log_of(tmp_path)
    assert [row["update"] for row in rows] == ["1", "2"]
    row = {name: float(value) for name, value in rows[0].items()}
    assert row["turns"] == 2.0
    assert 2 <= row["tokens"] <= 8
    assert row["credit_rollouts"] == 12
    assert row["credit_groups"] == 2
    assert row["credit_mean"] == pytest.approx(row["return_mean"])
    assert row["ratio_mean"] == pytest.approx(1.0, abs=1e-5)
    assert row["grad_norm"] > 0
    assert row["reference_kl"] == pytest.approx(0.0, abs=1e-9)
    assert float(rows[1]["reference_kl"]) > 0
    assert row["lr"] == 3e-3
    assert 0 < row["entropy"] < np.log(300)
    assert {"seconds_rollout", "seconds_signals", "seconds_credit", "seconds_optimise"} <= row.keys()
    assert not {"credit_name", "credit_list"} & row.keys()


@pytest.mark.parametrize("prompt_mode", ["turn", "conversation"])
def test_a_stopped_run_ends_like_one_that_was_not(tmp_path: Path, prompt_mode: str) -> None:
    settings: dict[str, Any] = {
        "prompt_mode": prompt_mode,
        "checkpoint_every": 2,
        "optimisation": {"minibatches": 2, "epochs": 2, "warmup_updates": 4},
    }
    straight, policy = run(tmp_path / "straight", 6, **settings)
    for stop_at in (4, 6):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "stopped", 6, stop_at=stop_at, **settings)
        assert len(log_of(tmp_path / "stopped")) == stop_at - 1
    resumed, resumed_policy = run(tmp_path / "stopped", 6, **settings)
    assert_equal_weights(policy, resumed_policy)
    rows = log_of(tmp_path / "straight")
    assert without_seconds(rows) == without_seconds(log_of(tmp_path / "stopped"))
    assert len({row["loss"] for row in rows}) == 6, "there is nothing to compare"
    assert straight.name == resumed.name == "update-000006"


def test_a_run_stopped_before_its_first_checkpoint_starts_anew(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", 2, stop_at=2)
    run(tmp_path / "stopped", 2)
    run(tmp_path / "straight", 2)
    assert without_seconds(log_of(tmp_path / "stopped")) == without_seconds(log_of(tmp_path / "straight"))


def test_a_finished_run_does_nothing_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, policy = run(tmp_path, 2)
    before = (tmp_path / TRAINING_LOG).read_bytes()
    again, loaded = run(tmp_path, 2, stop_at=1)
    assert again == first
    assert "all 2 updates are done" in capsys.readouterr().out
    assert (tmp_path / TRAINING_LOG).read_bytes() == before
    assert_equal_weights(policy, loaded)
    more, _ = run(tmp_path, 3)
    assert more.name == "update-000003"
    assert [row["update"] for row in log_of(tmp_path)] == ["1", "2", "3"]


def test_methods_get_their_signals_and_the_share_of_the_budget(tmp_path: Path) -> None:
    run(tmp_path, 4, method=informed)
    assert [float(row["credit_progress"]) for row in log_of(tmp_path)] == [0.0, 0.25, 0.5, 0.75]


COLUMNS = {
    "gae": ("critic_loss", "seconds_signals"),
    "vineppo": ("branch_rollouts", "branch_turns", "seconds_branches"),
    "opsd": ("distillation_loss", "credit_taught_share"),
    "sdpo": ("distillation_loss", "credit_taught_share"),
    "gear": ("credit_anchors",),
}
"""What the log holds for these methods beyond the common columns."""


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_trains(name: str, tmp_path: Path) -> None:
    run(
        tmp_path,
        2,
        method=METHODS.get(name),
        sources=SignalSources(branches=2),
        objective=Objective(kl_coefficient=0.0),  # so that nothing but the method has a gradient
    )
    rows = log_of(tmp_path)
    assert [row["update"] for row in rows] == ["1", "2"]
    for column in ("loss", "return_mean", *COLUMNS.get(name, ())):
        assert all(math.isfinite(float(row[column])) for row in rows), column
    # Every state of the toy leads to one next state, which leaves graft nothing to compare.
    assert all((float(row["grad_norm"]) > 1e-6) == (name != "graft") for row in rows)
    assert float(rows[0]["credit_reconstruction"]) == METHODS.get(name).is_reconstruction


def test_branches_are_valued_as_the_method_and_the_rewards_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def recorded(*args: Any, **options: Any) -> BranchedValues:
        asked.append(options)
        return rollout_values(*args, **options)

    monkeypatch.setattr(collect, "rollout_values", recorded)
    rule = RewardRule(success_reward=7.0, invalid_action_penalty=-0.5)
    options = {"method_params": {"gamma": 0.5}, "rewards": rule, "sources": SignalSources(branches=3)}
    run(tmp_path, 2, method=METHODS.get("vineppo"), **options)
    assert [(each["gamma"], each["rollouts"], each["invalid_action_penalty"]) for each in asked] == [(0.5, 3, -0.5)] * 2
    assert asked[0]["seed"] != asked[1]["seed"]
    assert all(each["rewards"] == rule.apply for each in asked)
    outside = RewardRule(invalid_action_penalty=-0.5, penalty_in_reward=False)
    run(tmp_path / "outside", 1, method=METHODS.get("vineppo"), rewards=outside, sources=SignalSources(branches=1))
    assert (asked[2]["gamma"], asked[2]["invalid_action_penalty"]) == (1.0, 0.0)


def test_shuffled_references_teach_something_else(tmp_path: Path) -> None:
    run(tmp_path / "own", 2, method=METHODS.get("gear"))
    run(tmp_path / "other", 2, method=METHODS.get("gear"), sources=SignalSources(references="shuffled"))
    first, second = log_of(tmp_path / "own")[0], log_of(tmp_path / "other")[0]
    assert first["return_mean"] == second["return_mean"], "the first rollouts are the same"
    assert first["credit_weight_max"] != second["credit_weight_max"]


def test_a_teacher_without_a_reference_is_announced(tmp_path: Path) -> None:
    class Silent(ToyEnv):
        def reference(self) -> str | None:
            return None

    with pytest.warns(UserWarning, match="but only 0% of the turns have something to show it"):
        run(tmp_path, 1, method=informed, make_env=Silent)


def test_a_crashing_environment_costs_its_rollouts_only(tmp_path: Path) -> None:
    class Broken(ToyEnv):
        def step(self, action: str) -> Any:
            if self._letter == "a":
                raise RuntimeError("engine lost")
            return super().step(action)

    with pytest.warns(UserWarning, match="engine lost"):
        run(tmp_path, 3, make_env=Broken)
    rows = log_of(tmp_path)
    assert [row["errors"] for row in rows].count("6") == 1
    assert [float(row["credit_excluded_rollouts"]) for row in rows] == [float(row["errors"]) for row in rows]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sampling": Sampling(top_p=0.9)}, "cannot train on Sampling.* top_p 1"),
        ({"sampling": Sampling(top_k=5)}, "cannot train on Sampling"),
        ({"sampling": Sampling(temperature=0.0)}, "temperature > 0"),
        ({"checkpoint_every": 0}, "checkpoint_every is 0"),
        ({"optimisation": {"batch_tokens": 0}}, "batch_tokens"),
    ],
)
def test_what_would_train_wrongly_is_refused(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(tmp_path, 1, **wrong)


def test_a_policy_that_reports_other_log_probabilities_is_stopped_with_nothing_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, 1)
    stream = TransformersPolicy.stream

    def scaled(self: TransformersPolicy, sampling: Sampling) -> Any:
        return stream(self, Sampling(temperature=0.5, max_new_tokens=sampling.max_new_tokens))

    monkeypatch.setattr(TransformersPolicy, "stream", scaled)
    with pytest.raises(TrainingError, match=r"rollout 2:level-\d/\d, turn \d: sampled with .*--ratio-tolerance"):
        run(tmp_path, 2)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["update-000001"]


def test_a_divergence_stops_with_nothing_saved_over(tmp_path: Path) -> None:
    run(tmp_path, 1)
    with pytest.raises(AgentBenchError, match=r"not finite|gradient norm"):
        run(tmp_path, 2, method_params={"scale": 1e38})
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["update-000001"]
    assert [row["update"] for row in log_of(tmp_path)] == ["1"]
    run(tmp_path, 2)
    assert [row["update"] for row in log_of(tmp_path)] == ["1", "2"]
