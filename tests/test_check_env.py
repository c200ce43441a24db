"""The toy environment and Sokoban keep the contract; each broken variant is caught under its own name only."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

import gymnasium
import numpy as np
import pytest

import toy_env
from agentbench_credit import env_checks
from agentbench_credit.check_env import Validation, check_env, find_problems, main, validate
from agentbench_credit.env import ENVIRONMENTS, Environment, Info, Panel, Task
from agentbench_credit.errors import ConfigError, EnvironmentContractError, RegistryError
from toy_env import Corridor, load_panel

Result = tuple[str, float, bool, bool, Info]
IN_PROCESS = tuple(check for check in env_checks.CHECKS if check is not env_checks.check_other_process)


def entry(cls: type, loader: Any = load_panel, **changes: Any) -> Environment:
    values = {"id": f"example/{cls.__name__}-v0", "entry_point": f"{__name__}:{cls.__name__}"} | changes
    return Environment(cls.__name__, presets=("line",), load_panel=loader, **values)


def test_toy_environment_keeps_the_contract() -> None:
    assert ENVIRONMENTS.get("corridor") is toy_env.ENVIRONMENT
    check_env(ENVIRONMENTS.get("corridor"))


@pytest.mark.parametrize("preset", ENVIRONMENTS.get("sokoban").presets[:2])
def test_sokoban_keeps_the_contract(preset: str) -> None:
    assert find_problems(ENVIRONMENTS.get("sokoban"), preset) == []


@pytest.mark.parametrize("preset", ENVIRONMENTS.get("sokoban").presets[:2])
def test_sokoban_is_solved_by_its_expert_and_not_by_chance(preset: str) -> None:
    report = validate(ENVIRONMENTS.get("sokoban"), preset, "test")
    assert report.ok, report
    assert report.tasks == len(ENVIRONMENTS.get("sokoban").load_panel(preset, "test")) > 100


class TurnIsText(Corridor):
    def restore(self, snapshot: Any) -> tuple[str, Info]:
        observation, info = super().restore(snapshot)
        return observation, info | {"turn": info["turn"] or "0"}


class LacksSuccess(Corridor):
    def step(self, action: str) -> Result:
        *result, info = super().step(action)
        return *result, {key: value for key, value in info.items() if key != "success"}  # type: ignore[return-value]


class ListsActions(Corridor):
    def restore(self, snapshot: Any) -> tuple[str, Info]:
        observation, info = super().restore(snapshot)
        return observation, info | {"admissible_actions": ["left", "right"]}


class SeesBytes(Corridor):
    def restore(self, snapshot: Any) -> Any:
        observation, info = super().restore(snapshot)
        return observation.encode(), info


class RewardsNan(Corridor):
    def step(self, action: str) -> Result:
        observation, _, *rest = super().step(action)
        return observation, float("nan"), *rest  # type: ignore[return-value]


class EndsInNumpy(Corridor):
    def step(self, action: str) -> Any:
        observation, reward, terminated, *rest = super().step(action)
        return observation, reward, np.bool_(terminated), *rest


class CountsDouble(Corridor):
    def restore(self, snapshot: Any) -> tuple[str, Info]:
        observation, info = super().restore(snapshot)
        return observation, info | {"turn": 2 * info["turn"]}

    def step(self, action: str) -> Result:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, self.state[3] == toy_env.TURNS and not terminated, info


class SuccessWithoutEnd(Corridor):
    def step(self, action: str) -> Result:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, False, terminated or info["turn"] == toy_env.TURNS, info


class NeverEnds(Corridor):
    def step(self, action: str) -> Result:
        turn = self.state[3]
        self.state = (*self.state[:3], 0, self.state[4])
        observation, reward, terminated, _, _ = super().step(action)
        self.state = (*self.state[:3], turn + 1, self.state[4])
        return observation, reward, terminated, False, self.restore(self.state)[1]


class RefusesLeft(Corridor):
    def step(self, action: str) -> Result:
        return super().step("" if action == "left" else action)


class ChangesTask(Corridor):
    def restore(self, snapshot: Any) -> tuple[str, Info]:
        observation, info = super().restore(snapshot)
        return observation, info | {"task_id": "train-7" if info["turn"] else info["task_id"]}


class IgnoresTask(Corridor):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        del options
        return super().reset(seed=seed, options={"task": "train-3"})


class ForeignTask(Corridor):
    def restore(self, snapshot: Any) -> tuple[str, Info]:
        observation, info = super().restore(snapshot)
        return observation, info | {"task_id": f"other/{info['task_id']}"}


class InvalidMoves(Corridor):
    def step(self, action: str) -> Result:
        task, place, door, turn, valid = self.state
        if action not in toy_env.MOVES and place != door and turn < toy_env.TURNS:
            self.state = (task, place, door + 100, turn, valid)
        return super().step(action)


class AcceptsAnything(Corridor):
    def restore(self, snapshot: Any) -> tuple[str, Info]:
        return super().restore((*snapshot[:4], True))


class RefusesSilently(Corridor):
    def restore(self, snapshot: Any) -> tuple[str, Info]:
        observation, info = super().restore(snapshot)
        return observation.replace("Say left or right. ", ""), info


class RaisesOnBraces(Corridor):
    def step(self, action: str) -> Result:
        return super().step(action.format("left"))


class RaisesOnSurrogates(Corridor):
    def step(self, action: str) -> Result:
        return super().step(action.encode().decode())


class ParsesNumbers(Corridor):
    def step(self, action: str) -> Result:
        return super().step("left" if action.isdigit() and int(action) == 0 else action)


class RaisesAfterEnd(Corridor):
    def step(self, action: str) -> Result:
        assert self.state[3] < toy_env.TURNS, "call reset"
        return super().step(action)


class ResetsAfterEnd(Corridor):
    def step(self, action: str) -> Result:
        if self.state[3] == toy_env.TURNS or self.state[1] == self.state[2]:
            observation, info = self.reset(options={"task": self.state[0]})
            return observation, 0.0, False, False, info
        return super().step(action)


class FailsToReset(Corridor):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        del seed, options
        raise FileNotFoundError("levels.txt")


class FailsToClose(Corridor):
    def close(self) -> None:
        raise OSError("the engine is gone")


class DrawsWithoutSeed(Corridor):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        del seed
        return super().reset(options=options)


class RemembersResets(Corridor):
    resets = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        self.resets += 1
        observation, info = super().reset(seed=seed, options=options)
        return f"Game {self.resets // 7}. {observation}", info


class StartsBySeed(Corridor):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        super().reset(seed=seed, options=options)
        self.state = (self.state[0], self.state[1] + 100 * (seed or 0), *self.state[2:])
        return self.restore(self.state)


class SharesPlace(Corridor):
    board: dict[str, int] = {}  # noqa: RUF012 - the fault that is looked for

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        result = super().reset(seed=seed, options=options)
        self.board["place"] = self.state[1]
        return result

    def step(self, action: str) -> Result:
        self.state = (self.state[0], self.board["place"], *self.state[2:])
        result = super().step(action)
        self.board["place"] = self.state[1]
        return result

    def restore(self, snapshot: Any) -> tuple[str, Info]:
        self.board["place"] = snapshot[1]
        return super().restore(snapshot)


class HashesKey(Corridor):
    def restore(self, snapshot: Any) -> tuple[str, Info]:
        observation, info = super().restore(snapshot)
        return observation, info | {"state_key": str(hash(info["state_key"])).encode()}


class ExpertIsSeen(Corridor):
    asked = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        self.asked = False
        return super().reset(seed=seed, options=options)

    def restore(self, snapshot: Any) -> tuple[str, Info]:
        observation, info = super().restore(snapshot)
        return f"{observation}{' Help was given.' if self.asked else ''}", info

    def expert_action(self) -> str | None:
        self.asked = True
        return super().expert_action()


class ReferenceIsList(Corridor):
    def reference(self) -> Any:
        return ["right"]

    def expert_action(self) -> str | None:
        return (super().reference() or "").split(" ")[0] or None


class ForgetsTurn(Corridor):
    def snapshot(self) -> object:
        return (*self.state[:3], 0, self.state[4])


class ForgetsRefusal(Corridor):
    def snapshot(self) -> object:
        return (*self.state[:4], True)


class SharesSnapshot(Corridor):
    def restore(self, snapshot: Any) -> tuple[str, Info]:
        self.cell = snapshot if isinstance(snapshot, list) else [snapshot]
        return super().restore(self.cell[0])

    def step(self, action: str) -> Result:
        cell = self.cell
        result = super().step(action)
        cell[0], self.cell = self.state, cell
        return result

    def snapshot(self) -> object:
        return [self.state]


class SnapshotsCode(Corridor):
    def snapshot(self) -> object:
        state = self.state
        return lambda: state

    def restore(self, snapshot: Any) -> tuple[str, Info]:
        return super().restore(snapshot() if callable(snapshot) else snapshot)


class NoSnapshots(Corridor):
    def snapshot(self) -> object | None:
        return None


class UsesRandom(Corridor):
    def step(self, action: str) -> Result:
        random.random()
        return super().step(action)


class SeedsNumpy(Corridor):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        np.random.seed(0)
        return super().reset(seed=seed, options=options)


class LeavesFiles(Corridor):
    files: list[TextIO] = []  # noqa: RUF012 - the fault that is looked for

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        self.files.append(Path(os.devnull).open())  # noqa: SIM115 - as above
        return super().reset(seed=seed, options=options)


class LeavesThreads(Corridor):
    stop = threading.Event()

    def __init__(self, preset: str = "line", split: str = "train") -> None:
        super().__init__(preset, split)
        threading.Thread(target=self.stop.wait, daemon=True).start()


class OwnPanel(Corridor):
    def __init__(self, preset: str = "line", split: str = "train") -> None:
        super().__init__(preset, split)
        self.panel = Panel(preset, split, 2, self.panel.tasks)


VARIANTS: dict[type, set[str]] = {
    TurnIsText: {"info-type"},
    LacksSuccess: {"info-missing"},
    ListsActions: {"info-type"},
    SeesBytes: {"observation-type"},
    RewardsNan: {"step-type"},
    EndsInNumpy: {"step-type"},
    CountsDouble: {"turn-count"},
    SuccessWithoutEnd: {"success-without-end"},
    NeverEnds: {"turn-limit"},
    RefusesLeft: {"admissible-refused"},
    ChangesTask: {"task-changed"},
    IgnoresTask: {"task-ignored"},
    ForeignTask: {"task-ignored", "task-unknown"},
    InvalidMoves: {"invalid-moves-state"},
    AcceptsAnything: {"invalid-accepted"},
    RefusesSilently: {"invalid-silent"},
    RaisesOnBraces: {"step-raises"},
    RaisesOnSurrogates: {"step-raises"},
    ParsesNumbers: {"step-raises"},
    RaisesAfterEnd: {"step-after-end"},
    ResetsAfterEnd: {"step-after-end"},
    FailsToReset: {"exception"},
    FailsToClose: {"exception"},
    DrawsWithoutSeed: {"reset-fresh", "reset-used"},
    RemembersResets: {"reset-used"},
    StartsBySeed: {"group-start"},
    SharesPlace: {"shared-state"},
    ExpertIsSeen: {"query-moves-state"},
    ReferenceIsList: {"query-type"},
    ForgetsTurn: {"snapshot-restore"},
    ForgetsRefusal: {"snapshot-restore"},
    SharesSnapshot: {"snapshot-mutable"},
    SnapshotsCode: {"snapshot-pickle"},
    NoSnapshots: set(),
    UsesRandom: {"global-random"},
    SeedsNumpy: {"global-random"},
    LeavesFiles: {"leak"},
    LeavesThreads: {"leak"},
    OwnPanel: {"panel-env"},
    HashesKey: set(),  # another process shows it
}


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the other process, which takes most of the time."""
    monkeypatch.setattr(env_checks, "CHECKS", IN_PROCESS)


