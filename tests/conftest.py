"""For all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Ctrl-C is tested on child processes, which inherit an ignored SIGINT.

    A shell that starts this run in its background ignores it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
