from __future__ import annotations

import copy
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentbench_credit.datasets import package
from agentbench_credit.envs.tools import tooltalk
from agentbench_credit.envs.tools.host import Call, View
from agentbench_credit.envs.tools.tooltalk import ToolTalkHost, count_words, tasks
from agentbench_credit.errors import DataSetError
from agentbench_credit.service import Service

ALARM = "Alarm-Calendar-Messages-AddAlarm-1"


@pytest.fixture(scope="module")
def host() -> ToolTalkHost:
    try:
        package("tooltalk")
    except DataSetError as error:
        pytest.skip(str(error))
    return ToolTalkHost()


def turn(host: ToolTalkHost, what: list[Call] | str) -> View:
    return host.act(what, "") if isinstance(what, list) else host.act([], what)


def play(host: ToolTalkHost, task: str, *, leave_out: int = -1, add: Call | None = None) -> View:
    """Follow the recorded turns, without one of the calls or with one more at the start."""
    view = host.start(task)
    left = host.reference()
    calls = [index for index, each in enumerate(left) if isinstance(each, list)]
    if add:
        view = host.act([add], "")
    for index, each in enumerate(left):
        if leave_out < 0 or index != calls[leave_out]:
            view = turn(host, each)
    assert view["terminated"]
    return view


def test_the_recorded_calls_succeed_and_without_one_they_fail(host: ToolTalkHost) -> None:
    assert len(tasks()) == 78
    for number, (name, task) in enumerate(tasks().items()):
        last = play(host, task)
        assert (last["success"], last["reward"], last["scores"]["recall"]) == (True, 1, 1), name
        assert last["scores"]["comparisons_failed"] == 0
        last = play(host, task, leave_out=number % int(last["scores"]["ground_truths"]))
        assert (last["success"], last["reward"]) == (False, 0), name
        assert last["scores"]["matches"] < last["scores"]["ground_truths"]


def test_an_action_that_is_not_recorded_costs_success_and_a_look_does_not(host: ToolTalkHost) -> None:
    look = play(host, tasks()[ALARM], add={"name": "GetReminders", "arguments": {}})
    assert (look["success"], look["scores"]["precision"]) == (True, 4 / 5)
    action = play(host, tasks()[ALARM], add={"name": "AddReminder", "arguments": {"task": "Buy milk."}})
    assert (action["success"], action["scores"]["bad_actions"], action["scores"]["recall"]) == (False, 1, 1)
    host.start(tasks()[ALARM])
    host.act([{"name": "AddReminder", "arguments": {"task": "Buy milk."}}], "")
    assert (host.gold(), host.reference()) == (None, [])


def test_a_turn_without_its_recorded_call_leaves_no_gold(host: ToolTalkHost) -> None:
    host.start(tasks()[ALARM])
    host.act([], "When?")
    assert host.gold() == [{"name": "AddAlarm", "arguments": {"time": "16:00:00"}}]
    host.act([], "Done.")
    assert (host.gold(), host.reference()) == (None, [])


def test_after_the_end_nothing_happens(host: ToolTalkHost) -> None:
    last = play(host, tasks()[ALARM])
    assert host.act([{"name": "GetReminders", "arguments": {}}], "") == last | {"reward": 0}
    assert host.gold() is None


