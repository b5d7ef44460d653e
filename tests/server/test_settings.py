"""Settings: what is read, and what is refused with the variable, the value and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sendnn_bench.errors import UsageError
from server_plugin import settings


def test_defaults() -> None:
    loaded = settings.load({})
    assert (loaded.prefill_ms, loaded.decode_ms, loaded.clock) == (100.0, 50.0, "virtual")
    assert loaded.metrics_file == Path("sim_metrics.jsonl")


def test_values_are_parsed() -> None:
    loaded = settings.load(
        {
            "SENDNN_INFERENCE_SIM_PREFILL_MS": "12.5",
            "SENDNN_INFERENCE_SIM_CLOCK": "paced",
            "SENDNN_INFERENCE_SIM_SPEED": "10",
            "SENDNN_INFERENCE_SIM_METRICS_FILE": "",
        }
    )
    assert (loaded.prefill_ms, loaded.clock, loaded.speed) == (12.5, "paced", 10.0)
    assert loaded.metrics_file is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PREFILL_MS", "fast"),
        ("PREFILL_MS", "-1"),
        ("DECODE_MS", "nan"),
        ("DECODE_MS", "inf"),
        ("CLOCK", "real"),
        ("SPEED", "0"),
        ("TARGET", "gpu"),
        ("PARITY", "yes"),
        ("HOST_OVERHEAD", "constant"),
        ("HOST_OVERHEAD", "constant:-1"),
        ("HOST_OVERHEAD", "some"),
        ("SESSION_EXPIRY_S", "0"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str) -> None:
    variable = f"SENDNN_INFERENCE_SIM_{name}"
    with pytest.raises(UsageError) as caught:
        settings.load({variable: value})
    assert variable in str(caught.value)
    assert repr(value) in str(caught.value)


def test_an_unknown_variable_is_refused() -> None:
    with pytest.raises(UsageError, match="SENDNN_INFERENCE_SIM_PREFIL_MS is no setting"):
        settings.load({"SENDNN_INFERENCE_SIM_PREFIL_MS": "1"})


@pytest.mark.parametrize(("text", "on"), [("1", True), ("0", False), ("", False)])
def test_the_switch(text: str, on: bool) -> None:
    assert settings.enabled({settings.MODE_VARIABLE: text}) is on
    assert settings.enabled({}) is False


@pytest.mark.parametrize(
    ("text", "constant_ms", "measured"),
    [("off", 0.0, False), ("constant:1.5", 1.5, False), ("measured", 0.0, True)],
)
def test_host_overhead(text: str, constant_ms: float, measured: bool) -> None:
    loaded = settings.load({"SENDNN_INFERENCE_SIM_HOST_OVERHEAD": text})
    assert loaded.host_overhead == settings.HostOverhead(constant_ms, measured)
    assert settings.describe(loaded)["SENDNN_INFERENCE_SIM_HOST_OVERHEAD"] == text


def test_a_wrong_switch_is_refused() -> None:
    with pytest.raises(UsageError, match="set 1 to simulate"):
        settings.enabled({settings.MODE_VARIABLE: "true"})


def test_every_field_has_one_variable() -> None:
    fields = [variable.field for variable in settings.VARIABLES]
    assert sorted(fields) == sorted(settings.SimSettings.__dataclass_fields__)
    assert set(settings.describe(settings.load({}))) == {v.name for v in settings.VARIABLES}
