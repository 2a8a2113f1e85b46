"""What a demonstration may do with a session: load, train, act on the ranks between steps."""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ddpviz.engines import Session
from ddpviz.engines.errors import SessionError


class Stage:
    """Around an idle session, for as long as one demonstration runs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.ranks = session.status().world_size
        self._sampled, self._every = False, session.fingerprints_every

    def load(self, workload: str | Callable[..., Any], **configuration: Any) -> None:
        """As ``Session.load``: what was configured before holds no longer."""
        self._session.load(workload, **configuration)

    def build(self, workload: str, **configuration: Any) -> None:
        """Load a function of :mod:`ddpviz.demonstrations.workloads`, by its name."""
        self.load(_named("workloads", workload), **configuration)

    def comm_hook(self, name: str) -> Callable[..., Any]:
        """A function of :mod:`ddpviz.demonstrations.comm_hooks`."""
        return _named("comm_hooks", name)

    def configure(self, **configuration: Any) -> None:
        """As ``Session.configure``."""
        self._session.configure(**configuration)

    def train(self, steps: int) -> None:
        """So many steps. Raises SessionError where somebody stopped them."""
        before = self._session.status().step
        self._session.run(steps)
        done = self._session.status().step - before
        if done != steps:
            raise SessionError(
                f"the demonstration was stopped after {done} of {steps} steps: nothing can be "
                "shown of it, run it again"
            )

    def fingerprints(self) -> None:
        """Have every step hash its tensors until the demonstration ends."""
        self._sampled = True
        self._session.fingerprints(every=1)

    def act(self, name: str, **arguments: Any) -> None:
        """Run a function of :mod:`ddpviz.demonstrations.acts` on all ranks, and wait.

        Its first argument is the rank's own part of the session. Raises SessionError with what a
        rank raised.
        """
        given = "".join(f", {one}={value!r}" for one, value in arguments.items())
        code = (
            f"from ddpviz.demonstrations.acts import {name} as _act\n_act(session{given})\ndel _act"
        )
        execution = self._session.execute(code)
        try:
            execution.wait()
        except BaseException:
            execution.cancel()
            execution.wait()
            raise
        for rank, problem in sorted(execution.errors.items()):
            raise SessionError(f"rank {rank} could not do its part: {problem.message}")

    def leave(self) -> None:
        """Leave the session as it was but for its workload."""
        if self._sampled and self._session.failure is None:
            self._session.fingerprints(every=self._every)


def _named(module: str, name: str) -> Callable[..., Any]:
    # Not before it is needed: these modules import torch.
    function: Callable[..., Any] = getattr(_imported(f"ddpviz.demonstrations.{module}"), name)
    return function


def _imported(name: str) -> ModuleType:
    """A module, imported whole: torch that Ctrl-C has cut cannot be imported again."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        return importlib.import_module(name)
    held: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    try:
        return importlib.import_module(name)
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            signal.raise_signal(signal.SIGINT)
