"""Cost models: what one engine step costs on the virtual clock.

`build` makes a model out of a cost profile. A step costs what the profile's kind says of its
shape, times the noise drawn for its index, plus the host term. `step_ns` runs once per step, so
it is plain Python on numbers that were scaled to ns beforehand.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from dataclasses import dataclass
from typing import Any, Protocol

from sendnn_bench.cost_formula import NS_PER_MS, Work, formula_of, work_of
from sendnn_bench.profile import dump
from sendnn_bench.profile_spec import Domain, Noise, Profile, Range

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a cost model may know of one engine step.

    ``chunks`` holds (chunk tokens, context tokens) of each prefilling request, ``decode_batch``
    the number of decoding requests, ``tkv`` the padded length of the batch in tokens, ``index``
    the step's number within the session (0, 1, ...), which keys reproducible noise.
    """

    chunks: tuple[tuple[int, int], ...]
    decode_batch: int
    tkv: int
    index: int


class CostModel(Protocol):
    """One small class per model.

    ``outside_steps`` counts steps beyond the measured domain. The frontend terms are the time from
    a request's arrival to the engine, and from a token's end of step to the client.
    """

    outside_steps: int

    @property
    def frontend_request_ns(self) -> int: ...

    @property
    def frontend_token_ns(self) -> int: ...

    def step_ns(self, shape: StepShape) -> int:
        """Cost of a step in nanoseconds, never negative."""

    def describe(self) -> dict[str, Any]:
        """Kind and parameters, as recorded in results."""


@dataclass
class ConstantCost:
    """A step with a prefill chunk costs ``prefill_ns``, any other ``decode_ns``."""

    prefill_ns: int
    decode_ns: int
    outside_steps: int = 0
    frontend_request_ns: int = 0
    frontend_token_ns: int = 0

    def step_ns(self, shape: StepShape) -> int:
        return self.prefill_ns if shape.chunks else self.decode_ns

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "constant",
            "prefill_ms": self.prefill_ns / 1e6,
            "decode_ms": self.decode_ns / 1e6,
        }


class ProfileCost:
    """A cost profile at work.

    ``outside_steps`` counts the steps beyond the measured domain since the model was built; the
    frontend terms are for whoever moves requests and tokens, `step_ns` leaves them out.
    """

    def __init__(self, profile: Profile) -> None:
        host, frontend = profile.host, profile.frontend
        self.outside_steps = 0
        self.frontend_request_ns = round(frontend.request_ms * NS_PER_MS) if frontend else 0
        self.frontend_token_ns = round(frontend.token_ms * NS_PER_MS) if frontend else 0
        self._profile = profile
        self._padded = profile.padded_chunk_tokens
        self._formula = formula_of(profile.costs)
        self._noise = profile.noise
        self._domain = profile.domain
        self._host_ns = host.h0_ms * NS_PER_MS if host else 0.0
        self._host_ns_per_request = host.h1_ms_per_request * NS_PER_MS if host else 0.0

    def step_ns(self, shape: StepShape) -> int:
        work = work_of(shape.chunks, shape.decode_batch, shape.tkv, self._padded)
        if self._domain is not None:
            self._watch(self._domain, work)
        cost_ns = self._formula(work)
        if self._noise is not None:
            cost_ns *= _draw(self._noise, shape)
        batch = len(shape.chunks) + shape.decode_batch
        return max(0, round(cost_ns + self._host_ns + self._host_ns_per_request * batch))

    def describe(self) -> dict[str, Any]:
        described = {"kind": self._profile.kind, **dataclasses.asdict(self._profile)}
        noise = self._noise
        if noise is not None:
            described["noise"] = {
                "seed": noise.seed,
                "prefill_ratios": len(noise.prefill_ratio),
                "decode_ratios": len(noise.decode_ratio),
            }
        digest = hashlib.sha256(dump(self._profile).encode()).hexdigest()
        return {key: value for key, value in described.items() if value is not None} | {
            "sha256": digest
        }

    def _watch(self, domain: Domain, work: Work) -> None:
        beyond = _beyond(domain, work)
        if not beyond:
            return
        if self.outside_steps == 0:
            logger.warning(
                "A step with %s lies outside what the cost profile %r was measured on; its cost "
                "is extrapolated. Further ones are only counted.",
                beyond,
                self._profile.name,
            )
        self.outside_steps += 1


def build(profile: Profile) -> ProfileCost:
    """The cost model of a profile."""
    return ProfileCost(profile)


def _beyond(domain: Domain, work: Work) -> str:
    """Names the first quantity outside the domain, with its value; empty inside."""
    if work.chunk_tokens:
        context = work.token_context / work.chunk_tokens
        if _outside(domain.chunk_tokens, work.chunk_tokens):
            return f"{work.chunk_tokens} chunk tokens"
        if _outside(domain.context_tokens, context):
            return f"{context:g} context tokens"
    if work.batch:
        if _outside(domain.batch, work.batch):
            return f"{work.batch} decoding requests"
        if _outside(domain.tkv_tokens, work.tkv):
            return f"tkv {work.tkv}"
    return ""


def _outside(measured: Range | None, value: float) -> bool:
    return measured is not None and not measured[0] <= value <= measured[1]


def _draw(noise: Noise, shape: StepShape) -> float:
    """The step's ratio: depends on seed and index alone, whatever was drawn before."""
    ratios = noise.prefill_ratio if shape.chunks else noise.decode_ratio
    return ratios[_mix(noise.seed, shape.index) % len(ratios)] if ratios else 1.0


def _mix(seed: int, index: int) -> int:
    """Two numbers to 64 well-spread bits (the SplitMix64 finaliser over a Weyl sequence)."""
    mask = (1 << 64) - 1
    value = (seed * 0xD1342543DE82EF95 + (index + 1) * 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return value ^ (value >> 31)
