"""Running a model on samples: hidden states and log-probabilities of response tokens, and signals made from them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import nn

from agentbench_credit.batch import Floats, Ints
from agentbench_credit.credit.method import SignalName
from agentbench_credit.divergences import entropy, over_vocabulary, reverse_kl, top_k_with_tail
from agentbench_credit.errors import ModelError, TrainingError
from agentbench_credit.packing import packed_batches
from agentbench_credit.samples import Sample, build_samples, token_place
from agentbench_credit.trajectory import Trajectory

if TYPE_CHECKING:
    from transformers import PreTrainedModel

HEAD_ELEMENTS = 2**25
"""Most logits in memory at once (128 MiB in float32); longer batches go through the head in chunks."""

TOP_K = 100
"""Tokens of the student that the signal ``kl_topk`` tells apart."""

Role = Literal["student", "teacher"]
ROLES: Mapping[SignalName, tuple[Role, ...]] = {
    "entropy": ("student",),
    "teacher_logp": ("teacher",),
    "kl": ("student", "teacher"),
    "kl_topk": ("student", "teacher"),
}
"""Whose distributions each token signal is made from."""

BLOCK_TOKENS = 2**16
"""Most response tokens whose hidden states `compute_signals` keeps at once, unless one trajectory has more."""


def check_model(model: PreTrainedModel) -> None:
    """Make sure that running a model on packs, and its output embedding on the hidden states, gives its own logits.

    Args:
        model: A causal language model.

    Raises:
        ModelError: Its logits are scaled, capped or made in another way; or its attention is not full, so that a token
            also sees, or cannot see, others than the earlier tokens of its own sequence.
    """
    where, mend = str(model.name_or_path), "use a family with a plain head and full attention, such as Qwen3 or Llama"
    head = model.get_output_embeddings()
    if head is None:
        raise ModelError("the model has no output embedding", where=where, mend=mend)
    ids = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 2, 6, 7, 8]])
    with torch.no_grad():
        whole = model(input_ids=ids.to(model.device), use_cache=False).logits.float()
        hidden = model.base_model(input_ids=ids.to(model.device), use_cache=False).last_hidden_state
        plain = head(hidden).float()
    # A soft cap far above the logits changes little: the same operations must give the same numbers.
    if whole.shape != plain.shape or not torch.allclose(whole, plain, rtol=1e-6, atol=0.0, equal_nan=True):
        what = "the logits are not the output embedding of the last hidden state (scaled or capped logits)"
        raise ModelError(what, where=where, mend=mend)
    config = model.config.get_text_config().to_dict()
    if config.get("sliding_window") is not None or not {"full_attention"}.issuperset(config.get("layer_types") or ()):
        raise ModelError("the attention is not full in every layer", where=where, mend=mend)
    rows = [Sample(row.numpy().astype(np.int32), np.arange(1, 7), np.arange(6) + 6 * i, i) for i, row in enumerate(ids)]
    try:
        with torch.no_grad():
            packed = head(response_hidden(model, rows, batch_tokens=16)).float().view_as(plain)
    except Exception as error:  # a model without attention fails in its own way
        raise ModelError("the model takes no attention mask over pairs of tokens", where=where, mend=mend) from error
    rounding = torch.finfo(model.dtype).eps ** 0.5 * float(plain.nan_to_num(0.0, 0.0, 0.0).abs().max())
    if not torch.allclose(plain, packed, rtol=0.0, atol=rounding, equal_nan=True):
        raise ModelError("the attention does not follow a mask over pairs of tokens", where=where, mend=mend)


def response_hidden(model: PreTrainedModel, samples: Sequence[Sample], *, batch_tokens: int) -> torch.Tensor:
    """Return the hidden states that predict the response tokens; what sequences have in common is computed once.

    Args:
        model: A causal language model that passes `check_model`.
        samples: The sequences.
        batch_tokens: Most tokens of one forward pass, padding included, unless one sequence has more.

    Returns:
        Hidden states [R, H] in ascending order of the samples' tokens; their gradient reaches the model.
    """
    parts: list[torch.Tensor] = []
    tokens: list[Ints] = []
    for batch in packed_batches(samples, batch_tokens):
        visible = torch.tensor(batch.visible, device=model.device)
        # Added to the scores, which every implementation of attention understands.
        mask = torch.zeros(visible.shape, dtype=model.dtype, device=model.device)
        mask = mask.masked_fill(~visible, torch.finfo(model.dtype).min)
        hidden = model.base_model(
            input_ids=torch.tensor(batch.ids, device=model.device),
            position_ids=torch.tensor(batch.positions, device=model.device),
            attention_mask=mask,
            use_cache=False,
        ).last_hidden_state
        parts.append(hidden.flatten(0, 1).index_select(0, torch.tensor(batch.predicting, device=model.device)))
        tokens.append(batch.tokens)
    if not parts:
        return torch.zeros(0, model.get_output_embeddings().weight.shape[1], device=model.device)
    order = np.argsort(np.concatenate(tokens))
    return torch.cat(parts).index_select(0, torch.tensor(order, device=model.device))


def token_logp(model: PreTrainedModel, hidden: torch.Tensor, targets: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return the log-probabilities of tokens, as a policy at this temperature gives them.

    Args:
        model: The model that the hidden states come from.
        hidden: Hidden states [R, H] at the positions before the tokens.
        targets: The tokens [R].
        temperature: Divides the logits.

    Returns:
        Log-probabilities [R] in nats, float32; their gradient reaches the model.
    """

    def measure(logp: torch.Tensor, block_targets: torch.Tensor) -> torch.Tensor:
        return logp.gather(-1, block_targets[:, None]).squeeze(-1)

    side = (model.get_output_embeddings(), hidden)
    return over_vocabulary(measure, [side], targets, temperature=temperature, head_elements=HEAD_ELEMENTS)


