"""Kernels: one that all tests here may use and leave as it was, or one of a test's own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

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


@pytest.fixture(scope="package")
def shared() -> Iterator[KernelManager]:
    """A kernel in which, between tests, nothing is announced."""
    with running_kernel() as manager:
        yield manager
