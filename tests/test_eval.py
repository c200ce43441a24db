"""The evaluation command, run as a user runs it, on the embedded policy."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentbench_credit.benchmarks import BENCHMARKS
from agentbench_credit.command import parse
from agentbench_credit.env import ENVIRONMENTS
from agentbench_credit.errors import ConfigError, RegistryError
from agentbench_credit.eval import EvalConfig, run_evaluation
from agentbench_credit.run_folder import evaluation_folder
from agentbench_credit.train import TrainConfig
from agentbench_credit.trajectory_io import read_trajectories
from chat_server import Answer, chat_server, completion
from models import save_model

OFFLINE = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "agentbench_credit.eval", *map(str, arguments)]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, env=OFFLINE, timeout=300, check=False)


def test_base_is_evaluated_and_everything_is_recorded(tmp_path: Path) -> None:
    done = run("--method", "base", "--limit", 16, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "base" in done.stdout
    assert str(tmp_path / "report.html") in done.stdout.replace("\n", "")
    folder = evaluation_folder(tmp_path, "base", 0, 0, "sokoban")
    result = json.loads((folder / "result.json").read_text())
    panel = ENVIRONMENTS.get("sokoban").load_panel(BENCHMARKS.get("sokoban").preset, "test")
    assert result["panel_sha256"] == panel.sha256
    assert result["sampling"] == {"temperature": 0.4, "top_p": 1.0, "top_k": 0, "max_new_tokens": 24}
    assert result["versions"]["torch"]
    assert (result["seed"], result["updates"], result["checkpoint"]) == (0, 0, None)
    trajectories = read_trajectories(folder / "trajectories.jsonl")
    assert sorted(t.task_id for t in trajectories) == sorted(task.id for task in panel.tasks[:16])
    assert result["metrics"]["tasks"] == 16
    assert result["metrics"]["successes"] == sum(t.success for t in trajectories)
    assert f"{100 * result['metrics']['success']:.1f}" in done.stdout


def test_the_same_seed_gives_the_same_result_and_another_seed_another(tmp_path: Path) -> None:
    def answers(out: Path, **changes: Any) -> list[list[str]]:
        config = EvalConfig(method=("base",), limit=12, out=out, **changes)
        run_evaluation(config)
        found = read_trajectories(evaluation_folder(out, "base", 0, config.seed, "sokoban") / "trajectories.jsonl")
        return [[turn.response for turn in t.turns] for t in sorted(found, key=lambda t: t.task_id)]

    first = answers(tmp_path / "a")
    assert answers(tmp_path / "b", parallel=5) == first, "the batch makes no difference"
    assert answers(tmp_path / "c", seed=1) != first
    assert answers(tmp_path / "a") == first, "a finished evaluation is read, not played again"


@pytest.mark.parametrize("seed", [0, 1])
def test_killed_at_a_random_moment_it_loses_and_repeats_nothing(tmp_path: Path, seed: int) -> None:
    arguments = ("--method", "base", "--limit", 40, "--parallel", 4, "--out", tmp_path)
    log = evaluation_folder(tmp_path, "base", 0, 0, "sokoban") / "trajectories.jsonl"
    rng = random.Random(seed)
    process = subprocess.Popen(command(*arguments), env=OFFLINE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wanted = rng.randint(2, 25)
    while process.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") <= wanted):
        time.sleep(0.005)
    time.sleep(rng.random() * 0.05)
    process.kill()
    process.wait()
    lines = log.read_bytes().split(b"\n")
    assert 1 < len(lines) <= 41, "killed in the middle"
    log.write_bytes(b"\n".join(lines[:-1]) + b"\n" + lines[1][: rng.randint(1, len(lines[1]) - 1)])
    kept = [json.loads(line)["task_id"] for line in lines[1:-1]]
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert "torn" in done.stderr or "dropped" in done.stderr, "a torn line is announced"
    trajectories = read_trajectories(log)
    assert [t.task_id for t in trajectories][: len(kept)] == kept
    assert len({t.task_id for t in trajectories}) == len(trajectories) == 40
    result = json.loads((log.parent / "result.json").read_text())
    assert result["metrics"]["tasks"] == 40


def test_repeats_go_on_where_fewer_stopped(tmp_path: Path) -> None:
    once = run_evaluation(EvalConfig(model="scripted:random", limit=5, out=tmp_path))[0]
    log = evaluation_folder(tmp_path, "base", 0, 0, "sokoban") / "trajectories.jsonl"
    first = read_trajectories(log)
    thrice = run_evaluation(EvalConfig(model="scripted:random", limit=5, k=3, out=tmp_path))[0]
    played = read_trajectories(log)
    assert (once["metrics"]["repeats"], thrice["metrics"]["repeats"]) == (1, 3)
    assert [t.seed for t in played[:5]] == [t.seed for t in first], "nothing was played again"
    assert len({t.seed for t in played}) == len(played) == 15


@pytest.mark.parametrize(("script", "success"), [("expert", 1.0), ("random", 0.0)])
def test_policies_without_a_model(tmp_path: Path, script: str, success: float) -> None:
    (result,) = run_evaluation(EvalConfig(model=f"scripted:{script}", limit=8, out=tmp_path))
    assert result["method"] == "base"
    assert result["metrics"]["success"] == pytest.approx(success, abs=0.2)


def test_a_served_model_is_evaluated_as_any_other(tmp_path: Path) -> None:
    def go_right(body: dict[str, Any]) -> Answer:
        assert body["messages"][0]["role"] == "system"
        return completion("<think>which way?</think><action>right</action>")

    with chat_server(go_right) as (url, asked):
        done = run("--model", f"openai:{url}#toy", "--limit", 3, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    log = evaluation_folder(tmp_path, "base", 0, 0, "sokoban") / "trajectories.jsonl"
    turns = [turn for t in read_trajectories(log) for turn in t.turns]
    assert len(turns) == len(asked) >= 3
    assert {turn.action for turn in turns} == {"right"}


def test_a_policy_without_checkpoints_takes_no_method(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use --method base"):
        run_evaluation(EvalConfig(method=("grpo",), model="scripted:random", out=tmp_path))
    with pytest.raises(ConfigError, match="no script 'best' — known: expert, random"):
        run_evaluation(EvalConfig(model="scripted:best", out=tmp_path))
    with pytest.raises(ConfigError, match="did you mean math_tool"):
        run_evaluation(EvalConfig(model="scripted:random", suite="math_tools", out=tmp_path))


def test_one_error_line_says_what_is_missing(tmp_path: Path) -> None:
    done = run("--method", "gear", "--model", "Qwen3-4B", "--out", tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "hf download Qwen/Qwen3-4B" in done.stderr
    assert "--model /" in done.stderr


def test_a_large_model_without_checkpoint_names_the_training_command(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model")
    done = run("--method", "grpo", "--model", folder, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    command_line = done.stderr.split("`")[1]
    training = parse(TrainConfig, shlex.split(command_line)[3:])
    assert (training.method, training.model, training.preset) == ("grpo", str(folder), "embedded")
    assert (training.success_reward, training.max_new_tokens, training.updates) == (10.0, 512, 60)


def test_a_base_model_is_not_given_a_checkpoint_and_numbers_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no checkpoint"):
        run_evaluation(EvalConfig(method=("base",), checkpoint=tmp_path, out=tmp_path))
    for changes in ({"limit": 0}, {"parallel": 0}, {"seed": -1}, {"max_new_tokens": 0}, {"updates": 0}):
        with pytest.raises(ConfigError, match="too small"):
            run_evaluation(EvalConfig(method=("base",), out=tmp_path, **changes))


def test_more_tasks_of_the_same_evaluation_go_on(tmp_path: Path) -> None:
    few = run_evaluation(EvalConfig(method=("base",), limit=3, out=tmp_path))[0]
    more = run_evaluation(EvalConfig(method=("base",), limit=6, out=tmp_path))[0]
    assert (few["metrics"]["tasks"], more["metrics"]["tasks"]) == (3, 6)
    again = run_evaluation(EvalConfig(method=("base",), limit=3, out=tmp_path))[0]
    assert again["metrics"] == few["metrics"]


def test_a_checkpoint_is_evaluated_under_its_method(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model")
    config = EvalConfig(method=("grpo",), model=str(folder), checkpoint=folder, limit=3, out=tmp_path / "out")
    (result,) = run_evaluation(config)
    assert (result["method"], result["updates"], result["checkpoint"]) == ("grpo", None, str(folder))


def test_another_run_in_the_folder_and_wrong_names_are_refused(tmp_path: Path) -> None:
    config = EvalConfig(method=("base",), limit=2, out=tmp_path)
    run_evaluation(config)
    with pytest.raises(ConfigError, match=r"temperature"):
        run_evaluation(EvalConfig(method=("base",), limit=2, out=tmp_path, temperature=1.0))
    with pytest.raises(RegistryError, match=r"did you mean gear"):
        run_evaluation(EvalConfig(method=("gera",), out=tmp_path))
    with pytest.raises(ConfigError, match=r"once"):
        run_evaluation(EvalConfig(method=("base", "base"), out=tmp_path))
    with pytest.raises(ConfigError, match=r"one trained method"):
        run_evaluation(EvalConfig(method=("grpo", "gear"), checkpoint=tmp_path, out=tmp_path))


def test_a_method_without_checkpoint_is_trained_first_and_only_once(tmp_path: Path) -> None:
    config = EvalConfig(method=("gear",), updates=1, limit=4, out=tmp_path)
    (result,) = run_evaluation(config)
    assert result["updates"] == 1
    assert result["reconstruction"] is True
    checkpoint = Path(result["checkpoint"])
    assert checkpoint.is_relative_to(tmp_path / "train" / "gear-1updates-seed0")
    before = {path: path.stat().st_mtime_ns for path in checkpoint.iterdir()}
    assert run_evaluation(config) == [result]
    assert {path: path.stat().st_mtime_ns for path in checkpoint.iterdir()} == before
    base = run_evaluation(EvalConfig(method=("base",), limit=4, out=tmp_path))[0]
    assert base["weights"] != result["weights"], "training changed the weights"
    assert np.isfinite(result["metrics"]["seconds"])
