"""The package works from a checkout, both ways installed from one, and from a built wheel."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

import agentbench_credit

ROOT = Path(agentbench_credit.__file__).parents[1]

USE = """
import importlib.resources, json, warnings
import agentbench_credit
import agentbench_credit.envs, agentbench_credit.trainers
from agentbench_credit.env import ENVIRONMENTS
panel = ENVIRONMENTS.get("sokoban").load_panel("embedded", "test")
env = ENVIRONMENTS.get("sokoban").make(preset="embedded", split="test")
observation, info = env.reset(options={"task": panel.tasks[0].id})
_, reward, _, _, info = env.step(env.expert_action())
files = importlib.resources.files("agentbench_credit")
print(json.dumps({
    "file": agentbench_credit.__file__,
    "names": ENVIRONMENTS.names(),
    "trainers": [path.name for path in files.joinpath("trainers").iterdir() if path.is_dir()],
    "turn": info["turn"],
    "page": files.joinpath("credit/pages/gear.md").read_text("utf-8"),
    "typed": files.joinpath("py.typed").is_file(),
    "tiny": sorted(path.name for path in files.joinpath("policy/tiny").iterdir()),
    "version": agentbench_credit.__version__,
}))
"""
"""What a user does first, in each of the four settings."""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command without this checkout on the path, and return its output."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy the files that belong to the repository, links as links, so that no build touches it."""
    copy = tmp_path / "checkout"
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", cwd=ROOT).split("\0")
    for name in filter(None, dict.fromkeys(listed)):
        source, target = ROOT / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.exists():
            target.write_bytes(source.read_bytes())
    return copy


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Make a virtual environment that takes everything but this package from the running interpreter."""
    folder = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=tmp_path)
    python = folder / "bin" / "python"
    # Python reads no .pth file in a folder named by another one, so an editable install of this package stays out.
    (site_packages(python) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    assert run(python, "-c", "import numpy, sys; print(sys.prefix)", cwd=tmp_path).strip() == str(folder)
    return python


def install(python: Path, *what: str | Path, cwd: Path) -> None:
    """Install with pip, taking nothing from any index."""
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--ignore-installed", "--quiet")
    run(python, "-m", "pip", "install", *options, *what, cwd=cwd)


def use(python: Path, *, cwd: Path) -> Path:
    """Use the package as a user does, check what is found, and return the folder that it was taken from."""
    found: dict[str, Any] = json.loads(run(python, "-c", USE, cwd=cwd).splitlines()[-1])
    assert "sokoban" in found["names"]
    assert "local" in found["trainers"]
    assert found["turn"] == 1
    assert found["page"].startswith("# ")
    assert found["typed"]
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= set(found["tiny"])
    assert found["version"] == agentbench_credit.__version__
    return Path(found["file"]).parent


def site_packages(python: Path) -> Path:
    """Return where an environment's packages are installed."""
    [folder] = python.parents[1].glob("lib/python*/site-packages")
    return folder


def test_from_a_checkout(checkout: Path, python: Path) -> None:
    assert use(python, cwd=checkout) == checkout / "agentbench_credit"


def test_installed_in_editable_mode(checkout: Path, python: Path, tmp_path: Path) -> None:
    install(python, "-e", ".", cwd=checkout)
    assert use(python, cwd=tmp_path) == checkout / "agentbench_credit"


def test_installed_from_inside_the_checkout(checkout: Path, python: Path, tmp_path: Path) -> None:
    leftover = checkout / "build" / "lib" / "agentbench_credit" / "envs" / "renamed" / "__init__.py"
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    install(python, ".", cwd=checkout)
    installed = site_packages(python) / "agentbench_credit"
    assert use(python, cwd=tmp_path) == installed
    assert use(python, cwd=checkout) == checkout / "agentbench_credit"
    assert not (installed / "envs" / "renamed").exists()
    assert not (installed / "envs").is_symlink()


def test_installed_from_a_built_wheel(checkout: Path, python: Path, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    run(python, "-m", "build", "--no-isolation", "--outdir", dist, checkout, cwd=tmp_path)
    [wheel], [_] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert inside == {
        str(Path(folder, file).relative_to(checkout))
        for folder, _, files in os.walk(checkout / "agentbench_credit", followlinks=True)
        for file in files
    }
    shutil.rmtree(checkout)
    install(python, wheel, cwd=tmp_path)
    assert use(python, cwd=tmp_path) == site_packages(python) / "agentbench_credit"


PLUGIN = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "third-party-credit"
version = "1"

[project.entry-points."agentbench_credit.credit"]
last_turn = "third_party_credit:last_turn"
broken = "third_party_credit_broken:last_turn"
gear = "third_party_credit:last_turn"

[tool.setuptools]
py-modules = ["third_party_credit", "third_party_credit_broken"]
"""

USE_PLUGIN = """
import json, warnings
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit import METHODS
from agentbench_credit.errors import RegistryError
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    loaded = sorted(METHODS.items())
try:
    METHODS.get("broken")
except RegistryError as error:
    asked = str(error)
values = METHODS.get("last_turn")(CreditBatch.from_rewards([[[0.0, 1.0], [0.0]]]), scale=2.0).values.round(3).tolist()
print(json.dumps({
    "names": METHODS.names(), "loaded": loaded, "warnings": [str(w.message) for w in caught], "asked": asked,
    "values": values, "gear": METHODS.origin("gear"),
}))
"""


def test_an_installed_plugin_is_found_and_a_broken_one_is_named(checkout: Path, python: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.mkdir()
    (plugin / "pyproject.toml").write_text(PLUGIN)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    [method] = [block for block in blocks if "def last_turn" in block]
    assert len(method.splitlines()) <= 25
    (plugin / "third_party_credit.py").write_text(method)
    (plugin / "third_party_credit_broken.py").write_text("import a_package_nobody_has")
    install(python, plugin, cwd=tmp_path)
    found = json.loads(run(python, "-c", USE_PLUGIN, cwd=checkout))
    assert {"last_turn", "broken", "gear", "grpo"} <= set(found["names"])
    assert "last_turn" in found["loaded"]
    assert "broken" not in found["loaded"]
    clash, broken = found["warnings"]
    assert "third_party_credit:last_turn of third-party-credit ignored: gear" in clash
    assert "'broken' cannot be loaded from third_party_credit_broken:last_turn" in broken
    assert "No module named 'a_package_nobody_has'" in broken
    assert found["asked"] == broken
    assert found["values"] == [0.0, 1.414, -1.414]
    assert found["gear"] == "agentbench_credit.credit.gear:gear"
