"""The compiled engine says what the real one says; the real one survives its process."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentbench_credit.envs.alfworld import compiled as compiled_engine
from agentbench_credit.envs.alfworld import game, textworld_engine
from agentbench_credit.envs.alfworld import world as worlds
from agentbench_credit.envs.alfworld.compare import NONSENSE, compare, differences, random_commands
from agentbench_credit.envs.alfworld.compiled import CompiledEngine
from agentbench_credit.envs.alfworld.engine import (
    NOTHING_HAPPENS,
    EngineDiedError,
    GameFileError,
    Reply,
    UnsupportedGameError,
)
from agentbench_credit.envs.alfworld.games import game_file, load_panel
from agentbench_credit.envs.alfworld.grammar import Unreadable, read_query, read_symbols
from agentbench_credit.envs.alfworld.pddl import read_domain, read_problem
from agentbench_credit.envs.alfworld.textworld_engine import TextWorldEngine
from agentbench_credit.envs.alfworld.world import World
from agentbench_credit.errors import EnvironmentContractError
from alfworld_games import needs_alfworld, needs_textworld, old_game

pytestmark = needs_alfworld

TYPES = 6
PLACE = "[{r.name | receptacleatlocation(r:receptacle, lend:location)}]"
"""How the grammar names where a move leads."""


def small_game(index: int = 0) -> Path:
    panel = load_panel("small", "test")
    return game_file(panel, panel.tasks[index])


@pytest.fixture
def real() -> Iterator[TextWorldEngine]:
    engine = TextWorldEngine()
    yield engine
    engine.close()


def start(path: Path) -> CompiledEngine:
    engine = CompiledEngine()
    engine.start(path)
    return engine


@needs_textworld
class TestBothEngines:
    @pytest.mark.parametrize("index", range(TYPES))
    def test_they_say_the_same_in_a_game_of_each_type(self, real: TextWorldEngine, index: int) -> None:
        path = small_game(index)
        compiled = start(path)
        plan = compiled.plan()
        assert compare(path, (compiled, real), plan) == ""
        assert compiled.act("look").won
        commands = random_commands(compiled, 60, random.Random(index))
        assert compare(path, (compiled, real), commands) == ""

    def test_they_say_the_same_in_a_whole_scene(self, real: TextWorldEngine) -> None:
        panel = load_panel("full", "test")
        path = game_file(panel, panel.tasks[3])
        compiled = start(path)
        assert compare(path, (compiled, real), random_commands(compiled, 60, random.Random(1))) == ""

    def test_they_say_the_same_in_a_game_of_old(self, real: TextWorldEngine, tmp_path: Path) -> None:
        path = old_game(tmp_path)
        compiled = start(path)
        reply = compiled.start(path)
        assert "help" not in reply.admissible
        plan = compiled.plan()
        assert plan[-1].startswith("put mug")
        assert compare(path, (compiled, real), plan) == ""
        assert compare(path, (compiled, real), random_commands(compiled, 120, random.Random(2))) == ""

    def test_lamps_and_things_moved_within_a_place_keep_their_oddities(self, real: TextWorldEngine) -> None:
        path = small_game(1)
        compiled = start(path)
        commands = [*compiled.plan()[:-1]]
        lamp = [command for command in compiled.plan() if command.startswith("use ")]
        assert compare(path, (compiled, real), [*commands, *lamp * 3, "inventory", "inventory", "help", "look"]) == ""

    @pytest.mark.parametrize("index", range(TYPES))
    def test_plans_from_anywhere_win_and_are_no_longer_than_fast_downwards(
        self, real: TextWorldEngine, index: int
    ) -> None:
        path, rng = small_game(index + TYPES), random.Random(index)
        compiled = start(path)
        real.start(path)
        for command in random_commands(compiled, 15, rng):
            compiled.act(command)
            real.act(command)
        plan = compiled.plan()
        assert 0 < len(plan) <= len(real.plan())
        replies = [compiled.act(command) for command in plan]
        assert replies[-1].won
        assert not any(reply.won for reply in replies[:-1])

    def test_a_difference_is_found(self, real: TextWorldEngine) -> None:
        one = real.start(small_game())
        other = Reply(one.text + " ", one.admissible[:-1], True, one.facts - {next(iter(one.facts))})
        assert differences(one, one) == ""
        for word in ("text", "admissible", "won", "facts"):
            assert f"{word} " in differences(one, other)


@needs_textworld
class TestRealEngine:
    def test_it_leaves_this_process_alone(self, real: TextWorldEngine) -> None:
        before = sys.argv, sys.stdout, random.getstate(), dict(os.environ)
        real.start(small_game())
        assert (sys.argv, sys.stdout, random.getstate(), dict(os.environ)) == before
        assert "textworld" not in sys.modules

    def test_a_dead_process_is_an_error_and_is_replaced(self, real: TextWorldEngine) -> None:
        first = real.start(small_game())
        assert real._process is not None
        os.kill(real._process._popen.pid, signal.SIGKILL)
        with pytest.raises(EngineDiedError, match="ended with code -9 at act"):
            real.act("look")
        assert real.start(small_game()) == first

    def test_a_process_that_hangs_is_an_error_and_is_replaced(self, real: TextWorldEngine) -> None:
        first = real.start(small_game())
        assert real._process is not None
        pid = real._process._popen.pid
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EngineDiedError, match="no answer to act within 0 s"):
            real._ask("act", "look", seconds=0.2)
        assert not Path(f"/proc/{pid}").exists()
        assert real.start(small_game()) == first

    def test_an_answer_that_ctrl_c_left_behind_is_not_taken_for_the_next_one(
        self, real: TextWorldEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(*_: object) -> bytes:
            raise KeyboardInterrupt

        first = real.start(small_game())
        with monkeypatch.context() as patch:
            patch.setattr(os, "read", interrupted)
            with pytest.raises(KeyboardInterrupt):
                real.act("look")
        with pytest.raises(EnvironmentContractError, match="no game is being played"):
            real.act("look")
        assert real.start(small_game()) == first

    def test_after_its_process_died_it_plays_on_in_nobody_elses_game(self, real: TextWorldEngine) -> None:
        real.start(small_game())
        other = TextWorldEngine()
        other.start(small_game(1))
        other.close()
        assert real._process is not None
        os.kill(real._process._popen.pid, signal.SIGKILL)
        with pytest.raises(EngineDiedError, match="at plan"):
            real.plan()
        for use in (lambda: real.act("look"), real.plan, real.snapshot):
            with pytest.raises(EnvironmentContractError, match="no game"):
                use()

    def test_a_closed_engine_leaves_its_process_to_the_next(self, real: TextWorldEngine) -> None:
        real.start(small_game())
        process = real._process
        real.close()
        other = TextWorldEngine()
        other.start(small_game())
        assert other._process is process
        other.close()

    def test_few_processes_stay_warm(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(textworld_engine, "WARM_PROCESSES", 1)
        engines = TextWorldEngine(), TextWorldEngine()
        for engine in engines:
            engine.start(small_game())
        textworld_engine._kill_all()
        processes = [engine._process for engine in engines]
        for engine in engines:
            engine.close()
        assert [process is not None and process.alive for process in processes] == [True, False]
        assert list(textworld_engine._warm) == processes[:1]

    def test_snapshots_go_back_by_the_same_way(self, real: TextWorldEngine) -> None:
        path = small_game()
        real.start(path)
        plan = real.plan()
        reply = [real.act(command) for command in plan[:2]][-1]
        saved = real.snapshot()
        assert real.act(plan[2]) != reply
        assert real.restore(pickle.loads(pickle.dumps(saved))) == reply

    def test_files_that_are_no_games_are_typed_errors(self, real: TextWorldEngine, tmp_path: Path) -> None:
        path = tmp_path / "game.tw-pddl"
        with pytest.raises(GameFileError, match="does not exist"):
            real.start(path)
        path.write_text("{}")
        real.start(small_game())
        with pytest.raises(GameFileError, match="TextWorld cannot load"):
            real.start(path)
        with pytest.raises(EnvironmentContractError, match="no game is being played"):
            real.act("look")
        real.start(small_game())


class TestCompiledEngine:
    def test_snapshots_are_exact_in_any_engine_whatever_it_has_seen(self) -> None:
        path, rng = small_game(5), random.Random(0)
        one = start(path)
        for _ in range(40):
            one.act(rng.choice(one.game.node(one.state).admissible))
        saved = pickle.loads(pickle.dumps(one.snapshot()))
        commands = [rng.choice([*NONSENSE, *one.game.node(one.state).admissible]) for _ in range(20)]
        here = one.restore(saved)
        expected = [one.act(command) for command in commands]
        # An engine whose atoms have other numbers, because it went elsewhere first.
        game.forget()
        other = start(path)
        for command in reversed(other.game.node(other.state).admissible):
            other.act(command)
        assert other.game.world.atoms.listed != one.game.world.atoms.listed
        assert other.restore(saved) == here
        assert [other.act(command) for command in commands] == expected

    def test_threads_that_share_a_game_get_what_one_alone_gets(self) -> None:
        panel = load_panel("full", "test")
        path = game_file(panel, panel.tasks[2])

        def play(seed: int, heard: dict[int, list[Reply]]) -> None:
            engine = start(path)
            heard[seed] = [engine.act(command) for command in random_commands(engine, 40, random.Random(seed))]

        alone: dict[int, list[Reply]] = {}
        for seed in range(4):
            play(seed, alone)
        game.forget()
        together: dict[int, list[Reply]] = {}
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            threads = [threading.Thread(target=play, args=(seed, together)) for seed in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        finally:
            sys.setswitchinterval(interval)
        assert together == alone

    @pytest.mark.parametrize("torn", ["{" + " " * 50_000 + "x", "{o.name |" + " " * 50_000 + "<", "{a" * 50_000])
    def test_torn_texts_of_a_grammar_are_refused_in_no_time(self, torn: str) -> None:
        began = time.process_time()
        assert isinstance(read_symbols(torn)[-1], Unreadable)
        assert time.process_time() - began < 1

    def test_a_goal_that_can_be_reached_in_too_many_ways_is_not_compiled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        path = small_game()
        game.forget()
        monkeypatch.setattr(worlds, "MOST_GOALS", 0)
        with pytest.raises(UnsupportedGameError, match="more than 0 ways to reach the goal"):
            start(path)

    def test_plans_are_remembered_up_to_a_bound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(compiled_engine, "REMEMBERED_PLANS", 5)
        game.forget()
        engine, rng = start(small_game()), random.Random(0)
        for _ in range(20):
            engine.act(rng.choice(engine.game.node(engine.state).admissible))
            assert engine.plan() == engine.plan()
            assert len(engine.game.plans) <= 5

    def test_different_variables_of_a_query_stand_for_different_things(self) -> None:
        world = start(small_game()).game.world
        together = "inreceptacle(o:object, r:receptacle) & inreceptacle(o':object, r:receptacle)"
        matches = list(world.matches(read_query(together), {}, world.first))
        assert matches
        assert all(match["o", "object"] != match["o'", "object"] for match in matches)
        with pytest.raises(UnsupportedGameError, match="inreceptacle has 2 arguments, not 1"):
            next(world.matches(read_query("inreceptacle(o:object)"), {}, world.first))

    def test_what_is_surely_added_is_not_said_to_be_deleted(self) -> None:
        domain = read_domain(
            "(define (domain d) (:action wet :parameters (?o - object) :precondition (dry ?o)"
            " :effect (and (wet ?o) (when (cold ?o) (not (wet ?o))) (not (dry ?o)))))"
        )
        problem = read_problem("(define (problem p) (:objects mug) (:init (dry mug) (cold mug)) (:goal (wet mug)))")
        world = World(domain, problem)
        [operator] = world.grounding.operators(world.first)
        after = operator.apply(world.first)
        assert world.won(after)
        assert world.facts(after) == {"cold(mug)", "wet(mug)", "not_dry(mug)"}

    def test_unlisted_commands_change_nothing(self) -> None:
        engine = start(small_game())
        before = engine.state
        for command in NONSENSE[:-1]:
            assert engine.act(command).text == NOTHING_HAPPENS
            assert engine.state == before

    def test_only_what_can_be_hot_is_said_not_to_be_hot_any_more(self) -> None:
        panel = load_panel("full", "train")
        ceased = {}
        for thing in ("Pot", "Mug"):
            task = next(
                task for task in panel if json.loads(task.data)[0].startswith("pick_cool") and f'"{thing}"' in task.data
            )
            engine = start(game_file(panel, task))
            for command in engine.plan():
                reply = engine.act(command)
            assert reply.won
            ceased[thing] = any(fact.startswith("not_ishot(") for fact in reply.facts)
        assert ceased == {"Pot": False, "Mug": True}

    @pytest.mark.parametrize(
        ("change", "error", "what"),
        [
            (("(define (domain", "(define (domaine"), UnsupportedGameError, "section domaine"),
            (("(:action look", "(:derived (x) (y)) (:action look"), UnsupportedGameError, "section :derived"),
            (("(holds ?a ?o)", "(forall (?x - object) (holds ?a ?x))"), UnsupportedGameError, "of all objects"),
            (("(:action look", "(:action peek"), UnsupportedGameError, "the grammar has no peek"),
            (("{r.name}", "{r.name.upper()}"), UnsupportedGameError, "expression"),
            (("holds(a:agent, o:object)", "holds a"), UnsupportedGameError, "condition 'holds a'"),
            (("(:goal", "((:goal"), GameFileError, "no whole"),
            (("(:goal", "(:metric"), GameFileError, "no goal"),
            (('feedback :: "#help', 'feedback : "#help'), GameFileError, "TextWorld grammar, line"),
            (("(atLocation agent1 ", "(atLocation "), GameFileError, "atlocation has 1 arguments and elsewhere 2"),
            (("(:goal", "(:goal) (:metric"), GameFileError, "is no game"),
            ((f'"go to {PLACE}"', '"go"'), UnsupportedGameError, "'go' has two meanings"),
            (("(:goal", "(:goal (and " + "(not " * 9_000 + ")" * 9_001), GameFileError, "is no game"),
        ],
    )
    def test_what_it_does_not_know_is_a_typed_error(
        self, tmp_path: Path, change: tuple[str, str], error: type[Exception], what: str
    ) -> None:
        data = json.loads(small_game().read_text())
        changed = {key: value.replace(*change) if isinstance(value, str) else value for key, value in data.items()}
        assert changed != data
        path = tmp_path / "game.tw-pddl"
        path.write_text(json.dumps(changed))
        with pytest.raises(error, match=what):
            CompiledEngine().start(path)

    @pytest.mark.parametrize(
        ("content", "what"),
        [
            ("", "cannot be read"),
            ("{}", "is no game"),
            ("[]", "is no game"),
            ("[" * 100_000, "is no game"),
            ("9" * 5_000, "is no game"),
            ('{"pddl_problem": null}', "is no game"),
        ],
    )
    def test_torn_files_are_typed_errors(self, tmp_path: Path, content: str, what: str) -> None:
        path = tmp_path / "game.tw-pddl"
        with pytest.raises(GameFileError, match="cannot be read"):
            CompiledEngine().start(path)
        path.write_text(content)
        with pytest.raises(GameFileError, match=what):
            CompiledEngine().start(path)

    def test_a_file_that_changed_is_another_game(self, tmp_path: Path) -> None:
        path = tmp_path / "game.tw-pddl"
        for index in range(2):
            path.write_bytes(small_game(index).read_bytes())
            assert CompiledEngine().start(path) == CompiledEngine().start(small_game(index))

    def test_foreign_snapshots_and_early_calls_are_typed_errors(self) -> None:
        with pytest.raises(EnvironmentContractError, match="cannot restore a dict"):
            start(small_game()).restore({})
        for use in (lambda: CompiledEngine().act("look"), lambda: CompiledEngine().snapshot()):
            with pytest.raises(EnvironmentContractError, match=r"call start\(\) first"):
                use()
