"""Learning curves as SVG."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

SMOOTH = 5
"""Updates averaged into one point of the thick line."""


def learning_curves(logs: Mapping[str, Path]) -> str:
    """Draw the success rate of training rollouts against the update.

    Args:
        logs: Training log (CSV with columns ``update`` and ``success_rate``) by method.

    Returns:
        An SVG element: a thin line per method, and a thick one averaged over `SMOOTH` updates.
    """
    import matplotlib as mpl
    import pandas as pd
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "curves", "font.size": 9}):
        figure = Figure(figsize=(7, 3), layout="constrained")
        axes = figure.add_subplot()
        for i, (method, path) in enumerate(logs.items()):
            log = pd.read_csv(path)
            axes.plot(log["update"], 100 * log["success_rate"], color=f"C{i}", alpha=0.3, linewidth=1)
            smooth = 100 * log["success_rate"].rolling(SMOOTH, min_periods=1).mean()
            axes.plot(log["update"], smooth, color=f"C{i}", linewidth=2, label=method)
        axes.set(xlabel="update", ylabel="success of training rollouts, %")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :]
