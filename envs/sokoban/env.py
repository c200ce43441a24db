"""Sokoban as an environment: text, and pictures beside it in the presets that show them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import gymnasium
from gymnasium import spaces

from agentbench_credit.env import Info, Panel, chosen_task
from agentbench_credit.envs.sokoban.board import (
    BOX,
    BOX_ON_TARGET,
    DIRECTIONS,
    FLOOR,
    MAX_CELLS,
    PLAYER,
    PLAYER_ON_TARGET,
    SYMBOLS,
    TARGET,
    WALL,
    Board,
    move,
    read_board,
)
from agentbench_credit.envs.sokoban.panels import load_panel, panel_from_xsb
from agentbench_credit.envs.sokoban.presets import find_preset
from agentbench_credit.envs.sokoban.solver import solve, solve_pushes
from agentbench_credit.envs.sokoban.sprites import Image, draw_board
from agentbench_credit.envs.sokoban.xsb import from_xsb
from agentbench_credit.errors import EnvironmentContractError

MOVES = tuple(DIRECTIONS)
LONGEST_ACTION = 200
"""Characters; a longer action is not understood."""

_PRINTABLE = "".join(map(chr, range(32, 127)))
_LEGEND = (
    f"{WALL} wall, {FLOOR} floor, {TARGET} target, {BOX} box, {BOX_ON_TARGET} box on target, "
    f"{PLAYER} you, {PLAYER_ON_TARGET} you on target"
)
_PICTURE_LEGEND = (
    "the picture shows them: brick wall, light floor, red ring target, brown box, green box with a tick on target, "
    "person in blue you"
)
_SEE_PICTURE = "The picture shows the board."


@dataclass(frozen=True)
class Snapshot:
    """The exact state of a game; the generator that draws tasks is not part of it."""

    task_id: str
    """The task that is played."""
    board: str
    """The board."""
    turn: int
    """Turns taken."""
    understood: bool
    """Whether the last action was understood."""
    truncated: bool
    """Whether the turn limit ended the game."""


class SokobanEnv(gymnasium.Env[str, str]):
    """Push every box onto a target.

    The observation is the board, one row a line; in a preset with pictures it is a sentence without the board, and
    ``info["image"]`` holds the board as `draw_board` draws it, after each reset, step and restore. An action is a move,
    ``up``, ``down``, ``left`` or ``right``; where the preset allows several moves a turn they are joined by ``||``.
    Case and spaces around moves do not matter. A move costs 0.1, a box pushed onto a target brings 1, one pushed off
    costs 1, and the last box brings 10 more. An action that is not understood changes nothing, costs 0.1 and takes a
    turn. After the end, `step` returns the last observation with reward 0.

    Args:
        preset: Names panel, turn limit and moves a turn; see `presets.PRESETS`.
        split: Split of the preset's panel.
        state_key: ``"full"`` or ``"observation"``; both give the board with its shape, which is the whole state and all
            that a picture shows.
        panel: Tasks to play instead of the preset's.
        levels: Path of an XSB file whose levels are played instead of the preset's; unlike a panel it can be stored in
            a trajectory.
        max_turns: Turn limit instead of the preset's.
        render_mode: ``"rgb_array"`` makes `render` return a picture; ``"ansi"`` or None the board's text.

    Raises:
        EnvironmentContractError: An argument has a value that is not offered.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 - Gymnasium declares it as an instance variable

    def __init__(
        self,
        preset: str = "6x6-1box",
        split: str = "train",
        state_key: Literal["full", "observation"] = "full",
        panel: Panel | None = None,
        levels: str | None = None,
        max_turns: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        settings = find_preset(preset)
        if state_key not in ("full", "observation"):
            raise EnvironmentContractError(f"no state key {state_key!r}", mend="known: full, observation")
        if render_mode not in (None, "ansi", "rgb_array"):
            raise EnvironmentContractError(f"no render mode {render_mode!r}", mend="known: ansi, rgb_array")
        if max_turns is not None and max_turns < 1:
            raise EnvironmentContractError(f"max_turns is {max_turns}", mend="give at least 1")
        if panel is None:
            panel = load_panel(preset, split) if levels is None else panel_from_xsb(Path(levels), split)
        self.panel = panel
        self.max_turns = settings.turns if max_turns is None else max_turns
        self.render_mode = render_mode
        self.observation_space = spaces.Text(MAX_CELLS + LONGEST_ACTION, charset=_PRINTABLE + SYMBOLS + "\n")
        self.action_space = spaces.Text(LONGEST_ACTION, charset=_PRINTABLE)
        self._moves_per_turn = settings.moves_per_turn
        self._with_image = settings.image
        self._instruction, self._refusal = _texts(settings.moves_per_turn, settings.image)
        self._task_id, self._text, self._shape = "", "", ""
        self._cells: list[str] = []
        self._offsets: dict[str, int] = {}
        self._player = self._missing = self._turn = 0
        self._understood, self._truncated, self._over = True, False, True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Start a task.

        Args:
            seed: Seeds the generator that draws tasks.
            options: ``{"task": id}`` names the task; without it one is drawn from the panel.

        Returns:
            Observation and info.

        Raises:
            EnvironmentContractError: Unknown task or option.
        """
        super().reset(seed=seed)
        task = chosen_task(self.panel, options, lambda: self.np_random)
        return self._set(task.id, _first_board(task.data), turn=0, understood=True, truncated=False)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Act.

        Args:
            action: A move, or moves joined by ``||``; any other text is answered, never raised about.

        Returns:
            Observation, reward, terminated (every box is on a target), truncated (turn limit), info.
        """
        if self._over:
            return self._step_after_end()
        moves = _understand(action, self._moves_per_turn) if len(action) <= LONGEST_ACTION else None
        self._turn += 1
        self._understood = moves is not None
        tenths = -1 if moves is None else self._play(moves)
        solved = self._missing == 0
        self._truncated = self._turn >= self.max_turns and not solved
        self._over = solved or self._truncated
        return self._observation(), tenths / 10, solved, self._truncated, self._info(self._understood)

    def _play(self, moves: tuple[str, ...]) -> int:
        """Make moves until the board is solved; returns the reward in tenths, which keeps sums exact."""
        tenths = 0
        for name in moves:
            self._player, change = move(self._cells, self._player, self._offsets[name])
            self._missing -= change
            tenths += 10 * change - 1
            if self._missing == 0:
                tenths += 100
                break
        self._text = "".join(self._cells)
        return tenths

    def _step_after_end(self) -> tuple[str, float, bool, bool, Info]:
        self._require_task()
        return self._observation(), 0.0, self._missing == 0, self._truncated, self._info(False)

    def _observation(self) -> str:
        shown = _SEE_PICTURE if self._with_image else self._text
        return shown if self._understood else f"{self._refusal}\n{shown}"

    def _info(self, action_valid: bool) -> Info:
        info: Info = {
            "state_key": (self._shape + self._text).encode(),
            "admissible_actions": MOVES,
            "action_valid": action_valid,
            "task_id": self._task_id,
            "instruction": self._instruction,
            "success": self._missing == 0,
            "turn": self._turn,
        }
        if self._with_image:
            info["image"] = draw_board(self._text)
        return info

    def render(self) -> str | Image:
        """Return the board: a picture (uint8, shape (16·rows, 16·columns, 3)) or text, as `render_mode` says."""
        self._require_task()
        return draw_board(self._text) if self.render_mode == "rgb_array" else self._text

    def reference(self) -> str | None:
        """Return the plan with the fewest moves from the current state, moves joined by ``||``.

        Returns:
            The plan; with a warning, one with the fewest pushes if that is all the solver finds; None if the board is
            solved, can no longer be solved, or is too hard for the solver (which is warned about).
        """
        return _joined(self._plan())

    def expert_action(self) -> str | None:
        """Return as much of the shortest plan as fits in one action, None where there is no plan."""
        return _joined(self._plan()[: self._moves_per_turn])

    def _plan(self) -> tuple[str, ...]:
        self._require_task()
        solution = solve(self._text)
        if solution.status == "limit":
            by_pushes = solve_pushes(self._text)
            if by_pushes.status == "limit":
                what = f"no plan within {solution.nodes} and {by_pushes.nodes} states"
            else:
                what = f"the plan has the fewest pushes, {solution.nodes} states gave none with the fewest moves"
            warnings.warn(f"{self._task_id}: {what}", stacklevel=3)
            return by_pushes.moves
        return solution.moves

    def snapshot(self) -> Snapshot:
        """Return the exact state of the game."""
        self._require_task()
        return Snapshot(self._task_id, self._text, self._turn, self._understood, self._truncated)

    def restore(self, snapshot: object) -> tuple[str, Info]:
        """Go back to a state.

        Args:
            snapshot: What `snapshot` returned, here or in another instance with the same panel.

        Returns:
            The observation and info that the state had.

        Raises:
            EnvironmentContractError: Not a snapshot of this environment, or of a task that the panel lacks.
        """
        if not isinstance(snapshot, Snapshot):
            raise EnvironmentContractError(f"cannot restore a {type(snapshot).__name__}", mend="give a Snapshot")
        task = self.panel[snapshot.task_id]
        board = read_board(snapshot.board)
        return self._set(
            task.id, board, turn=snapshot.turn, understood=snapshot.understood, truncated=snapshot.truncated
        )

    def _set(self, task_id: str, board: Board, *, turn: int, understood: bool, truncated: bool) -> tuple[str, Info]:
        self._task_id, self._text, self._cells, self._player = task_id, board.text, list(board.text), board.player
        self._missing = board.text.count(BOX)
        self._offsets, self._shape = board.offsets, f"{board.shape[0]}x{board.shape[1]}\n"
        self._turn, self._understood, self._truncated = turn, understood, truncated
        self._over = truncated or self._missing == 0
        return self._observation(), self._info(understood)

    def _require_task(self) -> None:
        if not self._task_id:
            raise EnvironmentContractError("no task has been started", mend="call reset() first")


def _texts(moves_per_turn: int, image: bool) -> tuple[str, str]:
    """Return the instruction and the answer to an action that is not understood."""
    if moves_per_turn == 1:
        form, example = "one move: up, down, left or right", ""
    else:
        form = f"up to {moves_per_turn} moves (up, down, left, right) joined by ||"
        example = ", for example: up || left"
    goal = f"Push every box onto a target ({_PICTURE_LEGEND if image else _LEGEND})"
    return f"{goal}. Answer with {form}{example}", f"Not understood. Answer with {form}"


@lru_cache(maxsize=4096)
def _first_board(xsb: str) -> Board:
    return read_board(from_xsb(xsb))


@lru_cache(maxsize=1024)
def _understand(action: str, limit: int) -> tuple[str, ...] | None:
    """Return an action's moves, None if it is anything but 1 to `limit` moves joined by ``||``."""
    moves = tuple(part.strip(" \t\r\n").lower() for part in action.split("||"))
    return moves if len(moves) <= limit and all(name in DIRECTIONS for name in moves) else None


def _joined(moves: tuple[str, ...]) -> str | None:
    return " || ".join(moves) or None
