"""The train command: parameters, the run's folder, kill −9, and what a user sees when something is wrong."""

from __future__ import annotations

import csv
import os
import random
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit import METHODS
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.env import ENVIRONMENTS
from agentbench_credit.errors import AgentBenchError, ConfigError
from agentbench_credit.policy.base import Sampling
from agentbench_credit.policy.transformers import load_policy
from agentbench_credit.run_folder import TRAINING_LOG, only_process
from agentbench_credit.train import TrainConfig, main, parse_params, run_training
from agentbench_credit.trainer import Objective, Optimisation, RewardRule, SignalSources
from models import save_model
from toy_training import TOY

ROOT = Path(__file__).parent.parent


@credit_method("fading", paper="", evidence="code", summary="", scheduled=True)
def fading(batch: CreditBatch, *, start: float = 1.0) -> Credit:
    """Return credit that fades over the training."""
    return Credit((start - batch.progress) * batch.returns, "trajectory")


@pytest.fixture(scope="module", autouse=True)
def _registered() -> None:
    ENVIRONMENTS.register("toy", TOY)
    METHODS.register("fading", fading)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def config(model: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        method="grpo",
        model=str(model),
        env="toy",
        out=tmp_path / "run",
        device="cpu",
        updates=2,
        tasks_per_update=2,
        group_size=4,
        max_new_tokens=4,
        lr=3e-3,
        checkpoint_every=1,
    )


def log_of(out: Path) -> list[dict[str, str]]:
    rows = csv.DictReader((out / TRAINING_LOG).read_text("utf-8").splitlines())
    return [{name: value for name, value in row.items() if not name.startswith("seconds_")} for row in rows]


@pytest.mark.parametrize("method", ["grpo", "gigpo", "rlsd", "gear"])
def test_every_kind_of_method_trains_and_its_checkpoint_loads(config: TrainConfig, method: str) -> None:
    checkpoint = run_training(replace(config, method=method))
    assert checkpoint == config.out / "checkpoints" / "update-000002"
    before, after = load_policy(config.model, device="cpu"), load_policy(str(checkpoint), device="cpu")
    assert before.fingerprint() != after.fingerprint()
    assert len(log_of(config.out)) == 2


def test_the_command_prints_the_checkpoint(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"method": "grpo", "model": model, "env": "toy", "out": tmp_path, "updates": 1, "device": "cpu"}
    options |= {"tasks-per-update": 1, "group-size": 2, "max-new-tokens": 2}
    arguments = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    main([*arguments, "--params", "ddof=0", "eps=1e-3"])
    assert f"checkpoint: {tmp_path / 'checkpoints' / 'update-000001'}" in capsys.readouterr().out


def test_parameters_are_literals_numbers_or_text() -> None:
    gear = METHODS.get("gear")
    texts = ("kl_floor=inf",)
    with pytest.raises(ConfigError, match="no parameter 'kl_floor'"):
        parse_params(gear, texts)
    assert parse_params(METHODS.get("gigpo"), ("norm=none", "omega=0.5")) == {"norm": "none", "omega": 0.5}
    assert parse_params(METHODS.get("gigpo"), ("norm='none'",)) == {"norm": "none"}
    assert parse_params(gear, ("entropy_quantile=inf",)) == {"entropy_quantile": float("inf")}
    assert parse_params(gear, ("mean_preserving=false",)) == {"mean_preserving": False}
    with pytest.raises(ConfigError, match="did you mean omega"):
        parse_params(METHODS.get("gigpo"), ("omga=0.5",))
    for wrong in (("omega",), ("omega=1", "omega=2")):
        with pytest.raises(ConfigError, match="give each once, as name=value"):
            parse_params(METHODS.get("gigpo"), wrong)


