"""Typed errors: each says in one line what is wrong, where, and how to mend it."""

from __future__ import annotations


class AgentBenchError(Exception):
    """Base of all errors that a user can cause or mend; commands print them in one line and exit with 2.

    Args:
        what: What is wrong.
        where: File, rollout, turn, argument or other place, empty if there is none.
        mend: What the user can do about it, empty if nothing is known.
    """

    def __init__(self, what: str, *, where: str = "", mend: str = "") -> None:
        self.what, self.where, self.mend = what, where, mend
        place = f"{where}: " if where else ""
        advice = f" — {mend}" if mend else ""
        super().__init__(" ".join(f"{place}{what}{advice}".split()))


class RegistryError(AgentBenchError):
    """A name is unknown, taken, or its plugin cannot be loaded."""


class ConfigError(AgentBenchError):
    """A recipe, an argument or a run folder contradicts what is asked."""


class EnvironmentContractError(AgentBenchError):
    """An environment or a panel breaks the contract of `agentbench_credit.env`."""


class TrajectoryFileError(AgentBenchError):
    """A trajectory file is torn, foreign, or of another schema version."""


class CreditInputError(AgentBenchError):
    """A batch holds NaN, infinities or inconsistent shapes, or misses a signal."""


class ModelError(AgentBenchError):
    """A model or checkpoint is missing, broken or unsuitable."""


class TrainingError(AgentBenchError):
    """Training cannot go on without giving wrong results."""


class DataSetError(AgentBenchError):
    """A data set is missing, torn, or not the pinned one."""
