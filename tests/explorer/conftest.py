"""A kernel of its own for the tests that talk to one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.explorer.front import Front

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def running_kernel() -> Iterator[KernelManager]:
    """A kernel with the repository as its folder, ended in any case."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(ROOT))
    try:
        yield manager
    finally:
        manager.shutdown_kernel(now=True)


@contextlib.contextmanager
def connected(manager: KernelManager) -> Iterator[BlockingKernelClient]:
    """A client of the kernel."""
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        yield client
    finally:
        client.stop_channels()


@pytest.fixture
def kernel() -> Iterator[KernelManager]:
    with running_kernel() as manager:
        yield manager


@pytest.fixture
def front(kernel: KernelManager) -> Iterator[Front]:
    with connected(kernel) as client:
        yield Front(client)
