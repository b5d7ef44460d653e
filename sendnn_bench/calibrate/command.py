"""`sendnn-bench calibrate`: results in, a cost profile and a verdict on it out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sendnn_bench import __version__
from sendnn_bench.calibrate import linear, quality
from sendnn_bench.calibrate.data import Floats, Mask, Observed, observe, tidy, works_of
from sendnn_bench.calibrate.steps import MeasuredRun, MeasuredStep, recover
from sendnn_bench.calibrate.surroundings import frontend_of, host_of, noise_of
from sendnn_bench.calibrate.table import fit_table
from sendnn_bench.cost_formula import Work
from sendnn_bench.errors import UsageError
from sendnn_bench.profile import dump
from sendnn_bench.profile_spec import ConstantCosts, Costs, Domain, LinearCosts, Profile, Range
from sendnn_bench.results import Result, load, write_atomically


@dataclass(frozen=True)
class Options:
    """How to fit. ``drop`` names terms of the linear profile that are 0."""

    kind: str = "linear"
    chunk_size_tokens: int | None = None
    drop: tuple[str, ...] = ()
    noise: bool = True
    seed: int = 0
    name: str = ""


@dataclass(frozen=True)
class Calibration:
    """A fitted profile, its fit by region, and what to know about the data."""

    profile: Profile
    fits: tuple[quality.Fit, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Candidate:
    """One way to count prefill chunks, fitted."""

    padded_chunk_tokens: int | None
    costs: Costs
    works: list[Work]
    ratio: Floats

    @property
    def error(self) -> float:
        """Mean size of the relative error, rounded so that equal fits compare equal."""
        return round(float(np.abs(self.ratio - 1.0).mean()), 9)


def calibrate(results: Sequence[Result], options: Options = Options()) -> Calibration:
    """Fit one profile to all results together.

    Raises:
        ResultError: a result from which no steps can be recovered.
        UsageError: too little data, or data that cannot tell a term that was asked for.
    """
    _check(options)
    runs = [recover(result, options.chunk_size_tokens) for result in results]
    steps = [step for run in runs for step in run.steps]
    best = min(
        (_candidate(steps, padded, options) for padded in _ways(runs)),
        key=lambda candidate: candidate.error,
    )
    prefill = np.array([bool(step.chunks) for step in steps])
    host = host_of(runs)
    profile = Profile(
        name=options.name or _name(results),
        source=_source(results, prefill, best),
        costs=best.costs,
        padded_chunk_tokens=best.padded_chunk_tokens,
        host=host,
        frontend=frontend_of(runs),
        noise=noise_of(best.ratio, prefill, options.seed) if options.noise else None,
        domain=_domain(best.works),
    )
    return Calibration(
        profile=profile,
        fits=tuple(quality.fits(steps, best.works, best.ratio)),
        notes=tuple(_notes(results, runs)),
    )


def run_calibrate(paths: Sequence[Path], output: Path | None, options: Options) -> tuple[str, str]:
    """The command: (text of the profile, report for people). Writes ``output`` where given.

    Raises:
        ResultError: a file that cannot be read or written.
        UsageError: as `calibrate`.
    """
    found = calibrate([load(path) for path in paths], options)
    text = dump(found.profile)
    if output is not None:
        write_atomically(output, text)
    report = [quality.render(found.fits), *(f"note: {note}" for note in found.notes)]
    return text, "\n".join(report) + "\n"


def _check(options: Options) -> None:
    unknown = [name for name in options.drop if name not in linear.DROPPABLE]
    if unknown:
        raise UsageError(
            f"--drop {unknown[0]} is not a term that can be left out; those are "
            f"{', '.join(linear.DROPPABLE)}."
        )


def _ways(runs: Sequence[MeasuredRun]) -> list[int | None]:
    """Ways to count prefill chunks that the data allow: by their tokens, or as whole chunks."""
    sizes = {run.chunk_size_tokens for run in runs}
    whole = [run.whole_chunks for run in runs]
    single = all(len(step.chunks) <= 1 for run in runs for step in run.steps)
    padded = next(iter(sizes)) if len(sizes) == 1 else None
    pure = all(not (step.chunks and step.decode_batch) for run in runs for step in run.steps)
    if any(whole) and padded is None:
        raise UsageError(
            f"the runs have prefill chunks of different sizes ({sorted(map(str, sizes))} tokens); "
            "calibrate them one by one."
        )
    ways: list[int | None] = [] if any(whole) else [None]
    return [*ways, padded] if padded is not None and single and pure else ways


def _candidate(steps: Sequence[MeasuredStep], padded: int | None, options: Options) -> _Candidate:
    works = works_of(steps, padded)
    observed = observe(steps, works)
    linear.check_amount(observed)
    # A chunk that always counts as whole has one size: its cost is all in p0 by definition.
    dropped = {*options.drop, *(("p1",) if padded is not None else ())}
    costs = FITTERS[options.kind](observed, dropped)
    return _Candidate(padded, costs, works, quality.ratios(steps, works, costs))


def _fit_constant(observed: Observed, _: Collection[str]) -> Costs:
    """Means, so that a whole run takes as long as it did."""

    def mean(part: Observed) -> float:
        return float(part.ms.mean())

    means = (mean(observed.where(mask)) for mask in (observed.prefill, ~observed.prefill))
    return ConstantCosts(*(tidy(value) for value in means))


def _fit_linear(observed: Observed, dropped: Collection[str]) -> Costs:
    untold = linear.untold(observed, dropped)
    if untold:
        lines = "; ".join(untold.values())
        flags = " ".join(f"--drop {name}" for name in untold)
        raise UsageError(
            f"the data cannot tell {', '.join(untold)}: {lines}. Or leave out what is unknown, as "
            f"costs that are 0: {flags}."
        )
    return linear.fit_linear(observed, dropped)


def _fit_table(observed: Observed, dropped: Collection[str]) -> Costs:
    return fit_table(observed, _told_line(observed, set(dropped)))


def _told_line(observed: Observed, dropped: set[str]) -> LinearCosts:
    """Linear fit of what the data tell."""
    while untold := linear.untold(observed, dropped):
        dropped |= set(untold)
    return linear.fit_linear(observed, dropped)


FITTERS: dict[str, Callable[[Observed, Collection[str]], Costs]] = {
    "constant": _fit_constant,
    "linear": _fit_linear,
    "table": _fit_table,
}


def _domain(works: Sequence[Work]) -> Domain:
    def span(values: Sequence[float]) -> Range | None:
        return (float(min(values)), float(max(values))) if values else None

    chunks = [work for work in works if work.chunk_tokens]
    decodes = [work for work in works if work.batch]
    return Domain(
        chunk_tokens=span([work.chunk_tokens for work in chunks]),
        context_tokens=span([work.token_context / work.chunk_tokens for work in chunks]),
        batch=span([work.batch for work in decodes]),
        tkv_tokens=span([work.tkv for work in decodes]),
    )


def _name(results: Sequence[Result]) -> str:
    return str(results[0].data.get("model_id") or results[0].path.stem)


def _source(results: Sequence[Result], prefill: Mask, best: _Candidate) -> str:
    simulated = [result.path.name for result in results if result.simulated]
    runs = ", ".join(
        f"{result.path.name} ({result.data.get('date', 'no date')})" for result in results
    )
    size = np.abs(best.ratio - 1.0)
    return (
        f"{'Simulated, not measured: f' if simulated else 'F'}itted by sendnn-bench {__version__} "
        f"to {runs}: {int(prefill.sum())} steps with prefill, {int((~prefill).sum())} decode "
        f"steps, relative error {100 * size.mean():.2f} % on average, "
        f"{100 * np.percentile(size, 95):.2f} % at P95"
    )


def _notes(results: Sequence[Result], runs: Sequence[MeasuredRun]) -> list[str]:
    notes = [
        f"{result.path}: {note}"
        for result, run in zip(results, runs, strict=True)
        for note in run.notes
    ]
    models = sorted({str(result.data.get("model_id")) for result in results})
    if len(models) > 1:
        notes.append(f"the results are of different models: {', '.join(models)}")
    return notes
