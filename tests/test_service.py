from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentbench_credit import service
from agentbench_credit.service import Service, ServiceCallError, ServiceDiedError

FACTORY = "service_parts:Counter"


@pytest.fixture
def counter() -> Iterator[Service]:
    each = Service(FACTORY)
    yield each
    each.kill()


def test_keeps_its_object_between_calls_and_passes_json(counter: Service) -> None:
    assert [counter.call("add", 2, seconds=20), counter.call("add", 3, seconds=20)] == [2, 5]
    value = {"a": [1, 2.5, None, "ä\n\u2028"]}
    assert counter.call("echo", value, seconds=20) == value


def test_an_exception_leaves_the_process_as_it_was(counter: Service) -> None:
    counter.call("add", 2, seconds=20)
    with pytest.raises(ServiceCallError, match="lost") as caught:
        counter.call("fail", seconds=20)
    assert caught.value.kind == "KeyError"
    assert counter.call("add", 1, seconds=20) == 3


@pytest.mark.parametrize("method", ["sleep", "hold_the_lock"])
def test_a_call_past_its_deadline_is_killed_and_the_next_has_a_new_process(counter: Service, method: str) -> None:
    first = counter.call("pid", seconds=20)
    began = time.monotonic()
    with pytest.raises(ServiceDiedError, match=rf"no answer to {method} within 0\.3 s"):
        counter.call(method, *([60] if method == "sleep" else []), seconds=0.3)
    assert time.monotonic() - began < 0.8
    assert not _runs(first)
    assert counter.call("add", 1, seconds=20) == 1


def test_a_process_that_dies_says_why(counter: Service) -> None:
    with pytest.raises(ServiceDiedError, match=r"code 3 at leave \(out of luck\)"):
        counter.call("leave", seconds=20)


def test_an_endless_answer_is_refused(counter: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LONGEST_ANSWER", 1000)
    with pytest.raises(ServiceDiedError, match="longer than 1000 bytes"):
        counter.call("talk", 2000, seconds=20)


def test_secrets_stay_outside(counter: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    assert "secret" not in counter.call("variables", seconds=20).values()


def test_a_closed_service_leaves_a_warm_process_for_the_next() -> None:
    first, second = Service(FACTORY), Service(FACTORY, variables={"AGENTBENCH_X": "1"})
    pid = first.call("pid", seconds=20)
    first.close()
    assert second.call("pid", seconds=20) != pid  # another kind
    second.kill()
    third = Service(FACTORY)
    assert third.call("pid", seconds=20) == pid
    third.kill()
    assert not _runs(pid)


def test_it_ends_with_its_owner_even_while_it_spins() -> None:
    code = (
        "import sys, threading, time\nfrom agentbench_credit.service import Service\n"
        f"s = Service({FACTORY!r})\nprint(s.call('pid', seconds=20), flush=True)\n"
        "s.call('hold_the_lock', seconds=60)"
    )
    tests = str(Path(__file__).parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([tests, *sys.path])}
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    assert owner.stdout is not None
    with owner.stdout as stdout:
        pid = int(stdout.readline())
    time.sleep(0.2)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    deadline = time.monotonic() + 5
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
