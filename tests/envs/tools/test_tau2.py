from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentbench_credit.datasets import package
from agentbench_credit.envs.tools import tau2, tau2_domain, tau2_user
from agentbench_credit.envs.tools.host import Call, View
from agentbench_credit.envs.tools.stand_ins import stand_ins
from agentbench_credit.envs.tools.tau2 import ERRORS, TURNS, Tau2Host
from agentbench_credit.envs.tools.tau2_domain import DOMAINS, tasks
from agentbench_credit.envs.tools.tau2_user import LONGEST_TALK, OUT_OF_SCOPE, STOP, TRANSFER, ModelUser, ScriptedUser
from agentbench_credit.errors import ConfigError, DataSetError, EnvironmentContractError, ModelError
from agentbench_credit.service import Service
from chat_server import chat_server, completion, refusal

# Gold actions that the package itself refuses, or that write what is there already: without them nothing is different.
IDLE = {("12", 4), ("13", 4), ("22", 1), ("64", 6), ("105", 0), ("110", 1)}
CANCEL: Call = {"name": "cancel_pending_order", "arguments": {"order_id": "#W5056519", "reason": "no longer needed"}}
USER: Call = {"name": "get_user_details", "arguments": {"user_id": "yusuf_rossi_9620"}}


@pytest.fixture(scope="module")
def hosts() -> dict[str, Tau2Host]:
    try:
        package("tau2")
    except DataSetError as error:
        pytest.skip(str(error))
    return {domain: Tau2Host(domain) for domain in DOMAINS}


@pytest.fixture
def retail(hosts: dict[str, Tau2Host]) -> Tau2Host:
    return hosts["retail"]


def play(host: Tau2Host, view: View, change: Callable[[int, Any], Any] = lambda _, turn: turn) -> View:
    """Follow the gold turns from a start, each as `change` has it; one that it makes None is left out."""
    turns = host.reference()
    for index, turn in enumerate(turns):
        changed = change(index, turn)
        if changed is not None and not view["terminated"]:
            view = host.act(*((changed, "") if isinstance(changed, list) else ([], changed)))
    while not view["terminated"]:
        view = host.act([], "Good-bye.")
    return view


def task(domain: str, number: str, **changes: Any) -> str:
    read = json.loads(tasks(domain)[number])
    read["evaluation_criteria"] |= changes
    return json.dumps(read)


@pytest.mark.parametrize(("domain", "count"), [("retail", 114), ("airline", 50)])
def test_the_gold_actions_succeed_and_without_one_of_their_changes_they_fail(
    hosts: dict[str, Tau2Host], domain: str, count: int
) -> None:
    host, idle, writes = hosts[domain], set(), hosts[domain]._domain.writing
    assert len(tasks(domain)) == count
    for number, data in tasks(domain).items():
        last = play(host, host.start(data))
        assert (last["success"], last["reward"]) == (True, 1.0), number
        actions = json.loads(data)["evaluation_criteria"]["actions"]
        for left_out in (index for index, each in enumerate(actions) if each["name"] in writes):
            last = play(host, host.start(data), lambda index, turn, out=left_out: None if index == out else turn)
            assert last["reward"] == last["success"] == last["scores"]["database"]
            idle |= {(number, left_out)} if last["success"] else set()
    assert idle == (IDLE if domain == "retail" else set())
    # And the database that all conversations share is as it was.
    shared, fresh = host._domain.environment(), host._domain._environment()
    assert shared.get_db_hash() == fresh.get_db_hash()


def test_information_that_is_not_told_costs_success(retail: Tau2Host) -> None:
    def told(text: str, beside: str = "") -> tuple[float, float, bool]:
        view = retail.start(tasks("retail")["54"])  # asks for 3646.68
        for each in retail.reference()[:-2]:
            assert isinstance(each, list)
            view = retail.act(each, beside)
        view = play(retail, retail.act([], text), lambda *_: None)
        return view["scores"]["communicate"], view["scores"]["database"], view["success"]

    assert told("That makes $3,646.68.") == (1, 1, True)
    assert told("Done.", beside="It is 3646.68.") == (1, 1, True)  # as the benchmark has it
    assert told("That makes $3,646.") == (0, 1, False)