@pytest.mark.parametrize("every", [2, 3, 5])
def test_metrics_are_those_of_the_packages_own_run(host: ToolTalkHost, every: int) -> None:
    """A policy that goes astray in one call of `every` gets what the package's executor says of it."""
    executor = importlib.import_module("tooltalk.evaluation.tool_executor").ToolExecutor(
        str(package("tooltalk") / "tooltalk/data/databases")
    )
    wrong = {"name": "AddAlarm", "arguments": {"time": "03:00:00"}}
    for task in list(tasks().values())[every::8]:
        host.start(task)
        planned = [
            [wrong] if isinstance(each, list) and not i % every else each for i, each in enumerate(host.reference())
        ]
        last, answers = None, iter(planned)
        for each in planned:
            last = turn(host, copy.deepcopy(each))

        def predict(_: Any, __: Any, answers: Iterator[Any] = answers) -> dict[str, Any]:
            each = next(answers)
            if isinstance(each, str):
                return {"role": "assistant", "text": each}
            request = {"api_name": each[0]["name"], "parameters": copy.deepcopy(each[0]["arguments"])}
            return {"role": "api", "request": request}

        played = executor.run_conversation(json.loads(task), predict)
        metrics = executor.evaluate_predictions(played)["metrics"]
        assert last is not None
        assert {name: last["scores"][name] for name in metrics} == metrics


def test_the_next_turn_goes_on_from_what_was_recorded_not_from_what_was_done(host: ToolTalkHost) -> None:
    host.start(tasks()[ALARM])
    host.act([], "When?")
    host.act([{"name": "AddAlarm", "arguments": {"time": "03:00:00"}}], "")
    after = host.act([], "Done.")
    assert '"AddAlarm", "arguments": {"time": "16:00:00"}' in after["observation"]
    assert after["observation"].endswith(
        "It said: Okay, I've set an alarm for 4 PM.\n\nCan you also add my flight to my calendar?"
    )
    found = host.act([{"name": "FindAlarms", "arguments": {}}], "")["observation"]
    assert "16:00:00" in found
    assert "03:00:00" not in found


def test_eight_at_once_score_as_one_after_the_other(host: ToolTalkHost) -> None:
    del host
    chosen = list(tasks().values())[40:48]

    def views(each: ToolTalkHost, task: str, without: int) -> Iterator[View]:
        yield each.start(task)
        for index, what in enumerate(each.reference()):
            if isinstance(what, str) or index % 5 != without:
                yield turn(each, what)

    alone = [list(views(ToolTalkHost(), task, without)) for without, task in enumerate(chosen)]
    together: list[list[View]] = [[] for _ in chosen]
    waiting = {index: views(ToolTalkHost(), task, index) for index, task in enumerate(chosen)}
    while waiting:
        for index, each in list(waiting.items()):
            view = next(each, None)
            if view is None:
                del waiting[index]
            else:
                together[index].append(view)
    assert together == alone
    assert {each[-1]["success"] for each in alone} == {True, False}


def test_a_snapshot_goes_on_in_another_process_as_it_would_here(host: ToolTalkHost) -> None:
    host.start(tasks()[ALARM])
    host.act([], "When?")
    host.act([{"name": "FindAlarms", "arguments": {}}, {"name": "NoSuchTool", "arguments": {}}], "")
    view = host.invalid("Error: not JSON")
    saved, rest = host.snapshot(), host.reference()
    elsewhere = Service(f"{tooltalk.__name__}:ToolTalkHost")
    try:
        assert elsewhere.call("restore", saved, seconds=60) == view
        assert elsewhere.call("snapshot", seconds=60) == saved
        for what in rest:
            view = turn(host, what)
            arguments = (what, "") if isinstance(what, list) else ([], what)
            assert elsewhere.call("act", *arguments, seconds=60) == view
        assert (view["success"], view["scores"]["predictions"], view["scores"]["matches"]) == (True, 7, 4)
        host.restore(saved)
        assert host.reference() == rest
    finally:
        elsewhere.kill()


