"""The checks behind `agentbench_credit.check_env`, each a function that notes what it finds."""

from __future__ import annotations

import gc
import importlib
import json
import os
import pickle
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from itertools import combinations, zip_longest
from pathlib import Path

from agentbench_credit.env import AgentEnv, Environment, Panel
from agentbench_credit.env_probe import MAX_TURNS, Moment, Probe, StopCheckError, Watched

INSTANCES = 200
"""Environments opened and closed to look for what they leave behind."""
SPARE_HANDLES = 5
"""Threads or open files by which all of them together may raise the count."""
CHILD_SECONDS = 600
"""Time limit of the other process."""
HOSTILE: tuple[str, ...] = (
    "",
    " \t\r\n",
    "x" * 100_000,
    "[(" * 50_000,
    "9" * 5_000,
    "\x00",
    "".join(map(chr, range(1, 32))) + "\x7f\x85\u2028",
    "\U0001f469\u200d\U0001f680\ufe0f",
    "\u202e\u0645\u0631\u062d\u0628\u0627\u202c",
    "\ud800",
    '{"a": [1, {"b": null}]}',
    "{} {0} {name!r:>10} %s %(name)d \\1 $x `y`",
    "'\"\\ ; -- <|im_end|></s>",
)
"""What a model may answer; none of it is an action anywhere."""

Start = tuple[int | None, str | None]
"""Seed and task of a reset."""

_MEMBERS = ("panel", "reset", "step", "reference", "expert_action", "snapshot", "restore", "close", "spec")
_CHILD = "from agentbench_credit.env_checks import answer_parent; answer_parent()"
_ENTROPY = "draw with self.np_random only, keep no state on the class, and sort what comes from a set or a folder"


def check_registration(probe: Probe) -> None:
    """The id is versioned and this entry's own, the class has all members, its arguments are JSON."""
    import gymnasium

    entry = probe.environment
    if not re.search(r"-v\d+$", entry.id):
        probe.add("id-version", f"the id {entry.id} has no version", "end it in -v0")
    entry.register()
    if gymnasium.registry[entry.id].entry_point != entry.entry_point:
        what = f"the id {entry.id} belongs to {gymnasium.registry[entry.id].entry_point}"
        probe.add("id-taken", what, "choose another id")
        raise StopCheckError
    env = probe.make().env
    if missing := [name for name in _MEMBERS if name not in dir(env)]:
        what = f"the class lacks {', '.join(missing)}"
        probe.add("protocol", what, "derive from gymnasium.Env and write what AgentEnv lists")
        raise StopCheckError


def check_panels(probe: Probe) -> None:
    """Every split loads, the same each time, without a task that is there twice; the environment has its own."""
    panels: dict[str, Panel] = {}
    for split in probe.environment.splits_of(probe.preset):
        where = f"{probe.environment.name} {probe.preset}/{split}"
        try:
            panel, again = (probe.environment.load_panel(probe.preset, split) for _ in range(2))
        except Exception as error:  # whatever a loader raises is a finding
            probe.add("panel-load", f"load_panel raises {_text(error)}", "every split of every preset must load", where)
            continue
        panels[split] = panel
        if len(panel) == 0:
            probe.add("panel-empty", "the panel has no task", "give every split tasks", where)
        if len({task.id for task in panel}) < len(panel):
            probe.add("panel-ids", "two tasks have one id", "number the tasks", where)
        if panel.sha256 != again.sha256:
            probe.add("panel-hash", "two loads give different panels", "make it from a fixed seed", where)
    for (one, first), (two, second) in combinations(panels.items(), 2):
        where = f"{probe.environment.name} {probe.preset}, {one} and {two}"
        if {task.id for task in first} & {task.id for task in second}:
            probe.add("panel-ids", "two splits share a task id", "put the split into the id", where)
        if {task.data for task in first} & {task.data for task in second}:
            probe.add("panel-overlap", "two splits share a task's data", "give each task to one split", where)
    if probe.split not in panels or len(panels[probe.split]) == 0:
        raise StopCheckError
    if probe.make().env.panel.sha256 != panels[probe.split].sha256:
        probe.add("panel-env", "env.panel is not what load_panel gives", "load it by preset and split")


def check_episodes(probe: Probe) -> None:
    """Episodes end, whether the policy acts well, at random or nonsensically, and stay ended."""
    env = probe.make()
    play: dict[str, Callable[[random.Random], str]] = {
        "random": env.choose,
        "expert": lambda rng: env.env.expert_action() or env.choose(rng),
        "nonsense": lambda _: "\x00",
    }
    for name, act in play.items():
        for task in _tasks(env):
            env.reset(task=task)
            rng = random.Random(0)
            for _ in range(MAX_TURNS):
                if env.step(act(rng)).over:
                    break
            else:
                what = f"an episode of {name} actions does not end within {MAX_TURNS} turns"
                probe.add("turn-limit", what, "truncate at a turn limit; invalid actions take turns too")
                continue
            for action in (env.choose(rng), "\x00"):
                _step_after_end(probe, env, action)


