"""Settings for all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# Nothing may be fetched by a test: what is not on the disk is missing, at once.
os.environ["HF_HUB_OFFLINE"] = "1"

# A busy machine is no failure.
settings.register_profile("agentbench", deadline=None)
settings.load_profile("agentbench")
