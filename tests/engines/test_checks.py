"""What a configuration may be, worked out without an engine; knobs, predictions, the registry."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ddpviz.engines import checks, guard, prediction, registry
from ddpviz.engines.errors import ConfigurationError
from ddpviz.engines.knobs import all_knobs
from ddpviz.engines.settings import Built, Facts, Settings
from ddpviz.engines.status import Listeners

ARGUMENTS = (
    "module",
    "bucket_cap_mb",
    "bucket_cap_mb_list",
    "static_graph",
    "find_unused_parameters",
    "mixed_precision",
    "delay_all_reduce_named_params",
    "param_to_hook_all_reduce",
    "broadcast_buffers",
    "forward_sync_buffers",
)
MLP = Settings("ddpviz.engines.workloads.mlp", "mlp")
OPTIONS = ("layers", "width", "batch_size")


def facts(device: str = "cpu", batchnorm: bool = False) -> Facts:
    defaults = {"layers": 32, "width": 256, "batch_size": 64}
    return Facts(ARGUMENTS, 2, device, Built(("0.weight", "0.bias"), batchnorm, defaults))


def change(settings: Settings = MLP, device: str = "cpu", **values: Any) -> prediction.Change:
    return prediction.change(settings, values, facts(device), OPTIONS)


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"bucket_cap_mb": -3}, "found bucket_cap_mb=-3, expected a number above 0"),
        ({"bucket_cap_mb": 0}, "found bucket_cap_mb=0, expected a number above 0"),
        ({"bucket_cap_mb": "x"}, "found bucket_cap_mb='x', expected a number above 0"),
        ({"bucket_cap_mb": True}, "found bucket_cap_mb=True, expected a number above 0"),
        ({"bucket_cap_mb": float("inf")}, "found bucket_cap_mb=inf, expected a number above 0"),
        ({"bucket_cap_mb": 1e14}, "found bucket_cap_mb=100000000000000.0, expected at most"),
        ({"bucket_cap_mb_list": [1, -1]}, "expected numbers above 0 in it"),
        ({"bucket_cap_mb_list": []}, "expected a list of numbers above 0, or None"),
        ({"broadcast_buffers": "maybe"}, "'maybe', expected True or False"),
        ({"static_graph": None}, "found static_graph=None, expected True or False"),
        ({"accumulation": 0}, "found accumulation=0, expected a whole number from 1"),
        ({"accumulation": 1.5}, "found accumulation=1.5, expected a whole number from 1"),
        ({"comm_hook": "fp8"}, "expected None, 'allreduce', 'fp16', 'powersgd' or a function"),
        ({"steps_per_second": 0}, "expected a number above 0, or None for no limit"),
        ({"delay_ms": 30}, "expected milliseconds from 0 to 2000 by rank"),
        ({"delay_ms": {2: 30}}, "found delay_ms for rank 2, expected ranks 0 to 1"),
        ({"delay_ms": {1: -1}}, "expected milliseconds from 0 to 2000 by rank"),
        ({"batch_size": 0}, "found batch_size=0, expected a whole number from 1 on"),
        ({"width": "wide"}, "found width='wide', expected a whole number from 1 on"),
        ({"sync_batchnorm": True}, "SyncBatchNorm runs on GPUs only"),
        ({"mixed_precision": "float16"}, "the ranks are on the CPU"),
        ({"mixed_precision": "float8"}, "expected None, 'float16' or 'bfloat16'"),
        ({"static_graph": True, "accumulation": 2}, "exclude each other"),
        ({"param_to_hook_all_reduce": "0.bias"}, "go together"),
        (
            {"param_to_hook_all_reduce": "0.bias", "delay_all_reduce_named_params": ["1.bias"]},
            "found the parameter name '1.bias', which the model does not have",
        ),
        ({"nonsense": 1}, "found the unknown name 'nonsense'"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_in_one_sentence(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        change(**values)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 450


def test_what_two_changes_would_make_together_is_refused_too() -> None:
    settings = change(static_graph=True).settings
    with pytest.raises(ConfigurationError, match="first iteration of a static graph"):
        change(settings, accumulation=2)
    with pytest.raises(ConfigurationError, match="a comm hook itself"):
        change(device="cuda:0", mixed_precision="float16", comm_hook="fp16")


def test_a_change_says_what_it_takes() -> None:
    assert change(bucket_cap_mb=1).outcome() == "re-wrapped"
    assert change(accumulation=2).outcome() == "from the next step"
    assert change(comm_hook="fp16", delay_ms={1: 5}).outcome() == (
        "re-wrapped and from the next step"
    )
    assert change(batch_size=8, bucket_cap_mb=1).outcome() == "reloaded"
    assert change(accumulation=1, comm_hook=None).outcome() == "nothing to change"
    assert "weights stay" in change(bucket_cap_mb=1).needs()
    assert "begin anew" in change(batch_size=8).needs()


def test_what_a_browser_sends_is_taken() -> None:
    settings = change(delay_ms={"0": 0, "1": 50}, comm_hook="none", accumulation=2.0).settings
    assert settings.delay_ms == {1: 50.0}
    assert settings.comm_hook is None
    assert settings.accumulation == 2 and isinstance(settings.accumulation, int)
    assert change(delay_ms=[0, 20]).settings.delay_ms == {1: 20.0}


def test_a_users_own_options_are_theirs_to_check() -> None:
    own = Settings(b"packed", "own")
    assert prediction.change(own, {"width": "wide"}, facts(), ("width",)).settings.options == {
        "width": "wide"
    }
    with pytest.raises(ConfigurationError, match="a name that the session has itself"):
        prediction.change(own, {}, facts(), ("width", "accumulation"))


def test_of_what_torch_says_the_first_sentence_is_kept() -> None:
    with pytest.raises(TypeError) as caught:
        torch.distributed.Reducer([torch.ones(1)], "x")  # what DDP's constructor runs into
    assert len(str(caught.value).splitlines()) > 3
    said = checks.first_sentence(str(caught.value))
    assert said == "__init__(): incompatible constructor arguments"


@pytest.mark.parametrize("given", [0, -1, "a", 1.5, True, None])
def test_a_number_of_steps_is_whole_and_at_least_one(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="found steps=.* a whole number from 1 on"):
        checks.steps(given)


# --- knobs ---------------------------------------------------------------------------------------


def test_every_knob_takes_the_value_it_shows_and_says_what_it_does() -> None:
    found = all_knobs(MLP, facts())
    names = [knob.name for knob in found]
    assert len(set(names)) == len(names)
    assert {"forward_sync_buffers", "bucket_cap_mb", "comm_hook", "workload", "batch_size"} <= {
        *names
    }
    assert "broadcast_buffers" not in names  # the same flag
    for knob in found:
        assert knob.explanation.endswith(".") and knob.needs, knob.name
        if knob.kind == "choice":
            assert knob.choices is not None and knob.value in knob.choices
        if knob.disabled is None and knob.name != "workload":
            change(**{knob.name: knob.value})


def test_a_knob_that_cannot_work_here_says_why() -> None:
    def disabled(device: str, batchnorm: bool) -> str | None:
        found = all_knobs(MLP, facts(device, batchnorm))
        return next(knob.disabled for knob in found if knob.name == "sync_batchnorm")

    assert "GPUs only" in (disabled("cpu", True) or "")
    assert "no BatchNorm layer" in (disabled("cuda:0", False) or "")
    assert disabled("cuda:0", True) is None
    listed = dataclasses.replace(MLP, ddp={"bucket_cap_mb_list": [1]})
    cap = next(knob for knob in all_knobs(listed, facts()) if knob.name == "bucket_cap_mb")
    assert cap.disabled == "bucket_cap_mb_list takes its place"


def test_a_function_of_the_users_is_shown_by_its_name() -> None:
    def my_hook(state: Any, bucket: Any) -> Any: ...

    found = all_knobs(dataclasses.replace(MLP, comm_hook=my_hook), facts())
    knob = next(knob for knob in found if knob.name == "comm_hook")
    assert knob.value.endswith("my_hook") and knob.value in (knob.choices or ())


# --- listeners and the registry ------------------------------------------------------------------


def test_listeners_are_told_until_they_end_it_whatever_others_raise() -> None:
    listeners, told = Listeners(), [0]

    def count() -> None:
        told[0] += 1

    def broken() -> None:
        raise RuntimeError

    end = listeners.add(count)
    listeners.add(broken)
    again = listeners.add(count)
    listeners.tell()
    assert told == [2]
    end()
    end()
    listeners.tell()
    assert told == [3] and listeners.any()
    again()


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path / "runtime" / "ddpviz"


def test_a_registered_session_is_read_back_and_nobody_else_may(runtime: Path) -> None:
    ranks = [registry.RegisteredRank(0, os.getpid(), guard.start_ticks(os.getpid()), "here")]
    registry.write("s1-1", ranks, [os.getpid()], 5.0)
    (one,) = registry.read()
    assert (one.session, one.kernel_pid, one.kernel_id) == ("s1-1", os.getpid(), None)
    assert one.ranks == tuple(ranks) and one.started == 5.0
    assert one.launchers[0].ticks == guard.start_ticks(os.getpid())
    (path,) = runtime.glob("*")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    registry.remove("s1-1")
    registry.remove("s1-1")
    assert registry.read() == [] and not [*runtime.glob("*")]


def test_sessions_of_dead_kernels_go_and_those_of_other_machines_stay(runtime: Path) -> None:
    for name in ("dead", "elsewhere", "live"):
        registry.write(name, [], [], 0.0)
    for name, key, value in (("dead", "kernel_ticks", 1), ("elsewhere", "kernel_host", "other")):
        path = runtime / f"{name}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    (runtime / "broken.json").write_text("{")
    assert [one.session for one in registry.read()] == ["live"]
    assert {path.stem for path in runtime.glob("*.json")} == {"elsewhere", "live", "broken"}


def test_the_registry_is_read_without_torch_and_ipyparallel() -> None:
    code = (
        "import sys; from ddpviz.engines import registry; registry.read();"
        "print(sorted({'torch', 'ipyparallel', 'IPython'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=True,
    )
    assert done.stdout.strip() == "[]"
