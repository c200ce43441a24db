"""Models from wheels: a small GGUF file, made here, is converted once and computes what its numbers say."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from agentbench_credit.datasets import DATASETS, fetch
from agentbench_credit.datasets.catalogue import DataSet, Wheel
from agentbench_credit.datasets.wheels import file_sha256
from agentbench_credit.errors import ModelError
from agentbench_credit.policy import models
from agentbench_credit.policy.gguf import wheel_model
from agentbench_credit.policy.transformers import load_policy

gguf = pytest.importorskip("gguf", reason="pip install 'agentbench-credit[gguf]'")

HIDDEN, HEADS, WORDS = 64, 2, ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *map(chr, range(97, 123)), "Ġ", "ab"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"


def write_gguf(file: Path) -> np.ndarray:
    """Write a llama of one layer with random weights; returns its embedding."""
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, 3] + [1] * (len(WORDS) - 3))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    embedding = rng.normal(size=(len(WORDS), HIDDEN)).astype(np.float32)
    tensors = {"token_embd.weight": embedding, "output_norm.weight": np.ones(HIDDEN, np.float32)}
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        tensors[f"blk.0.{name}.weight"] = rng.normal(size=(HIDDEN, HIDDEN)).astype(np.float32) / 8
    for name in ("attn_norm", "ffn_norm"):
        tensors[f"blk.0.{name}.weight"] = np.ones(HIDDEN, np.float32)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return embedding


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A model in a wheel that lies in the data folder."""
    monkeypatch.setenv("AGENTBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("AGENTBENCH_DATA", str(tmp_path))
    wheel = tmp_path / "wheels" / "toy_model-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    write_gguf(tmp_path / "toy.gguf")
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(tmp_path / "toy.gguf", "toy_model/toy.gguf")
    source = Wheel("toy-model", "1.0", file_sha256(wheel))
    monkeypatch.setitem(DATASETS, "Toy", DataSet("Toy", "model", "1.0", "none", 1, (source,)))
    monkeypatch.setitem(models.HUB_IDS, "Toy", "nobody/toy")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return "Toy"


def test_a_known_name_is_converted_once_and_holds_the_files_numbers(
    toy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = load_policy(toy)
    assert capsys.readouterr().out == "converting toy.gguf to safetensors, once\n"
    expected = torch.from_numpy(write_gguf(tmp_path / "again.gguf")).to(torch.bfloat16).float()
    assert torch.equal(policy.model.get_input_embeddings().weight, expected)
    assert policy.tokenizer.chat_template == TEMPLATE
    assert policy.tokenizer.decode(policy.tokenizer.encode("cab", add_special_tokens=False)) == "cab"
    load_policy(toy)
    assert capsys.readouterr().out == "", "not converted again"


def test_a_broken_file_is_one_typed_error_and_leaves_nothing(toy: str, tmp_path: Path) -> None:
    path = fetch(toy).path
    (path / "toy_model" / "toy.gguf").write_bytes(b"GGUF but not really")
    with pytest.raises(ModelError, match=r"toy\.gguf: cannot be converted"):
        wheel_model(toy)
    assert not list((tmp_path / "cache" / "models").iterdir())


def test_a_name_without_a_wheel_here_is_left_to_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTBENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("AGENTBENCH_DATA", str(tmp_path))
    assert wheel_model("SmolLM2-135M-Instruct") is None
    assert wheel_model("Qwen3-4B") is None
