"""Generation without turns: a finished response leaves at once, and the next request takes its place."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from agentbench_credit.policy.base import Answer, Request, Response, Sampling
from agentbench_credit.policy.prefixes import BLOCK, Prefix, Prefixes, common_length
from agentbench_credit.policy.sampler import draw, uniforms
from agentbench_credit.policy.slots import SlotCache

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from agentbench_credit.trajectory import Ids

PREFILL_TOKENS = 16384
"""Most tokens of one forward pass over prompts, padding included, unless one prompt has more."""


class _Sequence:
    """A response under way; it stands in the slot that is its place in the list of all."""

    def __init__(self, request: Request, limit: int) -> None:
        self.request = request
        self.uniforms = uniforms(request.seed, limit)
        self.ids: list[int] = []
        self.logprobs: list[float] = []

    @property
    def length(self) -> int:
        """Tokens in the cache after a draw: the prompt, and all of the response but its last."""
        return len(self.request.prompt_ids) + len(self.ids) - 1


class ContinuousStream:
    """Requests under way at a model of this process.

    Identical prompts are computed once; so is what a prompt has in common with earlier ones: the beginning that all
    share, and the conversation so far where requests say that they continue.

    Args:
        model: A causal language model with full attention in every layer.
        stop: Ids that end a response.
        sampling: How tokens are drawn.
        slots: Most responses generated together.
    """

    def __init__(self, model: PreTrainedModel, stop: torch.Tensor, sampling: Sampling, slots: int) -> None:
        self._model, self._stop, self._sampling, self._slots = model, stop, sampling, slots
        self._waiting: list[Request] = []
        self._idle = 0.0
        self._sequences: list[_Sequence] = []
        self._logits = torch.zeros(0)
        self._cache = SlotCache()
        self._prefixes = Prefixes()
        # The argument's name depends on the version of transformers.
        self._cache_argument = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"

    def add(self, request: Request) -> None:
        """Take one more request; it begins when there is room and `collect` finds that it pays."""
        self._waiting.append(request)

    @torch.inference_mode()
    def collect(self) -> list[Answer]:
        """Generate until at least one response is finished.

        Returns:
            What is finished; empty if nothing is under way.

        Raises:
            ModelError: The model gives logits that are not finite.
        """
        while self._waiting or self._sequences:
            if fresh := self._admitted():
                self._begin(fresh)
            if finished := self._step():
                return finished
        return []

    def close(self) -> None:
        """Give up what is under way and free the cache."""
        self._waiting, self._sequences, self._cache, self._prefixes = [], [], SlotCache(), Prefixes()

    def _admitted(self) -> list[Request]:
        """Return the requests that begin now.

        A pass over few prompts takes about as long as a step of all sequences. So those that wait begin together, when
        they have missed one such step between them, each counted by its share of what could be under way.
        """
        room = min(self._slots - len(self._sequences), len(self._waiting))
        self._idle += room / (room + len(self._sequences)) if room else 0.0
        if self._sequences and self._idle < 1:
            return []
        fresh, self._waiting, self._idle = self._waiting[:room], self._waiting[room:], 0.0
        return fresh

    def _step(self) -> list[Answer]:
        """Draw one token for each sequence; those that go on are run through the model."""
        at = np.array([sequence.uniforms[len(sequence.ids)] for sequence in self._sequences])
        tokens, logprobs = draw(self._logits, torch.tensor(at, device=self._logits.device), self._sampling)
        ends = torch.isin(tokens, self._stop).tolist()
        finished: list[int] = []
        drawn = zip(self._sequences, tokens.tolist(), logprobs.float().tolist(), ends, strict=True)
        for slot, (sequence, token, logprob, stopped) in enumerate(drawn):
            sequence.ids.append(token)
            sequence.logprobs.append(logprob)
            if stopped or len(sequence.ids) == self._sampling.max_new_tokens:
                finished.append(slot)
        answers = [self._answer(self._sequences[slot], stopped=ends[slot]) for slot in finished]
        for slot in finished:
            if self._sequences[slot].request.continues:
                self._keep(slot, self._sequences[slot])
        self._leave(finished)
        if self._sequences:
            last = torch.tensor([[sequence.ids[-1]] for sequence in self._sequences], device=self._model.device)
            places = torch.tensor([[sequence.length] for sequence in self._sequences], device=self._model.device)
            self._logits = self._forward(0, last, places)
        return answers

    def _answer(self, sequence: _Sequence, *, stopped: bool) -> Answer:
        ids, logprobs = np.array(sequence.ids, np.int32), np.array(sequence.logprobs, np.float32)
        return sequence.request, Response(ids, logprobs, "stop" if stopped else "length")

    def _keep(self, slot: int, sequence: _Sequence) -> None:
        """Keep a conversation; the last token of its response has not been run through the model."""
        ids = np.concatenate([sequence.request.prompt_ids, np.array(sequence.ids[:-1], np.int32)])
        self._prefixes.keep(Prefix(ids, self._cache.read(slot, len(ids))))

    def _leave(self, finished: list[int]) -> None:
        """Take sequences out; the last ones move into their slots."""
        gone, count = set(finished), len(self._sequences)
        left = count - len(gone)
        movers = (slot for slot in range(left, count) if slot not in gone)
        for hole in (slot for slot in finished if slot < left):
            mover = next(movers)
            self._cache.copy(mover, hole, self._sequences[mover].length)
            self._sequences[hole] = self._sequences[mover]
        del self._sequences[left:]

    def _begin(self, requests: Sequence[Request]) -> None:
        """Run prompts through the model, each distinct one once, and put them into slots of their own."""
        distinct: dict[bytes, int] = {}
        prompts: list[Ids] = []
        for request in requests:
            if distinct.setdefault(request.prompt_ids.tobytes(), len(prompts)) == len(prompts):
                prompts.append(request.prompt_ids)
        first = len(self._sequences)
        self._share(first, prompts)
        known = [self._known(first + i, prompt) for i, prompt in enumerate(prompts)]
        logits = self._prefill(first, prompts, known)
        order = [distinct[request.prompt_ids.tobytes()] for request in requests]
        slots = self._spread(first, order, prompts)
        self._sequences += [_Sequence(requests[i], self._sampling.max_new_tokens) for i in slots]
        rows = logits[torch.tensor([order[i] for i in slots], device=logits.device)]
        self._logits = torch.cat([self._logits, rows]) if first else rows

    def _spread(self, first: int, order: list[int], prompts: list[Ids]) -> list[int]:
        """Copy prompts to the requests that share them; returns the request of each slot from the first on."""
        owner = {prompt: i for i, prompt in reversed(list(enumerate(order)))}
        slots = [owner[prompt] for prompt in range(len(prompts))]
        for i, prompt in enumerate(order):
            if owner[prompt] != i:
                self._cache.grow(first + len(slots) + 1)
                self._cache.copy(first + prompt, first + len(slots), len(prompts[prompt]))
                slots.append(i)
        return slots

    def _share(self, slot: int, prompts: list[Ids]) -> None:
        """Compute once what several new prompts begin with and nobody knows yet."""
        if len(prompts) < 2:
            return
        length = min(common_length(prompts[0], prompt[:-1]) for prompt in prompts[1:])
        known = self._prefixes.find(prompts[0][: length + 1])
        if length < BLOCK or (known is not None and known[1] > length - BLOCK):
            return
        common = prompts[0][:length]
        self._prefill(slot, [common], [self._known(slot, common)])
        self._prefixes.keep(Prefix(common, self._cache.read(slot, length)))

    def _known(self, slot: int, prompt: Ids) -> int:
        """Put the known beginning of a prompt into a slot; returns its length."""
        found = self._prefixes.find(prompt)
        if found is None:
            return 0
        prefix, length = found
        self._cache.write(slot, prefix.states[:, :, :length])
        return length

    def _prefill(self, first: int, prompts: list[Ids], known: list[int]) -> torch.Tensor:
        """Run what is not known of prompts through the model; returns the logits [R, V] after each prompt."""
        parts, start = [], 0
        while start < len(prompts):
            stop, width = start, 0
            while stop < len(prompts):
                wider = max(width, len(prompts[stop]) - known[stop])
                if stop > start and wider * (stop + 1 - start) > PREFILL_TOKENS:
                    break
                stop, width = stop + 1, wider
            ids, places = np.zeros((stop - start, width), np.int64), np.zeros((stop - start, width), np.int64)
            for row, i in enumerate(range(start, stop)):
                # Shorter ones repeat their first token at its own place, which writes the same there again.
                at = np.maximum(np.arange(len(prompts[i]) - width, len(prompts[i])), known[i])
                ids[row], places[row] = prompts[i][at], at
            device = self._model.device
            parts.append(
                self._forward(first + start, torch.tensor(ids, device=device), torch.tensor(places, device=device))
            )
            start = stop
        return torch.cat(parts)

    def _forward(self, first: int, ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Run tokens [R, T] of neighbouring slots through the model; returns the logits [R, V] after the last."""
        length = int(places[:, -1].max()) + 1
        self._cache.select(first, places, length)
        visible = torch.arange(length, device=ids.device) <= places[:, None, :, None]
        # Added to the scores, which every implementation of attention understands.
        mask = torch.zeros(visible.shape, dtype=self._model.dtype, device=ids.device)
        mask = mask.masked_fill_(~visible, torch.finfo(self._model.dtype).min)
        kwargs = {self._cache_argument: self._cache, "use_cache": True, "logits_to_keep": 1}
        output = self._model(ids, attention_mask=mask, position_ids=places, **kwargs)
        logits: torch.Tensor = output.logits[:, -1]
        return logits
