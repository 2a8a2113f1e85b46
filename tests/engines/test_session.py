"""A session on two real engines: load, run, configure, start, stop, restart."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import nn

import ddpviz
from ddpviz.engines import ConfigurationError, Session, SessionError, registry, shipping
from ddpviz.engines import cluster as clusters
from ddpviz.events import Cause, Configuration, Kind, Plan, Process
from tests.waiting import until


class Net(nn.Module):
    """Of this test's own, so that a class has to travel by value."""

    def __init__(self, width: int):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.layer(left) + self.layer(right))


def own(
    rank: int, world_size: int, device: torch.device, width: int = 8, say: str = ""
) -> tuple[nn.Module, Callable[[int], Any], Callable[[Any, Any], torch.Tensor]]:
    def batch(step: int) -> Any:
        if say:
            print(say, rank, step)
        return (torch.randn(4, width), torch.randn(4, width)), torch.randn(4, width)

    return Net(width), batch, lambda output, batch: (output - batch[1]).square().mean()


def last_configuration(session: Session) -> dict[str, Any]:
    return session.recording.notes(Configuration, rank=0)[-1].values


def test_run_records_every_step_of_every_rank_without_a_gap(session: Session) -> None:
    before = session.recording.last_step
    session.load("convnet", bucket_cap_mb=1).run(7)
    steps = session.recording.records(kinds=Kind.STEP)
    steps = steps[steps["step"] > before]
    assert {rank: int((steps["rank"] == rank).sum()) for rank in (0, 1)} == {0: 7, 1: 7}
    assert session.recording.missing == {}
    assert len(session.recording.records(kinds=Kind.GAP)) == 0


def test_what_is_in_memory_is_also_in_the_directory(session: Session) -> None:
    session.load("mlp").run(3)
    order = ("begin_ns", "kind", "index", "sequence")

    def same() -> bool:  # a completion that comes late leaves its rank with the next batch
        loaded = ddpviz.load(session.directory)
        return all(
            np.array_equal(
                np.sort(session.recording.records(ranks=rank), order=order),
                np.sort(loaded.records(ranks=rank), order=order),
            )
            for rank in (0, 1)
        )

    until(same)


def test_convnet_has_several_buckets_of_the_promised_sizes(session: Session) -> None:
    session.load("convnet", bucket_cap_mb=1).run(3)
    plan = session.recording.notes(Plan, rank=0)[-1]
    assert plan.reason == "rebuild"
    assert [round(bucket.bytes / 1e6, 1) for bucket in plan.buckets] == [2.4, 1.2, 0.4]


def test_the_same_seed_gives_the_same_parameters_and_replicas_are_equal(session: Session) -> None:
    session.load("convnet", bucket_cap_mb=1).run(6)
    first = session.checksums()
    session.load("convnet", bucket_cap_mb=1).run(6)
    assert first[0] == first[1]
    assert session.checksums() == first
    session.load("convnet", bucket_cap_mb=1).run(5)
    assert session.checksums() != first


def test_configure_says_what_it_did_and_weights_go_on(session: Session) -> None:
    session.load("convnet", bucket_cap_mb=1).run(3)
    before = session.checksums()
    assert session.configure(broadcast_buffers=False, gradient_as_bucket_view=True) == "re-wrapped"
    assert session.checksums() == before
    assert session.configure(forward_sync_buffers=False) == "nothing to change"
    begin = session.recording.last_step
    session.run(3)
    values = last_configuration(session)
    flag = "forward_sync_buffers" if "forward_sync_buffers" in values else "broadcast_buffers"
    assert values[flag] is False and values["gradient_as_bucket_view"] is True
    collectives = session.recording.records(kinds=Kind.COLLECTIVE_LAUNCHED)
    after = collectives[collectives["step"] > begin]
    assert Cause.BUCKET in after["cause"] and Cause.BUFFERS not in after["cause"]


def test_a_value_that_cannot_work_leaves_the_configuration_as_it_was(session: Session) -> None:
    session.load("mlp", bucket_cap_mb=1)
    with pytest.raises(ConfigurationError, match="expected a number above 0"):
        session.configure(bucket_cap_mb="much")
    session.run(2)
    assert last_configuration(session)["bucket_bytes_cap"] == 2**20


def test_knobs_that_take_parameters_take_their_names(session: Session) -> None:
    session.load("mlp")
    assert (
        session.configure(
            delay_all_reduce_named_params=["0.weight"], param_to_hook_all_reduce="0.bias"
        )
        == "re-wrapped"
    )
    session.run(2)


def test_a_background_run_goes_on_until_stopped_and_takes_changes(session: Session) -> None:
    session.load("mlp")
    begin = session.recording.last_step
    session.start()
    assert "2 ranks, training" in repr(session)
    with pytest.raises(SessionError, match="call stop"):
        session.run(1)
    with pytest.raises(SessionError, match="call stop"):
        session.load("mlp")
    assert session.configure(static_graph=True) == "re-wrapped"
    session.stop()
    end = session.recording.last_step
    assert last_configuration(session)["static_graph"] is True
    session.run(1)  # and nothing trained in between
    assert session.recording.last_step == end + 1 > begin
    session.stop()  # nothing runs: fine