def _step_after_end(probe: Probe, env: Watched, action: str) -> None:
    try:
        env.step(action)
    except StopCheckError:
        raise
    except Exception as error:  # whatever step raises is a finding
        probe.add("step-after-end", f"a step after the end raises {_text(error)}", "return the final state again")
        raise StopCheckError from error


def check_starts(probe: Probe) -> None:
    """A seed or task gives one start: in a fresh, a used and a neighbouring instance, and in any order."""
    fresh = probe.make()
    starts = _starts(fresh)
    expected = [play_start(fresh, start) for start in starts]
    for start, lines in zip(starts, expected, strict=True):
        _compare(probe, "reset-fresh", "two fresh instances", lines, play_start(probe.make(), start))
    for start, lines in reversed(list(zip(starts, expected, strict=True))):
        _compare(probe, "reset-used", "a fresh and a used instance", lines, play_start(fresh, start))
    task = starts[-1][1]
    one, other = probe.make(), probe.make()
    keys = {env.reset(task=task, seed=seed).info["state_key"] for env, seed in ((one, None), (other, 1), (one, 2))}
    if len(keys) > 1:
        what = "resets to one task start in different states"
        probe.add("group-start", what, "let the task alone decide the start, whatever the seed")
    one.reset(seed=0, task=task)
    other.reset(seed=0, task=starts[-2][1])
    other.walk(1, 5)
    beside = [moment.all() for moment in (one.now, *one.walk(0, 5))]
    alone = play_start(probe.make(), (0, task))
    _compare(probe, "shared-state", "an instance alone and one beside another", alone, beside)


def check_other_process(probe: Probe) -> None:
    """Another process with another PYTHONHASHSEED has the same panel and the same starts."""
    env = probe.make()
    starts = _starts(env)
    expected = [play_start(env, start) for start in starts]
    question = [probe.environment.entry_point, probe.preset, probe.split, starts]
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    child = subprocess.run(
        [sys.executable, "-c", _CHILD],
        input=json.dumps(question),
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=CHILD_SECONDS,
        check=False,
    )
    if child.returncode:
        reason = (child.stderr.strip().splitlines() or ["no message"])[-1]
        what = f"the environment cannot be played in another process ({reason})"
        probe.add("other-process", what, "put the class into a module that can be imported")
        return
    sha256, *answers = json.loads(child.stdout.splitlines()[-1])
    if sha256 != env.env.panel.sha256:
        probe.add("other-process", "another process has another panel", _ENTROPY)
    for here, there in zip(expected, answers, strict=True):
        _compare(probe, "other-process", "this and another process", here, there)


def answer_parent() -> None:
    """Play the starts that `check_other_process` asks for on standard input, and print what happened as JSON."""
    entry_point, preset, split, starts = json.load(sys.stdin)
    module, _, name = entry_point.partition(":")
    env: AgentEnv = getattr(importlib.import_module(module), name)(preset=preset, split=split)
    probe = Probe(Environment("", "", entry_point, (preset,), lambda *_: env.panel), preset, split)
    answers = [play_start(Watched(env, probe), (seed, task)) for seed, task in starts]
    print("\n" + json.dumps([env.panel.sha256, *answers]))


def check_hostile(probe: Probe) -> None:
    """`step` answers any string; what is no action is called invalid and changes nothing."""
    env = probe.make()
    task = _tasks(env)[0]
    for text in HOSTILE:
        before = env.reset(task=task)
        where = f"{probe.where}, task {task}, step({_short(text)})"
        try:
            after = env.step(text)
        except StopCheckError:
            raise
        except Exception as error:  # whatever step raises is a finding
            what = f"step raises {type(error).__name__}"
            probe.add(
                "step-raises", what, "answer with an observation and action_valid False", f"{where}: {_text(error)}"
            )
            env = probe.make()
            continue
        valid, admissible = after.info["action_valid"], before.info["admissible_actions"]
        if valid and admissible is not None and text not in admissible:
            what = "a text that is no admissible action is called valid"
            probe.add("invalid-accepted", what, "match the whole action", where)
        if not valid and after.observation == before.observation:
            what = "the observation after an invalid action does not say so"
            probe.add("invalid-silent", what, "put a sentence about it into the observation", where)


def check_queries(probe: Probe) -> None:
    """`reference`, `expert_action` and `snapshot` change nothing."""
    asked = probe.make()
    task, rng = _tasks(asked)[0], random.Random(0)
    moments = [asked.reset(seed=0, task=task)]
    while len(moments) <= 5 and not asked.now.over:
        for name, answer in (("reference", asked.env.reference()), ("expert_action", asked.env.expert_action())):
            if answer is not None and type(answer) is not str:
                what = f"{name}() returns {type(answer).__name__}, not str or None"
                probe.add("query-type", what, "return text")
        asked.env.snapshot()
        moments.append(asked.step(asked.choose(rng)))
    lines = [moment.all() for moment in moments]
    who = "episodes with and without calls of reference, expert_action and snapshot"
    _compare(probe, "query-moves-state", who, play_start(probe.make(), (0, task)), lines)


