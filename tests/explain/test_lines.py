"""Lines of the installed torch, without importing it, and links to them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel import distributed as ddp_module

from ddpviz.explain import installed, source
from ddpviz.explain.lines import ARTICLE_COMMIT, article_link, line_of, link, qualified

DDP = "torch/nn/parallel/distributed.py"


def test_the_installed_torch_is_the_one_that_is_imported() -> None:
    found = installed()
    assert found.version == str(torch.__version__)
    assert found.git == torch.version.git_version


def test_reading_torchs_lines_imports_no_torch() -> None:
    program = (
        "import sys; from ddpviz.explain import source, claims, entry;"
        f"assert source({DDP!r}, 'DistributedDataParallel.forward'); claims();"
        f"assert entry({DDP!r}, 'forward');"
        "assert not {'torch', 'bokeh', 'ipyparallel'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("DistributedDataParallel._pre_forward", DistributedDataParallel._pre_forward),
        ("DistributedDataParallel._sync_buffers", DistributedDataParallel._sync_buffers),
        ("DistributedDataParallel._inside_ddp_forward",
         inspect.unwrap(DistributedDataParallel._inside_ddp_forward)),
        ("_DDPSink.backward", ddp_module._DDPSink.backward),
        ("_find_tensors", ddp_module._find_tensors),
    ],
)  # fmt: skip
def test_lines_are_those_that_python_has(name: str, function: Any) -> None:
    lines, first = inspect.getsourcelines(function)
    found = source(DDP, name)
    assert found is not None
    assert (found.first_line, found.last_line) == (first, first + len(lines) - 1)
    for number, line in found.lines:
        assert line == lines[number - first].rstrip()


def test_a_docstring_is_left_out() -> None:
    found = source(DDP, "DistributedDataParallel.no_sync")
    assert found is not None
    text = "\n".join(line for _, line in found.lines)
    assert '"""' not in text and "require_backward_grad_sync" in text


def test_a_name_without_its_class_is_told_by_any_of_its_lines() -> None:
    wanted = source(DDP, "_DDPSink.forward")
    assert wanted is not None
    assert source(DDP, "forward") is None  # there are several
    assert source(DDP, "forward", wanted.first_line) == wanted
    assert source(DDP, "forward", wanted.last_line) == wanted
    assert qualified(DDP, "forward", wanted.first_line) == "_DDPSink.forward"
    assert qualified(DDP, "_DDPSink.forward", 1) == "_DDPSink.forward"


def test_what_torch_has_not_is_none() -> None:
    assert source(DDP, "nothing_like_it") is None
    assert source("torch/no/such/file.py", "forward") is None
    assert line_of(DDP, 0) == "" and line_of("torch/no/such/file.py", 3) == ""


def test_links_are_at_torchs_revision_and_at_the_articles() -> None:
    found = source(DDP, "DistributedDataParallel.forward")
    assert found is not None
    place = f"{DDP}#L{found.first_line}-L{found.last_line}"
    base = "https://github.com/pytorch/pytorch/blob"
    assert found.link == f"{base}/{torch.version.git_version}/{place}"
    assert link(DDP, 7).endswith("#L7")
    assert article_link(DDP, 1826) == f"{base}/{ARTICLE_COMMIT}/{DDP}#L1826"
    assert article_link(DDP, None) == f"{base}/{ARTICLE_COMMIT}/{DDP}"
