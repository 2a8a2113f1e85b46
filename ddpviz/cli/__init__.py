"""The command ``ddpviz``: one module per subcommand in ``commands``, all text made in ``text``.

May import everything above it; nothing imports the CLI. What is heavy loads when a command runs.
"""

from ddpviz.cli.main import main

__all__ = ["main"]
