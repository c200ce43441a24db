"""The environment keeps the contract, plays by ALFWorld's rules, and says which engine it plays on."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import random
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import gymnasium
import pytest

from agentbench_credit.check_env import check_env, validate
from agentbench_credit.env import ENVIRONMENTS, INFO_KEYS, AgentEnv, Panel
from agentbench_credit.envs.alfworld import env as environment
from agentbench_credit.envs.alfworld.engine import NOTHING_HAPPENS, EngineDiedError, UnsupportedGameError
from agentbench_credit.envs.alfworld.env import AlfworldEnv, Snapshot
from agentbench_credit.errors import EnvironmentContractError
from alfworld_games import needs_alfworld, needs_textworld, old_game

pytestmark = needs_alfworld

TASK = "small-test-0003"


@pytest.fixture
def env() -> Iterator[AlfworldEnv]:
    made = AlfworldEnv(split="test")
    made.reset(options={"task": TASK})
    yield made
    made.close()


class TestContract:
    @pytest.mark.parametrize("preset", ["small", "full"])
    def test_check_env_finds_nothing(self, preset: str) -> None:
        check_env(ENVIRONMENTS.get("alfworld"), preset)

    @pytest.mark.parametrize("preset", ["small", "full"])
    def test_the_expert_solves_the_panel_and_chance_does_not(self, preset: str) -> None:
        report = validate(ENVIRONMENTS.get("alfworld"), preset, "test", limit=24)
        assert report.ok, report

    def test_info_holds_every_key_and_the_instruction_says_the_goal(self, env: AlfworldEnv) -> None:
        observation, info = env.reset(options={"task": TASK})
        assert set(info) == set(INFO_KEYS) == set(env.step("look")[4]) == set(env.step("?")[4])
        assert isinstance(env, AgentEnv)
        goal = observation.rpartition("Your task is to: ")[2]
        assert info["instruction"].startswith(f"Your task is to: {goal} Answer with one command: go to")

    def test_the_registry_makes_it_and_its_spec_makes_it_again(self) -> None:
        made = cast(AlfworldEnv, ENVIRONMENTS.get("alfworld").make(preset="full", split="test", max_turns=3))
        assert made.spec is not None
        for one in (made.spec, copy.deepcopy(made.spec), pickle.loads(pickle.dumps(made.spec))):
            again = cast(AlfworldEnv, gymnasium.make(one).unwrapped)
            assert (again.panel, again.max_turns) == (made.panel, 3)
            assert again.reset(seed=1) == made.reset(seed=1)

    @pytest.mark.parametrize(
        ("kwargs", "what"),
        [
            ({"preset": "big"}, "no ALFWorld preset 'big'"),
            ({"split": "dev"}, "no split 'dev'"),
            ({"state_key": "facts"}, "no state key 'facts'"),
            ({"engine": "unity"}, "no engine 'unity'"),
            ({"render_mode": "human"}, "no render mode 'human'"),
            ({"max_turns": 0}, "max_turns is 0"),
        ],
    )
    def test_wrong_arguments_are_typed_errors(self, kwargs: dict[str, Any], what: str) -> None:
        with pytest.raises(EnvironmentContractError, match=what):
            AlfworldEnv(**kwargs)

    @pytest.mark.parametrize(
        ("options", "what"),
        [({"task": "nowhere"}, "no task 'nowhere'"), ({"game": 3}, "unknown reset option 'game'")],
    )
    def test_wrong_options_are_typed_errors(self, env: AlfworldEnv, options: dict[str, Any], what: str) -> None:
        with pytest.raises(EnvironmentContractError, match=what):
            env.reset(options=options)

    @pytest.mark.parametrize(
        "use",
        [
            lambda env: env.step("look"),
            lambda env: env.reference(),
            lambda env: env.expert_action(),
            lambda env: env.snapshot(),
            lambda env: env.render(),
        ],
    )
    def test_before_reset_everything_says_what_to_do(self, use: Callable[[AlfworldEnv], object]) -> None:
        with pytest.raises(EnvironmentContractError, match=r"call reset\(\) first"):
            use(AlfworldEnv())

    def test_foreign_snapshots_are_typed_errors(self, env: AlfworldEnv) -> None:
        with pytest.raises(EnvironmentContractError, match="cannot restore a dict"):
            env.restore({})
        with pytest.raises(EnvironmentContractError, match="no task 'other'"):
            env.restore(Snapshot("other", None, "", 0, True, False))

    def test_hostile_and_random_text_is_answered(self, env: AlfworldEnv) -> None:
        rng = random.Random(0)
        for number in range(2_000):
            if number % 45 == 0:
                _, info = env.reset(options={"task": TASK})
            admissible = info["admissible_actions"]
            text = rng.choice([*admissible, "".join(rng.choices(string.printable, k=rng.randrange(60)))])
            if rng.random() < 0.3:
                cut = rng.randrange(len(text) + 1)
                text = text[:cut] + rng.choice(["", " ", "\n", "to", "\x00", "é"]) + text[cut:]
            before = info
            _, reward, terminated, _, info = env.step(text)
            assert reward == float(terminated)
            assert info["action_valid"] or info["state_key"] == before["state_key"]


class TestRules:
    def test_the_reference_wins_with_reward_1_and_then_there_is_none(self, env: AlfworldEnv) -> None:
        reference = env.reference()
        assert reference is not None
        plan = reference.split("\n")
        for number, command in enumerate(plan):
            assert (env.expert_action(), env.reference()) == (command, "\n".join(plan[number:]))
            _, reward, terminated, truncated, info = env.step(command)
        assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
        assert (env.reference(), env.expert_action()) == (None, None)
        assert env.step("look")[1:4] == (0.0, True, False)
        papers = AlfworldEnv(split="test", success_reward=10.0)
        papers.reset(options={"task": TASK})
        assert [papers.step(command)[1] for command in plan] == [0.0] * (len(plan) - 1) + [10.0]

    def test_both_spellings_put_it_down(self, env: AlfworldEnv) -> None:
        reference = env.reference()
        assert reference is not None
        *way, last = reference.split("\n")
        for command in way:
            env.step(command)
        before = env.snapshot()
        won = env.step(last)
        thing, _, place = last.removeprefix("move ").partition(" to ")
        for word in ("in/on", "in", "on"):
            env.restore(before)
            assert env.step(f"put {thing} {word} {place}") == won

    def test_a_game_of_old_takes_the_new_spelling(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = old_game(tmp_path)
        monkeypatch.setattr(environment, "game_file", lambda *_: path)
        env = AlfworldEnv(split="test")
        env.reset(options={"task": TASK})
        reference = env.reference()
        assert reference is not None
        *way, last = reference.split("\n")
        for command in way:
            env.step(command)
        assert last.startswith("put ")
        assert env.step(last.replace("put ", "move ", 1).replace(" in/on ", " to ", 1))[2]

    def test_a_plan_that_is_not_known_is_announced(self, env: AlfworldEnv, monkeypatch: pytest.MonkeyPatch) -> None:
        env.reset(options={"task": TASK})
        monkeypatch.setattr(env._engine, "plan", lambda: ())
        with pytest.warns(UserWarning, match=f"{TASK}: no plan is known from here"):
            assert env.reference() is None

    def test_an_unlisted_command_says_so_and_takes_a_turn(self, env: AlfworldEnv) -> None:
        before = env.reset(options={"task": TASK})[1]
        observation, reward, terminated, truncated, info = env.step("fly away")
        assert (observation, reward, terminated, truncated) == (NOTHING_HAPPENS, 0.0, False, False)
        assert info == before | {"action_valid": False, "turn": 1}

    def test_the_turn_limit_truncates(self) -> None:
        env = AlfworldEnv(split="test", max_turns=2)
        env.reset(options={"task": TASK})
        assert env.step("look")[2:4] == (False, False)
        assert env.step("look")[2:4] == (False, True)
        assert env.step("inventory")[2:4] == (False, True)
        assert env.step("inventory")[4]["turn"] == 2
        assert AlfworldEnv().max_turns == 50


class TestStateKeys:
    def test_full_tells_what_was_visited_and_what_is_held_from_what_was_not(self, env: AlfworldEnv) -> None:
        start = env.reset(options={"task": TASK})[1]["state_key"]
        go, *_ = (action for action in env.step("look")[4]["admissible_actions"] if action.startswith("go to "))
        looked = env.step("look")[4]["state_key"]
        assert looked != start
        assert env.step("look")[4]["state_key"] == looked
        assert env.step("fly")[4]["state_key"] == looked
        assert env.step(go)[4]["state_key"] not in (start, looked)
        assert len(start) == 16

    def test_observation_is_the_text_read_when_the_state_was_reached(self) -> None:
        env = AlfworldEnv(split="test", state_key="observation")
        text, info = env.reset(options={"task": TASK})
        assert info["state_key"] == text.encode()
        assert env.step("fly")[4]["state_key"] == text.encode()
        observation, *_, info = env.step("inventory")
        assert info["state_key"] == observation.encode() == env.step("fly")[4]["state_key"]


class TestEngines:
    @needs_textworld
    def test_the_real_engine_plays_the_same_episode(self, env: AlfworldEnv) -> None:
        real = AlfworldEnv(split="test", engine="textworld")
        rng = random.Random(0)
        assert real.reset(options={"task": TASK}) == env.reset(options={"task": TASK})
        for number in range(12):
            action = rng.choice(["fly", *env._reply.admissible])
            assert real.step(action) == env.step(action)
            if number == 6:
                saved = pickle.loads(pickle.dumps(real.snapshot()))
                here = real._observation(), real._info(real._understood)
        assert real.restore(saved) == here
        reference = real.reference()
        assert reference is not None
        for command in reference.split("\n"):
            *_, terminated, _, _ = real.step(command)
        assert terminated
        real.close()

    @needs_textworld
    def test_a_dead_engine_is_an_error_and_the_next_reset_plays_on(self) -> None:
        real = AlfworldEnv(split="test", engine="textworld")
        first = real.reset(options={"task": TASK})
        cast(Any, real._engine)._process._popen.kill()
        with pytest.raises(EngineDiedError):
            real.step("look")
        assert real.reset(options={"task": TASK}) == first
        real.close()

    @needs_textworld
    def test_an_unsupported_game_is_played_by_the_real_engine_and_that_is_announced(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        game = json.loads(old_game(tmp_path).read_text())
        game["grammar"] = game["grammar"].replace('"TODO"', '"{o.name.upper()}"')
        path = tmp_path / "other.tw-pddl"
        path.write_text(json.dumps(game))
        monkeypatch.setattr(environment, "game_file", lambda *_: path)
        env = AlfworldEnv(split="test")
        with pytest.warns(UserWarning, match=f"{TASK} is played by the real engine"):
            env.reset(options={"task": TASK})
        assert env.step("look")[4]["action_valid"]
        env.close()
        with pytest.raises(UnsupportedGameError):
            AlfworldEnv(split="test", engine="compiled").reset(options={"task": TASK})

    def test_what_is_not_known_in_the_middle_of_a_game_is_a_typed_error_that_names_the_other_engine(
        self, env: AlfworldEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        game = json.loads(environment.game_file(env.panel, env.panel[TASK]).read_text())
        game["grammar"] = game["grammar"].replace("{r.name}", "{nobody.name}")
        path = tmp_path / "other.tw-pddl"
        path.write_text(json.dumps(game))
        monkeypatch.setattr(environment, "game_file", lambda *_: path)
        broken = AlfworldEnv(split="test")
        _, info = broken.reset(options={"task": TASK})
        go = next(action for action in info["admissible_actions"] if action.startswith("go to "))
        with pytest.raises(UnsupportedGameError, match=f"{TASK}.*'nobody' is not defined.*engine='textworld'"):
            broken.step(go)

    @needs_textworld
    def test_official_games_are_played_alike_by_both(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AGENTBENCH_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
        folder = tmp_path / "json_2.1.1" / "valid_seen" / "pick_heat_then_place_in_recep-Mug-None-CounterTop-7" / "t1"
        folder.mkdir(parents=True)
        old_game(folder)
        with pytest.warns(UserWarning, match="1 usable games"):
            env = AlfworldEnv("standard", "validation")
        real = AlfworldEnv("standard", "validation", engine="textworld")
        assert env.panel.name == "official"
        assert env.reset(seed=0) == real.reset(seed=0)
        reference = env.reference()
        assert reference is not None
        for command in reference.split("\n"):
            step = env.step(command)
            assert step == real.step(command)
        assert step[2]
        real.close()

    def test_a_part_of_a_panel_can_be_played(self, env: AlfworldEnv) -> None:
        part: Panel = dataclasses.replace(env.panel, tasks=env.panel.tasks[5:7])
        assert {AlfworldEnv(panel=part).reset(seed=seed)[1]["task_id"] for seed in range(20)} == {
            "small-test-0005",
            "small-test-0006",
        }
