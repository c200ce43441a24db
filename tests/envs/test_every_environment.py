"""What holds for every built-in environment: no text raises, and instances leave nothing behind."""

from __future__ import annotations

import gc
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from agentbench_credit.env import ENVIRONMENTS, INFO_KEYS

NEEDS = {"sokoban": (), "alfworld": ("alfworld", "textworld"), "webshop": ("rapidfuzz", "tantivy")}
ACTIONS = 100_000
HOSTILE = (
    "",
    " ",
    "\x00",
    "\ud800",
    "up\n" * 50,
    "x" * 5_000,
    "click[",
    "search[\"')]",
    "go to ",
    "{}",
    "%s%n",
    "🙂 || up",
)


@pytest.fixture(params=NEEDS)
def name(request: pytest.FixtureRequest) -> str:
    for module in NEEDS[request.param]:
        pytest.importorskip(module)
    return str(request.param)


def random_action(rng: random.Random, info: dict[str, Any]) -> str:
    """One action: mostly an admissible one, else a damaged or a hostile one."""
    listed = info["admissible_actions"] or HOSTILE
    action = rng.choice(listed)
    kind = rng.random()
    if kind < 0.1:
        at = rng.randrange(len(action) + 1)
        action = action[:at] + rng.choice(HOSTILE) + action[at:]
    elif kind < 0.3:
        action = rng.choice(HOSTILE)
    return action


def test_100_000_random_and_hostile_actions_raise_nothing(name: str) -> None:
    env, rng, taken, refused = ENVIRONMENTS.get(name).make(), random.Random(0), 0, 0
    while taken < ACTIONS:
        _, info = env.reset(seed=taken % 20)
        over = False
        while not over and taken < ACTIONS:
            before = info["state_key"]
            observation, reward, terminated, truncated, info = env.step(random_action(rng, info))
            assert isinstance(observation, str)
            assert isinstance(reward, float)
            assert info.keys() >= set(INFO_KEYS)
            if not info["action_valid"]:
                refused += 1
                assert info["state_key"] == before, "a refused action changed the state"
            over = terminated or truncated
            taken += 1
    env.close()
    assert 0.1 * ACTIONS < refused < 0.5 * ACTIONS


def resident_megabytes() -> float:
    status = Path("/proc/self/status").read_text("utf-8")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def test_opening_and_closing_1_000_instances_leaves_nothing(name: str) -> None:
    environment = ENVIRONMENTS.get(name)

    def cycle(count: int) -> tuple[int, int, float]:
        for seed in range(count):
            env = environment.make()
            env.reset(seed=seed % 20)
            env.close()
        gc.collect()
        return threading.active_count(), len(list(Path("/proc/self/fd").iterdir())), resident_megabytes()

    before = cycle(100)
    after = cycle(1_000)
    assert after[:2] == before[:2]
    assert after[2] < before[2] + 20
