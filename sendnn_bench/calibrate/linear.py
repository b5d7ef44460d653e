"""Fit of the linear profile, and which of its terms the data can tell."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from sendnn_bench.calibrate.data import Floats, Observed, mean_ratio, solve, tidy
from sendnn_bench.errors import UsageError
from sendnn_bench.profile_spec import DecodeLine, LinearCosts, PrefillLine

MIN_STEPS = 10
"""Fewer steps of a phase tell nothing of it."""

SEPARATE = 1e-6
"""Smallest singular value, of columns of length 1, at which two terms count as told apart."""


@dataclass(frozen=True)
class Term:
    """One coefficient: what it multiplies, and what a run must vary to tell it."""

    name: str
    column: Callable[[Observed], Floats]
    varied: Callable[[Observed], Floats]
    prefill: bool
    missing: str


TERMS = (
    Term("p0", lambda c: c.prefill * 1.0, lambda c: c.ms, True, ""),
    Term(
        "p1",
        lambda c: c.chunk_tokens,
        lambda c: c.chunk_tokens,
        True,
        "every prefill chunk has {seen} tokens, so that p1 cannot be told from p0; measure "
        "prompts of other lengths",
    ),
    Term(
        "p2",
        lambda c: c.token_context,
        lambda c: c.context,
        True,
        "every prefill chunk has a context of {seen} tokens, so that p2 cannot be told from p0 "
        "and p1; measure prompts of several chunks",
    ),
    Term("d0", lambda c: ~c.prefill * 1.0, lambda c: c.ms, False, ""),
    Term(
        "d1",
        lambda c: c.batch,
        lambda c: c.batch,
        False,
        "every decode step has a batch size of {seen}, so that d1 cannot be told from d0; measure "
        "other values of --max-concurrency too",
    ),
    Term(
        "d2",
        lambda c: c.batch * c.tkv,
        lambda c: c.tkv,
        False,
        "every decode step has a tkv of {seen}, so that d2 cannot be told from d1; measure longer "
        "outputs or other prompt lengths",
    ),
)
DROPPABLE = tuple(term.name for term in TERMS if term.missing)


def check_amount(observed: Observed) -> None:
    """Refuse a run with too few steps.

    Raises:
        UsageError: naming the phase that lacks steps.
    """
    for mask, what in ((observed.prefill, "prefill chunks"), (~observed.prefill, "decode steps")):
        seen = int(mask.sum())
        if seen < MIN_STEPS:
            raise UsageError(
                f"too little data: {seen} {what}, at least {MIN_STEPS} are needed. Calibrate from "
                "longer runs, or from several together."
            )


def untold(observed: Observed, dropped: Collection[str] = ()) -> dict[str, str]:
    """Terms that the data cannot tell, each with the reason; ``dropped`` ones are not asked for."""
    found = {}
    for term in TERMS:
        if not term.missing or term.name in dropped:
            continue
        own = observed.where(observed.prefill if term.prefill else observed.batch > 0)
        values = np.unique(term.varied(own))
        if len(values) == 1:
            found[term.name] = term.missing.format(seen=f"{values[0]:g}")
    return found or _entangled(observed, dropped)


def _entangled(observed: Observed, dropped: Collection[str]) -> dict[str, str]:
    """The term to leave out where columns vary but only together."""
    terms = [term for term in TERMS if term.name not in dropped]
    matrix = np.column_stack([term.column(observed) for term in terms]) / observed.ms[:, None]
    norms = np.linalg.norm(matrix, axis=0)
    _, singular, rows = np.linalg.svd(matrix / np.where(norms > 0, norms, 1.0), full_matrices=False)
    if len(singular) == len(terms) and singular[-1] > SEPARATE:
        return {}
    weak = [term.name for term, part in zip(terms, rows[-1], strict=True) if abs(part) > 1e-3]
    droppable = [name for name in weak if name in DROPPABLE]
    reason = f"{' and '.join(weak)} vary only together; measure loads of other shapes"
    return {droppable[-1]: reason} if droppable else {}


def fit_linear(observed: Observed, dropped: Collection[str] = ()) -> LinearCosts:
    """Coefficients in ms; dropped terms are 0. Each phase takes as long in all as it did."""
    terms = [term for term in TERMS if term.name not in dropped]
    matrix = np.column_stack([term.column(observed) for term in terms])
    found = solve(matrix, observed)
    predicted = matrix @ found
    ratio = {
        phase: mean_ratio(observed.where(mask), predicted[mask])
        for phase, mask in ((True, observed.prefill), (False, ~observed.prefill))
    }
    values = {
        term.name: tidy(value * ratio[term.prefill])
        for term, value in zip(terms, found, strict=True)
    }
    p0, p1, p2, d0, d1, d2 = (values.get(term.name, 0.0) for term in TERMS)
    return LinearCosts(PrefillLine(p0, p1, p2), DecodeLine(d0, d1, d2))
