"""Reads the command line, runs a subcommand, turns what goes wrong into one line and a status."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import ddpviz
from ddpviz.cli.commands import audit, claims, demo, explain, export, lab, pictures, show, slides
from ddpviz.cli.errors import CommandError
from ddpviz.printable import printable

#: Exit status of a command that could not do what was asked.
FAILED = 2
#: As a shell has it for a command that SIGINT ended.
INTERRUPTED = 130

_COMMANDS = (demo, show, audit, slides, pictures, explain, claims, export, lab)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage above it."""

    def error(self, message: str) -> NoReturn:
        self.exit(FAILED, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``ddpviz`` with these arguments (by default the process's own); return its exit status.

    0: done; 1: done, and the audit found something; 2: it could not be done, and stderr says why
    in one line; 130: interrupted.
    """
    options = _parser().parse_args(arguments)
    try:
        options.status = options.run(options) or options.status
        sys.stdout.flush()
    except CommandError as error:
        sentence = printable(" ".join(str(error).splitlines()))  # a path may have a newline
        print(f"ddpviz {options.command}: {sentence}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:  # before what follows: it is an OSError
        # The reader (head, less) has seen enough; nothing may be flushed to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.filename is not None:
            return _defect(options.command, error)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"ddpviz {options.command}: cannot print: {error.strerror}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"ddpviz {options.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        return _defect(options.command, error)
    return int(options.status)


def _defect(command: str, error: Exception) -> int:
    """What nobody thought of, in one line."""
    if os.environ.get("DDPVIZ_TRACEBACK"):
        traceback.print_exception(error)
        return FAILED
    said = printable(" ".join(f"{type(error).__name__}: {error}".split()))
    print(
        f"ddpviz {command}: could not go on ({said}): damaged files, or a defect of ddpviz; "
        "DDPVIZ_TRACEBACK=1 shows where",
        file=sys.stderr,
    )
    return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="ddpviz",
        description="Show what PyTorch's DistributedDataParallel really does, while it does it.",
        epilog="example: ddpviz demo --engines 2 --steps 20",
    )
    parser.add_argument("--version", action="version", version=f"ddpviz {ddpviz.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        subparser = commands.add_parser(
            command.NAME,
            help=command.SUMMARY,
            description=command.DESCRIPTION,
            epilog=f"example: {command.EXAMPLE}",
        )
        command.add_arguments(subparser)
        # A command whose reader goes away sets its status before it prints.
        subparser.set_defaults(run=command.run, status=0)
    return parser
