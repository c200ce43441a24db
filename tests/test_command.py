"""What all commands share, tried with real processes, signals, a full disk and a terminal."""

from __future__ import annotations

import os
import pty
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import agentbench_credit
from agentbench_credit import command
from agentbench_credit.command import printable, progress

PACKAGE = Path(agentbench_credit.__file__).parent
COMMANDS = sorted(path.stem for path in PACKAGE.glob("*.py") if "    run_command(main)" in path.read_text("utf-8"))

DEMO = '''
from __future__ import annotations
import sys, time
from dataclasses import dataclass
from agentbench_credit.command import parse, progress, run_command
from agentbench_credit.errors import ConfigError

@dataclass(frozen=True)
class DemoConfig:
    """Show what a command does."""

    task: str = "print"
    """What to do."""
    updates: int = 50
    """How often."""

def main(argv=None):
    config = parse(DemoConfig, argv)
    match config.task:
        case "print":
            print(config)
        case "typed":
            raise ConfigError("bad\\n\\x1b[31mpanel", where="file", mend="fix it")
        case "bug":
            raise ZeroDivisionError
        case "missing":
            open("/no/such/file")
        case "full":
            with open("/dev/full", "w") as file:
                file.write("x")
        case "wait":
            print("ready", flush=True)
            time.sleep(30)
        case "progress":
            with progress("outer \\x1b[2J", 3) as outer:
                for turn in range(3):
                    with progress("inner", 2) as inner:
                        inner.advance(2, text="loss \\x1b]0;title\\x07")
                        time.sleep(0.3)
                    print("turn", turn)
                    outer.advance()

if __name__ == "__main__":
    run_command(main)
'''


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder in which ``python -m demo`` works."""
    (tmp_path / "demo.py").write_text(DEMO)
    return tmp_path


@pytest.fixture
def demo(folder: Path) -> Run:
    """Return a function that runs the demo command with some arguments."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "demo", *arguments],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=20,
        )

    return run


def environment() -> dict[str, str]:
    """Return an environment in which this package is importable and output is plain."""
    return os.environ | {"PYTHONPATH": str(PACKAGE.parent), "COLUMNS": "100", "TERM": "xterm", "NO_COLOR": "1"}


def test_help_shows_description_fields_and_recipe(demo: Run) -> None:
    done = demo("--help")
    assert done.returncode == 0
    for text in ("usage: python -m demo", "Show what a command does.", "--updates INT", "How often. (default: 50)"):
        assert text in done.stdout
    assert "--recipe FILE.toml" in done.stdout
    assert done.stderr == ""


def test_options_are_parsed(demo: Run) -> None:
    assert demo("--updates", "3").stdout == "DemoConfig(task='print', updates=3)\n"


