"""Make the embedded policy `tiny`: its tokenizer and a model cloned from an expert's demonstrations.

``python -m agentbench_credit.warmstart`` rebuilds the folder that ships with the package. Demonstrations are the
solver's answers in states that a noisy solver visits; half of the prompts also show the solver's plan, so that the
model learns to use a reference when there is one, as a ground-truth-conditioned teacher must.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentbench_credit.command import parse, progress, run_command

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from agentbench_credit.env import AgentEnv
    from agentbench_credit.trajectory import Ids

# A line of prose may become one token and a word stays whole, so that prompts are short; every other character, such
# as a board's cell, is a token of its own.
_PIECES = r"[A-Z][a-z]+ [^\n]*| ?[A-Z]?[a-z]+| ?\|\||\s|."
_SPECIAL = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class WarmstartConfig:
    """Build the embedded policy from demonstrations: deterministic, minutes on two cores."""

    out: Path = Path("runs/tiny")
    """Folder for weights and tokenizer."""
    environment: str = "sokoban"
    """Environment with an expert."""
    presets: tuple[str, ...] = ("embedded",)
    """Presets to demonstrate; the tokenizer sees them too."""
    steps: int = 200
    """Optimiser steps."""
    batch_size: int = 64
    """Demonstrations per step."""
    lr: float = 2e-3
    """Peak learning rate, reached after 5 % of the steps and then decayed to 0 along a cosine."""
    noise: float = 0.3
    """Chance that the demonstrator acts at random in a turn, so that states off the plan are covered."""
    reference_share: float = 0.5
    """Share of prompts that show the solver's plan."""
    vocab_size: int = 768
    """Size of the tokenizer's vocabulary."""
    hidden_size: int = 128
    """Width of the model."""
    layers: int = 5
    """Depth of the model."""
    seed: int = 0
    """Seed of weights, demonstrations and their order."""


@dataclass(frozen=True)
class Demonstration:
    """One expert answer."""

    instruction: str
    """What the task is."""
    observation: str
    """The state shown."""
    reference: str | None = field(repr=False)
    """The plan shown, None in plain prompts."""
    action: str
    """The expert's action."""


def demonstrations(env: AgentEnv, *, noise: float, reference_share: float, seed: int) -> Iterator[Demonstration]:
    """Yield expert answers in states that a noisy expert visits, task by task through the panel.

    Args:
        env: An environment with an expert.
        noise: Chance that a turn is played at random.
        reference_share: Share of answers that come with the plan in the prompt.
        seed: Seed of noise and shares.

    Yields:
        Demonstrations, only in states that can still be solved.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    for task in env.panel:
        observation, info = env.reset(options={"task": task.id})
        done = False
        while not done:
            action, plan = env.expert_action(), env.reference()
            if action is None:
                break
            shown = plan if rng.random() < reference_share else None
            yield Demonstration(str(info["instruction"]), observation, shown, action)
            if rng.random() < noise:
                action = str(rng.choice(info["admissible_actions"]))
            observation, _, terminated, truncated, info = env.step(action)
            done = terminated or truncated


def train_tokenizer(texts: list[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer with a ChatML template.

    Args:
        texts: What it should encode well.
        vocab_size: Number of tokens, the 256 bytes and 3 special tokens included.

    Returns:
        The tokenizer; any text can be encoded and decoded exactly.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(_PIECES), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **_SPECIAL, clean_up_tokenization_spaces=False)
    fast.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    fast.chat_template = _CHAT_TEMPLATE
    return fast


def new_model(tokenizer: PreTrainedTokenizerFast, *, hidden_size: int, layers: int, seed: int) -> PreTrainedModel:
    """Return a Qwen3-architecture model with random weights and untied embeddings.

    Args:
        tokenizer: Gives vocabulary and special tokens.
        hidden_size: Width, a multiple of 32.
        layers: Depth.
        seed: Seed of the weights.

    Returns:
        The model.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // 32,
        num_key_value_heads=max(1, hidden_size // 64),
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def encode(tokenizer: PreTrainedTokenizerFast, demonstration: Demonstration) -> tuple[Ids, Ids]:
    """Return prompt ids [P] and response ids [R] of a demonstration, the end-of-turn token included."""
    import numpy as np

    from agentbench_credit.policy.prompts import Prompter

    prompt = Prompter(tokenizer).first(
        demonstration.instruction, demonstration.observation, reference=demonstration.reference
    )
    answer = [*tokenizer.encode(demonstration.action, add_special_tokens=False), tokenizer.eos_token_id]
    return prompt, np.asarray(answer, dtype=np.int32)


def clone(
    model: PreTrainedModel, pairs: list[tuple[Ids, Ids]], *, steps: int, batch_size: int, lr: float, seed: int
) -> list[float]:
    """Train a model on the responses of demonstrations.

    Args:
        model: Trained in place.
        pairs: Prompt and response ids.
        steps: Optimiser steps.
        batch_size: Pairs per step.
        lr: Peak learning rate.
        seed: Seed of the order.

    Returns:
        The mean negative log-likelihood per response token of every step, in nats.
    """
    import numpy as np
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.01)
    warm = max(1, steps // 20)

    def scale(step: int) -> float:
        return min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * step / steps)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, scale)
    rng = np.random.default_rng(seed)
    order = itertools.chain.from_iterable(rng.permutation(len(pairs)) for _ in itertools.count())
    losses = []
    model.train()
    with progress("warm start", steps) as bar:
        for _ in range(steps):
            batch = [pairs[i] for i in itertools.islice(order, batch_size)]
            loss = _response_loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
            bar.advance(text=f"loss {losses[-1]:.3f}")
    model.eval()
    return losses