@torch.no_grad()
def compute_signals(
    model: PreTrainedModel,
    trajectories: Sequence[Trajectory],
    needed: Collection[SignalName],
    *,
    temperature: float,
    batch_tokens: int,
) -> dict[str, Floats]:
    """Compute the token signals that credit methods ask for, without gradient.

    Student p_j is the model on the prompts as fed; teacher q_j is the same weights on the prompts that show the
    ground truth. Where a turn has no such prompt, both are the same.

    Args:
        model: A causal language model in evaluation mode.
        trajectories: Rollouts with K response tokens in all.
        needed: Names of token signals, all in nats: ``entropy`` H(p_j), ``teacher_logp`` log q_j(y_j), ``kl``
            D(p_j‖q_j) over the whole vocabulary, and ``kl_topk`` the same over the student's likeliest `TOP_K` tokens
            and one for all others. The sampled divergence is the behaviour's log-probability minus ``teacher_logp``.
        temperature: Divides the logits of both.
        batch_tokens: Most tokens of one forward pass, padding included.

    Returns:
        One array [K] for each name.

    Raises:
        ModelError: The model does not fit, see `check_model`.
        TrainingError: A signal is not finite, the message names rollout and turn; or it is not made from tokens.
    """
    if not needed:
        return {}
    unknown = [name for name in needed if name not in ROLES]
    if unknown:
        mend = f"known: {', '.join(ROLES)}; trainers have others from elsewhere"
        raise TrainingError(f"no token signal {', '.join(unknown)}", where="compute_signals", mend=mend)
    check_model(model)
    found: dict[str, list[Floats]] = {name: [np.zeros(0)] for name in needed}
    for block in _blocks(trajectories):
        for name, values in _block_signals(model, block, needed, temperature, batch_tokens).items():
            found[name].append(values)
    signals = {name: np.concatenate(parts) for name, parts in found.items()}
    for name, values in signals.items():
        finite = np.isfinite(values)
        if not finite.all():
            if batch_tokens > 1:
                # NaN spreads within a pack: run each sequence alone to find the one at fault.
                return compute_signals(model, trajectories, needed, temperature=temperature, batch_tokens=1)
            bad = int(np.argmin(finite))
            mend = "the weights are broken; load an earlier checkpoint"
            raise TrainingError(f"{name} is {values[bad]}", where=token_place(trajectories, bad), mend=mend)
    return signals