def test_a_function_and_classes_of_a_script_run_on_the_engines(
    session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    session.load(own, width=16, say="hello").run(2)
    out = capfd.readouterr().out.splitlines()
    for rank in (0, 1):
        assert [f"[rank {rank}] hello {rank} {step}" for step in (0, 1)] == [
            line for line in out if line.startswith(f"[rank {rank}]")
        ]


def test_an_unknown_option_names_the_known_ones(session: Session) -> None:
    with pytest.raises(ConfigurationError, match="did you mean width"):
        session.load(own, widht=3)


def test_a_taken_directory_is_refused(session: Session) -> None:
    with pytest.raises(SessionError, match="found a recording in"):
        Session(directory=session.directory)


def test_restart_begins_the_workload_anew_in_the_same_recording(session: Session) -> None:
    session.load("mlp").run(3)
    first, pids, last = session.checksums(), session.pids, session.recording.last_step
    lives = len(session.recording.notes(Process, rank=0))  # other tests' restarts among them
    session.restart().run(3)
    assert session.checksums() == first
    assert not set(session.pids.values()) & set(pids.values())
    assert session.recording.last_step == last + 3
    assert len(session.recording.notes(Process, rank=0)) == lives + 1
    assert ddpviz.load(session.directory).last_step == last + 3


def test_before_a_load_and_after_a_close_the_next_step_is_named(tmp_path: Path) -> None:
    session = Session(engines=1, directory=tmp_path / "a")
    assert session.id in [one.session for one in registry.read()]
    with pytest.raises(SessionError, match=r'call load\("convnet"\)'):
        session.run(1)
    session.load("mlp").start()
    session.close()  # while it trains
    session.close()
    with pytest.raises(SessionError, match="closed"):
        session.load("mlp")
    assert session.status().status == "closed"
    assert session.predict(bucket_cap_mb=1).refused is not None
    assert session.id not in [one.session for one in registry.read()]
    assert ddpviz.load(tmp_path / "a").remarks == ()
    assert not list((tmp_path / "a").glob("*.ring"))


def test_something_that_is_no_cluster_is_refused() -> None:
    with pytest.raises(SessionError, match="an ipyparallel Cluster, a Client or a profile"):
        Session(cluster=3)
    with pytest.raises(SessionError, match="a whole number from 1 on"):
        Session(engines=0)


def where(rank: int, world_size: int, device: torch.device) -> Any:
    """Says which Python this is: the executable's own file is every environment's."""
    print("prefix", sys.prefix)
    return own(rank, world_size, device)


def test_the_engines_run_this_python(session: Session, capfd: pytest.CaptureFixture[str]) -> None:
    session.load(where)
    said = [line for line in capfd.readouterr().out.splitlines() if "prefix" in line]
    assert sorted(said) == [f"[rank {rank}] prefix {sys.prefix}" for rank in (0, 1)]


def test_a_local_session_listens_on_the_loopback_interface_only(session: Session) -> None:
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = {
        (process.pid, connection.laddr.ip)
        for process in family
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    # Among them the store's, on rank 0, which asks nobody for a password.
    assert {ip for _, ip in listening} == {"127.0.0.1"}
    assert set(session.pids.values()) <= {pid for pid, _ in listening}
    client = session._crew.engines.client
    assert client.session.key and client.session.signature_scheme == "hmac-sha256"


def test_the_batch_that_leaving_ends_with_is_counted_and_sent_again(
    others: clusters.Engines, tmp_path: Path
) -> None:
    with Session(engines=1, cluster=others.client, directory=tmp_path / "a") as session:
        session.load("mlp").run(2)
        crew = session._crew
        before = crew.call("options", lambda rank: (shipping.workload("mlp"),))[0].report
        left = crew.call("leave")[0].report
        assert before is not None and left is not None and left.problem is None
        assert left.sent >= before.sent > 0
        (again,) = crew.call("again", lambda rank: ([left.sent - 1],)).values()
        assert again.report is not None and len(again.report.value) == 1
        # All that the rank's file has is also here.
        on_disk = ddpviz.load(tmp_path / "a")
        assert len(on_disk) == len(session.recording) and session.recording.missing == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"engines": "2"}, "found engines='2'"),
        ({"engines": True}, "found engines=True"),
        ({"engines": 2.5}, "found engines=2.5"),
        ({"backend": "mpi"}, "found backend='mpi', expected one of nccl, gloo"),
        ({"level": "nope"}, "found level='nope', expected one of summary, default"),
        ({"directory": b"x"}, "found directory=b'x', expected a path"),
        ({"directory": __file__}, "found a file at "),
        ({"cluster": "no-such-profile"}, "found no profile 'no-such-profile'"),
    ],
)
def test_what_cannot_be_started_is_refused_before_anything_is(given: Any, said: str) -> None:
    with pytest.raises(SessionError) as caught:
        Session(**given)
    assert str(caught.value).startswith(said)