def test_the_learning_rate_follows_the_size_of_the_model(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    run_training(replace(config, lr=None, updates=1))
    assert log_of(config.out)[0]["lr"] == "0.0001"
    monkeypatch.setattr("agentbench_credit.train.SMALL_MODEL", 1000)
    run_training(replace(config, lr=None, updates=1, out=config.out / "large"))
    assert log_of(config.out / "large")[0]["lr"] == "1e-06"


def test_another_configuration_in_the_same_folder_is_refused_by_field(config: TrainConfig) -> None:
    run_training(replace(config, updates=1))
    with pytest.raises(ConfigError, match=r"group_size: 4 there, 5 asked; seed: 0 there, 1 asked"):
        run_training(replace(config, updates=1, group_size=5, seed=1))
    with pytest.raises(ConfigError, match=r"params: \{\} there, \{'ddof': 0\} asked"):
        run_training(replace(config, updates=1, params=("ddof=0",)))
    run_training(replace(config, updates=1, checkpoint_every=7, batch_tokens=999, parallel=3, ratio_tolerance=0.1))


def test_other_weights_under_the_same_name_are_another_run(config: TrainConfig, tmp_path: Path) -> None:
    run_training(config)
    policy = load_policy(config.model, device="cpu")
    with torch.no_grad():
        next(policy.model.parameters()).add_(0.01)
    changed = tmp_path / "changed"
    policy.model.save_pretrained(changed)
    policy.tokenizer.save_pretrained(changed)
    model = Path(config.model)
    kept = model.rename(tmp_path / "kept")
    try:
        changed.rename(model)
        with pytest.raises(ConfigError, match="weights: "):
            run_training(config)
    finally:
        model.rename(changed)
        kept.rename(model)


def test_more_updates_go_on_unless_the_method_has_a_schedule(config: TrainConfig) -> None:
    run_training(replace(config, updates=1))
    assert run_training(config).name == "update-000002"
    with pytest.raises(ConfigError, match="updates: 2 there, 1 asked"):
        run_training(replace(config, updates=1))
    for method in ("fading", "rlsd"):
        scheduled = replace(config, method=method, out=config.out / method)
        run_training(replace(scheduled, updates=1))
        with pytest.raises(ConfigError, match="updates: 1 there, 2 asked"):
            run_training(scheduled)


def test_what_cannot_be_is_said_before_anything_is_written(config: TrainConfig) -> None:
    wrong: list[tuple[TrainConfig, str]] = [
        (replace(config, method="gaer"), "did you mean gae or gear"),
        (replace(config, env="toyy"), "did you mean toy"),
        (replace(config, trainer="loca"), "did you mean local"),
        (replace(config, tasks_per_update=7), "use 1 to 6 tasks"),
        (replace(config, temperature=-1.0), "out of range"),
        (replace(config, clip_low=2.0), "out of range"),
        (replace(config, epochs=0), "out of range"),
        (replace(config, updates=0), "updates 0"),
        (replace(config, minibatches=3), "3 minibatches of 2 tasks"),
        (replace(config, parallel=0), "parallel is 0"),
        (replace(config, invalid_action_penalty=0.5), "give 0 or a finite negative number"),
        (replace(config, success_reward=float("nan")), "give a finite number"),
        (replace(config, branches=0), "at least 1 branch"),
        (replace(config, prompt_mode="conversation", history=2), "history is 2"),
        (replace(config, model="no-such-model"), "no such model"),
    ]
    for each, message in wrong:
        with pytest.raises(AgentBenchError, match=message):
            run_training(each)
    assert not config.out.exists()


def test_a_folder_that_cannot_be_written_is_one_line(config: TrainConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="the folder cannot be written"):
        run_training(replace(config, out=tmp_path / "file" / "run"))


def test_two_processes_do_not_train_in_one_folder(config: TrainConfig) -> None:
    with only_process(config.out), pytest.raises(ConfigError, match="another process works in this folder"):
        run_training(config)
    assert run_training(config).name == "update-000002"


def test_every_setting_of_a_training_can_be_given_to_the_command() -> None:
    given = {field.name for field in fields(TrainConfig)}
    for kind in (Objective, Optimisation, RewardRule, SignalSources):
        assert {field.name for field in fields(kind)} <= given, kind
    assert {field.name for field in fields(Sampling)} - given == {"top_p", "top_k"}, "training samples from everything"


def command(config: TrainConfig) -> list[str]:
    options = {
        "method": config.method,
        "model": config.model,
        "env": config.env,
        "out": config.out,
        "device": config.device,
        "updates": config.updates,
        "tasks-per-update": config.tasks_per_update,
        "group-size": config.group_size,
        "max-new-tokens": config.max_new_tokens,
        "lr": config.lr,
        "checkpoint-every": config.checkpoint_every,
    }
    script = str(Path(__file__).with_name("toy_training.py"))
    return [sys.executable, script, *(str(part) for name, value in options.items() for part in (f"--{name}", value))]


def test_killed_at_any_moment_the_run_ends_as_if_it_had_not_been(config: TrainConfig) -> None:
    config = replace(config, updates=24, checkpoint_every=2)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(torch.get_num_threads())}
    with subprocess.Popen(command(config), env=environment, stderr=subprocess.PIPE, text=True) as process:
        began = time.monotonic()
        while not list(config.out.glob("checkpoints/update-*")):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() - began < 120
            time.sleep(0.01)
        time.sleep(random.uniform(0.0, 0.5))
        process.kill()
    done = len(log_of(config.out))
    assert done < config.updates, "the run was over before it was killed"
    run_training(config)
    straight = replace(config, out=config.out.with_name("straight"))
    run_training(straight)
    assert log_of(config.out) == log_of(straight.out)
    weights = [(c.out / "checkpoints" / "update-000024" / "model.safetensors").read_bytes() for c in (config, straight)]
    assert weights[0] == weights[1]


def test_help_is_quick_and_names_every_field() -> None:
    run = [sys.executable, "-m", "agentbench_credit.train", "--help"]
    shown = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in TrainConfig.__dataclass_fields__:
        assert f"--{name.replace('_', '-')}" in shown
    code = "import sys, agentbench_credit.train; print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]", "heavy imports make --help slow"