def names(environment: Environment) -> set[str]:
    return {finding.check for finding in find_problems(environment)}


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("cls", VARIANTS)
def test_broken_variant_is_caught_by_its_own_finding(cls: type) -> None:
    LeavesThreads.stop.clear()
    findings = find_problems(entry(cls))
    LeavesThreads.stop.set()
    while LeavesFiles.files:
        LeavesFiles.files.pop().close()
    assert {finding.check for finding in findings} == VARIANTS[cls], [str(finding) for finding in findings]
    assert all(finding.what and cls.__name__ in finding.where and finding.mend for finding in findings)


def test_dependence_on_the_hash_seed_shows_in_another_process() -> None:
    assert names(entry(HashesKey)) == {"other-process"}


class HashedPanel(Corridor):
    def __init__(self, preset: str = "line", split: str = "train") -> None:
        self.panel = hashed_panel(preset, split)


def hashed_panel(preset: str, split: str) -> Panel:
    panel = load_panel(preset, split)
    return Panel(preset, split, 1, (*panel.tasks, Task(f"{split}-last", f"0 {abs(hash(split))}")))


def test_panel_that_differs_between_processes() -> None:
    findings = find_problems(entry(HashedPanel, hashed_panel))
    assert [finding.what for finding in findings] == ["another process has another panel"]


