"""Checkpoints: loadable, whole or absent, and what a full disk leaves behind."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from agentbench_credit.errors import TrainingError
from agentbench_credit.policy.transformers import TransformersPolicy, load_policy
from agentbench_credit.trainers.local.checkpoint import (
    FOLDER,
    STATE_FILE,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)
from models import small_model, small_tokenizer


def policy_with_history() -> tuple[TransformersPolicy, torch.optim.Optimizer]:
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        torch.stack([p.square().sum() for p in model.parameters()]).sum().backward()
        optimizer.step()
    return TransformersPolicy(model, small_tokenizer(), "small"), optimizer


def test_a_checkpoint_is_a_loadable_folder_and_restores_everything(tmp_path: Path) -> None:
    policy, optimizer = policy_with_history()
    path = save_checkpoint(tmp_path, 50, policy, {"optimizer": optimizer}, [])
    assert path.name == "update-000050"
    loaded = load_policy(str(path), device="cpu")
    assert loaded.tokenizer.chat_template == policy.tokenizer.chat_template
    fresh = small_model(seed=3)
    fresh_optimizer = torch.optim.AdamW(fresh.parameters(), lr=0.5)
    assert load_checkpoint(path, fresh, {"optimizer": fresh_optimizer}) == 50
    for a, b, c in zip(policy.model.parameters(), fresh.parameters(), loaded.model.parameters(), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
    before, after = optimizer.state_dict(), fresh_optimizer.state_dict()
    assert before["param_groups"] == after["param_groups"]
    for index, state in before["state"].items():
        assert all(torch.equal(value, after["state"][index][name]) for name, value in state.items())


def test_the_last_two_are_kept_and_the_newest_is_found(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "none") is None
    policy, optimizer = policy_with_history()
    for updates in (5, 10, 1_000_000, 999_999):
        save_checkpoint(tmp_path, updates, policy, {"optimizer": optimizer}, [])
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["update-1000000", "update-999999"]
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.name == "update-1000000"


def test_incomplete_checkpoints_are_ignored_and_cleared(tmp_path: Path) -> None:
    policy, optimizer = policy_with_history()
    whole = save_checkpoint(tmp_path, 5, policy, {"optimizer": optimizer}, [])
    (whole.parent / "update-000006").mkdir()
    (whole.parent / ".update-000007.tmp").mkdir()
    (whole.parent / ".update-000007.tmp" / STATE_FILE).write_bytes(b"half")
    (whole.parent / "notes").mkdir()
    assert newest_checkpoint(tmp_path) == whole
    save_checkpoint(tmp_path, 6, policy, {"optimizer": optimizer}, [])
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["notes", "update-000005", "update-000006"]


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    policy, optimizer = policy_with_history()
    path = save_checkpoint(tmp_path, 5, policy, {"optimizer": optimizer}, [])
    data = (path / STATE_FILE).read_bytes()
    (path / STATE_FILE).write_bytes(data[: len(data) // 2])
    with pytest.raises(TrainingError, match=r"update-000005: the checkpoint is damaged .* remove this folder"):
        load_checkpoint(path, small_model(), {"optimizer": optimizer})


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Make writing fail in the middle of a file, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("share", [0.5, 1.5], ids=["weights", "optimiser"])
def test_a_full_disk_is_one_line_and_leaves_the_earlier_checkpoint(tmp_path: Path, share: float) -> None:
    policy, optimizer = policy_with_history()
    earlier = save_checkpoint(tmp_path, 5, policy, {"optimizer": optimizer}, [])
    weights = (earlier / "model.safetensors").stat().st_size
    with no_file_larger_than(int(share * weights)), pytest.raises(TrainingError, match="cannot be written") as caught:
        save_checkpoint(tmp_path, 6, policy, {"optimizer": optimizer}, [])
    assert "\n" not in str(caught.value)
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["update-000005"]
    assert load_checkpoint(earlier, policy.model, {"optimizer": optimizer}) == 5


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    policy, optimizer = policy_with_history()
    with pytest.raises(TrainingError, match="cannot be written"):
        save_checkpoint(tmp_path / "file" / "run", 1, policy, {"optimizer": optimizer}, [])