def official_reward(domain: tau2_domain.Domain, snapshot: str) -> float:
    """Return what the package's own evaluators say of a conversation."""
    with stand_ins(tau2_domain._NOT_CALLED):
        message = importlib.import_module("tau2.data_model.message")
        by_database = importlib.import_module("tau2.evaluator.evaluator_env").EnvironmentEvaluator
        by_text = importlib.import_module("tau2.evaluator.evaluator_communicate").CommunicateEvaluator
        read = importlib.import_module("tau2.data_model.tasks").Task.model_validate
    saved = json.loads(snapshot)
    environment, messages = domain.environment(), []
    for turn in saved["turns"]:
        calls = [message.ToolCall(id=str(i), **call) for i, call in enumerate(turn.get("calls", []))]
        if calls or turn.get("text"):
            said = {"content": turn["text"], "tool_calls": calls or None}
            messages.append(message.AssistantMessage(role="assistant", **said))
        messages += [environment.get_response(call) for call in calls]
        messages += [message.UserMessage(role="user", content=turn["reply"])] if "reply" in turn else []
    each = read(json.loads(saved["task"]))
    database = by_database.calculate_reward(lambda **_: domain.environment(), each, messages)
    return float(database.reward * by_text.calculate_reward(each, messages).reward)


@pytest.mark.parametrize(("domain", "chosen"), [("retail", "2 12 54"), ("airline", "7 18")])
def test_scores_are_those_of_the_packages_evaluators(hosts: dict[str, Tau2Host], domain: str, chosen: str) -> None:
    host, shared, seen = hosts[domain], hosts[domain]._domain, set()
    for number in chosen.split():
        for change in (lambda _, turn: turn, lambda index, turn: None if index % 3 == 2 else turn):
            last = play(host, host.start(tasks(domain)[number]), change)
            assert official_reward(shared, host.snapshot()) == last["reward"]
            seen.add(last["reward"])
    assert seen == {0.0, 1.0}


@pytest.mark.parametrize("domain", DOMAINS)
def test_eight_at_once_score_as_one_after_the_other(hosts: dict[str, Tau2Host], domain: str) -> None:
    del hosts
    chosen = list(tasks(domain).values())[3:11]

    def views(host: Tau2Host, data: str, keep: int) -> Iterator[View]:
        view = host.start(data)
        yield view
        for index, turn in enumerate(host.reference()):
            if (index % 5) != keep and not view["terminated"]:
                view = host.act(*((turn, "") if isinstance(turn, list) else ([], turn)))
                yield view
        while not view["terminated"]:
            view = host.act([], "Good-bye.")
            yield view

    alone = [list(views(Tau2Host(domain), data, keep)) for keep, data in enumerate(chosen)]
    together: list[list[View]] = [[] for _ in chosen]
    waiting = {index: views(Tau2Host(domain), data, index) for index, data in enumerate(chosen)}
    while waiting:
        for index, each in list(waiting.items()):
            view = next(each, None)
            if view is None:
                del waiting[index]
            else:
                together[index].append(view)
    assert together == alone
    assert {each[-1]["success"] for each in alone} == {True, False}


def test_a_snapshot_goes_on_in_another_process_as_it_would_here(retail: Tau2Host) -> None:
    view = retail.start(tasks("retail")["36"])
    view = retail.act([], "Hello, what can I do for you?")
    view = retail.act([USER, {"name": "no_such_tool", "arguments": {}}], "")
    view = retail.invalid("Error: not JSON")
    saved = retail.snapshot()
    rest = retail.reference()
    elsewhere = Service(f"{tau2.__name__}:retail")
    try:
        assert elsewhere.call("restore", saved, seconds=60) == view
        assert elsewhere.call("reference", seconds=60) == rest
        assert elsewhere.call("snapshot", seconds=60) == saved
        for turn in [*rest, "Bye.", "Bye.", "Bye."]:
            arguments = (turn, "") if isinstance(turn, list) else ([], turn)
            view = retail.act(*arguments)
            assert elsewhere.call("act", *arguments, seconds=60) == view
        assert view["success"]
        assert retail.restore(saved)["success"] is False
        assert retail.reference() == rest
    finally:
        elsewhere.kill()


