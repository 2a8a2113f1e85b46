"""A JupyterLab of a test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.servers import running


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """Its address; its folder is ``tmp_path / "root"``, its log ``tmp_path / "server.log"``."""
    home = tmp_path / "home" / "lab"
    settings = home / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
    with running(
        tmp_path,
        "jupyterlab",
        # Tests run commands by their ids.
        "--LabApp.expose_app_in_browser=True",
        f"--LabApp.user_settings_dir={home / 'user-settings'}",
        f"--LabApp.workspaces_dir={home / 'workspaces'}",
    ) as address:
        yield address
