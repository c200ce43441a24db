"""What the service tests put into processes of their own."""

from __future__ import annotations

import os
import time
from typing import Any


class Counter:
    """Counts, and misbehaves on request."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, number: int) -> int:
        """Return the sum so far."""
        print("noise on standard output")
        self.count += number
        return self.count

    def pid(self) -> int:
        """Return the process."""
        return os.getpid()

    def variables(self) -> dict[str, str]:
        """Return the environment variables."""
        return dict(os.environ)

    def fail(self) -> None:
        """Raise."""
        raise KeyError("lost")

    def leave(self) -> None:
        """End the process."""
        os.write(2, b"out of luck\n")
        os._exit(3)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def hold_the_lock(self) -> None:
        """Spin in C without letting another Python thread run."""
        pow(7, 10**8)

    def talk(self, size: int) -> str:
        """Say much."""
        return "x" * size

    def echo(self, value: Any) -> Any:
        """Return what was given."""
        return value
