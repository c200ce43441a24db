"""The environment: actions and rewards, the contract, hostile text, snapshots, ground truth."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbench_credit.check_env import check_env
from agentbench_credit.env import ENVIRONMENTS, INFO_KEYS, AgentEnv, Panel, Task
from agentbench_credit.envs.webshop.panels import load_panel
from agentbench_credit.errors import EnvironmentContractError

pytest.importorskip("tantivy")
module = pytest.importorskip("agentbench_credit.envs.webshop.env", exc_type=ImportError)
WebShopEnv, Snapshot = module.WebShopEnv, module.Snapshot

REFUSAL = "Not understood. Answer with search[keywords] or click[value]"


@pytest.fixture(autouse=True)
def embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEBSHOP_DATA", raising=False)


def start(task: int = 0, **kwargs: Any) -> Any:
    """Return an environment at the start of a test task."""
    env = WebShopEnv(split="test", **kwargs)
    env.reset(options={"task": env.panel.tasks[task].id})
    return env


def with_options(count: int) -> int:
    """Return the place of the first test task with so many options."""
    tasks = load_panel("embedded", "test").tasks
    return next(place for place, task in enumerate(tasks) if len(json.loads(task.data)[3]) == count)


def plan(env: Any) -> list[str]:
    return cast(str, env.reference()).split("\n")


class TestRules:
    def test_only_a_purchase_is_rewarded_and_all_as_asked_is_success(self) -> None:
        env = start(with_options(2))
        *before, last = plan(env)
        assert before[0].startswith("search[")
        assert last == "click[buy now]"
        for action in before:
            _, reward, terminated, truncated, info = env.step(action)
            assert (reward, terminated, truncated, info["success"], info["score"]) == (0.0, False, False, False, None)
        observation, reward, terminated, truncated, info = env.step(last)
        assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
        assert observation == "Thank you for shopping with us! [SEP] Your score (min 0.0, max 1.0) [SEP] 1.0"
        assert info["score"]["r_type"] == 1.0

    def test_a_purchase_without_an_option_ends_without_success(self) -> None:
        env = start(with_options(2))
        for action in plan(env)[:-2]:
            env.step(action)
        _, reward, terminated, _, info = env.step("click[buy now]")
        parts = info["score"]
        asked = json.loads(env.panel[info["task_id"]].data)
        assert reward == pytest.approx((len(asked[2]) + 1 + 1) / (len(asked[2]) + 2 + 1))
        assert (terminated, info["success"], parts["n_options"], parts["r_price"]) == (True, False, 1, 1)

    def test_nearly_all_as_asked_is_no_success(self) -> None:
        task = load_panel("embedded", "test").tasks[0]
        row = json.loads(task.data)
        row[2] = row[2][:1] * 20 + ["no such attribute"]
        actions = plan(start())
        for reward in ("official", "success"):
            env = WebShopEnv(panel=Panel("mine", "test", 1, (Task("mine-1", json.dumps(row)),)), reward=reward)
            env.reset(options={"task": "mine-1"})
            for action in actions:
                _, got, terminated, _, info = env.step(action)
            assert 0.9 < info["score"]["reward"] < 1
            assert got == (info["score"]["reward"] if reward == "official" else 0.0)
            assert (terminated, info["success"]) == (True, False)

    def test_where_only_success_counts_it_gives_ten_and_all_else_nothing(self) -> None:
        for drop, reward in ((0, 10.0), (1, 0.0)):
            env = start(with_options(2), reward="success")
            actions = plan(env)
            del actions[len(actions) - 1 - drop : len(actions) - 1]
            assert [env.step(action)[1] for action in actions] == [0.0] * (len(actions) - 1) + [reward]

    def test_the_turn_limit_truncates_and_a_purchase_in_the_last_turn_terminates(self) -> None:
        env = start()
        assert [env.step("?")[3] for _ in range(15)] == [False] * 14 + [True]
        env = start(max_turns=len(plan(start())))
        assert [env.step(action)[2:4] for action in plan(env)][-2:] == [(False, False), (True, False)]

    @pytest.mark.parametrize("bought", [False, True])
    def test_after_the_end_nothing_happens_any_more(self, bought: bool) -> None:
        env = start(max_turns=8)
        for action in plan(env) if bought else ["?"] * 8:
            last = env.step(action)
        for action in ("search[shoes]", "click[buy now]", "nonsense", ""):
            observation, reward, terminated, truncated, info = env.step(action)
            assert (observation, reward, terminated, truncated) == (last[0], 0.0, last[2], last[3])
            assert info == last[4] | {"action_valid": False}

    def test_a_search_is_accepted_on_every_page_and_listed_on_the_first(self) -> None:
        env = start(with_options(2))
        for action in plan(env)[:3]:
            env.step(action)
        _, _, _, _, info = env.step("search[Running SHOES]")
        assert info["action_valid"]
        assert env.snapshot().place[:5] == ("results", "running shoes", 1, -1, ())
        assert not any(action.startswith("search") for action in info["admissible_actions"])

    def test_a_search_that_finds_nothing_shows_an_empty_page(self) -> None:
        observation, _, _, _, info = start().step("search[qqqq]")
        assert observation.endswith("Back to Search [SEP] Page 1 (Total results: 0)")
        assert info["admissible_actions"] == ("click[back to search]",)


class TestActions:
    @pytest.mark.parametrize(
        "action", ["search[red shoes]", "search[ Red  SHOES]", " search[red]\n", "search[a]b]", "search[[]"]
    )
    def test_searches(self, action: str) -> None:
        assert start().step(action)[4]["action_valid"]

    @pytest.mark.parametrize(
        "action", ["click[Next >]", "click[ next > ]", "click[BACK TO SEARCH]", "click[back to search] "]
    )
    def test_clicks(self, action: str) -> None:
        env = start()
        env.step("search[shoes]")
        assert env.step(action)[4]["action_valid"]

    @pytest.mark.parametrize(
        "action",
        [
            "",
            " ",
            "\n",
            "search",
            "search[]",
            "search[ ]",
            "search[shoes",
            "search shoes",
            "search(shoes)",
            "Search[shoes]",
            "search[shoes] now",
            "please search[shoes]",
            "click[]",
            "click[search]",
            "click[description]",
            "click[buy now]",
            "click[< prev]",
            "click[2]",
            "Click[next >]",
            "click[next >",
            "click[click[next >]]",
            "buy[next >]",
            "[next >]",
            "]",
            "click[next >]]",
            "click[next\x00>]",
            "\ud800[\ud800]",
            "search[" + "x" * 100_000 + "]",
        ],
    )
    def test_anything_else_changes_nothing_and_is_answered(self, action: str) -> None:
        env = start()
        page, _, _, _, info = env.step("search[shoes]")
        observation, reward, terminated, truncated, after = env.step(action)
        assert observation.startswith(REFUSAL)
        assert observation.endswith(f".\n{page}")
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert after == info | {"action_valid": False, "turn": 2}

    def test_what_is_listed_is_accepted_and_leads_on(self) -> None:
        env, rng = start(), random.Random(0)
        _, info = env.reset(seed=0)
        for _ in range(2000):
            _, _, terminated, truncated, info = env.step(rng.choice(info["admissible_actions"]))
            assert info["action_valid"]
            if terminated or truncated:
                _, info = env.reset()

    def test_20_000_hostile_actions_raise_nothing(self) -> None:
        env, rng = start(max_turns=10**9), random.Random(1)
        bits = ["search[", "click[", "]", "[", "shoes", "back to search", "next >", "< prev", "navy", '"', "OR", "\x00"]
        bits += ["\ud800", "\u202e", "{}", "%s", "9" * 99, "\n", "features", "\U0001f469\u200d", "\u0130", "\u017f"]
        valid = 0
        listed: tuple[str, ...] = ()
        for turn in range(20_000):
            action = "".join(rng.choices(bits, k=rng.randrange(5)))
            if rng.random() < 0.3 and listed:
                action = rng.choice(listed)
            before = env.snapshot().place
            observation, _, terminated, _, info = env.step(action)
            assert turn % 10 or env.observation_space.contains(observation)
            valid, listed = valid + info["action_valid"], info["admissible_actions"]
            if not info["action_valid"]:
                assert env.snapshot().place == before
            if terminated:
                env.reset()
        assert valid > 500


class TestContract:
    def test_check_env_finds_nothing(self) -> None:
        check_env(ENVIRONMENTS.get("webshop"), "embedded")

    def test_info_holds_every_key_from_the_start_and_says_what_was_played(self) -> None:
        env = WebShopEnv()
        _, info = env.reset(seed=0)
        assert set(info) == set(env.step("?")[4]) == {*INFO_KEYS, "score", "catalogue", "noun_tagger"}
        assert (info["catalogue"], info["noun_tagger"]) == ("embedded", "rules-1")
        assert isinstance(env, AgentEnv)

    def test_the_registry_makes_it_and_its_spec_makes_it_again(self) -> None:
        made = ENVIRONMENTS.get("webshop").make(preset="webshop", split="test", observation="text_rich", max_turns=3)
        spec = cast(Any, made).spec
        for one in (spec, copy.deepcopy(spec), pickle.loads(pickle.dumps(spec))):
            again = cast(Any, gymnasium.make(one).unwrapped)
            assert (again.panel, again.max_turns) == (made.panel, 3)
            assert again.reset(seed=1) == made.reset(seed=1)

    def test_a_seed_gives_one_task_in_a_fresh_and_in_a_used_instance(self) -> None:
        used = WebShopEnv()
        for seed in (5, 0, 5, 3):
            first = used.reset(seed=seed)
            used.step("search[shoes]")
            assert WebShopEnv().reset(seed=seed) == first
        used.reset(seed=7)
        following = [used.reset()[1]["task_id"] for _ in range(5)]
        used.reset(seed=7)
        assert [used.reset()[1]["task_id"] for _ in range(5)] == following
        assert len(set(following)) > 1

    def test_nothing_reads_the_global_generators(self) -> None:
        before = random.getstate(), pickle.dumps(np.random.get_state())
        env = start()
        assert env._np_random is None
        env.step(plan(env)[0])
        assert (random.getstate(), pickle.dumps(np.random.get_state())) == before

    def test_another_process_with_another_hash_seed_plays_the_same_games(self) -> None:
        code = (
            "from agentbench_credit.envs.webshop.env import WebShopEnv\n"
            "env = WebShopEnv()\n"
            "print([(env.reset(seed=s), env.reference(), env.step('search[red shoes]'), env.step('click[next >]'))"
            " for s in range(9)])"
        )
        outputs = {
            subprocess.run(
                [sys.executable, "-c", code],
                env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in ("1", "2")
        }
        assert len(outputs) == 1
        assert len(outputs.pop()) > 10_000

    def test_the_full_key_knows_what_the_plain_page_does_not_show(self) -> None:
        full, seen = start(with_options(2)), start(with_options(2), state_key="observation")
        actions = plan(full)
        for action in actions[:-2]:
            first = full.step(action), seen.step(action)
        second = full.step(actions[-2]), seen.step(actions[-2])
        assert first[0][0] == second[0][0]  # the page is the same before and after an option is chosen
        assert first[1][4]["state_key"] == second[1][4]["state_key"] == second[1][0].encode()
        assert first[0][4]["state_key"] != second[0][4]["state_key"]

    def test_keys_tell_tasks_queries_and_pages_apart_but_not_ways_and_turns(self) -> None:
        env, other = start(), start(1)
        keys = [env.step(action)[4]["state_key"] for action in ("?", "search[red]", "click[next >]", "click[< prev]")]
        assert len(set(keys)) == 3
        assert keys[1] == keys[3]
        keys += [env.step("search[red ]")[4]["state_key"], env.step("search[blue]")[4]["state_key"]]
        assert keys[4] == keys[1] != keys[5]
        assert other.step("?")[4]["state_key"] != keys[0]

    def test_rich_text_marks_products_that_were_visited_and_its_key_knows_them(self) -> None:
        env = start(observation="text_rich")
        page, _, _, _, before = env.step("search[shoes]")
        link = next(action for action in before["admissible_actions"] if action.startswith("click[ws"))
        env.step(link)
        again, _, _, _, after = env.step("click[< prev]")
        assert (page.count("[clicked button]"), again.count("[clicked button]")) == (0, 1)
        assert before["state_key"] != after["state_key"]
        plain = start()
        keys = [plain.step(action)[4]["state_key"] for action in ("search[shoes]", link, "click[< prev]")]
        assert keys[0] == keys[2]

    def test_the_instruction_says_what_to_buy_and_how_to_answer(self) -> None:
        info = start().step("?")[4]
        assert "search[keywords]" in info["instruction"]
        assert "click[value]" in info["instruction"]
        assert json.loads(load_panel("embedded", "test").tasks[0].data)[1] in info["instruction"]

    @pytest.mark.parametrize(
        ("kwargs", "what"),
        [
            ({"preset": "shop"}, "no WebShop preset 'shop'"),
            ({"split": "dev"}, "no split 'dev'"),
            ({"state_key": "page"}, "no state key 'page'"),
            ({"observation": "html"}, "no observation mode 'html'"),
            ({"reward": "ten"}, "no reward 'ten'"),
            ({"render_mode": "human"}, "no render mode 'human'"),
            ({"max_turns": 0}, "max_turns is 0"),
        ],
    )
    def test_wrong_arguments_are_typed_errors(self, kwargs: dict[str, Any], what: str) -> None:
        with pytest.raises(EnvironmentContractError, match=what):
            WebShopEnv(**kwargs)

    @pytest.mark.parametrize(
        ("options", "what"),
        [({"task": "nowhere"}, "no task 'nowhere'"), ({"goal": 3}, "unknown reset option 'goal'")],
    )
    def test_wrong_options_are_typed_errors(self, options: dict[str, Any], what: str) -> None:
        with pytest.raises(EnvironmentContractError, match=what):
            WebShopEnv().reset(options=options)

    @pytest.mark.parametrize(
        ("data", "what"), [("", "no goal"), ('[9999, "", ["a"], [], null, "", "", ""]', "no product 9999 in this shop")]
    )
    def test_tasks_that_are_no_goals_are_typed_errors(self, data: str, what: str) -> None:
        env = WebShopEnv(panel=Panel("mine", "test", 1, (Task("mine-1", data),)))
        with pytest.raises(EnvironmentContractError, match=f"mine-1: {what}"):
            env.reset(options={"task": "mine-1"})

    @pytest.mark.parametrize(
        "use",
        [
            lambda env: env.step("click[buy now]"),
            lambda env: env.reference(),
            lambda env: env.expert_action(),
            lambda env: env.snapshot(),
            lambda env: env.render(),
        ],
    )
    def test_before_reset_everything_says_what_to_do(self, use: Callable[[Any], object]) -> None:
        with pytest.raises(EnvironmentContractError, match=r"call reset\(\) first"):
            use(WebShopEnv())

    def test_instances_leave_no_thread_and_no_file_open(self) -> None:
        def count() -> tuple[int, int]:
            return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

        WebShopEnv().close()
        before = count()
        for seed in range(300):
            env = WebShopEnv()
            env.reset(seed=seed)
            env.close()
        assert count() == before


ACTIONS = st.sampled_from(
    ["expert", "expert", "listed", "?", "search[shoes]", "click[< prev]", "click[back to search]"]
)


class TestSnapshots:
    @settings(max_examples=60)
    @given(
        seed=st.integers(0, 10**6),
        mode=st.sampled_from(["text", "text_rich"]),
        before=st.lists(ACTIONS, max_size=16),
        after=st.lists(ACTIONS, min_size=1, max_size=16),
    )
    def test_restoring_and_replaying_gives_the_same_in_any_instance(
        self, seed: int, mode: Any, before: list[str], after: list[str]
    ) -> None:
        env = WebShopEnv(observation=mode)
        observation, info = env.reset(seed=seed)
        for action in before:
            observation, _, _, _, info = env.step(choose(env, action))
        snapshot = env.snapshot()
        assert pickle.loads(pickle.dumps(snapshot)) == snapshot
        actions, expected = [], []
        for action in after:
            actions.append(choose(env, action))
            expected.append(env.step(actions[-1]))
        for target in (env, WebShopEnv(observation=mode)):
            restored = target.restore(snapshot)
            assert target.snapshot() == snapshot
            if info["turn"] == len(before):
                assert restored == (observation, info)
            assert [target.step(action) for action in actions] == expected

    def test_a_snapshot_of_the_end_is_the_end(self) -> None:
        env = start()
        for action in plan(env):
            last = env.step(action)
        env.restore(env.snapshot())
        observation, reward, terminated, truncated, info = env.step("search[shoes]")
        assert (observation, reward, terminated, truncated) == (last[0], 0.0, True, False)
        assert info == last[4] | {"action_valid": False}

    def test_a_snapshot_is_immutable(self) -> None:
        with pytest.raises(AttributeError):
            start().snapshot().turn = 3

    def test_asking_changes_nothing(self) -> None:
        env = start()
        env.step("search[shoes]")
        before, page = env.snapshot(), env.render()
        env.reference(), env.expert_action()
        assert (env.snapshot(), env.render()) == (before, page)

    def test_foreign_snapshots_are_typed_errors(self) -> None:
        env = start()
        with pytest.raises(EnvironmentContractError, match="cannot restore a dict"):
            env.restore({})
        with pytest.raises(EnvironmentContractError, match="no task 'other'"):
            env.restore(Snapshot("other", env.snapshot().place, 0, True, False))


def choose(env: Any, action: str) -> str:
    """Return the action that a word of `ACTIONS` stands for."""
    if action == "listed":
        return cast(str, env.restore(env.snapshot())[1]["admissible_actions"][-1:] or ("?",))[0]
    return (env.expert_action() or "?") if action == "expert" else action


class TestGroundTruth:
    @given(st.integers(0, 10**6), st.integers(0, 5))
    @settings(max_examples=60)
    def test_the_expert_buys_from_wherever_a_shopper_has_strayed(self, seed: int, turns: int) -> None:
        env, rng = WebShopEnv(max_turns=100), random.Random(seed)
        _, info = env.reset(seed=seed)
        for _ in range(turns):
            listed = [action for action in info["admissible_actions"] if action != "click[buy now]"]
            _, _, _, _, info = env.step(rng.choice(listed))
        rest = plan(env)
        for number, action in enumerate(rest):
            assert plan(env) == rest[number:]
            assert env.expert_action() == action
            assert action in info["admissible_actions"] or action.startswith("search[")
            _, reward, _, _, info = env.step(action)
        assert (reward, info["success"]) == (1.0, True)

    def test_a_wrong_option_is_corrected(self) -> None:
        env = start(with_options(2))
        actions = plan(env)
        for action in actions[:3]:
            env.step(action)
        chosen = env.snapshot().place.options[0]
        others = env.shop.site.catalogue.product(env.snapshot().place.item).options
        [values] = [values for name, values in others if name == chosen[0]]
        wrong = next(value for value in values if value != chosen[1])
        env.step(f"click[{wrong}]")
        for action in plan(env):
            _, reward, _, _, _ = env.step(action)
        assert reward == 1.0

    def test_after_the_end_and_for_impossible_goals_there_is_none(self) -> None:
        env = start()
        for action in plan(env):
            env.step(action)
        assert (env.reference(), env.expert_action()) == (None, None)
        data = '[0, "buy", ["no such attribute"], [], 10.0, "nothing", "Nothing", "Nowhere"]'
        env = WebShopEnv(panel=Panel("mine", "test", 1, (Task("mine-1", data),)))
        env.reset(options={"task": "mine-1"})
        assert (env.reference(), env.expert_action()) == (None, None)

    def test_another_product_is_bought_where_the_own_one_is_not_right(self) -> None:
        task = load_panel("embedded", "test").tasks[with_options(1)]
        row = json.loads(task.data)
        other = row[0] + 1  # of another category
        env = WebShopEnv(panel=Panel("mine", "test", 1, (Task("mine-1", json.dumps([other, *row[1:]])),)))
        env.reset(options={"task": "mine-1"})
        for action in plan(env):
            _, reward, _, _, _ = env.step(action)
        assert reward == 1.0


@pytest.mark.parametrize("library", ["tantivy", "rapidfuzz"])
def test_a_missing_library_is_a_typed_error(library: str) -> None:
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from agentbench_credit.env import ENVIRONMENTS\n"
        "entry = ENVIRONMENTS.get('webshop')\n"
        "print(len(entry.load_panel('embedded', 'test')))\n"
        "entry.make()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{len(load_panel('embedded', 'test'))}\n"
    last = done.stderr.splitlines()[-1]
    assert "EnvironmentContractError: a library of the shop cannot be used" in last
    assert library in last
    assert "pip install 'agentbench-credit[webshop]'" in last


@pytest.fixture
def unwritable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    from agentbench_credit.envs.webshop import shop

    (tmp_path / "file").write_text("where the folder should be")
    monkeypatch.setenv("AGENTBENCH_CACHE", str(tmp_path / "file"))
    yield tmp_path
    shop._open_shop.cache_clear()


def test_a_cache_that_cannot_be_written_is_announced_and_the_shop_opens(unwritable: Path) -> None:
    with pytest.warns(UserWarning, match="cannot be cached"):
        env = start()
    assert env.step("search[shoes]")[4]["action_valid"]
    assert (unwritable / "file").is_file()
