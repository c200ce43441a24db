"""The two spellings of putting something down, both understood on both versions of the games."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PUT = re.compile(r"put (?P<thing>\S+(?: \S+)*?) (?:in/on|in|on) (?P<place>\S+(?: \S+)*)")
_MOVE = re.compile(r"move (?P<thing>\S+(?: \S+)*?) to (?P<place>\S+(?: \S+)*)")
_SPELLINGS = (
    "move {thing} to {place}",
    "put {thing} in/on {place}",
    "put {thing} in {place}",
    "put {thing} on {place}",
)


def understand(action: str, admissible: Sequence[str]) -> str | None:
    """Return the command that an action means.

    Alfworld 0.4 renamed ``put X in/on Y`` to ``move X to Y``; a policy may have learned either. Whole words are
    matched, once: nothing inside a name is ever replaced.

    Args:
        action: What the policy said; blanks around it do not matter.
        admissible: The commands of the current state.

    Returns:
        One of `admissible`, None if the action is none of them.
    """
    action = action.strip()
    if action in admissible:
        return action
    match = _PUT.fullmatch(action) or _MOVE.fullmatch(action)
    if match is None:
        return None
    spelled = (spelling.format(**match.groupdict()) for spelling in _SPELLINGS)
    return next((command for command in spelled if command in admissible), None)
