"""Simulation settings: environment variables read and validated once into one frozen object.

`VARIABLES` is the table that documents and parses them; docs/settings.md is made from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from sendnn_bench.errors import UsageError
from sendnn_bench.protocol import ClockMode

PREFIX = "SENDNN_INFERENCE_SIM_"
MODE_VARIABLE = PREFIX + "MODE"

PLUGIN = "sendnn_bench_sim"
"""The plugin's name in every entry point group, and in vLLM's allow-list."""

SPYRE_PACKAGE = "sendnn_inference"

Target = Literal["auto", "spyre", "stock"]
Runner = Literal["full", "lean"]


@dataclass(frozen=True)
class HostOverhead:
    """What each step costs beyond the device: ``constant_ms``, or what the host really took."""

    constant_ms: float = 0.0
    measured: bool = False

    def __str__(self) -> str:
        if self.measured:
            return "measured"
        return f"constant:{self.constant_ms:g}" if self.constant_ms else "off"


@dataclass(frozen=True)
class SimSettings:
    """Everything that shapes a simulation, as validated. Field names are the variables' names."""

    prefill_ms: float
    decode_ms: float
    profile: Path | None
    clock: ClockMode
    speed: float
    host_overhead: HostOverhead
    target: Target
    runner: Runner
    memory_gb: float
    acceptance_rate: float
    draft_ms: float
    session_expiry_s: float
    metrics_file: Path | None
    parity: bool


@dataclass(frozen=True)
class Variable:
    """One environment variable: how it is parsed, what is allowed, what it means."""

    field: str
    default: str
    allowed: str
    parse: Callable[[str], Any]
    meaning: str

    @property
    def name(self) -> str:
        """Full name of the environment variable."""
        return PREFIX + self.field.upper()


def _number(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text)
        if not math.isfinite(value) or not low <= value <= high:
            raise ValueError(text)
        return value

    return parse


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(text)
        return text

    return parse


def _host_overhead(text: str) -> HostOverhead:
    kind, _, value = text.partition(":")
    if kind == "constant":
        return HostOverhead(constant_ms=_number(0, 1e6)(value))
    _choice("off", "measured")(text)
    return HostOverhead(measured=text == "measured")


def _switch(text: str) -> bool:
    return _choice("0", "1")(text) == "1"


def _path(text: str) -> Path | None:
    return Path(text) if text else None


