"""Generation with Hugging Face transformers: batched, cached, reproducible per request."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, DynamicCache, GenerationConfig
from transformers.utils import logging

from agentbench_credit.errors import ModelError
from agentbench_credit.policy.base import Request, Response, Sampling
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
        batch_size: Most responses generated together.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, policy_id: str, *, batch_size: int = 256
    ) -> None:
        self.model, self.tokenizer, self.policy_id, self.batch_size = model, tokenizer, policy_id, batch_size
        self.max_length = int(model.config.get_text_config().max_position_embeddings)
        # The argument's name depends on the version of transformers.
        self._cache_argument = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        self._stop = torch.tensor(sorted(_stop_ids(model, tokenizer)), device=model.device)

    def fingerprint(self) -> str:
        """Return a hash of the beginning of every weight array, which tells two models apart without reading it all."""
        digest = hashlib.sha256()
        for name, parameter in self.model.named_parameters():
            head = parameter.detach().flatten()[:4096].float().cpu().numpy()
            digest.update(f"{name} {tuple(parameter.shape)}".encode() + head.tobytes())
        return digest.hexdigest()

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        """Answer every request, in order.

        A response depends on its prompt, seed and sampling parameters only: each request has a random stream of its
        own, so batching changes nothing but floating-point noise.

        Args:
            requests: Prompts and seeds; identical prompts are computed once.
            sampling: How tokens are drawn.

        Returns:
            Ids, log-probabilities under the sampling distribution, and finish reasons.

        Raises:
            ModelError: The model gives logits that are not finite.
        """
        responses: list[Response] = []
        for start in range(0, len(requests), self.batch_size):
            responses += self._generate(requests[start : start + self.batch_size], sampling)
        return responses

    @torch.inference_mode()
    def _generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        limit, device = sampling.max_new_tokens, self.model.device
        draws = torch.tensor(np.stack([_uniforms(r.seed, limit) for r in requests]), device=device)
        logits, cache, mask = self._prefill(requests)
        ids = torch.zeros(len(requests), limit, dtype=torch.long)
        logprobs = torch.zeros(len(requests), limit)
        lengths = torch.full((len(requests),), limit)
        stopped = torch.zeros(len(requests), dtype=torch.bool)
        active = torch.arange(len(requests))
        for step in range(limit):
            token, logprob = _draw(logits, draws[active.to(device), step], sampling)
            ids[active, step], logprobs[active, step] = token.cpu(), logprob.float().cpu()
            ends = torch.isin(token, self._stop)
            finished = active[ends.cpu()]
            lengths[finished], stopped[finished] = step + 1, True
            if step + 1 == limit or bool(ends.all()):
                break
            if bool(ends.any()):  # finished responses leave the batch
                kept = (~ends).nonzero().squeeze(1)
                active, token, mask = active[kept.cpu()], token[kept], mask[kept]
                cache.batch_select_indices(kept)
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            positions = mask.sum(1, keepdim=True) - 1
            logits = self._forward(token[:, None], mask, positions, cache)
        pairs = zip(ids.numpy().astype(np.int32), logprobs.numpy(), lengths.tolist(), stopped.tolist(), strict=True)
        return [Response(i[:n].copy(), p[:n].copy(), "stop" if done else "length") for i, p, n, done in pairs]

    def _prefill(self, requests: Sequence[Request]) -> tuple[torch.Tensor, DynamicCache, torch.Tensor]:
        """Run each distinct prompt once, padded on the left; returns logits [B, V], cache and mask [B, P]."""
        distinct: dict[bytes, int] = {}
        index = [distinct.setdefault(request.prompt_ids.tobytes(), len(distinct)) for request in requests]
        prompts = [np.frombuffer(key, np.int32) for key in distinct]
        width = max(len(prompt) for prompt in prompts)
        ids, mask = np.zeros((len(prompts), width), np.int64), np.zeros((len(prompts), width), np.int64)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :], mask[row, width - len(prompt) :] = prompt, 1
        device = self.model.device
        input_ids, attention = torch.tensor(ids, device=device), torch.tensor(mask, device=device)
        positions = (attention.cumsum(1) - 1).clamp(min=0)
        cache = DynamicCache(config=self.model.config)
        logits = self._forward(input_ids, attention, positions, cache)
        rows = torch.tensor(index, device=device)
        cache.batch_select_indices(rows)
        return logits[rows], cache, attention[rows]

    def _forward(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: DynamicCache
    ) -> torch.Tensor:
        """Return the logits [B, V] after the last of ids [B, L], and extend the cache by them."""
        kwargs = {self._cache_argument: cache, "use_cache": True, "logits_to_keep": 1}
        output = self.model(ids, attention_mask=mask, position_ids=positions, **kwargs)
        logits: torch.Tensor = output.logits[:, -1]
        return logits


def _stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return every id that ends a turn: the tokenizer's and those of the generation settings."""
    settings = model.generation_config or GenerationConfig()
    listed = settings.eos_token_id if isinstance(settings.eos_token_id, list) else [settings.eos_token_id]
    stops = {int(token) for token in [tokenizer.eos_token_id, *listed] if token is not None}
    if not stops:
        what = "neither tokenizer nor generation settings name an end-of-turn token"
        raise ModelError(what, where=tokenizer.name_or_path, mend="set eos_token in tokenizer_config.json")
    return stops


def _uniforms(seed: int, n: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.random.Generator(np.random.Philox(seed)).random(n)


def _draw(logits: torch.Tensor, uniform: torch.Tensor, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one token per row by inverting the cumulative distribution.

    Args:
        logits: [B, V].
        uniform: [B], in [0, 1).
        sampling: Temperature, top_k, top_p.

    Returns:
        Tokens [B] and their log-probabilities [B] under the distribution drawn from.

    Raises:
        ModelError: Logits that are not finite.
    """
    if not bool(torch.isfinite(logits).all()):
        raise ModelError("the model's logits are not finite", mend="its weights are broken; load an earlier checkpoint")
    if sampling.temperature == 0:
        token = logits.argmax(-1)
        return token, torch.zeros(len(token), device=logits.device)
    logp = torch.log_softmax(logits.float() / sampling.temperature, dim=-1)
    if not sampling.is_full_softmax:
        logp = _restrict(logp, sampling)
    cumulative = logp.double().exp().cumsum(-1)
    token = (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(-1)
    return token, logp.gather(1, token[:, None]).squeeze(1)


def _restrict(logp: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Keep the top_k tokens of each row [B, V], then the top_p of those, and renormalise."""
    ordered, order = logp.sort(-1, descending=True)
    if sampling.top_k:
        ordered[:, sampling.top_k :] = -torch.inf
    probs = ordered.softmax(-1)
    dropped = (probs.cumsum(-1) - probs >= sampling.top_p) | (probs == 0)
    dropped[:, 0] = False
    hidden = torch.zeros_like(dropped).scatter(1, order, dropped)
    return torch.log_softmax(logp.masked_fill(hidden, -torch.inf), dim=-1)