@pytest.mark.parametrize("arguments", [("--updatse", "3"), ("--updates", "many"), ("--updates",), ("stray",)])
def test_a_wrong_option_exits_with_2(demo: Run, arguments: tuple[str, ...]) -> None:
    done = demo(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert arguments[0].lstrip("-")[:6] in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_line_wins_over_the_recipe_and_the_recipe_over_defaults(demo: Run, folder: Path) -> None:
    (folder / "my.toml").write_text('updates = 7\ntask = "print"')
    assert demo("--recipe", "my.toml").stdout == "DemoConfig(task='print', updates=7)\n"
    assert demo("--updates", "9", "--recipe", "my.toml").stdout == "DemoConfig(task='print', updates=9)\n"


@pytest.mark.parametrize(
    ("recipe", "line"),
    [
        ("update = 7", "error: my.toml: unknown key 'update' — did you mean updates?\n"),
        ('updates = "7"', "error: my.toml: updates is '7' — expected int\n"),
        (None, "error: my.toml: cannot read the recipe: No such file or directory\n"),
    ],
)
def test_a_bad_recipe_is_one_line_and_exits_with_2(demo: Run, folder: Path, recipe: str | None, line: str) -> None:
    if recipe is not None:
        (folder / "my.toml").write_text(recipe)
    done = demo("--recipe", "my.toml")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


def test_a_typed_error_is_one_harmless_line_and_exits_with_2(demo: Run) -> None:
    done = demo("--task", "typed")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: file: bad \\x1b[31mpanel — fix it\n"


@pytest.mark.parametrize(("task", "name"), [("bug", "ZeroDivisionError"), ("missing", "FileNotFoundError")])
def test_any_other_exception_keeps_its_traceback(demo: Run, task: str, name: str) -> None:
    done = demo("--task", task)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert name in done.stderr.splitlines()[-1]


def test_a_full_disk_is_one_line_and_exits_with_2(demo: Run) -> None:
    done = demo("--task", "full")
    assert done.returncode == 2
    assert done.stderr == "error: the disk is full — make room; the same command goes on where this one stopped\n"


def test_interrupting_says_how_to_go_on_and_exits_with_130(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "demo", "--task", "wait"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts its background jobs with Ctrl-C ignored, and they pass that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert errors == "interrupted: the same command goes on where this one stopped\n"


def test_all_commands_are_found() -> None:
    assert {"eval", "train", "warmstart"} <= set(COMMANDS)


HEAVY = {"gymnasium", "jinja2", "matplotlib", "numpy", "pandas", "pyarrow", "rich", "torch", "transformers"}

HELP_AND_MODULES = """
import runpy, sys
sys.argv = [sys.argv[1], "--help"]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
except SystemExit as end:
    print(end.code, *sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_loads_nothing_heavy(name: str) -> None:
    code, *modules = (
        subprocess.run(
            [sys.executable, "-c", HELP_AND_MODULES, f"agentbench_credit.{name}"],
            cwd=PACKAGE.parent,
            capture_output=True,
            text=True,
            timeout=20,
        )
        .stderr.splitlines()[-1]
        .split()
    )
    assert code == "0"
    assert "agentbench_credit.command" in modules
    assert HEAVY & set(modules) == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_takes_less_than_300_ms(name: str) -> None:
    seconds = []
    for _ in range(20):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", f"agentbench_credit.{name}", "--help"],
            cwd=PACKAGE.parent,
            capture_output=True,
            text=True,
            timeout=20,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"usage: python -m agentbench_credit.{name} ")
        # Processor time: the wall clock would measure the machine's other work too.
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if seconds[-1] < 0.3:
            return
    pytest.fail(f"{name} --help takes at least {min(seconds):.2f} s")


def test_importing_the_module_brings_neither_tyro_nor_rich() -> None:
    code = "import sys, agentbench_credit.command; print({'tyro', 'rich', 'numpy', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


class Clock:
    """Time that passes when told to."""

    now = 100.0

    def monotonic(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the module's clock."""
    clock = Clock()
    monkeypatch.setattr(command, "time", clock)
    return clock


def test_a_log_gets_a_line_every_ten_seconds_and_one_at_the_end(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress("rollout", 10) as bar:
        for item in range(10):
            clock.now += 4.0
            bar.advance(text=f"loss {item}")
    assert capsys.readouterr().err.splitlines() == [
        "rollout: 3/10, 0:00:12 elapsed, 0:00:28 left, loss 2",
        "rollout: 6/10, 0:00:24 elapsed, 0:00:16 left, loss 5",
        "rollout: 9/10, 0:00:36 elapsed, 0:00:04 left, loss 8",
        "rollout: 10/10, 0:00:40 elapsed, loss 9",
    ]


def test_short_and_nested_work_leaves_no_line(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress("train", 1) as outer:
        with progress("rollout", 1) as inner:
            clock.now += 9.0
            inner.advance()
        clock.now += 3600.0
        outer.advance()
    with progress("short", 1) as bar:
        clock.now += 1.9
        bar.advance()
    assert capsys.readouterr().err == "train: 1/1, 1:00:09 elapsed\n"


def test_a_failure_shows_how_far_it_came(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with progress("rollout", 4) as bar:
            clock.now += 3.0
            bar.advance(2, text="a\x1b[2Jb\n")
            raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        fail()
    assert capsys.readouterr().err == "rollout: 2/4, 0:00:03 elapsed, 0:00:03 left, a\\x1b[2Jb\\n\n"
    test_short_and_nested_work_leaves_no_line(clock, capsys)


def test_work_of_no_items_is_harmless(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress("nothing", 0):
        clock.now += 5.0
    assert capsys.readouterr().err == "nothing: 0/0, 0:00:05 elapsed\n"


def final_lines(screen: str) -> list[str]:
    """Return what a terminal still shows at the end, following the few control sequences that bars use."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", screen):
        if part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1])
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part[0] not in "\x1b\r":
            lines[row] += part
    return [line for line in lines if line]


def test_a_terminal_gets_bars_and_standard_output_stays_clean(folder: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "demo", "--task", "progress"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    output, _ = process.communicate(timeout=10)
    assert (process.returncode, output) == (0, "turn 0\nturn 1\nturn 2\n")
    screen = shown.decode()
    assert "\x1b[2J" not in screen
    assert "\x1b]0;" not in screen
    assert re.search(r"outer \\x1b\[2J .*3/3 ", screen)
    assert "loss \\x1b]0;title\\x07" in screen
    assert re.search(r"inner .*2/2 ", screen)
    [left] = final_lines(screen)
    assert left.startswith("outer ")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, × and 你好", "plain text, × and 你好"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[31m\x00\x7f\x9b", "\\x1b[31m\\x00\\x7f\\x9b"),
        ("\u202eabc\ud800", "\\u202eabc\\ud800"),
        ('it\'s \\ "quoted"', 'it\'s \\ "quoted"'),
    ],
)
def test_printable_text_cannot_move_the_cursor(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(text).isprintable()