def test_class_that_another_process_cannot_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_checks, "CHECKS", (env_checks.check_other_process,))
    monkeypatch.setitem(sys.modules, "only_here", toy_env)
    environment = Environment("here", "example/Here-v0", "only_here:Corridor", ("line",), load_panel)
    (finding,) = find_problems(environment)
    assert finding.check == "other-process"
    assert "No module named 'only_here'" in finding.what


class Unfinished(gymnasium.Env[str, str]):
    def __init__(self, preset: str = "line", split: str = "train") -> None:
        self.panel = load_panel(preset, split)


@pytest.mark.usefixtures("in_process")
def test_registration() -> None:
    (finding,) = find_problems(entry(Unfinished))
    assert finding.check == "protocol"
    assert "lacks reference, expert_action, snapshot, restore" in finding.what
    assert names(entry(Corridor, id="example/Unversioned", entry_point="toy_env:Corridor")) == {"id-version"}
    check_env(entry(Corridor, id="example/Twice-v0", entry_point="toy_env:Corridor"))
    assert names(entry(UsesRandom, id="example/Twice-v0")) == {"id-taken"}
    assert names(entry(Corridor, id="example/Lost-v0", entry_point="toy_env:Nothing")) == {"exception"}


def tasks(*rows: tuple[str, str]) -> tuple[Task, ...]:
    return tuple(Task(*row) for row in rows)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("name", "test", "validation"),
    [
        ("panel-empty", tasks(("t", "0 30")), ()),
        ("panel-ids", tasks(("t", "0 30")), tasks(("v", "0 40"), ("v", "0 50"))),
        ("panel-ids", tasks(("t", "0 30")), tasks(("t", "0 40"))),
        ("panel-overlap", tasks(("t", "0 30")), tasks(("v", "0 40"), ("w", "0 30"))),
    ],
)
def test_faulty_panels(name: str, test: tuple[Task, ...], validation: tuple[Task, ...]) -> None:
    def loader(preset: str, split: str) -> Panel:
        changed = {"test": test, "validation": validation}
        return Panel(preset, split, 1, changed[split]) if split in changed else load_panel(preset, split)

    assert names(entry(Corridor, loader, entry_point="toy_env:Corridor")) == {name}


