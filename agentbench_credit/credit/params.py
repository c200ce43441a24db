"""What values a credit method's parameters may take, declared in its signature and checked before it runs."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from agentbench_credit.errors import ConfigError


@dataclass(frozen=True)
class Bounds:
    """The interval that a number must lie in."""

    low: float
    """The smallest value."""
    high: float
    """The largest value."""
    above: bool = False
    """Whether the number must be larger than `low`."""
    or_inf: bool = False
    """Whether infinity is allowed too."""
    whole: bool = False
    """Whether the number must be an integer."""

    def admits(self, value: float) -> bool:
        """Tell whether a number may be taken; NaN never is."""
        if self.whole and not isinstance(value, int):
            return False
        inside = self.low <= value <= self.high and not (self.above and value == self.low)
        return inside or (self.or_inf and value == math.inf)

    def __str__(self) -> str:
        """Return the interval in words."""
        words = f"above {self.low:g}" if self.above else f"at least {self.low:g}"
        if self.high < math.inf:
            words += f" and at most {self.high:g}"
        return f"a {'whole ' if self.whole else ''}number {words}{', or inf' if self.or_inf else ''}"


Share = Annotated[float, Bounds(0.0, 1.0)]
"""A number from 0 to 1."""
Positive = Annotated[float, Bounds(1e-9, 1e9)]
"""A number above 0, neither tiny nor huge."""
Cap = Annotated[float, Bounds(0.0, math.inf, above=True)]
"""The most that something counts, above 0; infinity for no bound."""
Width = Annotated[float, Bounds(0.0, 0.99)]
"""The largest distance of a weight from 1; below 1, so that no weight is 0 and no advantage loses its sign."""
Coefficient = Annotated[float, Bounds(0.0, 1e6)]
"""A finite factor that is not negative."""
NonNegative = Annotated[float, Bounds(0.0, math.inf)]
"""0 or more; infinity is allowed."""
Quantile = Annotated[float, Bounds(0.0, 1.0, or_inf=True)]
"""A quantile from 0 to 1, or infinity for a threshold that nothing reaches."""
Count = Annotated[int, Bounds(1, 10**9, whole=True)]
"""A whole number from 1."""
Ddof = Literal[0, 1]
"""Subtracted from the count in a variance: 1 sample, 0 population."""
Baseline = Literal["trajectory", "step"]
"""What has weight 1 in a group's mean and standard deviation: a rollout, or each of its turns."""
Norm = Literal["std", "none"]
"""Whether a difference from the mean is divided by the standard deviation."""


def check_params(
    method: str, function: Callable[..., object], known: Mapping[str, Any], given: Mapping[str, Any]
) -> None:
    """Refuse parameters that a method does not have, and values outside what its signature declares.

    Args:
        method: The method's name, for the message.
        function: The method's function.
        known: Its parameters by name.
        given: What was passed.

    Raises:
        ConfigError: An unknown name or a value that is not allowed.
    """
    if not given:
        return
    for name in given.keys() - known.keys():
        near = difflib.get_close_matches(name, known, n=1)
        mend = f"did you mean {near[0]}?" if near else f"it has: {', '.join(known) or 'none'}"
        raise ConfigError(f"no parameter {name!r}", where=method, mend=mend)
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError:  # a plugin that imports its types for the type checker only: nothing is declared at run time
        return
    for name, value in given.items():
        wanted = _violated(hints.get(name), value)
        if wanted:
            raise ConfigError(f"{name} is {value!r}", where=method, mend=f"give {wanted}")


def _violated(hint: Any, value: object) -> str:
    """Return what a value should have been, empty if it is allowed or nothing is declared."""
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return "" if value in choices else " or ".join(map(repr, choices))
    if hint is bool:
        return "" if isinstance(value, bool) else "true or false"
    bounds = next((extra for extra in get_args(hint)[1:] if isinstance(extra, Bounds)), None)
    if bounds is None:
        return ""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and bounds.admits(value):
        return ""
    return str(bounds)
