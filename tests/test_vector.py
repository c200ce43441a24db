"""Vector environments: Gymnasium's resets, and failures that cost one episode."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from agentbench_credit.env import ENVIRONMENTS, Environment
from agentbench_credit.errors import ConfigError, EnvironmentContractError
from agentbench_credit.vector import TextVectorEnv, make_vec
from toy_env import ENVIRONMENT, Corridor, load_panel


class Fragile(Corridor):
    """Raises, dies or hangs on request."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Any]:
        if options and options.get("task") == "broken":
            raise RuntimeError("no such door")
        if options and options.get("task") == "deadly":
            os.kill(os.getpid(), 9)
        return super().reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[str, float, bool, bool, Any]:
        if action == "raise":
            raise RuntimeError("the door fell off")
        if action == "die":
            os.kill(os.getpid(), 9)
        if action == "hang":
            time.sleep(60)
        if action == "sleep":
            time.sleep(1.0)
        observation, reward, terminated, truncated, info = super().step(action)
        if action == "unpicklable":
            info |= {"made_by": lambda: None}
        return observation, reward, terminated, truncated, info


class Diary(Corridor):
    """Writes down that it was closed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def close(self) -> None:
        with self.path.open("a") as stream:
            stream.write("closed\n")


class Homebound(Corridor):
    """Can be built in the first process only, and there twice."""

    made, closed = 0, 0

    def __init__(self, preset: str = "line", split: str = "train") -> None:
        if multiprocessing.parent_process() is not None or Homebound.made == 2:
            raise RuntimeError("no room here")
        super().__init__(preset, split)
        Homebound.made += 1

    def close(self) -> None:
        Homebound.closed += 1


class Once(Fragile):
    """Cannot be built a second time in a process that has failed."""

    failed = False

    def __init__(self, preset: str = "line", split: str = "train") -> None:
        if Once.failed:
            raise RuntimeError("no second one")
        super().__init__(preset, split)

    def step(self, action: str) -> tuple[str, float, bool, bool, Any]:
        Once.failed = action == "raise"
        return super().step(action)


FRAGILE = Environment("fragile", "example/Fragile-v0", "test_vector:Fragile", ("line",), load_panel)
HOMEBOUND = Environment("homebound", "example/Homebound-v0", "test_vector:Homebound", ("line",), load_panel)
ONCE = Environment("once", "example/Once-v0", "test_vector:Once", ("line",), load_panel)
WORKERS = pytest.mark.parametrize("workers", [0, 2])


def same(first: Any, second: Any) -> None:
    """Assert that two results of a vector environment agree, to the last key of info."""
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first:
            same(first[key], second[key])
    elif isinstance(first, tuple):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            same(one, other)
    elif isinstance(first, np.ndarray):
        assert first.dtype == second.dtype
        assert first.tolist() == second.tolist()
    else:
        assert first == second


@WORKERS
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_it_does_what_gymnasiums_own_does(workers: int, mode: AutoresetMode) -> None:
    own = SyncVectorEnv([lambda: ENVIRONMENT.make() for _ in range(3)], autoreset_mode=mode)
    rng = np.random.default_rng(0)
    with make_vec(ENVIRONMENT, 3, workers=workers, autoreset_mode=mode) as vector:
        same(vector.reset(seed=5), own.reset(seed=5))
        ended = 0
        for _ in range(60):
            actions = tuple(rng.choice(["left", "right", "nonsense"], 3, p=[0.2, 0.7, 0.1]).tolist())
            result = vector.step(actions)
            same(result, own.step(actions))
            over = result[2] | result[3]
            ended += int(over.sum())
            if mode is AutoresetMode.DISABLED and over.any():
                again = [vector.reset(options={"reset_mask": over}), own.reset(options={"reset_mask": over})]
                same(*again)
    assert ended > 5, "nothing was compared"


@WORKERS
def test_each_environment_takes_its_own_task(workers: int) -> None:
    with make_vec("sokoban", 3, workers=workers, preset="embedded", split="test") as vector:
        tasks = [task.id for task in list(ENVIRONMENTS.get("sokoban").load_panel("embedded", "test"))[:3]]
        _, infos = vector.reset(options={"task": tasks})
        assert infos["task_id"].tolist() == tasks
        assert all(isinstance(actions, tuple) for actions in infos["admissible_actions"])


@pytest.mark.parametrize(
    ("workers", "action", "error"),
    [
        (0, "raise", "fell off"),
        (2, "raise", "fell off"),
        (2, "die", "exit code -9"),
        (2, "hang", "no answer within 1 s"),
        (2, "unpicklable", "<lambda>"),
    ],
)
def test_a_failure_ends_one_episode_and_is_replaced(workers: int, action: str, error: str) -> None:
    with make_vec(FRAGILE, 2, workers=workers, timeout=1.0 if action == "hang" else 60.0) as vector:
        vector.reset(seed=0)
        began = time.monotonic()
        with pytest.warns(UserWarning, match="environment 1 failed and is replaced"):
            observations, rewards, terminated, truncated, infos = vector.step(["left", action])
        assert time.monotonic() - began < 40, "what hangs is ended, not waited for"
        assert observations[0].startswith("You are")
        assert (observations[1], rewards[1], terminated[1], truncated[1]) == ("", 0.0, False, True)
        assert error in infos["error"][1]
        assert infos["_error"].tolist() == [False, True]
        observations, *_, truncated, infos = vector.step(["left", "left"])
        assert all(observation.startswith("You are") for observation in observations)
        assert not truncated.any()
        assert infos["turn"].tolist() == [2, 0], "the other went on, the new one has begun"


@WORKERS
def test_what_cannot_be_reset_raises_and_the_next_reset_works(workers: int) -> None:
    with make_vec(FRAGILE, 2, workers=workers) as vector:
        with pytest.raises(EnvironmentContractError, match=r"environment 1: cannot be reset \(no such door"):
            vector.reset(options={"task": ["train-0", "broken"]})
        observations, _ = vector.reset(options={"task": "train-0"})
        assert observations[0] == observations[1]


def test_a_worker_that_dies_in_a_reset_raises_and_the_next_reset_works() -> None:
    with make_vec(FRAGILE, 2, workers=2) as vector:
        with pytest.raises(EnvironmentContractError, match=r"worker 1: cannot be reset .*exit code -9"):
            vector.reset(options={"task": ["train-0", "deadly"]})
        assert vector.reset(options={"task": "train-1"})[1]["task_id"].tolist() == ["train-1"] * 2


def ends(vector: TextVectorEnv) -> list[str]:
    """Lose environment 1 again and again; returns the tasks that its successors drew."""
    tasks = []
    for _ in range(4):
        with pytest.warns(UserWarning, match="environment 1 failed"):
            vector.step(["left", "raise"])
        tasks.append(vector.step(["left", "left"])[4]["task_id"][1])
    return tasks


@WORKERS
def test_what_a_replacement_draws_follows_from_the_last_seed(workers: int) -> None:
    with make_vec(FRAGILE, 2, workers=workers) as vector:
        vector.reset(seed=3)
        tasks = ends(vector)
        vector.reset(seed=3)
        assert ends(vector) == tasks
        assert len(set(tasks)) > 1
        vector.reset(seed=4)
        assert ends(vector) != tasks


def test_an_answer_that_ctrl_c_left_behind_is_not_taken_for_the_next_one() -> None:
    with make_vec(FRAGILE, 2, workers=2) as vector:
        vector.reset(options={"task": "train-0"})
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may ignore it
        try:
            with pytest.raises(KeyboardInterrupt):
                vector.step(["sleep", "sleep"])
        finally:
            signal.signal(signal.SIGINT, before)
        _, infos = vector.reset(options={"task": ["train-5", "train-6"]})
        assert infos["task_id"].tolist() == ["train-5", "train-6"]
        assert vector.step(["left", "left"])[4]["turn"].tolist() == [1, 1]


@pytest.mark.parametrize(("workers", "made"), [(0, 2), (1, 1)])
def test_what_cannot_be_built_says_why_and_leaves_nothing(workers: int, made: int) -> None:
    home = import_module("test_vector").Homebound  # as Gymnasium imports it
    home.made = home.closed = 0
    before = len(multiprocessing.active_children())
    with pytest.raises((RuntimeError, EnvironmentContractError), match="no room here") as caught:
        make_vec(HOMEBOUND, 2, workers=workers)
    assert (home.made, home.closed) == (made, made)
    assert workers == 0 or "Traceback" in caught.value.__notes__[0]
    assert len(multiprocessing.active_children()) == before
    del caught
    gc.collect()  # nothing is left to complain when it is collected


@WORKERS
def test_a_failure_whose_successor_cannot_be_built_names_both(workers: int) -> None:
    with make_vec(ONCE, 2, workers=workers) as vector:
        vector.reset(seed=0)
        with pytest.raises(EnvironmentContractError, match=r"environment 1: failed .*fell off.*no second one"):
            vector.step(["left", "raise"])
    import_module("test_vector").Once.failed = False


def test_ctrl_c_does_not_end_the_workers_and_closing_closes_their_environments(tmp_path: Path) -> None:
    path = tmp_path / "closed"
    make_env = partial(import_module("test_vector").Diary, path)
    mode = AutoresetMode.NEXT_STEP
    with TextVectorEnv(make_env, 3, workers=2, autoreset_mode=mode, timeout=60.0) as vector:
        path.unlink()  # the example that is built for its spaces
        for child in multiprocessing.active_children():
            assert child.pid is not None
            os.kill(child.pid, signal.SIGINT)
        vector.reset(seed=0)
        assert vector.step(["left"] * 3)[4]["turn"].tolist() == [1, 1, 1]
    assert len(path.read_text().splitlines()) == 3


@WORKERS
def test_what_is_closed_says_so(workers: int) -> None:
    vector = make_vec(ENVIRONMENT, 2, workers=workers)
    vector.reset(seed=0)
    vector.close()
    with pytest.raises(EnvironmentContractError, match="are closed"):
        vector.step(["left", "left"])
    with pytest.raises(EnvironmentContractError, match="are closed"):
        vector.reset()


def test_wrong_calls_are_one_line() -> None:
    with pytest.raises(ConfigError, match="2 environments over 3 workers"):
        make_vec(ENVIRONMENT, 2, workers=3)
    with make_vec(ENVIRONMENT, 2, autoreset_mode=AutoresetMode.DISABLED) as vector:
        vector.reset(seed=0)
        with pytest.raises(EnvironmentContractError, match="3 actions for 2 environments"):
            vector.step(["left"] * 3)
        with pytest.raises(EnvironmentContractError, match="1 seeds, 2 tasks and a mask of 2 for 2"):
            vector.reset(seed=[1])
        while not vector.step(["nonsense"] * 2)[3].any():
            pass
        with pytest.raises(EnvironmentContractError, match="environments 0, 1 have ended"):
            vector.step(["left"] * 2)


def open_things() -> tuple[int, int]:
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


def test_opening_and_closing_leaves_nothing() -> None:
    def cycle(workers: int) -> None:
        vector: TextVectorEnv = make_vec(ENVIRONMENT, 2, workers=workers)
        vector.reset(seed=0)
        vector.close()

    cycle(2)
    before = open_things()
    for _ in range(1000):
        cycle(0)
    for _ in range(5):
        cycle(2)
    assert open_things() == before