@pytest.mark.usefixtures("in_process")
def test_panels_that_do_not_load_or_differ_at_each_load() -> None:
    def fails(preset: str, split: str) -> Panel:
        if split == "test":
            raise OSError("no test levels")
        return load_panel(preset, split)

    def drifts(preset: str, split: str) -> Panel:
        drawn = (Task(f"{split}-x", f"0 {time.perf_counter_ns()}"),) if split == "validation" else ()
        return Panel(preset, split, 1, load_panel(preset, split).tasks + drawn)

    (finding,) = find_problems(entry(Corridor, fails, entry_point="toy_env:Corridor"))
    assert finding.check == "panel-load"
    assert "OSError: 'no test levels'" in finding.what
    assert names(entry(Corridor, drifts, entry_point="toy_env:Corridor")) == {"panel-hash"}


@pytest.mark.usefixtures("in_process")
def test_check_env_lists_all_findings_in_one_error() -> None:
    class_and_panel = entry(UsesRandom, lambda preset, _: load_panel(preset, "train"))
    with pytest.raises(EnvironmentContractError, match=r"UsesRandom: breaches of the contract \(3\): ") as caught:
        check_env(class_and_panel, "line")
    assert all(f"[{name}]" in str(caught.value) for name in ("panel-ids", "panel-overlap", "global-random"))


@pytest.mark.usefixtures("in_process")
def test_check_leaves_the_global_generators_as_they_were() -> None:
    random.seed(5)
    np.random.seed(5)
    expected = random.random(), np.random.random()
    random.seed(5)
    np.random.seed(5)
    find_problems(toy_env.ENVIRONMENT)
    assert (random.random(), np.random.random()) == expected


def test_every_hostile_text_is_answered_by_sokoban_without_a_change() -> None:
    env = ENVIRONMENTS.get("sokoban").make()
    _, info = env.reset(seed=0)
    for text in env_checks.HOSTILE:
        _, _, _, _, after = env.step(text)
        assert not after["action_valid"]
        assert after["state_key"] == info["state_key"]


