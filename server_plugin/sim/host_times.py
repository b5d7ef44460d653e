"""Where the host's real time goes, step by step. Measured always; charged only on request."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager

PHASES = {
    "schedule": "the scheduler decides",
    "prepare": "input batch and input tensors, less the mocked model",
    "mock": "the mocked model",
    "sample": "logits processors and sampler",
    "update": "the scheduler takes the tokens",
    "between": "outputs on their way, the gate, and waiting for grants and requests",
}
"""Phases of a step, in order; a lean runner has all of its own work in `prepare`."""

OVERHEAD = ("schedule", "prepare", "update")
"""What `measured` host overhead charges: the mock stands for the device, `between` is ours."""


class HostTimes:
    """Real nanoseconds by phase, one entry per step and phase."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything, for a new session."""
        self._ns = {phase: array("q") for phase in PHASES}
        self._uncharged_ns = 0
        self._step_ended_ns = 0

    def add(self, phase: str, ns: int) -> None:
        """A phase of a step took this long."""
        self._ns[phase].append(ns)
        if phase in OVERHEAD:
            self._uncharged_ns += ns

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure a phase."""
        began_ns = time.perf_counter_ns()
        yield
        self.add(name, time.perf_counter_ns() - began_ns)

    def step_begins(self, began_ns: int) -> None:
        """A step began to be scheduled: what passed since the last one lies between them."""
        if self._step_ended_ns:
            self.add("between", began_ns - self._step_ended_ns)

    def step_ended(self) -> None:
        """Called after a step's update."""
        self._step_ended_ns = time.perf_counter_ns()

    def take_uncharged_ns(self) -> int:
        """Overhead since the last call: this step's, and the update of the one before."""
        ns, self._uncharged_ns = self._uncharged_ns, 0
        return ns

    def summary(self) -> dict[str, dict[str, float]]:
        """Mean and P99 in µs, and the total in s, of each phase that was measured."""
        return {phase: _summary(values) for phase, values in self._ns.items() if values}


def now_ns() -> int:
    """Host time, for a phase whose parts are measured in different places."""
    return time.perf_counter_ns()


def _summary(values: array[int]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "mean_us": round(sum(values) / len(values) / 1e3, 3),
        "p99_us": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] / 1e3, 3),
        "total_s": round(sum(values) / 1e9, 6),
    }
