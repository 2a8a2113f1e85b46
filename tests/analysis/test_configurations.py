"""Which setting a plan belongs to."""

from __future__ import annotations

from ddpviz import analysis
from ddpviz.events import Bucket, Configuration, Module, Plan
from tests.analysis.material import at_ns, described


def test_a_module_that_was_made_again_names_the_setting() -> None:
    source = described((0,), 1)
    values = {"bucket_bytes_cap": 2**20, "first_bucket_bytes_cap": 2**20, "comm_hook": ""}
    changed = [
        values,
        values | {"bucket_bytes_cap": 2**21, "first_bucket_bytes_cap": 2**21},
        values | {"comm_hook": "fp16_compress_hook"},
        values | {"comm_hook": "fp16_compress_hook"},
    ]
    for module, these in enumerate(changed):
        if module:
            source.note(0, Module(module, "Net", (), (), ()))
            bucket = Bucket((0,), 4, None)
            source.note(0, Plan(module, 0, 0, at_ns(module), "construction", (bucket,)))
        source.note(0, Configuration(module, 0, at_ns(module), these))
    table = analysis.plans(source).drop_duplicates("module")
    assert table["changed"].tolist() == [
        "",
        "bucket_cap_mb 1 → 2",
        "bucket_cap_mb 2 → 1, comm_hook none → fp16_compress_hook",
        "made again with the same settings",
    ]
