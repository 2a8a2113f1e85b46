"""Where the host's spans ran on a GPU: the kernels that each of them launched."""

from __future__ import annotations

import dataclasses

import numpy as np

from ddpviz.traces.columns import Category, Trace
from ddpviz.traces.comms import is_kernel


@dataclasses.dataclass(frozen=True)
class Kernels:
    """Kernels and copies that compute, with the moment and the thread that launched them."""

    launch_ns: np.ndarray
    thread: np.ndarray
    begin_ns: np.ndarray
    end_ns: np.ndarray

    def __len__(self) -> int:
        return len(self.launch_ns)

    def spans(
        self, begin_ns: np.ndarray, end_ns: np.ndarray, thread: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """First begin and last end of what each of the host's spans launched; 0 for nothing.

        The spans: in order, none inside another.
        """
        first = np.full(len(begin_ns), np.iinfo(np.int64).max)
        last = np.zeros(len(begin_ns), np.int64)
        if len(begin_ns):
            at = np.searchsorted(begin_ns, self.launch_ns, side="right") - 1
            place = np.maximum(at, 0)
            inside = (at >= 0) & (self.launch_ns <= end_ns[place])
            inside &= self.thread == thread[place]
            np.minimum.at(first, at[inside], self.begin_ns[inside])
            np.maximum.at(last, at[inside], self.end_ns[inside])
        return np.where(last > 0, first, 0), last

    def busy_ns(self, begin_ns: np.ndarray, end_ns: np.ndarray, thread: np.ndarray) -> int:
        """How long the kernels ran that the host's spans launched, all together."""
        if not len(begin_ns):
            return 0
        at = np.maximum(np.searchsorted(begin_ns, self.launch_ns, side="right") - 1, 0)
        inside = (self.launch_ns >= begin_ns[at]) & (self.launch_ns <= end_ns[at])
        inside &= self.thread == thread[at]
        return int((self.end_ns[inside] - self.begin_ns[inside]).sum())


def kernels(trace: Trace) -> Kernels:
    """None of them where the trace has no GPU's side, or doesn't say who launched what."""
    on_device = np.isin(trace.category, (Category.KERNEL, Category.COPY))
    on_device[trace.named(is_kernel)] = False
    device = np.flatnonzero(on_device & (trace.correlation >= 0))
    host = np.flatnonzero((trace.category == Category.RUNTIME) & (trace.correlation >= 0))
    if not len(device) or not len(host):
        nothing = np.zeros(0, np.int64)
        return Kernels(nothing, nothing, nothing, nothing)
    ids, first = np.unique(trace.correlation[host], return_index=True)
    host = host[first]
    at = np.minimum(np.searchsorted(ids, trace.correlation[device]), len(ids) - 1)
    known = ids[at] == trace.correlation[device]
    device, host = device[known], host[at[known]]
    return Kernels(
        trace.begin_ns[host],
        trace.thread[host].astype(np.int64),
        trace.begin_ns[device],
        trace.end_ns[device],
    )