def test_the_state_key_is_that_of_databases_and_progress(host: ToolTalkHost) -> None:
    task = tasks()["AddAlarm-easy"]
    first = host.start(task)["state_key"]
    assert host.act([{"name": "GetReminders", "arguments": {}}], "")["state_key"] == first
    assert host.invalid("Error: no JSON")["state_key"] == first
    wrong = host.act([{"name": "AddAlarm", "arguments": {"time": "03:00:00"}}], "")["state_key"]
    assert host.start(task)["state_key"] == first
    right = host.act([{"name": "AddAlarm", "arguments": {"time": "18:30:00"}}], "")["state_key"]
    assert len({first, wrong, right, host.act([], "Done.")["state_key"]}) == 4


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ({"name": "NoSuchTool", "arguments": {}}, "API NoSuchTool not found"),
        ({"name": "AddAlarm", "arguments": {}}, "missing 1 required positional argument"),
        ({"name": "AddAlarm", "arguments": {"time": 7}}, "exception"),
        ({"name": "AddAlarm", "arguments": {"self": 1}}, "multiple values"),
        ({"name": "UserLogin", "arguments": {"username": "a", "password": "b"}}, "Only one user can be logged in"),
        ({"name": "ForecastWeather", "arguments": {"location": ["x"]}}, "no attribute"),
    ],
)
def test_errors_are_what_the_policy_reads(host: ToolTalkHost, call: Call, answer: str) -> None:
    host.start(tasks()["AddAlarm-easy"])
    view = host.act([call], "")
    assert answer in view["observation"]
    assert host.gold() is not None


def test_arguments_on_which_the_packages_comparison_breaks_are_no_match(host: ToolTalkHost) -> None:
    add = {"name": "AddReminder", "arguments": {"task": ["Buy milk."]}}
    last = play(host, tasks()["AddReminder-easy"], add=add)
    assert (last["success"], last["scores"]["comparisons_failed"], last["scores"]["recall"]) == (False, 1, 1)


def test_nobody_is_logged_in_where_the_recording_begins_so(host: ToolTalkHost) -> None:
    host.start(tasks()["golden_conversation_1"])
    assert host.system().endswith("timestamp: 2023-09-11 09:00:00\nusername (if logged in): None")
    answer = host.act([{"name": "QueryCalendar", "arguments": {"start_time": "x", "end_time": "y"}}], "")
    assert "User is not logged in" in answer["observation"]


def test_what_calls_are_held_against_allows_all_that_is_recorded(host: ToolTalkHost) -> None:
    view = host.start(tasks()[ALARM])
    shown, accepted = ({tool["name"]: tool for tool in view[key]} for key in ("tools", "accepts"))
    assert len(shown) == 28
    assert "enum" in shown["CreateEvent"]["parameters"]["properties"]["name"]
    assert "enum" not in accepted["CreateEvent"]["parameters"]["properties"]["name"]
    del shown["CreateEvent"], accepted["CreateEvent"]
    assert shown == accepted


def cosine(one: str, other: str) -> float:
    a, b = count_words(one), count_words(other)
    return float(a @ b / (a @ a * (b @ b)) ** 0.5)


def test_texts_are_alike_if_their_words_are() -> None:
    assert cosine("Buy milk, please!", "please buy MILK") == pytest.approx(1)
    assert cosine("Buy two litres of milk", "Buy two litres of wine") == pytest.approx(0.8)
    assert cosine("", "Buy milk") == cosine("!?", "Buy milk") == 0  # and never NaN, which is below no threshold
    assert cosine("", "...") == 1


def test_a_language_model_compares_texts_if_one_is_named(host: ToolTalkHost, tmp_path: Path) -> None:
    del host
    from transformers import DistilBertConfig, DistilBertModel

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "call", "mom", "the", "bank"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    config = DistilBertConfig(vocab_size=len(words), dim=16, n_layers=1, n_heads=2, hidden_dim=16)
    DistilBertModel(config).save_pretrained(tmp_path)
    service = Service(f"{tooltalk.__name__}:ToolTalkHost", variables={tooltalk.MODEL_VARIABLE: str(tmp_path)})
    try:
        service.call("start", tasks()["AddReminder-easy"], seconds=120)
        for what in service.call("reference", seconds=20):
            last = service.call("act", *((what, "") if isinstance(what, list) else ([], what)), seconds=60)
        assert (last["success"], last["scores"]["texts_compared_by_model"]) == (True, 1)
    finally:
        service.kill()