def _response_loss(model: PreTrainedModel, batch: list[tuple[Ids, Ids]]) -> torch.Tensor:
    """Return the mean negative log-likelihood of the batch's response tokens."""
    import numpy as np
    import torch

    width = max(len(prompt) + len(response) for prompt, response in batch)
    ids, wanted = np.zeros((len(batch), width), np.int64), np.zeros((len(batch), width), bool)
    for row, (prompt, response) in enumerate(batch):
        end = len(prompt) + len(response)
        ids[row, : len(prompt)], ids[row, len(prompt) : end] = prompt, response
        wanted[row, len(prompt) : end] = True
    # Padding sits on the right, so a causal model needs no mask.
    hidden = model.base_model(torch.from_numpy(ids)).last_hidden_state[:, :-1]
    logits = model.get_output_embeddings()(hidden[torch.from_numpy(wanted[:, 1:])])
    return torch.nn.functional.cross_entropy(logits, torch.from_numpy(ids[wanted]))


def warmstart(config: WarmstartConfig) -> dict[str, Any]:
    """Build tokenizer and model and save them.

    Args:
        config: What to build.

    Returns:
        Counts and the last losses.

    Raises:
        ConfigError: Nothing to learn from.
    """
    from agentbench_credit.env import ENVIRONMENTS
    from agentbench_credit.errors import ConfigError
    from agentbench_credit.policy.transformers import no_progress_bars

    environment = ENVIRONMENTS.get(config.environment)
    shown, refusals = [], []
    for preset in config.presets:
        env = environment.make(preset=preset, split="train")
        shown += list(demonstrations(env, noise=config.noise, reference_share=config.reference_share, seed=config.seed))
        env.reset(options={"task": env.panel.tasks[0].id})
        refusals.append(env.step("")[0])
        env.close()
    if not shown or config.steps < 1 or config.batch_size < 1:
        what = f"{len(shown)} demonstrations, {config.steps} steps, batch size {config.batch_size}"
        mend = "use at least 1 of each; demonstrations need an environment with an expert"
        raise ConfigError(what, where=config.environment, mend=mend)
    corpus = [f"{d.instruction}\n{d.observation}\nReference: {d.reference}\n{d.action}" for d in shown[:5000]]
    tokenizer = train_tokenizer(["system\nuser\nassistant\n", *refusals, *corpus], config.vocab_size)
    model = new_model(tokenizer, hidden_size=config.hidden_size, layers=config.layers, seed=config.seed)
    pairs = [encode(tokenizer, demonstration) for demonstration in shown]
    losses = clone(model, pairs, steps=config.steps, batch_size=config.batch_size, lr=config.lr, seed=config.seed)
    with no_progress_bars():
        model.save_pretrained(config.out)
    tokenizer.save_pretrained(config.out)
    tail = losses[-50:]
    return {
        "demonstrations": len(shown),
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss": sum(tail) / len(tail),
    }


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    config = parse(WarmstartConfig, argv)
    report = warmstart(config)
    print(f"{report['parameters']:,} parameters cloned from {report['demonstrations']:,} demonstrations, ", end="")
    print(f"final loss {report['loss']:.3f} nats per token; saved in {config.out}")


if __name__ == "__main__":
    run_command(main)