def check_snapshot(probe: Probe) -> None:
    """`restore` goes back exactly, again and again, also from a pickled copy; or `snapshot` returns None."""
    env = probe.make()
    for task in _tasks(env):
        env.reset(seed=0, task=task)
        env.walk(1, 1)
        here = env.now if env.now.over else env.step("\x00")
        saved = env.env.snapshot()
        if saved is None:
            return
        rng = random.Random(2)
        actions: list[str] = []
        moments: list[Moment] = []
        while len(moments) < 5 and not env.now.over:
            actions.append(env.choose(rng))
            moments.append(env.step(actions[-1]))
        expected = [here.state(), *(moment.all() for moment in moments)]
        for check, who in (("snapshot-restore", "a restored state"), ("snapshot-mutable", "a state restored twice")):
            lines = [env.restore(saved).state(), *(env.step(action).all() for action in actions)]
            if _compare(probe, check, f"the state and {who}", expected, lines):
                return
        try:
            copy = pickle.loads(pickle.dumps(saved))
        except Exception as error:  # pickle raises whatever the object does
            probe.add("snapshot-pickle", f"a snapshot cannot be pickled ({_text(error)})", "make it of plain values")
            return
        fresh = probe.make()  # as another worker restores it
        lines = [fresh.restore(copy).state(), *(fresh.step(action).all() for action in actions)]
        _compare(probe, "snapshot-pickle", "the state and one restored from a pickled copy elsewhere", expected, lines)


def check_global_random(probe: Probe) -> None:
    """Nothing is drawn from the global generators of `random` and NumPy, nor are they seeded."""
    import numpy as np

    saved = random.getstate(), np.random.get_state(legacy=False)
    try:
        random.seed(os.urandom(16))
        np.random.seed(int.from_bytes(os.urandom(4), "big"))
        before = _global_states()
        env = probe.make()
        for start in _starts(env):
            play_start(env, start)
        for name, old, new in zip(("random", "numpy.random"), before, _global_states(), strict=True):
            if old != new:
                probe.add("global-random", f"the global generator of {name} is used", "draw with self.np_random")
    finally:
        random.setstate(saved[0])
        np.random.set_state(saved[1])


def _global_states() -> tuple[object, object]:
    import numpy as np

    state = np.random.get_state(legacy=False)
    return random.getstate(), (state["state"]["key"].tobytes(), state["state"]["pos"], state["gauss"])


def check_leaks(probe: Probe) -> None:
    """Opening and closing many instances leaves no threads and no open files."""

    def open_and_close(count: int) -> dict[str, int]:
        for _ in range(count):
            probe.make().reset(seed=0)
            probe.close()
        gc.collect()
        handles = Path("/proc/self/fd")
        files = len(os.listdir(handles)) if handles.exists() else 0
        return {"threads": threading.active_count(), "open files": files}

    before, after = open_and_close(3), open_and_close(INSTANCES)
    for name in before:
        if after[name] - before[name] > SPARE_HANDLES:
            what = f"{INSTANCES} instances, all closed, leave {after[name] - before[name]} {name}"
            probe.add("leak", what, "free in close() whatever the instance holds")


def play_start(env: Watched, start: Start) -> list[str]:
    """Reset, act at random for a few turns, and return everything that came back."""
    seed, task = start
    return [moment.all() for moment in (env.reset(seed=seed, task=task), *env.walk(0, 5))]


def _tasks(env: Watched) -> list[str]:
    """Return the panel's first tasks; a single one twice."""
    return [task.id for task in (*env.env.panel.tasks[:2], *env.env.panel.tasks[:1])][:2]


def _starts(env: Watched) -> list[Start]:
    return [(0, None), (1, None), (2**31, None), *((7, task) for task in _tasks(env))]


def _compare(probe: Probe, check: str, who: str, one: Sequence[str], two: Sequence[str]) -> bool:
    """Note the first difference; return whether there is one."""
    for turn, (left, right) in enumerate(zip_longest(one, two)):
        if left != right:
            probe.add(check, f"{who} differ", _ENTROPY, f"{probe.where}, {turn} turns after the start")
            return True
    return False


def _short(text: str) -> str:
    return repr(text) if len(text) < 40 else f"{text[:20]!r}… of {len(text)} characters"


def _text(error: Exception) -> str:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {_short(str(error))}{place}"


SETUP: tuple[Callable[[Probe], None], ...] = (check_registration, check_panels)
"""Checks without which the others cannot run."""
CHECKS: tuple[Callable[[Probe], None], ...] = (
    check_episodes,
    check_starts,
    check_other_process,
    check_hostile,
    check_queries,
    check_snapshot,
    check_global_random,
    check_leaks,
)
"""The other checks."""


def run_check(check: Callable[[Probe], None], probe: Probe) -> bool:
    """Run a check, turn whatever the environment raises into a finding, and close what was opened.

    Args:
        check: A member of `SETUP` or `CHECKS`.
        probe: The environment; takes the findings.

    Returns:
        Whether the check came to its end.
    """
    try:
        try:
            check(probe)
        finally:
            probe.close()
    except StopCheckError:
        return False
    except Exception as error:  # an environment may raise anything
        probe.add("exception", f"{check.__name__} met {_text(error)}", "make, reset, step and close must not raise")
        return False
    return True
