"""Whatever stands in a request's simulation fields: a valid reading or a ValueError that names the
field, in reasonable length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sendnn_bench.protocol import XARG_ARRIVAL_NS, XARG_OUTPUT_TOKENS, XARG_SEQ, XARG_SESSION, XARGS
from server_plugin.sim.fields import MAX_COUNT, MAX_NS, MAX_TEXT, SimFields, parse
from server_plugin.sim.metrics_file import MetricsFile
from server_plugin.sim.recorder import RequestRecord

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, 1, MAX_COUNT, MAX_COUNT + 1, MAX_NS, MAX_NS + 1, 10**4000, -1]),
    st.floats(),
    st.text(max_size=MAX_TEXT + 5),
    st.binary(max_size=4),
)
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.text(max_size=3), SCALARS)
FIELDS = st.dictionaries(st.sampled_from(XARGS) | st.text(max_size=5), VALUES, max_size=6)


@settings(max_examples=1000)
@given(FIELDS)
def test_fields_are_read_or_refused_by_name(fields: dict[str, Any]) -> None:
    try:
        read = parse(fields)
    except ValueError as error:
        told = str(error)
    else:
        check(read)
        return
    assert any(name in told for name in XARGS)
    assert len(told) < 300


def check(read: SimFields) -> None:
    assert 0 <= read.seq <= MAX_COUNT
    assert 0 <= read.arrival_ns <= MAX_NS
    assert read.output_tokens is None or 1 <= read.output_tokens <= MAX_COUNT
    assert read.session is None or 0 < len(read.session) <= MAX_TEXT


@pytest.mark.parametrize("name", [XARG_SEQ, XARG_ARRIVAL_NS, XARG_OUTPUT_TOKENS])
@pytest.mark.parametrize(
    "value", [pytest.param(10**5000, id="huge"), float("nan"), float("inf"), -1, True, "1", [1]]
)
def test_a_wrong_number_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        parse({XARG_SESSION: "s", XARG_SEQ: 0, XARG_ARRIVAL_NS: 0, name: value})


@pytest.mark.fault(
    section="files",
    fault="disk full under the server's metrics file",
    what="its lines are missing, with one warning in the log; the run goes on",
    exit_code=0,
)
def test_a_full_disk_costs_metrics_lines_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = MetricsFile(Path("/dev/full"))
    for _ in range(3):
        file.write(RequestRecord("r", arrival_ns=0, arrival_step=0, prompt_tokens=1, finish_ns=5))
    assert [record.getMessage() for record in caplog.records] == [
        "/dev/full cannot be written (No space left on device): lines are missing."
    ]
