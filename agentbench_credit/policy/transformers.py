"""Models of Hugging Face transformers as policies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging

from agentbench_credit.errors import ModelError
from agentbench_credit.policy.base import Sampling
from agentbench_credit.policy.continuous import ContinuousStream
from agentbench_credit.policy.models import model_folder

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["auto", "float32", "bfloat16"]


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Keep the library's own progress bars out of ours while it loads or saves weights."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def load_policy(
    name: str, *, device: Device = "auto", dtype: Dtype = "auto", policy_id: str = ""
) -> TransformersPolicy:
    """Load a causal language model and its tokenizer.

    Args:
        name: ``tiny``, a known name, a local folder or a hub id; see `model_folder`.
        device: ``auto`` takes a GPU if there is one.
        dtype: ``auto`` is float32 on a CPU and bfloat16 on a GPU.
        policy_id: Recorded in trajectories, the name if empty.

    Returns:
        The policy, in evaluation mode.

    Raises:
        ModelError: The model is missing or cannot be loaded.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise ModelError("there is no GPU that torch can use", where=name, mend="use --device cpu or auto")
    folder = model_folder(name)
    place = torch.device(device if device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu"))
    kind = dtype if dtype != "auto" else ("bfloat16" if place.type == "cuda" else "float32")
    try:
        config = AutoConfig.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        with no_progress_bars():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder, config=config, dtype=getattr(torch, kind), output_loading_info=True
            )
        model, report = loaded
        torch.nn.Module.to(model, place).eval()  # the library's own `to` has a wrong signature
    except Exception as error:  # a broken folder fails in many ways inside the library
        reason = str(error).strip().split("\n")[0][:200]
        mend = "the folder needs config.json, *.safetensors and tokenizer files of one causal language model"
        what = f"cannot be loaded ({type(error).__name__}: {reason})"
        raise ModelError(what, where=str(folder), mend=mend) from error
    missing = sorted({*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])})
    if missing:
        what = f"{len(missing)} weights are missing or have another shape, such as {missing[0]}"
        raise ModelError(what, where=str(folder), mend="they would be random numbers; get the whole checkpoint")
    return TransformersPolicy(model, tokenizer, policy_id or name)


class TransformersPolicy:
    """A policy on a transformers model; trainers update the very model it holds.

    Args:
        model: A causal language model in evaluation mode.
        tokenizer: Its tokenizer.
        policy_id: Recorded in trajectories.
        slots: Most responses generated together.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, policy_id: str, *, slots: int = 256
    ) -> None:
        self.model, self.tokenizer, self.policy_id, self.slots = model, tokenizer, policy_id, slots
        self.max_length = int(model.config.get_text_config().max_position_embeddings)
        self._stop = torch.tensor(sorted(_stop_ids(model, tokenizer)), device=model.device)

    def fingerprint(self) -> str:
        """Return a hash of the beginning of every weight array, which tells two models apart without reading it all."""
        digest = hashlib.sha256()
        for name, parameter in self.model.named_parameters():
            head = parameter.detach().flatten()[:4096].float().cpu().numpy()
            digest.update(f"{name} {tuple(parameter.shape)}".encode() + head.tobytes())
        return digest.hexdigest()

    def stream(self, sampling: Sampling) -> ContinuousStream:
        """Begin to answer requests.

        A response depends on its prompt, seed and sampling parameters only: each request has random numbers of its own,
        so what else is under way changes nothing but floating-point noise.

        Args:
            sampling: How tokens are drawn.

        Returns:
            The stream; the model must not change while it is open.

        Raises:
            ModelError: The model's attention is not full in every layer.
        """
        config = self.model.config.get_text_config().to_dict()
        if config.get("sliding_window") or not {"full_attention"}.issuperset(config.get("layer_types") or ()):
            mend = "use a family such as Qwen3 or Llama, or serve it and give --model openai:URL#NAME"
            raise ModelError("the attention is not full in every layer", where=self.policy_id, mend=mend)
        return ContinuousStream(self.model, self._stop, sampling, self.slots)


def _stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return every id that ends a turn: the tokenizer's and those of the generation settings."""
    settings = model.generation_config or GenerationConfig()
    listed = settings.eos_token_id if isinstance(settings.eos_token_id, list) else [settings.eos_token_id]
    stops = {int(token) for token in [tokenizer.eos_token_id, *listed] if token is not None}
    if not stops:
        what = "neither tokenizer nor generation settings name an end-of-turn token"
        raise ModelError(what, where=tokenizer.name_or_path, mend="set eos_token in tokenizer_config.json")
    return stops
