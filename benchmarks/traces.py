"""What reading traces costs: an 8-rank set, loaded and its overlap told, beside named peers.

Run: ``python benchmarks/traces.py TRACE [--mb 900] [--hta PYTHON] [--traceinsight PYTHON]``, with
TRACE a GPU trace of some steps, and PYTHON that of an environment with HolisticTraceAnalysis or
traceinsight in it. The set is made from TRACE: copies of it one after the other, and these for
every rank, its clock 1 ms behind the rank's before. Each reads it in a process of its own; CPU time
is user and system of all its threads and children. Goals: 12 s of CPU, 1 GB, overlap within 0.1
percentage points of the peers'; time and memory in proportion to the set.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

RANKS = 8
APART_US = 1000.0

OURS = """
import json, sys
from ddpviz.traces import read
from ddpviz.traces.shares import share
found = read(sys.argv[1])
shares = map(share, found.runs)
print(json.dumps({"overlap": {str(one.rank): 100 * one.overlap for one in shares},
                  "offset_us": [clock.offset_ns / 1e3 for clock in found.clocks],
                  "steps": len(found.recording.steps())}))
"""

#: As one would write it: orjson's own objects, numpy for the sweep.
PLAIN = """
import json, pathlib, sys
import numpy as np, orjson

def union(spans):
    spans = np.array(sorted(spans)).reshape(-1, 2)
    reached = np.maximum.accumulate(spans[:, 1])
    first = np.r_[True, spans[1:, 0] > reached[:-1]]
    starts = np.flatnonzero(first)
    return float((reached[np.r_[starts[1:] - 1, len(spans) - 1]] - spans[starts, 0]).sum())

overlap = {}
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    trace = orjson.loads(path.read_bytes())
    kernels = [e for e in trace["traceEvents"] if e.get("cat") == "kernel"]
    sides = ([], [])
    for e in kernels:
        sides[e["name"].startswith("nccl")].append((e["ts"], e["ts"] + e["dur"]))
    both = union(sides[0]) + union(sides[1]) - union(sides[0] + sides[1])
    overlap[str(trace["distributedInfo"]["rank"])] = 100 * both / union(sides[1])
print(json.dumps({"overlap": overlap}))
"""

#: traceinsight is HTA's successor, under the same module name. By default both round times to µs,
#: which makes spans shorter, and leave the last profiler step out.
PEER = """
import json, os, sys
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
table = analysis.get_comm_comp_overlap(visualize=False)
overlap = zip(table["rank"], table["comp_comm_overlap_pctg"])
print()
print(json.dumps({"overlap": {str(rank): float(part) for rank, part in overlap}}))
"""


def make(source: Path, folder: Path, megabytes: float) -> float:
    """Writes the set; its size in MB."""
    packed = source.read_bytes()
    root = msgspec.json.decode(gzip.decompress(packed) if source.suffix == ".gz" else packed)
    events = [event for event in root.pop("traceEvents") if event.get("ph") in ("X", "M")]
    timed = [event for event in events if event["ph"] == "X" and event.get("cat") != "Trace"]
    others = [event for event in events if event["ph"] == "M"]
    begin = min(event["ts"] for event in timed)
    length = max(event["ts"] + event["dur"] for event in timed) - begin + 1000.0
    one = len(msgspec.json.encode(timed))
    copies = max(1, round(megabytes * 1e6 / RANKS / one))
    steps = sum(event["name"].startswith("ProfilerStep#") for event in timed)
    host = sum(event["name"].startswith("ProfilerStep#") for event in timed
               if event["cat"] == "user_annotation")  # fmt: skip
    encoder, size = msgspec.json.Encoder(), 0
    for rank in range(RANKS):
        root["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": RANKS}
        path = folder / f"trace.rank{rank}.json"
        with path.open("wb") as file:
            # The peers find a rank only where a blank is before it.
            file.write(json.dumps(root).encode()[:-1] + b',"traceEvents":[')
            file.write(encoder.encode(others)[1:-1])
            for copy in range(copies):
                shift = copy * length + rank * APART_US
                moved = [_moved(event, shift, copy, host or steps) for event in timed]
                file.write(b"," + encoder.encode(moved)[1:-1])
            file.write(b"]}")
        size += path.stat().st_size
    return size / 1e6


def _moved(event: dict[str, Any], shift: float, copy: int, steps: int) -> dict[str, Any]:
    """The event in another copy: later, with ids and a step number of its own."""
    moved = {**event, "ts": round(event["ts"] + shift, 3)}
    if event["name"].startswith("ProfilerStep#"):
        moved["name"] = f"ProfilerStep#{int(event['name'][13:]) + copy * steps}"
    if "args" in event:
        args = moved["args"] = dict(event["args"])
        for name in ("correlation", "External id"):
            if isinstance(args.get(name), int):
                args[name] += copy * 1_000_000
        if "Process Group Ranks" in args:
            args["Process Group Ranks"] = str(list(range(RANKS)))
    return moved


def measured(python: str, program: str, folder: Path) -> tuple[dict[str, Any], float, float, float]:
    """What a program prints as its last line; CPU seconds, seconds, and MB at most."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    wrapped = (
        f"{program}\nimport resource, sys\n"
        "peak = max(resource.getrusage(who).ru_maxrss"
        " for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))\n"
        "print(peak / 1e3)\n"
    )
    done = subprocess.run(
        [python, "-c", wrapped, str(folder)], capture_output=True, text=True, check=True
    )
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    *_, found, peak = done.stdout.splitlines()
    return json.loads(found), cpu, seconds, float(peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--mb", type=float, nargs="+", default=[450.0, 900.0])
    parser.add_argument("--hta", help="python of an environment with HolisticTraceAnalysis")
    parser.add_argument("--traceinsight", help="python of an environment with traceinsight")
    options = parser.parse_args()
    contestants = {"ddpviz": (sys.executable, OURS), "orjson + sweep": (sys.executable, PLAIN)}
    for size in options.mb:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            print(f"{RANKS} ranks, {make(options.trace, folder, size):.0f} MB")
            if size == options.mb[-1]:
                if options.hta:
                    contestants["HTA"] = options.hta, PEER
                if options.traceinsight:
                    contestants["traceinsight"] = (
                        options.traceinsight, PEER
                    )  # fmt: skip
            ours: dict[str, Any] = {}
            for name, (python, program) in contestants.items():
                found, cpu, seconds, peak = measured(python, program, folder)
                ours = ours or found
                apart = max(
                    abs(ours["overlap"][rank] - part) for rank, part in found["overlap"].items()
                )
                print(
                    f"  {name:15} {cpu:6.1f} s CPU {seconds:6.1f} s {peak:6.0f} MB  overlap of "
                    f"rank 0 {found['overlap']['0']:.3f} %, at most {apart:.4f} points from ours"
                )
            if "offset_us" in ours:
                print(f"  offsets found: {ours['offset_us']} µs, {ours['steps']} steps of ranks")


if __name__ == "__main__":
    main()
