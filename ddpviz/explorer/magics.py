"""``%load_ext ddpviz``: cells on the ranks (``%%ddp``), ``%ddp_status``, ``%ddp_stop``."""

from __future__ import annotations

import threading
from collections.abc import Callable

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from ddpviz.engines import Session
from ddpviz.engines.execution import Execution, Output
from ddpviz.explorer import registry
from ddpviz.explorer.cells import Transcript, errors_text
from ddpviz.explorer.controls import sentence
from ddpviz.explorer.subject import Subject


class CellFailed(RuntimeError):
    """A rank's code raised: its traceback stands in the cell's output already."""

    def _render_traceback_(self) -> list[str]:
        """IPython asks for it: no second traceback, through what ran the cell."""
        return [f"{type(self).__name__}: {self}"]


@magics_class
class DDPMagics(Magics):
    """The magics; they act on the kernel's one session, or on that named with --session."""

    @magic_arguments()
    @argument("--ranks", default="", help="ranks to run on, as 0,1; by default all")
    @argument("--session", default="", help="id of the session; needed where there are several")
    @argument(
        "--blocking", action="store_true", help="wait until all ranks are done, and raise errors"
    )
    @cell_magic
    def ddp(self, line: str, cell: str) -> None:
        """Run the cell on the engines, with rank, world_size, device and session in place.

        It returns at once; what the ranks print appears below as it comes. Any
        DistributedDataParallel that is built there is recorded.
        """
        arguments = parse_argstring(self.ddp, line)
        session = _session(arguments.session)
        ranks = _ranks(arguments.ranks)
        if not registry.inside_kernel():
            # A terminal cannot write an output anew: the lines come as they are, and it waits.
            _wait(_execute(session, cell, ranks, None), print)
            return
        handle = display(_Text(""), display_id=True)
        transcript = Transcript(lambda text: handle.update(_Text(text)))
        execution = _execute(session, cell, ranks, transcript.write)
        if arguments.blocking:
            _wait(execution, transcript.finish)
        else:
            _when_done(execution, transcript)

    @line_magic
    def ddp_status(self, line: str) -> None:
        """What every session of this kernel is doing, rank by rank."""
        found = [one for one in registry.subjects() if not one.is_recording]
        print("\n\n".join(map(_status, found)) or "no session: make one with ddpviz.Session()")

    @magic_arguments()
    @argument("--session", default="", help="id of the session; needed where there are several")
    @line_magic
    def ddp_stop(self, line: str) -> None:
        """End what runs: cells on the ranks, and training after the step that runs."""
        session = _session(parse_argstring(self.ddp_stop, line).session)
        try:
            session.stop()
        except Exception as error:
            raise UsageError(sentence(error)) from None
        print("stopped")


class _Text:
    """Text in an output; the errors of ranks are among it, so it is not cut."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _execute(
    session: Session, cell: str, ranks: list[int] | None, output: Output | None
) -> Execution:
    try:
        return session.execute(cell, ranks, output)
    except Exception as error:
        raise UsageError(sentence(error)) from None


def _wait(execution: Execution, finish: Callable[[str], None]) -> None:
    try:
        while not execution.wait(0.1):
            pass
    except KeyboardInterrupt:
        execution.cancel()
        finish("cancelled")
        raise
    text = errors_text(execution.errors)
    finish(text)
    if text:
        raise CellFailed(text.splitlines()[0]) from None


def _when_done(execution: Execution, transcript: Transcript) -> None:
    def wait() -> None:
        execution.wait()
        transcript.finish(errors_text(execution.errors))

    threading.Thread(target=wait, name="ddpviz-cell", daemon=True).start()


def _session(id: str) -> Session:
    found = [one for one in registry.subjects() if not one.is_recording]
    if id:
        found = [one for one in found if one.id == id]
    session = found[0].session if len(found) == 1 else None
    if session is None:
        there = ", ".join(one.id for one in registry.subjects() if not one.is_recording)
        if not there:
            raise UsageError("found no session, expected one: session = ddpviz.Session(engines=2)")
        raise UsageError(f"found the sessions {there}: name one of them with --session")
    return session


def _ranks(given: str) -> list[int] | None:
    if not given.strip():
        return None
    try:
        return [int(part) for part in given.split(",")]
    except ValueError:
        raise UsageError(f"found --ranks {given}, expected numbers as 0,1") from None


def _status(subject: Subject) -> str:
    state = subject.state()
    parts = [state["session"], state["name"], state["backend"], state["status"]]
    if state["step"] >= 0:
        parts.append(f"step {state['step']}")
    if state["steps_per_second"] is not None and state["status"] == "training":
        parts.append(f"{state['steps_per_second']:.3g} steps/s")
    if state["exposed_share"] is not None:
        parts.append(f"{state['exposed_share']:.0%} exposed communication")
    lines = [" · ".join(part for part in parts if part)]
    lines += [text for text in (state["reason"], state["title"], state["hint"]) if text]
    for one in state["ranks"]:
        where = f"pid {one['pid']} on {one['hostname']}, {one['device']}"
        lines.append(f"  rank {one['rank']}: {one['state']} ({where})")
    return "\n".join(lines)


def load(shell: InteractiveShell) -> None:
    """Register the magics, the comm targets, and how a session is displayed."""
    shell.register_magics(DDPMagics)
    if registry.inside_kernel():
        from ddpviz.explorer.comms import register_targets
        from ddpviz.explorer.display import show_sessions

        register_targets()
        show_sessions(shell)
