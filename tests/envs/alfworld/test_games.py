"""The embedded panels are what was published, can be won, and keep seen and unseen apart; official files are chosen as
ALFWorld chooses them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from agentbench_credit.env import Panel, Task
from agentbench_credit.envs.alfworld import generate, official, wheel
from agentbench_credit.envs.alfworld.compiled import CompiledEngine
from agentbench_credit.envs.alfworld.engine import GameFileError
from agentbench_credit.envs.alfworld.games import SPLITS, game_file, load_panel, walkthrough
from agentbench_credit.errors import EnvironmentContractError
from alfworld_games import needs_alfworld

SIZES = {"train": 600, "validation": 120, "test": 120}
HASHES = {
    "small/train": "ad55e991b297d84f8d1223d65963cc0ebabb28304081b6e999c0d1b3db86f4fd",
    "small/validation": "010f1c39cacbb798ac6c71bc2bd7dc00af992d098fd5d547d7dfcc35b749c30e",
    "small/test": "e019e87980e5c0c88c1ccb89d741f19ab83e07be585b9c4f39f739439ce58857",
    "full/train": "2e64722422367253cd6846a4bae39430e6cd2892b10fe7265c8321b5a349dbdf",
    "full/validation": "c5b408712bd83c43401bb335a8b435e3a0f0b34716eee44265d2af477c522138",
    "full/test": "465268f565d83102ac56ee7827a92de42f8996f82451b22215365da844c8001f",
}


class TestEmbedded:
    @pytest.mark.parametrize("name", HASHES)
    def test_the_panels_are_the_published_ones(self, name: str) -> None:
        size, split = name.split("/")
        panel = load_panel(size, split)
        assert (panel.name, len(panel)) == (f"embedded-{size}", SIZES[split])
        assert panel.sha256 == HASHES[name]
        types = Counter(json.loads(task.data)[0] for task in panel)
        assert types == dict.fromkeys(generate.TASK_TYPES, SIZES[split] // 6)

    @needs_alfworld
    @pytest.mark.parametrize("size", ["small", "full"])
    def test_unseen_floor_plans_and_goals_stay_unseen(self, size: str) -> None:
        rows = {split: [json.loads(task.data) for task in load_panel(size, split)] for split in SPLITS}
        scenes = {split: {row[1] for row in rows[split]} for split in SPLITS}
        assert scenes["test"] <= set(wheel.tables().unseen_scenes)
        assert scenes["train"] | scenes["validation"] <= set(wheel.tables().train_scenes)
        goals = [tuple(row[:4]) for split in SPLITS for row in rows[split]]
        assert len(set(goals)) == len(goals)

    @needs_alfworld
    @pytest.mark.parametrize("size", ["small", "full"])
    def test_fast_downwards_plan_wins_and_ours_is_no_longer(self, size: str) -> None:
        panel = load_panel(size, "test")
        for task in panel.tasks[::3]:
            engine = CompiledEngine()
            engine.start(game_file(panel, task))
            commands = walkthrough(task)
            assert len(engine.plan()) <= len(commands)
            assert [engine.act(command).won for command in commands] == [False] * (len(commands) - 1) + [True]

    @needs_alfworld
    def test_another_game_than_the_published_one_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AGENTBENCH_CACHE", str(tmp_path))
        panel = load_panel("small", "test")
        fields = json.loads(panel.tasks[0].data)
        fields[5] += 1
        with pytest.raises(EnvironmentContractError, match=r"not the published one.*alfworld that .* with: 0\.4\.2"):
            game_file(panel, Task("other", json.dumps(fields)))

    @needs_alfworld
    def test_a_cache_that_cannot_be_written_is_a_typed_error_that_says_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("where the folder should be")
        monkeypatch.setenv("AGENTBENCH_CACHE", str(tmp_path / "file"))
        panel = load_panel("small", "test")
        with pytest.raises(GameFileError, match=r"small-test-0000: the game cannot be .* set AGENTBENCH_CACHE"):
            game_file(panel, panel.tasks[0])

    @pytest.mark.parametrize("data", ["", "{}", "[]", "[1, 2, 3]", '"text"', "[" * 100_000])
    def test_a_task_that_is_no_game_is_a_typed_error(self, data: str) -> None:
        panel = load_panel("small", "test")
        with pytest.raises(EnvironmentContractError, match="no specification of a game"):
            game_file(panel, Task("other", data))

    @needs_alfworld
    def test_a_damaged_file_in_the_cache_is_announced_and_made_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AGENTBENCH_CACHE", str(tmp_path))
        panel = load_panel("small", "test")
        path = game_file(panel, panel.tasks[1])
        good = path.read_bytes()
        path.write_bytes(good[:-1])
        with pytest.warns(UserWarning, match="is damaged and is made again"):
            assert game_file(panel, panel.tasks[1]) == path
        assert path.read_bytes() == good
        path.unlink()  # whoever clears the cache does not stop those who play
        assert game_file(panel, panel.tasks[1]).read_bytes() == good
        assert hashlib.sha256(good).hexdigest() == json.loads(panel.tasks[1].data)[7]

    @needs_alfworld
    def test_a_goal_is_not_reached_from_the_start_and_its_things_are_there(self) -> None:
        for task in generate.TASK_TYPES:
            thing, target = generate.goals(task, 301 if task == "look_at_obj_in_light" else 7)[0]
            for small in (True, False):
                scene = 301 if task == "look_at_obj_in_light" else 7
                world = generate.furnish(generate.Spec(task, scene, thing, target, small, 1))
                mine = [one for one in world.things if one.kind == thing]
                assert len(mine) >= (2 if task == "pick_two_obj_and_place" else 1)
                assert all(one.place.kind != target for one in mine)
                assert len({one.id for one in world.things}) == len(world.things)
                assert not small or len(world.places) <= generate.SMALL_PLACES
                assert world.start not in {place.pose for place in world.places}

    @needs_alfworld
    def test_what_does_not_suit_a_scene_is_a_typed_error(self) -> None:
        with pytest.raises(EnvironmentContractError, match="does not suit the floor plan"):
            generate.furnish(generate.Spec("pick_heat_then_place_in_recep", 301, "Apple", "Fridge", True, 0))

    def test_unknown_names_are_typed_errors(self) -> None:
        with pytest.raises(EnvironmentContractError, match="no ALFWorld preset 'big'"):
            load_panel("big", "test")
        with pytest.raises(EnvironmentContractError, match="no split 'unseen'"):
            load_panel("small", "unseen")

    def test_without_the_package_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
        with pytest.raises(EnvironmentContractError, match=r"pip install 'agentbench-credit\[alfworld\]'"):
            wheel.folder.__wrapped__()


def write_official(root: Path, name: str, content: object) -> Path:
    path = root / "json_2.1.1" / "valid_seen" / name / "trial_1" / "game.tw-pddl"
    path.parent.mkdir(parents=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


class TestOfficial:
    @pytest.fixture(autouse=True)
    def data(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("AGENTBENCH_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
        return tmp_path

    def load(self) -> Panel:
        folder = official.data_folder()
        assert folder is not None
        with pytest.warns(UserWarning, match="ALFWorld counts 140") as caught:
            panel = official.load_panel(folder, "validation")
        self.warning = str(caught[0].message)
        return panel

    def test_the_games_that_alfworld_uses_are_chosen_and_the_others_counted(self, data: Path) -> None:
        good = {"solvable": True}
        write_official(data, "pick_and_place_simple-B-None-Box-2", good)
        write_official(data, "look_at_obj_in_light-A-None-DeskLamp-1", good)
        write_official(data, "pick_and_place_with_movable_recep-A-Pan-Box-1", good)
        write_official(data, "pick_clean_then_place_in_recep-AppleSliced-None-Box-1", good)
        write_official(data, "pick_two_obj_and_place-A-None-Box-1", {"solvable": False})
        write_official(data, "pick_two_obj_and_place-B-None-Box-1", {"solvable": None})
        write_official(data, "pick_two_obj_and_place-C-None-Box-1", "{")
        write_official(data, "wash_all-C-None-Box-1", good)
        panel = self.load()
        assert [task.id for task in panel] == [
            "official/valid_seen/look_at_obj_in_light-A-None-DeskLamp-1/trial_1",
            "official/valid_seen/pick_and_place_simple-B-None-Box-2/trial_1",
        ]
        assert panel.name == "official"
        assert str(data) not in json.dumps([task.data for task in panel])
        torn = "pick_two_obj_and_place-C-None-Box-1/trial_1/game.tw-pddl cannot be read"
        for reason in ("2 with movable or sliced things", "2 not solvable", "1 of another task type", torn):
            assert reason in self.warning
        assert self.load() == panel

    def test_a_file_that_changed_is_read_again_and_never_played_as_the_old_one(self, data: Path) -> None:
        path = write_official(data, "pick_and_place_simple-B-None-Box-2", {"solvable": True})
        panel = self.load()
        assert game_file(panel, panel.tasks[0]) == path
        path.write_text('{"solvable": true, "walkthrough": []}')
        assert self.load().sha256 != panel.sha256
        with pytest.raises(GameFileError, match="changed while it was in use"):
            game_file(panel, panel.tasks[0])

    def test_unreadable_files_are_listed_even_where_the_number_is_right_and_read_again_once_mended(
        self, data: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(official.SIZES, "validation", 1)
        write_official(data, "pick_and_place_simple-B-None-Box-2", {"solvable": True})
        names = [f"pick_and_place_simple-{letter}-None-Box-2" for letter in "CDE"]
        write_official(data, names[0], "[" * 100_000)
        write_official(data, names[1], f'{{"solvable": {"9" * 5_000}}}')
        folder = write_official(data, names[2], "").parent
        (folder / "game.tw-pddl").unlink()
        (folder / "game.tw-pddl").mkdir()
        with pytest.warns(UserWarning, match="3 that cannot be read") as caught:
            assert len(official.load_panel(data / "json_2.1.1", "validation")) == 1
        assert all(f"{name}/trial_1/game.tw-pddl cannot be read" in str(caught[0].message) for name in names)
        (folder / "game.tw-pddl").rmdir()
        (folder / "game.tw-pddl").write_text('{"solvable": true}')
        with pytest.warns(UserWarning, match="2 that cannot be read"):
            assert len(official.load_panel(data / "json_2.1.1", "validation")) == 2

    @pytest.mark.parametrize("damage", ["[", "[]", "[" * 100_000, '{"a": 1}', '{"a": {"stamp": [1, 2]}}'])
    def test_a_damaged_list_of_games_is_announced_and_made_again(self, data: Path, damage: str) -> None:
        write_official(data, "pick_and_place_simple-B-None-Box-2", {"solvable": True})
        panel = self.load()
        [memory] = (data / "cache" / "alfworld").glob("official-*.json")
        memory.write_text(damage)
        with (
            pytest.warns(UserWarning, match="ALFWorld counts 140"),
            pytest.warns(UserWarning, match="is damaged and is made again"),
        ):
            assert official.load_panel(data / "json_2.1.1", "validation") == panel
        assert self.load() == panel

    def test_standard_plays_official_games_only_where_they_are(
        self, data: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert load_panel("standard", "validation").name == "embedded-full"
        write_official(data, "pick_and_place_simple-B-None-Box-2", {"solvable": True})
        with pytest.warns(UserWarning, match="1 usable games"):
            assert load_panel("standard", "validation").name == "official"
        with pytest.raises(EnvironmentContractError, match="no game can be used"):
            load_panel("standard", "test")
        assert load_panel("full", "validation").name == "embedded-full"
        monkeypatch.delenv("ALFWORLD_DATA")
        assert load_panel("standard", "validation").name == "embedded-full"
