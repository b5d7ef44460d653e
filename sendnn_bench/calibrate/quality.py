"""How well a profile fits the steps it was fitted to, overall and by region."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sendnn_bench.calibrate.data import MS_PER_S, Floats, Mask
from sendnn_bench.calibrate.steps import MeasuredStep
from sendnn_bench.cost_formula import NS_PER_MS, Work, formula_of
from sendnn_bench.profile_spec import Costs

REGIONS = 4
"""Each phase is shown in up to so many parts of about equally many steps."""


@dataclass(frozen=True)
class Fit:
    """Relative errors (measured over predicted, less 1) of one group of steps, as fractions."""

    region: str
    steps: int
    measured_ms: float
    mean: float
    mean_size: float
    p95_size: float
    worst: float


def ratios(steps: Sequence[MeasuredStep], works: Sequence[Work], costs: Costs) -> Floats:
    """Measured over predicted cost of each step."""
    formula = formula_of(costs)
    measured = np.array([step.duration_s * MS_PER_S for step in steps])
    predicted = np.array([formula(work) / NS_PER_MS for work in works])
    return np.asarray(measured / np.maximum(predicted, 1e-9))


def fits(steps: Sequence[MeasuredStep], works: Sequence[Work], ratio: Floats) -> list[Fit]:
    """Fit of each phase, followed by its regions."""
    measured = np.array([step.duration_s * MS_PER_S for step in steps])
    context = np.array([work.token_context / max(1, work.chunk_tokens) for work in works])
    batch = np.array([work.batch for work in works], dtype=np.float64)
    tkv = np.array([work.tkv for work in works], dtype=np.float64)
    prefill: Mask = np.array([bool(step.chunks) for step in steps])
    mixed: Mask = prefill & (batch > 0)
    plan = (
        ("prefill chunks", prefill & ~mixed, (("context", context),)),
        ("mixed steps", mixed, (("context", context), ("batch", batch))),
        ("decode steps", ~prefill, (("batch", batch), ("tkv", tkv))),
    )
    found = []
    for name, mask, quantities in plan:
        if not mask.any():
            continue
        found.append(_fit(name, measured[mask], ratio[mask]))
        for quantity, values in quantities:
            for label, part in _regions(values, mask):
                found.append(_fit(f"  {quantity} {label}", measured[part], ratio[part]))
    return found


def _fit(region: str, measured_ms: Floats, ratio: Floats) -> Fit:
    error = ratio - 1.0
    size = np.abs(error)
    return Fit(
        region=region,
        steps=len(error),
        measured_ms=float(measured_ms.mean()),
        mean=float(error.mean()),
        mean_size=float(size.mean()),
        p95_size=float(np.percentile(size, 95)),
        worst=float(error[np.argmax(size)]),
    )


def _regions(values: Floats, mask: Mask) -> Iterator[tuple[str, Mask]]:
    """Masks of the parts of a phase by a quantity, each with its range; none where it is one."""
    chosen = values[mask]
    edges = np.unique(np.percentile(chosen, np.linspace(0, 100, REGIONS + 1), method="lower"))
    if len(edges) < 2:
        return
    # The highest value gets a part of its own only where the edges are the values themselves.
    distinct = np.unique(chosen)
    starts = distinct if len(distinct) <= REGIONS else edges[:-1]
    for index, low in enumerate(starts):
        high = starts[index + 1] if index + 1 < len(starts) else np.inf
        part = mask & (values >= low) & (values < high)
        top = values[part].max()
        yield (f"{low:g}" if low == top else f"{low:g} to {top:g}"), part


def render(found: Sequence[Fit]) -> str:
    """A plain table; errors in percent of the predicted cost."""
    head = f"{'error in % of the fit':<30}{'steps':>8}{'mean ms':>11}"
    lines = [head + f"{'mean':>8}{'|mean|':>8}{'|P95|':>8}{'worst':>9}"]
    for fit in found:
        shown = (fit.mean, fit.mean_size, fit.p95_size)
        cells = "".join(f"{100 * value:>8.2f}" for value in shown)
        lines.append(
            f"{fit.region:<30}{fit.steps:>8}{fit.measured_ms:>11.3f}{cells}{100 * fit.worst:>9.2f}"
        )
    return "\n".join(lines)
