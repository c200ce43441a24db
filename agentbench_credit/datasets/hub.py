"""Sets from the Hugging Face hub: turned into items once, and held to the hash of that first time."""

from __future__ import annotations

import json
from pathlib import Path

from agentbench_credit.cache import atomic_write_text, cache_dir
from agentbench_credit.datasets.catalogue import DataSet, Hub
from agentbench_credit.datasets.items import Item, items_sha256, make_items, read_items_file
from agentbench_credit.errors import DataSetError


def find_hub_items(dataset: DataSet) -> tuple[Path, str] | None:
    """Return the file of items that was fetched from the hub and its hash; None if nothing was fetched.

    Args:
        dataset: The set.

    Returns:
        The file and the hash of its items.

    Raises:
        DataSetError: The file is not what was fetched.
    """
    file, record = _paths(dataset)
    if not (file.is_file() and record.is_file()):
        return None
    try:
        expected = json.loads(record.read_text("utf-8"))["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataSetError("not a record of a fetch", where=str(record), mend="remove it and fetch again") from error
    if (found := items_sha256(read_items_file(dataset.name, file))) != expected:
        raise DataSetError(
            "the items have changed since they were fetched", where=str(file), mend="remove it and fetch again"
        )
    return file, found


def fetch_hub_items(dataset: DataSet, hub: Hub) -> None:
    """Fetch a set and keep its items.

    Args:
        dataset: The set.
        hub: Where it is.

    Raises:
        DataSetError: It cannot be had, or has another number of items or other columns.
    """
    from huggingface_hub import hf_hub_download

    try:
        path = Path(hf_hub_download(hub.repo, hub.file, repo_type="dataset"))
    except Exception as error:  # the library has many kinds for one thing
        reason = " ".join(str(error).split())[:200]
        raise DataSetError(f"cannot be fetched ({type(error).__name__}: {reason})", where=str(hub)) from error
    items = _converted(dataset, hub, path)
    if len(items) != dataset.items:
        raise DataSetError(f"{len(items)} items, expected {dataset.items}", where=f"{hub}, {hub.file}")
    file, record = _paths(dataset)
    atomic_write_text(file, "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items))
    parts = path.parts  # …/snapshots/REVISION/FILE
    revision = parts[parts.index("snapshots") + 1] if "snapshots" in parts else ""
    kept = {"repo": hub.repo, "file": hub.file, "revision": revision, "sha256": items_sha256(items)}
    atomic_write_text(record, json.dumps(kept, indent=2) + "\n")


def _converted(dataset: DataSet, hub: Hub, path: Path) -> tuple[Item, ...]:
    import pandas as pd

    frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_json(path, lines=True, dtype=False)
    if missing := {hub.problem, hub.answer} - set(frame.columns):
        what = f"no column {', '.join(sorted(missing))}; there are {', '.join(map(str, frame.columns))}"
        raise DataSetError(what, where=f"{hub}, {hub.file}")
    return make_items(dataset.name, zip(frame[hub.problem], frame[hub.answer], strict=True))


def _paths(dataset: DataSet) -> tuple[Path, Path]:
    folder = cache_dir() / "hub"
    return folder / f"{dataset.name}.jsonl", folder / f"{dataset.name}.json"