def test_the_state_key_is_that_of_database_and_conversation(retail: Tau2Host) -> None:
    first = retail.start(task("retail", "36", actions=[]))["state_key"]
    assert retail.act([USER], "")["state_key"] == first  # reading changes nothing
    changed = retail.act([CANCEL], "")["state_key"]
    assert changed != first
    assert retail.act([CANCEL], "")["state_key"] == changed  # refused: cancelled already
    assert retail.act([], "Anything else?")["state_key"] != changed
    assert retail.start(task("retail", "36", actions=[]))["state_key"] == first
    assert retail.start(task("retail", "37", actions=[]))["state_key"] != first


def test_a_change_that_is_no_gold_action_leaves_no_gold(retail: Tau2Host) -> None:
    retail.start(tasks("retail")["0"])
    assert retail.gold() == retail.reference()[0]
    retail.act([USER, {**CANCEL, "arguments": {"order_id": "#W0", "reason": "no longer needed"}}], "")
    assert retail.gold() is not None  # one was refused
    retail.act([CANCEL], "")
    assert (retail.gold(), retail.reference()) == (None, [])


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ({"name": "no_such_tool", "arguments": {}}, "Error: Tool 'no_such_tool' not found."),
        ({"name": "get_user_details", "arguments": {}}, "missing 1 required positional argument"),
        ({"name": "get_user_details", "arguments": {"user_id": "nobody"}}, "Error: User not found"),
        ({"name": "get_user_details", "arguments": {"user_id": "x", "self": 1, "requestor": "user"}}, "Error: "),
        ({"name": "get_user_details", "arguments": {"user_id": {"$": []}}}, "Error: unhashable"),
        ({"name": "calculate", "arguments": {"expression": "9**9**9**9"}}, "Error: Invalid characters"),
        ({"name": "calculate", "arguments": {"expression": "(" * 5000}}, "Error: "),
        ({"name": "calculate", "arguments": {"expression": "2 * (3 + 4)"}}, "\n14.0\n"),
    ],
)
def test_errors_are_what_the_agent_reads(retail: Tau2Host, call: Call, answer: str) -> None:
    retail.start(tasks("retail")["0"])
    assert answer in retail.act([call], "")["observation"]


def test_arguments_that_a_tool_stores_whatever_they_are_do_not_break_the_conversation(
    hosts: dict[str, Tau2Host],
) -> None:
    host = hosts["airline"]
    host.start(tasks("airline")["0"])
    deep: Any = []
    for _ in range(400):
        deep = [deep]
    host.act([{"name": "send_certificate", "arguments": {"user_id": "emma_kim_9957", "amount": float("nan")}}], "")
    arguments = {"reservation_id": "EHGLP3", "nonfree_baggages": 0, "payment_id": "gift_card_9562694"}
    change: Call = {"name": "update_reservation_baggages", "arguments": arguments | {"total_baggages": deep}}
    before = host.act([], "Hello?")["state_key"]
    assert host.act([change], "")["state_key"] != before
    assert not play(host, host.act([], "Hello?"))["success"]


def test_too_many_errors_end_the_conversation(retail: Tau2Host) -> None:
    view = retail.start(task("retail", "0", actions=[]))
    unknown: Call = {"name": "no_such_tool", "arguments": {}}
    faults = [lambda: retail.invalid("Error: no JSON"), lambda: retail.act([], " "), lambda: retail.act([unknown], "")]
    for count in range(ERRORS):
        assert not view["terminated"]
        view = faults[count % 3]()
    assert (view["terminated"], view["success"], view["scores"]["completed"]) == (True, False, 0)
    assert retail.act([USER], "") == view


def test_too_many_turns_end_the_conversation_before_the_user_answers(retail: Tau2Host) -> None:
    view = retail.start(task("retail", "0", actions=[]))
    for _ in range(TURNS - 1):
        view = retail.act([USER], "")
    assert not view["terminated"]
    last = retail.act([], "Good-bye.")
    assert (last["terminated"], last["success"], last["observation"]) == (True, False, view["observation"])


def test_tasks_that_are_scored_otherwise_are_refused(retail: Tau2Host) -> None:
    with pytest.raises(EnvironmentContractError, match="scored by DB, NL_ASSERTION"):
        retail.start(task("retail", "0", reward_basis=["DB", "NL_ASSERTION"]))
    for number, data in (tasks("retail") | tasks("airline")).items():
        assert "reward_basis" not in json.loads(data)["evaluation_criteria"], number  # that is, DB and COMMUNICATE


