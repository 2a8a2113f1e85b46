"""``attach`` that is refused, or fails on its way, leaves a directory that the next one can use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fidelity import scenarios
from tests.ranks import run_ranks


def refused_then_right(rank: int, world_size: int, out: str, how: str) -> str:
    import ddpviz
    from ddpviz.probe import Recorder

    modules = scenarios.build("plain")
    wrong, right = {"level": "everything"}, Path(out)
    adopt = Recorder.adopt
    if how == "half attached":  # fails once files, ring and patches are there

        def adopt_once(recorder: Recorder, module: object) -> None:
            adopt(recorder, module)
            raise MemoryError("no room for this module")

        Recorder.adopt, wrong = adopt_once, {}  # type: ignore[method-assign]
    try:
        ddpviz.attach(modules[0], out, **wrong)  # type: ignore[arg-type]
        said = "nothing"
    except (ValueError, MemoryError) as error:
        said = str(error)
    Recorder.adopt = adopt  # type: ignore[method-assign]
    assert not list(right.glob("rank-*")), list(right.iterdir())
    with ddpviz.attach(modules[0], out):
        scenarios.train("plain", rank, modules, 3)
    return said


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("unknown level", "found level 'everything', expected one of summary, default, detail"),
        ("half attached", "no room for this module"),
    ],
)
def test_a_refused_attach_leaves_the_directory_to_the_next(
    tmp_path: Path, how: str, sentence: str
) -> None:
    import ddpviz

    out = tmp_path / "run"
    assert run_ranks(refused_then_right, 1, str(out), how) == [sentence]
    assert ddpviz.load(out).last_step == 2


def test_an_unknown_level_makes_no_directory(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run_ranks(only_refused, 1, str(out))
    assert not out.exists()


def only_refused(rank: int, world_size: int, out: str) -> None:
    import ddpviz

    with pytest.raises(ValueError, match="found level"):
        ddpviz.attach(scenarios.build("plain")[0], out, level="everything")
