"""``python -m ddpviz.cli``: the command where its script is not on the PATH."""

import sys

from ddpviz.cli.main import main

sys.exit(main())
