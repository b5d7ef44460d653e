"""What surrounds the steps: host time between them, frontend time, and noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sendnn_bench.calibrate.data import MS_PER_S, Floats, Mask, tidy
from sendnn_bench.calibrate.steps import MeasuredRun
from sendnn_bench.profile_spec import Frontend, Host, Noise

NEGLIGIBLE_MS = 1e-3
"""Terms below a microsecond are rounding, not time."""

MIN_REQUESTS = 5
"""Fewer requests give no typical value."""

MAX_RATIOS = 256
"""Ratios kept of each phase: enough for a P99, few enough to read past."""

EXACT = 1e-6
"""Ratios this near to 1 are rounding, not noise."""


def host_of(runs: Sequence[MeasuredRun]) -> Host | None:
    """``h0 + h1 * batch`` from the gaps between steps; None where there are none."""
    from scipy.optimize import nnls

    gaps = np.array([gap for run in runs for gap in run.gaps]).reshape(-1, 2)
    gaps_ms = gaps[:, 1] * MS_PER_S
    if len(gaps) < MIN_REQUESTS or gaps_ms.mean() < NEGLIGIBLE_MS:
        return None
    batch = gaps[:, 0]
    columns = [np.ones_like(batch)] + ([batch] if len(np.unique(batch)) > 1 else [])
    found = nnls(np.column_stack(columns), gaps_ms)[0]
    return Host(*(tidy(value) for value in found))


def frontend_of(runs: Sequence[MeasuredRun]) -> Frontend | None:
    """Typical times of a request on its way in and of a token on its way out.

    The way in is the queue wait of requests that found the engine idle. The way out is what the
    client's TTFT has beyond queue wait and prefill, less the host time that the simulation already
    adds to the step; the hop from the client to the server is part of it.
    """
    entry = [value for run in runs for value in run.entry_s]
    transit = [value for run in runs for value in run.transit_s]
    gaps = [gap for run in runs for _, gap in run.gaps]
    host_ms = float(np.mean(gaps)) * MS_PER_S if gaps else 0.0
    request_ms = _typical_ms(entry)
    token_ms = max(0.0, _typical_ms(transit) - host_ms)
    if max(request_ms, token_ms) < NEGLIGIBLE_MS:
        return None
    terms = (request_ms, token_ms)
    return Frontend(*(tidy(value) if value >= NEGLIGIBLE_MS else 0.0 for value in terms))


def _typical_ms(values_s: Sequence[float]) -> float:
    enough = len(values_s) >= MIN_REQUESTS
    return max(0.0, float(np.median(values_s)) * MS_PER_S) if enough else 0.0


def noise_of(ratio: Floats, prefill: Mask, seed: int) -> Noise | None:
    """Ratios of measured to predicted cost, by phase; None where the fit is exact."""
    parts = [_kept(ratio[prefill]), _kept(ratio[~prefill])]
    return Noise(seed, *parts) if any(parts) else None


def _kept(ratio: Floats) -> tuple[float, ...]:
    """All ratios in order, or as many at equal shares; their mean stays what it was."""
    if not len(ratio) or np.abs(ratio - 1.0).max() < EXACT:
        return ()
    ordered = np.sort(ratio)
    if len(ordered) > MAX_RATIOS:
        # Means of equal shares, not picks: the tail keeps its weight and the whole its mean.
        edges = np.linspace(0, len(ordered), MAX_RATIOS + 1)
        total = np.concatenate([[0.0], np.cumsum(ordered)])
        at_edges = np.interp(edges, np.arange(len(total)), total)
        ordered = np.diff(at_edges) / np.diff(edges)
    return tuple(round(float(value), 5) for value in ordered)
