"""Small random models for tests: real architectures, saved to disk and loaded like any other."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from agentbench_credit.warmstart import train_tokenizer

TEXTS = ["system user assistant", "Move the box up || down || left || right", "#PXO_ √S\n<think>go left</think>"]


def small_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer of 300 tokens with a chat template."""
    return train_tokenizer(TEXTS, 300)


def small_model(
    architecture: str = "qwen3", *, seed: int = 0, vocab_size: int = 300
) -> Qwen3ForCausalLM | LlamaForCausalLM:
    """Return a model of two layers whose random weights are large enough to have opinions."""
    torch.manual_seed(seed)
    sizes = dict(vocab_size=vocab_size, hidden_size=32, intermediate_size=64, num_hidden_layers=2)
    heads = dict(num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256, initializer_range=0.3)
    tokens = dict(tie_word_embeddings=False, eos_token_id=2, pad_token_id=0, bos_token_id=None)
    if architecture == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**sizes, **heads, **tokens, head_dim=16)).eval()
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, **tokens)).eval()


def save_model(folder: Path, architecture: str = "qwen3") -> Path:
    """Save a random model and its tokenizer; returns the folder."""
    tokenizer = small_tokenizer()
    small_model(architecture, vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
