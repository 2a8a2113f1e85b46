"""A comparison that was never run, for what shows one."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ddpviz.analysis.compare import Comparison


def compared(name: str) -> Comparison:
    """Three configurations, the second called ``name``, the third refused."""
    columns = {
        "configuration": ["one", name, "no"],
        "place": pd.array([1, 2, None], "Int64"),
        "step_ms": [10.0, 20.0, np.nan],
        "step_ms_low": [9.0, 19.0, np.nan],
        "step_ms_high": [11.0, 21.0, np.nan],
        "hidden_communication_ms": [5.0, np.nan, np.nan],
        "exposed_communication_ms": [1.0, 2.0, np.nan],
        "collectives": [3.0, 4.0, 0.0],
        "bytes": [1024.0, 2048.0, 0.0],
        "refused": ["", "", "torch says no"],
    }
    return Comparison(pd.DataFrame(columns), "from the fastest: one, then the other")