class ExpertIsLost(Corridor):
    """Goes the wrong way in the first task, gives up in the second."""

    def expert_action(self) -> str | None:
        action = super().expert_action()
        if self.state[0] == "test-0":
            return "left" if action == "right" else "right"
        return None if self.state[0] == "test-1" else action


class DoorIsNear(Corridor):
    def step(self, action: str) -> Result:
        self.state = (*self.state[:2], self.state[1] + 1, *self.state[3:])
        return super().step(action)


def test_validate_reports_the_tasks_by_id() -> None:
    good = validate(toy_env.ENVIRONMENT, "line", "test")
    assert good.ok
    assert (good.tasks, good.expert_failures) == (len(load_panel("line", "test")), {})
    assert "expert solves 18 of 18 tasks" in str(good)
    lost = validate(entry(ExpertIsLost), "line", "test", limit=5)
    assert not lost.ok
    assert lost.expert_failures == {
        "test-0": "not solved when it ended after 12 turns",
        "test-1": "no action after 0 turns",
    }
    assert "NOT OK\n  expert solves 3 of 5 tasks\n    test-0: not solved" in str(lost)


class ReferenceIsLost(Corridor):
    def reference(self) -> str | None:
        right = super().reference()
        return {"test-0": None, "test-1": "left" if right and right[0] == "r" else "right"}.get(self.state[0], right)

    def expert_action(self) -> str | None:
        return (super().reference() or "").split(" ")[0] or None


def test_validate_holds_the_expert_against_the_reference() -> None:
    lost = validate(entry(ReferenceIsLost), "line", "test", limit=5)
    assert lost.expert_failures == {
        "test-0": "there is no reference at the start",
        "test-1": "the reference does not say what the expert did in turn 0",
    }


def test_validate_refuses_a_panel_that_chance_solves() -> None:
    report = validate(entry(DoorIsNear), "line", "train")
    assert not report.ok
    assert len(report.random_successes) > 0.2 * report.tasks
    assert report.random_successes[0] in str(report).splitlines()[-1]
    assert report == validate(entry(DoorIsNear), "line", "train")


@pytest.mark.parametrize(("lucky", "ok"), [(0, True), (2, True), (3, False)])
def test_chance_may_solve_a_fifth(lucky: int, ok: bool) -> None:
    assert Validation("p", 10, {}, tuple(map(str, range(lucky)))).ok is ok
    assert not Validation("p", 0, {}, ()).ok


def test_validate_names_the_task_that_raises() -> None:
    with pytest.raises(EnvironmentContractError, match=r"train-0: an episode raised FileNotFoundError: levels"):
        validate(entry(FailsToReset), "line", "train")


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["corridor", "--split", "validation"])
    out = capsys.readouterr().out
    assert "corridor line: breaches of the contract: none\n" in out
    assert "corridor line/validation: ok\n  expert solves 19 of 19 tasks" in out
    with pytest.raises(ConfigError, match="corridor: no preset 'lin' — known: line"):
        main(["corridor", "--preset", "lin"])
    with pytest.raises(ConfigError, match="corridor: no split 'tes' — known: train, validation, test"):
        main(["corridor", "--split", "tes"])
    with pytest.raises(RegistryError, match="corrido: unknown environment — did you mean corridor"):
        main(["corrido"])


BROKEN = entry(UsesRandom)


@pytest.mark.usefixtures("in_process")
def test_command_on_a_broken_environment_that_is_not_registered(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EnvironmentContractError, match="UsesRandom: the environment is not as it should be"):
        main([f"{__name__}:BROKEN", "--limit", "3"])
    out = capsys.readouterr().out
    assert out.startswith("[global-random] UsesRandom line/train: the global generator of random is used — draw")
    assert "expert solves 3 of 3 tasks" in out


class Unbuildable(UsesRandom):
    def __init__(self, **_: object) -> None:
        raise RuntimeError("no engine")


def test_a_constructor_that_raises_is_one_line_and_no_traceback() -> None:
    with pytest.raises(EnvironmentContractError, match=r"cannot be built \(RuntimeError: no engine\)"):
        validate(entry(Unbuildable), "line", "train")


def test_command_exits_with_2_on_an_unknown_environment() -> None:
    command = [sys.executable, "-m", "agentbench_credit.check_env", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: nothing: unknown environment — known: ")