SCENARIO = {
    "instructions": {
        "reason_for_call": "You want to cancel your order. You're in a hurry.",
        "known_info": "Your name is Ann.",
        "unknown_info": None,
        "task_instructions": "You are polite.\nIf the agent asks you why, you no longer need it. .",
    }
}


def reply(*said: str) -> str:
    roles = ["assistant", "user"] * len(said)
    talk: list[tau2_user.Said] = [{"role": role, "content": text} for role, text in zip(roles, said, strict=False)]
    return ScriptedUser(SCENARIO).reply(talk)


def test_the_scripted_user_tells_its_scenario_piece_by_piece() -> None:
    talk = ["Hi! How can I help you today?"]
    pieces = [
        "I want to cancel my order. I'm in a hurry.",
        "My name is Ann.",
        "I am polite.",
        "If the agent asks me why, I no longer need it.",
    ]
    for piece, question in zip(pieces, ["Who?", "Please confirm your name.", "I see.", "Why?"], strict=True):
        assert reply(*talk) == piece
        talk += [piece, question]
    assert reply(*talk) == "That is all I can say."
    assert reply(*talk, "That is all I can say.", "It is done.") == STOP
    talk[-1] = "I will cancel it. Do you want to proceed?"
    assert reply(*talk) == "Yes, please go ahead."
    assert reply(*talk, "Yes, please go ahead.", "Shall I?") == "That is all I can say."  # not twice in a row
    talk[-1] = "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON."
    assert reply(*talk) == TRANSFER
    assert reply(*["What?", "Nothing."] * LONGEST_TALK, "What?") == STOP


def test_a_model_can_be_the_user(hosts: dict[str, Tau2Host]) -> None:
    del hosts
    answers = iter([refusal(503), completion("Hello."), refusal(401), completion(f"Bye. {OUT_OF_SCOPE}")])
    with chat_server(lambda _: next(answers)) as (url, asked):
        host = Tau2Host("retail", f"openai:{url}#toy")
        assert host.start(tasks("retail")["0"])["observation"] == "Hello."
        system, first = asked[1]["messages"]
        assert system["content"].startswith("# User Simulation Guidelines")
        assert "mechanical keyboard" in system["content"]
        assert (asked[1]["temperature"], first) == (0, {"role": "user", "content": tau2.GREETING})
        saved = host.snapshot()
        with pytest.raises(ModelError, match="status 401"):
            host.act([], "What do you want?")
        assert host.snapshot() == saved  # nothing has happened
        last = host.act([], "What do you want?")
        assert [each["role"] for each in asked[3]["messages"]] == ["system", "user", "assistant", "user"]
        assert (last["terminated"], last["scores"]["completed"]) == (True, 1)
        assert host.restore(host.snapshot())["state_key"] == last["state_key"]
        assert len(asked) == 4  # what was said is not asked for again


@pytest.mark.parametrize(
    ("body", "problem"),
    [(b"[1]", "does not answer with a message"), (b"", "a message"), (b'{"choices": []}', "a mess")],
)
def test_an_endpoint_that_talks_nonsense_is_an_error(
    monkeypatch: pytest.MonkeyPatch, body: bytes, problem: str
) -> None:
    monkeypatch.setattr(tau2_user.time, "sleep", lambda _: None)
    with chat_server(lambda _: (200, {}, body)) as (url, asked):
        with pytest.raises(ModelError, match=problem):
            ModelUser(f"{url}#toy", "You call.").reply([{"role": "assistant", "content": "Hi!"}])
        assert len(asked) == tau2_user.ATTEMPTS


def test_the_user_is_chosen_by_a_variable(hosts: dict[str, Tau2Host], monkeypatch: pytest.MonkeyPatch) -> None:
    del hosts
    for user in ("openai:ftp://x#y", "openai:http://x", "human", "openai:"):
        monkeypatch.setenv(tau2.USER_VARIABLE, user)
        with pytest.raises(ConfigError, match=r"no user"):
            tau2.airline().start(tasks("airline")["0"])
