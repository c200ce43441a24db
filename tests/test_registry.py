"""The registry: laziness, names, plugins, threads."""

from __future__ import annotations

import importlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from agentbench_credit import registry as registry_module
from agentbench_credit.errors import RegistryError
from agentbench_credit.registry import Registry, subpackages


class Tool:
    """What the registries of these tests hold."""


Files = Callable[..., None]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """Write importable modules: ``files(name="source")``."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def write(**sources: str) -> None:
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(f"from {Tool.__module__} import Tool\n{source}\n")
        importlib.invalidate_caches()

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def make(
    monkeypatch: pytest.MonkeyPatch, builtin: dict[str, str] | None = None, plugins: dict[str, str] | None = None
) -> Registry[Tool]:
    """Return a registry with given built-ins and installed plugins."""
    points = [EntryPoint(name, value, "test.tools") for name, value in (plugins or {}).items()]
    monkeypatch.setattr(registry_module, "entry_points", lambda group: points if group == "test.tools" else [])
    return Registry("tool", "test.tools", base=Tool, builtin=lambda: dict(builtin or {}))


def test_an_object_is_found_by_name_and_alias(monkeypatch: pytest.MonkeyPatch) -> None:
    tools, saw = make(monkeypatch), Tool()
    tools.register("saw", saw, aliases=("handsaw", "hacksaw"))
    assert tools.get("saw") is tools.get("handsaw") is tools.get("hacksaw") is saw
    assert tools.names() == ["saw"]
    assert tools.items() == {"saw": saw}


def test_a_target_is_imported_at_the_first_get_and_once(monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    files(lazy_tool="SAW = Tool()")
    tools = make(monkeypatch, {"saw": "lazy_tool:SAW"})
    assert tools.names() == ["saw"]
    assert tools.origin("saw") == "lazy_tool:SAW"
    assert "lazy_tool" not in sys.modules
    saw = tools.get("saw")
    assert saw is sys.modules["lazy_tool"].SAW
    del sys.modules["lazy_tool"]
    assert tools.get("saw") is saw
    assert "lazy_tool" not in sys.modules


def test_the_built_in_entries_are_read_at_the_first_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def builtin() -> dict[str, str]:
        calls.append(1)
        return {}

    tools = make(monkeypatch)
    tools._builtin = builtin
    assert calls == []
    tools.names()
    tools.names()
    assert calls == [1]


def test_a_target_may_lie_inside_an_object(monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    files(nested_tool="class Box:\n    SAW = Tool()")
    assert isinstance(make(monkeypatch, {"saw": "nested_tool:Box.SAW"}).get("saw"), Tool)


@pytest.mark.parametrize(("asked", "hint"), [("saww", "did you mean saw?"), ("HAMMER", "did you mean hammer?")])
def test_an_unknown_name_gets_the_nearest_known_one(monkeypatch: pytest.MonkeyPatch, asked: str, hint: str) -> None:
    tools = make(monkeypatch, {"saw": "m:a", "hammer": "m:b"})
    with pytest.raises(RegistryError) as caught:
        tools.get(asked)
    assert str(caught.value) == f"{asked}: unknown tool — {hint}"


def test_an_alias_is_suggested_too(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = make(monkeypatch)
    tools.register("saw", Tool(), aliases=("fretcutter",))
    with pytest.raises(RegistryError, match="did you mean fretcutter"):
        tools.get("fretcuter")


def test_a_name_like_no_other_gets_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RegistryError, match="known: hammer, saw"):
        make(monkeypatch, {"saw": "m:a", "hammer": "m:b"}).get("zzz")
    with pytest.raises(RegistryError, match="known: none"):
        make(monkeypatch).get("zzz")
    with pytest.raises(RegistryError, match="unknown tool"):
        make(monkeypatch).origin("zzz")


def test_the_origin_of_an_object_is_the_line_that_registered_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = make(monkeypatch)
    tools.register("saw", Tool(), aliases=("handsaw",))
    source, line = tools.origin("handsaw").rsplit(":", 1)
    assert source == __file__
    assert "tools.register(" in Path(source).read_text().splitlines()[int(line) - 1]


def test_a_taken_name_is_refused_and_the_first_entry_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    tools, saw = make(monkeypatch, {"plane": "m:a"}), Tool()
    tools.register("saw", saw, aliases=("handsaw",))
    with pytest.raises(RegistryError, match=r"saw: the tool name is taken by .*test_registry\.py:\d+"):
        tools.register("saw", Tool())
    with pytest.raises(RegistryError, match="plane: the tool name is taken by m:a"):
        tools.register("plane", Tool())
    with pytest.raises(RegistryError, match="handsaw: the tool name is taken"):
        tools.register("handsaw", Tool())
    with pytest.raises(RegistryError, match="saw: the tool name is taken"):
        tools.register("cutter", Tool(), aliases=("saw",))
    with pytest.raises(RegistryError, match="handsaw: the tool name is taken"):
        tools.register("cutter", Tool(), aliases=("handsaw",))
    assert tools.names() == ["plane", "saw"]
    assert tools.get("saw") is saw


def test_registering_the_same_entry_again_changes_nothing(monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    files(same_tool="SAW = Tool()")
    tools, hammer = make(monkeypatch), Tool()
    for _ in range(2):
        tools.register("hammer", hammer, aliases=("mallet",))
        tools.register("saw", "same_tool:SAW")
    loaded = tools.get("saw")
    tools.register("saw", "same_tool:SAW")
    tools.register("saw", loaded)
    assert tools.get("saw") is loaded
    assert tools.origin("saw") == "same_tool:SAW"


def test_only_the_right_kind_of_object_is_taken(monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    files(wrong_tool="SAW = 3")
    tools = make(monkeypatch, {"saw": "wrong_tool:SAW"})
    with pytest.raises(RegistryError, match="saw: a tool must be a Tool, not int"):
        tools.get("saw")
    with pytest.raises(RegistryError, match="axe: a tool must be a Tool, not dict"):
        tools.register("axe", {})  # type: ignore[arg-type]  # that is the point
    assert tools.names() == ["saw"]


def test_a_frozen_registry_takes_nothing_more(monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    files(cold_tool="SAW = Tool()")
    tools = make(monkeypatch, {"saw": "cold_tool:SAW"})
    tools.freeze()
    with pytest.raises(RegistryError, match="axe: the tool registry is frozen"):
        tools.register("axe", Tool())
    assert isinstance(tools.get("saw"), Tool)
    assert tools.names() == ["saw"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ValueError('no good')", "ValueError: no good"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("def :", "SyntaxError"),
        ("OTHER = 1", "AttributeError"),
    ],
)
def test_a_broken_entry_is_an_error_when_asked_and_a_warning_when_listed(
    monkeypatch: pytest.MonkeyPatch, files: Files, source: str, reason: str
) -> None:
    files(broken_tool=source, good_tool="SAW = Tool()")
    tools = make(monkeypatch, {"good": "good_tool:SAW"}, {"broken": "broken_tool:SAW"})
    with pytest.raises(RegistryError) as caught:
        tools.get("broken")
    assert "tool 'broken' cannot be loaded from broken_tool:SAW" in str(caught.value)
    assert reason in str(caught.value)
    with pytest.warns(UserWarning, match="'broken' cannot be loaded from broken_tool:SAW"):
        assert list(tools.items()) == ["good"]


@pytest.mark.parametrize("target", ["", ":", "good_tool", "good_tool:", ":SAW", "no module:SAW", "good_tool:SAW.x"])
def test_a_malformed_target_is_a_broken_entry(monkeypatch: pytest.MonkeyPatch, files: Files, target: str) -> None:
    files(good_tool="SAW = Tool()")
    with pytest.raises(RegistryError, match="'odd' cannot be loaded"):
        make(monkeypatch, plugins={"odd": target}).get("odd")


def test_a_failed_import_is_tried_again_later(monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    files(late_tool="import missing_part\nSAW = missing_part.SAW")
    tools = make(monkeypatch, {"saw": "late_tool:SAW"})
    with pytest.raises(RegistryError, match="missing_part"):
        tools.get("saw")
    files(missing_part="SAW = Tool()")
    assert tools.get("saw") is sys.modules["missing_part"].SAW


def test_failing_built_ins_are_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = make(monkeypatch)
    answers: list[dict[str, str] | None] = [None, {"saw": "m:a"}]

    def builtin() -> dict[str, str]:
        answer = answers.pop(0)
        if answer is None:
            raise OSError("disk")
        return answer

    tools._builtin = builtin
    with pytest.raises(OSError, match="disk"):
        tools.names()
    assert tools.names() == ["saw"]


def test_plugins_add_entries(monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    files(good_tool="SAW = Tool()")
    tools = make(monkeypatch, {"plane": "m:a"}, {"saw": "good_tool:SAW"})
    assert tools.names() == ["plane", "saw"]
    assert isinstance(tools.get("saw"), Tool)


def test_a_plugin_cannot_replace_a_built_in(monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    files(good_tool="SAW = Tool()", evil_tool="SAW = Tool()")
    tools = make(monkeypatch, {"saw": "good_tool:SAW"}, {"saw": "evil_tool:SAW"})
    with pytest.warns(UserWarning, match="plugin evil_tool:SAW of .* ignored: saw: .* taken by good_tool:SAW"):
        assert tools.names() == ["saw"]
    assert tools.origin("saw") == "good_tool:SAW"
    tools.get("saw")
    assert "evil_tool" not in sys.modules
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tools.names() == ["saw"]


def test_many_threads_get_one_object(monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    files(slow_tool="import time\ntime.sleep(0.05)\nSAW = Tool()")
    tools = make(monkeypatch, {"saw": "slow_tool:SAW"})
    found: list[Tool] = []
    barrier = threading.Barrier(8)

    def get() -> None:
        barrier.wait()
        found.append(tools.get("saw"))

    threads = [threading.Thread(target=get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_a_module_that_registers_while_another_thread_loads_it_does_not_hang(
    monkeypatch: pytest.MonkeyPatch, files: Files
) -> None:
    tools = make(monkeypatch, {"saw": "tangled_tool:SAW"})
    holder, importing, asked = ModuleType("tangle"), threading.Event(), threading.Event()
    vars(holder).update(tools=tools, importing=importing, asked=asked)
    monkeypatch.setitem(sys.modules, "tangle", holder)
    files(
        tangled_tool="import tangle, time\ntangle.importing.set()\ntangle.asked.wait(5)\ntime.sleep(0.1)\n"
        "tangle.tools.register('axe', Tool())\nSAW = Tool()"
    )
    importer = threading.Thread(target=importlib.import_module, args=("tangled_tool",), daemon=True)
    importer.start()
    assert importing.wait(5)
    getter = threading.Thread(target=tools.get, args=("saw",), daemon=True)
    getter.start()
    asked.set()
    importer.join(5)
    getter.join(5)
    assert not importer.is_alive()
    assert not getter.is_alive()
    assert tools.names() == ["axe", "saw"]


def test_the_folders_of_a_package_are_listed_without_an_import(tmp_path: Path) -> None:
    for folder in ("alpha", "beta"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("raise RuntimeError")
    (tmp_path / "no_package").mkdir()
    (tmp_path / "module.py").write_text("raise RuntimeError")
    package = ModuleType("house")
    package.__path__ = [str(tmp_path)]
    assert subpackages(package, "THING") == {"alpha": "house.alpha:THING", "beta": "house.beta:THING"}
