"""What the store costs: appending, writing, memory and windows, each beside a named peer.

Run: ``python benchmarks/recording.py [--events 10000000]``. Two made-up ranks, 13,000 events a
second, batches of 500. Goals: 1 M events/s in, memory bounded, 5 ms a window at 10 M events.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ddpviz.events import RECORD, Batch, Kind
from ddpviz.recording import RankWriter, Recording, load

BATCH = 500
RANKS = 2
EVENT_NS = 77_000
EPOCH_NS = 1_700_000_000_000_000_000
REPEATS = 9


def template(rank: int) -> np.ndarray:
    """One batch: five steps of 100 events, 64 of them gradients; spans recorded at their end."""
    random = np.random.default_rng(rank)
    records = np.zeros(BATCH, RECORD)
    recorded_ns = EPOCH_NS + np.cumsum(random.integers(1, 2 * EVENT_NS * RANKS, BATCH))
    place = np.arange(BATCH) % 100
    records["begin_ns"] = recorded_ns - np.where(
        place < 64, 0, random.integers(0, 5_000_000, BATCH)
    )
    records["end_ns"] = recorded_ns
    records["begin_ns"][place == 99] -= 15_000_000  # the step itself
    records["bytes"] = random.choice([4096, 65_536, 1 << 20], BATCH)
    records["step"] = records["iteration"] = np.arange(BATCH) // 100
    records["index"] = place
    records["sequence"] = np.where(place < 64, -1, np.arange(BATCH))
    records["kind"] = np.where(place < 64, Kind.GRAD_READY, random.choice([17, 20, 32, 33], BATCH))
    records["kind"][place == 99] = Kind.STEP
    records["rank"], records["group"] = rank, np.where(place < 64, 255, 0)
    return records


def batches(events: int) -> Iterator[Batch]:
    """The stream of both ranks, in turns."""
    templates = [template(rank) for rank in range(RANKS)]
    for number in range(events // BATCH // RANKS):
        for rank, rows in enumerate(templates):
            records = rows.copy()
            shift_ns = number * BATCH * RANKS * EVENT_NS
            records["begin_ns"] += shift_ns
            records["end_ns"] += shift_ns
            records["step"] += number * 5
            records["iteration"] += number * 5
            yield Batch(rank, number, records)


def rate(take: Callable[[Batch], Any], sent: list[Batch]) -> tuple[float, float]:
    """Events per second: median and lowest of REPEATS parts of the stream."""
    rates = []
    for part in np.array_split(np.arange(len(sent)), REPEATS):
        begin = time.perf_counter()
        for number in part:
            take(sent[number])
        rates.append(len(part) * BATCH / (time.perf_counter() - begin))
    return statistics.median(rates), min(rates)


def spent_ms(query: Callable[[int, int], Any], windows: list[tuple[int, int]]) -> list[float]:
    """Time of each window."""
    times = []
    for window in windows:
        begin = time.perf_counter()
        query(*window)
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def line(what: str, value: str, peer: str = "") -> None:
    print(f"{what:<44} {value:<38} {peer}", flush=True)


def frame_of(records: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({name: records[name] for name in RECORD.names or ()})


def appending(events: int) -> None:
    sent = list(batches(min(events, 1_000_000)))
    ours, lowest = rate(Recording().append, sent)
    frames: list[pd.DataFrame] = []
    theirs, _ = rate(lambda batch: frames.append(frame_of(batch.records)), sent)
    line(
        "into memory",
        f"{ours / 1e6:.1f} M events/s (lowest {lowest / 1e6:.1f})",
        f"pandas, a frame per batch: {theirs / 1e6:.1f} M; {ours / theirs:.1f} times as fast",
    )
    with tempfile.TemporaryDirectory() as folder:
        parquet = pq.ParquetWriter(Path(folder) / "peer.parquet", table_of(sent[0]).schema)
        theirs, _ = rate(lambda batch: parquet.write_table(table_of(batch)), sent)
        parquet.close()
        for compression in ("lz4", "zstd"):
            target = Path(folder) / compression
            writers = [RankWriter(target, rank, compression) for rank in range(RANKS)]

            def write(batch: Batch, writers: list[RankWriter] = writers) -> None:
                writers[batch.rank](batch)

            cpu = time.process_time()
            ours, lowest = rate(write, sent)
            cpu = (time.process_time() - cpu) / len(sent) * 1e6
            size = sum(path.stat().st_size for path in target.glob("*.arrow"))
            line(
                f"to disk, {compression}",
                f"{ours / 1e6:.1f} M events/s (lowest {lowest / 1e6:.1f})",
                f"pyarrow Parquet, a row group per batch: {theirs / 1e6:.2f} M; "
                f"{ours / theirs:.1f} times as fast",
            )
            line("", f"{size / len(sent) / BATCH:.1f} bytes per event, {cpu:.0f} µs CPU per batch")
            for writer in writers:
                writer.close()
            begin = time.perf_counter()
            count = len(load(target))
            line("", f"read back at {count / (time.perf_counter() - begin) / 1e6:.1f} M events/s")


def table_of(batch: Batch) -> pa.Table:
    names = list(RECORD.names or ())
    return pa.table([np.ascontiguousarray(batch.records[name]) for name in names], names=names)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def memory(events: int, bound: int) -> Recording:
    before = resident_mb()
    recording = Recording(bound)
    for batch in batches(events):
        recording.append(batch)
    line(
        f"memory after {events / 1e6:g} M events, bound {bound / 1e6:g} M",
        f"{recording.memory_bytes / 1e6:.0f} MB ({resident_mb() - before:.0f} MB resident)",
        f"{len(recording):,} kept, {recording.dropped:,} dropped",
    )
    return recording


def windows(recording: Recording) -> None:
    frame = frame_of(recording.records())
    random = np.random.default_rng(0)

    def mask(begin_ns: int, end_ns: int) -> pd.DataFrame:
        ends = np.maximum(frame["begin_ns"], frame["end_ns"])
        return frame[(frame["begin_ns"] <= end_ns) & (ends >= begin_ns)]

    for width_s in (0.015, 0.1, 1.0, 10.0):
        width_ns = int(width_s * 1e9)
        begins = random.integers(recording.begin_ns, recording.end_ns - width_ns, 200)
        spans = [(int(begin), int(begin) + width_ns) for begin in begins]
        ours = spent_ms(recording.window, spans)
        theirs = spent_ms(mask, spans[:REPEATS])
        found = statistics.median(len(recording.window(*span)) for span in spans)
        assert len(mask(*spans[0])) == len(recording.window(*spans[0]))
        median, peer = statistics.median(ours), statistics.median(theirs)
        line(
            f"window of {width_s:g} s ({found:,.0f} records)",
            f"{median:.2f} ms (p95 {np.quantile(ours, 0.95):.2f})",
            f"pandas, mask over one frame: {peer:.0f} ms; {peer / median:.0f} times as fast",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--events", type=int, default=10_000_000)
    events = parser.parse_args().events
    memory(events, bound=1_000_000)  # first: what is freed later would hide in the resident size
    windows(memory(events, bound=2 * events))
    appending(events)


if __name__ == "__main__":
    main()