def _blocks(trajectories: Sequence[Trajectory]) -> Iterator[list[Trajectory]]:
    """Cut the trajectories that have tokens into blocks of at most `BLOCK_TOKENS` response tokens."""
    block: list[Trajectory] = []
    tokens = 0
    for trajectory in (t for t in trajectories if t.n_tokens):
        if block and tokens + trajectory.n_tokens > BLOCK_TOKENS:
            yield block
            block, tokens = [], 0
        block.append(trajectory)
        tokens += trajectory.n_tokens
    if block:
        yield block


def _block_signals(
    model: PreTrainedModel,
    trajectories: Sequence[Trajectory],
    needed: Collection[SignalName],
    temperature: float,
    batch_tokens: int,
) -> dict[str, Floats]:
    ids = np.concatenate([turn.response_ids for trajectory in trajectories for turn in trajectory.turns])
    targets = torch.tensor(ids, dtype=torch.long, device=model.device)
    hidden = _block_hidden(model, trajectories, needed, len(targets), batch_tokens)

    found = signals_of(model.get_output_embeddings(), hidden, targets, needed, temperature)
    return {name: values.double().cpu().numpy() for name, values in found.items()}


@torch.no_grad()
def signals_of(
    head: nn.Module,
    hidden: Mapping[Role, torch.Tensor],
    targets: torch.Tensor,
    needed: Collection[SignalName],
    temperature: float,
) -> dict[str, torch.Tensor]:
    """Compute token signals from hidden states, without gradient; see `compute_signals`.

    Args:
        head: The output embedding.
        hidden: Hidden states [R, H] at the positions before the tokens, of each role that the signals need.
        targets: The tokens [R].
        needed: Names of token signals.
        temperature: Divides the logits.

    Returns:
        One array [R] for each name, in nats, float32.
    """

    def measure(*rows: torch.Tensor) -> torch.Tensor:
        logp = dict(zip(hidden, rows, strict=False))
        return torch.stack([_signal(name, logp, rows[-1]) for name in needed], dim=-1)

    sides = [(head, part) for part in hidden.values()]
    found = over_vocabulary(measure, sides, targets, temperature=temperature, head_elements=HEAD_ELEMENTS)
    return dict(zip(needed, found.unbind(-1), strict=True))


def _signal(name: SignalName, logp: Mapping[Role, torch.Tensor], targets: torch.Tensor) -> torch.Tensor:
    """Return one signal [R] from the roles' log-probabilities [R, V]."""
    if name == "entropy":
        return entropy(logp["student"])
    if name == "teacher_logp":
        return logp["teacher"].gather(-1, targets[:, None]).squeeze(-1)
    student, teacher = logp["student"], logp["teacher"]
    return reverse_kl(*(top_k_with_tail(student, teacher, TOP_K) if name == "kl_topk" else (student, teacher)))


def _block_hidden(
    model: PreTrainedModel,
    trajectories: Sequence[Trajectory],
    needed: Collection[SignalName],
    n_tokens: int,
    batch_tokens: int,
) -> dict[Role, torch.Tensor]:
    """Return hidden states [K, H] of the roles that the signals need."""
    wanted = sorted({role for name in needed for role in ROLES[name]})
    # One call for both, so that what student and teacher have in common runs once.
    samples = [
        replace(sample, tokens=sample.tokens + number * n_tokens)
        for number, role in enumerate(wanted)
        for sample in build_samples(trajectories, teacher=role == "teacher")
    ]
    hidden = response_hidden(model, samples, batch_tokens=batch_tokens)
    return dict(zip(wanted, hidden.split(n_tokens), strict=True))
