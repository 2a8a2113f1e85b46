"""Traces recorded once for all tests of this folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.ranks import run_ranks
from tests.traces.recorded import record, record_odd


@pytest.fixture(scope="session")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with MODE.rank0.json and MODE.rank1.json of every mode of ``recorded``."""
    folder = tmp_path_factory.mktemp("traces")
    run_ranks(record, 2, str(folder))
    return folder


@pytest.fixture(scope="session")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what ``recorded.record_odd`` names: runs in which something is to be found."""
    folder = tmp_path_factory.mktemp("odd")
    run_ranks(record_odd, 2, str(folder))
    return folder


@pytest.fixture(scope="session")
def handed_over() -> Path:
    """A folder of real traces of others: gpu_nccl_ddp_rank0of2, cpu_gloo_ddp_rank{0,1}of2."""
    said = os.environ.get("DDPVIZ_TRACES", "")
    if not said or not Path(said).is_dir():
        pytest.skip("DDPVIZ_TRACES names no folder of traces")
    return Path(said)