VARIABLES: tuple[Variable, ...] = (
    Variable(
        "prefill_ms",
        "100",
        "a number of milliseconds from 0 to 1e9",
        _number(0, 1e9),
        "Cost of a step that holds a prefill chunk.",
    ),
    Variable(
        "decode_ms",
        "50",
        "a number of milliseconds from 0 to 1e9",
        _number(0, 1e9),
        "Cost of a decode step.",
    ),
    Variable(
        "profile",
        "",
        "a cost profile file",
        _path,
        "Cost profile that replaces the two constants.",
    ),
    Variable(
        "clock",
        "virtual",
        "virtual, paced or free",
        _choice("virtual", "paced", "free"),
        "Mode of time: `virtual` co-simulates with `sendnn-bench serve`; `paced` lets each step "
        "last its cost divided by the speed, for any client; `free` runs as fast as it can and "
        "only counts.",
    ),
    Variable(
        "speed",
        "1",
        "a factor from 0.001 to 1000",
        _number(1e-3, 1e3),
        "Virtual seconds per wall second in paced mode.",
    ),
    Variable(
        "host_overhead",
        "off",
        "off, constant:MS or measured",
        _host_overhead,
        "What the host adds to each step: nothing, a constant, or the real time of schedule, input "
        "preparation and update. `measured` shows a slow scheduler in TTFT and ITL; a run is then "
        "not reproducible.",
    ),
    Variable(
        "target",
        "auto",
        "auto, spyre or stock",
        _choice("auto", "spyre", "stock"),
        "Whose scheduler runs: `spyre` from sendnn-inference, `stock` vLLM's own. `auto` takes "
        "spyre where sendnn-inference is installed.",
    ),
    Variable(
        "runner",
        "full",
        "full or lean",
        _choice("full", "lean"),
        "`full` runs upstream's model runner, input batch, sampler and logits processors, with its "
        "constraint checks; `lean` computes only what the scheduler needs of them, several times "
        "faster, and refuses requests that need logits. The stock target is always lean.",
    ),
    Variable(
        "memory_gb",
        "80",
        "a number of GiB from 0.001 to 100000",
        _number(1e-3, 1e5),
        "Memory of one simulated device in GiB (stock target). `--gpu-memory-utilization` of it, "
        "less the weights, holds the KV cache.",
    ),
    Variable(
        "acceptance_rate",
        "0.7",
        "a probability from 0 to 1",
        _number(0, 1),
        "Speculative decoding (stock target): probability that a draft token is accepted after "
        "those before it.",
    ),
    Variable(
        "draft_ms",
        "0",
        "a number of milliseconds from 0 to 1e9",
        _number(0, 1e9),
        "Speculative decoding (stock target): cost of drafting, added to each step that verifies "
        "draft tokens.",
    ),
    Variable(
        "session_expiry_s",
        "60",
        "a number of seconds from 0.1 to 86400",
        _number(0.1, 86400),
        "Real time after which a session whose client went silent is ended.",
    ),
    Variable(
        "metrics_file",
        "sim_metrics.jsonl",
        "a file name, or empty for none",
        _path,
        "The server appends one JSON line per finished request.",
    ),
    Variable(
        "parity",
        "0",
        "0 or 1",
        _switch,
        "1 streams upstream's own metrics beside ours, under `spyre_metrics_upstream`.",
    ),
)


def enabled(environ: Mapping[str, str]) -> bool:
    """True where simulation is switched on.

    Raises:
        UsageError: the variable holds something else than 0 or 1.
    """
    text = environ.get(MODE_VARIABLE, "0")
    if text not in ("", "0", "1"):
        raise UsageError(f"{MODE_VARIABLE}={text!r} is not allowed; set 1 to simulate, 0 not to.")
    return text == "1"


def load(environ: Mapping[str, str]) -> SimSettings:
    """Read every variable of :data:`VARIABLES`.

    Raises:
        UsageError: a value is not allowed, or a variable with our prefix is unknown.
    """
    known = {variable.name for variable in VARIABLES} | {MODE_VARIABLE}
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            raise UsageError(f"{name} is no setting of the simulator. Known: {sorted(known)}.")
    values = {}
    for variable in VARIABLES:
        text = environ.get(variable.name, variable.default)
        try:
            values[variable.field] = variable.parse(text)
        except ValueError as error:
            raise UsageError(
                f"{variable.name}={text!r} is not allowed; it takes {variable.allowed}."
            ) from error
    return SimSettings(**values)


def spyre_installed() -> bool:
    """True where the spyre target can run."""
    return find_spec(SPYRE_PACKAGE) is not None


def resolve_target(settings: SimSettings) -> Literal["spyre", "stock"]:
    """Whose scheduler runs.

    Raises:
        UsageError: spyre is asked for and sendnn-inference is not installed.
    """
    if settings.target == "spyre" and not spyre_installed():
        raise UsageError(
            "target spyre needs sendnn-inference, which is not installed. Install "
            "`sendnn-bench[spyre]`, or choose target stock."
        )
    if settings.target == "auto":
        return "spyre" if spyre_installed() else "stock"
    return settings.target


def describe(settings: SimSettings) -> dict[str, Any]:
    """Settings by environment variable, as recorded in results."""
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return {
        PREFIX + name.upper(): str(value) if isinstance(value, (Path, HostOverhead)) else value
        for name, value in values.items()
    }
