"""WebShop as a text environment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
from gymnasium import spaces

from agentbench_credit.env import Info, Panel, Task, chosen_task
from agentbench_credit.envs.webshop.catalogue import Catalogue
from agentbench_credit.envs.webshop.goals import Goal, from_data
from agentbench_credit.envs.webshop.pages import RENDERERS
from agentbench_credit.envs.webshop.panels import load_panel
from agentbench_credit.envs.webshop.presets import find_preset
from agentbench_credit.envs.webshop.shop import open_shop
from agentbench_credit.envs.webshop.site import Place
from agentbench_credit.errors import EnvironmentContractError

if TYPE_CHECKING:
    from agentbench_credit.envs.webshop.reward import Score

LONGEST_ACTION = 1000
"""Characters; a longer action is not understood."""
LONGEST_PAGE = 1_000_000
"""Characters that an observation may have, as its space says."""
SUCCESS_REWARD = 10.0
"""What a purchase with reward 1 gives where only success counts."""

_HOW = "Answer with search[keywords] or click[value], value being a button, a product or an option on the page"
_REFUSAL = f"Not understood. {_HOW}."
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
_PRINTABLE = "".join(map(chr, range(32, 127)))


@dataclass(frozen=True)
class Snapshot:
    """The exact state of a shopping trip; the generator that draws tasks is not part of it."""

    task_id: str
    """The task that is played."""
    place: Place
    """Where the shopper is, and what is chosen."""
    turn: int
    """Turns taken."""
    understood: bool
    """Whether the last action was understood."""
    truncated: bool
    """Whether the turn limit ended the trip."""


class WebShopEnv(gymnasium.Env[str, str]):
    """Find and buy the product that an instruction describes.

    The observation is a page as text. An action is ``search[keywords]`` or ``click[value]``; capitals in the value do
    not matter. Buying ends the episode with the official reward between 0 and 1, all else gives 0; success is a reward
    of exactly 1. An action that is not understood changes nothing and takes a turn. After the end, `step` returns the
    last observation with reward 0.

    Args:
        preset: Names shop, goals and turn limit; see `presets.PRESETS`.
        split: Split of the preset's panel.
        state_key: ``"full"``: task, page, query, product, chosen options; ``"observation"``: the page's text.
        observation: ``"text"``: texts joined by ``[SEP]``; ``"text_rich"``: with buttons and chosen options marked.
        reward: ``"official"``, or ``"success"``: `SUCCESS_REWARD` for success and 0 for all else, as papers train.
        panel: Goals to play in the preset's shop instead of the preset's.
        max_turns: Turn limit instead of the preset's.
        render_mode: ``"ansi"`` or None.

    Raises:
        EnvironmentContractError: An argument has a value that is not offered, or the shop cannot be opened.
    """

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012 - Gymnasium declares it as an instance variable

    def __init__(
        self,
        preset: str = "embedded",
        split: str = "train",
        state_key: Literal["full", "observation"] = "full",
        observation: Literal["text", "text_rich"] = "text",
        reward: Literal["official", "success"] = "official",
        panel: Panel | None = None,
        max_turns: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        settings = find_preset(preset)
        for what, chosen, known in (
            ("state key", state_key, ("full", "observation")),
            ("observation mode", observation, tuple(RENDERERS)),
            ("reward", reward, ("official", "success")),
            ("render mode", render_mode, (None, "ansi")),
        ):
            if chosen not in known:
                mend = f"known: {', '.join(filter(None, known))}"
                raise EnvironmentContractError(f"no {what} {chosen!r}", mend=mend)
        if max_turns is not None and max_turns < 1:
            raise EnvironmentContractError(f"max_turns is {max_turns}", mend="give at least 1")
        self.panel = load_panel(preset, split) if panel is None else panel
        self.shop = open_shop(settings)
        self.max_turns = settings.turns if max_turns is None else max_turns
        self.render_mode = render_mode
        self.observation_space = spaces.Text(LONGEST_PAGE, charset=_charset(self.shop.site.catalogue, self.panel))
        self.action_space = spaces.Text(LONGEST_ACTION, charset=_PRINTABLE)
        self._state_key, self._render, self._success_only = state_key, RENDERERS[observation], reward == "success"
        self._marks_visited = observation == "text_rich"
        self._task_id, self._goal = "", _NO_GOAL
        self._place, self._turn = Place(), 0
        self._links: dict[str, Place] = {}
        self._score: Score | None = None
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
        return self._set(task, Place(), turn=0, understood=True, truncated=False)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Act.

        Args:
            action: ``search[keywords]`` or ``click[value]``; any other text is answered, never raised about.

        Returns:
            Observation, reward, terminated (something was bought), truncated (turn limit), info.
        """
        if self._over:
            self._require_task()
            observation, info = self._seen(False)
            return observation, 0.0, self._score is not None, self._truncated, info
        self._turn += 1
        place = self._next(action) if len(action) <= LONGEST_ACTION else None
        self._understood = place is not None
        if place is not None:
            self._go(place)
        self._truncated = self._turn >= self.max_turns and self._score is None
        self._over = self._truncated or self._score is not None
        observation, info = self._seen(self._understood)
        return observation, self._reward(), self._score is not None, self._truncated, info

    def _next(self, action: str) -> Place | None:
        """Return the place that an action leads to, None if it is not understood."""
        action = action.strip()
        if not action.endswith("]"):
            return None
        name, bracket, value = action[:-1].partition("[")
        value = value.strip().lower()
        if not bracket or not value:
            return None
        if name == "search":
            return self.shop.site.results(self._place, value)
        return self._links.get(value) if name == "click" else None

    def _go(self, place: Place) -> None:
        self._place, self._links = place, self.shop.site.links(place)
        self._score = None
        if place.page == "done":
            product = self.shop.site.catalogue.product(place.item)
            self._score = self.shop.score(product, dict(place.options), self._goal, self.shop.tagger)

    def _reward(self) -> float:
        if self._score is None:
            return 0.0
        return SUCCESS_REWARD * (self._score.reward == 1) if self._success_only else self._score.reward

    def _seen(self, action_valid: bool) -> tuple[str, Info]:
        """Return observation and info of the current state."""
        bought = self._score
        page = self._render(
            self.shop.site.pieces(self._place, self._goal.instruction, bought.reward if bought else 0.0)
        )
        info: Info = {
            "state_key": self._key(page),
            "admissible_actions": self._admissible(),
            "action_valid": action_valid,
            "task_id": self._task_id,
            "instruction": f"Buy what is asked for: {self._goal.instruction}. {_HOW}",
            "success": bought is not None and bought.reward == 1,
            "turn": self._turn,
            "score": None if bought is None else bought._asdict(),
            "catalogue": self.shop.site.catalogue.name,
            "noun_tagger": self.shop.tagger.name,
        }
        return page if self._understood else f"{_REFUSAL}\n{page}", info

    def _key(self, page: str) -> bytes:
        if self._state_key == "observation":
            return page.encode()
        place = self._place if self._marks_visited else self._place._replace(visited=())
        return repr((self._task_id, *place)).encode()

    def _admissible(self) -> tuple[str, ...]:
        if self._place.page == "search":
            return (f"search[{self._goal.instruction.lower()[: LONGEST_ACTION // 2]}]",)
        return tuple(f"click[{value}]" for value in self._links)

    def render(self) -> str:
        """Return the page."""
        self._require_task()
        reward = self._score.reward if self._score else 0.0
        return self._render(self.shop.site.pieces(self._place, self._goal.instruction, reward))

    def reference(self) -> str | None:
        """Return the actions of a purchase with reward 1 from the current state, one a line.

        Returns:
            The actions, None if the episode is over or the expert finds no such purchase.
        """
        return "\n".join(self._plan()) or None

    def expert_action(self) -> str | None:
        """Return the next action of a purchase with reward 1, None where there is none."""
        return next(iter(self._plan()), None)

    def _plan(self) -> tuple[str, ...]:
        self._require_task()
        return self.shop.shopper.plan(self._place, self._goal)

    def snapshot(self) -> Snapshot:
        """Return the exact state of the shopping trip."""
        self._require_task()
        return Snapshot(self._task_id, self._place, self._turn, self._understood, self._truncated)

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
        return self._set(
            self.panel[snapshot.task_id],
            snapshot.place,
            turn=snapshot.turn,
            understood=snapshot.understood,
            truncated=snapshot.truncated,
        )

    def _set(self, task: Task, place: Place, *, turn: int, understood: bool, truncated: bool) -> tuple[str, Info]:
        self._goal = _goal(task, self.shop.site.catalogue.size)
        self._task_id, self._turn, self._understood, self._truncated = task.id, turn, understood, truncated
        self._go(place)
        self._over = truncated or self._score is not None
        return self._seen(understood)

    def _require_task(self) -> None:
        if not self._task_id:
            raise EnvironmentContractError("no task has been started", mend="call reset() first")


_NO_GOAL = Goal(0, "", (), (), None, "", "", "")


@lru_cache(maxsize=16384)
def _goal(task: Task, products: int) -> Goal:
    try:
        goal = from_data(task.data)
    except (ValueError, TypeError, RecursionError) as error:
        raise EnvironmentContractError(f"no goal ({error})", where=task.id, mend="see goals.to_data") from error
    if not 0 <= goal.product < products:
        raise EnvironmentContractError(f"no product {goal.product} in this shop", where=task.id)
    return goal


def _charset(catalogue: Catalogue, panel: Panel) -> str:
    """Return the characters that pages may hold."""
    told = _BEYOND_ASCII.findall("".join(task.data for task in panel))
    return "".join(sorted({*_PRINTABLE, "\n", *catalogue.characters, *told}))
